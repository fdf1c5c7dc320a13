"""cluster-autoscaler in a simulated world. It performs the model's actions, and packs pods by cpu and memory.

A world of Auto Scaling groups has the model of the aws provider, any other world that of the clusterapi provider.
``autoscaler_model`` tracks orders and backoffs. The simulated scheduler decides where a pod fits. Sources:
core/podlistprocessor, core/scaleup/orchestrator/orchestrator.go, estimator/binpacking_estimator.go,
expander/waste/waste.go, core/scaledown, all under cluster-autoscaler/. Not modelled: scheduling hints, and limits on
time and on candidates. Eviction is not modelled either: a node leaves its group before it is drained.
"""

# ruff: noqa: ARG002  the base class passes ``demand``, which PodAutoscaler does not use, because it reads pods

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic

from evenkeel_cli.simulation.autoscaler_model import (
    Action,
    AnyGroup,
    ClusterAutoscaler,
    Decrease,
    Delete,
    Demand,
    Flags,
    Increase,
    Machine,
    Refused,
    balance,
)
from evenkeel_cli.simulation.aws_autoscaler import (
    Activity,
    AutoScalingGroup,
    AwsAutoscaler,
    Instance,
    NodeGroup,
    SetDesired,
    Terminate,
    are_similar,
    unneeded_time,
)
from evenkeel_cli.simulation.pods import Pods
from evenkeel_cli.simulation.scenario import AutoscalerSetup
from evenkeel_cli.simulation.scheduling import Counts, NodeInfo, PodGroup, Scheduler, counts_with, fill, places
from evenkeel_cli.simulation.world import Group, SimulatedMachine, World

_TOO_NEW = 2  # seconds; while all pending pods are younger, the autoscaler adds and removes no nodes
_THRESHOLD = 0.5  # --scale-down-utilization-threshold
_NO_NODES: Mapping[Group, Sequence[NodeInfo]] = {}
_MOST_EMPTY = 10  # --max-scale-down-parallelism, for empty nodes; nodes with pods are removed one at a time


class SimulatedAutoscaler:
    """The autoscaler of a world. The scenario's seed determines the choices of its expander."""

    def __init__(self, world: World, setup: AutoscalerSetup) -> None:
        flags = Flags(**setup.model_dump(exclude={"enabled", "loop", "priority", "read_age"}))
        seed = f"{world.scenario.seed}/expander"
        self._provider: _Aws | _ClusterApi = (
            _Aws(world, flags, seed, setup)
            if any(group.is_auto_scaling for group in world.groups)
            else _ClusterApi(world, flags, seed, setup)
        )

    def loop(self) -> None:
        """Run one loop at the world's current second."""
        self._provider.loop()


class _ClusterApi:
    def __init__(self, world: World, flags: Flags, seed: str, setup: AutoscalerSetup) -> None:
        self._world = world
        self._model: ClusterAutoscaler[Group] = (
            ClusterAutoscaler(flags, seed=seed)
            if world.pods is None
            else PodAutoscaler(world, world.pods, lambda group: group, flags, seed=seed, priority=setup.priority)
        )

    def loop(self) -> None:
        world = self._world
        for action in self._model.loop(world.groups, world.demand, world.now):
            match action:
                case Increase(group, nodes):
                    world.order(group, nodes)
                case Decrease(group, nodes):
                    world.shrink(group, group.requested - nodes)
                case Delete(group, machine):
                    assert isinstance(machine, SimulatedMachine)
                    world.remove(group, machine)
                case Refused():
                    pass


class _Aws:
    """The aws provider, and what it reads of the world. The groups that it reads are ``read_age`` seconds old."""

    def __init__(self, world: World, flags: Flags, seed: str, setup: AutoscalerSetup) -> None:
        self._world, self._read_age = world, setup.read_age
        self._groups = {group.key.name: group for group in world.groups}
        self._past: deque[tuple[int, list[AutoScalingGroup]]] = deque()  # the groups of the last ``read_age`` seconds
        self._nodes: set[str] | None = None  # None: not yet asked for in this loop
        core: ClusterAutoscaler[NodeGroup] | None = None
        if world.pods is not None:
            core = PodAutoscaler(
                world,
                world.pods,
                lambda group: self._groups[group.key],
                flags,
                seed=seed,
                priority=setup.priority,
                similar=are_similar,
                unneeded=unneeded_time,
            )
        self.model = AwsAutoscaler(flags, seed=seed, core=core)

    def loop(self) -> None:
        world, self._nodes = self._world, None
        if self._read_age:
            self._past.append((world.now, self._all()))
            while len(self._past) > 1 and self._past[1][0] <= world.now - self._read_age:
                self._past.popleft()
        for order in self.model.decide(world.now, self):
            group = self._groups[order.group]
            match order:
                case SetDesired(_, size) if group.bounds.min <= size <= group.bounds.max:
                    world.resize(group, size)
                case Terminate(_, name) if group.requested > group.bounds.min and name in self._names(group):
                    world.remove(group, next(machine for machine in group.machines if machine.name == name))
                case _:
                    self.model.reject()

    def _names(self, group: Group) -> set[str]:
        return {machine.name for machine in group.machines}

    def _all(self) -> list[AutoScalingGroup]:
        return [self._described(group) for group in self._world.groups]

    def _described(self, group: Group) -> AutoScalingGroup:
        leaving = [name for name, (of, _) in self._world.leaving.items() if of is group]
        return AutoScalingGroup(
            name=group.key.name,
            pool=group.pool,
            zone=group.zone,
            desired=group.requested,
            bounds=group.bounds,
            instances=[
                *(Instance(machine.name) for machine in group.machines if machine.launched),
                *(Instance(name, ending=True) for name in leaving),
            ],
        )

    # What the autoscaler reads

    @property
    def demand(self) -> Demand:
        return self._world.demand

    def has_node(self, instance: str) -> bool:
        if self._nodes is None:
            self._nodes = {machine.name for group in self._world.groups for machine in group.machines if machine.node}
            self._nodes |= self._world.leaving.keys()
        return instance in self._nodes

    def groups(self) -> Sequence[AutoScalingGroup]:
        return self._past[0][1] if self._read_age else self._all()

    def count_instances(self, group: str) -> int:
        return next(len(each.instances) for each in self.groups() if each.name == group)

    def activities(self, group: str) -> Sequence[Activity]:
        """Return launches in progress, and then the newest one that failed. Successful ones have no effect."""
        found, now = self._groups[group], self._world.now
        in_service = self._world.zones[found.zone].in_service
        starts = [
            machine.launched_at
            for machine in found.machines
            if machine.launched and not machine.node and now < machine.launched_at + in_service
        ]
        failed = [] if found.refused_at is None else [Activity(found.refused_at, "Failed")]
        return [*(Activity(start, "InProgress") for start in sorted(starts, reverse=True)), *failed]


@dataclass(frozen=True)
class _Option(Generic[AnyGroup]):
    """The nodes that one group and its similar groups could add for pending pods."""

    group: AnyGroup
    similar: list[AnyGroup]
    nodes: int
    waste: float


@dataclass(frozen=True)
class _Removable(Generic[AnyGroup]):
    """A node that could be removed."""

    group: AnyGroup
    machine: Machine
    is_empty: bool


class PodAutoscaler(ClusterAutoscaler[AnyGroup]):
    """The autoscaler of a world with pods. ``place`` returns the world's group for a group of the autoscaler."""

    def __init__(  # noqa: PLR0913  as in the base class, with the world and its pods
        self,
        world: World,
        pods: Pods,
        place: Callable[[AnyGroup], Group],
        flags: Flags,
        *,
        seed: str,
        priority: tuple[str, ...] = (),
        similar: Callable[[AnyGroup, AnyGroup], bool] = lambda _group, _other: True,
        unneeded: Callable[[AnyGroup], float | None] = lambda _group: None,
    ) -> None:
        super().__init__(flags, seed=seed, similar=similar, unneeded=unneeded)
        self._rank = {pool: rank for rank, pool in enumerate(reversed(priority), 1)}
        self._world = world
        self._pods = pods
        self._place = place
        self._clocks: dict[str, float] = {}  # by node name: the second since which the node is unneeded
        self._removable_nodes: tuple[object, list[_Removable[AnyGroup]]] = (None, [])
        self._samples: list[tuple[Group, NodeInfo]] = []  # an empty node of each group
        self._hosts: dict[PodGroup, dict[Group, NodeInfo]] = {}  # those of them that have room for a kind
        # By group: the input of its last estimate, and this estimate. Most loops change few groups.
        self._estimates: dict[Group, tuple[object, tuple[int, float] | None]] = {}

    def _is_too_new(self, now: float) -> bool:
        waiting = self._pods.waiting()
        return bool(waiting) and now - waiting[0].created < _TOO_NEW

    # Scale-up

    def _scale_up(
        self, pools: Mapping[str, list[AnyGroup]], visible: Sequence[AnyGroup], demand: Demand, now: float
    ) -> list[tuple[AnyGroup, int]]:
        """Return the increases of the option with the highest priority, and then the least waste.

        A loop performs only one option.
        """
        if not self._pods.waiting() or self._is_too_new(now):
            return []
        upcoming = {
            place: [self._world.new_node(place, f"{place.key} upcoming {number}") for number in range(nodes)]
            for place, nodes in ((self._place(group), self._upcoming(group, now)) for group in visible)
            if nodes
        }
        placed: list[tuple[PodGroup, NodeInfo, int]] = []

        def put(kind: PodGroup, node: NodeInfo, count: int) -> None:
            node.put(kind, count)
            placed.append((kind, node, count))

        left, counts = self._unplaced(self._pods.scheduler, put, upcoming)
        for kind, node, count in placed:  # the autoscaler only tries these places; the scheduler binds pods
            node.put(kind, -count)
        if not left:
            return []
        able = [group for group in visible if self._may_grow(group, now)]
        fitting = self._fitting(able, left, counts)
        of_pool: dict[str, list[AnyGroup]] = {}
        for group in able:
            of_pool.setdefault(group.pool, []).append(group)
        options = [
            option
            for group in able
            if (option := self._option(group, of_pool[group.pool], fitting, left, counts)) is not None
        ]
        if not options:
            return []
        keys = [(-self._rank.get(option.group.pool, 0), option.waste) for option in options]
        least = min(keys)
        best = self._expander.choice([option for option, key in zip(options, keys, strict=True) if key == least])
        return balance(best.similar if self._flags.balance else [best.group], best.nodes)

    def _unplaced(
        self,
        scheduler: Scheduler,
        put: Callable[[PodGroup, NodeInfo, int], None],
        upcoming: Mapping[Group, Sequence[NodeInfo]] = _NO_NODES,
    ) -> tuple[Counter[PodGroup], dict[PodGroup, Counts]]:
        """Place pending pods on existing and upcoming nodes with ``put``.

        Return the pods that fit on none of them, and for their kinds the pods by topology domain.
        """
        waiting = self._pods.waiting()
        pending = Counter(pod.kind for pod in waiting)
        untried = {pod.kind for pod in waiting if pod.refused is None}
        for node in scheduler.nodes.values():
            if not node.is_open:
                pending.update(node.kinds)  # pods of a node that is being drained
                untried.update(node.kinds)
        new = [node for nodes in upcoming.values() for node in nodes]
        left: Counter[PodGroup] = Counter()
        counts: dict[PodGroup, Counts] = {}
        for kind, count in pending.items():
            # The scheduler has tried the existing nodes. A pod that spreads may fit them once an upcoming node counts.
            hosts = self._hosts_of(kind)
            nodes = [node for group, nodes in upcoming.items() if group in hosts for node in nodes]
            if kind in untried or (kind.spread and nodes):
                nodes = [*scheduler.nodes_of(kind), *nodes]
            known = counts_with(kind, scheduler.counts(kind), new)
            if more := count - fill(kind, nodes, count, known, partial(put, kind)):
                left[kind], counts[kind] = more, known  # ``fill`` has added the placed pods
        return left, counts

    def _hosts_of(self, kind: PodGroup) -> Mapping[Group, NodeInfo]:
        """Return the groups whose empty nodes have room for a kind, with such a node."""
        if not self._samples:
            self._samples = [(group, self._world.new_node(group, "")) for group in self._world.groups]
        if kind not in self._hosts:
            self._hosts[kind] = {group: sample for group, sample in self._samples if sample.room(kind)}
        return self._hosts[kind]

    def _fitting(
        self, able: Sequence[AnyGroup], kinds: Iterable[PodGroup], counts: Mapping[PodGroup, Counts]
    ) -> dict[Group, set[PodGroup]]:
        """Return the kinds whose pods fit on a new node of each group."""
        fitting: dict[Group, set[PodGroup]] = {self._place(group): set() for group in able}
        for kind in kinds:
            in_zone: dict[str, bool] = {}  # True: pods that spread fit on a new node of the zone
            for group, sample in self._hosts_of(kind).items():
                if group not in fitting:
                    continue
                if kind.spread and group.zone not in in_zone:
                    in_zone[group.zone] = any(places(kind, [sample], counts_with(kind, counts[kind], [sample])))
                if in_zone.get(group.zone, True):
                    fitting[group].add(kind)
        return fitting

    def _option(
        self,
        group: AnyGroup,
        of_pool: Sequence[AnyGroup],
        fitting: Mapping[Group, set[PodGroup]],
        left: Counter[PodGroup],
        counts: Mapping[PodGroup, Counts],
    ) -> _Option[AnyGroup] | None:
        place = self._place(group)
        kinds = fitting[place]
        if not kinds:
            return None
        similar = [
            other
            for other in of_pool
            if kinds <= fitting[self._place(other)] and (other is group or self._similar(group, other))
        ]
        counted = similar if self._flags.balance else [group]
        most = sum(bounds.max - other.requested for other in counted if (bounds := other.readable_bounds))
        known = (
            frozenset((kind, left[kind]) for kind in kinds),
            most,
            {kind: counts[kind] for kind in kinds if kind.spread},
        )
        if self._estimates.get(place, (None, None))[0] != known:
            self._estimates[place] = known, self._estimate(place, {kind: left[kind] for kind in kinds}, most, counts)
        estimate = self._estimates[place][1]
        return None if estimate is None else _Option(group, similar, *estimate)

    def _estimate(
        self,
        group: Group,
        pods: Mapping[PodGroup, int],
        most: int,
        counts: Mapping[PodGroup, Counts],
    ) -> tuple[int, float] | None:
        """Pack pods onto new nodes of one group, first-fit, with the largest pods first.

        Return the nodes and their waste; None: no pod fits.
        """
        size = self._world.new_node(group, "")
        new: list[NodeInfo] = []
        placed: Counter[PodGroup] = Counter()
        for kind in sorted(pods, key=lambda kind: (-(kind.cpu / size.cpu + kind.memory / size.memory), kind.name)):
            put = partial(_put, kind)
            placed[kind] = fill(kind, new, pods[kind], counts_with(kind, counts[kind], new), put)
            while placed[kind] < pods[kind] and len(new) < most:
                node = self._world.new_node(group, f"{group.key} new {len(new)}")
                known = counts_with(kind, counts[kind], [*new, node])
                if not (more := fill(kind, [node], pods[kind] - placed[kind], known, put)):
                    break
                new.append(node)
                placed[kind] += more
        if not new:
            return None
        cpu = sum(kind.cpu * count for kind, count in placed.items()) / (size.cpu * len(new))
        memory = sum(kind.memory * count for kind, count in placed.items()) / (size.memory * len(new))
        return len(new), 2 - cpu - memory

    # Scale-down

    def _scale_down(
        self, pools: Mapping[str, list[AnyGroup]], demand: Demand, now: float
    ) -> Iterator[Action[AnyGroup]]:
        """Yield deletions of nodes unneeded for long enough: several empty nodes at once, other nodes one at a time."""
        if self._is_too_new(now):
            return
        removable = self._removable(pools)
        self._clocks = {
            candidate.machine.name: self._clocks.get(candidate.machine.name, now) for candidate in removable
        }
        if self._has_just_added(now):
            return
        drained = bool(self._world.leaving)
        empty = _MOST_EMPTY - len(self._world.leaving)
        for candidate in removable:
            bounds = candidate.group.readable_bounds
            is_due = now - self._clocks[candidate.machine.name] > self._unneeded_time(candidate.group)
            if not is_due or bounds is None or candidate.group.requested <= bounds.min:
                continue
            if candidate.is_empty and empty > 0:
                empty -= 1
            elif not candidate.is_empty and not drained:
                drained = True
            else:
                continue
            yield Delete(candidate.group, candidate.machine)

    def _removable(self, pools: Mapping[str, list[AnyGroup]]) -> list[_Removable[AnyGroup]]:
        """Return removable nodes, empty nodes first. The list is computed again only after a change."""
        groups = [group for members in pools.values() for group in members]
        numbers = tuple((group, group.requested, group.running, group.readable_bounds) for group in groups)
        seen = (self._pods.version, numbers)
        if self._removable_nodes[0] != seen:
            self._removable_nodes = seen, list(self._find_removable(groups))
        return self._removable_nodes[1]

    def _find_removable(self, groups: Sequence[AnyGroup]) -> Iterator[_Removable[AnyGroup]]:
        scheduler = self._pods.scheduler.copy()
        self._unplaced(scheduler, scheduler.put)  # pending pods use free resources first
        allowed = {kind: self._pods.allowed(kind) for kind in self._pods.kinds}
        candidates = [
            _Removable(group, machine, is_empty=not scheduler.nodes[machine.name].pods)
            for group in groups
            if (bounds := group.readable_bounds) is not None and bounds.max > 0 and group.requested > bounds.min
            for machine in group.machines
            # Groups may be known from a read; since then, nodes may be drained, or gone.
            if machine.node and machine.name in scheduler.nodes and scheduler.nodes[machine.name].is_open
            if scheduler.nodes[machine.name].used <= _THRESHOLD
        ]
        candidates.sort(key=lambda candidate: (not candidate.is_empty, candidate.machine.name not in self._clocks))
        for candidate in candidates:
            node = scheduler.nodes[candidate.machine.name]
            moving = +node.kinds
            if any(allowed[kind] == 0 for kind in moving):
                continue
            if _move_pods(scheduler, node, moving):
                for kind, count in moving.items():
                    left = allowed[kind]
                    allowed[kind] = None if left is None else max(0, left - count)
                yield candidate


def _move_pods(scheduler: Scheduler, node: NodeInfo, moving: Counter[PodGroup]) -> bool:
    """Move all pods of a node to other nodes and cordon it. If a pod fits nowhere, change nothing and return False."""
    node.is_open = False
    done: list[tuple[PodGroup, NodeInfo]] = []
    for kind in sorted(moving, key=lambda kind: (-kind.cpu, -kind.memory, kind.name)):
        for _ in range(moving[kind]):
            scheduler.put(kind, node, -1)
            place = scheduler.first(kind)
            if place is None:
                scheduler.put(kind, node)
                for other, taken in done:
                    scheduler.put(other, taken, -1)
                    scheduler.put(other, node)
                node.is_open = True
                return False
            scheduler.put(kind, place)
            done.append((kind, place))
    return True


def _put(kind: PodGroup, node: NodeInfo, count: int) -> None:
    node.put(kind, count)
