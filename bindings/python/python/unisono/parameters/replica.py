"""A worker's replica of the parameters, and which of its changes the other workers already have."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from unisono.errors import UsageError
from unisono.parameters.adapter import Parameters, Swapping, Values
from unisono.parameters.exchange import Exchange, Waiting
from unisono.parameters.layout import ParameterLayout


class Replica:
    """Exchanges a model's values with the other workers.

    The change that has not been sent is always the model's values minus `_base`, plus the untracked writes to
    memory that was swapped out of the model: that memory minus `_snapshot`.
    """

    def __init__(
        self,
        parameters: Parameters,
        layout: ParameterLayout,
        exchange: Exchange,
        buffer: Callable[[], Values],
        base: Values,
    ) -> None:
        self._parameters = parameters
        self._layout = layout
        self._exchange = exchange
        self._buffer = buffer
        self._base = base
        self._staging = buffer()
        self._snapshot: Values | None = None
        self._waiting: Waiting | None = None
        exact = getattr(parameters, "exact", parameters.in_place)
        self._rounds = not exact or set(layout.dtypes) != {layout.dtype.name}
        self._sizes = layout.sizes
        self._starts = [0, *accumulate(layout.sizes)][:-1]
        self._forget_rounding()
        self._swap: Swapping | None = None
        self._swapped: set[int] = set()
        self._checked_up_to = 0
        self._untracked: list[tuple[slice, Values]] = []

    def swap(self) -> None:
        """Lets the model take the result of an exchange before its next step, without a copy."""
        if self._exchange.relative and not self._rounds:
            self._swap = getattr(self._parameters, "swap", None)
        if self._swap is not None:
            self._swap.watch(self._before_step)

    def _before_step(self, places: list[int]) -> None:
        """Swaps in the result of the exchange for unchanged parameters, if it has ended."""
        if self._swap is not None and self._waiting is not None and self._waiting.ended:
            self._swapped.update(self._swap.take(place for place in places if place not in self._swapped))

    @property
    def busy(self) -> bool:
        """Whether an exchange is in progress."""
        return self._waiting is not None

    def exchange(self, values: list[Values]) -> None:
        """Makes one exchange and waits for it; after an error, the model is unchanged.

        Args:
            values: The model's values.
        """
        base, staging, flat = self._base, self._staging, [value.reshape(-1) for value in values]
        swapped = self._swapped_out()

        def fill(begin: int, end: int) -> None:
            self._detect_writes(swapped, begin, end)
            for value, place in self._overlaps(flat, begin, end):
                if self._exchange.relative:
                    difference(value, base[place], staging[place])
                else:
                    np.copyto(staging[place], value)

        try:
            self._exchange.run(staging, fill, lambda begin, end: None)
            write(self._parameters, self._layout.views(staging))
        except BaseException:
            for value, place in self._overlaps(flat, 0, self._exchange.delivered):
                base[place] = value
            raise
        self._staging, self._base = base, staging
        self._reset_swapped()
        self._forget_rounding()

    def begin(self, values: list[Values]) -> None:
        """Starts an exchange in the background; the program may change the values at once.

        Each value is read exactly once: either before or after a concurrent change by the program.

        Args:
            values: The model's values.
        """
        snapshot = self._snapshot = self._buffer() if self._snapshot is None else self._snapshot
        base, staging, flat = self._base, self._staging, [value.reshape(-1) for value in values]
        swapped, spare = self._swapped_out(), self._swap.spare() if self._swap is not None else []

        def fill(begin: int, end: int) -> None:
            self._detect_writes(swapped, begin, end)
            for value, place in self._overlaps(flat, begin, end):
                np.copyto(snapshot[place], value)
                if self._exchange.relative:
                    difference(snapshot[place], base[place], staging[place])
                else:
                    np.copyto(staging[place], snapshot[place])

        def settle(begin: int, end: int) -> None:
            # The correction from the values that were sent to the result of the exchange.
            part = slice(begin, end)
            difference(staging[part], snapshot[part], base[part])
            self._fill_spare(spare, staging, begin, end)
            if end == staging.size:
                self._reset_swapped()

        if self._swap is not None:
            self._swap.mark()
        self._waiting = self._exchange.begin(staging, fill, settle)

    def take(self, values: list[Values]) -> None:
        """Waits for the exchange in progress and adds its result to the model, keeping local changes.

        Args:
            values: The model's values.
        """
        assert self._waiting is not None and self._snapshot is not None
        if self._parameters.in_place:
            reject_read_only(self._layout.names, values)  # before anything is changed
        waiting, self._waiting = self._waiting, None
        try:
            waiting.wait()
        except BaseException:
            delivered = self._exchange.delivered
            self._base[:delivered] = self._snapshot[:delivered]
            raise
        self._staging, self._base = self._base, self._staging
        corrections = self._layout.views(self._staging)
        if not self._rounds:
            self._add(
                values, [None if place in self._swapped else one for place, one in enumerate(corrections)]
            )
            return
        exact = [value + correction for value, correction in zip(values, corrections, strict=True)]
        write(self._parameters, exact)
        for wanted, value, base in zip(
            exact, self._parameters.read(), self._layout.views(self._base), strict=True
        ):
            base += difference(value, wanted, np.empty_like(base))

    def close(self) -> None:
        """Releases the model, after applying untracked writes to memory that was swapped out of it."""
        if self._swap is not None:
            self._swap.close()
        if self._swapped and not self.busy:
            self._detect_writes(self._swapped_out(), 0, self._base.size)
            if self._untracked:
                kept = self._buffer()
                for place, change in self._untracked:
                    kept[place] = change
                self._add(self._parameters.read(), [*self._layout.views(kept)])

    def _add(self, values: list[Values], corrections: list[Values | None]) -> None:
        # A framework may use several threads; this is the only pass for which the program waits.
        add = getattr(self._parameters, "add", None)
        if add is not None:
            add(corrections)
            return
        for value, correction in zip(values, corrections, strict=True):
            if correction is not None:
                np.add(value, correction, out=value)

    def _swapped_out(self) -> list[Values | None]:
        """The former memory of each parameter that was swapped since the last exchange began."""
        spare = self._swap.spare() if self._swap is not None and self._swapped else []
        flat = (None if one is None else one.reshape(-1) for one in spare)
        return [one if place in self._swapped else None for place, one in enumerate(flat)]

    def _detect_writes(self, swapped: list[Values | None], begin: int, end: int) -> None:
        """Checks each range once for untracked writes to swapped-out memory, which still have to be sent."""
        begin = max(begin, self._checked_up_to)
        if begin < end and swapped:
            assert self._snapshot is not None
            for value, place in self._overlaps(swapped, begin, end):
                # Comparing bits is faster than subtracting numbers, and NaN then equals itself.
                bits = f"i{value.itemsize}"
                if (value.view(bits) != self._snapshot[place].view(bits)).any():
                    change = difference(value, self._snapshot[place], np.empty_like(self._snapshot[place]))
                    self._base[place] -= change
                    self._untracked.append((place, change))
            self._checked_up_to = end

    def _fill_spare(self, spare: list[Values | None], result: Values, begin: int, end: int) -> None:
        """Copies the result for parameters that end in this range to their spare memory."""
        for memory, start, size in zip(spare, self._starts, self._sizes, strict=False):
            stop = start + size
            if memory is not None and begin < stop <= end:
                np.copyto(memory, result[start:stop].reshape(memory.shape))

    def _reset_swapped(self) -> None:
        self._swapped.clear()
        self._untracked.clear()
        self._checked_up_to = 0

    def _forget_rounding(self) -> None:
        """Does not count the model's rounding of the values that it was given as a change."""
        if self._rounds:
            for value, base in self._parts(self._parameters.read(), self._base):
                base[...] = value

    def _overlaps(
        self, flat: Sequence[Values | None], begin: int, end: int
    ) -> Iterator[tuple[Values, slice]]:
        """The slices of parameters that lie between two elements, and their positions."""
        first = bisect_right(self._starts, begin) - 1
        places = zip(flat[first:], self._starts[first:], self._sizes[first:], strict=True)
        for value, start, size in places:
            low, high = max(begin, start), min(end, start + size)
            if start >= end:
                return
            if low < high and value is not None:
                yield value[low - start : high - start], slice(low, high)

    def _parts(self, values: list[Values], *flat: Values) -> Iterator[tuple[Values, ...]]:
        """Each parameter with its slice of each flat array."""
        return zip(values, *(self._layout.views(one) for one in flat), strict=True)


def difference(now: Values, before: Values, out: Values) -> Values:
    """The change of values: zero where a value is unchanged, even if it is infinite or NaN.

    Args:
        now: The values.
        before: The former values.
        out: The output array.

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
    """Writes new values to a model: either all of them, or none with an error.

    Args:
        parameters: The model's parameters.
        values: Arrays of their shapes.

    Raises:
        UsageError: A parameter cannot be written.
    """
    if parameters.in_place:
        targets = parameters.read()
        reject_read_only(parameters.names(), targets)
        for target, value in zip(targets, values, strict=True):
            np.copyto(target, value, casting="same_kind")
        written = getattr(parameters, "written", None)
        if written is not None:
            written()
    else:
        parameters.write(values)


def reject_read_only(names: Sequence[str], arrays: Sequence[Values]) -> None:
    """Rejects parameters that can no longer be written.

    Args:
        names: Their names.
        arrays: The arrays to be written in place.

    Raises:
        UsageError: One of them is read-only.
    """
    for name, array in zip(names, arrays, strict=True):
        if not array.flags.writeable:
            raise UsageError(
                f"parameters: expected arrays that can be written, received {name!r}, which is now "
                "read-only; set flags.writeable, or make a new manager without it"
            )
