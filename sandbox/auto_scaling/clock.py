"""The clocks of simulated AWS services."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, ClassVar

_SECOND = timedelta(seconds=1)


class VirtualClock:
    """A time that moves only when its callers move it, and the actions that are due later.

    `copy.deepcopy` of a world copies the actions, if they are bound methods.
    """

    #: held while a world changes
    lock: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.now = now
        #: called before the world changes; of what tests change past the API, at most a second of the past is lost
        self.before: list[Callable[[], None]] = []
        self._is_known, self._known_at = False, now  # whether they have been called since the latest change
        self._due: list[tuple[datetime, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()
        self._thread = threading.get_ident()
        self._parted = now  # when the calls of other threads begin to overlap
        self._lanes: list[datetime] = []  # the ends of the calls that overlap

    def after(self, delay: timedelta, action: Callable[..., None], *arguments: Any) -> None:
        """Run an action after a delay. Actions of the same time run in the order of these calls."""
        heapq.heappush(self._due, (self.now + delay, next(self._numbers), action, arguments))

    def step(self, now: datetime) -> None:
        """Move the time to `now` and run every action that becomes due, each at its own time."""
        with self.lock:
            self._move(now)
            self._parted, self._lanes = self.now, []

    def run(self, duration: timedelta) -> None:
        """Move the time by a duration."""
        self.step(self.now + duration)

    def wait(self, duration: timedelta, parallel: int = 1) -> None:
        """Let the caller wait. So many waits overlap, if they are those of threads beside the thread of the world.

        How threads share their work is left to chance, so a wait begins as soon as one of `parallel` threads is free.
        """
        with self.lock:
            if not duration:
                return
            if parallel == 1 or threading.get_ident() == self._thread:
                self.run(duration)
                return
            begin = self._parted if len(self._lanes) < parallel else heapq.heappop(self._lanes)
            heapq.heappush(self._lanes, begin + duration)
            self._move(begin + duration)

    def _move(self, now: datetime) -> None:
        while self._due and self._due[0][0] <= now:
            moment, _, action, arguments = heapq.heappop(self._due)
            self._set(moment)
            self._is_known = False
            action(*arguments)
        self._set(now)

    def _set(self, now: datetime) -> None:
        if now > self.now:
            if not self._is_known or now - self._known_at >= _SECOND:
                self._remember()
            self.now = now

    def change(self) -> None:
        """Let services remember their objects, because a call changes some now."""
        self._remember()
        self._is_known = False

    def _remember(self) -> None:
        self._is_known, self._known_at = True, self.now
        for remember in self.before:
            remember()


class WallClock(VirtualClock):
    """The time of day, for measurements: calls take real time."""

    def __init__(self) -> None:
        super().__init__(datetime.now(UTC))

    def wait(self, duration: timedelta, parallel: int = 1) -> None:  # noqa: ARG002 (threads overlap by themselves)
        """Let the caller wait, and run the actions that have become due."""
        time.sleep(duration.total_seconds())
        self.step(datetime.now(UTC))
