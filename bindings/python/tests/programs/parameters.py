"""The manager against a computation without it, on any number of ranks: every mode, background or not."""

import itertools

import numpy as np

import unisono as uni

world = uni.init()
N = world.size


def model(rank):
    """Mixed shapes and types, integers throughout, so that sums are exact in every order."""
    return {
        "matrix": np.full((3, 4), rank + 1, np.float32),
        "half": np.full(5, rank + 1, np.float16),
        "transposed": np.full((2, 7), rank + 1, np.float32).T,
        "scalar": np.full((), rank + 1, np.float32),
        "nothing": np.zeros((0, 3), np.float32),
    }


def all_equal(parameters, expected):
    for name, value in parameters.items():
        assert (value == expected).all(), (name, value, expected)


for mode, background, consistency, every in itertools.product(
    ("delta", "average"), (False, True), ("async", "ssp:0", "bsp"), (1, 3)
):
    mine = model(world.rank)
    before = {name: id(value) for name, value in mine.items()}
    with uni.ParameterManager(
        mine, mode=mode, background=background, consistency=consistency, every=every
    ) as manager:
        all_equal(mine, 1)  # worker 0's
        done = []
        for _ in range(7):
            for value in mine.values():
                value += world.rank + 1
            done.append(manager.sync())
        assert done == [(call + 1) % every == 0 for call in range(7)], done
        manager.flush()
        uni.barrier()
    steps = 7 * N * (N + 1) // 2
    all_equal(mine, 1 + steps if mode == "delta" else 1 + steps / N)
    assert before == {name: id(value) for name, value in mine.items()}
    uni.barrier()

# The model's changes during an exchange are kept.
weights = np.zeros(1000)
manager = uni.ParameterManager([weights], background=True, consistency="bsp")
assert manager.table.dtype == np.float64
for _ in range(5):
    weights += 1
    manager.sync()
    weights += 100  # before the result of the exchange is known
manager.flush()
assert (weights == 5 * 101 * N).all(), weights
manager.close()

# A worker that has used no rows has weight zero, even if its values are NaN.
for background in (False, True):
    mean = np.full(3, 2.0)
    with uni.ParameterManager([mean], mode="average", background=background) as manager:
        if world.rank:
            mean[:] = np.nan
        manager.sync(weight=0 if world.rank else 5)
        assert background or (mean == 2).all(), mean

# Narrow types hold less than the table; the rounding error does not count as a change.
narrow = np.zeros(8, np.float16)
manager = uni.ParameterManager([narrow], consistency="bsp")
for _ in range(100):
    narrow += np.float16(0.001) if world.rank == 0 else 0
    manager.sync()
assert abs(manager.table.get()[0] - narrow[0]) < 1e-3 and 0.09 < narrow[0] < 0.11
manager.close()

# Any other model, through two functions.
state = {"weights": [0.0] * 3}
manager = uni.ParameterManager(
    get=lambda: [np.array(state["weights"])], set=lambda values: state.update(weights=values[0].tolist())
)
state["weights"] = [1.0, 2.0, 3.0]
manager.sync()
uni.barrier()
manager.flush()
assert state["weights"] == [1.0 * N, 2.0 * N, 3.0 * N]


# Gradients, in buckets by type.
class Model:
    """Weights with gradients."""

    in_place = True

    def __init__(self):
        self.values = [np.zeros(3, np.float32), np.zeros((2, 2)), np.zeros(1)]
        self.slopes = [np.full(3, world.rank, np.float32), np.full((2, 2), world.rank + 1.0), None]

    def names(self):
        return ["a", "b", "c"]

    def read(self):
        return self.values

    def write(self, values):
        raise AssertionError("views are written in place")

    def gradients(self):
        return self.slopes


model_with_gradients = Model()
assert uni.ParameterManager(model_with_gradients, mode="gradients").sync()
np.testing.assert_allclose(model_with_gradients.slopes[0], (N - 1) / 2)
np.testing.assert_allclose(model_with_gradients.slopes[1], (N + 1) / 2)

# A large model is stored in rows, is exchanged in pieces, and ends in the middle of a row.
for background, consistency in itertools.product((False, True), ("async", "ssp:1", "bsp")):
    large = [np.zeros((1000, 999), np.float32), np.zeros(100_001, np.float32), np.zeros((7, 5), np.float16).T]
    manager = uni.ParameterManager(large, background=background, consistency=consistency)
    for _ in range(3):
        for place, value in enumerate(large):
            value += place + 1
        manager.sync()
    manager.flush()
    uni.barrier()
    manager.flush()
    for place, value in enumerate(large):
        assert (value == 3 * N * (place + 1)).all(), (place, value)
    manager.close()
    uni.barrier()
