"""Shared variables: values with one copy on every rank, known to all ranks by number."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, Protocol

_KINDS = {
    "unisono.functions.shared_array": "unisono.functions.shared_array",
    "functools": "unisono.functions.functools_wrappers",
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
        for number in range(count, self.count):
            self._numbers.pop(id(self.objects.pop(number)), None)
            self._variables.pop(number, None)
            self._titles.pop(number, None)
        self.count = count

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


_found: list[Any] = []


def kinds() -> list[Any]:
    """The adapter modules for shared objects, one for each library in use in this process."""
    present = [own for library, own in _KINDS.items() if library in sys.modules]
    if len(present) != len(_found):
        _found[:] = [importlib.import_module(own) for own in present]
    return _found


def kind_of(thing: Any) -> Any:
    """The adapter module for objects like this one, or None for objects that are not shared."""
    return next((kind for kind in kinds() if kind.is_shared(thing)), None)


def is_found(thing: Any) -> bool:
    """Whether an object is shared even without a declaration."""
    return any(kind.is_found(thing) for kind in kinds())


def watch(thing: Any, sources: Any, visit: Callable[[str, Any], None]) -> None:
    """Records what workers must know of a shared object besides the values of its variables."""
    getattr(kind_of(thing), "watch", _nothing)(thing, sources, visit)


def _nothing(*_: Any) -> None:
    return None


def state_of(thing: Any, previous: Any) -> Any:
    """What was recorded by `watch`, to be applied to the workers' copies; None if there is nothing.

    Args:
        thing: The shared object.
        previous: What `private_state` returned when the object was last sent.
    """
    return getattr(kind_of(thing), "state_of", _nothing)(thing, previous)


def private_state(thing: Any) -> Any:
    """State of an object that each worker keeps as its own, unless the master assigns another."""
    return getattr(kind_of(thing), "private_state", _nothing)(thing)


def apply_state(thing: Any, state: Any) -> None:
    """Applies the master's state to this rank's copy of an object."""
    kind_of(thing).apply_state(thing, state)


def digest_of(thing: Any) -> Callable[[Any], Any] | None:
    """The function that identifies the contents of a library's array; None for any other object."""
    found = (kind.digest_of(thing) for kind in kinds() if hasattr(kind, "digest_of"))
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
