"""The worker processes: `start` starts them, the master sends them commands, `close` ends them."""

from __future__ import annotations

import atexit
import math
import os
import pickle
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unisono import _native
from unisono.devices import assignment, installed
from unisono.errors import Error
from unisono.functions import device
from unisono.functions.batch import ArenaArray, is_whole
from unisono.functions.errors import Inactive, Interrupted, explain
from unisono.functions.evaluator import Definition, Evaluator
from unisono.functions.link import FOREVER, Link
from unisono.functions.mapping import map_items
from unisono.functions.member import Member
from unisono.functions.processes import Processes
from unisono.functions.replication import Replication
from unisono.functions.worker import START_SECONDS

if TYPE_CHECKING:
    from typing_extensions import Self

_GRACE = 5.0
"""Seconds that workers get to exit on their own."""


class Workers(int):
    """The number of processes; as a context manager, it closes them at the end.

    Example:
        >>> from unisono import functions
        >>> with functions.start(2) as workers:
        ...     workers.map(str.upper, ["a", "b", "c"])
        ['A', 'B', 'C']
    """

    _pool: Pool
    _start_again: Callable[[], Workers]

    def map(
        self, function: Callable[[Any], Any], items: Iterable[Any], *, progress: bool | None = None
    ) -> list[Any]:
        """Calls a function with every item, on all workers; this process computes its part, too.

        The function is sent with what it captures, and again when that has changed. Items and results are
        pickled. An exception of the function ends the call: on a worker it becomes a `WorkerError` with the
        worker's traceback, which names the item.

        If the call is interrupted, or loses a worker, all workers end, and the next `map` starts new ones.

        Args:
            function: A function of one item.
            items: The items.
            progress: Whether to show on standard error how many items are done; by default in a terminal or
                a notebook, if it takes long enough to read.

        Returns:
            The results, in the order of the items.
        """
        global _pool
        if self._pool.is_closed and _pool is None:
            self._pool = self._start_again()._pool
        pool = self._pool
        if pool is not _pool:
            raise Inactive(
                "map()", "these workers were closed, and there are others: use those, or close them"
            )
        try:
            return map_items(pool, function, items, progress)
        except BaseException:
            if pool.is_lost:
                _pool = None
                pool.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if _pool is self._pool:
            close()


class Pool:
    """The master's side: its workers, and the state that it has sent them."""

    def __init__(
        self,
        size: int,
        master: int,
        profile: bool,
        threads: int | None,
        timeout: float | None,
        devices: list[str] | None,
    ) -> None:
        self._job = _native.Job(size)
        self._processes = Processes(self._job, master, profile, threads)
        self._arena_copies: list[Any] = []
        self._lock = threading.RLock()
        self._lost: BaseException | None = None
        self.is_closed = False
        """Whether its workers have ended."""
        self.mapped: dict[int, tuple[Callable[[Any], Any], int]] = {}
        """Functions that were mapped, and their numbers, by their ids."""
        self._executor: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        own = [{} if not devices else _with_device(devices, rank, size) for rank in range(size)]
        try:
            for rank in range(size):
                if rank != master:
                    self._processes.start(rank, own[rank])
            os.environ.update(own[master])
            world = self._job.join(master, START_SECONDS)
            self.member = Member(Link(world, min(timeout or FOREVER, FOREVER)), master)
            self.replication = Replication(self.member, self.run)
        except BaseException:
            self._processes.end(0)
            raise

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """The lock on the workers: a thread holds it from checking what they need until they are done."""
        if os.getpid() != self._pid:
            raise Inactive("anything in a forked child", "call only in the process that called start()")
        return self._lock

    def register(self, definition: Definition, evaluator: Evaluator, shareds: list[Any]) -> int:
        """Registers a new function; workers receive it before they need it."""
        with self.lock:
            for one in shareds:
                self.member.variables.note(one)
            return self.replication.add(definition, evaluator, shareds)

    def distribute(self) -> None:
        """Sends the workers everything that they lack."""
        with self.lock:
            self.replication.distribute()

    def copy_to_arena(self, array: Any) -> ArenaArray:
        """Copies an array to memory readable by workers during the next command; the caller holds `turn`."""
        location = self.member.copy_to_arena(array)
        self._arena_copies.append(self.member.kept.pop())
        return location, array.dtype.str, array.shape

    def submit(self, call: Callable[[], Any]) -> Future[Any]:
        """Runs a call in the background, after those submitted before."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "unisono-functions")
        return self._executor.submit(call)

    def run(self, task: Any, command: tuple[Any, ...]) -> Any:
        """Runs a task on every rank."""
        message = pickle.dumps(command, 5)
        member = self.member
        with self.lock:
            self.check_usable()
            if not member.is_idle:
                advice = "call the inner one before, or compute it here"
                raise Inactive("a function inside a function", advice)
            member.kept.clear()
            try:
                # No rank reads the message before the barrier: until then an interrupt does no harm.
                member.link.publish(message)
                member.is_idle = False
                member.link.meet()
                return member.perform(task)
            except BaseException as error:
                if not member.is_idle:
                    self._lost = error
                    if isinstance(error, Error) and self.is_closed:
                        advice = (
                            "close() was called meanwhile; call start(), and make functions and data again"
                        )
                        raise Inactive(task.operation, advice) from error
                    if isinstance(error, Error):
                        explain(error, task.operation, member.link.timeout)
                raise
            finally:
                self._arena_copies.clear()

    @property
    def is_lost(self) -> bool:
        """Whether a call left the ranks out of step."""
        return self._lost is not None

    def check_usable(self) -> None:
        """Raises an error after a call that left the ranks out of step."""
        if isinstance(self._lost, Error):
            raise self._lost
        if self._lost is not None:
            raise Interrupted

    def close(self) -> None:
        """Ends the workers; if interrupted, it ends them at once."""
        if os.getpid() != self._pid:
            return
        grace = 0.0
        try:
            self.is_closed = True
            if self._executor is not None:
                self._executor.shutdown(wait=False, cancel_futures=True)
            if self.member.is_idle:
                self.member.link.publish(pickle.dumps(None, 5))
                self.member.link.meet(_GRACE)
                grace = _GRACE
        except Error:
            # A rank was lost or is stuck: there is nothing left to send.
            pass
        finally:
            self._end(grace)

    def _end(self, grace: float) -> None:
        try:
            self._processes.end(grace)
        finally:
            os.environ.pop(device.VARIABLE, None)
            self.replication.end()
            self.member.link.world.shutdown()


def _with_device(devices: list[str], rank: int, size: int) -> dict[str, str]:
    return {**assignment(devices, rank, size), device.VARIABLE: "1"}


_pool: Pool | None = None


def start(
    n: int | None = None,
    *,
    master_rank: int = 0,
    threads: int | None = None,
    timeout: float | None = None,
    profile_workers: bool = False,
    use_gpu: bool = False,
) -> Workers:
    """Starts worker processes. This process is the master: it drives them, and works too.

    Workers are fresh processes, not copies of this one: threads, notebooks and open devices are no obstacle.
    Their output goes to this process's standard error.

    Args:
        n: Number of processes, including this one; by default one for each core, or for each device.
        master_rank: The rank of this process.
        threads: Number of compute threads for each worker; by default OMP_NUM_THREADS, or 1.
        timeout: Seconds that a call may take; by default unlimited, as long as the workers live.
        profile_workers: Whether each worker writes its profile to ``synk_worker_{rank}.prof`` at exit.
        use_gpu: Whether each process computes on a CUDA device of its own, and sees no other; if there
            are more processes than devices, they share them. PyTorch functions then get their inputs on the
            device, and results computed there stay there. Call it before CUDA is first used in this process.

    Returns:
        Number of processes. In a `with` statement, it closes them at the end.

    Raises:
        RuntimeError: There are workers already, or there is no device when one is requested.
        TypeError: The number of workers, or the master's rank, is not an integer.
        ValueError: The number of workers, the rank, the number of threads or the timeout is out of range.

    Example:
        >>> from unisono import functions
        >>> with functions.start(2):
        ...     functions.function(lambda: 1.0, "sum")()
        array(2.)
    """
    global _pool
    if n is not None and not is_whole(n):
        raise TypeError(f"start: expected a whole number of workers, received {n!r}")
    if not is_whole(master_rank):
        raise TypeError(f"start: expected a whole number as master_rank, received {master_rank!r}")
    if _pool is not None:
        raise RuntimeError("start: there are workers already; call close() first")
    devices = installed() if use_gpu else None
    if use_gpu and not devices:
        raise RuntimeError("start: expected a CUDA device for use_gpu=True, found none; leave it out")
    size = len(devices or os.sched_getaffinity(0)) if n is None else int(n)
    if size < 1:
        raise ValueError(f"start: expected at least 1 worker, received {size}")
    if not 0 <= master_rank < size:
        raise ValueError(f"start: expected a master_rank from 0 to {size - 1}, received {master_rank}")
    if threads is not None and (not is_whole(threads) or threads < 1):
        raise ValueError(f"start: expected a whole number of threads from 1 up, received {threads!r}")
    if timeout is not None and not (_is_number(timeout) and 0 < timeout < math.inf):
        raise ValueError(f"start: expected a timeout of more than 0 seconds, received {timeout!r}")
    if not sys.executable:
        raise RuntimeError("start: expected a Python interpreter in sys.executable, received none")
    _pool = Pool(size, int(master_rank), profile_workers, threads, timeout, devices)
    made = Workers(size)
    made._pool = _pool
    made._start_again = partial(
        start,
        size,
        master_rank=master_rank,
        threads=threads,
        timeout=timeout,
        profile_workers=profile_workers,
        use_gpu=use_gpu,
    )
    return made


fork = start
"""Alias of `start`, by the name that Synkhronos gave it. Nothing is forked: workers are fresh processes."""


def close() -> None:
    """Ends the workers; also called at program exit.

    Functions and data created before cannot be used afterwards. Without workers it only warns.
    """
    global _pool
    closing, _pool = _pool, None
    if closing is None:
        warnings.warn("close: there are no workers to close; call start() first", stacklevel=2)
        return
    closing.close()


def is_active() -> bool:
    """Whether there are workers."""
    return _pool is not None


def rank() -> int:
    """The rank of this process, for functions that behave differently on each worker.

    Returns:
        The rank, on workers and on the master.

    Raises:
        RuntimeError: There are no workers.

    Example:
        >>> import random
        >>> from unisono import functions
        >>> functions.start(2)
        2
        >>> def seed():
        ...     random.seed(7 + functions.rank())
        >>> functions.function(seed)()
        >>> functions.close()
    """
    from unisono.functions import worker

    return worker.rank if worker.rank is not None else active("rank()").member.rank


def active(what: str) -> Pool:
    """The pool of workers; without workers, raises an error that names the caller."""
    if _pool is None:
        raise Inactive(what)
    _pool.check_usable()
    return _pool


def distribute() -> None:
    """Sends all new functions and their shared variables to the workers. Calls do so automatically.

    Raises:
        RuntimeError: There are no workers.
        unisono.functions.WorkerError: A worker cannot load a function. All others can be used.
    """
    active("distribute()").distribute()


def _is_number(value: object) -> bool:
    """Whether the value is a number."""
    return is_whole(value) or isinstance(value, (float, np.floating))


def _at_exit() -> None:
    if _pool is not None:
        close()


atexit.register(_at_exit)
