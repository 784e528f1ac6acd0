"""What a function uses besides its arguments: names of modules, variables around it, its helpers' too."""

from __future__ import annotations

import argparse
import builtins
import enum
import functools
import inspect
import sys
from collections.abc import Callable
from types import CellType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any, NamedTuple

from unisono.functions.spaces import Gone, is_own, is_own_space
from unisono.functions.words import read

_EQUAL = (bool, int, float, complex, str, bytes)
_PLAIN_OBJECTS = (argparse.Namespace, SimpleNamespace)
_MAKERS = ("__init__", "__post_init__", "__new__", "__setstate__")

_MANY = 1000
"""Longer lists are data: no function is looked for in them. No more attributes are watched."""


class Name(NamedTuple):
    """A name of a module that some code reads."""

    space: dict[str, Any]
    name: str

    def value(self) -> Any:
        """What it stands for."""
        return self.space.get(self.name, Gone)


class Cell(NamedTuple):
    """A variable of an enclosing function."""

    function: FunctionType
    at: int
    name: str

    def value(self) -> Any:
        """What it holds."""
        assert self.function.__closure__ is not None
        return content(self.function.__closure__[self.at])


class Part(NamedTuple):
    """A shared variable that lies in a class, or in the defaults of a function."""

    owner: Any
    name: str

    def value(self) -> Any:
        """What lies there."""
        return vars(self.owner).get(self.name, Gone) if isinstance(self.owner, type) else self._default()

    def _default(self) -> Any:
        return getattr(self.owner, self.name)


class Field(NamedTuple):
    """An attribute of an object or a class of the user's."""

    owner: Any
    name: str

    def value(self) -> Any:
        """What it is."""
        return vars(self.owner).get(self.name, Gone)


Place = Name | Cell | Part | Field


class Captures:
    """All places that a function reads."""

    def __init__(self, root: Any, is_shared: Callable[[Any], bool]) -> None:
        self._is_shared = is_shared
        self._seen: dict[int, Any] = {}
        self._names: dict[tuple[int, str], Name] = {}
        self._written: set[tuple[int, str]] = set()
        self._reached: set[tuple[int, tuple[str, ...]]] = set()
        self._other: list[Cell | Part] = []
        self._fields: list[Field] = []
        self._assigned: set[str] = set()
        self.modules: dict[str, ModuleType] = {}
        """The user's modules that code has by name: workers import them."""
        self._waiting: list[tuple[Any, bool]] = [(root, True)]
        while self._waiting:
            self._look_at(*self._waiting.pop())
        self.reaches_shared = any(is_shared(one) for one in self._seen.values())
        """Whether shared objects were met on the way."""
        # What a function assigns itself is each worker's own.
        names = [place for key, place in self._names.items() if key not in self._written]
        fields = [place for place in self._fields if place.name not in self._assigned]
        self.places: list[Place] = [*names, *self._other, *fields]
        self.values: list[Any] = [place.value() for place in self.places]
        """What was found there."""
        self._watched = [
            (place.space if isinstance(place, Name) else vars(place.owner), place.name, value)
            for place, value in zip(self.places, self.values, strict=True)
            if isinstance(place, (Name, Field))
        ]
        self._cells = [
            (place.function.__closure__[place.at], value)  # type: ignore[index]
            for place, value in zip(self.places, self.values, strict=True)
            if isinstance(place, Cell)
        ]

    def meets(self, kind: type) -> bool:
        """Whether code uses an object of this kind."""
        return any(isinstance(one, kind) for one in self._seen.values())

    def says(self, word: str) -> bool:
        """Whether code of the user has a word for this."""
        functions = [one for one in self._seen.values() if isinstance(one, FunctionType)]
        return any(word in read(one.__code__).attributes for one in functions if is_own(one.__module__))

    def is_stale(self) -> bool:
        """Whether a name or a variable stands for something else since; every call asks."""
        for space, name, value in self._watched:
            if space.get(name, Gone) is not value and not same(space.get(name, Gone), value):
                return True
        return any(not same(content(cell), value) for cell, value in self._cells)

    def _visit(self, thing: Any, watched: bool = True) -> None:
        """Goes on to something; without `watched` its attributes are taken as they are."""
        self._waiting.append((thing, watched))

    def _look_at(self, thing: Any, watched: bool) -> None:
        if id(thing) in self._seen or thing is None:
            return
        self._seen[id(thing)] = thing
        if isinstance(thing, FunctionType):
            self._function(thing)
        elif isinstance(thing, MethodType):
            self._each([thing.__func__, thing.__self__])
        elif isinstance(thing, functools.partial):
            self._each([thing.func, *thing.args, *thing.keywords.values()])
        elif isinstance(thing, (staticmethod, classmethod)):
            self._visit(thing.__func__)
        elif isinstance(thing, property):
            self._visit(thing.fget)
        elif isinstance(thing, (list, tuple)):
            self._each(thing if len(thing) <= _MANY else [], watched=False)
        elif isinstance(thing, dict):
            self._each(thing.values() if len(thing) <= _MANY else [], watched=False)
        elif isinstance(thing, type):
            self._class(thing)
        elif not isinstance(thing, ModuleType):
            self._instance(thing, watched)

    def _each(self, things: Any, watched: bool = True) -> None:
        for one in list(things):
            self._visit(one, watched)

    def _function(self, function: FunctionType) -> None:
        code, space = read(function.__code__), function.__globals__
        own = is_own_space(space)
        self._written.update((id(space), name) for name in code.writes)
        if function.__name__ not in _MAKERS:
            self._assigned.update(code.assigns)
        for name in code.reads:
            value = space.get(name, Gone)
            if value is Gone and hasattr(builtins, name):
                continue
            if own or self._is_shared(value):
                self._names[id(space), name] = Name(space, name)
            if own:
                self._reach(value, code.attributes)
        for module in code.imports:
            self._reach(sys.modules.get(module), code.attributes)
        is_sent = "<" in function.__qualname__ or is_own(function.__module__)
        for at, cell in enumerate(function.__closure__ or ()):
            name = function.__code__.co_freevars[at]
            if is_sent and name not in code.rebinds:
                self._other.append(Cell(function, at, name))
            self._reach(content(cell), code.attributes)
        for name in ("__defaults__", "__kwdefaults__"):
            defaults = getattr(function, name) or ()
            values = list(defaults.values()) if isinstance(defaults, dict) else list(defaults)
            if any(self._is_shared(one) for one in values):
                self._other.append(Part(function, name))
            self._each(values)

    def _reach(self, value: Any, attributes: tuple[str, ...]) -> None:
        """Goes on to what a name stands for; of a module the code can only use what it has words for."""
        if not isinstance(value, ModuleType):
            self._visit(value)
            return
        if not is_own(value.__name__):
            return
        self.modules[value.__name__] = value
        space = vars(value)
        if (id(space), attributes) in self._reached:
            return
        self._reached.add((id(space), attributes))
        for name in attributes:
            if name in space:
                self._names[id(space), name] = Name(space, name)
                self._reach(space[name], attributes)

    def _class(self, thing: type) -> None:
        if not is_own(thing.__module__):
            return
        for name, value in list(vars(thing).items()):
            if self._is_shared(value):
                self._other.append(Part(thing, name))
            elif not name.startswith("__") or callable(value):
                self._visit(value)
        self._fields += [Field(thing, name) for name in _data_of(thing)]
        self._each(thing.__bases__)

    def _instance(self, thing: Any, watched: bool) -> None:
        self._visit(type(thing))
        held = getattr(thing, "__dict__", None)
        held = held if isinstance(held, dict) else {}
        if is_own(type(thing).__module__) or isinstance(thing, _PLAIN_OBJECTS):
            if watched and len(self._fields) <= _MANY and _is_copied(thing):
                hidden = "_modules" in held
                names = [name for name in held if not (hidden and name[0] == "_")]
                # An object may get an attribute of its own where it has its class's.
                names += [
                    name for one in type(thing).__mro__ if is_own(one.__module__) for name in _data_of(one)
                ]
                self._fields += [Field(thing, name) for name in dict.fromkeys(names)]
            self._each(held.values(), watched)
        # PyTorch's own modules may hold modules of the user's classes.
        modules = held.get("_modules")
        self._each(modules.values() if isinstance(modules, dict) else [])
        # So say compiled functions of JAX, and caches of functools.
        self._visit(inspect.getattr_static(thing, "__wrapped__", None) and thing.__wrapped__)


def same(now: Any, then: Any) -> bool:
    """Whether a name stands for what it did: the same object, or an equal number or text."""
    return now is then or (type(now) is type(then) and isinstance(now, _EQUAL) and bool(now == then))


def _data_of(kind: type) -> list[str]:
    """The attributes of a class that are neither methods nor the machinery of classes."""
    if issubclass(kind, enum.Enum):
        return []
    return [
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and not hasattr(type(value), "__get__")
    ]


def _is_copied(thing: Any) -> bool:
    """Whether workers get all attributes of an object: its class does not say itself what is sent."""
    names = ("__reduce__", "__reduce_ex__", "__getstate__")
    own = any(getattr(type(thing), name, None) is not getattr(object, name, None) for name in names)
    return not own or isinstance(thing, _PLAIN_OBJECTS)


def content(cell: CellType) -> Any:
    """What a variable of an enclosing function holds."""
    try:
        return cell.cell_contents
    except ValueError:
        return Gone
