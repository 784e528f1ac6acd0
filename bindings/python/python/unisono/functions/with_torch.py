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
from unisono.functions.shared_array import Shared
from unisono.functions.snapshot import Sources, array_digest
from unisono.functions.user_code import is_user_module


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


def watch(thing: Any, sources: Sources, visit: AnyCallable[[str, Any], None]) -> None:
    """Records the attributes of a module, the settings of an optimizer, the type of a tensor."""
    kind = type(thing).__name__
    if isinstance(thing, torch.Tensor):
        for reader in _SETTINGS:
            sources.read(reader, thing, "requires_grad or dtype of a tensor")
        return
    sources.read(type, thing, kind)
    visit(kind, type(thing))
    if isinstance(thing, torch.optim.Optimizer):
        sources.read(_state, thing, f"{kind}.state")
        sources.read(_param_groups, thing, f"{kind}.param_groups")
        visit(f"{kind}.param_groups", thing.param_groups)
        return
    sources.mapping(kind, vars(thing))
    for name, value in _attributes(thing).items():
        visit(f"{kind}.{name}", value)


_SETTINGS = (attrgetter("requires_grad"), attrgetter("dtype"))
_state, _param_groups = attrgetter("state"), attrgetter("param_groups")


def _attributes(module: Any) -> dict[str, Any]:
    """The attributes of a module that are sent: all, unless a class of the user says otherwise."""
    user = [one for one in type(module).__mro__ if is_user_module(one.__module__)]
    is_custom = any("__getstate__" in vars(one) for one in user)
    held: dict[str, Any] = module.__getstate__() if is_custom else vars(module)
    return {name: value for name, value in held.items() if name != "_compiled_call_impl"}


def private_state(thing: Any) -> Any:
    """An optimizer's state, such as momentum: each worker's own."""
    return thing.state if isinstance(thing, torch.optim.Optimizer) else None


def state_of(thing: Any, previous: Any) -> Any:
    """What workers must know of an object: the class and the attributes, or a tensor's settings."""
    if isinstance(thing, torch.Tensor):
        return thing.requires_grad, thing.dtype
    if isinstance(thing, torch.optim.Optimizer):
        own = {} if thing.state is previous else {"state": thing.state}
        return type(thing), {"param_groups": thing.param_groups, **own}
    return type(thing), _attributes(thing)


def apply_state(thing: Any, state: Any) -> None:
    """Makes this rank's copy like the master's, except for the values of tensors."""
    if isinstance(thing, torch.Tensor):
        requires_grad, dtype = state
        if thing.dtype != dtype:
            grad, thing.grad = thing.grad, None
            thing.data = thing.data.to(dtype)
            thing.grad = None if grad is None else grad.to(dtype)
        thing.requires_grad_(requires_grad)
        return
    kind, attributes = state
    if type(thing) is not kind:
        thing.__class__ = kind
    if isinstance(thing, torch.nn.Module):
        vars(thing).clear()
        thing.__setstate__(attributes)  # type: ignore[no-untyped-call]
    else:
        vars(thing).update(attributes)


def digest_of(thing: Any) -> AnyCallable[[Any], Any] | None:
    """How to identify the contents of a tensor that is not shared; None for any other object."""
    return _digest if isinstance(thing, torch.Tensor) else None


def _digest(tensor: Any) -> tuple[Any, ...]:
    settings = (tensor.requires_grad, tensor.dtype, tensor.shape, tensor.device)
    if tensor.device.type == "cpu" and tensor.layout is torch.strided and not tensor.is_conj():
        flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
        return *settings, array_digest(flat.numpy())
    return *settings, tensor.data_ptr() if tensor.layout is torch.strided else 0, tensor._version


def wrap(thing: Any) -> _Copy:
    """Wraps a tensor as a variable."""
    return _Copy(thing)
