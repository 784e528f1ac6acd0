"""Runs the commands in the README of a project that `unisono init` has written."""

import os
import re
import subprocess
import sys
from pathlib import Path

PROGRAM = [sys.executable, "-m", "unisono"]


def run(command: list[str], folder: Path) -> str:
    """Runs a command and returns its output."""
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=folder)
    assert result.returncode == 0, f"{command}:\n{result.stdout}{result.stderr}"
    return result.stdout


def test_a_new_project_works(tmp_path: Path) -> None:
    """Its script finds the line on one process and two, and its experiment trains."""
    run([*PROGRAM, "init", "myproject"], tmp_path)
    project = tmp_path / "myproject"
    page = (project / "README.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    commands = [line.partition(" #")[0].split() for line in "".join(blocks).splitlines()]
    assert [command[:2] for command in commands[:2]] == [["unisono", "run"], ["unisono", "train"]]
    outputs = [run([*PROGRAM, *command[1:]], project) for command in commands]
    assert "step 200: loss 0.01" in outputs[0], outputs[0]
    assert "slope 3.00, intercept 0.50" in outputs[0], outputs[0]
    assert "slope 3.0" in run([sys.executable, "train.py"], project)
    assert (project / "runs/digits/metrics.csv").is_file()
    assert not set(os.listdir(project)) - {"README.md", "train.py", "digits.yaml", ".gitignore", "runs"}
