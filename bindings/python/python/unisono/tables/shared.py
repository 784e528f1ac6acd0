"""The common base of tables of every kind, and their creation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import numpy as np

from unisono import _native
from unisono.arrays import bfloat16
from unisono.errors import Error, usage_error
from unisono.tables import convert
from unisono.tables.memory import ordinal
from unisono.tables.names import Consistency, Updater
from unisono.tables.stats import TableStats
from unisono.worlds import world

N = TypeVar("N", _native.Table, _native.KeyValueTable)


class SharedTable(Generic[N]):
    """A table of any kind: its properties and its steps."""

    def __init__(self, native: N) -> None:
        self._native: N = native

    @property
    def name(self) -> str:
        """The name, given or generated: "array-1"."""
        return self._native.name

    @property
    def dtype(self) -> Any:
        """The NumPy type of the elements; for bfloat16 that of the package ml_dtypes."""
        name = self._native.dtype
        return np.dtype(bfloat16() if name == "bfloat16" else name)

    @property
    def updater(self) -> str:
        """The rule by which an add is applied: "add", "sgd", "adam" and so on."""
        return self._native.updater

    @property
    def consistency(self) -> str:
        """How far workers may drift apart: "async", "bsp", "ssp:3" and so on."""
        return self._native.consistency

    def _delta(self, delta: Any) -> Any:
        """Converts the values of an add for the native module."""
        # The usual case: to name the table for an error message would cost a tenth of a small add.
        if type(delta) is np.ndarray:
            return delta
        return convert.values(delta, self._native.dtype, "add", f'table "{self.name}"')

    def tick(self, *, timeout: float | None = None) -> None:
        """Marks the beginning of this worker's next step.

        With consistency "ssp" the bound counts these steps. With "average" all workers call it, and every
        worker's copy becomes the average of all copies.

        Args:
            timeout: Seconds until the call times out.
        """
        self._native.tick(timeout)

    @property
    def clock(self) -> int:
        """The number of steps that this worker has made.

        It includes this worker's own ticks, those of its previous process if it was restarted, and those that
        the other workers made without it, while it was down or waited for all of them. A loop that continues
        at this step can be restarted.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> weights = uni.ArrayTable(3, consistency="ssp:2")
            >>> while weights.clock < 10:
            ...     weights.add([1, 2, 3])
            ...     weights.tick()
            >>> weights.clock
            10
        """
        return self._native.clock

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until all adds that this rank started on this table are applied; raises their errors.

        Args:
            timeout: Seconds until the call times out.
        """
        self._native.flush(timeout)

    def finish(self, *, timeout: float | None = None) -> None:
        """Declares that this worker makes no more calls on this table: "bsp" and "ssp" do not wait for it.

        Its adds are applied first. A worker that exits, or drops its tables, need not call it.
        `unisono.finish` does so for all tables.

        Args:
            timeout: Seconds until the call times out.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> weights = uni.ArrayTable(3, consistency="bsp")
            >>> for step in range(5 + world.rank):  # not equally many on every rank
            ...     weights.add([1, 2, 3])
            ...     values = weights.get()
            >>> weights.finish()
        """
        self._native.finish(timeout)

    def staleness(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The staleness of the values that this rank's gets returned.

        Returns:
            A histogram: entry i counts the gets at which the slowest other worker was i steps behind this
            one. Steps are ticks with "ssp", adds otherwise.
        """
        return np.asarray(self._native.staleness())

    def stats(self) -> TableStats:
        """Sizes of the table and of its updater's state, and this worker's calls; any rank may call it.

        Returns:
            A named tuple. Under consistency "average", the sizes are those of this worker's copy.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> table = uni.MatrixTable(1000, 4, updater="adagrad")
            >>> values = table.get([3, 3, 7])
            >>> stats = table.stats()
            >>> stats.value_bytes, stats.state_bytes, stats.gets, stats.rows_read
            (16000, 16000, 1, 3)
        """
        return TableStats(*self._native.stats())

    @property
    def nbytes(self) -> int:
        """Bytes of the values of all rows or keys, on all hosts, without the updater's state."""
        return self.stats().value_bytes


_FIRST_USE = "the first use of tables"


def _tables_for(table: str) -> _native.Tables:
    """The default world's tables; errors name the table for which they are needed."""
    try:
        return world()._tables()
    except Error as error:
        if error.operation == _FIRST_USE:
            error.operation = f"making {table}"
            error.args = (str(error).replace(_FIRST_USE, error.operation, 1),)
        raise


def make(
    kind: str,
    size: Callable[[], tuple[int, int]],
    *,
    dtype: Any,
    init: Any,
    updater: Updater,
    consistency: Consistency,
    name: str | None,
    reject_nan: bool,
    compression: str,
    timeout: float | None,
    options: dict[str, float],
    device: Any = None,
    repeats: str | None = None,
    pipelined: bool = False,
    keys: str = "int",
    max_rows: int | None = None,
    eviction: str | None = None,
) -> Any:
    """Makes a native table on the default world; the first one also assigns the roles of worker and server.

    Every rank makes the table: if this one rejects an argument, all ranks raise the error.

    Args:
        kind: "array", "matrix", "sparse_matrix" or "key_value".
        size: Checks and returns the number of rows and columns.
        dtype: The element type.
        init: The initial values.
        updater: The rule by which an add is applied.
        consistency: How far workers may drift apart.
        name: The name.
        reject_nan: Whether an add that contains a NaN is rejected.
        compression: How adds are encoded between hosts.
        timeout: Seconds until the call times out.
        options: The updater's options.
        device: The device that holds the table; by default it is in host memory.
        repeats: What happens to rows or keys that one add lists more than once: "sum" or "each".
        pipelined: Whether each worker has two buffers, for a sparse matrix.
        keys: The type of the keys, for a key-value table.
        max_rows: The maximum number of rows of a key-value table.
        eviction: Which of its rows is evicted then.

    Returns:
        The native table.
    """
    table = f'table "{name}"' if name else "a table without a name"

    def arguments() -> dict[str, Any]:
        texts = {"updater": updater, "name": "" if name is None else name, "compression": compression}
        for option, text in (("repeats", repeats), ("eviction", eviction)):
            if text is not None:
                texts[option] = text
        for option, text in texts.items():
            if not isinstance(text, str):
                advice = "write its name, or leave it out"
                raise usage_error("table", f"text as {option}", repr(text), advice)
        element = convert.element_type(dtype)
        values, rule = convert.first_values(init, element, table)
        if kind == "key_value" and values is not None:
            raise usage_error(
                "table",
                "a number, uniform(...) or normal(...) as init of a key-value table",
                "an array",
                "add it to its keys instead",
            )
        if kind == "key_value" and device not in (None, "cpu"):
            raise usage_error(
                "table",
                "a key-value table in host memory, where all of them live",
                f"device={device!r}",
                "leave `device` out, or number the keys and use a MatrixTable",
            )
        return {
            "shape": size(),
            "dtype": element,
            "name": name,
            "init": rule,
            "values": values,
            "updater": updater,
            "consistency": convert.consistency(consistency),
            "repeats": repeats,
            "reject_nan": reject_nan,
            "compression": compression,
            "device": ordinal(device),
            "pipelined": pipelined,
            "keys": keys,
            "max_rows": None if max_rows is None else convert.count(max_rows, "table", "max_rows"),
            "eviction": eviction,
            "timeout": timeout,
            "add": options,
        }

    return _tables_for(table).create(kind, name, arguments)
