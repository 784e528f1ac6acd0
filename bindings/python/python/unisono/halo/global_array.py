"""One array that the ranks of a grid partition in space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from unisono import _native
from unisono.arrays import name_of
from unisono.errors import UsageError
from unisono.halo.grid import Grid
from unisono.halo.memory import device_of, empty_contribution, empty_like
from unisono.halo.options import IDENTITY, boundaries, count_of, counts, paddings, window_dimensions
from unisono.halo.window import Window, shape_of

_DEFAULT_DIMENSIONS = {"w": -1, "h": -2, "d": -3, "data": 0}
_TYPES = ["float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64"]


class GlobalArray:
    """Describes which rank has which part of an array. It holds no elements: each part is a plain array.

    Example:
        >>> import numpy as np, unisono as uni
        >>> def rank(grid):
        ...     image = uni.GlobalArray((4, 6), grid, split={"h": 0, "w": 1})
        ...     part = image.scatter(np.arange(24.0).reshape(4, 6) if grid.rank == 0 else None)
        ...     window = image.window(kernel=3, padding=1, boundary="periodic")
        ...     return image.region, window.forward(part)
        >>> with uni.local_grid(h=2, w=2) as grid:
        ...     region, padded = grid.run(rank)[3]
        >>> region
        (slice(2, 4, None), slice(3, 6, None))
        >>> padded
        array([[ 8.,  9., 10., 11.,  6.],
               [14., 15., 16., 17., 12.],
               [20., 21., 22., 23., 18.],
               [ 2.,  3.,  4.,  5.,  0.]])
    """

    def __init__(
        self,
        shape: Sequence[int],
        grid: Grid,
        split: Mapping[str, int] | None = None,
        sizes: Mapping[str, Sequence[int]] | None = None,
    ) -> None:
        """Partitions an array between the ranks of a grid, without communication.

        Args:
            shape: The global shape.
            grid: The ranks.
            split: The dimension that each axis divides; by default `w` the last, `h` the one before, `d` the
                one before that, and `data` the first. The array is replicated along axes that divide nothing.
            sizes: The lengths of the parts along an axis, if they are not to be as even as possible. By
                default the first parts are longer by one.
        """
        self.shape: tuple[int, ...] = tuple(count_of("GlobalArray", "the shape", one) for one in shape)
        """The global shape."""
        self.grid: Grid = grid
        """The ranks."""
        self.split: dict[str, int] = _split(self.shape, grid, split)
        """The dimension that each axis divides."""
        given = [
            (axis, [count_of("GlobalArray", f"the sizes along {axis}", one) for one in parts])
            for axis, parts in (sizes or {}).items()
        ]
        self._layout = _native.Layout(
            list(grid.axes.items()), list(self.shape), list(self.split.items()), given
        )
        self._exchanges: dict[Any, _native.HaloExchange] = {}
        self._windows: dict[Any, Window] = {}

    @classmethod
    def _of(
        cls, layout: _native.Layout, like: GlobalArray, sizes: Mapping[str, Sequence[int]] | None
    ) -> GlobalArray:
        kept = {axis: parts for axis, parts in layout.sizes}
        return cls(layout.shape, like.grid, like.split, {**kept, **(sizes or {})})

    def __repr__(self) -> str:
        axes = ", ".join(f"{axis}={self.grid.axes[axis]} over {dim}" for axis, dim in self.split.items())
        return f"<unisono.GlobalArray {self.shape}, {axes or 'whole on every rank'}; here {self.local_shape}>"

    @property
    def sizes(self) -> dict[str, list[int]]:
        """The lengths of the parts along each axis."""
        return {axis: list(parts) for axis, parts in self._layout.sizes}

    @property
    def region(self) -> tuple[slice, ...]:
        """This rank's part, as slices of the global array: ``whole[array.region]``."""
        return self.region_of(self.grid.rank)

    def region_of(self, rank: int) -> tuple[slice, ...]:
        """The part of a given rank.

        Args:
            rank: The rank in the grid.

        Returns:
            Slices of the global array.
        """
        self.grid.coordinates_of(rank)
        return tuple(slice(start, stop) for start, stop in self._layout.region(rank))

    @property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of this rank's part."""
        return tuple(one.stop - one.start for one in self.region)

    def owner(self, index: Sequence[int]) -> int:
        """The rank that owns an element.

        Args:
            index: The index in the global array.

        Returns:
            The rank; among replicas, the one with this rank's coordinates on the axes that divide nothing.
        """
        if len(index) != len(self.shape):
            raise UsageError(
                f"index: expected {len(self.shape)} numbers, one for each dimension of {self.shape}, "
                f"received {len(index)}; pass one for each"
            )
        return self._layout.owner([count_of("index", "an index", one) for one in index], self.grid.rank)

    def to_local(self, index: Sequence[int]) -> tuple[int, ...] | None:
        """Converts a global index to an index in this rank's part.

        Args:
            index: The index in the global array.

        Returns:
            The index in the part, or None if another rank has the element.
        """
        if self.owner(index) != self.grid.rank:
            return None
        return tuple(int(one) - part.start for one, part in zip(index, self.region, strict=True))

    def to_global(self, index: Sequence[int]) -> tuple[int, ...]:
        """Converts an index in this rank's part to a global index.

        Args:
            index: The index in the part.

        Returns:
            The index in the global array.
        """
        return tuple(int(one) + part.start for one, part in zip(index, self.region, strict=True))

    def scatter(self, x: Any, root: int = 0, *, timeout: float | None = None) -> Any:
        """Distributes the parts of the root's array. Every rank calls it.

        Args:
            x: The global array, at the root; elsewhere None, or any tensor to get a tensor.
            root: The rank that has it.
            timeout: Seconds until the call times out.

        Returns:
            This rank's part.
        """
        here = self.grid.rank == root
        fits = not here or (shape_of(x) == self.shape and name_of(x.dtype) in _TYPES)
        # The other ranks learn the type from the root, or that there is nothing to wait for.
        code = np.array([-1, 0])
        if here and fits:
            code[:] = _TYPES.index(name_of(x.dtype)), device_of(x) is not None
        self.grid.group.broadcast(code, root, timeout=timeout)
        if code[0] < 0:
            received = f"{shape_of(x)} {name_of(x.dtype)}" if shape_of(x) else type(x).__name__
            raise UsageError(
                f"scatter: expected an array of the shape {self.shape} at rank {root}, received "
                f"{received if here else 'another one there'}; pass the whole array on that rank"
            )
        name = _TYPES[int(code[0])]
        source = x if here else empty_contribution(x, len(self.shape), name, bool(code[1]))
        out = empty_like(source, self.local_shape)
        self._once("scatter", root, source, timeout).forward([source], [out], timeout)
        return out

    def gather(self, x: Any, root: int | None = 0, *, timeout: float | None = None) -> Any:
        """Collects the parts into one array. Every rank calls it.

        Args:
            x: This rank's part.
            root: The rank that gets the global array, or None for all.
            timeout: Seconds until the call times out.

        Returns:
            The global array at the root, None elsewhere.
        """
        self._check(x, "gather")
        gets = root is None or root == self.grid.rank
        out = empty_like(x, self.shape if gets else (0,) * len(self.shape))
        self._once("gather", root, x, timeout).forward([x], [out], timeout)
        return out if gets else None

    def repartition(self, x: Any, to: GlobalArray, *, timeout: float | None = None) -> Any:
        """Converts the array to another partitioning. Every rank calls it.

        Args:
            x: This rank's part.
            to: The same array, partitioned in another way on the same grid.
            timeout: Seconds until the call times out.

        Returns:
            This rank's part in the partitioning of `to`.
        """
        self._check(x, "repartition")
        dtype, device = name_of(x.dtype), device_of(x)
        key = ("repartition", tuple(to.split.items()), str(to.sizes), dtype, device)
        if key not in self._exchanges:
            group = self.grid.group
            plan = group._counted(_native.HaloPlan.repartition, self._layout, to._layout, self.grid.rank)
            way = (True, device)
            self._exchanges[key] = _native.HaloExchange(group._native, plan, dtype, 1, way, timeout)
            self.grid._note_exchange(self, key)
        out = empty_like(x, to.local_shape)
        self._exchanges[key].forward([x], [out], timeout)
        return out

    def window(
        self,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] = 1,
        padding: Any = 0,
        dilation: int | Sequence[int] = 1,
        boundary: Any = "zero",
        transposed: bool = False,
        output_padding: int | Sequence[int] = 0,
        ceil_mode: bool = False,
        dims: Sequence[int] | None = None,
        output_sizes: Mapping[str, Sequence[int]] | None = None,
    ) -> Window:
        """Determines which elements the outputs of a convolution or a pooling need, without communication.

        Args:
            kernel: The number of elements that an output reads: one number, or one for each dimension of the
                window.
            stride: The distance between neighbouring windows.
            padding: Positions around the array: a number, "same", "valid", or for each dimension a number or
                a pair (before, after).
            dilation: The distance between the elements of one window.
            boundary: The values at these positions: "zero", "replicate", "reflect", "periodic" or a number;
                or for each dimension one or a pair (before, after); or a dictionary from axes to these, such
                as ``{"w": "periodic"}``.
            transposed: Whether it is a transposed convolution: every element contributes to several outputs.
            output_padding: Further outputs of a transposed window.
            ceil_mode: Whether a last window that ends outside counts.
            dims: The dimensions of the window. By default those that are partitioned, except by an axis
                `data`, or with a sequence as the kernel the last ones.
            output_sizes: The lengths of the parts of the outputs along an axis; by default as even as
                possible.

        Returns:
            The window: `forward`, `adjoint`, `begin`.

        Raises:
            UsageError: The window is larger than the padded array, or another argument is invalid.
        """
        chosen = window_dimensions(kernel, dims, self.shape, self.split)
        count = len(chosen)
        kernels = counts("kernel", kernel, count, 1)
        strides = counts("stride", stride, count, 1)
        dilations = counts("dilation", dilation, count, 1)
        pads = paddings(padding, kernels, dilations, strides)
        extras = counts("output_padding", output_padding, count)
        numbers = [IDENTITY] * len(self.shape)
        for at, dim in enumerate(chosen):
            shape = (kernels[at], strides[at], dilations[at], *pads[at])
            numbers[dim] = (*shape, transposed, extras[at], ceil_mode)
        edges = boundaries(boundary, chosen, self.split, len(self.shape))
        key = (tuple(numbers), tuple(edges), str(output_sizes))
        if key not in self._windows:
            output = GlobalArray._of(self._layout.outputs(numbers), self, output_sizes)
            self._windows[key] = Window(self, output, numbers, edges)
        return self._windows[key]

    def get_fprop_view(self, x: Any, kernel: int | Sequence[int], **window: Any) -> Any:
        """This rank's part padded with the halo that its outputs need: `window` and `forward` in one.

        Args:
            x: This rank's part.
            kernel: As for `window`.
            window: The other arguments of `window`.

        Returns:
            The padded part.
        """
        return self.window(kernel, **window).forward(x)

    def get_bprop_view(self, gradient: Any, kernel: int | Sequence[int], **window: Any) -> Any:
        """The gradient of this rank's part from that of the padded part: `window` and `adjoint` in one.

        Args:
            gradient: The gradient of the result of `get_fprop_view`.
            kernel: As for `window`.
            window: The other arguments of `window`.

        Returns:
            For each element of this rank's part, the sum of all ranks' gradients of it.
        """
        return self.window(kernel, **window).adjoint(gradient)

    def _check(self, x: Any, operation: str) -> None:
        if shape_of(x) != self.local_shape:
            raise self.grid.group._rejected(
                UsageError(
                    f"rank {self.grid.rank}: {operation}: expected this rank's part, of the shape "
                    f"{self.local_shape}, received {shape_of(x) or type(x).__name__}; "
                    "take whole[array.region]"
                )
            )

    def _once(self, what: str, root: int | None, x: Any, timeout: float | None) -> _native.HaloExchange:
        dtype, device = name_of(x.dtype), device_of(x)
        key = (what, root, dtype, device)
        if key not in self._exchanges:
            group = self.grid.group
            if what == "scatter":
                plan = group._counted(_native.HaloPlan.scatter, self._layout, root or 0, self.grid.rank)
            else:
                plan = group._counted(_native.HaloPlan.gather, self._layout, root, self.grid.rank)
            # Global arrays are transferred seldom: no shared memory is reserved for them.
            way = (False, device)
            self._exchanges[key] = _native.HaloExchange(group._native, plan, dtype, 1, way, timeout)
            self.grid._note_exchange(self, key)
        return self._exchanges[key]

    def _drop_exchange(self, key: Any) -> None:
        self._exchanges.pop(key, None)


def _split(shape: tuple[int, ...], grid: Grid, split: Mapping[str, int] | None) -> dict[str, int]:
    if split is None:
        unknown = [axis for axis in grid.axes if axis not in _DEFAULT_DIMENSIONS]
        if unknown:
            raise UsageError(
                f"split: expected to know which dimensions the axes {', '.join(unknown)} divide, received no "
                'split; pass for example split={"rows": 0}'
            )
        split = {axis: _DEFAULT_DIMENSIONS[axis] for axis in grid.axes}
    dims = {axis: int(dim) + len(shape) if dim < 0 else int(dim) for axis, dim in split.items()}
    for axis, dim in dims.items():
        if not 0 <= dim < len(shape):
            raise UsageError(
                f"split: expected a dimension of the array {shape} for the axis {axis}, "
                f"received {split[axis]}; dimensions count from 0"
            )
    return dims
