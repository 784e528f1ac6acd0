"""Named arrays with one copy on every worker, for plain functions over NumPy, PyTorch and JAX."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np


class Shared:
    """An array of which the master and every worker have their own copy.

    A function that lists it in `shareds` receives its value as the argument of that name, and changes it by
    returning `updated`. The master moves it with `broadcast`, `scatter`, `all_reduce` and similar functions.

    Example:
        >>> from unisono import functions
        >>> weights = functions.shared([1.0, 2.0], "weights")
        >>> weights.get_value()
        array([1., 2.])
    """

    def __init__(self, value: Any, name: str) -> None:
        jax = sys.modules.get("jax")
        # Collectives write in place: the caller's array must not change.
        self.value = value if jax is not None and isinstance(value, jax.Array) else np.array(value)
        """This process's copy."""
        self.name = name
        """The name of the argument that receives it."""

    def __repr__(self) -> str:
        return (
            f"<unisono.functions.Shared {self.name}: {np.asarray(self.value).dtype.name} {self.value.shape}>"
        )

    def get_value(self) -> Any:
        """Copies this process's value to a NumPy array."""
        return np.array(self.value)

    def set_value(self, value: Any) -> None:
        """Sets this process's copy only.

        Args:
            value: The new value, with the same number of axes. The type does not change: values of the same
                kind, in NumPy's sense, are converted, such as float64 to float32, but not to integers.
        """
        _Copy(self).set(self._fitted(np.asarray(value), "set_value"))

    def _fitted(self, array: Any, operation: str) -> Any:
        """Converts a new value to the array's type; raises an error if it does not fit."""
        held = self.value if hasattr(self.value, "dtype") else np.asarray(self.value)
        if array.ndim != held.ndim:
            raise ValueError(f"{operation}: {self.name} expected {held.ndim} axes, received {array.ndim}")
        if array.dtype == held.dtype:
            return array
        if not np.can_cast(array.dtype, held.dtype, "same_kind"):
            raise TypeError(
                f"{operation}: {self.name} expected {held.dtype.name}, received {array.dtype.name}; "
                f"convert it, for example with np.asarray(value, {held.dtype.name!r})"
            )
        return np.asarray(array).astype(held.dtype)


def shared(value: Any, name: str) -> Shared:
    """Creates a shared array.

    Args:
        value: The initial value: anything that NumPy accepts, or a JAX array.
        name: The name of the argument that receives it.

    Returns:
        The shared array.
    """
    return Shared(value, name)


class Updated:
    """The return value of a function that changes shared arrays; see `updated`."""

    def __init__(self, outputs: Any, values: dict[str, Any]) -> None:
        self.outputs = outputs
        self.values = values


def updated(outputs: Any = None, **values: Any) -> Updated:
    """Builds the return value of a function that changes shared arrays.

    Args:
        outputs: The outputs, as in a function without changes.
        **values: The new value of each shared array that changes, by its name. The types do not change, and
            values must fit as for `Shared.set_value`.

    Returns:
        The outputs and the changes together.

    Example:
        >>> from unisono import functions
        >>> def step(x, weights):
        ...     return functions.updated(x.sum(), weights=weights + x.sum(axis=0))
    """
    return Updated(outputs, values)


class _Copy:
    """This rank's copy, with the interface of a variable."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.name = shared.name

    def get(self) -> Any:
        return np.asarray(self._shared.value)

    def set(self, array: Any) -> None:
        held = self._shared.value
        if isinstance(held, np.ndarray) and held.shape == array.shape and held.flags.writeable:
            held[...] = array
        else:
            self._shared.value = np.array(array, dtype=np.asarray(held).dtype)

    def raw(self) -> Any:
        return self._shared.value

    def put(self, value: Any) -> None:
        self._shared.value = value


def is_shared(thing: Any) -> bool:
    """Whether this is a shared array."""
    return isinstance(thing, Shared)


is_found = is_shared
"""Shared arrays are shared even without a declaration."""


def parts(thing: Any) -> Iterable[Any]:
    """A shared array is a single variable."""
    return [thing]


def titled_parts(thing: Any) -> Iterable[tuple[str, Any]]:
    """A shared array has its own name."""
    return [("", thing)]


def wrap(thing: Any) -> _Copy:
    """Wraps a shared array as a variable."""
    return _Copy(thing)
