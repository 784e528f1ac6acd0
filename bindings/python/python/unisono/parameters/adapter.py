"""What a framework must offer: its parameters as NumPy arrays, and a way to write them back."""

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

    - `gradients() -> list[Values | None]`: views of the gradients that may be written, None where there is
      none.
    - `add(values)`: adds to the parameters in place, faster than NumPy does; nothing where there is None.
    - `written()`: called after the arrays of `read` were written in place of `write`.
    - `swap`: a `Swapping`, if the parameters can take new values without a copy.
    - `exact`: whether the parameters keep to the last bit what they are given, though `in_place` is false.
    - `average(group, factor, timeout)`: replaces everybody's parameters by their average in a way of its own,
      this worker's multiplied by the factor first; all of them, or none and an error.
    - `reduce_gradients(group, op, factor, timeout)`: combines the gradients between workers in a way of its
      own, this worker's multiplied by the factor first.
    - `model` and `replace(model)`: for models that cannot be changed in place. `model` is the current one.
    """

    in_place: bool
    """Whether the arrays of `read` are views that may be written instead of calling `write`.

    If so, each has memory of its own: what is tied to another comes once.
    """

    def names(self) -> list[str]:
        """A name for each parameter, for errors."""

    def read(self) -> list[Values]:
        """The current values, as views without a copy where the framework allows.

        Other arrays than last time may come, of the same shapes and types. What cannot be shared is refused
        here, not where the adapter is made: what goes wrong here on one worker is an error on all.
        """

    def write(self, values: list[Values]) -> None:
        """Replaces the values: all of them, or none and an error. Copies what it keeps.

        Args:
            values: Arrays of the shapes that `read` gives, of float32 or float64.
        """


class Swapping(Protocol):
    """Memory beside the parameters, which they take over when it holds newer values than their own."""

    def watch(self, before: Callable[[list[int]], None]) -> None:
        """Has a method called whenever some parameters are about to be changed by training.

        Args:
            before: Given their places. Nothing may need their former values any more.
        """

    def close(self) -> None:
        """Ends `watch`."""

    def mark(self) -> None:
        """Notes what the parameters are; those that are changed from here on take nothing over."""

    def spare(self) -> list[Values | None]:
        """Views of the memory beside the parameters, None where there is none."""

    def take(self, places: Iterable[int]) -> list[int]:
        """Exchanges the memory of parameters with that beside them, and says which have done it.

        Args:
            places: Which parameters; those that cannot stay as they are.
        """


def check_same(known: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Rejects a model whose parameters are no longer those that the manager was made with.

    Args:
        known: The parameters by name, when the manager was made.
        current: What the model has now.

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
    """NumPy arrays that the model changes in place; one that is there twice counts once.

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
        """The keys of a dictionary, or the places in a list."""
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
        """Their places in the list."""
        return [str(place) for place in range(len(self._get()))]

    def read(self) -> list[Values]:
        """What `get` returns."""
        return [np.asarray(value) for value in self._get()]

    def write(self, values: list[Values]) -> None:
        """Gives copies to `set`, in the types that `get` returns."""
        types = [value.dtype for value in self.read()]
        self._set([value.astype(dtype) for value, dtype in zip(values, types, strict=True)])


def _named(arrays: Sequence[Values] | Mapping[Any, Values]) -> dict[str, Values]:
    named = arrays.items() if isinstance(arrays, Mapping) else enumerate(arrays)
    return {str(name): array for name, array in named}
