"""The places where code finds state besides its arguments, and how to change a worker's copy of it.

A place is an owner of values: the names of a module, a function, an object, a class, a list, a dictionary
or a set. `Place.read` returns its values by key. A change of one value is sent as kind of place, owner, key
and new value, and `put` applies it to the worker's copy of the owner.
"""

from __future__ import annotations

import argparse
import collections
import enum
from collections.abc import Callable
from types import FunctionType, GetSetDescriptorType, MemberDescriptorType, SimpleNamespace
from typing import Any, ClassVar

from unisono.functions.snapshot import Sources, content, items_of, same, slot
from unisono.functions.spaces import Missing, is_own
from unisono.functions.wrappers import is_importable

PLAIN_OBJECTS = (argparse.Namespace, SimpleNamespace)
"""Library classes whose objects hold only what the user assigns."""

REDUCED = object()
"""The key for the result of `__reduce_ex__` at the time an object was sent."""

_PICKLING = ("__reduce__", "__reduce_ex__", "__getstate__")
_PARTS = ("__code__", "__defaults__", "__kwdefaults__")


class Place:
    """An owner of values that code uses."""

    kind: ClassVar[str]

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self.key = (self.kind, id(owner))
        """Identifies the place across all functions that use it."""

    def read(self) -> dict[Any, Any]:
        """Reads the current values."""
        raise NotImplementedError

    def watch(self, sources: Sources) -> None:
        """Registers where the values are stored, for fast comparison."""
        raise NotImplementedError

    def initial(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """The values to send when workers first get the owner: those of an owner that they import."""
        return {}

    def differ(self, old: dict[Any, Any], new: dict[Any, Any]) -> bool:
        """Whether the values have changed."""
        return len(old) != len(new) or any(
            key not in old or not same(value, old[key]) for key, value in new.items()
        )

    def difference(self, old: dict[Any, Any], new: dict[Any, Any]) -> list[tuple[str, Any, Any]]:
        """The changes that turn the old values into the new ones, as kind, key and value."""
        removed = [(self.kind, key, Missing) for key in old if key not in new]
        return removed + [
            (self.kind, key, value)
            for key, value in new.items()
            if key not in old or not same(value, old[key])
        ]

    def title(self, key: Any) -> str:
        """The name of a value in errors."""
        return f"{type(self.owner).__name__}.{key}"


class Names(Place):
    """The names of a module that some code reads."""

    kind = "name"

    def __init__(self, owner: dict[str, Any]) -> None:
        super().__init__(owner)
        self.names: dict[str, None] = {}

    def read(self) -> dict[Any, Any]:
        """Reads the current values."""
        return {name: self.owner.get(name, Missing) for name in self.names}

    def watch(self, sources: Sources) -> None:
        """Registers where the values are stored."""
        sources.names += [(self.owner, name) for name in self.names]

    def initial(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """All values."""
        return values

    def difference(self, old: dict[Any, Any], new: dict[Any, Any]) -> list[tuple[str, Any, Any]]:
        """Ignores names that only other functions read."""
        return super().difference({name: old[name] for name in new if name in old}, new)

    def title(self, key: Any) -> str:
        """The name of a value in errors."""
        return str(key)


class Function(Place):
    """A function: its code, its defaults, its attributes, and its closure variables."""

    kind = "function"

    def read(self) -> dict[Any, Any]:
        """Reads the current values."""
        found = {name: getattr(self.owner, name) for name in _PARTS}
        cells = enumerate(self.owner.__closure__ or ())
        return {**found, **vars(self.owner), **{at: content(cell) for at, cell in cells}}

    def watch(self, sources: Sources) -> None:
        """Registers where the values are stored."""
        sources.functions.append(self.owner)
        sources.add(vars(self.owner))
        sources.cells += self.owner.__closure__ or ()

    def initial(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """Values that may have been assigned since the master imported the function."""
        if not is_importable(self.owner):
            return {}
        return {key: value for key, value in values.items() if key not in ("__code__", "__wrapped__")}

    def title(self, key: Any) -> str:
        """The name of a value in errors."""
        if isinstance(key, int):
            return str(self.owner.__code__.co_freevars[key])
        return f"{self.owner.__name__}.{key}"


class Class(Place):
    """A class of the user: its methods, its other attributes, its bases."""

    kind = "class"

    def read(self) -> dict[Any, Any]:
        """Reads the current values."""
        found = {name: value for name, value in vars(self.owner).items() if _is_assigned(name, value)}
        return {**found, "__bases__": self.owner.__bases__}

    def watch(self, sources: Sources) -> None:
        """Registers where the values are stored."""
        sources.add(vars(self.owner))
        sources.classes.append(self.owner)

    def initial(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """Its data attributes, and methods that were not defined in it."""
        if not is_importable(self.owner) or issubclass(self.owner, enum.Enum):
            return {}
        return {
            name: value
            for name, value in values.items()
            if name != "__bases__" and (_is_data(name, value) or self._is_foreign(name, value))
        }

    def _is_foreign(self, name: str, value: Any) -> bool:
        function = getattr(value, "fget", None) or getattr(value, "__func__", value)
        origin = (self.owner.__module__, f"{self.owner.__qualname__}.{name}")
        return isinstance(function, FunctionType) and (function.__module__, function.__qualname__) != origin

    def title(self, key: Any) -> str:
        """The name of a value in errors."""
        return f"{self.owner.__name__}.{key}"


class Object(Place):
    """An object of the user, or a followed object of a library: its attributes and its class."""

    kind = "object"

    def __init__(self, owner: Any, is_followed: Callable[[str], bool] | None = None) -> None:
        super().__init__(owner)
        self._is_followed = is_followed
        """Which attributes are followed, if the class belongs to a library or derives from a library's."""
        self._slots = slots_of(type(owner))
        self.is_plain = _is_plain(owner, is_followed is not None)
        """Whether attributes are sent individually."""

    def read(self) -> dict[Any, Any]:
        """Reads the current values."""
        held = getattr(self.owner, "__dict__", None) or {}
        if self._is_followed is not None:
            held = {name: value for name, value in held.items() if self._is_followed(name)}
        slots = {name: slot(self.owner, name) for name in self._slots}
        present = {name: value for name, value in slots.items() if value is not Missing}
        return {**held, **present, "__class__": type(self.owner)}

    def watch(self, sources: Sources) -> None:
        """Registers where the values are stored."""
        held = getattr(self.owner, "__dict__", None)
        if isinstance(held, dict):
            sources.add(held)
            sources.with_dict.append(self.owner)
        sources.objects.append(self.owner)
        sources.slots += [(self.owner, name) for name in self._slots]

    def difference(self, old: dict[Any, Any], new: dict[Any, Any]) -> list[tuple[str, Any, Any]]:
        """Individual attributes, or the state of an object whose class defines its pickled form."""
        attributes = {name: value for name, value in old.items() if name is not REDUCED}
        found = super().difference(attributes, new)
        if self.is_plain or not found:
            return found
        reduced = self.owner.__reduce_ex__(5)
        before = old.get(REDUCED)
        if not isinstance(reduced, tuple) or not isinstance(before, tuple) or not same(reduced[1], before[1]):
            raise TypeError(
                f"an object of {type(self.owner).__name__} that was changed, and whose __reduce__ returns no "
                "state that says how; assign a new object"
            )
        state = reduced[2] if len(reduced) > 2 else None
        return [] if state is None else [("state", None, state)]


class Items(Place):
    """The values of a dictionary."""

    kind = "item"

    def read(self) -> dict[Any, Any]:
        """Reads the current values."""
        return dict(items_of(self.owner))

    def watch(self, sources: Sources) -> None:
        """Registers where the values are stored."""
        sources.add(self.owner)

    def differ(self, old: dict[Any, Any], new: dict[Any, Any]) -> bool:
        """Whether the values or their order have changed."""
        return super().differ(old, new) or not _is_in_order(old, new)

    def difference(self, old: dict[Any, Any], new: dict[Any, Any]) -> list[tuple[str, Any, Any]]:
        """Individual values, or all if adding and removing keys does not give the new order."""
        return super().difference(old, new) if _is_in_order(old, new) else [("contents", None, new)]

    def title(self, key: Any) -> str:
        """The name of a value in errors."""
        return f"{type(self.owner).__name__}[{key!r}]"


class Contents(Place):
    """The contents of a list or a set."""

    kind = "contents"

    def read(self) -> dict[Any, Any]:
        """Reads the current values."""
        if isinstance(self.owner, set):
            return {(type(one), one): one for one in self.owner}
        return dict(enumerate(self.owner))

    def watch(self, sources: Sources) -> None:
        """Registers where the values are stored."""
        (sources.sets if isinstance(self.owner, set) else sources.sequences).append(self.owner)

    def difference(self, old: dict[Any, Any], new: dict[Any, Any]) -> list[tuple[str, Any, Any]]:
        """All contents, if anything differs."""
        return [(self.kind, None, list(new.values()))] if super().difference(old, new) else []

    def title(self, key: Any) -> str:
        """The name of a value in errors."""
        return f"the contents of a {type(self.owner).__name__}"


class Implementations(Place):
    """The functions that `functools.singledispatch` has registered for each class."""

    kind = "implementation"

    def read(self) -> dict[Any, Any]:
        """Reads the current values."""
        return dict(self.owner.registry)

    def watch(self, sources: Sources) -> None:
        """Registers where the values are stored."""
        sources.add(self.owner.registry)

    def title(self, key: Any) -> str:
        """The name of a value in errors."""
        return f"{self.owner.__name__} for {key.__name__}"


def put(kind: str, owner: Any, key: Any, value: Any) -> None:
    """Applies a change to a worker's copy, except for changes of module names."""
    if kind == "function" and isinstance(key, int):
        if value is Missing:
            del owner.__closure__[key].cell_contents
        else:
            owner.__closure__[key].cell_contents = value
    elif kind in ("function", "class"):
        if value is not Missing:
            setattr(owner, key, value)
        elif key in vars(owner):
            delattr(owner, key)
    elif kind == "object":
        _put_attribute(owner, key, value)
    elif kind == "implementation":
        owner.register(key, value)
    elif kind == "state":
        _put_state(owner, value)
    elif kind == "item" and value is Missing:
        _base(owner).pop(owner, key, None)
    elif kind == "item":
        _base(owner).__setitem__(owner, key, value)
    else:
        base = _base(owner)
        base.clear(owner)
        (base.extend if isinstance(owner, (list, collections.deque)) else base.update)(owner, value)


def _put_attribute(owner: Any, key: str, value: Any) -> None:
    if key == "__class__" or isinstance(getattr(type(owner), key, None), MemberDescriptorType):
        if value is not Missing:
            object.__setattr__(owner, key, value)
        elif slot(owner, key) is not Missing:
            object.__delattr__(owner, key)
    elif value is Missing:
        vars(owner).pop(key, None)
    else:
        # Assign directly, as pickle does: the class may forbid assignments.
        vars(owner)[key] = value


def _put_state(owner: Any, state: Any) -> None:
    """Restores a state as pickle does for a new object."""
    if hasattr(owner, "__setstate__"):
        owner.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) else (state, None)
    vars(owner).update(attributes or {})
    for name, value in (slots or {}).items():
        object.__setattr__(owner, name, value)


def _base(owner: Any) -> Any:
    """The library class of a container: methods of the user's classes may do more than store."""
    return next(one for one in type(owner).__mro__ if not is_own(one.__module__))


def slots_of(kind: type) -> list[str]:
    """The attributes for which classes of the user define slots."""
    own = [one for one in kind.__mro__ if is_own(one.__module__)]
    return [
        name for one in own for name, value in vars(one).items() if isinstance(value, MemberDescriptorType)
    ]


def _is_in_order(old: dict[Any, Any], new: dict[Any, Any]) -> bool:
    """Whether removing keys and appending others gives the new order. Keys need not be comparable."""
    order = [*(key for key in old if key in new), *(key for key in new if key not in old)]
    at = {key: position for position, key in enumerate(order)}
    return [at[key] for key in new] == list(range(len(new)))


def _is_data(name: str, value: Any) -> bool:
    return not name.startswith("__") and not hasattr(type(value), "__get__")


def _is_assigned(name: str, value: Any) -> bool:
    """Whether a class attribute belongs to the user, and not to Python."""
    if isinstance(value, (MemberDescriptorType, GetSetDescriptorType)) or name == "_abc_impl":
        return False
    return not name.startswith("__") or hasattr(type(value), "__get__") or callable(value)


def _is_plain(thing: Any, is_followed: bool) -> bool:
    """Whether no class of an object, counting only the user's if it is followed, defines its pickled form."""
    kinds = [one for one in type(thing).__mro__ if one is not object]
    definers = [one for one in kinds if any(name in vars(one) for name in _PICKLING)]
    if is_followed:
        definers = [one for one in definers if is_own(one.__module__)]
    return isinstance(thing, PLAIN_OBJECTS) or not definers
