"""One worker's computation in a call: its rows, slice by slice, and the resulting updates."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from unisono.functions import device
from unisono.functions.batch import edges
from unisono.functions.outputs import Accumulator, without_axis
from unisono.functions.slice_updates import PendingUpdate, PossibleUpdate
from unisono.functions.variables import parts_of, wrap


@dataclass
class Definition:
    """A function as it is sent to the workers."""

    name: str
    body: Any
    """The computation: an object with `build`, which returns an object with `run`."""
    output_modes: list[str | None]
    updates: list[tuple[Any, str]]
    """Variables that a call changes, and how the changes of slices are combined."""
    sliceables: list[Any]
    scattered: int
    """Number of scattered inputs; the other inputs follow them."""
    weighted: bool


class Evaluator:
    """A function in this process."""

    def __init__(self, definition: Definition) -> None:
        self.definition = definition
        self.kernel = definition.body.build()
        self.sliceables = [wrap(one) for one in definition.sliceables]
        updated = {id(one) for one, _ in definition.updates}
        # A variable to which the call assigns a new value keeps it.
        self._is_updated = [id(one) in updated for one in definition.sliceables]
        self._updates = [(wrap(part), mode) for one, mode in definition.updates for part in parts_of(one)]
        declared = updated | {id(one) for one in definition.sliceables}
        arrays = getattr(self.kernel, "shareds", {}).values()
        self._undeclared = [wrap(one) for one in arrays if id(one) not in declared]

    def run(self, arguments: list[Any], chosen: list[Any], rows: int, slices: int) -> list[Any]:
        """Computes the outputs of this worker's part and applies the updates.

        Args:
            arguments: The inputs: scattered ones with this worker's rows, then the others.
            chosen: The rows of each sliceable variable.
            rows: Number of rows to split.
            slices: Number of slices to split them into.

        Returns:
            The outputs.
        """
        held = [one.raw() for one in self.sliceables]
        done = False
        try:
            if slices == 1 or rows == 0:
                self._take(chosen, None)
                outputs = list(self.kernel.run(arguments))
            else:
                outputs = self._run_slices(arguments, chosen, rows, slices)
            done = True
            return outputs
        finally:
            for variable, value, is_updated in zip(self.sliceables, held, self._is_updated, strict=True):
                if not (done and is_updated):
                    variable.put(value)

    def _run_slices(self, arguments: list[Any], chosen: list[Any], rows: int, slices: int) -> list[Any]:
        scattered = self.definition.scattered
        accumulators: list[Any] = []
        pending: list[PendingUpdate | PossibleUpdate] = [
            *(PendingUpdate(variable, mode) for variable, mode in self._updates),
            *(PossibleUpdate(variable) for variable in self._undeclared),
        ]
        bounds = edges(0, rows, min(slices, rows))
        try:
            for low, high in itertools.pairwise(bounds):
                for update in pending:
                    update.begin()
                self._take(chosen, slice(low, high))
                cut = [one[low:high] for one in arguments[:scattered]]
                values = list(self.kernel.run([*cut, *arguments[scattered:]]))
                accumulators = accumulators or self._accumulators(values)
                for accumulator, value in zip(accumulators, values, strict=True):
                    accumulator.add(value, high - low)
                for update in pending:
                    update.add()
        except BaseException:
            for update in pending:
                update.undo()
            raise
        for update in pending:
            update.finish()
        return [accumulator.result() for accumulator in accumulators]

    def _accumulators(self, values: list[Any]) -> list[Any]:
        kinds = [device.Accumulator if device.is_there(value) else Accumulator for value in values]
        weighted, modes = self.definition.weighted, self.definition.output_modes
        is_fresh = self.kernel.is_fresh
        for position, (mode, value) in enumerate(zip(modes, values, strict=True)):
            if mode == "gather" and not value.shape:
                raise ValueError(without_axis(position))
        return [kind(mode, weighted, is_fresh) for kind, mode in zip(kinds, modes, strict=True)]

    def _take(self, chosen: list[Any], rows: slice | None) -> None:
        for variable, part in zip(self.sliceables, chosen, strict=True):
            variable.put(part if rows is None else part[rows])
