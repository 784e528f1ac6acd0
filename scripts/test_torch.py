"""Runs PyTorch's own tests of process groups over the backend `unisono`, and compares them with Gloo's.

The tests are those of the installed PyTorch (torch/testing/_internal/distributed/distributed_test.py). Many
ask for Gloo by its name; they run, too: the name `gloo` then creates the backend `unisono`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RUNNER = Path(__file__).resolve().parent / "torch_suite" / "runner.py"
LISTED = Path(__file__).resolve().parent / "torch_suite" / "needs_native_work.txt"
MODES = {"gloo": ("gloo", ""), "unisono": ("unisono", ""), "unisono as gloo": ("gloo", "unisono")}


def outcomes(mode: str, ranks: int, tests: list[str], seconds: float) -> dict[str, str]:
    """Runs the tests over one backend.

    Returns:
        For each test "passed", "skipped", or the last line of its error.
    """
    backend, instead = MODES[mode]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        environment = {
            "OMP_NUM_THREADS": "1",
            **os.environ,
            "BACKEND": backend,
            "INSTEAD_OF_GLOO": instead,
            "WORLD_SIZE": str(ranks),
            "TEMP_DIR": folder,
            "RESULT": str(result),
        }
        command = [sys.executable, "-W", "ignore", str(RUNNER), *tests]
        try:
            subprocess.run(command, env=environment, cwd=folder, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            print(f"{mode}: ended after {seconds} s")
        if not result.exists():
            return {}
        return {name: outcome for name, outcome in json.loads(result.read_text()).items()}


def main() -> int:
    """Prints what Gloo passes and the backend does not; the exit status is 1 if a test is not listed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*", help="names of tests; by default all")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5400, help="the limit for each backend")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=list(MODES))
    parser.add_argument("--save", type=Path, help="a file for all outcomes, in JSON")
    options = parser.parse_args()
    listed = {line.split()[0] for line in LISTED.read_text().splitlines() if line and line[0] != "#"}
    found: dict[str, dict[str, str]] = {}
    for mode in options.modes:
        begin = time.monotonic()
        found[mode] = outcomes(mode, options.ranks, options.tests, options.seconds)
        counts = {kind: 0 for kind in ("passed", "skipped", "failed")}
        for outcome in found[mode].values():
            counts[outcome if outcome in counts else "failed"] += 1
        summary = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        print(f"{mode}, {options.ranks} ranks: {summary} ({time.monotonic() - begin:.0f} s)", flush=True)
    if options.save:
        options.save.write_text(json.dumps(found, indent=1))
    unexpected = 0
    for mode in options.modes:
        if mode == "gloo":
            continue
        for name, outcome in sorted(found[mode].items()):
            if outcome in ("passed", "skipped") or found.get("gloo", {}).get(name, "passed") != "passed":
                continue
            known = name in listed
            unexpected += not known
            print(f"{'listed' if known else 'FAILED'}  {mode}: {name}: {outcome}")
    print(f"{unexpected} tests that Gloo passes fail, besides those that are listed")
    return int(bool(unexpected))


if __name__ == "__main__":
    sys.exit(main())
