"""What a type checker knows of the verbs: `assert_type` and the expected errors are checked by mypy alone."""

import numpy as np
import torch
from typing_extensions import assert_type

import unisono as uni

Floats = np.ndarray[tuple[int], np.dtype[np.float64]]


def arrays(x: Floats, tensor: torch.Tensor, group: uni.Group) -> None:
    """An array in is the same type of array out."""
    assert_type(uni.all_reduce(x, op="avg"), Floats)
    assert_type(group.broadcast(tensor, root=1), torch.Tensor)
    assert_type(group.all_gather(tensor, varied=True, out=tensor), torch.Tensor)
    assert_type(uni.reduce(x), Floats | None)
    assert_type(uni.scatter(tensor), torch.Tensor)
    assert_type(uni.scatter(None, out=x), Floats)
    assert_type(uni.all_to_all([tensor, tensor]), list[torch.Tensor])
    assert_type(uni.all_to_all(tensor, splits=[1], out_splits=[1]), torch.Tensor)
    assert_type(uni.recv(x, 0), Floats)
    assert_type(group.recv_any(x), int)


def pending(x: Floats) -> None:
    """With `wait=False`, the result is a `Pending` of it."""
    assert_type(uni.all_reduce(x, wait=False), uni.Pending[Floats])
    assert_type(uni.all_gather(x, wait=False).wait(), Floats)
    assert_type(uni.barrier(wait=False), uni.Pending[None])
    assert_type(uni.exscan(x, "bor", wait=False), uni.Pending[Floats])


def either(x: Floats, wait: bool) -> None:
    """A flag that is known only when the program runs is accepted."""
    uni.all_reduce(x, wait=wait)
    uni.gather(x, root=1, wait=wait)
    uni.barrier(wait=wait)


async def awaited(x: Floats) -> None:
    """A `Pending` can be awaited."""
    assert_type(await uni.scan(x, wait=False), Floats)


def names(x: Floats) -> None:
    """Unknown names are errors; an expected error that is missing is one, too."""
    uni.all_reduce(x, op="mean")  # type: ignore[call-overload]
    uni.all_reduce([1.0, 2.0])  # type: ignore[call-overload]
    uni.ArrayTable(3, updater="adamm")  # type: ignore[arg-type]
    uni.ArrayTable(3, updater="adam", consistency="ssp:3")
    with uni.init() as world:
        assert_type(world, uni.World)
