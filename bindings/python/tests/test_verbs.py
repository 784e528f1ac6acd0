"""Every collective, every type, every launcher."""

import pytest


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_every_verb_with_our_launcher(run_ranks, ranks):
    job = run_ranks(ranks, "every_verb.py", str(ranks)).check()
    assert sorted(job.notes) == list(range(ranks))
    assert all("unisono run" in note for note in job.notes.values())


def test_every_verb_alone(run_ranks):
    assert run_ranks(1, "every_verb.py", "1", launcher="none").check().notes[0] == "alone none"


@pytest.mark.parametrize("launcher", ["torchrun", "mpich", "openmpi"])
def test_every_verb_with_other_launchers(run_ranks, launcher):
    job = run_ranks(2, "every_verb.py", "2", launcher=launcher, deadline=600).check()
    assert sorted(job.notes) == [0, 1]
    assert all(note.startswith("shm ") for note in job.notes.values())


@pytest.mark.parametrize("launcher", ["mpich", "openmpi"])
@pytest.mark.parametrize("hosts", [None, "2"])
def test_every_verb_over_mpi(run_ranks, launcher, hosts):
    forced = {"UNISONO_TRANSPORT": "mpi"} if hosts is None else {"UNISONO_HOSTS": hosts}
    job = run_ranks(4, "every_verb.py", "4", launcher=launcher, deadline=600, **forced).check()
    assert all("mpi" in note for note in job.notes.values())
