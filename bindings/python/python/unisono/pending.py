"""A call that runs in the background while the program computes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from unisono import _native

T = TypeVar("T", covariant=True)


class Pending(Generic[T]):
    """The result of a call with ``wait=False``.

    Do not access the arrays of the call before `wait` has returned. The calls of one group run in the order
    in which they were made, whether in the background or not; messages (`send`, `recv`) run concurrently.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> gradients = np.ones(3, dtype="float32")
        >>> pending = uni.all_reduce(gradients, op="avg", wait=False)
        >>> pending.wait()
        array([1., 1., 1.], dtype=float32)

    In a coroutine, `await` does the same without blocking the event loop of asyncio:

        >>> import asyncio
        >>> async def step():
        ...     return await uni.all_reduce(gradients, op="avg", wait=False)
        >>> asyncio.run(step())
        array([1., 1., 1.], dtype=float32)
    """

    def __init__(self, native: _native.Pending, operation: str, finish: Callable[[Any], T]) -> None:
        # The call and the conversion of its outcome, until the result is available.
        self._started: tuple[_native.Pending, Callable[[Any], T]] | None = (native, finish)
        self._operation = operation
        self._result: T

    def wait(self, timeout: float | None = None) -> T:
        """Waits for the call to end and returns its result. Further calls return (or raise) the same at once.

        Several threads may wait for one call. If an exception ends a wait (Ctrl-C, or one of a signal
        handler), the call still runs and can be waited for again.

        Args:
            timeout: Seconds to wait here; the call itself has its own deadline. After a `Timeout` of this
                wait the call still runs and can be waited for again.

        Returns:
            The value that the call would have returned with ``wait=True``.
        """
        started = self._started
        if started is not None:
            native, finish = started
            # An exception may occur after every step, and other threads may be here too: the call keeps its
            # outcome until the result is available, and all threads get the first result.
            self.__dict__.setdefault("_result", finish(native.wait(timeout)))
            self._started = None
        return self._result

    def __await__(self) -> Generator[Any, None, T]:
        """Waits in a coroutine of asyncio; if that is cancelled, the call still runs, as after a timeout."""
        return self._in_event_loop().__await__()

    async def _in_event_loop(self) -> T:
        if not self.done():
            import asyncio

            loop = asyncio.get_running_loop()
            ended = loop.create_future()

            def wake() -> None:
                if not ended.done():
                    ended.set_result(None)

            def notify(_: object) -> None:
                # The loop may be gone by then, if the coroutine was cancelled.
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(wake)

            self.add_done_callback(notify)
            await ended
        return self.wait()

    def add_done_callback(self, callback: Callable[[Pending[T]], object]) -> None:
        """Calls a function when the call has ended, as `concurrent.futures.Future.add_done_callback` does.

        It is called on the library's thread that has made the call, or here if the call has ended already. It
        may call `wait` of this object. The group's next call in the background begins when the function has
        returned: it must not wait for another one. An exception on the library's thread is passed to
        `sys.unraisablehook`.

        Args:
            callback: Called with this object.
        """
        started = self._started
        if started is None:
            callback(self)
        else:
            started[0].on_done(partial(callback, self))

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        started = self._started
        return started is None or started[0].done()

    def __repr__(self) -> str:
        return f"<unisono.Pending {self._operation}, {'done' if self.done() else 'running'}>"

    def __del__(self) -> None:
        started = getattr(self, "_started", None)
        if started is not None and not started[0].is_over and not sys.is_finalizing():
            message = f"a pending {self._operation} was dropped without wait(): its result or error is lost"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)
