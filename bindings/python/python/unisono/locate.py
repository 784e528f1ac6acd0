"""The current position in this rank's program, for the timeout errors of ranks that wait for it."""

import os
import sys
import threading

_SITE = os.path.dirname(os.path.dirname(__file__))
_PACKAGES = tuple(os.path.join(_SITE, name) + os.sep for name in ("unisono", "multiverso", "synkhronos"))


def where() -> str | None:
    """The file, line and function that the main thread is executing, outside these packages.

    Returns:
        A string such as ``"train.py:31 in step"``, or None if there is no such position.
    """
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        frame = frame.f_back
    if frame is None:
        return None
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} in {frame.f_code.co_name}"
