"""Converts windows and boundaries from the form in which users write them to that of the native module."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from unisono.errors import UsageError

Boundary = str | float
"""The values beyond an edge: "zero", "replicate", "reflect", "periodic", or a number used everywhere."""

WindowNumbers = tuple[int, int, int, int, int, bool, int, bool]
"""Kernel, stride, dilation, padding before and after, transposed, output padding, ceil mode."""

Edge = tuple[str, float]
"""A boundary's name and value."""

IDENTITY: WindowNumbers = (1, 1, 1, 0, 0, False, 0, False)
"""The trivial window, for dimensions that are processed element by element."""


def count_of(operation: str, name: str, value: Any, least: int = 0) -> int:
    """Checks an integer argument.

    Args:
        operation: The operation, for error messages.
        name: The name of the argument.
        value: The value.
        least: The smallest valid value.

    Returns:
        The number.

    Raises:
        UsageError: The value is not an integer, or too small.
    """
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise UsageError(
            f"{operation}: expected a whole number of {least} or more for {name}, received {value!r}; "
            f"give one such as {max(least, 2)}"
        )
    return number


def window_dimensions(
    kernel: Any, dims: Sequence[int] | None, shape: Sequence[int], split: Mapping[str, int]
) -> list[int]:
    """The dimensions of a window.

    Args:
        kernel: A number, or one for each dimension.
        dims: The dimensions, if the user names them.
        shape: The array's shape.
        split: The dimension that each axis divides.

    Returns:
        The dimensions, in order.
    """
    if dims is not None:
        chosen = [int(dim) + len(shape) if dim < 0 else int(dim) for dim in dims]
    elif not isinstance(kernel, Sequence):
        chosen = sorted(dim for axis, dim in split.items() if axis != "data")
    else:
        chosen = list(range(len(shape) - len(kernel), len(shape)))
    if not all(0 <= dim < len(shape) for dim in chosen) or len(set(chosen)) != len(chosen):
        raise UsageError(
            f"window: expected different dimensions of an array with {len(shape)}, "
            f"received {list(dims) if dims is not None else chosen}; name them with dims=(2, 3)"
        )
    return chosen


def for_each(name: str, value: Any, count: int) -> list[Any]:
    """Expands an argument to one value for each dimension of a window.

    Args:
        name: The name of the argument, for error messages.
        value: One for all, or a sequence with one for each.
        count: The number of dimensions.

    Returns:
        The values.
    """
    if isinstance(value, str) or not isinstance(value, Iterable):
        return [value] * count
    values = list(value)
    if len(values) != count:
        raise UsageError(
            f"window: expected one {name} or {count}, one for each dimension of the window, "
            f"received {len(values)}; see dims="
        )
    return values


def counts(name: str, value: Any, count: int, least: int = 0) -> list[int]:
    """Expands an argument to one integer for each dimension of a window.

    Args:
        name: The name of the argument.
        value: One for all, or a sequence with one for each.
        count: The number of dimensions.
        least: The smallest valid value.

    Returns:
        The numbers.
    """
    return [count_of("window", name, one, least) for one in for_each(name, value, count)]


def paddings(
    padding: Any, kernel: list[int], dilation: list[int], stride: list[int]
) -> list[tuple[int, int]]:
    """The padding before and after, for each dimension of a window.

    Args:
        padding: A number, "same", "valid", or one for each dimension, which may be a pair.
        kernel: The kernels.
        dilation: The dilations.
        stride: The strides.

    Returns:
        The pairs.
    """
    if padding == "valid":
        padding = 0
    if padding == "same":
        if any(step != 1 for step in stride):
            raise UsageError(
                f"window: expected stride 1 for padding 'same', received {stride}; give numbers instead"
            )
        spans = [step * (size - 1) for size, step in zip(kernel, dilation, strict=True)]
        return [(span // 2, span - span // 2) for span in spans]
    pairs = []
    for one in for_each("padding", padding, len(kernel)):
        before, after = one if isinstance(one, Sequence) else (one, one)
        pairs.append((count_of("window", "padding", before), count_of("window", "padding", after)))
    return pairs


def boundaries(
    boundary: Any, dims: list[int], split: Mapping[str, int], count: int
) -> list[tuple[Edge, Edge]]:
    """The boundaries at both edges of every dimension of an array.

    Args:
        boundary: One for all edges; a sequence with one for each dimension of the window, which may be a pair
            (before, after); or a dictionary from axes or dimensions to these, zero elsewhere.
        dims: The dimensions of the window.
        split: The dimension that each axis divides.
        count: The number of dimensions of the array.

    Returns:
        Names and values, before and after.
    """
    edges: list[tuple[Edge, Edge]] = [(("zero", 0.0), ("zero", 0.0))] * count
    if isinstance(boundary, Mapping):
        for key, one in boundary.items():
            dim = split.get(key) if isinstance(key, str) else int(key) % count
            if dim is None:
                raise UsageError(
                    f"window: expected boundaries for the axes {', '.join(split)} or for dimensions, "
                    f"received {key!r}; use one of these"
                )
            edges[dim] = _edges(one)
        return edges
    for dim, one in zip(dims, for_each("boundary", boundary, len(dims)), strict=True):
        edges[dim] = _edges(one)
    return edges


def check_constants(edges: Iterable[tuple[Edge, Edge]], dtype: str) -> None:
    """Rejects constants that an integer array cannot hold.

    Args:
        edges: The boundaries before and after each dimension.
        dtype: The name of the element type.

    Raises:
        UsageError: A constant is outside the type's range, or not an integer.

    Example:
        >>> check_constants([(("constant", 255.0), ("zero", 0.0))], "uint8")
    """
    if not dtype.startswith(("int", "uint", "bool")):
        return
    least, most = (0, 1) if dtype == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for name, value in (edge for pair in edges for edge in pair):
        if name == "constant" and not (value.is_integer() and least <= int(value) <= most):
            raise UsageError(
                f"boundary: expected a number that {dtype} holds, received {value}; choose a whole number "
                f"from {least} to {most}, or convert the array"
            )


def _edges(one: Any) -> tuple[Edge, Edge]:
    if isinstance(one, (str, int, float)):
        return _edge(one), _edge(one)
    before, after = one
    return _edge(before), _edge(after)


def _edge(boundary: Any) -> Edge:
    if isinstance(boundary, str):
        return boundary, 0.0
    return "constant", float(boundary)
