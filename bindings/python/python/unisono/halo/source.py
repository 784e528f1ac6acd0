"""Arrays in files that are larger than memory: opened in the process that reads them, and read in pieces."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from unisono.errors import UsageError


class Source:
    """An array on disk, a ``.npy`` file or a zarr array; or an array that is open already.

    A process opens its file at its first read, so a source may be sent to the workers of a data loader.

    Example:
        >>> import numpy as np
        >>> source = Source(np.arange(12).reshape(3, 4))
        >>> source.shape
        (3, 4)
        >>> source.read((slice(1, 2), slice(0, 3)))
        array([[4, 5, 6]])
    """

    def __init__(self, origin: Any) -> None:
        """Reads the shape and type of the array; no element is read.

        Args:
            origin: The path of a ``.npy`` file; the path or URL of a zarr array; or any object that has a
                shape, a type and slices: a NumPy array, a memory map, an open zarr array.
        """
        self._path: str | None = os.fspath(origin) if isinstance(origin, (str, os.PathLike)) else None
        self._opened: tuple[int, Any] | None = None if self._path is not None else (0, origin)
        array = self._array()
        if not all(hasattr(array, name) for name in ("shape", "dtype", "__getitem__")):
            raise UsageError(
                f"region: expected a path or an array with a shape, a type and slices, received {origin!r}; "
                "open it first"
            )
        self.shape: tuple[int, ...] = tuple(int(extent) for extent in array.shape)
        """The shape of the full array."""
        self.dtype: np.dtype[Any] = np.dtype(array.dtype).newbyteorder("=")
        """The element type, in native byte order."""

    def __repr__(self) -> str:
        return f"<unisono.halo.Source {self._path or 'in memory'} {self.shape} {self.dtype}>"

    def __getstate__(self) -> dict[str, Any]:
        opened = None if self._path is not None else self._opened
        return {**self.__dict__, "_opened": opened}

    def read(self, index: tuple[Any, ...]) -> np.ndarray[Any, Any]:
        """Reads a piece.

        Args:
            index: A slice or an integer for each dimension, inside the array.

        Returns:
            The piece; for a memory map, a view whose elements are read when they are used.
        """
        return np.asarray(self._array()[index])

    def _array(self) -> Any:
        if self._path is None and self._opened is not None:
            return self._opened[1]
        # An open array that a forked process inherits may rely on threads that the fork does not have.
        if self._opened is None or self._opened[0] != os.getpid():
            assert self._path is not None
            self._opened = (os.getpid(), _open(self._path))
        return self._opened[1]


def _open(path: str) -> Any:
    if path.endswith(".npy"):
        try:
            return np.load(path, mmap_mode="r")
        except ValueError as error:
            raise UsageError(
                f"region: expected a file of plain numbers, received {path}: {error}; save it with numpy.save"
            ) from error
    if "://" not in path and not os.path.exists(path):
        raise FileNotFoundError(f"region: there is no {path}")
    if not ("://" in path or os.path.isdir(path) or path.endswith((".zarr", ".zip"))):
        raise UsageError(
            f"region: expected a .npy file or a zarr array, received {path}; open it and pass the array"
        )
    try:
        import zarr
    except ImportError as error:
        raise ImportError("reading a zarr array needs zarr: pip install zarr") from error
    opened = zarr.open(path, mode="r")
    if not hasattr(opened, "dtype"):
        raise UsageError(
            f"region: expected a zarr array, received the group {path}; add an array's name to the path"
        )
    return opened
