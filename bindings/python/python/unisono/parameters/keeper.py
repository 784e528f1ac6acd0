"""What a model holds and what its worker has told the others, one exchange at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from unisono.parameters.adapter import Parameters, Values
from unisono.parameters.exchange import Exchange, Waiting
from unisono.parameters.layout import Layout

# Elements at a time in passes over several arrays: together they fit a second-level cache.
PIECE = 1 << 15


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
        for value, base, passing in self._parts(values, self._base, self._passing):
            if self._exchange.relative:
                np.subtract(value, base, out=passing, casting="same_kind")
            else:
                np.copyto(passing, value)
        try:
            self._exchange.run(self._passing)
            write(self._parameters, self._layout.views(self._passing))
        except BaseException:
            if self._exchange.sent:
                for value, base in self._parts(values, self._base):
                    base[...] = value
            raise
        self._passing, self._base = self._base, self._passing
        self._forget_rounding()

    def begin(self, values: list[Values]) -> None:
        """Begins an exchange beside the program, which may change the values at once.

        A value counts as it is when it is read, once: before or after a change of the program.

        Args:
            values: The model's values.
        """
        seen = self._seen = self._buffer() if self._seen is None else self._seen
        base, passing, relative = self._base, self._passing, self._exchange.relative

        def prepare() -> None:
            for value, seen_part, base_part, passing_part in self._parts(values, seen, base, passing):
                for one, now, before, change in _pieces(value, seen_part, base_part, passing_part):
                    np.copyto(now, one)
                    np.subtract(now, before, out=change) if relative else np.copyto(change, now)

        def settle() -> None:
            # What brings the model from what it was to what the exchange has brought.
            np.subtract(passing, seen, out=seen)

        self._waiting = self._exchange.begin(prepare, passing, settle)

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
            if self._exchange.sent:
                self._base, self._seen = self._seen, self._base
            raise
        self._passing, self._base = self._base, self._passing
        if not self._rounds:
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


def _pieces(*arrays: Values) -> Iterator[list[Values]]:
    """The same pieces of several arrays, as views."""
    if not all(array.flags.c_contiguous for array in arrays):
        yield list(arrays)
        return
    flat = [array.reshape(-1) for array in arrays]
    for begin in range(0, flat[0].size, PIECE):
        yield [array[begin : begin + PIECE] for array in flat]
