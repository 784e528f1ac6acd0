"""Table handlers: an array, and a matrix that is read and updated by rows."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np

import unisono as uni
from multiverso.api import session
from multiverso.utils import convert_data

Floats = np.ndarray[Any, np.dtype[np.float32]]


class TableHandler:
    """The common base of handlers. Tables hold float32."""

    def __init__(self, size: Any, init_value: Any = None) -> None:
        raise NotImplementedError("make an ArrayTableHandler or a MatrixTableHandler")

    def get(self, size: Any = None) -> Floats:
        """The table's values."""
        raise NotImplementedError("make an ArrayTableHandler or a MatrixTableHandler")

    def add(self, data: Any, sync: bool = False) -> None:
        """Adds to the table."""
        raise NotImplementedError("make an ArrayTableHandler or a MatrixTableHandler")

    @staticmethod
    def convert_data(data: Any) -> Floats:
        """Copies numbers into an array of float32; see `multiverso.utils.convert_data`."""
        return convert_data(data)

    def _make(self, kind: Any, *shape: int, init_value: Any) -> None:
        self._session = session()
        init = None if init_value is None else convert_data(init_value).reshape(-1)
        # As in the original, a row that an add lists twice gets two steps.
        repeats = {"repeats": "each"} if kind is uni.MatrixTable else {}
        self._table = kind(
            *shape,
            init=init,
            updater=self._session.updater,
            consistency=self._session.consistency,
            **repeats,
        )
        self._session.tables.append(weakref.ref(self._table))

    def _open(self) -> Any:
        """The table, if it can still be used."""
        if self._session.is_over:
            raise uni.UsageError(
                f"multiverso: expected a call before shutdown(), received one on {self._table.name!r} after "
                "it; make a new table"
            )
        return self._table


class ArrayTableHandler(TableHandler):
    """An array that all workers share. Every process makes the same handlers in the same order.

    Example:
        >>> import multiverso as mv
        >>> mv.init()
        >>> table = mv.ArrayTableHandler(2, init_value=[1, 2])
        >>> table.add([10, 20], sync=True)
        >>> table.get()
        array([11., 22.], dtype=float32)
        >>> mv.shutdown()
    """

    def __init__(self, size: int, init_value: Any = None) -> None:
        """Makes the table.

        Args:
            size: The number of elements.
            init_value: The initial values. Only those of the master worker are used.
        """
        self._make(uni.ArrayTable, int(size), init_value=init_value)

    def get(self) -> Floats:  # type: ignore[override]
        """All values, in a new array."""
        values: Floats = self._open().get()
        return values

    def add(self, data: Any, sync: bool = False) -> None:
        """Adds to all values.

        Args:
            data: As many numbers as the table holds, in any shape.
            sync: Whether to wait until they are added; otherwise they are added in the background.
        """
        self._open().add(convert_data(data).reshape(-1), wait=sync)


class MatrixTableHandler(TableHandler):
    """A matrix that all workers share. Every process makes the same handlers in the same order.

    Example:
        >>> import multiverso as mv
        >>> mv.init()
        >>> table = mv.MatrixTableHandler(5, 2)
        >>> table.add([[1, 1], [2, 2]], row_ids=[0, 4], sync=True)
        >>> table.get([4])
        array([[2., 2.]], dtype=float32)
        >>> mv.shutdown()
    """

    def __init__(self, num_row: int, num_col: int, init_value: Any = None) -> None:
        """Makes the table.

        Args:
            num_row: The number of rows.
            num_col: The number of columns.
            init_value: The initial values. Only those of the master worker are used.
        """
        self._make(uni.MatrixTable, int(num_row), int(num_col), init_value=init_value)

    def get(self, row_ids: Any = None) -> Floats:
        """Rows, in a new array.

        Args:
            row_ids: The rows, counted from 0; by default all.

        Returns:
            An array with one row for each id.
        """
        values: Floats = self._open().get(row_ids)
        return values

    def add(  # type: ignore[override]
        self, data: Any = None, row_ids: Any = None, sync: bool = False
    ) -> None:
        """Adds to rows.

        Args:
            data: One row of numbers for each id, in any shape.
            row_ids: The rows, counted from 0; by default all. A row that occurs twice is added to twice.
            sync: Whether to wait until they are added; otherwise they are added in the background.
        """
        if data is None:
            raise uni.UsageError("add: expected data, received None; pass one row of numbers for each row")
        self._open().add(convert_data(data).reshape(-1), row_ids, wait=sync)
