"""A call on a background thread, to be joined later."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Background:
    """Runs a call concurrently with the program.

    Example:
        >>> seen = []
        >>> beside = Background(lambda: seen.append(1))
        >>> beside.wait()
        >>> seen
        [1]
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._call: Callable[[], None] | None = call
        self._failure: BaseException | None = None
        # A daemon thread: a program that fails must not wait for an exchange that cannot end.
        self._thread = threading.Thread(target=self._run, name="unisono-sync", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether the call has ended without an error and holds no references."""
        return not self._thread.is_alive() and self._failure is None

    def wait(self) -> None:
        """Waits for the call to end and raises its error, if any."""
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        call, self._call = self._call, None
        assert call is not None
        try:
            call()
        except BaseException as failure:
            self._failure = failure
