"""Calls of a worker that concern all its tables: to apply its adds, and to declare that it has finished."""

from __future__ import annotations

from unisono.worlds import world


def flush(*, timeout: float | None = None) -> None:
    """Waits until all adds that this rank started are applied; raises their errors. `barrier` does so too.

    Without tables it does nothing.

    Args:
        timeout: Seconds until the call times out.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> table = uni.ArrayTable(2)
        >>> table.add([1, 2])
        >>> uni.flush()
    """
    tables = world()._joined
    if tables is not None:
        tables.flush(timeout)


def finish(*, timeout: float | None = None) -> None:
    """Declares that this worker makes no more calls on its tables: "bsp" and "ssp" do not wait for it.

    Its adds are applied first. `shutdown` and the end of the program do this too; `table.finish` does it for
    one table. Without tables it does nothing.

    Args:
        timeout: Seconds until the call times out.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> table = uni.ArrayTable(1, consistency="bsp")
        >>> for step in range(3 * (world.rank + 1)):  # not equally many on every rank
        ...     table.add([1])
        ...     values = table.get()
        >>> uni.finish()
    """
    tables = world()._joined
    if tables is not None:
        tables.finish(timeout)
