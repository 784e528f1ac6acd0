"""Random numbers that do not depend on the parts: each rank takes its region of what the whole would draw."""

from __future__ import annotations

import math
from typing import Any

import torch

from unisono.torch.space.dispatch import Function, name_of, rule
from unisono.torch.space.layout import Layout
from unisono.torch.space.part import Part, unwrap, wrap


def generator_of(layout: Layout) -> torch.Generator | None:
    """The generator that ranks have in common during a forward pass; outside, each rank's default one.

    Args:
        layout: Whose grid it is.

    Returns:
        The generator.
    """
    found: torch.Generator | None = vars(layout.grid).get("_generator")
    return found


def _drawn(x: torch.Tensor, layout: Layout, shape: tuple[int, ...], keep: float) -> torch.Tensor:
    """This rank's region of ones and zeros, drawn for the whole as one process would draw them."""
    if x.is_meta:
        return torch.empty([min(a, b) for a, b in zip(x.shape, shape, strict=True)], device="meta")
    whole = torch.empty(shape, dtype=x.dtype).bernoulli_(keep, generator=generator_of(layout))
    region = tuple(
        one if size == full else slice(None)
        for one, size, full in zip(layout.region, shape, layout.shape, strict=True)
    )
    # A copy: the whole is not kept.
    return whole[region].clone()


@rule("dropout", "dropout_", always=True)
def dropout(
    function: Function, input: Part, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Part:
    """The mask of the whole."""
    return _dropped(input, p, training, input.place.shape)


@rule("dropout1d", "dropout2d", "dropout3d", "feature_dropout", always=True)
def channels(
    function: Function, input: Part, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Part:
    """One draw for each channel of each sample."""
    batched = name_of(function) == "feature_dropout" or input.dim() == int(name_of(function)[7]) + 2
    front = 2 if batched else 1
    return _dropped(input, p, training, (*input.place.shape[:front], *[1] * (input.dim() - front)))


def _dropped(x: Part, p: float, training: bool, shape: tuple[int, ...]) -> Part:
    if not training or p == 0:
        return x
    local = unwrap(x)
    if p == 1:
        return wrap(local * 0, x.place)
    mask = _drawn(local, x.place, shape, 1 - p)
    return wrap(local * mask.div_(1 - p), x.place)


@rule("alpha_dropout", "feature_alpha_dropout", always=True)
def alpha(
    function: Function, input: Part, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Part:
    """Dropout to the value that keeps mean and variance of a SELU network: Klambauer et al., 2017."""
    if not training or p == 0:
        return input
    shape = input.place.shape
    if name_of(function).startswith("feature"):
        shape = (*shape[:2], *[1] * (len(shape) - 2))
    local = unwrap(input)
    low = 1.7580993408473766
    scale = 1 / math.sqrt((low**2 * p + 1) * (1 - p)) if p < 1 else 0.0
    mask = _drawn(local, input.place, shape, 1 - p)
    return wrap(local * (mask * scale) + (mask - 1 + p) * (low * scale), input.place)


@rule("rand_like", "randn_like", always=True)
def noise(function: Function, input: Part, *, dtype: torch.dtype | None = None, **options: Any) -> Part:
    """Noise for each element of the whole."""
    local = unwrap(input)
    dtype = dtype or local.dtype
    if local.is_meta:
        return wrap(torch.empty_like(local, dtype=dtype), input.place)
    draw: Any = torch.rand if name_of(function) == "rand_like" else torch.randn
    whole = draw(input.place.shape, dtype=dtype, generator=generator_of(input.place))
    return wrap(whole[input.place.region].clone(), input.place)
