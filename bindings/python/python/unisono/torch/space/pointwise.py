"""Element-wise operations: operands are converted to one layout, and each rank computes its part."""

from __future__ import annotations

from typing import Any

import torch

from unisono.errors import UsageError
from unisono.torch.space.dispatch import Function, name_of, parts_in, plain_once, reject, replaced, rule
from unisono.torch.space.layout import Layout, layout_of
from unisono.torch.space.moves import share
from unisono.torch.space.part import Part, bring, global_shape, origin, unflattened, unwrap, wrap
from unisono.torch.space.passes import counts_fully

_UNARY = """relu relu6 leaky_relu elu selu celu gelu silu mish hardswish hardsigmoid hardtanh sigmoid
logsigmoid log_sigmoid tanh softplus softsign tanhshrink hardshrink softshrink threshold _threshold exp exp2
expm1 log log1p log2 log10 sqrt rsqrt square abs absolute neg negative positive sign sgn sin cos tan
asin acos atan sinh cosh asinh acosh atanh arcsin arccos arctan erf erfc erfinv lgamma digamma floor
ceil round trunc fix frac reciprocal isnan isinf isfinite isposinf isneginf logical_not bitwise_not
logit sinc nan_to_num deg2rad rad2deg clone contiguous to type float double half bfloat16 int long
short bool cpu zeros_like ones_like full_like empty_like type_as fill zero __neg__ __pos__ __abs__
__invert__"""

_BINARY = """add sub subtract mul multiply div divide true_divide floor_divide remainder fmod pow
float_power atan2 maximum minimum fmax fmin where lerp addcmul addcdiv eq ne lt le gt ge
greater greater_equal less less_equal not_equal isclose logical_and logical_or logical_xor
bitwise_and bitwise_or bitwise_xor hypot logaddexp logaddexp2 xlogy copysign heaviside rsub
masked_fill clamp clip clamp_min clamp_max copy __add__ __radd__ __sub__ __rsub__ __mul__
__rmul__ __div__ __rdiv__ __truediv__ __rtruediv__ __floordiv__ __rfloordiv__ __pow__ __rpow__
__mod__ __rmod__ __and__ __rand__ __or__ __ror__ __xor__ __rxor__ __eq__ __ne__ __lt__ __le__
__gt__ __ge__ __iadd__ __isub__ __imul__ __itruediv__ __ipow__ __idiv__"""


def _in_place(names: str) -> list[str]:
    return [name + "_" for name in names.split() if not name.startswith("__")]


@rule(*_UNARY.split(), *_in_place(_UNARY), flat=True)
def unary(function: Function, x: Part, *args: Any, **kwargs: Any) -> Any:
    """Each rank computes its elements."""
    if name_of(function) in ("type_as", "to"):
        # Only the type and the device of the other tensor matter.
        args, kwargs = replaced((args, kwargs), unwrap)
    if any(True for _ in parts_in(args, kwargs)):
        return binary(function, x, *args, **kwargs)
    if x.placeholder:
        return x
    result = function(origin(x), *args, **kwargs)
    return x if writes(function) else wrap(result, x.place, x.flat)


@rule(*_BINARY.split(), *_in_place(_BINARY), flat=True)
def binary(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Each rank computes its elements, after operands are converted to one layout."""
    if writes(function) and not isinstance(args[0], Part):
        return _into_plain(function, *args, **kwargs)
    found = list(parts_in(args, kwargs))
    plain: list[torch.Tensor] = []
    replaced((args, kwargs), lambda one: one, plain.append)
    first = found[0]
    alike = all(one.flat == first.flat and one.place.is_like(first.place) for one in found)
    if first.flat is not None and alike and all(one.dim() == 0 for one in plain):
        if first.placeholder:
            return first
        result = function(*replaced(args, unwrap), **replaced(kwargs, unwrap))
        return first if writes(function) else wrap(result, first.place, first.flat)
    args, kwargs = replaced((args, kwargs), unflattened)
    target = args[0].place if writes(function) else common(list(parts_in(args, kwargs)), plain)
    if first.placeholder:
        return args[0] if writes(function) else wrap(unwrap(first).new_empty(target.local_shape), target)
    local = replaced((args, kwargs), lambda one: aligned(one, target), lambda one: plain_aligned(one, target))
    if writes(function):
        function(origin(args[0]), *local[0][1:], **local[1])
        return args[0]
    return wrap(function(*local[0], **local[1]), target)


def _into_plain(function: Function, *args: Any, **kwargs: Any) -> Any:
    """``plain += part`` rebinds the name to the sum; a plain tensor itself cannot become a part.

    A replicated part without an autograd history can be written to a buffer, as statistics are.
    """
    name = name_of(function)
    known = all(one.place.is_replicated and not one.requires_grad for one in parts_in(args, kwargs))
    if known and not args[0].requires_grad:
        local = replaced((args, kwargs), unwrap)
        return function(*local[0], **local[1])
    if not name.startswith("__"):
        reject(
            f"a part to write to for {name}",
            "make another tensor of both, without the _; statistics of the whole, as x.detach().mean(), can "
            "be written",
        )
    return binary(getattr(torch.Tensor, f"__{name[3:]}"), *args, **kwargs)


def writes(function: Function) -> bool:
    """Whether an operation changes its first argument.

    Args:
        function: The operation.

    Returns:
        Whether it does.
    """
    name = name_of(function)
    if name.startswith("__"):
        return name.startswith("__i") and name != "__invert__"
    return name.endswith("_")


def common(parts: list[Part], plain: list[torch.Tensor]) -> Layout:
    """The common layout of operands: that of the operand which is partitioned most.

    Args:
        parts: The operands that are parts.
        plain: The others.

    Returns:
        The layout of the result.
    """
    shape = _broadcast([tuple(global_shape(one)) for one in [*parts, *plain]])
    most = max(parts, key=lambda one: (len(one.place.split), one.numel()))
    shift = len(shape) - most.dim()
    split = {
        axis: dim + shift
        for axis, dim in most.place.split.items()
        if most.place.shape[dim] == shape[dim + shift]
    }
    for one in parts:
        for axis, dim in one.place.split.items():
            place = dim + len(shape) - one.dim()
            if axis not in split and place not in split.values() and one.place.shape[dim] == shape[place]:
                split[axis] = place
    return layout_of(most.grid, shape, split)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    together: Any = torch.broadcast_shapes
    try:
        return tuple(together(*shapes))
    except RuntimeError:
        raise UsageError(
            f"expected operands whose shapes go together, received {', '.join(map(str, shapes))}; the shapes "
            "of wholes count: say of a plain tensor that is a part, model.part(local, shape)"
        ) from None


def aligned(x: Part, target: Layout) -> torch.Tensor:
    """An operand's elements for this rank's part of a result.

    Args:
        x: The operand.
        target: The layout of the result, to whose shape the operand is broadcast.

    Returns:
        Plain elements; gradients are summed where several ranks use the same element.
    """
    shift = len(target.shape) - x.dim()
    wanted = {
        axis: dim - shift
        for axis, dim in target.split.items()
        if dim >= shift and x.place.shape[dim - shift] == target.shape[dim]
    }
    part = bring(x, layout_of(x.grid, x.place.shape, wanted))
    used_by = [axis for axis in target.split if axis not in part.place.split]
    return share(unwrap(part), x.grid, used_by)


def plain_aligned(x: torch.Tensor, target: Layout) -> torch.Tensor:
    """A plain operand's elements for this rank's part of a result.

    Args:
        x: The operand, the same on every rank.
        target: The layout of the result.

    Returns:
        Its elements in this rank's region.
    """
    if x.requires_grad and counts_fully(x, target.grid):
        return aligned(wrap(x, layout_of(target.grid, x.shape, {})), target)
    shift = len(target.shape) - x.dim()
    for dim in target.split.values():
        if dim >= shift and x.shape[dim - shift] == target.shape[dim] and target.shape[dim] != 1:
            region = target.region[dim]
            x = x.narrow(dim - shift, region.start, region.stop - region.start)
    return plain_once(x, target)
