"""Wrappers made by functools, which pickle cannot send: their contents, and how workers rebuild them.

A cache is a shared object: each worker has one for all functions that use it, with its own results.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType
from typing import Any

from unisono.functions import function_state
from unisono.functions.snapshot import Sources, content
from unisono.functions.user_code import is_importable, is_user_module

_Cache = type(functools.lru_cache(lambda: None))
_DISPATCHER: Any = vars(functools)["singledispatch"](lambda one: None).__code__


def contents_of(thing: Any) -> list[Any] | None:
    """The functions and classes in a wrapper; None for any other object."""
    if isinstance(thing, functools.cached_property):
        return [thing.func]
    if isinstance(thing, functools.singledispatchmethod):
        return [thing.dispatcher]
    if is_dispatcher(thing):
        return [*thing.registry, *thing.registry.values()]
    return None


def reduced(thing: Any) -> tuple[Any, ...] | None:
    """How to rebuild a wrapper of the user's code; None for any other object."""
    if type(thing) is functools.cached_property:
        return _cached_property, (thing.func, thing.attrname)
    if is_shared(thing):
        return _cache, (thing.__wrapped__, *thing.cache_parameters().values())
    if is_dispatcher(thing) and _is_user_code(thing):
        return _dispatcher, (thing.registry[object], list(thing.registry.items()))
    return None


def _is_user_code(thing: Any) -> bool:
    return is_user_module(getattr(thing, "__module__", None)) or not is_importable(thing)


def _cache(function: Any, size: int | None, typed: bool) -> Any:
    return functools.lru_cache(size, typed)(function)


def _cached_property(function: Any, name: str | None) -> Any:
    made = functools.cached_property(function)
    # `__set_name__` does not run for classes that are built incrementally.
    made.attrname = name
    return made


def _dispatcher(first: Any, registry: list[tuple[type, Any]]) -> Any:
    made = functools.singledispatch(first)
    for kind, function in registry:
        made.register(kind, function)
    return made


def is_dispatcher(thing: Any) -> bool:
    """Whether `functools.singledispatch` created this object."""
    return isinstance(thing, FunctionType) and thing.__code__ is _DISPATCHER


def is_shared(thing: Any) -> bool:
    """Whether this is a cache of the user's code."""
    return isinstance(thing, _Cache) and _is_user_code(thing)


is_found = is_shared
"""Caches are shared without a declaration."""


def parts(thing: Any) -> list[Any]:
    """A cache has no variables."""
    return []


def titled_parts(thing: Any) -> list[tuple[str, Any]]:
    """A cache has no variables."""
    return []


def watch(thing: Any, sources: Sources, visit: Callable[[str, Any], None]) -> None:
    """Records the cached function."""
    visit(thing.__name__, thing.__wrapped__)


def state_of(thing: Any, previous: Any) -> Any:
    """The cached function; None if it is not the user's."""
    function = thing.__wrapped__
    if not isinstance(function, FunctionType):
        return None
    cells = [(content(cell),) for cell in function.__closure__ or ()]
    return function.__code__, cells, function_state.state_of(function)


def apply_state(thing: Any, state: Any) -> None:
    """Updates the cached function; what is in the cache stays, as it does in the master."""
    code, cells, rest = state
    function = thing.__wrapped__
    function.__code__ = code
    for cell, contents in zip(function.__closure__ or (), cells, strict=True):
        function_state.set_cell(cell, contents)
    function_state.apply_state(function, rest)
