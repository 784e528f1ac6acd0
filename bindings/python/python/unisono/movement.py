"""Collectives that move arrays: methods of groups, and functions on the default world."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, overload

from numpy import ndarray

from unisono.array_calls import A, ArrayCalls
from unisono.arrays import Array, in_memory, written
from unisono.default_world import on_world
from unisono.messages import finish_write, no_result
from unisono.pending import Pending


class Movement(ArrayCalls):
    """The collectives of a group that move arrays."""

    @overload
    def barrier(self, *, wait: Literal[True] = True, timeout: float | None = None) -> None: ...

    @overload
    def barrier(self, *, wait: Literal[False], timeout: float | None = None) -> Pending[None]: ...

    @overload
    def barrier(self, *, wait: bool, timeout: float | None = None) -> Any: ...

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

    @overload
    def broadcast(
        self, x: A, root: int = 0, *, wait: Literal[True] = True, timeout: float | None = None
    ) -> A: ...

    @overload
    def broadcast(
        self, x: A, root: int = 0, *, wait: Literal[False], timeout: float | None = None
    ) -> Pending[A]: ...

    @overload
    def broadcast(self, x: A, root: int = 0, *, wait: bool, timeout: float | None = None) -> Any: ...

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

    @overload
    def gather(
        self,
        x: A,
        root: int = 0,
        *,
        varied: bool = False,
        out: A | None = None,
        wait: Literal[True] = True,
        timeout: float | None = None,
    ) -> A | None: ...

    @overload
    def gather(
        self,
        x: A,
        root: int = 0,
        *,
        varied: bool = False,
        out: A | None = None,
        wait: Literal[False],
        timeout: float | None = None,
    ) -> Pending[A | None]: ...

    @overload
    def gather(
        self,
        x: A,
        root: int = 0,
        *,
        varied: bool = False,
        out: A | None = None,
        wait: bool,
        timeout: float | None = None,
    ) -> Any: ...

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

    @overload
    def all_gather(
        self,
        x: A,
        *,
        varied: bool = False,
        out: A | None = None,
        wait: Literal[True] = True,
        timeout: float | None = None,
    ) -> A: ...

    @overload
    def all_gather(
        self,
        x: A,
        *,
        varied: bool = False,
        out: A | None = None,
        wait: Literal[False],
        timeout: float | None = None,
    ) -> Pending[A]: ...

    @overload
    def all_gather(
        self,
        x: A,
        *,
        varied: bool = False,
        out: A | None = None,
        wait: bool,
        timeout: float | None = None,
    ) -> Any: ...

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

    @overload
    def scatter(
        self,
        x: A,
        root: int = 0,
        *,
        out: A | None = None,
        wait: Literal[True] = True,
        timeout: float | None = None,
    ) -> A: ...

    @overload
    def scatter(
        self, x: A, root: int = 0, *, out: A | None = None, wait: Literal[False], timeout: float | None = None
    ) -> Pending[A]: ...

    @overload
    def scatter(
        self, x: A, root: int = 0, *, out: A | None = None, wait: bool, timeout: float | None = None
    ) -> Any: ...

    @overload
    def scatter(
        self,
        x: None = None,
        root: int = 0,
        *,
        out: A,
        wait: Literal[True] = True,
        timeout: float | None = None,
    ) -> A: ...

    @overload
    def scatter(
        self, x: None = None, root: int = 0, *, out: A, wait: Literal[False], timeout: float | None = None
    ) -> Pending[A]: ...

    @overload
    def scatter(
        self, x: None = None, root: int = 0, *, out: A, wait: bool, timeout: float | None = None
    ) -> Any: ...

    @overload
    def scatter(
        self,
        x: None = None,
        root: int = 0,
        *,
        out: None = None,
        wait: Literal[True] = True,
        timeout: float | None = None,
    ) -> Any: ...

    @overload
    def scatter(
        self,
        x: None = None,
        root: int = 0,
        *,
        out: None = None,
        wait: Literal[False],
        timeout: float | None = None,
    ) -> Pending[Any]: ...

    @overload
    def scatter(
        self,
        x: None = None,
        root: int = 0,
        *,
        out: None = None,
        wait: bool,
        timeout: float | None = None,
    ) -> Any: ...

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


all_gather = on_world(Movement.all_gather)
barrier = on_world(Movement.barrier)
broadcast = on_world(Movement.broadcast)
gather = on_world(Movement.gather)
scatter = on_world(Movement.scatter)
