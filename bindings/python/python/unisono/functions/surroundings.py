"""What a callable reads from around it, such as global names, and whether that has changed."""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator
from typing import Any

_MISSING = object()
_PLAIN = (bool, int, float, complex, str, bytes)


class Surroundings:
    """The global names and closures of a callable, and of the functions that it finds there.

    Workers have what these were when the function was sent; the master sees what they are. Only another
    object under a name is noticed, not a change within an object.

    Example:
        >>> factor = 2
        >>> around = Surroundings(lambda x: x * factor)
        >>> around.have_changed()
        False
        >>> factor = 3
        >>> around.have_changed(), around.have_changed()
        (True, False)
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self._seen = list(_read(target))

    def have_changed(self) -> bool:
        """Whether a name has another object than when this was asked last."""
        if all(_same(_now(place, name), then) for place, name, then in self._seen):
            return False
        self._seen = list(_read(self._target))
        return True


def _read(target: Any) -> Iterator[tuple[Any, str, Any]]:
    """Where each object was found, under which name, and the object."""
    waiting, met = [target], set()
    while waiting:
        function = _function(waiting.pop())
        if function is None or id(function) in met:
            continue
        met.add(id(function))
        names = _global_names(function.__code__)
        places: list[tuple[Any, str]] = [(function.__globals__, name) for name in names]
        places += [(cell, "") for cell in function.__closure__ or ()]
        for place, name in places:
            found = _now(place, name)
            yield place, name, found
            waiting.append(found)


def _function(thing: Any) -> types.FunctionType | None:
    """The function in a thing that can be called, if it is sent by value: others are imported by workers."""
    while isinstance(thing, (functools.partial, types.MethodType)):
        thing = thing.func if isinstance(thing, functools.partial) else thing.__func__
    if isinstance(thing, types.FunctionType):
        by_value = thing.__module__ == "__main__" or "<" in thing.__qualname__
        return thing if by_value else None
    return None


def _global_names(code: types.CodeType) -> list[str]:
    """The global names that code reads, also in functions within it."""
    names = [one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")]
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names += _global_names(constant)
    return list(dict.fromkeys(names))


def _now(place: Any, name: str) -> Any:
    if isinstance(place, dict):
        return place.get(name, _MISSING)
    try:
        return place.cell_contents
    except ValueError:
        return _MISSING


def _same(now: Any, then: Any) -> bool:
    return now is then or (type(now) is type(then) and isinstance(now, _PLAIN) and bool(now == then))
