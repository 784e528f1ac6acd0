"""Sizes of a table, and what a worker has done with it."""

from __future__ import annotations

from typing import NamedTuple


class TableStats(NamedTuple):
    """Sizes of a table on all hosts, and the calls of this process since it opened the table."""

    rows: int
    """Number of rows, of elements of an array, or of keys."""
    value_bytes: int
    """Bytes of the values."""
    state_bytes: int
    """Bytes of the updater's state, including that of each worker."""
    gets: int
    """Gets of this process. A get that failed before all hosts had replied may count."""
    adds: int
    """Adds of this process; one in the background counts when it is applied."""
    rows_read: int
    """Rows or keys that these gets returned; a row that a get lists twice counts twice."""
    rows_added: int
    """Rows or keys that these adds listed, before repeats were summed."""
