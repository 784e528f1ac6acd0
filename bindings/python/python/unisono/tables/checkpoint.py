"""Checkpoints: all tables of the world, saved together and loaded together."""

from __future__ import annotations

import os

from unisono.worlds import world


def save(path: str | os.PathLike[str], *, timeout: float | None = None) -> None:
    """Saves all tables that are in use, with the state of their updaters. Every rank calls it.

    An older checkpoint at the same path stays intact until the new one is complete.

    Args:
        path: A folder, or a URL, the same on every rank: ``file://…``; also ``s3://…``, ``gs://…`` and
            ``az://…`` if the package was built with the feature `cloud`. A world of one rank may use
            ``memory://…``, which is in its own process: other ranks could not load from there.
        timeout: Seconds until the call times out.

    Example:
        >>> import tempfile, unisono as uni
        >>> world = uni.init()
        >>> table = uni.ArrayTable(2, init=1, name="bias")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     uni.save(folder)
        ...     table.add([5, 5])
        ...     uni.load(folder)
        >>> table.get()
        array([1., 1.], dtype=float32)
    """
    world()._tables().save(path, timeout)


def load(path: str | os.PathLike[str], *, timeout: float | None = None) -> None:
    """Loads all tables from a checkpoint. Every rank calls it, with the same tables as when it was saved.

    The number of ranks may differ. A checkpoint that is damaged or of other tables is an error and changes
    nothing.

    Args:
        path: The path at which it was saved, the same on every rank.
        timeout: Seconds until the call times out.
    """
    world()._tables().load(path, timeout)
