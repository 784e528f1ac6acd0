"""Collectives that combine arrays element-wise: methods of groups, and functions on the default world."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, overload

from numpy import ndarray

from unisono.array_calls import A, ArrayCalls, ReduceOp
from unisono.arrays import Array, in_memory, written
from unisono.default_world import on_world
from unisono.exclusive_scan import copy_into, neutral_like, next_rank_splits
from unisono.messages import finish_write, no_result
from unisono.pending import Pending


class Reductions(ArrayCalls):
    """The collectives of a group that combine arrays."""

    @overload
    def all_reduce(
        self,
        x: A,
        op: ReduceOp = "sum",
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> A: ...

    @overload
    def all_reduce(
        self,
        x: A,
        op: ReduceOp = "sum",
        *,
        wait: Literal[False],
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Pending[A]: ...

    @overload
    def all_reduce(
        self,
        x: A,
        op: ReduceOp = "sum",
        *,
        wait: bool,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Any: ...

    def all_reduce(
        self,
        x: Array,
        op: ReduceOp = "sum",
        *,
        wait: bool = True,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Any:
        """Combines the arrays of all ranks element-wise; every rank gets the same bits.

        Args:
            x: The array, of the same type and size on every rank; written in place.
            op: "sum", "avg" (not for integers), "prod", "min" or "max"; for integers and booleans also
                "band", "bor", "bxor", "land" or "lor".
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.
            deterministic: Whether the bits must also be the same on every transport.

        Returns:
            `x`.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> uni.all_reduce(np.ones(2), op="avg")
            array([1., 1.])
        """
        lent = x if type(x) is ndarray else self._counted(in_memory, x)
        outcome = self._native.all_reduce(lent, op, wait, timeout, deterministic)
        if not wait:
            return Pending(outcome, "all_reduce", partial(finish_write, x, lent))
        return x if lent is x else written(x, lent)

    @overload
    def reduce(
        self,
        x: A,
        op: ReduceOp = "sum",
        root: int = 0,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> A | None: ...

    @overload
    def reduce(
        self,
        x: A,
        op: ReduceOp = "sum",
        root: int = 0,
        *,
        wait: Literal[False],
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Pending[A | None]: ...

    @overload
    def reduce(
        self,
        x: A,
        op: ReduceOp = "sum",
        root: int = 0,
        *,
        wait: bool,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Any: ...

    def reduce(
        self,
        x: Array,
        op: ReduceOp = "sum",
        root: int = 0,
        *,
        wait: bool = True,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Any:
        """Combines the arrays of all ranks element-wise, at the root.

        Args:
            x: The array, of the same type and size on every rank; written in place at the root, only read
                on the others.
            op: "sum", "avg" (not for integers), "prod", "min" or "max"; for integers and booleans also
                "band", "bor", "bxor", "land" or "lor".
            root: The rank that gets the result.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.
            deterministic: Whether the bits must also be the same on every transport.

        Returns:
            `x` at the root, None on the others.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> uni.reduce(np.array([3, 4]), op="max")
            array([3, 4])
        """
        lent = x if type(x) is ndarray else self._counted(in_memory, x)
        outcome = self._native.reduce(lent, op, root, wait, timeout, deterministic)
        if not wait:
            return Pending(
                outcome, "reduce", partial(finish_write, x, lent) if self.rank == root else no_result
            )
        if self.rank != root:
            return None
        return x if lent is x else written(x, lent)

    @overload
    def scan(
        self, x: A, op: ReduceOp = "sum", *, wait: Literal[True] = True, timeout: float | None = None
    ) -> A: ...

    @overload
    def scan(
        self, x: A, op: ReduceOp = "sum", *, wait: Literal[False], timeout: float | None = None
    ) -> Pending[A]: ...

    @overload
    def scan(self, x: A, op: ReduceOp = "sum", *, wait: bool, timeout: float | None = None) -> Any: ...

    def scan(self, x: Array, op: ReduceOp = "sum", *, wait: bool = True, timeout: float | None = None) -> Any:
        """Combines the arrays of the ranks up to this one element-wise, as `MPI_Scan` does.

        Args:
            x: The array, of the same type and size on every rank; written in place.
            op: "sum", "avg" (not for integers), "prod", "min" or "max"; for integers and booleans also
                "band", "bor", "bxor", "land" or "lor".
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            `x`. Rank 0 keeps its values (their truth under "land" and "lor"); the last rank gets what
            `all_reduce` returns. The bits are the same on every transport.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> rows = np.array([5])
            >>> first_row = uni.scan(rows.copy()) - rows
        """
        lent = x if type(x) is ndarray else self._counted(in_memory, x)
        outcome = self._native.scan(lent, op, wait, timeout)
        if not wait:
            return Pending(outcome, "scan", partial(finish_write, x, lent))
        return x if lent is x else written(x, lent)

    @overload
    def exscan(
        self, x: A, op: ReduceOp = "sum", *, wait: Literal[True] = True, timeout: float | None = None
    ) -> A: ...

    @overload
    def exscan(
        self, x: A, op: ReduceOp = "sum", *, wait: Literal[False], timeout: float | None = None
    ) -> Pending[A]: ...

    @overload
    def exscan(self, x: A, op: ReduceOp = "sum", *, wait: bool, timeout: float | None = None) -> Any: ...

    def exscan(
        self, x: Array, op: ReduceOp = "sum", *, wait: bool = True, timeout: float | None = None
    ) -> Any:
        """Combines the arrays of the ranks before this one element-wise, as `MPI_Exscan` does.

        Args:
            x: A NumPy array or a PyTorch tensor, of the same type and size on every rank; written in place.
            op: As for `scan`, but not "avg".
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until each of the two steps times out.

        Returns:
            `x`. Rank 0 gets the operation's neutral value: 0 for a sum, 1 for a product, the largest value of
            the type for "min".

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> rows = np.array([5])
            >>> uni.exscan(rows.copy())  # the rows of the ranks before
            array([0])
        """
        before = self._counted(neutral_like, x, op)
        mine, others = self._counted(_flat, x), before.reshape(-1)
        mine = mine if self.rank + 1 < self.size else mine[:0]
        others = others if self.rank else others[:0]
        splits = next_rank_splits(len(mine), len(others), self.rank, self.size)
        # In the background, too, the scan begins with what has arrived.
        shift = self._native.all_to_all(mine, splits, others, wait, timeout)
        outcome = self._native.scan(before, op, wait, timeout)
        if wait:
            return copy_into(x, before)
        return Pending(outcome, "exscan", lambda _: (shift.wait(None), copy_into(x, before))[1])

    @overload
    def reduce_scatter(
        self,
        x: A,
        op: ReduceOp = "sum",
        *,
        out: A | None = None,
        wait: Literal[True] = True,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> A: ...

    @overload
    def reduce_scatter(
        self,
        x: A,
        op: ReduceOp = "sum",
        *,
        out: A | None = None,
        wait: Literal[False],
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Pending[A]: ...

    @overload
    def reduce_scatter(
        self,
        x: A,
        op: ReduceOp = "sum",
        *,
        out: A | None = None,
        wait: bool,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Any: ...

    def reduce_scatter(
        self,
        x: Array,
        op: ReduceOp = "sum",
        *,
        out: Array | None = None,
        wait: bool = True,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Any:
        """Combines the arrays of all ranks; each rank gets its share of the rows, split as in `scatter`.

        Args:
            x: The array, of the same type and shape on every rank; only read.
            op: "sum", "avg" (not for integers), "prod", "min" or "max"; for integers and booleans also
                "band", "bor", "bxor", "land" or "lor".
            out: An array of the shape and type of this rank's rows that takes them, instead of a new one.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.
            deterministic: Whether the bits must also be the same on every transport.

        Returns:
            This rank's rows of the result, in `out` or a new array.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> uni.reduce_scatter(np.arange(4.0))
            array([0., 1., 2., 3.])
        """
        outcome = self._native.reduce_scatter(x, op, out, wait, timeout, deterministic)
        return self._finish(outcome, "reduce_scatter", x, out, wait)


def _flat(x: Any) -> Any:
    """The elements of an array on one axis, apart from the caller's view of them."""
    return (x if isinstance(x, ndarray) else x.detach()).reshape(-1)


all_reduce = on_world(Reductions.all_reduce)
exscan = on_world(Reductions.exscan)
reduce = on_world(Reductions.reduce)
reduce_scatter = on_world(Reductions.reduce_scatter)
scan = on_world(Reductions.scan)
