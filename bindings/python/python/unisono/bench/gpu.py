"""`unisono bench gpu`: the cost of calls on CUDA memory, next to PyTorch or to a bound from the same run."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

from unisono.bench.gpu_figures import MARK, NOTE


@dataclass
class BenchJob:
    """The measurements of one job."""

    name: str
    module: str
    ranks: int
    environment: dict[str, str] = field(default_factory=dict)
    has_detail: bool = False
    """Whether it can report a breakdown of its time."""


def _by(path: str) -> BenchJob:
    return BenchJob(f"collectives by {path}", "unisono.bench.gpu_collectives", 2, {"UNISONO_CUDA_PATH": path})


JOBS = [
    _by("ipc"),
    _by("staged"),
    _by("nccl"),
    BenchJob("tables", "unisono.bench.gpu_tables", 1),
    BenchJob("halos in space", "unisono.bench.gpu_halo", 4),
    BenchJob("stack in space", "unisono.bench.gpu_stack", 2, has_detail=True),
]
"""The jobs, which run one after the other."""

LIMIT = 300.0
"""The time limit of a job, in seconds."""


def measure(job: BenchJob, in_detail: bool) -> tuple[list[dict[str, Any]], list[str], str]:
    """Runs a job; returns its figures and notes, and its output if it failed."""
    launcher = [sys.executable, "-m", "unisono", "run", "-n", str(job.ranks), "--"]
    arguments = ["--detail"] if in_detail and job.has_detail else []
    command = [*launcher, sys.executable, "-m", job.module, *arguments]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **job.environment}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        return [], [], f"it did not end within {LIMIT:.0f} s"
    lines = done.stdout.splitlines()
    figures = [json.loads(line.partition(MARK)[2]) for line in lines if MARK in line]
    notes = [line.partition(NOTE)[2] for line in lines if NOTE in line]
    complaint = "" if done.returncode == 0 else "\n".join((done.stdout + done.stderr).splitlines()[-15:])
    return figures, notes, complaint


def show(figures: list[dict[str, Any]]) -> None:
    """Prints the lines of the table."""
    for one in figures:
        wanted = ""
        if one["wanted"] is not None:
            wanted = f"≥ {one['wanted']:g} {'yes' if one['ratio'] >= one['wanted'] else 'NO'}"
        print(
            f"{one['name']:<40}{duration(one['minimum']):>11}{duration(one['median']):>11}  "
            f"{one['reference_name']:<16}{duration(one['reference']):>11}{one['ratio']:>9.2f} x  {wanted}",
            flush=True,
        )


def duration(seconds: float) -> str:
    """A duration in readable form."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.2g} µs"


def main() -> int:
    """Runs the parts and prints the table."""
    parser = argparse.ArgumentParser(prog="unisono bench gpu")
    parser.add_argument("--json", help="write the results to this file too")
    parser.add_argument("--only", default="", help="parts whose names contain this")
    parser.add_argument("--detail", action="store_true", help="say besides where the time of a part goes")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print(
            "unisono: bench gpu needs PyTorch, which this Python does not have; install it", file=sys.stderr
        )
        return 1
    import torch

    if not torch.cuda.is_available():
        missing = "a CUDA device, and PyTorch sees none here; `unisono doctor` shows what is missing"
        print(f"unisono: bench gpu needs {missing}", file=sys.stderr)
        return 1
    cuda: Any = torch.version.cuda
    card = f"{torch.cuda.get_device_name()}, {torch.cuda.device_count()} of them"
    print(f"{card}, PyTorch {torch.__version__}, CUDA {cuda}")
    print(f"{'what':<40}{'minimum':>11}{'median':>11}  {'reference':<16}{'minimum':>11}{'ratio':>11}  wanted")
    found: list[dict[str, Any]] = []
    failed = False
    for job in JOBS:
        if options.only not in job.name:
            continue
        figures, notes, complaint = measure(job, options.detail)
        show(figures)
        print(*notes, sep="\n", end="\n" if notes else "", flush=True)
        found += figures
        if complaint:
            failed = True
            print(f"unisono: {job.name} failed:\n{complaint}", file=sys.stderr)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"device": card, "cuda": cuda, "results": found}, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
