"""Collectives and messages of Python objects, which are pickled: methods of groups, and functions."""

from __future__ import annotations

import io
import pickle
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from unisono.array_calls import ArrayCalls
from unisono.default_world import on_world
from unisono.errors import UsageError

Values = np.ndarray[Any, Any]

# The first number of every header: ranks of which one makes another call do not unpickle its array.
_MARK = 0x6F626A656374  # "object"


class Deadline:
    """The time that is left for the steps of one call."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout
        self._started = time.monotonic()

    @property
    def left(self) -> float | None:
        """Seconds for the next step; None is the group's default."""
        if not isinstance(self._timeout, (int, float)) or self._timeout <= 0:
            return self._timeout  # reported by the first step
        return max(self._timeout - (time.monotonic() - self._started), 1e-3)


class Objects(ArrayCalls):
    """The collectives and messages of Python objects of a group.

    Objects are pickled, and unpickling can run any code: use them only among ranks that you trust. Every rank
    of a job runs as the same user, so this is a question of where the objects come from.

    A message is sent in two steps: threads that send to one rank at the same time use different tags.
    """

    members: tuple[int, ...]

    def broadcast_object(self, value: Any = None, root: int = 0, *, timeout: float | None = None) -> Any:
        """Sends the root's object to every rank. It is pickled: use it only among ranks that you trust.

        Args:
            value: At the root, any object that can be pickled; ignored on the others.
            root: The rank that has the object.
            timeout: Seconds until the call times out.

        Returns:
            The object itself at the root, a copy on the others.

        Raises:
            UsageError: The object cannot be pickled; on every rank. It cannot be unpickled; on such a rank.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> uni.broadcast_object({"seed": 3} if world.rank == 0 else None)
            {'seed': 3}
        """
        call, deadline = "broadcast_object", Deadline(timeout)
        is_root = root == self.rank
        packed = self._packed(call, [value]) if is_root else []
        header = np.array([_MARK, packed[0].payload.size if is_root else 0, _has_failed(packed)], np.int64)
        self._native.broadcast(header, root, True, deadline.left)
        self._check(call, header, root)
        payload = packed[0].payload if is_root else np.empty(header[1], np.uint8)
        self._native.broadcast(payload, root, True, deadline.left)
        if header[2]:
            raise self._not_packed(call, {root: payload.tobytes().decode()}, packed)
        return value if is_root else self._unpacked(call, payload, root)

    def all_gather_object(self, value: Any, *, timeout: float | None = None) -> list[Any]:
        """Gathers one object of every rank. They are pickled: use it only among ranks that you trust.

        Args:
            value: Any object that can be pickled, of any size.
            timeout: Seconds until the call times out.

        Returns:
            The objects of all ranks, in rank order.

        Raises:
            UsageError: An object cannot be pickled; on every rank. One cannot be unpickled; on such a rank.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> uni.all_gather_object("a" * (world.rank + 1))
            ['a']
        """
        call, deadline = "all_gather_object", Deadline(timeout)
        packed = self._packed(call, [value])
        sizes = self._sizes(call, packed, deadline)
        joined = self._native.all_gather(packed[0].payload, True, None, True, deadline.left)
        return [self._unpacked(call, part, rank) for rank, part in _parts(joined, sizes)]

    def gather_object(self, value: Any, root: int = 0, *, timeout: float | None = None) -> list[Any] | None:
        """Gathers one object of every rank at the root. They are pickled: use it only among ranks you trust.

        Args:
            value: Any object that can be pickled, of any size.
            root: The rank that gets the objects.
            timeout: Seconds until the call times out.

        Returns:
            At the root, the objects of all ranks in rank order; None on the others.

        Raises:
            UsageError: An object cannot be pickled; on every rank. One cannot be unpickled; on such a rank.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> uni.gather_object({"rank": world.rank})
            [{'rank': 0}]
        """
        call, deadline = "gather_object", Deadline(timeout)
        packed = self._packed(call, [value])
        sizes = self._sizes(call, packed, deadline)
        joined = self._native.gather(packed[0].payload, root, True, None, True, deadline.left)
        if self.rank != root:
            return None
        return [self._unpacked(call, part, rank) for rank, part in _parts(joined, sizes)]

    def scatter_object(
        self, values: Sequence[Any] | None = None, root: int = 0, *, timeout: float | None = None
    ) -> Any:
        """Gives every rank one of the root's objects. They are pickled: use it only among ranks you trust.

        Args:
            values: At the root, one object for each rank; ignored on the others.
            root: The rank that has the objects.
            timeout: Seconds until the call times out.

        Returns:
            This rank's object.

        Raises:
            UsageError: An object cannot be pickled, or there is not one for each rank; on every rank. The
                object cannot be unpickled; on this rank.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> uni.scatter_object(["first"] if world.rank == 0 else None)
            'first'
        """
        call, deadline = "scatter_object", Deadline(timeout)
        is_root = root == self.rank
        packed = self._packed(call, values, self.size) if is_root else []
        failed = _has_failed(packed)
        joined = np.empty(0, np.uint8)
        if packed and not failed:
            joined = self._counted(np.concatenate, [one.payload for one in packed])
        header = np.zeros(3 + self.size, np.int64)
        if is_root:
            header[:3] = _MARK, packed[0].payload.size if failed else 0, failed
            header[3:] = 0 if failed else [one.payload.size for one in packed]
        self._native.broadcast(header, root, True, deadline.left)
        self._check(call, header, root)
        if header[2]:
            text = packed[0].payload if is_root else np.empty(header[1], np.uint8)
            self._native.broadcast(text, root, True, deadline.left)
            raise self._not_packed(call, {root: text.tobytes().decode()}, packed)
        sizes: list[int] = header[3:].tolist()
        splits = sizes if is_root else [0] * self.size
        received = [sizes[self.rank] if source == root else 0 for source in range(self.size)]
        part = self._native.all_to_all(joined, (splits, received), None, True, deadline.left)
        return self._unpacked(call, np.asarray(part), root)

    def send_object(self, value: Any, to: int, tag: int = 0, *, timeout: float | None = None) -> None:
        """Sends an object to one rank, which calls `recv_object`.

        Args:
            value: Any object that can be pickled.
            to: The rank that receives it.
            tag: Identifies the message if several are in flight: 0 or more.
            timeout: Seconds until the call times out.

        Raises:
            UsageError: The object cannot be pickled. The receiver raises it, too.

        Example:
            >>> import threading, unisono as uni
            >>> world = uni.init()
            >>> sender = threading.Thread(target=uni.send_object, args=[{"step": 7}, world.rank])
            >>> sender.start()
            >>> uni.recv_object(source=world.rank)
            {'step': 7}
            >>> sender.join()
        """
        call, deadline = "send_object", Deadline(timeout)
        packed = _pack(value)
        header = np.array([_MARK, packed.payload.size, packed.failed], np.int64)
        self._native.send(header, to, tag, True, deadline.left)
        self._native.send(packed.payload, to, tag, True, deadline.left)
        if header[2]:
            raise self._not_packed(call, {self.rank: packed.payload.tobytes().decode()}, [packed])

    def recv_object(self, source: int, tag: int = 0, *, timeout: float | None = None) -> Any:
        """Receives an object from one rank, which calls `send_object`.

        It is unpickled, which can run any code: receive objects only from ranks that you trust.

        Args:
            source: The rank that sends it.
            tag: Identifies the message if several are in flight: 0 or more.
            timeout: Seconds until the call times out.

        Returns:
            The object; an example is at `send_object`.

        Raises:
            UsageError: The sender could not pickle its object, or it cannot be unpickled here.
        """
        call, deadline = "recv_object", Deadline(timeout)
        header = np.zeros(3, np.int64)
        self._native.recv(header, source, tag, True, deadline.left)
        self._check(call, header, source)
        payload = np.empty(header[1], np.uint8)
        self._native.recv(payload, source, tag, True, deadline.left)
        if header[2]:
            raise self._not_packed(call, {source: payload.tobytes().decode()}, [])
        return self._unpacked(call, payload, source)

    def _packed(self, call: str, values: Sequence[Any] | None, count: int = 1) -> list[Packed]:
        """Pickles objects; a single failure if one cannot be pickled, or if their number is wrong.

        An exception that is no error of the object, such as Ctrl-C, counts as the call.
        """
        try:
            if values is None or len(values) != count:
                received = "None" if values is None else f"{len(values)} objects"
                return [_failure(f"expected {count} objects, one for each rank, received {received}")]
            packed = []
            for value in values:
                packed.append(_pack(value))
                if packed[-1].failed:
                    return packed[-1:]
            return packed
        except TypeError as error:
            received = f"an object of type {type(values).__name__}"
            return [_failure(f"expected {count} objects, one for each rank, received {received}", error)]
        except BaseException:
            self._native.skip_call()
            raise

    def _sizes(self, call: str, packed: Sequence[Packed], deadline: Deadline) -> list[int]:
        """The sizes of all ranks' parts. If a rank has a failure instead, every rank raises it."""
        mine = np.array([_MARK, packed[0].payload.size, _has_failed(packed)], np.int64)
        headers = np.asarray(self._native.all_gather(mine, False, None, True, deadline.left))
        for rank, header in enumerate(headers):
            self._check(call, header, rank)
        sizes: list[int] = headers[:, 1].tolist()
        if headers[:, 2].any():
            # Only what failed is sent: the other objects may be large.
            sizes = [size if failed else 0 for size, failed in headers[:, 1:].tolist()]
            text = packed[0].payload if mine[2] else np.empty(0, np.uint8)
            joined = self._native.all_gather(text, True, None, True, deadline.left)
            texts = {rank: part.tobytes().decode() for rank, part in _parts(joined, sizes) if sizes[rank]}
            raise self._not_packed(call, texts, packed)
        return sizes

    def _check(self, call: str, header: Values, source: int) -> None:
        if header[0] != _MARK:
            raise UsageError(
                f"rank {self.members[self.rank]}: {call}: expected an object of rank {self.members[source]}, "
                "received an array; make the same calls on all ranks"
            )

    def _not_packed(self, call: str, texts: dict[int, str], packed: Sequence[Packed]) -> UsageError:
        """The error of all ranks; on a rank that failed, its cause is the error there."""
        rank = self.rank if self.rank in texts else min(texts)
        place = "" if rank == self.rank else f" on rank {self.members[rank]}:"
        error = UsageError(f"rank {self.members[self.rank]}: {call}:{place} {texts[rank]}")
        error.rank, error.operation = self.members[self.rank], call
        if _has_failed(packed):
            error.__cause__ = packed[0].cause
        return error

    def _unpacked(self, call: str, payload: Any, source: int) -> Any:
        try:
            return pickle.loads(payload)
        except Exception as error:
            raise UsageError(
                f"rank {self.members[self.rank]}: {call}: expected an object of rank {self.members[source]} "
                f"that can be unpickled here, received {type(error).__name__}: {error}; import its class on "
                "this rank, too"
            ) from error


class Packed(NamedTuple):
    """A pickled object or, if it failed, the text of the error."""

    payload: Values
    failed: bool = False
    cause: BaseException | None = None


def _pack(value: Any) -> Packed:
    try:
        buffer = io.BytesIO()
        pickle.dump(value, buffer, 5)
        # Writable, as the root's array of a broadcast must be.
        return Packed(np.frombuffer(buffer.getbuffer(), np.uint8))
    except Exception as error:
        expected = f"expected an object that can be pickled, received one of type {type(value).__name__}"
        return _failure(f"{expected}: {type(error).__name__}: {error}", error)


def _failure(text: str, cause: BaseException | None = None) -> Packed:
    return Packed(np.frombuffer(bytearray(text.encode(errors="replace")), np.uint8), True, cause)


def _has_failed(packed: Sequence[Packed]) -> bool:
    return bool(packed) and packed[0].failed


def _parts(joined: Any, sizes: Sequence[int]) -> list[tuple[int, Any]]:
    """The part of each rank in the parts of all ranks."""
    joined, ends = np.asarray(joined), np.cumsum(sizes)
    return [
        (rank, joined[end - size : end]) for rank, (size, end) in enumerate(zip(sizes, ends, strict=True))
    ]


all_gather_object = on_world(Objects.all_gather_object)
broadcast_object = on_world(Objects.broadcast_object)
gather_object = on_world(Objects.gather_object)
recv_object = on_world(Objects.recv_object)
scatter_object = on_world(Objects.scatter_object)
send_object = on_world(Objects.send_object)
