"""Which code is the user's, and so sent by value: the script, and modules that are not installed."""

from __future__ import annotations

import functools
import importlib
import io
import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

from unisono.errors import Unsupported

_OURS = ("unisono", "synkhronos")


class Undefined:
    """Marks a name that has no value."""


def is_user_module(name: str | None) -> bool:
    """Whether a module is the user's: the script, or a Python file outside the folders of libraries."""
    if name is None or name == "__main__":
        return True
    found = sys.modules.get(name)
    if found is None:
        return True
    if name.partition(".")[0] in _OURS:
        return False
    path = getattr(found, "__file__", None)
    return path is not None and path.endswith((".py", ".pyc")) and not _is_library(path)


@functools.cache
def _is_library(path: str) -> bool:
    real = os.path.realpath(path)
    parts = real.split(os.sep)
    return "site-packages" in parts or "dist-packages" in parts or real.startswith(_libraries())


@functools.cache
def _libraries() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    known = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    known += [*getattr(site, "getsitepackages", list)(), site.getusersitepackages()]
    return tuple({os.path.join(os.path.realpath(one), "") for one in known})


def is_user_namespace(namespace: dict[str, Any]) -> bool:
    """Whether a dictionary of globals belongs to the user, and not to a library."""
    return not is_module(namespace) or is_user_module(namespace["__name__"])


def is_module(namespace: dict[str, Any]) -> bool:
    """Whether workers can import the module that has these globals; they cannot import the script."""
    name = namespace.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) and name != "__main__" else None
    return module is not None and vars(module) is namespace


def is_importable(thing: Any) -> bool:
    """Whether workers can find an object by its module and its qualified name."""
    module = getattr(thing, "__module__", None)
    path = getattr(thing, "__qualname__", None) or getattr(thing, "__name__", None)
    if not isinstance(module, str) or not isinstance(path, str) or module == "__main__":
        return False
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found is thing


def is_sent_by_value(function: FunctionType) -> bool:
    """Whether a function is sent as code, with the globals that it names, instead of being imported."""
    return (
        is_user_module(function.__module__)
        or is_user_namespace(function.__globals__)
        or not is_importable(function)
    )


@functools.lru_cache(maxsize=4096)
def names_in(code: CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names that code uses, for globals and attributes alike, and its strings that could be names."""
    names = dict.fromkeys(code.co_names)
    strings: dict[str, None] = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            inner, texts = names_in(constant)
            names.update(dict.fromkeys(inner))
            strings.update(dict.fromkeys(texts))
        elif isinstance(constant, str) and all(part.isidentifier() for part in constant.split(".")):
            strings[constant] = None
    return tuple(names), tuple(strings)


def global_names(function: FunctionType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The globals that a function uses, as cloudpickle finds them, and names that have no value so far."""
    namespace = function.__globals__
    names = names_in(function.__code__)[0]
    with sent_by_value(function.__module__):
        reduced = cloudpickle_module().Pickler(io.BytesIO()).reducer_override(function)
    try:
        used = tuple(reduced[2][1]["__globals__"])
    except (KeyError, IndexError, TypeError):
        # Another version of cloudpickle: attributes that are called like globals count as globals.
        used = tuple(name for name in names if name in namespace)
    return used, tuple(name for name in names if name not in namespace)


@contextmanager
def sent_by_value(name: str | None) -> Iterator[None]:
    """Makes cloudpickle send functions and classes of a module by value."""
    module = sys.modules.get(name) if name not in (None, "__main__") else None
    cloudpickle = cloudpickle_module()
    if module is None or module.__name__ in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def cloudpickle_module() -> Any:
    """Imports cloudpickle, or says that it is missing."""
    try:
        return importlib.import_module("cloudpickle")
    except ImportError as error:
        raise Unsupported(
            "distribute: expected the package cloudpickle, which sends functions by value, and it is not "
            "installed; pip install cloudpickle"
        ) from error
