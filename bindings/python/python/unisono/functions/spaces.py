"""Namespaces: which modules are the user's and which are libraries, and the workers' names for them."""

from __future__ import annotations

import functools
import os
import site
import sys
import sysconfig
from typing import Any

_OURS = ("unisono", "synkhronos")
_BASE = ("__name__", "__package__", "__file__", "__path__")


class Missing:
    """Marks a name that has no value."""


def is_own(module: str | None) -> bool:
    """Whether a module is the user's: the script, or a file outside the folders of installed libraries."""
    if module is None or module == "__main__":
        return True
    found = sys.modules.get(module)
    if found is None:
        return True
    if module.partition(".")[0] in _OURS:
        return False
    path = getattr(found, "__file__", None)
    return path is not None and not _is_library(path)


def is_own_space(space: dict[str, Any]) -> bool:
    """Whether a namespace belongs to a module of the user."""
    return is_own(space.get("__name__"))


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


class Spaces:
    """The master's side: maps its namespaces to those of the workers.

    Code sent by value has a dictionary of names on the workers, whichever module it comes from. Code that
    workers import has the names of its module.
    """

    def __init__(self) -> None:
        self._mirrors: dict[int, dict[str, Any]] = {}
        self._keys: dict[int, tuple[int, dict[str, Any], str | None]] = {}
        self._kept: list[dict[str, Any]] = []

    def mirror(self, space: dict[str, Any]) -> dict[str, Any]:
        """The dictionary that represents a namespace in messages to the workers."""
        found = self._mirrors.get(id(space))
        if found is None:
            name = space.get("__name__")
            module = sys.modules.get(name) if isinstance(name, str) and name != "__main__" else None
            found = {key: space[key] for key in _BASE if key in space}
            is_module = module is not None and vars(module) is space
            self._keys[id(found)] = (len(self._kept), found.copy(), name if is_module else None)
            self._mirrors[id(space)] = found
            self._kept += [space, found]
        return found

    def is_module(self, space: dict[str, Any]) -> bool:
        """Whether workers can get this namespace by importing a module."""
        return self._keys[id(self.mirror(space))][2] is not None

    def key_of(self, thing: Any) -> tuple[int, dict[str, Any], str | None] | None:
        """The key by which workers know a dictionary that `mirror` returned."""
        return self._keys.get(id(thing)) if type(thing) is dict else None


class WorkerSpaces:
    """A worker's side: maps the master's keys to its namespaces."""

    def __init__(self) -> None:
        self._names: dict[int, dict[str, Any]] = {}
        self._modules: dict[int, str] = {}
        self._given: dict[int, dict[str, Any]] = {}

    def find(self, key: tuple[int, dict[str, Any], str | None]) -> dict[str, Any]:
        """The local namespace for a key of the master."""
        number, base, module = key
        if number not in self._names:
            self._names[number] = base
            if module is not None:
                self._modules[id(base)] = module
        return self._names[number]

    def give(self, names: dict[str, Any], name: str, value: Any) -> None:
        """Assigns a value to a name."""
        _assign(names, name, value)
        if id(names) in self._modules:
            self._given.setdefault(id(names), {})[name] = value

    def settle(self) -> None:
        """Assigns pending values to the names of modules that have been imported since."""
        for number, given in list(self._given.items()):
            module = sys.modules.get(self._modules[number])
            if module is not None:
                for name, value in given.items():
                    _assign(vars(module), name, value)
                # Later values are assigned on arrival: a function may assign these names meanwhile.
                given.clear()


def _assign(names: dict[str, Any], name: str, value: Any) -> None:
    if value is Missing:
        names.pop(name, None)
    else:
        names[name] = value
