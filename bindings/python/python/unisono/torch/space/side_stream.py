"""A side stream: for small work on a device that must not wait for large work on the caller's stream."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import torch

_own = threading.local()


class SideStream:
    """Work ordered after everything enqueued on the current stream before this object was made.

    Inside the context, a high-priority stream of this thread is current. Work enqueued on the previous stream
    after the context waits for the side stream, so arrays of either may be used on both.
    """

    def __init__(self, device: torch.device) -> None:
        """Records an event after the work enqueued so far.

        Args:
            device: The CUDA device.
        """
        streams: dict[torch.device, Any] = vars(_own).setdefault("streams", {})
        if device not in streams:
            made: Any = torch.cuda.Stream
            streams[device] = made(device, priority=-1)
        self._stream = streams[device]
        self._before: Any = torch.cuda.current_stream(device)
        self._mark = self._before.record_event()
        self._inside: Any = torch.cuda.stream(self._stream)

    def __enter__(self) -> None:
        self._stream.wait_event(self._mark)
        self._inside.__enter__()

    def join(self) -> None:
        """Makes the side stream wait for everything enqueued on the previous stream so far."""
        self._stream.wait_stream(self._before)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside.__exit__(kind, error, trace)
        self._before.wait_stream(self._stream)
