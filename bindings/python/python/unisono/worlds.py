"""The world: all ranks of the job, and the default world of this process."""

from __future__ import annotations

import atexit
import operator
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

from unisono import _native
from unisono import default_world as default
from unisono.arrays import extension_type, is_extension, name_of, take_over
from unisono.default_world import joined as joined
from unisono.default_world import world as world
from unisono.errors import Error, UsageError
from unisono.group import Group
from unisono.messages import no_result
from unisono.pending import Pending

if TYPE_CHECKING:
    from typing_extensions import Self


class World(Group):
    """All ranks of the job; made by `init`. It is a `Group`, so every collective is also its method.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> world.rank, world.size, world.local_rank, world.local_size
        (0, 1, 0, 1)

    It is also a context manager, whose exit calls `leave`; of nested contexts of one world, the outermost.
    After an exception, the rank leaves at once, as when the program ends with one: other ranks may never make
    the calls that its last adds to tables wait for.

        >>> uni.shutdown()
        >>> with uni.init() as world:
        ...     uni.barrier()
    """

    def __init__(self, native: _native.World) -> None:
        super().__init__(native.group())
        self._world = native
        self.local_rank: int = native.local_rank
        """This process's rank among those on its host."""
        self.local_size: int = native.local_size
        """The number of ranks on this host."""
        self.hosts: tuple[str, ...] = tuple(native.hosts)
        """The name of each rank's host."""
        self.transport: str = native.transport
        """The transport: "alone", "shm", "mpi" or "shm+mpi"."""
        self.launcher: str = native.launcher
        """The launcher that started the ranks."""
        self.restarts: int = native.restarts
        """How often the launcher has restarted this rank: 0 for its first process."""
        self._joined: _native.Tables | None = None
        self._role: str | None = None
        self._workers: Group | None = None
        self._contexts = 0

    @classmethod
    def join(cls, name: str, rank: int, size: int, *, timeout: float | None = None) -> World:
        """Joins a world of ranks on this host without a launcher.

        It is for programs that start their processes themselves and can send them a name. A process may
        join any number of such worlds, besides the default world of `init`, and leaves them with `leave`.

        Args:
            name: The world's name, the same on all ranks; no other job of the user may use it at that time.
            rank: The rank of this process, from 0 up.
            size: The number of ranks.
            timeout: The default timeout of all calls, including this one, in seconds; if omitted,
                UNISONO_TIMEOUT, or 300.

        Returns:
            The world, once all ranks have joined.

        Example:
            >>> import secrets, unisono as uni
            >>> world = uni.World.join(secrets.token_hex(16), rank=0, size=1)
            >>> world.rank, world.size
            (0, 1)
            >>> world.leave()
        """
        return cls(_native.World.join(name, rank, size, timeout))

    def leave(self) -> None:
        """Leaves the world: later calls on it are errors. A second call does nothing."""
        self._end(flush=True)

    def __enter__(self) -> Self:
        self._contexts += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._contexts -= 1
        if self._contexts:
            return
        failed = error is not None and not isinstance(error, SystemExit)
        try:
            self._end(flush=not failed)
        except Error:
            # The exception that ended the context is the reason.
            if not failed:
                raise

    def _end(self, flush: bool) -> None:
        if self is default.current:
            _end(flush)
            return
        try:
            self._leave_tables(flush)
        finally:
            self._world.shutdown()

    def __repr__(self) -> str:
        return f"<unisono.World rank {self.rank} of {self.size}, {self.transport}, launcher {self.launcher}>"

    def resume(self) -> None:
        """Declares that this process continues where the rank's previous process stopped.

        The next collective on the world is then the one that the others make next. A rank that
        ``unisono run --restart`` restarted calls it once its state is restored, before its first collective;
        in a rank's first process it does nothing. Without it, that collective is an error on all ranks if an
        earlier process of this rank had completed any.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> if world.restarts:
            ...     world.resume()  # after the state was restored
        """
        self._world.resume()

    @contextmanager
    def _series(self) -> Iterator[None]:
        """Collectives in this context do not count as completed: a restarted rank finds what they set up."""
        self._world.begin_series()
        try:
            yield
        finally:
            self._world.end_series()

    def empty(self, shape: int | Sequence[int], dtype: Any = "float32") -> Any:
        """Makes a NumPy array in memory that this host's ranks share: collectives use it without a copy.

        Args:
            shape: The shape.
            dtype: The element type; bfloat16 and types of 8 bits need the package ml_dtypes.

        Returns:
            The array, uninitialized. Its memory is freed when the array and all its views are gone.
        """
        name = name_of(dtype)
        if is_extension(name):
            extension_type(name)
        return take_over(self._world.empty(_extents(shape), name), None)

    @overload
    def barrier(self, *, wait: Literal[True] = True, timeout: float | None = None) -> None: ...

    @overload
    def barrier(self, *, wait: Literal[False], timeout: float | None = None) -> Pending[None]: ...

    @overload
    def barrier(self, *, wait: bool, timeout: float | None = None) -> Any: ...

    def barrier(self, *, wait: bool = True, timeout: float | None = None) -> Any:
        """Waits until every rank has reached this call; all earlier adds to tables are then applied.

        Args:
            wait: Whether to wait here; otherwise a `Pending` is returned.
            timeout: Seconds until the call times out.

        Returns:
            None.
        """
        callee = self._native if self._joined is None else self._joined
        outcome = callee.barrier(wait, timeout)
        return outcome if wait else Pending(outcome, "barrier", no_result)

    @property
    def workers(self) -> int:
        """The number of workers, the ranks that get and add."""
        return self.size if self._joined is None else self._joined.workers

    @property
    def servers(self) -> int:
        """The number of servers, the ranks that hold parts of tables."""
        return self.size if self._joined is None else self._joined.servers

    @property
    def worker_id(self) -> int | None:
        """This rank's number among the workers, or None if it is not a worker."""
        return self.rank if self._joined is None else self._joined.worker_id

    @property
    def server_id(self) -> int | None:
        """This rank's number among the servers, or None if it is not a server."""
        return self.rank if self._joined is None else self._joined.server_id

    def _worker_group(self, operation: str, timeout: float | None = None) -> Group:
        """The group of all workers, created collectively at the first call that needs it."""
        if self.worker_id is None:
            raise UsageError(
                f"rank {self.rank}: {operation}: expected a worker, received a rank that only serves; "
                "call it on workers, or pass a group"
            )
        if self._joined is None or self.workers == self.size:
            return self
        if self._workers is None:
            self._workers = self.group(self._joined.worker_ranks, timeout=timeout)
        assert self._workers is not None
        return self._workers

    def _tables(self, role: str | None = None) -> _native.Tables:
        """This world's tables. The first call is collective, and assigns this rank its `role`."""
        with _tables_lock:
            if self._joined is None:
                self._joined = self._world.tables(role or "both")
                self._role = role or "both"
            elif role not in (None, self._role):
                raise UsageError(
                    f"init: expected the role {self._role!r}, which this rank has, received {role!r}; "
                    "give the role with the first init()"
                )
            return self._joined

    def _leave_tables(self, flush: bool = True) -> None:
        """Ends this rank's use of tables: its adds are applied, and no other rank waits for it.

        If ranks are on several hosts, it continues to serve them until all have reached this call.
        """
        leaving, self._joined, self._role, self._workers = self._joined, None, None, None
        if leaving is not None and flush and not self._world.is_forked:
            leaving.close(None)


def _extents(shape: Any) -> list[int]:
    """Converts the shape of a new array for the native module."""
    try:
        extents = [operator.index(one) for one in ([shape] if hasattr(shape, "__index__") else shape)]
    except TypeError:
        extents = [-1]
    if any(not 0 <= one < 2**63 for one in extents):
        raise UsageError(
            f"empty: expected a shape of integers from 0 up, received {shape!r}; look at how it was computed"
        )
    return extents


_tables_lock = threading.Lock()
_lock = threading.Lock()


def init(timeout: float | None = None, role: str | None = None) -> World:
    """Joins the world that the launcher of this process has started; without a launcher, a world of one rank.

    Args:
        timeout: The default timeout of all calls, in seconds; if omitted, UNISONO_TIMEOUT, or 300.
        role: This rank's role for tables: "worker" (gets and adds), "server" (holds parts of tables), "both"
            or "none"; by default UNISONO_ROLE. Either every rank has a role or none has, and then all are
            both.

    Returns:
        The world. A second call returns the same world, and sets the timeout if one is given. After
        `shutdown`, a process without a launcher gets a new world; a rank of a job can join only once.

    Raises:
        UsageError: This rank has left its job, or has another role.

    Example:
        >>> import unisono as uni
        >>> uni.init() is uni.init()
        True
    """
    with _lock:
        if default.current is not None and default.current._world.is_forked:
            if default.current.size > 1:
                raise UsageError(
                    "init: expected a process of its own for each rank, received a child that was forked "
                    f"from rank {default.current.rank}; start ranks with a launcher: "
                    "unisono run -n 4 -- program.py"
                )
            default.current = None
        if default.left_a_job:
            raise UsageError(
                "init: expected a process that has not joined its job before, received one that has left it; "
                "call unisono.shutdown() only when all work is done"
            )
        if default.current is None:
            default.current = World(_native.World.init(timeout))
        elif timeout is not None:
            default.current._world.set_timeout(timeout)
        role = role or os.environ.get("UNISONO_ROLE") or None
        if role is not None:
            default.current._tables(role)
        return default.current


def shutdown() -> None:
    """Leaves the default world; without one it does nothing. It is also called when the program exits.

    Call it when all work is done: a rank of a job cannot join again; only a process without a launcher can.
    This rank's adds to tables are applied first; workers that continue need not wait for it.
    """
    _end(flush=True)


def _at_exit() -> None:
    # After an uncaught exception, other ranks may never make the calls that this rank's last adds wait for.
    try:
        _end(flush=getattr(sys, "last_value", None) is None)
    except Error as error:
        print(f"unisono: at exit: {error}", file=sys.stderr)


def _end(flush: bool) -> None:
    with _lock:
        ending, default.current = default.current, None
        if ending is not None:
            # Other ranks may still be in their last call: a new world in the same shared memory would
            # interfere.
            default.left_a_job = ending.size > 1
            try:
                ending._leave_tables(flush)
            finally:
                ending._world.shutdown()


def empty(shape: int | Sequence[int], dtype: Any = "float32") -> Any:
    """Makes a NumPy array in memory that the ranks of this host share; see `World.empty`.

    Args:
        shape: The shape.
        dtype: The element type.

    Returns:
        The array, uninitialized.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> x = uni.empty((2, 3))
        >>> x.shape, x.dtype.name
        ((2, 3), 'float32')
    """
    return world().empty(shape, dtype)


atexit.register(_at_exit)
