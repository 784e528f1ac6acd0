"""What a model leaves behind in its attributes: outside of the pass, it counts once and not on every rank."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSequence
from contextlib import contextmanager
from typing import Any

import torch

from unisono.halo import Grid
from unisono.torch.space.moves import once
from unisono.torch.space.part import Part

# What every module has; parameters are leaves, and modules are visited by themselves.
_OWN = frozenset(vars(torch.nn.Module())) - {"_buffers"}


@contextmanager
def counted_once(module: torch.nn.Module, grid: Grid) -> Iterator[None]:
    """Finds the plain tensors that modules keep during a pass, such as penalties of their parameters.

    In the pass, what is made of parameters has each rank's share of a gradient; a loss outside of it brings
    the full one, on every rank.

    Args:
        module: The module.
        grid: The ranks.

    Yields:
        Nothing.
    """
    if grid.size == 1 or not torch.is_grad_enabled():
        yield
        return
    # Those of earlier passes count already.
    before = {id(one): one for _, _, one in _kept(module)}
    yield
    for holder, key, one in list(_kept(module)):
        if id(one) not in before:
            holder[key] = once(one, grid, tuple(grid.axes))


def _kept(module: torch.nn.Module) -> Iterator[tuple[Any, Any, torch.Tensor]]:
    """The plain tensors with a history in a module's attributes, with what has them and their place there."""
    for one in module.modules():
        attributes = vars(one)
        for name in attributes.keys() - _OWN:
            yield from _in(attributes, name, attributes[name])


def _in(holder: Any, key: Any, value: Any) -> Iterator[tuple[Any, Any, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        if not isinstance(value, Part) and value.requires_grad and not value.is_leaf:
            yield holder, key, value
    elif isinstance(value, MutableMapping):
        for name, one in value.items():
            yield from _in(value, name, one)
    elif isinstance(value, MutableSequence):
        for place, one in enumerate(value):
            yield from _in(value, place, one)
