"""Excludes communication from what `torch.compile` traces."""

from __future__ import annotations

import functools
import pkgutil
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch

# Files whose functions are traced: they call modules and functions of the user.
_TRACED = {"unisono.torch.parallel", "unisono.torch.space"}


def _untraced_modules() -> list[str]:
    names: set[str] = set()
    for package in ("unisono", "unisono.torch"):
        modules = pkgutil.iter_modules(sys.modules[package].__path__, f"{package}.")
        names.update(one.name for one in modules)
    return sorted(names - {"unisono.torch", *_TRACED})


# Listed now: the tracer may be following the first call that needs them, and warns of calls to the system.
_UNTRACED = _untraced_modules()

_Function = TypeVar("_Function", bound=Callable[..., Any])
_excluded = False


def exclude_package() -> None:
    """Makes `torch.compile` call the functions of this package instead of tracing them.

    PyTorch's tracer cannot follow a call into the native module. It would try, and compile the Python code
    before and after each such call, again for each new kind of argument.

    It may be called any number of times. It imports nothing, because importing the tracer takes seconds:
    before a program has done so, nothing can be compiled.
    """
    global _excluded
    if _excluded or "torch._dynamo" not in sys.modules:
        return
    _excluded = True
    rules: Any = sys.modules.get("torch._dynamo.trace_rules")
    # Without this function, compiled programs give the same results, after a longer compilation.
    if hasattr(rules, "add"):
        for name in _UNTRACED:
            rules.add(name)


def untraced(function: _Function) -> _Function:
    """Makes `torch.compile` call a function of a traced file, and all that it calls, instead of tracing it.

    Args:
        function: The function.

    Returns:
        A function that does the same.
    """
    disabled: Any = None

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        nonlocal disabled
        exclude_package()
        if disabled is None:
            if not _excluded:
                return function(*arguments, **options)
            disable: Any = torch.compiler.disable  # it has no types
            disabled = disable(function)
        return disabled(*arguments, **options)

    return cast(_Function, call)
