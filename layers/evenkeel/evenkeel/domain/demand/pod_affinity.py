"""Required affinity and anti-affinity between pods (plugin interpodaffinity, filtering.go:202-440)."""

from collections.abc import Callable, Mapping

from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.demand.topology_counts import Tally, TopologyCounts
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import PodAffinityTerm

Namespaces = Mapping[str, Mapping[str, str]]
"""The labels of namespaces, by their names."""


class PodAffinity:
    """The rule, over the pods that a set of tallies counts."""

    def __init__(self, tallies: TopologyCounts, namespaces: Namespaces) -> None:
        self._tallies = tallies
        self._namespaces = namespaces
        self._repelling: list[tuple[PodGroup, int]] = []  # kinds that stand somewhere, and terms that keep others away
        self._kinds_read = 0
        self._repelled: dict[PodGroup, tuple[int, list[Tally]]] = {}

    def failing_filter(self, kind: PodGroup, room: NodeInfo) -> Reason | None:
        """Whom it has to be with, whom it keeps away from, who keeps it away, in that order."""
        if lonely := self._without_company(kind, room):
            return lonely
        for number, term in enumerate(kind.needs.anti_affinity):
            tally = self._tallies.of(("anti", kind, number), self._maker(term.key, self._one(kind, term)))
            if tally.at(room):
                return Reason.of(Rule.KEEPS_AWAY, key=term.key, domain=room.labels[term.key])
        for tally in self.repelled_by(kind):
            if tally.at(room):
                return Reason.of(Rule.KEPT_AWAY, key=tally.key, domain=room.labels[tally.key])
        return None

    def depends_on_others(self, kind: PodGroup) -> bool:
        """Whether where it fits changes with where others, or pods of its own, are placed."""
        needs = kind.needs
        return bool(needs.affinity or needs.anti_affinity or self.repelled_by(kind))

    def _without_company(self, kind: PodGroup, room: NodeInfo) -> Reason | None:
        """Every term needs a pod that matches all terms in its domain; the first of a group needs none."""
        terms = kind.needs.affinity
        tallies = [
            self._tallies.of(("with", kind, number), self._maker(term.key, self._all(kind)))
            for number, term in enumerate(terms)
        ]
        for term in terms:
            if term.key not in room.labels:
                return Reason.of(Rule.AFFINITY_KEY_MISSING, key=term.key)
        lonely = next((tally for tally in tallies if not tally.at(room)), None)
        if lonely is None:
            return None
        if not any(tally.total for tally in tallies) and self._all(kind)(kind):
            return None
        return Reason.of(Rule.WITHOUT_COMPANY, key=lonely.key, domain=room.labels[lonely.key])

    def repelled_by(self, kind: PodGroup) -> list[Tally]:
        """Where pods stand whose anti-affinity is against this kind."""
        self._read_repelling()
        asked, tallies = self._repelled.get(kind, (0, []))
        if asked < len(self._repelling):
            for other, number in self._repelling[asked:]:
                term = other.needs.anti_affinity[number]
                if self._one(other, term)(kind):
                    itself = _is(other)
                    tallies.append(self._tallies.of(("of", other, term.key), self._maker(term.key, itself)))
            self._repelled[kind] = len(self._repelling), tallies
        return tallies

    def _read_repelling(self) -> None:
        if self._kinds_read == self._tallies.kinds_seen:
            return
        pod_groups = self._tallies.pod_groups
        for kind in pod_groups[self._kinds_read :]:
            self._repelling += [(kind, number) for number in range(len(kind.needs.anti_affinity))]
        self._kinds_read = len(pod_groups)

    def _one(self, kind: PodGroup, term: PodAffinityTerm) -> Callable[[PodGroup], bool]:
        return lambda other: self._speaks_of(term, kind.namespace, other) and matches(term.selector, other.labels)

    def _all(self, kind: PodGroup) -> Callable[[PodGroup], bool]:
        each = [self._one(kind, term) for term in kind.needs.affinity]
        return lambda other: all(one(other) for one in each)

    def _speaks_of(self, term: PodAffinityTerm, own: str, other: PodGroup) -> bool:
        """Whether a term is about pods of that namespace: named, selected, or, without either, its own."""
        if not term.namespaces and term.namespace_selector is None:
            return other.namespace == own
        labels = self._namespaces.get(other.namespace, {})
        return other.namespace in term.namespaces or matches(term.namespace_selector, labels)

    @staticmethod
    def _maker(key: str, takes: Callable[[PodGroup], bool]) -> Callable[[], Tally]:
        return lambda: Tally(key, takes)


def _is(kind: PodGroup) -> Callable[[PodGroup], bool]:
    return lambda other: other is kind
