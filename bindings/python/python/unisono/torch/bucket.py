"""Gradient buckets: in memory that all ranks of a host share, or on the parameters' device."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from unisono.errors import Error
from unisono.group import Group
from unisono.pending import Pending
from unisono.torch.gradients import scale
from unisono.worlds import World

# Bucket size in bytes: large enough for full memory bandwidth, small enough to start communication early.
BYTES = 4 << 20
# On a device a call costs more and memory is faster, so buckets are larger.
BYTES_ON_DEVICE = 32 << 20


class Bucket:
    """A flat buffer of several parameters' gradients, and a flag for each: whether any rank has a gradient.

    Complex gradients are sent as pairs of real numbers; sparse gradients become dense.
    """

    def __init__(self, parameters: Sequence[torch.nn.Parameter], world: World) -> None:
        self.parameters = list(parameters)
        width = 2 if self.parameters[0].is_complex() else 1
        sizes = [one.numel() * width for one in self.parameters]
        self._flat = _memory(sum(sizes) + len(sizes), self.parameters[0], world)
        *parts, self._marks = torch.split(self._flat, [*sizes, len(sizes)])
        self._views = [_gradient_in(part, one) for part, one in zip(parts, self.parameters, strict=True)]
        self._pending: Pending[object] | None = None
        self.factor = 1.0
        """This rank's gradients are multiplied by this factor before they are averaged."""
        self.begin()

    def begin(self) -> None:
        """Resets the bucket for a new backward pass."""
        self._marks.zero_()
        self.missing = len(self.parameters)

    def take(self, place: int) -> None:
        """Copies a complete gradient into the bucket; from then on, the gradient is a view of the bucket.

        Args:
            place: The parameter's index in the bucket.
        """
        parameter, view = self.parameters[place], self._views[place]
        gradient = parameter.grad
        assert gradient is not None
        if gradient.layout != torch.strided or gradient.data_ptr() != view.data_ptr():
            view.copy_(gradient if gradient.layout == torch.strided else gradient.to_dense())
            parameter.grad = view
        scale(view, self.factor)
        self._marks[place] = 1
        self.missing -= 1

    def reduce(self, group: Group) -> None:
        """Starts averaging. A gradient that this rank does not have counts as zero.

        Args:
            group: The workers.
        """
        if self.missing:
            for place in (self._marks == 0).nonzero().flatten().tolist():
                gradient = self.parameters[place].grad
                # A gradient accumulated in earlier passes counts, even if this pass added nothing to it.
                if gradient is None:
                    self._views[place].zero_()
                else:
                    self.take(place)
        self._pending = group.all_reduce(self._flat, "avg", wait=False)

    def shadow(self, group: Group) -> None:
        """Takes part in an average without gradients of this rank's own, which are lost.

        Args:
            group: The workers.
        """
        self._flat.zero_()
        group.all_reduce(self._flat, "avg")
        self.begin()

    def finish(self) -> None:
        """Waits for the averages and assigns them to the parameters for which any rank has a gradient."""
        if self._pending is None:
            return
        pending, self._pending = self._pending, None
        pending.wait()
        for place, mark in enumerate(self._marks.tolist()):
            if mark:
                self.parameters[place].grad = self._views[place]


def buckets_of(
    parameters: Sequence[torch.nn.Parameter], world: World, cap: int | None = None
) -> list[Bucket]:
    """Divides parameters into buckets in reverse order, because backward computes the last gradients first.

    Args:
        parameters: The parameters that need gradients, in the module's order.
        world: The world in whose shared memory the buckets are allocated.
        cap: The largest size of a bucket in bytes, unless a parameter alone is larger.

    Returns:
        The buckets, in the order in which they are reduced.
    """
    groups: dict[object, list[list[torch.nn.Parameter]]] = {}
    ordered: list[list[torch.nn.Parameter]] = []
    for parameter in reversed(parameters):
        same = groups.setdefault((parameter.dtype, parameter.device), [])
        most = cap or (BYTES_ON_DEVICE if parameter.is_cuda else BYTES)
        filled = sum(one.numel() for one in same[-1]) if same else 0
        if not same or (filled + parameter.numel()) * parameter.element_size() > most:
            same.append([])
            ordered.append(same[-1])
        same[-1].append(parameter)
    return [Bucket(one, world) for one in ordered]


def _gradient_in(part: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Returns a view of flat memory with a parameter's type and memory format, to be used as its gradient.

    Fused optimizers traverse parameters and gradients in memory order.
    """
    flat = torch.view_as_complex(part.view(-1, 2)) if parameter.is_complex() else part
    strides = torch.empty_like(parameter, device="meta").stride()
    return flat.as_strided(parameter.shape, strides)


def _memory(elements: int, like: torch.Tensor, world: World) -> torch.Tensor:
    """Allocates on the parameters' device, else in memory reduced without a copy, else in private memory."""
    dtype = like.dtype.to_real()
    if like.is_cuda:
        return torch.empty(elements, dtype=dtype, device=like.device)
    try:
        return torch.from_numpy(world.empty(elements * dtype.itemsize, "uint8")).view(dtype)
    except Error:
        return torch.empty(elements, dtype=dtype)
