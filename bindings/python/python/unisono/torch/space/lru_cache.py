"""An LRU cache of bounded size."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """The most recently used entries. Threads may share it."""

    def __init__(self, most: int) -> None:
        """Makes an empty cache.

        Args:
            most: The maximum number of entries.
        """
        self._most = most
        self._known: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[V]:
        with self._lock:
            return iter(list(self._known.values()))

    def get(self, key: K) -> V | None:
        """Looks an entry up, which counts as a use.

        Args:
            key: Its key.

        Returns:
            The entry, or None.
        """
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
            return self._known.get(key)

    def add(self, key: K, value: V) -> V:
        """Adds an entry, and evicts the least recently used one if there are too many.

        Args:
            key: Its key.
            value: The entry.

        Returns:
            The entry.
        """
        with self._lock:
            self._known[key] = value
            self._known.move_to_end(key)
            if len(self._known) > self._most:
                self._known.popitem(last=False)
        return value
