"""Adaptive pooling: a given number of outputs, each over its share of the inputs."""

from __future__ import annotations

from typing import Any

import torch

from unisono.torch.space.dispatch import Function, name_of, reject, rule
from unisono.torch.space.layout import Layout, layout_of
from unisono.torch.space.moves import total
from unisono.torch.space.part import Part, spread, unwrap, wrap
from unisono.torch.space.precision import accumulation_type, result_type
from unisono.torch.space.weighted_sums import Taps, fetched
from unisono.torch.space.windows import is_empty, nothing


def _wanted(function: Function, x: Part, output_size: Any) -> list[int]:
    spatial = int(name_of(function).split("pool")[1][0])
    sizes = list(output_size) if isinstance(output_size, (list, tuple)) else [output_size] * spatial
    return [x.shape[place - spatial] if size is None else int(size) for place, size in enumerate(sizes)]


def _bounds(length: int, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The first input index of each output, and the index after its last."""
    outputs = torch.arange(count)
    return outputs * length // count, ((outputs + 1) * length + count - 1) // count


@rule("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", always=True)
def average(function: Function, input: Part, output_size: Any) -> Part:
    """Each rank computes its inputs' contribution to every output; only the outputs are communicated."""
    wanted = _wanted(function, input, output_size)
    spatial = len(wanted)
    x = spread(input, spatial)
    count = len(x.place.shape)
    dtype = result_type(function, unwrap(x), 1)
    # Half types are computed in float32 and rounded once.
    local = unwrap(x).to(accumulation_type(dtype))
    shape = (*x.place.shape[:-spatial], *wanted)
    if local.is_meta:
        target = x.place.resized(shape)
        return wrap(local.new_empty(target.local_shape), target)
    with torch.autocast(local.device.type, enabled=False):
        local = _weighted(local, x.place, wanted)
    axes = {axis: dim for axis, dim in x.place.split.items() if dim >= count - spatial}
    others = {axis: dim for axis, dim in x.place.split.items() if axis not in axes}
    summed = wrap(total(local, x.grid, axes).to(dtype), layout_of(x.grid, shape, others))
    return spread(summed, spatial)


def _weighted(local: torch.Tensor, layout: Layout, wanted: list[int]) -> torch.Tensor:
    """The contribution of this rank's inputs to every output."""
    for place, size in enumerate(wanted):
        dim = place - len(wanted)
        first, stop = _bounds(layout.shape[dim], size)
        own = layout.region[dim]
        inputs = torch.arange(own.start, own.stop)[:, None]
        weights = ((inputs >= first) & (inputs < stop)).double() / (stop - first)
        local = (local.movedim(dim, -1) @ weights.to(local.dtype).to(local.device)).movedim(-1, dim)
    return local


@rule("adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", always=True)
def maximum(function: Function, input: Part, output_size: Any, return_indices: bool = False) -> Part:
    """Each rank computes the maxima for its outputs, one dimension after the other."""
    if return_indices:
        reject("a rule for parts of a tensor for adaptive_max_pool with return_indices=True")
    wanted = _wanted(function, input, output_size)
    spatial = len(wanted)
    x = spread(input, spatial)
    target = x.place.resized((*x.place.shape[:-spatial], *wanted))
    dtype = result_type(function, unwrap(x), 1)
    taps = {}
    for place, size in enumerate(wanted):
        first, stop = _bounds(x.place.shape[place - spatial], size)
        steps = torch.arange(int((stop - first).max()))[:, None]
        # An output with fewer inputs than others reads its last input again.
        taps[place - spatial] = Taps(torch.minimum(first + steps, stop - 1), None)
    local, mine = fetched(x, target, taps)
    if is_empty(target) or local.is_meta:
        return wrap(nothing(target.local_shape, local).to(dtype), target)
    # The last dimension comes first, so that of equal elements the first one is chosen, as on one process.
    for dim, tap in sorted(mine.items(), reverse=True):
        seen = local.index_select(dim, tap.indices.flatten().to(local.device))
        front = seen.shape[: seen.dim() + dim] + tap.indices.shape
        local = seen.reshape(*front, *local.shape[local.dim() + dim + 1 :]).max(dim - 1).values
    return wrap(local, target)
