"""A module's parameters in CUDA memory: packed into one flat buffer on the device or in pinned memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from unisono.array_calls import ReduceOp
from unisono.errors import UsageError
from unisono.group import Group
from unisono.parameters.adapter import Values, check_same
from unisono.torch.gradients import as_real, reduce_gradients, scale
from unisono.torch.memory import distinct_tensors


class DeviceParameters:
    """Tensors of one CUDA device; tied tensors count once, complex tensors as pairs of real numbers.

    Averages and gradients stay on the device. Values for a table are staged in pinned memory, with one copy
    for each element type.
    """

    in_place = False

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
        self._groups: dict[torch.dtype, list[int]] = {}
        for place, (name, one) in enumerate(self._named.items()):
            _check(name, one, next(iter(self._named.values())).device)
            self._groups.setdefault(one.dtype.to_real(), []).append(place)
        self.exact = all(dtype in (torch.float32, torch.float64) for dtype in self._groups)
        """Whether the tensors store the values they are given bit for bit."""
        self._pinned: dict[torch.dtype, torch.Tensor] = {}

    def names(self) -> list[str]:
        """The tensors' names in the module."""
        return list(self._named)

    @torch.no_grad()
    def read(self) -> list[Values]:
        """Copies the tensors to pinned memory, which the next `read` overwrites; bfloat16 as float32."""
        tensors = self._tensors()
        values: list[Values] = [None] * len(tensors)  # type: ignore[list-item]
        for dtype, places in self._groups.items():
            flat = _joined([tensors[place] for place in places])
            host = self._host(dtype, flat.numel())
            host.copy_(flat, non_blocking=True)
            parts = torch.split(host, [tensors[place].numel() for place in places])
            for place, part in zip(places, parts, strict=True):
                values[place] = part.view(tensors[place].shape).numpy()
        torch.cuda.current_stream(tensors[0].device).synchronize()
        return values

    @torch.no_grad()
    def write(self, values: list[Values]) -> None:
        """Copies values into the tensors."""
        tensors = self._tensors()
        for places, parts in self._uploaded(tensors, list(values)):
            torch._foreach_copy_([tensors[place] for place in places], parts)

    @torch.no_grad()
    def add(self, values: list[Values | None]) -> None:
        """Adds to the tensors, on the device; skips a tensor whose value is None."""
        tensors = self._tensors()
        for places, parts in self._uploaded(tensors, values):
            torch._foreach_add_([tensors[place] for place in places], parts)

    @torch.no_grad()
    def average(self, group: Group, factor: float, timeout: float | None) -> None:
        """Replaces every worker's tensors by their average, without staging in host memory.

        Args:
            group: The workers.
            factor: This worker's values are multiplied by it first.
            timeout: Seconds until the call times out.
        """
        tensors = self._tensors()
        averages = []
        for places in self._groups.values():
            flat = scale(_joined([tensors[place] for place in places]), factor)
            group.all_reduce(flat, "avg", timeout=timeout)
            averages.append(torch.split(flat, [tensors[place].numel() for place in places]))
        # Write nothing until every average has arrived.
        for places, parts in zip(self._groups.values(), averages, strict=True):
            targets = [tensors[place] for place in places]
            torch._foreach_copy_(
                targets, [part.view(one.shape) for part, one in zip(parts, targets, strict=True)]
            )

    def reduce_gradients(
        self, group: Group, op: ReduceOp, factor: float, timeout: float | None = None
    ) -> None:
        """Combines the gradients between workers, on the device."""
        check_same(self._trained, self._current())
        reduce_gradients(self._trained, group, op, factor, timeout)

    def _tensors(self) -> list[torch.Tensor]:
        check_same(self._trained, self._current())
        first = next(iter(self._named.values())).device
        for name, one in self._named.items():
            _check(name, one, first)
        return [as_real(one.detach()) for one in self._named.values()]

    def _host(self, dtype: torch.dtype, elements: int) -> torch.Tensor:
        """Pinned memory for all tensors of a type. NumPy has no bfloat16, so those are widened."""
        held = self._pinned.get(dtype)
        if held is None or held.numel() != elements:
            wide = torch.float32 if dtype == torch.bfloat16 else dtype
            held = self._pinned[dtype] = torch.empty(elements, dtype=wide, pin_memory=True)
        return held

    def _uploaded(
        self, tensors: list[torch.Tensor], values: list[Values | None]
    ) -> list[tuple[list[int], list[torch.Tensor]]]:
        """Uploads the values and returns them in the tensors' shapes: one copy for each type."""
        uploaded = []
        for every in self._groups.values():
            places = [place for place in every if values[place] is not None]
            if not places:
                continue
            arrays = [torch.from_numpy(values[place]).reshape(-1) for place in places]
            host = torch.empty(sum(one.numel() for one in arrays), dtype=arrays[0].dtype, pin_memory=True)
            torch.cat(arrays, out=host)
            flat = host.to(tensors[0].device, non_blocking=True)
            parts = torch.split(flat, [one.numel() for one in arrays])
            shaped = [
                part.view(tensors[place].shape).to(tensors[place].dtype)
                for place, part in zip(places, parts, strict=True)
            ]
            uploaded.append((places, shaped))
        return uploaded


def _joined(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Concatenates all tensors into a new flat one."""
    return torch.cat([one.reshape(-1) for one in tensors])


def _check(name: str, one: torch.Tensor, device: torch.device) -> None:
    if one.device != device or one.layout != torch.strided:
        where = f"on {one.device}" if one.device != device else f"of layout {one.layout}"
        raise UsageError(
            f"parameters: expected dense tensors on {device}, where the first one is, received {name!r} "
            f"{where}; move the whole model to one device"
        )
