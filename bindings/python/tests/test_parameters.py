"""The parameter manager on NumPy arrays; frameworks are in tests/frameworks."""

import subprocess
import sys

import numpy as np
import pytest

import unisono as uni


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_it_equals_a_computation_without_it(run_ranks, ranks):
    run_ranks(ranks, "parameters.py").check()


@pytest.mark.parametrize("variable", ["UNISONO_HOSTS=2", "UNISONO_TRANSPORT=mpi"])
def test_between_hosts(run_ranks, variable):
    name, value = variable.split("=")
    run_ranks(3, "parameters.py", launcher="mpich", **{name: value}).check()


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("shapes", ["UsageError", "'second'", "rank 0 has", "(2, 2)", "rank 2 has", "(2, 3)"]),
        ("missing", ["UsageError", "'second'", "rank 2 has nothing"]),
        ("types", ["UsageError", "rank 2: ", "'second'", "int32"]),
        ("read-only", ["UsageError", "rank 2: ", "'second'", "read-only"]),
        ("unknown", ["UsageError", "rank 2: ", "received a builtins.str"]),
        ("retyped", ["UsageError", "'1'", "type float32", "type float64", "make a new manager"]),
        ("unequal", ["UsageError", "rank 0 in sync after 2", "rank 2 in close after 2", "equally often"]),
        ("shutdown", ["UsageError", "sync", "before shutdown()"]),
        ("reshaped", ["UsageError", "'second'", "(2, 2)", "(4, 2)", "make a new manager"]),
        ("gradients", ["UsageError", "'weights'", "rank 2", "none on rank"]),
    ],
)
def test_trouble_names_the_parameter_and_the_worker(run_ranks, trouble, words):
    job = run_ranks(3, "parameters_trouble.py", trouble).check()
    assert len(job.notes) == 3
    for message in job.notes.values():
        assert all(word in message for word in words), message


def test_a_worker_that_left_is_named(run_ranks):
    job = run_ranks(2, "parameters_trouble.py", "left").check()
    assert "PeerLost" in job.notes[0] and "rank 1" in job.notes[0], job.notes


def test_a_killed_worker_is_started_again_and_goes_on(run_ranks):
    job = run_ranks(2, "parameters_restart.py", restart=1).check()
    assert job.notes == {0: "0", 1: "1"}


def test_what_nobody_knows_is_explained():
    uni.init()
    with pytest.raises(uni.UsageError, match=r"PyTorch module.*received a dict of int, str.*get=lambda"):
        uni.ParameterManager({"a": 1, "b": "c"})
    with pytest.raises(uni.UsageError, match="both get= and set="):
        uni.ParameterManager(get=lambda: [])
    with pytest.raises(uni.UsageError, match="read-only"):
        uni.ParameterManager([np.broadcast_to(np.zeros(1), 3)])
    with pytest.raises(uni.UsageError, match="without"):
        uni.ParameterManager([np.zeros((0, 3))])
    with pytest.raises(uni.UsageError, match="mode"):
        uni.ParameterManager([np.zeros(1)], mode="sum")
    with pytest.raises(uni.UsageError, match="every"):
        uni.ParameterManager([np.zeros(1)], every=0)
    with pytest.raises(uni.UsageError, match='mode="average"'):
        uni.ParameterManager([np.zeros(1)], consistency="average")


def test_a_manager_ends_with_its_block():
    uni.init()
    weights = np.zeros(2)
    with uni.ParameterManager([weights], every=5, name="mine") as manager:
        weights += 1
        assert not manager.sync()
        table = manager.table
    assert table.name == "mine" and (table.get() == 1).all()
    manager.close()
    with pytest.raises(uni.UsageError, match=r"rank 0.*before close\(\)"):
        manager.sync()


def test_an_error_in_the_block_is_not_hidden():
    uni.init()
    with pytest.raises(ZeroDivisionError), uni.ParameterManager([np.zeros(2)], consistency="bsp"):
        raise ZeroDivisionError


@pytest.mark.parametrize("background", [False, True])
def test_nothing_is_lost_when_an_exchange_fails(background, monkeypatch):
    uni.init()
    weights = np.zeros(2)
    manager = uni.ParameterManager([weights], background=background)
    for failing in ("add", "get"):
        weights += 1
        held = weights.copy()
        with monkeypatch.context() as patch:
            patch.setattr(manager.table, failing, lambda *_, **__: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                manager.sync()
                manager.sync()
        assert (weights == held).all()
        manager.flush()
        assert (weights == held).all() and (manager.table.get() == held).all()


def test_it_is_imported_when_it_is_used():
    program = (
        "import sys, unisono\n"
        "assert 'unisono.parameters' not in sys.modules\n"
        "unisono.ParameterManager\n"
        "assert not {'torch', 'jax', 'keras', 'pytensor'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
