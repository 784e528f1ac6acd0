"""Variable updates during a call that runs slice by slice."""

from __future__ import annotations

import numpy as np

from unisono.functions.outputs import Accumulator
from unisono.functions.variables import Variable


class PendingUpdate:
    """One variable during slices: each starts from the original value, and the results are combined."""

    def __init__(self, variable: Variable, mode: str) -> None:
        value = variable.raw()
        # The state of a random stream is not a number: it advances from slice to slice.
        self._is_array = hasattr(value, "dtype")
        self._original = np.array(variable.get()) if self._is_array else None
        self._averages = mode == "avg" and self._is_array and np.dtype(variable.get().dtype).kind in "fc"
        # Integers have no average; counters are the same after every slice.
        self._accumulator = Accumulator(mode if mode != "avg" or self._averages else None, False)
        self._variable = variable

    def begin(self) -> None:
        """Resets the variable to the original value for the next slice."""
        if self._is_array:
            self._variable.set(self._original)

    def add(self) -> None:
        """Adds the value that the slice produced."""
        if self._is_array:
            self._accumulator.add(self._variable.get(), 1)

    def undo(self) -> None:
        """Restores the original value."""
        if self._is_array:
            self._variable.set(self._original)

    def finish(self) -> None:
        """Assigns the combined result of the slices to the variable."""
        if self._is_array:
            self._variable.set(self._accumulator.result())


class PossibleUpdate:
    """The same for a shared array that a function does not declare as updated: free until it changes.

    A new value is a different array, never the old one changed in place.
    """

    def __init__(self, variable: Variable) -> None:
        self._variable, self._original = variable, variable.raw()
        self._slices = 0
        self._update: PendingUpdate | None = None

    def begin(self) -> None:
        """Resets the variable to the original value for the next slice."""
        self._variable.put(self._original)

    def add(self) -> None:
        """Adds the value that the slice produced."""
        found = self._variable.raw()
        if found is not self._original and self._update is None:
            self._variable.put(self._original)
            self._update = PendingUpdate(self._variable, "avg")
            for _ in range(self._slices):
                self._update.add()
            self._variable.put(found)
        if self._update is not None:
            self._update.add()
        self._slices += 1

    def undo(self) -> None:
        """Restores the original value."""
        self._variable.put(self._original)

    def finish(self) -> None:
        """Assigns the combined result of the slices to the variable."""
        if self._update is not None:
            self._update.finish()
