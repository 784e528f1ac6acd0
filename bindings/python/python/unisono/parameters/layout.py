"""The position of each parameter in one flat table, and whether all workers have the same layout."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.errors import UsageError
from unisono.group import Group
from unisono.parameters.adapter import Parameters, Values
from unisono.parameters.memory import reject_overlaps

# The element types that parameters may have; narrow ones are widened in the table.
FLOATS = ("float16", "bfloat16", "float32", "float64")


@dataclass(frozen=True)
class ParameterLayout:
    """Names, shapes, types and positions of parameters."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]

    @classmethod
    def of(cls, parameters: Parameters) -> ParameterLayout:
        """The layout of a model's parameters, for a table.

        Args:
            parameters: The model's parameters.

        Returns:
            Its layout.

        Raises:
            UsageError: A parameter has an element type other than a float or shares memory with another, or
                there are no parameters.
        """
        values = parameters.read()
        names = parameters.names()
        if not sum(value.size for value in values):
            raise UsageError(
                "parameters: expected a model with parameters, received one without; build it first"
            )
        for name, value in zip(names, values, strict=True):
            if value.dtype.name not in FLOATS:
                advice = (
                    "pass a real view of it" if value.dtype.kind == "c" else "convert it, or leave it out"
                )
                raise UsageError(
                    f"parameters: expected parameters of type {', '.join(FLOATS)}, received {name!r} of type "
                    f"{value.dtype}; {advice}"
                )
        if parameters.in_place:
            reject_overlaps(dict(zip(names, values, strict=True)))
        shapes = tuple(tuple(map(int, value.shape)) for value in values)
        return cls(tuple(names), shapes, tuple(value.dtype.name for value in values))

    @property
    def sizes(self) -> list[int]:
        """The number of elements of each parameter."""
        return [math.prod(shape) for shape in self.shapes]

    @property
    def size(self) -> int:
        """The total number of elements."""
        return sum(self.sizes)

    @property
    def dtype(self) -> Any:
        """The table's element type: float32, unless a parameter is float64."""
        return np.dtype("float64" if "float64" in self.dtypes else "float32")

    def views(self, flat: Values) -> list[Values]:
        """Each parameter's slice of a flat array, in its shape.

        Args:
            flat: An array of `size` elements.

        Returns:
            Views of it.
        """
        ends = np.cumsum(self.sizes)
        parts = zip(ends - self.sizes, ends, self.shapes, strict=True)
        return [flat[begin:end].reshape(shape) for begin, end, shape in parts]

    def difference(self, other: ParameterLayout) -> tuple[str, str, str] | None:
        """The first difference from another layout.

        Args:
            other: The other layout.

        Returns:
            The parameter's name, its description here and its description there; None if they are the same.
        """
        for place in range(max(len(self.names), len(other.names))):
            mine, theirs = self._describe(place), other._describe(place)
            if mine != theirs:
                name = self.names[place] if place < len(self.names) else other.names[place]
                return name, mine, theirs
        return None

    def _describe(self, place: int) -> str:
        if place >= len(self.names):
            return "nothing"
        return f"{self.names[place]!r} of shape {self.shapes[place]} and type {self.dtypes[place]}"


def agree(
    describe: Callable[[], ParameterLayout] | None, group: Group, timeout: float | None = None
) -> ParameterLayout:
    """The layout that all workers share. Every rank calls it.

    Args:
        describe: Makes this rank's layout; None on a rank that is not a worker.
        group: All ranks.
        timeout: Seconds until the call times out.

    Returns:
        The layout.

    Raises:
        UsageError: The layouts differ, or a worker has parameters that cannot be shared. Every rank raises
            it.
        Exception: Any other error that `describe` raises here; the other ranks get a UsageError.
    """
    description: dict[str, Any] = {}
    failure: Exception | None = None
    if describe is not None:
        try:
            layout = describe()
            description = {"names": layout.names, "shapes": layout.shapes, "dtypes": layout.dtypes}
        except UsageError as error:
            description = {"error": str(error)}
        except Exception as error:
            failure = error
            description = {"error": _reading_failed(error)}
    found = group.all_gather_object(description, timeout=timeout)
    if failure is not None:
        raise failure
    for rank, one in zip(group.members, found, strict=True):
        if "error" in one:
            raise UsageError(f"rank {rank}: {one['error']}")
    layouts = {rank: _read(one) for rank, one in zip(group.members, found, strict=True) if one}
    first = min(layouts)
    for rank, layout in layouts.items():
        difference = layouts[first].difference(layout)
        if difference is not None:
            name, expected, received = difference
            raise UsageError(
                f"parameters: expected the same parameters on all workers, received another {name!r}: "
                f"rank {first} has {expected}, rank {rank} has {received}; build the same model everywhere"
            )
    return layouts[first]


def _reading_failed(error: Exception) -> str:
    return (
        "parameters: expected a model whose parameters can be read, received "
        f"{type(error).__name__}: {error}; see that rank's own output"
    )


def _read(description: dict[str, Any]) -> ParameterLayout:
    shapes = tuple(tuple(shape) for shape in description["shapes"])
    return ParameterLayout(tuple(description["names"]), shapes, tuple(description["dtypes"]))
