"""What a function uses besides its arguments: names of modules, variables around it, its helpers' too."""

from __future__ import annotations

import builtins
import functools
import inspect
import math
import sys
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

from unisono.functions.attributes import PLAIN_OBJECTS, data_of, definer, is_copied, slots_of
from unisono.functions.places import Cell, Field, Name, Part, Place, content
from unisono.functions.spaces import Gone, is_own, is_own_space
from unisono.functions.words import read
from unisono.functions.wrappers import contents_of

_EQUAL = (bool, int, float, complex, str, bytes)
_MAKERS = ("__init__", "__post_init__", "__new__", "__setstate__")

_MANY = 1000
"""Longer lists are data: no function is looked for in them. No more attributes are watched."""

_FEW = 32
"""In longer lists and dictionaries the attributes of objects are taken as they are."""


class _Step(NamedTuple):
    """Something to look at."""

    thing: Any
    is_watched: bool = True
    """Whether attributes that are assigned later are wanted."""
    kind: type | None = None
    """The class whose method it is."""


class _Method(NamedTuple):
    """Something in a class that runs when code has a word for it."""

    kind: type
    name: str
    function: Any
    words: set[str]


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
        self._assigned: dict[str, set[type | None]] = {}
        self._read: set[str] = set()
        self._set: set[str] = set()
        self._methods: list[_Method] = []
        self._is_called = True
        self.modules: dict[str, ModuleType] = {}
        """The user's modules that code has by name: workers import them."""
        self._waiting, self._contents = [_Step(root)], list[_Step]()
        while self._waiting or self._wake():
            self._look_at(*self._waiting.pop())
        self.reaches_shared = any(is_shared(one) for one in self._seen.values())
        """Whether shared objects were met on the way."""
        # What a function assigns itself is each worker's own.
        names = [place for key, place in self._names.items() if key not in self._written]
        fields = [place for place in self._fields if not self._is_assigned(place)]
        self.places: list[Place] = [*names, *self._other, *fields]
        self.values: list[Any] = [place.value() for place in self.places]
        """What was found there."""
        self._watched = [
            (place.space if isinstance(place, Name) else vars(place.owner), place.name, value)
            for place, value in zip(self.places, self.values, strict=True)
            if isinstance(place, Name) or (isinstance(place, Field) and not place.is_slot)
        ]
        self._slots = [
            (place, value)
            for place, value in zip(self.places, self.values, strict=True)
            if isinstance(place, Field) and place.is_slot
        ]
        self._cells = [
            (place.function.__closure__[place.at], value)  # type: ignore[index]
            for place, value in zip(self.places, self.values, strict=True)
            if isinstance(place, Cell)
        ]
        self._defaults = [
            (place, value)
            for place, value in zip(self.places, self.values, strict=True)
            if isinstance(place, Part) and isinstance(place.owner, FunctionType)
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
        if any(not same(place.value(), value) for place, value in self._slots):
            return True
        if any(place.value() is not value for place, value in self._defaults):
            return True
        return any(not same(content(cell), value) for cell, value in self._cells)

    def _wake(self) -> bool:
        """Goes on to methods that code has words for, then to what lists hold, at last to all methods.

        Methods that nobody calls are sent as well. But they assign nothing.
        """
        woken = [one for one in self._methods if _runs(one)] if self._is_called else self._methods
        if not woken and self._contents:
            self._waiting, self._contents = self._contents, []
        elif not woken:
            woken, self._is_called = self._methods, False
        numbers = {id(one) for one in woken}
        self._methods = [one for one in self._methods if id(one) not in numbers]
        self._waiting += [_Step(one.function, True, one.kind) for one in woken]
        return bool(self._waiting)

    def _visit(self, thing: Any, watched: bool = True, kind: type | None = None) -> None:
        """Goes on to something; without `watched` its attributes are taken as they are."""
        self._waiting.append(_Step(thing, watched, kind))

    def _look_at(self, thing: Any, watched: bool, kind: type | None) -> None:
        if id(thing) in self._seen or thing is None:
            return
        self._seen[id(thing)] = thing
        wrapped = contents_of(thing)
        if wrapped is not None:
            for one in wrapped:
                self._visit(one, kind=kind)
        elif isinstance(thing, FunctionType):
            self._function(thing, kind)
        elif isinstance(thing, MethodType):
            self._visit(thing.__func__, kind=definer(thing))
            self._visit(thing.__self__)
        elif isinstance(thing, functools.partial):
            self._each([thing.func, *thing.args, *thing.keywords.values()])
        elif isinstance(thing, (staticmethod, classmethod)):
            self._visit(thing.__func__, kind=kind if isinstance(thing, classmethod) else None)
        elif isinstance(thing, property):
            self._visit(thing.fget)
        elif isinstance(thing, (list, tuple, dict)):
            self._container(thing, watched)
        elif isinstance(thing, type):
            self._class(thing)
        elif not isinstance(thing, ModuleType):
            self._instance(thing, watched)

    def _each(self, things: Any, watched: bool = True) -> None:
        for one in list(things):
            self._visit(one, watched)

    def _container(self, thing: Any, watched: bool) -> None:
        contents = list(thing.values() if isinstance(thing, dict) else thing)
        if len(contents) <= _MANY:
            self._contents += [_Step(one, watched and len(contents) <= _FEW) for one in contents]
        if is_own(type(thing).__module__):
            self._instance(thing, watched)

    def _function(self, function: FunctionType, kind: type | None) -> None:
        code, space = read(function.__code__), function.__globals__
        own = is_own_space(space)
        self._written.update((id(space), name) for name in code.writes)
        if self._is_called and function.__name__ not in _MAKERS:
            self._read.update(code.attributes)
            self._set |= code.assigns | code.keeps
            for owner, assigned in ((None, code.assigns), (kind, code.keeps)):
                for name in assigned:
                    self._assigned.setdefault(name, set()).add(owner)
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
            value = content(cell)
            if isinstance(value, FunctionType):
                # A decorated method is a method too.
                self._visit(value, kind=kind)
            else:
                self._reach(value, code.attributes)
        # Workers that import a function have its defaults.
        is_by_value = own and ("<" in function.__qualname__ or function.__module__ == "__main__")
        for name in ("__defaults__", "__kwdefaults__"):
            defaults = getattr(function, name) or ()
            values = list(defaults.values()) if isinstance(defaults, dict) else list(defaults)
            if (values and is_by_value) or any(self._is_shared(one) for one in values):
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
            if isinstance(value, property):
                self._methods.append(_Method(thing, name, value.fget, self._read))
                self._methods.append(_Method(thing, name, value.fset, self._set))
            elif hasattr(type(value), "__get__"):
                self._methods.append(_Method(thing, name, value, self._read))
            elif self._is_shared(value):
                self._other.append(Part(thing, name))
            elif not name.startswith("__") or callable(value):
                self._visit(value)
        self._fields += [Field(thing, name) for name in data_of(thing)]
        self._each(thing.__bases__)

    def _instance(self, thing: Any, watched: bool) -> None:
        self._visit(type(thing))
        held = getattr(thing, "__dict__", None)
        held = held if isinstance(held, dict) else {}
        slots = [Field(thing, name, True) for name in slots_of(type(thing))]
        if is_own(type(thing).__module__) or isinstance(thing, PLAIN_OBJECTS):
            if watched and len(self._fields) <= _MANY and is_copied(thing):
                hidden = "_modules" in held
                names = [name for name in held if not (hidden and name[0] == "_")]
                # An object may get an attribute of its own where it has its class's.
                own = [
                    one
                    for one in type(thing).__mro__
                    if is_own(one.__module__) and hasattr(thing, "__dict__")
                ]
                names += [name for one in own for name in data_of(one)]
                self._fields += [*slots, *(Field(thing, name) for name in dict.fromkeys(names))]
            self._each([*held.values(), *(one.value() for one in slots)], watched)
        # PyTorch's own modules may hold modules of the user's classes.
        modules = held.get("_modules")
        self._each(modules.values() if isinstance(modules, dict) else [])
        # So say compiled functions of JAX.
        self._visit(inspect.getattr_static(thing, "__wrapped__", None) and thing.__wrapped__)

    def _is_assigned(self, place: Field) -> bool:
        """Whether code assigns this attribute, of anything or of objects of this class."""
        owners = self._assigned.get(place.name, ())
        kind = place.owner if isinstance(place.owner, type) else type(place.owner)
        return any(owner is None or issubclass(kind, owner) for owner in owners)


def same(now: Any, then: Any) -> bool:
    """Whether a name stands for what it did: the same object, or an equal number or text."""
    if now is then:
        return True
    if type(now) is not type(then) or not isinstance(now, _EQUAL):
        return False
    return bool(now == then) and _signs(now) == _signs(then)


def _signs(value: Any) -> list[float]:
    """The signs of a number: a zero has one too, and equals the other zero."""
    if isinstance(value, complex):
        return [math.copysign(1.0, value.real), math.copysign(1.0, value.imag)]
    return [math.copysign(1.0, value)] if isinstance(value, float) else []


def _runs(method: _Method) -> bool:
    """Whether a method may run: code has a word for it, Python calls it by itself, or a library does."""
    if method.name in method.words or method.name.startswith("__"):
        return True
    return any(hasattr(one, method.name) for one in method.kind.__mro__ if not is_own(one.__module__))
