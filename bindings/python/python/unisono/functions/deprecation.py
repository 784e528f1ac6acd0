"""Deprecated names that `unisono.functions` took from Synkhronos; the package `synkhronos` keeps them."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any


def deprecated(old: str, new: str) -> None:
    """Warns that the caller's caller uses an old name."""
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=3)


def renamed(old: str, new: str, kwargs: dict[str, Any], value: Any) -> Any:
    """The value of an argument that may have been passed by its old name."""
    if old not in kwargs:
        return value
    warnings.warn(f"{old} is deprecated; use {new}", DeprecationWarning, stacklevel=3)
    return kwargs.pop(old)


def ignores_nccl(operation: Callable[..., Any]) -> Any:
    """Makes an operation accept `nccl`, which once selected the transport between devices."""

    @functools.wraps(operation)
    def wrapper(*args: Any, nccl: bool | None = None, **kwargs: Any) -> Any:
        if nccl is not None:
            deprecated("nccl", "nothing in its stead: the transport is selected automatically")
        return operation(*args, **kwargs)

    return wrapper
