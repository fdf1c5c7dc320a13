"""A thread-safe cache of a limited size."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class LruCache(Generic[_K, _V]):
    """Keeps the ``most`` values that were used last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[_K, _V] = OrderedDict()  # the most recently used value is last

    def get(self, key: _K) -> _V | None:
        """Return the value of a key; None if the key has no value."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def put(self, key: _K, value: _V) -> None:
        """Store a key's value instead of its earlier value."""
        with self._lock:
            self._kept[key] = value
            self._kept.move_to_end(key)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def drop(self, key: _K) -> None:
        """Remove the value of a key."""
        with self._lock:
            self._kept.pop(key, None)
