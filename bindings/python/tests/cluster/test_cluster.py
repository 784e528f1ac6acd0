"""The library on several hosts, with every MPI launcher: own networks, host names, processes and memory."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import LAUNCHERS, ROOT

EXPERIMENT = str(ROOT / "experiments" / "mnist_convnet.yaml")


def run_unisono(*arguments):
    """Runs the `unisono` program in one process, and returns its output."""
    command = [sys.executable, "-m", "unisono", *map(str, arguments)]
    done = subprocess.run(command, text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def await_processes(command, count, owner=None):
    """Waits until this many processes have this command line."""
    arguments = [*command.encode().split(), b""]
    deadline = time.monotonic() + 20
    while True:
        found = 0
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                found += path.read_bytes().split(b"\0") == arguments
            except OSError:  # it has ended
                continue
        if found == count:
            return
        if owner is not None and owner.poll() == os.EX_UNAVAILABLE:
            pytest.skip(owner.stderr.read().strip())
        assert owner is None or owner.poll() is None, f"the cluster ended with status {owner.returncode}"
        assert time.monotonic() < deadline, f"{found} processes instead of {count}"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("launcher", "hosts", "slots"),
    [*((launcher, 2, 2) for launcher in LAUNCHERS), ("mpich-ofi", 3, 1), ("openmpi-4", 3, 1)],
)
def test_everything(start_cluster, start_job, launcher, hosts, slots):
    ranks = hosts * slots
    cluster = start_cluster(hosts, slots)
    job = start_job(cluster, launcher, ranks, "everything.py", str(ranks), str(hosts)).wait().check()
    assert sorted(job.notes) == list(range(ranks))


@pytest.mark.parametrize("launcher", ["mpich-ucx", "openmpi-5"])
def test_containers_of_one_machine(start_cluster, start_job, launcher):
    """They have the same boot id, but share no memory."""
    cluster = start_cluster(2, 2, containers=True)
    start_job(cluster, launcher, 4, "everything.py", "4", "2", "brief").wait().check()


@pytest.mark.parametrize("launcher", ["mpich", "openmpi-4"])
def test_training_equals_one_process(start_cluster, start_job, tmp_path, launcher):
    options = ["--set", "epochs=1", "--quiet", "--out"]
    run_unisono("train", EXPERIMENT, *options, tmp_path / "one")
    arguments = ["unisono", "train", EXPERIMENT, "--grid", "h=2,w=2", *options, str(tmp_path / "four")]
    start_job(start_cluster(2, 2), launcher, 4, "-m", *arguments).wait().check()
    assert "equal bit for bit" in run_unisono("compare", tmp_path / "one", tmp_path / "four")


@pytest.mark.parametrize("launcher", ["mpich", "openmpi-4"])
def test_a_cut_link_is_a_timeout_that_names_the_host(start_cluster, start_job, launcher):
    """The launcher cannot reach the host either, so that the job need not end: the cluster ends it."""
    cluster = start_cluster(2, 1)
    job = start_job(cluster, launcher, 2, "cut_off.py", UNISONO_TIMEOUT="5")
    job.await_note(0, "connected")
    cluster.cut("host2")
    seen = job.await_note(0, "Timeout")
    assert "waiting for rank 1" in seen and "on host host2" in seen, seen


@pytest.mark.parametrize("launcher", ["mpich", "openmpi-4"])
def test_a_short_cut_is_only_a_delay(start_cluster, start_job, launcher):
    cluster = start_cluster(2, 1)
    job = start_job(cluster, launcher, 2, "cut_off.py", "40")
    job.await_note(0, "connected")
    cluster.cut("host2")
    time.sleep(1)
    cluster.restore("host2")
    assert set(job.wait().check().notes.values()) == {"done"}


def test_nothing_is_left_when_the_owner_is_killed():
    """Killing the program that holds the hosts ends every process on them."""
    command = [sys.executable, str(ROOT / "scripts" / "cluster.py"), "2", "--", "sh", "-c"]
    marked = f"sleep {4000 + os.getpid() % 1000}.25"
    owner = subprocess.Popen(
        [*command, f"ssh host1 '{marked}' & ssh host2 '{marked}' & wait"], stderr=subprocess.PIPE, text=True
    )
    try:
        await_processes(marked, 2, owner)
    finally:
        owner.kill()
        owner.wait()
        owner.stderr.close()
    await_processes(marked, 0)


@pytest.mark.parametrize("how", ["raise", "catch"])
def test_a_rank_leaves_soon_after_a_table_has_timed_out(start_cluster, start_job, how):
    job = start_job(start_cluster(2, 1), "openmpi-4", 2, "late.py", how)
    # It once waited for the late rank again, for 10 seconds more than its timeout.
    assert float(job.await_note(0, ".")) < 6
