"""What can go wrong with functions, beside the errors of the package itself."""

from __future__ import annotations

import traceback
from typing import NamedTuple

from unisono.errors import Error


class WorkerError(Error, RuntimeError):
    """A worker raised an exception; the job goes on.

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


class Inactive(Error, RuntimeError):
    """A call that needs workers while there are none."""

    def __init__(self, what: str, advice: str = "call fork() first") -> None:
        super().__init__(f"Cannot call {what} on inactive workers; {advice}")


class Misfit(ValueError):
    """What a worker holds does not fit the call; found before anything was computed."""


class Failure(NamedTuple):
    """An exception on its way from a worker to the master."""

    rank: int
    summary: str
    text: str
    is_misfit: bool

    @staticmethod
    def of(error: BaseException, rank: int) -> Failure:
        """Packs an exception."""
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return Failure(
            rank, str(error) if isinstance(error, Misfit) else summary, text, isinstance(error, Misfit)
        )

    def exception(self, operation: str, others: int) -> Exception:
        """The exception that the master raises."""
        if self.is_misfit:
            return ValueError(self.summary)
        more = f" ({others} more ranks failed too)" if others else ""
        error = WorkerError(f"{operation}: worker {self.rank} raised {self.summary}{more}\n\n{self.text}")
        error.rank, error.worker, error.operation = self.rank, self.rank, operation
        error.traceback = self.text
        return error
