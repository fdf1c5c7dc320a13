"""A thread-safe cache of a limited size, for values that are used in rotation."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")
# Every cluster is checked several times within this time, so a value that is unused for longer is not needed.
_RESTS = timedelta(minutes=10)


class Room(Generic[_K, _V]):
    """Keeps up to ``most`` values. If it is full, a new value replaces a value unused for ten minutes, or is dropped.

    Clusters are checked in turn. A least-recently-used cache that is too small evicts each value just before its next
    use, and never hits. This cache keeps its values: with half the needed size, it hits for half of the clusters.
    """

    def __init__(self, most: int, now: Callable[[], datetime]) -> None:
        self._most = most
        self._now = now
        self._lock = threading.Lock()
        self._kept: OrderedDict[_K, tuple[_V, datetime]] = OrderedDict()  # value and last use; the latest is last

    def get(self, key: _K) -> _V | None:
        """Return the value of a key and mark it as used; None if there is none."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._put(key, kept[0])
            return kept[0]

    def put(self, key: _K, value: _V) -> None:
        """Store the value of a key if there is space. It replaces the key's earlier value."""
        with self._lock:
            if key not in self._kept and len(self._kept) >= self._most:
                oldest, (_, used) = next(iter(self._kept.items()))
                if self._now() < used + _RESTS:
                    return
                del self._kept[oldest]
            self._put(key, value)

    def drop(self, key: _K) -> None:
        """Remove the value of a key."""
        with self._lock:
            self._kept.pop(key, None)

    def _put(self, key: _K, value: _V) -> None:
        self._kept[key] = (value, self._now())
        self._kept.move_to_end(key)
