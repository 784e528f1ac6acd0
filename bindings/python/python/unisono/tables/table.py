"""What all tables with rows have in common: get, add, tick."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono import _native
from unisono.arrays import Array, bfloat16, name_of, take_over
from unisono.pending import Pending
from unisono.tables import convert
from unisono.world import world


class Table:
    """Values that all workers share; made as `ArrayTable`, `MatrixTable` or `SparseMatrixTable`.

    Every rank makes the same tables in the same order. Arrays are NumPy arrays, PyTorch tensors in the
    processor's memory, or anything else that speaks DLPack. An array of the table's type is used where it is,
    without a copy; one of another type is refused, and one with gaps is refused as `out` and copied as an
    input. Lists and numbers are converted. Every call takes `timeout` (seconds; the default is the world's).
    """

    def __init__(self, native: _native.Table, shape: tuple[int, ...]) -> None:
        self._native = native
        self.shape: tuple[int, ...] = shape
        """Its shape: (size,) or (rows, columns)."""

    @property
    def name(self) -> str:
        """Its name, given or made: "array-1"."""
        return self._native.name

    @property
    def dtype(self) -> Any:
        """NumPy's type of its elements; for bfloat16 that of the package ml_dtypes."""
        name = self._native.dtype
        return np.dtype(bfloat16() if name == "bfloat16" else name)

    @property
    def updater(self) -> str:
        """What an add does: "add", "sgd", "adam" and so on."""
        return self._native.updater

    @property
    def consistency(self) -> str:
        """How far workers may drift apart: "async", "bsp", "ssp:3" and so on."""
        return self._native.consistency

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        native, kind = self._native, type(self).__name__
        return (
            f"<unisono.{kind} {native.name!r}, shape {self.shape}, {native.dtype}, "
            f"updater {native.updater}, consistency {native.consistency}>"
        )

    def get(self, rows: Any = None, out: Array | None = None, *, timeout: float | None = None) -> Any:
        """Copies values out of the table.

        Args:
            rows: Row ids: an integer for one row, a list or an integer array for several, with repeats if you
                like; None for all rows. int64 arrays are used where they are.
            out: An array of the table's type to fill, contiguous and writable; by default a new NumPy array.
            timeout: Seconds until the call gives up.

        Returns:
            The values: `out`, or an array of the shape of `rows` followed by that of a row.
        """
        memory = self._native.get(self._rows(rows, "get"), out, timeout)
        return out if memory is None else take_over(memory, None)

    def get_async(
        self, rows: Any = None, out: Array | None = None, *, timeout: float | None = None
    ) -> Pending[Any]:
        """Begins a get and lets the program go on; several may be under way.

        Args:
            rows: As for `get`.
            out: As for `get`; do not touch it before `wait` has returned.
            timeout: Seconds until the get gives up.

        Returns:
            A `Pending` whose `wait` returns the values.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> table = uni.ArrayTable(3, init=1)
            >>> pending = table.get_async()
            >>> pending.wait()
            array([1., 1., 1.], dtype=float32)
        """
        pending = self._native.get_async(self._rows(rows, "get"), out, timeout)
        return Pending(pending, "get", lambda memory: out if memory is None else take_over(memory, None))

    def add(
        self,
        delta: Any,
        rows: Any = None,
        wait: bool = False,
        *,
        timeout: float | None = None,
        **options: float,
    ) -> None:
        """Changes the table by `delta`, as its updater says.

        Args:
            delta: One row of values for each row id; only read, and free to be used again when the call
                returns.
            rows: As for `get`; a row that stands there twice is changed twice.
            wait: Whether to return only when the change is made everywhere. Otherwise it may happen a little
                later: this worker's next `get` sees it in any case, the others' after a `barrier`.
            timeout: Seconds until the call gives up.
            options: Options for the updater, such as ``learning_rate=0.1``; by default those of the table.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> table = uni.ArrayTable(2, updater="sgd")
            >>> table.add([1, 2], wait=True)
            >>> table.get()
            array([-1., -2.], dtype=float32)
        """
        values = convert.values(delta, self._native.dtype, "add")
        self._native.add(values, self._rows(rows, "add"), options or None, wait, timeout)

    def tick(self, *, timeout: float | None = None) -> None:
        """Says that this worker begins its next step.

        With consistency "ssp" the bound counts these steps. With "average" all workers call it, and
        everybody's copy becomes the average of all copies.

        Args:
            timeout: Seconds until the call gives up.
        """
        self._native.tick(timeout)

    def flush(self, *, timeout: float | None = None) -> None:
        """Waits until all adds that this rank began on this table are applied; raises what went wrong.

        Args:
            timeout: Seconds until the call gives up.
        """
        self._native.flush(timeout)

    def staleness(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """How old the values were that this rank's gets returned.

        Returns:
            A histogram: entry i counts the gets at which the slowest other worker was i steps behind this
            one. Steps are ticks with "ssp", adds otherwise.
        """
        return np.asarray(self._native.staleness())

    def _rows(self, rows: Any, operation: str) -> Any:
        return convert.row_ids(rows, operation)


def make(
    kind: str,
    shape: tuple[Any, ...],
    *,
    dtype: Any,
    init: Any,
    updater: str,
    consistency: Any,
    name: str | None,
    reject_nan: bool,
    compression: str,
    timeout: float | None,
    options: dict[str, float],
) -> _native.Table:
    """Makes a native table on the default world; the first one also makes the ranks workers and servers.

    Args:
        kind: The native method that makes it.
        shape: What that method takes first.
        dtype: The type of its elements.
        init: Its first values.
        updater: What an add does.
        consistency: How far workers may drift apart.
        name: Its name.
        reject_nan: Whether an add that holds a NaN is refused.
        compression: How adds travel between hosts.
        timeout: Seconds until the call gives up.
        options: The updater's options.

    Returns:
        The table.
    """
    element = name_of(dtype)
    values, first = convert.first_values(init, element)
    wishes = {
        "dtype": element,
        "name": name,
        "init": first,
        "updater": updater,
        "consistency": convert.consistency(consistency),
        "reject_nan": reject_nan,
        "compression": compression,
        "add": options,
    }
    make_native = getattr(world()._tables(), kind)
    made: _native.Table = make_native(*shape, values, wishes, timeout)
    return made
