"""cluster-autoscaler in a simulated world. It performs the model's actions, and packs pods by cpu and memory.

``autoscaler_model`` tracks orders and backoffs. The simulated scheduler decides where a pod fits. Sources:
core/podlistprocessor, core/scaleup/orchestrator/orchestrator.go, estimator/binpacking_estimator.go,
expander/waste/waste.go, core/scaledown, all under cluster-autoscaler/. Not modelled: scheduling hints, and limits on
time and on candidates. Eviction is not modelled either, because machine controllers drain nodes.
"""

# ruff: noqa: ARG002  the base class passes ``demand``, which PodAutoscaler does not use, because it reads pods

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from evenkeel_cli.simulation.autoscaler_model import (
    Action,
    ClusterAutoscaler,
    Decrease,
    Delete,
    Demand,
    Flags,
    Increase,
    Refused,
    balance,
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
        self._world = world
        flags = Flags(**setup.model_dump(exclude={"enabled", "loop", "priority"}))
        seed = f"{world.scenario.seed}/expander"
        self._model: ClusterAutoscaler[Group] = (
            ClusterAutoscaler(flags, seed=seed)
            if world.pods is None
            else PodAutoscaler(world, world.pods, flags, seed=seed, priority=setup.priority)
        )

    def loop(self) -> None:
        """Run one loop at the world's current second."""
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


@dataclass(frozen=True)
class _Option:
    """The nodes that one group and its similar groups could add for pending pods."""

    group: Group
    similar: list[Group]
    nodes: int
    waste: float


@dataclass(frozen=True)
class _Removable:
    """A node that could be removed."""

    group: Group
    machine: SimulatedMachine
    is_empty: bool


class PodAutoscaler(ClusterAutoscaler[Group]):
    """The autoscaler of a world with pods."""

    def __init__(self, world: World, pods: Pods, flags: Flags, *, seed: str, priority: tuple[str, ...] = ()) -> None:
        super().__init__(flags, seed=seed)
        self._rank = {pool: rank for rank, pool in enumerate(reversed(priority), 1)}
        self._world = world
        self._pods = pods
        self._clocks: dict[str, float] = {}  # by node name: the second since which the node is unneeded
        self._removable_nodes: tuple[object, list[_Removable]] = (None, [])
        self._samples: list[tuple[Group, NodeInfo]] = []  # an empty node of each group
        self._hosts: dict[PodGroup, list[Group]] = {}  # the groups whose empty nodes have room for a kind
        # By group: the input of its last estimate, and this estimate. Most loops change few groups.
        self._estimates: dict[Group, tuple[object, tuple[int, float] | None]] = {}

    def _is_too_new(self, now: float) -> bool:
        waiting = self._pods.waiting()
        return bool(waiting) and now - waiting[0].created < _TOO_NEW

    # Scale-up

    def _scale_up(
        self, pools: Mapping[str, list[Group]], visible: Sequence[Group], demand: Demand, now: float
    ) -> list[tuple[Group, int]]:
        """Return the increases of the option with the highest priority, and then the least waste.

        A loop performs only one option.
        """
        if not self._pods.waiting() or self._is_too_new(now):
            return []
        scheduler = self._pods.scheduler.copy()
        upcoming = {
            group: [
                self._world.new_node(group, f"{group.key} upcoming {number}")
                for number in range(self._upcoming(group, now))
            ]
            for group in visible
        }
        for nodes in upcoming.values():
            for node in nodes:
                scheduler.add(node)
        left = self._unplaced(scheduler, upcoming)
        if not left:
            return []
        able = [group for group in visible if self._may_grow(group, now)]
        counts = {kind: scheduler.counts(kind) for kind in left}
        fitting = self._fitting(able, left, counts)
        of_pool: dict[str, list[Group]] = {}
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
        self, scheduler: Scheduler, upcoming: Mapping[Group, Sequence[NodeInfo]] = _NO_NODES
    ) -> Counter[PodGroup]:
        """Place pending pods on existing and upcoming nodes. Return the pods that fit on none of them."""
        waiting = self._pods.waiting()
        pending = Counter(pod.kind for pod in waiting)
        untried = {pod.kind for pod in waiting if pod.refused is None}
        for node in scheduler.nodes.values():
            if not node.is_open:
                pending.update(node.kinds)  # pods of a node that is being drained
                untried.update(node.kinds)
        left: Counter[PodGroup] = Counter()
        for kind, count in pending.items():
            # The scheduler has tried the existing nodes. A pod that spreads may fit them once an upcoming node counts.
            nodes: Iterable[NodeInfo] = [node for group in self._hosts_of(kind) for node in upcoming.get(group, ())]
            if kind in untried or (kind.spread and nodes):
                nodes = scheduler.nodes.values()
            put = partial(scheduler.put, kind)
            if more := count - fill(kind, nodes, count, scheduler.counts(kind), put):
                left[kind] = more
        return left

    def _hosts_of(self, kind: PodGroup) -> list[Group]:
        """Return the groups whose empty nodes have room for a kind."""
        if not self._samples:
            self._samples = [(group, self._world.new_node(group, "")) for group in self._world.groups]
        if kind not in self._hosts:
            self._hosts[kind] = [group for group, sample in self._samples if sample.room(kind)]
        return self._hosts[kind]

    def _fitting(
        self, able: Sequence[Group], kinds: Iterable[PodGroup], counts: Mapping[PodGroup, Counts]
    ) -> dict[Group, set[PodGroup]]:
        """Return the kinds whose pods fit on a new node of each group."""
        fitting: dict[Group, set[PodGroup]] = {group: set() for group in able}
        for kind in kinds:
            in_zone: dict[str, bool] = {}  # True: pods that spread fit on a new node of the zone
            for group in self._hosts_of(kind):
                if group not in fitting:
                    continue
                if kind.spread and group.zone not in in_zone:
                    in_zone[group.zone] = self._fits_new(kind, group, counts[kind])
                if in_zone.get(group.zone, True):
                    fitting[group].add(kind)
        return fitting

    def _fits_new(self, kind: PodGroup, group: Group, counts: Counts) -> bool:
        new = [self._world.new_node(group, f"{group.key} sample")]
        return next(places(kind, new, counts_with(kind, counts, new)), None) is not None

    def _option(
        self,
        group: Group,
        of_pool: Sequence[Group],
        fitting: Mapping[Group, set[PodGroup]],
        left: Counter[PodGroup],
        counts: Mapping[PodGroup, Counts],
    ) -> _Option | None:
        kinds = fitting[group]
        if not kinds:
            return None
        similar = [other for other in of_pool if kinds <= fitting[other]]
        counted = similar if self._flags.balance else [group]
        most = sum(other.bounds.max - other.requested for other in counted)
        known = (
            frozenset((kind, left[kind]) for kind in kinds),
            most,
            {kind: counts[kind] for kind in kinds if kind.spread},
        )
        if self._estimates.get(group, (None, None))[0] != known:
            self._estimates[group] = known, self._estimate(group, {kind: left[kind] for kind in kinds}, most, counts)
        estimate = self._estimates[group][1]
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

    def _scale_down(self, pools: Mapping[str, list[Group]], demand: Demand, now: float) -> Iterator[Action[Group]]:
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
            is_due = now - self._clocks[candidate.machine.name] > self._flags.unneeded
            if not is_due or bounds is None or candidate.group.requested <= bounds.min:
                continue
            if candidate.is_empty and empty > 0:
                empty -= 1
            elif not candidate.is_empty and not drained:
                drained = True
            else:
                continue
            yield Delete(candidate.group, candidate.machine)

    def _removable(self, pools: Mapping[str, list[Group]]) -> list[_Removable]:
        """Return removable nodes, empty nodes first. The list is computed again only after a change."""
        groups = [group for members in pools.values() for group in members]
        seen = (self._pods.version, tuple((group.requested, group.readable_bounds) for group in groups))
        if self._removable_nodes[0] != seen:
            self._removable_nodes = seen, list(self._find_removable(groups))
        return self._removable_nodes[1]

    def _find_removable(self, groups: Sequence[Group]) -> Iterator[_Removable]:
        scheduler = self._pods.scheduler.copy()
        self._unplaced(scheduler)  # pending pods use free resources first
        allowed = {kind: self._pods.allowed(kind) for kind in self._pods.kinds}
        candidates = [
            _Removable(group, machine, is_empty=not scheduler.nodes[machine.name].pods)
            for group in groups
            if (bounds := group.readable_bounds) is not None and bounds.max > 0 and group.requested > bounds.min
            for machine in group.nodes()
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
            place = scheduler.first(kind, scheduler.nodes.values())
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
