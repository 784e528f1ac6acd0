"""The results of a real run: the curve and the filters of `unisono train experiments/mnist_convnet.yaml`.

It runs in double precision, so that all machines draw the same up to the last digits.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
EXPERIMENT = "experiments/mnist_convnet.yaml"
PICTURES = {"experiments-loss.svg": "loss.svg", "experiments-filters.png": "filters.png"}
"""The names in the guide, and in a run's folder."""


def draw() -> dict[str, bytes]:
    """Trains the network, and returns the pictures under the guide's names."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        train = ["-m", "unisono", "train", EXPERIMENT, "--set", "precision=f64", "--out", str(out)]
        subprocess.run([sys.executable, *train], cwd=ROOT, check=True, capture_output=True, timeout=600)
        return {name: (out / made).read_bytes() for name, made in PICTURES.items()}
