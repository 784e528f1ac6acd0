"""Functions that run on all workers: the semantics of a call."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unisono.functions import batch as batches
from unisono.functions.batch import ArenaArray, edges
from unisono.functions.call_task import Call
from unisono.functions.deprecation import deprecated, renamed
from unisono.functions.evaluator import Definition, Evaluator
from unisono.functions.input_data import Data, data
from unisono.functions.master_only import RemoteValue
from unisono.functions.pool import Pool, active
from unisono.functions.variables import parts_of


@dataclass
class Input:
    """The known properties of an input."""

    name: str | None
    variable: Any = None
    dtype: str | None = None
    ndim: int | None = None


class Function:
    """A function that the master calls and all workers run; created by `function`."""

    def __init__(
        self, pool: Pool, definition: Definition, inputs: list[Input], is_single: bool, shareds: list[Any]
    ) -> None:
        self._pool, self._definition, self._inputs = pool, definition, inputs
        self._is_single = is_single
        self._shareds = shareds
        self._number = pool.register(definition, Evaluator(definition), shareds)

    def __repr__(self) -> str:
        return f"<unisono.functions.Function {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteValue, (f"function {self.name!r}", "call it in the master, before or after this one")

    @property
    def name(self) -> str:
        """The name of the function."""
        return self._definition.name

    @property
    def output_modes(self) -> list[str | None]:
        """The mode of each output."""
        return list(self._definition.output_modes)

    @property
    def update_modes(self) -> list[str]:
        """How the changes of slices are combined, for each updated variable."""
        return [mode for _, mode in self._definition.updates]

    def get_shared(self) -> list[Any]:
        """The shared variables that the function uses."""
        return [part for one in self._shareds for part in parts_of(one)]

    def __call__(
        self,
        *args: Any,
        output_subset: Sequence[int] | None = None,
        batch: Any = None,
        shared_batch: Any = None,
        num_slices: int = 1,
        wait: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Runs the function on all workers.

        Args:
            *args: The inputs, scattered ones first: `Data`, or NumPy arrays, which are copied.
            output_subset: The positions of the outputs to return.
            batch: The rows of the scattered inputs: a row count, a slice, or a list of rows; by default all.
            shared_batch: The rows that each worker takes from its own sliceable variables: a slice or a list
                of rows, or a list with one of these for each worker; by default all.
            num_slices: Number of slices into which each worker splits its rows, computed one after the other.
            wait: Whether to wait for the result. If not, the call runs in the background, after those started
                before it; do not change its `Data` until it is done.
            **kwargs: Inputs by name.

        Returns:
            The output, or a list of them; a `concurrent.futures.Future` of it if `wait` is false.
        """
        shared_batch = renamed("batch_s", "shared_batch", kwargs, shared_batch)
        pool = active(f"function {self.name!r}")
        if pool is not self._pool:
            raise RuntimeError(f"function {self.name!r} belongs to workers that were closed; make it again")
        inputs = self._ordered(args, kwargs)
        arguments = (inputs, output_subset, batch, shared_batch, num_slices)
        return self._run(*arguments) if wait else pool.submit(functools.partial(self._run, *arguments))

    def _run(
        self, ordered: list[Data], output_subset: Any, batch: Any, shared_batch: Any, num_slices: Any
    ) -> Any:
        pool = self._pool
        with pool.lock:
            pool.replication.check(self._number)
            subset = self._subset(output_subset)
            scattered = self._definition.scattered
            if (
                isinstance(num_slices, bool)
                or not isinstance(num_slices, (int, np.integer))
                or num_slices < 1
            ):
                raise ValueError(f"num_slices: expected a whole number from 1 up, received {num_slices!r}")
            if num_slices > 1 and not scattered and not self._definition.sliceables:
                raise ValueError(
                    "num_slices: expected scattered inputs or sliceable variables to cut, received neither"
                )
            if shared_batch is not None and not self._definition.sliceables:
                raise TypeError(
                    "shared_batch: expected a function with sliceable_shareds, received one without"
                )
            bounds, rows = self._assign(ordered[:scattered], batch)
            selection: list[Any] | None = batches.parse_each(shared_batch, pool.member.size)
            if selection is not None and not isinstance(selection[0], tuple):
                selection = _copy_rows_to_arena(pool, selection)
            inputs = [(one._location(), one.minibatch) for one in ordered]
            details = (self._number, inputs, bounds, rows, selection, int(num_slices), subset)
            results = pool.run(Call(pool.member, *details), ("call", *details))
            pool.replication.after_call(self._number)
            return results[0] if self._is_single and len(results) == 1 else results or None

    def alone(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the function on the master alone, on arrays; updates change the master's variables only.

        Args:
            *args: The inputs, as arrays.
            **kwargs: Inputs by name.

        Returns:
            The output, or a list of them.
        """
        with self._pool.lock:
            self._pool.replication.prepare_alone(self._number)
            arrays = [np.asarray(one) for one in self._order(args, kwargs)]
            evaluator = self._pool.member.functions[self._number]
            held = evaluator.sliceables
            results = evaluator.run(arrays, [one.raw() for one in held], 0, 1)
            return results[0] if self._is_single else results or None

    def as_theano(self, *args: Any, **kwargs: Any) -> Any:
        """Deprecated alias of `alone`, by the name that Synkhronos gave it."""
        deprecated("as_theano", "alone")
        return self.alone(*args, **kwargs)

    def _refresh(self) -> None:
        with self._pool.lock:
            self._pool.replication.refresh(self._number)

    def build_inputs(
        self,
        *args: Any,
        force_cast: bool = False,
        oversize: float = 1.0,
        minibatch: bool | Sequence[bool] = False,
        **kwargs: Any,
    ) -> Any:
        """Creates `Data` objects for the inputs.

        Args:
            *args: Arrays, one for each input.
            force_cast: Whether they may be converted to any type.
            oversize: Factor from 1 to 2 for the size of the allocations.
            minibatch: Whether they hold exactly the current batch; one flag, or one for each input.
            **kwargs: Arrays by the inputs' names.

        Returns:
            One `Data`, or a tuple of them.
        """
        values = self._order(args, kwargs)
        answers = [minibatch] * len(values) if isinstance(minibatch, bool) else list(minibatch)
        if len(answers) != len(values):
            raise ValueError(
                f"minibatch: expected {len(values)} answers, one for each input, received {len(answers)}"
            )
        made = tuple(
            data(
                value,
                var=one.variable,
                minibatch=answer,
                force_cast=force_cast,
                oversize=oversize,
                name=one.name,
            )
            for one, value, answer in zip(self._inputs, values, answers, strict=True)
        )
        return made[0] if len(made) == 1 else made

    def _order(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """Positional and keyword arguments in the order of the inputs."""
        if not kwargs and len(args) == len(self._inputs):
            return list(args)
        names = [one.name for one in self._inputs]
        found: list[Any] = [*args, *[None] * (len(names) - len(args))]
        given = list(range(len(args)))
        for key, value in kwargs.items():
            matches = [at for at, one in enumerate(self._inputs) if key == one.name]
            if not matches:
                raise ValueError(
                    f"{self.name}: expected inputs named {names}, received the unknown name {key!r}"
                )
            if matches[0] in given:
                raise ValueError(f"{self.name}: expected input {key!r} once, received it twice")
            given.append(matches[0])
            found[matches[0]] = value
        if len(given) != len(names):
            raise TypeError(f"{self.name}: expected {len(names)} inputs ({names}), received {len(given)}")
        return found

    def _ordered(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Data]:
        ordered = [self._as_data(at, value) for at, value in enumerate(self._order(args, kwargs))]
        for position, (one, value) in enumerate(zip(self._inputs, ordered, strict=True)):
            if value._pool is not self._pool:
                raise RuntimeError(f"{self._title(position)} belongs to workers that were closed")
            if one.dtype is not None and (value.dtype != one.dtype or value.ndim != one.ndim):
                raise TypeError(
                    f"{self._title(position)} expected {one.dtype} with {one.ndim} axes, "
                    f"received {value.dtype} with {value.ndim}"
                )
        return ordered

    def _title(self, position: int) -> str:
        """What errors call an input."""
        return f"{self.name}: input {position} ({self._inputs[position].name})"

    def _as_data(self, position: int, value: Any) -> Data:
        if isinstance(value, Data):
            return value
        one = self._inputs[position]
        if isinstance(value, (np.ndarray, np.generic)):
            return data(value, var=one.variable, name=one.name)
        raise TypeError(
            f"{self._title(position)} expected Data or a NumPy array, received {type(value).__name__}; "
            "make it with build_inputs() or data()"
        )

    def _subset(self, wanted: Any) -> list[int] | None:
        if wanted is None:
            return None
        if not isinstance(wanted, list) or any(
            isinstance(one, bool) or not isinstance(one, (int, np.integer)) for one in wanted
        ):
            raise TypeError(f"output_subset: expected a list of whole numbers, received {wanted!r}")
        count = len(self._definition.output_modes)
        wrong = [one for one in wanted if not 0 <= one < count]
        if wrong:
            raise ValueError(f"output_subset: expected positions from 0 to {count - 1}, received {wrong[0]}")
        return list(dict.fromkeys(int(one) for one in wanted))

    def _assign(self, scattered: list[Data], batch: Any) -> tuple[tuple[int, ...] | None, ArenaArray | None]:
        """The rows that each worker takes, and the list of rows if there is one."""
        chosen = batches.parse(batch)
        if not scattered:
            if chosen is not None:
                raise ValueError("batch: expected a function with scattered inputs, received one without")
            return None, None
        lengths = []
        for position, one in enumerate(scattered):
            if one.ndim == 0:
                raise TypeError(f"{self._title(position)} expected an axis to scatter along")
            lengths.append(len(one))
        if chosen is None:
            if min(lengths) != max(lengths):
                raise ValueError(f"{self.name}: expected scattered inputs of one length, received {lengths}")
            if lengths[0] == 0 and "avg" in self._definition.output_modes:
                raise ValueError(f"{self.name}: expected at least one row to average over, received none")
            return edges(0, lengths[0], self._pool.member.size), None
        for position, one in enumerate(scattered):
            if not one.minibatch:
                chosen.check(lengths[position], f"input {self._inputs[position].name}")
            elif lengths[position] < chosen.length:
                raise ValueError(
                    f"{self._title(position)} is a minibatch and expected at least {chosen.length} rows, "
                    f"received {lengths[position]}"
                )
        rows = None if chosen.rows is None else self._pool.copy_to_arena(chosen.rows)
        return edges(chosen.start, chosen.stop, self._pool.member.size), rows


def _copy_rows_to_arena(pool: Pool, lists: list[Any]) -> list[ArenaArray]:
    """Copies each worker's list of rows to memory that it can read; identical lists only once."""
    locations: dict[int, ArenaArray] = {}
    for one in lists:
        if id(one) not in locations:
            locations[id(one)] = pool.copy_to_arena(one)
    return [locations[id(one)] for one in lists]
