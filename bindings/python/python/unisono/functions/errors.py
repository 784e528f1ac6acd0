"""Exceptions of functions, in addition to those of the package itself."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from unisono.errors import Error, Missing, PeerLost, Timeout


class WorkerError(Error, RuntimeError):
    """A worker raised an exception; the job continues.

    Example:
        >>> from unisono import functions
        >>> issubclass(functions.WorkerError, RuntimeError)
        True
    """

    kind = 0
    worker: int | None = None
    """The rank of the worker."""
    traceback: str = ""
    """The worker's own traceback, as text."""


class Interrupted(Error, RuntimeError):
    """A call after an earlier one was interrupted while waiting for workers."""

    def __init__(self) -> None:
        super().__init__(
            "an earlier call was interrupted while it waited for workers, and they are at another point than "
            "the master; call close() and then start() again"
        )


class Inactive(Error, RuntimeError):
    """A call that needs workers when there are none."""

    def __init__(self, what: str, advice: str = "call start() first") -> None:
        super().__init__(f"Cannot call {what} on inactive workers; {advice}")


def explain(error: Error, what: str, timeout: float) -> None:
    """Adds to an error about lost or late workers what the master was doing, and how to recover."""
    if isinstance(error, PeerLost):
        who = ", ".join(f"rank {one.rank} (process {one.pid}: {one.how})" for one in error.lost) or str(error)
        advice = "what it printed may say why; call close() and then start() again"
    elif isinstance(error, Timeout):
        late = [f"rank {one.rank} (process {one.pid}, {one.doing}{_at(one)})" for one in error.missing]
        who = f"{', '.join(late) or 'others'} for {timeout:g} s, the limit set by start(timeout=...)"
        advice = "call close(), and then start() with a longer timeout"
    else:
        return
    verb = "lost" if isinstance(error, PeerLost) else "timed out waiting for"
    error.operation = what
    error.args = (f"{what}: {verb} {who}; {advice}",)


def _at(late: Missing) -> str:
    return f", at {late.location}" if late.location else ""


class ShapeMismatch(ValueError):
    """A worker's values do not fit the call; detected before anything was computed."""


class Failure(NamedTuple):
    """An exception in transit from a worker to the master."""

    rank: int
    summary: str
    text: str
    is_mismatch: bool

    @staticmethod
    def of(error: BaseException, rank: int) -> Failure:
        """Captures an exception as text that can be sent."""
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return Failure(
            rank,
            str(error) if isinstance(error, ShapeMismatch) else summary,
            text,
            isinstance(error, ShapeMismatch),
        )

    def exception(self, operation: str, others: int) -> Exception:
        """The exception that the master raises."""
        if self.is_mismatch:
            return ValueError(self.summary)
        more = f" ({others} more ranks failed too)" if others else ""
        error = WorkerError(f"{operation}: worker {self.rank} raised {self.summary}{more}\n\n{self.text}")
        error.rank, error.worker, error.operation = self.rank, self.rank, operation
        error.traceback = self.text
        return error
