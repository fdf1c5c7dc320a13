"""A small cluster in memory in which demand rises and falls: pods, budgets, machines, drains and our worker."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.errors import ClusterUnavailableError, ConflictError, EvenkeelError
from evenkeel.application.ports import Queue
from evenkeel.application.rebalancing.ports import Clusters
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.demand.requests import CPU
from evenkeel.domain.model.groups import GroupKey, Machine, NodeGroup
from evenkeel.domain.model.observations import MachineNode, Observation
from evenkeel.domain.model.removals import disagree
from evenkeel.domain.model.workload import Node, Pod, PodDisruptionBudget, Unscheduled, Workload
from evenkeel.domain.rebalancing.replicas.deletion import MarksLeft, deletion_candidates, marks_left
from evenkeel.domain.rebalancing.writes import Patch
from tests.builders import group
from tests.crashing import How, KilledError, Life, Mortal
from tests.fakes import PROVISION_TIMEOUT, FakeBus, FakeClock, FakeCluster, FakeQueue, InMemoryStore, plenty, register
from tests.parts import replace
from tests.timed import worker
from tests.workloads import node, pod, selector, template

FULL: dict[str, Any] = {
    "demand": "full",
    "autoscaler": "none",
    "workload": {"access": {"kind": "same"}},
    "dry_run": False,
}
MINUTE = timedelta(minutes=1)
ROOM = 4  # cores of a node


@dataclass
class App:
    """A ReplicaSet: so many pods of so many milli-cores each, of which its budget lets so many go at once."""

    name: str
    pods: int
    milli: int = 500
    budget: int | None = None  # pods that may be missing; None: no budget
    fields: Mapping[str, Any] = field(default_factory=dict)  # of its pods


class Machines(FakeCluster):
    """Groups with their machines. A group that has been changed since the look is a conflict, a machine as well."""

    def __init__(self, groups: Sequence[NodeGroup], clock: FakeClock, *, mark_is_ours: bool) -> None:
        super().__init__(groups)
        self._clock, self._mark_is_ours, self._made = clock, mark_is_ours, 0
        self.machines: dict[GroupKey, dict[str, Machine]] = {each.key: {} for each in groups}
        self.hidden: set[str] = set()  # machines that lists leave out by mistake
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
            self.groups[found] = replace(each, running=running, machines=listed)
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

    def unfinished(self, begun: Collection[str]) -> Collection[str]:
        return ()


class Valley:
    """One pool of so many nodes per zone, and apps on it. Further fields are the record's."""

    def __init__(
        self,
        apps: Sequence[App],
        *,
        nodes: Sequence[int] = (2, 2, 2),
        minimum: int = 0,
        maximum: int = 30,
        takes: timedelta = MINUTE,
        mark_is_ours: bool = True,
        seed: int = 0,
        **fields: Any,
    ) -> None:
        self.clock, self.queue, self.bus, self.store = FakeClock(), FakeQueue(), FakeBus(), InMemoryStore()
        self.chance = random.Random(seed)
        self.minimum, self.maximum, self.takes = minimum, maximum, takes
        groups = [group("abcdefgh"[i], count, template=template()) for i, count in enumerate(nodes)]
        self.cluster = Machines(groups, self.clock, mark_is_ours=mark_is_ours)
        pools = [{"name": "workers", "min": minimum, "max": maximum}]
        register(self.store, **{**FULL, "pools": pools, **fields})
        self.apps = {app.name: app for app in apps}
        self.pods: dict[str, Pod] = {}
        self._named = 0
        self.cordoned: set[str] = set()
        self.not_ready: dict[str, datetime] = {}  # name of a node -> since when it is not Ready
        self.faults: list[str] = []
        self.ordered = 0  # replicas that our patches added
        self.removed: list[str] = []  # machines whose replicas our patches took away, in order
        self.evicted: Counter[str] = Counter()
        self.lost: set[str] = set()  # nodes that went
        self.unread: Exception | None = None
        self.slow = False  # machine controllers do nothing
        self.another_at_work = False
        self._seen_budgets: dict[str, int] = {}
        self.cluster.before_apply = self._patched
        self.settle_pods()

    # -- the world

    def node_names(self) -> list[str]:
        return sorted(self.cluster.nodes())

    def zone_of(self, name: str) -> str:
        return name.rpartition("-")[0].rpartition("-")[2]

    def workload(self) -> Workload:
        found = self.cluster.nodes()
        nodes: list[Node] = [
            node(
                name,
                self.zone_of(name),
                group=each.group,
                machine=each.machine,
                deleting=each.deleting,
                unschedulable=name in self.cordoned,
                ready=name not in self.not_ready,
                not_ready_since=self.not_ready.get(name),
                created_at=each.machine.created_at if each.machine else None,
            )
            for name, each in sorted(found.items())
        ]
        self._seen_budgets = self.allowed()
        budgets = tuple(
            PodDisruptionBudget(namespace="default", name=name, selector=selector(f"app in {name}"), allowed=allowed)
            for name, allowed in self._seen_budgets.items()
        )
        return Workload(
            pods=tuple(self.pods.values()),
            nodes=tuple(nodes),
            budgets=budgets,
            autoscaler_sought=True,
            autoscaler_at=self.clock.now() if self.another_at_work else None,
        )

    def seen(self, *, judges_nodes: bool) -> Workload:
        """What a check reads. ``judges_nodes``: as in ``WorkloadCluster.read``."""
        return self.workload()

    def allowed(self) -> dict[str, int]:
        running = Counter(each.labels["app"] for each in self.pods.values() if each.node)
        return {
            app.name: max(0, running[app.name] - (app.pods - app.budget))
            for app in self.apps.values()
            if app.budget is not None
        }

    def settle_pods(self) -> None:
        """Apps have as many pods as they should, and the scheduler places those that fit: the emptiest node first."""
        for app in self.apps.values():
            mine = sorted(name for name, each in self.pods.items() if each.labels["app"] == app.name)
            mine.sort(key=lambda name: not self.pods[name].node)  # who waits goes first
            for name in mine[app.pods :]:
                del self.pods[name]
            for _ in range(app.pods - len(mine)):
                self._named += 1
                name = f"{app.name}-{self._named:04}"
                self.pods[name] = replace(
                    pod(name, cpu=f"{app.milli}m", memory="64Mi", labels={"app": app.name}, **dict(app.fields)),
                    created_at=self.clock.now(),
                    unscheduled=None,
                )
        self._schedule()

    def _schedule(self) -> None:
        places_taken = self.cordoned | self.not_ready.keys()
        free = {name: ROOM * 1000 - self.used(name) for name in self.cluster.nodes() if name not in places_taken}
        for name, each in sorted(self.pods.items()):
            if each.node:
                continue
            need = _milli(each)
            places = sorted((-room, place) for place, room in free.items() if room >= need and self.allows(each, place))
            if places:
                _, place = places[0]
                free[place] -= need
                self.pods[name] = replace(each, node=place, phase="Running", unscheduled=None)
            else:
                waiting = Unscheduled("Unschedulable", self.clock.now())
                self.pods[name] = replace(each, unscheduled=each.unscheduled or waiting)

    def allows(self, pod: Pod, place: str) -> bool:
        """Whether the scheduler may place a pod on a node, apart from its size."""
        return True

    def on(self, name: str) -> list[str]:
        return [each for each, found in sorted(self.pods.items()) if found.node == name]

    def going(self) -> set[str]:
        """Machines that are marked or on their way out: those whose replicas somebody gave back are neither."""
        found = (machine for machines in self.cluster.machines.values() for machine in machines.values())
        return {machine.name for machine in found if machine.marked or machine.deleting}

    def used(self, name: str) -> int:
        return sum(_milli(self.pods[each]) for each in self.on(name))

    def control(self) -> None:
        """Machine controllers: replicas become machines, these become nodes; surplus goes, the marked first."""
        if self.slow:
            return
        now = self.clock.now()
        for found, each in self.cluster.groups.items():
            staying = self.cluster.staying(found)
            for _ in range(each.requested - len(staying)):
                self.cluster.make(found)
            order = sorted(staying, key=lambda machine: (not machine.marked, machine.has_node, self.chance.random()))
            for machine in order[: max(0, len(staying) - each.requested)]:
                if not machine.marked and machine.has_node:
                    self.faults.append(f"{machine.name} was taken, and nobody had named it")
                self.cluster.set(found, machine.name, deleting=True, deleting_since=now)
            for machine in list(self.cluster.machines[found].values()):
                if not machine.has_node and not machine.deleting and now - machine.created_at >= self.takes:
                    self.cluster.set(found, machine.name, has_node=True)
                if machine.deleting:
                    self._drain(found, machine)

    def _drain(self, group: GroupKey, machine: Machine) -> None:
        self.cordoned.add(machine.name)
        for name in self.on(machine.name):
            app = self.pods[name].labels["app"]
            if self.allowed().get(app, 1) > 0:
                self.evicted[app] += 1
                del self.pods[name]  # its ReplicaSet makes another
                break  # and this one takes its time
        if not self.on(machine.name):
            del self.cluster.machines[group][machine.name]
            if machine.has_node:
                self.lost.add(machine.name)

    def pass_time(self, time: timedelta = MINUTE) -> None:
        self.clock.at += time
        self.control()
        self.settle_pods()

    # -- Evenkeel

    def _patched(self, patch: Patch) -> None:
        """Before each patch that lowers replicas: whom it takes, and whether that may be."""
        plan = patch.plan
        before = self.cluster.groups[plan.group.key].requested
        if patch.requested is None:
            return
        self.ordered += max(0, patch.requested - before)
        if patch.requested >= before:
            return
        total = sum(each.requested for each in self.cluster.groups.values()) - before + patch.requested
        if total < self.minimum:
            self.faults.append(f"{total} left of at least {self.minimum}")
        names = {ref.name for ref in plan.removal.machines}
        marked = {machine.name for machine in self.cluster.staying(plan.group.key) if machine.marked}
        running = {machine.name for machine in self.cluster.staying(plan.group.key) if machine.has_node}
        if len(names) != before - patch.requested or not names <= marked:
            missing = before - len(running)
            if before - patch.requested > missing:
                self.faults.append(f"replicas {before} -> {patch.requested} name {names} of {marked}")
        spent: Counter[str] = Counter()
        drained = sorted(name for name in self.going() - names if name in self.removed and self.on(name))
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

    def run(self, life: Life | None = None) -> RunSummary | None:
        """One run; None: it died, or its message goes back to the queue."""
        life = life or Life()
        made = worker(
            cast("ActionStore", Mortal(self.store, life, "table")),
            cast("Clusters", _Opened(self, life)),
            self.clock,
            cast("Queue", Mortal(self.queue, life, "queue")),
            bus=self.bus,
        )
        with contextlib.suppress(KilledError, EvenkeelError):
            return made("demo", "a test", plenty)
        self.pass_time(timedelta(seconds=75))  # until its lease has ended
        return None

    def live(self, looks: int, apart: timedelta = MINUTE) -> None:
        for _ in range(looks):
            self.run()
            self.pass_time(apart)

    def raise_by_hand(self, chance: random.Random) -> None:
        """Somebody scales a group up, and no further than its max."""
        found = chance.choice(list(self.cluster.groups.values()))
        if found.bounds is not None and found.requested < found.bounds.max:
            self.cluster.change(found.key, requested=found.requested + 1)

    # -- what must be in the end

    def requested(self) -> dict[str, int]:
        return {each.identity.zone or "": each.requested for each in self.cluster.groups.values()}

    def clocks(self) -> dict[str, datetime]:
        groups = self.store.load("demo").state.groups.values()
        return {name: since for found in groups for name, since in found.unneeded.items()}

    def wrong(self) -> list[str]:
        """Everything that is not as it must be once nothing happens any more."""
        found = list(self.faults)
        machines = [machine for group in self.cluster.groups for machine in self.cluster.machines[group].values()]
        found += [f"{machine.name} carries a mark" for machine in machines if machine.marked]
        state = self.store.load("demo").state
        found += [f"{id} has an open journal" for id, each in state.pools.items() if each.move is not None]
        found += [f"{id} remembers marks" for id, each in state.groups.items() if each.marked]
        waiting = [name for name, each in self.pods.items() if not each.node]
        if waiting:
            found.append(f"{waiting} wait")
        empty = [name for name in self.node_names() if not self.on(name)]
        spare = len(self.node_names()) - self.minimum
        if min(len(empty), spare) > 0:
            found.append(f"{empty} are empty, and {spare} more than the minimum are there")
        return found


def _milli(pod: Pod) -> int:
    return int(sum(each.requests.get(CPU, 0) for each in pod.needs.resources.containers) * 1000)


class _Opened:
    """Opens the one cluster there is, and what runs there."""

    def __init__(self, valley: Valley, life: Life) -> None:
        self._valley, self._life = valley, life

    def open(self, *_: object, **__: object) -> Any:
        steps = {"observe", "apply", "mark", "unmark", "deletion_candidates"}
        return Mortal(self._valley.cluster, self._life, "api", ClusterUnavailableError, only=steps)

    def open_workload(self, *_: object, **__: object) -> Any:
        return Mortal(self, self._life, "workload", ClusterUnavailableError)

    def read(self, machines: object, *, judges_nodes: bool) -> Workload:
        if self._valley.unread is not None:
            raise self._valley.unread
        return self._valley.seen(judges_nodes=judges_nodes)


# ---------------------------------------------------------------- worlds by chance


@dataclass
class Story:
    """A world and what happens in it, by chance: demand that comes and goes, workers that die, neighbours."""

    seed: int
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        chance = self.chance = random.Random(self.seed)
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
        self.valley = Valley(
            apps,
            nodes=nodes,
            minimum=chance.randint(0, min(3, sum(nodes))),
            takes=chance.choice([timedelta(0), MINUTE, 4 * MINUTE]),
            mark_is_ours=chance.random() < 0.5,
            seed=self.seed,
        )

    def play(self) -> list[str]:
        """Some minutes in which anything may happen, and then peace. What is wrong after it."""
        for _ in range(self.chance.randint(8, 20)):
            self._minute()
        self.valley.slow, self.valley.unread = False, None
        for app in self.valley.apps.values():
            # A pod that nobody may evict comes onto a node that has not been cordoned yet: somebody has to help.
            app.budget = app.budget or None
        self._peace()
        return self.valley.wrong()

    def _minute(self) -> None:
        valley, chance = self.valley, self.chance
        life = Life()
        if chance.random() < 0.4:
            life = Life(at=chance.randrange(24), how=chance.choice([How.BEFORE, How.AFTER, How.LOST]))
        valley.run(life)
        if life.at is not None and life.at < len(life.steps):
            self.happened[life.how.value] += 1
        match chance.randrange(12):
            case 0:
                app = chance.choice(list(valley.apps.values()))
                app.pods = chance.randint(0, 8)
                self.happened["an app has other pods"] += 1
            case 1:
                valley.slow = not valley.slow
                self.happened["machine controllers stop or go on"] += 1
            case 2:
                valley.unread = None if valley.unread else ClusterUnavailableError("away")
                self.happened["the workload goes away or is back"] += 1
            case 3:
                valley.raise_by_hand(chance)
                self.happened["somebody raises replicas"] += 1
            case _:
                pass
        valley.pass_time(timedelta(seconds=chance.choice([15, 60, 60, 240])))

    def _resume(self) -> None:
        """Whoever raised replicas too often was told that they are not written any more, and has them written again."""
        store, stored = self.valley.store, self.valley.store.load("demo")
        for key, known in stored.state.groups.items():
            if known.contest.contested_since is not None:
                known = replace(known, contest=known.contest.uncontested())
                store.save_group("demo", key, known, stored.versions)

    def _peace(self) -> None:
        """Until nothing is written and no clock runs, for as long as a clock takes."""
        calm = 0
        for _ in range(120):
            self._resume()
            summary = self.valley.run()
            quiet = summary is not None and not summary.written and not self.valley.clocks()
            drained = self.valley.cordoned & set(self.valley.node_names())
            self._let_go(drained)
            calm = calm + 1 if quiet and not drained else 0
            if calm > 4:
                return
            self.valley.pass_time(2 * MINUTE)
        self.valley.faults.append("it does not come to rest")

    def _let_go(self, drained: Collection[str]) -> None:
        """A drain has no end while a budget lets none go, and holds its pool: in the end somebody gives way."""
        for name in drained:
            for each in self.valley.on(name):
                app = self.valley.apps[self.valley.pods[each].labels["app"]]
                if app.budget == 0:
                    app.budget = 1
                    self.happened["a budget gives way to a drain"] += 1
