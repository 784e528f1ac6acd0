"""PyTorch: functions over tensors; parameters, buffers and modules as shared variables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from unisono.functions.callables import Callable, Kernel
from unisono.functions.shared import Shared


class TorchKernel(Kernel):
    """A callable that gets and gives tensors."""

    def argument(self, array: Any) -> Any:
        """A tensor over the same memory, which all ranks see: the callable must not write to it."""
        return torch.from_numpy(array)

    def value(self, shared: Shared) -> Any:
        """A tensor over the shared array's own memory."""
        return torch.from_numpy(shared.value)

    def result(self, value: Any) -> Any:
        """A NumPy array over the same memory."""
        return value.detach().cpu().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)

    def stored(self, value: Any) -> Any:
        """A shared array's new value."""
        return np.array(self.result(value))


def kernel(definition: Callable) -> Kernel:
    """The callable in this process."""
    return TorchKernel(definition)


class _Copy:
    """A tensor in this process."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor
        self.name = getattr(tensor, "name", None) or "a tensor"

    def get(self) -> Any:
        return self._tensor.detach().cpu().numpy()

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
    """Whether copies of this in different processes belong together."""
    return isinstance(thing, (torch.nn.Module, torch.nn.Parameter, torch.optim.Optimizer)) or (
        isinstance(thing, torch.Tensor) and thing.grad_fn is None
    )


def is_found(thing: Any) -> bool:
    """Whether this is shared also where nobody said so: functions that use one module use one copy of it."""
    return isinstance(thing, (torch.nn.Module, torch.nn.Parameter, torch.optim.Optimizer))


def parts(thing: Any) -> Iterable[Any]:
    """The tensors that can be moved: a module's parameters and buffers, a tensor itself, no optimizer's."""
    if isinstance(thing, torch.nn.Module):
        return [*thing.parameters(), *thing.buffers()]
    return [] if isinstance(thing, torch.optim.Optimizer) else [thing]


def wrap(thing: Any) -> _Copy:
    """A tensor as a variable."""
    return _Copy(thing)
