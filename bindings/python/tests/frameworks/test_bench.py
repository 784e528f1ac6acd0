"""The benchmarks run, check their results, and report what they need."""

import json
import os
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-m", "unisono", "bench", "frameworks"]


def test_the_benchmark_measures_and_checks():
    pytest.importorskip("torch", reason="no PyTorch here: pip install torch")
    command = [*COMMAND, "--parameters", "10000", "--seconds", "0.1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    for line in ("sync / copy out and back", "average_gradients / Gloo", "step with background sync / step"):
        assert line in result.stdout


def test_missing_pytorch_is_reported(tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('no torch')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path}
    result = subprocess.run(COMMAND, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 1 and "pip install torch" in result.stderr, result.stderr


def test_halos_are_measured_and_checked(tmp_path):
    pytest.importorskip("torch", reason="no PyTorch here: pip install torch")
    file = tmp_path / "figures.json"
    array = ["--shape", "1,4,24,20", "--grid", "1,2", "--stack", "32", "--image", "512"]
    command = [
        sys.executable,
        "-m",
        "unisono",
        "bench",
        "halo",
        *array,
        "--seconds",
        "0.01",
        "--json",
        str(file),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout + result.stderr
    figures = {one["name"]: one for one in json.loads(file.read_text())["results"]}
    for name in (
        "forward / copy of the padded bytes",
        "halos in place / Gloo",
        "conv stack on 2 ranks / on one",
    ):
        assert figures[name]["repetitions"] >= 9 and name in result.stdout
    # A quarter of the image, its halos, and what does not depend on its size, beyond every process's own.
    memory = figures["memory of a rank"]
    assert 0.2 < memory["share_beyond_start"] < 0.5, memory
