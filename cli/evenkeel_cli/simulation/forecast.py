"""The loss of one zone, played from an observation of a cluster in virtual time.

At second 0, the zone's nodes are gone, and the cloud refuses each launch there. Their pods are pending after
``EVICTED`` seconds. Pods that stay use their requests, but are not played. The domain's filters decide on which node
groups a pod may run; the simulated scheduler binds it by cpu, memory, number of pods, and spread.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction
from functools import partial

from evenkeel.access_config import KubeconfigAccess, SameAccess, WorkloadEntry
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.ports import MachineNode, WorkloadCluster
from evenkeel.domain.demand.filters import taints_and_affinity, volume_binding
from evenkeel.domain.demand.node_info import NodeInfo as RealNodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup as RealPodGroup
from evenkeel.domain.demand.pods import daemon_sets_of, not_rescheduled_because
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import DemandPolicy, GroupOffer, PoolOffer
from evenkeel.domain.model.groups import Bounds, GroupKey, GroupTemplate, NodeGroup, PoolId, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import HOSTNAME, ZONE, Container, Needs, Pod, Resources, Unscheduled, Workload
from evenkeel.record import ClusterFile, ClusterPolicy, ClusterRecord
from evenkeel_cli.simulation.agenda import Agenda, Turn
from evenkeel_cli.simulation.engine import Run, Snapshot, Stage, Variant, play
from evenkeel_cli.simulation.evenkeel import Evenkeel
from evenkeel_cli.simulation.pods import Pods, SimulatedPod
from evenkeel_cli.simulation.scenario import (
    AutoscalerSetup,
    Limit,
    PodsSetup,
    PoolSetup,
    Scenario,
    SpreadSetup,
    Zone,
)
from evenkeel_cli.simulation.scheduling import POOL, NodeInfo, PodGroup
from evenkeel_cli.simulation.world import Group, World

EVICTED = 300  # seconds until the pods of a lost node are replaced: the default of tolerationSeconds
LASTING = 3600  # the longest forecast in seconds
_SETTLED = 1200  # seconds without any change, after which a forecast ends. They are longer than a provision timeout.
_NEVER_UNNEEDED = 10 * LASTING  # pods that stay are not played, so that the model cannot judge which nodes are unneeded


class Kind(PodGroup):
    """Pods with equal needs. ``shapes``: the shapes of nodes on which they may run."""

    def __init__(self, pods: RealPodGroup, sample: Pod, name: str) -> None:
        spreads = {constraint.key: constraint.max_skew for constraint in pods.spread}
        setup = PodsSetup.model_construct(
            name=name,
            count=(),
            cpu=Fraction(pods.cpu, 1000),
            memory=Fraction(pods.memory),
            spread=SpreadSetup.model_construct(zone=spreads.get(ZONE), node=spreads.get(HOSTNAME)),
        )
        super().__init__(setup)
        self.sample = sample
        self.shapes: frozenset[str] = frozenset()
        anti_affinity = pods.needs.anti_affinity
        if pods.ports or any(term.key == HOSTNAME and matches(term.selector, sample.labels) for term in anti_affinity):
            self.per_node = 1

    @property
    def needs_counts(self) -> bool:
        """Return True if the places of these pods depend on where other such pods run."""
        return bool(self.spread) or self.per_node is not None

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Return True if the pods may run on a node with these labels."""
        return labels[POOL] in self.shapes


class Loss:
    """A cluster without one zone: what remains, and the pods that need a place. Raises KeyError for an unknown zone."""

    def __init__(self, observation: Observation, planned: Plan, now: datetime, zone: str) -> None:
        assert observation.workload is not None
        self.zone, self.now, self.observation = zone, now, observation
        self.workload = observation.workload
        self.pool_of = {plan.group.key: pool for pool in planned.pools for plan in pool.groups}
        zones = zones_of(observation)
        if zone not in zones:
            raise KeyError(zone)
        offers = [
            PoolOffer(pool=pool.id, groups=tuple(_offer(plan.group) for plan in pool.groups)) for pool in planned.pools
        ]
        others = [_offer(group) for group in observation.groups if group.key not in self.pool_of]
        offers += [PoolOffer(pool=PoolId.read(f"{offer.group}"), groups=(offer,)) for offer in others]
        self._simulation = Simulation(self.workload, offers, DemandPolicy(), now)
        self.nodes = {node.name: node for node in self.workload.nodes}
        self.lost_nodes = frozenset(node.name for node in self.workload.nodes if self._zone_of(node.name) == zone)
        templates = {key: self._simulation.add_template_node(key) for key in self._simulation.template_nodes}
        self.templates = {key: self._simulation.template_nodes[key] for key in templates}
        self.infos = {name: info for name, info in self._simulation.snapshot.node_infos.items() if name in self.nodes}
        self.new_infos: Mapping[GroupKey, RealNodeInfo] = templates
        self._places = [info for name, info in self.infos.items() if name not in self.lost_nodes]
        self._places += [info for info in templates.values() if info.labels.get(ZONE) != zone]
        self._samples = list({info.shape: info for info in self._places}.values())  # one of each shape
        self._sort_pods()
        self.scenario = Scenario.model_construct(
            name=f"loss of {zone}",
            start=now,
            duration=LASTING,
            zones=tuple(
                Zone.model_construct(
                    name=name, capacity=(Limit.model_construct(at=0, nodes=0),) if name == zone else ()
                )
                for name in zones
            ),
            pools=tuple(
                PoolSetup.model_construct(name=name, max=0)
                for name in sorted({*map(self.pool_name, observation.groups)})
            ),
            autoscaler=AutoscalerSetup.model_construct(unneeded=_NEVER_UNNEEDED),
        )

    def pool_name(self, group: NodeGroup) -> str:
        """Return the name of a group's pool; for a group without a pool, its key."""
        return str(self.pool_of[group.key].id) if group.key in self.pool_of else str(group.key)

    def _zone_of(self, node: str) -> str:
        return self.nodes[node].labels.get(ZONE, "")

    def _sort_pods(self) -> None:
        """Divide the pods into displaced, pending and bound ones, and those that only use resources where they are."""
        simulation, policy = self._simulation, DemandPolicy()
        homeless: dict[RealPodGroup, list[Pod]] = defaultdict(list)
        pending: dict[RealPodGroup, list[Pod]] = defaultdict(list)
        for name in sorted(self.lost_nodes):
            for pod in simulation.pods_on.get(name, ()):
                if not_rescheduled_because(pod, policy) is None:
                    homeless[simulation.pod_groups.of(pod)].append(pod)
        for pod in simulation.pending:
            if pod.node == "":
                pending[simulation.pod_groups.of(pod)].append(pod)
        self.homeless: list[tuple[Kind, int]] = []
        self.pending: list[tuple[Kind, int]] = []
        self.bound: Counter[str] = Counter()
        counted: dict[RealPodGroup, Kind] = {}
        for pods in sorted({*homeless, *pending}, key=lambda pods: pods.name):
            sample = (homeless.get(pods) or pending[pods])[0]
            kind = Kind(pods, replace(sample, node=""), _owner_of(sample))
            kind.shapes = frozenset(self._shapes(pods))
            if not kind.shapes:
                self.bound[kind.name] += len(homeless.get(pods, ()))
                continue
            self.homeless.append((kind, len(homeless.get(pods, ()))))
            self.pending.append((kind, len(pending.get(pods, ()))))
            if kind.needs_counts:
                counted[pods] = kind
        self.stays: dict[str, Counter[Kind]] = {}
        self.fillers: dict[str, Pod] = {}
        for name, info in self.infos.items():
            if name not in self.lost_nodes:
                self.stays[name] = Counter({counted[p]: n for p, n in info.pod_groups.items() if p in counted})
                self.fillers[name] = _filler(
                    name, {p: n for p, n in info.pod_groups.items() if p not in counted}, self.now
                )

    def _shapes(self, pods: RealPodGroup) -> Iterable[str]:
        """Yield the shapes of nodes outside the lost zone on which pods may run."""
        for info in self._samples if not pods.by_node else self._places:
            if _accepts(pods, info):
                yield shape_name(info)


def zones_of(observation: Observation) -> list[str]:
    """Return the zones of a cluster's node groups and nodes."""
    nodes = observation.workload.nodes if observation.workload is not None else ()
    named = {group.identity.zone for group in observation.groups} | {node.labels.get(ZONE) for node in nodes}
    return sorted(zone for zone in named if zone)


def shape_name(info: RealNodeInfo) -> str:
    """Return a text that is equal for nodes of one shape."""
    return str(id(info.shape))


def _offer(group: NodeGroup) -> GroupOffer:
    return GroupOffer(group=group.key, zone=group.identity.zone or "", template=group.template.node)


def _accepts(pods: RealPodGroup, info: RealNodeInfo) -> bool:
    return taints_and_affinity(pods, info) is None and volume_binding(pods, info) is None


def _owner_of(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.owner.name}" if pod.owner is not None else str(pod)


def _filler(node: str, pods: Mapping[RealPodGroup, int], now: datetime) -> Pod:
    """Return one pod that requests as much of a node as these pods. It has no controller, so that it never moves."""
    amounts: Counter[str] = Counter({"pods": sum(pods.values()) - 1})
    for group, count in pods.items():
        for name, request in group.request.items():
            amounts[name] += request * count
    requests = {name: Fraction(count, 1000 if name == "cpu" else 1) for name, count in amounts.items() if count > 0}
    needs = Needs(resources=Resources(containers=(Container(requests=requests),)))
    return Pod(namespace="forecast", name=f"on-{node}", created_at=now, needs=needs, node=node, phase="Running")


class _Pods(Pods):
    """The pods that need a place, and those that decide where these may run."""

    def __init__(self, loss: Loss, agenda: Agenda, clock: Callable[[], int]) -> None:
        super().__init__(loss.scenario, agenda, clock)
        self.bound_at: dict[Kind, list[int]] = {}
        self.kinds = [kind for kind, _ in loss.homeless]
        self._alive = {kind: [] for kind in self.kinds}
        for (kind, displaced), (_, pending) in zip(loss.homeless, loss.pending, strict=True):
            agenda.enter(0, Turn.WORLD, partial(self._add, kind, pending))
            agenda.enter(EVICTED, Turn.WORLD, partial(self._add, kind, displaced))

    def _add(self, kind: PodGroup, pods: int) -> None:
        for _ in range(pods):
            self._create(kind)

    def start(self, kind: PodGroup, node: NodeInfo) -> None:
        """Add a pod that runs since before the loss."""
        self._alive[kind].append(
            SimulatedPod(name=f"{kind.name}-{next(self._numbers)}", kind=kind, created=-1, node=node, ready=True)
        )
        self.scheduler.put(kind, node)

    def _bind(self, pod: SimulatedPod, node: NodeInfo) -> None:
        super()._bind(pod, node)
        assert isinstance(pod.kind, Kind)
        self.bound_at.setdefault(pod.kind, []).append(self._clock())


class _World(World):
    """The groups of the cluster, without the nodes of the lost zone."""

    pods: _Pods

    def __init__(self, loss: Loss, agenda: Agenda) -> None:
        self.loss = loss
        self._originals = {group.key: group for group in loss.observation.groups}
        self._quiet: dict[GroupKey, tuple[object, NodeGroup]] = {}  # the numbers of quiet groups, and these groups
        super().__init__(loss.scenario, agenda)
        for name, stays in loss.stays.items():
            info = loss.infos[name]
            node = self._node(name, info)
            node.is_open = info.is_schedulable
            request = self._request_of(loss.fillers[name])
            node.used_cpu, node.used_memory = request[0], request[1]
            node.most_pods -= request[2]
            self.pods.scheduler.add(node)
            for kind, count in stays.items():
                for _ in range(count):
                    self.pods.start(kind, node)
        for group in self.groups:
            for machine in [machine for machine in group.machines if not machine.launched]:
                self._later(self.zones[group.zone].answer, partial(self._launch, group, machine))

    @staticmethod
    def _request_of(filler: Pod) -> tuple[int, int, int]:
        requests = filler.needs.resources.containers[0].requests
        amounts = (requests.get("cpu", Fraction(0)) * 1000, requests.get("memory", Fraction(0)))
        return int(amounts[0]), int(amounts[1]), int(requests.get("pods", Fraction(-1))) + 1

    def _first_pods(self) -> _Pods:
        return _Pods(self.loss, self.agenda, lambda: self.now)

    def _first_groups(self) -> Iterable[Group]:
        nodes: dict[GroupKey, list[str]] = defaultdict(list)
        for node in self.loss.workload.nodes:
            if node.group is not None and node.name not in self.loss.lost_nodes:
                nodes[node.group].append(node.name)
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
        node = NodeInfo(name, labels, max(1, allocatable.get("cpu", 0)), max(1, allocatable.get("memory", 0)))
        node.most_pods = allocatable.get("pods", 0)
        if info.name not in self.loss.nodes:  # a template: its free resources are without the pods of DaemonSets
            node.used_cpu, node.used_memory = (
                allocatable.get("cpu", 0) - info.cpu,
                allocatable.get("memory", 0) - info.memory,
            )
            node.most_pods = info.pods
        return node

    def _template(self, group: Group) -> GroupTemplate:
        return self._originals[group.key].template

    def observe(self, group: Group, *, reads_machines: bool = False) -> NodeGroup:
        """Return the group as read before the loss, with its numbers of now."""
        is_quiet = group.requested == group.running and group.state is State.HEALTHY and not reads_machines
        numbers = (group.requested, group.bounds, group.decision, group.adopted, group.move)
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
        observed = replace(
            original,
            requested=seen.requested,
            running=seen.running,
            machines=seen.machines,
            bounds=seen.bounds,
            ours=ours,
        )
        if is_quiet:
            self._quiet[group.key] = numbers, observed
        return observed


class _Workload:
    """The pods and nodes of a world, as Evenkeel reads them."""

    def __init__(self, world: _World) -> None:
        self._world = world

    def read(self, machines: Callable[[], Mapping[str, MachineNode]], *, judges_nodes: bool) -> Workload:  # noqa: ARG002
        """Return the workload."""
        world, loss, objects = self._world, self._world.loss, machines()
        names = world.pods.scheduler.nodes.keys()
        nodes, pods = [], [loss.fillers[name] for name in names if name in loss.fillers]
        groups = {machine.name: (group, machine) for group in world.groups for machine in group.machines}
        for name in names:
            node = loss.nodes.get(name)
            if node is None:
                group, machine = groups.get(name) or (world.leaving[name][0], None)
                template = loss.templates.get(group.key)
                if template is None:
                    continue
                joined = world.moment(machine.joined) if machine is not None else world.time
                node = replace(template.named(name), ready=True, created_at=joined, group=group.key)
                pods += [replace(pod, node=name, name=f"{pod.name}-{name}") for pod in template.pods]
            seen = objects.get(name)
            nodes.append(node if seen is None else replace(node, machine=seen.machine, deleting=seen.deleting))
        pods += [self._pod(pod) for pod in world.pods.all()]
        daemon_sets = loss.workload.daemon_sets or daemon_sets_of(loss.workload.pods)
        return replace(loss.workload, pods=tuple(pods), nodes=tuple(nodes), daemon_sets=daemon_sets, attachments=())

    def _pod(self, pod: SimulatedPod) -> Pod:
        assert isinstance(pod.kind, Kind)
        moment = self._world.moment
        refused = pod.refused if pod.node is None else None
        return replace(
            pod.kind.sample,
            name=pod.name.rpartition("/")[2],
            created_at=moment(pod.created),
            node=pod.node.name if pod.node else "",
            nominated="",
            phase="Running" if pod.ready else "Pending",
            unscheduled=None if refused is None else Unscheduled("Unschedulable", moment(refused)),
            deleted_at=None,
        )


class _Evenkeel(Evenkeel):
    """The deployed use case with the cluster's record and stored state."""

    world: _World

    def open_workload(self, record: ClusterRecord, remaining: Remaining, *, alone: bool = True) -> WorkloadCluster:  # noqa: ARG002
        """Return the simulated workload cluster."""
        return _Workload(self.world)


class Forecast(Run):
    """The run of a forecast."""

    world: _World

    def __init__(self, loss: Loss, policy: ClusterFile, state: ClusterState) -> None:
        self.loss, self._policy, self._state = loss, policy, state
        self._checked_at = -1
        super().__init__(
            loss.scenario,
            Variant(name="forecast", autoscaler=policy.autoscaler != "none", demand=policy.demand_stage),
        )

    def _new_world(self, stage: Stage) -> _World:
        return _World(self.loss, stage.agenda)

    def _new_evenkeel(self, stage: Stage, cluster: str) -> Evenkeel:
        fields = {name: getattr(self._policy, name) for name in ClusterPolicy.model_fields}
        fields |= {"id": cluster, "access": KubeconfigAccess(kind="kubeconfig", secret=cluster), "dry_run": False}
        fields["workload"] = WorkloadEntry(access=SameAccess(kind="same"))
        record = ClusterRecord.model_construct(**fields)
        evenkeel = _Evenkeel(self.world, record, self._check_in, stage.reports, self._state)
        evenkeel.world = self.world
        return evenkeel

    def check(self) -> None:
        """Perform one run of Evenkeel."""
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
        is_settled = second - max(EVICTED, self.snapshots[-1].at) > _SETTLED
        return is_settled or not (is_coming or self.world.pods.waiting())


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
    waits: tuple[Waits, ...]
    bound: Mapping[str, int]  # owner -> number of its pods that may run in no other zone
    snapshots: tuple[Snapshot, ...]
    at_maximum: tuple[str, ...]  # pools at PoolMaximum while pods waited

    @property
    def survives(self) -> bool:
        """Return True if each pod that may run elsewhere gets a place."""
        return not any(waits.never for waits in self.waits)


def foresee(loss: Loss, policy: ClusterFile, state: ClusterState) -> Outcome:
    """Play the loss of a zone, and return the result. The same input gives the same result."""
    run = Forecast(loss, policy, state)
    play([run], is_over=run.is_over)
    waiting = Counter(pod.kind for pod in run.world.pods.waiting())
    waits: dict[str, Waits] = {}
    for kind, times in ((kind, run.world.pods.bound_at.get(kind, [])) for kind, _ in loss.homeless):
        known = waits.get(kind.name, Waits(name=kind.name, pods=0, longest=None, never=0))
        waits[kind.name] = Waits(
            name=kind.name,
            pods=known.pods + len(times) + waiting[kind],
            longest=max([*times, *([] if known.longest is None else [known.longest])], default=None),
            never=known.never + waiting[kind],
        )
    requested: Counter[str] = Counter()
    for group in run.world.groups:
        requested[group.pool] += group.requested
    maxima = {str(pool.id): pool.max for pool in loss.pool_of.values()}
    full = [name for name, most in maxima.items() if most is not None and requested[name] >= most]
    return Outcome(
        zone=loss.zone,
        seconds=run.world.now,
        lost_nodes=len(loss.lost_nodes),
        waits=tuple(sorted(waits.values(), key=lambda waits: (-waits.never, -(waits.longest or 0), waits.name))),
        bound=dict(sorted(loss.bound.items())),
        snapshots=tuple(run.snapshots),
        at_maximum=tuple(sorted(full)) if waiting else (),
    )
