"""A call that runs in the background while the program computes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from unisono import _native

T = TypeVar("T")


class Pending(Generic[T]):
    """What a call with ``wait=False`` returns.

    Do not touch the arrays of the call before `wait` has returned. The calls of one group run in the order in
    which they were made, whether in the background or not; messages (`send`, `recv`) run beside them.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> gradients = np.ones(3, dtype="float32")
        >>> pending = uni.all_reduce(gradients, op="avg", wait=False)
        >>> pending.wait()
        array([1., 1., 1.], dtype=float32)
    """

    def __init__(self, native: _native.Pending, operation: str, finish: Callable[[Any], T]) -> None:
        self._native: _native.Pending | None = native
        self._operation = operation
        self._finish: Callable[[Any], T] | None = finish
        self._result: T
        self._failure: BaseException | None = None

    def wait(self, timeout: float | None = None) -> T:
        """Waits for the call's end and returns its result; again, it returns (or raises) the same at once.

        Args:
            timeout: Seconds to wait here; the call itself has its own deadline. After a `Timeout` of this
                wait the call still runs and can be waited for again.

        Returns:
            What the call would have returned with ``wait=True``.
        """
        if self._native is not None and self._finish is not None:
            try:
                outcome = self._native.wait(timeout)
            except BaseException as failure:
                if not self._native.is_over:
                    raise
                self._failure = failure
                self._native = self._finish = None
                raise
            self._result = self._finish(outcome)
            self._native = self._finish = None
        if self._failure is not None:
            raise self._failure
        return self._result

    def done(self) -> bool:
        """Whether `wait` would return at once."""
        return self._native is None or self._native.done()

    def __repr__(self) -> str:
        return f"<unisono.Pending {self._operation}, {'done' if self.done() else 'running'}>"

    def __del__(self) -> None:
        if getattr(self, "_native", None) is not None and not sys.is_finalizing():
            message = f"a pending {self._operation} was dropped without wait(): its result or error is lost"
            warnings.warn(message, ResourceWarning, stacklevel=2, source=self)
