"""Python objects between ranks."""

import pytest

import unisono as uni


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_objects_between_ranks(run_ranks, ranks):
    job = run_ranks(ranks, "objects.py", str(ranks)).check()
    assert job.notes == dict.fromkeys(range(ranks), "done")


@pytest.mark.parametrize("launcher", ["mpich"])
def test_objects_between_hosts(run_ranks, launcher):
    run_ranks(4, "objects.py", "4", launcher=launcher, UNISONO_HOSTS="2", deadline=600).check()


def test_an_interrupted_pickle_counts_as_the_call():
    class Interrupted:
        def __reduce__(self):
            raise KeyboardInterrupt

    world = uni.init()
    with pytest.raises(KeyboardInterrupt):
        world.all_gather_object(Interrupted())
    assert world.all_gather_object(3) == [3]


def test_a_root_outside_the_group_is_rejected():
    world = uni.init()
    for call in (world.broadcast_object, world.scatter_object, world.gather_object):
        with pytest.raises(uni.UsageError, match="a rank from 0 to 0"):
            call([1], root=2)
    assert world.broadcast_object([1]) == [1]


def test_the_deadline_is_one_for_all_steps(monkeypatch):
    from unisono import objects

    times = iter([100.0, 100.0, 103.0, 120.0])
    monkeypatch.setattr(objects.time, "monotonic", lambda: next(times))
    deadline = objects.Deadline(5)
    assert [deadline.left for _ in range(3)] == [5, 2, 1e-3]


def test_results_are_copies_except_at_the_root():
    world = uni.init()
    value = {"list": [1]}
    assert world.broadcast_object(value) is value
    found = world.all_gather_object(value)[0]
    assert found == value and found is not value
