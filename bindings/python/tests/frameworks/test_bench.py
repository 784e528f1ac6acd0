"""The measurements run, check their results, and say what they need."""

import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "unisono", "bench", "frameworks"]


def test_it_measures_and_checks():
    pytest.importorskip("torch", reason="no PyTorch here: pip install torch")
    command = [*COMMAND, "--parameters", "10000", "--seconds", "0.1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=180)
    assert result.returncode == 0, result.stdout + result.stderr
    for line in ("sync / copy out and back", "average_gradients / Gloo", "step with background sync / step"):
        assert line in result.stdout


def test_it_says_that_pytorch_is_missing(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(COMMAND, capture_output=True, text=True, timeout=60, env=environment)
    assert result.returncode == 1 and "pip install torch" in result.stderr, result.stderr
