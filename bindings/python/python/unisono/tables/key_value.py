"""A table that maps keys to values, and grows as new keys are added, up to a limit if it has one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from unisono import _native
from unisono.arrays import Array, take_over, written
from unisono.errors import UsageError
from unisono.pending import Pending
from unisono.tables import convert
from unisono.tables.names import Consistency, Updater
from unisono.tables.shared import SharedTable, make


class Evicted(NamedTuple):
    """Keys that a table with `max_rows` has evicted."""

    keys: Any
    """The keys, an int64 array or a list of bytes, in no particular order."""
    missed: int
    """The number of further keys that were evicted: each of a table's parts keeps only the last 1024."""


class KeyValueTable(SharedTable[_native.KeyValueTable]):
    """A map from integers or bytes to vectors that all workers share. Every rank makes it.

    A key that no worker has added to has its initial values, takes no memory, and is not in the table.

    Example:
        >>> import unisono as uni
        >>> world = uni.init()
        >>> words = uni.KeyValueTable(1, "int64", keys="bytes")
        >>> words.add([b"to", b"be", b"to"], [[1], [1], [1]])
        >>> words.get(b"to")
        array([2])
        >>> b"or" in words, len(words), list(words)
        (False, 2, [b'be', b'to'])
    """

    def __init__(
        self,
        dim: int,
        dtype: Any = "float32",
        init: Any = None,
        updater: Updater = "add",
        consistency: Consistency = "async",
        name: str | None = None,
        *,
        keys: str = "int",
        max_rows: int | None = None,
        eviction: str | None = None,
        repeats: str | None = None,
        reject_nan: bool = False,
        compression: str = "none",
        timeout: float | None = None,
        **options: float,
    ) -> None:
        """Makes the table, together with all other ranks.

        Args:
            dim: The number of values per key, 1 or more.
            dtype: As for `ArrayTable`, like all arguments that follow unless they are described.
            init: The values of a key before the first add to it: a number, `uniform(...)` or `normal(...)`.
            updater: The rule by which an add is applied.
            consistency: How far workers may drift apart; not "average".
            name: A unique name; by default "key-value-1" and so on.
            keys: The type of the keys: "int" (64 bits) or "bytes".
            max_rows: The maximum number of rows on all hosts together, at least one per server; by default
                there is none. Every server may have `max_rows / servers` rows, and evicts one for a new key
                when it has no room for it: neither the rows nor their memory ever exceed the limit.
            eviction: The row to evict, of eight that are drawn at random: "lru", the least recently used
                (default), or "lfu", the least frequently used. Gets and adds are uses.
            repeats: What happens to a key that one add lists more than once; as for `MatrixTable`.
            reject_nan: Whether an add that contains a NaN is rejected.
            compression: How adds are encoded between hosts.
            timeout: Seconds until the call times out.
            options: The updater's options.
        """
        native = make(
            "key_value",
            lambda: (1, convert.count(dim, "table", "values for each key")),
            keys=keys,
            max_rows=max_rows,
            eviction=eviction,
            device=options.pop("device", None),
            dtype=dtype,
            init=init,
            updater=updater,
            consistency=consistency,
            name=name,
            repeats=repeats,
            reject_nan=reject_nan,
            compression=compression,
            timeout=timeout,
            options=options,
        )
        super().__init__(native)
        self.dim: int = int(dim)
        """The number of values per key."""
        self.keys_type: str = keys
        """The type of the keys: "int" or "bytes"."""
        self.max_rows: int | None = native.max_rows
        """The maximum number of rows, or None."""

    def __repr__(self) -> str:
        native = self._native
        return (
            f"<unisono.KeyValueTable {native.name!r}, {self.keys_type} keys, dim {self.dim}, {native.dtype}, "
            f"updater {native.updater}, consistency {native.consistency}>"
        )

    def get(self, keys: Any, out: Array | None = None, *, timeout: float | None = None) -> Any:
        """Copies the values of keys.

        Args:
            keys: One key, a list of them, or an integer array; keys may repeat.
            out: An array of the table's type to fill, contiguous and writable; by default a new array of the
                library of the keys: a PyTorch tensor for a tensor of keys, otherwise a NumPy array.
            timeout: Seconds until the call times out.

        Returns:
            `out`, or an array: one vector for one key, one row for each key of a list.
        """
        memory = self._native.get(self._keys(keys, "get"), out, timeout)
        return self._values(keys, memory, out)

    def get_async(self, keys: Any, out: Array | None = None, *, timeout: float | None = None) -> Pending[Any]:
        """Starts a get in the background; several may be in progress.

        Args:
            keys: As for `get`.
            out: As for `get`; do not access it before `wait` has returned.
            timeout: Seconds until the get times out.

        Returns:
            A `Pending` whose `wait` returns the values.
        """
        pending = self._native.get_async(self._keys(keys, "get"), out, timeout)
        return Pending(pending, "get", lambda memory: self._values(keys, memory, out))

    def add(
        self, keys: Any, delta: Any, wait: bool = False, *, timeout: float | None = None, **options: float
    ) -> None:
        """Updates the values of keys by `delta`, according to the table's updater; inserts keys that are new.

        Args:
            keys: As for `get`; for a key that occurs more than once, see `repeats` of the table.
            delta: One row of values for each key, or all of them flat; it may be reused when the call
                returns.
            wait: Whether to return only when the update has been applied; see `Table.add`.
            timeout: Seconds until the call times out.
            options: Options for the updater; by default those of the table.
        """
        self._native.add(self._keys(keys, "add"), self._delta(delta), options or None, wait, timeout)

    def delete(self, keys: Any, wait: bool = False, *, timeout: float | None = None) -> None:
        """Removes keys with their values and the updater's state; their memory is used for other keys.

        A removed key is absent: a get returns its initial values, and the next add inserts it anew, with
        fresh state. Any rank may call it. A deletion follows this rank's earlier calls. No clock counts it,
        whatever the consistency: it waits for no other worker and is no part of a round. A concurrent add of
        another worker may come before or after it; the adds of a "bsp" round that is not complete yet come
        after it. Between two calls of `uni.barrier` it is the same for all workers.

        Args:
            keys: As for `get`; those that are absent are ignored.
            wait: Whether to return only when the keys are removed on all hosts. Otherwise they may be removed
                a little later: this rank's next calls see it in any case, those of the others after a
                `barrier`.
            timeout: Seconds until the call times out. A deletion that failed may be repeated.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> users = uni.KeyValueTable(2)
            >>> users.add([3, 4], [[1, 2], [3, 4]])
            >>> users.delete([3, 5])
            >>> len(users), users.get(3).tolist()
            (1, [0.0, 0.0])
        """
        self._native.delete(self._keys(keys, "delete"), wait, timeout)

    def evicted(self, *, timeout: float | None = None) -> Evicted:
        """The keys that a table with `max_rows` has evicted since the last report to any rank.

        Every eviction is reported once, to one rank. Their rows are not kept, which would cost as much memory
        as the rows of the table. Any rank may call it; a call that fails may lose some keys.

        Args:
            timeout: Seconds until the call times out.

        Returns:
            The keys, and the number of those that were evicted too long ago to be listed.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> recent = uni.KeyValueTable(1, max_rows=2)
            >>> for key in (3, 4, 3, 5):
            ...     recent.add(key, [1])
            >>> list(recent), recent.evicted()
            ([3, 5], Evicted(keys=array([4]), missed=0))
        """
        keys, missed = self._native.evicted(timeout)
        return Evicted(keys if isinstance(keys, list) else np.asarray(keys), missed)

    def contains(self, keys: Any, *, timeout: float | None = None) -> Any:
        """Whether keys are in the table: those that any worker has added to.

        Args:
            keys: As for `get`.
            timeout: Seconds until the call times out.

        Returns:
            An array of bool, one for each key.

        Example:
            >>> import unisono as uni
            >>> world = uni.init()
            >>> counts = uni.KeyValueTable(1, "int64")
            >>> counts.add([1, 2], [[1], [1]])
            >>> counts.contains([1, 2, 3])
            array([ True,  True, False])
        """
        return np.array(self._native.contains(self._keys(keys, "contains"), timeout), dtype=bool)

    def __contains__(self, key: object) -> bool:
        if isinstance(key, np.ndarray) and key.ndim == 0:
            key = key[()]
        if isinstance(key, str) and self.keys_type == "bytes":
            raise UsageError(
                f'`in` on table "{self.name}": expected a key that is bytes, received str; '
                "text becomes bytes with text.encode()"
            )
        if isinstance(key, Iterable) and not isinstance(key, (bytes, str)):
            raise UsageError(
                f'`in` on table "{self.name}": expected one key, received {type(key).__name__}; '
                "table.contains(keys) answers for each of many"
            )
        if not isinstance(key, bytes if self.keys_type == "bytes" else (int, np.integer)):
            return False
        keys = [key if isinstance(key, bytes) else int(key)]
        return self._native.contains(self._keys(keys, "contains"), None)[0]

    def __len__(self) -> int:
        return len(self._native)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[Any]:
        keys, _ = self.arrays()
        return iter(keys if isinstance(keys, list) else keys.tolist())

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All keys with their values, sorted by key: a snapshot at the time of the call.

        Returns:
            Pairs of a key and its vector.
        """
        keys, values = self.arrays()
        return zip(keys if isinstance(keys, list) else keys.tolist(), values, strict=True)

    def arrays(self, *, timeout: float | None = None) -> tuple[Any, Any]:
        """All keys and all values in one call, sorted by key.

        Args:
            timeout: Seconds until the call times out.

        Returns:
            The keys, an int64 array or a list of bytes; and an array with one row for each key.
        """
        keys, values = self._native.items(timeout)
        return keys if isinstance(keys, list) else np.asarray(keys), take_over(values, None)

    def _keys(self, keys: Any, operation: str) -> Any:
        """Converts keys for the native table: a list of bytes, or an int64 array."""
        if self.keys_type != "bytes":
            return convert.row_ids(keys, operation, "keys")
        one = isinstance(keys, (bytes, str)) or not isinstance(keys, Iterable)
        many = [keys] if one else list(keys)
        wrong = next((type(key).__name__ for key in many if not isinstance(key, bytes)), None)
        if wrong is not None:
            raise UsageError(
                f"{operation}: expected keys that are bytes, received {wrong}; "
                "text becomes bytes with text.encode()"
            )
        return many

    def _values(self, keys: Any, memory: Any, out: Any) -> Any:
        if memory is None:
            return written(out, out)
        values = take_over(memory, keys)
        return values[0] if isinstance(keys, bytes) else values
