"""All rules together: who imports this file can dispatch every operation that has one."""

from unisono.torch.space import (
    adaptive,
    attributes,
    convolution,
    cutting,
    gathering,
    linear,
    losses,
    normalisation,
    padding,
    pointwise,
    pooling,
    randomness,
    reductions,
    resizing,
    shapes,
    unfolding,
)
from unisono.torch.space.dispatch import dispatch

__all__ = [
    "adaptive",
    "attributes",
    "convolution",
    "cutting",
    "dispatch",
    "gathering",
    "linear",
    "losses",
    "normalisation",
    "padding",
    "pointwise",
    "pooling",
    "randomness",
    "reductions",
    "resizing",
    "shapes",
    "unfolding",
]
