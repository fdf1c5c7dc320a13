"""The scheduler's filters that count pods on other nodes: topology spread, and affinity between pods."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from evenkeel.domain.demand import filters
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.demand.taints import first_not_tolerated
from evenkeel.domain.demand.topology_counts import EligibleDomains, TopologyCount, TopologyCounts
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import HOSTNAME, PodAffinityTerm, TopologySpreadConstraint

Namespaces = Mapping[str, Mapping[str, str]]
"""The labels of each namespace, by its name."""
_Matches = Callable[[PodGroup], bool]
_NO_LIMIT = 1_000_000_000


class TopologyRule(Protocol):
    """A rule of one pod group that counts pods on other nodes."""

    repels_beyond_host: bool  # True: anti-affinity in a larger domain

    def room(self, node_info: NodeInfo) -> int:
        """Return how many more pods a node takes, as long as no other node gets one; less than 1: none."""

    def reason(self, node_info: NodeInfo) -> Reason:
        """Return why the rule rejects the next pod."""

    def counts(self, node_info: NodeInfo) -> bool:
        """Return True if the rule counts the node, or pods in its domain."""


class TopologyRules(dict[PodGroup, list[TopologyRule]]):
    """The rules of each pod group of a simulation, in the order in which the scheduler evaluates them.

    They are the pod group's spread, its affinity and anti-affinity, and the anti-affinity of placed pods.
    """

    def __init__(self, counts: TopologyCounts, namespaces: Namespaces) -> None:
        super().__init__()
        self._counts = counts
        self._namespaces = namespaces
        self.repelling: dict[PodGroup, None] = {}  # pod groups with anti-affinity that were placed so far
        self._repelled_by: dict[tuple[PodGroup, str], TopologyCount] = {}  # pods of one group, by topology key

    def __missing__(self, pod_group: PodGroup) -> list[TopologyRule]:
        rules = self[pod_group] = self._own(pod_group)
        for other in self.repelling:
            self._repel(other, pod_group)
        return rules

    def respect(self, pod_group: PodGroup) -> None:
        """Respect the anti-affinity of a pod group from now on, because a pod of it is placed."""
        if pod_group.needs.anti_affinity and pod_group not in self.repelling:
            self.repelling[pod_group] = None
            for other in self:
                self._repel(pod_group, other)

    def _repel(self, pod_group: PodGroup, other: PodGroup) -> None:
        """Add the anti-affinity of a placed pod group to the rules of another. Its own rules count its own pods."""
        for term in pod_group.needs.anti_affinity if other is not pod_group else ():
            if self._applies(term, pod_group.namespace, other):
                self[other].append(_Apart(self._pods_of(pod_group, term.key), Rule.KEPT_AWAY))

    def _own(self, pod_group: PodGroup) -> list[TopologyRule]:
        rules: list[TopologyRule] = [self._spread(pod_group, constraint) for constraint in pod_group.spread]
        if pod_group.needs.affinity:
            rules.append(self._affinity(pod_group))
        for term in pod_group.needs.anti_affinity:
            selected = self._selected_by(term, pod_group.namespace)
            count = TopologyCount(term.key, pod_group.namespace if _is_local(term) else None, selected)
            self._counts.add(count)
            rules.append(_Apart(count, Rule.KEEPS_AWAY, selects_own=selected(pod_group)))
        return rules

    def _spread(self, pod_group: PodGroup, constraint: TopologySpreadConstraint) -> "_Spread":
        domains = _eligible_domains(pod_group, constraint, self._counts)
        spread = _Spread(pod_group, constraint, domains)
        self._counts.add(spread)
        return spread

    def _affinity(self, pod_group: PodGroup) -> "_Affinity":
        selects = [self._selected_by(term, pod_group.namespace) for term in pod_group.needs.affinity]

        def matches_all(other: PodGroup) -> bool:
            return all(selected(other) for selected in selects)

        namespace = pod_group.namespace if any(map(_is_local, pod_group.needs.affinity)) else None
        counts = [TopologyCount(term.key, namespace, matches_all) for term in pod_group.needs.affinity]
        for count in counts:
            self._counts.add(count)
        return _Affinity(counts, selects_own=matches_all(pod_group))

    def _pods_of(self, pod_group: PodGroup, key: str) -> TopologyCount:
        count = self._repelled_by.get((pod_group, key))
        if count is None:
            count = self._repelled_by[pod_group, key] = TopologyCount(
                key, pod_group.namespace, lambda other: other is pod_group
            )
            self._counts.add(count)
        return count

    def _selected_by(self, term: PodAffinityTerm, namespace: str) -> _Matches:
        return lambda other: self._applies(term, namespace, other)

    def _applies(self, term: PodAffinityTerm, namespace: str, other: PodGroup) -> bool:
        """Return True if a term of a pod in this namespace selects pods of the other group.

        A term names namespaces, or selects them by label. A term that does neither applies to its own namespace.
        """
        if _is_local(term):
            in_namespace = other.namespace == namespace
        else:
            labels = self._namespaces.get(other.namespace, {})
            in_namespace = other.namespace in term.namespaces or matches(term.namespace_selector, labels)
        return in_namespace and matches(term.selector, other.labels)


def _is_local(term: PodAffinityTerm) -> bool:
    """Return True if a term applies to the namespace of its pod alone."""
    return not term.namespaces and term.namespace_selector is None


# ---------------------------------------------------------------- spread (podtopologyspread/filtering.go:237-357)


class _Spread:
    """A required spread constraint (plugin podtopologyspread), with the number of matching pods in each domain."""

    repels_beyond_host = False

    def __init__(self, pod_group: PodGroup, constraint: TopologySpreadConstraint, domains: EligibleDomains) -> None:
        self.namespace: str | None = pod_group.namespace
        self.matches = _spread_matches(constraint)
        self._key, self._max_skew, self._min_domains = constraint.key, constraint.max_skew, constraint.min_domains
        self._own = int(matches(constraint.selector, pod_group.labels))  # what one more pod adds to the skew
        self._most = self._max_skew + 1 - self._own  # room of an empty domain if others have no pods
        self._counts_own = self.matches(pod_group)  # False: the pods are not counted once they are placed
        self._domain_of, self._nodes = domains.domain_of, domains.nodes
        self._pods: dict[str, int] = {}  # number of matching pods, of the eligible domains that have any
        self._levels: dict[int, int] = defaultdict(int)  # number of pods -> number of domains with so many pods

    def change(self, node_info: NodeInfo, count: int) -> None:
        """Add matching pods on a node, if the node is eligible. A negative count removes pods."""
        domain = self._domain_of.get(node_info)
        if domain is None:
            return
        levels, before = self._levels, self._pods.pop(domain, 0)
        after = before + count
        if after:
            self._pods[domain] = after
            levels[after] += 1
        if before and levels[before] > 1:
            levels[before] -= 1
        elif before:
            del levels[before]

    def room(self, node_info: NodeInfo) -> int:
        domain = node_info.labels.get(self._key)
        if domain is None:
            return 0
        pods = self._pods.get(domain, 0)
        room = self._most + self._least_elsewhere(pods) - pods
        return room if self._counts_own or room < 1 else _NO_LIMIT

    def counts(self, node_info: NodeInfo) -> bool:
        return node_info in self._domain_of

    def _least_elsewhere(self, pods: int) -> int:
        """Return the least number of matching pods in the other domains than one with ``pods``.

        It is 0 if there are fewer domains than minDomains. The domain's own number grows with each pod, so it does not
        limit how many more pods the domain takes.
        """
        domains = len(self._nodes)
        if domains < self._min_domains or domains - len(self._pods) > (pods == 0):
            return 0
        least = min(self._levels, default=_NO_LIMIT)
        if pods != least or self._levels[least] > 1:
            return least
        return min(self._levels.keys() - {least}, default=_NO_LIMIT)

    def reason(self, node_info: NodeInfo) -> Reason:
        domain = node_info.labels.get(self._key)
        if domain is None:
            return Reason.of(Rule.SPREAD_KEY_MISSING, key=self._key)
        pods = self._pods.get(domain, 0)
        skew = pods + self._own - self._least_elsewhere(pods)
        return Reason.of(Rule.SPREAD_SKEW, key=self._key, domain=domain, skew=skew, max_skew=self._max_skew)


def _spread_matches(constraint: TopologySpreadConstraint) -> _Matches:
    """Return a function that is True for the pods of its pod's namespace that a spread constraint counts.

    These pods match its selector, and are not terminating. With an empty selector, the scheduler counts no pods.
    """
    if not constraint.selector:
        return lambda _: False
    return lambda other: not other.is_terminating and matches(constraint.selector, other.labels)


def _eligible_domains(
    pod_group: PodGroup, constraint: TopologySpreadConstraint, counts: TopologyCounts
) -> EligibleDomains:
    """Return the domains of the nodes that have the topology keys of all the pod's constraints (common.go:43-115).

    If nodeAffinityPolicy or nodeTaintsPolicy is Honor, the pod's node affinity or tolerations must also accept the
    nodes.
    """
    keys, needs = frozenset(other.key for other in pod_group.spread), pod_group.needs
    affinity = (frozenset(needs.node_selector.items()), needs.node_terms) if constraint.honors_affinity else None
    tolerations = needs.tolerations if constraint.honors_taints else None
    alike = keys, affinity, tolerations
    return counts.domains_of(constraint.key, alike, pod_group, partial(_is_eligible, constraint))


def _is_eligible(constraint: TopologySpreadConstraint, pod_group: PodGroup, node_info: NodeInfo) -> bool:
    needs, labels = pod_group.needs, node_info.labels
    return (
        all(other.key in labels for other in pod_group.spread)
        and not (constraint.honors_affinity and filters.node_affinity(needs, labels, node_info.name))
        and not (constraint.honors_taints and first_not_tolerated(node_info.node.taints, needs.tolerations))
    )


# ---------------------------------------------------------------- affinity (interpodaffinity/filtering.go:202-440)


class _Affinity:
    """The required affinity of a pod to others (plugin interpodaffinity).

    For each term, the node's domain must have a pod that matches all terms. If no domain has such a pod, a pod that
    matches its own terms is accepted.
    """

    repels_beyond_host = False

    def __init__(self, counts: list[TopologyCount], *, selects_own: bool) -> None:
        self._counts, self._selects_own = counts, selects_own

    def room(self, node_info: NodeInfo) -> int:
        is_accompanied = True
        for count in self._counts:
            domain = node_info.labels.get(count.key)
            if domain is None:
                return 0
            is_accompanied = is_accompanied and count.pods[domain] > 0
        if is_accompanied:
            return _NO_LIMIT
        # Once the first pod is placed, the node's domains have one.
        return _NO_LIMIT if self._selects_own and not any(count.total for count in self._counts) else 0

    def counts(self, node_info: NodeInfo) -> bool:
        return any(count.at(node_info) for count in self._counts)

    def reason(self, node_info: NodeInfo) -> Reason:
        for count in self._counts:
            if count.key not in node_info.labels:
                return Reason.of(Rule.AFFINITY_KEY_MISSING, key=count.key)
        lonely = next(count.key for count in self._counts if not count.at(node_info))
        return Reason.of(Rule.WITHOUT_COMPANY, key=lonely, domain=node_info.labels[lonely])


class _Apart:
    """A term of anti-affinity, of the pod or against it: no counted pod is in the domain (plugin interpodaffinity)."""

    def __init__(self, count: TopologyCount, rule: Rule, *, selects_own: bool = False) -> None:
        self._count, self._rule, self._most = count, rule, 1 if selects_own else _NO_LIMIT
        self.repels_beyond_host = count.key != HOSTNAME

    def room(self, node_info: NodeInfo) -> int:
        domain = node_info.labels.get(self._count.key)
        if domain is None:
            return _NO_LIMIT
        return 0 if self._count.pods[domain] else self._most

    def counts(self, node_info: NodeInfo) -> bool:
        return bool(self._count.at(node_info))

    def reason(self, node_info: NodeInfo) -> Reason:
        key = self._count.key
        return Reason.of(self._rule, key=key, domain=node_info.labels[key])
