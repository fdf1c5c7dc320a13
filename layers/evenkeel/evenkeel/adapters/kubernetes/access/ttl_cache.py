"""What many threads want of a service that answers slowly: asked for once, and shared until it is old."""

import threading
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from functools import partial
from typing import Generic, TypeVar

from evenkeel.application.errors import AccessError, AccessUnavailableError

_T = TypeVar("_T")
# Whoever waits for another's question has as long as a look. Longer than that, the one who asked is taken for dead.
_WAIT = timedelta(seconds=8)
# A service that is away is not asked by each of fifty clusters in turn, each for seconds.
_FAILURE_KEPT = timedelta(seconds=10)
# Beyond so many, those that are over go.
_MANY = 256


def _came_to_nothing() -> AccessError:
    return AccessUnavailableError("what was asked of AWS for several clusters came to nothing")


class _Entry(Generic[_T]):
    """One question: under way, answered or failed."""

    def __init__(self, now: datetime) -> None:
        self.until = now + _WAIT
        self.done = threading.Event()
        self.value: _T | None = None
        # A new one for each who is told: a traceback grows with every time that one is raised.
        self.failure: Callable[[], AccessError] = _came_to_nothing

    def is_over(self, now: datetime, refused: _T | None) -> bool:
        return now >= self.until or (self.value is not None and self.value == refused)


class Shared(Generic[_T]):
    """Answers by key. One slow key holds nobody up who wants another."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._entries: dict[Hashable, _Entry[_T]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, fetch: Callable[[], tuple[_T, timedelta]], refused: _T | None = None) -> _T:
        """What ``fetch`` gave somebody lately: the value, and for how long it can be kept.

        ``refused``: a value that turned out to be of no use; any other will do.

        Raises:
            AccessError: what ``fetch`` raised, here or for whoever asked; or nothing came in time.
        """
        with self._lock:
            now = self._now()
            entry = self._entries.get(key)
            mine = entry is None or entry.is_over(now, refused)
            if entry is None or mine:
                if len(self._entries) >= _MANY:
                    self._entries = {other: kept for other, kept in self._entries.items() if now < kept.until}
                entry = self._entries[key] = _Entry(now)
        if mine:
            self._fill(entry, fetch)
        elif not entry.done.wait(_WAIT.total_seconds()):
            raise AccessUnavailableError("what was asked of AWS for several clusters was not answered in time")
        if entry.value is None:
            raise entry.failure()
        return entry.value

    def _fill(self, entry: _Entry[_T], fetch: Callable[[], tuple[_T, timedelta]]) -> None:
        try:
            value, kept = fetch()
            entry.until = self._now() + kept
            entry.value = value
        except AccessError as error:
            entry.failure = partial(type(error), str(error))
            entry.until = self._now() + _FAILURE_KEPT
        finally:
            entry.done.set()
