"""Room for so many values that were made at some cost and will be wanted again, for many threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")
# Several rounds through all clusters: what was not used for so long is not coming round any more.
_RESTS = timedelta(minutes=10)


class Room(Generic[_K, _V]):
    """Keeps up to ``most`` values; a newcomer takes the place of one that nobody has used for ten minutes, or none.

    Clusters come round in turn. If they are more than there is room for, and the last used ones stay, each is pushed
    out just before it is its turn again, and room for a half of them serves nobody; like this it serves half of them.
    """

    def __init__(self, most: int, now: Callable[[], datetime]) -> None:
        self._most = most
        self._now = now
        self._lock = threading.Lock()
        self._kept: OrderedDict[_K, tuple[_V, datetime]] = OrderedDict()  # and when it was last used, the latest last

    def get(self, key: _K) -> _V | None:
        """What is kept; it counts as used."""
        with self._lock:
            kept = self._kept.get(key)
            if kept is None:
                return None
            self._put(key, kept[0])
            return kept[0]

    def put(self, key: _K, value: _V) -> None:
        """Keep it, in the place of what was kept for this key, if there is room."""
        with self._lock:
            if key not in self._kept and len(self._kept) >= self._most:
                oldest, (_, used) = next(iter(self._kept.items()))
                if self._now() < used + _RESTS:
                    return
                del self._kept[oldest]
            self._put(key, value)

    def drop(self, key: _K) -> None:
        """Keep it no longer."""
        with self._lock:
            self._kept.pop(key, None)

    def _put(self, key: _K, value: _V) -> None:
        self._kept[key] = (value, self._now())
        self._kept.move_to_end(key)
