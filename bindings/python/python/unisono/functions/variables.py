"""Shared variables: values with one copy on every rank, known to all ranks by number."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable
from typing import Any, Protocol

_KINDS = {
    "unisono.functions.shared": "unisono.functions.shared",
    "pytensor": "unisono.functions.with_pytensor",
    "torch": "unisono.functions.with_torch",
}


class Variable(Protocol):
    """One rank's copy of a shared variable, for any library."""

    name: str

    def get(self) -> Any:
        """The value as a NumPy array, where possible without a copy."""

    def set(self, array: Any) -> None:
        """Stores a NumPy array of any shape with the same number of axes; keeps no reference to it."""

    def raw(self) -> Any:
        """The value in its library's own type."""

    def put(self, value: Any) -> None:
        """Stores a value in its library's own type, without a copy."""


class Registry:
    """The number of each shared object, the same on all ranks, and this rank's copy of the object."""

    def __init__(self) -> None:
        self.objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._variables: dict[int, Variable] = {}
        self._titles: dict[int, str] = {}
        self.count = 0
        """The number of the next object."""

    def note(self, thing: Any) -> None:
        """Registers an object and the variables in it; a second call does nothing."""
        if id(thing) in self._numbers:
            return
        kind = kind_of(thing)
        if kind is None:
            return
        self.adopt_new(thing)
        for title, part in kind.titled_parts(thing):
            if part is not thing:
                self._titles.setdefault(self.adopt_new(part), title)

    def note_own(self, thing: Any) -> None:
        """Registers the variables that a module owns directly, including those added since."""
        for part in getattr(kind_of(thing), "own_parts", _no_parts)(thing):
            if id(part) not in self._numbers:
                self.adopt_new(part)

    def adopt(self, number: int, thing: Any) -> None:
        """Registers an object under the number that it has on another rank."""
        self.objects[number] = thing
        self._numbers[id(thing)] = number
        self._variables.pop(number, None)

    def adopt_new(self, thing: Any) -> int:
        """Assigns a number to an object, unless it has one."""
        number = self._numbers.get(id(thing))
        if number is None:
            number = self.count
            self.count += 1
            self.adopt(number, thing)
        return number

    def forget(self, count: int) -> None:
        """Revokes the numbers from `count` up: their objects could not be sent."""
        self.drop(range(count, self.count))
        self.count = count

    def drop(self, numbers: Iterable[int]) -> None:
        """Releases these objects."""
        for number in numbers:
            self._numbers.pop(id(self.objects.pop(number)), None)
            self._variables.pop(number, None)
            self._titles.pop(number, None)

    def number_of(self, thing: Any) -> int | None:
        """The number of an object, if it has one."""
        return self._numbers.get(id(thing))

    def is_shared(self, thing: Any) -> bool:
        """Whether copies of an object belong together: it was declared as shared, or is always shared."""
        return is_found(thing) or (id(thing) in self._numbers and kind_of(thing) is not None)

    def variable(self, number: int) -> Variable:
        """This rank's copy of a variable."""
        found = self._variables.get(number)
        if found is None:
            found = self._variables[number] = wrap(self.objects[number])
            found.name = self._titles.get(number, found.name)
        return found


def _no_parts(thing: Any) -> list[Any]:
    return []


class Settings:
    """Attributes of shared variables other than their values, such as their type."""

    def __init__(self) -> None:
        self._count = 0
        self._watches: list[Any] = []

    def changes(self) -> list[tuple[int, Any]]:
        """The changes that the workers have not received yet; runs before every call."""
        return [change for watch in self._watches for change in watch.changes()] if self._watches else []

    def told(self, registry: Registry) -> None:
        """Records that the workers are up to date."""
        if registry.count != self._count:
            self._count = registry.count
            makers = [kind.Watch for kind in kinds() if hasattr(kind, "Watch")]
            watches = [make(registry.objects) for make in makers]
            self._watches = [watch for watch in watches if watch.has_any()]
        for watch in self._watches:
            watch.told()


def apply_settings(thing: Any, setting: Any) -> None:
    """Applies the master's settings to an object."""
    kind_of(thing).apply_settings(thing, setting)


_found: list[Any] = []


def kinds() -> list[Any]:
    """The adapter modules for shared objects, one for each library in use in this process."""
    if len(_found) < len(_KINDS):
        _found[:] = [
            importlib.import_module(own) for library, own in _KINDS.items() if library in sys.modules
        ]
    return _found


def kind_of(thing: Any) -> Any:
    """The adapter module for objects like this one, or None for objects that are not shared."""
    return next((kind for kind in kinds() if kind.is_shared(thing)), None)


def is_found(thing: Any) -> bool:
    """Whether an object is shared even without a declaration."""
    return any(kind.is_found(thing) for kind in kinds())


MANAGED = ("param_groups", "state")
"""Attributes of followed objects that their library changes, as it does those that begin with a `_`."""


def follows(thing: Any) -> Callable[[str], bool] | None:
    """Which attributes of a library's object are followed; None if none is."""
    found = (kind.follows(thing) for kind in kinds() if hasattr(kind, "follows"))
    return next((one for one in found if one is not None), None)


def parts_of(thing: Any) -> list[Any]:
    """The variables in an object: a variable contains itself, a module its parameters and buffers."""
    kind = kind_of(thing)
    if kind is None:
        raise TypeError(
            f"expected a shared variable (PyTensor's, a PyTorch parameter, buffer or module, or one made by "
            f"functions.shared), received {type(thing).__name__}"
        )
    return list(kind.parts(thing))


def wrap(thing: Any) -> Variable:
    """Wraps an object as a variable."""
    variable: Variable = kind_of(thing).wrap(thing)
    return variable
