"""Initialization and shutdown, ranks and roles, and the barrier."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any, cast

import unisono as uni
from unisono.tables.names import Updater

# Flags of the original that affect only its internals, not the results of a script.
_WITHOUT_EFFECT = {
    "allocator_alignment",
    "allocator_type",
    "logtostderr",
    "machine_file",
    "omp_threads",
    "port",
}


@dataclass
class Session:
    """The state between `init` and `shutdown`."""

    world: uni.World
    consistency: str
    updater: Updater
    began_the_world: bool
    is_over: bool = False
    tables: list[weakref.ref[uni.Table]] = field(default_factory=list)

    def end(self) -> None:
        """Ends the session: the handlers' tables, or all tables of a world that this session owns."""
        self.is_over = True
        if self.began_the_world:
            self.world._leave_tables()
            return
        errors: list[Exception] = []
        for table in filter(None, (made() for made in self.tables)):
            try:
                table.finish()
            except uni.Error as error:
                errors.append(error)
        if errors:
            raise errors[0]


_current: Session | None = None


def init(sync: bool = False, **flags: Any) -> None:
    """Joins the other processes. Call it before anything else, in every process.

    Args:
        sync: Whether workers run synchronously: each get then returns the same values to all of them.
            Otherwise workers do not wait for each other.
        flags: Flags of the original: ``updater_type``, ``ps_role``, ``backup_worker_ratio``. Those that only
            concern its internals are accepted and ignored.

    Raises:
        unisono.UsageError: A flag is unknown.
    """
    global _current
    # Whatever text it is: `ArrayTable` rejects an unknown name.
    updater = cast(Updater, str(flags.pop("updater_type", "default")))
    # The original's rule of this name; its "momentum_sgd" is an alias already.
    updater = "multiverso_adagrad" if updater == "adagrad" else updater
    role = flags.pop("ps_role", None)
    ratio = int(flags.pop("backup_worker_ratio", 0))
    unknown = sorted(set(flags) - _WITHOUT_EFFECT)
    if unknown:
        raise uni.UsageError(
            f"init: expected the flags updater_type, ps_role or backup_worker_ratio, received {unknown[0]}; "
            "leave it out"
        )
    if not 0 <= ratio < 100:
        raise uni.UsageError(
            f"init: expected a backup_worker_ratio from 0 to 99 percent, received {ratio}; "
            "give one such as 20, or leave it out"
        )
    if _current is not None:
        return
    began = not _has_world()
    world = uni.init()
    world._tables(role)
    backup = ratio * world.workers // 100
    consistency = "async" if not sync else f"bsp:backup={backup}" if backup else "bsp"
    _current = Session(world, consistency, updater, began)


def _has_world() -> bool:
    try:
        uni.world()
    except uni.UsageError:
        return False
    return True


def shutdown() -> None:
    """Ends the use of tables once all processes have reached this call; `init` may be called again.

    A program that called `unisono.init` before keeps the tables that it made itself.
    """
    global _current
    ending, _current = _current, None
    if ending is not None:
        try:
            ending.end()
        finally:
            # Whatever the error here, the other processes wait for this one.
            ending.world.barrier()


def session() -> Session:
    """The current session.

    Returns:
        The session.

    Raises:
        unisono.UsageError: `init` was not called, or `shutdown` was.
    """
    if _current is None:
        raise uni.UsageError(
            "multiverso: expected a call between init() and shutdown(), received one outside; "
            "call multiverso.init() first"
        )
    return _current


def barrier() -> None:
    """Waits until all processes have reached this call; all earlier adds are then in the tables."""
    session().world.barrier()


def workers_num() -> int:
    """The number of workers.

    Returns:
        The number.
    """
    return session().world.workers


def worker_id() -> int:
    """This process's number among the workers, from 0.

    Returns:
        The number, or -1 for a process that is not a worker.
    """
    number = session().world.worker_id
    return -1 if number is None else number


def server_id() -> int:
    """This process's number among the servers, from 0.

    Returns:
        The number, or -1 for a process that is not a server.
    """
    number = session().world.server_id
    return -1 if number is None else number


def is_master_worker() -> bool:
    """Whether this process is worker 0: the one that sets initial values, validates and prints.

    Returns:
        True on one process.
    """
    return worker_id() == 0
