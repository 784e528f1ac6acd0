"""Convolutions and transposed convolutions over parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch

from unisono.halo import Window
from unisono.torch.space.border_convolution import borders_of, convolved_in_place, is_worthwhile
from unisono.torch.space.dispatch import Function, plain_once, rule, sequence
from unisono.torch.space.exchange import halo_adjoint, halo_exchange
from unisono.torch.space.layout import Layout
from unisono.torch.space.moves import share
from unisono.torch.space.overlap import convolved, overlaps, pieces_of
from unisono.torch.space.part import Part, gathered, spread, unwrap, wrap
from unisono.torch.space.windows import is_empty, least, nothing, outputs, padded, stays, window_of

Numbers = tuple[list[int], list[int], int]


class _Convolution(torch.autograd.Function):
    """A convolution that saves its part rather than the padded copy: backward exchanges the halos again."""

    @staticmethod
    def forward(
        context: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        window: Window,
        numbers: Numbers,
    ) -> torch.Tensor:
        context.save_for_backward(x, weight)
        context.window, context.numbers = window, numbers
        context.bias_sizes = None if bias is None else list(bias.shape)
        stride, dilation, groups = numbers
        zeros = [0] * len(stride)
        context.overlaps = overlaps(window.input.grid) or x.is_cuda
        borders = borders_of(window, len(stride)) if is_worthwhile(x, window) else None
        if borders is not None:
            return convolved_in_place(x, weight, bias, numbers, borders)
        if overlaps(window.input.grid):
            pieces = pieces_of(window, len(stride))
            if pieces is not None:
                return convolved(x, weight, bias, window, numbers, pieces)
            # Other ranks may have interior outputs, and all ranks make the same calls.
            source = window.begin(x.contiguous()).end()
        else:
            source = window.forward(x.contiguous())
        empty = 0 in window.output.local_shape
        if empty:
            # Arguments that PyTorch rejects are rejected on ranks without outputs, too.
            source = least(x, extents(weight, dilation))
        made = torch.convolution(source, weight, bias, stride, zeros, dilation, False, zeros, groups)
        if empty:
            return made.new_empty(x.shape[0], weight.shape[0], *window.output.local_shape[2:])
        return made

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        x, weight = context.saved_tensors
        if not torch.is_grad_enabled():
            return *_gradients(context, x, weight, gradients[0]), None, None
        needs, window = context.needs_input_grad, context.window
        source = halo_exchange(x, window) if needs[1] else x.new_empty(window.padded_shape)
        for_padded, for_weight, for_bias = _backward(context, gradients[0], source, weight, needs)
        for_x = halo_adjoint(for_padded, window) if needs[0] else None
        return for_x, for_weight, for_bias, None, None


def _gradients(context: Any, x: torch.Tensor, weight: torch.Tensor, gradient: torch.Tensor) -> Any:
    """The gradients. One padded array at a time, unless each is computed while halos are in flight."""
    (for_input, *for_weights), window = context.needs_input_grad[:3], context.window
    needs = (False, *for_weights)
    if context.overlaps and for_input and for_weights[0]:
        exchange = window.begin(x.contiguous())
        for_padded = _backward(context, gradient, _shaped(x, window), weight, (True, False, False))[0]
        source = exchange.end()
        adjoint = window.begin_adjoint(for_padded.contiguous())
        # Data in flight has been copied.
        del for_padded
        _, for_weight, for_bias = _backward(context, gradient, source, weight, needs)
        return adjoint.end(), for_weight, for_bias
    for_x = for_weight = for_bias = None
    if any(for_weights):
        source = window.forward(x.contiguous()) if for_weights[0] else _shaped(x, window)
        _, for_weight, for_bias = _backward(context, gradient, source, weight, needs)
        del source
    if for_input:
        for_padded = _backward(context, gradient, _shaped(x, window), weight, (True, False, False))[0]
        for_x = window.adjoint(for_padded.contiguous(), overwrite=True)
    return for_x, for_weight, for_bias


def _shaped(x: torch.Tensor, window: Window) -> torch.Tensor:
    """For gradients that depend only on the shape of the padded inputs, not on their values."""
    return x.new_empty(window.padded_shape)


def _backward(
    context: Any, gradient: torch.Tensor, source: torch.Tensor, weight: torch.Tensor, needs: Any
) -> Any:
    stride, dilation, groups = context.numbers
    zeros = [0] * len(stride)
    numbers = (context.bias_sizes, stride, zeros, dilation, False, zeros, groups, list(needs[:3]))
    if gradient.numel():
        return torch.ops.aten.convolution_backward(gradient, source, weight, *numbers)
    # Without outputs, gradients are zeros with the same autograd history: each depends on all operands, as on
    # other ranks, whose gradients of gradients communicate.
    zero = nothing((), gradient, source, weight)
    shapes = source.shape, weight.shape, context.bias_sizes
    return tuple(
        zero.expand(tuple(shape)) if need else None for shape, need in zip(shapes, needs, strict=False)
    )


@rule("conv1d", "conv2d", "conv3d", always=True)
def convolution(
    function: Function,
    input: Part,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Part:
    """Each rank convolves the inputs that its outputs need."""
    work = arranged(input, weight, bias, stride, padding, dilation)
    if work.x.is_meta:
        return wrap(work.x.new_empty(work.target.local_shape), work.target)
    if stays(work.window) or work.x.dim() != weight.dim() or work.x.is_complex():
        source = padded(work.x, work.window)
        rest = work.weight, work.bias, work.strides, 0, work.dilations, groups
        if is_empty(work.target):
            made = partial(function, least(source, extents(work.weight, work.dilations)), *rest)
            shape = work.target.local_shape
            return wrap(nothing(shape, source, work.weight, work.bias, made=made), work.target)
        return wrap(function(source, *rest), work.target)
    numbers = work.strides, work.dilations, groups
    made = _Convolution.apply(work.x, work.weight, work.bias, work.window, numbers)
    return wrap(cast(torch.Tensor, made), work.target)


def extents(weight: torch.Tensor, dilation: Sequence[int]) -> list[int]:
    """The number of inputs of one output of a convolution, in each dimension of the window.

    Args:
        weight: The weights.
        dilation: One number for each dimension.

    Returns:
        The numbers.
    """
    return [step * (size - 1) + 1 for step, size in zip(dilation, weight.shape[2:], strict=True)]


@dataclass
class Work:
    """The local work of a convolution."""

    x: torch.Tensor
    """This rank's part of the input."""
    weight: torch.Tensor
    """The weights, for plain operations."""
    bias: torch.Tensor | None
    """The bias, likewise."""
    window: Window
    """The window: which inputs this rank's outputs need."""
    target: Layout
    """The layout of the outputs."""
    strides: list[int]
    """One for each dimension."""
    dilations: list[int]
    """One for each dimension."""


def arranged(
    input: Part, weight: torch.Tensor, bias: torch.Tensor | None, stride: Any, padding: Any, dilation: Any
) -> Work:
    """Converts the operands of a convolution and makes its window.

    Args:
        input: The input.
        weight: The weights.
        bias: The bias, if any.
        stride: As in PyTorch.
        padding: Likewise; also "same" and "valid".
        dilation: Likewise.

    Returns:
        The local work.
    """
    spatial = weight.dim() - 2
    x = spread(input, spatial)
    strides, dilations = sequence(stride, spatial), sequence(dilation, spatial)
    window = window_of(
        x.place,
        spatial,
        kernel=list(weight.shape[2:]),
        stride=strides,
        padding=padding if isinstance(padding, str) else sequence(padding, spatial),
        dilation=dilations,
    )
    target = outputs(window, spatial, (*x.place.shape[: -spatial - 1], weight.shape[0]), x.place)
    return Work(*operands(unwrap(x), weight, bias, x.place), window, target, strides, dilations)


@rule("conv_transpose1d", "conv_transpose2d", "conv_transpose3d", always=True)
def transposed(
    function: Function,
    input: Part,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Part:
    """Each rank computes what the inputs that reach its outputs contribute, and keeps only its outputs."""
    spatial = weight.dim() - 2
    x = spread(input, spatial)
    strides, paddings, dilations = (sequence(one, spatial) for one in (stride, padding, dilation))
    window = window_of(
        x.place,
        spatial,
        kernel=list(weight.shape[2:]),
        stride=strides,
        padding=paddings,
        dilation=dilations,
        transposed=True,
        output_padding=sequence(output_padding, spatial),
    )
    target = outputs(window, spatial, (*x.place.shape[: -spatial - 1], weight.shape[1] * groups), x.place)
    local, kernel, offset = operands(unwrap(x), weight, bias, x.place)
    source = padded(local, window)
    if source.is_meta:
        return wrap(source.new_empty(target.local_shape), target)
    rest = kernel, None, strides, 0, 0, groups, dilations
    if is_empty(target) or 0 in source.shape:
        tried = partial(function, least(source, [1] * spatial), *rest)
        made = nothing((*target.local_shape[:-spatial], *[0] * spatial), source, kernel, made=tried)
        margins = [one for size in reversed(target.local_shape[-spatial:]) for one in (0, size)]
        return wrap(_offset(torch.nn.functional.pad(made, margins), offset, spatial), target)
    made = function(source, *rest)
    # The first output computed, and the offset of this rank's outputs from it.
    margins = []
    for place in reversed(range(spatial)):
        dim = place - spatial
        first = window.needed[dim][0] * strides[place] - paddings[place]
        own = target.region[dim]
        margins += [first - own.start, own.stop - first - made.shape[dim]]
    return wrap(_offset(torch.nn.functional.pad(made, margins), offset, spatial), target)


def _offset(x: torch.Tensor, bias: torch.Tensor | None, spatial: int) -> torch.Tensor:
    return x if bias is None else x + bias.view(-1, *[1] * spatial)


def operands(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, layout: Layout
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The operands of a layer with weights, in the type that autocast selects.

    Args:
        x: This rank's elements.
        weight: The weights: a replicated part or a plain tensor.
        bias: The bias, if any.
        layout: The layout of the input.

    Returns:
        Plain operands.
    """
    kernel = replicated_operand(weight, layout)
    offset = None if bias is None else replicated_operand(bias, layout)
    kind = x.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        x, kernel = x.to(dtype), kernel.to(dtype)
        offset = None if offset is None else offset.to(dtype)
    return x, kernel, offset


def replicated_operand(x: torch.Tensor, layout: Layout) -> torch.Tensor:
    """An operand of which every rank needs the full tensor.

    Args:
        x: A plain tensor, or a part.
        layout: The layout of the other operand.

    Returns:
        A plain tensor; its gradients are those of this rank's part alone.
    """
    if isinstance(x, Part):
        return share(unwrap(gathered(x)), layout.grid, layout.split)
    return plain_once(x, layout)
