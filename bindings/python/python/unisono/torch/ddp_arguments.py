"""The arguments of PyTorch's DistributedDataParallel: those that have a meaning here, and the others."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence

from unisono.errors import usage_error
from unisono.group import Group

_CALL = "DistributedDataParallel"
# Typed as Any: PyTorch's type hints lack PackedSequence.to with a device.
_MOVED: tuple[type[Any], ...] = (torch.Tensor, PackedSequence)


def placement(
    device_ids: Sequence[int | torch.device | str] | None,
    output_device: int | torch.device | str | None,
    parameters: Mapping[str, torch.Tensor],
) -> torch.device | None:
    """Checks the devices that the caller names.

    Args:
        device_ids: None, or a list of the one device that the module is on.
        output_device: None, or the same device.
        parameters: The module's parameters, by name.

    Returns:
        The device to which inputs are moved; None leaves them where they are.

    Raises:
        UsageError: There are several devices, the module is on another one, or `output_device` is alone.
    """
    if not device_ids:
        if output_device is not None:
            advice = f"pass device_ids=[{output_device!r}], too, or leave output_device out"
            raise usage_error(_CALL, "device_ids with output_device", "output_device alone", advice)
        return None
    named = [_device(one) for one in device_ids]
    output = named[0] if output_device is None else _device(output_device)
    if len(named) > 1 or output != named[0]:
        received = f"{[*map(str, named)]} and the output device {output}"
        advice = f"start one process for each device: unisono run -n {len(named)}"
        raise usage_error(_CALL, "one device for each process", received, advice)
    for name, one in parameters.items():
        if one.device != named[0]:
            raise usage_error(
                _CALL,
                f"all parameters on {named[0]}, as device_ids states",
                f"{name!r} on {one.device}",
                f"move the module with .to({str(named[0])!r}), or leave device_ids out",
            )
    return named[0]


def _device(one: int | torch.device | str) -> torch.device:
    device = torch.device("cuda", one) if isinstance(one, int) else torch.device(one)
    if device.type == "cuda" and device.index is None:
        return torch.device("cuda", torch.cuda.current_device())
    return device


def move(value: Any, device: torch.device) -> Any:
    """Moves the tensors in a module's inputs to a device, as PyTorch does.

    Args:
        value: A tensor, or tuples, lists and dictionaries that contain tensors, or anything else.
        device: The device.

    Returns:
        The same with tensors on the device; objects of which no part has moved are the same objects.
    """
    if isinstance(value, _MOVED):
        return value.to(device, non_blocking=True)
    if isinstance(value, dict):
        items = {key: move(one, device) for key, one in value.items()}
        if all(items[key] is one for key, one in value.items()):
            return value
        moved = copy.copy(value)
        for key, one in items.items():
            moved[key] = one
        return moved
    if isinstance(value, (tuple, list)):
        parts = [move(one, device) for one in value]
        if all(part is one for part, one in zip(parts, value, strict=True)):
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    return value


def group_of(group: Group | None, process_group: Any | None) -> Group | None:
    """The workers that the caller names, as `group` or by PyTorch's name for it.

    Args:
        group: A group, or None.
        process_group: The same.

    Returns:
        The group, or None for all workers.

    Raises:
        UsageError: Both are given, or the process group is one of PyTorch's.
    """
    if process_group is None:
        return group
    if group is not None:
        raise usage_error(_CALL, "a group or a process_group", "both", "pass one of them")
    if not isinstance(process_group, Group):
        advice = (
            "pass one of world.group([...]), or use torch.nn.parallel.DistributedDataParallel with PyTorch's "
            'process groups: the backend "unisono" serves it'
        )
        received = f"a {type(process_group).__name__}"
        raise usage_error(_CALL, "a unisono.Group as process_group", received, advice)
    return process_group


def cap_of(bucket_cap_mb: float | None) -> int | None:
    """The largest size of a bucket in bytes.

    Args:
        bucket_cap_mb: The size in MiB; None for the default.

    Returns:
        The size in bytes, or None.
    """
    if bucket_cap_mb is None:
        return None
    if not bucket_cap_mb > 0:
        raise usage_error(_CALL, "a bucket_cap_mb above 0", bucket_cap_mb, "leave it out")
    return max(int(bucket_cap_mb * (1 << 20)), 1)


def warn_of_views(gradient_as_bucket_view: bool) -> None:
    """Warns that gradients are views of buckets, if the caller wants others.

    Args:
        gradient_as_bucket_view: The caller's argument.
    """
    if not gradient_as_bucket_view:
        warnings.warn(
            f"{_CALL}: gradients are views of buckets in any case, which the next backward pass overwrites; "
            "clone a gradient to keep it, and leave gradient_as_bucket_view out",
            stacklevel=3,
        )
