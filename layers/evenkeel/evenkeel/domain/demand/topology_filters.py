"""The scheduler's filters that count pods on other nodes: topology spread, and affinity between pods."""

from collections.abc import Callable, Hashable, Mapping, Sequence

from evenkeel.domain.demand import filters
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.demand.taints import first_not_tolerated
from evenkeel.domain.demand.topology_counts import EligibleDomains, SpreadCount, TopologyCount, TopologyCounts
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import PodAffinityTerm, TopologySpreadConstraint

Namespaces = Mapping[str, Mapping[str, str]]
"""The labels of each namespace, by its name."""
_Matches = Callable[[PodGroup], bool]


# ---------------------------------------------------------------- spread (podtopologyspread/filtering.go:237-357)


def topology_spread(pod_group: PodGroup, node_info: NodeInfo, counts: TopologyCounts) -> Reason | None:
    """Return why a required spread constraint rejects one more pod (plugin podtopologyspread); None: it fits."""
    spreads = counts.spreads.get(pod_group)
    if spreads is None:
        spreads = counts.spreads[pod_group] = [_spread_of(pod_group, item, counts) for item in pod_group.spread]
    for constraint, count, own in spreads:
        domain = node_info.labels.get(constraint.key)
        if domain is None:
            return Reason.of(Rule.SPREAD_KEY_MISSING, key=constraint.key)
        skew = count.pods[domain] + own - count.minimum(constraint.min_domains)
        if skew > constraint.max_skew:
            return Reason.of(
                Rule.SPREAD_SKEW, key=constraint.key, domain=domain, skew=skew, max_skew=constraint.max_skew
            )
    return None


def _spread_of(
    pod_group: PodGroup, constraint: TopologySpreadConstraint, counts: TopologyCounts
) -> tuple[TopologySpreadConstraint, SpreadCount, int]:
    """Return a constraint, the count that it reads, and how many matching pods one more pod is."""
    count = SpreadCount(_eligible_domains(pod_group, constraint, counts), _spread_matches(pod_group, constraint))
    counts.add(count)
    return constraint, count, int(matches(constraint.selector, pod_group.labels))


def _spread_matches(pod_group: PodGroup, constraint: TopologySpreadConstraint) -> _Matches:
    """Return a function that is True for the pods that a spread constraint counts.

    These pods are in the namespace of the constraint's pod, match its selector, and are not terminating. With an empty
    selector, the scheduler counts no pods.
    """
    if not constraint.selector:
        return lambda _: False
    return lambda other: (
        other.namespace == pod_group.namespace
        and not other.is_terminating
        and matches(constraint.selector, other.labels)
    )


def _eligible_domains(
    pod_group: PodGroup, constraint: TopologySpreadConstraint, counts: TopologyCounts
) -> EligibleDomains:
    """Return the domains of the nodes that have the topology keys of all the pod's constraints (common.go:43-115).

    If nodeAffinityPolicy or nodeTaintsPolicy is Honor, the pod's node affinity or tolerations must also accept the
    nodes.
    """
    keys = frozenset(other.key for other in pod_group.spread)
    needs = pod_group.needs
    # Most pods have neither a node selector nor node affinity. Their constraints with the same keys share one set of
    # domains.
    by_affinity = constraint.honors_affinity and (bool(needs.node_selector) or needs.node_terms is not None)
    affinity = (frozenset(needs.node_selector.items()), needs.node_terms) if by_affinity else None
    tolerations = needs.tolerations if constraint.honors_taints else None

    def is_eligible(node_info: NodeInfo) -> bool:
        if not node_info.labels.keys() >= keys:
            return False
        if by_affinity and filters.node_affinity(needs, node_info.labels, node_info.name):
            return False
        return tolerations is None or not first_not_tolerated(node_info.node.taints, tolerations)

    return counts.domains(constraint.key, (keys, affinity, tolerations), is_eligible)


# ---------------------------------------------------------------- affinity (interpodaffinity/filtering.go:202-440)


class InterPodAffinity:
    """Required affinity and anti-affinity between pods (plugin interpodaffinity)."""

    def __init__(self, counts: TopologyCounts, namespaces: Namespaces) -> None:
        self._counts = counts
        self._namespaces = namespaces
        self._repelling: dict[PodGroup, None] = {}  # pod groups with anti-affinity that were placed so far
        self.anti_terms: list[tuple[PodGroup, PodAffinityTerm]] = []  # their terms
        self._against: dict[PodGroup, tuple[int, list[TopologyCount]]] = {}

    def add(self, pod_group: PodGroup) -> None:
        """Respect the anti-affinity of a pod group from now on, because a pod of it is placed."""
        if pod_group not in self._repelling:
            self._repelling[pod_group] = None
            self.anti_terms += [(pod_group, term) for term in pod_group.needs.anti_affinity]

    def failing_term(self, pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
        """Return why a required term rejects one more pod; None: no term rejects the pod.

        The pod's own affinity is evaluated first, then its own anti-affinity, then the anti-affinity of other pods.
        """
        if pod_group.needs.affinity and (reason := self._affinity(pod_group, node_info)):
            return reason
        for number, term in enumerate(pod_group.needs.anti_affinity):
            count = self._count(("anti", pod_group, number), term.key, self._matches(pod_group, term))
            if count.at(node_info):
                return Reason.of(Rule.KEEPS_AWAY, key=term.key, domain=node_info.labels[term.key])
        for count in self.counts_against(pod_group):
            if count.at(node_info):
                return Reason.of(Rule.KEPT_AWAY, key=count.key, domain=node_info.labels[count.key])
        return None

    def _affinity(self, pod_group: PodGroup, node_info: NodeInfo) -> Reason | None:
        """Return why the pod's own affinity rejects a node; None: the affinity accepts the node.

        For each term, the node's domain must have a pod that matches all terms. If no domain has such a pod, a pod that
        matches its own terms is accepted.
        """
        terms = pod_group.needs.affinity
        selects = [self._matches(pod_group, term) for term in terms]

        def matches_all(other: PodGroup) -> bool:
            return all(matches_term(other) for matches_term in selects)

        counts = [self._count(("with", pod_group, number), term.key, matches_all) for number, term in enumerate(terms)]
        for term in terms:
            if term.key not in node_info.labels:
                return Reason.of(Rule.AFFINITY_KEY_MISSING, key=term.key)
        lonely = next((count for count in counts if not count.at(node_info)), None)
        if lonely is None or (not any(count.total for count in counts) and matches_all(pod_group)):
            return None
        return Reason.of(Rule.WITHOUT_COMPANY, key=lonely.key, domain=node_info.labels[lonely.key])

    def counts_against(self, pod_group: PodGroup) -> Sequence[TopologyCount]:
        """Return the counts of placed pods whose anti-affinity rejects this group."""
        if not self.anti_terms:
            return ()
        read, counts = self._against.get(pod_group, (0, []))
        if read < len(self.anti_terms):
            for other, term in self.anti_terms[read:]:
                if self._matches(other, term)(pod_group):
                    counts.append(self._count(("of", other, term.key), term.key, _is(other)))
            self._against[pod_group] = len(self.anti_terms), counts
        return counts

    def _count(self, name: Hashable, key: str, matches_group: _Matches) -> TopologyCount:
        return self._counts.of(name, lambda: TopologyCount(key, matches_group))

    def _matches(self, pod_group: PodGroup, term: PodAffinityTerm) -> _Matches:
        return lambda other: self._selects(term, pod_group.namespace, other) and matches(term.selector, other.labels)

    def _selects(self, term: PodAffinityTerm, namespace: str, other: PodGroup) -> bool:
        """Return True if a term applies to the namespace of the other pod group.

        A term names namespaces, or selects them by label. A term that does neither applies to its own namespace.
        """
        if not term.namespaces and term.namespace_selector is None:
            return other.namespace == namespace
        labels = self._namespaces.get(other.namespace, {})
        return other.namespace in term.namespaces or matches(term.namespace_selector, labels)


def _is(pod_group: PodGroup) -> _Matches:
    return lambda other: other is pod_group
