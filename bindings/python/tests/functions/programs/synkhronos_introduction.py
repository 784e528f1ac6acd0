"""A script for Synkhronos: products of a scattered and a broadcast matrix, in the master and on workers."""

import numpy as np
import pytensor as theano
import pytensor.tensor as T

import synkhronos as synk

synk.fork(2)
x = T.matrix("x")
y = T.matrix("y")
z = T.dot(x, y)
f_th = theano.function(inputs=[x, y], outputs=z.mean(axis=0))
f = synk.function(inputs=[x], bcast_inputs=[y], outputs=z.mean(axis=0))
synk.distribute()
x_dat = np.random.randn(100, 10).astype(theano.config.floatX)
y_dat = np.random.randn(10, 20).astype(theano.config.floatX)
x_synk, y_synk = f.build_inputs(x_dat, y_dat)
r_th = f_th(x_dat, y_dat)
r_synk = f(x_synk, y_synk)
assert np.allclose(r_th, r_synk)
r_as_th = f.as_theano(x_dat, y_dat)
assert np.allclose(r_th, r_as_th)
print("All assertions passed.")
