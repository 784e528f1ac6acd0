"""The state that a function uses besides its arguments: globals, closure variables, objects, helpers.

The rule: a change made there between two calls reaches the workers with the next call. A change that the
function itself makes during a call stays local to each worker. The contents of arrays, tensors and library
objects, and of lists and dictionaries with more than `_MAX_ITEMS` items, are not inspected.
"""

from __future__ import annotations

import collections
import functools
import sys
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any

from unisono.functions.places import (
    PLAIN_OBJECTS,
    Class,
    Contents,
    Function,
    Implementations,
    Items,
    Names,
    Object,
    Place,
    slots_of,
)
from unisono.functions.snapshot import Snapshot, Sources, content, is_atom, same, slot
from unisono.functions.spaces import Missing, is_own, is_own_space
from unisono.functions.variables import MANAGED, follows
from unisono.functions.words import read
from unisono.functions.wrappers import contents_of, is_dispatcher

_CONSTRUCTORS = ("__init__", "__post_init__", "__new__", "__setstate__")
"""Methods whose assignments initialise new objects."""

_MAX_ITEMS = 1000
"""Longer lists and dictionaries count as data, as arrays do: their items are not inspected."""

_GROUP_SIZE = 64
"""Number of places compared as one group; if a group differs, each of its places is compared."""


class Captures:
    """All places that a function reads, and the values found there."""

    def __init__(self, roots: list[Any], is_shared: Callable[[Any], bool]) -> None:
        self._is_shared = is_shared
        self._seen: dict[int, Any] = {}
        self._names: dict[int, Names] = {}
        self._reached: set[tuple[int, tuple[str, ...]]] = set()
        self._written: set[tuple[int, str]] = set()
        self._rebound: set[int] = set()
        self._stored: set[str] = set()
        self._stores_any = self._mutates = False
        self._library_managed: set[int] = set()
        self.shared: list[Any] = []
        """The shared objects encountered during the traversal."""
        self.modules: dict[str, ModuleType] = {}
        """The user's modules that the code references by name; workers import them."""
        self.places: list[Place] = []
        self._worklist = list(roots)
        while self._worklist:
            self._visit(self._worklist.pop())
        self.places[:0] = self._names.values()
        self.values = [place.read() for place in self.places]
        """The values found at each place, updated with the changes made by the function itself."""
        self.keep(lambda place: True)

    def keep(self, is_kept: Callable[[Place], bool]) -> None:
        """Drops the places that need no watching."""
        pairs = [pair for pair in zip(self.places, self.values, strict=True) if is_kept(pair[0])]
        self.places, self.values = [one for one, _ in pairs], [values for _, values in pairs]
        self.is_constant = not (
            self._written
            or self._rebound
            or self._library_managed
            or ((self._stored or self._stores_any or self._mutates) and len(self.places) > len(self._names))
        )
        """Whether the function cannot change anything that it uses."""
        count = len(self.places)
        self._groups = [range(at, min(at + _GROUP_SIZE, count)) for at in range(0, count, _GROUP_SIZE)]
        self._snapshots: list[Snapshot | None] = [self._snapshot(group) for group in self._groups]

    def meets(self, kind: type) -> bool:
        """Whether the code uses an object of this type."""
        return any(isinstance(one, kind) for one in self._seen.values())

    def says(self, word: str) -> bool:
        """Whether the user's code uses this attribute name."""
        functions = [one for one in self._seen.values() if isinstance(one, FunctionType)]
        return any(word in read(one.__code__).attributes for one in functions if is_own(one.__module__))

    def changed(self) -> list[int]:
        """The places whose values differ from the recorded ones; runs before every call."""
        found: list[int] = []
        for number, snapshot in enumerate(self._snapshots):
            if snapshot is None or snapshot.differs():
                group = self._groups[number]
                inner = [
                    at for at in group if self.places[at].differ(self.values[at], self.places[at].read())
                ]
                self._snapshots[number] = None if inner else self._snapshot(group)
                found += inner
        return found

    def take(self, changed: list[int]) -> bool:
        """Records the new values, unless they lead to places that were not traversed."""
        now = {at: self.places[at].read() for at in changed}
        for at, values in now.items():
            old = self.values[at]
            for key, value in values.items():
                if not is_atom(value) and (key not in old or not same(value, old[key])):
                    return False
        for at, values in now.items():
            self.values[at] = values
        return True

    def accept_own(self, record: Callable[[Place, list[Any], dict[Any, Any]], None]) -> None:
        """Records the changes that the function made during a call, and reports their keys and values.

        Changes made concurrently by other code, such as another thread, remain pending.
        """
        for at in self.changed():
            place, now = self.places[at], self.places[at].read()
            own = [key for key in {**now, **self.values[at]} if self._is_own_change(place, key)]
            accept(self.values[at], own, now)
            record(place, own, now)

    def _is_own_change(self, place: Place, key: Any) -> bool:
        """Whether the function's code can assign this key."""
        if id(place.owner) in self._library_managed:
            return True
        if isinstance(place, Names):
            return (id(place.owner), key) in self._written
        if isinstance(place, Function) and isinstance(key, int):
            return id(place.owner.__closure__[key]) in self._rebound
        if isinstance(place, (Items, Contents)):
            return self._mutates
        return self._stores_any or key in self._stored

    def _snapshot(self, group: range) -> Snapshot:
        sources = Sources()
        for at in group:
            self.places[at].watch(sources)
        return Snapshot(sources)

    def _visit(self, thing: Any) -> None:
        if id(thing) in self._seen or is_atom(thing):
            return
        self._seen[id(thing)] = thing
        wrapped = contents_of(thing)
        if wrapped is not None:
            self._worklist += wrapped
            if is_dispatcher(thing):
                self.places.append(Implementations(thing))
            elif isinstance(thing, functools.cached_property) and thing.attrname is not None:
                self._stored.add(thing.attrname)
        elif isinstance(thing, FunctionType):
            self._function(thing)
        elif isinstance(thing, MethodType):
            self._worklist += [thing.__func__, thing.__self__]
        elif isinstance(thing, functools.partial):
            self._worklist += [thing.func, thing.args, thing.keywords]
        elif isinstance(thing, (staticmethod, classmethod)):
            self._worklist.append(thing.__func__)
        elif isinstance(thing, property):
            self._worklist += [thing.fget, thing.fset, thing.fdel]
        elif isinstance(thing, type):
            self._class(thing)
        elif isinstance(thing, (list, tuple, dict, set, frozenset, collections.deque)):
            self._container(thing)
        elif not isinstance(thing, ModuleType):
            self._object(thing)

    def _container(self, thing: Any) -> None:
        if len(thing) <= _MAX_ITEMS:
            if isinstance(thing, dict):
                self.places.append(Items(thing))
            elif not isinstance(thing, (tuple, frozenset)):
                self.places.append(Contents(thing))
            self._worklist += dict.values(thing) if isinstance(thing, dict) else list(thing)
        if is_own(type(thing).__module__):
            self._object(thing)

    def _function(self, function: FunctionType) -> None:
        code, space = read(function.__code__), function.__globals__
        own = is_own_space(space)
        self._written.update((id(space), name) for name in code.writes)
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self._rebound.update(id(cells[name]) for name in code.rebinds)
        if function.__name__ not in _CONSTRUCTORS:
            self._stored |= code.stores
            self._stores_any |= code.stores_any
            self._mutates |= code.mutates
        for name in code.reads:
            value = space.get(name, Missing)
            if own or self._is_shared(value):
                self._name(space, name)
            if own:
                self._reach(value, code.attributes)
        for module in code.imports:
            self._reach(sys.modules.get(module), code.attributes)
        if "<" in function.__qualname__ or is_own(function.__module__):
            self.places.append(Function(function))
        for cell in cells.values():
            self._reach(content(cell), code.attributes)
        self._worklist += [function.__defaults__, function.__kwdefaults__, *vars(function).values()]

    def _name(self, space: dict[str, Any], name: str) -> None:
        self._names.setdefault(id(space), Names(space)).names[name] = None

    def _reach(self, value: Any, attributes: tuple[str, ...]) -> None:
        """Follows the value of a name; of a module, the code can only use the attributes that it names."""
        if not isinstance(value, ModuleType):
            self._worklist.append(value)
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
                self._name(space, name)
                self._reach(space[name], attributes)

    def _class(self, thing: type) -> None:
        if not is_own(thing.__module__):
            return
        place = Class(thing)
        self.places.append(place)
        self._worklist += [*place.read().values(), *thing.__bases__, type(thing)]

    def _object(self, thing: Any) -> None:
        if self._is_shared(thing):
            self.shared.append(thing)
        self._worklist.append(type(thing))
        own = is_own(type(thing).__module__)
        is_followed = follows(thing)
        held = getattr(thing, "__dict__", None)
        held = held if isinstance(held, dict) else {}
        if own or is_followed is not None or isinstance(thing, PLAIN_OBJECTS):
            self.places.append(Object(thing, is_followed))
            names = [name for name in held if is_followed is None or is_followed(name)]
            self._worklist += [held[name] for name in names]
            self._worklist += [slot(thing, name) for name in slots_of(type(thing))]
        if is_followed is not None:
            managed = [held[name] for name in names if not own or name in MANAGED or name[0] == "_"]
            self._library_managed.update(_containers([*managed, *([] if own else [thing])]))
        if "__wrapped__" in held or hasattr(type(thing), "__wrapped__"):
            # JAX's compiled functions keep the original function in `__wrapped__`.
            self._worklist.append(thing.__wrapped__)


def accept(values: dict[Any, Any], keys: list[Any], now: dict[Any, Any]) -> None:
    """Sets some keys to their current values, in the current order."""
    for key in keys:
        values.pop(key, None)
        if key in now:
            values[key] = now[key]


def _containers(things: list[Any]) -> list[int]:
    """The ids of the objects that a library keeps in an object, including nested lists and dictionaries."""
    found = {id(one): one for one in things}
    worklist = list(things)
    while worklist:
        one = worklist.pop()
        inner = list(one.values()) if isinstance(one, dict) else one if isinstance(one, list) else []
        new = [each for each in inner if isinstance(each, (list, dict)) and id(each) not in found]
        found.update((id(each), each) for each in new)
        worklist += new
    return list(found)
