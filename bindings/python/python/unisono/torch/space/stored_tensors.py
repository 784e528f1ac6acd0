"""Tensors that a model stores in its attributes: outside the pass, they count once, not on every rank."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, MutableSequence
from contextlib import contextmanager
from typing import Any

import torch

from unisono.halo import Grid
from unisono.torch.space.moves import once
from unisono.torch.space.part import Part

# Attributes that every module has; parameters are leaves, and submodules are visited separately.
_OWN = frozenset(vars(torch.nn.Module())) - {"_buffers"}


@contextmanager
def counted_once(module: torch.nn.Module, grid: Grid) -> Iterator[None]:
    """Finds the plain tensors that modules store during a pass, such as penalties on their parameters.

    Within the pass, a tensor computed from parameters carries each rank's share of a gradient; a loss outside
    the pass contributes the full gradient on every rank.

    Args:
        module: The module.
        grid: The ranks.

    Yields:
        Nothing.
    """
    if grid.size == 1 or not torch.is_grad_enabled():
        yield
        return
    # Tensors of earlier passes have been handled already.
    before = {id(one): one for _, _, one in _kept(module)}
    yield
    for holder, key, one in list(_kept(module)):
        if id(one) not in before:
            holder[key] = once(one, grid, tuple(grid.axes))


def _kept(module: torch.nn.Module) -> Iterator[tuple[Any, Any, torch.Tensor]]:
    """The plain tensors with an autograd history in a module's attributes, with their containers and keys."""
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
