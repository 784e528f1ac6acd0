"""all_to_all, which sends a part to every rank and receives one from each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from unisono.array_calls import A, ArrayCalls
from unisono.arrays import Array
from unisono.default_world import on_world
from unisono.errors import UsageError
from unisono.pending import Pending


class Redistribution(ArrayCalls):
    """The collective in which every rank has data for every other; see `Collectives`."""

    @overload
    def all_to_all(
        self, x: Sequence[A], *, wait: Literal[True] = True, timeout: float | None = None
    ) -> list[A]: ...

    @overload
    def all_to_all(
        self, x: Sequence[A], *, wait: Literal[False], timeout: float | None = None
    ) -> Pending[list[A]]: ...

    @overload
    def all_to_all(self, x: Sequence[A], *, wait: bool, timeout: float | None = None) -> Any: ...

    @overload
    def all_to_all(
        self,
        x: A,
        *,
        splits: Sequence[int] | None = None,
        out_splits: Sequence[int] | None = None,
        out: A | None = None,
        wait: Literal[True] = True,
        timeout: float | None = None,
    ) -> A: ...

    @overload
    def all_to_all(
        self,
        x: A,
        *,
        splits: Sequence[int] | None = None,
        out_splits: Sequence[int] | None = None,
        out: A | None = None,
        wait: Literal[False],
        timeout: float | None = None,
    ) -> Pending[A]: ...

    @overload
    def all_to_all(
        self,
        x: A,
        *,
        splits: Sequence[int] | None = None,
        out_splits: Sequence[int] | None = None,
        out: A | None = None,
        wait: bool,
        timeout: float | None = None,
    ) -> Any: ...

    def all_to_all(
        self,
        x: Array | Sequence[Array],
        *,
        splits: Sequence[int] | None = None,
        out_splits: Sequence[int] | None = None,
        out: Array | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> Any:
        """Sends a part to every rank and receives one from each.

        Args:
            x: An array whose first axis is split into blocks, block i for rank i; or a list with one array
                for each rank, of any shapes and one type.
            splits: The number of rows in the block for each rank; by default all blocks are equal.
            out_splits: The number of rows in the block from each rank; needed with `splits`.
            out: For an array, one of the result's shape and type that takes it, instead of a new one.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            `out` or a new array, block i from rank i; or a list of arrays, array i from rank i.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> uni.all_to_all([np.arange(2)])
            [array([0, 1])]
        """
        if not isinstance(x, (list, tuple)):
            return self._all_to_all_blocks(x, splits, out_splits, out, wait, timeout)
        if splits is not None or out_splits is not None or out is not None:
            self._native.skip_call()
            raise UsageError(
                "all_to_all: expected an array with `splits` and `out`, received a list of arrays; "
                "pass the list alone"
            )
        parts = list(x)
        outcome = self._native.all_to_all_varied(parts, wait, timeout)
        finish: Callable[[Any], Any] = lambda made: [  # noqa: E731
            self._new_array(one, part) for one, part in zip(made, parts, strict=True)
        ]
        return finish(outcome) if wait else Pending(outcome, "all_to_all", finish)

    def _all_to_all_blocks(
        self,
        x: Any,
        splits: Sequence[int] | None,
        out_splits: Sequence[int] | None,
        out: Array | None,
        wait: bool,
        timeout: float | None,
    ) -> Any:
        if (splits is None) != (out_splits is None):
            self._native.skip_call()
            raise UsageError(
                "all_to_all: expected `splits` and `out_splits` together, received one of them; pass both"
            )
        rows = None if splits is None or out_splits is None else (list(splits), list(out_splits))
        outcome = self._native.all_to_all(x, rows, out, wait, timeout)
        return self._finish(outcome, "all_to_all", x, out, wait)


all_to_all = on_world(Redistribution.all_to_all)
