"""What the collectives on arrays have in common: arguments that are prepared in Python, and results."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar

from unisono._native import Group as NativeGroup
from unisono.arrays import Array
from unisono.messages import finish_write
from unisono.pending import Pending

T = TypeVar("T")
A = TypeVar("A", bound=Array)

ReduceOp = Literal["sum", "avg", "prod", "min", "max", "band", "bor", "bxor", "land", "lor"]
"""The operations of reductions."""


class ArrayCalls:
    """A group, as its collectives on arrays see it."""

    _native: NativeGroup
    rank: int
    size: int
    _new_array: Callable[[Any | None, object], Any]

    def _counted(self, prepare: Callable[..., T], *arguments: Any) -> T:
        """Prepares a collective. If that fails, the call counts: the other ranks may be making it."""
        try:
            return prepare(*arguments)
        except BaseException:
            self._native.skip_call()
            raise

    def _finish(self, outcome: Any, operation: str, x: object, out: Any | None, wait: bool) -> Any:
        """The result of a collective that fills the caller's `out` or, without one, a new array like `x`."""
        new: Callable[[Any], Any] = lambda memory: self._new_array(memory, x)  # noqa: E731
        finish = new if out is None else partial(finish_write, out, out)
        return finish(outcome) if wait else Pending(outcome, operation, finish)
