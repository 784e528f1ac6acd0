"""Detects changes to captured values since they were sent; runs before every call.

Values are compared by identity, in C, which costs tens of nanoseconds each; arrays and objects of libraries,
whose contents can change while their identity does not, are compared by a digest.
"""

from __future__ import annotations

import collections
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain, repeat
from operator import is_
from types import CellType, FunctionType
from typing import Any

import numpy as np

from unisono.functions.user_code import Undefined

_ATOMS = {bool, int, float, complex, str, bytes, type(None)}
_SMALL_BYTES = 4096
"""Arrays up to this size are compared in full."""
_END = (object(),)
"""Sentinel after the values of each source: their number must not change."""


class _Reads:
    """The current results of a function over several owners; every iteration reads them again."""

    def __init__(self, read: Callable[..., Any], *arguments: Iterable[Any]) -> None:
        self._read, self._arguments = read, arguments

    def __iter__(self) -> Iterator[Any]:
        return map(self._read, *self._arguments)


class _Attributes:
    """The names and values of a class's attributes, except for one that pickle uses as a cache."""

    def __init__(self, kind: type) -> None:
        self._items = vars(kind).items()

    def __iter__(self) -> Iterator[Any]:
        return chain.from_iterable(item for item in self._items if item[0] != "__slotnames__")


class Sources:
    """Where captured values are stored, and what errors call them."""

    def __init__(self) -> None:
        self.live: list[tuple[Callable[[int], str], Iterable[Any]]] = []
        self.digested: list[tuple[str, Any, Callable[[Any], Any]]] = []
        self._read: dict[Any, tuple[list[list[Any]], list[str]]] = {}

    def mapping(self, owner: str, values: Any) -> None:
        """A dictionary, or the attributes of an object."""
        if not values:
            self.read(len, values, owner)
            return
        base = collections.OrderedDict if isinstance(values, collections.OrderedDict) else dict
        items = values.values() if not isinstance(values, dict) else base.values(values)
        self.live.append((lambda at: f"{owner}.{[*values][at]}" if at < len(values) else owner, items))
        # Keys may be reordered, or renamed, while the values stay.
        self.live.append((lambda at: owner, values))

    def attributes(self, kind: type) -> None:
        """The attributes of a class."""
        self.live.append((lambda at: f"{kind.__name__}.{[*_Attributes(kind)][at & ~1]}", _Attributes(kind)))

    def sequence(self, owner: str, values: Collection[Any]) -> None:
        """A list, a deque or a set."""
        if not values:
            self.read(len, values, owner)
            return
        self.live.append((lambda at: f"{owner}[{at}]", values))

    def names(self, namespace: dict[str, Any], names: Sequence[str]) -> None:
        """Global variables."""
        if names:
            reads = _Reads(namespace.get, names, repeat(Undefined))
            self.live.append((lambda at: names[at] if at < len(names) else "a global", reads))

    def slots(self, owner: Any, names: Sequence[str]) -> None:
        """Attributes that are not in a dictionary."""
        for name in names:
            self.read(slot, owner, f"{type(owner).__name__}.{name}", name)

    def read(self, reader: Callable[..., Any], owner: Any, title: str, *arguments: Any) -> None:
        """What a function returns for an owner and other arguments; all owners are read in one loop."""
        if reader not in self._read:
            columns: list[list[Any]] = [[] for _ in (owner, *arguments)]
            titles: list[str] = []
            self._read[reader] = columns, titles
            self.live.append(
                (lambda at: titles[at] if at < len(titles) else "an object", _Reads(reader, *columns))
            )
        columns, titles = self._read[reader]
        for column, argument in zip(columns, (owner, *arguments), strict=True):
            column.append(argument)
        titles.append(title)

    def function(self, function: FunctionType) -> None:
        """The parts of a function that can be assigned."""
        for part in ("__code__", "__defaults__", "__kwdefaults__"):
            self.read(getattr, function, function.__name__, part)


class Snapshot:
    """The values of all sources at one time."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources.live
        self._live = list(chain.from_iterable((one, _END) for _, one in sources.live))
        self._held = list(chain.from_iterable(self._live))
        self._digests = [(title, one, digest, digest(one)) for title, one, digest in sources.digested]

    def change(self) -> str | None:
        """The name of a value that has changed, or None."""
        try:
            if not all(map(is_, chain.from_iterable(self._live), self._held)):
                found = self._compare()
                if found is not None:
                    return found
        except RuntimeError:
            # Another thread changed the size of a dictionary during the comparison.
            return "a dictionary"
        for title, one, digest, value in self._digests:
            if digest(one) != value:
                return title
        return None

    def _compare(self) -> str | None:
        """Compares by value, and records equal numbers and strings, so that the next comparison is fast."""
        position, now = 0, list(chain.from_iterable(self._live))
        for title, values in self._sources:
            for at, value in enumerate(values):
                if position >= len(self._held) or not same(value, self._held[position]):
                    return title(at)
                position += 1
            if position >= len(self._held) or self._held[position] is not _END[0]:
                return title(0)
            position += 1
        self._held = now
        return None


def content(cell: CellType) -> Any:
    """The contents of a closure variable."""
    try:
        return cell.cell_contents
    except ValueError:
        return Undefined


def slot(owner: Any, name: str) -> Any:
    """The contents of an object's slot."""
    try:
        return object.__getattribute__(owner, name)
    except AttributeError:
        return Undefined


def is_atom(value: Any) -> bool:
    """Whether a value is a number or a string, which cannot change."""
    return type(value) in _ATOMS


def same(now: Any, then: Any) -> bool:
    """Whether two values are interchangeable: the same object, or equal numbers or strings."""
    if now is then:
        return True
    if type(now) is not type(then):
        return False
    if isinstance(now, tuple):
        return len(now) == len(then) and all(map(same, now, then))
    # The representation of a number includes the sign of a zero.
    return type(now) in _ATOMS and (
        repr(now) == repr(then) if isinstance(now, (float, complex)) else now == then
    )


def is_read_only(array: Any) -> bool:
    """Whether an array is read-only and owns its memory; views made while it was writable can still write."""
    return not array.flags.writeable and (array.base is None or isinstance(array.base, bytes))


def array_digest(array: Any) -> tuple[Any, ...]:
    """Identifies the contents of an array."""
    kind = array.shape, array.dtype.str
    if array.nbytes <= _SMALL_BYTES:
        return *kind, array.tobytes()
    # A checksum, at 2 GB/s: it misses one in 2**32 changes, and none within 32 consecutive bits.
    flat: Any = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return *kind, zlib.crc32(flat)
