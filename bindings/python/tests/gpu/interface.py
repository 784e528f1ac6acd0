"""Arrays that only have `__cuda_array_interface__`, like Numba's; their results are CuPy arrays."""

import cupy

import unisono as uni

world = uni.init()
total = sum(range(1, world.size + 1))


class Lender:
    """Exports a CuPy array only through the interface."""

    def __init__(self, array):
        self.array = array

    @property
    def __cuda_array_interface__(self):
        return self.array.__cuda_array_interface__


side = cupy.cuda.Stream(non_blocking=True)
with side:
    for dtype in ("float32", "float64", "float16", "int8", "uint8", "int32", "int64"):
        mine = cupy.full((3, 2), world.rank + 1, dtype=dtype)
        gathered = world.all_gather(Lender(mine))
        assert isinstance(gathered, cupy.ndarray) and gathered.shape == (world.size, 3, 2)
        assert gathered[:, 0, 0].tolist() == [one + 1 for one in range(world.size)]
        assert world.all_reduce(Lender(mine)) is not None
        assert (mine == total).all(), dtype
    # An empty array has no address, but still has a device.
    assert world.all_reduce(Lender(cupy.zeros((0, 2)))) is not None
    assert world.all_gather(Lender(cupy.zeros((2, 0)))).shape == (world.size, 2, 0)
    rows = world.all_gather(Lender(cupy.full((world.rank, 2), world.rank, dtype="float32")), varied=True)
    assert rows[:, 0].tolist() == [one for one in range(world.size) for _ in range(one)]
    try:
        world.all_reduce(Lender(cupy.zeros((4, 4))[:, ::2]))
        raise AssertionError("gaps should have been rejected")
    except uni.UsageError as error:
        assert "contiguous" in str(error), error
if world.rank == 0:
    print(f"arrays without DLPack on {world.size} ranks")
