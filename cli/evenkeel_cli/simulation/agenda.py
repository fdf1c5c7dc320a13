"""What is going to happen in a simulation, in order of virtual time."""

import heapq
from collections.abc import Callable
from enum import IntEnum
from itertools import count


class Turn(IntEnum):
    """Who goes first in one second."""

    WORLD = 0
    MACHINE = 1
    SCHEDULER = 2
    EVENT = 3
    AUTOSCALER = 4
    EVENKEEL = 5


class Agenda:
    """What is going to happen, in order of time; within one second by turn, then by when it was entered."""

    def __init__(self) -> None:
        self._entries: list[tuple[int, Turn, int, Callable[[], None]]] = []
        self._numbers = count()

    def enter(self, at: int, turn: Turn, happening: Callable[[], None]) -> None:
        """Let it happen ``at`` that second."""
        heapq.heappush(self._entries, (at, turn, next(self._numbers), happening))

    def next_second(self) -> int | None:
        """When something happens next; None: never again."""
        return self._entries[0][0] if self._entries else None

    def take(self) -> Callable[[], None]:
        """What happens next, off the agenda."""
        return heapq.heappop(self._entries)[3]
