"""Sends functions to the workers by value; a variable that several functions use stays one variable."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, NamedTuple

from unisono.errors import Unsupported
from unisono.functions.evaluate import Definition, Evaluator
from unisono.functions.member import Member
from unisono.functions.places import Names, Place, put
from unisono.functions.spaces import Spaces, is_own_space
from unisono.functions.variables import Registry, apply_settings, kinds
from unisono.functions.wrappers import reduced as reduced_wrapper

_RECURSION_LIMIT = 50_000
"""Recursion limit while pickling: graphs are pickled recursively."""


class Change(NamedTuple):
    """A value that differs between the workers and the master."""

    place: Place
    kind: str
    key: Any
    value: Any
    is_initial: bool
    """Whether workers that have imported the place's owner already have some value there."""


def pack(
    functions: list[tuple[int, Definition]],
    changes: list[Change],
    dependencies: list[Any],
    settings: list[tuple[int, Any]],
    refreshed: list[int],
    dropped: list[int],
    owners: dict[int, bool],
    registry: Registry,
    spaces: Spaces,
    sent: set[int],
) -> tuple[bytes, set[int], dict[int, Any]]:
    """Pickles functions and changes, with the shared objects in them that the workers do not have yet.

    Args:
        functions: The functions and their numbers.
        changes: Values that their code uses and that differ on the workers.
        dependencies: Shared objects that the functions list, and modules that workers import for them.
        settings: Attributes of shared variables other than their values, by number.
        refreshed: The numbers of functions that workers have and must rebuild.
        dropped: The numbers of objects that no function uses any more.
        owners: The ids of objects that may change later, so that workers must know them by number. The value
            is true for those whose classes define their pickled form.
        registry: The master's shared objects; objects encountered during pickling are registered there.
        spaces: The namespaces by which workers know modules and the script.
        sent: The numbers of the objects that the workers have.

    Returns:
        The bytes that `Distribute` reads, the numbers of the objects in them, and custom reductions by id.
    """
    included: set[int] = set()
    reductions: dict[int, Any] = {}
    transfer, stream = _make_transfer(registry, spaces, sent, included, owners, reductions)
    with _RecursionLimit():
        transfer.dump((functions, [_written(change, spaces) for change in changes], dependencies))
        # The same pickler writes the second part: objects of the first part keep their identity here.
        objects = [(number, registry.objects[number]) for number in sorted(included)]
        transfer.dump((objects, settings, refreshed, dropped))
    return stream.getvalue(), included, reductions


def check(value: Any, registry: Registry, spaces: Spaces, sent: set[int]) -> Exception | None:
    """The reason why a value cannot be sent, or None."""
    before = registry.count
    transfer, _ = _make_transfer(registry, spaces, sent, set(), {}, {}, lambda buffer: False)
    try:
        with _RecursionLimit():
            transfer.dump(value)
    except Exception as error:
        return error
    finally:
        registry.forget(before)
    return None


def _make_transfer(
    registry: Registry,
    spaces: Spaces,
    sent: set[int],
    included: set[int],
    owners: dict[int, bool],
    reductions: dict[int, Any],
    buffer_callback: Callable[[Any], Any] | None = None,
) -> tuple[Any, io.BytesIO]:
    cloudpickle = _cloudpickle()
    found = tuple(kind.is_found for kind in kinds())

    class Transfer(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        def persistent_id(self, thing: Any) -> Any:
            number = registry.number_of(thing)
            if number is None and any(is_found(thing) for is_found in found):
                registry.note(thing)
                number = registry.number_of(thing)
            elif number is None and id(thing) in owners:
                number = registry.adopt_new(thing)
            if number is not None:
                if number in sent:
                    return number
                included.add(number)
                return None
            return spaces.key_of(thing)

        def reducer_override(self, thing: Any) -> Any:
            if isinstance(thing, FunctionType) and is_own_space(thing.__globals__):
                # Functions of one module share one namespace on the workers too, whenever they are sent.
                self.globals_ref.setdefault(id(thing.__globals__), spaces.mirror(thing.__globals__))
            wrapper = reduced_wrapper(thing)
            if wrapper is not None:
                # A cache that several functions use stays one cache.
                included.add(registry.adopt_new(thing))
                return wrapper
            if owners.get(id(thing)):
                reductions[id(thing)] = thing.__reduce_ex__(5)
                return reductions[id(thing)]
            return super().reducer_override(thing)

    stream = io.BytesIO()
    return Transfer(stream, 5, buffer_callback=buffer_callback), stream


def _written(change: Change, spaces: Spaces) -> tuple[str, Any, Any, Any]:
    """A change in the form that workers read: kind of place, owner, key and value."""
    owner = change.place.owner
    return change.kind, spaces.mirror(owner) if change.kind == Names.kind else owner, change.key, change.value


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, member: Member) -> None:
        super().__init__(stream)
        self._objects, self._spaces = member.variables.objects, member.spaces

    def persistent_load(self, number: Any) -> Any:
        return self._spaces.find(number) if isinstance(number, tuple) else self._objects[number]


class Distribute:
    """One rank's part of a distribution: workers unpack, the master already has everything."""

    operation = "distribute"

    def __init__(self, member: Member, packed: bytes) -> None:
        self._member, self._packed = member, packed

    def prepare(self) -> None:
        """Unpacks the functions and makes them ready to run."""
        member = self._member
        if member.is_master:
            return
        unpickler = _Unpickler(io.BytesIO(self._packed), member)
        with _RecursionLimit():
            functions, changes, _ = unpickler.load()
            objects, settings, refreshed, dropped = unpickler.load()
        for number, thing in objects:
            member.variables.adopt(number, thing)
        for kind, owner, key, value in changes:
            if kind == Names.kind:
                member.spaces.give(owner, key, value)
            else:
                put(kind, owner, key, value)
        member.variables.drop(dropped)
        member.spaces.settle()
        for number, setting in settings:
            apply_settings(member.variables.objects[number], setting)
        made = {number: Evaluator(definition) for number, definition in functions}
        member.functions.update(made)
        for number in refreshed:
            member.functions[number] = Evaluator(member.functions[number].definition)

    def problem(self, shown: list[Any]) -> Exception | None:
        """Always None: each rank works on its own."""
        return None

    def finish(self, shown: list[Any]) -> None:
        """Does nothing."""


class _RecursionLimit:
    """Raises the recursion limit temporarily."""

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(self._limit, _RECURSION_LIMIT))

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
