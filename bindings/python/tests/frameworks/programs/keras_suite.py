"""Keras models synchronized on the backend of KERAS_BACKEND: managers, callbacks, and training with `fit`."""

import keras
import numpy as np

import multiverso as mv
import unisono as uni
import unisono.keras
from multiverso.theano_ext.keras_ext.callbacks import MVCallback
from multiverso.theano_ext.keras_ext.param_manager import KerasParamManager
from note import note

TRAINS = keras.backend.backend() != "numpy"


def make(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, "tanh"), keras.layers.Dense(2)])


def rejected(kind, text, call, *args, **options):
    try:
        call(*args, **options)
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(f"expected an error about {text!r}")


def same(model, expected, **tolerance):
    for mine, theirs in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, **{"atol": 1e-5, **tolerance})


def change(model, amount):
    model.set_weights([weight + np.float32(amount) for weight in model.get_weights()])


def test_managers(make_manager, sync):
    model = make(mv.worker_id())
    first = make(0).get_weights()
    manager = make_manager(model)
    same(model, first, atol=0, rtol=0)
    mv.barrier()
    change(model, mv.worker_id() + 1)
    sync(manager)
    mv.barrier()
    sync(manager)
    workers = mv.workers_num()
    same(model, [weight + workers * (workers + 1) / 2 for weight in first])
    mv.barrier()


def test_fit(make_callback):
    """Workers with their own part of each batch together give what one gives with the full batch."""
    workers = mv.workers_num()
    random = np.random.RandomState(7)
    x, y = random.rand(24, 4).astype("float32"), random.rand(24, 2).astype("float32")

    def fit(model, rate, part, size, callbacks):
        model.compile(optimizer=keras.optimizers.SGD(rate), loss="mean_squared_error")
        model.fit(x[part], y[part], batch_size=size, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)

    alone, model = make(3), make(3 + mv.worker_id())
    fit(alone, 0.5, slice(None), 12, [])
    # This worker's rows of each batch of 12: 12 / workers of them.
    fit(model, 0.5 / workers, slice(mv.worker_id(), None, workers), 12 // workers, [make_callback(model)])
    same(model, alone.get_weights())


def test_frequency():
    """With a learning rate of zero, only other workers' adds show when a callback syncs."""
    x, y = np.zeros((6, 4), "float32"), np.zeros((6, 2), "float32")
    model = make(0)
    model.compile(optimizer=keras.optimizers.SGD(0.0), loss="mean_squared_error")
    callback = MVCallback(model, freq=4)
    synced = []
    callback.kpm.sync_all_param = lambda: synced.append(callback.cur_n)
    model.fit(x, y, batch_size=1, epochs=2, verbose=0, callbacks=[callback])
    assert synced == [4, 8, 12]


mv.init()
rank = mv.worker_id()
test_managers(KerasParamManager, lambda manager: manager.sync_all_param())
test_managers(uni.ParameterManager, lambda manager: manager.sync())
for freq in (0, -1):
    rejected(ValueError, "freq of 1 or more", MVCallback, make(0), freq)
rejected(
    uni.UsageError, "model that is built", uni.ParameterManager, keras.Sequential([keras.layers.Dense(2)])
)
if mv.workers_num() > 1:
    wrong = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2 + (rank == 1), name="last")])
    rejected(uni.UsageError, "rank 1 has", uni.ParameterManager, wrong)
if TRAINS:
    test_frequency()
mv.shutdown()
mv.init(sync=True)
if TRAINS:
    test_fit(MVCallback)
    test_fit(lambda model: unisono.keras.SyncCallback(model, consistency="bsp"))
mv.shutdown()
note(rank, "passed")
