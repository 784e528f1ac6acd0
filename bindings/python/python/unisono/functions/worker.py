"""The worker process: it joins the master's job and executes commands until there are none left."""

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
"""The rank of this process, if it is a worker."""

START_SECONDS = 300.0
"""Seconds that the ranks of a job wait for each other at startup."""


def main(master: int, profile: bool) -> None:
    """Runs a worker.

    Args:
        master: The rank of the master.
        profile: Whether to write a profile to ``synk_worker_{rank}.prof`` at exit.
    """
    # The master handles Ctrl-C and notifies the workers of the outcome.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_master, args=(_detach_stdin(),), daemon=True).start()
    global rank
    member = Member(Link(_native.World.init(START_SECONDS)), master)
    rank = member.rank
    for name in ("RANK", "SIZE", "JOB", "RESTARTS"):
        # A job that user code starts or joins from here must not take this rank of this job.
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
    # Unloading large libraries takes seconds, and the master waits for it.
    os._exit(0)


def serve(member: Member) -> None:
    """Executes commands one after the other."""
    from unisono.functions.commands import COMMANDS

    link = member.link
    try:
        while True:
            link.meet(FOREVER)
            command = pickle.loads(link.read(member.master))
            member.kept.clear()
            if command is None:
                return
            _execute(member, COMMANDS[command[0]], command[1:])
    except PeerLost:
        # A rank was lost, so no work is left. The master reports which rank.
        return


def _execute(member: Member, maker: Maker, details: tuple[Any, ...]) -> None:
    task: Task
    try:
        task = maker(member, *details)
    except BaseException as error:
        task = _FailedTask(error)
    member.perform(task)


class _FailedTask:
    """A task that this worker failed to create; the master receives the error, as for any failure."""

    operation = "a command"

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def prepare(self) -> None:
        """Raises the error."""
        raise self._error

    def problem(self, published: list[Any]) -> Exception | None:
        """Never called, because `prepare` fails."""
        return None

    def finish(self, published: list[Any]) -> None:
        """Never called, because `prepare` fails."""


def _detach_stdin() -> int:
    """Moves the pipe to the master away from standard input, which is empty from now on.

    A process that user code starts would inherit the pipe, and read from it forever.
    """
    pipe, devnull = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.close(devnull)
    return pipe


def _exit_with_master(pipe: int) -> None:
    """Exits when the master has exited, whatever this worker is computing."""
    while os.read(pipe, 1):
        pass
    os._exit(1)
