"""A script for Synkhronos: a linear model trained on two workers and in one process, with equal numbers."""

import numpy as np
import pytensor as theano
import pytensor.tensor as T

import synkhronos as synk
from synkhronos.extensions import train, updates

n = synk.fork(2, use_gpu=True, max_n_var=100)
random = np.random.default_rng(0)
x_dat = random.standard_normal((64, 5)).astype("float32")
y_dat = (x_dat @ np.arange(5)).astype("float32")


def build():
    x, y = T.fmatrix("x"), T.fvector("y")
    w = theano.shared(np.zeros(5, "float32"), name="w")
    b = theano.shared(np.zeros((), "float32"), name="b")
    return T.mean((T.dot(x, w) + b - y) ** 2), [w, b], x, y


parts, alone_parts = build(), build()
step = train.make_train_function(*parts, updates.adam, learning_rate=0.1)
alone = train.make_train_function_theano(*alone_parts, updates.adam, learning_rate=0.1)
synk.distribute()
x_synk, y_synk = synk.data(x_dat), synk.data(y_dat)
for _ in range(20):
    rows = random.permutation(64)[:32]
    assert np.allclose(step(x_synk, y_synk, batch=rows), alone(x_dat, y_dat, batch=rows), rtol=1e-4)
assert np.allclose(parts[1][0].get_value(), alone_parts[1][0].get_value(), rtol=1e-3)
print("equal")
