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
    """Marks the code inside the context as a model's forward pass.

    Args:
        grid: The ranks.
        learns: Whether gradients are needed.

    Yields:
        Nothing.
    """
    state = vars(grid)
    before = state.get("_learns", False), state.get("_kept", False)
    state["_kept"] = _packs_saved()
    state["_passes"] = state.get("_passes", 0) + 1
    state["_learns"] = learns
    try:
        yield
    finally:
        state["_passes"] -= 1
        state["_learns"], state["_kept"] = before


def within(grid: Grid) -> bool:
    """Whether a model's forward pass is running.

    Args:
        grid: The ranks.

    Returns:
        Whether it is.
    """
    return bool(vars(grid).get("_passes"))


def recomputed() -> bool:
    """Whether a checkpoint is recomputing, during backward, what it did not save.

    Returns:
        Whether it does.
    """
    return in_backward() and _packs_saved()


def in_custom_backward(grid: Grid) -> bool:
    """Whether a user-defined backward is running: it has gradients of this rank's elements alone.

    Args:
        grid: The ranks.

    Returns:
        Whether it is.

    Raises:
        Unsupported: It is a checkpoint that builds a new graph.
    """
    if not in_backward() or within(grid) or _packs_saved():
        return False
    # Checkpoints also read their saved tensors.
    return not _checkpoints("backward")


def in_backward() -> bool:
    """Whether autograd is running on this thread.

    Returns:
        Whether it is.
    """
    return torch._C._current_graph_task_id() != -1


def _packs_saved() -> bool:
    """Whether hooks pack the tensors that operations save, as checkpoints do."""
    if hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"):
        return _top() is not None
    # Older versions do not expose it: look for checkpoints, also around the pass.
    return any(_of_checkpoint(frame) for frame in _callers())


def _top() -> Any:
    """The innermost pack and unpack hooks for saved tensors; None if there are none."""
    top: Any = torch._C._autograd._top_saved_tensors_default_hooks
    return top(True)


def _has_other_hooks() -> bool:
    """Whether hooks other than a checkpoint's pack saved tensors; older versions do not expose it."""
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

    It has, outside of a model's forward pass. Inside, parameters and tensors computed from them have each
    rank's share, which is summed at the end; but a leaf there is not a parameter of the model: those are
    replaced by copies.

    Args:
        x: The plain tensor.
        grid: The ranks.

    Returns:
        Whether it has.
    """
    return x.is_leaf or not within(grid)


def check_checkpoint(grid: Grid) -> None:
    """Rejects checkpoints whose recomputation would differ from the first pass.

    Args:
        grid: The ranks.

    Raises:
        Unsupported: A checkpoint runs without a graph, so that the sums of gradients would be missing; or it
            is nested in another, or used with saved-tensor hooks, which return plain tensors for parts.
    """
    state = vars(grid)
    if not within(grid) or not state["_learns"] or (torch.is_grad_enabled() and not _packs_saved()):
        return
    count = _checkpoints("forward")
    if count > 1 or (count and (state["_kept"] or _has_other_hooks())):
        raise Unsupported(
            "expected checkpoints side by side, received one inside of another, or together with "
            "saved_tensors_hooks such as save_on_cpu; keep one of them"
        )


def _checkpoints(way: str) -> int:
    """The number of this pass's checkpoints on the call stack; one with use_reentrant=True is rejected."""
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
