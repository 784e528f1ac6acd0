"""A script for Synkhronos: one update of a shared variable, whose copies differ and are then combined."""

import numpy as np
import pytensor as theano
import pytensor.tensor as T

import synkhronos as synk

synk.fork(2)
s_init = np.ones(2, dtype="float32")
x = T.matrix("x", dtype="float32")
s = theano.shared(s_init, name="s")
f = synk.function([x], updates=[(s, T.sum(x * s, axis=0))])
synk.distribute()
x_dat = np.array([[1.0, 1], [2, 2], [3, 3], [4, 4]]).astype("float32")
x_synk = synk.data(x_dat)
f.as_theano(x_dat)
print("as_theano:", s.get_value())
s.set_value(s_init)
f(x_synk)
print("local:", s.get_value())
print("gathered:", synk.gather(s, nd_up=1).tolist())
synk.reduce(s, op="sum", in_place=True)
print("reduced:", s.get_value())
print("gathered:", synk.gather(s, nd_up=1).tolist())
synk.broadcast(s, s_init)
f(x_synk)
synk.all_reduce(s, op="sum", nccl=False)
print("gathered:", synk.gather(s, nd_up=1).tolist())
synk.close()
synk.close()
