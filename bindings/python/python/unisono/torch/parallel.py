"""A module whose gradients are averaged between workers while backward is still computing."""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from unisono.errors import usage_error
from unisono.group import Group
from unisono.parameters.weights import factor_of
from unisono.torch.broadcast import broadcast_parameters, broadcast_tensors
from unisono.torch.bucket import Bucket, buckets_of
from unisono.torch.ddp_arguments import cap_of, group_of, move, placement, warn_of_views
from unisono.torch.shared_rows import SharedRows
from unisono.torch.tracing import untraced
from unisono.torch.uneven_inputs import UnevenInputs
from unisono.worlds import world


class DistributedDataParallel(torch.nn.Module):
    """Wraps a module: after `backward`, every worker has the average of all workers' gradients.

    Gradients are sent in buckets, each as soon as it is complete, while `backward` computes the next. As with
    PyTorch's own class of this name, the wrapped module is `module` and keys of `state_dict` begin with
    "module."; `load_state_dict` accepts keys with and without it. Every worker makes the same passes.

    Gradients are views of the buckets, which the next backward pass overwrites: clone a gradient to keep it.
    They have the memory format of their parameters; sparse gradients become dense.

    Wrap a module when its parameters are final: a parameter that is added, replaced or unfrozen later is an
    error at the next forward pass.

    Example:
        >>> import torch, unisono as uni
        >>> world = uni.init()
        >>> model = DistributedDataParallel(torch.nn.Linear(3, 1))
        >>> model(torch.ones(2, 3)).sum().backward()
        >>> model.module.bias.grad
        tensor([2.])
    """

    def __init__(
        self,
        module: torch.nn.Module,
        device_ids: Sequence[int | torch.device | str] | None = None,
        output_device: int | torch.device | str | None = None,
        dim: int = 0,
        broadcast_buffers: bool = True,
        init_sync: bool = True,
        process_group: Any | None = None,
        bucket_cap_mb: float | None = None,
        find_unused_parameters: bool = False,
        check_reduction: bool = False,
        gradient_as_bucket_view: bool = True,
        static_graph: bool = False,
        *,
        group: Group | None = None,
    ) -> None:
        """Wraps the module, together with all other workers, and broadcasts the first worker's parameters.

        The arguments are those of PyTorch's class, in its order. `dim`, `find_unused_parameters`,
        `check_reduction` and `static_graph` change nothing: a worker need not use every parameter in every
        pass, and those that no worker has used keep their gradients.

        Args:
            module: The module, in host memory or on CUDA devices.
            device_ids: A list of the one device that the module is on, to which inputs are then moved.
            output_device: The same device; only with `device_ids`.
            dim: Ignored, as PyTorch does with one device for each process.
            broadcast_buffers: Whether each forward pass in training begins by broadcasting the first
                worker's buffers, such as the statistics of batch normalization.
            init_sync: Whether parameters and buffers are compared and broadcast now. Without it, they must
                be the same on all workers.
            process_group: The workers, as `group`; not a process group of PyTorch's.
            bucket_cap_mb: The largest size of a bucket in MiB; by default 4, and 32 on a device.
            find_unused_parameters: Ignored: unused parameters need no search.
            check_reduction: Ignored, as by PyTorch.
            gradient_as_bucket_view: Gradients are views of the buckets; False only warns.
            static_graph: Ignored: a graph that does not change needs no declaration.
            group: The workers; by default all ranks that are workers.

        Raises:
            UsageError: The module differs between workers, is in memory of another kind, or has no parameters
                that need gradients.
        """
        super().__init__()
        self.module = module
        self._group = group_of(group, process_group) or world()._worker_group("DistributedDataParallel")
        self._broadcasts_buffers = broadcast_buffers
        trained = {name: one for name, one in module.named_parameters() if one.requires_grad}
        self._check(trained)
        self.device = next(iter(trained.values())).device
        self._input_device = placement(device_ids, output_device, dict(module.named_parameters()))
        self._cap = cap_of(bucket_cap_mb)
        warn_of_views(gradient_as_bucket_view)
        if init_sync:
            broadcast_parameters(module, group=self._group)
        self._averages = True
        self._uneven: UnevenInputs | None = None
        self._begin_averaging(list(trained.values()))

    def _begin_averaging(self, trained: list[torch.nn.Parameter]) -> None:
        """Creates the buckets, and registers hooks that copy each complete gradient into its bucket."""
        self._under_way = False
        self._weighed = False
        self._next = 0
        # Keeps the parameters alive, so that their ids are not reused.
        self._trained = {id(one): (one, one.dtype, one.device) for one in trained}
        self._buckets: list[Bucket] = []
        if self._group.size > 1:
            self._buckets = buckets_of(trained, world(), self._cap)
        handles = []
        for number, bucket in enumerate(self._buckets):
            for place, parameter in enumerate(bucket.parameters):
                register: Any = parameter.register_post_accumulate_grad_hook
                hook = functools.partial(_arrived, weakref.ref(self), number, place)
                handles.append(register(hook))
        # If the module is wrapped again, its gradients must not be averaged twice.
        weakref.finalize(self, _remove, handles)

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedDataParallel:
        """Copies the wrapper, with its own parameters and buckets, on the same group. Not collective."""
        copied = self.__class__.__new__(self.__class__)
        memo[id(self)] = copied
        shared = {"_group": self._group, "_buckets": [], "_uneven": None}
        for name, value in self.__dict__.items():
            copied.__dict__[name] = shared[name] if name in shared else copy.deepcopy(value, memo)
        copied._begin_averaging([one for one in copied.module.parameters() if one.requires_grad])
        return copied

    def __getstate__(self) -> Any:
        raise usage_error(
            "pickle",
            "a module that any process can load",
            "a DistributedDataParallel, which belongs to its workers",
            "save or copy model.module, or its state_dict()",
        )

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Calls the module."""
        self._begin_pass()
        if self._input_device is not None:
            inputs, options = move(inputs, self._input_device), move(options, self._input_device)
        return self.module(*inputs, **options)

    @untraced
    def _begin_pass(self) -> None:
        if self._under_way and torch._C._current_graph_task_id() == -1:
            raise usage_error(
                "DistributedDataParallel",
                "a backward pass that ends",
                "one that failed half-way",
                "the workers are out of step: start the job again",
            )
        if self._weighed and torch._C._current_graph_task_id() == -1:
            self._set_factor(1.0)
        if not self._averages:
            return
        if torch.is_grad_enabled():
            self._check_unchanged()
            if self._uneven is not None:
                self._uneven.begin_pass()
                self._set_factor(self._uneven.factor)
        elif self._uneven is not None:
            return  # in `join`, workers need not make equally many passes without gradients
        if self._broadcasts_buffers and self.training:
            self._broadcast_buffers(0 if self._uneven is None else self._uneven.root)

    def _broadcast_buffers(self, root: int) -> None:
        # Hidden from autograd, just as layers update their own statistics: an earlier forward pass may still
        # need its backward pass.
        if self._group.size > 1:
            broadcast_tensors([one.data for one in self.module.buffers()], root, self._group)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulates gradients locally; the next pass outside the context averages what has accumulated.

        This includes the rows of `Embedding` and `EmbeddingBag` modules in the model.

        Example:
            >>> import torch, unisono as uni
            >>> world = uni.init()
            >>> model = DistributedDataParallel(torch.nn.Linear(3, 1))
            >>> with model.no_sync():
            ...     model(torch.ones(2, 3)).sum().backward()
            >>> model(torch.ones(2, 3)).sum().backward()
            >>> model.module.bias.grad
            tensor([4.])
        """
        before, self._averages = self._averages, False
        try:
            with ExitStack() as contexts:
                for rows in self._shared_rows():
                    contexts.enter_context(rows.no_sync())
                yield
        finally:
            self._averages = before

    def _shared_rows(self) -> list[SharedRows]:
        return [one for one in self.module.modules() if isinstance(one, SharedRows)]

    @contextmanager
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> Iterator[None]:
        """Lets workers make different numbers of passes, as PyTorch's method of this name does.

        A worker that leaves the context takes part in the averages of the others with zeros, until none is in
        it. Then all of them get the parameters and buffers of one that made the last pass. Each forward pass
        with gradients needs its backward pass, except in `no_sync`. Forward passes without gradients are each
        worker's own: they broadcast no buffers. `weigh` is not for use in the context.

        Args:
            divide_by_initial_world_size: Whether a mean is over all workers; otherwise it is over those that
                still have input.
            enable: Whether to do any of this; without it, the numbers of passes must be equal.
            throw_on_early_termination: Whether all workers raise an error when the first one has no more
                input, instead.

        Yields:
            Nothing.

        Raises:
            UsageError: `throw_on_early_termination` is set, and a worker has no more input; or the module has
                rows in a table of consistency "bsp", all of whose lookups are made by all workers.

        Example:
            >>> import torch, unisono as uni
            >>> world = uni.init()
            >>> model = DistributedDataParallel(torch.nn.Linear(3, 1))
            >>> with model.join():
            ...     for _ in range(1 + world.rank):
            ...         model(torch.ones(2, 3)).sum().backward()
        """
        if not enable:
            yield
            return

        for rows in self._shared_rows():
            if rows.table.consistency.startswith("bsp"):
                raise usage_error(
                    "DistributedDataParallel.join",
                    "rows in a table that does not wait for workers without input",
                    f"those of {rows.table.name!r} with consistency {rows.table.consistency!r}",
                    'give every worker as many batches, which may be empty, or choose consistency "async"',
                )

        def finish(root: int) -> None:
            tensors = [*self.module.parameters(), *self.module.buffers()]
            broadcast_tensors([one.data for one in tensors], root, self._group)

        options = (divide_by_initial_world_size, throw_on_early_termination)
        self._uneven = UnevenInputs(self._group, self._shadow, finish, *options)
        try:
            with self._uneven:
                yield
        finally:
            self._uneven = None
            self._set_factor(1.0)

    @torch.no_grad()
    def _shadow(self, root: int) -> None:
        """Makes the calls of one training pass of other workers."""
        if self._broadcasts_buffers and self.training:
            self._broadcast_buffers(root)
        for bucket in self._buckets:
            bucket.shadow(self._group)

    def weigh(self, weight: float) -> None:
        """Sets this worker's weight in the next average. All workers call it, before `backward`.

        The weight holds until the first forward pass after that average.

        Args:
            weight: If parts of a batch differ in size, this worker's number of rows; 0 if it has none, in
                which case it still makes a pass.

        Raises:
            UsageError: A weight is not a finite, non-negative number, or all are 0. Every worker raises it.

        Example:
            >>> import torch, unisono as uni
            >>> world = uni.init()
            >>> model = DistributedDataParallel(torch.nn.Linear(3, 1))
            >>> part = torch.ones(5, 3).tensor_split(world.size)[world.rank]
            >>> model.weigh(len(part))
            >>> model(part).mean().backward()
            >>> model.module.bias.grad  # of the mean over all five rows
            tensor([1.])
        """
        if self._uneven is not None:
            raise usage_error(
                "DistributedDataParallel.weigh",
                "no context of join, where workers without input do not call it",
                "a weight in one",
                "weigh the loss instead",
            )
        self._set_factor(factor_of(weight, self._group, "DistributedDataParallel.weigh"))

    def _set_factor(self, factor: float) -> None:
        self._weighed = False
        for bucket in self._buckets:
            bucket.factor = factor

    def load_state_dict(self, state_dict: Mapping[str, Any], *arguments: Any, **options: Any) -> Any:
        """Loads parameters and buffers, saved from this wrapper or from the module alone."""
        if not any(key.startswith("module.") for key in state_dict):
            return self.module.load_state_dict(state_dict, *arguments, **options)
        return super().load_state_dict(state_dict, *arguments, **options)

    def _check(self, trained: Mapping[str, torch.nn.Parameter]) -> None:
        if not trained:
            expected = "a module with parameters that need gradients"
            raise usage_error("DistributedDataParallel", expected, "one without", "it needs no wrapper")
        for name, one in trained.items():
            if one.device.type not in ("cpu", "cuda"):
                received, advice = f"{name!r} on {one.device}", "move the module with .cpu() or .cuda()"
                expected = "parameters in host or CUDA memory"
                raise usage_error("DistributedDataParallel", expected, received, advice)

    def _check_unchanged(self) -> None:
        for name, one in self.module.named_parameters():
            if not one.requires_grad:
                continue
            _, *before = self._trained.get(id(one), (None,))
            if before != [one.dtype, one.device]:
                change = "which was added, replaced or unfrozen since"
                if before:
                    change = f"which is now {one.dtype} on {one.device}, and was {before[0]} on {before[1]}"
                raise usage_error(
                    "DistributedDataParallel",
                    "the parameters that it was made with",
                    f"{name!r}, {change}",
                    "wrap the module after such a change: model = DistributedDataParallel(model.module)",
                )

    @torch.no_grad()
    def _arrived(self, bucket: Bucket, place: int) -> None:
        if not self._under_way:
            self._under_way = True
            # Runs at the end of this backward pass, whichever part of the graph the pass covers.
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(self._finish)
        bucket.take(place)
        self._send(only_complete=True)

    def _send(self, only_complete: bool) -> None:
        """Sends buckets, in the same order on all workers."""
        while self._next < len(self._buckets):
            bucket = self._buckets[self._next]
            if only_complete and bucket.missing:
                return
            bucket.reduce(self._group)
            self._next += 1

    @untraced
    @torch.no_grad()
    def _finish(self) -> None:
        try:
            self._send(only_complete=False)
            for bucket in self._buckets:
                bucket.finish()
        finally:
            self._under_way = False
            self._next = 0
            # The factor stays: with reentrant checkpoints a backward pass averages several times. Averaging
            # values that are already averages changes nothing, because the mean of all workers' factors is 1.
            self._weighed = True
            for bucket in self._buckets:
                bucket.begin()


@untraced
def _arrived(wrapper: weakref.ref[DistributedDataParallel], number: int, place: int, _: torch.Tensor) -> None:
    """The hook for a complete gradient; it holds only a weak reference to the wrapper."""
    model = wrapper()
    if model is not None and model._averages:
        model._arrived(model._buckets[number], place)


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
