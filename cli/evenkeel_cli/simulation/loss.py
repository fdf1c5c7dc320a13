"""A cluster without one zone: the places that remain, and the pods that need one."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from fractions import Fraction

from evenkeel.domain.demand.filters import taints_and_affinity, volume_binding
from evenkeel.domain.demand.node_info import NodeInfo as RealNodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup as RealPodGroup
from evenkeel.domain.demand.pods import is_unplaceable, not_rescheduled_because
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import DemandPolicy, GroupOffer, PoolOffer
from evenkeel.domain.model.groups import GroupKey, NodeGroup, PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.workload import HOSTNAME, ZONE, Container, Needs, Pod, Resources, Workload
from evenkeel.domain.model.zone_names import zone_called
from evenkeel_cli.simulation.scenario import (
    Demand,
    DemandStep,
    Limit,
    PodsSetup,
    PoolSetup,
    Scenario,
    SpreadSetup,
    Zone,
)
from evenkeel_cli.simulation.scheduling import POOL, PodGroup

EVICTED = 300  # seconds until the pods of a lost node are replaced: the default of tolerationSeconds
PROVISIONED: int = Zone.model_fields["provision"].default  # seconds from a launch until the node is Ready
LASTING = 3600  # the longest forecast in seconds


class Kind(PodGroup):
    """Pods with equal needs. ``shapes``: the shapes of nodes on which they may run, in other zones if there are any."""

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
        self.sample, self.rest = sample, pods.rest
        self.shapes: frozenset[str] = frozenset()
        self.is_bound = False  # True: the pods may run in no other zone
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
    """A cluster without one zone: what remains, and the pods that need a place. Raises KeyError for an unknown zone.

    ``observation`` has the zone labels of its groups (``with_zone_labels``).

    Without pods and nodes, the forecast is about replicas: each pool wants as many nodes as it had.
    """

    def __init__(self, observation: Observation, planned: Plan, now: datetime, zone: str) -> None:
        self.zone, self.now, self.observation = zone, now, observation
        self.workload = observation.workload or Workload()
        self.has_pods = observation.workload is not None
        self.pool_of = {plan.group.key: pool for pool in planned.pools for plan in pool.groups}
        zones = zones_of(observation)
        if zone not in zones:
            raise KeyError(zone)
        self._zone_of = {group.key: group.identity.zone for group in observation.groups}
        offers = [
            PoolOffer(pool=pool.id, groups=tuple(_offer(plan.group) for plan in pool.groups)) for pool in planned.pools
        ]
        others = [_offer(group) for group in observation.groups if group.key not in self.pool_of]
        for offer in others:
            flavour, namespace, name = offer.group
            offers.append(PoolOffer(pool=PoolId(flavour, namespace, "", name), groups=(offer,)))
        self._simulation = Simulation(self.workload, offers, DemandPolicy(), now)
        self.nodes = {node.name: node for node in self.workload.nodes}
        self.lost_nodes = frozenset(node.name for node in self.workload.nodes if self._is_lost(node.group, node.labels))
        running = [group.running for group in observation.groups if group.identity.zone == zone]
        self.lost = len(self.lost_nodes) if self.has_pods else sum(running)
        self.new_infos = {key: self._simulation.add_template_node(key) for key in self._simulation.template_nodes}
        self.templates = {key: self._simulation.template_nodes[key] for key in self.new_infos}
        self.infos = {name: info for name, info in self._simulation.snapshot.node_infos.items() if name in self.nodes}
        self._places = [info for name, info in self.infos.items() if name not in self.lost_nodes]
        self._places += [info for key, info in self.new_infos.items() if not self._is_lost(key, info.labels)]
        self._lost_places = [info for key, info in self.new_infos.items() if self._is_lost(key, info.labels)]
        self._samples = list({info.shape: info for info in self._places}.values())  # one of each shape
        self.nodes_before: Counter[str] = Counter()  # by pool
        for group in observation.groups:
            self.nodes_before[self.pool_name(group)] += group.running
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
            pools=tuple(PoolSetup.model_construct(name=name, max=0) for name in sorted(self.nodes_before)),
            demand=() if self.has_pods else tuple(self._demand(zone)),
        )

    def _demand(self, zone: str) -> Iterable[Demand]:
        """Yield the nodes that each pool wants: those that it has, and after the eviction those that it had."""
        for pool, nodes in self.nodes_before.items():
            lost = sum(
                group.running
                for group in self.observation.groups
                if group.identity.zone == zone and self.pool_name(group) == pool
            )
            steps = (
                DemandStep.model_construct(at=0, nodes=nodes - lost),
                DemandStep.model_construct(at=EVICTED, nodes=nodes),
            )
            yield Demand.model_construct(pool=pool, nodes=steps)

    def pool_name(self, group: NodeGroup) -> str:
        """Return the name of a group's pool; for a group without a pool, its key."""
        return str(self.pool_of[group.key].id) if group.key in self.pool_of else str(group.key)

    def _is_lost(self, group: GroupKey | None, labels: Mapping[str, str]) -> bool:
        """Return True for a node in the lost zone: the zone of its group, else that of its label."""
        zone = None if group is None else self._zone_of.get(group)
        return (zone or zone_called(labels.get(ZONE, ""), self.observation.groups)) == self.zone

    def _sort_pods(self) -> None:
        """Divide the pods into displaced, pending and bound ones, and those that stay."""
        simulation, policy = self._simulation, DemandPolicy()
        homeless: dict[RealPodGroup, list[Pod]] = defaultdict(list)
        pending: dict[RealPodGroup, list[Pod]] = defaultdict(list)
        self.bound: Counter[str] = Counter()
        for name in sorted(self.lost_nodes):
            for pod in simulation.pods_on.get(name, ()):
                if not_rescheduled_because(pod, policy) is None:
                    homeless[simulation.pod_groups.of(pod)].append(pod)
                if is_unplaceable(pod):
                    self.bound[_owner_of(pod)] += 1
        for pod in simulation.pending:
            if pod.node == "":
                pending[simulation.pod_groups.of(pod)].append(pod)
        self.homeless: list[tuple[Kind, int]] = []
        self.pending: list[tuple[Kind, int]] = []
        counted: dict[RealPodGroup, Kind] = {}
        for pods in sorted({*homeless, *pending}, key=lambda pods: pods.name):
            sample = (homeless.get(pods) or pending[pods])[0]
            kind = Kind(pods, replace(sample, node=""), _owner_of(sample))
            kind.shapes = frozenset(self._shapes(pods))
            if not kind.shapes:
                kind.shapes = frozenset(self._shapes(pods, in_lost_zone=True))
                kind.is_bound = bool(self._places)  # without another zone, no pod survives
            if kind.is_bound:
                self.bound[kind.name] += len(homeless.get(pods, ()))
            self.homeless.append((kind, len(homeless.get(pods, ()))))
            self.pending.append((kind, len(pending.get(pods, ()))))
            if kind.needs_counts:
                counted[pods] = kind
        self._sort_stays(counted)

    def _sort_stays(self, counted: Mapping[RealPodGroup, Kind]) -> None:
        """Divide the pods that stay into those that decide where others may run, and those that only use resources."""
        self.stays: dict[str, Counter[Kind]] = {}
        self.fillers: dict[str, Pod] = {}
        for name, info in self.infos.items():
            if name not in self.lost_nodes:
                self.stays[name] = Counter({counted[p]: n for p, n in info.pod_groups.items() if p in counted})
                self.fillers[name] = _filler(
                    name, {p: n for p, n in info.pod_groups.items() if p not in counted}, self.now
                )

    def _shapes(self, pods: RealPodGroup, *, in_lost_zone: bool = False) -> Iterable[str]:
        """Yield the shapes of nodes outside the lost zone, or of new nodes in it, on which pods may run."""
        places = self._places if pods.by_node else self._samples
        for info in self._lost_places if in_lost_zone else places:
            if _accepts(pods, info):
                yield shape_name(info)


def zones_of(observation: Observation) -> list[str]:
    """Return the zones of a cluster's node groups and nodes, by their names in the machine API."""
    nodes = observation.workload.nodes if observation.workload is not None else ()
    named = {group.identity.zone for group in observation.groups}
    named |= {zone_called(label, observation.groups) for label in {node.labels.get(ZONE, "") for node in nodes}}
    return sorted(zone for zone in named if zone)


def shape_name(info: RealNodeInfo) -> str:
    """Return a text that is equal for nodes of one shape."""
    return str(id(info.shape))


def _offer(group: NodeGroup) -> GroupOffer:
    identity = group.identity
    return GroupOffer(
        group=group.key, zone=identity.zone or "", zone_label=identity.zone_label, template=group.template.node
    )


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
