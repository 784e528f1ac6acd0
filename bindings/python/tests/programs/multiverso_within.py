"""A session of multiverso inside a Unisono program: workers that end it early do not block the others."""

import numpy as np

import multiverso as mv
import unisono as uni
from note import note

world = uni.init()
own = uni.ArrayTable(3, "int64", name="own", consistency="bsp")
mv.init(sync=True)
table = mv.ArrayTableHandler(4)
for _ in range(3 * (world.rank + 1)):
    table.add(np.ones(4), sync=True)
    table.get()
mv.shutdown()
for step in range(1, 4):
    own.add([1, 1, 1], wait=True)
    assert (own.get() == step * world.workers).all(), own.get()
note(world.rank, "done")
uni.barrier()
