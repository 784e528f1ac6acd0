"""The interface of a framework adapter: parameters as NumPy arrays, and a way to write them back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from unisono.errors import UsageError
from unisono.parameters.memory import distinct

Values = np.ndarray[Any, Any]


@runtime_checkable
class Parameters(Protocol):
    """A model's parameters, always in the same order.

    An adapter may also have:

    - `gradients() -> list[Values | None]`: writable views of the gradients, None for a parameter without one.
    - `add(values)`: adds to the parameters in place, faster than NumPy does; skips a value of None.
    - `written()`: called after the arrays of `read` were written, instead of `write`.
    - `swap`: a `Swapping`, if the parameters can take new values without a copy.
    - `exact`: whether the parameters store values bit for bit, although `in_place` is false.
    - `average(group, factor, timeout)`: replaces every worker's parameters by their average in the adapter's
      own way, after multiplying this worker's by the factor; either all of them, or none with an error.
    - `reduce_gradients(group, op, factor, timeout)`: combines the gradients between workers in the adapter's
      own way, after multiplying this worker's by the factor.
    - `model` and `replace(model)`: for models that cannot be changed in place. `model` is the current one.
    """

    in_place: bool
    """Whether the arrays of `read` are views that may be written instead of calling `write`.

    If so, no two arrays share memory: tied parameters occur once.
    """

    def names(self) -> list[str]:
        """A name for each parameter, for error messages."""

    def read(self) -> list[Values]:
        """The current values, as views without a copy if the framework allows it.

        A later call may return other arrays of the same shapes and types. Parameters that cannot be shared
        are rejected here, not in the constructor: an error here on one worker is raised on all.
        """

    def write(self, values: list[Values]) -> None:
        """Replaces the values: either all of them, or none with an error. Copies what it keeps.

        Args:
            values: Arrays of float32 or float64, in the shapes that `read` returns.
        """


class Swapping(Protocol):
    """Spare memory that parameters take over when it holds newer values than their own."""

    def watch(self, before: Callable[[list[int]], None]) -> None:
        """Registers a method to be called whenever training is about to change some parameters.

        Args:
            before: Called with their indices. At that time, their former values must no longer be needed.
        """

    def close(self) -> None:
        """Ends `watch`."""

    def mark(self) -> None:
        """Records the parameters' state; a parameter that is changed after this is not swapped."""

    def spare(self) -> list[Values | None]:
        """Views of the spare memory, None for a parameter that has none."""

    def take(self, places: Iterable[int]) -> list[int]:
        """Exchanges the memory of parameters with their spare memory, and returns those that were swapped.

        Args:
            places: Indices of the parameters; those that cannot be swapped stay as they are.
        """


def check_same(known: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Rejects a model whose parameters are no longer those that the manager was made with.

    Args:
        known: The parameters by name, when the manager was made.
        current: The model's current parameters.

    Raises:
        UsageError: One was added, replaced or removed.
    """
    for name in {**known, **current}:
        if known.get(name) is not current.get(name):
            what = "added" if name not in known else "removed" if name not in current else "replaced"
            raise UsageError(
                f"parameters: expected those that the manager was made with, received {name!r}, which was "
                f"{what} since; make a new manager after such a change"
            )


class Arrays:
    """NumPy arrays that the model changes in place; an array that occurs twice counts once.

    Example:
        >>> import numpy as np
        >>> weights = Arrays([np.zeros(2), np.zeros((2, 2))])
        >>> weights.write([np.ones(2), np.ones((2, 2))])
        >>> weights.names(), weights.read()[0].tolist()
        (['0', '1'], [1.0, 1.0])
    """

    in_place = True

    def __init__(self, arrays: Sequence[Values] | Mapping[Any, Values]) -> None:
        self._source = arrays
        self._given = given = _named(arrays)
        for name, array in given.items():
            if not array.flags.writeable:
                raise UsageError(
                    f"parameters: expected arrays that can be written, received {name!r}, which is "
                    "read-only; copy it"
                )
        self._arrays = distinct(given, lambda array: array)

    def names(self) -> list[str]:
        """The keys of a dictionary, or the indices in a list."""
        return list(self._arrays)

    def read(self) -> list[Values]:
        """The arrays themselves."""
        check_same(self._given, _named(self._source))
        return list(self._arrays.values())

    def write(self, values: list[Values]) -> None:
        """Copies values into the arrays."""
        for array, value in zip(self._arrays.values(), values, strict=True):
            np.copyto(array, value, casting="same_kind")


class Callables:
    """Parameters of anything else, read and written by two functions.

    Example:
        >>> import numpy as np
        >>> model = {"weights": [1.0, 2.0]}
        >>> parameters = Callables(
        ...     get=lambda: [np.array(model["weights"])],
        ...     set=lambda values: model.update(weights=values[0].tolist()),
        ... )
        >>> parameters.write([np.array([3.0, 4.0])])
        >>> model
        {'weights': [3.0, 4.0]}
    """

    in_place = False

    def __init__(self, get: Callable[[], Sequence[Any]], set: Callable[[list[Values]], Any]) -> None:
        self._get = get
        self._set = set

    def names(self) -> list[str]:
        """The indices in the list."""
        return [str(place) for place in range(len(self._get()))]

    def read(self) -> list[Values]:
        """The arrays that `get` returns."""
        return [np.asarray(value) for value in self._get()]

    def write(self, values: list[Values]) -> None:
        """Passes copies to `set`, in the types that `get` returns."""
        types = [value.dtype for value in self.read()]
        self._set([value.astype(dtype) for value, dtype in zip(values, types, strict=True)])


def _named(arrays: Sequence[Values] | Mapping[Any, Values]) -> dict[str, Values]:
    named = arrays.items() if isinstance(arrays, Mapping) else enumerate(arrays)
    return {str(name): array for name, array in named}
