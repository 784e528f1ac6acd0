"""A stream beside the caller's: for small work on a device that shall not wait for large work."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

import torch

_own = threading.local()


class Beside:
    """Work that comes after all that the current stream has been given when this was made, and not later.

    Inside, a stream of this thread is the current one, whose kernels go before the others'. What the stream
    before is given afterwards comes after that work: so arrays of either may be used in both.
    """

    def __init__(self, device: torch.device) -> None:
        """Marks the work so far.

        Args:
            device: Where it is.
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
        """Lets what comes next wait for all that the stream before has been given since."""
        self._stream.wait_stream(self._before)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._inside.__exit__(kind, error, trace)
        self._before.wait_stream(self._stream)
