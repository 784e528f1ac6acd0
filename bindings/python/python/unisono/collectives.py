"""The collectives: methods of groups, and functions on the default world."""

from __future__ import annotations

from unisono.messages import recv, send, sendrecv
from unisono.movement import Movement, all_gather, barrier, broadcast, gather, scatter
from unisono.objects import (
    Objects,
    all_gather_object,
    broadcast_object,
    gather_object,
    recv_object,
    scatter_object,
    send_object,
)
from unisono.redistribution import Redistribution, all_to_all
from unisono.reductions import Reductions, all_reduce, exscan, reduce, reduce_scatter, scan


class Collectives(Movement, Redistribution, Reductions, Objects):
    """The collectives of a group."""


__all__ = [
    "all_gather",
    "all_gather_object",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "broadcast_object",
    "exscan",
    "gather",
    "gather_object",
    "recv",
    "recv_object",
    "reduce",
    "reduce_scatter",
    "scan",
    "scatter",
    "scatter_object",
    "send",
    "send_object",
    "sendrecv",
]
