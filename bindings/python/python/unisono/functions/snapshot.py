"""Detects changes since a point in time; runs before every call, so it compares by identity in C."""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter, is_
from types import CellType, FunctionType
from typing import Any

from unisono.functions.spaces import Missing

_ATOMS = {bool, int, float, complex, str, bytes, type(None)}
_EQUAL = (bool, int, float, complex, str, bytes)
_bases = attrgetter("__bases__")
_END = (object(),)
"""Sentinel after the values of each source: their number must not change."""


class Sources:
    """The locations of the values to compare."""

    def __init__(self) -> None:
        self.names: list[tuple[dict[str, Any], str]] = []
        self.cells: list[CellType] = []
        self.slots: list[tuple[Any, str]] = []
        self.functions: list[FunctionType] = []
        self.classes: list[type] = []
        self.objects: list[Any] = []
        self.with_dict: list[Any] = []
        self.sequences: list[Iterable[Any]] = []
        self.sets: list[set[Any]] = []
        self.empty: list[Any] = []

    def add(self, mapping: Any) -> None:
        """Adds a dictionary or the attributes of a class; views of them always show the current contents."""
        kind = next(
            (one for one in (collections.OrderedDict, dict) if isinstance(mapping, one)), type(mapping)
        )
        if len(mapping):
            self.sequences += [kind.values(mapping), mapping]
        else:
            self.empty.append(mapping)


class Snapshot:
    """The contents of all sources when it was taken. It may report a change if values are merely equal."""

    def __init__(self, sources: Sources) -> None:
        self._names = [(space, name, space.get(name, Missing)) for space, name in sources.names]
        self._cells = [(cell, content(cell)) for cell in sources.cells]
        self._slots = [(owner, name, slot(owner, name)) for owner, name in sources.slots]
        self._functions = [
            (one, one.__code__, one.__defaults__, one.__kwdefaults__) for one in sources.functions
        ]
        self._live = list(chain.from_iterable((one, _END) for one in sources.sequences))
        self._held = list(chain.from_iterable(self._live))
        attributes: list[tuple[Callable[[Any], Any], list[Any]]] = [
            (type, sources.objects),
            (vars, sources.with_dict),
            (_bases, sources.classes),
        ]
        self._attributes = [(read, owners, list(map(read, owners))) for read, owners in attributes if owners]
        self._empty = sources.empty
        self._sets = [(one, set(one)) for one in sources.sets]

    def differs(self) -> bool:
        """Whether a source now holds another object."""
        for space, name, value in self._names:
            if space.get(name, Missing) is not value:
                return True
        for cell, value in self._cells:
            if content(cell) is not value:
                return True
        for function, code, defaults, named in self._functions:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not named
            ):
                return True
        try:
            if not all(map(is_, chain.from_iterable(self._live), self._held)):
                return True
        except RuntimeError:
            # Another thread changed a dictionary during the comparison.
            return True
        for read, owners, values in self._attributes:
            if not all(map(is_, map(read, owners), values)):
                return True
        for owner, name, value in self._slots:
            if slot(owner, name) is not value:
                return True
        if any(self._empty):
            return True
        return bool(self._sets) and any(now != then for now, then in self._sets)


def content(cell: CellType) -> Any:
    """The contents of a closure variable."""
    try:
        return cell.cell_contents
    except ValueError:
        return Missing


def slot(owner: Any, name: str) -> Any:
    """The contents of an object's slot."""
    try:
        return object.__getattribute__(owner, name)
    except AttributeError:
        return Missing


def items_of(mapping: Any) -> Any:
    """A dictionary's keys and values in order, whatever methods its class defines."""
    ordered = collections.OrderedDict
    return ordered.items(mapping) if isinstance(mapping, ordered) else dict.items(mapping)


def is_atom(value: Any) -> bool:
    """Whether a value needs no traversal: a number, a string, or an array, which is not inspected."""
    kind = type(value)
    return kind in _ATOMS or kind.__module__ == "numpy"


def same(now: Any, then: Any) -> bool:
    """Whether two values are interchangeable: the same object, or equal numbers or strings."""
    if now is then:
        return True
    if type(now) is not type(then):
        return False
    if isinstance(now, tuple):
        return len(now) == len(then) and all(map(same, now, then))
    return isinstance(now, _EQUAL) and bool(now == then) and _signs(now) == _signs(then)


def _signs(value: Any) -> list[float]:
    """The signs of a number: 0.0 and -0.0 are equal, but differ in sign."""
    if isinstance(value, complex):
        return [math.copysign(1.0, value.real), math.copysign(1.0, value.imag)]
    return [math.copysign(1.0, value)] if isinstance(value, float) else []
