"""Networks of Lasagne, or objects with its interface, synchronized under both sets of names."""

import sys

import numpy as np
import pytensor
import pytensor.tensor as T

import multiverso as mv
import theano_names
import unisono as uni
from multiverso.theano_ext import param_manager as any_model
from multiverso.theano_ext.lasagne_ext import param_manager
from note import note


class Network:
    """An object that a script may pass instead of a layer."""

    def __init__(self, value):
        self.values = [np.full((4, 3), value, np.float32), np.full(3, value, np.float32)]

    def get_all_param_values(self):
        return [value.copy() for value in self.values]

    def set_all_param_values(self, values):
        self.values = [np.array(value) for value in values]


def lasagne_network(seed):
    theano_names.install()
    import lasagne

    lasagne.random.set_rng(np.random.RandomState(seed))
    layer = lasagne.layers.InputLayer((None, 4))
    layer = lasagne.layers.DenseLayer(layer, 5)
    return lasagne.layers.DenseLayer(layer, 2, nonlinearity=lasagne.nonlinearities.softmax)


def values_of(network):
    if isinstance(network, Network):
        return network.values
    import lasagne

    return lasagne.layers.get_all_param_values(network)


def set_values(network, values):
    if isinstance(network, Network):
        network.set_all_param_values(values)
        return
    import lasagne

    lasagne.layers.set_all_param_values(network, values)


def make(seed):
    return lasagne_network(seed) if sys.argv[1] == "lasagne" else Network(seed)


def change(network, amount):
    set_values(network, [value + np.float32(amount) for value in values_of(network)])


def test_both_names(make_manager, sync):
    """Every worker adds its own number plus one; all see the sum."""
    network = make(mv.worker_id())
    first = [np.array(value) for value in values_of(make(0))]
    manager = make_manager(network)
    for mine, expected in zip(values_of(network), first, strict=True):
        np.testing.assert_array_equal(mine, expected)
    mv.barrier()
    change(network, mv.worker_id() + 1)
    getattr(manager, sync)()
    mv.barrier()
    getattr(manager, sync)()
    workers = mv.workers_num()
    for mine, expected in zip(values_of(network), first, strict=True):
        np.testing.assert_allclose(mine, expected + workers * (workers + 1) / 2, atol=1e-5)
    mv.barrier()


def test_another_master():
    last = mv.workers_num() - 1
    network = make(mv.worker_id())
    param_manager.MVNetParamManager(network, mv.worker_id() == last)
    for mine, expected in zip(values_of(network), values_of(make(last)), strict=True):
        np.testing.assert_array_equal(mine, expected)
    if mv.workers_num() > 1:
        for is_master in (True, False):
            try:
                param_manager.MVNetParamManager(network, is_master)
            except uni.UsageError as error:
                assert "true on one process" in str(error)
            else:
                raise AssertionError("several masters, or none")


def test_training():
    """With Lasagne's own updates, workers with half a batch each give what one gives with the full batch."""
    import lasagne

    x, y = T.fmatrix("x"), T.lvector("y")
    random = np.random.RandomState(7)
    inputs = random.rand(12, 4).astype("float32")
    labels = random.randint(0, 2, 12)

    def trainer(network, rate):
        output = lasagne.layers.get_output(network, x)
        loss = -T.mean(T.log(output)[T.arange(y.shape[0]), y])
        parameters = lasagne.layers.get_all_params(network)
        return pytensor.function([x, y], loss, updates=lasagne.updates.sgd(loss, parameters, rate))

    alone, network = make(3), make(3)
    step, whole = trainer(network, 0.5 / mv.workers_num()), trainer(alone, 0.5)
    manager = param_manager.LasagneParamManager(network)
    mine = slice(mv.worker_id(), None, mv.workers_num())
    for _ in range(5):
        whole(inputs, labels)
        step(inputs[mine], labels[mine])
        manager.sync_all_param()
    for value, expected in zip(values_of(network), values_of(alone), strict=True):
        np.testing.assert_allclose(value, expected, atol=1e-5)


mv.init()
rank = mv.worker_id()
test_both_names(param_manager.LasagneParamManager, "sync_all_param")
test_both_names(lambda net: param_manager.MVNetParamManager(net, mv.is_master_worker()), "update_all_param")
if sys.argv[1] == "lasagne":
    test_both_names(any_model.MVModelParamManager, "sync_all_param")
    assert uni.ParameterManager(make(0)).table.shape == (4 * 5 + 5 + 5 * 2 + 2,)
test_another_master()
mv.shutdown()
if sys.argv[1] == "lasagne":
    mv.init(sync=True)
    test_training()
    mv.shutdown()
note(rank, "passed")
