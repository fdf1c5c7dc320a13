"""Groups of pods with equal needs. A placement result for one pod of a group is valid for all pods of the group."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

from evenkeel.domain.demand.requests import CPU, MEMORY, host_ports, request_of
from evenkeel.domain.demand.selectors import selects_by_node
from evenkeel.domain.demand.volumes import VolumeNeeds, Volumes
from evenkeel.domain.model.workload import HOSTNAME, HostPort, Needs, Pod, Requirement, TopologySpreadConstraint


@dataclass(eq=False, slots=True)  # compared by identity, because a simulation has one object per group
class PodGroup:
    """Pods with equal needs. ``request`` and its parts are in the units of ``domain.demand.requests``."""

    name: str  # the name of one of its pods, for display
    namespace: str
    labels: Mapping[str, str]
    needs: Needs
    request: Mapping[str, int]
    ports: tuple[HostPort, ...]
    volumes: VolumeNeeds
    spread: tuple[TopologySpreadConstraint, ...]  # each selector includes the pod's values of matchLabelKeys
    priority: int
    is_terminating: bool
    alike: int  # equal for groups that fit the same nodes, unless they depend on other pods
    selects: int  # equal for groups that need the same labels, taints and volumes of a node
    cpu: int = field(init=False)
    memory: int = field(init=False)
    rest: tuple[tuple[str, int], ...] = field(init=False)  # the request without cpu and memory
    by_node: bool = field(init=False)  # True: the pods can select single nodes of one shape
    counts_others: bool = field(init=False)  # True: a rule or an exclusive claim of the pods counts other pods
    in_rounds: bool = field(init=False)  # True: once a pod is placed, the pods may fit nodes that rejected them
    # True: only the node's shape, cpu, memory and number of pods, and other pods, can reject a pod.
    by_shape: bool = field(init=False)
    is_plain: bool = field(init=False)  # True: of other pods, only those with anti-affinity can reject a pod

    def __post_init__(self) -> None:
        self.cpu = self.request.get(CPU, 0)
        self.memory = self.request.get(MEMORY, 0)
        self.rest = tuple(sorted((name, count) for name, count in self.request.items() if name not in (CPU, MEMORY)))
        self.by_node = (
            HOSTNAME in self.needs.node_selector
            or selects_by_node(self.needs.node_terms, HOSTNAME)
            or any(reach.node or selects_by_node(reach.terms, HOSTNAME) for reach in self.volumes.reaches)
        )
        needs = self.needs
        self.in_rounds = bool(self.spread or needs.affinity)
        self.counts_others = self.in_rounds or bool(needs.anti_affinity or self.volumes.exclusive)
        volumes = self.volumes
        attached = volumes.drivers or volumes.shared
        self.by_shape = not (self.by_node or self.rest or self.ports or attached or volumes.exclusive)
        self.is_plain = self.by_shape and not self.counts_others


class PodGroupClasses:
    """Pod groups to compare with many nodes. A node has room for a whole class if it has room for the most it requests.

    A class has plain pod groups that select nodes equally.
    """

    def __init__(self, pod_groups: Iterable[PodGroup]) -> None:
        self.pod_groups = list(pod_groups)
        self.others = [pod_group for pod_group in self.pod_groups if not pod_group.is_plain]
        classes: dict[int, list[PodGroup]] = {}
        for pod_group in self.pod_groups:
            if pod_group.is_plain:
                classes.setdefault(pod_group.selects, []).append(pod_group)
        # Of each class: the most cpu and the most memory that one of its pods requests, and its pod groups.
        self.plain = [
            (max(group.cpu for group in plain), max(group.memory for group in plain), plain)
            for plain in classes.values()
        ]


class _Requested(NamedTuple):
    """The requests read from one pod spec. ``needs`` references the spec, so that its ``id`` is not reused."""

    needs: Needs
    request: Mapping[str, int]
    ports: tuple[HostPort, ...]
    alike: int  # a number that is equal for specs with equal needs
    selects: int  # a number that is equal for specs that select nodes equally


class PodGroups:
    """Assigns pods to groups. Pods with equal needs get the same ``PodGroup`` object."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self._groups: dict[Hashable, PodGroup] = {}
        self._requested: dict[int, _Requested] = {}  # by ``id`` of the spec, because many pods share one spec
        self._numbers: dict[Hashable, int] = {}

    def of(self, pod: Pod) -> PodGroup:
        """Return the group of a pod."""
        needs = pod.needs
        volumes = self._volumes.needs_of(pod)
        requested = self._requested.get(id(needs)) or self._read(pod)
        terminating, priority = pod.deleted_at is not None, pod.priority or 0
        labels = frozenset(pod.labels.items())
        key = pod.namespace, labels, requested.alike, volumes.alike, priority, terminating
        pod_group = self._groups.get(key)
        if pod_group is None:
            pod_group = self._groups[key] = PodGroup(
                str(pod),
                pod.namespace,
                pod.labels,
                needs,
                requested.request,
                requested.ports,
                volumes,
                tuple(_with_label_keys(constraint, pod.labels) for constraint in needs.spread),
                priority,
                terminating,
                self._number((requested.alike, volumes.alike)),
                self._number((requested.selects, volumes.alike)),
            )
        return pod_group

    def _read(self, pod: Pod) -> _Requested:
        needs, request, ports = pod.needs, request_of(pod), host_ports(pod.needs)
        selects = frozenset(needs.node_selector.items()), needs.node_terms, needs.tolerations
        key = (frozenset(request.items()), ports, selects, needs.spread, needs.affinity, needs.anti_affinity)
        requested = _Requested(needs, request, ports, self._number(key), self._number(selects))
        self._requested[id(needs)] = requested
        return requested

    def _number(self, key: Hashable) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def group(self, pods: Iterable[Pod]) -> dict[PodGroup, list[Pod]]:
        """Return pods by group, the oldest first. The order of the input does not matter."""
        groups: dict[PodGroup, list[Pod]] = {}
        for pod in sorted(pods, key=attrgetter("created_at", "namespace", "name")):
            groups.setdefault(self.of(pod), []).append(pod)
        return groups


def _with_label_keys(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> TopologySpreadConstraint:
    """Return the constraint with its matchLabelKeys added to the selector, each with the value of the pod's label."""
    own = tuple(Requirement(key, "In", (labels[key],)) for key in constraint.label_keys if key in labels)
    if not own or constraint.selector is None:
        return constraint
    return replace(constraint, selector=(*constraint.selector, *own), label_keys=())
