"""Fuses a convolution and a following ReLU into one kernel where no gradient of the result is needed.

Adding a bias and applying a ReLU each read and write device memory once more, which takes a fifth of the time
of a stack of convolutions. An operation does not know what follows it, but a `torch.nn.Sequential` does.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import torch

from unisono.torch.space.border_convolution import (
    borders_of,
    convolved_in_place,
    convolved_plainly,
    is_worthwhile,
)
from unisono.torch.space.convolution import arranged, convolution
from unisono.torch.space.dispatch import Function, dispatch, rule
from unisono.torch.space.lru_cache import LruCache
from unisono.torch.space.parameters import Change
from unisono.torch.space.part import Part, unwrap, wrap

DEVICES = ("cuda",)
"""The device types that have such kernels."""

TYPES = (torch.float32, torch.float16, torch.bfloat16)
"""The element types that they support."""

LARGEST = (1 << 31) - 1
"""The maximum number of array elements: beyond it, some kernels compute wrong indices."""

# Which kernels may be used, by everything on which the choice of a kernel depends.
_suitable: LruCache[Any, bool] = LruCache(4096)


def fused_sequences(module: torch.nn.Module, given: Iterable[torch.Tensor]) -> list[Change]:
    """Lets the sequential containers in a module look ahead during a call.

    Args:
        module: The module.
        given: The input tensors of the call.

    Returns:
        The changes to pass to `call_with`; empty if no input is on a device with such kernels.
    """
    if not any(one.device.type in DEVICES for one in given):
        return []
    # A `forward` overridden by an instance or a subclass may do anything.
    return [
        (vars(one), {"forward": partial(_forward, one)})
        for one in module.modules()
        if type(one).forward is torch.nn.Sequential.forward and "forward" not in vars(one)
    ]


def _forward(layers: Any, input: Any) -> Any:
    ahead = iter(layers)
    layer = next(ahead, None)
    while layer is not None:
        after = next(ahead, None)
        if after is not None and is_possible(layer, after, input):
            input, after = _rectified(layer, input), next(ahead, None)
        else:
            input = layer(input)
        layer = after
    return input


def is_possible(layer: Any, after: Any, x: Any) -> bool:
    """Whether two layers can be fused into one kernel without an observable difference.

    Args:
        layer: A module.
        after: The module that gets its output.
        x: The input.

    Returns:
        Whether they are a convolution and a ReLU, and the value between them is not observed.
    """
    if type(after) is not torch.nn.ReLU or type(layer) not in (torch.nn.Conv2d, torch.nn.Conv3d):
        return False
    return (
        isinstance(x, Part)
        and layer.padding_mode == "zeros"
        and not (_is_watched(layer) or _is_watched(after))
        and _has_kernels(unwrap(x), layer.weight, layer.bias)
    )


def _is_watched(layer: Any) -> bool:
    """Whether a call has side effects, such as hooks, besides the layer's own work."""
    everywhere: Any = torch.nn.modules.module
    hooks = layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks
    return any(hooks) or bool(everywhere._has_any_global_hook()) or "forward" in vars(layer)


def _has_kernels(x: torch.Tensor, *parameters: torch.Tensor | None) -> bool:
    given = [x, *(one for one in parameters if one is not None)]
    cudnn: Any = torch.backends.cudnn
    return (
        x.device.type in DEVICES
        and x.dtype in TYPES
        and all(one.device == x.device and one.dtype == x.dtype for one in given)
        and all(type(one) in (torch.Tensor, torch.nn.Parameter) for one in given)
        and not (torch.is_grad_enabled() and any(one.requires_grad for one in given))
        and not torch.is_autocast_enabled(x.device.type)
        and cudnn.is_available()
        and cudnn.enabled
        # Like other convolutions they follow allow_tf32 and benchmark, but not this setting.
        and not (cudnn.deterministic or torch.are_deterministic_algorithms_enabled())
    )


def _rectified(layer: Any, x: Part) -> Any:
    numbers = layer.stride, layer.padding, layer.dilation, layer.groups
    return dispatch(torch.cudnn_convolution_relu, (x, layer.weight, layer.bias, *numbers), {})


@rule("cudnn_convolution_relu", always=True)
def rectified(
    function: Function,
    input: Part,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
) -> Part:
    """Each rank applies convolution and ReLU to its part, and then to its borders, with halos."""
    spatial = weight.dim() - 2
    work = arranged(input, weight, bias, stride, padding, dilation)
    local, size = work.x, torch.Size(work.target.local_shape).numel()
    # The kernel does not check shapes: the plain convolution gets what does not fit, and raises the error.
    fits = local.dim() == spatial + 2 and local.shape[1] == weight.shape[1] * groups
    if not local.is_meta and fits and max(local.numel(), size) <= LARGEST:
        borders = borders_of(work.window, spatial) if is_worthwhile(local, work.window) else None
        if borders is not None:
            numbers = work.strides, work.dilations, groups
            kernel = partial(_in_one, function)
            made = convolved_in_place(local, work.weight, work.bias, numbers, borders, kernel)
            return wrap(made, work.target)
    plain: Any = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}[spatial]
    made = convolution(plain, input, weight, bias, stride, padding, dilation, groups)
    return wrap(unwrap(made).relu(), made.place)


def _in_one(
    function: Function, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *numbers: Any
) -> torch.Tensor:
    """Convolution and ReLU in one kernel, if there is one with the same result as two."""
    key = _chosen_by(x, weight, numbers)
    suitable = _suitable.get(key)
    if suitable is None:
        suitable = _suitable.add(key, _is_suitable(partial(function, x, weight), weight, numbers))
    if not suitable:
        return convolved_plainly(x, weight, bias, *numbers).relu_()
    made: torch.Tensor = function(x, weight, bias, *numbers)
    return made


def counts() -> tuple[int, int]:
    """Counts the kernel configurations in the cache.

    Returns:
        How many are used, and how many were tried.
    """
    return sum(_suitable), len(_suitable)


def _chosen_by(x: torch.Tensor, weight: torch.Tensor, numbers: Any) -> Any:
    cudnn: Any = torch.backends.cudnn
    # Newer versions raise an error if allow_tf32 is read while it differs between operations.
    precision = cudnn.conv.fp32_precision if hasattr(cudnn, "conv") else cudnn.allow_tf32
    layouts = tuple((one.shape, one.stride()) for one in (x, weight))
    return x.device, x.dtype, layouts, str(numbers), precision, cudnn.benchmark


def _is_suitable(function: Function, weight: torch.Tensor, numbers: Any) -> bool:
    """Whether there is a kernel that keeps NaN in a ReLU: some kernels turn it into zero."""
    bias = weight.new_full(weight.shape[:1], float("nan"))
    try:
        return bool(function(bias, *numbers)[:1].isnan().all())
    except RuntimeError as error:
        if "unable to find an engine" in str(error):
            return False
        raise
