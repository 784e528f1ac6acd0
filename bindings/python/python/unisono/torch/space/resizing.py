"""Resizing: interpolation and pixel shuffling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.nn import functional

from unisono.torch.space.dispatch import Function, global_result_shape, on_copies, reject, rule
from unisono.torch.space.layout import Layout, layout_of
from unisono.torch.space.moves import move
from unisono.torch.space.part import Part, bring, gathered, spread, unwrap, wrap
from unisono.torch.space.precision import accumulation_type, result_type
from unisono.torch.space.weighted_sums import Taps, fetched
from unisono.torch.space.windows import is_empty, nothing

_MODES = ("nearest", "nearest-exact", "linear", "bilinear", "trilinear", "bicubic", "area")


@rule("interpolate", "upsample", "upsample_nearest", "upsample_bilinear", always=True)
def interpolate(
    function: Function,
    input: Part,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Any:
    """Each rank computes its outputs from the inputs that they depend on."""
    if mode not in _MODES or antialias:
        reject(f"a rule for parts of a tensor for interpolate with mode={mode!r}, antialias={antialias}")
    spatial = input.dim() - 2
    x = spread(input, spatial)
    dtype = result_type(_resize, unwrap(x), mode)
    if not dtype.is_floating_point and not mode.startswith("nearest"):
        # Bytes, which PyTorch rounds in its own way.
        options = {"size": size, "scale_factor": scale_factor, "mode": mode, "align_corners": align_corners}
        options["recompute_scale_factor"] = recompute_scale_factor
        return spread(on_copies(functional.interpolate, (gathered(x),), options), spatial)
    x = wrap(unwrap(x).to(dtype), x.place)
    lengths = x.place.shape[2:]
    scales = _each(scale_factor, spatial)
    if size is not None:
        wanted = [int(one) for one in _each(size, spatial)]
    else:
        wanted = [math.floor(length * scale) for length, scale in zip(lengths, scales, strict=True)]
    if size is not None or recompute_scale_factor:
        scales = [None] * spatial
    target = x.place.resized((*x.place.shape[:2], *wanted))
    whole = [scale is not None and float(scale).is_integer() for scale in scales]
    if mode == "nearest" and all(whole):
        return _repeated(x, [int(one) for one in scales], target)
    if mode == "area":
        mean: Any = getattr(functional, f"adaptive_avg_pool{spatial}d")
        return mean(x, wanted)
    taps = {
        place - spatial: _taps(mode, length, out, scale, bool(align_corners))
        for place, (length, out, scale) in enumerate(zip(lengths, wanted, scales, strict=True))
    }
    local, mine = fetched(x, target, taps)
    if is_empty(target) or local.is_meta:
        return wrap(nothing(target.local_shape, local), target)
    if not mode.startswith("nearest"):
        # Half types are computed in float32 and rounded once.
        local = local.to(accumulation_type(dtype))
    for dim, tap in mine.items():
        local = tap.apply(local, dim)
    return wrap(local.to(dtype), target)


def _resize(x: torch.Tensor, mode: str) -> torch.Tensor:
    return functional.interpolate(x, size=[1] * (x.dim() - 2), mode=mode)


def _each(value: Any, count: int) -> list[Any]:
    return list(value) if isinstance(value, Sequence) else [value] * count


def _repeated(x: Part, scales: list[int], target: Layout) -> Part:
    """Repeats every element: each rank repeats its own, and few elements are communicated."""
    sizes = {
        axis: [scales[dim - 2] * one if dim >= 2 else one for one in x.array.sizes[axis]]
        for axis, dim in x.place.split.items()
    }
    source = layout_of(x.grid, target.shape, x.place.split, sizes)
    local = unwrap(x)
    if is_empty(source) or local.is_meta:
        local = nothing(source.local_shape, local)
    else:
        local = functional.interpolate(local, scale_factor=[float(one) for one in scales], mode="nearest")
    return wrap(move(local, source, target), target)


def _taps(mode: str, length: int, out: int, scale: float | None, align: bool) -> Taps:
    """The inputs and weights of outputs along one dimension, as in PyTorch's `interpolate`."""
    if mode.startswith("nearest"):
        # PyTorch itself computes the nearest element, because its rounding is its own.
        ramp = torch.arange(length, dtype=torch.float64).view(1, 1, -1)
        if scale is None:
            made = functional.interpolate(ramp, size=out, mode=mode)
        else:
            made = functional.interpolate(ramp, scale_factor=scale, mode=mode)
        return Taps(made.view(1, -1).long(), None)
    places = torch.arange(out, dtype=torch.float64)
    if align:
        places = places * ((length - 1) / (out - 1) if out > 1 else 0.0)
    else:
        places = (places + 0.5) * (length / out if scale is None else 1.0 / scale) - 0.5
    if mode == "bicubic":
        first = places.floor()
        indices = torch.stack([first + step for step in (-1, 0, 1, 2)])
        return Taps(indices.clamp(0, length - 1).long(), _cubic(places - first))
    if not align:
        places = places.clamp(min=0)
    first = places.floor().clamp(max=length - 1)
    indices = torch.stack([first, (first + 1).clamp(max=length - 1)]).long()
    weight = places - first
    return Taps(indices, torch.stack([1 - weight, weight]))


def _cubic(t: torch.Tensor) -> torch.Tensor:
    """The weights of four neighbours at the fraction `t`: Keys, 1981, with a = -0.75."""
    a = -0.75

    def near(x: torch.Tensor) -> torch.Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: torch.Tensor) -> torch.Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return torch.stack([far(t + 1), near(t), near(1 - t), far(2 - t)])


@rule("pixel_shuffle", always=True)
def shuffled(function: Function, input: Part, upscale_factor: int) -> Part:
    """Each rank turns channels of its elements into space; few elements are communicated."""
    x = spread(input, 2)
    factor = upscale_factor
    shape = global_result_shape(function, x, factor)
    sizes = {
        axis: [factor * one if dim >= len(shape) - 2 else one for one in x.array.sizes[axis]]
        for axis, dim in x.place.split.items()
    }
    source, target = layout_of(x.grid, shape, x.place.split, sizes), x.place.resized(shape)
    local = unwrap(x)
    empty = is_empty(source) or local.is_meta
    made = nothing(source.local_shape, local) if empty else function(local, factor)
    return wrap(move(made, source, target), target)


@rule("pixel_unshuffle", always=True)
def unshuffled(function: Function, input: Part, downscale_factor: int) -> Part:
    """Each rank turns the space of its outputs into channels."""
    x = spread(input, 2)
    factor = downscale_factor
    target = x.place.resized(global_result_shape(function, x, factor))
    sizes = {
        axis: [factor * one if dim >= len(target.shape) - 2 else one for one in target.array.sizes[axis]]
        for axis, dim in x.place.split.items()
    }
    local = unwrap(bring(x, layout_of(x.grid, x.place.shape, x.place.split, sizes)))
    empty = is_empty(target) or local.is_meta
    made = nothing(target.local_shape, local) if empty else function(local, factor)
    return wrap(made, target)
