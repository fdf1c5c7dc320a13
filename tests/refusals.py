"""Worlds whose zones refuse machines, with bound pods and requests of a person."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.workload import ZONE, Workload
from evenkeel.state_records import ScaleRequestRecord
from tests.crashing import How, Life
from tests.vain_orders import HOUR, MINUTE, App, Make, VainWorld

FULL_NODE = (Make(),)


class Refusals(VainWorld):
    """A world in which the zones ``refusing`` refuse each machine at once.

    Their machine controllers try again and again, or never if ``fails_for_good``.
    """

    fails_for_good = False

    def __init__(self, apps: list[App], **fields: Any) -> None:
        self.refusing = set[str]()
        self.unread = False
        self.idle_since: dict[str, datetime] = {}  # node that never had a pod -> when it was first seen
        self.longest_idle = timedelta(0)
        super().__init__(apps, **{"nodes": (FULL_NODE, FULL_NODE, FULL_NODE), "maximum": 12, **fields})

    def control(self) -> None:
        never = self.dead
        self.dead = never | self.refusing
        super().control()
        self.dead = never
        for key, machines in self.cluster.machines.items():
            for name, machine in list(machines.items()):
                refuses = key.name[-1] in self.refusing and not machine.has_node
                if refuses and machine.failure is None:
                    failure = MachineFailure(
                        code="InsufficientInstanceCapacity", message="no room", at=self.clock.now()
                    )
                    self.cluster.set(key, name, failure=failure, failed_for_good=self.fails_for_good)
                elif machine.failure is not None and self.fails_for_good:
                    self.cluster.set(key, name, has_node=False)
                elif machine.failure is not None and not refuses:
                    self.cluster.set(key, name, failure=None, launched_at=self.clock.now())

    def workload(self) -> Workload:
        if self.unread:
            raise ClusterUnavailableError("the API server does not answer")
        return super().workload()

    def schedule(self) -> None:
        super().schedule()
        used = {pod.node for pod in self.pods.values()}
        idle = {node.name for node in self.nodes()} - used
        self.idle_since = {name: self.idle_since.get(name, self.clock.now()) for name in idle}
        longest = max((self.clock.now() - since for since in self.idle_since.values()), default=timedelta(0))
        self.longest_idle = max(self.longest_idle, longest)

    def request(self, id: str, nodes: int, only: tuple[str, ...] = ()) -> None:
        record = ScaleRequestRecord(id=id, nodes=nodes, pool="workers", only=only, at=self.clock.now())
        self.store.save_scale_request("demo", record, None)

    def requested(self) -> dict[str, int]:
        return {key.name[-1]: group.requested for key, group in self.cluster.groups.items()}

    def running(self) -> dict[str, int]:
        there = Counter(each.group.name[-1] for each in self.cluster.nodes().values())
        return {key.name[-1]: there[key.name[-1]] for key in self.cluster.groups}


def bound(name: str, zone: str, pods: int = 1) -> App:
    return App(name=name, pods=pods, selects={ZONE: zone})


@dataclass
class Night:
    """A world by chance: pods of any zone or of one, and zones that refuse machines for minutes or hours."""

    seed: int
    demand: str = "scale-up"
    deaths: bool = False
    fails_for_good: bool = False
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        chance = self.chance = random.Random(self.seed)
        self.zones = "abcd"[: chance.randint(2, 4)]
        apps = [App(name="free", pods=chance.randint(0, 4))]
        apps += [bound(f"bound-{zone}", zone, chance.randint(0, 2)) for zone in self.zones]
        self.world = Refusals(
            apps,
            nodes=[FULL_NODE] * len(self.zones),
            maximum=len(self.zones) + sum(app.pods for app in apps) + chance.randint(1, 6),
            boots=timedelta(minutes=chance.choice([1, 2, 4])),
            seed=self.seed,
            demand=self.demand,
        )
        self.world.fails_for_good = self.fails_for_good

    def play(self) -> Refusals:
        """Six hours of outages, and then peace."""
        world, chance = self.world, self.chance
        for _ in range(8):
            some = set(chance.sample(self.zones, chance.randint(0, len(self.zones) - 1)))
            world.refusing, world.dead = (some, set()) if chance.random() < 0.7 else (set(), some)
            self.happened["zones fail"] += bool(some)
            if self.deaths and chance.random() < 0.5:
                world.run(Life(at=chance.randrange(24), how=chance.choice([How.BEFORE, How.AFTER, How.LOST])))
            world.live(chance.choice([3, 10, 40, 90]) * MINUTE)
        world.refusing, world.dead = set(), set()
        world.live(1.5 * HOUR)
        return world


def play_request(seed: int) -> tuple[Refusals, int, tuple[str, ...]]:
    """Return a world after a request of so many nodes for these groups, of which zones refuse some for an hour."""
    chance = random.Random(seed)
    world = Refusals([bound("web", "a", chance.randint(0, 1))], maximum=20, demand="scale-up", seed=seed)
    nodes = chance.randint(1, 6)
    only = tuple(f"workers-{zone}" for zone in sorted(chance.sample("abc", chance.randint(1, 3))))
    world.refusing = set(chance.sample("abc", chance.randint(1, 2)))
    world.request("more", nodes, only)
    for _ in range(6):
        world.unread = chance.random() < 0.2
        if chance.random() < 0.5:
            world.run(Life(at=chance.randrange(24), how=chance.choice([How.BEFORE, How.AFTER, How.LOST])))
        world.live(chance.choice([1, 4, 9]) * MINUTE)
        world.refusing = set(chance.sample("abc", chance.randint(0, 2)))
    world.unread, world.refusing = False, set()
    world.live(HOUR)
    return world, nodes, only
