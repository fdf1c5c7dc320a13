"""The events of a simulation in order of virtual time."""

import heapq
from collections.abc import Callable
from enum import IntEnum
from itertools import count


class Turn(IntEnum):
    """The kinds of events, in the order in which events of the same second are performed."""

    WORLD = 0
    MACHINE = 1
    SCHEDULER = 2
    EVENT = 3
    AUTOSCALER = 4
    EVENKEEL = 5


class Agenda:
    """A queue of events. They are sorted by time, then by turn, then by the order in which they were added."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, Turn, int, Callable[[], None]]] = []
        self._numbers = count()

    def enter(self, at: int, turn: Turn, event: Callable[[], None]) -> None:
        """Add an event that is due at second ``at``."""
        heapq.heappush(self._entries, (at, turn, next(self._numbers), event))

    def next_second(self) -> int | None:
        """Return the second of the next event; None: the queue is empty."""
        return self._entries[0][0] if self._entries else None

    def take(self) -> Callable[[], None]:
        """Remove and return the next event."""
        return heapq.heappop(self._entries)[3]
