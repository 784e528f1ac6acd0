"""A rank that has left its job cannot join it again."""

import numpy as np

import unisono as uni

world = uni.init()
assert (uni.all_reduce(np.ones(1000)) == world.size).all()
late = uni.all_reduce(np.ones(2), wait=False)
uni.shutdown()
for use in (late.wait, world.barrier, uni.barrier):
    try:
        use()
        assert use == late.wait, "a call after shutdown worked"
    except uni.Error as error:
        assert "init again" not in str(error), error
try:
    uni.init()
except uni.UsageError as error:
    assert "has left it" in str(error), error
else:
    raise AssertionError("the rank joined again")
