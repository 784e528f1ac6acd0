"""Handwritten digits (MNIST) and small photographs (CIFAR-10) as arrays, for the examples in this folder.

A small part of MNIST is in examples/data. For all of it, and for CIFAR-10, pass a folder that contains the
files, or download them once:

    python examples/frameworks/data.py mnist FOLDER
    python examples/frameworks/data.py cifar10 FOLDER
"""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import tarfile
import urllib.request
from pathlib import Path
from typing import NamedTuple

import numpy as np

SAMPLE = Path(__file__).resolve().parents[1] / "data/mnist"

MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/"
# Digests of the decompressed files.
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
CIFAR10 = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR10_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"  # as published on the data set's page


class Data(NamedTuple):
    """Images and labels, for training and for testing."""

    images: np.ndarray
    """float32 from 0 to 1: (number, 28, 28) for digits, (number, 3, 32, 32) for photographs."""
    labels: np.ndarray
    """int64 from 0 to 9."""
    test_images: np.ndarray
    test_labels: np.ndarray


def mnist(folder: str | Path | None = None) -> Data:
    """Reads handwritten digits.

    Args:
        folder: The folder of MNIST's four files, gzipped or not; by default the sample in this
            repository.

    Returns:
        The digits.
    """
    folder = Path(folder or SAMPLE)
    parts = []
    for part in ("train", "t10k"):
        images = _idx(_content(folder, f"{part}-images-idx3-ubyte"))
        parts += [images.astype(np.float32) / 255, _idx(_content(folder, f"{part}-labels-idx1-ubyte"))]
    return Data(parts[0], parts[1].astype(np.int64), parts[2], parts[3].astype(np.int64))


def cifar10(folder: str | Path) -> Data:
    """Reads small photographs of ten classes.

    Args:
        folder: The folder of the binary version (data_batch_1.bin and so on), gzipped or not. A
            file may hold fewer photographs than the original.

    Returns:
        The photographs.
    """
    folder = Path(folder)
    names = [f"data_batch_{number}.bin" for number in range(1, 6)]
    training = [_content(folder, name) for name in names if _find(folder, name) is not None]
    if not training:
        raise SystemExit(
            f"{folder} has no {names[0]}; download it: python examples/frameworks/data.py cifar10 {folder}"
        )
    images, labels = _records(b"".join(training))
    return Data(images, labels, *_records(_content(folder, "test_batch.bin")))


def fetch(name: str, folder: Path) -> None:
    """Downloads a data set, unless it exists, and checks its digest.

    Args:
        name: "mnist" or "cifar10".
        folder: The folder for the files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if name == "mnist":
        for file, digest in MNIST_SHA256.items():
            if _find(folder, file) is None:
                content = gzip.decompress(_download(f"{MNIST}{file}.gz"))
                _check(file, hashlib.sha256(content).hexdigest(), digest)
                _keep(folder / file, content)
    elif _find(folder, "test_batch.bin") is None:
        packed = _download(CIFAR10)
        _check("cifar-10-binary.tar.gz", hashlib.md5(packed).hexdigest(), CIFAR10_MD5)
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            for member in archive:
                content = archive.extractfile(member) if member.name.endswith(".bin") else None
                if content is not None:
                    _keep(folder / Path(member.name).name, content.read())


def _idx(content: bytes) -> np.ndarray:
    """Parses MNIST's format: a magic number that ends with the number of axes, their lengths, then bytes."""
    axes = content[3]
    shape = np.frombuffer(content, ">u4", count=axes, offset=4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)


def _records(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Parses CIFAR-10's binary format: a label, then a plane for each colour."""
    records = np.frombuffer(content, np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    images = records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255
    return images, records[:, 0].astype(np.int64)


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.exists()), None)


def _content(folder: Path, name: str) -> bytes:
    path = _find(folder, name)
    if path is None:
        raise SystemExit(
            f"{folder} has no {name}; the docstring of {Path(__file__).name} explains how to download it"
        )
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def _download(address: str) -> bytes:
    print(f"downloading {address}", file=sys.stderr)
    with urllib.request.urlopen(address, timeout=60) as answer:
        content: bytes = answer.read()
    return content


def _check(name: str, found: str, expected: str) -> None:
    if found != expected:
        raise SystemExit(
            f"{name} has the checksum {found} instead of {expected}: it is damaged, or not the original"
        )


def _keep(path: Path, content: bytes) -> None:
    """Writes to a temporary file and renames it, so that a file with the final name is complete."""
    unfinished = path.with_suffix(path.suffix + ".part")
    unfinished.write_bytes(content)
    unfinished.replace(path)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("mnist", "cifar10"):
        raise SystemExit(__doc__)
    fetch(sys.argv[1], Path(sys.argv[2]))
