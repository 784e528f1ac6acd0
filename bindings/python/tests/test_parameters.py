"""The parameter manager on NumPy arrays; frameworks are in tests/frameworks."""

import subprocess
import sys

import numpy as np
import pytest

import unisono as uni


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_results_equal_a_computation_without_a_manager(run_ranks, ranks):
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
def test_errors_name_the_parameter_and_the_worker(run_ranks, trouble, words):
    job = run_ranks(3, "parameters_trouble.py", trouble).check()
    assert len(job.notes) == 3
    for message in job.notes.values():
        assert all(word in message for word in words), message


def test_a_model_that_raises_is_an_error_on_all_workers(run_ranks):
    job = run_ranks(3, "parameters_trouble.py", "raising").check()
    assert job.notes[2].startswith("KeyError: "), job.notes
    for rank in (0, 1):
        words = ["UsageError", "rank 2: ", "KeyError", "no weights here"]
        assert all(word in job.notes[rank] for word in words), job.notes


@pytest.mark.parametrize("trouble", ["late", "late gradients", "late tensors"])
def test_a_managers_timeout_applies_from_the_start(run_ranks, trouble):
    if trouble == "late tensors":
        pytest.importorskip("torch", reason="no PyTorch here: pip install torch")
    job = run_ranks(2, "parameters_trouble.py", trouble).check()
    assert job.notes[0].startswith("Timeout: ") and "timed out after 5.0 s" in job.notes[0], job.notes


def test_a_worker_that_left_is_named(run_ranks):
    job = run_ranks(2, "parameters_trouble.py", "left").check()
    assert "PeerLost" in job.notes[0] and "rank 1" in job.notes[0], job.notes


def test_a_killed_worker_is_restarted_and_continues(run_ranks):
    job = run_ranks(2, "parameters_restart.py", restart=1).check()
    assert job.notes == {0: "0", 1: "1"}


def test_unknown_models_are_explained():
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


def test_an_array_listed_twice_counts_once():
    uni.init()
    weights, other = np.zeros((2, 3)), np.zeros(1)
    tied = {"in": weights, "other": other, "out": weights, "again": weights[:]}
    with uni.ParameterManager(tied, background=True, name="tied") as manager:
        assert "2 parameters, 7 elements" in repr(manager)
        for _ in range(3):
            weights += 1
            manager.sync()
    assert (weights == 3).all() and (other == 0).all()
    columns = uni.ParameterManager([weights[:, :1], weights[:, 1:]])
    assert columns.sync()


def test_arrays_that_overlap_partly_are_rejected():
    uni.init()
    whole = np.zeros((3, 3))
    for name, part in (("rows", whole[1:]), ("transposed", whole.T), ("other type", whole.view("float32"))):
        with pytest.raises(uni.UsageError, match="share some; leave one of them out") as caught:
            uni.ParameterManager({"whole": whole, name: part})
        assert "'whole'" in str(caught.value) and repr(name) in str(caught.value)
    own = Own([whole, whole])
    with pytest.raises(uni.UsageError, match="'0' and '1'"):
        uni.ParameterManager(own)


class Own:
    """A custom adapter."""

    in_place = True

    def __init__(self, arrays):
        self.arrays = arrays

    def names(self):
        return [str(place) for place in range(len(self.arrays))]

    def read(self):
        return self.arrays

    def write(self, values):
        raise AssertionError("views are written in place")


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


@pytest.mark.parametrize("mode", ["delta", "average"])
@pytest.mark.parametrize("background", [False, True])
def test_nothing_is_half_written_when_an_array_has_become_read_only(mode, background):
    uni.init()
    first, second = np.zeros(2), np.zeros(2)
    manager = uni.ParameterManager([first, second], mode=mode, background=background)
    first += 1
    second += 1
    if background:
        manager.sync()
    held = first.copy()
    if manager.table is not None:
        manager.table.add(np.full(4, 10.0), wait=True)
    second.flags.writeable = False
    for _ in range(2):
        with pytest.raises(uni.UsageError, match="'1', which is now read-only"):
            manager.sync()
        assert (first == held).all() and (second == 1).all()
    second.flags.writeable = True
    manager.flush()
    expected = 11 if mode == "delta" else 1
    assert (first == expected).all() and (second == expected).all(), (first, second)


def test_the_manager_is_imported_when_first_used():
    program = (
        "import sys, unisono\n"
        "assert 'unisono.parameters' not in sys.modules\n"
        "unisono.ParameterManager\n"
        "assert not {'torch', 'jax', 'keras', 'pytensor'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("options", [{}, {"background": True}, {"mode": "average", "background": True}])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_infinite_and_nan_values_are_preserved(options, dtype):
    uni.init()
    mask = np.array([0, -np.inf, np.inf, np.nan], dtype)
    weights = np.ones(3, dtype)
    manager = uni.ParameterManager({"mask": mask, "weights": weights}, **options)
    for step in range(3):
        weights += 1
        manager.sync()
        manager.flush()
        assert weights.tolist() == [step + 2] * 3
        np.testing.assert_array_equal(mask, np.array([0, -np.inf, np.inf, np.nan], dtype))


def test_replaced_arrays_are_an_error():
    uni.init()
    named = {"first": np.zeros(2), "second": np.zeros(3)}
    manager = uni.ParameterManager(named)
    held, named["second"] = named["second"], np.ones(3)
    with pytest.raises(uni.UsageError, match="'second', which was replaced since; make a new manager"):
        manager.sync()
    named["second"], named["third"] = held, np.ones(1)
    with pytest.raises(uni.UsageError, match="'third', which was added"):
        manager.sync()
    del named["third"]
    assert manager.sync()
