"""Pods that are equal in everything that placing reads, as one kind: what is found out for one holds for all."""

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from evenkeel.domain.demand.requests import CPU, MEMORY, host_ports, request_of
from evenkeel.domain.demand.selectors import names_a_node
from evenkeel.domain.demand.volumes import VolumeNeeds, Volumes
from evenkeel.domain.model.workload import HOSTNAME, HostPort, Needs, Pod, Requirement, TopologySpreadConstraint


@dataclass(eq=False, slots=True)  # compared by identity: there is one object per kind and simulation
class PodGroup:
    """One kind of pod. ``request`` and its parts as ``domain.demand.requests`` counts them."""

    name: str  # of one of its pods, for people
    namespace: str
    labels: Mapping[str, str]
    needs: Needs
    request: Mapping[str, int]
    ports: tuple[HostPort, ...]
    volumes: VolumeNeeds
    spread: tuple[TopologySpreadConstraint, ...]  # with matchLabelKeys in their selectors
    priority: int
    is_leaving: bool  # pods that are being deleted
    cpu: int = field(init=False)
    memory: int = field(init=False)
    rest: tuple[tuple[str, int], ...] = field(init=False)  # everything else that it asks for
    by_node: bool = field(init=False)  # nodes that look alike are not alike for it

    def __post_init__(self) -> None:
        self.cpu = self.request.get(CPU, 0)
        self.memory = self.request.get(MEMORY, 0)
        self.rest = tuple(sorted((name, count) for name, count in self.request.items() if name not in (CPU, MEMORY)))
        self.by_node = (
            HOSTNAME in self.needs.node_selector
            or names_a_node(self.needs.node_terms, HOSTNAME)
            or any(reach.node or names_a_node(reach.terms, HOSTNAME) for reach in self.volumes.reaches)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Asked:
    """What needs come to. It keeps them, so that no others can take their place in memory."""

    needs: Needs
    request: Mapping[str, int]
    ports: tuple[HostPort, ...]
    alike: int  # the same for needs that are equal in all that placing reads


class PodGroups:
    """Finds each pod's kind, always the same object for equal pods."""

    def __init__(self, volumes: Volumes) -> None:
        self._volumes = volumes
        self._found: dict[Hashable, PodGroup] = {}
        self._asked: dict[tuple[int, bool], _Asked] = {}  # by the needs themselves, which many pods share
        self._alike: dict[Hashable, int] = {}

    def of(self, pod: Pod) -> PodGroup:
        needs = pod.needs
        volumes = self._volumes.needs_of(pod)
        asked = self._asked.get((id(needs), pod.resize_infeasible)) or self._ask(pod)
        request, ports = asked.request, asked.ports
        leaving = pod.deleted_at is not None
        equal = (
            pod.namespace,
            frozenset(pod.labels.items()),
            asked.alike,
            volumes.alike,
            (pod.priority or 0, leaving),
        )
        kind = self._found.get(equal)
        if kind is None:
            kind = self._found[equal] = PodGroup(
                str(pod),
                pod.namespace,
                pod.labels,
                needs,
                request,
                ports,
                volumes,
                tuple(_with_label_keys(constraint, pod.labels) for constraint in needs.spread),
                pod.priority or 0,
                leaving,
            )
        return kind

    def _ask(self, pod: Pod) -> "_Asked":
        """Work out what a pod asks for: once for each template, where its pods share their needs."""
        needs, request, ports = pod.needs, request_of(pod), host_ports(pod.needs)
        equal = (
            frozenset(request.items()),
            ports,
            frozenset(needs.node_selector.items()),
            (needs.node_terms, needs.tolerations, needs.spread, needs.affinity, needs.anti_affinity),
        )
        alike = self._alike.setdefault(equal, len(self._alike))
        asked = _Asked(needs=needs, request=request, ports=ports, alike=alike)
        self._asked[id(needs), pod.resize_infeasible] = asked
        return asked

    def group(self, pods: Iterable[Pod]) -> dict[PodGroup, list[Pod]]:
        """Pods by kind, the oldest first; the same whatever the order given."""
        found: dict[PodGroup, list[Pod]] = {}
        for pod in sorted(pods, key=lambda pod: (pod.created_at, pod.namespace, pod.name)):
            found.setdefault(self.of(pod), []).append(pod)
        return found


def _with_label_keys(constraint: TopologySpreadConstraint, labels: Mapping[str, str]) -> TopologySpreadConstraint:
    """A constraint whose selector asks for the pod's own values of matchLabelKeys as well."""
    own = tuple(Requirement(key, "In", (labels[key],)) for key in constraint.label_keys if key in labels)
    if not own or constraint.selector is None:
        return constraint
    return TopologySpreadConstraint(
        key=constraint.key,
        max_skew=constraint.max_skew,
        selector=(*constraint.selector, *own),
        min_domains=constraint.min_domains,
        honors_affinity=constraint.honors_affinity,
        honors_taints=constraint.honors_taints,
    )
