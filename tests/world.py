"""A cluster in memory in virtual time: pods, nodes, machines, a scheduler, Evenkeel's worker, and a script."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar, cast

from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.errors import ClusterUnavailableError, ConflictError, EvenkeelError
from evenkeel.application.ports import Queue
from evenkeel.application.rebalancing.ports import Clusters
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.demand.requests import CPU
from evenkeel.domain.model.groups import GroupKey, Machine, MachineFailure, NodeGroup
from evenkeel.domain.model.incidents import Incident
from evenkeel.domain.model.observations import MachineNode, Observation
from evenkeel.domain.model.removals import disagree
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.model.workload import Node, Owner, Pod, PodDisruptionBudget, Toleration, Unscheduled, Workload
from evenkeel.domain.rebalancing.replicas.deletion import MarksLeft, deletion_candidates, marks_left
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.state_records import ScaleRequestRecord
from tests.builders import group
from tests.crashing import How, KilledError, Life, Mortal
from tests.fakes import PROVISION_TIMEOUT, FakeBus, FakeClock, FakeCluster, FakeQueue, InMemoryStore, plenty, register
from tests.parts import replace
from tests.timed import worker
from tests.workloads import node, pod, selector, template

CHECK, MINUTE, HOUR = timedelta(seconds=15), timedelta(minutes=1), timedelta(hours=1)
CORES = 4  # of a node
#: the record of a cluster in which Evenkeel alone adds and removes nodes
FULL: dict[str, Any] = {
    "demand": "full",
    "autoscaler": "none",
    "workload": {"access": {"kind": "same"}},
    "dry_run": False,
}
#: a world whose nodes are full, in which Evenkeel adds nodes
SERVING: dict[str, Any] = {"nodes": (1, 1, 1), "full": True, "every": CHECK, "demand": "scale-up"}
W = TypeVar("W")


# ---------------------------------------------------------------- a script


class Happening(NamedTuple, Generic[W]):
    """An act in a world, drawn ``weight`` times as often as one of weight 1."""

    name: str
    act: Callable[[W, random.Random], object]
    weight: int = 1


@dataclass
class Script(Generic[W]):
    """Random happenings, drawn one at a time. ``quiet`` is the weight of no happening."""

    happenings: Sequence[Happening[W]]
    quiet: int = 0
    happened: Counter[str] = field(default_factory=Counter)

    def next(self, world: W, chance: random.Random) -> None:
        """Perform one of the happenings, or none. An act that returns False did nothing."""
        drawn = chance.randrange(self.quiet + sum(each.weight for each in self.happenings))
        for each in self.happenings:
            if drawn < each.weight:
                self.happened[each.name] += each.act(world, chance) is not False
                return
            drawn -= each.weight


def dying(chance: random.Random) -> Life:
    """Return the life of a worker with a fault at one of its first steps."""
    return Life(at=chance.randrange(24), how=chance.choice([How.BEFORE, How.AFTER, How.LOST]))


# ---------------------------------------------------------------- the objects of a cluster


@dataclass
class App:
    """A ReplicaSet: so many pods of so many milli-cores each, with a budget."""

    name: str
    pods: int
    milli: int = 500
    budget: int | None = None  # pods that may be missing; None: no budget
    fields: Mapping[str, Any] = field(default_factory=dict)  # of its pods
    is_unique: bool = False  # each pod has its own label, as pods of jobs have


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The node that a machine becomes."""

    cores: int = CORES
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    ready: bool = True


class Machines(FakeCluster):
    """Groups with their machines. A write of a group or machine that has changed since it was read is a conflict."""

    def __init__(self, groups: Sequence[NodeGroup], clock: FakeClock, *, mark_is_ours: bool) -> None:
        super().__init__(groups)
        self._clock, self._mark_is_ours, self._made = clock, mark_is_ours, 0
        self.machines: dict[GroupKey, dict[str, Machine]] = {each.key: {} for each in groups}
        self.hidden: set[str] = set()  # machines that lists wrongly leave out
        for each in groups:
            for _ in range(each.requested):
                self.make(each.key, joined=True)

    def make(self, group: GroupKey, *, joined: bool = False) -> None:
        self._made += 1
        name = f"{group.name}-{self._made}"
        born = self._clock.now() - (timedelta(days=1) if joined else timedelta(0))
        self.machines[group][name] = Machine(name=name, uid=f"uid-{self._made}", has_node=joined, created_at=born)

    def staying(self, group: GroupKey) -> list[Machine]:
        return [machine for machine in self.machines[group].values() if not machine.deleting]

    def listed(self, group: GroupKey) -> tuple[Machine, ...]:
        return tuple([machine for machine in self.machines[group].values() if machine.name not in self.hidden])

    def set(self, group: GroupKey, name: str, **fields: Any) -> None:
        self.machines[group][name] = replace(self.machines[group][name], **fields)

    def observe(self, reads_machines: Collection[GroupKey] = (), known: Collection[str] = ()) -> Observation:
        for found, each in list(self.groups.items()):
            running = sum(machine.has_node for machine in self.staying(found))
            listed = self.listed(found) if running != each.requested or found in reads_machines else None
            launched = None if each.status.launched is None else running
            self.groups[found] = replace(each, running=running, machines=listed, launched=launched)
        return super().observe(reads_machines, known)

    def nodes(self) -> Mapping[str, MachineNode]:
        return {
            machine.name: MachineNode(group=group, machine=machine, deleting=machine.deleting)
            for group, machines in self.machines.items()
            for machine in machines.values()
            if machine.has_node
        }

    def deletion_candidates(self, patch: Patch) -> tuple[str, ...]:
        staying = self.staying(patch.plan.group.key)
        if not patch.plan.removal.machines:
            return deletion_candidates(
                staying,
                patch.requested or 0,
                may_remove_running=patch.plan.removal.may_remove_running,
                keeps=patch.plan.removal.keeps,
                provision_timeout=PROVISION_TIMEOUT,
                now=self._clock.now(),
            )
        if not set(patch.plan.removal.machines) <= {machine.ref for machine in staying}:
            raise ConflictError("a machine is gone since it was read")
        return tuple(ref.name for ref in patch.plan.removal.machines)

    def mark(self, patch: Patch, names: Collection[str], ours: Collection[str]) -> None:
        group = patch.plan.group.key
        if (
            patch.plan.removal.machines
            and disagree(self.staying(group), self.groups[group].requested, ours) is not None
        ):
            raise ConflictError("others would go")
        for machine in self.staying(group):
            if machine.name in names:
                self.set(group, machine.name, marked=True, marked_by_us=self._mark_is_ours)
            elif machine.marked_by_us or machine.name in ours:
                self.set(group, machine.name, marked=False, marked_by_us=False)

    def unmark(self, group: NodeGroup, names: Collection[str], doubted: Collection[str] | None) -> MarksLeft | None:
        left = marks_left(self.listed(group.key), self.groups[group.key].requested, names, doubted)
        if left is not None:
            return left
        for machine in self.listed(group.key):
            if machine.name in names and not machine.deleting:
                self.set(group.key, machine.name, marked=False, marked_by_us=False)
        return None


class Order(NamedTuple):
    """Replicas that a run has added to a group."""

    at: timedelta  # since the world began
    zone: str
    nodes: int


# ---------------------------------------------------------------- the world


class World:
    """Pools of so many nodes per zone, and apps on them. Further fields are the record's.

    ``every``: time between two checks; ``takes``: time until a machine has a node; ``full``: the first nodes have no
    room; ``promised``: the groups' template; ``makes``: the nodes that new machines become; ``ahead``: how far the API
    server's clock is ahead; ``instances``: the groups are pools of instances, launched when their nodes join.
    """

    def __init__(
        self,
        apps: Sequence[App] = (),
        *,
        pods: Sequence[Pod] = (),  # without an app
        nodes: Sequence[int] = (2, 2, 2),
        pools: Sequence[str] = ("workers",),
        minimum: int = 0,
        maximum: int = 30,
        takes: timedelta = MINUTE,
        every: timedelta = MINUTE,
        full: bool = False,
        shapes: Sequence[Shape] = (),  # of the first nodes of each zone
        makes: Shape | None = None,
        promised: NodeTemplate | None = None,
        daemons: Mapping[str, int] | None = None,
        lists_daemons: bool = True,
        mark_is_ours: bool = True,
        instances: bool = False,
        ahead: timedelta = timedelta(0),
        seed: int = 0,
        **fields: Any,
    ) -> None:
        self.clock, self.queue, self.bus, self.store = FakeClock(), FakeQueue(), FakeBus(), InMemoryStore()
        self.began, self.ahead, self.every = self.clock.now(), ahead, every
        self.chance = random.Random(seed)
        self.minimum, self.maximum, self.takes = minimum, maximum, takes
        groups = [
            group(
                "abcdefgh"[i], count, pool=pool, template=promised or template(), launched=count if instances else None
            )
            for pool in pools
            for i, count in enumerate(nodes)
        ]
        self.cluster = Machines(groups, self.clock, mark_is_ours=mark_is_ours)
        entries = [{"name": pool, "min": minimum, "max": maximum} for pool in pools]
        register(self.store, **{**FULL, "pools": entries, **fields})
        # -- who uses it
        self.apps = {app.name: app for app in apps}
        self.pods = {each.name: each for each in pods}
        self.daemons = dict(daemons or {})  # DaemonSet -> its milli-cores
        self.lists_daemons = lists_daemons
        self._named = 0
        # -- the nodes that machines become
        self.new_nodes_are(makes or Shape())
        given = dict(zip("abcdefgh", shapes, strict=False))
        self.shapes = {name: given.get(self.zone_of(name), Shape()) for name in self.cluster.nodes()}
        self.joined: dict[str, datetime] = {}  # name of a new node -> when it registered
        self.cordoned: set[str] = set()
        self.not_ready: dict[str, datetime] = {}  # name of a node -> since when it is not Ready
        # -- what does not work
        self.dead: set[str] = set()  # zones that give no machines and report no error
        self.refusing: set[str] = set()  # zones that refuse each machine
        self.fails_for_good = False  # machine controllers never try again to launch a refused machine
        self.evicted_after = timedelta(minutes=5)  # the pods of a node that is not Ready
        self.unready: set[str] = set()  # zones in which new nodes register and never become Ready
        self.slow = False  # machine controllers do nothing
        self.unread: Exception | None = None  # raised where pods and nodes are read
        self.another_at_work = False  # an autoscaler that the record does not name
        self.scatters = False  # the scheduler takes any node with room, by chance, and not the emptiest
        self.renames = timedelta(0)  # interval at which waiting pods are replaced; 0: never
        # -- what Evenkeel did
        self.faults: list[str] = []
        self.orders: list[Order] = []
        self.runs: list[int] = []  # replicas that each run has added, less those removed
        self.removed: list[str] = []  # machines whose replicas Evenkeel's patches removed, in order
        self.evicted: Counter[str] = Counter()
        self.lost: set[str] = set()  # removed nodes
        self._seen_budgets: dict[str, int] = {}
        self.cluster.before_apply = self._patched
        for name, shape in self.shapes.items() if full else ():
            self.add(pod(f"on-{name}", cpu=str(shape.cores), memory="1Gi", node=name, labels={"app": "old"}))
        self.settle_pods()

    # -- reading

    def node_names(self) -> list[str]:
        return sorted(self.cluster.nodes())

    def zone_of(self, name: str) -> str:
        return name.rpartition("-")[0].rpartition("-")[2]

    def in_zone(self, zone: str) -> list[str]:
        return [name for name in self.node_names() if self.zone_of(name) == zone]

    def zone_names(self) -> list[str]:
        return sorted({key.name[-1] for key in self.cluster.groups})

    def requested(self) -> dict[str, int]:
        return {each.identity.zone or "": each.requested for each in self.cluster.groups.values()}

    def running(self) -> dict[str, int]:
        return {zone: len(self.in_zone(zone)) for zone in self.zone_names()}

    def on(self, name: str) -> list[str]:
        return [each for each, found in sorted(self.pods.items()) if found.node == name]

    def waiting(self, *apps: str) -> list[str]:
        return [name for name, pod in self.pods.items() if not pod.node and (not apps or pod.labels["app"] in apps)]

    def age(self) -> timedelta:
        """Return the time since the world began."""
        return self.clock.now() - self.began

    @property
    def ordered(self) -> int:
        return sum(order.nodes for order in self.orders)

    def incidents(self) -> tuple[Incident, ...]:
        return self.store.load("demo").cluster_health.incidents

    def scale_requests(self) -> Mapping[str, ScaleRequestRecord]:
        return self.store.load("demo").scale_requests

    def clocks(self) -> dict[str, datetime]:
        groups = self.store.load("demo").state.groups.values()
        return {name: since for found in groups for name, since in found.unneeded.items()}

    def has_open_move(self) -> bool:
        return any(pool.move is not None for pool in self.store.load("demo").state.pools.values())

    # -- the API server

    def workload(self) -> Workload:
        nodes = list(self.nodes().values())
        self._seen_budgets = self.allowed()
        budgets = tuple(
            PodDisruptionBudget(namespace="default", name=name, selector=selector(f"app in {name}"), allowed=allowed)
            for name, allowed in self._seen_budgets.items()
        )
        of_daemons = [
            replace(self._daemon(name, milli), name=f"{name}-{node.name}", node=node.name, phase="Running")
            for name, milli in self.daemons.items()
            for node in nodes
            if node.ready
        ]
        return Workload(
            pods=(*self.pods.values(), *of_daemons),
            nodes=tuple(nodes),
            budgets=budgets,
            daemon_sets=tuple(self._daemon(*each) for each in self.daemons.items()) if self.lists_daemons else (),
            autoscaler_sought=True,
            autoscaler_at=self.clock.now() if self.another_at_work else None,
        )

    def seen(self, *, judges_nodes: bool) -> Workload:
        """Return the workload that a check reads. ``judges_nodes``: as in ``WorkloadCluster.read``."""
        return self.workload()

    def nodes(self) -> dict[str, Node]:
        found = {}
        for name, each in sorted(self.cluster.nodes().items()):
            shape = self.shapes.get(name, Shape())
            found[name] = node(
                name,
                self.zone_of(name),
                labels=shape.labels,
                taints=shape.taints,
                size={"cpu": str(shape.cores)},
                group=each.group,
                machine=each.machine,
                deleting=each.deleting,
                unschedulable=name in self.cordoned,
                ready=name not in self.not_ready,
                not_ready_since=self.not_ready.get(name),
                created_at=self.born(name, each),
            )
        return found

    def born(self, name: str, node: MachineNode) -> datetime:
        """Return when a node registered, or when its machine was created where that is not known."""
        assert node.machine is not None
        return self.joined.get(name, node.machine.created_at)

    def _daemon(self, name: str, milli: int) -> Pod:
        everywhere = (Toleration(operator="Exists"),)
        owner = Owner("DaemonSet", name)
        fields: dict[str, Any] = {"namespace": "kube-system", "owner": owner, "tolerations": everywhere}
        return pod(name, cpu=f"{milli}m", memory="0", unscheduled=None, **fields)

    def allowed(self) -> dict[str, int]:
        """Return how many pods each budget allows to evict now."""
        running = Counter(each.labels.get("app") for each in self.pods.values() if each.node)
        return {
            app.name: max(0, running[app.name] - (app.pods - app.budget))
            for app in self.apps.values()
            if app.budget is not None
        }

    # -- people and tools

    def new_nodes_are(self, shape: Shape) -> None:
        """Let new machines become such nodes."""
        self.shape_of: Callable[[str], Shape] = lambda _zone: shape

    def add(self, *pods: Pod) -> None:
        """Create pods without an app."""
        self.pods |= {each.name: each for each in pods}

    def request(self, id: str, nodes: int, only: tuple[str, ...] = ()) -> None:
        record = ScaleRequestRecord(id=id, nodes=nodes, pool="workers", only=only, at=self.clock.now())
        self.store.save_scale_request("demo", record, None)

    def raise_by_hand(self, chance: random.Random) -> None:
        """Scale a group up, at most to its max."""
        found = chance.choice(list(self.cluster.groups.values()))
        if found.bounds is not None and found.requested < found.bounds.max:
            self.cluster.change(found.key, requested=found.requested + 1)

    def down(self, names: Collection[str]) -> None:
        for name in names:
            self.not_ready.setdefault(name, self.clock.now())

    def up(self, names: Collection[str]) -> None:
        for name in list(names):
            self.not_ready.pop(name, None)

    def make_pods_anew(self) -> None:
        """Replace the waiting pods by others."""
        for name in self.waiting():
            del self.pods[name]
        self.settle_pods()

    # -- time

    def pass_time(self, time: timedelta | None = None) -> None:
        """Let time pass, then let machine controllers, kubelets, node controller and scheduler act once."""
        self.clock.at += self.every if time is None else time
        self.control()
        now = self.clock.now()
        names = self.cluster.nodes().keys()
        self.not_ready = {name: since for name, since in self.not_ready.items() if name in names}
        gone = {name for name, since in self.not_ready.items() if now - since >= self.evicted_after}
        self.pods = {name: pod for name, pod in self.pods.items() if pod.node not in gone}
        self.settle_pods()

    def control(self) -> None:
        """Act as machine controllers: create machines and nodes for replicas, delete surplus ones, the marked first."""
        if self.slow:
            return
        for key, each in self.cluster.groups.items():
            staying = self.cluster.staying(key)
            for _ in range(each.requested - len(staying)):
                self.cluster.make(key)
            order = sorted(staying, key=lambda machine: (not machine.marked, machine.has_node, self.chance.random()))
            for machine in order[: max(0, len(staying) - each.requested)]:
                if not machine.marked and machine.has_node:
                    self.faults.append(f"{machine.name} was removed without a mark")
                self.cluster.set(key, machine.name, deleting=True, deleting_since=self.clock.now())
            for machine in list(self.cluster.machines[key].values()):
                if machine.deleting:
                    self._drain(key, machine)
                elif not machine.has_node:
                    self._launch(key, machine)

    def _launch(self, key: GroupKey, machine: Machine) -> None:
        """Refuse a machine, launch it again, or make it a node."""
        now, zone = self.clock.now(), key.name[-1]
        if zone in self.refusing and machine.failure is None:
            failure = MachineFailure(code="InsufficientInstanceCapacity", message="no room", at=now)
            self.cluster.set(key, machine.name, failure=failure, failed_for_good=self.fails_for_good)
        elif zone in self.refusing or machine.failed_for_good:
            return
        elif machine.failure is not None:
            self.cluster.set(key, machine.name, failure=None, launched_at=now)
        elif zone not in self.dead and now - (machine.launched_at or machine.created_at) >= self.takes:
            self.cluster.set(key, machine.name, has_node=True)
            self.joined[machine.name] = now + self.ahead
            shape = self.shapes.setdefault(machine.name, self.shape_of(zone))
            if not shape.ready or zone in self.unready:
                self.not_ready[machine.name] = now + self.ahead

    def _drain(self, group: GroupKey, machine: Machine) -> None:
        self.cordoned.add(machine.name)
        for name in self.on(machine.name):
            app = self.pods[name].labels["app"]
            if self.allowed().get(app, 1) > 0:
                self.evicted[app] += 1
                del self.pods[name]  # its ReplicaSet makes another
                break  # this machine is busy
        if not self.on(machine.name):
            del self.cluster.machines[group][machine.name]
            if machine.has_node:
                self.lost.add(machine.name)

    def settle_pods(self) -> None:
        """Create and delete pods of apps to match their numbers, and schedule those that fit."""
        for app in self.apps.values():
            mine = sorted(name for name, each in self.pods.items() if each.labels.get("app") == app.name)
            mine.sort(key=lambda name: not self.pods[name].node)  # waiting pods go first
            for name in mine[app.pods :]:
                del self.pods[name]
            self.add(*(self._pod(app) for _ in range(app.pods - len(mine))))
        self._schedule()

    def _pod(self, app: App) -> Pod:
        self._named += 1
        labels = {"app": app.name, **({"run": str(self._named)} if app.is_unique else {})}
        fields = {"owner": Owner("ReplicaSet", app.name), "labels": labels, "unscheduled": None, **app.fields}
        name, born = f"{app.name}-{self._named:04}", self.clock.now() + self.ahead
        return pod(name, cpu=f"{app.milli}m", memory="64Mi", created_at=born, **fields)

    def _schedule(self) -> None:
        closed = self.cordoned | self.not_ready.keys()
        names, daemons = [name for name in self.cluster.nodes() if name not in closed], sum(self.daemons.values())
        free = {name: self.shapes.get(name, Shape()).cores * 1000 - daemons for name in names}
        for each in self.pods.values():
            if each.node in free:
                free[each.node] -= _milli(each)
        for name in sorted(self.waiting()):
            each = self.pods[name]
            need = _milli(each)
            places = sorted((-room, place) for place, room in free.items() if room >= need and self.allows(each, place))
            if places:
                _, place = self.chance.choice(places) if self.scatters else places[0]
                free[place] -= need
                self.pods[name] = replace(each, node=place, phase="Running", unscheduled=None)
            else:
                waiting = Unscheduled("Unschedulable", self.clock.now())
                self.pods[name] = replace(each, unscheduled=each.unscheduled or waiting)

    def allows(self, pod: Pod, place: str) -> bool:
        """Return True if the scheduler may place a pod on a node, apart from its size."""
        shape, needs = self.shapes.get(place, Shape()), pod.needs
        labels = {"topology.kubernetes.io/zone": self.zone_of(place), **shape.labels}
        absent = [each.key for term in needs.node_terms or () for each in term.expressions]
        return (
            all(labels.get(key) == value for key, value in needs.node_selector.items())
            and (not shape.taints or bool(needs.tolerations))
            and not labels.keys() & set(absent)
        )

    # -- Evenkeel

    def _patched(self, patch: Patch) -> None:
        """Check, before a patch that lowers replicas, whether it may remove its machines."""
        plan = patch.plan
        before = self.cluster.groups[plan.group.key].requested
        if patch.requested is None or patch.requested >= before:
            return
        total = sum(each.requested for each in self.cluster.groups.values()) - before + patch.requested
        if total < self.minimum:
            self.faults.append(f"{total} left of at least {self.minimum}")
        names = {ref.name for ref in plan.removal.machines}
        marked = {machine.name for machine in self.cluster.staying(plan.group.key) if machine.marked}
        running = {machine.name for machine in self.cluster.staying(plan.group.key) if machine.has_node}
        asked = any(request.nodes < 0 for request in self.scale_requests().values())  # they name no machine
        if (len(names) != before - patch.requested or not names <= marked) and not asked:
            missing = before - len(running)
            if before - patch.requested > missing:
                self.faults.append(f"replicas {before} -> {patch.requested} name {names} of {marked}")
        spent: Counter[str] = Counter()
        drained = sorted(name for name in self._going() - names if name in self.removed and self.on(name))
        for name in names:
            pods = self.on(name)
            if pods and drained:
                self.faults.append(f"{name} is to be drained beside {drained}")
            for each in pods:
                spent[self.pods[each].labels["app"]] += 1
        for app, count in spent.items():
            if self._seen_budgets.get(app, count) < 1:
                self.faults.append(f"{sorted(names)} have {count} pods of {app}, whose budget lets none go")
        self.removed += sorted(names)

    def _going(self) -> set[str]:
        """Return the machines that are marked or being deleted."""
        found = (machine for machines in self.cluster.machines.values() for machine in machines.values())
        return {machine.name for machine in found if machine.marked or machine.deleting}

    def run(self, life: Life | None = None) -> RunSummary | None:
        """Run once. Return None if the run died or its message returns to the queue."""
        life = life or Life()
        made = worker(
            cast("ActionStore", Mortal(self.store, life, "table")),
            cast("Clusters", _Opened(self, life)),
            self.clock,
            cast("Queue", Mortal(self.queue, life, "queue")),
            bus=self.bus,
        )
        before = {key: each.requested for key, each in self.cluster.groups.items()}
        summary = None
        with contextlib.suppress(KilledError, EvenkeelError):
            summary = made("demo", "a test", plenty)
        self._note_orders(before)
        if summary is None:
            self.pass_time(timedelta(seconds=75))  # until its lease has ended
        return summary

    def _note_orders(self, before: Mapping[GroupKey, int]) -> None:
        more = {key: each.requested - before.get(key, each.requested) for key, each in self.cluster.groups.items()}
        self.runs.append(sum(more.values()))
        self.orders += [Order(self.age(), key.name[-1], nodes) for key, nodes in more.items() if nodes > 0]
        requested: Counter[str] = Counter()
        for key, each in self.cluster.groups.items():
            requested[key.name.rpartition("-")[0]] += each.requested
        for pool, nodes in requested.items():
            if self.runs[-1] > 0 and nodes > self.maximum:
                self.faults.append(f"{nodes} requested in {pool}, at most {self.maximum}")

    def live(self, checks: int, apart: timedelta | None = None) -> None:
        for _ in range(checks):
            self.run()
            self.pass_time(apart)

    def until(self, is_so: Callable[[], bool], most: int) -> int:
        """Return the number of checks until it is so. Fail after ``most``."""
        for number in range(most):
            if is_so():
                return number
            self.live(1)
        assert is_so(), f"not after {most} checks"
        return most

    def live_for(self, length: timedelta) -> None:
        """Run each minute, and when a run requests a second check."""
        ends = self.clock.now() + length
        while self.clock.now() < ends:
            asked = len(self.queue.second_checks)
            self.run()
            self.control()
            soon = [timedelta(seconds=check[2]) for check in self.queue.second_checks[asked:]]
            age = self.age()
            if self.renames and age // self.renames != (age - MINUTE) // self.renames:
                self.make_pods_anew()
            self.pass_time(min([MINUTE, *(each for each in soon if each > timedelta(0))]))

    # -- the required final state

    def wrong(self) -> list[str]:
        """Return every problem that is left once nothing happens any more."""
        found = [*self.faults, *self.left_open()]
        waiting = self.waiting()
        if waiting:
            found.append(f"{waiting} wait")
        empty = [name for name in self.node_names() if not self.on(name)]
        spare = len(self.node_names()) - self.minimum
        if min(len(empty), spare) > 0:
            found.append(f"{empty} are empty, and {spare} more than the minimum are there")
        return found

    def left_open(self, marked_by_others: Collection[str] = ()) -> list[str]:
        """Return the marks of Evenkeel, the journals and the memories that no run has closed."""
        machines = [machine for group in self.cluster.groups for machine in self.cluster.machines[group].values()]
        state = self.store.load("demo").state
        return [
            *(
                f"{machine.name} carries a mark"
                for machine in machines
                if machine.marked and machine.name not in marked_by_others
            ),
            *(f"{id} has an open journal" for id, each in state.pools.items() if each.move is not None),
            *(f"{id} remembers marks" for id, each in state.groups.items() if each.marked),
        ]


def _milli(pod: Pod) -> int:
    return int(sum(each.requests.get(CPU, 0) for each in pod.needs.resources.containers) * 1000)


class _Opened:
    """Opens the only cluster and its workload. The calls to both are steps of a life."""

    def __init__(self, world: World, life: Life) -> None:
        self._world, self._life = world, life

    def open(self, *_: object, **__: object) -> Any:
        steps = {"observe", "apply", "mark", "unmark", "deletion_candidates"}
        return Mortal(self._world.cluster, self._life, "api", ClusterUnavailableError, only=steps)

    def open_workload(self, *_: object, **__: object) -> Any:
        return Mortal(self, self._life, "workload", ClusterUnavailableError)

    def read(self, machines: object, *, judges_nodes: bool) -> Workload:
        if self._world.unread is not None:
            raise self._world.unread
        return self._world.seen(judges_nodes=judges_nodes)
