"""Tests everything on CUDA memory, with ranks that share a device of this machine.

It needs Python with unisono, NumPy, PyTorch, CuPy and JAX; an installed wheel is enough. Without a device
it reports so and fails. Arguments select tests by words in their names.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "bindings/python/tests/gpu"

# The number of concurrent tests: most of their time goes to starting Python and compiling kernels.
TESTS = int(os.environ.get("TESTS", "4"))


@dataclass
class Test:
    """A program, its number of ranks and its time limit."""

    name: str
    ranks: int
    program: list[str]
    environment: dict[str, str] = field(default_factory=dict)
    seconds: float = 150.0
    alone: bool = False
    """Whether it measures the device's memory or time, which other tests would disturb."""
    expected: list[str] = field(default_factory=list)
    """Required output, instead of exit status 0, of tests whose ranks die on purpose."""


def tests() -> list[Test]:
    """Returns all tests, the longest first."""
    found = []
    for ranks in (4, 2, 1):
        for path in ("ipc", "staged"):
            found.append(_by(path, f"every verb, {ranks} ranks", ranks, "every_verb.py", "torch"))
    found.append(_by("nccl", "every verb, 2 ranks", 2, "every_verb.py", "torch"))
    for library in ("cupy", "jax"):
        found.append(_by("ipc", f"every verb, {library}", 2, "every_verb.py", library))
        found.append(_by("staged", f"some types, {library}", 2, "every_verb.py", library, "float32", "int64"))
    found.append(Test("arrays without DLPack", 2, ["interface.py"]))
    found.append(_by("ipc", "models of PyTorch, 2 ranks", 2, "models.py"))
    found.append(_by("staged", "models of PyTorch, 3 ranks", 3, "models.py"))
    found.append(_by("ipc", "process groups of PyTorch, 2 ranks", 2, "process_group.py"))
    some = [
        "path",
        "views",
        "asynchronous",
        "sparse",
        "messages",
        "replicated",
        "sharded",
        "blocking",
        "futures",
    ]
    for ranks, path in ((2, "staged"), (2, "nccl"), (3, "ipc"), (1, "ipc")):
        name = f"process groups of PyTorch, some parts, {ranks} ranks"
        found.append(_by(path, name, ranks, "process_group.py", *some))
    found.append(Test("functions on a device", 0, ["workers.py"]))
    found.append(_by("ipc", "pytrees of JAX", 2, "pytrees.py"))
    found.append(Test("the page On GPUs, 2 ranks", 2, ["page.py", "on-gpus.md", "cuda"]))
    page = ["page.py", "torch-distributed.md", "cuda"]
    found.append(Test("the page on process groups of PyTorch, 2 ranks", 2, page))
    found.append(Test("the page On GPUs, functions", 0, ["page.py", "on-gpus.md", "cuda-alone"]))
    for ranks in ("2", "4"):
        found.append(Test(f"every verb, {ranks} threads", 0, ["threads.py", ranks]))
    found += _halos()
    for path in ("ipc", "staged", "nccl"):
        found.append(_by(path, "order of streams", 2, "order.py"))
        found.append(_by(path, "mistakes", 2, "trouble.py", "mistakes"))
        late = _by(path, "a late rank", 2, "trouble.py", "late")
        late.expected = ["a late rank was given up"]
        killed = _by(path, "a killed rank", 2 if path == "nccl" else 3, "trouble.py", "killed")
        killed.expected = [f"rank {rank}: the lost rank was named" for rank in range(killed.ranks - 1)]
        found += [late, killed]
    for path in ("ipc", "staged"):
        found.append(_by(path, "lifetimes, a withdrawn send", 2, "lifetimes.py", "send"))
        found.append(_by(path, "lifetimes, CUDA graphs", 2, "lifetimes.py", "graphs"))
    alone = [_by("ipc", f"lifetimes, {part}", 2, "lifetimes.py", part) for part in ("freed", "halos")]
    kernel = _by("ipc", "lifetimes, a late kernel", 2, "lifetimes.py", "kernel")
    kernel.expected = ["rank 1: untouched after its error"]
    for test in [*alone, kernel]:
        test.alone = True
        found.append(test)
    for ranks, path in ((3, "staged"), (2, "staged"), (1, "staged"), (2, "ipc")):
        found.append(_by(path, f"large arrays, {ranks} ranks", ranks, "large.py"))
    for path in ("ipc", "staged"):
        for part in ("memory", "later"):
            found.append(_by(path, f"in the background, {part}", 2, "background.py", part))
    found.append(Test("in the background, a table's lock", 2, ["background.py", "table"]))
    exhausted = _by("ipc", "no memory for a result", 2, "background.py", "exhausted")
    exhausted.expected = [f"rank {rank}: no call was mistaken for another" for rank in range(2)]
    found.append(exhausted)
    for ranks in (4, 2, 1):
        for part in ("updaters", "alike", "checkpoints", "arrays", "mistakes"):
            found.append(Test(f"tables, {part}, {ranks} ranks", ranks, ["tables.py", part]))
    types = ["float16", "bfloat16", "int32", "int64"]
    found.append(Test("tables, updaters, other types", 2, ["tables.py", "updaters", *types]))
    for library in ("cupy", "jax"):
        found.append(Test(f"tables, {library}", 2, ["tables.py", "libraries", library]))
    found.append(Test("tables, threads", 0, ["table_threads.py", "3"]))
    expected = [f"rank {rank}: the table's memory is lost" for rank in (1, 2)]
    found.append(Test("tables, a lost device", 3, ["tables.py", "lost"], expected=expected))
    return found


def _halos() -> list[Test]:
    found = [
        Test("halos, 4 threads", 0, ["halos.py", "threads", "4"]),
        Test("networks in space, 2 threads", 0, ["spatial.py", "threads"]),
    ]
    for path in ("ipc", "staged"):
        found += [_by(path, f"halos, {ranks} ranks", ranks, "halos.py", "64") for ranks in (4, 2, 1)]
        found += [_by(path, f"networks in space, {ranks} ranks", ranks, "spatial.py") for ranks in (4, 2)]
        found.append(_by(path, "mistakes in halos", 2, "halo_trouble.py", "mistakes"))
        killed = _by(path, "a rank killed among halos", 3, "halo_trouble.py", "killed")
        # The rank in the middle is its only neighbour; the other learns of the loss from that one.
        killed.expected = ["rank 1: the lost rank was named"]
        found.append(killed)
    return found


def _by(path: str, name: str, ranks: int, *program: str) -> Test:
    return Test(f"{name}, by {path}", ranks, list(program), {"UNISONO_CUDA_PATH": path})


def missing_device() -> str | None:
    """Returns why there is no device to test on; None if there is one."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return f"no driver: {error}"
    count = ctypes.c_int(0)
    status = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    if status:
        return f"the driver does not start: error {status}"
    return None if count.value else "the driver sees no device"


def run(test: Test) -> tuple[Test, bool, float, str]:
    """Runs one test, and leaves no process running."""
    launcher = ["-m", "unisono", "run", "-n", str(test.ranks), "--"] if test.ranks else []
    environment = {
        **os.environ,
        "PYTHONUNBUFFERED": "1",
        "UNISONO_TIMEOUT": "60",
        # By default, JAX reserves most of the device's memory in each process.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        **test.environment,
    }
    program = [str(PROGRAMS / test.program[0]), *test.program[1:]]
    begin = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, *launcher, *program],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=test.seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return test, False, time.monotonic() - begin, f"{output}\nended after {test.seconds} s"
    passed = all(words in output for words in test.expected) if test.expected else process.returncode == 0
    return test, passed, time.monotonic() - begin, output


def main() -> int:
    """Runs the tests whose names contain all of the arguments; all of them without arguments."""
    reason = missing_device()
    if reason is not None:
        print(f"test-gpu: there is no CUDA device here, so nothing was tested: {reason}", file=sys.stderr)
        return 1
    wanted = [test for test in tests() if all(word in test.name for word in sys.argv[1:])]
    failures = []
    together = [test for test in wanted if not test.alone]
    with ThreadPoolExecutor(TESTS) as pool:
        results = itertools.chain(pool.map(run, together), (run(test) for test in wanted if test.alone))
        for test, passed, seconds, output in results:
            last = output.strip().splitlines()[-1:] or [""]
            print(f"{'passed' if passed else 'FAILED'}  {test.name} ({seconds:.0f} s)  {last[0]}", flush=True)
            if not passed:
                failures.append((test, output))
    for test, output in failures:
        print(f"\n=== FAILED {test.name}\n" + "\n".join(output.strip().splitlines()[-30:]))
    print(f"\n{len(wanted) - len(failures)} passed, {len(failures)} failed")
    return 1 if failures or not wanted else 0


if __name__ == "__main__":
    sys.exit(main())
