"""Maps a function over items on all workers, and shows the progress."""

from __future__ import annotations

import functools
import importlib
import io
import pickle
import sys
import time
from collections.abc import Callable, Iterable
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any

from unisono.functions.callables import Callable as Body
from unisono.functions.evaluator import Definition, Evaluator
from unisono.functions.member import Member
from unisono.functions.user_code import cloudpickle_module, is_user_module, sent_by_value

if TYPE_CHECKING:
    from typing_extensions import Self

    from unisono.functions.pool import Pool

_ROUND_SECONDS = 0.2
"""How long the workers compute between two looks at the progress."""

_SHOWN_AFTER = 0.5
"""Seconds before the progress is first shown."""

_LONGEST_ITEM = 100
"""Characters of an item that an error shows."""


class Map:
    """One rank's part of a round: it calls the function with each of its items."""

    leaves_on_interrupt = True

    def __init__(self, member: Member, number: int, bounds: list[int], parts: list[bytes]) -> None:
        definition: Definition = member.functions[number].definition
        self.operation = f"map of {definition.name!r}"
        self._call = definition.body.callable
        self._first, self._items = bounds[member.rank], parts[member.rank]
        self._is_master = member.is_master
        self._own: list[Any] = []

    def prepare(self) -> bytes | None:
        """Computes the results; a worker returns them pickled, the master keeps its own."""
        for index, item in enumerate(pickle.loads(self._items), self._first):
            try:
                self._own.append(self._call(item))
            except Exception as error:
                _add_note(error, f"map computed item {index}: {_shortened(item)}")
                raise
        return None if self._is_master else _pickled(self._own, _ByName)

    def problem(self, published: list[Any]) -> Exception | None:
        """Results may be of any type."""
        return None

    def finish(self, published: list[bytes | None]) -> list[Any] | None:
        """The results of all ranks, at the master."""
        if not self._is_master:
            return None
        parts = [self._own if part is None else pickle.loads(part) for part in published]
        return [result for part in parts for result in part]


def map_items(
    pool: Pool, function: Callable[[Any], Any], items: Iterable[Any], progress: bool | None
) -> list[Any]:
    """Calls a function with every item, on all workers; see `Workers.map`.

    Args:
        pool: The workers.
        function: The function.
        items: The items.
        progress: Whether to show the progress; None if somebody may be watching.

    Returns:
        The results, in the order of the items.
    """
    waiting, results = list(items), list[Any]()
    with pool.lock, _Progress(len(waiting), progress) as shown:
        pool.check_usable()
        number = _number_of(pool, function)
        size, master, block = pool.member.size, pool.member.master, 1
        by_value = _by_value(cloudpickle_module())
        while len(results) < len(waiting):
            pool.replication.check(number)
            done, started = len(results), time.monotonic()
            count = min(block * size, len(waiting) - done)
            bounds = [done + count * rank // size for rank in range(size + 1)]
            parts = [
                _pickled(waiting[bounds[rank] : bounds[rank + 1]], _ByName if rank == master else by_value)
                for rank in range(size)
            ]
            details = (number, bounds, parts)
            results += pool.run(Map(pool.member, *details), ("map", *details))
            pool.replication.after_call(number)
            shown.update(len(results))
            took = time.monotonic() - started
            if took < _ROUND_SECONDS / 2:
                block *= 2
            elif took > 2 * _ROUND_SECONDS:
                block = max(block // 2, 1)
    return results


def _number_of(pool: Pool, function: Callable[[Any], Any]) -> int:
    """The number under which the workers have a function; each is sent once."""
    if not callable(function):
        raise TypeError(f"map: expected a function of one item, received {type(function).__name__}")
    known = pool.mapped.get(id(function))
    if known is not None:
        return known[1]
    title = getattr(function, "__name__", None) or type(function).__name__
    definition = Definition(title, Body(function, "numpy", [], 0, [], [], []), [], [], [], 0, False)
    number = pool.register(definition, Evaluator(definition), [])
    # Keeps the function alive, so that its id is not reused.
    pool.mapped[id(function)] = function, number
    return number


def _pickled(values: list[Any], pickler: Any) -> bytes:
    stream = io.BytesIO()
    pickler(stream, 5).dump(values)
    return stream.getvalue()


@functools.cache
def _by_value(cloudpickle: Any) -> Any:
    """A pickler that sends the user's classes to workers by value, as functions are sent."""

    class ByValue(cloudpickle.Pickler):  # type: ignore[misc]
        def reducer_override(self, thing: Any) -> Any:
            if isinstance(thing, type) and is_user_module(thing.__module__):
                with sent_by_value(thing.__module__):
                    return super().reducer_override(thing)
            return super().reducer_override(thing)

    return ByValue


class _ByName(pickle.Pickler):
    """A pickler for the master, which has the user's classes and functions."""

    def reducer_override(self, thing: Any) -> Any:
        named = isinstance(thing, (type, FunctionType)) and "<locals>" not in thing.__qualname__
        if named and is_user_module(thing.__module__):
            return _find, (thing.__module__, thing.__qualname__)
        return NotImplemented


def _find(module: str, path: str) -> Any:
    """The class or function with this name."""
    found: Any = sys.modules.get(module) or importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _add_note(error: Exception, note: str) -> None:
    # Python 3.10 has no notes.
    if hasattr(error, "add_note"):
        error.add_note(note)


def _shortened(item: object) -> str:
    text = repr(item)
    return text if len(text) <= _LONGEST_ITEM else f"{text[:_LONGEST_ITEM]}…"


class _Progress:
    """A line on standard error that is updated while it lasts."""

    def __init__(self, total: int, wanted: bool | None) -> None:
        if wanted is None:
            wanted = sys.stderr.isatty() or "ipykernel" in sys.modules
        self._total, self._wanted = total, wanted
        self._started, self._is_shown = time.monotonic(), False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            print(file=sys.stderr, flush=True)

    def update(self, done: int) -> None:
        """Shows how many items are done, and how long the others will take at the same speed."""
        took = time.monotonic() - self._started
        if not self._wanted or (took < _SHOWN_AFTER and not self._is_shown):
            return
        self._is_shown = True
        left = f"about {took / done * (self._total - done):.0f} s left" if done < self._total else "done"
        # The end of a longer line before it is overwritten.
        print(
            f"\r{done} of {self._total} items, {took:.0f} s, {left:<20}", end="", file=sys.stderr, flush=True
        )
