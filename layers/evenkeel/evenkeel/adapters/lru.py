"""A thread-safe cache of a limited size, for values that are used in rotation."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")
# After this time without use, a value may be replaced. Every cluster is checked several times within this time, so such
# a value is no longer needed.
_RESTS = timedelta(minutes=10)


class RotationCache(Generic[_K, _V]):
    """Keeps up to ``most`` values. A full cache accepts a new value only if it can drop one unused for ten minutes.

    Evenkeel checks the clusters in the same order again and again. A least-recently-used cache that is too small evicts
    each value just before its next use, and never hits. This cache keeps its values instead. With half the needed size,
    it still hits for half of the clusters.
    """

    def __init__(self, most: int, now: Callable[[], datetime]) -> None:
        self._most = most
        self._now = now
        self._lock = threading.Lock()
        # Each value with the time of its last use; the most recently used is last.
        self._kept: OrderedDict[_K, tuple[_V, datetime]] = OrderedDict()

    def get(self, key: _K) -> _V | None:
        """Return the value of a key and mark the value as used; None if the key has no value."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._put(key, kept[0])
            return kept[0]

    def put(self, key: _K, value: _V) -> None:
        """Store a key's value instead of its earlier value. A new key's value is stored only if there is space."""
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
