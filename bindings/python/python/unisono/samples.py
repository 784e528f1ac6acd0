"""Reads sparse samples of text files, in parts: every process reads its own lines."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from unisono import _native
from unisono.errors import usage_error

__all__ = ["SparseBatch", "SparseReader", "read_criteo", "read_libsvm"]


class SparseBatch(NamedTuple):
    """Samples, as in a matrix in compressed sparse rows.

    Sample `i` has the features from `offsets[i]` up to `offsets[i + 1]`.
    """

    labels: np.ndarray
    """float32: the label of each sample."""
    offsets: np.ndarray
    """int64: where the features of each sample begin, and the number of all features."""
    ids: np.ndarray
    """int64: the id of each feature."""
    values: np.ndarray
    """float32: the value of each feature."""

    @property
    def samples(self) -> np.ndarray:
        """int64: the sample to which each feature belongs."""
        return np.repeat(np.arange(len(self.labels)), np.diff(self.offsets))


class SparseReader(Iterator[SparseBatch]):
    """Iterates over the batches of a part of a file; made by `read_libsvm` and `read_criteo`."""

    def __init__(self, native: _native.SparseReader, batch_size: int) -> None:
        self._native, self._batch_size = native, batch_size

    def __next__(self) -> SparseBatch:
        batch = SparseBatch(*self._native.read(self._batch_size))
        if len(batch.labels) == 0:
            raise StopIteration
        return batch

    @property
    def progress(self) -> float:
        """How much of the part was read, from 0 to 1."""
        read, size = self._native.progress()
        return read / size if size else 1.0


def read_libsvm(
    path: str | os.PathLike[str],
    batch_size: int = 4096,
    *,
    hash_bits: int | None = None,
    part: int = 0,
    parts: int = 1,
) -> SparseReader:
    r"""Reads a file in LIBSVM's format: each line has a label and features, as in ``1 3:0.5 7:1``.

    Args:
        path: The file. Compressed files must be decompressed first.
        batch_size: The number of samples in a batch; the last batch may be shorter.
        hash_bits: Replaces ids by hashes of this many bits, as ids of a table of ``2**hash_bits`` rows.
        part: Which part of the file to read, such as `world.worker_id`.
        parts: The number of parts, such as `world.workers`. They have about the same size, and every line is
            in one of them.

    Returns:
        An iterator over batches.

    Raises:
        unisono.UsageError: A line has another format; the error names it.

    Example:
        >>> import pathlib, tempfile
        >>> from unisono import samples
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "clicks.txt"
        >>> _ = path.write_text("1 3:0.5 7:1\n0 2:1\n")
        >>> for batch in samples.read_libsvm(path):
        ...     print(batch.labels, batch.ids, batch.values, batch.samples)
        [1. 0.] [3 7 2] [0.5 1.  1. ] [0 0 1]
    """
    return _open("read_libsvm", path, False, batch_size, hash_bits, part, parts)


def read_criteo(
    path: str | os.PathLike[str],
    batch_size: int = 4096,
    *,
    hash_bits: int | None = None,
    part: int = 0,
    parts: int = 1,
) -> SparseReader:
    """Reads a file in the format of Criteo's logs.

    Each line has a label, 13 integers and 26 hexadecimal strings, separated by tabs. Every field that is not
    empty is a feature with the value 1, whose id is a hash of the column and the contents. An integer above 2
    is replaced by the whole part of the square of its logarithm.

    Args:
        path: The file.
        batch_size: The number of samples in a batch.
        hash_bits: The number of bits of an id, from 1 to 63; 63 by default.
        part: Which part of the file to read.
        parts: The number of parts.

    Returns:
        An iterator over batches, as of `read_libsvm`.
    """
    return _open("read_criteo", path, True, batch_size, hash_bits, part, parts)


def _open(
    call: str, path: Any, criteo: bool, batch_size: Any, hash_bits: Any, part: Any, parts: Any
) -> SparseReader:
    numbers = {"batch_size": batch_size, "part": part, "parts": parts}
    if hash_bits is not None:
        numbers["hash_bits"] = hash_bits
    for name, value in numbers.items():
        least = 0 if name == "part" else 1
        try:
            valid = not isinstance(value, bool) and least <= operator.index(value) < 2**31
        except TypeError:
            valid = False
        if not valid:
            raise usage_error(
                call, f"a whole number from {least} on as {name}", repr(value), "pass another one"
            )
    return SparseReader(_native.SparseReader(os.fspath(path), criteo, hash_bits, part, parts), batch_size)
