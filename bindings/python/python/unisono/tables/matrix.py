"""Tables that are matrices, read and updated by rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from unisono.arrays import Array
from unisono.tables.convert import count
from unisono.tables.names import Consistency, Updater
from unisono.tables.shared import make
from unisono.tables.table import Table


class MatrixTable(Table):
    """A matrix that all workers share, distributed over the servers by rows. Every rank makes it.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> embeddings = uni.MatrixTable(1000, 2)
        >>> embeddings.add([[1, 1], [2, 2], [3, 3]], rows=[7, 9, 7])
        >>> embeddings.get([9, 7])
        array([[2., 2.],
               [4., 4.]], dtype=float32)
        >>> embeddings.get(7)
        array([4., 4.], dtype=float32)
    """

    def __init__(
        self,
        rows: int,
        cols: int,
        dtype: Any = "float32",
        init: Any = None,
        updater: Updater = "add",
        consistency: Consistency = "async",
        name: str | None = None,
        *,
        repeats: str | None = None,
        reject_nan: bool = False,
        compression: str = "none",
        device: Any = None,
        timeout: float | None = None,
        **options: float,
    ) -> None:
        """Makes the table, together with all other ranks.

        Args:
            rows: The number of rows, 1 or more.
            cols: The number of columns, 1 or more.
            dtype: As for `ArrayTable`, like all arguments that follow.
            init: The initial values.
            updater: The rule by which an add is applied.
            consistency: How far workers may drift apart.
            name: A unique name; by default "matrix-1" and so on.
            repeats: What happens to a row that one add lists more than once: "sum", one step of the updater
                with the sum of its deltas, or "each", one step for each of them in order. By default "sum",
                unless the updater is "add" or "sgd", for which they differ only by rounding. A round of
                "bsp" sums them in any case.
            reject_nan: Whether an add that contains a NaN is rejected.
            compression: How adds are encoded between hosts.
            device: The device that holds the table.
            timeout: Seconds until the call times out.
            options: The updater's options.
        """
        native = make(
            "matrix",
            lambda: _shape(rows, cols),
            dtype=dtype,
            init=init,
            updater=updater,
            consistency=consistency,
            name=name,
            repeats=repeats,
            reject_nan=reject_nan,
            compression=compression,
            device=device,
            timeout=timeout,
            options=options,
        )
        super().__init__(native, (int(rows), int(cols)))


class SparseMatrixTable(Table):
    """A matrix that tracks what each worker has read: `get_changed` transfers only rows changed since then.

    `get` returns the rows it is asked for, as for a `MatrixTable`, and does not mark them as read.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> table = uni.SparseMatrixTable(4, 2)
        >>> mine = np.empty((4, 2), dtype="float32")
        >>> table.get_changed(mine)
        array([0, 1, 2, 3])
        >>> table.add([[5, 5]], rows=[2])
        >>> table.get_changed(mine)
        array([2])
        >>> mine[2]
        array([5., 5.], dtype=float32)
    """

    def __init__(
        self,
        rows: int,
        cols: int,
        dtype: Any = "float32",
        init: Any = None,
        updater: Updater = "add",
        consistency: Consistency = "async",
        name: str | None = None,
        *,
        pipelined: bool = False,
        repeats: str | None = None,
        reject_nan: bool = False,
        compression: str = "none",
        device: Any = None,
        timeout: float | None = None,
        **options: float,
    ) -> None:
        """Makes the table, together with all other ranks.

        Args:
            rows: The number of rows, 1 or more.
            cols: The number of columns, 1 or more.
            dtype: As for `ArrayTable`, like all arguments that follow except `pipelined`.
            init: The initial values.
            updater: The rule by which an add is applied.
            consistency: How far workers may drift apart; not "average".
            name: A unique name; by default "sparse-matrix-1" and so on.
            pipelined: Whether each worker has two buffers, so that one can be filled while the other is used.
            repeats: What happens to a row that one add lists more than once: "sum", one step of the updater
                with the sum of its deltas, or "each", one step for each of them in order. By default "sum",
                unless the updater is "add" or "sgd", for which they differ only by rounding. A round of
                "bsp" sums them in any case.
            reject_nan: Whether an add that contains a NaN is rejected.
            compression: How adds are encoded between hosts.
            device: The device that holds the table.
            timeout: Seconds until the call times out.
            options: The updater's options.
        """
        native = make(
            "sparse_matrix",
            lambda: _shape(rows, cols),
            pipelined=pipelined,
            dtype=dtype,
            init=init,
            updater=updater,
            consistency=consistency,
            name=name,
            repeats=repeats,
            reject_nan=reject_nan,
            compression=compression,
            device=device,
            timeout=timeout,
            options=options,
        )
        super().__init__(native, (int(rows), int(cols)))

    def get_changed(
        self, out: Array, rows: Any = None, buffer: int = 0, *, timeout: float | None = None
    ) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Updates an array: fills the rows that changed since this worker's last call.

        The other rows are not written: pass the same array each time, or one with the same values. The first
        call fills everything. A full-table add changes only the rows whose delta is not all zeros.

        Args:
            out: The array to update: one row for each row id, contiguous and writable.
            rows: Row ids, as for `get`; None for all rows.
            buffer: Which of this worker's buffers `out` is: 0, or 1 if the table is pipelined.
            timeout: Seconds until the call times out.

        Returns:
            The ids of the rows that were filled, in ascending order.
        """
        wanted = count(buffer, "get_changed", "a buffer")
        changed = self._native.get_changed(out, self._rows(rows, "get_changed"), wanted, timeout)
        return np.asarray(changed)


def _shape(rows: int, cols: int) -> tuple[int, int]:
    return count(rows, "table", "rows"), count(cols, "table", "columns")
