"""Shared variables of PyTensor: Multiverso's own test, and the promises of its tutorial."""

import copy
import pickle
import sys

import numpy as np
import pytensor as theano

import multiverso as mv
import unisono as uni
import unisono.pytensor
from multiverso.theano_ext import sharedvar
from multiverso.theano_ext.param_manager import MVModelParamManager
from note import note


def rejected(text, call, *args, **options):
    try:
        call(*args, **options)
    except uni.UsageError as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"expected an error about {text!r}")


def test_sharedvar():
    rows = columns = 200
    W = sharedvar.mv_shared(value=np.zeros((rows, columns), theano.config.floatX), name="W", borrow=True)
    delta = np.arange(1, rows * columns + 1).reshape(rows, columns).astype(theano.config.floatX)
    train = theano.function([], updates=[(W, W + delta)])
    mv.barrier()
    # Up to here float32 counts exactly, also between the two steps; the original continued with 3 and more.
    exact = 2**24 // int(2 * delta.max() * mv.workers_num())
    for i in range(min(100, exact)):
        train()
        train()
        sharedvar.sync_all_mv_shared_vars()
        mv.barrier()
        # A second time, because the first one could not see the adds of workers that came later.
        sharedvar.sync_all_mv_shared_vars()
        np.testing.assert_array_equal(W.get_value(), delta * (i + 1) * 2 * mv.workers_num())
        mv.barrier()


def test_the_tutorial():
    """The result is a shared variable and has mv_sync; the master's value is used."""
    mine = np.full((2, 3), 5.0 if mv.is_master_worker() else 99.0, np.float32)
    W = sharedvar.mv_shared(value=mine, name="W", borrow=True)
    assert isinstance(W, theano.compile.SharedVariable) and W.name == "W"
    assert (W.get_value() == 5).all() and W.get_value().dtype == np.float32
    twice = theano.function([], W * 2, givens=[(W, W + 1)], on_unused_input="ignore")
    assert (twice() == 12).all()
    W.set_value(W.get_value() + mv.worker_id() + 1)
    W.mv_sync()
    mv.barrier()
    W.mv_sync()
    workers = mv.workers_num()
    assert (W.get_value() == 5 + workers * (workers + 1) / 2).all()
    mv.barrier()
    wrapper = sharedvar.mv_shared.shared_vars[-1]
    assert isinstance(wrapper, sharedvar.MVSharedVariable)
    assert wrapper.name == "W" and wrapper.get_value().shape == (2, 3)
    for other in (copy.deepcopy(W), pickle.loads(pickle.dumps(W)), pickle.loads(pickle.dumps(wrapper))):
        assert (other.get_value() == W.get_value()).all()
        rejected("a copy of 'W'", other.mv_sync)
    return W


def test_a_manager():
    rank = mv.worker_id()
    variables = [
        theano.shared(np.full((3, 2), rank, np.float32), "W"),
        theano.shared(np.full(2, rank, np.float32), "b"),
    ]
    manager = MVModelParamManager(variables)
    assert all((variable.get_value() == 0).all() for variable in variables)
    for variable in variables:
        variable.set_value(variable.get_value() + 1)
    manager.sync_all_param()
    mv.barrier()
    manager.sync_all_param()
    assert all((variable.get_value() == mv.workers_num()).all() for variable in variables)
    rejected("'0:W' of type float64", MVModelParamManager, [theano.shared(np.zeros(2), "W")])
    mv.barrier()
    return manager


def test_in_rounds():
    """With sync=True all workers see the same after every sync."""
    W = sharedvar.mv_shared(np.zeros(10, np.float32))
    for i in range(10):
        W.set_value(W.get_value() + 1)
        W.mv_sync()
        assert (W.get_value() == (i + 1) * mv.workers_num()).all()


def test_unisono():
    """Under Unisono's own name it keeps float64, and rejects types that tables do not support."""
    world = uni.init()
    step = 1e-12 * (world.rank + 1)
    W = unisono.pytensor.mv_shared(np.ones((2, 2)), name="W", consistency="bsp")
    W.set_value(W.get_value() + step)
    unisono.pytensor.sync_all_mv_shared_vars()
    expected = 1 + 1e-12 * world.size * (world.size + 1) / 2
    np.testing.assert_allclose(W.get_value(), np.full((2, 2), expected), rtol=1e-15)
    W.set_value(np.ones((3, 2)))
    rejected("'W' of shape (2, 2)", W.mv_sync)
    rejected("'n' of type int64", unisono.pytensor.mv_shared, np.zeros(3, np.int64), name="n")

    variables = {
        "W": theano.shared(np.full(3, float(world.rank))),
        "b": theano.shared(np.float32(world.rank)),
    }
    manager = uni.ParameterManager(variables, consistency="bsp")
    for step in range(3):
        for variable in variables.values():
            variable.set_value(variable.get_value() + variable.get_value().dtype.type(1))
        manager.sync()
        for variable in variables.values():
            assert (variable.get_value() == (step + 1) * world.size).all()
    assert variables["b"].get_value().dtype == np.float32
    rejected("received '0:x', which is a TensorVariable", uni.ParameterManager, [theano.tensor.vector("x")])
    if world.size > 1:
        wrong = [theano.shared(np.zeros(3 + (world.rank == 1)), "W")]
        rejected("rank 1 has '0:W' of shape (4,)", uni.ParameterManager, wrong)
    return manager


rank = uni.init().rank
for _ in range(2):
    mv.init()
    assert mv.workers_num() == int(sys.argv[1])
    test_sharedvar()
    variable = test_the_tutorial()
    manager = test_a_manager()
    mv.shutdown()
    rejected("received one on 'W' after it", variable.mv_sync)
    rejected("before shutdown()", manager.sync_all_param)
mv.init(sync=True)
test_in_rounds()
mv.shutdown()
manager = test_unisono()
uni.shutdown()
rejected("before shutdown()", manager.sync)
note(rank, "passed")
