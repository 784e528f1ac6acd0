"""Ranks that die or stop on another host: the error names them, whatever MPI does about it."""

import re

import pytest
from conftest import LAUNCHERS


def check_lost(seen, rank, host, call):
    assert f"lost rank {rank} (" in seen and f"on host {host}, its process ended" in seen, seen
    assert call in seen, seen
    waited = float(re.search(r"PeerLost after (.*?) s", seen)[1])
    assert waited < 10, seen  # far below the deadline, even on a busy machine


# MPICH ends a process that has messages for a lost rank under way; in recv there are none.
@pytest.mark.parametrize(
    ("launcher", "call"),
    [
        *((launcher, "recv") for launcher in LAUNCHERS),
        ("openmpi-4", "all_reduce"),
        ("openmpi-5", "get"),
    ],
)
def test_a_rank_that_dies_on_another_host_is_named(start_cluster, start_job, launcher, call):
    job = start_job(start_cluster(2, 1), launcher, 2, "lost_rank.py", "kill", call, survives=True)
    check_lost(job.await_note(0, "after"), 1, "host2", call)


@pytest.mark.parametrize(
    ("launcher", "call"),
    [
        ("mpich-ofi", "all_reduce"),
        *((launcher, "large") for launcher in ("mpich-ucx", "openmpi-4", "openmpi-5")),
    ],
)
def test_a_lost_rank_never_leaves_others_waiting(start_cluster, start_job, launcher, call):
    job = start_job(start_cluster(2, 1), launcher, 2, "lost_rank.py", "kill", call, survives=True).wait(30)
    if 0 in job.notes:
        check_lost(job.notes[0], 1, "host2", "all_reduce")
    else:
        assert launcher.startswith("mpich"), job.output


@pytest.mark.parametrize("launcher", ["openmpi-4", "openmpi-5"])
def test_ranks_that_wait_for_another_one_learn_of_the_loss(start_cluster, start_job, launcher):
    """Ranks 0 and 1 may wait for rank 2, which waits for rank 3 in shared memory."""
    job = start_job(start_cluster(2, 2), launcher, 4, "lost_rank.py", "kill", "all_reduce", survives=True)
    seen = [job.await_note(rank, "after") for rank in range(3)]
    assert all("PeerLost" in text for text in seen), seen
    assert all("all_reduce #2 on world lost rank" in text and "on host host" in text for text in seen), seen
    assert "rank 3 (" in seen[2], seen


@pytest.mark.parametrize("launcher", ["mpich-ofi", "openmpi-4"])
def test_a_rank_that_is_stopped_on_another_host_is_described(start_cluster, start_job, launcher):
    """Rank 2 replies for rank 3, which is stopped."""
    job = start_job(start_cluster(2, 2), launcher, 4, "lost_rank.py", "stop", "recv", UNISONO_TIMEOUT="6")
    seen = job.await_note(0, "Timeout")
    assert re.search(r"rank 3 \(process \d+, on host host2, stopped by a signal, computing for", seen), seen


def test_a_rank_that_waits_for_a_stopped_one_names_its_line(start_cluster, start_job):
    """Rank 0 waits for rank 2, which waits for rank 3."""
    job = start_job(
        start_cluster(2, 2), "openmpi-4", 4, "lost_rank.py", "stop", "all_reduce", UNISONO_TIMEOUT="6"
    )
    seen = job.await_note(0, "Timeout")
    assert "all_reduce #2 on world timed out" in seen, seen
    found = r"rank 2 \(process \d+, on host host2, in all_reduce #2 for .* at lost_rank.py:\d+"
    assert re.search(found, seen), seen


def test_ranks_that_differ_name_the_calls_of_the_program(start_cluster, start_job):
    """Ranks 2 and 3 compare their calls in shared memory; the others learn that they have given up."""
    job = start_job(
        start_cluster(2, 2), "openmpi-4", 4, "lost_rank.py", "differ", "all_reduce", survives=True
    )
    seen = [job.await_note(rank, "after") for rank in range(4)]
    for text in seen[2:]:
        assert "call #2 on world differs" in text, seen
        assert re.search(r"rank 3 called broadcast #2 [^,]* on host host2", text), seen
    for text in seen[:2]:
        assert "UsageError" in text or "all_reduce #2 on world lost rank" in text, seen
        assert "on host host" in text and "group [" not in text, seen


def test_a_rank_that_computes_on_another_host_names_its_line(start_cluster, start_job):
    job = start_job(start_cluster(2, 1), "openmpi-4", 2, "late_rank.py", UNISONO_TIMEOUT="4")
    seen = job.await_note(0, "Timeout")
    assert re.search(r"rank 1 \(process \d+, on host host2, computing for .* at \S*late_rank.py:\d+", seen), (
        seen
    )


@pytest.mark.parametrize("launcher", ["mpich-ofi", "openmpi-4"])
def test_a_stopped_rank_that_continues_is_not_lost(start_cluster, start_job, launcher):
    job = start_job(start_cluster(2, 1), launcher, 2, "late_rank.py", "6").wait().check()
    assert job.notes == {0: "done", 1: "done"}


@pytest.mark.parametrize("launcher", ["mpich-ofi", "openmpi-4"])
@pytest.mark.parametrize("then", ["leave", "call"])
def test_a_rank_ends_in_time_on_a_host_that_was_cut_off(start_cluster, start_job, launcher, then):
    """Another rank of the host has ended: MPICH would ask the launcher about it, which cannot be reached."""
    cluster = start_cluster(2, 2)
    job = start_job(cluster, launcher, 4, "leaves_late.py", then, survives=True, UNISONO_TIMEOUT="6")
    for rank in range(4):
        job.await_note(rank, "connected")
    cluster.cut("host2")
    for rank in (2, 3):
        job.await_note(rank, "all_reduce")
        seen = job.await_note(rank, "left after")
    assert ("recv" in seen.partition("\n")[2]) == (then == "call"), seen
