"""Tables: parameters that all workers share, read with `get` and changed with `add`."""

from unisono.tables.array import ArrayTable
from unisono.tables.checkpoint import load, save
from unisono.tables.initial import Normal, Uniform, normal, uniform
from unisono.tables.key_value import Evicted, KeyValueTable
from unisono.tables.matrix import MatrixTable, SparseMatrixTable
from unisono.tables.stats import TableStats
from unisono.tables.table import Table
from unisono.tables.together import finish, flush

__all__ = [
    "ArrayTable",
    "Evicted",
    "KeyValueTable",
    "MatrixTable",
    "Normal",
    "SparseMatrixTable",
    "Table",
    "TableStats",
    "Uniform",
    "finish",
    "flush",
    "load",
    "normal",
    "save",
    "uniform",
]
