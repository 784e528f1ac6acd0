"""Collectives on shared variables: the master calls them, and all ranks take part.

Each function takes one variable or a list of them. One variable gives one result, a list gives a tuple.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono.functions import batch as batches
from unisono.functions import device
from unisono.functions.batch import ArenaArray, edges
from unisono.functions.collective_tasks import COLLECTIVE_TASKS
from unisono.functions.deprecation import ignores_nccl
from unisono.functions.input_data import Data
from unisono.functions.locking import exclusive
from unisono.functions.outputs import check_type
from unisono.functions.pool import Pool, active
from unisono.functions.variables import parts_of

OPERATIONS = ("avg", "sum", "prod", "max", "min")


@ignores_nccl
@exclusive
def broadcast(shared_vars: Any, values: Any = None) -> None:
    """Copies the master's values to every worker.

    Args:
        shared_vars: The variables.
        values: Values assigned to the master's variables first, one for each: arrays or `Data`.

    Example:
        >>> from unisono import functions
        >>> functions.start(2)
        2
        >>> bias = functions.shared([0.0, 0.0], "bias")
        >>> f = functions.function(lambda x, bias: x + bias, "sum", shareds=[bias])
        >>> functions.broadcast(bias, [1.0, 2.0])
        >>> functions.gather(bias)
        array([[1., 2.],
               [1., 2.]])
        >>> functions.close()
    """
    pool, numbers, _ = _begin(shared_vars, "broadcast")
    locations: list[Any] = []
    given = (
        [None] * len(numbers) if values is None else _listed(values, shared_vars, len(numbers), "broadcast")
    )
    for number, value in zip(numbers, given, strict=True):
        if value is not None:
            _check(pool, number, value, "broadcast")
    for number, value in zip(numbers, given, strict=True):
        variable = pool.member.variables.variable(number)
        if isinstance(value, Data):
            locations.append(value._location())
            continue
        if value is not None:
            variable.set(np.asarray(value))
        locations.append(_location(variable))
    _run(pool, "broadcast", numbers, locations)


@exclusive
def scatter(shared_vars: Any, values: Any, batch: Any = None) -> None:
    """Distributes the rows of the values over the workers.

    Rows of `Data` are split as evenly as possible, in rank order. Rows of other arrays go in chunks of equal
    length, the master's first, and the last worker gets the remainder.

    Args:
        shared_vars: The variables.
        values: The values, one for each variable: arrays or `Data`.
        batch: The rows to scatter: a row count, a slice, or a list of rows; by default all.

    Example:
        >>> import numpy as np
        >>> from unisono import functions
        >>> functions.start(2)
        2
        >>> part = functions.shared(np.zeros(1), "part")
        >>> f = functions.function(lambda part: part.sum(), "sum", sliceable_shareds=[part])
        >>> functions.scatter(part, np.arange(5.0))
        >>> functions.get_lengths(part)
        [3, 2]
        >>> f()
        array(10.)
        >>> functions.close()
    """
    pool, numbers, _ = _begin(shared_vars, "scatter")
    given = _listed(values, shared_vars, len(numbers), "scatter")
    for number, value in zip(numbers, given, strict=True):
        _check(pool, number, value, "scatter")
    if len({isinstance(value, Data) for value in given}) > 1:
        raise TypeError("scatter: expected all values to be Data or none, received both")
    chosen = _chosen(given, batch, "scatter")
    if isinstance(given[0], Data):
        bounds = edges(chosen.start, chosen.stop, pool.member.size)
        parts = list(itertools.pairwise(bounds))
        rows = None if chosen.rows is None else _copy_to_arena(pool, chosen.rows)
        _run(pool, "scatter", numbers, [value._location() for value in given], parts, rows)
        return
    taken = slice(chosen.start, chosen.stop) if chosen.rows is None else chosen.rows
    locations = [_copy_to_arena(pool, np.asarray(value)[taken]) for value in given]
    parts = _chunks(chosen.length, pool.member.size, pool.member.master)
    _run(pool, "scatter", numbers, locations, parts, None)


@ignores_nccl
@exclusive
def gather(shared_vars: Any, nd_up: int = 1) -> Any:
    """Collects the values of all ranks; the variables do not change.

    Args:
        shared_vars: The variables.
        nd_up: 1 stacks the values on a new first axis, 0 concatenates them along the first axis.

    Returns:
        The values in rank order; a list of arrays if their shapes are incompatible.
    """
    if nd_up not in (0, 1):
        raise ValueError(f"gather: expected nd_up to be 0 or 1, received {nd_up!r}")
    pool, numbers, is_single = _begin(shared_vars, "gather")
    gathered = _run(pool, "gather", numbers)
    return _unwrap([_joined(arrays, nd_up) for arrays in gathered], is_single)


@ignores_nccl
@exclusive
def all_gather(shared_vars: Any) -> None:
    """Replaces every rank's variable by the values of all ranks, concatenated along the first axis.

    Args:
        shared_vars: The variables.
    """
    pool, numbers, _ = _begin(shared_vars, "all_gather")
    _run(pool, "all_gather", numbers)


@ignores_nccl
@exclusive
def reduce(shared_vars: Any, op: str = "avg", in_place: bool = True) -> Any:
    """Combines the values of all ranks at the master; the workers' values do not change.

    Args:
        shared_vars: The variables.
        op: "avg", "sum", "prod", "max" or "min". Integers have no average: those in a module, such as batch
            counters, keep the master's value.
        in_place: Whether to store the result in the master's variable; otherwise it is returned.

    Returns:
        None, or new arrays.
    """
    _check_operation(op, "reduce")
    pool, numbers, is_single = _begin(shared_vars, "reduce")
    kept = _kept(pool, shared_vars, numbers, op)
    combined = [number for number in numbers if number not in kept]
    results = _run(pool, "reduce", combined, op, in_place) if combined else []
    if in_place:
        return None
    found = dict(zip(combined, results, strict=True))
    for number in kept:
        found[number] = np.array(pool.member.variables.variable(number).get())
    return _unwrap([found[number] for number in numbers], is_single)


@ignores_nccl
@exclusive
def all_reduce(shared_vars: Any, op: str = "avg") -> None:
    """Combines the values of all ranks and stores the result in every rank's variable.

    Args:
        shared_vars: The variables.
        op: "avg", "sum", "prod", "max" or "min". Integers have no average: those in a module, such as batch
            counters, get the master's value.

    Example:
        >>> from unisono import functions
        >>> functions.start(3)
        3
        >>> total = functions.shared([1.0], "total")
        >>> f = functions.function(lambda total: None, shareds=[total])
        >>> functions.all_reduce(total, "sum")
        >>> functions.gather(total, nd_up=0)
        array([3., 3., 3.])
        >>> functions.close()
    """
    _check_operation(op, "all_reduce")
    pool, numbers, _ = _begin(shared_vars, "all_reduce")
    kept = _kept(pool, shared_vars, numbers, op)
    combined = [number for number in numbers if number not in kept]
    if combined:
        _run(pool, "all_reduce", combined, op)
    if kept:
        variables = [pool.member.variables.variable(number) for number in kept]
        locations = [_location(variable) for variable in variables]
        _run(pool, "broadcast", kept, locations)


@exclusive
def set_value(rank: int, shared_vars: Any, values: Any, batch: Any = None) -> None:
    """Sets the variables of one rank.

    Args:
        rank: The rank whose variables are set.
        shared_vars: The variables.
        values: The new values, one for each variable: arrays or `Data`.
        batch: The rows of the values to use: a row count, a slice, or a list of rows; by default all.
    """
    pool, numbers, _ = _begin(shared_vars, "set_value")
    _check_rank(pool, rank, "set_value")
    given = _listed(values, shared_vars, len(numbers), "set_value")
    for number, value in zip(numbers, given, strict=True):
        _check(pool, number, value, "set_value")
    rows: Any = None
    if batch is not None:
        chosen = _chosen(given, batch, "set_value")
        rows = slice(chosen.start, chosen.stop) if chosen.rows is None else _copy_to_arena(pool, chosen.rows)
    locations = [
        value._location() if isinstance(value, Data) else _copy_to_arena(pool, np.asarray(value))
        for value in given
    ]
    _run(pool, "set_value", numbers, rank, locations, rows)


@exclusive
def get_value(rank: int, shared_vars: Any) -> Any:
    """Copies the values of one rank.

    Args:
        rank: The rank whose values are copied.
        shared_vars: The variables.

    Returns:
        NumPy arrays.
    """
    pool, numbers, is_single = _begin(shared_vars, "get_value")
    _check_rank(pool, rank, "get_value")
    return _unwrap(_run(pool, "get_value", numbers, rank), is_single)


@exclusive
def get_shapes(shared_vars: Any) -> Any:
    """The shape of every rank's variable.

    Args:
        shared_vars: The variables.

    Returns:
        A list over ranks; for several variables a tuple of lists.
    """
    pool, numbers, is_single = _begin(shared_vars, "get_shapes")
    return _unwrap(_run(pool, "get_shapes", numbers), is_single)


@exclusive
def get_lengths(shared_vars: Any) -> Any:
    """The number of rows of every rank's variable.

    Args:
        shared_vars: The variables.

    Returns:
        A list over ranks; for several variables a tuple of lists.
    """
    pool, numbers, is_single = _begin(shared_vars, "get_lengths")
    shapes = _run(pool, "get_shapes", numbers)
    return _unwrap([[shape[0] if shape else 0 for shape in one] for one in shapes], is_single)


def _begin(shared_vars: Any, operation: str) -> tuple[Pool, list[int], bool]:
    """The pool, the variables' numbers, and whether the caller passed a single variable."""
    pool = active(f"{operation}()")
    is_list = isinstance(shared_vars, (list, tuple))
    parts = [part for one in (shared_vars if is_list else [shared_vars]) for part in parts_of(one)]
    if not parts:
        kinds = ", ".join(sorted({type(one).__name__ for one in (shared_vars if is_list else [shared_vars])}))
        raise ValueError(
            f"{operation}: expected at least one variable, received none"
            + (f" in {kinds}; name its module: settings of optimizers travel by themselves" if kinds else "")
        )
    pool.replication.update(parts)
    numbers = []
    for position, part in enumerate(parts):
        number = pool.member.variables.number_of(part)
        if number is None or not pool.replication.has(number):
            raise ValueError(
                f"{operation}: expected variables that some function uses, received "
                f"{getattr(part, 'name', None) or 'another one'} at position {position}"
            )
        numbers.append(number)
        variable = pool.member.variables.variable(number)
        if not device.is_there(variable.raw()):
            check_type(np.asarray(variable.get()).dtype, f"{operation}: position {position}")
    if len(set(numbers)) < len(numbers):
        raise ValueError("Redundant variables provided.")
    is_single = not is_list and len(parts) == 1 and parts[0] is shared_vars
    return pool, numbers, is_single


def _kept(pool: Pool, shared_vars: Any, numbers: list[int], op: str) -> list[int]:
    """Integer variables that the caller did not list explicitly, in a module that is averaged."""
    if op != "avg":
        return []
    registry = pool.member.variables
    given = shared_vars if isinstance(shared_vars, (list, tuple)) else [shared_vars]
    named = {registry.number_of(one) for one in given}
    return [
        number
        for number in numbers
        if number not in named and not device.is_float(_kind(registry.variable(number)))
    ]


def _kind(variable: Any) -> str:
    value = variable.raw()
    return device.kind_of(value if device.is_there(value) else variable.get())


def _location(variable: Any) -> Any:
    """The metadata that the other ranks need for a variable that is broadcast."""
    if device.is_there(variable.raw()):
        return device.PREFIX, ()
    held = variable.get()
    return held.dtype.str, held.shape


def _run(pool: Pool, verb: str, *details: Any) -> Any:
    return pool.run(COLLECTIVE_TASKS[verb](pool.member, *details), (verb, *details))


def _listed(values: Any, shared_vars: Any, count: int, operation: str) -> Sequence[Any]:
    if not isinstance(shared_vars, (list, tuple)) and count == 1:
        return [values]
    if not isinstance(values, (list, tuple)) or len(values) != count:
        received = len(values) if isinstance(values, (list, tuple)) else type(values).__name__
        raise ValueError(f"{operation}: expected {count} values, one for each variable, received {received}")
    return values


def _check(pool: Pool, number: int, value: Any, operation: str) -> None:
    variable = pool.member.variables.variable(number)
    if isinstance(value, Data) and value._pool is not pool:
        raise RuntimeError(
            f"{operation}: {variable.name} expected data of these workers, received data of workers that "
            "were closed; make it again"
        )
    held, array = variable.get(), value.data if isinstance(value, Data) else np.asarray(value)
    if array.ndim != held.ndim or array.dtype != held.dtype:
        raise TypeError(
            f"{operation}: {variable.name} expected {held.dtype.name} with {held.ndim} axes, received "
            f"{array.dtype.name} with {array.ndim}"
        )


def _chosen(values: Sequence[Any], batch: Any, operation: str) -> batches.Batch:
    """The selected rows of the values; by default all, if the values have the same length."""
    chosen = batches.parse(batch)
    if any(np.ndim(value) == 0 for value in values):
        raise ValueError(f"{operation}: expected values with rows, received one without an axis")
    lengths = {len(value) for value in values}
    if chosen is not None:
        chosen.check(min(lengths), "the shortest value" if len(lengths) > 1 else "the value")
        return chosen
    if len(lengths) > 1:
        raise ValueError(f"{operation}: expected values of one length, received {sorted(lengths)}")
    return batches.Batch(0, lengths.pop())


def _check_operation(op: str, operation: str) -> None:
    if op not in OPERATIONS:
        raise ValueError(f"{operation}: expected op to be one of {', '.join(OPERATIONS)}, received {op!r}")


def _check_rank(pool: Pool, rank: int, operation: str) -> None:
    if not batches.is_whole(rank):
        raise TypeError(f"{operation}: expected a rank as a whole number, received {rank!r}")
    if not 0 <= rank < pool.member.size:
        raise ValueError(f"{operation}: expected a rank from 0 to {pool.member.size - 1}, received {rank}")


def _copy_to_arena(pool: Pool, array: Any) -> ArenaArray:
    """Copies an array to shared memory, where workers can read it for one command."""
    return pool.copy_to_arena(array)


def _chunks(length: int, size: int, master: int) -> list[tuple[int, int]]:
    chunk = -(-length // size)
    parts = [(0, 0)] * size
    for position, rank in enumerate([master, *(rank for rank in range(size) if rank != master)]):
        parts[rank] = (min(length, position * chunk), min(length, (position + 1) * chunk))
    return parts


def _joined(arrays: list[Any], nd_up: int) -> Any:
    shapes = [tuple(array.shape) for array in arrays]
    compared = [shape[1:] for shape in shapes] if nd_up == 0 else shapes
    if len(set(compared)) > 1 or (nd_up == 0 and not all(shapes)):
        return arrays
    if device.is_there(arrays[0]):
        return device.joined(arrays, nd_up)
    return np.stack(arrays) if nd_up else np.concatenate(arrays)


def _unwrap(results: list[Any], is_single: bool) -> Any:
    return results[0] if is_single else tuple(results)
