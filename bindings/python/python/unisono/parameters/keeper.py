"""What a model holds and what its worker has told the others, one exchange at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from unisono.errors import UsageError
from unisono.parameters.adapter import Parameters, Swapping, Values
from unisono.parameters.exchange import Exchange, Waiting
from unisono.parameters.layout import Layout


class Keeper:
    """Exchanges a model's values with the other workers.

    The change that a model has made and that nobody was told of is always its values less `_base`, and what
    was changed unseen in memory that it has left: that memory less `_seen`.
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
        exact = getattr(parameters, "exact", parameters.in_place)
        self._rounds = not exact or set(layout.dtypes) != {layout.dtype.name}
        self._sizes = layout.sizes
        self._starts = [0, *accumulate(layout.sizes)][:-1]
        self._forget_rounding()
        self._swap: Swapping | None = None
        self._left: set[int] = set()
        self._looked_up_to = 0
        self._unseen: list[tuple[slice, Values]] = []

    def swap(self) -> None:
        """Lets the model take what an exchange has brought before its next step, without a copy."""
        if self._exchange.relative and not self._rounds:
            self._swap = getattr(self._parameters, "swap", None)
        if self._swap is not None:
            self._swap.watch(self._before_step)

    def _before_step(self, places: list[int]) -> None:
        """Gives parameters that are unchanged what the exchange has brought, if it has ended."""
        if self._swap is not None and self._waiting is not None and self._waiting.ended:
            self._left.update(self._swap.take(place for place in places if place not in self._left))

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
        left = self._memory_left()

        def fill(begin: int, end: int) -> None:
            self._look(left, begin, end)
            for value, place in self._overlaps(flat, begin, end):
                if self._exchange.relative:
                    difference(value, base[place], passing[place])
                else:
                    np.copyto(passing[place], value)

        try:
            self._exchange.run(passing, fill, lambda begin, end: None)
            write(self._parameters, self._layout.views(passing))
        except BaseException:
            for value, place in self._overlaps(flat, 0, self._exchange.told):
                base[place] = value
            raise
        self._passing, self._base = base, passing
        self._forget_left()
        self._forget_rounding()

    def begin(self, values: list[Values]) -> None:
        """Begins an exchange beside the program, which may change the values at once.

        A value counts as it is when it is read, once: before or after a change of the program.

        Args:
            values: The model's values.
        """
        seen = self._seen = self._buffer() if self._seen is None else self._seen
        base, passing, flat = self._base, self._passing, [value.reshape(-1) for value in values]
        left, spare = self._memory_left(), self._swap.spare() if self._swap is not None else []

        def fill(begin: int, end: int) -> None:
            self._look(left, begin, end)
            for value, place in self._overlaps(flat, begin, end):
                np.copyto(seen[place], value)
                if self._exchange.relative:
                    difference(seen[place], base[place], passing[place])
                else:
                    np.copyto(passing[place], seen[place])

        def settle(begin: int, end: int) -> None:
            # What brings the model from what it was to what the exchange has brought.
            part = slice(begin, end)
            difference(passing[part], seen[part], base[part])
            self._put_beside(spare, passing, begin, end)
            if end == passing.size:
                self._forget_left()

        if self._swap is not None:
            self._swap.mark()
        self._waiting = self._exchange.begin(passing, fill, settle)

    def take(self, values: list[Values]) -> None:
        """Waits for the exchange under way, and gives the model what it has brought; its own changes stay.

        Args:
            values: The model's values.
        """
        assert self._waiting is not None and self._seen is not None
        if self._parameters.in_place:
            refuse_read_only(self._layout.names, values)  # before anything is taken
        waiting, self._waiting = self._waiting, None
        try:
            waiting.wait()
        except BaseException:
            told = self._exchange.told
            self._base[:told] = self._seen[:told]
            raise
        self._passing, self._base = self._base, self._passing
        corrections = self._layout.views(self._passing)
        if not self._rounds:
            self._add(values, [None if place in self._left else one for place, one in enumerate(corrections)])
            return
        exact = [value + correction for value, correction in zip(values, corrections, strict=True)]
        write(self._parameters, exact)
        for wanted, value, base in zip(
            exact, self._parameters.read(), self._layout.views(self._base), strict=True
        ):
            base += difference(value, wanted, np.empty_like(base))

    def close(self) -> None:
        """Lets go of the model, which gets what was changed unseen in memory that it has left."""
        if self._swap is not None:
            self._swap.close()
        if self._left and not self.busy:
            self._look(self._memory_left(), 0, self._base.size)
            if self._unseen:
                kept = self._buffer()
                for place, change in self._unseen:
                    kept[place] = change
                self._add(self._parameters.read(), [*self._layout.views(kept)])

    def _add(self, values: list[Values], corrections: list[Values | None]) -> None:
        # A framework may do it on several threads; this is the one pass that the program waits for.
        add = getattr(self._parameters, "add", None)
        if add is not None:
            add(corrections)
            return
        for value, correction in zip(values, corrections, strict=True):
            if correction is not None:
                np.add(value, correction, out=value)

    def _memory_left(self) -> list[Values | None]:
        """The memory of each parameter that has left it since the last exchange was begun."""
        spare = self._swap.spare() if self._swap is not None and self._left else []
        flat = (None if one is None else one.reshape(-1) for one in spare)
        return [one if place in self._left else None for place, one in enumerate(flat)]

    def _look(self, left: list[Values | None], begin: int, end: int) -> None:
        """Looks once whether memory that the model has left was changed unseen: then nobody knows of it."""
        begin = max(begin, self._looked_up_to)
        if begin < end and left:
            assert self._seen is not None
            for value, place in self._overlaps(left, begin, end):
                # Bits are compared faster than numbers are subtracted, and what is no number equals itself.
                bits = f"i{value.itemsize}"
                if (value.view(bits) != self._seen[place].view(bits)).any():
                    change = difference(value, self._seen[place], np.empty_like(self._seen[place]))
                    self._base[place] -= change
                    self._unseen.append((place, change))
            self._looked_up_to = end

    def _put_beside(self, spare: list[Values | None], brought: Values, begin: int, end: int) -> None:
        """Puts where the model can take it over what has come of the parameters that end in a part."""
        for memory, start, size in zip(spare, self._starts, self._sizes, strict=False):
            stop = start + size
            if memory is not None and begin < stop <= end:
                np.copyto(memory, brought[start:stop].reshape(memory.shape))

    def _forget_left(self) -> None:
        self._left.clear()
        self._unseen.clear()
        self._looked_up_to = 0

    def _forget_rounding(self) -> None:
        """A model that rounds what it is given has changed nothing by that."""
        if self._rounds:
            for value, base in self._parts(self._parameters.read(), self._base):
                base[...] = value

    def _overlaps(
        self, flat: Sequence[Values | None], begin: int, end: int
    ) -> Iterator[tuple[Values, slice]]:
        """The parts of parameters that lie between two elements, and their places."""
        first = bisect_right(self._starts, begin) - 1
        places = zip(flat[first:], self._starts[first:], self._sizes[first:], strict=True)
        for value, start, size in places:
            low, high = max(begin, start), min(end, start + size)
            if start >= end:
                return
            if low < high and value is not None:
                yield value[low - start : high - start], slice(low, high)

    def _parts(self, values: list[Values], *flat: Values) -> Iterator[tuple[Values, ...]]:
        """Each parameter with its part of each flat array."""
        return zip(values, *(self._layout.views(one) for one in flat), strict=True)


def difference(now: Values, before: Values, out: Values) -> Values:
    """What has changed: nothing where a value is the same, also where that is infinite or no number.

    Args:
        now: The values.
        before: What they were.
        out: Where to put the difference.

    Returns:
        `out`.

    Example:
        >>> mask = np.array([0.0, -np.inf])
        >>> difference(mask, mask, np.empty(2)).tolist()
        [0.0, 0.0]
    """
    with np.errstate(invalid="ignore", over="ignore"):
        np.subtract(now, before, out=out, casting="same_kind")
        if not np.isfinite(out.sum()):
            out[(now == before) | (np.isnan(now) & np.isnan(before))] = 0
    return out


def write(parameters: Parameters, values: list[Values]) -> None:
    """Gives a model new values: all of them, or none and an error.

    Args:
        parameters: The model's parameters.
        values: Arrays of their shapes.

    Raises:
        UsageError: A parameter cannot be written.
    """
    if parameters.in_place:
        targets = parameters.read()
        refuse_read_only(parameters.names(), targets)
        for target, value in zip(targets, values, strict=True):
            np.copyto(target, value, casting="same_kind")
        written = getattr(parameters, "written", None)
        if written is not None:
            written()
    else:
        parameters.write(values)


def refuse_read_only(names: Sequence[str], arrays: Sequence[Values]) -> None:
    """Refuses parameters that can no longer be written.

    Args:
        names: Their names.
        arrays: What is to be written in place.

    Raises:
        UsageError: One of them is read-only.
    """
    for name, array in zip(names, arrays, strict=True):
        if not array.flags.writeable:
            raise UsageError(
                f"parameters: expected arrays that can be written, received {name!r}, which is now "
                "read-only; set flags.writeable, or make a new manager without it"
            )
