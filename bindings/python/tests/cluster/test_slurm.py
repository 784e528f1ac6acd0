"""Slurm as a launcher, on hosts made of namespaces: steps, batch jobs, job arrays, ranks that are lost."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import CALL_SECONDS, PROGRAMS, ROOT, Job, UnavailableError, mpi_environment
from slurm import SlurmCluster
from test_cluster import await_processes, run_unisono
from test_lost_ranks import check_lost

# An upper bound for one job, even on a busy machine.
DEADLINE = 60
# The MPI libraries, and the option of srun that fits each.
MPIS = {"mpich": "pmi2", "openmpi-4": "pmix", "openmpi-5": "pmix"}
OTHERS = [("mpich", "pmix"), ("openmpi-4", "pmi2"), *((mpi, "none") for mpi in MPIS)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that all hosts share."""
    return tmp_path_factory.mktemp("slurm")


@pytest.fixture(scope="module")
def slurm(folder):
    """Two nodes with two CPUs each, for all tests: starting them takes longer than most jobs."""
    try:
        with SlurmCluster(2, 2, shared=(folder,)) as cluster:
            yield cluster
    except UnavailableError as reason:
        pytest.skip(f"Slurm cannot be started here: {reason}")


def installation(mpi):
    """The Python, the launcher and the library of an MPI."""
    if mpi == "openmpi-4":
        launcher = shutil.which("mpirun.openmpi")
        if launcher is None:
            pytest.skip(
                "no mpirun.openmpi here: Debian's Open MPI (install it with: apt-get install openmpi-bin)"
            )
        return sys.executable, launcher, "libmpi.so.40"
    variable, default, name = {
        "mpich": ("UNISONO_TEST_MPICH", ".venv", "libmpi.so.12"),
        "openmpi-5": ("UNISONO_TEST_OPENMPI", ".venv-openmpi", "libmpi.so.40"),
    }[mpi]
    launcher, python = mpi_environment(variable, default)
    return python, launcher, str(Path(launcher).parents[1] / "lib" / name)


@pytest.fixture
def submit(slurm, folder):
    """Starts a command of Slurm on `head`: its options, and a program of Python with its arguments."""
    jobs = []

    def start(*command, mpi=None, **environment):
        notes = folder / "notes"
        shutil.rmtree(notes, ignore_errors=True)
        notes.mkdir()
        path = os.pathsep.join([*map(str, PROGRAMS), *filter(None, [os.environ.get("PYTHONPATH")])])
        library = {"UNISONO_LIBMPI": installation(mpi)[2]} if mpi else {}
        fixed = {"NOTES": str(notes), "PYTHONPATH": path, "UNISONO_TIMEOUT": str(CALL_SECONDS)}
        variables = {**fixed, "OMP_NUM_THREADS": "1", **library, **environment}
        jobs.append(Job(slurm, [*map(str, command)], notes, variables))
        return jobs[-1]

    yield start
    for job in jobs:
        job.process.kill()
        job.process.wait()
        job.process.stdout.close()
    # A test that failed may have left one behind.
    subprocess.run(slurm.command(["scancel", "--user=root"]), env=slurm.environment(), timeout=30)


@pytest.fixture
def run_step(submit):
    """Runs a step until it has ended."""

    def run(*command, mpi):
        job = submit(*command, mpi=mpi).wait(DEADLINE)
        if "*** Process received signal ***" in job.output and not job.notes:
            # Open MPI crashes in MPI_Init under srun, in about one step of a hundred.
            job = submit(*command, mpi=mpi).wait(DEADLINE)
        return job

    return run


@pytest.fixture
def run_batch(submit, folder):
    """Runs a shell script as a batch job, or as a job array of several tasks, until all have succeeded."""

    def run(options, script, tasks=1, **environment):
        statuses = [folder / f"status-{task}" for task in range(tasks)]
        [path.unlink(missing_ok=True) for path in statuses]
        script = f"--wrap={script}; echo $? >{folder}/status-${{SLURM_ARRAY_TASK_ID:-0}}"
        array = [f"--array=0-{tasks - 1}"] if tasks > 1 else []
        output = folder / "output"
        output.unlink(missing_ok=True)
        # `sbatch --wait` asks for the state of the job only every few seconds.
        job = submit(
            "sbatch", *array, *options, f"--output={output}", "--open-mode=append", script, **environment
        )
        job.wait(DEADLINE).check()
        deadline = time.monotonic() + DEADLINE
        while (ended := [path.read_text() for path in statuses if path.exists()]) != ["0\n"] * tasks:
            printed = output.read_text() if output.exists() else ""
            failed = time.monotonic() > deadline or any(status not in ("", "0\n") for status in ended)
            assert not failed, f"{ended}\n{printed}"
            time.sleep(0.05)
        return job.read_notes()

    return run


def option(interface):
    """The option of srun for an interface that this Slurm has."""
    if interface == "pmix" and not list(Path("/usr/lib").glob("*/pmix2/lib/libpmix.so.2")):
        pytest.skip("no PMIx for Slurm here (install it with: apt-get install libpmix2)")
    return f"--mpi={interface}"


def program(name, *arguments, mpi="mpich"):
    """The command line of a program for the tests."""
    return [installation(mpi)[0], PROGRAMS[0] / name, *arguments]


@pytest.mark.parametrize("mpi", MPIS)
def test_a_step_on_two_nodes(run_step, mpi):
    step = ["srun", "-N2", "-n4", option(MPIS[mpi]), *program("slurm_task.py", 4, 2, mpi=mpi)]
    job = run_step(*step, mpi=mpi).check()
    hosts = ["host1", "host1", "host2", "host2"]
    assert job.notes == {rank: f"Slurm: shm+mpi on {host}" for rank, host in enumerate(hosts)}, job.output


@pytest.mark.parametrize(("mpi", "offered"), OTHERS)
def test_an_interface_that_mpi_does_not_speak_is_an_error(submit, mpi, offered):
    step = ["srun", "-N2", "-n2", option(offered), *program("slurm_task.py", 2, 2, mpi=mpi)]
    job = submit(*step, mpi=mpi).wait(DEADLINE)
    received = {"none": "none", "pmi2": "PMI-2 alone", "pmix": "PMIx alone"}[offered]
    assert job.status == 1 and not job.notes, job.output
    for rank in range(2):
        error = rf"UsageError: rank {rank}: init: expected an interface to Slurm that (MPICH|Open MPI) .*, "
        task = rf"received {received} in task {rank} of 2 of step \d+\.0, on node host{rank + 1}; "
        assert re.search(f"{error}{task}start the step with `srun --mpi={MPIS[mpi]}`", job.output), job.output
    assert "Abort" not in job.output and "MPI_Init" not in job.output, job.output


@pytest.mark.parametrize("offered", ["none", "pmi2", "pmix"])
def test_one_node_needs_no_mpi(submit, offered):
    step = ["srun", "-N1", "-n2", option(offered), *program("slurm_task.py", 2, 1)]
    job = submit(*step, UNISONO_LIBMPI="/nowhere/libmpi.so.12").wait(DEADLINE).check()
    assert set(job.notes.values()) == {"Slurm: shm on host1"}, job.notes


@pytest.mark.parametrize("mpi", MPIS)
def test_a_batch_job_starts_an_mpi_launcher(run_batch, mpi):
    """The launcher reads the allocation, and starts its daemons with srun."""
    _, launcher, _ = installation(mpi)
    command = [launcher, "-n", "4", *program("slurm_task.py", 4, 2, mpi=mpi)]
    path = f"{Path(launcher).parent}:{os.environ['PATH']}"
    job = run_batch(["-N2", "-n4"], shlex.join(map(str, command)), PATH=path)
    name = "MPICH (PMI)" if mpi == "mpich" else "Open MPI"
    assert job.notes[0] == f"{name}: shm+mpi on host1" and len(job.notes) == 4, job.notes


def test_the_tasks_of_a_job_array_are_worlds_of_their_own(run_batch, folder):
    """Two runs at the same time, on one node, with two processes each; both equal that of one process."""
    options = [ROOT / "experiments" / "iris.yaml", "--set", "epochs=2", "--quiet", "--out"]
    run_unisono("train", *options, folder / "one")
    train = [sys.executable, "-m", "unisono", "train", "--grid", "data=2", *map(str, options)]
    step = f"srun -n2 --overcommit {shlex.join(train)} {folder}/$SLURM_ARRAY_TASK_ID"
    run_batch(["-n1", "--nodelist=host1"], step, tasks=2)
    for task in ("0", "1"):
        assert "equal bit for bit" in run_unisono("compare", folder / "one", folder / task)


def test_unisono_run_inside_an_allocation(submit):
    """One task, which starts the ranks: Slurm counts it as one."""
    launcher = [sys.executable, "-m", "unisono", "run", "-n", "2", "--"]
    job = submit("srun", "-n1", "-c2", *launcher, *program("slurm_task.py", 2, 1)).wait(DEADLINE).check()
    assert set(job.notes.values()) == {"unisono run: shm on host1"}, job.notes


@pytest.mark.parametrize("mpi", ["mpich", "openmpi-4"])
def test_a_rank_that_dies_is_named_if_srun_lets_the_others_continue(run_step, mpi):
    options = [option(MPIS[mpi]), "--kill-on-bad-exit=0"]
    step = ["srun", "-N2", "-n2", *options, *program("lost_rank.py", "kill", "recv", mpi=mpi)]
    job = run_step(*step, mpi=mpi)
    check_lost(job.notes[0], 1, "host2", "recv")
    assert job.status != 0


def test_srun_ends_the_others_if_told_to(submit):
    options = ["--mpi=pmi2", "--kill-on-bad-exit=1"]
    step = ["srun", "-N2", "-n2", *options, *program("lost_rank.py", "kill", "recv")]
    job = submit(*step, mpi="mpich").wait(DEADLINE)
    assert job.status != 0 and "Terminated" in job.output, job.output


def test_a_rank_that_dies_on_one_node_is_named(submit):
    job = submit("srun", "-N1", "-n2", *program("lost_rank.py", "kill", "all_reduce"))
    seen = job.await_note(0, "after")
    assert "PeerLost" in seen and "lost rank 1 (" in seen, seen


def test_a_late_rank_is_a_timeout_that_names_its_host(submit):
    step = ["srun", "-N2", "-n2", "--mpi=pmi2", "--kill-on-bad-exit=0", *program("late_rank.py")]
    job = submit(*step, mpi="mpich", UNISONO_TIMEOUT="3")
    seen = job.await_note(0, "Timeout")
    assert re.search(r"rank 1 \(process \d+, on host host2, computing for .* late_rank.py:\d+", seen), seen


def test_nothing_is_left_when_the_owner_is_killed(slurm):
    """Killing the program that holds the hosts ends Slurm and its tasks."""
    marked = f"{shutil.which('sleep')} {5000 + os.getpid() % 1000}.25"
    command = [sys.executable, str(ROOT / "scripts" / "slurm.py"), "2", "--", "srun", "-N2", *marked.split()]
    owner = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        await_processes(marked, 2, owner)
    finally:
        owner.kill()
        owner.wait()
        owner.stderr.close()
    await_processes(marked, 0)
