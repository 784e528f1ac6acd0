"""This rank's region of the random numbers that one process would draw for the global tensor.

A generator yields a sequence, so each rank draws all numbers, chunk by chunk, and keeps those of its region:
it needs the memory of the region and of one chunk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

CHUNK = 1 << 16
"""The number of random numbers drawn at once on the CPU: a multiple of 16."""

Fill = Callable[[torch.Tensor], torch.Tensor]
"""Draws as many numbers as a tensor has elements. It may read the elements, and overwrites them."""

Fills = Callable[[torch.Generator | None], Fill]
"""Returns a function that draws numbers from a generator; a trial passes a generator of its own."""

# Whether drawing in chunks gives the numbers of one call, by operation, type, device and memory format.
_sequences: dict[Any, bool] = {}


def drawn(
    kind: str,
    fills: Fills,
    generator: torch.Generator | None,
    like: torch.Tensor,
    shape: Sequence[int],
    region: Sequence[slice],
    values: torch.Tensor | None = None,
) -> torch.Tensor:
    """This rank's region of the numbers for a global tensor.

    Args:
        kind: The operation's name, on which the order of the numbers depends.
        fills: Returns the function that draws numbers.
        generator: The generator; None for the default one.
        like: A tensor with the type, the device and the order of strides that it has on one process; the
            order of the numbers depends on them too.
        shape: The global shape.
        region: This rank's region.
        values: The elements of the region, for operations that read them.

    Returns:
        A tensor of the region's shape.
    """
    order = sorted(range(like.dim()), key=lambda dim: like.stride()[dim], reverse=True)
    back = [order.index(dim) for dim in range(like.dim())]
    places = _Places([shape[dim] for dim in order], [region[dim] for dim in order])
    source = _Source(kind, fills, generator, like, order == sorted(order))
    count = math.prod(shape)
    if count <= source.unit or not source.is_sequence(count):
        full = like.new_zeros(places.full).permute(back)
        if values is not None:
            full[tuple(region)] = values
        # A copy, so that the global tensor is freed.
        return source.fill(full)[tuple(region)].clone()
    given = None if values is None else values.permute(order).reshape(-1)
    made = like.new_empty(places.count)

    def prepare(chunk: torch.Tensor, first: int) -> None:
        if given is not None:
            where, mine = places.within(first, first + chunk.numel())
            chunk[where.to(like.device)] = given[mine]

    for first, numbers in source.chunks(count, prepare):
        where, mine = places.within(first, first + numbers.numel())
        made[mine] = numbers[where.to(like.device)]
    return made.view(places.sizes).permute(back)


class _Places:
    """Maps the elements of a region to the memory order of the global tensor and of the region."""

    def __init__(self, full: list[int], region: list[Any]) -> None:
        self.full, self._region = full, region
        self.sizes: list[int] = [one.stop - one.start for one in region]
        self.count = math.prod(self.sizes)

    def within(self, first: int, stop: int) -> tuple[torch.Tensor, slice]:
        """The region's elements between two offsets: their offsets from the first, and in the region."""
        mine = slice(self._before(first), self._before(stop))
        rest = torch.arange(mine.start, mine.stop)
        found, stride = torch.zeros_like(rest), 1
        for dim in reversed(range(len(self.full))):
            size = max(self.sizes[dim], 1)
            found += (rest % size + self._region[dim].start) * stride
            rest //= size
            stride *= self.full[dim]
        return found - first, mine

    def _before(self, place: int) -> int:
        """The number of elements of the region before an offset."""
        if place >= math.prod(self.full):
            return self.count
        found: int = 0
        for dim, one in enumerate(self._region):
            at, place = divmod(place, math.prod(self.full[dim + 1 :]))
            inner = math.prod(self.sizes[dim + 1 :])
            found += min(max(at - one.start, 0), self.sizes[dim]) * inner
            if not one.start <= at < one.stop:
                break
        return found


class _Source:
    """An operation that draws numbers, and its chunk size."""

    def __init__(
        self, kind: str, fills: Fills, generator: torch.Generator | None, like: torch.Tensor, contiguous: bool
    ) -> None:
        self.fill = fills(generator)
        self.unit = CHUNK
        self._kind, self._fills, self._generator = kind, fills, generator
        self._like, self._contiguous = like, contiguous
        self._device = like.device.type == "cuda"
        if self._device:
            # The count that all threads draw in one step.
            device = torch.cuda.get_device_properties(like.device)
            blocks = device.multi_processor_count * (device.max_threads_per_multi_processor // 256)
            self.unit = blocks * 256 * (2 if like.dtype == torch.float64 else 4)

    def is_sequence(self, count: int) -> bool:
        """Whether chunks give the numbers of one call. A trial decides, as implementations differ."""
        if self._kind == "native_dropout" and count % 16:
            # The kernel then draws in another order.
            return False
        key = self._kind, self._like.dtype, self._like.device, self._contiguous
        if key not in _sequences:
            size = 2 * self.unit + 16 if self._device else 4 * 16 + 5
            one, other = (torch.Generator(self._like.device).manual_seed(1) for _ in range(2))
            expected = self._fills(one)(self._zeros(size).fill_(0.5))
            trial = _Source(self._kind, self._fills, other, self._like, self._contiguous)
            trial.unit = self.unit if self._device else 32
            found = torch.empty_like(expected)
            for first, numbers in trial.chunks(size, lambda chunk, first: chunk.fill_(0.5)):
                found[first : first + numbers.numel()] = numbers
            same = torch.equal(found, expected) and torch.equal(one.get_state(), other.get_state())
            _sequences[key] = same
        return _sequences[key]

    def chunks(
        self, count: int, prepare: Callable[[torch.Tensor, int], Any]
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Yields each chunk with the index of its first number; where chunks overlap, the later one wins."""
        # On the CPU, normal numbers of a contiguous tensor are generated in blocks of 16.
        blocks = self._kind == "normal_" and self._contiguous and not self._device
        rest = count % 16 if blocks else 0
        for first in range(0, count - rest, self.unit):
            length = min(self.unit, count - rest - first)
            # On a device, threads draw a full step, even beyond the last element.
            chunk = self._zeros(self.unit if self._device else length)
            prepare(chunk[:length], first)
            yield first, self.fill(chunk)[:length]
        if rest:
            # PyTorch draws uniform numbers for the incomplete block, then replaces the last 16 elements.
            self._like.new_empty(rest).uniform_(generator=self._generator)
            yield count - 16, self.fill(self._zeros(16))

    def _zeros(self, size: int) -> torch.Tensor:
        if self._contiguous or self._kind != "normal_":
            return self._like.new_zeros(size)
        # For other memory formats, normal numbers are drawn one by one.
        return self._like.new_zeros(2 * size)[::2]
