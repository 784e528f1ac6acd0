"""Scripts for Synkhronos, with Theano's import changed to PyTensor's."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pytensor")
PROGRAMS = Path(__file__).parent / "programs"


def run(name):
    done = subprocess.run([sys.executable, PROGRAMS / name], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_the_introduction():
    said = run("synkhronos_introduction.py")
    assert said[0] == "Synkhronos: 2 workers initialized, master rank: 0"
    assert said[1] == "Synkhronos distributing functions..."
    assert said[2].startswith("...distribution complete (")
    assert said[-1] == "All assertions passed."


def test_the_program_on_variables():
    assert run("synkhronos_variables.py")[3:] == [
        "as_theano: [10. 10.]",
        "local: [3. 3.]",
        "gathered: [[3.0, 3.0], [7.0, 7.0]]",
        "reduced: [10. 10.]",
        "gathered: [[10.0, 10.0], [7.0, 7.0]]",
        "gathered: [[10.0, 10.0], [10.0, 10.0]]",
        "WARNING: Synkhronos is not running: there are no workers to close",
    ]


def test_training():
    assert run("synkhronos_training.py")[-1] == "equal"


def test_options_for_gpus_are_accepted():
    script = """
import numpy as np
import synkhronos as synk
assert synk.fork(n_parallel=3, use_gpu=False, master_rank=1, max_n_var=7, max_dim=4) == 3
s = synk.data(np.ones((4, 2)))
import pytensor
v = pytensor.shared(np.zeros((1, 2)), "v")
f = synk.function([], (v.sum(), "c_sum"), sliceable_shareds=[v])
synk.scatter(v, s, batch=3)
assert synk.get_lengths(v) == [1, 1, 1] and f() == 6
assert synk.gather(v, nd_up=0, nccl=True).shape == (3, 2)
try:
    synk.fork(2)
except RuntimeError as error:
    assert "Only fork once." in str(error).replace(":", "."), error
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Synkhronos: 3 workers initialized, master rank: 1\n"


def test_names_and_arguments():
    """The functions that scripts call, with their argument names."""
    import synkhronos
    from synkhronos.extensions import train, updates

    expected = {
        "fork": "n_parallel use_gpu master_rank profile_workers max_n_var max_dim",
        "close": "",
        "distribute": "",
        "function": "inputs outputs bcast_inputs updates givens sliceable_shareds",
        "data": "value var dtype ndim shape minibatch force_cast oversize name",
        "broadcast": "shared_vars values nccl",
        "scatter": "shared_vars values batch",
        "gather": "shared_vars nd_up nccl",
        "all_gather": "shared_vars nccl",
        "reduce": "shared_vars op in_place nccl",
        "all_reduce": "shared_vars op nccl",
        "set_value": "rank shared_vars values batch",
        "get_value": "rank shared_vars",
        "get_lengths": "shared_vars",
        "get_shapes": "shared_vars",
        "get_n_gpu": "",
    }
    for name, arguments in expected.items():
        parameters = list(inspect.signature(getattr(synkhronos, name)).parameters)
        wanted = arguments.split()
        assert parameters[: len(wanted)] == wanted, name
    assert sys.getrecursionlimit() >= 50_000
    assert train.make_train_function_theano
    for rule in ["sgd", "momentum", "nesterov_momentum", "adagrad", "rmsprop", "adadelta", "adam", "adamax"]:
        assert list(inspect.signature(getattr(updates, rule)).parameters)[:3] == [
            "loss",
            "params",
            "learning_rate",
        ]
