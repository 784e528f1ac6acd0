"""Embeddings whose rows are in a table that all workers share."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from unisono.errors import usage_error
from unisono.torch.shared_rows import SharedRows
from unisono.torch.tracing import untraced

_MODES = ("sum", "mean", "max")


class Embedding(SharedRows):
    """`torch.nn.Embedding` over a table: forward looks rows up, backward adds their gradients to the table.

    Every rank makes the module, like a table. After each backward pass, the gradients of each row are summed
    and are one step of the table's updater; there is no `Parameter` and no optimizer for them. With
    consistency "bsp:mean", workers take the steps of one worker with their batches together, as
    `DistributedDataParallel` does for other parameters.

    `state_dict` has no entry for the table: `unisono.save` saves it, and `weight` is a copy of all rows.

    Example:
        >>> import torch, unisono as uni
        >>> import unisono.torch
        >>> world = uni.init()
        >>> words = unisono.torch.Embedding(1000, 2, updater="adagrad", lr=0.5, init=0)
        >>> words(torch.tensor([[7, 9], [7, 7]])).sum().backward()
        >>> words.weight[7]
        tensor([-0.5000, -0.5000])
    """

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        updater: str = "adagrad",
        lr: float | None = None,
        init: Any = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        """Makes the module and its table, together with all other ranks.

        Args:
            num_embeddings: The number of rows; None for any ids of 64 bits, whose rows are in a
                `KeyValueTable` and take memory from their first step on.
            embedding_dim: The number of values of a row.
            padding_idx: An id whose row is zero and is never looked up or changed.
            updater: The rule of a step, of those that take gradients ("adagrad", "adam", "ftrl" and so on),
                or "sgd", "momentum" or "nesterov", for which gradients are multiplied by `lr`.
            lr: The learning rate; by default the updater's. The attribute `lr` may change from step to step.
            init: The initial rows, as for `MatrixTable`, or a tensor of all rows; by default normally
                distributed with deviation 1, as in PyTorch, with a seed that the name determines.
            name: A unique name of the table; by default "embedding-1" and so on.
            dtype: The type of the rows; by default PyTorch's default type.
            options: Further arguments of `MatrixTable` or `KeyValueTable`, such as `consistency`, `device`,
                `compression`, and the updater's options.
        """
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            updater=updater,
            lr=lr,
            init=init,
            name=name,
            dtype=dtype,
            options=options,
        )

    @untraced
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Looks rows up.

        Args:
            input: Ids of any integer type and shape, which may repeat.

        Returns:
            A tensor of the shape of `input` followed by that of a row.
        """
        ids, positions = self._without_padding(self._ids(input))
        rows = self._rows(ids)
        if positions is not None:
            rows = rows.new_zeros(input.numel(), self.embedding_dim).index_copy(0, positions, rows)
        return rows.view(*input.shape, self.embedding_dim)


class EmbeddingBag(SharedRows):
    """`torch.nn.EmbeddingBag` over a table: sums, means or maxima of the rows of each bag.

    All that `Embedding` states about rows and gradients applies.

    Example:
        >>> import torch, unisono as uni
        >>> import unisono.torch
        >>> world = uni.init()
        >>> bags = unisono.torch.EmbeddingBag(1000, 2, mode="sum", updater="sgd", lr=0.1, init=1)
        >>> bags(torch.tensor([7, 9, 7]), torch.tensor([0, 2])).sum().backward()
        >>> bags(torch.tensor([[7, 7], [9, 3]]))
        tensor([[1.6000, 1.6000],
                [1.9000, 1.9000]], grad_fn=<EmbeddingBagBackward0>)
    """

    def __init__(
        self,
        num_embeddings: int | None,
        embedding_dim: int,
        *,
        mode: str = "mean",
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        updater: str = "adagrad",
        lr: float | None = None,
        init: Any = None,
        name: str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        """Makes the module and its table, together with all other ranks.

        Args:
            num_embeddings: As for `Embedding`, like all arguments that are not described here.
            embedding_dim: The number of values of a row.
            mode: What a bag becomes: "sum", "mean" or "max" of its rows.
            include_last_offset: Whether `offsets` ends with the number of ids.
            padding_idx: An id that counts in no bag.
            updater: The rule of a step.
            lr: The learning rate.
            init: The initial rows.
            name: A unique name of the table.
            dtype: The type of the rows.
            options: Further arguments of the table.
        """
        if mode not in _MODES:
            raise usage_error("EmbeddingBag", "sum, mean or max as mode", repr(mode), "write one of these")
        super().__init__(
            num_embeddings,
            embedding_dim,
            padding_idx,
            updater=updater,
            lr=lr,
            init=init,
            name=name,
            dtype=dtype,
            options=options,
        )
        self.mode = mode
        self.include_last_offset = include_last_offset

    @untraced
    def forward(
        self,
        input: torch.Tensor,
        offsets: torch.Tensor | None = None,
        per_sample_weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Combines the rows of each bag.

        Args:
            input: Ids of any integer type: with two axes, each row is a bag; with one, `offsets` has the
                bags.
            offsets: The position in `input` at which each bag begins.
            per_sample_weights: For mode "sum", a factor for each id; it may need a gradient.

        Returns:
            One row for each bag; that of an empty bag is zero.
        """
        ids, positions = self._without_padding(self._ids(input))
        rows = self._rows(ids)
        # Each id has a row of its own here, so PyTorch's function finds the row of the i-th id at i. Ids that
        # are padding have a row of zeros at the end, which is also there if there are no ids.
        where = torch.arange(ids.numel(), device=ids.device)
        if positions is not None:
            where = where.new_full((input.numel(),), ids.numel()).index_copy(0, positions, where)
        has_end = positions is not None or ids.numel() == 0
        if has_end:
            rows = torch.cat([rows, rows.new_zeros(1, self.embedding_dim)])
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.to(rows.dtype)
        return functional.embedding_bag(
            where.view(input.shape),
            rows,
            None if offsets is None else offsets.long(),
            mode=self.mode,
            per_sample_weights=per_sample_weights,
            include_last_offset=self.include_last_offset,
            padding_idx=ids.numel() if has_end else None,
        )

    def extra_repr(self) -> str:
        """The sizes, the mode and the updater."""
        return f"{super().extra_repr()}, mode={self.mode!r}"
