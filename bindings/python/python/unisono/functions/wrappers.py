"""Wrappers created by functools: their contents, and how workers rebuild them."""

from __future__ import annotations

import functools
import sys
from types import FunctionType
from typing import Any

_Cache = type(functools.lru_cache(lambda: None))
_DISPATCHER: Any = vars(functools)["singledispatch"](lambda one: None).__code__


def contents_of(thing: Any) -> list[Any] | None:
    """The functions and classes in a wrapper; None for any other object."""
    if isinstance(thing, _Cache):
        return [thing.__wrapped__]
    if isinstance(thing, functools.cached_property):
        return [thing.func]
    if isinstance(thing, functools.singledispatchmethod):
        return [thing.dispatcher]
    if is_dispatcher(thing):
        return [*thing.registry, *thing.registry.values()]
    return None


def reduced(thing: Any) -> tuple[Any, ...] | None:
    """How to rebuild a wrapper that workers cannot import; None for any other object.

    Each worker has its own cache, which is empty at first.
    """
    if isinstance(thing, _Cache) and not is_importable(thing):
        return _cache, (thing.__wrapped__, *thing.cache_parameters().values())
    if type(thing) is functools.cached_property:
        return _cached_property, (thing.func, thing.attrname)
    if is_dispatcher(thing) and not is_importable(thing):
        return _dispatcher, (thing.registry[object], list(thing.registry.items()))
    return None


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


def is_importable(thing: Any) -> bool:
    """Whether workers can find the object by its module and its qualified name."""
    found: Any = None if thing.__module__ == "__main__" else sys.modules.get(thing.__module__)
    for name in thing.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is thing
