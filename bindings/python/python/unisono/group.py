"""A group of ranks: its members, smaller groups, and its calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from unisono import _native
from unisono.arrays import take_over
from unisono.collectives import Collectives
from unisono.messages import Messages
from unisono.on_device import current

E = TypeVar("E", bound=Exception)


class Group(Collectives, Messages):
    """Ranks that work together; every member makes the same calls in the same order.

    Ranks in arguments (`root`, `to`, `source`) count inside the group. Arrays are NumPy arrays, PyTorch
    tensors, or any other arrays that support DLPack: floating types (also of 8 bits and bfloat16), integers,
    bool, complex64 and complex128. They are used without a copy; an array that a call writes must be
    contiguous and writable. PyTorch counts the write like one of its own: autograd rejects a backward pass
    that needs the former value.

    Arrays in CUDA memory (of PyTorch, CuPy, JAX) are used without a copy, too: a call is ordered after the
    work on the current stream, and results are arrays of the same library on the same device. In one call,
    the arrays of all ranks are in CUDA memory, or none are.

    Every call takes `timeout` (seconds; the default is the world's) and every verb on arrays but `sendrecv`
    takes `wait`: with ``wait=False`` it runs in the background and the call returns a `Pending` at once.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> group = world.group([0])
        >>> group.rank, group.size, group.members
        (0, 1, (0,))
    """

    def __init__(self, native: _native.Group) -> None:
        self._native = native
        self.rank: int = native.rank
        """This process's rank in the group."""
        self.size: int = native.size
        """The number of ranks in the group."""
        self.members: tuple[int, ...] = native.members
        """The members' ranks in the world."""

    def __repr__(self) -> str:
        return f"<unisono.Group {self._native.name}, rank {self.rank} of {self.size}>"

    def _new_array(self, memory: Any | None, like: object) -> Any:
        """The new array that a collective returns, of the caller's library; None if it returns none."""
        return None if memory is None else take_over(memory, like)

    def _rejected(self, error: E) -> E:
        """The error of a collective that was rejected; the call counts: the other ranks may be making it."""
        self._native.skip_call()
        return error

    def group(self, members: Sequence[int], *, timeout: float | None = None) -> Group | None:
        """Makes a smaller group.

        Args:
            members: The members' ranks in this group, each once; all members pass the same list. Other ranks
                need not call.
            timeout: Seconds until the call times out; the new group inherits this group's default.

        Returns:
            The new group, or None on a rank that is not a member.
        """
        native = self._native.subgroup(members, timeout)
        return None if native is None else Group(native)

    def split(self, color: int | None, key: int = 0, *, timeout: float | None = None) -> Group | None:
        """Splits the group: ranks that pass the same color form a new group. Every rank calls it.

        Args:
            color: The new group to join, 0 or more; None joins none.
            key: Ranks are ordered by their keys, then by their old ranks.
            timeout: Seconds until the call times out.

        Returns:
            The new group, or None without a color.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> world.split(world.rank % 2).members
            (0,)
        """
        native = self._native.split(color, key, timeout)
        return None if native is None else Group(native)

    def revoke(self) -> None:
        """Ends the use of this group on all its ranks, as `MPIX_Comm_revoke` does; one rank alone calls it.

        For a rank that cannot make a call in which the others wait for it: calls on this group, including
        those in progress, raise `PeerLost` on the other ranks. Groups made before remain usable.

        Example:
            >>> import unisono as uni
            >>> group = uni.init().group([0])
            >>> group.revoke()
        """
        self._native.revoke()

    def cuda_path(self, device: int | None = None, *, timeout: float | None = None) -> str:
        """How arrays in CUDA memory are transferred between the ranks. Every rank calls it.

        Args:
            device: The number of this rank's device; by default the current one of its library.
            timeout: Seconds until the call times out.

        Returns:
            "direct" between threads of one process; "ipc" if processes of a host map each other's memory;
            "nccl" if each rank has its own device; "staged" through host memory.
        """
        return self._native.cuda_path(self._counted(current) if device is None else device, timeout)
