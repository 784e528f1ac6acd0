"""A table that is one array, read and updated in full."""

from __future__ import annotations

from typing import Any

from unisono.errors import usage_error
from unisono.tables.convert import count
from unisono.tables.names import Consistency, Updater
from unisono.tables.shared import make
from unisono.tables.table import Table


class ArrayTable(Table):
    """An array that all workers share. Every rank makes it.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> weights = uni.ArrayTable(3, init=np.ones(3, dtype="float32"), name="weights")
        >>> weights.add(np.arange(3, dtype="float32"))
        >>> weights.get()
        array([1., 2., 3.], dtype=float32)
        >>> weights
        <unisono.ArrayTable 'weights', shape (3,), float32, updater add, consistency async>
    """

    def __init__(
        self,
        size: int,
        dtype: Any = "float32",
        init: Any = None,
        updater: Updater = "add",
        consistency: Consistency = "async",
        name: str | None = None,
        *,
        reject_nan: bool = False,
        compression: str = "none",
        device: Any = None,
        timeout: float | None = None,
        **options: float,
    ) -> None:
        """Makes the table, together with all other ranks.

        Args:
            size: The number of elements, 1 or more.
            dtype: float32, float64, float16, bfloat16, int32 or int64.
            init: The initial values: an array, which only worker 0 needs to pass, because its array is used;
                or, the same on every rank, a number, `uniform(...)` or `normal(...)`. By default zeros.
            updater: The rule by which an add is applied: "add", "sgd", "momentum", "nesterov", "adagrad",
                "rmsprop", "adam", "adamw", "adamax", "adadelta", "lion", "ftrl", "dcasgd", "dcasgda",
                "multiverso_adagrad" or "multiverso_momentum".
            consistency: How far workers may drift apart: "async", "bsp", "bsp:backup=1", "bsp:mean", "ssp:3"
                (also ``("ssp", 3)``) or "average". A round of "bsp" is one step of the updater with the sum
                of the workers' adds, of "bsp:mean" with their mean.
            name: A unique name, for checkpoints and restarts; by default "array-1" and so on.
            reject_nan: Whether an add that contains a NaN is rejected.
            compression: How adds are encoded between hosts: "none", "float16", "bfloat16", "int8" or
                "topk:0.01".
            device: "cuda" or "cuda:1" to keep the values and the updater's state in that device's memory,
                which ends with the process of the host's first rank; by default they are in host memory.
            timeout: Seconds until the call times out.
            options: The updater's options, such as ``lr=0.1``, for adds that pass none.
        """
        native = make(
            "array",
            lambda: (count(size, "table", "a size"), 1),
            dtype=dtype,
            init=init,
            updater=updater,
            consistency=consistency,
            name=name,
            reject_nan=reject_nan,
            compression=compression,
            device=device,
            timeout=timeout,
            options=options,
        )
        super().__init__(native, (int(size),))

    def _rows(self, rows: Any, operation: str) -> Any:
        if rows is not None:
            expected = "no rows, because an array is read and changed as a whole"
            advice = "use a MatrixTable with one column"
            if operation == "get":
                advice = f"pass an array to fill as out=, or {advice}"
            raise usage_error(operation, expected, type(rows).__name__, advice)
        return None
