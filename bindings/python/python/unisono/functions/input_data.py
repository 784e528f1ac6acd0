"""Data: arrays in memory shared by all workers, so that inputs need no copy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from unisono.arrays import reject_masked
from unisono.functions.batch import ArenaArray, is_whole
from unisono.functions.master_only import RemoteValue
from unisono.functions.outputs import check_type
from unisono.functions.pool import Pool, active


class Data:
    """An array in shared memory, with a fixed type and number of axes; created by `data` and `build_inputs`.

    Example:
        >>> from unisono import functions
        >>> functions.start(1)
        1
        >>> x = functions.data([[1.0, 2.0], [3.0, 4.0]])
        >>> x.shape, x.dtype, len(x), x[1, 0]
        ((2, 2), 'float64', 2, np.float64(3.0))
        >>> functions.close()
    """

    def __init__(self, pool: Pool, dtype: Any, ndim: int, minibatch: bool, name: str | None) -> None:
        self._pool = pool
        self._dtype = np.dtype(dtype)
        check_type(self._dtype, f"data {name!r}" if name else "data")
        self._ndim = ndim
        self._memory: Any = None
        self._offset = 0
        self.alloc_size = 0
        """Number of items that fit without a new allocation."""
        self.minibatch = minibatch
        """Whether it holds exactly the current batch, instead of the data from which batches are taken."""
        self.name = name
        """The name, for display only."""
        self._array: Any = np.empty((0,) * ndim, self._dtype)

    def __repr__(self) -> str:
        return f"<unisono.functions.Data {self.name or ''}: {self.dtype} {self.shape}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteValue, (
            f"data {self.name!r}" if self.name else "data",
            "pass it as an input of the function",
        )

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, index: Any) -> Any:
        return self.data[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.data[index] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.data, dtype=dtype) if copy or dtype is not None else self.data

    @property
    def data(self) -> Any:
        """The array itself: a writable NumPy view of the shared memory."""
        return self._array

    @data.setter
    def data(self, value: Any) -> None:
        # `x.data += 1` changes the array in place, and Python then assigns it back.
        if value is not self._array:
            raise AttributeError(
                f"{self._called()}expected new items in the memory that workers see, received another array; "
                "write x.set_value(array), or x.data[...] = array"
            )

    @property
    def dtype(self) -> str:
        """Name of the element type."""
        return str(self._dtype.name)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return self._ndim

    @property
    def shape(self) -> tuple[int, ...]:
        """Length of each axis."""
        shape: tuple[int, ...] = self.data.shape
        return shape

    @property
    def size(self) -> int:
        """Number of items."""
        return int(self.data.size)

    def set_value(self, input_data: Any, force_cast: bool = False, oversize: float = 1) -> None:
        """Stores an array of any shape with the same number of axes.

        Args:
            input_data: The array.
            force_cast: Whether any type may be converted. Otherwise only NumPy's type promotion applies:
                integers to float64, for instance, which rounds them beyond 2**53.
            oversize: Factor from 1 to 2 for the size of a new allocation, if one is needed; it leaves room to
                grow.

        Example:
            >>> from unisono import functions
            >>> functions.start(1)
            1
            >>> x = functions.data(shape=(5, 4), dtype="float32")
            >>> x.set_value([[1, 2], [3, 4]], force_cast=True)
            >>> x.shape, x.alloc_size
            ((2, 2), 20)
            >>> functions.close()
        """
        array = self.condition_data(input_data, force_cast)
        self._resize(array.shape, oversize)
        self.data[...] = array

    def set_length(self, length: int, oversize: float = 1) -> None:
        """Changes the number of rows. The contents are lost if new memory is needed.

        Args:
            length: Number of rows, at least one.
            oversize: As for `set_value`.
        """
        if not is_whole(length):
            raise TypeError(f"set_length: expected a whole number of rows, received {length!r}")
        if length < 1:
            raise ValueError(f"set_length: expected at least 1 row, received {length}")
        self._resize((int(length), *self.shape[1:]), oversize)

    def set_shape(self, shape: int | Sequence[int], oversize: float = 1) -> None:
        """Changes the shape. The contents are lost if new memory is needed.

        Args:
            shape: The new shape, with the same number of axes.
            oversize: As for `set_value`.
        """
        self._resize(shape_of(shape), oversize)

    def condition_data(self, input_data: Any, force_cast: bool = False) -> Any:
        """Converts an array to the form that `set_value` would store.

        Args:
            input_data: An array, or anything that NumPy converts to one.
            force_cast: Whether any type may be converted.

        Returns:
            An array of this type.

        Raises:
            TypeError: NumPy's type promotion gives another type, or the number of axes differs.
        """
        reject_masked(input_data, self._called().strip())
        array = input_data.data if isinstance(input_data, Data) else np.asarray(input_data)
        if array.dtype != self._dtype:
            if not force_cast and np.result_type(array.dtype, self._dtype) != self._dtype:
                raise TypeError(
                    f"Non up-castable data type: {self._called()}expected {self.dtype}, received "
                    f"{array.dtype.name}; pass force_cast=True to convert it anyway"
                )
            array = array.astype(self._dtype)
        if array.ndim != self._ndim:
            raise TypeError(f"{self._called()}expected {self._ndim} axes, received {array.ndim}")
        return array

    def free_memory(self) -> None:
        """Frees the memory and leaves the array empty. It is the only way to shrink the allocation.

        It also helps if there is no room for a larger allocation beside the old one.
        """
        if self._memory is not None:
            self._memory.base.return_pages()
        self._drop()

    def _drop(self) -> None:
        self._memory, self.alloc_size = None, 0
        self._array = np.empty((0,) * self._ndim, self._dtype)

    def _called(self) -> str:
        return f"data {self.name!r} " if self.name else "data "

    def _resize(self, shape: tuple[int, ...], oversize: float) -> None:
        if len(shape) != self._ndim:
            raise ValueError(f"{self._called()}expected a shape with {self._ndim} axes, received {shape}")
        if shape == self.shape and self._memory is not None:
            return
        size = math.prod(shape)
        if size > self.alloc_size or self._memory is None:
            if not 1 <= oversize <= 2:
                raise ValueError(f"oversize: expected a number from 1 to 2, received {oversize}")
            if self._pool.is_closed:
                raise RuntimeError(
                    f"{self._called()}belongs to workers that were closed and can take no more memory; call "
                    "functions.start(), and make it again"
                )
            self._pool.check_usable()
            self._reallocate(int(size * oversize))
        self._array = np.ndarray(shape, self._dtype, self._memory)

    def _reallocate(self, count: int) -> None:
        """Replaces the allocation; if no memory is available, everything stays as it is."""
        link, wanted = self._pool.member.link, count * self._dtype.itemsize
        # Untouched memory costs nothing: check that the allocation succeeds before freeing the old one.
        # Then free the old one first: the new one may be the same block, extended.
        link.allocate(wanted)
        self._drop()
        self._memory = link.allocate(wanted)
        self._offset, self.alloc_size = link.offset_of(self._memory), count

    def _location(self) -> ArenaArray:
        """The location at which workers read the array."""
        return self._offset, self._dtype.str, self.data.shape


def shape_of(shape: Any) -> tuple[int, ...]:
    """Validates a shape passed by the user."""
    axes = tuple(shape) if np.iterable(shape) else (shape,)
    if not all(is_whole(one) for one in axes):
        raise TypeError(f"shape: expected whole numbers, received {shape!r}")
    if any(one < 0 for one in axes):
        raise ValueError(f"shape: expected lengths from 0 up, received {shape!r}")
    return tuple(int(one) for one in axes)


def data(
    value: Any = None,
    var: Any = None,
    dtype: Any = None,
    ndim: int | None = None,
    shape: int | Sequence[int] | None = None,
    minibatch: bool = False,
    force_cast: bool = False,
    oversize: float = 1,
    name: str | None = None,
) -> Data:
    """Allocates an array in memory that all workers share.

    Args:
        value: The initial contents.
        var: A PyTensor variable that determines the type and number of axes.
        dtype: The element type; by default that of the variable or the value.
        ndim: The number of axes; by default that of the variable, the value or the shape.
        shape: The shape, if there is no value; the contents are then undefined.
        minibatch: Whether it will hold exactly the current batch of each call, already in the batch's order.
        force_cast: Whether the value may be converted to any type.
        oversize: Factor from 1 to 2 for the size of the allocation.
        name: The name used in errors.

    Returns:
        The new array.

    Raises:
        TypeError: The type or number of axes cannot be determined.
    """
    pool = active("data()")
    if value is not None and not isinstance(value, Data):
        reject_masked(value, "data")
        value = np.asarray(value)
    source = var if var is not None else value
    if dtype is None and source is not None:
        dtype = source.dtype
    if ndim is None:
        if source is not None:
            ndim = source.ndim
        elif shape is not None:
            ndim = len(shape_of(shape))
    if dtype is None or ndim is None:
        missing = "dtype" if dtype is None else "ndim"
        raise TypeError(
            f"data: expected value, var, or both dtype and ndim (or shape), received no {missing}"
        )
    made = Data(pool, dtype, ndim, minibatch, name or getattr(var, "name", None))
    if value is not None:
        made.set_value(value, force_cast, oversize)
    elif shape is not None:
        made._resize(shape_of(shape), oversize)
    return made
