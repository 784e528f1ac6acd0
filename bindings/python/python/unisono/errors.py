"""One exception class for each kind of error; each also derives from the matching built-in exception.

All of them can be pickled and copied with their attributes, as `multiprocessing` requires.

Example:
    >>> import unisono as uni
    >>> issubclass(uni.Timeout, uni.Error) and issubclass(uni.Timeout, TimeoutError)
    True
"""

from typing import Any, ClassVar, NamedTuple


class Missing(NamedTuple):
    """A rank that others waited for and that did not arrive."""

    rank: int
    """Its rank in the world."""
    pid: int | None
    """Its process id, if known."""
    doing: str
    """Its last known activity and for how long."""
    location: str | None
    """The file and line that it is executing, if its program can tell."""
    host: str | None = None
    """The name of its host, in a job on several hosts."""


class Lost(NamedTuple):
    """A rank that is lost."""

    rank: int
    """Its rank in the world."""
    pid: int | None
    """Its process id, if known."""
    how: str
    """How it was lost."""
    host: str | None = None
    """The name of its host, in a job on several hosts."""


class Error(Exception):
    """The base class of all errors of this package."""

    kind: ClassVar[int] = 0
    """The stable number of this kind of error, shared with C and Lua."""
    rank: int | None = None
    """The rank that raised it, if known."""
    operation: str | None = None
    """The call that failed."""
    number: int | None = None
    """The call's number in its group."""
    group: str | None = None
    """The name of the group on which the call was made."""

    def __reduce__(self) -> Any:
        # Not by calling the class: an exception made from other arguments would get its text instead.
        state = dict(vars(self))
        if isinstance(self, OSError) and self.errno is not None:
            state["errno"] = self.errno
        return _restored, (type(self), self.args, state)


def _restored(kind: type[Error], arguments: tuple[Any, ...], state: dict[str, Any]) -> Error:
    """Restores an error that was pickled or copied."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    for name, value in state.items():
        setattr(error, name, value)
    return error


class UsageError(Error, ValueError):
    """An invalid call; nothing was changed."""

    kind = 1
    expected: str | None = None
    """What the call requires."""
    received: str | None = None
    """What it received instead."""
    advice: str | None = None
    """What to do."""
    calls: tuple[tuple[int, str], ...] = ()
    """For mismatched calls: each rank and what it called."""


def usage_error(operation: str, expected: str, received: object, advice: str) -> UsageError:
    """The error for arguments that the Python layer rejects.

    Args:
        operation: The call.
        expected: What it requires.
        received: What it received instead.
        advice: What to do.

    Returns:
        The error; its message names this process's rank, if it has joined a world.
    """
    from unisono.worlds import joined

    world = joined()
    prefix = "" if world is None else f"rank {world.rank}: "
    error = UsageError(f"{prefix}{operation}: expected {expected}, received {received}; {advice}")
    error.rank = None if world is None else world.rank
    error.operation, error.expected, error.received, error.advice = operation, expected, str(received), advice
    return error


class Timeout(Error, TimeoutError):
    """A deadline passed."""

    kind = 2
    waited: float | None = None
    """Seconds that the call waited."""
    missing: tuple[Missing, ...] = ()
    """The ranks that have not arrived."""


class PeerLost(Error, ConnectionError):
    """Another rank died or left."""

    kind = 3
    lost: tuple[Lost, ...] = ()
    """The ranks that are lost."""


class IoError(Error, OSError):
    """An error of the operating system."""

    kind = 4


class Unsupported(Error, NotImplementedError):
    """This machine or this build does not support the operation."""

    kind = 5


class InternalError(Error, RuntimeError):
    """A bug in this package."""

    kind = 6
