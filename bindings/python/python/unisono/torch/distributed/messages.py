"""Point-to-point messages of a process group, and the barrier that is made of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import Work
from torch.distributed import DistBackendError
from torch.futures import Future

from unisono.errors import Error
from unisono.group import Group
from unisono.pending import Pending
from unisono.torch.distributed.operations import Operation
from unisono.torch.distributed.tensors import dense, flat, is_memory, readable
from unisono.torch.distributed.work import NATIVE, in_torch_terms

# The C++ part has a `Work` of its own.
if TYPE_CHECKING:
    _Base = Work
else:
    _Base = Work if NATIVE is None else object


class MessageWork(_Base):
    """A message that is sent or received while the program continues."""

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self._x = x
        self._native: Any = None
        self._pending: Pending[Any] | None = None
        self._finish: Callable[[], object] | None = None
        self._source: int | None = None
        self._error: Error | None = None
        self._future: Future[list[Tensor]] | None = None

    def begin(self, rank: int, operation: Operation, sequence: int) -> Work:
        """Begins to observe the message, before it is under way.

        Args:
            rank: This rank.
            operation: The call.
            sequence: The number of collectives that the group has made.

        Returns:
            What PyTorch gets: the C++ half of this message, or the message itself.
        """
        if NATIVE is None:
            return self
        made: Work = NATIVE.MessageWork(self, rank, operation.number, operation.title, [self._x], sequence)
        self._native = made
        return made

    def observe_end(self) -> None:
        """Ends the profiler's event, and the bond between the two halves, which keep each other alive."""
        native, self._native = self._native, None
        if native is not None:
            native.finished()

    def start(self, pending: Pending[Any], finish: Callable[[], object] | None = None) -> None:
        """Sets the message, once it is under way.

        Args:
            pending: The message; the result of a receive from any rank is the sender.
            finish: Called once when it has ended.
        """
        self._pending, self._finish = pending, finish

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits until the message was received, or until the tensor may be overwritten."""
        assert self._pending is not None
        try:
            self._source = self._pending.wait(timeout.total_seconds() if timeout else None)
        except Error as error:
            if self._pending.done():
                self._error = error
                self.observe_end()
            raise in_torch_terms(error) from error
        finish, self._finish = self._finish, None
        if finish is not None:
            finish()
        self.observe_end()
        return True

    def get_future(self) -> Future[list[Tensor]]:
        """The message's future; its value is the list of its one tensor."""
        if self._future is None:
            completion: Future[None] = Future(devices=[self._x.device] if self._x.is_cuda else [])
            self._future = completion.then(self._outcome)
            assert self._pending is not None
            self._pending.add_done_callback(lambda _: completion.set_result(None))
        return self._future

    def is_completed(self) -> bool:
        """Whether the message was received, or its tensor may be overwritten."""
        return self._pending is not None and self._pending.done()

    def error_text(self) -> str | None:
        """The error of the message, if a wait has raised it."""
        return None if self._error is None else str(self._error)

    def is_success(self) -> bool:
        """Whether the message has ended without an error."""
        return self.is_completed() and self._error is None

    def source_rank(self) -> int:
        """The rank that sent a message which was received from any."""
        if not isinstance(self._source, int):
            raise ValueError("unisono: only the receive of a message from any rank has a source rank")
        return self._source

    _source_rank = source_rank  # its name in PyTorch's own class

    def result(self) -> list[Tensor]:
        """The tensor."""
        return [self._x]

    def _outcome(self, _: Any) -> list[Tensor]:
        self.wait()
        return [self._x]


def send(group: Group, work: MessageWork, x: Tensor, to: int, tag: int, timeout: float) -> None:
    """Starts to send a tensor.

    Args:
        group: The ranks.
        work: The message.
        x: The tensor.
        to: The rank that receives it.
        tag: Identifies the message.
        timeout: Seconds until it times out.
    """
    work.start(group.send(readable(x), to, tag, wait=False, timeout=timeout))


def recv(group: Group, work: MessageWork, x: Tensor, source: int | None, tag: int, timeout: float) -> None:
    """Starts to receive a tensor.

    Args:
        group: The ranks.
        work: The message.
        x: The tensor to fill, of the sender's type and size.
        source: The rank that sends it; None receives from any rank.
        tag: Identifies the message.
        timeout: Seconds until it times out.
    """
    pending: Pending[object]
    memory = x if is_memory(x) else dense(x)
    line = flat(memory)
    if source is None:
        if x.is_cuda:
            raise ValueError(
                f"unisono: recv: rank {group.rank}: expected a source, or a tensor in host memory, received "
                f"a tensor on {x.device} without a source; name the rank that sends it"
            )
        pending = group.recv_any(line, tag, wait=False, timeout=timeout)
    else:
        pending = group.recv(line, source, tag, wait=False, timeout=timeout)
    copied = memory.data_ptr() != x.data_ptr() or not x.is_contiguous()
    work.start(pending, partial(_copy, memory, x) if copied else None)


def _copy(memory: Tensor, x: Tensor) -> None:
    x.detach().copy_(memory)
    if memory.is_cuda:  # it was allocated for the stream of the receive
        memory.record_stream(torch.cuda.current_stream(memory.device))


_BARRIER_TAGS = 1 << 16


def monitored_barrier(group: Group, number: int, timeout: float, wait_all_ranks: bool) -> None:
    """A barrier whose error at rank 0 names the ranks that did not arrive.

    Args:
        group: The ranks.
        number: The number of this barrier; it keeps apart the messages of barriers that failed.
        timeout: Seconds until it times out.
        wait_all_ranks: Whether rank 0 names all missing ranks, instead of the first one.

    Raises:
        DistBackendError: A rank did not arrive in time.
    """
    if timeout <= 0:
        raise DistBackendError(
            f"unisono: Rank {group.rank} timed out in monitoredBarrier after {timeout * 1000:.0f} ms."
        )
    tag = 2**31 - 1 - number % _BARRIER_TAGS
    token = torch.zeros(1, dtype=torch.uint8, device="cpu")
    if group.rank != 0:
        try:
            group.send(token, 0, tag, timeout=timeout)
            group.recv(token, 0, tag, timeout=timeout)
        except Error as error:
            raise DistBackendError(
                f"unisono: Rank {group.rank} successfully reached monitoredBarrier, but received errors "
                f"while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank. {error}"
            ) from error
        return
    arriving = [
        (
            other,
            group.recv(
                torch.zeros(1, dtype=torch.uint8, device="cpu"), other, tag, wait=False, timeout=timeout
            ),
        )
        for other in range(1, group.size)
    ]
    missing: list[int] = []
    cause: Error | None = None
    for other, pending in arriving:
        try:
            pending.wait()
        except Error as error:
            missing.append(other)
            cause = error
    if missing:
        listed = missing if wait_all_ranks else missing[:1]
        ranks = ("Ranks " if len(listed) > 1 else "Rank ") + ", ".join(map(str, listed))
        raise DistBackendError(
            f"unisono: [Rank 0]: {ranks} failed to pass monitoredBarrier in {timeout * 1000:.0f} ms. {cause}"
        ) from cause
    for other in range(1, group.size):
        group.send(token, other, tag, timeout=timeout)
