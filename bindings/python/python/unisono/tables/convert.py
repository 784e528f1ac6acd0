"""From what users pass to what native tables take: arrays as they are, numbers and lists made into arrays."""

from __future__ import annotations

import numbers
from typing import Any

import numpy as np

from unisono.arrays import bfloat16
from unisono.errors import UsageError
from unisono.tables.initial import Normal, Uniform
from unisono.tables.place import on_device, to_host


def is_array(x: object) -> bool:
    """Whether something is an array already, of whichever library."""
    if isinstance(x, np.ndarray) or hasattr(type(x), "__dlpack__"):
        return True
    return hasattr(x, "__cuda_array_interface__")


def values(x: Any, dtype: str, operation: str, table: str) -> Any:
    """An array for the native module: an array as it is, numbers and lists of them in the table's type.

    Args:
        x: What the caller passed.
        dtype: The name of the table's type.
        operation: The call, for the error.
        table: The table, for the error.

    Returns:
        An array.

    Raises:
        UsageError: The numbers do not fit the type, such as fractions into an integer table.
    """
    if is_array(x):
        return x
    target = np.dtype(bfloat16() if dtype == "bfloat16" else dtype)
    try:
        array = np.asarray(x)
    except ValueError as error:
        raise UsageError(
            f"{operation}: expected numbers for {table}, received a ragged list; make rows equally long"
        ) from error
    if array.dtype.kind not in "iuf" or (array.dtype.kind == "f" and target.kind == "i"):
        raise UsageError(
            f"{operation}: expected numbers of type {dtype}, the table's type, for {table}, received "
            f"{array.dtype}; "
            "convert them first"
        )
    return array.astype(target)


def row_ids(rows: Any, operation: str, what: str = "row ids") -> Any:
    """Row ids for the native module.

    Args:
        rows: An integer, a list of integers or an integer array, of any shape; int64 is used where it is.
        operation: The call, for the error.
        what: What they are, for the error.

    Returns:
        An int64 array of the same shape, or None for all rows.

    Raises:
        UsageError: They are no integers.
    """
    if rows is None or (isinstance(rows, np.ndarray) and rows.dtype == np.int64):
        return rows
    if on_device(rows):
        return _as_int64(rows)
    if is_array(rows) and not isinstance(rows, np.ndarray):
        rows = np.from_dlpack(rows)
    array = np.asarray(rows)
    if array.size == 0:
        return array.astype(np.int64)
    if array.dtype.kind not in "iu":
        raise UsageError(
            f"{operation}: expected {what} that are integers, received {array.dtype}; "
            "pass an integer, a list of them or an int64 array"
        )
    return array.astype(np.int64, copy=False)


def _as_int64(rows: Any) -> Any:
    """Row ids on a device, converted there by their own library."""
    if "int64" in str(rows.dtype):
        return rows
    return rows.long() if hasattr(rows, "long") else rows.astype("int64")


def first_values(init: Any, dtype: str, table: str) -> tuple[Any, tuple[str, float, float, int]]:
    """Splits what a user says of a table's first values.

    Args:
        init: None, a number, `uniform(...)`, `normal(...)` or an array.
        dtype: The name of the table's type.
        table: The table, for the error.

    Returns:
        The array or None, and the rule by which servers fill their parts without one.
    """
    nothing = ("zero", 0.0, 0.0, 0)
    if init is None:
        return None, nothing
    if isinstance(init, Uniform):
        return None, ("uniform", init.low, init.high, init.seed)
    if isinstance(init, Normal):
        return None, ("normal", init.mean, init.deviation, init.seed)
    if isinstance(init, numbers.Real) and not isinstance(init, bool):
        if not dtype.startswith(("float", "bfloat")) and not float(init).is_integer():
            raise UsageError(
                f"table: expected a whole number for {table} of {dtype}, received {init}; choose a float type"
            )
        return None, ("constant", float(init), 0.0, 0)
    return values(to_host(init) if on_device(init) else init, dtype, "table", table), nothing


def consistency(wanted: Any) -> str:
    """The consistency as text.

    Args:
        wanted: Text such as ``"ssp:3"``, or a pair such as ``("ssp", 3)``.

    Returns:
        The text.
    """
    if isinstance(wanted, (tuple, list)):
        name, *rest = wanted
        return ":".join([str(name), *map(str, rest)])
    return str(wanted)
