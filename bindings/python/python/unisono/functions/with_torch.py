"""PyTorch: functions over tensors; parameters, buffers and modules as shared variables."""

from __future__ import annotations

from collections.abc import Callable as AnyCallable
from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from unisono.functions import device
from unisono.functions.callables import Callable, Kernel
from unisono.functions.shared import Shared


class TorchKernel(Kernel):
    """A callable that takes and returns tensors.

    Inputs are in memory that all ranks share, and tensors cannot be made read-only, but they count their
    changes. The first call gets copies; if it changes them, all later calls get copies too.
    """

    _writes: bool | None = None
    """Whether the callable changes its inputs; None before the first call."""

    def argument(self, array: Any) -> Any:
        """A tensor over the same memory, or a copy; on a device always a copy."""
        if device.computes_there():
            return torch.from_numpy(array).cuda()
        return torch.from_numpy(array) if self._writes is False else torch.tensor(array)

    def call(self, arguments: list[Any], shareds: dict[str, Any]) -> Any:
        """Runs the callable, and checks whether it has changed its inputs."""
        if any(one.is_inference() for one in arguments):
            # Inference tensors do not count changes: they stay copies until the callable is known.
            return super().call(arguments, shareds)
        before = [one._version for one in arguments]
        result = super().call(arguments, shareds)
        changed = any(one._version != old for one, old in zip(arguments, before, strict=True))
        if changed and self._writes is False:
            self._writes = True
            raise ValueError(
                "expected inputs to stay as they are, and this call changed one in place where earlier ones "
                "did not: the memory of the data has changed; clone() what you change"
            )
        self._writes = self._writes or changed
        return result

    def value(self, shared: Shared) -> Any:
        """A tensor over the shared array's own memory, or a copy on the device."""
        value = torch.from_numpy(shared.value)
        return value.cuda() if device.computes_there() else value

    def result(self, value: Any) -> Any:
        """A NumPy array over the same memory; a value computed on a worker's device stays there."""
        if device.computes_there() and device.is_there(value):
            return value.detach()
        return _array(value)

    def stored(self, value: Any) -> Any:
        """A copy of a shared array's new value."""
        return np.array(_array(value))


def kernel(definition: Callable) -> Kernel:
    """Builds the kernel of a callable for this process."""
    return TorchKernel(definition)


def _array(value: Any) -> Any:
    """A NumPy array over the same memory."""
    if not isinstance(value, torch.Tensor):
        return np.asarray(value)
    if value.layout is not torch.strided:
        raise TypeError(f"expected a dense tensor, received one of layout {value.layout}; use .to_dense()")
    try:
        return value.detach().cpu().numpy()
    except TypeError as error:
        raise TypeError(
            f"expected a tensor of a type that NumPy has, received {value.dtype}; convert it, as by .float()"
        ) from error


class _Copy:
    """A tensor in this process, with the interface of a variable."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.name = getattr(tensor, "name", None) or "a tensor"

    def get(self) -> Any:
        return _array(self._tensor)

    def set(self, array: Any) -> None:
        with torch.no_grad():
            new = torch.from_numpy(np.array(array))
            if new.shape == self._tensor.shape:
                self._tensor.copy_(new)
            else:
                self._tensor.data = new.to(self._tensor.dtype)

    def raw(self) -> Any:
        return self._tensor.data

    def put(self, value: Any) -> None:
        self._tensor.data = value


def is_shared(thing: Any) -> bool:
    """Whether copies of an object in different processes belong together."""
    return isinstance(thing, (torch.nn.Module, torch.nn.Parameter, torch.optim.Optimizer)) or (
        isinstance(thing, torch.Tensor) and thing.grad_fn is None
    )


def is_found(thing: Any) -> bool:
    """Whether an object is shared even without a declaration: functions that use a module share one copy."""
    return isinstance(thing, (torch.nn.Module, torch.nn.Parameter, torch.optim.Optimizer))


def parts(thing: Any) -> Iterable[Any]:
    """The tensors that can be moved: a module's parameters and buffers, a tensor itself, no optimizer's."""
    if isinstance(thing, torch.nn.Module):
        return [*thing.parameters(), *thing.buffers()]
    return [] if isinstance(thing, torch.optim.Optimizer) else [thing]


def own_parts(thing: Any) -> list[Any]:
    """The parameters and buffers that a module owns directly."""
    if not isinstance(thing, torch.nn.Module):
        return []
    found = [*thing._parameters.values(), *thing._buffers.values()]
    return [one for one in found if one is not None]


def titled_parts(thing: Any) -> Iterable[tuple[str, Any]]:
    """The same tensors, each with its name in errors."""
    if isinstance(thing, torch.nn.Module):
        owner = type(thing).__name__
        named = [*thing.named_parameters(), *thing.named_buffers()]
        return [(f"{name} of {owner}", part) for name, part in named]
    return [("", part) for part in parts(thing)]


def follows(thing: Any) -> AnyCallable[[str], bool] | None:
    """Which attributes of modules and optimizers are sent to the workers when they change."""
    if isinstance(thing, torch.nn.Module):
        return _NOT_COMPILED
    return _OF_OPTIMIZERS if isinstance(thing, torch.optim.Optimizer) else None


_NOT_COMPILED = "_compiled_call_impl".__ne__
_OF_OPTIMIZERS = frozenset(("param_groups", "state")).__contains__


class Watch:
    """Watches the type and `requires_grad` of the master's tensors."""

    def __init__(self, objects: dict[int, Any]) -> None:
        every = [(number, one) for number, one in objects.items() if isinstance(one, torch.Tensor)]
        self._numbers, self._tensors = [number for number, _ in every], [one for _, one in every]
        self._sent: list[Any] = []

    def has_any(self) -> bool:
        """Whether there is anything to watch."""
        return bool(self._tensors)

    def _now(self) -> list[Any]:
        return list(map(_settings, self._tensors))

    def changes(self) -> list[tuple[int, Any]]:
        """The number and settings of each tensor whose settings differ from those last sent."""
        now = self._now()
        if now == self._sent:
            return []
        every = zip(self._numbers, now, self._sent, strict=True)
        return [(number, new) for number, new, old in every if new != old]

    def told(self) -> None:
        """Records that the workers have the current settings."""
        self._sent = self._now()


_settings = attrgetter("requires_grad", "dtype")


def apply_settings(thing: Any, settings: Any) -> None:
    """Sets a tensor's type and `requires_grad` to those of the master's tensor."""
    requires_grad, dtype = settings
    if thing.dtype != dtype:
        grad, thing.grad = thing.grad, None
        thing.data = thing.data.to(dtype)
        thing.grad = None if grad is None else grad.to(dtype)
    thing.requires_grad_(requires_grad)


def wrap(thing: Any) -> _Copy:
    """Wraps a tensor as a variable."""
    return _Copy(thing)
