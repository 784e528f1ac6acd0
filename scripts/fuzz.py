"""Runs every fuzz test: the Rust tests under libFuzzer, guided by coverage, then the C and the Python test.

Usage: python scripts/fuzz.py [RUNS [WORD]]

Each test gets RUNS inputs (a million by default); with WORD, only tests whose names contain it run.
Inputs that reach new code are kept in target/fuzz/corpus, from which the next run continues. An input that
fails is kept next to its test, in a folder `__fuzz__/TEST/crashes`: commit it, and `make test` replays it
from then on. The script prints the progress of each test and a final table, and fails if any test does.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "target" / "fuzz"

# Compiler options that libFuzzer needs. Build scripts are not instrumented: `--target` separates them.
COVERAGE = ["inline-8bit-counters", "level=4", "pc-table", "trace-compares", "stack-depth"]
FLAGS = " ".join(
    [
        "--cfg fuzzing_libfuzzer -Cpasses=sancov-module",
        *(f"-Cllvm-args=-sanitizer-coverage-{option}" for option in COVERAGE),
    ]
)
# Only for bolero: under this cfg, other crates skip the checksums that these tests rely on.
WRAPPER = """#!/bin/sh
case "$*" in
    *"--crate-name bolero "*) exec "$@" --cfg fuzzing ;;
    *) exec "$@" ;;
esac
"""
TARGET = f"{platform.machine()}-unknown-linux-gnu"
BUILD = [
    "cargo",
    "test",
    "--lib",
    "--no-run",
    "--profile",
    "fuzz",
    "--target",
    TARGET,
    "--target-dir",
    str(FOLDER),
]

# Scripts of `testing::mutate` are short. No input may take longer, or more memory.
LIMITS = ["-max_len=49", "-timeout=10", "-rss_limit_mb=4096", "-print_final_stats=1"]

# Seconds between two lines about a test that is running.
PROGRESS = 30.0


@dataclass
class Outcome:
    """The result of a test."""

    test: str
    survived: bool
    inputs: int
    seconds: float
    new: int | None = None

    def line(self) -> str:
        """Returns one row of the table."""
        rate = self.inputs / self.seconds if self.seconds else 0
        new = "-" if self.new is None else f"{self.new:,}"
        state = "ok" if self.survived else "FAILED"
        return f"{self.test:<62} {state:<6} {self.inputs:>11,} {self.seconds:>9,.1f} {rate:>9,.0f} {new:>6}"


TITLE = f"{'test':<62} {'state':<6} {'inputs':>11} {'seconds':>9} {'per s':>9} {'new':>6}"


def binaries() -> list[str]:
    """Builds the tests of both crates."""
    packages = ["--package", "unisono", "--package", "unisono-nn"]
    command = [*BUILD, *packages, "--message-format", "json-render-diagnostics"]
    FOLDER.mkdir(parents=True, exist_ok=True)
    wrapper = FOLDER / "rustc"
    wrapper.write_text(WRAPPER)
    wrapper.chmod(0o755)
    environment = {
        **os.environ,
        "RUSTFLAGS": FLAGS,
        "RUSTC_WRAPPER": str(wrapper),
        "BOLERO_FUZZER": "libfuzzer",
    }
    built = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return [message["executable"] for message in messages if message.get("executable")]


def fuzz_tests(binary: str) -> list[str]:
    """Returns the fuzz tests of a binary: those whose names begin with `damaged_` or `forged_`."""
    listed = subprocess.run([binary, "--list"], stdout=subprocess.PIPE, check=True, text=True).stdout
    names = [line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")]
    return [name for name in names if name.rsplit("::", 1)[-1].startswith(("damaged_", "forged_"))]


def folder_of(binary: str, test: str) -> Path:
    """Returns the folder in which `make test` looks for inputs that failed before."""
    command = [binary, test, "--exact", "--nocapture"]
    environment = {**os.environ, "CARGO_BOLERO_SELECT": "all"}
    listed = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    lines = [line for line in listed.stdout.splitlines() if "__bolero_target" in line]
    if not lines:
        sys.exit(f"{test} has the name of a fuzz test but is not one")
    return Path(json.loads(lines[0][lines[0].index("{") :])["work_dir"])


def files_in(folder: Path) -> int:
    """Counts the files in a folder."""
    return sum(1 for _ in folder.iterdir())


def run(binary: str, test: str, folder: Path, runs: int) -> Outcome:
    """Runs a test on the given number of inputs; those that fail are kept in a folder beside the test."""
    crashes = folder / "crashes"
    corpus = FOLDER / "corpus" / test.replace("::", "-")
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    arguments = [str(corpus), f"-artifact_prefix={crashes}/", f"-runs={runs}", *LIMITS]
    environment = {
        **os.environ,
        "BOLERO_TEST_NAME": test,
        "BOLERO_LIBTEST_HARNESS": "1",
        "BOLERO_LIBFUZZER_ARGS": " ".join(arguments),
    }
    command = [binary, test, "--exact", "--nocapture", "--test-threads", "1"]
    before, started = files_in(corpus), time.monotonic()
    inputs, output = follow(command, environment, test)
    outcome = Outcome(
        test=test,
        survived=output.returncode == 0 and inputs >= runs,
        inputs=inputs,
        seconds=time.monotonic() - started,
        new=files_in(corpus) - before,
    )
    for folder in [crashes, crashes.parent, crashes.parent.parent]:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    if not outcome.survived:
        print(output.stdout[-4000:], flush=True)
    return outcome


def follow(
    command: list[str], environment: dict[str, str], test: str
) -> tuple[int, subprocess.CompletedProcess[str]]:
    """Runs libFuzzer and prints its progress; returns the number of inputs and the end of its output."""
    inputs, shown, lines = 0, time.monotonic(), []
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            lines = [*lines[-200:], line]
            if found := re.match(r"#(\d+)\t|stat::number_of_executed_units: *(\d+)", line):
                inputs = int(found[1] or found[2])
                if time.monotonic() - shown > PROGRESS:
                    shown = time.monotonic()
                    print(f"  {test}: {inputs:,} inputs", flush=True)
    return inputs, subprocess.CompletedProcess(command, process.returncode, "".join(lines))


def run_elsewhere(name: str, command: list[str], folder: Path, runs: int) -> Outcome:
    """Runs a fuzz test in another language, which reads the number of inputs from the environment."""
    started = time.monotonic()
    ended = subprocess.run(command, cwd=folder, env={**os.environ, "UNISONO_FUZZ": str(runs)})
    survived = ended.returncode == 0
    return Outcome(name, survived, runs if survived else 0, time.monotonic() - started)


# Tests of arguments from C and Python.
ELSEWHERE = {
    "c_arguments": (
        ["cargo", "test", "--quiet", "--release", "--package", "unisono-c", "--test", "programs", "hostile"],
        ROOT,
    ),
    "dlpack_capsules": (
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_dlpack_capsules.py"],
        ROOT / "bindings" / "python",
    ),
}


def main() -> int:
    """Runs all tests, and prints a table at the end."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    word = sys.argv[2] if len(sys.argv) > 2 else ""
    outcomes = []
    tests = [(binary, test) for binary in binaries() for test in fuzz_tests(binary) if word in test]
    others = {name: test for name, test in ELSEWHERE.items() if word in name}
    count = len(tests) + len(others)
    # Before the first test, which may take an hour: this fails if one of them is not a fuzz test.
    folders = [folder_of(binary, test) for binary, test in tests]
    print(TITLE, flush=True)
    for (binary, test), folder in zip(tests, folders, strict=True):
        outcomes.append(run(binary, test, folder, runs))
        print(outcomes[-1].line(), flush=True)
    for name, (command, folder) in others.items():
        outcomes.append(run_elsewhere(name, command, folder, runs))
        print(outcomes[-1].line(), flush=True)
    survived = [outcome for outcome in outcomes if outcome.survived]
    print("", TITLE, *(outcome.line() for outcome in outcomes), sep="\n")
    print(f"{len(survived)} of {count} fuzz tests survived {runs:,} inputs each")
    return 0 if outcomes and len(survived) == count else 1


if __name__ == "__main__":
    sys.exit(main())
