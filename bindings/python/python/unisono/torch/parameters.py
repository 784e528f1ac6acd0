"""A PyTorch module's parameters, as the manager sees them: views of its tensors, without a copy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.autograd.graph import increment_version

from unisono.array_calls import ReduceOp
from unisono.errors import UsageError
from unisono.group import Group
from unisono.parameters.adapter import Values, check_same
from unisono.torch.device_parameters import DeviceParameters
from unisono.torch.gradients import as_real, reduce_gradients
from unisono.torch.memory import distinct_tensors
from unisono.torch.swap import Swap


class ModuleParameters:
    """Tensors in host memory; tied tensors count once."""

    def __init__(
        self,
        named: Mapping[str, torch.Tensor],
        current: Callable[[], Mapping[str, torch.Tensor]] | None = None,
    ) -> None:
        """Takes tensors by name.

        Args:
            named: The tensors.
            current: Returns the model's current tensors; by default the tensors never change.
        """
        self._trained = dict(named)  # tensors that share memory may have separate gradients
        self._current = current or (lambda: self._trained)
        self._named = distinct_tensors(named)
        # NumPy has no bfloat16, so such tensors are read as copies.
        self.in_place = all(one.dtype != torch.bfloat16 for one in self._named.values())
        # Before the first array: PyTorch does not distinguish memory that it shares from memory it was given.
        self.swap = Swap(self._named)
        """Lets the tensors take new values without a copy."""

    def names(self) -> list[str]:
        """The tensors' names in the module."""
        return list(self._named)

    def read(self) -> list[Values]:
        """Returns views of the tensors, complex ones as pairs of real numbers; bfloat16 as float32 copies."""
        check_same(self._trained, self._current())
        return [_view(name, one) for name, one in self._named.items()]

    @torch.no_grad()
    def write(self, values: list[Values]) -> None:
        """Copies values into the tensors."""
        self.read()  # raises before the first tensor is written
        for one, value in zip(self._named.values(), values, strict=True):
            as_real(one).copy_(torch.from_numpy(value))

    def written(self) -> None:
        """Increments each tensor's version counter, so that autograd does not use a value it saved before."""
        for one in self._named.values():
            if not one.is_inference():
                increment_version(one)

    @torch.no_grad()
    def add(self, values: list[Values | None]) -> None:
        """Adds to the tensors, on as many threads as PyTorch uses."""
        for one, value in zip(self._named.values(), values, strict=True):
            if value is not None:
                as_real(one).add_(torch.from_numpy(value))

    def reduce_gradients(
        self, group: Group, op: ReduceOp, factor: float, timeout: float | None = None
    ) -> None:
        """Combines the gradients between workers."""
        check_same(self._trained, self._current())
        reduce_gradients(self._trained, group, op, factor, timeout)


def parameters_of(model: Any) -> ModuleParameters | DeviceParameters:
    """Returns the parameters of a module, or of a list or dictionary of tensors.

    Args:
        model: The module; buffers, such as the statistics of batch normalization, are not parameters.

    Returns:
        Its parameters.

    Raises:
        UsageError: `model` is none of these.

    Example:
        >>> parameters_of(torch.nn.Linear(3, 1)).names()
        ['weight', 'bias']
    """
    if isinstance(model, torch.nn.Module):
        return _adapted(lambda: dict(model.named_parameters()))
    tensors = model.values() if isinstance(model, Mapping) else model
    if isinstance(model, (list, tuple, Mapping)) and all(isinstance(one, torch.Tensor) for one in tensors):
        named = model.items if isinstance(model, Mapping) else lambda: enumerate(model)
        return _adapted(lambda: {str(name): one for name, one in named()})
    raise UsageError(
        "parameters: expected a torch.nn.Module, or a list or dictionary of tensors, received "
        f"{type(model)}; pass the model itself"
    )


def _adapted(
    current: Callable[[], Mapping[str, torch.Tensor]],
) -> ModuleParameters | DeviceParameters:
    named = current()
    on_device = any(one.is_cuda for one in named.values())
    return DeviceParameters(named, current) if on_device else ModuleParameters(named, current)


def _view(name: str, one: torch.Tensor) -> Values:
    if one.device.type != "cpu" or one.layout != torch.strided:
        where = f"on {one.device}" if one.device.type != "cpu" else f"of layout {one.layout}"
        raise UsageError(
            f"parameters: expected dense tensors in host memory, received {name!r} {where}; move "
            "it with .cpu(), or .to_dense()"
        )
    plain = as_real(one.detach())
    return plain.float().numpy() if plain.dtype == torch.bfloat16 else plain.numpy()
