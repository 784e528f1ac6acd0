"""The memory that tables and arrays are in: host memory, or that of a CUDA device."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono import on_device as libraries
from unisono.errors import Error, usage_error

_CUDA = 2  # DLPack's number for CUDA memory


def ordinal(device: Any) -> int | None:
    """Converts a device argument to a device number.

    Args:
        device: None or "cpu", "cuda", "cuda:1", a number, or a PyTorch device.

    Returns:
        The number in this process, or None for the host. "cuda" is the current device of the program's
        library, or the first one if it uses none.

    Raises:
        UsageError: It is none of these.
    """
    if device is None or isinstance(device, int):
        return device
    kind, _, number = str(device).partition(":")
    if kind == "cpu":
        return None
    if kind == "cuda" and (number.isdigit() or not number):
        return int(number) if number else _current()
    raise usage_error("table", '"cuda", "cuda:0" or "cpu" as device', repr(device), "name one")


def _current() -> int:
    try:
        return libraries.current()
    except (Error, RuntimeError, AssertionError):
        return 0  # an error is reported when the device is used


def on_device(x: object) -> bool:
    """Whether an array is in CUDA memory."""
    place = getattr(x, "__dlpack_device__", None)
    return place is not None and not isinstance(x, np.ndarray) and place()[0] == _CUDA


def to_host(x: Any) -> Any:
    """Copies such an array to host memory, with its own library."""
    for name in ("cpu", "get"):
        if hasattr(x, name):
            return getattr(x.detach() if hasattr(x, "detach") else x, name)()
    return np.asarray(x)
