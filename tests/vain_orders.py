"""Worlds in which new nodes are not those that were expected; `python -m bench ineffective_orders` uses them too."""

from __future__ import annotations

import contextlib
import copy
import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

from evenkeel.application.errors import EvenkeelError
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Container,
    Needs,
    Node,
    NodeSelectorTerm,
    Owner,
    Pod,
    Requirement,
    Toleration,
    Unscheduled,
    Workload,
)
from evenkeel.domain.rebalancing.writes import Patch
from tests.builders import group
from tests.crashing import How, KilledError, Life
from tests.fakes import FakeBus, FakeClock, FakeQueue, InMemoryStore, plenty, register
from tests.ordering import mortal_worker
from tests.parts import make, replace
from tests.shrinking import FULL, Machines
from tests.workloads import amounts, template

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
SCAN = timedelta(seconds=60)
LABEL, TAINT = {"disk": "fast"}, Taint("team", "red", "NoSchedule")


@dataclass(frozen=True, kw_only=True)
class Make:
    cpu: str = "4"
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True


@dataclass(kw_only=True)
class App:
    """Pods of one ReplicaSet: each is one pod of so many cores."""

    name: str
    pods: int
    cpu: str = "3"
    selects: Mapping[str, str] = field(default_factory=dict)
    tolerates: bool = False
    is_unique: bool = False  # each pod has a label of its own, as those of jobs have
    absent: str = ""  # a label that its nodes must not have
    more: Mapping[str, Any] = field(default_factory=dict)  # further fields of Needs

    def needs(self) -> Needs:
        terms = (_without(self.absent),) if self.absent else None
        tolerations = (Toleration(operator="Exists"),) if self.tolerates else ()
        return make(
            Needs,
            containers=(Container(requests=amounts(cpu=self.cpu, memory="64Mi")),),
            node_selector=dict(self.selects),
            node_terms=terms,
            tolerations=tolerations,
            **self.more,
        )


def _without(key: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(expressions=(Requirement(key, "DoesNotExist"),))


class VainWorld:
    """Pools of so many nodes per zone, and pods. ``makes``: what machines become. Further fields are the record's.

    ``ahead``: of our clock is that of the API server.
    """

    def __init__(
        self,
        apps: Sequence[App],
        *,
        nodes: Sequence[Sequence[Make]] = ((), (), ()),
        makes: Make | None = None,
        promised: NodeTemplate | None = None,
        daemons: Mapping[str, str] | None = None,
        lists_daemons: bool = True,
        boots: timedelta = 2 * MINUTE,
        maximum: int = 30,
        seed: int = 0,
        ahead: timedelta = timedelta(0),
        pools: Sequence[str] = ("workers",),
        **fields: Any,
    ) -> None:
        self.clock, self.queue, self.bus, self.store = FakeClock(), FakeQueue(), FakeBus(), InMemoryStore()
        self.began = self.clock.now()
        self.chance = random.Random(seed)
        self.promised = promised or template()
        groups = [
            group("abcdefgh"[i], len(there), pool=pool, template=self.promised)
            for pool in pools
            for i, there in enumerate(nodes)
        ]
        self.cluster = Machines(groups, self.clock, mark_is_ours=True)
        entries = [{"name": pool, "min": 0, "max": maximum} for pool in pools]
        register(self.store, **{**FULL, "pools": entries, **fields})
        self.ahead = ahead
        self.renames = timedelta(0)  # how often pods that wait are made anew; 0: never
        self.apps = {app.name: app for app in apps}
        self.makes: Callable[[VainWorld, str], Make] = lambda _, __: Make()
        if makes is not None:
            self.make(makes)
        self.boots, self.dead = boots, set[str]()
        self.joined: dict[str, datetime] = {}  # node -> when it registered
        self.daemons = dict(daemons or {})  # DaemonSet -> its cpu
        self.lists_daemons = lists_daemons
        self.shapes: dict[str, Make] = {}  # by node
        for key, there in zip(self.cluster.machines, [*nodes] * len(pools), strict=True):
            for name, shape in zip(self.cluster.machines[key], there, strict=True):
                self.shapes[name] = shape
        self.pods: dict[str, Pod] = {}
        self._named = 0
        self.orders: list[tuple[timedelta, int]] = []
        self.placed: dict[str, timedelta] = {}  # app -> when its last pod was placed
        self.life = Life()
        self.cluster.before_apply = self._patched
        for name in self.shapes:  # what was there before is full
            self._place(replace(self._pod(App(name="old", pods=0, cpu=self.shapes[name].cpu)), node=name))
        self.schedule()

    def make(self, shape: Make) -> None:
        self.makes = lambda _, __: shape

    def now(self) -> timedelta:
        return self.clock.now() - self.began

    def _pod(self, app: App) -> Pod:
        self._named += 1
        return Pod(
            namespace="default",
            name=f"{app.name}-{self._named:05}",
            created_at=self.clock.now() + self.ahead,
            needs=app.needs(),
            labels={"app": app.name, **({"run": str(self._named)} if app.is_unique else {})},
            owner=Owner("ReplicaSet", app.name),
        )

    def _place(self, pod: Pod) -> None:
        self.pods[pod.name] = replace(pod, phase="Running", unscheduled=None)

    def _shape(self, machine: str, zone: str) -> Make:
        if machine not in self.shapes:
            self.shapes[machine] = self.makes(self, zone)
        return self.shapes[machine]

    def nodes(self) -> list[Node]:
        found = []
        for name, each in sorted(self.cluster.nodes().items()):
            zone = each.group.name[-1]
            shape = self._shape(name, zone)
            size = amounts(cpu=shape.cpu, memory="16Gi", pods="110")
            born = each.machine.created_at if each.machine else None
            created = self.joined.get(name, born)
            found.append(
                Node(
                    name=name,
                    labels={HOSTNAME: name, ZONE: zone, **shape.labels},
                    taints=shape.taints,
                    capacity=size,
                    allocatable=size,
                    group=each.group,
                    machine=each.machine,
                    deleting=each.deleting,
                    created_at=created,
                    ready=shape.ready,
                    not_ready_since=None if shape.ready else created,
                )
            )
        return found

    def workload(self) -> Workload:
        daemons = [self._daemon(name, cpu) for name, cpu in self.daemons.items()]
        return Workload(
            pods=tuple(self.pods.values()),
            nodes=tuple(self.nodes()),
            autoscaler_sought=True,
            daemon_sets=tuple(daemons) if self.lists_daemons else (),
        )

    def _daemon(self, name: str, cpu: str) -> Pod:
        needs = make(
            Needs, containers=(Container(requests=amounts(cpu=cpu)),), tolerations=(Toleration(operator="Exists"),)
        )
        owner = Owner("DaemonSet", name)
        return Pod(namespace="kube-system", name=name, created_at=self.clock.now(), needs=needs, owner=owner)

    def schedule(self) -> None:
        nodes = {node.name: node for node in self.nodes() if node.ready and not node.deleting}
        there = set(self.cluster.nodes())
        for name, pod in list(self.pods.items()):
            if pod.node and pod.node not in there:
                del self.pods[name]
        for name in [name for name, pod in self.pods.items() if pod.owner and pod.owner.kind == "DaemonSet"]:
            if self.pods[name].owner.name not in self.daemons:
                del self.pods[name]
        for daemon, cpu in self.daemons.items():
            for node in nodes:
                if f"{daemon}-{node}" not in self.pods:
                    self._place(replace(self._daemon(daemon, cpu), name=f"{daemon}-{node}", node=node))
        for app in self.apps.values():
            mine = sorted((name for name, pod in self.pods.items() if pod.labels.get("app") == app.name))
            mine.sort(key=lambda name: not self.pods[name].node)
            for name in mine[app.pods :]:
                del self.pods[name]
            for _ in range(app.pods - len(mine)):
                pod = self._pod(app)
                self.pods[pod.name] = pod
        free = {name: node.allocatable["cpu"] - self.used(name) for name, node in nodes.items()}
        for name, pod in sorted(self.pods.items()):
            if pod.node:
                continue
            fits = [(free[node.name], node.name) for node in nodes.values() if self._fits(pod, node, free[node.name])]
            if fits:
                _, place = max(fits)
                free[place] -= _cpu(pod)
                self._place(replace(pod, node=place))
                self.placed[pod.labels["app"]] = self.now()
            elif pod.unscheduled is None:
                self.pods[name] = replace(pod, unscheduled=Unscheduled("Unschedulable", self.clock.now()))

    def _fits(self, pod: Pod, node: Node, free: Fraction) -> bool:
        app = self.apps[pod.labels["app"]]
        zone = pod.needs.node_selector.get(ZONE, node.labels[ZONE])
        return (
            _cpu(pod) <= free
            and zone == node.labels[ZONE]
            and all(node.labels.get(key) == value for key, value in pod.needs.node_selector.items())
            and (not node.taints or app.tolerates)
            and (not app.absent or app.absent not in node.labels)
        )

    def used(self, node: str) -> Fraction:
        return sum((_cpu(pod) for pod in self.pods.values() if pod.node == node), Fraction(0))

    def control(self) -> None:
        """Machine controllers: replicas become machines, machines become nodes, and what is surplus goes at once."""
        now = self.clock.now()
        for key, each in self.cluster.groups.items():
            staying = self.cluster.staying(key)
            for _ in range(each.requested - len(staying)):
                self.cluster.make(key)
            order = sorted(staying, key=lambda machine: (not machine.marked, machine.has_node, machine.name))
            for machine in order[: max(0, len(staying) - each.requested)]:
                del self.cluster.machines[key][machine.name]
            for machine in list(self.cluster.machines[key].values()):
                is_due = now - machine.created_at >= self.boots and key.name[-1] not in self.dead
                if not machine.has_node and is_due:
                    self.joined[machine.name] = now + self.ahead
                    self.cluster.set(key, machine.name, has_node=True)

    def _patched(self, patch: Patch) -> None:
        before = self.cluster.groups[patch.plan.group.key].requested
        if patch.requested is not None and patch.requested > before:
            self.orders.append((self.now(), patch.requested - before))

    def run(self, life: Life | None = None) -> None:
        steps = {"observe", "apply", "mark", "unmark", "deletion_candidates"}
        try:
            with contextlib.suppress(EvenkeelError):
                mortal_worker(self, life or Life(), steps)("demo", "a test", plenty)
        except KilledError:
            self.clock.at += timedelta(seconds=75)  # until its lease has ended

    def live(self, length: timedelta) -> None:
        """Scans each minute, and the further checks that runs ask for."""
        ends = self.clock.now() + length
        while self.clock.now() < ends:
            asked = len(self.queue.second_looks)
            self.run()
            self.control()
            soon = [timedelta(seconds=look[2]) for look in self.queue.second_looks[asked:]]
            self.clock.at += min([SCAN, *(each for each in soon if each > timedelta(0))])
            self.control()
            if self.renames and self.now() // self.renames != (self.now() - SCAN) // self.renames:
                self.rename()
            self.schedule()

    def rename(self) -> None:
        for name in [name for name, pod in self.pods.items() if not pod.node]:
            del self.pods[name]

    def per_hour(self, hours: int = 6) -> list[int]:
        counts = Counter(int(at / HOUR) for at, nodes in self.orders for _ in range(nodes))
        return [counts[hour] for hour in range(hours)]

    def incident(self) -> Incident | None:
        cluster_health, _ = self.store.cluster_health("demo")
        return next((each for each in cluster_health.incidents if each.kind is IncidentKind.INEFFECTIVE_ORDER), None)

    def waiting(self, app: str = "web") -> int:
        return sum(not pod.node for pod in self.pods.values() if pod.labels.get("app") == app)


def _cpu(pod: Pod) -> Fraction:
    return sum((each.requests.get("cpu", Fraction(0)) for each in pod.needs.resources.containers), Fraction(0))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A world in which orders do not help, what is allowed in it, and how a person fixes it."""

    make: Callable[..., VainWorld]
    fix: Callable[[VainWorld], None]
    first: int = 6  # orders in the first hour
    later: int = 2  # orders an hour from the third on
    ordered: bool = True  # False: it is known beforehand that no node would help
    is_visible: bool = True  # what is fixed can be read from objects, and counts with the next check
    is_soon: bool = True  # a pod is placed within 20 minutes


def _world(app: Mapping[str, Any] | None = None, **fields: Any) -> Callable[..., VainWorld]:
    """Return what makes a world with one app of three pods."""
    return lambda **more: VainWorld([App(**{"name": "web", "pods": 3, **(app or {})})], **fields, **more)


_FAST, _PLAIN, _OLD = (Make(labels=LABEL),), (Make(),), (Make(cpu="8"),)
_UNREADY, _RED = Make(ready=False), Make(taints=(TAINT,))
tainted = _world(nodes=(_PLAIN, _PLAIN, _PLAIN), makes=_RED)
zero_taint = _world(makes=_RED)
_smaller = _world({"cpu": "6"}, nodes=(_OLD, _OLD, _OLD), promised=template(cpu="8"), makes=Make(cpu="4"))
_zero_claims = _world({"cpu": "3500m"}, promised=template(cpu="4"), makes=Make(cpu="3"))
_zero_daemon = _world(daemons={"agent": "1500m"})
_zero_daemon_unlisted = _world(daemons={"agent": "1500m"}, lists_daemons=False)


def fixed_at_each_minute(world: VainWorld, minutes: int) -> list[int]:
    """Return after how many minutes a pod is placed, if the bootstrap is fixed in each of the next minutes.

    Only machines that are ordered after the fix profit from it.
    """
    waits = []
    for _ in range(minutes):
        played = copy.deepcopy(world)
        before, fixed = played.waiting(), played.clock.now()
        machines = played.cluster.machines
        late = {name for there in machines.values() for name in there}
        for name in late:
            played.shapes.setdefault(name, Make(ready=False))
        played.make(Make())
        while played.waiting() == before and played.clock.now() - fixed < HOUR:
            played.live(MINUTE)
        waits.append(math.ceil((played.clock.now() - fixed) / MINUTE))
        world.live(MINUTE)
    return waits


def _another_spec(world: VainWorld) -> None:
    app = world.apps["web"]
    world.apps["web"] = replace(app, selects={}, tolerates=True, absent="", cpu="2")
    for name in [name for name, pod in world.pods.items() if pod.labels.get("app") == "web" and not pod.node]:
        del world.pods[name]
    world.schedule()


def _no_daemon(world: VainWorld) -> None:
    world.daemons.clear()


def _bootstrap(world: VainWorld) -> None:
    world.make(Make())


_NOT_READY: dict[str, Any] = {"fix": _bootstrap, "first": 12, "later": 4, "is_visible": False}
CASES: Mapping[str, Case] = {
    "a label set by hand on one node": Case(
        make=_world({"selects": LABEL}, nodes=(_FAST, _PLAIN, _PLAIN)), fix=_another_spec
    ),
    "a label set by hand on the only node": Case(
        make=_world({"selects": LABEL}, nodes=(_FAST, (), ())), fix=_another_spec
    ),
    "a machine type made smaller": Case(make=_smaller, fix=_another_spec),
    "new nodes carry a taint": Case(make=tainted, fix=_another_spec, first=15, later=4),
    "at zero, the template lacks a taint": Case(make=zero_taint, fix=_another_spec),
    "at zero, the template lacks a label": Case(
        make=_world({"absent": "disk"}, makes=Make(labels=LABEL)), fix=_another_spec
    ),
    "at zero, the template claims too much": Case(make=_zero_claims, fix=_another_spec),
    "at zero, a DaemonSet that is listed": Case(make=_zero_daemon, fix=_no_daemon, ordered=False),
    "at zero, a DaemonSet that is not listed": Case(
        make=_zero_daemon_unlisted, fix=_no_daemon, is_visible=False, is_soon=False
    ),
    "nodes never become Ready": Case(make=_world(makes=_UNREADY), **_NOT_READY),
    "nodes never become Ready, one zone": Case(make=_world(nodes=((),), makes=_UNREADY), **_NOT_READY),
    # A pool of three zones of which only one can serve the pods.
    "nodes never become Ready, pods of one zone": Case(
        make=_world({"selects": {ZONE: "a"}}, makes=_UNREADY), **_NOT_READY
    ),
}


@dataclass
class Story:
    """A world in which nodes are as expected, and much else happens: demand, outages, workers that die."""

    seed: int
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        chance = self.chance = random.Random(self.seed)
        shape = Make(labels=LABEL if chance.random() < 0.5 else {})
        self.shape = shape
        zones = chance.randint(1, 3)
        nodes = [[shape] * chance.randint(0, 2) for _ in range(zones)]
        apps = [self._app(number, zones) for number in range(chance.randint(1, 4))]
        self.world = VainWorld(
            apps,
            nodes=nodes,
            makes=shape,
            promised=template(labels=dict(shape.labels)),
            daemons={"agent": "200m"} if chance.random() < 0.5 else {},
            lists_daemons=chance.random() < 0.5,
            boots=timedelta(minutes=chance.choice([1, 2, 4])),
            maximum=60,
            provision_timeout=600,
            pools=chance.choice([("workers",), ("workers",), ("large", "workers")]),
        )

    def _app(self, number: int, zones: int) -> App:
        chance = self.chance
        selects: dict[str, str] = {}
        if chance.random() < 0.25:
            selects[ZONE] = chance.choice("abc"[:zones])
        if self.shape.labels and chance.random() < 0.3:
            selects |= LABEL
        return App(
            name=f"app{number}",
            pods=chance.randint(0, 6),
            cpu=chance.choice(["500m", "1", "1500m", "3"]),
            selects=selects,
            is_unique=chance.random() < 0.2,
        )

    def play(self) -> VainWorld:
        """Two hours in which anything may happen, and then peace."""
        world = self.world
        for _ in range(16):
            self._event()
            world.live(timedelta(minutes=self.chance.choice([2, 5, 8, 15])))
        world.dead.clear()
        world.renames = timedelta(0)
        world.live(100 * MINUTE)
        return world

    def _event(self) -> None:
        world, chance = self.world, self.chance
        match chance.randrange(8):
            case 0 | 1 | 2:
                app = chance.choice(list(world.apps.values()))
                app.pods = chance.randint(0, 10)
                self.happened["an app has other pods"] += 1
            case 3:
                world.dead = set(chance.sample("abc", chance.randint(0, 2)))
                self.happened["zones give no machines"] += 1
            case 4:
                world.boots = timedelta(minutes=chance.choice([1, 2, 4, 8]))
                self.happened["machines take another time"] += 1
            case 5:
                world.renames = timedelta(minutes=chance.choice([0, 3, 10]))
                self.happened["waiting pods are made anew"] += 1
            case 6:
                world.run(Life(at=chance.randrange(24), how=chance.choice([How.BEFORE, How.AFTER, How.LOST])))
                self.happened["a worker dies"] += 1
            case _:
                if world.daemons:
                    world.daemons["agent"] = chance.choice(["100m", "200m", "400m"])
                self.happened["a DaemonSet changes"] += 1
