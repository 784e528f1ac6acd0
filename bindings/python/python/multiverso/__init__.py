"""Multiverso's Python interface, on Unisono: scripts that were written for it run unchanged.

Example:
    >>> import multiverso as mv
    >>> mv.init()
    >>> table = mv.ArrayTableHandler(3)
    >>> table.add([1, 2, 3])
    >>> mv.barrier()
    >>> table.get()
    array([1., 2., 3.], dtype=float32)
    >>> mv.shutdown()
"""

from multiverso.api import barrier, init, is_master_worker, server_id, shutdown, worker_id, workers_num
from multiverso.tables import ArrayTableHandler, MatrixTableHandler, TableHandler

__all__ = [
    "ArrayTableHandler",
    "MatrixTableHandler",
    "TableHandler",
    "barrier",
    "init",
    "is_master_worker",
    "server_id",
    "shutdown",
    "worker_id",
    "workers_num",
]
