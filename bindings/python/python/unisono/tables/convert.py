"""Converts arguments for native tables: arrays are passed as they are, numbers and lists become arrays."""

from __future__ import annotations

import math
import numbers
import operator
from typing import Any

import numpy as np

from unisono.arrays import bfloat16, in_memory, name_of, reject_masked
from unisono.errors import UsageError, usage_error
from unisono.tables.initial import Normal, Uniform
from unisono.tables.memory import on_device, to_host


def is_array(x: object) -> bool:
    """Whether an object already is an array, of any library."""
    if isinstance(x, np.ndarray) or hasattr(type(x), "__dlpack__"):
        return True
    return hasattr(x, "__cuda_array_interface__")


def values(x: Any, dtype: str, operation: str, table: str) -> Any:
    """Converts values for the native module: arrays stay as they are, numbers and lists get the table's type.

    Args:
        x: The caller's argument.
        dtype: The name of the table's type.
        operation: The call, for error messages.
        table: The table, for error messages.

    Returns:
        An array.

    Raises:
        UsageError: The numbers do not fit the type, such as fractions into an integer table.
    """
    if is_array(x):
        reject_masked(x, operation)
        return x
    target = np.dtype(bfloat16() if dtype == "bfloat16" else dtype)
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise usage_error(
            operation, f"numbers for {table}", "a ragged list", "make rows equally long"
        ) from error
    if array.dtype.kind not in "iuf" or (array.dtype.kind == "f" and target.kind == "i"):
        raise usage_error(
            operation,
            f"numbers of type {dtype}, the table's type, for {table}",
            array.dtype,
            "convert them first",
        )
    if target.kind == "i":
        _check_range(
            array, target, operation, f"numbers for {table}", "make them smaller, or choose another type"
        )
    return array.astype(target)


def _check_range(array: Any, target: np.dtype[Any], operation: str, what: str, advice: str) -> None:
    """Rejects integers that a conversion would change."""
    if array.size == 0 or np.can_cast(array.dtype, target):
        return
    bounds = np.iinfo(target)
    least, most = int(array.min()), int(array.max())
    if least < bounds.min or most > bounds.max:
        wrong = least if least < bounds.min else most
        expected = f"{what} from {bounds.min} to {bounds.max}, as {target} holds them"
        raise usage_error(operation, expected, wrong, advice)


def row_ids(rows: Any, operation: str, what: str = "row ids") -> Any:
    """Converts row ids for the native module.

    Args:
        rows: An integer, a list of integers or an integer array, of any shape; int64 is used without a copy.
        operation: The call, for error messages.
        what: A description of the ids, for error messages.

    Returns:
        An int64 array of the same shape, or None for all rows.

    Raises:
        UsageError: They are not integers.
    """
    if rows is None:
        return None
    reject_masked(rows, operation, "leave the masked ones out: ids.compressed()")
    if isinstance(rows, np.ndarray) and rows.dtype == np.int64:
        return rows
    if on_device(rows):
        return _as_int64(rows, operation, what)
    if is_array(rows) and not isinstance(rows, np.ndarray):
        rows = np.from_dlpack(in_memory(rows))
    try:
        array = np.asarray(rows)
    except ValueError as error:
        raise usage_error(
            operation, f"{what} in a list or an array", "a ragged list", "make its lists equally long"
        ) from error
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        more = "something else, or integers of more than 64 bits"
        raise _no_integers(operation, what, more if array.dtype == object else array.dtype)
    _check_range(array, np.dtype(np.int64), operation, what, "number them otherwise")
    return array.astype(np.int64, copy=False)


def _no_integers(operation: str, what: str, received: object) -> UsageError:
    advice = "pass an integer, a list of them or an int64 array"
    return usage_error(operation, f"{what} that are integers", received, advice)


# Types whose values int64 can represent.
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


def _as_int64(rows: Any, operation: str, what: str) -> Any:
    """Converts row ids on a device, with their own library."""
    dtype = name_of(rows.dtype)
    if dtype == "int64":
        return rows
    if dtype not in _INTEGERS and math.prod(rows.shape):
        raise _no_integers(operation, what, dtype)
    return rows.long() if hasattr(rows, "long") else rows.astype("int64")


def first_values(init: Any, dtype: str, table: str) -> tuple[Any, int | tuple[str, float, float, int]]:
    """Splits a user's initial values into an array and a rule.

    Args:
        init: None, a number, `uniform(...)`, `normal(...)` or an array.
        dtype: The name of the table's type.
        table: The table, for error messages.

    Returns:
        The array or None, and the rule by which servers fill their parts without one: for an integer table
        the number itself, which a float would round.
    """
    nothing = ("zero", 0.0, 0.0, 0)
    if init is None:
        return None, nothing
    if isinstance(init, Uniform):
        return None, ("uniform", init.low, init.high, init.seed)
    if isinstance(init, Normal):
        return None, ("normal", init.mean, init.deviation, init.seed)
    if isinstance(init, numbers.Real) and not isinstance(init, bool):
        if dtype.startswith("int"):
            return None, _whole(init, dtype, table)
        try:
            return None, ("constant", float(init), 0.0, 0)
        except OverflowError as error:
            raise usage_error(
                "table",
                f"a number that {dtype} holds for {table}",
                "a larger one",
                "look at how it was computed",
            ) from error
    return values(to_host(init) if on_device(init) else init, dtype, "table", table), nothing


def _whole(init: Any, dtype: str, table: str) -> int:
    """An initial value for an integer table."""
    if not isinstance(init, numbers.Integral) and not float(init).is_integer():
        expected = f"a whole number for {table} of {dtype}"
        raise usage_error("table", expected, init, "choose a float type")
    bounds, whole = np.iinfo(dtype), int(init)
    if not bounds.min <= whole <= bounds.max:
        expected = f"a first value from {bounds.min} to {bounds.max}, as {dtype} holds them, for {table}"
        raise usage_error("table", expected, whole, "choose another type")
    return whole


def count(number: Any, operation: str, what: str) -> int:
    """Checks a size or a count for the native module, which uses unsigned 64-bit numbers.

    Args:
        number: The caller's argument.
        operation: The call, for error messages.
        what: A description of the number, for error messages.

    Returns:
        The number.

    Raises:
        UsageError: It is not an integer, is negative, or has more than 64 bits.
    """
    try:
        whole = operator.index(number)
    except TypeError as error:
        advice = "convert it with int(...), if that is what you mean"
        raise usage_error(operation, f"{what} as an integer", repr(number), advice) from error
    if not 0 <= whole < 2**63:
        expected = f"{what} from 0 to {2**63 - 1}"
        raise usage_error(operation, expected, whole, "look at how it was computed")
    return whole


def element_type(dtype: Any) -> str:
    """The name of a table's element type.

    Args:
        dtype: A NumPy type, a name, or a PyTorch type.

    Returns:
        The name.

    Raises:
        UsageError: It is none of these; the table itself checks which types it supports.
    """
    try:
        return name_of(dtype)
    except TypeError as error:
        types = "float32, float64, float16, bfloat16, int32 or int64"
        raise usage_error("table", types, repr(dtype), "choose one of these") from error


def consistency(wanted: Any) -> str:
    """Converts a consistency to text.

    Args:
        wanted: Text such as ``"ssp:3"``, or a pair such as ``("ssp", 3)``.

    Returns:
        The text.
    """
    if isinstance(wanted, (tuple, list)):
        name, *rest = wanted
        return ":".join([str(name), *map(str, rest)])
    return str(wanted)
