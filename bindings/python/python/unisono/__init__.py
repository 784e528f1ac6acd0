"""Distributes the training of a model over many processes.

Example:
    >>> import numpy as np
    >>> import unisono as uni
    >>> world = uni.init()
    >>> gradients = np.ones(4, dtype="float32")
    >>> uni.all_reduce(gradients, op="avg")
    array([1., 1., 1., 1.], dtype=float32)
"""

import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if sys.platform != "linux":
    raise ImportError(
        f"unisono: expected Linux, whose shared memory it uses, received {sys.platform}; run it in a Linux "
        "container or virtual machine"
    )
if "t" in sys.abiflags:
    raise ImportError(
        "unisono: expected an interpreter with the global interpreter lock, received a free-threaded one "
        f"({sys.executable}); use python{sys.version_info.major}.{sys.version_info.minor} without the t"
    )
if find_spec("unisono._native") is None:
    raise ImportError(
        f"unisono: expected the native module unisono._native in {__path__[0]}, found none that this "
        "interpreter loads; install the package with pip, or, in its repository, run `make develop`"
    )

from unisono import collectives
from unisono._native import __version__
from unisono.collectives import *  # noqa: F403
from unisono.devices import pick_device
from unisono.errors import (
    Error,
    InternalError,
    IoError,
    Lost,
    Missing,
    PeerLost,
    Timeout,
    Unsupported,
    UsageError,
)
from unisono.group import Group
from unisono.halo import GlobalArray, Grid, local_grid
from unisono.local_workers import local
from unisono.pending import Pending
from unisono.tables import (
    ArrayTable,
    KeyValueTable,
    MatrixTable,
    SparseMatrixTable,
    Table,
    TableStats,
    finish,
    flush,
    load,
    normal,
    save,
    uniform,
)
from unisono.worlds import World, empty, init, shutdown, world

if TYPE_CHECKING:
    from unisono.parameters import ParameterManager

__all__ = [
    "ArrayTable",
    "Error",
    "GlobalArray",
    "Grid",
    "Group",
    "InternalError",
    "IoError",
    "KeyValueTable",
    "Lost",
    "MatrixTable",
    "Missing",
    "ParameterManager",
    "PeerLost",
    "Pending",
    "SparseMatrixTable",
    "Table",
    "TableStats",
    "Timeout",
    "Unsupported",
    "UsageError",
    "World",
    "__version__",
    "empty",
    "finish",
    "flush",
    "init",
    "load",
    "local",
    "local_grid",
    "normal",
    "pick_device",
    "save",
    "shutdown",
    "uniform",
    "world",
]
__all__ += collectives.__all__


def __dir__() -> list[str]:
    # The public names: including those imported on first use, and excluding what only this file needs.
    return __all__


def __getattr__(name: str) -> Any:
    # Modules that most programs do not need are imported on first use.
    if name == "ParameterManager":
        from unisono.parameters import ParameterManager

        return ParameterManager
    raise AttributeError(f"module 'unisono' has no attribute {name!r}")
