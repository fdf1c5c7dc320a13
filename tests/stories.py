"""Random worlds: some hours of random happenings, then rest, in which every problem must end."""

from __future__ import annotations

import copy
import math
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.model.convergence import Deleting, Draining, Starting, Step
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.policy import Leave
from evenkeel.domain.model.templates import Taint
from evenkeel.domain.model.workload import FIRST_MINUTES, ZONE, NodeSelectorTerm, Requirement, Workload
from evenkeel.state_records import ZoneRecord, ZoneStatement
from tests.crashing import How, Life
from tests.parts import replace
from tests.workloads import EVERYTHING, template
from tests.world import CORES, HOUR, MINUTE, App, Happening, Script, Shape, World, dying

LABEL = {"disk": "fast"}
REFUSES = "a zone refuses machines, or no longer"
W = TypeVar("W", bound=World)


def bound(name: str, zone: str, pods: int = 1, **fields: Any) -> App:
    """Pods that run in one zone only."""
    return App(name, pods, **{"milli": 3000, **fields}, fields={"node_selector": {ZONE: zone}})


class Story(Generic[W]):
    """A world made of its seed, and the script of its happenings, which ``happened`` counts."""

    world: W
    script: Script[W]

    def __init__(self, seed: int) -> None:
        self.seed, self.chance = seed, random.Random(seed)

    @property
    def happened(self) -> Counter[str]:
        return self.script.happened

    def rest(self, checks: int, calm: int, helps: Callable[[W], bool] = lambda _: True) -> None:
        """Run until nothing is written and no clock runs, for so many checks in turn."""
        world, quiet = self.world, 0
        for _ in range(checks):
            summary = world.run()
            is_quiet = summary is not None and not summary.written and not world.clocks()
            quiet = quiet + 1 if helps(world) and is_quiet else 0
            if quiet > calm:
                return
            world.pass_time(2 * MINUTE)
        world.faults.append("it does not come to rest")


# ---------------------------------------------------------------- demand that comes and goes


def _another_demand(most: int) -> Callable[[World, random.Random], None]:
    def happen(world: World, chance: random.Random) -> None:
        chance.choice(list(world.apps.values())).pods = chance.randint(0, most)

    return happen


def _controllers_stop(world: World, _: random.Random) -> None:
    world.slow = not world.slow


def _workload_goes(world: World, _: random.Random) -> None:
    world.unread = None if world.unread else ClusterUnavailableError("away")


class DemandStory(Story[World]):
    """Changing demand, workers that die, operators who scale groups, and removals of unneeded nodes."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = self.chance
        nodes = [chance.randint(0, 3) for _ in range(chance.randint(1, 3))]
        apps = [
            App(
                name=f"app{i}",
                pods=chance.randint(0, 6),
                milli=chance.choice([200, 500, 1000, 1900]),
                budget=chance.choice([None, None, 0, 1, 2]),
            )
            for i in range(chance.randint(1, 3))
        ]
        self.world = World(
            apps,
            nodes=nodes,
            minimum=chance.randint(0, min(3, sum(nodes))),
            takes=chance.choice([timedelta(0), MINUTE, 4 * MINUTE]),
            mark_is_ours=chance.random() < 0.5,
            seed=seed,
        )
        self.script = Script(
            [
                Happening("an app has other pods", _another_demand(8)),
                Happening("machine controllers stop or go on", _controllers_stop),
                Happening("the workload goes away or is back", _workload_goes),
                Happening("replicas are raised by hand", World.raise_by_hand),
            ],
            quiet=8,
        )

    def play(self) -> list[str]:
        """Return the problems that are left."""
        world, chance = self.world, self.chance
        for _ in range(chance.randint(8, 20)):
            life = dying(chance) if chance.random() < 0.4 else Life()
            world.run(life)
            if life.at is not None and life.at < len(life.steps):
                self.happened[life.how.value] += 1
            self.script.next(world, chance)
            world.pass_time(timedelta(seconds=chance.choice([15, 60, 60, 240])))
        world.slow, world.unread = False, None
        for app in world.apps.values():
            # A pod that no drain may evict is placed on a node that is not cordoned yet.
            app.budget = app.budget or None
        self.rest(120, 4, self._help)
        return world.wrong()

    def _help(self, world: World) -> bool:
        """Let an operator end drains that a budget holds, and contests of replicas.

        Return True if no node is being drained.
        """
        drained = world.cordoned & set(world.node_names())
        self._loosen(drained)
        stored = world.store.load("demo")
        for key, known in stored.state.groups.items():
            if known.contest.contested_since is not None:
                known = replace(known, contest=known.contest.uncontested())
                world.store.save_group("demo", key, known, stored.versions)
        return not drained

    def _loosen(self, drained: Collection[str]) -> None:
        world = self.world
        for each in (each for name in drained for each in world.on(name)):
            app = world.apps[world.pods[each].labels["app"]]
            if app.budget == 0:
                app.budget = 1
                self.happened["a budget gives way to a drain"] += 1


# ---------------------------------------------------------------- nodes that are not Ready


class Zone(NamedTuple):
    """The counts of a zone that the rule depends on."""

    nodes: int
    broken: int

    @property
    def is_unhealthy(self) -> bool:
        return (self.broken > 3 and self.broken / self.nodes > 0.45) or (self.broken == self.nodes and self.nodes > 1)


class Broken(World):
    """A world whose runs are compared with the rule about nodes that are not Ready."""

    timeout = timedelta(minutes=15)

    def __init__(self, *arguments: Any, **fields: Any) -> None:
        self.ever_ready: set[str] = set()
        super().__init__(*arguments, **{"maximum": 60, **fields})
        self.ever_ready |= set(self.node_names())

    def outage(self, zone: str, *, dead: bool = True) -> None:
        self.down(self.in_zone(zone))
        self.unready |= {zone} if dead else set()

    def end(self, zone: str) -> None:
        self.unready.discard(zone)
        self.up(self.in_zone(zone))

    def pass_time(self, time: timedelta | None = None) -> None:
        super().pass_time(time)
        # In its first minutes a Node does not show that it was Ready.
        nodes, now = self.cluster.nodes(), self.clock.now()
        shown = {name for name, each in nodes.items() if now - self.born(name, each) > FIRST_MINUTES}
        self.ever_ready |= shown - self.not_ready.keys()

    def seen(self, *, judges_nodes: bool) -> Workload:
        """Return the workload. Without pending pods, nodes are read only to search for unneeded nodes."""
        if judges_nodes:
            return self.workload()
        return replace(self.workload() if self.waiting() else Workload(), whole=False)

    def autoscaler_loop(self) -> list[str]:
        """Order a node for each waiting pod, less upcoming ones, in any zone below its max. Return the zones."""
        zones = []
        for _ in range(len(self.waiting()) - sum(map(self.upcoming, self.zones()))):
            groups = [each for each in self.cluster.groups.values() if each.bounds and each.requested < each.bounds.max]
            if groups:
                chosen = self.chance.choice(groups)
                self.cluster.change(chosen.key, requested=chosen.requested + 1)
                zones.append(chosen.identity.zone or "")
        return zones

    def zones(self) -> dict[str, Zone]:
        now, found = self.clock.now(), {zone: Zone(0, 0) for zone in self.zone_names()}
        for name, each in self.cluster.nodes().items():
            zone, born = self.zone_of(name), self.born(name, each)
            is_broken = name in self.not_ready and now - born >= self.timeout
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
        """Return the number of machines without a node, and of nodes that may still become Ready."""
        machines = [
            machine
            for group, found in self.cluster.machines.items()
            if group.name.endswith(f"-{zone}")
            for machine in found.values()
            if not machine.deleting and not machine.failure
        ]
        young = [each for each in machines if self.clock.now() - (each.launched_at or each.created_at) < self.timeout]
        return sum(not machine.has_node or machine.name in self.not_ready for machine in young)

    def run(self, life: Life | None = None) -> RunSummary | None:
        """Run once, and compare with the rule."""
        zones, rests, before, removed = self.zones(), self.rests(), self.requested(), len(self.removed)
        upcoming = {zone: self.upcoming(zone) for zone in zones}
        now = self.clock.now()
        summary = super().run(life)
        if self.clock.now() != now:
            return summary  # the run died, and time has passed
        orders = {zone: more for zone, count in self.requested().items() if (more := count - before[zone]) > 0}
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


def _any_zone(world: World, chance: random.Random) -> str:
    return chance.choice(world.zone_names())


def _zone_dies(world: Broken, chance: random.Random) -> None:
    world.outage(_any_zone(world, chance), dead=chance.random() < 0.6)


def _some_nodes_break(world: Broken, chance: random.Random) -> None:
    names = world.in_zone(_any_zone(world, chance))
    world.down(chance.sample(names, chance.randint(0, len(names))))


def _nodes_flap(world: Broken, chance: random.Random) -> None:
    flapping = [name for name in world.node_names() if chance.random() < 0.3]
    (world.up if chance.random() < 0.5 else world.down)(flapping)


def _kubelet_returns(world: Broken, _: random.Random) -> bool:
    late = sorted(world.not_ready)
    world.up(late[:1])
    return bool(late)


def _zone_refuses(world: World, chance: random.Random) -> None:
    world.refusing ^= {_any_zone(world, chance)}


def _other_pods(world: Broken, chance: random.Random) -> None:
    world.apps["free"].pods = chance.randint(0, 14)


class BrokenStory(Story[Broken]):
    """Zones die and return or refuse machines, nodes flap, kubelets are late, workers die."""

    def __init__(self, seed: int, *, fails_for_good: bool = False) -> None:
        super().__init__(seed)
        chance = self.chance
        names = "abc"[: chance.randint(2, 3)]
        apps = [App("free", pods=chance.randint(1, 14), milli=chance.choice([900, 1900, 2900]))]
        for zone in names:
            if chance.random() < 0.4:
                apps.append(bound(f"bound-{zone}", zone, chance.randint(1, 4), milli=chance.choice([900, 2900])))
        nodes = [chance.randint(0, 7) for _ in names]
        self.world = Broken(apps, nodes=nodes, takes=chance.choice([MINUTE, 4 * MINUTE]), seed=seed)
        self.world.fails_for_good = fails_for_good
        self.script = Script(
            [
                Happening("a zone dies", _zone_dies, 2),
                Happening("a zone returns", lambda world, chance: world.end(_any_zone(world, chance))),
                Happening("some nodes are not Ready", _some_nodes_break),
                Happening("nodes flap", _nodes_flap, 2),
                Happening("a kubelet comes back late", _kubelet_returns),
                Happening("demand changes", _other_pods),
                Happening(REFUSES, _zone_refuses),
            ],
            quiet=15,
        )

    def play(self) -> list[str]:
        """Return the problems and incidents that are left."""
        world, chance = self.world, self.chance
        for _ in range(chance.randint(30, 90)):
            self.script.next(world, chance)
            dies = chance.random() < 0.1
            world.run(Life(at=chance.randrange(24), how=chance.choice([How.BEFORE, How.AFTER])) if dies else None)
            world.pass_time(timedelta(seconds=chance.choice([15, 60, 60, 300])))
        for zone in world.zone_names():
            world.end(zone)
        world.refusing.clear()
        self.rest(200, 40)  # fences of probes that failed have ended
        return [*world.wrong(), *(incident.key for incident in world.incidents())]


# ---------------------------------------------------------------- nodes that are as expected


def _zones_give_nothing(world: World, chance: random.Random) -> None:
    world.dead = set(chance.sample("abc", chance.randint(0, 2)))


def _machines_take(world: World, chance: random.Random) -> None:
    world.takes = timedelta(minutes=chance.choice([1, 2, 4, 8]))


def _pods_are_renamed(world: World, chance: random.Random) -> None:
    world.renames = timedelta(minutes=chance.choice([0, 3, 10]))


def _worker_dies(world: World, chance: random.Random) -> None:
    world.run(dying(chance))


def _daemon_changes(world: World, chance: random.Random) -> None:
    if world.daemons:
        world.daemons["agent"] = chance.choice([100, 200, 400])


class ExpectedNodesStory(Story[World]):
    """New nodes are as expected, with changing demand, outages and workers that die."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        chance = self.chance
        self.shape = Shape(labels=LABEL if chance.random() < 0.5 else {})
        zones = chance.randint(1, 3)
        nodes = [chance.randint(0, 2) for _ in range(zones)]
        self.world = World(
            [self._app(number, zones) for number in range(chance.randint(1, 4))],
            nodes=nodes,
            full=True,
            shapes=[self.shape] * zones,
            makes=self.shape,
            promised=template(labels=dict(self.shape.labels)),
            daemons={"agent": 200} if chance.random() < 0.5 else {},
            lists_daemons=chance.random() < 0.5,
            takes=timedelta(minutes=chance.choice([1, 2, 4])),
            maximum=60,
            provision_timeout=600,
            pools=chance.choice([("workers",), ("workers",), ("large", "workers")]),
        )
        self.script = Script(
            [
                Happening("an app has other pods", _another_demand(10), 3),
                Happening("zones give no machines", _zones_give_nothing),
                Happening("machines take another time", _machines_take),
                Happening("waiting pods are made anew", _pods_are_renamed),
                Happening("a worker dies", _worker_dies),
                Happening("a DaemonSet changes", _daemon_changes),
            ]
        )

    def _app(self, number: int, zones: int) -> App:
        chance = self.chance
        selects: dict[str, str] = {}
        if chance.random() < 0.25:
            selects[ZONE] = chance.choice("abc"[:zones])
        if self.shape.labels and chance.random() < 0.3:
            selects |= LABEL
        pods, milli = chance.randint(0, 6), chance.choice([500, 1000, 1500, 3000])
        return App(f"app{number}", pods, milli, fields={"node_selector": selects}, is_unique=chance.random() < 0.2)

    def play(self) -> World:
        """Play two hours of random happenings, then rest."""
        world = self.world
        for _ in range(16):
            self.script.next(world, self.chance)
            world.live_for(timedelta(minutes=self.chance.choice([2, 5, 8, 15])))
        world.dead.clear()
        world.renames = timedelta(0)
        world.live_for(100 * MINUTE)
        return world


# ---------------------------------------------------------------- zones that refuse machines


class Refusals(World):
    """A world that knows how long a node has been without a pod."""

    def __init__(self, apps: Collection[App], **fields: Any) -> None:
        self.idle_since: dict[str, datetime] = {}
        self.longest_idle = timedelta(0)
        given = {"nodes": (1, 1, 1), "full": True, "maximum": 12, "takes": 2 * MINUTE, **fields}
        super().__init__(list(apps), **given)

    def settle_pods(self) -> None:
        super().settle_pods()
        now, idle = self.clock.now(), [name for name in self.node_names() if not self.on(name)]
        self.idle_since = {name: self.idle_since.get(name, now) for name in idle}
        self.longest_idle = max([self.longest_idle, *(now - since for since in self.idle_since.values())])


class RefusalStory(Story[Refusals]):
    """Pods bound to a zone or not, and zones that refuse machines for minutes or hours."""

    def __init__(self, seed: int, demand: str = "scale-up", *, deaths: bool = False, fails_for_good: bool = False):
        super().__init__(seed)
        chance, self.deaths = self.chance, deaths
        self.zones = "abcd"[: chance.randint(2, 4)]
        apps = [App("free", chance.randint(0, 4), 3000)]
        apps += [bound(f"bound-{zone}", zone, chance.randint(0, 2)) for zone in self.zones]
        self.world = Refusals(
            apps,
            nodes=[1] * len(self.zones),
            maximum=len(self.zones) + sum(app.pods for app in apps) + chance.randint(1, 6),
            takes=timedelta(minutes=chance.choice([1, 2, 4])),
            seed=seed,
            demand=demand,
        )
        self.world.fails_for_good = fails_for_good
        self.script = Script([Happening("zones fail", self._zones_fail)])

    def _zones_fail(self, world: Refusals, chance: random.Random) -> bool:
        some = set(chance.sample(self.zones, chance.randint(0, len(self.zones) - 1)))
        world.refusing, world.dead = (some, set()) if chance.random() < 0.7 else (set(), some)
        return bool(some)

    def play(self) -> Refusals:
        """Play six hours of outages, then rest."""
        world, chance = self.world, self.chance
        for _ in range(8):
            self.script.next(world, chance)
            if self.deaths and chance.random() < 0.5:
                world.run(dying(chance))
            world.live_for(chance.choice([3, 10, 40, 90]) * MINUTE)
        world.refusing, world.dead = set(), set()
        world.live_for(1.5 * HOUR)
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
        world.unread = ClusterUnavailableError("away") if chance.random() < 0.2 else None
        if chance.random() < 0.5:
            world.run(dying(chance))
        world.live_for(chance.choice([1, 4, 9]) * MINUTE)
        world.refusing = set(chance.sample("abc", chance.randint(0, 2)))
    world.unread, world.refusing = None, set()
    world.live_for(HOUR)
    return world, nodes, only


# ---------------------------------------------------------------- a pool that converges


class Converging(World):
    """A pool with an autoscaler, whose runs are compared with the promises of converge.

    Others request ``expected`` nodes in all; ``moved`` counts nodes removed for a successor.
    """

    def __init__(self, nodes: Sequence[int], maximum: int, surge: int, **fields: Any) -> None:
        rate = {"blind": True, "per_hour": 60, "surge": surge}
        given = {"full": True, "demand": "off", "workload": None, "level": "converge", "converge": rate, **fields}
        super().__init__([App("shop", sum(nodes), CORES * 1000)], nodes=nodes, maximum=maximum, **given)
        self.maximum, self.expected, self.moved = maximum + surge, sum(nodes), 0
        self.paid: object = None  # the order of the step for which the autoscaler has removed a node
        self.paid_unseen: str | None = None  # the group of that node, until a run has read it
        self.marked_by_others: set[str] = set()
        self.unseen: set[str] = set()  # groups to which the autoscaler has added nodes that no run has found running
        self.left = ""  # the zone that an operator leaves

    def leave(self, zone: str | None) -> None:
        stored, self.left = self.store.load("demo"), zone or ""
        leave = Leave(zone=zone, at=self.clock.now()) if zone else None
        control = stored.control.model_copy(update={"leave": leave})
        self.store.save_record(stored.record, control, stored.versions)

    def groups(self) -> dict[str, NodeGroup]:
        """Return the groups with the nodes that stay."""
        staying = {key: sum(each.has_node for each in self.cluster.staying(key)) for key in self.cluster.groups}
        return {str(key): replace(each, running=staying[key]) for key, each in self.cluster.groups.items()}

    @property
    def step(self) -> Step | None:
        pools = self.store.load("demo").state.pools.values()
        return next((pool.convergence.step for pool in pools), None)

    def begun(self) -> set[datetime]:
        """Return when the steps of the last hour began."""
        return {at for pool in self.store.load("demo").state.pools.values() for at in pool.convergence.begun}

    def run(self, life: Life | None = None) -> RunSummary | None:
        """Run once, and check the promises about nodes ordered and removed."""
        before, begun = self.groups(), self.begun()
        summary = super().run(life)
        if summary is not None:
            self.unseen -= {key for key, each in before.items() if each.running >= each.requested}
        if summary is not None or self.step is None:  # a run that died may have ended the step before
            self.paid_unseen = None
        if self.left and summary is not None and summary.plan is not None and self.begun() - begun:
            groups = summary.plan.pools[0].groups
            if any(each.state is State.FENCED and each.group.identity.zone != self.left for each in groups):
                self.faults.append("a step of a leave begun while another zone fails")
        after = self.groups()
        if sum(each.requested for each in after.values()) > self.expected + 1:
            self.faults.append("more than one node above what was")
        gave = [key for key, each in before.items() if after[key].requested < min(each.running, each.requested)]
        self.moved += len(gave)
        if len(gave) > 1:
            self.faults.append("two nodes removed at once")
        step = self.step
        if gave and (step is None or before[step.order.destination].running < step.order.target_replicas):
            self.faults.append("a node removed before its successor ran")
        return summary

    def owes(self, group: str) -> bool:
        """Return True if, by the groups, a step of this group has ordered a node and removed none for it."""
        step, groups = self.step, self.groups()
        if step is None or group not in step.groups or step.order == self.paid:
            return False
        order, destination = step.order, groups[step.order.destination]
        is_ordered = not isinstance(step, Starting) or destination.ours.move == step.move_id
        is_removed = isinstance(step, Draining) or (
            isinstance(step, Deleting) and groups[step.draining_group].ours.move == step.delete_move_id
        )
        return is_ordered and not is_removed and destination.requested >= order.target_replicas


def _autoscaler_scales(world: Converging, chance: random.Random) -> bool:
    """Add or remove a node within the bounds. No node is removed before a run has read it."""
    found = chance.choice(list(world.cluster.groups.values()))
    wanted = found.requested + chance.choice([-1, 1])
    if found.bounds is None or not found.bounds.min <= wanted <= found.bounds.max:
        return False
    if wanted > found.requested:
        world.unseen.add(str(found.key))
        if world.paid_unseen == str(found.key):
            world.paid = world.paid_unseen = None  # its removal is undone before a run knows of it
        else:
            world.expected += 1
    elif str(found.key) in world.unseen:
        return False
    else:
        going = min(world.cluster.staying(found.key), key=lambda machine: (machine.has_node, chance.random()))
        world.cluster.set(found.key, going.name, marked=True)
        world.marked_by_others.add(going.name)  # if a marked machine of Evenkeel's goes first, this mark stays
        if world.owes(str(found.key)) and world.step is not None:
            world.paid = world.step.order  # the autoscaler does or undoes the step, which counts once
            world.paid_unseen = str(found.key)
        else:
            world.expected -= 1
    world.cluster.change(found.key, requested=wanted)
    world.control()
    return True


def _operator_states_outage(world: Converging, chance: random.Random) -> None:
    now = world.clock.now()
    stated = ZoneStatement(until=now + chance.randint(1, 20) * MINUTE, stated_at=now)
    versions = world.store.load("demo").versions
    world.store.save_zone("demo", "-", _any_zone(world, chance), ZoneRecord(statements={"operator": stated}), versions)


def _operator_leaves(world: Converging, _: random.Random) -> None:
    world.leave(None if world.left else "a")


class ConvergenceStory(Story[Converging]):
    """Workers die, and machines boot and drain at random times.

    ``hostile``: zones refuse machines, and an autoscaler and an operator act too. ``leaves``: zone a is left.
    """

    def __init__(self, seed: int, *, hostile: bool, leaves: bool = False) -> None:
        super().__init__(seed)
        chance = self.chance
        nodes = [chance.randint(0, 6) for _ in range(chance.randint(2, 4))]
        self.autoscaler, self.hostile, self.leaves = chance.choice(["cluster-autoscaler", "none"]), hostile, leaves
        self.world = Converging(
            nodes,
            maximum=max(sum(nodes) + chance.randint(0, 4), 1),
            surge=chance.randint(0, 1),
            takes=timedelta(0),
            mark_is_ours=chance.random() < 0.5,
            autoscaler=self.autoscaler,
            level="off" if leaves else "converge",
            seed=seed,
        )
        happenings = [Happening("an operator states an outage", _operator_states_outage)]
        if chance.random() < 0.5:
            happenings.append(Happening(REFUSES, _zone_refuses))
        if self.autoscaler != "none":
            happenings.append(Happening("an autoscaler scales", _autoscaler_scales, 2))
        if leaves:
            happenings.append(Happening("an operator leaves the zone, or goes back", _operator_leaves))
        self.script = Script(happenings if hostile else [], quiet=8)

    def play(self) -> list[str]:
        """Play up to half an hour of random happenings, then rest. Return the problems that are left."""
        world, chance = self.world, self.chance
        shop = world.apps["shop"]
        world.leave("a" if self.leaves else None)
        world.run()
        world.pass_time(11 * MINUTE)
        for _ in range(chance.randint(4, 24)):
            world.run(dying(chance) if chance.random() < 0.5 else None)
            world.takes = timedelta(0) if chance.random() < 0.7 else HOUR
            shop.budget = None if chance.random() < 0.7 else 0  # the nodes that go are not drained
            world.pass_time(timedelta(seconds=75))
            self.script.next(world, chance)
        world.takes, shop.budget = timedelta(0), None
        world.refusing.clear()
        world.leave("a" if self.leaves else None)
        for _ in range(280):
            if not self._wrong():
                break
            world.live(1, timedelta(seconds=75))
        world.leave(None)
        world.live(16, timedelta(seconds=75))
        return [*world.faults, *world.left_open(world.marked_by_others), *self._wrong()]

    def _wrong(self) -> list[str]:
        world, counts = self.world, self.world.requested()
        pools = world.store.load("demo").state.pools.values()
        found = ["a step is open"] if any(pool.convergence.step for pool in pools) else []
        # Refused nodes are released, and an autoscaler orders them again.
        counts_fewer = self.autoscaler != "none" and self.happened[REFUSES] > 0
        if sum(counts.values()) != world.expected and not counts_fewer:
            found.append(f"{sum(counts.values())} nodes in place of {world.expected}")
        is_held = any(pool.convergence.held_until for pool in pools)
        if is_held and not self.hostile:
            found.append("a death holds the pool")
        is_over = counts["a"] == 0 if self.leaves else max(counts.values()) - min(counts.values()) < 2
        if not is_over and not is_held and sum(counts.values()) < world.maximum:
            found.append(f"the pool is left uneven: {counts}")
        return found


# ---------------------------------------------------------------- orders that do not help


@dataclass(frozen=True, kw_only=True)
class Case:
    """A world in which orders do not help, its limits of orders, and an operator's fix."""

    make: Callable[..., World]
    fix: Callable[[World], None]
    first: int = 6  # orders in the first hour
    later: int = 2  # orders an hour from the third on
    ordered: bool = True  # False: the objects show that no node would help
    is_visible: bool = True  # objects show the fix, so that the next check uses it
    is_soon: bool = True  # a pod is placed within 20 minutes


def ordering(apps: Sequence[App], **fields: Any) -> World:
    """Return a world without room on its nodes, if it has any. Machines take two minutes."""
    return World(apps, **{"nodes": (0, 0, 0), "full": True, "takes": 2 * MINUTE, **fields})


def _of(app: Mapping[str, Any] | None = None, **fields: Any) -> Callable[..., World]:
    """Return a function that makes a world with one app of three pods."""
    return lambda **more: ordering([App(**{"name": "web", "pods": 3, "milli": 3000, **(app or {})})], **fields, **more)


def per_hour(world: World, hours: int) -> list[int]:
    """Return how many nodes were ordered in each hour."""
    counts = Counter[int]()
    for order in world.orders:
        counts[int(order.at / HOUR)] += order.nodes
    return [counts[hour] for hour in range(hours)]


def fixed_at_each_minute(world: World, minutes: int) -> list[int]:
    """Return after how many minutes a pod is placed, if the bootstrap is fixed in each of the next minutes.

    The fix changes only machines that are ordered after it.
    """
    waits = []
    for _ in range(minutes):
        played = copy.deepcopy(world)
        before, fixed = played.waiting(), played.clock.now()
        for machines in played.cluster.machines.values():
            played.shapes = {**dict.fromkeys(machines, _UNREADY), **played.shapes}
        played.new_nodes_are(Shape())
        while len(played.waiting()) == len(before) and played.clock.now() - fixed < HOUR:
            played.live_for(MINUTE)
        waits.append(math.ceil((played.clock.now() - fixed) / MINUTE))
        world.live_for(MINUTE)
    return waits


def _another_spec(world: World) -> None:
    world.apps["web"] = replace(world.apps["web"], fields={"tolerations": EVERYTHING}, milli=2000)
    world.make_pods_anew()


def _no_daemon(world: World) -> None:
    world.daemons.clear()


def _bootstrap(world: World) -> None:
    world.new_nodes_are(Shape())


_FAST, _PLAIN, _UNREADY = Shape(labels=LABEL), Shape(), Shape(ready=False)
RED = Shape(taints=(Taint("team", "red", "NoSchedule"),))
SELECTS = {"fields": {"node_selector": LABEL}}
ABSENT = {"fields": {"node_terms": (NodeSelectorTerm(expressions=(Requirement("disk", "DoesNotExist"),)),)}}
tainted = _of(nodes=(1, 1, 1), makes=RED)
zero_taint = _of(makes=RED)
_large: dict[str, Any] = {"nodes": (1, 1, 1), "shapes": (Shape(cores=8),) * 3, "promised": template(cpu="8")}
_NOT_READY: dict[str, Any] = {"fix": _bootstrap, "first": 12, "later": 4, "is_visible": False}
CASES: Mapping[str, Case] = {
    "a label set by hand on one node": Case(
        make=_of(SELECTS, nodes=(1, 1, 1), shapes=(_FAST, _PLAIN, _PLAIN)), fix=_another_spec
    ),
    "a label set by hand on the only node": Case(
        make=_of(SELECTS, nodes=(1, 0, 0), shapes=(_FAST,)), fix=_another_spec
    ),
    "a machine type made smaller": Case(make=_of({"milli": 6000}, **_large), fix=_another_spec),
    "new nodes carry a taint": Case(make=tainted, fix=_another_spec, first=15, later=4),
    "at zero, the template lacks a taint": Case(make=zero_taint, fix=_another_spec),
    "at zero, the template lacks a label": Case(make=_of(ABSENT, makes=_FAST), fix=_another_spec),
    "at zero, the template claims too much": Case(
        make=_of({"milli": 3500}, promised=template(cpu="4"), makes=Shape(cores=3)), fix=_another_spec
    ),
    "at zero, a DaemonSet that is listed": Case(make=_of(daemons={"agent": 1500}), fix=_no_daemon, ordered=False),
    "at zero, a DaemonSet that is not listed": Case(
        make=_of(daemons={"agent": 1500}, lists_daemons=False), fix=_no_daemon, is_visible=False, is_soon=False
    ),
    "nodes never become Ready": Case(make=_of(makes=_UNREADY), **_NOT_READY),
    "nodes never become Ready, one zone": Case(make=_of(nodes=(0,), makes=_UNREADY), **_NOT_READY),
    # A pool of three zones of which only one can serve the pods.
    "nodes never become Ready, pods of one zone": Case(
        make=_of({"fields": {"node_selector": {ZONE: "a"}}}, makes=_UNREADY), **_NOT_READY
    ),
}
