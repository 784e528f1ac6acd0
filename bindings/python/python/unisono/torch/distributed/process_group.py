"""The process group of PyTorch older than 2.14, which accepts no backend written in Python.

There, a Python subclass of ``ProcessGroup`` takes the group's place. This one passes every call on to the
backend, under the names that these versions have, and with the options that a caller has left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _distributed_c10d as c10d
from torch._C._distributed_c10d import ProcessGroup, Work

from unisono.torch.distributed.versions import DEVICES, OLDEST_WITH_BACKENDS

if TYPE_CHECKING:
    from unisono.torch.distributed.backend import UnisonoBackend


class PlainBackend:
    """What the backend inherits where PyTorch's own class cannot be extended."""

    bound_device_id: torch.device | None = None

    def __init__(self, rank: int, size: int) -> None:
        self._rank, self._size = rank, size

    def rank(self) -> int:
        """This process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """The number of ranks."""
        return self._size

    def name(self) -> str:
        """The name that programs pass to `init_process_group`."""
        return "unisono"


class UnisonoProcessGroup(ProcessGroup):
    """A process group whose calls a backend makes."""

    def __init__(
        self, backend: UnisonoBackend, devices: list[torch.device], bound: torch.device | None
    ) -> None:
        """Puts a process group in front of a backend.

        Args:
            backend: The backend.
            devices: The types of devices that the group is for.
            bound: The device that it is bound to.
        """
        super().__init__(backend.rank(), backend.size())
        self._devices = devices
        if bound is not None:
            for one in (self, backend):
                setattr(one, "bound_device_id", bound)  # noqa: B010, the stubs lack it
        self._backend, self._name, self._description = backend, "", ""

    # What PyTorch asks a group for its backends.

    @property
    def _device_types(self) -> list[torch.device]:
        return self._devices

    def _get_backend(self, device: torch.device) -> UnisonoBackend:
        if torch.device(device).type not in {one.type for one in self._device_types}:
            raise RuntimeError(f"unisono: no backend for devices of type {torch.device(device).type}")
        return self._backend

    def getBackendName(self) -> str:
        """The name that programs pass to `init_process_group`."""
        return "unisono"

    # Names: newer versions call the methods of C++, whose texts must outlive the call.

    def _set_group_name(self, name: str) -> None:
        self._name = name

    def _set_group_desc(self, description: str) -> None:
        self._description = description

    def getGroupName(self) -> str:
        """The group's name."""
        return self._name

    def getGroupDesc(self) -> str:
        """The group's description."""
        return self._description

    setGroupName, setGroupDesc = _set_group_name, _set_group_desc
    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    # Numbers of calls, messages, and the end.

    def _set_sequence_number_for_group(self) -> None:
        """Sequence numbers start at 0 on all ranks."""

    def _get_sequence_number_for_group(self) -> int:
        return self._backend._get_sequence_number_for_group()

    def send(self, tensors: list[torch.Tensor], to: int, tag: int) -> Work:
        """Sends a tensor."""
        return self._backend.send(tensors, to, tag)

    def recv(self, tensors: list[torch.Tensor], source: int, tag: int) -> Work:
        """Receives a tensor."""
        return self._backend.recv(tensors, source, tag)

    def recv_anysource(self, tensors: list[torch.Tensor], tag: int) -> Work:
        """Receives a tensor from any rank."""
        return self._backend.recv_anysource(tensors, tag)

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """A barrier whose error names missing ranks."""
        options = c10d.BarrierOptions()
        options.timeout = self._backend.options._timeout if timeout is None else timeout
        self._backend.monitored_barrier(options, wait_all_ranks)

    def set_timeout(self, timeout: timedelta) -> None:
        """Sets the default timeout of later calls."""
        self._backend.set_timeout(timeout)

    def shutdown(self) -> None:
        """Makes the calls that were submitted, and leaves the group; later calls are errors."""
        self._backend.shutdown()

    def abort(self) -> None:
        """Ends all calls of this group with an error, also on the other ranks."""
        self._backend.abort()


def group_devices() -> tuple[list[torch.device], torch.device | None]:
    """The devices of the group that is being created, which these versions do not pass on.

    Returns:
        The types of devices that the group is for, and the device that it is bound to.

    Raises:
        RuntimeError: The group has other backends for some devices, which PyTorch would silently ignore.
    """
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    if frame is None:
        return [torch.device(one) for one in DEVICES], None
    config = frame.f_locals["backend_config"]
    backends = config.get_device_backend_map()
    if set(backends.values()) != {"unisono"}:
        newer = ".".join(map(str, OLDEST_WITH_BACKENDS))
        raise RuntimeError(
            f"unisono: expected one backend for all devices, received {config}; PyTorch {torch.__version__} "
            f'cannot combine it with others: pass "unisono" alone, or upgrade PyTorch to {newer} or newer'
        )
    return [torch.device(one) for one in backends], frame.f_locals.get("device_id")


def _forward(name: str, method: str, options: Any) -> Callable[..., Work]:
    """A method of the process group that calls one of the backend."""

    def call(self: UnisonoProcessGroup, *arguments: Any, **named: Any) -> Work:
        if "opts" not in named and not (arguments and isinstance(arguments[-1], options)):
            if name in _CALLED_BY_CPP:  # PyTorch's method takes all other forms of arguments, and calls again
                made: Work = getattr(ProcessGroup, name)(self, *arguments, **named)
                return made
            arguments = (*arguments, options())
        *rest, last = *arguments, *named.values()
        work: Work = getattr(self._backend, method)(*rest, last)
        return work

    call.__doc__ = f"As the backend's `{method}`."
    return call


# Names that have changed: those of older versions, and of the backend.
_RENAMED = {
    "_allgather_base": "all_gather_single",
    "_reduce_scatter_base": "reduce_scatter_single",
    "alltoall_base": "all_to_all_single",
    "allgather_into_tensor_coalesced": "all_gather_single_coalesced",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_single_coalesced",
}
_OPTIONS = {
    "allreduce": c10d.AllreduceOptions,
    "allreduce_coalesced": c10d.AllreduceCoalescedOptions,
    "broadcast": c10d.BroadcastOptions,
    "reduce": c10d.ReduceOptions,
    "allgather": c10d.AllgatherOptions,
    "allgather_coalesced": c10d.AllgatherOptions,
    "all_gather_single": c10d.AllgatherOptions,
    "all_gather_single_coalesced": c10d.AllgatherOptions,
    "gather": c10d.GatherOptions,
    "gather_single": c10d.GatherOptions,
    "scatter": c10d.ScatterOptions,
    "reduce_scatter": c10d.ReduceScatterOptions,
    "reduce_scatter_single": c10d.ReduceScatterOptions,
    "reduce_scatter_single_coalesced": c10d.ReduceScatterOptions,
    "alltoall": c10d.AllToAllOptions,
    "all_to_all_single": c10d.AllToAllOptions,
    "barrier": c10d.BarrierOptions,
}
_CALLED_BY_CPP = {"allreduce", "broadcast", "allgather", "reduce_scatter", "barrier"}

for _name, _method in {**{one: one for one in _OPTIONS}, **_RENAMED}.items():
    setattr(UnisonoProcessGroup, _name, _forward(_name, _method, _OPTIONS[_method]))
