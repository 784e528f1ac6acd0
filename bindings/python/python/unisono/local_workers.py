"""Worker processes for a notebook, or for a script that runs by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from unisono.functions.pool import Workers


def local(n: int | None = None, *, threads: int | None = None) -> Workers:
    """Starts worker processes on this machine, and maps functions over items on them.

    It needs no launcher, and works in notebooks. Functions may be defined in a cell; they are sent to the
    workers with cloudpickle, which ``pip install "unisono[functions]"`` installs. Progress and errors appear
    where `map` is called. Ctrl-C, or the interrupt of a notebook, ends a `map` and the workers; the next one
    starts new workers.

    Args:
        n: Number of processes, including this one, which works too; by default one for each core.
        threads: Number of compute threads for each worker; by default OMP_NUM_THREADS, or 1.

    Returns:
        The workers. A `with` statement ends them; otherwise they end with this process.

    Example:
        >>> import unisono as uni
        >>> with uni.local(2) as workers:
        ...     workers.map(lambda x: x**2, range(5))
        [0, 1, 4, 9, 16]
    """
    from unisono.functions import start

    return start(n, threads=threads)
