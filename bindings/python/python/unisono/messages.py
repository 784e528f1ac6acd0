"""Messages between two ranks: methods of groups, and functions on the default world."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Literal, TypeVar, overload

from numpy import ndarray

from unisono._native import Group as NativeGroup
from unisono.arrays import Array, in_memory, written
from unisono.default_world import on_world
from unisono.pending import Pending

A = TypeVar("A", bound=Array)


class Messages:
    """The messages of a group."""

    _native: NativeGroup

    @overload
    def send(
        self,
        x: Array,
        to: int,
        tag: int = 0,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
    ) -> None: ...

    @overload
    def send(
        self, x: Array, to: int, tag: int = 0, *, wait: Literal[False], timeout: float | None = None
    ) -> Pending[None]: ...

    @overload
    def send(self, x: Array, to: int, tag: int = 0, *, wait: bool, timeout: float | None = None) -> Any: ...

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

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> pending = uni.send(np.arange(2), to=world.rank, wait=False)
            >>> uni.recv(np.zeros(2, dtype=int), source=world.rank)
            array([0, 1])
            >>> pending.wait()
        """
        outcome = self._native.send(x, to, tag, wait, timeout)
        return outcome if wait else Pending(outcome, "send", no_result)

    @overload
    def recv(
        self,
        x: A,
        source: int,
        tag: int = 0,
        *,
        wait: Literal[True] = True,
        timeout: float | None = None,
    ) -> A: ...

    @overload
    def recv(
        self, x: A, source: int, tag: int = 0, *, wait: Literal[False], timeout: float | None = None
    ) -> Pending[A]: ...

    @overload
    def recv(self, x: A, source: int, tag: int = 0, *, wait: bool, timeout: float | None = None) -> Any: ...

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
            `x`; an example is at `send`.
        """
        lent = x if type(x) is ndarray else in_memory(x)
        outcome = self._native.recv(lent, source, tag, wait, timeout)
        if not wait:
            return Pending(outcome, "recv", partial(finish_write, x, lent))
        return x if lent is x else written(x, lent)

    def sendrecv(
        self,
        x: Array,
        to: int,
        out: A,
        source: int,
        tag: int = 0,
        *,
        timeout: float | None = None,
    ) -> A:
        """Sends an array to one rank while it receives one from another, as `MPI_Sendrecv` does.

        Ranks that call it in a ring do not block each other, whatever the sizes.

        Args:
            x: The array to send; only read.
            to: The rank that receives it.
            out: The array to fill, of the type and size that `source` sends. In host memory it may be `x`,
                which is then copied first.
            source: The rank that sends it.
            tag: Identifies both messages: 0 or more.
            timeout: Seconds until the call times out.

        Returns:
            `out`.

        Example:
            >>> import numpy as np, unisono as uni
            >>> world = uni.init()
            >>> right, left = (world.rank + 1) % world.size, (world.rank - 1) % world.size
            >>> uni.sendrecv(np.arange(2), right, np.zeros(2, dtype=int), left)
            array([0, 1])
        """
        lent = out if type(out) is ndarray else in_memory(out)
        self._native.sendrecv(x, to, lent, source, tag, timeout)
        return out if lent is out else written(out, lent)

    @overload
    def recv_any(
        self, x: Array, tag: int = 0, *, wait: Literal[True] = True, timeout: float | None = None
    ) -> int: ...

    @overload
    def recv_any(
        self, x: Array, tag: int = 0, *, wait: Literal[False], timeout: float | None = None
    ) -> Pending[int]: ...

    @overload
    def recv_any(self, x: Array, tag: int = 0, *, wait: bool, timeout: float | None = None) -> Any: ...

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


def no_result(_: object) -> None:
    """Converts the outcome of a call without a result."""


def finish_write(x: Any, lent: Any, _: object) -> Any:
    """Completes a write as `written` does, when the call has ended.

    Args:
        x: The caller's array.
        lent: The result of `in_memory` for it.

    Returns:
        The caller's array.
    """
    return written(x, lent)


recv = on_world(Messages.recv)
send = on_world(Messages.send)
sendrecv = on_world(Messages.sendrecv)
