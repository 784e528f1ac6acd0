"""Keeps the workers' copies of functions up to date.

A function is sent before its first call, and again before a call when something that it captures has changed.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from unisono.errors import PeerLost, Timeout, Unsupported
from unisono.functions.captures import Captures, Unsendable
from unisono.functions.errors import Inactive, Interrupted
from unisono.functions.evaluator import Definition, Evaluator
from unisono.functions.member import Member
from unisono.functions.pickling import Distribute, SendEncoder, digest, pack
from unisono.functions.variables import private_state, state_of

_UNRELATED_ERRORS = (PeerLost, Timeout, Interrupted, Inactive, Unsupported)
"""Errors that are not about the function: it can be sent later, once there are workers."""

_LARGE_BYTES = 1 << 26
"""Captured arrays above this size take milliseconds to compare."""


@dataclass
class _Replica:
    """A function of the master, and whether the workers have it as it is."""

    number: int
    definition: Definition
    shareds: list[Any]
    captures: Captures | None = None
    is_current: bool = False
    is_first_call: bool = True
    """Whether no call has succeeded since it was sent."""
    has_warned_of_change: bool = False
    has_warned_of_size: bool = False

    def change(self) -> str | None:
        """What has changed since it was sent, or None."""
        return self.captures.snapshot.change() if self.captures is not None else None

    @property
    def is_compiled(self) -> bool:
        """Whether its evaluator contains the captured values."""
        return getattr(self.definition.body, "framework", "") == "jax"


class Replication:
    """The functions of the master, and what the workers have of them."""

    def __init__(self, member: Member, send_command: Callable[[Any, tuple[Any, ...]], Any]) -> None:
        self._member, self._send_command = member, send_command
        self._replicas: list[_Replica] = []
        self._pending: list[_Replica] = []
        self._sent: set[int] = set()
        self._namespaces: dict[int, tuple[int, dict[str, Any]]] = {}
        self._private_states: dict[int, Any] = {}

    def add(self, definition: Definition, evaluator: Evaluator, shareds: list[Any]) -> int:
        """Registers a new function; workers receive it before they need it."""
        number = len(self._replicas)
        self._member.functions[number] = evaluator
        self._replicas.append(_Replica(number, definition, shareds))
        self._pending.append(self._replicas[-1])
        return number

    def has(self, number: int) -> bool:
        """Whether the workers have a shared object."""
        return number in self._sent

    def check(self, number: int) -> None:
        """Makes sure that the workers run a function as the master would; every call does this first."""
        if self._pending:
            try:
                self.distribute()
            except _UNRELATED_ERRORS:
                raise
            except Exception:
                # A function that cannot be sent reports it in its own calls.
                pass
        replica = self._replicas[number]
        if not replica.is_current or replica.change() is not None:
            self._send([replica])

    def after_call(self, number: int) -> None:
        """Warns of a function that changes what it captures, after the first call of what was sent."""
        replica = self._replicas[number]
        if not replica.is_first_call:
            return
        replica.is_first_call = False
        if replica.has_warned_of_change:
            return
        change = replica.change()
        if change is not None:
            replica.has_warned_of_change = True
            warnings.warn(
                f"function {replica.definition.name!r} changed {change!r} in a call. Every call starts from "
                "the master's values, and sends them when they have changed: what workers change there is "
                "lost. Return it as an output, or keep it in a shared variable",
                stacklevel=3,
            )

    def prepare_alone(self, number: int) -> None:
        """Compiles a function again that the master runs alone, if what it captures has changed."""
        replica = self._replicas[number]
        if not replica.is_compiled or (replica.captures is not None and replica.change() is None):
            return
        if replica.captures is not None:
            self._member.functions[number] = Evaluator(replica.definition)
        replica.is_current = False
        try:
            replica.captures = self._walk(replica)
        except Unsendable:
            # The master need not send it.
            replica.captures = Captures(self._roots(replica), self._member.variables)

    def refresh(self, number: int) -> None:
        """Sends a function again before its next call, with the state of its optimizers."""
        replica = self._replicas[number]
        replica.is_current = False
        for thing in replica.captures.shared.values() if replica.captures is not None else ():
            self._private_states.pop(id(thing), None)

    def update(self, variables: list[Any]) -> None:
        """Sends what workers need before variables move: the variables, and changes of their types."""
        self.distribute()
        wanted, failures = {id(one) for one in variables}, list[Exception]()
        for replica in self._replicas:
            is_user = replica.captures is not None and not wanted.isdisjoint(replica.captures.shared)
            if not is_user and self._has_all(variables):
                continue
            try:
                self.check(replica.number)
            except _UNRELATED_ERRORS:
                raise
            except Exception as error:
                # Another function may use the variables.
                failures.append(error)
        if failures and not self._has_all(variables):
            raise failures[0]

    def _has_all(self, variables: list[Any]) -> bool:
        return all(self._member.variables.number_of(one) in self._sent for one in variables)

    def end(self) -> None:
        """Releases everything that functions capture: there are no workers left."""
        self._send_command = _no_workers
        self._namespaces.clear()
        self._private_states.clear()
        for replica in self._replicas:
            replica.captures, replica.is_current = None, False

    def distribute(self) -> None:
        """Sends the workers new functions. One that cannot be sent does not block the others."""
        pending, self._pending = self._pending, []
        first: Exception | None = None
        try:
            if len(pending) > 1:
                try:
                    self._send(pending)
                    pending = []
                except _UNRELATED_ERRORS:
                    raise
                except Exception:
                    # Sent one by one, each function reports its own error.
                    pass
            while pending:
                try:
                    self._send(pending[:1])
                except _UNRELATED_ERRORS:
                    raise
                except Exception as error:
                    first = first or error
                del pending[0]
        finally:
            # The remaining functions, after an interrupt too, were neither sent nor rejected.
            self._pending[:0] = pending
        if first is not None:
            raise first

    def _roots(self, replica: _Replica) -> list[Any]:
        return [getattr(replica.definition.body, "callable", None), *replica.shareds]

    def _walk(self, replica: _Replica) -> Captures:
        registry = self._member.variables
        return Captures(self._roots(replica), registry, functools.partial(digest, registry))

    def _send(self, replicas: list[_Replica]) -> None:
        registry = self._member.variables
        before = registry.count
        try:
            for replica in replicas:
                replica.captures = self._capture(replica)
            packed, included = self._pack(replicas)
        except BaseException:
            registry.forget(before)
            for replica in replicas:
                replica.is_current = False
            raise
        current = [one for one in self._replicas if one.is_current and one not in replicas]
        for replica in self._replicas:
            # If this fails, workers have some of the new values.
            replica.is_current = False
        self._send_command(Distribute(self._member, packed), ("distribute", packed))
        self._sent.update(included)
        for replica in replicas:
            assert replica.captures is not None
            for thing in replica.captures.shared.values():
                self._private_states[id(thing)] = private_state(thing)
            if replica.is_compiled:
                self._member.functions[replica.number] = Evaluator(replica.definition)
            replica.is_current = replica.is_first_call = True
        for replica in current:
            # Functions share namespaces, classes and modules: this message may have changed theirs.
            replica.is_current = replica.change() is None

    def _capture(self, replica: _Replica) -> Captures:
        try:
            captures = self._walk(replica)
        except Unsendable as error:
            what = f" uses {error.title!r} ({type(error.value).__name__}), which"
            raise _rejection(replica, what, error.why) from error.why
        if captures.array_bytes > _LARGE_BYTES and not replica.has_warned_of_size:
            replica.has_warned_of_size = True
            warnings.warn(
                f"function {replica.definition.name!r} captures arrays of {captures.array_bytes >> 20} MiB, "
                "and every call compares them; pass them as inputs, keep them in shared variables, or make "
                "them read-only with setflags(write=False)",
                stacklevel=6,
            )
        return captures

    def _pack(self, replicas: list[_Replica]) -> tuple[bytes, set[int]]:
        registry = self._member.variables
        captured = [one.captures for one in replicas if one.captures is not None]
        imported, names = dict[int, tuple[str, str]](), dict[int, dict[str, None]]()
        shared, classes, modules = dict[int, Any](), dict[int, type](), dict[str, None]()
        for one in captured:
            imported.update(one.imported)
            shared.update(one.shared)
            classes.update((id(kind), kind) for kind in one.classes)
            modules.update(one.library_modules)
            for space, used in one.module_names.items():
                names.setdefault(space, {}).update(used)
        encoder = SendEncoder(registry, self._sent, imported, names, self._namespaces)
        states = []
        for thing in shared.values():
            if registry.number_of(thing) in self._sent:
                state = state_of(thing, self._private_states.get(id(thing)))
                states += [(thing, state)] if state is not None else []
        functions = [(one.number, one.definition) for one in replicas]
        listed = [thing for one in replicas for thing in one.shareds]
        try:
            packed = pack(functions, listed, states, [*classes.values()], [*modules], registry, encoder)
        except (Unsupported, KeyboardInterrupt):
            raise
        except Exception as error:
            if len(replicas) > 1:
                raise
            raise _rejection(replicas[0], "", error) from error
        return packed, encoder.included


def _rejection(replica: _Replica, what: str, why: Exception) -> TypeError:
    return TypeError(
        f"function {replica.definition.name!r}{what} cannot be sent to workers: {why}; make it inside the "
        "function, or pass what is needed of it as an input"
    )


def _no_workers(task: Any, command: tuple[Any, ...]) -> Any:
    raise Inactive(task.operation)
