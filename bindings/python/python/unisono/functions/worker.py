"""A worker's life: it joins the master's job and does what it is told until there is nothing left to do."""

from __future__ import annotations

import atexit
import os
import pickle
import signal
import sys
import threading
from typing import Any

from unisono import _native
from unisono.errors import PeerLost
from unisono.functions.link import FOREVER, Link
from unisono.functions.member import Maker, Member, Task

rank: int | None = None
"""Which rank this process is, if it is a worker."""

START_SECONDS = 300.0
"""How long the ranks of a job wait for each other at its start."""


def main(master: int, profile: bool) -> None:
    """Runs a worker.

    Args:
        master: The rank that drives.
        profile: Whether to write what took how long to ``synk_worker_{rank}.prof`` at the end.
    """
    # Ctrl-C is for the master; it tells the workers what comes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_master, args=(_take_line(),), daemon=True).start()
    global rank
    member = Member(Link(_native.World.init(START_SECONDS)), master)
    rank = member.rank
    for name in ("RANK", "SIZE", "JOB", "RESTARTS"):
        # What user code starts or joins from here is not this rank of this job.
        os.environ.pop(f"UNISONO_{name}", None)
    if profile:
        import cProfile

        profiler = cProfile.Profile()
        profiler.runcall(serve, member)
        profiler.dump_stats(f"synk_worker_{member.rank}.prof")
    else:
        serve(member)
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    # Taking large libraries down piece by piece takes seconds, and the master waits for it.
    os._exit(0)


def serve(member: Member) -> None:
    """Does one command after the other."""
    from unisono.functions.commands import COMMANDS

    link = member.link
    try:
        while True:
            link.meet(FOREVER)
            command = pickle.loads(link.read(member.master))
            member.kept.clear()
            if command is None:
                return
            _obey(member, COMMANDS[command[0]], command[1:])
    except PeerLost:
        # Nobody is left to work for. The master says who was lost.
        return


def _obey(member: Member, maker: Maker, details: tuple[Any, ...]) -> None:
    task: Task
    try:
        task = maker(member, *details)
    except BaseException as error:
        task = _Unmade(error)
    member.perform(task)


class _Unmade:
    """A task that this worker could not even make: the master is told why, like of any failure."""

    operation = "a command"

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def prepare(self) -> None:
        """Fails."""
        raise self._error

    def problem(self, shown: list[Any]) -> Exception | None:
        """Nobody asks: there was a failure."""
        return None

    def finish(self, shown: list[Any]) -> None:
        """There is nothing to finish."""


def _take_line() -> int:
    """Takes the line to the master away from standard input, which is empty from now on.

    What user code starts would inherit it, and read for ever.
    """
    line, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return line


def _end_with_master(line: int) -> None:
    """Ends this process when the master is gone, whatever this worker is computing."""
    while os.read(line, 1):
        pass
    os._exit(1)
