"""Failures of the manager; the first argument selects one, and every rank records its error."""

import sys

import numpy as np

import unisono as uni
from note import note

world = uni.init()
trouble = sys.argv[1]


def observe(call, expected=uni.Error):
    try:
        call()
    except expected as error:
        note(world.rank, f"{type(error).__name__}: {error}")
    else:
        raise AssertionError("the call should have failed")


class Sloping:
    """Weights with given gradients."""

    in_place = True

    def __init__(self, slopes):
        self.slopes = slopes

    def names(self):
        return ["weights"]

    def read(self):
        return [np.zeros(2)]

    def write(self, values):
        pass

    def gradients(self):
        return self.slopes


mine = {"first": np.full(3, world.rank, np.float32), "second": np.full((2, 2), world.rank, np.float32)}
last = world.size - 1

if trouble == "shapes":
    if world.rank == last:
        mine["second"] = np.zeros((2, 3), np.float32)
    observe(lambda: uni.ParameterManager(mine))
    assert all(
        (value == (0 if name == "second" and world.rank == last else world.rank)).all()
        for name, value in mine.items()
    )

elif trouble == "missing":
    if world.rank == last:
        del mine["second"]
    observe(lambda: uni.ParameterManager(mine))

elif trouble == "types":
    if world.rank == last:
        mine["second"] = np.zeros((2, 2), np.int32)
    observe(lambda: uni.ParameterManager(mine))

elif trouble == "read-only":
    if world.rank == last:
        mine["second"].flags.writeable = False
    observe(lambda: uni.ParameterManager(mine))

elif trouble == "unknown":
    observe(lambda: uni.ParameterManager("a model" if world.rank == last else mine))

elif trouble == "raising":

    def get():
        if world.rank == last:
            raise KeyError("no weights here")
        return list(mine.values())

    observe(lambda: uni.ParameterManager(get=get, set=print), KeyError if world.rank == last else uni.Error)
    uni.barrier()

elif trouble == "late":
    # The last worker only waits until the others have timed out and exited.
    if world.rank == last:
        observe(lambda: world.recv(np.zeros(1), 0))
    else:
        observe(lambda: uni.ParameterManager(mine, timeout=5))

elif trouble.startswith("late"):
    if trouble == "late tensors":
        import torch

        model = [torch.nn.Parameter(torch.zeros(3))]
        model[0].grad = torch.zeros(3)
    else:
        model = Sloping([np.zeros(2)])
    manager = uni.ParameterManager(model, mode="gradients", timeout=5)
    if world.rank == last:
        observe(lambda: world.recv(np.zeros(1), 0))
    else:
        observe(manager.sync)

elif trouble == "unequal":
    manager = uni.ParameterManager(mine, consistency="bsp")
    for _ in range(2 if world.rank == last else 3):
        mine["first"] += 1
        if world.rank != last and _ == 2:
            held = mine["first"].copy()
            observe(manager.sync)
            assert (mine["first"] == held).all()
        else:
            manager.sync()
    if world.rank == last:
        observe(manager.close)

elif trouble == "left":
    # One worker exits silently; the others get an error.
    manager = uni.ParameterManager(mine, mode="average")
    manager.sync()
    if world.rank == last:
        note(world.rank, "left")
    else:
        observe(manager.sync)

elif trouble == "shutdown":
    manager = uni.ParameterManager(mine)
    uni.barrier()
    uni.shutdown()
    observe(manager.sync)

elif trouble == "retyped":
    kept = list(mine.values())
    manager = uni.ParameterManager(get=lambda: kept, set=lambda values: None)
    kept[1] = kept[1].astype("float64")
    observe(manager.sync)
    uni.barrier()

elif trouble == "reshaped":
    manager = uni.ParameterManager(mine)
    mine["first"] += 1
    mine["second"].resize((4, 2), refcheck=False)
    observe(manager.sync)
    assert (mine["first"] == 1).all()
    uni.barrier()

elif trouble == "gradients":
    model = Sloping([None if world.rank == last else np.ones(2)])
    observe(uni.ParameterManager(model, mode="gradients").sync)

else:
    raise AssertionError(trouble)
