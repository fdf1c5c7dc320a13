"""The loss of one zone, played from an observation of a cluster in virtual time.

At second 0, the zone's nodes are gone, and the cloud refuses each launch there. Their pods are pending after
``EVICTED`` seconds. Pods that stay use their requests, but are not played. The domain's filters decide on which node
groups a pod may run; the simulated scheduler binds it by resources, number of pods, and spread. Evenkeel and the
autoscaler's model run as in any simulation. docs/guides/survive.md lists what a forecast does not model.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from evenkeel.access_config import KubeconfigAccess, SameAccess, WorkloadEntry
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.ports import WorkloadCluster
from evenkeel.domain.demand.node_info import NodeInfo as RealNodeInfo
from evenkeel.domain.demand.pods import daemon_sets_of
from evenkeel.domain.demand.requests import CPU, MEMORY, PODS, counts
from evenkeel.domain.model.groups import Bounds, GroupKey, GroupTemplate, NodeGroup, State
from evenkeel.domain.model.observations import MachineNode
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import HOSTNAME, ZONE, Node, Pod, Workload
from evenkeel.record import ClusterPolicy, ClusterRecord
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.simulation.agenda import Agenda, Turn
from evenkeel_cli.simulation.engine import Run, Snapshot, Variant, play
from evenkeel_cli.simulation.evenkeel import CLUSTER, Evenkeel
from evenkeel_cli.simulation.loss import EVICTED, LASTING, Kind, Loss, shape_name
from evenkeel_cli.simulation.pods import PodCounts, Pods, SimulatedPod
from evenkeel_cli.simulation.scenario import AutoscalerSetup
from evenkeel_cli.simulation.scheduling import POOL, NodeInfo, PodGroup
from evenkeel_cli.simulation.workload_view import WorkloadView
from evenkeel_cli.simulation.world import Group, World

# Pods that stay are not played, so that the model cannot judge which nodes are unneeded.
_NEVER_UNNEEDED = 10 * LASTING
_SETTLED = 1200  # seconds without any change, after which a forecast ends. They are longer than a provision timeout.


class _Pods(Pods):
    """The pods that need a place, and those that decide where these may run."""

    def __init__(self, loss: Loss, agenda: Agenda, clock: Callable[[], int]) -> None:
        super().__init__(loss.scenario, agenda, clock)
        self.bound_at: dict[Kind, list[int]] = {}  # without pods that a later drain has moved
        self._homeless: set[SimulatedPod] = set()
        self.kinds = [kind for kind, _ in loss.homeless]
        self._alive = {kind: [] for kind in self.kinds}
        for (kind, displaced), (_, pending) in zip(loss.homeless, loss.pending, strict=True):
            agenda.enter(0, Turn.WORLD, partial(self._add, kind, pending))
            agenda.enter(EVICTED, Turn.WORLD, partial(self._add, kind, displaced))

    def _add(self, kind: PodGroup, pods: int) -> None:
        for _ in range(pods):
            self._create(kind)
            self._homeless.add(self._alive[kind][-1])

    def counts(self) -> PodCounts:
        """Return the numbers of waiting pods by owner. A forecast has thousands of kinds, of which few wait."""
        waiting: Counter[str] = Counter()
        for kind, pods in self._pending.items():
            if pods:
                waiting[kind.name] += len(pods)
        return PodCounts(wanted={}, waiting=waiting, evicted=self._evicted, against_budget=0, held=0)

    def start(self, kind: PodGroup, node: NodeInfo) -> None:
        """Add a pod that runs since before the loss."""
        self._alive[kind].append(
            SimulatedPod(name=f"{kind.name}-{next(self._numbers)}", kind=kind, created=-1, node=node, ready=True)
        )
        self.scheduler.put(kind, node)

    def _bind(self, pod: SimulatedPod, node: NodeInfo) -> None:
        super()._bind(pod, node)
        if pod in self._homeless:
            assert isinstance(pod.kind, Kind)
            self.bound_at.setdefault(pod.kind, []).append(self._clock())


class _World(World):
    """The groups of the cluster, without the nodes of the lost zone."""

    pods: _Pods | None

    def __init__(self, loss: Loss, agenda: Agenda) -> None:
        self.loss = loss
        self._originals = {group.key: group for group in loss.observation.groups}
        self._quiet: dict[GroupKey, tuple[object, NodeGroup]] = {}  # the numbers of quiet groups, and these groups
        super().__init__(loss.scenario, agenda)
        if self.pods is not None:
            self._place_pods(self.pods)
        for group in self.groups:
            for machine in [machine for machine in group.machines if not machine.launched]:
                self._later(self.zones[group.zone].answer, partial(self._launch, group, machine))

    def _place_pods(self, pods: _Pods) -> None:
        """Add the nodes that remain, with their pods."""
        for name, stays in self.loss.stays.items():
            info = self.loss.infos[name]
            node = self._node(name, info)
            node.is_open = info.is_schedulable
            request = counts(self.loss.fillers[name].needs.resources.containers[0].requests)
            node.used_cpu, node.used_memory = request.pop(CPU, 0), request.pop(MEMORY, 0)
            node.most_pods -= request.pop(PODS, 0) + 1
            for resource, amount in request.items():
                node.rest[resource] = node.rest.get(resource, 0) - amount
            pods.scheduler.add(node)
            for kind, count in stays.items():
                for _ in range(count):
                    pods.start(kind, node)

    def _first_pods(self) -> _Pods | None:
        return _Pods(self.loss, self.agenda, lambda: self.now) if self.loss.has_pods else None

    def _first_groups(self) -> Iterable[Group]:
        nodes: dict[GroupKey, list[str]] = defaultdict(list)
        for node in self.loss.workload.nodes:
            if node.group is not None and node.name not in self.loss.lost_nodes:
                nodes[node.group].append(node.name)
        for group in self.loss.observation.groups if not self.loss.has_pods else ():
            if group.identity.zone != self.loss.zone:
                nodes[group.key] = [f"{group.key.name}-{number}" for number in range(group.running)]
        return [self._existing(group, sorted(nodes[group.key])) for group in self.loss.observation.groups]

    def _existing(self, original: NodeGroup, nodes: Sequence[str]) -> Group:
        group = Group(
            key=original.key,
            pool=self.loss.pool_name(original),
            zone=original.identity.zone or self.loss.scenario.zones[0].name,
            bounds=original.bounds or Bounds(0, 0),
            bad_bounds=original.bounds is None,
        )
        for name in nodes:
            machine = self._machine(group)
            machine.name, machine.created, machine.launched, machine.node = name, -1, True, True
            group.running += 1
            self._give(group, 1)
        for _ in range(original.requested - len(nodes)):
            self._machine(group)
        return group

    def new_node(self, group: Group, name: str) -> NodeInfo:
        """Return an empty node of a group."""
        info = self.loss.new_infos.get(group.key)
        if info is None:  # without a template, no pod fits
            return NodeInfo(name, {POOL: "", ZONE: group.zone, HOSTNAME: name}, 1, 1, is_open=False)
        return self._node(name, info)

    def _node(self, name: str, info: RealNodeInfo) -> NodeInfo:
        labels = {POOL: shape_name(info), ZONE: info.labels.get(ZONE, ""), HOSTNAME: name}
        allocatable = info.allocatable
        node = NodeInfo(name, labels, max(1, allocatable.get(CPU, 0)), max(1, allocatable.get(MEMORY, 0)))
        node.most_pods = allocatable.get(PODS, 0)
        node.rest = {name: amount for name, amount in allocatable.items() if name not in (CPU, MEMORY, PODS)}
        if info.name not in self.loss.nodes:  # a template: its free resources are without the pods of DaemonSets
            node.used_cpu, node.used_memory = (
                allocatable.get(CPU, 0) - info.cpu,
                allocatable.get(MEMORY, 0) - info.memory,
            )
            node.most_pods, node.rest = info.pods, dict(info.free)
        return node

    def _template(self, group: Group) -> GroupTemplate:
        return self._originals[group.key].template

    def observe(self, group: Group, *, reads_machines: bool = False) -> NodeGroup:
        """Return the group as read before the loss, with its numbers of now."""
        reads_machines = reads_machines or group.state is not State.HEALTHY
        is_quiet = group.requested == group.running and not (reads_machines and (group.machines or group.drained))
        numbers = (group.requested, group.bounds, group.decision, group.adopted, group.move, reads_machines)
        if is_quiet and group.key in self._quiet and self._quiet[group.key][0] == numbers:
            return self._quiet[group.key][1]
        seen = super().observe(group, reads_machines=reads_machines)
        original = self._originals[group.key]
        ours = original.ours
        if group.decision is not None or group.move is not None:
            adopted = ours if ours.has_adopted else seen.ours
            ours = replace(
                ours,
                adopted=adopted.adopted,
                has_adopted=adopted.has_adopted,
                published=seen.ours.published or ours.published,
                move=group.move or ours.move,
            )
        status = original.status
        if status.launched is not None and seen.status.launched is not None:
            status = replace(status, launched=seen.status.launched)
        observed = replace(
            original,
            status=status,
            requested=seen.requested,
            running=seen.running,
            machines=seen.machines,
            bounds=seen.bounds,
            ours=ours,
        )
        if is_quiet:
            self._quiet[group.key] = numbers, observed
        return observed


class _View(WorkloadView):
    """The pods and nodes of a forecast. On each node, one more pod requests what the pods that stay there request."""

    _world: _World

    def __init__(self, world: _World) -> None:
        super().__init__(world)
        workload = world.loss.workload
        self._daemon_sets = workload.daemon_sets or daemon_sets_of(workload.pods)

    def read(self, machines: Callable[[], Mapping[str, MachineNode]], *, judges_nodes: bool) -> Workload:
        """Return the whole workload."""
        seen, loss = super().read(machines, judges_nodes=judges_nodes), self._world.loss
        stays = [loss.fillers[node.name] for node in seen.nodes if node.name in loss.fillers]
        comes_with_node = [
            replace(pod, node=node.name, name=f"{pod.name}-{node.name}")
            for node in seen.nodes
            if node.name not in loss.nodes and node.group is not None
            for pod in loss.templates[node.group].pods
        ]
        return replace(
            loss.workload,
            pods=(*stays, *comes_with_node, *seen.pods),
            nodes=seen.nodes,
            daemon_sets=self._daemon_sets,
            attachments=(),
        )

    def _sample(self, kind: PodGroup) -> Pod:
        assert isinstance(kind, Kind)
        return kind.sample

    def _nodes(self, machines: Mapping[str, MachineNode]) -> Iterable[Node]:
        world, loss = self._world, self._world.loss
        groups = {machine.name: (group, machine.joined) for group in world.groups for machine in group.machines}
        groups |= {name: (group, 0) for name, (group, _) in world.leaving.items()}
        for name in self._pods.scheduler.nodes:
            node = loss.nodes.get(name)
            if node is None:
                group, joined = groups[name]
                template = loss.templates.get(group.key)
                if template is None:
                    continue
                node = replace(template.named(name), ready=True, created_at=world.moment(joined), group=group.key)
            seen = machines.get(name)
            yield node if seen is None else replace(node, machine=seen.machine, deleting=seen.deleting)


class _Evenkeel(Evenkeel):
    """The deployed use case with the cluster's record and stored state."""

    view: _View

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> WorkloadCluster:  # noqa: ARG002
        """Return the simulated workload cluster."""
        return self.view


class Forecast(Run):
    """The run of a forecast."""

    world: _World

    def __init__(self, loss: Loss, policy: ClusterFile, state: ClusterState) -> None:
        self.loss, self._policy, self._state = loss, policy, state
        self._checked_at = -1
        autoscaler = AutoscalerSetup.model_construct(loop=policy.autoscaler_loop, unneeded=_NEVER_UNNEEDED)
        super().__init__(
            loss.scenario.model_copy(update={"autoscaler": autoscaler}),
            Variant(name="forecast", autoscaler=policy.autoscaler != "none", demand=policy.demand_stage),
        )

    def _new_world(self) -> _World:
        return _World(self.loss, self.agenda)

    def _new_evenkeel(self) -> Evenkeel:
        fields = {name: getattr(self._policy, name) for name in ClusterPolicy.model_fields}
        fields |= {"id": CLUSTER, "access": KubeconfigAccess(kind="kubeconfig", secret=CLUSTER), "dry_run": False}
        if self.world.pods is None:  # then no demand is known
            fields |= {"workload": None, "demand": None}
        else:
            fields["workload"] = WorkloadEntry(access=SameAccess(kind="same"))
        record = ClusterRecord.model_construct(**fields)
        evenkeel = _Evenkeel(self.world, record, self._check_in, self._state)
        if self.world.pods is not None:
            evenkeel.view = _View(self.world)
        return evenkeel

    def check(self) -> None:
        """Perform one run of Evenkeel, at most once a second: a scan and a requested check find the same."""
        if self._checked_at != self.world.now:
            self._checked_at = self.world.now
            super().check()

    def _scan(self) -> None:
        # Without a change since the last check, the next one would repeat it: that check has requested any other.
        if self.snapshots and self.snapshots[-1].at < self._checked_at:
            self._checked_at = self.world.now
            self.agenda.enter(self.world.now + self.scenario.evenkeel.scan_interval, Turn.EVENKEEL, self._scan)
        else:
            super()._scan()

    def is_over(self, second: int) -> bool:
        """Return True once no pod waits and no node is coming, or nothing has changed for a long time."""
        if second <= EVICTED or not self.snapshots:
            return False
        lost = self.loss.zone
        is_coming = any(group.requested > group.running for group in self.world.groups if group.zone != lost)
        quiet = second - max(EVICTED, self.snapshots[-1].at)
        if self.loss.bound and quiet <= EVICTED:  # pods of the zone may make Evenkeel order nodes, which it then moves
            return False
        return quiet > _SETTLED or not (is_coming or self.missing() or self.waiting())

    def waiting(self) -> Sequence[SimulatedPod]:
        """Return the pods that wait, although they may run in another zone."""
        pods = () if self.world.pods is None else self.world.pods.waiting()
        return [pod for pod in pods if isinstance(pod.kind, Kind) and not pod.kind.is_bound]

    def missing(self) -> Mapping[str, int]:
        """Return how many nodes each pool lacks, if pods are not known."""
        if self.loss.has_pods:
            return {}
        running: Counter[str] = Counter()
        for group in self.world.groups:
            running[group.pool] += group.running
        return self.loss.nodes_before - running


@dataclass(frozen=True, kw_only=True)
class Waits:
    """The pods of one owner that needed a place. Times are seconds since the loss."""

    name: str
    pods: int
    longest: int | None  # None: none of them got a place
    never: int  # pods without a place at the end of the forecast


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a forecast."""

    zone: str
    seconds: int  # the length of the forecast
    lost_nodes: int
    has_pods: bool  # False: pods are not known, so that the forecast is about nodes
    waits: tuple[Waits, ...]
    bound: Mapping[str, int]  # owner -> number of its pods that may run in no other zone
    missing: Mapping[str, int]  # pool -> number of nodes that it lacks at the end, if pods are not known
    snapshots: tuple[Snapshot, ...]
    at_maximum: tuple[str, ...]  # pools at PoolMaximum, although pods that may run on them wait, or nodes are missing
    at_zone_max: tuple[str, ...]  # node groups at evenkeel.dev/zone-max in the same case

    @property
    def displaced(self) -> int:
        """Return the number of pods that need another place."""
        return sum(waits.pods for waits in self.waits)

    @property
    def never(self) -> int:
        """Return the number of pods that get no place."""
        return sum(waits.never for waits in self.waits)

    @property
    def survives(self) -> bool:
        """Return True if each pod that may run elsewhere gets a place. Without pods: if no pool lacks a node."""
        return not self.missing and not self.never


def foresee(loss: Loss, policy: ClusterFile, state: ClusterState) -> Outcome:
    """Play the loss of a zone, and return the result. The same input gives the same result."""
    run = Forecast(loss, policy, state)
    play(run, is_over=run.is_over)
    waiting = Counter(pod.kind for pod in run.waiting())
    bound_at = {} if run.world.pods is None else run.world.pods.bound_at
    waits: dict[str, Waits] = {}
    for (kind, displaced), (_, pending) in zip(loss.homeless, loss.pending, strict=True):
        if kind.is_bound:
            continue
        times = bound_at.get(kind, [])
        known = waits.get(kind.name, Waits(name=kind.name, pods=0, longest=None, never=0))
        waits[kind.name] = Waits(
            name=kind.name,
            pods=known.pods + displaced + pending,
            longest=max([*times, *([] if known.longest is None else [known.longest])], default=None),
            never=known.never + waiting[kind],
        )
    at_maximum, at_zone_max = _limits(run, waiting)
    return Outcome(
        zone=loss.zone,
        seconds=run.world.now,
        lost_nodes=loss.lost,
        has_pods=loss.has_pods,
        waits=tuple(sorted(waits.values(), key=lambda waits: (-waits.never, -(waits.longest or 0), waits.name))),
        bound=dict(sorted(loss.bound.items())),
        missing=dict(sorted(run.missing().items())),
        snapshots=tuple(run.snapshots),
        at_maximum=at_maximum,
        at_zone_max=at_zone_max,
    )


def _limits(run: Forecast, waiting: Counter[PodGroup]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the pools at PoolMaximum and the groups at zone-max that could help the pods or pools that wait."""
    loss, missing = run.loss, run.missing()
    shapes = {shape for kind in waiting if isinstance(kind, Kind) for shape in kind.shapes}
    wanted = {
        group
        for group in run.world.groups
        if group.pool in missing or (group.key in loss.new_infos and shape_name(loss.new_infos[group.key]) in shapes)
    }
    requested: Counter[str] = Counter()
    for group in run.world.groups:
        requested[group.pool] += group.requested
    maxima = {str(pool.id): pool.max for pool in loss.pool_of.values()}
    full = {
        group.pool for group in wanted if requested[group.pool] >= (maxima.get(group.pool) or requested[group.pool] + 1)
    }
    zone_max = {group.key: group.annotations.zone_max for group in loss.observation.groups}
    at_zone_max = [
        str(group.key)
        for group in wanted
        if group.zone != loss.zone and (most := zone_max[group.key]) is not None and group.requested >= most
    ]
    return tuple(sorted(full)), tuple(sorted(at_zone_max))
