"""The calls of a process group as PyTorch numbers and titles them, for the profiler and other observers."""

from __future__ import annotations

from enum import Enum

PREFIX = "unisono"
"""What the titles of the profiler's events begin with."""


class Operation(Enum):
    """A call: its number in ``c10d::OpType``, and the title of its events, as other backends have it."""

    BROADCAST = (0, "broadcast")
    ALL_REDUCE = (1, "all_reduce")
    ALL_REDUCE_COALESCED = (2, "all_reduce_coalesced")
    REDUCE = (3, "reduce")
    ALL_GATHER = (4, "all_gather")
    ALL_GATHER_SINGLE = (5, "_all_gather_base")
    ALL_GATHER_COALESCED = (6, "all_gather_coalesced")
    GATHER = (7, "gather")
    SCATTER = (8, "scatter")
    REDUCE_SCATTER = (9, "reduce_scatter")
    ALL_TO_ALL_SINGLE = (10, "all_to_all_single")
    ALL_TO_ALL = (11, "all_to_all")
    SEND = (12, "send")
    RECV = (13, "recv")
    RECV_ANY = (14, "recvAnySource")
    BARRIER = (15, "barrier")
    REDUCE_SCATTER_SINGLE = (16, "_reduce_scatter_base")
    ALL_REDUCE_SPARSE = (18, "sparse_all_reduce")
    REDUCE_SCATTER_COALESCED = (19, "reduce_scatter_tensor_coalesced")
    ALL_GATHER_SINGLE_COALESCED = (20, "all_gather_into_tensor_coalesced")

    @property
    def number(self) -> int:
        """The number."""
        return self.value[0]

    @property
    def title(self) -> str:
        """The title of the profiler's events."""
        return f"{PREFIX}:{self.value[1]}"
