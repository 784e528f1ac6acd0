"""A function call: every rank computes its part, then the master combines the parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono.functions import batch, device, outputs
from unisono.functions.batch import ArenaArray
from unisono.functions.errors import ShapeMismatch
from unisono.functions.member import Member


class Call:
    """One rank's part of a call."""

    def __init__(
        self,
        member: Member,
        number: int,
        inputs: list[tuple[ArenaArray, bool]],
        bounds: tuple[int, ...] | None,
        rows: ArenaArray | None,
        selection: list[Any] | None,
        slices: int,
        subset: list[int] | None,
    ) -> None:
        self._member, self._inputs = member, inputs
        self._bounds, self._rows, self._selection = bounds, rows, selection
        self._slices = slices
        self._function = member.functions[number]
        definition = self._function.definition
        self.operation = definition.name
        self._has_rows = bool(definition.scattered or definition.sliceables)
        self._subset = range(len(definition.output_modes)) if subset is None else subset
        self._outputs: list[Any] = []

    def prepare(self) -> Any:
        """Computes this rank's outputs; returns its row count, and each output's type, shape and offset."""
        member, function, definition = self._member, self._function, self._function.definition
        arguments, count = self._arguments(definition.scattered)
        chosen: list[Any] = []
        if function.sliceables:
            chosen, selected = batch.select(function.sliceables, self._own_selection(), member.rank)
            if definition.scattered and selected != count:
                raise ShapeMismatch(
                    f"worker {member.rank}: expected as many scattered rows as shared_batch selects there, "
                    f"received {count} and {selected}"
                )
            count = selected
        computed = function.run(arguments, chosen, count, self._slices)
        modes = definition.output_modes
        self._outputs = [
            (modes[at], at, computed[at] if device.is_there(computed[at]) else np.asarray(computed[at]))
            for at in self._subset
        ]
        for mode, at, value in self._outputs:
            if mode is not None and not device.is_there(value):
                outputs.check_type(value.dtype, f"{self.operation}: output {at}")
        if not self._outputs:
            return None
        return count, [self._describe(mode, value) for mode, _, value in self._outputs]

    def _arguments(self, scattered: int) -> tuple[list[Any], int]:
        link, rank, bounds = self._member.link, self._member.rank, self._bounds
        low, high, first = (bounds[rank], bounds[rank + 1], bounds[0]) if bounds else (0, 0, 0)
        rows = link.view(*self._rows)[low:high] if self._rows else None
        arguments = []
        for position, ((offset, dtype, shape), is_minibatch) in enumerate(self._inputs):
            array = link.view(offset, dtype, shape)
            if position >= scattered:
                arguments.append(array)
            elif is_minibatch:
                arguments.append(array[low - first : high - first])
            elif rows is not None:
                arguments.append(array[rows])
            else:
                arguments.append(array[low:high])
        return arguments, high - low

    def _own_selection(self) -> Any:
        if self._selection is None:
            return None
        own = self._selection[self._member.rank]
        return own if len(own) == 2 else self._member.link.view(*own)

    def _describe(self, mode: str | None, value: Any) -> Any:
        """Type, shape, and the arena offset if the master reads the value instead of reducing it."""
        if mode is None:
            return None
        if device.is_there(value):
            return device.kind_of(value), tuple(value.shape), -1
        is_copied = mode == "gather" or value.dtype not in outputs.CARRIED
        location = self._member.copy_to_arena(value) if is_copied and not self._member.is_master else -1
        return value.dtype.str, value.shape, location

    def problem(self, published: list[Any]) -> Exception | None:
        """Outputs must agree in type and, except for the gathered axis, in shape; averages need rows."""
        counts = [one[0] for one in published] if self._outputs else [1]
        if self._has_rows and not any(counts) and any(mode == "avg" for mode, _, _ in self._outputs):
            return ValueError(f"{self.operation}: expected at least one row to average over, received none")
        for index, (mode, at, _) in enumerate(self._outputs):
            if mode is None:
                continue
            kinds = [one[1][index][0] for one in published]
            shapes = [one[1][index][1] for one in published]
            compared = [shape[1:] for shape in shapes] if mode == "gather" else shapes
            if mode == "gather" and not all(shapes):
                return ValueError(f"{self.operation}: {outputs.without_axis(at)}")
            if len(set(kinds)) > 1 or len(set(compared)) > 1:
                each = ", ".join(
                    f"{device.title(kind)} {shape}" for kind, shape in zip(kinds, shapes, strict=True)
                )
                return ValueError(
                    f"{self.operation}: output {at} expected one type and shape on all workers for mode "
                    f"{mode!r}, received {each}"
                )
            if mode == "avg":
                try:
                    outputs.check_average(kinds[0], at)
                except TypeError as error:
                    return error
        return None

    def finish(self, published: list[Any]) -> Any:
        """Transfers the outputs to the master."""
        is_master = self._member.is_master
        collected = []
        weights = self._weights([one[0] for one in published]) if self._outputs else None
        for index, (mode, _, value) in enumerate(self._outputs):
            weighs = mode == "avg" and weights is not None
            if device.is_there(value):
                shapes = [one[1][index][1] for one in published] if mode is not None else []
                result = self._on_device(mode, value, shapes, weights if weighs else None)
            elif mode is None:
                result = value if self._function.kernel.is_fresh else np.array(value)
            elif mode == "gather" or value.dtype not in outputs.CARRIED:
                arrays = self._fetch(value, [one[1][index] for one in published]) if is_master else None
                result = outputs.together(mode, arrays, weights if weighs else None) if arrays else None
            elif weighs and weights is not None:
                result = self._reduce("sum", outputs.weigh(value, self._member.rank, weights), True)
            else:
                result = self._reduce(mode, value, self._function.kernel.is_fresh)
            collected.append(result)
        return collected if is_master else None

    def _on_device(
        self, mode: str | None, value: Any, shapes: list[tuple[int, ...]], weights: list[int] | None
    ) -> Any:
        """Combines the values of all ranks on the master's device."""
        member = self._member
        if mode is None:
            return value.clone()
        if mode == "gather":
            parts = device.gathered(member, value, shapes, member.master)
            return None if parts is None else device.joined(parts, 0)
        if weights is not None:
            return device.reduced(member, device.weighed(value, member.rank, weights), "sum")
        return device.reduced(member, value, mode)

    def _weights(self, counts: list[int]) -> list[int] | None:
        """The weights of the ranks in an average: row counts, or equal; a rank without rows has no weight."""
        if not self._has_rows:
            return None
        if self._function.definition.weighted:
            return counts
        return None if all(counts) else [min(one, 1) for one in counts]

    def _reduce(self, mode: str, value: Any, is_fresh: bool) -> Any:
        """Reduces the values of all ranks to the master, in place if it owns the memory exclusively."""
        link, master = self._member.link, self._member.master
        own = np.ascontiguousarray(value).reshape(-1)
        if self._member.is_master and is_fresh and own.flags.writeable:
            link.group.reduce(own, mode, master, True, link.timeout, False)
            return own.reshape(value.shape)
        result = link.group.reduce_to(own, mode, master, True, link.timeout, False)
        return np.asarray(result).reshape(value.shape) if self._member.is_master else None

    def _fetch(self, own: Any, published: list[Any]) -> list[Any]:
        """The parts of all ranks, for the master to combine."""
        view = self._member.link.view
        return [
            own if rank == self._member.rank else view(location, kind, shape)
            for rank, (kind, shape, location) in enumerate(published)
        ]
