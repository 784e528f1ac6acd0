"""A module that works on parts: the same code, parameters and names, with samples that a grid partitions."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch

from unisono.errors import Error, Unsupported, UsageError
from unisono.halo import Grid
from unisono.torch.space.arguments import KnownCalls
from unisono.torch.space.consistency import compare_state, reject_drift
from unisono.torch.space.dispatch import replaced
from unisono.torch.space.dry_run import named, reject_compiled, run_without_data
from unisono.torch.space.failures import raise_together, sharing_errors
from unisono.torch.space.fusing import fused_sequences
from unisono.torch.space.inputs import Inputs, agreed, warn_of_copies
from unisono.torch.space.layout import check_axes, default_split, layout_of
from unisono.torch.space.moves import once
from unisono.torch.space.overlap import overlapping
from unisono.torch.space.overlaps import reject_overlaps
from unisono.torch.space.parameters import call_with, replacements, share_all
from unisono.torch.space.part import Part, wrap
from unisono.torch.space.passes import counts_fully, passing, within
from unisono.torch.space.randomness import drawing
from unisono.torch.space.stored_tensors import counted_once


class Spatial(torch.nn.Module):
    """A module that works on parts; made by `spatial`."""

    def __init__(
        self, module: torch.nn.Module, grid: Grid, overlap: bool = False, compare_every: int = 16
    ) -> None:
        super().__init__()
        # Not a child: parameters, buffers and children are the module's own, under its own names.
        self.__dict__["module"] = module
        self.__dict__["grid"] = grid
        for shared in ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"):
            self.__dict__[shared] = module.__dict__[shared]
        self.training = module.training
        self.overlap: bool = overlap
        """Whether convolutions compute interior outputs while halos are in flight; it may be changed."""
        self.compare_every: int = compare_every
        """The number of calls between checks of parameters for divergence between ranks; 0 for never."""
        self._known_calls = KnownCalls()
        self._unseen = True
        self._calls = 0

    module: torch.nn.Module
    grid: Grid

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the module on parts.

        Args:
            args: Tensors with spatial dimensions are this rank's parts: plain tensors, or `Part`. Others are
                the same on every rank.
            kwargs: Options of the module.

        Returns:
            The module's result, with a `Part` in place of each tensor.
        """
        reject_compiled(self.module, self.grid)
        if within(self.grid):
            raise _twice(self.grid, "a model")
        with sharing_errors(self.grid):
            inputs = self.dry_run(*args, **kwargs)
            if inputs.threads and len(inputs.generators) > 1:
                # Backward has one thread per device: ranks that are threads would wait for each other.
                torch.autograd.set_multithreading_enabled(False)
            with (
                passing(self.grid, torch.is_grad_enabled()),
                drawing(self.grid, inputs.threads, inputs.seeds, inputs.generators),
                overlapping(self.grid, self.overlap),
            ):
                try:
                    return self._call(inputs)
                except (UsageError, Unsupported) as error:
                    raise named(error, self.module, self.grid) from error

    def dry_run(self, *args: Any, **kwargs: Any) -> Inputs:
        """Compares arguments between ranks and, for a new shape, runs the module without data.

        Args:
            args: As for a call.
            kwargs: Options of the module.

        Returns:
            The inputs, as parts.

        Raises:
            UsageError: Arguments or parameters differ between ranks.
            Unsupported: The module has a layer that cannot work on parts.
        """
        modes = "".join("t" if one.training else "e" for one in self.module.modules())
        casts = [
            torch.get_autocast_dtype(kind) for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)
        ]
        grads = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        state = f"{modes} {grads} {casts} {self.overlap}"
        self._calls += 1
        due = self.compare_every > 0 and self._calls % self.compare_every == 0
        inputs = agreed(args, kwargs, self.grid, state, self._unseen, due)
        new = inputs.call not in self._known_calls
        if new:
            self._dry_run(inputs)
        if inputs.unseen:
            compare_state(self.module, self.grid)
            self._unseen = False
        elif inputs.due:
            reject_drift(self.module, self._calls, self.grid)
        if new:
            reject_overlaps(inputs.given, self.grid)
            warn_of_copies(inputs, self.grid)
        # Also if it was known already: eviction depends on when an entry was last used.
        self._known_calls.add(inputs.call)
        return inputs

    def _dry_run(self, inputs: Inputs) -> None:
        error: Error | None = None
        try:
            run_without_data(self.module, inputs, self.grid)
        except Error as found:
            error = found
        raise_together(error, self.grid)

    def _call(self, inputs: Inputs) -> Any:
        parameters = list(self.module.parameters())
        found: list[Part] = []
        plain: list[torch.Tensor] = []
        replaced((inputs.args, inputs.kwargs), found.append, plain.append)
        shared = share_all([*parameters, *plain], self.grid)
        given = iter(shared[len(parameters) :])
        args, kwargs = replaced((inputs.args, inputs.kwargs), lambda one: one, lambda one: next(given))
        changes = replacements(self.module, dict(zip(parameters, shared, strict=False)))
        changes += fused_sequences(self.module, [*found, *plain])
        with counted_once(self.module, self.grid):
            made = call_with(changes, lambda: self.module(*args, **kwargs))
        axes = tuple(self.grid.axes)

        def whole(one: torch.Tensor) -> Part:
            copy = one if counts_fully(one, self.grid) else once(one, self.grid, axes)
            return wrap(copy, layout_of(self.grid, one.shape, {}))

        return replaced(made, lambda one: one, whole)

    def scatter(self, whole: torch.Tensor | None, root: int = 0) -> Part:
        """Distributes the parts of a tensor that one rank has. Every rank calls it.

        Args:
            whole: The global tensor at the root; None elsewhere.
            root: The rank that has it.

        Returns:
            This rank's part.
        """
        shape: list[torch.Size | None] = [None if whole is None else whole.shape]
        numbers = torch.zeros(8, dtype=torch.int64)
        if self.grid.rank == root and shape[0] is not None:
            numbers[: 1 + len(shape[0])] = torch.tensor([len(shape[0]), *shape[0]])
        self.grid.group.broadcast(numbers, root)
        if numbers[0] == 0:
            raise UsageError(
                f"scatter: expected a tensor on rank {root}, received none; pass the whole there"
            )
        known = numbers[1 : 1 + int(numbers[0])].tolist()
        layout = layout_of(self.grid, known, default_split(self.grid, len(known)))
        here = whole if self.grid.rank == root else torch.empty(0)
        with sharing_errors(self.grid):
            return wrap(layout.array.scatter(here, root), layout)

    def part(self, local: torch.Tensor, shape: Sequence[int]) -> Part:
        """Declares a tensor to be this rank's part of a global tensor, and checks it; see `Part.here`.

        Args:
            local: The part. `w` divides the last dimension, `h` the one before it and `d` the one before
                that, also for class maps, which have no channels.
            shape: The global shape.

        Returns:
            The part.
        """
        return Part.here(local, shape, self.grid)

    def train(self, mode: bool = True) -> Spatial:
        """Sets training or evaluation mode; see `torch.nn.Module.train`."""
        self.module.train(mode)
        self.training = mode
        return self

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The module's own state, under its own names."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Loads the module's own state; the next call compares it between ranks."""
        self._unseen = True
        return self.module.load_state_dict(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> Spatial:
        """Copies the module on the same grid, as for moving averages of parameters."""
        return Spatial(copy.deepcopy(self.module, memo), self.grid, self.overlap, self.compare_every)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Rejects pickling: a grid consists of running processes."""
        raise UsageError(
            f"rank {self.grid.rank}: spatial: expected a state to save, received the model, whose grid is "
            "made of running processes; save model.state_dict(), or model.module"
        )

    def extra_repr(self) -> str:
        """The grid, in addition to the module's own text."""
        axes = ", ".join(f"{name}={size}" for name, size in self.grid.axes.items())
        return f"{type(self.module).__name__} on {axes}"


def spatial(
    module: torch.nn.Module, grid: Grid, *, overlap: bool = False, compare_every: int = 16
) -> Spatial:
    """Turns a module into one that works on parts of samples, which a grid partitions in space.

    The module's code, parameters and names stay as they are, and results are those of one process: outputs,
    gradients of inputs and parameters, and running statistics. The grid's axes `w`, `h` and `d` divide the
    last dimension, the one before and the one before that; an axis `data` divides the batch. Gradients of
    parameters are summed over all ranks in one call at the end of backward. Before the first communication
    for a new shape, the module is run without data, and an operation without a rule for parts is an error
    that names it.

    Args:
        module: Any module in host or CUDA memory, with the same parameters on every rank.
        grid: The ranks.
        overlap: Whether convolutions compute their interior outputs, and in backward one gradient, while
            halos are in flight. It pays where ranks wait for each other, as between hosts; on one host,
            splitting the work costs more than it saves. It needs one more padded array of the largest layer.
        compare_every: The number of calls after which ranks compare some elements of their parameters and
            buffers, to detect divergence; 0 for never. The first call compares all elements.

    Returns:
        The module on parts: call it with this rank's parts; it returns `Part`.

    Raises:
        UsageError: The grid has axes of other names.
        Unsupported: The module is compiled, or contains a module that works on parts already.

    Example:
        >>> import torch, unisono as uni
        >>> import unisono.torch
        >>> world = uni.init()
        >>> grid = uni.Grid(h=1, w=-1)
        >>> net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4))
        >>> model = unisono.torch.spatial(net, grid)
        >>> sorted(model.state_dict()) == sorted(net.state_dict())
        True
        >>> image = uni.GlobalArray((2, 3, 16, 16), grid)
        >>> y = model(torch.ones(image.local_shape))
        >>> y.shape
        torch.Size([2, 4, 16, 16])
        >>> y.square().mean().backward()
        >>> net[0].weight.grad.shape
        torch.Size([4, 3, 3, 3])
    """
    check_axes(grid)
    reject_compiled(module, grid)
    for name, one in module.named_modules():
        if isinstance(one, Spatial):
            raise _twice(grid, f"layer {name!r}" if name else "a model")
    return Spatial(module, grid, overlap, compare_every)


def _twice(grid: Grid, what: str) -> Unsupported:
    return Unsupported(
        f"rank {grid.rank}: spatial: expected a module of one process, received {what} of spatial inside of "
        "another; call spatial once, on the outermost module"
    )
