"""Calls on tensors in CUDA memory: the stream on which a call runs, and the order with the caller's stream.

The library's collectives run after the work that is queued on the current stream, and return when their own
work is done. A blocking call therefore runs on the caller's current stream. One in the background runs on
a stream of its group's own, which waits for the caller's work at the time of the call, and for nothing later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor
from torch.distributed import DistBackendError


def common_device(title: str, rank: int, *lists: Sequence[Tensor]) -> torch.device | None:
    """The CUDA device of a call's tensors.

    Args:
        title: The call, for the error.
        rank: This rank, for the error.
        lists: The tensors.

    Returns:
        The device, or None if all tensors are in host memory.

    Raises:
        ValueError: The tensors are on several devices.
    """
    for tensors in lists:
        for x in tensors:
            if x.is_cuda:
                return _common_device(title, rank, lists)
    return None


def _common_device(title: str, rank: int, lists: Sequence[Sequence[Tensor]]) -> torch.device:
    devices = {x.device for tensors in lists for x in tensors}
    if len(devices) > 1:
        received = ", ".join(sorted(map(str, devices)))
        raise ValueError(
            f"{title}: rank {rank}: expected all tensors of a call on one device, received tensors on "
            f"{received}; move them with to()"
        )
    return devices.pop()


class Streams:
    """The streams of one process group's calls in the background, one for each device."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def ordered(
        self, job: Callable[[], None], device: torch.device, tensors: Iterable[Tensor], background: bool
    ) -> Callable[[], None]:
        """A call in the order of the caller's current stream; it may be made on any thread.

        Args:
            job: Makes the call.
            device: The device of its tensors.
            tensors: All of its tensors.
            background: Whether the caller continues before the call has ended.

        Returns:
            Makes the call on its stream. In the background, the device has finished when this returns.

        Raises:
            DistBackendError: A CUDA graph is being captured.
        """
        theirs = torch.cuda.current_stream(device)
        if torch.cuda.is_current_stream_capturing():
            raise DistBackendError(
                "unisono: expected a call outside of a CUDA graph, received one on a stream that is being "
                "captured; a graph is replayed without the other ranks: make the call between graphs"
            )
        if not background:

            def on_their_stream() -> None:
                with torch.cuda.stream(theirs):
                    job()

            return on_their_stream

        ours = self._of(device)
        ready = theirs.record_event()

        def on_our_stream() -> None:
            with torch.cuda.stream(ours):
                ours.wait_event(ready)
                try:
                    job()
                    # A sparse result is in new memory, which the allocator knows as this stream's.
                    _record((x for x in tensors if x.layout is torch.sparse_coo), theirs)
                    ours.synchronize()
                except BaseException:
                    # The caller may free its tensors while the device still works on them.
                    _record(tensors, ours)
                    raise

        return on_our_stream

    def _of(self, device: torch.device) -> torch.cuda.Stream:
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        return self._streams[device]


def _record(tensors: Iterable[Tensor], stream: torch.cuda.Stream) -> None:
    """Keeps the memory of tensors from being allocated anew until a stream's work so far is done."""
    for x in tensors:
        for part in (x._indices(), x._values()) if x.layout is torch.sparse_coo else (x,):
            part.record_stream(stream)
