"""A call on a thread of its own, whose end is waited for later."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Runs a call beside the program.

    Example:
        >>> seen = []
        >>> beside = Background(lambda: seen.append(1))
        >>> beside.wait()
        >>> seen
        [1]
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._failure: BaseException | None = None
        # A daemon: a program that fails must not wait for an exchange that cannot end.
        self._thread = threading.Thread(target=self._run, name="unisono-sync", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Waits for the call's end and raises what it raised."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            self._call()
        except BaseException as failure:
            self._failure = failure
