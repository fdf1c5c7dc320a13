"""A cache of a limited size, for many threads, whose values are used in turn."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")
# Within this time, every cluster is checked several times: an unused value belongs to none of them.
_RESTS = timedelta(minutes=10)


class Room(Generic[_K, _V]):
    """Keep up to ``most`` values. A new value replaces one that was unused for ten minutes, or is not kept.

    Clusters are checked in turn. A least-recently-used cache that is too small evicts each value just before its next
    use, and never hits. This one keeps its values, so half the size hits for half of the clusters.
    """

    def __init__(self, most: int, now: Callable[[], datetime]) -> None:
        self._most = most
        self._now = now
        self._lock = threading.Lock()
        self._kept: OrderedDict[_K, tuple[_V, datetime]] = OrderedDict()  # and its last use, the latest last

    def get(self, key: _K) -> _V | None:
        """Return the value of a key and mark it as used; None if there is none."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._put(key, kept[0])
            return kept[0]

    def put(self, key: _K, value: _V) -> None:
        """Keep a value in the place of the key's last one, if there is space."""
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
