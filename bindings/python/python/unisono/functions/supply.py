"""What the workers have, and what they still need: functions, and what their code uses besides its inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from unisono.errors import PeerLost, Timeout, Unsupported
from unisono.functions.captures import Captures, same
from unisono.functions.distribution import Distribute, check, pack
from unisono.functions.errors import Inactive, Interrupted
from unisono.functions.evaluate import Definition, Evaluator
from unisono.functions.member import Member
from unisono.functions.places import Cell, Field, Name, Place
from unisono.functions.spaces import Gone, Spaces
from unisono.functions.variables import Settings, is_found
from unisono.functions.wrappers import contents_of

_NO_FAULT = (PeerLost, Timeout, Interrupted, Inactive, Unsupported)
"""These have nothing to do with what is sent: it can be sent later, if there are workers then."""

_FAR = 100_000
"""So many objects are looked through for a shared variable."""


@dataclass
class _Item:
    """A function of the master."""

    number: int
    definition: Definition
    shareds: list[Any]
    captures: Captures | None = None
    version: int = -1
    is_outdated: bool = False
    """Whether something was compiled with what names no longer stand for."""
    refused: Exception | None = None

    def along(self) -> list[Any]:
        """What is sent with it: shared objects that it names, modules that its code has by name."""
        modules = self.captures.modules if self.captures is not None else {}
        return [*self.shareds, *modules.values()]


class Supply:
    """Keeps the workers supplied. What they have is what the master had when it was last told."""

    def __init__(self, member: Member, tell: Callable[[Any, tuple[Any, ...]], Any]) -> None:
        self._member, self._tell = member, tell
        self._items: list[_Item] = []
        self._pending: list[_Item] = []
        self._sent: set[int] = set()
        self._spaces = Spaces()
        self._told: dict[tuple[int, Any], tuple[Place, Any]] = {}
        self._kept: dict[tuple[int, Any], Place] = {}
        self._version = 0
        self._settings = Settings()

    def add(self, definition: Definition, evaluator: Evaluator, shareds: list[Any]) -> int:
        """Takes a new function; workers get it before they need it."""
        number = len(self._items)
        self._member.functions[number] = evaluator
        item = _Item(number, definition, shareds)
        self._items.append(item)
        self._pending.append(item)
        return number

    def has(self, number: int) -> bool:
        """Whether the workers have a shared object."""
        return number in self._sent

    def check(self, number: int) -> None:
        """Sees to it that the workers can run a function as the master would.

        This is in the way of every call: names and settings are compared, and only changes are sent.
        """
        if self._pending:
            self.distribute()
        item = self._items[number]
        if item.refused is not None:
            self._try_again(item)
        captures = item.captures
        assert captures is not None
        stale = captures.is_stale()
        settings = self._settings.changes() if captures.reaches_shared else []
        if stale or settings or item.version != self._version:
            self._refresh(item, stale, settings)

    def renew(self, number: int) -> None:
        """Makes a function ready again in the master alone if it was compiled with what names stood for."""
        item = self._items[number]
        if item.captures is None:
            item.captures = self._look(item)
        elif _is_compiled(item) and (item.is_outdated or item.captures.is_stale()):
            self._member.functions[number] = Evaluator(item.definition)

    def end(self) -> None:
        """Holds on to nothing that functions use: there are no workers left."""
        self._told.clear()
        self._kept.clear()
        self._spaces, self._tell = Spaces(), _nobody
        for item in self._items:
            item.captures = None

    def _try_again(self, item: _Item) -> None:
        """Sends a function that could not be sent, if what it uses is something else by now."""
        assert item.refused is not None
        if item.captures is None or not item.captures.is_stale():
            raise item.refused
        item.refused = None
        self._pending.append(item)
        self.distribute()

    def distribute(self) -> None:
        """Sends the workers what they do not have. A function that cannot be sent stops no other one."""
        pending, self._pending = self._pending, []
        try:
            self._send_all(pending)
        finally:
            # What is left, after an interrupt too, was neither sent nor refused.
            self._pending[:0] = pending

    def _send_all(self, pending: list[_Item]) -> None:
        """Empties a list of functions, together if that can be."""
        if not pending:
            return
        try:
            self._send(pending)
            pending.clear()
        except _NO_FAULT:
            raise
        except Exception as error:
            if len(pending) == 1:
                pending.pop().refused = error
                raise
            self._send_each(pending)

    def _send_each(self, pending: list[_Item]) -> None:
        """Empties it one by one, and finds out which functions cannot be sent."""
        first: Exception | None = None
        while pending:
            try:
                self._send(pending[:1])
            except _NO_FAULT:
                raise
            except Exception as error:
                pending[0].refused = error
                first = first or error
            del pending[0]
        if first is not None:
            raise first

    def _refresh(self, item: _Item, stale: bool, settings: list[tuple[int, Any]]) -> None:
        """Tells the workers what code and settings say by now."""
        # Until the workers know, every call tries.
        item.version = -1
        if stale:
            item.is_outdated = True
            item.captures = self._look(item)
        places = self._news([item])
        # A compiled function has what it used in it.
        refreshed = [item.number] if item.is_outdated and _is_compiled(item) else []
        if places or settings or refreshed:
            self._dispatch([item], [], places, settings, refreshed)
        for number in refreshed:
            self._member.functions[number] = Evaluator(item.definition)
        item.is_outdated = False
        item.version = self._version

    def _send(self, items: list[_Item]) -> None:
        for item in items:
            if item.captures is not None:
                # The master may have run it alone, or tried to send it.
                self.renew(item.number)
            item.captures = self._look(item)
        functions = [(item.number, item.definition) for item in items]
        self._dispatch(items, functions, self._news(items), self._settings.changes(), [])
        for item in items:
            item.version = self._version

    def _look(self, item: _Item) -> Captures:
        registry = self._member.variables
        return Captures(
            getattr(item.definition.body, "callable", None),
            lambda thing: registry.number_of(thing) is not None or is_found(thing),
        )

    def _news(self, items: list[_Item]) -> list[tuple[Place, Any]]:
        """What workers would find otherwise than the master does."""
        found: dict[tuple[int, Any], tuple[Place, Any]] = {}
        for item in items:
            assert item.captures is not None
            for place, value in zip(item.captures.places, item.captures.values, strict=True):
                key = _key(place)
                told = self._told.get(key)
                if key not in self._kept and (told is None or not same(value, told[1])):
                    found[key] = (place, value)
        return list(found.values())

    def _dispatch(
        self,
        items: list[_Item],
        functions: list[tuple[int, Definition]],
        places: list[tuple[Place, Any]],
        settings: list[tuple[int, Any]],
        refreshed: list[int],
    ) -> None:
        registry = self._member.variables
        along = [one for item in items for one in item.along()]
        settings = [one for one in settings if one[0] in self._sent]
        before = len(registry.objects)
        while True:
            try:
                packed, met = pack(
                    functions, places, along, settings, refreshed, registry, self._spaces, self._sent
                )
                break
            except BaseException as error:
                registry.forget(before)
                if len(items) != 1 or isinstance(error, Unsupported) or not isinstance(error, Exception):
                    raise
                places = self._without_culprits(items[0], places, error)
        if places:
            self._version += 1
        for place, _ in places:
            # Should this fail, some workers may have the new value, and others the old one.
            self._told.pop(_key(place), None)
        self._tell(Distribute(self._member, packed), ("distribute", packed))
        self._sent.update(met)
        for place, value in places:
            self._told[_key(place)] = (place, value)
        self._settings.told(registry)

    def _without_culprits(
        self, item: _Item, places: list[tuple[Place, Any]], error: Exception
    ) -> list[tuple[Place, Any]]:
        """What is left without values that cannot be sent and that workers have of their own.

        A worker that imports a module has that module's locks and files itself. But a shared variable that
        lies in such a value would be another one there, and what a script has no worker can import.
        """
        name = item.definition.name
        reasons = [check(value, self._member.variables, self._spaces, self._sent) for _, value in places]
        culprits = [(*pair, why) for pair, why in zip(places, reasons, strict=True) if why is not None]
        if not culprits:
            raise TypeError(
                f"function {name!r} cannot be sent to workers: {error}; make it of a plain function"
            ) from error
        for place, value, why in culprits:
            if not isinstance(place, Field) and (
                not _is_imported(place, self._spaces) or self._reaches(value)
            ):
                place, value, why = _innermost(culprits)
                raise TypeError(
                    f"function {name!r} uses {place.name!r} ({_kind(value)}), which cannot be sent to "
                    f"workers: {why}; make it inside the function, or pass what is needed of it as an input"
                ) from why
        self._kept.update((_key(place), place) for place, _, _ in culprits)
        return [pair for pair, why in zip(places, reasons, strict=True) if why is None]

    def _reaches(self, value: Any) -> bool:
        """Whether a shared variable lies somewhere in a value."""
        registry = self._member.variables
        seen: dict[int, Any] = {}
        stack = [value]
        while stack and len(seen) < _FAR:
            one = stack.pop()
            if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType)):
                continue
            seen[id(one)] = one
            if registry.number_of(one) is not None or is_found(one):
                return True
            stack += gc.get_referents(one)
        return False


def _is_compiled(item: _Item) -> bool:
    return getattr(item.definition.body, "framework", "") == "jax"


def _nobody(task: Any, command: tuple[Any, ...]) -> Any:
    raise Inactive(task.operation)


def _key(place: Place) -> tuple[int, Any]:
    if isinstance(place, Name):
        return id(place.space), place.name
    if isinstance(place, Cell):
        return id(place.function), place.at
    return id(place.owner), place.name


def _is_imported(place: Place, spaces: Spaces) -> bool:
    """Whether workers have something at this place by importing a module."""
    if isinstance(place, Name):
        return spaces.is_module(place.space)
    return isinstance(place, Cell) and "<" not in place.function.__qualname__


def _innermost(culprits: list[tuple[Place, Any, Exception]]) -> tuple[Place, Any, Exception]:
    """A value rather than the helper function that uses it."""
    values = [
        one
        for one in culprits
        if not isinstance(one[1], (FunctionType, type)) and contents_of(one[1]) is None
    ]
    return values[0] if values else culprits[0]


def _kind(value: Any) -> str:
    return "nothing" if value is Gone else type(value).__name__
