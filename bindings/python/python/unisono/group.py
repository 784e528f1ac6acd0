"""A group of ranks and its collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from numpy import ndarray

from unisono import _native
from unisono.arrays import Array, in_memory, take_over, written
from unisono.errors import UsageError
from unisono.on_device import current
from unisono.pending import Pending

E = TypeVar("E", bound=Exception)
T = TypeVar("T")


class Group:
    """Ranks that work together; every member makes the same calls in the same order.

    Ranks in arguments (`root`, `to`, `source`) count inside the group. Arrays are NumPy arrays, PyTorch
    tensors, or any other arrays that support DLPack, of type float32, float64, float16, bfloat16, int8,
    uint8, int32 or int64. They are used without a copy; an array that a call writes must be contiguous and
    writable. PyTorch counts the write like one of its own: autograd rejects a backward pass that needs the
    former value.

    Arrays in CUDA memory (of PyTorch, CuPy, JAX) are used without a copy, too: a call is ordered after the
    work on the current stream, and results are arrays of the same library on the same device. In one call,
    the arrays of all ranks are in CUDA memory, or none are.

    Every call takes `timeout` (seconds; the default is the world's) and every verb takes `wait`: with
    ``wait=False`` it runs in the background and the call returns a `Pending` at once.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> group = world.group([0])
        >>> group.rank, group.size, group.members
        (0, 1, (0,))
    """

    def __init__(self, native: _native.Group) -> None:
        self._native = native
        self.rank: int = native.rank
        """This process's rank in the group."""
        self.size: int = native.size
        """The number of ranks in the group."""
        self.members: tuple[int, ...] = native.members
        """The members' ranks in the world."""

    def __repr__(self) -> str:
        return f"<unisono.Group {self._native.name}, rank {self.rank} of {self.size}>"

    def _counted(self, prepare: Callable[..., T], *arguments: Any) -> T:
        """Prepares a collective. If that fails, the call counts: the other ranks may be making it."""
        try:
            return prepare(*arguments)
        except BaseException:
            self._native.skip_call()
            raise

    def _rejected(self, error: E) -> E:
        """The error of a collective that was rejected; the call counts: the other ranks may be making it."""
        self._native.skip_call()
        return error

    def group(self, members: Sequence[int], *, timeout: float | None = None) -> Group | None:
        """Makes a smaller group.

        Args:
            members: The members' ranks in this group, each once; all members pass the same list. Other ranks
                need not call.
            timeout: Seconds until the call times out; the new group inherits this group's default.

        Returns:
            The new group, or None on a rank that is not a member.
        """
        native = self._native.subgroup(members, timeout)
        return None if native is None else Group(native)

    def split(self, color: int | None, key: int = 0, *, timeout: float | None = None) -> Group | None:
        """Splits the group: ranks that pass the same color form a new group. Every rank calls it.

        Args:
            color: The new group to join, 0 or more; None joins none.
            key: Ranks are ordered by their keys, then by their old ranks.
            timeout: Seconds until the call times out.

        Returns:
            The new group, or None without a color.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> world.split(world.rank % 2).members
            (0,)
        """
        native = self._native.split(color, key, timeout)
        return None if native is None else Group(native)

    def revoke(self) -> None:
        """Ends the use of this group on all its ranks, as `MPIX_Comm_revoke` does; one rank alone calls it.

        For a rank that cannot make a call in which the others wait for it: calls on this group, including
        those in progress, raise `PeerLost` on the other ranks. Groups made before remain usable.

        Example:
            >>> import unisono as uni
            >>> group = uni.init().group([0])
            >>> group.revoke()
        """
        self._native.revoke()

    def cuda_path(self, device: int | None = None, *, timeout: float | None = None) -> str:
        """How arrays in CUDA memory are transferred between the ranks. Every rank calls it.

        Args:
            device: The number of this rank's device; by default the current one of its library.
            timeout: Seconds until the call times out.

        Returns:
            "direct" between threads of one process; "ipc" if processes of a host map each other's memory;
            "nccl" if each rank has its own device; "staged" through host memory.
        """
        return self._native.cuda_path(self._counted(current) if device is None else device, timeout)

    def barrier(self, *, wait: bool = True, timeout: float | None = None) -> Any:
        """Waits until every rank has reached this call.

        Args:
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            None.
        """
        outcome = self._native.barrier(wait, timeout)
        return outcome if wait else Pending(outcome, "barrier", _nothing)

    def broadcast(self, x: Array, root: int = 0, *, wait: bool = True, timeout: float | None = None) -> Any:
        """Copies the root's array to every rank.

        Args:
            x: The array, of the same type and size on every rank; written in place.
            root: The rank that has the values.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            `x`.
        """
        lent = x if type(x) is ndarray else self._counted(in_memory, x)
        outcome = self._native.broadcast(lent, root, wait, timeout)
        if not wait:
            return Pending(outcome, "broadcast", partial(_written, x, lent))
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
        """
        lent = x if type(x) is ndarray else self._counted(in_memory, x)
        outcome = self._native.all_reduce(lent, op, wait, timeout, deterministic)
        if not wait:
            return Pending(outcome, "all_reduce", partial(_written, x, lent))
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
        """
        lent = x if type(x) is ndarray else self._counted(in_memory, x)
        outcome = self._native.reduce(lent, op, root, wait, timeout, deterministic)
        if not wait:
            return Pending(outcome, "reduce", partial(_written, x, lent) if self.rank == root else _nothing)
        if self.rank != root:
            return None
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
        """
        outcome = self._native.gather(x, root, varied, out, wait, timeout)
        return _finish(outcome, "gather", x, out if self.rank == root else None, wait)

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
        """
        outcome = self._native.all_gather(x, varied, out, wait, timeout)
        return _finish(outcome, "all_gather", x, out, wait)

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
        """
        outcome = self._native.scatter(x, root, out, wait, timeout)
        return _finish(outcome, "scatter", x, out, wait)

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
        """
        outcome = self._native.reduce_scatter(x, op, out, wait, timeout, deterministic)
        return _finish(outcome, "reduce_scatter", x, out, wait)

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
            _new(one, part) for one, part in zip(made, parts, strict=True)
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
        return _finish(outcome, "all_to_all", x, out, wait)

    def send(
        self, x: Array, to: int, tag: int = 0, *, wait: bool = True, timeout: float | None = None
    ) -> Any:
        """Sends an array to one rank, which calls `recv`.

        Args:
            x: The array; only read.
            to: The rank that receives it.
            tag: Identifies the message if several are in flight: 0 or more.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            None.
        """
        outcome = self._native.send(x, to, tag, wait, timeout)
        return outcome if wait else Pending(outcome, "send", _nothing)

    def recv(
        self, x: Array, source: int, tag: int = 0, *, wait: bool = True, timeout: float | None = None
    ) -> Any:
        """Receives an array from one rank, which calls `send`.

        Args:
            x: The array to fill, of the sender's type and size; written in place.
            source: The rank that sends it.
            tag: Identifies the message if several are in flight: 0 or more.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            `x`.
        """
        lent = x if type(x) is ndarray else in_memory(x)
        outcome = self._native.recv(lent, source, tag, wait, timeout)
        if not wait:
            return Pending(outcome, "recv", partial(_written, x, lent))
        return x if lent is x else written(x, lent)

    def recv_any(self, x: Array, tag: int = 0, *, wait: bool = True, timeout: float | None = None) -> Any:
        """Receives an array from any rank, which calls `send`; arrays in host memory only.

        Args:
            x: The array to fill, of the sender's size; written in place.
            tag: Identifies the message. No other receive with this tag may run at the same time.
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            The sender's rank.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> pending = uni.send(np.arange(2), to=world.rank, tag=5, wait=False)
            >>> world.recv_any(np.zeros(2, dtype=int), tag=5)
            0
            >>> pending.wait()
        """
        lent = x if type(x) is ndarray else in_memory(x)
        outcome = self._native.recv_any(lent, tag, wait, timeout)
        finish: Callable[[int], int] = lambda sender: (written(x, lent), sender)[1]  # noqa: E731
        return finish(outcome) if wait else Pending(outcome, "recv", finish)


def _nothing(_: object) -> None:
    """The result of collectives without a result."""


def _written(x: Any, lent: Any, _: object) -> Any:
    return written(x, lent)


def _finish(outcome: Any, operation: str, x: object, out: Any | None, wait: bool) -> Any:
    """The result of a collective that fills the caller's `out` or, without one, a new array like `x`."""
    finish = partial(_new, like=x) if out is None else partial(_written, out, out)
    return finish(outcome) if wait else Pending(outcome, operation, finish)


def _new(memory: Any | None, like: object) -> Any:
    """The new array that a collective returns, or None if it returns none."""
    return None if memory is None else take_over(memory, like)
