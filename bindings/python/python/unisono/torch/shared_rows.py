"""Rows of a table as weights of a PyTorch module: lookups, and gradients for the table's updater."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

import torch
from torch.autograd.function import once_differentiable

from unisono.errors import usage_error
from unisono.pending import Pending
from unisono.tables import KeyValueTable, MatrixTable, normal
from unisono.worlds import World, world

# Updaters whose deltas are gradients times the learning rate.
_STEPS = ("sgd", "momentum", "nesterov", "nesterov_momentum")
# Updaters that do not descend along a gradient, or that undo a multiplication by the rate.
_REJECTED = (
    "add",
    "default",
    "dcasgd",
    "dcasgda",
    "multiverso_adagrad",
    "multiverso_momentum",
    "momentum_sgd",
)
# Arguments of PyTorch's modules that a table does not have, with what to do instead.
_UNSUPPORTED = {
    "max_norm": "normalise the rows that forward returns",
    "norm_type": "leave it out, as max_norm",
    "scale_grad_by_freq": "divide the loss of a row's samples by their number",
    "_weight": "pass the tensor as init",
    "_freeze": "call requires_grad_(False)",
}
_MOST_PREFETCHED = 8
# Autograd's graph-task id outside of backward passes.
_NO_PASS = -1

_made: WeakKeyDictionary[World, int] = WeakKeyDictionary()


def _next_name() -> str:
    _made[world()] = _made.get(world(), 0) + 1
    return f"embedding-{_made[world()]}"


class _Lookup(torch.autograd.Function):
    """The rows of a list; backward keeps their gradients for the end of the pass."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, module: SharedRows, ids: torch.Tensor) -> torch.Tensor:
        ctx.module = module
        # A lookup within a backward pass, as of a reentrant checkpoint, is a part of that pass.
        ctx.enclosing = torch._C._current_graph_task_id()
        if ctx.enclosing != _NO_PASS:
            module._current_pass()
        # PyTorch rejects a backward pass after ids were overwritten.
        ctx.save_for_backward(ids)
        return module._fetch(ids)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, None, None]:
        (ids,) = ctx.saved_tensors
        ctx.module._collect(ids, gradient, ctx.enclosing)
        return None, None, None


class _BackwardPass:
    """The gradients of a backward pass. Only the pass refers to it, so a pass that fails frees them."""

    def __init__(self) -> None:
        self.collected: list[tuple[torch.Tensor, torch.Tensor, int]] = []
        """Ids, their gradients, and the graph-task id of the pass within which they were looked up."""


class SharedRows(torch.nn.Module):
    """The common part of `Embedding` and `EmbeddingBag`: a table, its lookups and its gradients."""

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        padding_idx: int | None,
        *,
        updater: str,
        lr: float | None,
        init: Any,
        name: str | None,
        dtype: torch.dtype | None,
        options: dict[str, Any],
    ) -> None:
        super().__init__()
        kind = type(self).__name__
        options.pop("sparse", None)  # gradients always are rows
        for argument, advice in _UNSUPPORTED.items():
            given = options.pop(argument, None)
            if given is not None and given is not False:
                raise usage_error(kind, "arguments that a table supports", argument, advice)
        if updater in _REJECTED:
            advice = 'choose one that takes gradients, such as "adagrad", or "sgd"'
            raise usage_error(kind, "an updater that descends along gradients", repr(updater), advice)
        if updater in _STEPS and lr is None:
            raise usage_error(kind, f"lr for the updater {updater!r}", "none", "pass lr, such as lr=0.1")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = self._checked_padding(padding_idx)
        self._scales = updater in _STEPS
        self._has_lr = updater != "ftrl"
        self.lr = lr
        name = _next_name() if name is None else name
        if init is None:
            # The same seed on every rank, also on a restarted one; another one for every table.
            init = normal(0, 1, seed=zlib.crc32(name.encode()))
        if isinstance(init, torch.Tensor):
            init = init.detach()
        if lr is not None and not self._scales:
            options["lr"] = lr
        options |= {
            "updater": updater,
            "init": init,
            "name": name,
            "dtype": dtype or torch.get_default_dtype(),
        }
        self.table: MatrixTable | KeyValueTable = (
            KeyValueTable(embedding_dim, **options)
            if num_embeddings is None
            else MatrixTable(num_embeddings, embedding_dim, **options)
        )
        """The table, for `save`, `flush`, `tick` and so on."""
        self._dtype: torch.dtype = options["dtype"]
        self._trains = True
        self._syncs = True
        self._prefetched: deque[tuple[torch.Tensor, Pending[Any]]] = deque()
        # Backward passes in progress, by autograd's graph-task id; they may nest or run concurrently.
        self._passes: WeakValueDictionary[int, _BackwardPass] = WeakValueDictionary()
        # Ids and gradients of complete passes inside `no_sync`.
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []

    def _checked_padding(self, index: int | None) -> int | None:
        rows, kind = self.num_embeddings, type(self).__name__
        if index is None or rows is None:
            return index
        if not -rows <= index < rows:
            expected = f"padding_idx from {-rows} to {rows - 1}"
            raise usage_error(kind, expected, index, "it is the id of a row")
        return index % rows

    @property
    def lr(self) -> float | None:
        """The learning rate of the next steps; None for that of the table. A schedule may set it."""
        return self._lr

    @lr.setter
    def lr(self, lr: float | None) -> None:
        call = f"{type(self).__name__}.lr"
        if lr is not None and not self._has_lr:
            raise usage_error(call, "no lr for the updater 'ftrl'", lr, "pass alpha when you make the module")
        # The others are options of the table's updater, which rejects 0.
        if lr is not None and not (lr > 0 or (lr == 0 and self._scales)):
            raise usage_error(call, "a rate above 0", lr, "to freeze the rows, call requires_grad_(False)")
        self._lr = lr

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Whether backward passes change the table.

        Rows are not parameters, so the method of a module that contains this one does not freeze them;
        `model.apply(lambda one: one.requires_grad_(False))` does.
        """
        self._trains = requires_grad
        return super().requires_grad_(requires_grad)

    @property
    def weight(self) -> torch.Tensor:
        """A copy of all rows, in host memory; that of `padding_idx` is zero. In `bsp` it counts as a get."""
        if isinstance(self.table, KeyValueTable):
            raise usage_error("weight", "a table of rows", "one of keys", "use module.table.arrays()")
        rows = torch.empty(self.table.shape, dtype=self._dtype)
        self.table.get(out=rows)
        if self.padding_idx is not None:
            rows[self.padding_idx] = 0
        return rows

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulates gradients locally; the next pass outside the context adds what has accumulated.

        Example:
            >>> import torch, unisono as uni
            >>> import unisono.torch
            >>> world = uni.init()
            >>> rows = unisono.torch.Embedding(10, 2, updater="sgd", lr=1.0, init=0)
            >>> with rows.no_sync():
            ...     rows(torch.tensor([3])).sum().backward()
            >>> rows(torch.tensor([3])).sum().backward()
            >>> rows(torch.tensor([3])).detach()
            tensor([[-2., -2.]])
        """
        before, self._syncs = self._syncs, False
        try:
            yield
        finally:
            self._syncs = before

    def prefetch(self, input: torch.Tensor) -> None:
        """Starts to look up the rows of a later batch, in the background.

        The next forward pass with equal ids uses them. They may miss the steps that follow this call, as rows
        that another worker reads at this moment do. With `bsp`, this is the get of that forward pass.
        `discard_prefetched` is for batches that never arrive.

        Args:
            input: The ids that `forward` will get.
        """
        if len(self._prefetched) >= _MOST_PREFETCHED:
            advice = "make a forward pass with the ids of each call, or call discard_prefetched()"
            received = f"{_MOST_PREFETCHED + 1} before a forward pass with the ids of one"
            raise usage_error("prefetch", f"at most {_MOST_PREFETCHED} batches", received, advice)
        ids, _ = self._without_padding(self._ids(input))
        on_host = torch.empty_like(ids, device="cpu").copy_(ids)
        self._prefetched.append((on_host, self.table.get_async(on_host)))

    def discard_prefetched(self) -> None:
        """Discards the rows that were prefetched and not used, for instance at the end of an epoch."""
        while self._prefetched:
            self._prefetched.popleft()[1].wait()

    def _ids(self, input: torch.Tensor) -> torch.Tensor:
        """The ids as a flat tensor of int64."""
        kind = type(self).__name__
        if not isinstance(input, torch.Tensor):
            raise usage_error(kind, "ids in a tensor", type(input).__name__, "pass torch.tensor(ids)")
        if input.is_floating_point() or input.is_complex() or input.dtype == torch.bool:
            raise usage_error(kind, "ids that are integers", input.dtype, "convert them: ids.long()")
        ids = input.detach().reshape(-1).to(torch.int64)
        if input.dtype == torch.uint64 and bool((ids < 0).any()):
            raise usage_error(kind, f"ids up to {2**63 - 1}", "larger ones", "hash them to 63 bits")
        return ids

    def _without_padding(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The ids without padding, and their positions if there is any."""
        if self.padding_idx is None:
            return ids, None
        kept = ids != self.padding_idx
        return (ids, None) if bool(kept.all()) else (ids[kept], kept.nonzero().squeeze(1))

    def _rows(self, ids: torch.Tensor) -> torch.Tensor:
        """The rows of these ids, part of the graph if the table is trained."""
        if not (self._trains and torch.is_grad_enabled()):
            return self._fetch(ids)
        anchor = torch.empty(0, requires_grad=True)
        rows: torch.Tensor = _Lookup.apply(anchor, self, ids)
        return rows

    def _fetch(self, ids: torch.Tensor) -> torch.Tensor:
        wanted = ids.cpu() if self._prefetched or isinstance(self.table, KeyValueTable) else ids
        for position, (prefetched, pending) in enumerate(self._prefetched):
            if torch.equal(prefetched, wanted):
                del self._prefetched[position]
                rows: torch.Tensor = pending.wait()
                return rows.to(ids.device)
        rows = self.table.get(wanted if isinstance(self.table, KeyValueTable) else ids)
        return rows.to(ids.device)

    def _current_pass(self) -> _BackwardPass:
        task = torch._C._current_graph_task_id()
        current = self._passes.get(task)
        if current is None:
            current = self._passes[task] = _BackwardPass()
            engine: Any = torch.autograd.Variable._execution_engine
            engine.queue_callback(partial(self._finish_pass, task, current))
        return current

    def _collect(self, ids: torch.Tensor, gradient: torch.Tensor, enclosing: int) -> None:
        """Keeps gradients until the end of the pass: a row that is used several times gets one step."""
        self._current_pass().collected.append((ids, gradient.detach(), enclosing))

    @torch.no_grad()
    def _finish_pass(self, task: int, ended: _BackwardPass) -> None:
        del self._passes[task]
        pairs = []
        for ids, gradient, enclosing in ended.collected:
            outer = self._passes.get(enclosing)
            if self._syncs and outer is None:
                pairs.append((ids, gradient))
                continue
            # The graph may reuse the memory of a gradient, and the caller that of ids.
            copies = ids.clone(), gradient.clone()
            if outer is None:
                self._kept.append(copies)
            else:
                outer.collected.append((*copies, _NO_PASS))
        if pairs:
            pairs, self._kept = self._kept + pairs, []
            self._push(*(pairs[0] if len(pairs) == 1 else map(torch.cat, zip(*pairs, strict=True))))

    def _push(self, ids: torch.Tensor, gradient: torch.Tensor) -> None:
        options: dict[str, Any] = {}
        if self.lr is not None and self._scales:
            gradient = gradient * self.lr
        elif self.lr is not None:
            options["lr"] = self.lr
        gradient = gradient.to(self._dtype).contiguous()
        if isinstance(self.table, KeyValueTable):
            self.table.add(ids.cpu(), gradient.cpu(), **options)
        else:
            self.table.add(gradient, ids, **options)

    def extra_repr(self) -> str:
        """The sizes and the updater."""
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}, updater={self.table.updater}"

    def __getstate__(self) -> Any:
        raise usage_error(
            "copy or pickle",
            "a module without tables",
            f"{type(self).__name__} of table {self.table.name!r}, which all workers share",
            "save it with unisono.save, or copy its `weight`",
        )
