"""Rank 0 only holds tables, the last one only uses them, and a third does neither."""

import os

import numpy as np

import unisono as uni
from note import note

ROLES = ["server", "both", "none", "worker"]

rank = int(os.environ["UNISONO_RANK"])
if rank == 1:
    os.environ["UNISONO_ROLE"] = ROLES[rank]
    world = uni.init()
else:
    world = uni.init(role=ROLES[rank])
assert (world.workers, world.servers) == (2, 2)
assert world.worker_id == [None, 0, None, 1][rank]
assert world.server_id == [0, 1, None, None][rank]
# The first worker is rank 1: its values are used.
table = uni.MatrixTable(3, 2, init=np.full((3, 2), rank, dtype="float32"))
if world.worker_id is None:
    try:
        table.get()
    except uni.UsageError as error:
        assert "worker" in str(error), error
    else:
        raise AssertionError("a rank that is no worker got values")
else:
    table.add(np.ones((3, 2), dtype="float32"))
uni.barrier()
if world.worker_id is not None:
    assert (table.get() == 3).all()
uni.barrier()
note(rank, "done")
