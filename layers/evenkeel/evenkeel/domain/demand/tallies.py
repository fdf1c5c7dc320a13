"""How many pods of which kinds stand in which domain, kept up to date while pods are placed.

A domain is one value of a topology key: a zone, a host. Counting anew for each pod would make spread and pod affinity
cost nodes x pods; here a placed pod changes the few tallies that count its kind.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable

from evenkeel.domain.demand.kinds import Kind
from evenkeel.domain.demand.rooms import Room


class Tally:
    """Pods of the kinds that it takes, per value of a label of nodes."""

    def __init__(self, key: str, takes: Callable[[Kind], bool]) -> None:
        self.key = key
        self.takes = takes
        self.pods: Counter[str] = Counter()
        self.total = 0

    def change(self, room: Room, count: int) -> None:
        value = self.domain_of(room)
        if value is not None:
            self.total += count
            self._set(value, self.pods[value] + count)

    def domain_of(self, room: Room) -> str | None:
        """The domain in which a room counts; None: it counts nowhere."""
        return room.labels.get(self.key)

    def at(self, room: Room) -> int:
        """Pods in the room's domain; 0 where it has none."""
        value = room.labels.get(self.key)
        return 0 if value is None else self.pods[value]

    def add_room(self, room: Room) -> None:
        """Nothing to do where domains are not counted."""

    def remove_room(self, room: Room) -> None:
        """Nothing to do where domains are not counted."""

    def _set(self, value: str, count: int) -> None:
        self.pods[value] = count


class DomainTally(Tally):
    """A tally over the rooms that it holds, which also knows how many domains they make and the least of them."""

    def __init__(self, key: str, takes: Callable[[Kind], bool], holds: Callable[[Room], bool]) -> None:
        super().__init__(key, takes)
        self._holds = holds
        self._domain: dict[Room, str] = {}
        self._rooms: Counter[str] = Counter()
        self._levels: Counter[int] = Counter()  # how many domains have so many pods

    @property
    def domains(self) -> int:
        return len(self._rooms)

    @property
    def least(self) -> int:
        """Pods in the emptiest domain."""
        return min(self._levels, default=0)

    def domain_of(self, room: Room) -> str | None:
        return self._domain.get(room)

    def add_room(self, room: Room) -> None:
        if self.key in room.labels and self._holds(room):
            value = self._domain[room] = room.labels[self.key]
            if not self._rooms[value]:
                self._levels[self.pods[value]] += 1
            self._rooms[value] += 1

    def remove_room(self, room: Room) -> None:
        value = self._domain.pop(room, None)
        if value is None:
            return
        self._rooms[value] -= 1
        if not self._rooms[value]:
            del self._rooms[value]
            self._drop_level(self.pods[value])

    def _set(self, value: str, count: int) -> None:
        self._drop_level(self.pods[value])
        self._levels[count] += 1
        self.pods[value] = count

    def _drop_level(self, level: int) -> None:
        self._levels[level] -= 1
        if not self._levels[level]:
            del self._levels[level]


class Tallies:
    """Every tally that somebody has asked for, and where each kind stands."""

    def __init__(self) -> None:
        self._rooms: dict[Room, None] = {}
        self._where: dict[Kind, dict[Room, int]] = defaultdict(dict)
        self._tallies: dict[Hashable, Tally] = {}
        self._order: list[Tally] = []
        self._counting: dict[Kind, tuple[int, list[Tally]]] = {}  # how many tallies were asked, and which count it

    @property
    def kinds(self) -> list[Kind]:
        """Every kind of which a pod has ever stood anywhere, in the order of their coming."""
        return list(self._where)

    @property
    def kinds_seen(self) -> int:
        return len(self._where)

    def of(self, name: Hashable, make: Callable[[], Tally]) -> Tally:
        """The tally of this name, made and counted when it is first asked for."""
        tally = self._tallies.get(name)
        if tally is None:
            tally = self._tallies[name] = make()
            self._order.append(tally)
            for room in self._rooms:
                tally.add_room(room)
            for kind, rooms in self._where.items():
                if rooms and tally.takes(kind):
                    for room, count in rooms.items():
                        tally.change(room, count)
        return tally

    def add_room(self, room: Room) -> None:
        self._rooms[room] = None
        for tally in self._order:
            tally.add_room(room)
        for kind, count in room.kinds.items():
            self.change(room, kind, count)

    def remove_room(self, room: Room) -> None:
        for kind, count in room.kinds.items():
            self.change(room, kind, -count)
        for tally in self._order:
            tally.remove_room(room)
        del self._rooms[room]

    def change(self, room: Room, kind: Kind, count: int) -> None:
        rooms = self._where[kind]
        rooms[room] = rooms.get(room, 0) + count
        if not rooms[room]:
            del rooms[room]
        for tally in self._counters_of(kind):
            tally.change(room, count)

    def _counters_of(self, kind: Kind) -> list[Tally]:
        asked, counters = self._counting.get(kind, (0, []))
        if asked < len(self._order):
            counters += [tally for tally in self._order[asked:] if tally.takes(kind)]
            self._counting[kind] = len(self._order), counters
        return counters
