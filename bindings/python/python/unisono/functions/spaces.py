"""Whose code is whose: modules of the user and of libraries, and the names that workers know by them."""

from __future__ import annotations

import functools
import importlib
import os
import site
import sys
import sysconfig
from typing import Any

_OURS = ("unisono", "synkhronos")
_BASE = ("__name__", "__package__", "__file__", "__path__")


def is_own(module: str | None) -> bool:
    """Whether a module is the user's: the script, or a file that no installer has put where libraries lie."""
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
    """Whether names belong to a module of the user."""
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
    """The master's side: which names of workers belong to which of its own.

    Workers import modules. For the script, which they cannot import, they have a dictionary of its names.
    """

    def __init__(self) -> None:
        self._mirrors: dict[int, dict[str, Any]] = {}
        self._keys: dict[int, tuple[Any, ...]] = {}
        self._kept: list[dict[str, Any]] = []

    def mirror(self, space: dict[str, Any]) -> dict[str, Any]:
        """What stands for these names on the way to the workers."""
        found = self._mirrors.get(id(space))
        if found is None:
            name = space.get("__name__")
            module = sys.modules.get(name) if isinstance(name, str) and name != "__main__" else None
            found = {key: space[key] for key in _BASE if key in space}
            is_module = module is not None and vars(module) is space
            self._keys[id(found)] = (
                ("module", name) if is_module else ("names", len(self._kept), found.copy())
            )
            self._mirrors[id(space)] = found
            self._kept += [space, found]
        return found

    def is_module(self, space: dict[str, Any]) -> bool:
        """Whether workers have these names by importing a module."""
        return bool(self._keys[id(self.mirror(space))][0] == "module")

    def key_of(self, thing: Any) -> tuple[Any, ...] | None:
        """How workers know what `mirror` gave."""
        return self._keys.get(id(thing)) if type(thing) is dict else None


class WorkerSpaces:
    """A worker's side."""

    def __init__(self) -> None:
        self._names: dict[int, dict[str, Any]] = {}

    def find(self, key: tuple[Any, ...]) -> dict[str, Any]:
        """The names that a key of the master means here."""
        if key[0] == "module":
            return vars(importlib.import_module(key[1]))
        return self._names.setdefault(key[1], key[2])
