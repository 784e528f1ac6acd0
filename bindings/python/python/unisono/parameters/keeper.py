"""What a model holds and what its worker has told the others, one exchange at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate

import numpy as np

from unisono.parameters.adapter import Parameters, Values
from unisono.parameters.exchange import Exchange, Waiting
from unisono.parameters.layout import Layout


class Keeper:
    """Exchanges a model's values with the other workers.

    The change that a model has made and that nobody was told of is always its values less `_base`.
    """

    def __init__(
        self,
        parameters: Parameters,
        layout: Layout,
        exchange: Exchange,
        buffer: Callable[[], Values],
        base: Values,
    ) -> None:
        self._parameters = parameters
        self._layout = layout
        self._exchange = exchange
        self._buffer = buffer
        self._base = base
        self._passing = buffer()
        self._seen: Values | None = None
        self._waiting: Waiting | None = None
        self._rounds = not parameters.in_place or set(layout.dtypes) != {layout.dtype.name}
        self._starts = [0, *accumulate(layout.sizes)][:-1]
        self._forget_rounding()

    @property
    def busy(self) -> bool:
        """Whether an exchange is under way."""
        return self._waiting is not None

    def exchange(self, values: list[Values]) -> None:
        """Makes one exchange and waits for it; after an error, the model is as it was.

        Args:
            values: The model's values.
        """
        base, passing, flat = self._base, self._passing, [value.reshape(-1) for value in values]

        def fill(begin: int, end: int) -> None:
            for value, place in self._overlaps(flat, begin, end):
                if self._exchange.relative:
                    np.subtract(value, base[place], out=passing[place], casting="same_kind")
                else:
                    np.copyto(passing[place], value)

        try:
            self._exchange.run(passing, fill)
            write(self._parameters, self._layout.views(passing))
        except BaseException:
            for value, place in self._overlaps(flat, 0, self._exchange.told):
                base[place] = value
            raise
        self._passing, self._base = base, passing
        self._forget_rounding()

    def begin(self, values: list[Values]) -> None:
        """Begins an exchange beside the program, which may change the values at once.

        A value counts as it is when it is read, once: before or after a change of the program.

        Args:
            values: The model's values.
        """
        seen = self._seen = self._buffer() if self._seen is None else self._seen
        base, passing, flat = self._base, self._passing, [value.reshape(-1) for value in values]

        def fill(begin: int, end: int) -> None:
            for value, place in self._overlaps(flat, begin, end):
                np.copyto(seen[place], value)
                if self._exchange.relative:
                    np.subtract(seen[place], base[place], out=passing[place])
                else:
                    np.copyto(passing[place], seen[place])

        def settle() -> None:
            # What brings the model from what it was to what the exchange has brought.
            np.subtract(passing, seen, out=seen)

        self._waiting = self._exchange.begin(passing, fill, settle)

    def take(self, values: list[Values]) -> None:
        """Waits for the exchange under way, and gives the model what it has brought; its own changes stay.

        Args:
            values: The model's values.
        """
        assert self._waiting is not None and self._seen is not None
        waiting, self._waiting = self._waiting, None
        try:
            waiting.wait()
        except BaseException:
            told = self._exchange.told
            self._base[:told] = self._seen[:told]
            raise
        self._passing, self._base = self._base, self._passing
        if not self._rounds:
            # A framework may do it on several threads; this is the one pass that the program waits for.
            add = getattr(self._parameters, "add", None)
            if add is not None:
                add(self._layout.views(self._seen))
                return
            for value, correction in self._parts(values, self._seen):
                np.add(value, correction, out=value)
            return
        exact = [value + correction for value, correction in self._parts(values, self._seen)]
        write(self._parameters, exact)
        for wanted, value, base in zip(
            exact, self._parameters.read(), self._layout.views(self._base), strict=True
        ):
            base += value - wanted

    def _forget_rounding(self) -> None:
        """A model that rounds what it is given has changed nothing by that."""
        if self._rounds:
            for value, base in self._parts(self._parameters.read(), self._base):
                base[...] = value

    def _overlaps(self, flat: list[Values], begin: int, end: int) -> Iterator[tuple[Values, slice]]:
        """The parts of parameters that lie between two elements, and their places."""
        first = bisect_right(self._starts, begin) - 1
        for value, start in zip(flat[first:], self._starts[first:], strict=True):
            low, high = max(begin, start), min(end, start + value.size)
            if start >= end:
                return
            if low < high:
                yield value[low - start : high - start], slice(low, high)

    def _parts(self, values: list[Values], *flat: Values) -> Iterator[tuple[Values, ...]]:
        """Each parameter with its part of each flat array."""
        return zip(values, *(self._layout.views(one) for one in flat), strict=True)


def write(parameters: Parameters, values: list[Values]) -> None:
    """Gives a model new values.

    Args:
        parameters: The model's parameters.
        values: Arrays of their shapes.
    """
    if parameters.in_place:
        for target, value in zip(parameters.read(), values, strict=True):
            np.copyto(target, value, casting="same_kind")
    else:
        parameters.write(values)
