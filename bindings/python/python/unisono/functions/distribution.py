"""Sending functions to the workers by value; a variable that several functions use stays one variable."""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from typing import Any

from unisono.errors import Unsupported
from unisono.functions.evaluate import Definition, Evaluator
from unisono.functions.member import Member
from unisono.functions.variables import Registry, kinds

_DEEP = 50_000
"""Graphs are pickled by recursion."""


def pack(functions: list[tuple[int, Definition]], registry: Registry, sent: set[int]) -> bytes:
    """Writes functions down, with the shared objects in them that the workers do not have yet.

    Args:
        functions: The functions and their numbers.
        registry: The master's shared objects; those that are found on the way are noted there.
        sent: The numbers of the objects that the workers have.

    Returns:
        What `unpack` reads.
    """
    cloudpickle = _cloudpickle()
    found = tuple(kind.is_found for kind in kinds())

    class Courier(cloudpickle.Pickler):  # type: ignore[misc, name-defined]
        def persistent_id(self, thing: Any) -> int | None:
            number = registry.number_of(thing)
            if number is not None:
                return number if number in sent else None
            if any(is_found(thing) for is_found in found):
                registry.note(thing)
            return None

    stream = io.BytesIO()
    courier = Courier(stream, 5)
    with _Deeper():
        courier.dump(functions)
        # The second part remembers the first: what was met there is the same object here.
        courier.dump([(number, thing) for number, thing in registry.objects.items() if number not in sent])
    return stream.getvalue()


class _Arrival(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, registry: Registry) -> None:
        super().__init__(stream)
        self._registry = registry

    def persistent_load(self, number: Any) -> Any:
        return self._registry.objects[number]


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
        arrival = _Arrival(io.BytesIO(self._packed), member.variables)
        with _Deeper():
            functions = arrival.load()
            for number, thing in arrival.load():
                member.variables.adopt(number, thing)
        made = {number: Evaluator(definition) for number, definition in functions}
        member.functions.update(made)

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
