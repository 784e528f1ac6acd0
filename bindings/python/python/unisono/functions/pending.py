"""Updates of variables while a call runs slice by slice."""

from __future__ import annotations

import numpy as np

from unisono.functions.outputs import Accumulator
from unisono.functions.variables import Variable


class PendingUpdate:
    """One variable during slices: each starts from the original, and the results become one at the end."""

    def __init__(self, variable: Variable, mode: str) -> None:
        value = variable.raw()
        # The state of a random stream is not a number: it runs on from slice to slice.
        self._is_array = hasattr(value, "dtype")
        self._original = np.array(variable.get()) if self._is_array else None
        self._averages = mode == "avg" and self._is_array and np.dtype(variable.get().dtype).kind in "fc"
        # Whole numbers have no average; counters are the same after every slice.
        self._accumulator = Accumulator(mode if mode != "avg" or self._averages else None, False)
        self._variable = variable

    def begin(self) -> None:
        """The next slice begins with the original."""
        if self._is_array:
            self._variable.set(self._original)

    def add(self) -> None:
        """Takes what the slice has made of it."""
        if self._is_array:
            self._accumulator.add(self._variable.get(), 1)

    def undo(self) -> None:
        """Everything is as it was."""
        if self._is_array:
            self._variable.set(self._original)

    def finish(self) -> None:
        """The variable gets what the slices have made of it together."""
        if self._is_array:
            self._variable.set(self._accumulator.result())


class PossibleUpdate:
    """The same for a shared array that a function has not declared to change: it costs nothing until it does.

    A new value is another array, never the old one changed in place.
    """

    def __init__(self, variable: Variable) -> None:
        self._variable, self._original = variable, variable.raw()
        self._slices = 0
        self._update: PendingUpdate | None = None

    def begin(self) -> None:
        """The next slice begins with the original."""
        self._variable.put(self._original)

    def add(self) -> None:
        """Takes what the slice has made of it."""
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
        """Everything is as it was."""
        self._variable.put(self._original)

    def finish(self) -> None:
        """The variable gets what the slices have made of it together."""
        if self._update is not None:
            self._update.finish()
