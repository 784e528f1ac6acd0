"""Parameters that share memory, such as tied weights: each counts once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from unisono.errors import UsageError

Values = np.ndarray[Any, Any]
T = TypeVar("T")

# The effort spent on deciding whether two strided arrays interleave without overlapping.
_WORK: Any = 100_000


def distinct(named: Mapping[str, T], view: Callable[[T], Values | None]) -> dict[str, T]:
    """Drops parameters that have the same address, shape and type as an earlier one.

    Args:
        named: Parameters by name.
        view: Returns an array at a parameter's address; None for one without memory.

    Returns:
        Each distinct parameter, under its first name.

    Raises:
        UsageError: Two parameters overlap only in part, or view the same memory with different shapes or
            types.

    Example:
        >>> weights = np.zeros(3)
        >>> list(distinct({"in": weights, "out": weights}, lambda one: one))
        ['in']
    """
    kept: dict[str, T] = {}
    views: dict[str, Values] = {}
    seen: set[object] = set()
    for name, one in named.items():
        array = view(one)
        place = None if array is None or not array.size else (_place(array), getattr(one, "dtype", None))
        if place in seen:
            continue
        kept[name] = one
        if array is not None and place is not None:
            seen.add(place)
            views[name] = array
    reject_overlaps(views)
    return kept


def reject_overlaps(named: Mapping[str, Values]) -> None:
    """Rejects parameters that share memory: a write to one would change the other.

    Args:
        named: Arrays by name.

    Raises:
        UsageError: Two of them share memory.
    """
    spans = sorted((*_bounds(one), name) for name, one in named.items() if one.size)
    reaching: list[tuple[int, str]] = []
    for low, high, name in spans:
        reaching = [(end, other) for end, other in reaching if end > low]
        for other in _sharing(named, name, (other for _, other in reaching)):
            raise UsageError(
                f"parameters: expected parameters with memory of their own, received {other!r} and {name!r}, "
                "which share some; leave one of them out, or copy it"
            )
        reaching.append((high, name))


def array_at(address: int, shape: Iterable[int], strides: Iterable[int], itemsize: int) -> Values:
    """An array at a given address, for comparing addresses; its elements are never accessed.

    Args:
        address: The address of the first element, in any memory.
        shape: The shape.
        strides: The distance of neighbours in elements, in each dimension.
        itemsize: The size of an element in bytes.

    Returns:
        The array.
    """
    place = _Place()
    place.__array_interface__ = {
        "version": 3,
        "data": (address, True),
        "shape": tuple(shape),
        "strides": tuple(stride * itemsize for stride in strides),
        "typestr": f"|V{itemsize}",
    }
    return np.asarray(place)


class _Place:
    """An array interface from which NumPy makes an array without accessing its elements."""

    __array_interface__: dict[str, Any]


def _place(array: Values) -> object:
    """A key that is equal for identical arrays."""
    extents = zip(array.shape, array.strides, strict=True)
    steps = tuple(step if extent > 1 else 0 for extent, step in extents)
    return _address(array), array.shape, steps


def _address(array: Values) -> int:
    return int(array.__array_interface__["data"][0])


def _bounds(array: Values) -> tuple[int, int]:
    """The first and last address that an array reaches."""
    reaches = [(extent - 1) * step for extent, step in zip(array.shape, array.strides, strict=True)]
    first = _address(array) + sum(min(reach, 0) for reach in reaches)
    return first, first + sum(map(abs, reaches)) + array.itemsize


def _sharing(named: Mapping[str, Values], name: str, others: Iterable[str]) -> Iterable[str]:
    for other in others:
        try:
            shared = np.shares_memory(named[name], named[other], max_work=_WORK)
        except RuntimeError:  # too expensive to decide
            continue
        if shared:
            yield other
