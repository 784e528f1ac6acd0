"""Calls of a process group: one after the other, on the thread that waits for them or in the background."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch._C._autograd import _profiler_enabled
from torch._C._distributed_c10d import Work
from torch.distributed import DistBackendError
from torch.futures import Future

from unisono.errors import Error
from unisono.torch.distributed.native import load
from unisono.torch.distributed.operations import Operation

Job = Callable[[], None]

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


# The C++ part has a `Work` of its own.
if TYPE_CHECKING:
    _Base = Work
else:
    _Base = Work if NATIVE is None else object


class Observed(_Base):
    """A call of which the C++ part, if there is one, reports more than its end."""

    def __init__(self, makes_future: bool = True) -> None:
        super().__init__()
        self._makes_future = makes_future
        """Whether the future is made here even if there is a C++ part."""
        self._native: Any = None

    def begin(self, rank: int, operation: Operation, inputs: Sequence[torch.Tensor], sequence: int) -> Work:
        """Begins to observe the call, before it is made.

        Args:
            rank: This rank.
            operation: The call.
            inputs: Its inputs, for the profiler.
            sequence: The call's number in its group.

        Returns:
            What PyTorch gets: the C++ half of this call, or the call itself.
        """
        if NATIVE is None:
            return self
        shown = list(inputs) if _profiler_enabled() else None
        made: Work = NATIVE.NativeWork(
            self, rank, operation.number, operation.title, shown, sequence, self._makes_future
        )
        self._native = made
        return made

    def observe_end(self, succeeded: bool) -> Any:
        """Ends the profiler's event, and the bond between the two halves, which keep each other alive.

        Args:
            succeeded: Whether the call ended without an error, and a wait for it has nothing left to do.

        Returns:
            The C++ half, if there is one.
        """
        native, self._native = self._native, None
        if native is not None:
            native.finished(succeeded)
        return native

    def error_text(self) -> str | None:
        """The error of the call, if it has ended with one."""
        raise NotImplementedError

    def is_success(self) -> bool:
        """Whether the call has ended without an error."""
        return self.is_completed() and self.error_text() is None

    def source_rank(self) -> int:
        """The rank that sent a message."""
        raise ValueError("unisono: only the receive of a message from any rank has a source rank")


class CallWork(Observed):
    """One call, to be waited for."""

    def __init__(self, queue: CallQueue, job: Job, outputs: Sequence[torch.Tensor]) -> None:
        super().__init__(makes_future=False)
        self._queue = queue
        self._job: Job | None = job
        self._outputs = list(outputs)
        self._error: BaseException | None = None
        self._done = False
        self._completion: Future[None] | None = None
        self._future: Future[list[torch.Tensor]] | None = None

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Waits for the end of the call, and makes it on this thread if it has not begun."""
        if not self._done:
            self._queue.wait_for(self, timeout.total_seconds() if timeout else 0.0)
        if self._error is not None:
            raise self._error
        return True

    def get_future(self) -> Future[list[torch.Tensor]]:
        """The call's future; its value is the list of output tensors."""
        with self._queue.lock:
            if self._future is None:
                # A future that Python sets can only hold values; its continuation can hold an error, too.
                completion: Future[None] = Future()
                self._completion, self._future = completion, completion.then(self._outcome)
            completed = self._completion if self._done else None
        if completed is not None:
            _complete(completed)
        return self._future

    def _outcome(self, _: Any) -> list[torch.Tensor]:
        if self._error is not None:
            raise self._error
        return self._outputs

    def run(self) -> None:
        """Makes the call; the queue calls it once."""
        job, self._job = self._job, None
        try:
            assert job is not None
            job()
        except BaseException as error:
            self._error = in_torch_terms(error)

    def finish(self) -> Callable[[], None] | None:
        """Marks the call as ended, under the queue's lock; returns what completes its future after it."""
        self._done = True
        native, completion = self.observe_end(self._error is None), self._completion
        if completion is not None:
            return partial(_complete, completion)
        return None if native is None else cast(Callable[[], None], native.complete_future)

    def is_completed(self) -> bool:
        """Whether the call has ended."""
        return self._done

    def error_text(self) -> str | None:
        """The error of the call, if it has ended with one."""
        return None if self._error is None else str(self._error)

    def result(self) -> list[torch.Tensor]:
        """The output tensors."""
        return self._outputs


def _complete(completion: Future[None]) -> None:
    if not completion.done():
        completion.set_result(None)


class CallQueue:
    """Makes the calls of one group in the order in which they were submitted, one at a time.

    A thread that waits for a call makes the calls before it, and the call itself, unless the background
    thread has begun: short calls then need no switch between threads. The background thread is started on
    first use.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self.lock = threading.Lock()
        self._calls: deque[CallWork] = deque()
        self._running = False
        self._closed = False
        # Threads sleep on locks of their own, each released once: conditions cost more than a short call.
        self._waiting: list[threading.Lock] = []
        self._wake = _held()
        self._asleep = False
        self._thread: threading.Thread | None = None

    def submit(self, call: CallWork, background: bool) -> None:
        """Submits a call.

        Args:
            call: The call.
            background: Whether the caller continues before the call has ended; otherwise it is made here.

        Raises:
            DistBackendError: The call failed, or the process group was destroyed.
        """
        # A future's callback may wait for a call that it submits; the thread that runs it makes that call.
        background = background and threading.current_thread() is not self._thread
        with self.lock:
            if self._closed:
                raise DistBackendError(
                    "unisono: this process group was destroyed or aborted; create a new one"
                )
            idle = not self._running and not self._calls
            if idle and not background:
                self._running = True
            else:
                self._calls.append(call)
                if background:
                    self._rouse()
        if background:
            return
        if idle:
            self._make(call)
        call.wait()

    def wait_for(self, call: CallWork, limit: float) -> None:
        """Waits until a call has ended.

        Args:
            call: The call.
            limit: Seconds; 0 waits until the call's own deadline.
        """
        if limit > 0:  # this thread must not make calls that may take longer
            if not self._sleep_until(call.is_completed, time.monotonic() + limit):
                raise DistBackendError(
                    f"unisono: Timed out waiting {limit * 1000:.0f}ms for an operation, which still runs"
                )
            return
        while not call.is_completed():
            self._sleep_until(lambda: call.is_completed() or not self._running)
            with self.lock:
                first = None if call.is_completed() else self._take()
            if first is not None:
                self._make(first)

    def close(self) -> None:
        """Rejects new calls, makes those that were submitted, and ends the background thread."""
        with self.lock:
            self._closed = True
            last = self._calls[-1] if self._calls else None
        if last is not None:
            self.wait_for(last, 0.0)
        self._sleep_until(lambda: not self._running)
        with self.lock:
            thread, self._thread = self._thread, None
            if thread is not None:
                self._wake_up()
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    @property
    def is_idle(self) -> bool:
        """Whether all submitted calls have ended."""
        with self.lock:
            return not self._running and not self._calls

    def _sleep_until(self, condition: Callable[[], object], deadline: float | None = None) -> bool:
        """Sleeps until a condition holds; False if the time is over first."""
        while True:
            with self.lock:
                if condition():
                    return True
                if deadline is not None:
                    self._rouse()
                ended = _held()
                self._waiting.append(ended)
            limit = -1 if deadline is None else max(deadline - time.monotonic(), 0)
            if not ended.acquire(timeout=limit):
                return bool(condition())

    def _take(self) -> CallWork | None:
        """Takes the next call, under the lock, unless another one runs; the caller makes it."""
        if self._running or not self._calls:
            return None
        self._running = True
        return self._calls.popleft()

    def _make(self, call: CallWork) -> None:
        call.run()
        with self.lock:
            self._running = False
            complete = call.finish()
            waiting, self._waiting = self._waiting, []
            if self._calls:
                self._rouse()
        for ended in waiting:
            ended.release()
        if complete is not None:
            complete()

    def _rouse(self) -> None:
        """Lets the background thread look for calls, under the lock."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"unisono-{self._name}", daemon=True)
            self._thread.start()
        else:
            self._wake_up()

    def _wake_up(self) -> None:
        if self._asleep:
            self._asleep = False
            self._wake.release()

    def _run(self) -> None:
        while True:
            with self.lock:
                call = self._take()
                if call is None:
                    if self._closed and not self._calls:
                        return
                    self._asleep = True
            if call is None:
                self._wake.acquire()
            else:
                self._make(call)


def _held() -> threading.Lock:
    lock = threading.Lock()
    lock.acquire()
    return lock
