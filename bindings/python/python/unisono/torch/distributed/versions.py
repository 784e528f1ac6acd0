"""PyTorch's versions, and what the backend is there: a part of a process group, or the group itself."""

from __future__ import annotations

import os

import torch

DEVICES = ("cpu", "cuda")
"""The types of devices whose tensors the backend takes."""

OLDEST = (2, 8)
"""The oldest version of PyTorch that the backend supports."""

OLDEST_WITH_BACKENDS = (2, 14)
"""The oldest version whose process groups accept a backend written in Python, and find it by its name."""


def version() -> tuple[int, ...]:
    """The installed version of PyTorch.

    Returns:
        Its first two numbers.
    """
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


IS_GROUP = version() < OLDEST_WITH_BACKENDS or os.environ.get("UNISONO_TORCH_GROUP") == "1"
"""Whether the backend takes the place of the process group; with newer versions, only in tests."""
