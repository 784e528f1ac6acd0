"""Starts ranks on several hosts, made of namespaces, with the MPI launchers of this machine."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]
sys.path.append(str(ROOT / "scripts"))

from cluster import Cluster, UnavailableError  # noqa: E402
from mpi_environment import mpi_environment  # noqa: E402

collect_ignore = ["programs"]
PROGRAMS = [Path(__file__).parent / "programs", Path(__file__).parents[1] / "programs"]
# Variables that ranks need on other hosts; MPICH forwards all of them, Open MPI those that are named.
FORWARDED = ["NOTES", "PYTHONPATH", "UNISONO_TIMEOUT", "OMP_NUM_THREADS"]
# An upper bound, even on a busy machine; calls time out before it.
DEADLINE = 150.0
CALL_SECONDS = 40
LAUNCHERS = ["mpich-ofi", "mpich-ucx", "openmpi-4", "openmpi-5"]
# With these options, the other ranks continue after one has died; see docs/guide/when-things-go-wrong.md.
SURVIVAL = {
    "mpich": ["-disable-auto-cleanup"],
    "openmpi-4": ["--enable-recovery"],
    "openmpi-5": ["--enable-recovery", "--with-ft", "ulfm"],
}


def launcher_command(launcher, ranks, survives):
    """The command before a Python program, and changes to the environment."""
    survival = SURVIVAL[launcher.removesuffix("-ofi").removesuffix("-ucx")] if survives else []
    options = [*survival, *(option for name in FORWARDED for option in ("-x", name))]
    if launcher == "openmpi-4":
        if shutil.which("mpirun.openmpi") is None:
            pytest.skip(
                "no mpirun.openmpi here: Debian's Open MPI (install it with: apt-get install openmpi-bin)"
            )
        return ["mpirun.openmpi", *options, "-n", str(ranks), sys.executable], {}
    if launcher == "openmpi-5":
        mpiexec, _ = mpi_environment("UNISONO_TEST_OPENMPI", ".venv-openmpi")
        command = ["mpirun", *options, "-n", str(ranks), "python"]
        return command, {"PATH": f"{Path(mpiexec).parent}:{os.environ['PATH']}"}
    mpiexec, python = mpi_environment("UNISONO_TEST_MPICH", ".venv")
    netmod = {"MPIR_CVAR_CH4_NETMOD": launcher.removeprefix("mpich-")} if "-" in launcher else {}
    command = [mpiexec, *survival, "-n", str(ranks), python]
    return command, {"PATH": f"{Path(mpiexec).parent}:{os.environ['PATH']}", **netmod}


class Job:
    """A job on a cluster: the notes of its ranks, its output and its status."""

    def __init__(self, cluster, command, notes, variables):
        environment = cluster.environment()
        path = variables.get("PATH", os.environ["PATH"])
        environment["PATH"] = environment["PATH"].replace(os.environ["PATH"], path)
        self.folder = notes
        self.process = subprocess.Popen(
            cluster.command(command),
            env={**environment, **{name: value for name, value in variables.items() if name != "PATH"}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def wait(self, deadline=DEADLINE):
        """Waits until the job has ended, and reads what it printed."""
        try:
            self.output, _ = self.process.communicate(timeout=deadline)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the job did not end within {deadline} s; it printed:\n{self.printed()}")
        self.status = self.process.returncode
        return self.read_notes()

    def read_notes(self):
        """Reads what the ranks have noted."""
        self.notes = {int(path.name): path.read_text() for path in self.folder.iterdir()}
        return self

    def await_note(self, rank, word):
        """Waits until a rank has noted a text with this word, and returns the text."""
        deadline = time.monotonic() + CALL_SECONDS
        while True:
            path = self.folder / str(rank)
            text = path.read_text() if path.exists() else ""
            if word in text:
                return text
            if time.monotonic() > deadline or self.process.poll() not in (None, 0):
                pytest.fail(f"rank {rank} noted {text!r}; the job printed:\n{self.printed()}")
            time.sleep(0.05)

    def printed(self):
        """Returns what the job has printed so far. The cluster ends its processes."""
        try:
            return self.process.communicate(timeout=1)[0]
        except subprocess.TimeoutExpired as late:
            return (late.output or b"").decode(errors="replace")

    def check(self):
        """Fails unless every rank succeeded."""
        assert self.status == 0, self.output
        return self


@pytest.fixture
def start_cluster(tmp_path):
    """Starts hosts; they end with the test, and every process on them."""
    clusters = []

    def start(hosts, slots, **options):
        try:
            cluster = Cluster(hosts, slots, shared=(tmp_path,), **options)
        except UnavailableError as reason:
            pytest.skip(f"several hosts cannot be created here: {reason}")
        clusters.append(cluster)
        return cluster

    yield start
    for cluster in clusters:
        cluster.close()


@pytest.fixture
def start_job(tmp_path):
    """Starts a program, or `-m` and a module, on all slots of a cluster.

    With `survives`, a rank that dies does not end the job.
    """

    jobs = []

    def start(cluster, launcher, ranks, program, *arguments, survives=False, **environment):
        command, variables = launcher_command(launcher, ranks, survives)
        notes = tmp_path / "notes"
        shutil.rmtree(notes, ignore_errors=True)
        notes.mkdir()
        path = os.pathsep.join([*map(str, PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])])
        fixed = {"NOTES": str(notes), "PYTHONPATH": path, "UNISONO_TIMEOUT": str(CALL_SECONDS)}
        variables = {**fixed, "OMP_NUM_THREADS": "1", **variables, **environment}
        found = [program] if program.startswith("-") else [str(PROGRAMS[0] / program)]
        jobs.append(Job(cluster, [*command, *found, *arguments], notes, variables))
        return jobs[-1]

    yield start
    for job in jobs:
        job.process.kill()
        job.process.wait()
        job.process.stdout.close()
