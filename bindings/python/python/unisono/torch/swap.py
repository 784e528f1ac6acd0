"""Double buffering: spare memory that a tensor takes over when it holds newer values than the tensor."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.autograd.graph import increment_version
from torch.optim.optimizer import register_optimizer_step_pre_hook

from unisono.parameters.adapter import Values

_count_users: Any = getattr(torch._C, "_storage_Use_Count", None)


class Swap:
    """Lets tensors take new values without a copy.

    A tensor keeps its identity, gradient and optimizer state; only its storage is replaced. It takes part
    only while PyTorch has allocated its storage and nothing else refers to that storage. Otherwise a write
    through another reference would go to memory that the model no longer uses.

    Example:
        >>> weight = torch.nn.Parameter(torch.zeros(2))
        >>> swap = Swap({"weight": weight})
        >>> swap.mark()
        >>> swap.spare()[0][:] = 3
        >>> swap.take([0])
        [0]
        >>> weight.tolist(), swap.spare()[0].tolist()
        ([3.0, 3.0], [0.0, 0.0])
    """

    def __init__(self, named: Mapping[str, torch.Tensor]) -> None:
        self._tensors = list(named.values())
        self._places = {id(one): place for place, one in enumerate(self._tensors)}
        twice = len(self._places) < len(self._tensors)
        self._addresses = [None if twice else _own(one) for one in self._tensors]
        self._spare: list[torch.Tensor | None] = []
        self._versions: list[int | None] = []
        self._unwatch: Callable[[], Any] = lambda: None

    def watch(self, before: Callable[[list[int]], None]) -> None:
        """Registers a method to be called before each step of an optimizer that trains some of the tensors.

        Args:
            before: Called with the tensors' indices. Only a weak reference to its object is kept.
        """
        method = weakref.WeakMethod(before)
        places = self._places

        def hook(optimizer: torch.optim.Optimizer, arguments: Any, options: Any) -> None:
            call = method()
            if call is not None:
                trained = (places.get(id(one)) for group in optimizer.param_groups for one in group["params"])
                found = [place for place in trained if place is not None]
                if found:
                    call(found)

        self._unwatch = weakref.finalize(self, register_optimizer_step_pre_hook(hook).remove)

    def close(self) -> None:
        """Ends `watch`."""
        self._unwatch()

    def mark(self) -> None:
        """Records the tensors' state: a tensor that PyTorch changes after this is not swapped."""
        self._versions = [
            one._version if address == one.data_ptr() else None
            for one, address in zip(self._tensors, self._addresses, strict=True)
        ]

    def spare(self) -> list[Values | None]:
        """Views of the spare memory, laid out like the tensors; None for a tensor that is left out."""
        if not self._spare:
            self._spare = [
                None if address is None else torch.empty_like(one, requires_grad=False)
                for one, address in zip(self._tensors, self._addresses, strict=True)
            ]
        return [None if one is None else one.numpy() for one in self._spare]

    def take(self, places: Iterable[int]) -> list[int]:
        """Exchanges the storage of tensors with their spare memory, if they are unchanged since `mark`.

        Args:
            places: Indices of the tensors.

        Returns:
            The indices of the tensors that were swapped.
        """
        return [place for place in places if self._take(place)]

    def _take(self, place: int) -> bool:
        one, spare = self._tensors[place], self._spare[place]
        if (
            spare is None
            or self._versions[place] is None
            or self._addresses[place] != one.data_ptr()
            or (one.shape, one.dtype) != (spare.shape, spare.dtype)
            or self._versions[place] != one._version
            or _users(one) > _users(spare)
        ):
            return False
        # Not detach(): the spare tensor must not share the version counter.
        self._spare[place] = one.data
        one.data = spare
        self._addresses[place] = one.data_ptr()
        self._versions[place] = None
        increment_version(one)  # backward through a graph that saved the former values must fail
        return True


def _own(one: torch.Tensor) -> int | None:
    """The address of a tensor's memory if PyTorch has allocated it for this process, else None."""
    if _count_users is None or type(one) not in (torch.Tensor, torch.nn.Parameter) or one.is_inference():
        return None
    if one.device.type != "cpu" or one.layout != torch.strided or one.numel() == 0 or one.is_complex():
        return None
    storage = one.untyped_storage()
    return one.data_ptr() if storage.resizable() and not storage.is_shared() else None


def _users(one: torch.Tensor) -> int:
    """The number of tensors and arrays that refer to a tensor's storage."""
    count: int = _count_users(one.untyped_storage()._cdata)
    return count
