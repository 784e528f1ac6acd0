"""Children that ranks fork exit normally, and do not disturb the ranks."""

import multiprocessing
import os
import sys

import numpy as np

import unisono as uni


def use_the_world():
    for use in (uni.barrier, uni.init):
        try:
            use()
        except uni.UsageError as error:
            assert "fork" in str(error), error
        else:
            raise AssertionError("a forked child used the world")


world = uni.init()
x = uni.empty(100)
for _ in range(3):
    child = multiprocessing.get_context("fork").Process(target=use_the_world)
    child.start()
    child.join(20)
    assert child.exitcode == 0, child.exitcode
    pid = os.fork()
    if pid == 0:
        use_the_world()
        del x
        sys.exit(0)  # runs the exit handlers, among them ours
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    x[:] = world.rank + 1
    assert uni.all_reduce(x)[0] == 3
    assert np.array_equal(uni.all_gather(np.array([world.rank])), [[0], [1]])
