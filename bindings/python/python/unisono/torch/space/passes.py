"""Whether operations on parts belong to a model's forward pass: plain tensors count differently there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
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
    before = state.get("_learns", False), state.get("_kept", False)
    state["_kept"] = _keeps()
    state["_passes"] = state.get("_passes", 0) + 1
    state["_learns"] = learns
    try:
        yield
    finally:
        state["_passes"] -= 1
        state["_learns"], state["_kept"] = before


def within(grid: Grid) -> bool:
    """Whether a model's forward pass is under way.

    Args:
        grid: The ranks.

    Returns:
        Whether it is.
    """
    return bool(vars(grid).get("_passes"))


def recomputed() -> bool:
    """Whether a checkpoint computes for the second time what it did not keep, during backward.

    Returns:
        Whether it does.
    """
    return in_backward() and _keeps()


def by_hand(grid: Grid) -> bool:
    """Whether a derivative that somebody wrote is at work: it has gradients of this rank's elements alone.

    Args:
        grid: The ranks.

    Returns:
        Whether it is.

    Raises:
        Unsupported: It is a checkpoint that builds a new graph.
    """
    if not in_backward() or within(grid) or _keeps():
        return False
    # Checkpoints look at what they have kept, too.
    return not _checkpoints("backward")


def in_backward() -> bool:
    """Whether autograd is at work on this thread.

    Returns:
        Whether it is.
    """
    return torch._C._current_graph_task_id() != -1


def _keeps() -> bool:
    """Whether somebody takes the tensors that operations keep, as checkpoints do."""
    if hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
        return _top() is not None
    # Older versions do not say it: look for checkpoints, around the pass too.
    return any(_of_checkpoint(frame) for frame in _callers())


def _top() -> Any:
    """The functions that take and give back what operations keep; None without."""
    top: Any = torch._C._autograd._top_saved_tensors_default_hooks
    return top(True)


def _others_keep() -> bool:
    """Whether somebody else than a checkpoint takes what operations keep; older versions do not say."""
    if not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
        return False
    found = []
    while _top() is not None:
        found.append(_top())
        torch._C._autograd._pop_saved_tensors_default_hooks()
    for pair in reversed(found):
        torch._C._autograd._push_saved_tensors_default_hooks(*pair)
    return any(getattr(pair[0], "__module__", "") != "torch.utils.checkpoint" for pair in found)


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
    """Refuses checkpoints that would compute something else the second time.

    Args:
        grid: The ranks.

    Raises:
        Unsupported: One runs without a graph, so that the sums of gradients would be missing; or one is
            inside of another, or beside hooks for kept tensors, which give back plain tensors for parts.
    """
    state = vars(grid)
    if not within(grid) or not state["_learns"] or (torch.is_grad_enabled() and not _keeps()):
        return
    count = _checkpoints("forward")
    if count > 1 or (count and (state["_kept"] or _others_keep())):
        raise Unsupported(
            "expected checkpoints side by side, received one inside of another, or together with "
            "saved_tensors_hooks such as save_on_cpu; keep one of them"
        )


def _checkpoints(way: str) -> int:
    """How many checkpoints of this pass are among the callers; one with use_reentrant=True is refused."""
    module: Any = sys.modules.get("torch.utils.checkpoint")
    count = 0
    for frame in () if module is None else _callers():
        if _is_pass(frame):
            break
        count += _of_checkpoint(frame)
        if frame.f_code is getattr(module.CheckpointFunction, way).__code__:
            raise Unsupported(
                "expected a checkpoint that keeps the graph, received one with use_reentrant=True; pass "
                "use_reentrant=False"
            )
    return count


def _callers() -> Iterator[FrameType]:
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


def _of_checkpoint(frame: FrameType) -> bool:
    return (
        frame.f_code.co_name in ("checkpoint", "unpack_hook")
        and frame.f_globals.get("__name__") == "torch.utils.checkpoint"
    )


def _is_pass(frame: FrameType) -> bool:
    return frame.f_code.co_name == "forward" and frame.f_globals["__name__"] == "unisono.torch.space.model"
