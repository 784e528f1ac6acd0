"""Runs the framework examples: each plain script, and its marked version on several workers.

The scripts themselves check their test errors.
"""

import difflib
import gzip
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "examples/frameworks"
SCRIPTS = sorted(path.with_name(path.name.replace("_unisono", "")) for path in FOLDER.glob("*/*_unisono.py"))
RECOMMENDER = ROOT / "examples/applications/dlrm.py"
SEGMENTATION = ROOT / "examples/halos/segmentation.py"
# The packages that the scripts of a folder need.
NEEDS = {
    "pytorch": "torch",
    "pytensor": "pytensor",
    "keras": "keras",
    "jax": "jax",
    "halos": "torch",
    "applications": "torch",
}


def run(script: Path, workers: int | None, *arguments: str) -> str:
    """Returns the output of a script; for None, without a launcher."""
    name = NEEDS[script.parent.name]
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    launcher = [] if workers is None else ["-m", "unisono", "run", "-n", str(workers), "--"]
    result = subprocess.run(
        [sys.executable, *launcher, str(script), *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_digits(script: Path) -> None:
    """Only one worker prints, once per epoch. A run takes up to a minute: the scripts share the numbers."""
    numbers = [2] if script.stem == "cnn" else [None, 1]
    for workers in numbers:
        name = script if workers is None else script.with_name(f"{script.stem}_unisono.py")
        epochs = re.findall(r"epoch (\d+): test error +[\d.]+%", run(name, workers))
        assert epochs and epochs == [str(number + 1) for number in range(len(epochs))], epochs


@pytest.mark.parametrize(
    "script", [*SCRIPTS, SEGMENTATION, RECOMMENDER], ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_only_marked_lines_differ(script: Path) -> None:
    """After its docstring, a script differs from its plain form only at marked lines."""
    plain, ours = (
        path.read_text().split('"""', 2)[2].splitlines()
        for path in (script, script.with_name(f"{script.stem}_unisono.py"))
    )
    changes = [one for one in difflib.SequenceMatcher(a=plain, b=ours).get_opcodes() if one[0] != "equal"]
    assert changes
    for _, _, _, begin, end in changes:
        assert any("# UNISONO:" in line for line in ours[max(0, begin - 1) : end]), ours[begin:end]


def test_recommender() -> None:
    """A model with rows in a table learns as much as with PyTorch's optimizers, on any number of workers."""
    options = ["--rows", "300", "--batch", "256", "--steps", "150", "--rate", "0.01"]
    areas = []
    for workers in (None, 1, 3):
        script = RECOMMENDER.with_name("dlrm.py" if workers is None else "dlrm_unisono.py")
        areas.append(float(re.findall(r"area under the curve: ([\d.]+)", run(script, workers, *options))[0]))
    assert areas[0] > 0.7, areas
    assert abs(areas[1] - areas[0]) < 0.03 and abs(areas[2] - areas[1]) < 0.01, areas


def test_segmentation(tmp_path: Path) -> None:
    """A network on parts of images learns what it learns on full images, with the same parameter names."""
    torch = pytest.importorskip("torch")
    printed, weights = {}, {}
    for workers in (None, 4):
        script = SEGMENTATION if workers is None else SEGMENTATION.with_name("segmentation_unisono.py")
        file = tmp_path / f"{workers}.pt"
        options = ["--side", "64", "--data", str(tmp_path), "--save", str(file)]
        figures = re.findall(
            r"epoch \d: loss ([\d.]+), wrong pixels ([\d.]+)%", run(script, workers, *options)
        )
        printed[workers] = np.array(figures, dtype=float)
        weights[workers] = torch.load(file)
    assert printed[None].shape == (3, 2)
    np.testing.assert_allclose(printed[4], printed[None], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(weights[4], weights[None], rtol=1e-4, atol=1e-5)


def photographs(folder: Path, name: str, number: int, seed: int) -> None:
    """Writes synthetic photographs in CIFAR-10's format: a colour for each class, and noise."""
    random = np.random.default_rng(seed)
    colours = np.random.default_rng(0).integers(40, 216, (10, 3, 1, 1))
    labels = np.arange(number) % 10
    images = colours[labels] + random.integers(-40, 40, (number, 3, 32, 32))
    records = np.hstack([labels[:, None], images.reshape(number, -1)]).astype(np.uint8)
    (folder / f"{name}.gz").write_bytes(gzip.compress(records.tobytes(), 1))


def test_resnet(tmp_path: Path) -> None:
    """All 20 layers, on few photographs; guessing would be wrong nine times out of ten."""
    photographs(tmp_path, "data_batch_1.bin", 240, seed=1)
    photographs(tmp_path, "test_batch.bin", 100, seed=2)
    options = ["--epochs", "2", "--batch", "16", "--rate", "0.05", "--most", "0.6"]
    output = run(FOLDER / "pytorch/resnet.py", 2, "--data", str(tmp_path), *options)
    assert len(re.findall(r"epoch \d: test error", output)) == 2, output


def test_data_is_checked(tmp_path: Path) -> None:
    """A file that is not the original is rejected, and existing files are not downloaded again."""
    sys.path.insert(0, str(FOLDER))
    try:
        import data
    finally:
        sys.path.pop(0)
    assert [len(part) for part in data.mnist()] == [3000, 3000, 1000, 1000]
    (tmp_path / "test_batch.bin").write_bytes(b"")
    data.fetch("cifar10", tmp_path)
    with pytest.raises(SystemExit, match="checksum"):
        data._check("file", "1", "2")
    with pytest.raises(SystemExit, match="train-images"):
        data.mnist(tmp_path)
    with pytest.raises(SystemExit, match="data_batch_1"):
        data.cifar10(tmp_path)
