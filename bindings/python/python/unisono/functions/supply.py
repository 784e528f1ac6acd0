"""Tracks what workers have and need: functions, and the state that their code uses besides its inputs."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from unisono.errors import PeerLost, Timeout, Unsupported
from unisono.functions.captures import Captures, accept
from unisono.functions.distribution import Change, Distribute, check, pack
from unisono.functions.errors import Inactive, Interrupted
from unisono.functions.evaluate import Definition, Evaluator
from unisono.functions.member import Member
from unisono.functions.places import REDUCED, Function, Names, Object, Place
from unisono.functions.spaces import Missing, Spaces
from unisono.functions.variables import Settings
from unisono.functions.wrappers import contents_of

_UNRELATED_ERRORS = (PeerLost, Timeout, Interrupted, Inactive, Unsupported)
"""Errors unrelated to the contents, which can be sent later if there are workers then."""

_COLLECT_THRESHOLD = 1000
"""Number of watched objects above which unused ones are collected."""

_MAX_SEARCHED = 100_000
"""Maximum number of objects searched for a shared variable."""


@dataclass
class _Item:
    """A function of the master."""

    number: int
    definition: Definition
    shareds: list[Any]
    captures: Captures | None = None
    version: int = -1
    is_outdated: bool = False
    """Whether the function was compiled with values that have changed since."""
    send_error: Exception | None = None

    def dependencies(self) -> list[Any]:
        """Objects sent with it: shared objects that it lists, modules that its code references by name."""
        modules = self.captures.modules if self.captures is not None else {}
        return [*self.shareds, *modules.values()]


class _Unknown:
    """Marks a value that some workers may not have."""


class Supply:
    """Keeps the workers supplied with functions, and with the master's values that their code uses."""

    def __init__(self, member: Member, send_command: Callable[[Any, tuple[Any, ...]], Any]) -> None:
        self._member, self._send_command = member, send_command
        self._items: list[_Item] = []
        self._pending: list[_Item] = []
        self._sent: set[int] = set()
        self._spaces = Spaces()
        self._known: dict[tuple[str, int], dict[Any, Any]] = {}
        """For each place that workers have, the master's values when they were last sent."""
        self._watched: set[int] = set()
        """The numbers of objects that are registered only because they may change."""
        self._collect_threshold = _COLLECT_THRESHOLD
        self._version = 0
        self._sent_at: dict[tuple[str, int], int] = {}
        """The version in which a place was last sent."""
        self._settings = Settings()

    def add(self, definition: Definition, evaluator: Evaluator, shareds: list[Any]) -> int:
        """Registers a new function; workers receive it before they need it."""
        number = len(self._items)
        self._member.functions[number] = evaluator
        item = _Item(number, definition, shareds)
        self._items.append(item)
        self._pending.append(item)
        return number

    def has(self, number: int) -> bool:
        """Whether the workers have a shared object."""
        return number in self._sent

    def check(self, number: int) -> Captures:
        """Ensures that the workers can run a function as the master would, and returns its captures.

        Every call does this: it compares the values that the function uses with the recorded ones, and sends
        changes.
        """
        if self._pending:
            self.distribute()
        item = self._items[number]
        if item.send_error is not None:
            self._retry(item)
        captures = item.captures
        assert captures is not None
        changed = captures.changed()
        settings = self._settings.changes() if captures.shared else []
        if changed or settings or item.version != self._version:
            captures = self._refresh(item, changed, settings)
        return captures

    @contextmanager
    def alone(self, number: int) -> Iterator[None]:
        """Runs a function on the master alone, rebuilt if it was compiled with values that have changed."""
        item = self._items[number]
        captures = item.captures = item.captures or self._capture(item)
        has_changed = bool(captures.changed())
        if _is_compiled(item) and (item.is_outdated or has_changed):
            self._member.functions[number] = Evaluator(item.definition)
        try:
            yield
        finally:
            if not has_changed and item.version == self._version:
                self.settle(captures)

    def settle(self, captures: Captures) -> None:
        """Accepts the changes that a function made in a call that just ended: they stay worker-local."""
        captures.accept_own(self._record)

    def _record(self, place: Place, keys: list[Any], now: dict[Any, Any]) -> None:
        if place.key in self._known:
            accept(self._known[place.key], keys, now)

    def update(self, variables: list[Any]) -> None:
        """Sends what workers need before variables move: these variables, and the types of all variables."""
        self.distribute()
        number_of, failures = self._member.variables.number_of, list[Exception]()
        for item in self._items:
            if all(number_of(one) in self._sent for one in variables):
                break
            try:
                self.check(item.number)
            except _UNRELATED_ERRORS:
                raise
            except Exception as error:
                # Another function may use the variables.
                failures.append(error)
        else:
            if failures and any(number_of(one) not in self._sent for one in variables):
                raise failures[0]
        settings = self._settings.changes()
        if settings:
            self._dispatch([], [], [], settings, [])

    def end(self) -> None:
        """Releases everything that functions use: there are no workers left."""
        self._known.clear()
        self._spaces, self._send_command = Spaces(), _no_workers
        for item in self._items:
            item.captures = None

    def _retry(self, item: _Item) -> None:
        """Retries a function that could not be sent, if the values that it uses have changed."""
        assert item.send_error is not None
        if item.captures is None or not item.captures.changed():
            raise item.send_error
        item.send_error = None
        self._pending.append(item)
        self.distribute()

    def distribute(self) -> None:
        """Sends the workers what they lack. A function that cannot be sent does not block the others."""
        pending, self._pending = self._pending, []
        try:
            self._send_all(pending)
        finally:
            # The remaining functions, after an interrupt too, were neither sent nor rejected.
            self._pending[:0] = pending

    def _send_all(self, pending: list[_Item]) -> None:
        """Sends and removes the functions in a list, together if possible."""
        if not pending:
            return
        try:
            self._send(pending)
            pending.clear()
        except _UNRELATED_ERRORS:
            raise
        except Exception as error:
            if len(pending) == 1:
                pending.pop().send_error = error
                raise
            self._send_each(pending)

    def _send_each(self, pending: list[_Item]) -> None:
        """Sends and removes the functions one by one, to find those that cannot be sent."""
        first: Exception | None = None
        while pending:
            try:
                self._send(pending[:1])
            except _UNRELATED_ERRORS:
                raise
            except Exception as error:
                pending[0].send_error = error
                first = first or error
            del pending[0]
        if first is not None:
            raise first

    def _refresh(self, item: _Item, changed: list[int], settings: list[tuple[int, Any]]) -> Captures:
        """Sends the workers the current values that the code uses, and settings."""
        captures, version = item.captures, item.version
        assert captures is not None
        # Until the workers have the values, every call retries.
        item.version = -1
        item.is_outdated = item.is_outdated or bool(changed)
        places: list[int] | None = None
        if version < 0 or (changed and not captures.take(changed)):
            captures = item.captures = self._capture(item)
        else:
            every = enumerate(captures.places)
            places = [*changed, *(at for at, one in every if self._sent_at.get(one.key, 0) > version)]
        changes = self._changes([item], places)
        # A compiled function contains the values that it used.
        refreshed = [item.number] if item.is_outdated and _is_compiled(item) else []
        if changes or settings or refreshed:
            self._dispatch([item], [], changes, settings, refreshed, places)
        else:
            self._note_known(item, {}, places)
        for number in refreshed:
            self._member.functions[number] = Evaluator(item.definition)
        item.is_outdated = False
        item.version = self._version
        return captures

    def _send(self, items: list[_Item]) -> None:
        for item in items:
            if item.captures is not None and _is_compiled(item) and item.captures.changed():
                # The master may have run it alone, or tried to send it.
                self._member.functions[item.number] = Evaluator(item.definition)
            item.captures = self._capture(item)
        functions = [(item.number, item.definition) for item in items]
        self._dispatch(items, functions, self._changes(items), self._settings.changes(), [])
        for item in items:
            item.version = self._version

    def _capture(self, item: _Item) -> Captures:
        registry = self._member.variables
        body = getattr(item.definition.body, "callable", None)
        captures = Captures([body, *item.shareds], registry.is_shared)
        for one in captures.shared:
            # A module may have received other parameters.
            registry.note_own(one)
        return captures

    def _changes(self, items: list[_Item], places: list[int] | None = None) -> list[Change]:
        """The values that differ on the workers, at all places or at some places of a single function."""
        registry, found = self._member.variables, dict[tuple[Any, int], list[Change]]()
        for item in items:
            assert item.captures is not None
            for at in range(len(item.captures.places)) if places is None else dict.fromkeys(places):
                place, values = item.captures.places[at], item.captures.values[at]
                known = self._known.get(place.key)
                is_initial = known is None and registry.number_of(place.owner) not in self._sent
                if is_initial:
                    changed = [(place.kind, key, value) for key, value in place.initial(values).items()]
                else:
                    changed = self._difference(item, place, known or {}, values)
                key = place.key if not isinstance(place, Names) else (item.number, id(place))
                found[key] = [Change(place, *one, is_initial) for one in changed]
        return [change for changes in found.values() for change in changes]

    def _difference(
        self, item: _Item, place: Place, known: dict[Any, Any], values: dict[Any, Any]
    ) -> list[tuple[str, Any, Any]]:
        try:
            return place.difference(known, values)
        except TypeError as error:
            raise TypeError(f"function {item.definition.name!r} uses {error}") from error

    def _dispatch(
        self,
        items: list[_Item],
        functions: list[tuple[int, Definition]],
        changes: list[Change],
        settings: list[tuple[int, Any]],
        refreshed: list[int],
        at: list[int] | None = None,
    ) -> None:
        """Sends functions and changes. `at` lists the places of a function that differ on the workers."""
        registry = self._member.variables
        dependencies = [one for item in items for one in item.dependencies()]
        settings = [one for one in settings if one[0] in self._sent]
        places = [place for item in items if item.captures and at is None for place in item.captures.places]
        owners = dict.fromkeys((id(place.owner) for place in places), False)
        owners.update((id(one.owner), True) for one in places if isinstance(one, Object) and not one.is_plain)
        dropped = self._unused()
        before = registry.count
        while True:
            try:
                packed, included, reductions = pack(
                    functions,
                    changes,
                    dependencies,
                    settings,
                    refreshed,
                    dropped,
                    owners,
                    registry,
                    self._spaces,
                    self._sent,
                )
                break
            except BaseException as error:
                registry.forget(before)
                if len(items) != 1 or isinstance(error, Unsupported) or not isinstance(error, Exception):
                    raise
                changes = self._without_unsendable(items[0], changes, error)
        if changes:
            self._version += 1
        for change in changes:
            self._sent_at[change.place.key] = self._version
            # If this fails, some workers may have the new value, and others the old one.
            known = self._known.setdefault(change.place.key, {})
            every = [key for key in {**known, **change.place.read()} if key is not REDUCED]
            known.update(dict.fromkeys(every if change.key is None else [change.key], _Unknown))
        self._send_command(Distribute(self._member, packed), ("distribute", packed))
        self._sent.update(included)
        self._watched.update(one for one in included if one >= before and id(registry.objects[one]) in owners)
        if dropped:
            self._drop(dropped)
        for item in items:
            self._note_known(item, reductions, at)
        self._settings.told(registry)

    def _note_known(self, item: _Item, reductions: dict[int, Any], at: list[int] | None) -> None:
        """Records what the workers have. Values that a call created and that were not sent stay local."""
        captures, registry = item.captures, self._member.variables
        assert captures is not None
        if at is None:
            captures.keep(
                lambda place: isinstance(place, Names) or registry.number_of(place.owner) in self._sent
            )
        for number in range(len(captures.places)) if at is None else at:
            place, values = captures.places[number], captures.values[number]
            if isinstance(place, Names):
                self._known.setdefault(place.key, {}).update(values)
            else:
                known = self._known.get(place.key, {})
                reduced = reductions.get(id(place.owner), known.get(REDUCED, Missing))
                self._known[place.key] = dict(values) if reduced is Missing else {**values, REDUCED: reduced}

    def _unused(self) -> list[int]:
        """The numbers of objects that no function uses any more, once many objects are watched."""
        if len(self._watched) < self._collect_threshold:
            return []
        captured = [item.captures for item in self._items if item.captures is not None]
        used = {id(place.owner) for captures in captured for place in captures.places}
        unused = [one for one in self._watched if id(self._member.variables.objects[one]) not in used]
        self._collect_threshold = 2 * (len(self._watched) - len(unused)) + _COLLECT_THRESHOLD
        return unused

    def _drop(self, numbers: list[int]) -> None:
        registry = self._member.variables
        removed = {id(registry.objects[number]) for number in numbers}
        self._known = {key: known for key, known in self._known.items() if key[1] not in removed}
        registry.drop(numbers)
        self._sent.difference_update(numbers)
        self._watched.difference_update(numbers)

    def _without_unsendable(self, item: _Item, changes: list[Change], error: Exception) -> list[Change]:
        """Removes changes whose values cannot be sent and that workers have locally.

        A worker that imports a module has that module's locks and files itself. But a shared variable inside
        such a value would be a separate variable there, and no worker can import the values of a script.
        """
        reasons = [self._check(change.value) for change in changes]
        failed = [(one, why) for one, why in zip(changes, reasons, strict=True) if why is not None]
        for change, why in failed:
            if not self._is_imported(change) or self._contains_shared(change.value):
                found = [(one.place.title(one.key), one.value, reason) for one, reason in failed]
                raise _unsendable_error(item, _innermost(found)) from why
        if failed:
            return [one for one, why in zip(changes, reasons, strict=True) if why is None]
        found = [*self._unsendable(item)]
        if found:
            raise _unsendable_error(item, _innermost(found)) from error
        raise TypeError(
            f"function {item.definition.name!r} cannot be sent to workers: {error}; "
            "make it of a plain function"
        ) from error

    def _check(self, value: Any) -> Exception | None:
        return check(value, self._member.variables, self._spaces, self._sent)

    def _is_imported(self, change: Change) -> bool:
        """Whether workers have a value there by importing a module."""
        is_script = isinstance(change.place, Names) and not self._spaces.is_module(change.place.owner)
        return change.is_initial and not is_script

    def _unsendable(self, item: _Item) -> Iterator[tuple[str, Any, Exception]]:
        """Global names and closure variables that cannot be sent."""
        assert item.captures is not None
        for place, values in zip(item.captures.places, item.captures.values, strict=True):
            for key, value in values.items():
                if isinstance(place, Names) or (isinstance(place, Function) and isinstance(key, int)):
                    why = self._check(value)
                    if why is not None:
                        yield place.title(key), value, why

    def _contains_shared(self, value: Any) -> bool:
        """Whether a value contains a shared variable at any depth."""
        registry = self._member.variables
        seen: dict[int, Any] = {}
        stack = [value]
        while stack and len(seen) < _MAX_SEARCHED:
            one = stack.pop()
            if id(one) in seen or isinstance(one, (type, ModuleType, FunctionType)):
                continue
            seen[id(one)] = one
            if registry.is_shared(one):
                return True
            stack += gc.get_referents(one)
        return False


def _is_compiled(item: _Item) -> bool:
    return getattr(item.definition.body, "framework", "") == "jax"


def _no_workers(task: Any, command: tuple[Any, ...]) -> Any:
    raise Inactive(task.operation)


def _unsendable_error(item: _Item, failure: tuple[str, Any, Exception]) -> TypeError:
    title, value, why = failure
    kind = "nothing" if value is Missing else type(value).__name__
    return TypeError(
        f"function {item.definition.name!r} uses {title!r} ({kind}), which cannot be sent to workers: {why}; "
        "make it inside the function, or pass what is needed of it as an input"
    )


def _innermost(failed: list[tuple[str, Any, Exception]]) -> tuple[str, Any, Exception]:
    """Prefers a value to the helper function that uses it."""
    values = [
        one for one in failed if not isinstance(one[1], (FunctionType, type)) and contents_of(one[1]) is None
    ]
    return values[0] if values else failed[0]
