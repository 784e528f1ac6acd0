"""Sends functions to the workers by value, with everything that they capture.

A shared object is sent once; after that, messages refer to it by its number, so that all functions use one
copy of it. The globals of a module are one dictionary on each worker too.
"""

from __future__ import annotations

import functools
import importlib
import io
import pickle
import sys
from types import CellType, FunctionType, ModuleType
from typing import Any

from unisono.functions import function_state, functools_wrappers
from unisono.functions.evaluator import Definition, Evaluator
from unisono.functions.function_state import assign
from unisono.functions.member import Member
from unisono.functions.snapshot import is_atom
from unisono.functions.user_code import (
    cloudpickle_module,
    is_sent_by_value,
    is_user_module,
    is_user_namespace,
    sent_by_value,
)
from unisono.functions.variables import Registry, apply_state, is_found

_RECURSION_LIMIT = 50_000
"""Recursion limit while pickling: graphs are pickled recursively."""
_NAMESPACE_BASE = ("__name__", "__package__", "__file__", "__path__")


class Encoder:
    """Decides how the pickler writes shared objects, namespaces and modules; this one only inspects."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.namespaces: dict[int, dict[str, Any]] = {}
        self.found: list[Any] = []
        """Functions, classes and shared objects of the user in what was pickled."""
        self.imported: dict[int, tuple[str, str]] = {}
        self.module_names: dict[int, dict[str, None]] = {}

    def reference(self, thing: Any) -> Any:
        """The persistent id of an object that is not pickled, or None."""
        if is_atom(thing):
            return None
        if self._registry.is_shared(thing):
            self.found.append(thing)
            return "shared", id(thing)
        return ("namespace", id(thing)) if id(thing) in self.namespaces else None


class SendEncoder(Encoder):
    """Writes a message to the workers.

    Args:
        registry: The master's shared objects; those encountered are registered there.
        sent: The numbers of the objects that the workers have.
        imported: What each worker takes from its own import, by id.
        module_names: The names to send of each of the user's modules, by the id of the module's namespace.
        keys: The numbers of namespaces, by id; new ones are added.
    """

    def __init__(
        self,
        registry: Registry,
        sent: set[int],
        imported: dict[int, tuple[str, str]],
        module_names: dict[int, dict[str, None]],
        keys: dict[int, tuple[int, dict[str, Any]]],
    ) -> None:
        super().__init__(registry)
        self._sent, self._keys = sent, keys
        self.imported, self.module_names = imported, module_names
        self.included: set[int] = set()
        """The numbers of shared objects that the message contains."""

    def reference(self, thing: Any) -> Any:
        """The persistent id of an object that workers have, or of a namespace."""
        if is_atom(thing):
            return None
        number = self._registry.number_of(thing)
        if number is None and is_found(thing):
            self._registry.note(thing)
            number = self._registry.number_of(thing)
        if number is not None:
            if number in self._sent:
                return number
            self.included.add(number)
            return None
        return self._namespace(thing) if id(thing) in self.namespaces else None

    def _namespace(self, namespace: dict[str, Any]) -> tuple[int, dict[str, Any], str | None]:
        """The number of a namespace, its first contents, and its module if workers import that."""
        # The namespace is kept, so that its id stays its own.
        number, _ = self._keys.setdefault(id(namespace), (len(self._keys), namespace))
        base = {name: namespace[name] for name in _NAMESPACE_BASE if name in namespace}
        is_imported = id(namespace) in self.module_names or not is_user_namespace(namespace)
        return number, base, namespace.get("__name__") if is_imported else None


def pickler(stream: io.BytesIO, encoder: Encoder) -> Any:
    """A pickler that sends the user's code by value."""
    return _pickler_class(cloudpickle_module())(stream, encoder)


@functools.cache
def _pickler_class(cloudpickle: Any) -> Any:
    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
        def __init__(self, stream: io.BytesIO, encoder: Encoder) -> None:
            super().__init__(stream, 5)
            self._encoder = encoder
            self.persistent_id = encoder.reference

        def reducer_override(self, thing: Any) -> Any:
            encoder = self._encoder
            if id(thing) in encoder.imported:
                return _import_attribute, encoder.imported[id(thing)]
            wrapper = functools_wrappers.reduced(thing)
            if wrapper is not None:
                return wrapper
            if isinstance(thing, FunctionType) and is_sent_by_value(thing):
                encoder.found.append(thing)
                encoder.namespaces[id(thing.__globals__)] = thing.__globals__
                return function_state.reduced(thing)
            if isinstance(thing, CellType):
                return function_state.reduced_cell(thing)
            if isinstance(thing, ModuleType) and is_user_module(thing.__name__):
                space = vars(thing)
                names = {name: space[name] for name in encoder.module_names.get(id(space), ())}
                return importlib.import_module, (thing.__name__,), names, None, None, _set_names
            if isinstance(thing, type) and is_user_module(thing.__module__):
                encoder.found.append(thing)
                with sent_by_value(thing.__module__):
                    return super().reducer_override(thing)
            return super().reducer_override(thing)

    return Pickler


def digest(registry: Registry, thing: Any) -> tuple[int, list[Any]]:
    """Pickles an object: a hash of the result, and the user's functions, classes and shared objects in it."""
    encoder, stream = Encoder(registry), io.BytesIO()
    with _RecursionLimit():
        pickler(stream, encoder).dump(thing)
    return hash(stream.getvalue()), encoder.found


def pack(
    functions: list[tuple[int, Definition]],
    shareds: list[Any],
    states: list[tuple[Any, Any]],
    classes: list[type],
    modules: list[str],
    registry: Registry,
    encoder: SendEncoder,
) -> bytes:
    """Pickles functions, and the shared objects in them that the workers do not have yet.

    Args:
        functions: The functions and their numbers.
        shareds: Shared objects that the functions list, even if their code does not use them.
        states: Shared objects that workers have, and their state besides the values of variables.
        classes: The user's classes in them.
        modules: Submodules of libraries that the functions use.
        registry: The master's shared objects.
        encoder: Writes references.

    Returns:
        The bytes that `Distribute` reads.
    """
    stream = io.BytesIO()
    made = pickler(stream, encoder)
    described = [(one, one.__bases__, [*vars(one)]) for one in classes]
    with _RecursionLimit():
        made.dump((modules, functions, states, described, shareds))
        # The same pickler writes the second part: objects of the first part keep their identity here.
        made.dump([(number, registry.objects[number]) for number in sorted(encoder.included)])
    return stream.getvalue()


def _set_names(module: ModuleType, names: dict[str, Any]) -> None:
    assign(vars(module), names)


def _import_attribute(module: str, path: str) -> Any:
    found: Any = importlib.import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: io.BytesIO, member: Member) -> None:
        super().__init__(stream)
        self._objects, self._namespaces = member.variables.objects, member.namespaces

    def persistent_load(self, reference: Any) -> Any:
        if not isinstance(reference, tuple):
            return self._objects[reference]
        number, base, module = reference
        if module is not None:
            # Code that uses the module itself must see the same names.
            self._namespaces[number] = vars(importlib.import_module(module))
        return self._namespaces.setdefault(number, base)


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
            modules, functions, states, classes, _ = unpickler.load()
            objects = unpickler.load()
        for name in modules:
            importlib.import_module(name)
        for number, thing in objects:
            member.variables.adopt(number, thing)
        for kind, bases, names in classes:
            _complete(kind, bases, names)
        for thing, state in states:
            apply_state(thing, state)
        member.functions.update({number: Evaluator(definition) for number, definition in functions})

    def problem(self, published: list[Any]) -> Exception | None:
        """Always None: each rank works on its own."""
        return None

    def finish(self, published: list[Any]) -> None:
        """Does nothing."""


def _complete(kind: type, bases: tuple[type, ...], names: list[str]) -> None:
    """Removes what the master has removed from a class: cloudpickle only assigns."""
    if kind.__bases__ != bases:
        kind.__bases__ = bases
    for name in set(vars(kind)).difference(names):
        if not (name.startswith("__") and name.endswith("__")) and name != "_abc_impl":
            delattr(kind, name)


class _RecursionLimit:
    """Raises the recursion limit temporarily."""

    def __enter__(self) -> None:
        self._limit = sys.getrecursionlimit()
        sys.setrecursionlimit(max(self._limit, _RECURSION_LIMIT))

    def __exit__(self, *_: object) -> None:
        sys.setrecursionlimit(self._limit)
