"""All rules together: who imports this file can dispatch every operation that has one."""

from unisono.torch.space import (
    adaptive,
    attributes,
    convolution,
    cutting,
    fusing,
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
    "fusing",
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
