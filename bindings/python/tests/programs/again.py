"""A rank that has left its job cannot join it again."""

import numpy as np

import unisono as uni

world = uni.init()
assert (uni.all_reduce(np.ones(1000)) == world.size).all()
uni.shutdown()
try:
    uni.init()
except uni.UsageError as error:
    assert "has left it" in str(error), error
else:
    raise AssertionError("the rank joined again")
