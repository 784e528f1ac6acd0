"""Synthetic micrographs for the example: bright cells on a noisy background, and their masks."""

import os
from pathlib import Path

import numpy as np
import torch


def write(folder: Path, number: int, side: int, seed: int = 0) -> tuple[Path, Path]:
    """Writes images and masks, one sample at a time, unless they exist.

    Args:
        folder: The folder for the files.
        number: The number of samples.
        side: The height and width of an image.
        seed: The seed of the random cells.

    Returns:
        The files: images (number, 1, side, side) of float32, and masks like them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    images, masks = (folder / f"{name}-{number}x{side}.npy" for name in ("images", "masks"))
    if not masks.exists():
        # Written to temporary files and renamed, so that no reader finds a partial file.
        unfinished = [path.with_suffix(f".{os.getpid()}") for path in (images, masks)]
        _write(*unfinished, (number, 1, side, side), np.random.default_rng(seed))
        for path, final in zip(unfinished, (images, masks), strict=True):
            path.rename(final)
    return images, masks


def load(file: Path) -> torch.Tensor:
    """Opens a file of samples.

    Args:
        file: A file written by `write`.

    Returns:
        The samples.
    """
    return torch.from_numpy(np.load(file))


def _write(
    image_file: Path, mask_file: Path, shape: tuple[int, int, int, int], random: np.random.Generator
) -> None:
    images, masks = (
        np.lib.format.open_memmap(path, "w+", "float32", shape) for path in (image_file, mask_file)
    )
    side = shape[-1]
    rows, columns = np.ogrid[:side, :side]
    for image, mask in zip(images[:, 0], masks[:, 0], strict=True):
        for _ in range(12):
            row, column = random.uniform(0, side, 2)
            radius = random.uniform(side / 16, side / 8)
            mask[(rows - row) ** 2 + (columns - column) ** 2 < radius**2] = 1
        image[:] = mask + random.normal(0, 0.5, (side, side))
    images.flush()
    masks.flush()
