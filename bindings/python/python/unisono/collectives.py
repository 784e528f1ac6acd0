"""The collectives: methods of groups, and functions on the default world."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from numpy import ndarray

from unisono._native import Group as NativeGroup
from unisono.arrays import Array, in_memory, written
from unisono.default_world import on_world
from unisono.errors import UsageError
from unisono.messages import finish_write, no_result, recv, send
from unisono.pending import Pending

T = TypeVar("T")


class Collectives:
    """The collectives of a group."""

    _native: NativeGroup
    rank: int
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

    def barrier(self, *, wait: bool = True, timeout: float | None = None) -> Any:
        """Waits until every rank has reached this call.

        Args:
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            None.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> uni.barrier(timeout=60)
        """
        outcome = self._native.barrier(wait, timeout)
        return outcome if wait else Pending(outcome, "barrier", no_result)

    def broadcast(self, x: Array, root: int = 0, *, wait: bool = True, timeout: float | None = None) -> Any:
        """Copies the root's array to every rank.

        Args:
            x: The array, of the same type and size on every rank; written in place.
            root: The rank that has the values.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            `x`.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> uni.broadcast(np.arange(3))
            array([0, 1, 2])
        """
        lent = x if type(x) is ndarray else self._counted(in_memory, x)
        outcome = self._native.broadcast(lent, root, wait, timeout)
        if not wait:
            return Pending(outcome, "broadcast", partial(finish_write, x, lent))
        return x if lent is x else written(x, lent)

    def all_reduce(
        self,
        x: Array,
        op: str = "sum",
        *,
        wait: bool = True,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Any:
        """Combines the arrays of all ranks element-wise; every rank gets the same bits.

        Args:
            x: The array, of the same type and size on every rank; written in place.
            op: "sum", "avg" (not for integers), "prod", "min" or "max".
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

    def reduce(
        self,
        x: Array,
        op: str = "sum",
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
            op: "sum", "avg" (not for integers), "prod", "min" or "max".
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

    def scan(self, x: Array, op: str = "sum", *, wait: bool = True, timeout: float | None = None) -> Any:
        """Combines the arrays of the ranks up to this one element-wise, as `MPI_Scan` does.

        Args:
            x: The array, of the same type and size on every rank; written in place.
            op: "sum", "avg" (not for integers), "prod", "min" or "max".
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            `x`. Rank 0 keeps its values; the last rank gets what `all_reduce` returns. The bits are the same
            on every transport.

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

    def gather(
        self,
        x: Array,
        root: int = 0,
        *,
        varied: bool = False,
        out: Array | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> Any:
        """Gathers the arrays of all ranks at the root.

        Args:
            x: This rank's part.
            root: The rank that gets all parts.
            varied: Whether parts may differ in the length of their first axis; they are then concatenated.
            out: At the root, an array of the result's shape and type that takes it, instead of a new one.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            At the root `out` or a new array: the parts stacked on a new first axis, or concatenated if
            `varied`. None on the others.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> uni.gather(np.zeros((2, 3))).shape
            (1, 2, 3)
        """
        outcome = self._native.gather(x, root, varied, out, wait, timeout)
        return self._finish(outcome, "gather", x, out if self.rank == root else None, wait)

    def all_gather(
        self,
        x: Array,
        *,
        varied: bool = False,
        out: Array | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> Any:
        """Gathers the arrays of all ranks on every rank.

        Args:
            x: This rank's part.
            varied: Whether parts may differ in the length of their first axis; they are then concatenated.
            out: An array of the result's shape and type that takes it, instead of a new one.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            `out` or a new array: the parts stacked on a new first axis, or concatenated if `varied`.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> uni.all_gather(np.zeros((2, 3)), varied=True).shape
            (2, 3)
        """
        outcome = self._native.all_gather(x, varied, out, wait, timeout)
        return self._finish(outcome, "all_gather", x, out, wait)

    def scatter(
        self,
        x: Array | None = None,
        root: int = 0,
        *,
        out: Array | None = None,
        wait: bool = True,
        timeout: float | None = None,
    ) -> Any:
        """Splits the root's array along its first axis, as evenly as possible: the first ranks get one more.

        Args:
            x: The full array at the root. The other ranks learn its type and shape from the root and pass
                None, or a tensor to get a tensor.
            root: The rank that has the array.
            out: An array of the shape and type of this rank's rows that takes them, instead of a new one.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            This rank's rows, in `out` or a new array.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> uni.scatter(np.arange(3) if world.rank == 0 else None)
            array([0, 1, 2])
        """
        outcome = self._native.scatter(x, root, out, wait, timeout)
        return self._finish(outcome, "scatter", x, out, wait)

    def reduce_scatter(
        self,
        x: Array,
        op: str = "sum",
        *,
        out: Array | None = None,
        wait: bool = True,
        timeout: float | None = None,
        deterministic: bool = False,
    ) -> Any:
        """Combines the arrays of all ranks; each rank gets its share of the rows, split as in `scatter`.

        Args:
            x: The array, of the same type and shape on every rank; only read.
            op: "sum", "avg" (not for integers), "prod", "min" or "max".
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


all_gather = on_world(Collectives.all_gather)
all_reduce = on_world(Collectives.all_reduce)
all_to_all = on_world(Collectives.all_to_all)
barrier = on_world(Collectives.barrier)
broadcast = on_world(Collectives.broadcast)
gather = on_world(Collectives.gather)
reduce = on_world(Collectives.reduce)
reduce_scatter = on_world(Collectives.reduce_scatter)
scan = on_world(Collectives.scan)
scatter = on_world(Collectives.scatter)

__all__ = [
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "gather",
    "recv",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "send",
]
