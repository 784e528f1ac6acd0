"""Whether operations on parts belong to a model's forward pass: plain tensors count differently there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from unisono.errors import Unsupported
from unisono.halo import Grid


@contextmanager
def passing(grid: Grid, learns: bool) -> Iterator[None]:
    """Says that what follows is a model's forward pass.

    Args:
        grid: The ranks.
        learns: Whether gradients are wanted.

    Yields:
        Nothing.
    """
    state = vars(grid)
    before = state.get("_learns", False)
    state["_passes"] = state.get("_passes", 0) + 1
    state["_learns"] = learns
    try:
        yield
    finally:
        state["_passes"] -= 1
        state["_learns"] = before


def within(grid: Grid) -> bool:
    """Whether a model's forward pass is under way.

    Args:
        grid: The ranks.

    Returns:
        Whether it is.
    """
    return bool(vars(grid).get("_passes"))


def recomputed() -> bool:
    """Whether a backward pass is under way: what works on parts then is computed for the second time.

    Returns:
        Whether it is.
    """
    return torch._C._current_graph_task_id() != -1


def counts_fully(x: torch.Tensor, grid: Grid) -> bool:
    """Whether a plain tensor has the full gradient on every rank.

    It is so outside of a model's forward pass. Inside, parameters and what is made of them have each rank's
    share, and the sum comes at the end; but a leaf there is none of the model's, whose parameters are copies.

    Args:
        x: The plain tensor.
        grid: The ranks.

    Returns:
        Whether it has.
    """
    return x.is_leaf or not within(grid)


def check_checkpoint(grid: Grid) -> None:
    """Refuses checkpoints that run in a pass without a graph: the sums of gradients would be missing.

    Args:
        grid: The ranks.
    """
    if torch.is_grad_enabled() or not within(grid) or not vars(grid)["_learns"]:
        return
    module: Any = sys.modules.get("torch.utils.checkpoint")
    code = None if module is None else module.CheckpointFunction.forward.__code__
    frame = sys._getframe() if code is not None else None
    while frame is not None:
        if frame.f_code is code:
            raise Unsupported(
                "expected a checkpoint that keeps the graph, received one with use_reentrant=True; pass "
                "use_reentrant=False"
            )
        frame = frame.f_back
