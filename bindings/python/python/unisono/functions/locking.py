"""Serialises threads of the master: an operation of several steps holds the workers until it is done."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from unisono.functions.pool import active

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def exclusive(operation: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Makes an operation wait until no other thread drives the workers, and hold them until it is done."""

    @functools.wraps(operation)
    def wrapper(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with active(f"{operation.__name__}()").lock:
            return operation(*args, **kwargs)

    return wrapper
