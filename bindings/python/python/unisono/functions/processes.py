"""The worker processes: how each is started, watched and ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

from unisono import _native

_BOOT = (
    "import json, sys; path, master, profile = json.loads(sys.argv[1]); sys.path[:] = path; "
    "from unisono.functions.worker import main; main(master, profile)"
)

_IGNORED_VARIABLES = (
    *("UNISONO_TRANSPORT", "UNISONO_HOSTS", "UNISONO_ROLE"),
    *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
)
"""Variables that a surrounding job may have set and that workers must ignore."""


class Processes:
    """The processes of all workers except the master."""

    def __init__(self, job: _native.Job, master: int, profile: bool, threads: int | None) -> None:
        self._job, self._master, self._profile, self._threads = job, master, profile, threads
        self._processes: list[subprocess.Popen[bytes]] = []
        self._watchers: list[threading.Thread] = []

    def start(self, rank: int, own: dict[str, str]) -> None:
        """Starts the worker of a rank, with environment variables of its own."""
        environment = {name: value for name, value in os.environ.items() if name not in _IGNORED_VARIABLES}
        if self._threads is not None:
            environment["OMP_NUM_THREADS"] = str(self._threads)
        else:
            # Workers that each use all cores slow each other down.
            environment.setdefault("OMP_NUM_THREADS", "1")
        environment.update(self._job.environment(rank))
        environment.update(own)
        # Python ignores other entries too.
        path = [one for one in sys.path if isinstance(one, str)]
        process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, json.dumps([path, self._master, self._profile])],
            env=environment,
            # End of file notifies the worker that the master has exited.
            stdin=subprocess.PIPE,
            stdout=2,
            # The master handles Ctrl-C in a terminal.
            start_new_session=True,
        )
        self._processes.append(process)
        watcher = threading.Thread(target=self._watch, args=(rank, process), daemon=True)
        self._watchers.append(watcher)
        watcher.start()

    def _watch(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        """Reports a worker that died before it joined, so that no rank waits for it."""
        process.wait()
        self._job.rank_ended(rank)

    def end(self, grace: float) -> None:
        """Waits `grace` seconds for the processes to exit; then, or if interrupted, kills them."""
        deadline = time.monotonic() + grace
        try:
            for process in self._processes:
                process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._kill()

    def _kill(self) -> None:
        """Kills and reaps all processes."""
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.wait()
            # Closing it earlier would make a worker that is still cleaning up exit at once.
            assert process.stdin is not None
            process.stdin.close()
        for watcher in self._watchers:
            # A running watcher keeps the job's memory alive.
            watcher.join()
