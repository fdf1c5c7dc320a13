"""Shares the answers of a slow service between threads, until the answers expire."""

import threading
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from functools import partial
from typing import Generic, TypeVar

from evenkeel.application.errors import AccessError, AccessUnavailableError

_T = TypeVar("_T")
# How long a thread waits for another thread's request. This is as long as a check may take. After this time, the
# request counts as failed.
_WAIT = timedelta(seconds=8)
# How long a failure is cached. Without this cache, fifty clusters would each wait some seconds for a service that does
# not answer.
_FAILURE_KEPT = timedelta(seconds=10)
# From this number of entries on, a new entry first removes the expired ones.
_MANY = 256


class _Entry(Generic[_T]):
    """One request, which is pending, answered or failed."""

    def __init__(self, now: datetime) -> None:
        self.until = now + _WAIT
        self.done = threading.Event()
        self.value: _T | None = None
        # Creates a new error for each waiting thread, because raising one error several times would extend its
        # traceback.
        self.failure: Callable[[], AccessError] = partial(
            AccessUnavailableError, "a request to AWS for several clusters ended without an answer"
        )

    def is_over(self, now: datetime, refused: _T | None) -> bool:
        return now >= self.until or (self.value is not None and self.value == refused)


class Shared(Generic[_T]):
    """Cached answers by key. A slow request for one key does not block other keys."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._entries: dict[Hashable, _Entry[_T]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, fetch: Callable[[], tuple[_T, timedelta]], refused: _T | None = None) -> _T:
        """Return the cached value, else the value of ``fetch``, which also returns how long to cache the value.

        ``refused``: a value that a service has refused. A cached value that equals this value is fetched again.

        Raises:
            AccessError: ``fetch`` raised it, in this thread or in another thread, or ``fetch`` took too long.
        """
        with self._lock:
            now = self._now()
            entry = self._entries.get(key)
            mine = entry is None or entry.is_over(now, refused)
            if entry is None or mine:
                if len(self._entries) >= _MANY:
                    self._entries = {other: entry for other, entry in self._entries.items() if now < entry.until}
                entry = self._entries[key] = _Entry(now)
        if mine:
            self._fill(entry, fetch)
        elif not entry.done.wait(_WAIT.total_seconds()):
            raise AccessUnavailableError("a request to AWS for several clusters was not answered in time")
        if entry.value is None:
            raise entry.failure()
        return entry.value

    def _fill(self, entry: _Entry[_T], fetch: Callable[[], tuple[_T, timedelta]]) -> None:
        try:
            value, lifetime = fetch()
            entry.until = self._now() + lifetime
            entry.value = value
        except AccessError as error:
            entry.failure = partial(type(error), str(error))
            entry.until = self._now() + _FAILURE_KEPT
        finally:
            entry.done.set()
