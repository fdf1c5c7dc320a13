"""A small cluster in which nodes stop being Ready: whole zones, nodes that flap, and new nodes that never start."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.incidents import Incident
from evenkeel.domain.model.workload import FIRST_MINUTES, ZONE, Pod, Workload
from tests.crashing import How, Life
from tests.parts import replace
from tests.shrinking import MINUTE, App, Valley

TIMEOUT = timedelta(minutes=15)
EVICTED_AFTER = timedelta(minutes=5)


class Zone(NamedTuple):
    """What a reader of the rule counts in a zone."""

    nodes: int
    broken: int

    @property
    def is_unhealthy(self) -> bool:
        return (self.broken > 3 and self.broken / self.nodes > 0.45) or (self.broken == self.nodes and self.nodes > 1)


class Broken(Valley):
    """A valley whose nodes may be not Ready. ``dead``: zones in which new nodes register and never become Ready.

    ``refusing``: zones that refuse each new machine. Their machine controllers try again and again, or never if
    ``fails_for_good``.
    """

    fails_for_good = False

    def __init__(self, apps: Iterable[App], **fields: Any) -> None:
        self.dead: set[str] = set()
        self.refusing: set[str] = set()
        self.ever_ready: set[str] = set()
        super().__init__(list(apps), **fields)
        self.ever_ready |= set(self.node_names())

    def allows(self, pod: Pod, place: str) -> bool:
        return pod.needs.node_selector.get(ZONE) in (None, self.zone_of(place))

    def down(self, names: Iterable[str]) -> None:
        for name in names:
            self.not_ready.setdefault(name, self.clock.now())

    def up(self, names: Iterable[str]) -> None:
        for name in list(names):
            self.not_ready.pop(name, None)

    def in_zone(self, zone: str) -> list[str]:
        return [name for name in self.node_names() if self.zone_of(name) == zone]

    def outage(self, zone: str, *, dead: bool = True) -> None:
        self.down(self.in_zone(zone))
        if dead:
            self.dead.add(zone)

    def end(self, zone: str) -> None:
        self.dead.discard(zone)
        self.up(self.in_zone(zone))

    def control(self) -> None:
        joined = set(self.node_names())
        super().control()
        now = self.clock.now()
        for group, machines in self.cluster.machines.items():
            for name, machine in list(machines.items()):
                if group.name[-1] in self.refusing and name not in joined:
                    code = "InsufficientInstanceCapacity"
                    failure = machine.failure or MachineFailure(code=code, message="no room", at=now)
                    final = self.fails_for_good
                    self.cluster.set(group, name, has_node=False, failure=failure, failed_for_good=final)
                elif machine.failure is not None and self.fails_for_good:
                    self.cluster.set(group, name, has_node=False)
                elif machine.failure is not None:
                    self.cluster.set(group, name, failure=None, created_at=now, launched_at=now)

    def pass_time(self, time: timedelta = MINUTE) -> None:
        """The node controller deletes the pods of a node that is not Ready for five minutes; others replace them."""
        before = set(self.node_names())
        self.clock.at += time
        self.control()
        now = self.clock.now()
        self.down(name for name in set(self.node_names()) - before if self.zone_of(name) in self.dead)
        self.not_ready = {name: since for name, since in self.not_ready.items() if name in self.node_names()}
        self.ever_ready |= {name for name in set(self.node_names()) - self.not_ready.keys() if self._is_old(name)}
        gone = {name for name, since in self.not_ready.items() if now - since >= EVICTED_AFTER}
        self.pods = {name: pod for name, pod in self.pods.items() if pod.node not in gone}
        self.settle_pods()

    def _is_old(self, name: str) -> bool:
        """Whether a node is older than the minutes in which a Node does not show that it was Ready."""
        machine = self.cluster.nodes()[name].machine
        return machine is not None and self.clock.now() - machine.created_at > FIRST_MINUTES

    def seen(self, *, judges_nodes: bool) -> Workload:
        """Without pending pods, no nodes are read, unless unneeded nodes are looked for."""
        if judges_nodes:
            return self.workload()
        return replace(self.workload() if self.waiting() else Workload(), whole=False)

    def autoscaler_loop(self) -> list[str]:
        """Order a node for each pod that waits, beyond upcoming ones, in any zone below its max. Return the zones."""
        zones = []
        for _ in range(len(self.waiting()) - sum(map(self.upcoming, self.zones()))):
            groups = [each for each in self.cluster.groups.values() if each.bounds and each.requested < each.bounds.max]
            if groups:
                chosen = self.chance.choice(groups)
                self.cluster.change(chosen.key, requested=chosen.requested + 1)
                zones.append(chosen.identity.zone or "")
        return zones

    # -- what the rule says, counted anew

    def zones(self) -> dict[str, Zone]:
        now, found = self.clock.now(), {each.identity.zone or "": Zone(0, 0) for each in self.cluster.groups.values()}
        for name, each in self.cluster.nodes().items():
            zone, born = self.zone_of(name), each.machine.created_at if each.machine else now
            is_broken = name in self.not_ready and now - born >= TIMEOUT
            is_failed_launch = is_broken and self.not_ready[name] - born <= FIRST_MINUTES
            if not each.deleting and (is_broken or name not in self.not_ready) and not is_failed_launch:
                found[zone] = Zone(found[zone].nodes + 1, found[zone].broken + is_broken)
        return found

    def rests(self) -> bool:
        zones = self.zones()
        healthy = [zone for zone in zones.values() if not zone.is_unhealthy]
        rest = Zone(sum(zone.nodes for zone in healthy), sum(zone.broken for zone in healthy))
        return not healthy or rest.is_unhealthy

    def upcoming(self, zone: str) -> int:
        """Machines without a node, and nodes that may still become Ready."""
        machines = [
            machine
            for group, found in self.cluster.machines.items()
            if group.name.endswith(f"-{zone}")
            for machine in found.values()
            if not machine.deleting and not machine.failure and self.clock.now() - machine.created_at < TIMEOUT
        ]
        return sum(not machine.has_node or machine.name in self.not_ready for machine in machines)

    def waiting(self, *apps: str) -> list[str]:
        return [name for name, pod in self.pods.items() if not pod.node and (not apps or pod.labels["app"] in apps)]

    def incidents(self) -> tuple[Incident, ...]:
        return self.store.load("demo").cluster_health.incidents

    def run(self, life: Life | None = None) -> Any:
        """One run, compared with the rule."""
        zones, rests, names, removed = self.zones(), self.rests(), self.requested(), len(self.removed)
        upcoming = {zone: self.upcoming(zone) for zone in zones}
        now = self.clock.now()
        summary = super().run(life)
        if self.clock.now() != now:
            return summary  # the run died, and time has passed
        orders = {zone: more for zone, count in self.requested().items() if (more := count - names[zone]) > 0}
        taken = [name for name in self.removed[removed:] if name in self.ever_ready]
        for zone, count in zones.items():
            gone = [name for name in taken if self.zone_of(name) == zone]
            if (count.is_unhealthy or rests) and gone:
                self.faults.append(f"{now:%H:%M} {gone} of {zone}, whose nodes are {count}, were Ready and go")
            if count.is_unhealthy and orders.get(zone, 0) > (upcoming[zone] == 0 and orders == {zone: 1}):
                self.faults.append(f"{now:%H:%M} {orders} in {zones}, {upcoming} upcoming")
        if rests and orders:
            self.faults.append(f"{now:%H:%M} {orders} although the cluster rests: {zones}")
        return summary


@dataclass
class BrokenStory:
    """A world by chance: zones die and return or refuse machines, nodes flap, kubelets are late, workers die."""

    seed: int
    fails_for_good: bool = False
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        chance = self.chance = random.Random(self.seed)
        names = "abc"[: chance.randint(2, 3)]
        apps = [App("free", pods=chance.randint(1, 14), milli=chance.choice([900, 1900, 2900]))]
        for zone in names:
            if chance.random() < 0.4:
                bound = {"node_selector": {ZONE: zone}}
                apps.append(App(f"bound-{zone}", chance.randint(1, 4), milli=chance.choice([900, 2900]), fields=bound))
        self.world = Broken(
            apps,
            nodes=[chance.randint(0, 7) for _ in names],
            maximum=60,
            takes=chance.choice([MINUTE, 4 * MINUTE]),
            seed=self.seed,
        )
        self.world.fails_for_good = self.fails_for_good

    def play(self) -> list[str]:
        world, chance = self.world, self.chance
        for _ in range(chance.randint(30, 90)):
            self._minute()
        for zone in world.zones():
            world.end(zone)
        world.refusing.clear()
        world.slow, world.unread = False, None
        self._peace()
        left = [incident.key for incident in world.incidents()]
        return [*world.wrong(), *left]

    def _minute(self) -> None:
        world, chance = self.world, self.chance
        zone = chance.choice(sorted(world.zones()))
        match chance.randrange(24):
            case 0 | 1:
                world.outage(zone, dead=chance.random() < 0.6)
                self.happened["a zone dies"] += 1
            case 2:
                world.end(zone)
                self.happened["a zone returns"] += 1
            case 3:
                names = world.in_zone(zone)
                world.down(chance.sample(names, chance.randint(0, len(names))))
                self.happened["some nodes are not Ready"] += 1
            case 4 | 5:
                flapping = [name for name in world.node_names() if chance.random() < 0.3]
                world.up(flapping) if chance.random() < 0.5 else world.down(flapping)
                self.happened["nodes flap"] += 1
            case 6:
                late = sorted(world.not_ready)
                world.up(late[:1])
                self.happened["a kubelet comes back late"] += bool(late)
            case 7:
                world.apps["free"].pods = chance.randint(0, 14)
                self.happened["demand changes"] += 1
            case 8:
                world.refusing ^= {zone}
                self.happened["a zone refuses machines, or no longer"] += 1
            case _:
                pass
        life = (
            Life(at=chance.randrange(24), how=chance.choice([How.BEFORE, How.AFTER])) if chance.random() < 0.1 else None
        )
        world.run(life)
        world.pass_time(timedelta(seconds=chance.choice([15, 60, 60, 300])))

    def _peace(self) -> None:
        calm = 0
        for _ in range(200):
            summary = self.world.run()
            calm = calm + 1 if summary is not None and not summary.written and not self.world.clocks() else 0
            if calm > 40:  # fences of probes that failed have ended
                return
            self.world.pass_time(2 * MINUTE)
        self.world.faults.append("it does not come to rest")
