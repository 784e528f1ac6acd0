"""A group of ranks on several hosts: shared memory inside each host, PyTorch's Gloo between hosts.

The first rank of each host is its leader. A reduction combines the values of a host in shared memory, then
those of all hosts between the leaders, and distributes the result in shared memory; broadcast, all_gather and
barrier go the same way. Other calls and messages go over Gloo from rank to rank.

Any error ends the use of the group: the rank that detects it leaves the error's text in the store, ends the
calls of its host, and closes its connections, so that the other hosts fail at once and read the text.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, ReduceOp, Store, Work
from torch.distributed import DistBackendError

from unisono.array_calls import ReduceOp as LibraryOp
from unisono.errors import Error
from unisono.group import Group
from unisono.torch.distributed.tensors import in_rows
from unisono.worlds import World

_OPERATIONS = {
    "sum": ReduceOp.SUM,
    "avg": ReduceOp.SUM,
    "prod": ReduceOp.PRODUCT,
    "min": ReduceOp.MIN,
    "max": ReduceOp.MAX,
}
_HALVES = (torch.float16, torch.bfloat16)
_SECONDS_FOR_CAUSE = 1.0
"""How long a rank that lost a connection waits for the error of a rank that knows more."""


class HostsGroup:
    """Ranks on several hosts, with those methods of `unisono.Group` that process groups call.

    All arguments are contiguous tensors in host memory, of types that the library has.
    """

    def __init__(
        self,
        store: Store,
        hosts: Sequence[int],
        members: Sequence[int],
        me: int,
        local: Group,
        timeout: timedelta,
    ) -> None:
        """Connects the hosts.

        Args:
            store: A store for this group alone.
            hosts: The host of each rank of the job.
            members: The ranks of the job that are in this group.
            me: This process's rank in the job.
            local: The members on this host.
            timeout: The timeout of this call.
        """
        self.rank, self.size = list(members).index(me), len(members)
        self._store, self._local = store, local
        self._hosts, self._members, self._me = list(hosts), list(members), me
        numbers = list(dict.fromkeys(hosts[member] for member in members))
        self._by_host = [[r for r, one in enumerate(members) if hosts[one] == host] for host in numbers]
        self._host = numbers.index(hosts[me])
        self._mine = self._by_host[self._host]
        # PyTorch's stubs lack the methods of Gloo's groups.
        self._every: Any = ProcessGroupGloo(PrefixStore("ranks", store), self.rank, self.size, timeout)
        self._leaders: Any = None
        self._is_leader = local.rank == 0
        if self._is_leader:
            leaders = PrefixStore("leaders", store)
            self._leaders = ProcessGroupGloo(leaders, self._host, len(numbers), timeout)
        self._failed: str | None = None
        self._process = os.getpid()

    def subgroup(self, store: Store, ranks: Sequence[int], timeout: timedelta) -> Group | HostsGroup | None:
        """Makes a group of some of the ranks; only they call it.

        Args:
            store: A store for the new group alone.
            ranks: The ranks in this group.
            timeout: The timeout of this call.

        Returns:
            The group: one in shared memory if its ranks are on one host. None on other ranks.
        """
        if self.rank not in ranks:
            return None
        mine = [self._mine.index(rank) for rank in ranks if rank in self._mine]
        local = self._local.group(mine, timeout=timeout.total_seconds())
        assert local is not None, "this rank is among them"
        if len(mine) == len(ranks):
            return local
        members = [self._members[rank] for rank in ranks]
        return HostsGroup(store, self._hosts, members, self._me, local, timeout)

    def revoke(self) -> None:
        """Ends the calls of this group with an error, also on the other ranks."""
        reason = f"lost rank {self._me}: it aborted this process group"
        self._report(reason)
        self._close(reason)

    def leave(self) -> None:
        """Leaves the world of this host."""
        if isinstance(self._local, World):
            self._local.leave()

    # Collectives.

    def barrier(self, *, timeout: float) -> None:
        """Waits for all ranks."""
        with self._call("barrier", timeout) as call:
            self._local.barrier(timeout=call.left)
            if self._is_leader:
                call.wait(self._leaders.barrier(call.options(c10d.BarrierOptions)))
            self._local.barrier(timeout=call.left)

    def monitored_barrier(self, timeout: timedelta, wait_all_ranks: bool) -> None:
        """A barrier whose error names missing ranks."""
        with self._call("monitored_barrier", timeout.total_seconds()):
            self._every.monitored_barrier(timeout, wait_all_ranks)

    def broadcast(self, x: Tensor, root: int, *, timeout: float) -> None:
        """Copies the root's tensor to all ranks."""
        with self._call("broadcast", timeout) as call:
            host = next(index for index, ranks in enumerate(self._by_host) if root in ranks)
            if host == self._host:
                self._local.broadcast(x, self._mine.index(root), timeout=call.left)
            if self._is_leader and x.numel():
                call.wait(
                    self._leaders.broadcast(
                        [_as_bytes(x)], call.options(c10d.BroadcastOptions, rootRank=host)
                    )
                )
            if host != self._host:
                self._local.broadcast(x, 0, timeout=call.left)

    def all_reduce(self, x: Tensor, op: LibraryOp, *, timeout: float) -> None:
        """Reduces a tensor, in place; partial results of half types are in float32."""
        with self._call("all_reduce", timeout) as call:
            self._reduce_to_leaders(call, wide := _widened(x), op)
            self._local.broadcast(wide, 0, timeout=call.left)
            _finish(wide, x, op, self.size)

    def reduce(self, x: Tensor, op: LibraryOp, root: int, *, timeout: float) -> None:
        """Reduces a tensor to the root."""
        result = x.clone()
        self.all_reduce(result, op, timeout=timeout)
        if self.rank == root:
            x.copy_(result)

    def reduce_scatter(
        self, x: Tensor, op: LibraryOp, *, out: Tensor | None = None, timeout: float
    ) -> Tensor:
        """Reduces a tensor; each rank gets its part."""
        part = x.new_empty(x.numel() // self.size) if out is None else out
        with self._call("reduce_scatter", timeout) as call:
            self._reduce_to_leaders(call, wide := _widened(x, copy=True), op)
            rows = in_rows(wide, self.size)[self._mine] if self._is_leader else None
            mine = wide.new_empty(1, part.numel())
            self._local.scatter(rows, 0, out=mine, timeout=call.left)
            _finish(mine, part, op, self.size)
        return part

    def all_gather(
        self, x: Tensor, *, varied: bool = False, out: Tensor | None = None, timeout: float
    ) -> Tensor:
        """Gathers a row of each rank; if they vary in length, one after the other."""
        if varied:
            return self._all_gather_varied(x, timeout)
        rows = x.new_empty(self.size, x.numel()) if out is None else out
        with self._call("all_gather", timeout) as call:
            blocks = [x.new_empty(len(ranks), x.numel()) for ranks in self._by_host]
            gathered = blocks[self._host] if self._is_leader else None
            self._local.gather(x.view(-1), 0, out=gathered, timeout=call.left)
            if self._is_leader and x.numel():
                for host, (ranks, block) in enumerate(zip(self._by_host, blocks, strict=True)):
                    options = call.options(c10d.BroadcastOptions, rootRank=host)
                    call.wait(self._leaders.broadcast([_as_bytes(block)], options))
                    in_rows(rows, self.size)[ranks] = block
            self._local.broadcast(rows, 0, timeout=call.left)
        return rows

    def _all_gather_varied(self, x: Tensor, timeout: float) -> Tensor:
        counts = self.all_gather(torch.tensor([x.numel()]), timeout=timeout).view(-1).tolist()
        padded = x.new_zeros(max(counts))
        padded[: x.numel()] = x.view(-1)
        rows = self.all_gather(padded, timeout=timeout)
        parts = [row[:count] for row, count in zip(rows, counts, strict=True)]
        return torch.cat(parts).view(-1, *x.shape[1:])

    def gather(self, x: Tensor, root: int, *, out: Tensor | None = None, timeout: float) -> Tensor | None:
        """Gathers a row of each rank at the root."""
        rows = x.new_empty(self.size, x.numel()) if out is None and self.rank == root else out
        with self._call("gather", timeout) as call:
            outputs = [list(in_rows(_as_bytes(rows), self.size))] if rows is not None else []
            options = call.options(c10d.GatherOptions, rootRank=root)
            call.wait(self._every.gather(outputs, [_as_bytes(x)], options))
        return rows

    def scatter(self, x: Tensor | None, root: int, *, out: Tensor, timeout: float) -> None:
        """Gives each rank a row of the root's tensor."""
        with self._call("scatter", timeout) as call:
            inputs = [list(in_rows(_as_bytes(x), self.size))] if x is not None else []
            options = call.options(c10d.ScatterOptions, rootRank=root)
            call.wait(self._every.scatter([_as_bytes(out)], inputs, options))

    def all_to_all(
        self,
        x: Tensor,
        *,
        splits: Sequence[int] | None = None,
        out_splits: Sequence[int] | None = None,
        out: Tensor | None = None,
        timeout: float,
    ) -> Tensor:
        """Exchanges a block with each rank; without splits, blocks of equal size."""
        result = torch.empty_like(x) if out is None else out
        equal = [x.numel() // self.size] * self.size
        with self._call("all_to_all", timeout) as call:
            width = x.element_size()
            received = [width * count for count in out_splits or equal]
            sent = [width * count for count in splits or equal]
            blocks = (_as_bytes(result), _as_bytes(x), received, sent)
            every = self._every
            # Versions before 2.14 have another name for it.
            exchange = every.all_to_all_single if hasattr(every, "all_to_all_single") else every.alltoall_base
            call.wait(exchange(*blocks, call.options(c10d.AllToAllOptions)))
        return result

    def _reduce_to_leaders(self, call: _Call, x: Tensor, op: LibraryOp) -> None:
        self._local.reduce(x, "sum" if op == "avg" else op, 0, timeout=call.left)
        if self._is_leader and x.numel():
            options = call.options(c10d.AllreduceOptions, reduceOp=_OPERATIONS[op])
            call.wait(self._leaders.allreduce([x], options))

    # Messages.

    def send(self, x: Tensor, to: int, tag: int = 0, *, wait: bool = True, timeout: float) -> Any:
        """Sends a tensor."""
        return self._message("send", wait, timeout, lambda: self._every.send([_as_bytes(x)], to, tag))

    def recv(self, x: Tensor, source: int, tag: int = 0, *, wait: bool = True, timeout: float) -> Any:
        """Receives a tensor."""
        return self._message("recv", wait, timeout, lambda: self._every.recv([_as_bytes(x)], source, tag))

    def recv_any(self, x: Tensor, tag: int = 0, *, wait: bool = True, timeout: float) -> Any:
        """Receives a tensor from any rank; the result is the sender."""
        return self._message("recv", wait, timeout, lambda: self._every.recv_anysource([_as_bytes(x)], tag))

    def _message(self, name: str, wait: bool, timeout: float, start: Callable[[], Work]) -> Any:
        with self._call(name, timeout) as call:
            message = _Message(self, name, start(), call)
        return message.wait() if wait else message

    # Errors.

    @contextlib.contextmanager
    def _call(self, name: str, timeout: float) -> Iterator[_Call]:
        """One call; if it fails, so do those of the other ranks."""
        if os.getpid() != self._process:
            raise DistBackendError(
                f"unisono: rank {self.rank}: {name}: this process was forked from the rank and is not a rank "
                "itself; make the call in the process that created the process group"
            )
        if self._failed is not None:
            raise DistBackendError(
                f"unisono: rank {self.rank}: {name}: create a new process group, this one cannot be used "
                f"after an error: {self._failed}"
            )
        try:
            yield _Call(timeout)
        except Exception as error:
            raise self.failure(name, error) from error

    def failure(self, name: str, error: Exception) -> Exception:
        """Ends the use of the group on all ranks.

        Args:
            name: The call that failed.
            error: The error.

        Returns:
            The error to raise.
        """
        if self._failed is not None:  # another thread has ended it, and its connections are closed
            return DistBackendError(f"unisono: rank {self.rank}: {name} across hosts: {self._failed}")
        if isinstance(error, Error):
            # Its text counts the ranks of this host from 0.
            here = [rank for rank, host in enumerate(self._hosts) if host == self._hosts[self._me]]
            ranks = ", ".join(f"rank {here[one.rank]}" for one in _missing(error))
            verb = "Timed out waiting for" if isinstance(error, TimeoutError) else "lost"
            text = f"{verb} {ranks}: on the host of ranks {here}, {error}" if ranks else str(error)
        else:
            # Gloo's errors do not name ranks; a rank that knows more reports it soon.
            with contextlib.suppress(RuntimeError):
                self._store.wait(["error"], timedelta(seconds=_SECONDS_FOR_CAUSE))
            text = f"rank {self._me}: {error}"
        first = self._report(text)
        if first != text:
            text = f"{text}; the first error was: {first}"
        self._close(text)
        return DistBackendError(f"unisono: rank {self.rank}: {name} across hosts: {text}")

    def _report(self, text: str) -> str:
        """Leaves the text of an error for the other ranks; returns that of the first one."""
        try:
            return self._store.compare_set("error", "", text).decode()
        except RuntimeError:  # the store may be gone with the rank that had it
            return text

    def _close(self, reason: str) -> None:
        self._failed = reason
        self._local.revoke()
        # Gloo closes its connections with the last reference.
        connections, self._every, self._leaders = (self._every, self._leaders), None, None
        for gloo in connections:
            if gloo is not None and hasattr(gloo, "abort"):
                gloo.abort()


def _missing(error: Error) -> Sequence[Any]:
    """The ranks that an error names, if it names any."""
    return getattr(error, "missing", None) or getattr(error, "lost", None) or ()


class _Call:
    """The deadline of one call."""

    def __init__(self, timeout: float) -> None:
        self._deadline = time.monotonic() + timeout

    @property
    def left(self) -> float:
        """The seconds that are left."""
        return max(self._deadline - time.monotonic(), 0.001)

    def options(self, kind: Any, **values: Any) -> Any:
        """Gloo's options of a call, with the time that is left."""
        options = kind()
        for name, value in {**values, "timeout": timedelta(seconds=self.left)}.items():
            setattr(options, name, value)
        return options

    def wait(self, work: Work) -> None:
        """Waits for Gloo."""
        work.wait(timedelta(seconds=self.left))


class _Message:
    """A message over Gloo, with the methods of `unisono.Pending`."""

    def __init__(self, group: HostsGroup, name: str, work: Work, call: _Call) -> None:
        self._group, self._name, self._work, self._call = group, name, work, call
        self._ended = False

    def wait(self, timeout: float | None = None) -> int | None:
        """Waits for the message; returns the sender of one that was received from any rank."""
        if not self._ended:
            seconds = self._call.left if timeout is None else min(timeout, self._call.left)
            try:
                self._work.wait(timedelta(seconds=seconds))
            except Exception as error:
                raise self._group.failure(self._name, error) from error
            self._ended = True
        return self._work._source_rank() if self._name == "recv" else None

    def done(self) -> bool:
        """Whether the message was received, or its tensor may be overwritten."""
        return self._ended or self._work.is_completed()

    def add_done_callback(self, callback: Callable[[_Message], object]) -> None:
        """Calls a function when the message has ended, on a thread of its own: Gloo has no callbacks."""

        def run() -> None:
            with contextlib.suppress(Error):  # a wait raises it again
                self.wait()
            callback(self)

        threading.Thread(target=run, daemon=True).start()


def _as_bytes(x: Tensor) -> Tensor:
    return x.view(-1).view(torch.uint8)


def _widened(x: Tensor, copy: bool = False) -> Tensor:
    """The tensor, or its values in float32 if they are of a half type; in new memory if asked to copy."""
    return x.to(torch.float32 if x.dtype in _HALVES else x.dtype, copy=copy)


def _finish(result: Tensor, x: Tensor, op: LibraryOp, size: int) -> None:
    """Divides the sum of an average, and rounds a result once, to the caller's type."""
    if op == "avg":
        result.div_(size)
    if result.data_ptr() != x.data_ptr():
        x.copy_(result.view(x.shape))
