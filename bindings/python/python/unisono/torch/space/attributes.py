"""Attributes of a part: the shape is that of the global tensor, everything else that of local elements."""

from __future__ import annotations

import copy
from typing import Any

import torch

from unisono.torch.space.dispatch import Function, name_of, reject, replaced, rule
from unisono.torch.space.part import Part, gathered, global_shape, unwrap, wrap

_ANSWERS = (
    ".dtype",
    ".device",
    ".requires_grad",
    ".requires_grad__set__",
    ".is_leaf",
    ".grad",
    ".grad__set__",
    ".grad_fn",
    ".is_meta",
    ".is_cuda",
    ".is_cpu",
    ".is_mps",
    ".is_xpu",
    ".is_sparse",
    ".is_sparse_csr",
    ".is_mkldnn",
    ".is_quantized",
    ".is_nested",
    ".is_vulkan",
    ".is_ipu",
    ".is_hpu",
    ".layout",
    ".itemsize",
    ".names",
    ".output_nr",
    "._version",
    "._base",
    "._backward_hooks",
    "is_floating_point",
    "is_complex",
    "is_contiguous",
    "is_signed",
    "is_inference",
    "element_size",
    "get_device",
    "retain_grad",
    "register_hook",
    "register_post_accumulate_grad_hook",
    "data_ptr",
    "is_same_size",
    "result_type",
    "storage_offset",
)


@rule(*_ANSWERS, always=True, flat=True)
def answers(function: Function, *args: Any, **kwargs: Any) -> Any:
    """Queries this rank's tensor itself rather than a copy: hooks and gradients belong to it."""
    with torch._C.DisableTorchFunctionSubclass():
        return function(*args, **kwargs)


@rule("grad", always=True, flat=True)
def gradients(function: Function, outputs: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
    """Gradients of parts are parts."""
    wanted = [inputs] if isinstance(inputs, torch.Tensor) else list(inputs)
    ends = [_edge(x) for x in wanted]
    args, kwargs = replaced((args, kwargs), unwrap)
    made = function(replaced(outputs, unwrap), ends, *args, **kwargs)
    return tuple(
        wrap(one, x.place, x.flat) if one is not None and isinstance(x, Part) else one
        for one, x in zip(made, wanted, strict=True)
    )


@rule("backward", always=True, flat=True)
def backward(function: Function, tensors: Any, *args: Any, **kwargs: Any) -> Any:
    """Runs on this rank's elements. Checkpoints recompute parts in it, so the rules must be registered."""
    wanted = kwargs.pop("inputs", None)
    args, options = replaced((args, kwargs), unwrap)
    if wanted is not None:
        several = [wanted] if isinstance(wanted, torch.Tensor) else list(wanted)
        options["inputs"] = [_edge(one) for one in several]
    return function(replaced(tensors, unwrap), *args, **options)


def _edge(x: Any) -> Any:
    """Where a part's gradient arrives. The local elements would be a copy with another autograd history."""
    if not isinstance(x, Part):
        return x
    with torch._C.DisableTorchFunctionSubclass():
        return torch.autograd.graph.get_gradient_edge(x)


@rule(".shape", "size", always=True, flat=True)
def shape(function: Function, x: Part, dim: int | None = None) -> Any:
    """The global shape, or one of its sizes."""
    whole = global_shape(x)
    return whole if dim is None else whole[dim]


@rule("dim", "ndimension", ".ndim", always=True, flat=True)
def dimensions(function: Function, x: Part) -> int:
    """The number of dimensions of the global tensor."""
    return len(global_shape(x))


@rule("numel", "nelement", always=True, flat=True)
def elements(function: Function, x: Part) -> int:
    """The number of elements of the global tensor."""
    return global_shape(x).numel()


@rule("__len__", always=True, flat=True)
def length(function: Function, x: Part) -> int:
    """The length of the global tensor."""
    return int(global_shape(x)[0])


@rule("requires_grad_", always=True, flat=True)
def require(function: Function, x: Part, *args: Any, **kwargs: Any) -> Part:
    """Requires gradients for this rank's elements."""
    with torch._C.DisableTorchFunctionSubclass():
        torch.Tensor.requires_grad_(x, *args, **kwargs)
    return x


@rule(".data", "detach", "detach_", always=True, flat=True)
def detached(function: Function, x: Part) -> Part:
    """The same elements without an autograd history."""
    return wrap(unwrap(x).detach(), x.place, x.flat)


@rule("__repr__", "__format__", always=True, flat=True)
def text(function: Function, x: Part, *args: Any, **kwargs: Any) -> str:
    """Shows the local elements, without communication."""
    if name_of(function) == "__format__" and x.dim() == 0:
        return format(unwrap(x), *args)
    return Part.__repr__(x)


@rule("item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__", always=True)
def values(function: Function, x: Part, *args: Any, **kwargs: Any) -> Any:
    """The values of the global tensor."""
    return function(unwrap(gathered(x)), *args, **kwargs)


@rule("__reduce_ex__", "__deepcopy__", always=True)
def copied(function: Function, x: Part, *args: Any) -> Any:
    """A replicated part is copied and saved as a plain tensor would be; another part is copied locally."""
    if name_of(function) == "__deepcopy__":
        return wrap(copy.deepcopy(unwrap(x).detach()).requires_grad_(x.requires_grad), x.place)
    if not x.place.is_replicated:
        reject("a whole tensor to save", "save part.gather(), or part.local on each rank")
    plain: Any = unwrap(x).detach()
    return plain.__reduce_ex__(*args)


@rule("new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", always=True, flat=True)
def made(function: Function, x: Part, *args: Any, **kwargs: Any) -> Any:
    """A plain tensor of any shape."""
    return function(unwrap(x), *args, **kwargs)
