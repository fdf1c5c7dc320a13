"""What objects looked like before, because AWS's reads may be old."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from copy import deepcopy
from datetime import UTC, datetime
from typing import Generic, TypeVar

from sandbox.auto_scaling.behavior import Behavior
from sandbox.auto_scaling.clock import VirtualClock

Key = TypeVar("Key", bound=Hashable)
Item = TypeVar("Item")
_EVER = datetime.min.replace(tzinfo=UTC)


class Past(Generic[Key, Item]):
    """The former states of a service's objects, by key. It is empty while reads are never old.

    Args:
        current: Returns the objects as they are.
        is_same: Returns whether an answer would not show a difference between two states of an object.
    """

    def __init__(
        self,
        clock: VirtualClock,
        behavior: Behavior,
        current: Callable[[], Mapping[Key, Item]],
        is_same: Callable[[Item, Item], bool],
    ) -> None:
        self._clock, self._behavior = clock, behavior
        self._current, self._is_same = current, is_same
        #: since when, and the object, oldest first; None: reads have not been old so far
        self._states: dict[Key, list[tuple[datetime, Item | None]]] | None = None
        clock.before.append(self._record)

    def read(self) -> Iterator[tuple[Key, Item]]:
        """Yield each object as one read sees it, each with an age of its own. A read may see deleted objects."""
        for key in sorted({*self._current(), *(self._states or {})}, key=str):
            if (item := self.see(key)) is not None:
                yield key, item

    def see(self, key: Key) -> Item | None:
        """Return an object as one read sees it; None: the read does not see it."""
        if self._states is None:
            return self._current().get(key)
        seen = self._clock.now - self._behavior.choose(self._behavior.read_age)
        states = self._states.get(key, [])
        return next((item for at, item in reversed(states) if at <= seen), None)

    def _record(self) -> None:
        """Remember the objects that have changed since the time moved last."""
        longest, now = self._behavior.read_age[1], self._clock.now
        if not longest:
            self._states = None
            return
        current = self._current()
        since = now if self._states is not None else _EVER
        all_states = self._states = self._states or {}
        for key in {*current, *all_states}:
            states, item = all_states.setdefault(key, []), current.get(key)
            latest = states[-1][1] if states else None
            is_same = latest is item if latest is None or item is None else self._is_same(latest, item)
            if not is_same:
                states.append((since, deepcopy(item)))
            while len(states) > 1 and states[1][0] < now - longest:
                del states[0]
            if len(states) == 1 and states[0][1] is None:
                del all_states[key]
