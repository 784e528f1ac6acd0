"""The backend that PyTorch's process groups call: every method submits one call to the group's queue."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch._C._distributed_c10d import Backend, PrefixStore, ProcessGroup, Store, Work
from torch.distributed import DistBackendError, distributed_c10d

from unisono._native import CallQueue, call_interface
from unisono.errors import Error
from unisono.group import Group
from unisono.torch.distributed import messages, movement, operations, reductions
from unisono.torch.distributed.hosts import HostsGroup
from unisono.torch.distributed.operations import Operation
from unisono.torch.distributed.process_group import PlainBackend
from unisono.torch.distributed.rendezvous import join
from unisono.torch.distributed.sparse import all_reduce_sparse
from unisono.torch.distributed.streams import Streams, common_device
from unisono.torch.distributed.versions import IS_GROUP
from unisono.torch.distributed.work import ENDED, NATIVE, CallWork, in_torch_terms
from unisono.torch.tracing import exclude_package
from unisono.worlds import World

if TYPE_CHECKING:

    class _Base(Backend):
        """What the C++ part adds to a backend, and what PyTorch's stubs lack."""

        bound_device_id: torch.device | None
        sequence: int

        def connect(self, interface: object | None, has_group: bool, seconds: float, prefix: str) -> None: ...

        def submit(
            self,
            operation: int,
            title: str,
            inputs: Sequence[Tensor],
            outputs: Sequence[Tensor],
            job: Callable[[], None],
            in_background: bool,
        ) -> Work: ...
elif IS_GROUP:
    _Base = PlainBackend
else:
    _Base = Backend if NATIVE is None else NATIVE.NativeBackend


class UnisonoBackend(_Base):
    """One process group's collectives over a group of ranks that share memory, or are on several hosts."""

    def __init__(
        self,
        group: Group | HostsGroup,
        store: Store,
        timeout: timedelta,
        world: World | HostsGroup | None = None,
        parent: UnisonoBackend | None = None,
        is_shrunk: bool = False,
    ) -> None:
        super().__init__(group.rank, group.size)
        self._store = store
        self._is_shrunk = is_shrunk
        # Either kind has the methods that are called here.
        self._hosts = group if isinstance(group, HostsGroup) else None
        self.group: Group | None = cast(Group, group)
        """The ranks, until the process group is destroyed."""
        self.world = world
        """The world, if this process group has made one and leaves it in the end."""
        self._latest_split: tuple[str, UnisonoBackend] | None = None
        mine = world if isinstance(world, World) else None
        self._memory: World | None = mine if parent is None else parent._memory
        self._rank = group.rank
        self._options = Backend.Options("unisono", timeout)
        self._queue = CallQueue()
        self._streams = Streams()
        self._calls = 0
        self._barriers = 0
        self._process = os.getpid()
        self.set_timeout(timeout)

    def getBackendName(self) -> str:
        """The name that programs pass to `init_process_group`."""
        return "unisono"

    # PyTorch's own properties ask the subclass again: each must be defined here, even where they agree.
    # Without the C++ part, PyTorch cannot take that a rank is in no part of a split.
    supports_splitting = property(lambda _: NATIVE is not None)
    supports_coalescing = property(lambda _: False)
    supports_shrinking = property(lambda _: True)
    supports_reconfigure = property(lambda _: False)
    supports_window = property(lambda _: False)
    _supports_time_estimate = property(lambda _: False)

    @property
    def options(self) -> Any:
        """The options; the timeout of calls is one of them."""
        return self._options

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the default timeout of later calls."""
        self._options._timeout = timeout
        self._timeout = timeout.total_seconds()
        if NATIVE is not None and self.group is not None:
            # The first call of a shrunk group must enter Python.
            group = self.group._native if self._hosts is None and not self._is_shrunk else None
            prefix = operations.PREFIX
            self.connect(call_interface(self._queue, group), group is not None, self._timeout, prefix)

    def _set_default_timeout(self, timeout: timedelta) -> None:
        self.set_timeout(timeout)

    def _set_sequence_number_for_group(self) -> None:
        """Sequence numbers start at 0 on all ranks."""

    def _get_sequence_number_for_group(self) -> int:
        return self._calls if NATIVE is None else self.sequence

    # Collectives.

    def allreduce(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        """Reduces a tensor, in place."""
        x, op = _one(tensors), opts.reduceOp
        if x.layout is torch.sparse_coo:
            return self.allreduce_sparse(tensors, opts)
        return self._submit(Operation.ALL_REDUCE, tensors, tensors, opts, reductions.all_reduce, x, op)

    def allreduce_sparse(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        """Adds up a sparse tensor, in place."""
        x, op = _one(tensors), opts.reduceOp
        return self._submit(Operation.ALL_REDUCE_SPARSE, tensors, tensors, opts, all_reduce_sparse, x, op)

    def allreduce_coalesced(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        """Reduces several tensors, in place."""
        job, each = _each(reductions.all_reduce), [(x, opts.reduceOp) for x in tensors]
        return self._submit(Operation.ALL_REDUCE_COALESCED, tensors, tensors, opts, job, each)

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        """Copies the root's tensor to all ranks."""
        x, root = _one(tensors), opts.rootRank
        return self._submit(Operation.BROADCAST, tensors, tensors, opts, movement.broadcast, x, root)

    def reduce(self, tensors: Sequence[Tensor], opts: Any) -> Work:
        """Reduces a tensor to the root."""
        arguments = _one(tensors), opts.reduceOp, opts.rootRank
        return self._submit(Operation.REDUCE, tensors, tensors, opts, reductions.reduce, *arguments)

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> Work:
        """Gathers the tensors of all ranks in a list."""
        x, listed = _one(inputs), list(_one(outputs))
        return self._submit(Operation.ALL_GATHER, inputs, listed, opts, movement.all_gather, listed, x)

    def all_gather_single(self, out: Tensor, x: Tensor, opts: Any) -> Work:
        """Gathers the tensors of all ranks in one tensor."""
        return self._submit(Operation.ALL_GATHER_SINGLE, [x], [out], opts, movement.all_gather_single, out, x)

    def allgather_coalesced(
        self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any
    ) -> Work:
        """Gathers several tensors of all ranks, in one list for each rank."""
        each = [([one[index] for one in outputs], x) for index, x in enumerate(inputs)]
        flat, job = [x for one in outputs for x in one], _each(movement.all_gather)
        return self._submit(Operation.ALL_GATHER_COALESCED, inputs, flat, opts, job, each)

    def all_gather_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any
    ) -> Work:
        """As `all_gather_single`, for several tensors."""
        job, each = _each(movement.all_gather_single), list(zip(outputs, inputs, strict=True))
        return self._submit(Operation.ALL_GATHER_SINGLE_COALESCED, inputs, outputs, opts, job, each)

    def gather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> Work:
        """Gathers the tensors of all ranks in a list at the root."""
        listed = list(outputs[0]) if outputs else []
        arguments = listed, _one(inputs), opts.rootRank
        return self._submit(Operation.GATHER, inputs, listed, opts, movement.gather, *arguments)

    def gather_single(self, out: Tensor, x: Tensor, opts: Any) -> Work:
        """Gathers the tensors of all ranks in one tensor at the root."""
        arguments = out, x, opts.rootRank
        return self._submit(Operation.GATHER, [x], [out], opts, movement.gather_single, *arguments)

    def scatter(self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any) -> Work:
        """Gives every rank one tensor of the root's list."""
        parts = list(inputs[0]) if inputs else []
        arguments = _one(outputs), parts, opts.rootRank
        return self._submit(Operation.SCATTER, parts, outputs, opts, movement.scatter, *arguments)

    def reduce_scatter(
        self, outputs: Sequence[Tensor], inputs: Sequence[Sequence[Tensor]], opts: Any
    ) -> Work:
        """Reduces a list with one tensor for each rank."""
        parts, job = list(_one(inputs)), reductions.reduce_scatter_list
        arguments = _one(outputs), parts, opts.reduceOp
        return self._submit(Operation.REDUCE_SCATTER, parts, outputs, opts, job, *arguments)

    def reduce_scatter_single(self, out: Tensor, x: Tensor, opts: Any) -> Work:
        """Reduces a tensor with one part for each rank."""
        job, arguments = reductions.reduce_scatter, (out, x, opts.reduceOp)
        return self._submit(Operation.REDUCE_SCATTER_SINGLE, [x], [out], opts, job, *arguments)

    def reduce_scatter_single_coalesced(
        self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any
    ) -> Work:
        """As `reduce_scatter_single`, for several tensors."""
        job = _each(reductions.reduce_scatter)
        each = [(out, x, opts.reduceOp) for out, x in zip(outputs, inputs, strict=True)]
        return self._submit(Operation.REDUCE_SCATTER_COALESCED, inputs, outputs, opts, job, each)

    def all_to_all_single(
        self, out: Tensor, x: Tensor, out_splits: Sequence[int], splits: Sequence[int], opts: Any
    ) -> Work:
        """Sends a block of rows to every rank and receives one from each."""
        job, arguments = movement.all_to_all_single, (out, x, list(out_splits), list(splits))
        return self._submit(Operation.ALL_TO_ALL_SINGLE, [x], [out], opts, job, *arguments)

    def alltoall(self, outputs: Sequence[Tensor], inputs: Sequence[Tensor], opts: Any) -> Work:
        """Sends a tensor to every rank and receives one from each."""
        received, sent = list(outputs), list(inputs)
        return self._submit(Operation.ALL_TO_ALL, sent, received, opts, movement.all_to_all, received, sent)

    def barrier(self, opts: Any) -> Work:
        """Waits for all ranks and, if a CUDA device is named, for their work on its current stream."""
        named = torch.device("cuda", opts.device_ids[0]) if opts.device_ids else self.bound_device_id
        device = named if named is not None and named.type == "cuda" else None
        return self._submit(Operation.BARRIER, [], [], opts, movement.barrier, device, device=device)

    # Messages: they are not ordered with collectives.

    def send(self, tensors: Sequence[Tensor], to: int, tag: int) -> Work:
        """Sends a tensor."""
        return self._message(Operation.SEND, messages.send, _one(tensors), to, tag)

    def recv(self, tensors: Sequence[Tensor], source: int, tag: int) -> Work:
        """Receives a tensor."""
        return self._message(Operation.RECV, messages.recv, _one(tensors), source, tag)

    def recv_anysource(self, tensors: Sequence[Tensor], tag: int) -> Work:
        """Receives a tensor from any rank."""
        return self._message(Operation.RECV_ANY, messages.recv, _one(tensors), None, tag)

    def monitored_barrier(self, opts: Any, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names missing ranks."""
        group, limit = self._open(), opts.timeout.total_seconds()
        if self._hosts is not None:
            self._hosts.monitored_barrier(opts.timeout, wait_all_ranks)
            return
        timeout = limit if limit >= 0 else self._timeout
        self._barriers += 1
        messages.monitored_barrier(group, self._barriers, timeout, wait_all_ranks)

    def split(self, store: Store, ranks: Sequence[int], opts: Backend.Options) -> UnisonoBackend | None:
        """Makes the backend of a subgroup, for `torch.distributed.split_group`."""
        timeout, name = opts._timeout, str(opts.group_name)
        if self._latest_split is not None and self._latest_split[0] == name:
            backend = self._latest_split[1]
            if backend.group is not None:
                return backend  # PyTorch asks once for each type of device
        try:
            group = subgroup(self._open(), store, ranks, timeout)
        except Exception as error:
            raise in_torch_terms(error) from error
        if group is None:
            return None
        backend = UnisonoBackend(group, store, timeout, parent=self)
        ALIVE.add(backend)
        self._latest_split = (name, backend)
        return backend

    def shrink(
        self, ranks_to_exclude: Sequence[int], shrink_flags: int = 0, opts_override: Any = None
    ) -> UnisonoBackend:
        """Makes the backend of the remaining ranks, for `shrink_group`; only they call it."""
        remaining = [rank for rank in range(self.size()) if rank not in ranks_to_exclude]
        timeout = (opts_override or self._options)._timeout
        if shrink_flags:
            self.abort()
        # The old group may be broken: the remaining ranks join a new world, as in `init_process_group`.
        store = PrefixStore(f"without {sorted(ranks_to_exclude)}", self._store)
        try:
            joined = join(store, remaining.index(self._rank), len(remaining), timeout)
        except Exception as error:
            raise in_torch_terms(error) from error
        backend = UnisonoBackend(joined, store, timeout, world=joined, is_shrunk=True)
        ALIVE.add(backend)
        return backend

    def _correct_type(self) -> None:
        """Registers a shrunk group's backend as CUSTOM.

        `shrink_group` registers backends for CPUs as Gloo's, and DistributedDataParallel's logger then reads
        their memory as such.
        """
        self._is_shrunk = False
        self.set_timeout(self._options._timeout)
        custom = ProcessGroup.BackendType.CUSTOM
        for group in list(distributed_c10d._world.pg_map):
            for device in group._device_types:
                if group._get_backend(device) is self:
                    group._register_backend(device, custom, self)
                    group._set_default_backend(custom)

    # Memory that the ranks share: collectives use it without a copy. FSDP2 asks for it, and with the C++ part
    # also DistributedDataParallel, for its buckets.

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        """Whether `allocate_tensor` has memory for this device."""
        # Without the C++ part, PyTorch asks with a number, and cannot pass on what `allocate_tensor` returns.
        return isinstance(device, torch.device) and device.type == "cpu" and self._memory is not None

    def allocate_tensor(self, size: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Makes a tensor in memory that the ranks of this host share.

        Args:
            size: The number of elements.
            dtype: The element type.
            device: The CPU.

        Returns:
            The tensor, uninitialized; in memory of this process alone if no shared memory is left.
        """
        if self._memory is not None and self.group is not None:
            with contextlib.suppress(Error):
                return torch.from_numpy(self._memory.empty(size * dtype.itemsize, "uint8")).view(dtype)
        return torch.empty(size, dtype=dtype, device=device)

    def eager_connect_single_device(self, device: torch.device | None) -> None:
        """Nothing is left to connect."""

    def perform_nocolor_split(self, device: torch.device) -> None:
        """Nothing: ranks that are not in a new group take no part in making it."""

    # The end.

    def shutdown(self) -> None:
        """Makes the calls that were submitted, and leaves the group; later calls are errors."""
        if self._process != os.getpid():
            return
        self._queue.close()
        self._leave()

    def abort(self) -> None:
        """Ends all calls of this group with an error, also on the other ranks."""
        group = self.group
        if group is not None and self._process == os.getpid():
            group.revoke()
            self.shutdown()

    def end(self) -> None:
        """As `shutdown` if nothing runs, otherwise as `abort`; for the end of the program."""
        if self._process == os.getpid():
            (self.shutdown if self._queue.is_idle else self.abort)()

    def _leave(self) -> None:
        world, self.world, self.group, self._memory = self.world, None, None, None
        if NATIVE is not None:
            self.connect(None, False, 0.0, "")
        if world is not None:
            world.leave()
        ALIVE.discard(self)

    # Common parts.

    def _open(self) -> Group:
        if self.group is None:
            raise DistBackendError(ENDED)
        return self.group

    def _seconds(self, opts: Any) -> float:
        limit: float = opts.timeout.total_seconds()
        return limit if limit > 0 else self._timeout

    def _check_device(self, operation: Operation, device: torch.device | None) -> None:
        if device is not None and self._hosts is not None:
            raise ValueError(
                f"{operation.title}: rank {self._rank}: expected tensors in host memory in a group across "
                f'hosts, received one on {device}; use init_process_group("cpu:unisono,cuda:nccl")'
            )

    def _submit(
        self,
        operation: Operation,
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        opts: Any,
        job: Callable[..., None],
        *arguments: Any,
        device: torch.device | None = None,
    ) -> Work:
        """Submits a call, which the job makes with the group, these arguments and the timeout."""
        exclude_package()
        group, timeout = self._open(), self._seconds(opts)
        if self._is_shrunk:
            self._correct_type()
        device = device or common_device(operation.title, self._rank, inputs, outputs)
        self._check_device(operation, device)

        def run() -> None:
            try:
                job(group, *arguments, timeout)
            except Error as error:
                raise in_torch_terms(error) from error

        if device is not None:
            run = self._streams.ordered(run, device, (*inputs, *outputs), opts.asyncOp)
        if NATIVE is not None:
            return self.submit(operation.number, operation.title, inputs, outputs, run, opts.asyncOp)
        call = CallWork(self._queue, run, outputs, device)
        self._calls += 1
        call.submit(opts.asyncOp)
        return call

    def _message(
        self, operation: Operation, start: Callable[..., None], x: Tensor, peer: int | None, tag: int
    ) -> Work:
        group, message = self._open(), messages.MessageWork(x)
        self._check_device(operation, x.device if x.is_cuda else None)
        work = message.begin(self._rank, operation, self._get_sequence_number_for_group())
        try:
            start(group, message, x, peer, tag, self._timeout)
        except Exception as error:
            message.observe_end()
            raise in_torch_terms(error) from error
        return work


ALIVE: set[UnisonoBackend] = set()
"""The backends that are in use: PyTorch may keep only their C++ half."""


def subgroup(
    group: Group | HostsGroup, store: Store, ranks: Sequence[int], timeout: timedelta
) -> Group | HostsGroup | None:
    """Makes a group of some ranks of another; only they call it.

    Args:
        group: The other group.
        store: A store for the new group alone.
        ranks: The ranks in the other group.
        timeout: The timeout of this call.

    Returns:
        The group; None on other ranks.
    """
    if isinstance(group, HostsGroup):
        return group.subgroup(store, ranks, timeout)
    return group.group(list(ranks), timeout=timeout.total_seconds())


def _one(tensors: Sequence[Any]) -> Any:
    if len(tensors) != 1:
        raise ValueError(f"unisono: expected one tensor for this rank, received {len(tensors)}; pass one")
    return tensors[0]


def _each(call: Callable[..., None]) -> Callable[[Group, Sequence[tuple[Any, ...]], float], None]:
    def job(group: Group, each: Sequence[tuple[Any, ...]], timeout: float) -> None:
        for arguments in each:
            call(group, *arguments, timeout)

    return job
