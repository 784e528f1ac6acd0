"""The collectives on the default world; `unisono.Group` has them as methods, which explain the arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unisono.arrays import Array
from unisono.world import world


def barrier(*, wait: bool = True, timeout: float | None = None) -> Any:
    """Waits until every rank has reached this call; see `Group.barrier`.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> uni.barrier(timeout=60)
    """
    return world().barrier(wait=wait, timeout=timeout)


def broadcast(x: Array, root: int = 0, *, wait: bool = True, timeout: float | None = None) -> Any:
    """Copies the root's array to every rank, in place; see `Group.broadcast`.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> uni.broadcast(np.arange(3))
        array([0, 1, 2])
    """
    return world().broadcast(x, root, wait=wait, timeout=timeout)


def all_reduce(
    x: Array,
    op: str = "sum",
    *,
    wait: bool = True,
    timeout: float | None = None,
    deterministic: bool = False,
) -> Any:
    """Combines the arrays of all ranks, in place on every rank; see `Group.all_reduce`.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> uni.all_reduce(np.ones(2), op="avg")
        array([1., 1.])
    """
    return world().all_reduce(x, op, wait=wait, timeout=timeout, deterministic=deterministic)


def reduce(
    x: Array,
    op: str = "sum",
    root: int = 0,
    *,
    wait: bool = True,
    timeout: float | None = None,
    deterministic: bool = False,
) -> Any:
    """Combines the arrays of all ranks, in place at the root; None elsewhere; see `Group.reduce`.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> uni.reduce(np.array([3, 4]), op="max")
        array([3, 4])
    """
    return world().reduce(x, op, root, wait=wait, timeout=timeout, deterministic=deterministic)


def gather(
    x: Array,
    root: int = 0,
    *,
    varied: bool = False,
    out: Array | None = None,
    wait: bool = True,
    timeout: float | None = None,
) -> Any:
    """Stacks the arrays of all ranks on a new first axis at the root; None elsewhere; see `Group.gather`.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> uni.gather(np.zeros((2, 3))).shape
        (1, 2, 3)
    """
    return world().gather(x, root, varied=varied, out=out, wait=wait, timeout=timeout)


def all_gather(
    x: Array,
    *,
    varied: bool = False,
    out: Array | None = None,
    wait: bool = True,
    timeout: float | None = None,
) -> Any:
    """Stacks the arrays of all ranks on a new first axis on every rank; see `Group.all_gather`.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> uni.all_gather(np.zeros((2, 3)), varied=True).shape
        (2, 3)
    """
    return world().all_gather(x, varied=varied, out=out, wait=wait, timeout=timeout)


def scatter(
    x: Array | None = None,
    root: int = 0,
    *,
    out: Array | None = None,
    wait: bool = True,
    timeout: float | None = None,
) -> Any:
    """Splits the root's array along its first axis, as evenly as possible; see `Group.scatter`.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> uni.scatter(np.arange(3) if world.rank == 0 else None)
        array([0, 1, 2])
    """
    return world().scatter(x, root, out=out, wait=wait, timeout=timeout)


def reduce_scatter(
    x: Array,
    op: str = "sum",
    *,
    out: Array | None = None,
    wait: bool = True,
    timeout: float | None = None,
    deterministic: bool = False,
) -> Any:
    """Combines the arrays of all ranks; each rank gets its share of the rows; see `Group.reduce_scatter`.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> uni.reduce_scatter(np.arange(4.0))
        array([0., 1., 2., 3.])
    """
    return world().reduce_scatter(x, op, out=out, wait=wait, timeout=timeout, deterministic=deterministic)


def all_to_all(
    x: Array | Sequence[Array],
    *,
    splits: Sequence[int] | None = None,
    out_splits: Sequence[int] | None = None,
    out: Array | None = None,
    wait: bool = True,
    timeout: float | None = None,
) -> Any:
    """Sends a block of rows, or one array of a list, to every rank; see `Group.all_to_all`.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> uni.all_to_all([np.arange(2)])
        [array([0, 1])]
    """
    return world().all_to_all(x, splits=splits, out_splits=out_splits, out=out, wait=wait, timeout=timeout)


def send(x: Array, to: int, tag: int = 0, *, wait: bool = True, timeout: float | None = None) -> Any:
    """Sends an array to one rank, which calls `recv`; see `Group.send`.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> pending = uni.send(np.arange(2), to=world.rank, wait=False)
        >>> uni.recv(np.zeros(2, dtype=int), source=world.rank)
        array([0, 1])
        >>> pending.wait()
    """
    return world().send(x, to, tag, wait=wait, timeout=timeout)


def recv(x: Array, source: int, tag: int = 0, *, wait: bool = True, timeout: float | None = None) -> Any:
    """Receives an array from one rank, which calls `send`; see `Group.recv` and the example at `send`."""
    return world().recv(x, source, tag, wait=wait, timeout=timeout)
