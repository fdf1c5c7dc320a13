"""The clock of simulated AWS services: time moves only when the caller moves it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any


class VirtualClock:
    """A time and the actions that are due later. `copy.deepcopy` of a world copies them, if they are bound methods."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.now = now
        self._due: list[tuple[datetime, int, Callable[..., None], tuple[Any, ...]]] = []
        self._numbers = count()

    def after(self, delay: timedelta, action: Callable[..., None], *arguments: Any) -> None:
        """Run an action after a delay. Actions of the same time run in the order of these calls."""
        heapq.heappush(self._due, (self.now + delay, next(self._numbers), action, arguments))

    def step(self, now: datetime) -> None:
        """Move the time to `now` and run every action that becomes due, each at its own time."""
        while self._due and self._due[0][0] <= now:
            self.now, _, action, arguments = heapq.heappop(self._due)
            action(*arguments)
        self.now = max(self.now, now)

    def run(self, duration: timedelta) -> None:
        """Move the time by a duration."""
        self.step(self.now + duration)
