"""Call a function once and run it on every worker.

The master, which is your program, starts workers with `start`, creates functions with `function`, and calls
them. Every worker computes its part of the inputs, and the outputs are combined into one result.

Example:
    >>> import numpy as np
    >>> from unisono import functions
    >>> functions.start(2)
    2
    >>> total = functions.function(lambda x: x.sum(axis=0), "sum")
    >>> rows = total.build_inputs(np.arange(8.0).reshape(4, 2))
    >>> total(rows)
    array([12., 16.])
    >>> functions.close()
"""

from unisono.functions.collectives import (
    all_gather,
    all_reduce,
    broadcast,
    gather,
    get_lengths,
    get_shapes,
    get_value,
    reduce,
    scatter,
    set_value,
)
from unisono.functions.errors import WorkerError
from unisono.functions.factory import function
from unisono.functions.function_object import Function
from unisono.functions.input_data import Data, data
from unisono.functions.pool import close, distribute, fork, rank, start
from unisono.functions.shared_array import Shared, shared, updated
from unisono.functions.train import TrainFunction, make_train_function, refresh

__all__ = [
    "Data",
    "Function",
    "Shared",
    "TrainFunction",
    "WorkerError",
    "all_gather",
    "all_reduce",
    "broadcast",
    "close",
    "data",
    "distribute",
    "fork",
    "function",
    "gather",
    "get_lengths",
    "get_shapes",
    "get_value",
    "make_train_function",
    "rank",
    "reduce",
    "refresh",
    "scatter",
    "set_value",
    "shared",
    "start",
    "updated",
]
