"""Where a pod of a scenario fits, and which node its scheduler takes.

Written apart from ``domain.demand``, which plans, so that a run can show where that is wrong: it shares
no line with it, and tests/property/test_simulated_scheduling.py asks both. The autoscaler's model asks here, as the
real one asks the real scheduler.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Self

from evenkeel.domain.model.workload import HOSTNAME, ZONE
from evenkeel_cli.simulation.scenario import NodeSize, PodsSetup

POOL = "simulated/pool"
MOST_PODS = 110  # on a node, as a kubelet has it


class Kind:
    """Pods that are alike. Thousandths of a core, bytes."""

    def __init__(self, setup: PodsSetup) -> None:
        self.setup = setup
        self.name = setup.name
        self.cpu = ceil(setup.cpu * 1000)
        self.memory = ceil(setup.memory)
        self.selector = setup.selector if setup.pool is None else {**setup.selector, POOL: setup.pool}
        self.zones = frozenset(setup.zones)
        skews = {ZONE: setup.spread.zone, HOSTNAME: setup.spread.node}
        self.spread = {key: skew for key, skew in skews.items() if skew is not None}

    def may_stand_on(self, labels: Mapping[str, str]) -> bool:
        """Whether a node has the labels for it."""
        in_zone = not self.zones or labels.get(ZONE) in self.zones
        return in_zone and all(labels.get(key) == value for key, value in self.selector.items())


@dataclass(eq=False, slots=True)
class Room:
    """A node, and what of it is free."""

    name: str
    labels: Mapping[str, str]
    cpu: int  # all of it
    memory: int
    is_open: bool = True
    kinds: Counter[Kind] = field(default_factory=Counter)
    used_cpu: int = 0
    used_memory: int = 0

    @classmethod
    def of(cls, name: str, pool: str, zone: str, size: NodeSize) -> Self:
        labels = {**size.labels, POOL: pool, ZONE: zone, HOSTNAME: name}
        return cls(name, labels, ceil(size.cpu * 1000), ceil(size.memory))

    def put(self, kind: Kind, count: int = 1) -> None:
        """So many pods come; negative: go."""
        self.kinds[kind] += count
        self.used_cpu += kind.cpu * count
        self.used_memory += kind.memory * count

    @property
    def pods(self) -> int:
        return self.kinds.total()

    @property
    def used(self) -> float:
        """The larger of the used shares of cpu and memory."""
        return max(self.used_cpu / self.cpu, self.used_memory / self.memory)

    def copy(self) -> "Room":
        room = Room(self.name, self.labels, self.cpu, self.memory, self.is_open)
        room.kinds, room.used_cpu, room.used_memory = self.kinds.copy(), self.used_cpu, self.used_memory
        return room


class Board:
    """Nodes with what stands on them, in the order in which they came."""

    def __init__(self, rooms: Iterable[Room] = ()) -> None:
        self.rooms = {room.name: room for room in rooms}

    def copy(self) -> "Board":
        return Board(room.copy() for room in self.rooms.values())

    def fits(self, kind: Kind, room: Room) -> bool:
        """Whether one more pod of this kind may stand there."""
        return next(self._fitting(kind, (room,)), None) is not None

    def first(self, kind: Kind, rooms: Iterable[Room]) -> Room | None:
        """The first of these rooms where a pod fits."""
        return next(self._fitting(kind, rooms), None)

    def emptiest(self, kind: Kind) -> Room | None:
        """Where the scheduler puts a pod; None: nowhere."""
        return min(
            self._fitting(kind, self.rooms.values()),
            key=lambda room: (room.used_cpu / room.cpu + room.used_memory / room.memory, room.name),
            default=None,
        )

    def _fitting(self, kind: Kind, rooms: Iterable[Room]) -> Iterator[Room]:
        """Those of these rooms where one more pod may stand, as things are before the first of them is asked for."""
        counts: dict[str, Counter[str]] = {}
        for room in rooms:
            if (
                room.is_open
                and kind.may_stand_on(room.labels)
                and room.pods < MOST_PODS
                and (not kind.cpu or room.used_cpu + kind.cpu <= room.cpu)
                and (not kind.memory or room.used_memory + kind.memory <= room.memory)
            ):
                if kind.spread and not counts:
                    counts = {key: self._count(kind, key) for key in kind.spread}
                if all(
                    counts[key][room.labels[key]] + 1 - min(counts[key].values()) <= skew
                    for key, skew in kind.spread.items()
                ):
                    yield room

    def _count(self, kind: Kind, key: str) -> Counter[str]:
        """Pods of a kind by domain. A closed node makes a domain, too, and one where none may stand does not."""
        counts: Counter[str] = Counter()
        for room in self.rooms.values():
            if kind.may_stand_on(room.labels):
                counts[room.labels[key]] += room.kinds[kind]
        return counts
