"""Synkhronos' names over `unisono.functions`: its scripts run once they import PyTensor as Theano.

Example:
    >>> import synkhronos as synk
    >>> synk.fork(2)
    Synkhronos: 2 workers initialized, master rank: 0
    2
    >>> synk.close()
"""

import sys

from synkhronos.forking import close, distribute, fork, get_n_gpu
from synkhronos.legacy import all_gather, all_reduce, broadcast, function, gather, reduce
from unisono.functions import data, get_lengths, get_shapes, get_value, scatter, set_value

# Pickling and copying graphs is recursive.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 50_000))

__all__ = [
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
    "get_n_gpu",
    "get_shapes",
    "get_value",
    "reduce",
    "scatter",
    "set_value",
]
