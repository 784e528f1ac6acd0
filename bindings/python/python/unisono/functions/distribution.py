"""Sending functions to the workers by value; a variable that several functions use stays one variable."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from collections.abc import Callable
from types import FunctionType, MemberDescriptorType
from typing import Any, TypeGuard

from unisono.errors import Unsupported
from unisono.functions.evaluate import Definition, Evaluator
from unisono.functions.member import Member
from unisono.functions.places import Cell, Field, Name, Part, Place
from unisono.functions.spaces import Gone, Spaces, is_own_space
from unisono.functions.variables import Registry, apply_settings, kinds
from unisono.functions.wrappers import reduced as reduced_wrapper

_DEEP = 50_000
"""Graphs are pickled by recursion."""


def pack(
    functions: list[tuple[int, Definition]],
    places: list[tuple[Place, Any]],
    along: list[Any],
    settings: list[tuple[int, Any]],
    refreshed: list[int],
    registry: Registry,
    spaces: Spaces,
    sent: set[int],
) -> tuple[bytes, set[int]]:
    """Writes functions down, with the shared objects in them that the workers do not have yet.

    Args:
        functions: The functions and their numbers.
        places: What their code uses besides, and what it finds there.
        along: Shared objects that they name, and modules that workers import for them.
        settings: What shared objects say beside their values, by number.
        refreshed: The numbers of functions that workers have and must make ready again.
        registry: The master's shared objects; those that are found on the way are noted there.
        spaces: How workers know modules and the script.
        sent: The numbers of the objects that the workers have.

    Returns:
        What `Distribute` reads, and the numbers of the objects in it.
    """
    met: set[int] = set()
    owners = {id(place.owner) for place, _ in places if isinstance(place, Field) or _has_defaults(place)}
    courier, stream = _courier(registry, spaces, sent, met, owners)
    with _Deeper():
        courier.dump((functions, [(_target(place, spaces), value) for place, value in places], along))
        # The second part remembers the first: what was met there is the same object here.
        courier.dump(([(number, registry.objects[number]) for number in sorted(met)], settings, refreshed))
    return stream.getvalue(), met


def check(value: Any, registry: Registry, spaces: Spaces, sent: set[int]) -> Exception | None:
    """Why something cannot be sent, if so."""
    before = len(registry.objects)
    courier, _ = _courier(registry, spaces, sent, set(), set(), lambda buffer: False)
    try:
        with _Deeper():
            courier.dump(value)
    except Exception as error:
        return error
    finally:
        registry.forget(before)
    return None


def _courier(
    registry: Registry,
    spaces: Spaces,
    sent: set[int],
    met: set[int],
    owners: set[int],
    aside: Callable[[Any], Any] | None = None,
) -> tuple[Any, io.BytesIO]:
    cloudpickle = _cloudpickle()
    found = tuple(kind.is_found for kind in kinds())

    class Courier(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        def persistent_id(self, thing: Any) -> Any:
            number = registry.number_of(thing)
            if number is None and any(is_found(thing) for is_found in found):
                registry.note(thing)
                number = registry.number_of(thing)
            if number is not None:
                if number in sent:
                    return number
                met.add(number)
                return None
            return spaces.key_of(thing)

        def reducer_override(self, thing: Any) -> Any:
            is_function = isinstance(thing, FunctionType)
            if is_function and is_own_space(thing.__globals__):
                # Functions of one module have one set of names in the workers too, whenever they are sent.
                self.globals_ref.setdefault(id(thing.__globals__), spaces.mirror(thing.__globals__))
            wrapper = reduced_wrapper(thing)
            if wrapper is not None:
                # A cache that several functions use is one cache.
                met.add(registry.adopt_new(thing))
                return wrapper
            reduced = super().reducer_override(thing)
            closes = is_function and reduced is not NotImplemented and thing.__closure__
            if closes or id(thing) in owners:
                # What it closes over, or has, may change later: workers must know it by number.
                met.add(registry.adopt_new(thing))
            return reduced

    stream = io.BytesIO()
    return Courier(stream, 5, buffer_callback=aside), stream


def _target(place: Place, spaces: Spaces) -> tuple[Any, Any]:
    """Where a worker puts a value: names of a module, a variable around a function, an attribute."""
    if isinstance(place, Name):
        return spaces.mirror(place.space), place.name
    if isinstance(place, Cell):
        return place.function, place.at
    return place.owner, place.name


def _has_defaults(place: Place) -> TypeGuard[Part]:
    return isinstance(place, Part) and isinstance(place.owner, FunctionType)


def _put(owner: Any, key: Any, value: Any) -> None:
    """What `_target` says, but for names."""
    if isinstance(key, int):
        if value is not Gone:
            owner.__closure__[key].cell_contents = value
    elif isinstance(owner, (type, FunctionType)):
        if value is not Gone:
            setattr(owner, key, value)
        elif key in vars(owner):
            delattr(owner, key)
    elif isinstance(getattr(type(owner), key, None), MemberDescriptorType):
        if value is not Gone:
            object.__setattr__(owner, key, value)
        elif hasattr(owner, key):
            object.__delattr__(owner, key)
    elif value is Gone:
        vars(owner).pop(key, None)
    else:
        # Past a class that lets nobody assign, as it was made.
        vars(owner)[key] = value


class _Arrival(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, member: Member) -> None:
        super().__init__(stream)
        self._objects, self._spaces = member.variables.objects, member.spaces

    def persistent_load(self, number: Any) -> Any:
        return self._spaces.find(number) if isinstance(number, tuple) else self._objects[number]


class Distribute:
    """One rank's part of a distribution: workers unpack, the master has everything already."""

    operation = "distribute"

    def __init__(self, member: Member, packed: bytes) -> None:
        self._member, self._packed = member, packed

    def prepare(self) -> None:
        """Unpacks and makes the functions ready to run."""
        member = self._member
        if member.is_master:
            return
        arrival = _Arrival(io.BytesIO(self._packed), member)
        with _Deeper():
            functions, places, _ = arrival.load()
            objects, settings, refreshed = arrival.load()
        for number, thing in objects:
            member.variables.adopt(number, thing)
        for (owner, key), value in places:
            if type(owner) is dict:
                member.spaces.give(owner, key, value)
            else:
                _put(owner, key, value)
        member.spaces.settle()
        for number, setting in settings:
            apply_settings(member.variables.objects[number], setting)
        made = {number: Evaluator(definition) for number, definition in functions}
        member.functions.update(made)
        for number in refreshed:
            member.functions[number] = Evaluator(member.functions[number].definition)

    def problem(self, shown: list[Any]) -> Exception | None:
        """There is none: each rank works alone."""
        return None

    def finish(self, shown: list[Any]) -> None:
        """There is nothing left to do."""


class _Deeper:
    """Allows deep recursion for a while."""

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(self._limit, _DEEP))

    def __exit__(self, *_: object) -> None:
        sys.setrecursionlimit(self._limit)


def _cloudpickle() -> Any:
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ImportError as error:
        raise Unsupported(
            "distribute: expected the package cloudpickle, which sends functions by value, and it is not "
            "installed; pip install cloudpickle"
        ) from error
    return cloudpickle
