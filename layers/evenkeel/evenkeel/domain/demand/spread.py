"""Topology spread constraints that have to be met (podtopologyspread/filtering.go:237-357, common.go:43-115)."""

from collections.abc import Callable

from evenkeel.domain.demand import node_affinity
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.demand.taints import first_not_tolerated
from evenkeel.domain.demand.topology_counts import Domains, DomainTally, Tally, TopologyCounts
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import TopologySpreadConstraint


def failing_filter(kind: PodGroup, room: NodeInfo, tallies: TopologyCounts) -> Reason | None:
    """The first constraint that one more pod of this kind in this room would break."""
    for number, constraint in enumerate(kind.spread):
        if constraint.key not in room.labels:
            return Reason.of(Rule.SPREAD_KEY_MISSING, key=constraint.key)
        tally = tallies.of(("spread", kind, number), _maker(kind, constraint, tallies))
        least = tally.least if isinstance(tally, DomainTally) and tally.domains >= constraint.min_domains else 0
        itself = int(matches(constraint.selector, kind.labels))
        skew = tally.at(room) + itself - least
        if skew > constraint.max_skew:
            domain = room.labels[constraint.key]
            return Reason.of(
                Rule.SPREAD_SKEW, key=constraint.key, domain=domain, skew=skew, max_skew=constraint.max_skew
            )
    return None


def _maker(kind: PodGroup, constraint: TopologySpreadConstraint, tallies: TopologyCounts) -> Callable[[], Tally]:
    return lambda: DomainTally(_domains(kind, constraint, tallies), _counted(kind, constraint))


def _counted(kind: PodGroup, constraint: TopologySpreadConstraint) -> Callable[[PodGroup], bool]:
    """Pods of the same namespace that stay. A selector that asks for nothing counts none, though it matches all."""
    if not constraint.selector:
        return lambda _: False
    return lambda other: (
        other.namespace == kind.namespace and not other.is_leaving and matches(constraint.selector, other.labels)
    )


def _domains(kind: PodGroup, constraint: TopologySpreadConstraint, tallies: TopologyCounts) -> Domains:
    """Of nodes that have the keys of all constraints, and that affinity and taints let count."""
    keys = frozenset(other.key for other in kind.spread)
    needs = kind.needs
    # Most pods ask nothing of a node's labels, so one set of domains serves the constraints of them all.
    by_affinity = constraint.honors_affinity and (bool(needs.node_selector) or needs.node_terms is not None)
    asked = (frozenset(needs.node_selector.items()), needs.node_terms) if by_affinity else None
    tolerated = needs.tolerations if constraint.honors_taints else None

    def holds(room: NodeInfo) -> bool:
        if not room.labels.keys() >= keys:
            return False
        if by_affinity and node_affinity.failing_filter(needs, room.labels, room.name):
            return False
        return tolerated is None or not first_not_tolerated(room.node.taints, tolerated)

    return tallies.domains(constraint.key, (keys, asked, tolerated), holds)
