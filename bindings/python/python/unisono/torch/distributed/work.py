"""The calls of a process group: the queue makes them one after the other, see ``call_queue.rs``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work
from torch.distributed import DistBackendError
from torch.futures import Future

from unisono._native import CallQueue
from unisono.errors import Error
from unisono.torch.distributed.native import load

Job = Callable[[], None]

ENDED = "unisono: this process group was destroyed or aborted; create a new one"

NATIVE = load()


def in_torch_terms(error: BaseException) -> BaseException:
    """The exception that programs written for PyTorch's own backends expect.

    Args:
        error: The exception of a call.

    Returns:
        A `DistBackendError`, which is a `RuntimeError`, for an error of this package; otherwise the same.
    """
    if not isinstance(error, Error):
        return error
    if isinstance(error, TimeoutError):
        made = DistBackendError(f"unisono: Timed out ({error})")
    else:
        made = DistBackendError(f"unisono: {error}")
    made.__cause__ = error
    return made


class CallWork(Work):
    """One call, to be waited for, where there is no C++ part, which has its own."""

    def __init__(
        self,
        queue: CallQueue,
        job: Job,
        outputs: Sequence[torch.Tensor],
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self._queue = queue
        self._device = device
        self._job: Job | None = job
        self._outputs = list(outputs)
        self._number = 0
        self._error: BaseException | None = None
        self._done = False
        self._lock = threading.Lock()
        self._completion: Future[None] | None = None
        self._future: Future[list[torch.Tensor]] | None = None

    def submit(self, background: bool) -> None:
        """Submits the call, and waits for it unless the caller continues before it has ended.

        Args:
            background: Whether the caller continues.

        Raises:
            DistBackendError: The call failed, or the process group was destroyed.
        """
        number = self._queue.submit(self, background)
        if number is None:
            raise DistBackendError(ENDED)
        self._number = number
        if not background:
            self.wait()

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits for the end of the call, and makes it on this thread if it has not begun."""
        limit = timeout.total_seconds()
        if not self._done and not self._queue.wait(self._number, limit):
            raise DistBackendError(
                f"unisono: Timed out waiting {limit * 1000:.0f}ms for an operation, which still runs"
            )
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        """The call's future; its value is the list of output tensors."""
        with self._lock:
            if self._future is None:
                # A future that Python sets can only hold values; its continuation can hold an error, too.
                completion: Future[None] = Future(devices=_listed(self._device))
                self._completion, self._future = completion, completion.then(self._outcome)
        self.complete()
        return self._future

    def _outcome(self, _: Any) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        if self._device is not None:  # continuations get the device that is current here
            torch.cuda.set_device(self._device)
        return self._outputs

    def run(self) -> None:
        """Makes the call; the queue calls it once."""
        job, self._job = self._job, None
        try:
            assert job is not None
            job()
        except BaseException as error:
            self._error = error
        self._done = True

    def complete(self) -> None:
        """Runs the callbacks of the call's future, if there is one and the call has ended."""
        with self._lock:
            completion = self._completion if self._done else None
            if completion is not None:
                self._completion = None
        if completion is not None:
            completion.set_result(None)

    def is_completed(self) -> bool:
        """Whether the call has ended."""
        return self._done

    def is_success(self) -> bool:
        """Whether the call has ended without an error."""
        return self._done and self._error is None

    def result(self) -> list[torch.Tensor]:
        """The output tensors."""
        return self._outputs


def _listed(device: torch.device | None) -> list[int | str | torch.device]:
    return [] if device is None else [device]
