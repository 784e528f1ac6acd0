"""Halo exchange of a window: gathers the inputs that outputs need, and sums gradients at their owners."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from unisono import _native
from unisono.arrays import name_of
from unisono.errors import Error, UsageError
from unisono.halo.memory import device_of, empty_like
from unisono.halo.options import Edge, WindowNumbers, check_constants

if TYPE_CHECKING:
    from unisono.halo.global_array import GlobalArray


# Types that are summed in a wider type.
_HALVES = ("float16", "bfloat16")


class Window:
    """A window over a `GlobalArray`; made by `GlobalArray.window`. Every rank of the grid makes its calls.

    Arrays are NumPy arrays or PyTorch tensors of any type that collectives support, in host or CUDA memory.
    The first call for a type sets up shared memory; later calls only copy.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> signal = uni.GlobalArray((8,), uni.Grid(w=1), split={"w": 0})
        >>> window = signal.window(kernel=3, padding=1, boundary="reflect")
        >>> window.forward(np.arange(8))
        array([1, 0, 1, 2, 3, 4, 5, 6, 7, 6])
        >>> window.adjoint(np.ones(10))
        array([1., 2., 1., 1., 1., 1., 2., 1.])
    """

    def __init__(
        self,
        array: GlobalArray,
        output: GlobalArray,
        numbers: list[WindowNumbers],
        edges: list[tuple[Edge, Edge]],
    ) -> None:
        """Plans the communication; see `GlobalArray.window`."""
        self.input: GlobalArray = array
        """The input array."""
        self.output: GlobalArray = output
        """The output array."""
        self.numbers: tuple[WindowNumbers, ...] = tuple(numbers)
        """For each dimension: kernel, stride, dilation, padding before and after, transposed, output padding,
        ceil mode."""
        self.edges: tuple[tuple[Edge, Edge], ...] = tuple(edges)
        """The boundary before and after each dimension: its name and value."""
        self._plan = self._plan_of(array.grid.rank)
        self._exchanges: dict[tuple[str, int, int | None], _native.HaloExchange] = {}
        # The results of abandoned exchanges, by the identity of their native exchange.
        self._abandoned: dict[int, list[Any]] = {}
        # The exchanges that may still be ended.
        self._begun: weakref.WeakSet[Exchange] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<unisono.Window {self.input.shape} -> {self.output.shape}; padded here {self.padded_shape}>"

    def _plan_of(self, rank: int) -> _native.HaloPlan:
        layout, outputs = self.input._layout, self.output._layout
        return _native.HaloPlan.window(layout, list(self.numbers), list(self.edges), outputs, rank)

    @property
    def needed(self) -> tuple[tuple[int, int], ...]:
        """The first index and the end, in each dimension, of the inputs that this rank's outputs need.

        The range may extend beyond the array, into the boundary.
        """
        return tuple(self._plan.needed)

    def needed_by(self, rank: int) -> tuple[tuple[int, int], ...]:
        """The inputs that a rank's outputs need; see `needed`.

        Args:
            rank: The rank in the grid.

        Returns:
            The first index and the end in each dimension.
        """
        return tuple(self._plan_of(rank).needed)

    @property
    def padded_shape(self) -> tuple[int, ...]:
        """The shape of this rank's result of `forward`."""
        return tuple(stop - start for start, stop in self.needed)

    @property
    def halos(self) -> tuple[tuple[int, int], ...]:
        """The number of elements needed before and after this rank's part; negative if some are not."""
        pairs = zip(self._plan.own, self._plan.needed, strict=True)
        return tuple((own[0] - needed[0], needed[1] - own[1]) for own, needed in pairs)

    @property
    def _holds_parts(self) -> bool:
        """Whether the padded array contains all of this rank's part."""
        return 0 not in self.input.local_shape and all(min(pair) >= 0 for pair in self.halos)

    @property
    def neighbours(self) -> dict[int, int]:
        """The ranks that send to this one, and the number of elements of each."""
        return dict(self._plan.sources)

    def forward(self, x: Any, out: Any = None, *, timeout: float | None = None) -> Any:
        """Gathers the inputs that this rank's outputs need into one padded array.

        Args:
            x: This rank's part; or a list of parts of several arrays, which are sent together.
            out: The output array; by default a new array, like `x`.
            timeout: Seconds until the call times out.

        Returns:
            The padded array, or a list of them.
        """
        parts, targets = self._arrays(x, out, self.input.local_shape, self.padded_shape, "halo forward")
        self._exchange(parts, timeout).forward(parts, targets, timeout)
        return targets if isinstance(x, (list, tuple)) else targets[0]

    def refresh(self, padded: Any, *, timeout: float | None = None) -> Any:
        """Updates the halos of an array that is kept in padded form; nothing else is written.

        Constants beyond the edges stay as `forward` wrote them.

        Args:
            padded: The result of `forward`, whose interior this rank has changed since; or a list. It is
                written in place.
            timeout: Seconds until the call times out.

        Returns:
            `padded`.
        """
        arrays = list(padded) if isinstance(padded, (list, tuple)) else [padded]
        self._check(arrays, self.padded_shape, "halo refresh")
        self._exchange(arrays, timeout).refresh(arrays, timeout)
        return padded

    def adjoint(
        self, gradient: Any, out: Any = None, *, overwrite: bool = False, timeout: float | None = None
    ) -> Any:
        """The adjoint of `forward`, for backpropagation: sums the gradients of all copies of each element.

        Args:
            gradient: The gradient of the padded array; or a list.
            out: The output array; by default a new array.
            overwrite: Whether `gradient` is no longer needed. If possible, the result is then a view of its
                interior: only halos are copied, and no array is allocated.
            timeout: Seconds until the call times out.

        Returns:
            The gradient of this rank's part, or a list of them.
        """
        if overwrite and out is None:
            arrays = list(gradient) if isinstance(gradient, (list, tuple)) else [gradient]
            self._check(arrays, self.padded_shape, "halo adjoint")
            here = all(name_of(one.dtype) not in _HALVES and device_of(one) is None for one in arrays)
            if here and self._holds_parts:
                self._exchange(arrays, timeout).adjoint_within(arrays, timeout)
                inner = tuple(
                    slice(before, before + length)
                    for (before, _), length in zip(self.halos, self.input.local_shape, strict=True)
                )
                views = [one[inner] for one in arrays]
                return views if isinstance(gradient, (list, tuple)) else views[0]
        padded, targets = self._arrays(
            gradient, out, self.padded_shape, self.input.local_shape, "halo adjoint"
        )
        self._exchange(padded, timeout).adjoint(padded, targets, timeout)
        return targets if isinstance(gradient, (list, tuple)) else targets[0]

    def begin(self, x: Any, out: Any = None, *, timeout: float | None = None) -> Exchange:
        """Starts `forward`; meanwhile, compute outputs that need no halo.

        Args:
            x: This rank's part, or a list; it may be changed as soon as this call returns.
            out: The output array.
            timeout: Seconds until the call times out.

        Returns:
            The exchange: `end` it before the window's next call.
        """
        parts, targets = self._arrays(x, out, self.input.local_shape, self.padded_shape, "halo forward")
        exchange = self._exchange(parts, timeout)
        exchange.begin(parts, targets, timeout)
        return Exchange(self, exchange, targets, isinstance(x, (list, tuple)))

    def begin_adjoint(self, gradient: Any, out: Any = None, *, timeout: float | None = None) -> Exchange:
        """Starts `adjoint`.

        Args:
            gradient: The gradient of the padded array, or a list; it may be changed as soon as this returns.
            out: The output array.
            timeout: Seconds until the call times out.

        Returns:
            The exchange: `end` it before the window's next call.
        """
        padded, targets = self._arrays(
            gradient, out, self.padded_shape, self.input.local_shape, "halo adjoint"
        )
        exchange = self._exchange(padded, timeout)
        exchange.begin_adjoint(padded, targets, timeout)
        return Exchange(self, exchange, targets, isinstance(gradient, (list, tuple)))

    def _arrays(
        self, x: Any, out: Any, shape: tuple[int, ...], target: tuple[int, ...], operation: str
    ) -> tuple[list[Any], list[Any]]:
        several = isinstance(x, (list, tuple))
        inputs = list(x) if several else [x]
        self._check(inputs, shape, operation)
        if out is None:
            outputs = [empty_like(one, target) for one in inputs]
        else:
            outputs = list(out) if several else [out]
        self._check(outputs, target, f"{operation} into out=")
        if len(outputs) != len(inputs) or len({name_of(one.dtype) for one in inputs}) != 1:
            self._reject(
                operation, "arrays of one type, and as many results", f"{len(inputs)} and {len(outputs)}"
            )
        return inputs, outputs

    def _check(self, arrays: Sequence[Any], shape: tuple[int, ...], operation: str) -> None:
        for one in arrays:
            if shape_of(one) != shape:
                received = type(one).__name__ if shape_of(one) is None else str(shape_of(one))
                self._reject(operation, f"an array of the shape {shape}", received)
        if not arrays:
            self._reject(operation, "one array or more", "an empty list")

    def _reject(self, operation: str, expected: str, received: str) -> None:
        raise self.input.grid.group._rejected(
            UsageError(
                f"rank {self.input.grid.rank}: {operation}: expected {expected}, received {received}; "
                f"this rank has [{', '.join(f'{one.start}:{one.stop}' for one in self.input.region)}] of "
                f"{self.input.shape}"
            )
        )

    def _exchange(self, arrays: list[Any], timeout: float | None) -> _native.HaloExchange:
        dtype, fields, device = key = (name_of(arrays[0].dtype), len(arrays), device_of(arrays[0]))
        if key not in self._exchanges:
            group = self.input.grid.group
            group._counted(check_constants, self.edges, dtype)
            made = _native.HaloExchange(group._native, self._plan, dtype, fields, (True, device), timeout)
            self._exchanges[key] = made
            self.input.grid._note_exchange(self, key)
        exchange = self._exchanges[key]
        left = self._abandoned.pop(id(exchange), None)
        if left is not None:
            exchange.end(left, timeout)  # the other ranks have sent their data
        return exchange

    def _cancel_exchanges(self) -> None:
        """Cancels the exchanges in progress on a broken group, without a result.

        Merely dropping them could later write to the senders' memory, when it is used for something else.
        """
        for one in list(self._begun):
            if one._under_way:
                one._leave()
        for exchange in self._exchanges.values():
            left = self._abandoned.pop(id(exchange), None)
            if left is not None:
                with suppress(Error):
                    exchange.end(left, None)

    def _drop_exchange(self, key: Any) -> None:
        exchange = self._exchanges.pop(key, None)
        self._abandoned.pop(id(exchange), None)


class Exchange:
    """A halo exchange in progress; made by `Window.begin`.

    As a context manager it ends with its block. If it is dropped, or its block fails, the window's next call
    ends it without a result, as if `end` had been called just before: the other ranks end theirs.

    Example:
        >>> import numpy as np, unisono as uni
        >>> world = uni.init()
        >>> window = uni.GlobalArray((4,), uni.Grid(w=1), split={"w": 0}).window(kernel=3, padding=1)
        >>> with window.begin(np.ones(4)) as exchange:
        ...     inner = exchange.padded[1:-1].sum()  # needs no halo
        >>> exchange.padded
        array([0., 1., 1., 1., 1., 0.])
    """

    def __init__(
        self, window: Window, native: _native.HaloExchange, outputs: list[Any], several: bool
    ) -> None:
        self._window = window
        self._native = native
        self._outputs = outputs
        self._several = several
        self._under_way = True
        window._begun.add(self)

    def __enter__(self) -> Exchange:  # noqa: PYI034
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._under_way:
            return
        if kind is None:
            self.end()
        else:
            self._leave()  # after an error, do not wait for ranks that may not come

    def __del__(self) -> None:
        if getattr(self, "_under_way", False) and not sys.is_finalizing():
            self._leave()

    def _leave(self) -> None:
        self._under_way = False
        if self._native in self._window._exchanges.values():
            self._window._abandoned[id(self._native)] = self._outputs

    @property
    def padded(self) -> Any:
        """The result so far: everything except data from other ranks."""
        return self._outputs if self._several else self._outputs[0]

    def end(self, *, timeout: float | None = None) -> Any:
        """Waits for the other ranks' data.

        Args:
            timeout: Seconds until the call times out.

        Returns:
            The complete result.
        """
        if not self._under_way:
            expected = "an exchange that is under way"
            self._window._reject("halo end", expected, "one that was ended or left; call begin again")
        self._under_way = False
        self._native.end(self._outputs, timeout)
        return self.padded


def shape_of(x: Any) -> tuple[int, ...] | None:
    """The shape of an array.

    Args:
        x: A NumPy array, a PyTorch tensor, or something else.

    Returns:
        The shape; None if `x` is not an array.
    """
    return tuple(x.shape) if hasattr(x, "shape") and hasattr(x, "dtype") else None
