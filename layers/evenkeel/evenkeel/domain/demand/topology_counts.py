"""How many pods of which kinds stand in which domain, kept up to date while pods are placed.

A domain is one value of a topology key: a zone, a host. Counting anew for each pod would make spread and pod affinity
cost nodes x pods; here a placed pod changes the few tallies that count its kind.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable

from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup


class Tally:
    """Pods of the kinds that it takes, per value of a label of nodes."""

    def __init__(self, key: str, takes: Callable[[PodGroup], bool]) -> None:
        self.key = key
        self.takes = takes
        self.pods: Counter[str] = Counter()
        self.total = 0

    def change(self, room: NodeInfo, count: int) -> None:
        value = self.domain_of(room)
        if value is not None:
            self.total += count
            self._set(value, self.pods[value] + count)

    def domain_of(self, room: NodeInfo) -> str | None:
        """The domain in which a room counts; None: it counts nowhere."""
        return room.labels.get(self.key)

    def at(self, room: NodeInfo) -> int:
        """Pods in the room's domain; 0 where it has none."""
        value = room.labels.get(self.key)
        return 0 if value is None else self.pods[value]

    def _set(self, value: str, count: int) -> None:
        self.pods[value] = count


class Domains:
    """Values of a label among the rooms that a constraint counts; one for all constraints that count the same rooms."""

    def __init__(self, key: str, holds: Callable[[NodeInfo], bool]) -> None:
        self.key = key
        self._holds = holds
        self._domain: dict[NodeInfo, str] = {}
        self._rooms: Counter[str] = Counter()
        self._tallies: list[DomainTally] = []

    def __len__(self) -> int:
        return len(self._rooms)

    def of(self, room: NodeInfo) -> str | None:
        return self._domain.get(room)

    def tell(self, tally: "DomainTally") -> None:
        """Of each domain that there is, and from now on of each that comes or goes."""
        self._tallies.append(tally)
        for value in self._rooms:
            tally.domain_came(value)

    def add_room(self, room: NodeInfo) -> None:
        if self.key in room.labels and self._holds(room):
            value = self._domain[room] = room.labels[self.key]
            self._rooms[value] += 1
            if self._rooms[value] == 1:
                for tally in self._tallies:
                    tally.domain_came(value)

    def remove_room(self, room: NodeInfo) -> None:
        value = self._domain.pop(room, None)
        if value is None:
            return
        self._rooms[value] -= 1
        if not self._rooms[value]:
            del self._rooms[value]
            for tally in self._tallies:
                tally.domain_went(value)


class DomainTally(Tally):
    """A tally over these domains, which also knows the least of them."""

    def __init__(self, domains: Domains, takes: Callable[[PodGroup], bool]) -> None:
        super().__init__(domains.key, takes)
        self._domains = domains
        self._levels: Counter[int] = Counter()  # how many domains have so many pods
        domains.tell(self)

    @property
    def domains(self) -> int:
        return len(self._domains)

    @property
    def least(self) -> int:
        """Pods in the emptiest domain."""
        return min(self._levels, default=0)

    def domain_of(self, room: NodeInfo) -> str | None:
        return self._domains.of(room)

    def domain_came(self, value: str) -> None:
        self._levels[self.pods[value]] += 1

    def domain_went(self, value: str) -> None:
        self._drop_level(self.pods[value])

    def _set(self, value: str, count: int) -> None:
        self._drop_level(self.pods[value])
        self._levels[count] += 1
        self.pods[value] = count

    def _drop_level(self, level: int) -> None:
        self._levels[level] -= 1
        if not self._levels[level]:
            del self._levels[level]


class TopologyCounts:
    """Every tally that somebody has asked for, and where each kind stands."""

    def __init__(self) -> None:
        self._rooms: dict[NodeInfo, None] = {}
        self._where: dict[PodGroup, dict[NodeInfo, int]] = defaultdict(dict)
        self._domains: dict[Hashable, Domains] = {}
        self._tallies: dict[Hashable, Tally] = {}
        self._order: list[Tally] = []
        self._counting: dict[PodGroup, tuple[int, list[Tally]]] = {}  # how many tallies were asked, and which count it

    @property
    def pod_groups(self) -> list[PodGroup]:
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
            for kind, node_infos in self._where.items():
                if node_infos and tally.takes(kind):
                    for room, count in node_infos.items():
                        tally.change(room, count)
        return tally

    def domains(self, key: str, alike: Hashable, holds: Callable[[NodeInfo], bool]) -> Domains:
        """Of the rooms that hold; ``alike``: the same for everything that holds the same rooms."""
        found = self._domains.get((key, alike))
        if found is None:
            found = self._domains[key, alike] = Domains(key, holds)
            for room in self._rooms:
                found.add_room(room)
        return found

    def add_room(self, room: NodeInfo) -> None:
        self._rooms[room] = None
        for domains in self._domains.values():
            domains.add_room(room)
        for kind, count in room.pod_groups.items():
            self.change(room, kind, count)

    def remove_room(self, room: NodeInfo) -> None:
        for kind, count in room.pod_groups.items():
            self.change(room, kind, -count)
        for domains in self._domains.values():
            domains.remove_room(room)
        del self._rooms[room]

    def change(self, room: NodeInfo, kind: PodGroup, count: int) -> None:
        node_infos = self._where[kind]
        node_infos[room] = node_infos.get(room, 0) + count
        if not node_infos[room]:
            del node_infos[room]
        for tally in self._counters_of(kind):
            tally.change(room, count)

    def _counters_of(self, kind: PodGroup) -> list[Tally]:
        asked, counters = self._counting.get(kind, (0, []))
        if asked < len(self._order):
            counters += [tally for tally in self._order[asked:] if tally.takes(kind)]
            self._counting[kind] = len(self._order), counters
        return counters
