"""The default world of this process, and functions that call its methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from unisono.errors import UsageError

if TYPE_CHECKING:
    from unisono.worlds import World

P = ParamSpec("P")
R = TypeVar("R")

current: World | None = None
"""The world that `init` returned."""
left_a_job = False
"""Whether this process was a rank of a job that it has left."""


def world() -> World:
    """The default world.

    Returns:
        The world that `init` returned.

    Raises:
        UsageError: `init` was not called, or `shutdown` was.
    """
    if current is None and left_a_job:
        raise UsageError(
            "unisono: there is no world: shutdown() was called, and a rank joins its job once; "
            "call unisono.shutdown() only when all work is done"
        )
    if current is None:
        raise UsageError(
            "unisono: there is no world: init() was not called, or shutdown() was; call unisono.init() first"
        )
    return current


def joined() -> World | None:
    """The default world, if there is one.

    Returns:
        The world that `init` returned, or None.
    """
    return current


def on_world(method: Callable[Concatenate[Any, P], R]) -> Callable[P, R]:
    """Makes the function that calls a method of the default world.

    Args:
        method: The method of the class; its name, parameters and docstring are those of the function.

    Returns:
        The function. It is compiled, as those of a dataclass are: passing on `*args` and `**kwargs` would
        cost a small call a quarter of its time.
    """
    code, name = method.__code__, method.__name__
    names = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    positional, keywords = names[: code.co_argcount - 1], names[code.co_argcount - 1 :]
    passed = ", ".join([*positional, *(f"{one}={one}" for one in keywords)])
    scope = method.__globals__ | {"world": world}
    exec(f"def {name}({', '.join([*positional, '*', *keywords])}): return world().{name}({passed})", scope)
    function: Callable[P, R] = scope[name]
    for attribute in ("__defaults__", "__kwdefaults__", "__annotations__", "__doc__"):
        setattr(function, attribute, getattr(method, attribute))
    return function
