"""What a function captures: globals, closure variables, defaults, objects, classes and helper functions.

The walk follows what pickle would send, and records where each value is stored, so that `Snapshot` can
tell before every call whether it has changed.
"""

from __future__ import annotations

import collections
import copyreg
import functools
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable
from operator import attrgetter
from types import (
    BuiltinMethodType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

from unisono.functions.functools_wrappers import contents_of, is_dispatcher
from unisono.functions.snapshot import Snapshot, Sources, array_digest, content, is_atom, is_read_only, slot
from unisono.functions.user_code import (
    global_names,
    is_importable,
    is_module,
    is_sent_by_value,
    is_user_module,
    is_user_namespace,
    names_in,
)
from unisono.functions.variables import Registry, digest_of, watch

_CONTAINERS = (list, tuple, dict, set, frozenset, collections.deque)
_PLAIN_OBJECTS = (Namespace, SimpleNamespace)
"""Library classes whose objects hold only what the user assigns."""
_PICKLING = ("__reduce__", "__reduce_ex__", "__getstate__")
_NOT_SENT = ("__dict__", "__weakref__", "_abc_impl", "__dataclass_fields__", "__dataclass_params__")
"""Attributes that Python and its decorators create in a class."""
_bases, _default_factory = attrgetter("__bases__"), attrgetter("default_factory")
_is_writable = attrgetter("flags.writeable")

Digest = Callable[[Any], tuple[int, list[Any]]]
"""Pickles an object of a library: a digest of the result, and the user's functions and objects in it."""
Origin = tuple[str, str] | None
"""The module and the path at which a worker finds its own value of something that cannot be sent."""


class Unsendable(TypeError):
    """A captured value that cannot be pickled."""

    def __init__(self, title: str, value: Any, why: Exception) -> None:
        super().__init__(title, value, why)
        self.title, self.value, self.why = title, value, why


class Captures:
    """Everything that a function captures.

    Args:
        roots: The function, and the shared objects that it declares.
        registry: The shared objects; those found are registered there.
        digest: Pickles objects of libraries. Without it nothing is pickled: such objects are passed over.
    """

    def __init__(self, roots: Iterable[Any], registry: Registry, digest: Digest | None = None) -> None:
        self._registry, self._digest = registry, digest
        self._seen: dict[int, Any] = {}
        self._sources = Sources()
        self._modules_seen: set[tuple[int, tuple[str, ...]]] = set()
        self.shared: dict[int, Any] = {}
        """The shared objects, by id."""
        self.classes: list[type] = []
        """The user's classes."""
        self.module_names: dict[int, dict[str, None]] = {}
        """The names that code uses of each of the user's modules, by the id of the module's namespace."""
        self.library_modules: dict[str, None] = {}
        """Submodules of libraries that code uses without importing them itself."""
        self.imported: dict[int, tuple[str, str]] = {}
        """What each worker takes from its own import, by id, because it cannot be sent, such as locks."""
        self.names: set[str] = set()
        """All names in the user's code."""
        self.array_bytes = 0
        """The size of the arrays that every call compares."""
        self._worklist: list[tuple[str, Any, Origin]] = [("", root, None) for root in roots]
        while self._worklist:
            self._visit(*self._worklist.pop())
        self._worklist.clear()
        self.snapshot = Snapshot(self._sources)

    def _add(self, title: str, value: Any, origin: Origin = None) -> None:
        self._worklist.append((title, value, origin))

    def _visit(self, title: str, thing: Any, origin: Origin) -> None:
        if id(thing) in self._seen or is_atom(thing):
            return
        self._seen[id(thing)] = thing
        wrapped = contents_of(thing)
        if wrapped is not None:
            for one in wrapped:
                self._add(title, one)
            if is_dispatcher(thing):
                self._sources.mapping(title, thing.registry)
        elif isinstance(thing, FunctionType):
            self._function(thing)
        elif isinstance(thing, type):
            self._class(thing)
        elif isinstance(thing, ModuleType):
            pass
        elif isinstance(thing, _CONTAINERS):
            self._container(thing)
        elif self._registry.is_shared(thing):
            self._shared(thing)
        elif isinstance(thing, MethodType):
            self._add(title, thing.__func__)
            self._add(title, thing.__self__)
        elif isinstance(thing, functools.partial):
            self._add(title, thing.func)
            self._add(title, thing.args)
            for name, value in thing.keywords.items():
                self._add(name, value)
            self._sources.mapping(title, thing.keywords)
        elif isinstance(thing, (BuiltinMethodType, MethodWrapperType)) and _has_owner(thing):
            # As in `get = table.get`: pickle sends the dictionary and the method's name.
            self._add(title, thing.__self__)
        elif isinstance(thing, (staticmethod, classmethod)):
            self._add(title, thing.__func__)
        elif isinstance(thing, property):
            for one in (thing.fget, thing.fset, thing.fdel):
                self._add(title, one)
        elif is_user_module(type(thing).__module__) or isinstance(thing, _PLAIN_OBJECTS):
            self._object(thing)
        elif hasattr(thing, "__wrapped__"):
            # JAX's compiled functions keep the original function in `__wrapped__`.
            self._add(title, thing.__wrapped__)
        elif (digest := _digest_of(thing)) is not None:
            self.array_bytes += thing.nbytes
            self._sources.digested.append((title, thing, digest))
        elif isinstance(thing, np.ndarray) and not thing.dtype.hasobject and is_read_only(thing):
            # It may be made writable again, and then changed.
            self._sources.read(_is_writable, thing, title)
        elif not _is_constant(thing):
            self._library_object(title, thing, origin)

    def _library_object(self, title: str, thing: Any, origin: Origin) -> None:
        """An object of a library: what it holds is known only to pickle."""
        if self._digest is None:
            return
        try:
            _, found = self._digest(thing)
        except Exception as error:
            if origin is None:
                raise Unsendable(title, thing, error) from error
            self.imported[id(thing)] = origin
            return
        for one in found:
            self._add(title, one)
        pickled = self._digest
        self._sources.digested.append((title, thing, lambda one: pickled(one)[0]))

    def _container(self, thing: Any) -> None:
        kind = type(thing).__name__
        if isinstance(thing, dict):
            self._sources.mapping(kind, thing)
            for key, value in dict.items(thing):
                self._add(f"{kind}[{key!r}]", value)
                self._add(kind, key)
            if isinstance(thing, collections.defaultdict):
                self._sources.read(_default_factory, thing, f"{kind}.default_factory")
                self._add(f"{kind}.default_factory", thing.default_factory)
        else:
            if not isinstance(thing, (tuple, frozenset)):
                self._sources.sequence(kind, thing)
            for at, value in enumerate(thing):
                self._add(f"{kind}[{at}]", value)
        if is_user_module(type(thing).__module__):
            self._attributes(thing, is_followed=True)

    def _function(self, function: FunctionType) -> None:
        if not is_sent_by_value(function):
            return
        code, namespace = function.__code__, function.__globals__
        names, strings = names_in(code)
        module = str(namespace.get("__name__"))
        if is_user_namespace(namespace):
            self.names.update(names)
            used, absent = global_names(function)
            self._sources.names(namespace, used + absent)
            for name in used:
                origin = (module, name) if is_module(namespace) else None
                self._reach(name, namespace[name], names + strings, origin)
        for name in names + strings:
            if is_user_module(name) and isinstance(sys.modules.get(name), ModuleType):
                # Imported inside the function.
                self._reach(name, sys.modules[name], names + strings, None)
        cells = function.__closure__ or ()
        for name, cell in zip(code.co_freevars, cells, strict=True):
            self._sources.read(content, cell, name)
            self._reach(name, content(cell), names + strings, None)
        self._sources.function(function)
        self._add(f"{function.__name__}.__defaults__", function.__defaults__)
        self._add(f"{function.__name__}.__kwdefaults__", function.__kwdefaults__)
        self._sources.mapping(function.__name__, vars(function))
        for name, value in vars(function).items():
            self._add(f"{function.__name__}.{name}", value)

    def _reach(self, title: str, value: Any, names: tuple[str, ...], origin: Origin) -> None:
        """Follows the value of a name; of a module, code can use only the attributes that it names."""
        if not isinstance(value, ModuleType):
            self._add(title, value, origin)
            return
        module, space = value.__name__, vars(value)
        if (id(space), names) in self._modules_seen:
            return
        self._modules_seen.add((id(space), names))
        if not is_user_module(module):
            for name in names:
                if f"{module}.{name}" in sys.modules:
                    self.library_modules[f"{module}.{name}"] = None
                    self._reach(name, sys.modules[f"{module}.{name}"], names, None)
            return
        used = [name for name in names if name in space]
        self.module_names.setdefault(id(space), {}).update(dict.fromkeys(used))
        self._seen[id(value)] = value
        self._sources.names(space, names)
        for name in used:
            self._reach(name, space[name], names, (module, name))

    def _class(self, kind: type) -> None:
        if not is_user_module(kind.__module__):
            return
        self.classes.append(kind)
        self._sources.attributes(kind)
        self._sources.read(_bases, kind, kind.__name__)
        is_found = is_importable(kind)
        for name, value in vars(kind).items():
            if name not in _NOT_SENT and not isinstance(value, (MemberDescriptorType, GetSetDescriptorType)):
                origin = (kind.__module__, f"{kind.__qualname__}.{name}") if is_found else None
                self._add(f"{kind.__name__}.{name}", value, origin)
        for one in (*kind.__bases__, type(kind)):
            self._add(kind.__name__, one)

    def _object(self, thing: Any) -> None:
        definers = [one for one in type(thing).__mro__ if one is not object]
        is_plain = isinstance(thing, _PLAIN_OBJECTS) or not any(
            name in vars(one) for one in definers for name in _PICKLING
        )
        self._attributes(thing, is_plain or self._digest is None)
        if is_plain or self._digest is None:
            return
        kind = type(thing).__name__
        try:
            parts = thing.__reduce_ex__(4)
        except Exception as error:
            raise Unsendable(kind, thing, error) from error
        for part in _listed(parts):
            self._add(kind, part)
        # The class may make new objects for every pickle, so only their contents can be compared.
        pickled = self._digest

        def digest(one: Any) -> int:
            return pickled(_listed(one.__reduce_ex__(4))[1:])[0]

        try:
            digest(thing)
        except Exception:
            # What cannot be pickled has been reported above, or workers take it from their own import.
            return
        self._sources.digested.append((kind, thing, digest))

    def _attributes(self, thing: Any, is_followed: bool) -> None:
        kind = type(thing)
        self._sources.read(type, thing, kind.__name__)
        self._add(kind.__name__, kind)
        held = getattr(thing, "__dict__", None)
        if isinstance(held, dict):
            self._sources.read(vars, thing, kind.__name__)
            self._sources.mapping(kind.__name__, held)
        names = _slots_of(kind)
        if names:
            self._sources.slots(thing, names)
        values = [
            *(held.items() if isinstance(held, dict) else ()),
            *((one, slot(thing, one)) for one in names),
        ]
        for name, value in values if is_followed else ():
            self._add(f"{kind.__name__}.{name}", value)

    def _shared(self, thing: Any) -> None:
        self._registry.note(thing)
        self._registry.note_own(thing)
        self.shared[id(thing)] = thing
        watch(thing, self._sources, self._add)


def _has_owner(method: Any) -> bool:
    """Whether a builtin method belongs to an object, and not to a module or a class."""
    return not isinstance(method.__self__, (ModuleType, type, type(None)))


def _listed(parts: Any) -> list[Any]:
    """What a class says is sent of an object; items come as iterators."""
    found = parts if isinstance(parts, tuple) else ()
    return [list(part) if hasattr(part, "__next__") else part for part in found]


def _slots_of(kind: type) -> list[str]:
    user = [one for one in kind.__mro__ if is_user_module(one.__module__)]
    return [
        name for one in user for name, value in vars(one).items() if isinstance(value, MemberDescriptorType)
    ]


def _digest_of(thing: Any) -> Callable[[Any], Any] | None:
    """How to identify the contents of an array or a tensor; None for any other object."""
    if type(thing) is np.ndarray and not thing.dtype.hasobject and not is_read_only(thing):
        return array_digest
    return digest_of(thing)


def _is_constant(thing: Any) -> bool:
    """Whether an object of a library cannot change: a value with a hash of its own, or found by its name."""
    kind = type(thing)
    if kind.__module__.startswith("unisono.") or isinstance(thing, (np.generic, np.dtype, np.ufunc)):
        return True
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(thing, jax.Array):
        return True
    hashing: Any = kind.__hash__
    if hashing is not None and hashing is not object.__hash__ and _is_standard(kind):
        return not isinstance(thing, MappingProxyType)
    if is_importable(thing):
        return True
    try:
        reduce = copyreg.dispatch_table.get(kind)
        return isinstance(reduce(thing) if reduce is not None else thing.__reduce_ex__(4), str)
    except Exception:
        return False


def _is_standard(kind: type) -> bool:
    """Whether a class is Python's own: hashable objects of other libraries may be mutable all the same."""
    return kind.__module__.partition(".")[0] in sys.stdlib_module_names
