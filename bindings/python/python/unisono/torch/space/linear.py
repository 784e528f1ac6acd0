"""Linear layers: ranks multiply their inputs by their columns of the weights, and sum the results."""

from __future__ import annotations

import torch
from torch.nn import functional

from unisono.errors import UsageError
from unisono.torch.space.convolution import operands, replicated_operand
from unisono.torch.space.dispatch import Function, rule
from unisono.torch.space.layout import layout_of
from unisono.torch.space.moves import total
from unisono.torch.space.part import Part, global_shape, unwrap, wrap


@rule("linear", flat=True)
def linear(function: Function, input: Part, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Part:
    """For a flattened tensor or a partitioned last dimension, only the outputs are communicated."""
    layout, shape = input.place, global_shape(input)
    if shape[-1] != weight.shape[-1]:
        raise UsageError(
            f"linear: expected {weight.shape[-1]} inputs, received a tensor of the shape {tuple(shape)}; "
            "the whole's shape counts"
        )
    first = len(layout.shape) - 1 if input.flat is None else input.flat
    axes = [axis for axis, dim in layout.split.items() if dim >= first]
    x, columns, offset = operands(unwrap(input), weight, None if axes else bias, layout)
    out = tuple(shape[:-1]) + tuple(weight.shape[:-1])
    target = layout_of(
        layout.grid, out, {axis: dim for axis, dim in layout.split.items() if axis not in axes}
    )
    if x.is_meta:
        return wrap(x.new_empty(target.local_shape), target)
    if not axes:
        return wrap(functional.linear(x, columns, offset), target)
    boxes = columns.reshape(*weight.shape[:-1], *layout.shape[first:])
    own = boxes[(slice(None),) * (boxes.dim() - len(layout.region[first:])) + layout.region[first:]].reshape(
        *weight.shape[:-1], x.shape[-1]
    )
    made = total(functional.linear(x, own), layout.grid, axes)
    return wrap(made if bias is None else made + replicated_operand(bias, target).to(made.dtype), target)
