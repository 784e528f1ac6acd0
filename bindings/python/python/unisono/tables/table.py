"""The common base of all tables with rows: get and add."""

from __future__ import annotations

from typing import Any

from unisono import _native
from unisono.arrays import Array, take_over, written
from unisono.pending import Pending
from unisono.tables import convert
from unisono.tables.shared import SharedTable


class Table(SharedTable[_native.Table]):
    """Values that all workers share; made as `ArrayTable`, `MatrixTable` or `SparseMatrixTable`.

    Every rank makes the same tables in the same order. Arrays are NumPy arrays, PyTorch tensors, or any other
    arrays that support DLPack, in host or CUDA memory. An array of the table's type is used without a copy;
    one of another type is rejected, and a non-contiguous one is rejected as `out` and copied as an input.
    Lists and numbers are converted. Every call takes `timeout` (seconds; the default is the world's).
    """

    def __init__(self, native: _native.Table, shape: tuple[int, ...]) -> None:
        super().__init__(native)
        self.shape: tuple[int, ...] = shape
        """The shape: (size,) or (rows, columns)."""

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        native, kind = self._native, type(self).__name__
        place = "" if native.device is None else f", {self.device}"
        return (
            f"<unisono.{kind} {native.name!r}, shape {self.shape}, {native.dtype}, "
            f"updater {native.updater}, consistency {native.consistency}{place}>"
        )

    @property
    def device(self) -> str:
        """The device that holds the values: "cpu", or "cuda:0" and so on."""
        number = self._native.device
        return "cpu" if number is None else f"cuda:{number}"

    def get(self, rows: Any = None, out: Array | None = None, *, timeout: float | None = None) -> Any:
        """Copies values out of the table.

        Args:
            rows: Row ids: an integer for one row, a list or an integer array for several, which may repeat;
                None for all rows. int64 arrays are used without a copy.
            out: An array of the table's type to fill, contiguous and writable, flat or of the shape of the
                result; by default a new array of the library of the row ids: a PyTorch tensor for a tensor
                of ids, otherwise a NumPy array. If the table or the ids are on a device, it is there too.
            timeout: Seconds until the call times out.

        Returns:
            The values: `out`, or an array of the shape of `rows` followed by that of a row.
        """
        memory = self._native.get(self._rows(rows, "get"), out, timeout)
        return out if memory is None else take_over(memory, rows)

    def get_async(
        self, rows: Any = None, out: Array | None = None, *, timeout: float | None = None
    ) -> Pending[Any]:
        """Starts a get in the background; several may be in progress.

        Args:
            rows: As for `get`.
            out: As for `get`; do not access it before `wait` has returned.
            timeout: Seconds until the get times out.

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
        pending, made = self._native.get_async(self._rows(rows, "get"), out, timeout)
        target = out if made is None else made
        return Pending(
            pending,
            "get",
            lambda memory: written(target, target) if memory is None else take_over(memory, rows),
        )

    def add(
        self,
        delta: Any,
        rows: Any = None,
        wait: bool = False,
        *,
        timeout: float | None = None,
        **options: float,
    ) -> None:
        """Updates the table by `delta`, according to its updater.

        Args:
            delta: One row of values for each row id, flat or of the shape of `rows` followed by that of a
                row; it is only read, and may be reused when the call returns.
            rows: As for `get`; for a row that occurs more than once, see `repeats` of the table.
            wait: Whether to return only when the update has been applied everywhere. Otherwise it may be
                applied a little later: this worker's next `get` sees it in any case, the others' after a
                `barrier`.
            timeout: Seconds until the call times out. With `wait`, the error states whether the update was
                applied: if not, the call may be repeated.
            options: Options for the updater, such as ``lr=0.1``; by default those of the table.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> table = uni.ArrayTable(2, updater="sgd")
            >>> table.add([1, 2], wait=True)
            >>> table.get()
            array([-1., -2.], dtype=float32)
        """
        self._native.add(self._delta(delta), self._rows(rows, "add"), options or None, wait, timeout)

    def _rows(self, rows: Any, operation: str) -> Any:
        return convert.row_ids(rows, operation)
