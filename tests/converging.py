"""Nodes lost, doubled or removed early over 10,000 pools on their way back, whose runs come to harm at random steps.

The real use case, store and plan; the cluster in memory, with machines that boot and drain when they like, an
autoscaler that scales within the bounds, and words about zones. The same with the real Kubernetes adapter, at
every request, is tests/integration/test_crashes.py.
"""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta

from evenkeel.application.errors import ClusterUnavailableError, EvenkeelError, QueueUnavailableError
from evenkeel.domain.model.convergence import Deleting, Draining, Starting
from evenkeel.domain.model.groups import GroupKey, Machine, NodeGroup
from evenkeel.state_records import ZoneRecord, ZoneStatement
from tests.builders import group
from tests.crashing import How, KilledError, Life, Mortal
from tests.fakes import FakeClock, FakeCluster, FakeClusters, FakeQueue, InMemoryStore, plenty, register
from tests.timed import worker


class World:
    def __init__(self, chance: random.Random) -> None:
        self.chance, self.clock = chance, FakeClock()
        self.made = 0
        counts = [chance.randint(0, 6) for _ in range(chance.randint(2, 4))]
        groups = [self._with_machines(group(zone, n, bounds=(0, n))) for zone, n in zip("abcd", counts, strict=False)]
        self.cluster, self.store = FakeCluster(groups), InMemoryStore()
        self.before = self.expected = sum(counts)
        self.surge = chance.randint(0, 1)
        self.maximum = max(self.before + chance.randint(0, 4), 1)
        self.autoscaler = chance.choice(["cluster-autoscaler", "none"])
        register(
            self.store,
            pools=[{"name": "workers", "min": 0, "max": self.maximum}],
            autoscaler=self.autoscaler,
            level="converge",
            converge={"blind": True, "per_hour": 60, "surge": self.surge},
        )
        self.wrong: Counter[str] = Counter()
        self.moved = 0
        self.unseen: set[GroupKey] = set()  # where the autoscaler has added nodes that no whole run has found running

    def _with_machines(self, found: NodeGroup) -> NodeGroup:
        listed = list(found.machines or ())
        staying = [machine for machine in listed if not machine.deleting]
        for _ in range(found.requested - len(staying)):
            self.made += 1
            name = f"{found.key.name}-{self.made}"
            listed.append(Machine(name=name, uid=name, has_node=found.machines is None, created_at=self.clock.at))
        running = sum(machine.has_node and not machine.deleting for machine in listed)
        return replace(found, machines=tuple(listed), running=running)

    def _put(self, key: GroupKey, found: NodeGroup) -> None:
        if found != self.cluster.groups[key]:
            self.cluster.change(key, machines=found.machines, running=found.running)

    def controllers(self, *, boots: bool, drains: bool) -> None:
        """Machines are made, deleted (those that are named first), become nodes, and are gone."""
        named = {ref.name for patch in self.cluster.applied for ref in patch.plan.removal.machines}
        for key, found in list(self.cluster.groups.items()):
            machines = list(self._with_machines(found).machines or ())
            staying = [machine for machine in machines if not machine.deleting]
            staying.sort(key=lambda each: (each.name not in named, each.has_node, -each.created_at.timestamp()))
            going = {machine.name for machine in staying[: max(0, len(staying) - found.requested)]}
            machines = [replace(each, deleting=True) if each.name in going else each for each in machines]
            machines = [each for each in machines if not (each.deleting and (drains or not each.has_node))]
            machines = [replace(each, has_node=each.has_node or (boots and not each.deleting)) for each in machines]
            running = sum(machine.has_node and not machine.deleting for machine in machines)
            self._put(key, replace(found, machines=tuple(machines), running=running))

    def run(self, life: Life) -> None:
        before = {key: found.running for key, found in self.cluster.groups.items()}
        requested = {key: found.requested for key, found in self.cluster.groups.items()}
        seen = {key for key in self.unseen if before[key] >= requested[key]}
        mortal = Mortal(self.cluster, life, "cluster", ClusterUnavailableError)
        with contextlib.suppress(KilledError, EvenkeelError):
            worker(
                Mortal(self.store, life, "table"),
                FakeClusters({"demo": mortal}),
                self.clock,
                Mortal(FakeQueue(), life, "queue", QueueUnavailableError),
                random_bytes=self.chance.randbytes,
            )("demo", "a crash", plenty)
            self.unseen -= seen
        self._check(before, requested)
        self.clock.at += timedelta(seconds=75)

    def _check(self, running: dict[GroupKey, int], requested: dict[GroupKey, int]) -> None:
        """After each run: a running node was given up only where the zone of its successor has one more."""
        after = {key: found.requested for key, found in self.cluster.groups.items()}
        total = sum(after.values())
        self.wrong["more than one above what was"] += total > self.expected + 1
        self.wrong["above PoolMaximum without leave"] += total > max(self.maximum + self.surge, self.expected)
        given = [key for key in after if after[key] < min(running[key], requested[key])]
        self.moved += len(given)
        self.wrong["two nodes given at once"] += len(given) > 1
        if given:
            there = {str(key): nodes for key, nodes in running.items()}
            step = self.step
            awaited = step is None or there[step.order.destination] < step.order.target_replicas
            self.wrong["a node removed before its successor ran"] += awaited

    def scale(self) -> None:
        """An autoscaler, within the bounds. It takes no node sooner than a run has seen it: its own delay after it has
        added one is ten minutes, unless a user has changed it.
        """
        key = self.chance.choice(sorted(self.cluster.groups))
        found = self.cluster.groups[key]
        if found.bounds is None or self.autoscaler == "none":
            return
        wanted = min(max(found.requested + self.chance.choice([-1, 1]), found.bounds.min), found.bounds.max)
        if wanted < found.requested and key in self.unseen:
            return
        if wanted > found.requested:
            self.unseen.add(key)
        if wanted < found.requested and self._owes(key):
            self.expected += 1  # it does, or undoes, the step itself
        self.cluster.change(key, requested=wanted)
        self.expected += wanted - found.requested

    def _owes(self, key: GroupKey) -> bool:
        """Whether a step of this group has ordered a machine and none was given for it, as the groups say."""
        step = self.step
        if step is None or str(key) not in step.groups:
            return False
        groups = {str(group): found for group, found in self.cluster.groups.items()}
        moves = {group: found.ours.move for group, found in groups.items()}
        order = step.order
        is_ordered = not isinstance(step, Starting) or moves[order.destination] == step.move_id
        is_given = isinstance(step, Draining) or (
            isinstance(step, Deleting) and moves[step.draining_group] == step.delete_move_id
        )
        is_taken_back = groups[order.destination].requested < order.target_replicas
        return bool(is_ordered and not is_given and not is_taken_back)

    @property
    def step(self):
        pools = self.store.load("demo").state.pools
        return next((pool.convergence.step for pool in pools.values()), None)

    def word(self) -> None:
        now = self.clock.now()
        until = now + timedelta(minutes=self.chance.randint(1, 20))
        zone = self.chance.choice("abcd")
        versions = self.store.load("demo").versions
        self.store.save_zone(
            "demo", "-", zone, ZoneRecord(statements={"operator": ZoneStatement(until=until, stated_at=now)}), versions
        )

    def calm(self) -> None:
        for _ in range(70):
            self.run(Life())
            self.controllers(boots=True, drains=True)

    def evaluate(self) -> None:
        counts = {key: found.requested for key, found in self.cluster.groups.items()}
        total = sum(counts.values())
        self.wrong["nodes lost"] += max(0, self.expected - total)
        self.wrong["nodes doubled"] += max(0, total - self.expected)
        state = self.store.load("demo").state
        self.wrong["steps left open"] += self.step is not None
        self.wrong["journals left open"] += any(pool.move is not None for pool in state.pools.values())
        full = total >= self.maximum + self.surge
        held = any(pool.convergence.held_until is not None for pool in state.pools.values())
        self.wrong["pools left uneven"] += max(counts.values()) - min(counts.values()) > 1 and not full and not held


def crash(seed: int, *, hostile: bool) -> World:
    """One world: up to thirty minutes in which anything may happen to any run, and then peace."""
    chance = random.Random(seed)
    world = World(chance)
    world.run(Life())
    world.clock.at += timedelta(minutes=11)
    for _ in range(chance.randint(4, 24)):
        life = Life()
        if chance.random() < 0.5:
            life = Life(at=chance.randrange(24), how=chance.choice([How.BEFORE, How.AFTER, How.LOST]))
        world.run(life)
        world.controllers(boots=chance.random() < 0.7, drains=chance.random() < 0.7)
        if hostile and chance.random() < 0.2:
            chance.choice([world.scale, world.word])()
            world.controllers(boots=False, drains=False)
    world.calm()
    world.evaluate()
    return world
