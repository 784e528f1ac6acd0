"""One exception class for each kind of error; each also is the builtin that a user expects.

All of them can be pickled and copied, with their attributes: `multiprocessing` passes them on.

Example:
    >>> import unisono as uni
    >>> issubclass(uni.Timeout, uni.Error) and issubclass(uni.Timeout, TimeoutError)
    True
"""

from typing import Any, ClassVar, NamedTuple


class Missing(NamedTuple):
    """A rank that others waited for in vain."""

    rank: int
    """Its rank in the world."""
    pid: int | None
    """Its process, where known."""
    doing: str
    """What it was last doing and for how long."""
    location: str | None
    """The file and line that it is at, where its program can tell."""


class Lost(NamedTuple):
    """A rank that is gone."""

    rank: int
    """Its rank in the world."""
    pid: int | None
    """Its process, where known."""
    how: str
    """How it was lost."""


class Error(Exception):
    """The base of all errors of this package."""

    kind: ClassVar[int] = 0
    """The stable number of this kind of error, shared with C and Lua."""
    rank: int | None = None
    """The rank that raised it, where known."""
    operation: str | None = None
    """The call that failed."""
    number: int | None = None
    """The call's number in its group."""
    group: str | None = None
    """The name of the group that the call was made on."""

    def __reduce__(self) -> Any:
        # Not by calling the class: what is made of other arguments than its text would get that instead.
        state = dict(vars(self))
        if isinstance(self, OSError) and self.errno is not None:
            state["errno"] = self.errno
        return _restored, (type(self), self.args, state)


def _restored(kind: type[Error], arguments: tuple[Any, ...], state: dict[str, Any]) -> Error:
    """The error that was pickled or copied."""
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    for name, value in state.items():
        setattr(error, name, value)
    return error


class UsageError(Error, ValueError):
    """A call that cannot be right; nothing was changed."""

    kind = 1
    calls: tuple[tuple[int, str], ...] = ()
    """For mismatched calls: each rank and what it called."""


class Timeout(Error, TimeoutError):
    """A deadline passed."""

    kind = 2
    waited: float | None = None
    """Seconds that the call waited."""
    missing: tuple[Missing, ...] = ()
    """The ranks that have not arrived."""


class PeerLost(Error, ConnectionError):
    """Another rank died or gave up."""

    kind = 3
    lost: tuple[Lost, ...] = ()
    """The ranks that are gone."""


class IoError(Error, OSError):
    """The operating system refused something."""

    kind = 4


class Unsupported(Error, NotImplementedError):
    """This machine or this build cannot do it."""

    kind = 5


class InternalError(Error, RuntimeError):
    """A bug in this package."""

    kind = 6
