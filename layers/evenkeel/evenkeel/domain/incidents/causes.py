"""The causes that incidents share: a zone, no zone at all, or the same incident.

Several clusters share a cause; a zone may also be that of several pools of one cluster.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import Incident, IncidentKind

# The stack's account. It is the account of all clusters whose record names none.
OWN_ACCOUNT = "own"
# A cause is shown if at least this many clusters share it; of a zone, this many pools.
SHARED_BY = 3
# A quota or a configuration is that of an account, so such failures are no sign of a zone.
_NOT_OF_A_ZONE = frozenset({FailureClass.QUOTA, FailureClass.CONFIGURATION})


class CauseKind(StrEnum):
    """What the clusters share, the most specific first. The value is a JSON value."""

    OUTAGE = "outage"  # their pools have several zones, and capacity in none of them
    ZONE = "zone"
    INCIDENT = "incident"  # only the kind of the incident, and its details


@dataclass(frozen=True, kw_only=True)
class ClusterIncident:
    """One incident of one cluster."""

    cluster: str
    incident: Incident
    places: Mapping[str, str] = field(default_factory=dict)  # zone name -> an id that is the same in each cluster


@dataclass(frozen=True, kw_only=True)
class Cause:
    """What at least ``SHARED_BY`` incidents share. ``incidents``: the worst first."""

    kind: CauseKind
    subject: str  # the zone's place, or the kind of incident
    incidents: tuple[ClusterIncident, ...]

    @property
    def worst(self) -> Incident:
        """Return the worst incident."""
        return self.incidents[0].incident

    @property
    def clusters(self) -> tuple[str, ...]:
        """Return the clusters, the worst first."""
        return tuple(dict.fromkeys(each.cluster for each in self.incidents))

    @property
    def pools(self) -> int:
        """Return the number of pools of all these clusters."""
        return len({(each.cluster, each.incident.pool) for each in self.incidents})

    @property
    def in_dry_run(self) -> int:
        """Return how many of the incidents are of pools in dry run."""
        return sum(each.incident.in_dry_run for each in self.incidents)

    @property
    def is_in_dry_run(self) -> bool:
        """Return True if Evenkeel writes nothing to any of the pools."""
        return self.in_dry_run == len(self.incidents)

    @property
    def is_of_zone(self) -> bool:
        """Return True if the cause is in one zone."""
        return self.kind is CauseKind.ZONE

    @property
    def since(self) -> datetime:
        """Return when the first of the incidents began."""
        return min(each.incident.since for each in self.incidents)

    @property
    def missing(self) -> int:
        """Return the number of missing nodes."""
        return sum(each.incident.missing for each in self.incidents)

    @property
    def missing_in_several(self) -> int:
        """Return how many of the missing nodes are missing in several zones, and not only in the zone of the cause."""
        if not self.is_of_zone:
            return 0
        return sum(each.incident.missing for each in self.incidents if len(each.incident.zones) > 1)

    @property
    def fenced_until(self) -> datetime | None:
        """Return the first end of the fences in all of the clusters; None: a cluster has no fence there."""
        ends = [each.incident.fenced_until for each in self.incidents]
        return None if None in ends else min(end for end in ends if end is not None)

    @property
    def classes(self) -> tuple[str, ...]:
        """Return the classes of the failures."""
        found = {each.incident.failure_class for each in self.incidents}
        return tuple(each.value for each in FailureClass if each in found)

    @property
    def zone_names(self) -> tuple[str, ...]:
        """Return the names that the clusters have for the zone."""
        if not self.is_of_zone:
            return ()
        names = {zone for each in self.incidents for zone in each.incident.zones if _place(each, zone) == self.subject}
        return tuple(sorted(names))


def causes_of(incidents: Iterable[ClusterIncident]) -> tuple[Cause, ...]:
    """Return the causes that at least ``SHARED_BY`` share, outages and then the worst first.

    An incident has one cause in each of its zones. Other incidents have one cause.
    """
    rest = sorted(incidents, key=lambda each: (each.incident.sort_key, each.cluster))
    causes: list[Cause] = []
    for keys in (_everywhere, _placed, _same_incident):
        rest = _take(rest, keys, causes)
    return tuple(sorted(causes, key=_order))


def _order(cause: Cause) -> tuple[object, ...]:
    return (
        cause.worst.urgency[:2],
        cause.kind is not CauseKind.OUTAGE,
        -len(cause.clusters),
        -cause.pools,
        cause.subject,
    )


_Key = tuple[CauseKind, str, Hashable]


def _take(
    rest: Sequence[ClusterIncident], keys: Callable[[ClusterIncident], Iterator[_Key]], causes: list[Cause]
) -> list[ClusterIncident]:
    """Add the causes by these keys, the most frequent first. Return the incidents without any cause."""
    members: dict[_Key, dict[int, ClusterIncident]] = {}
    for number, each in enumerate(rest):
        for key in keys(each):
            members.setdefault(key, {})[number] = each
    taken: dict[str, set[int]] = {}  # the incidents that have a cause, by zone
    order = list(CauseKind)

    def most_frequent(item: tuple[_Key, Mapping[int, ClusterIncident]]) -> tuple[int, int, int]:
        return -_count(item[1].values()), -len(item[1]), order.index(item[0][0])

    for key, found in sorted(members.items(), key=most_frequent):
        kind, subject, _ = key
        has_cause = taken.setdefault(subject if kind is CauseKind.ZONE else "", set())
        shared = {number: each for number, each in found.items() if number not in has_cause}
        # Other incidents of one cluster are rows of that cluster, because its pools rarely share more than their kind.
        if (_count(shared.values()) if kind is CauseKind.INCIDENT else len(shared)) < SHARED_BY:
            continue
        causes.append(Cause(kind=kind, subject=subject, incidents=tuple(shared.values())))
        has_cause.update(shared)
    return [each for number, each in enumerate(rest) if not any(number in numbers for numbers in taken.values())]


def _count(incidents: Iterable[ClusterIncident]) -> int:
    return len({each.cluster for each in incidents})


def _place(each: ClusterIncident, zone: str) -> str:
    return each.places.get(zone, zone)


def _everywhere(each: ClusterIncident) -> Iterator[_Key]:
    if is_everywhere(each.incident):
        yield CauseKind.OUTAGE, each.incident.kind.value, ""


def _placed(each: ClusterIncident) -> Iterator[_Key]:
    incident = each.incident
    if incident.kind is not IncidentKind.MISSING or incident.failure_class in _NOT_OF_A_ZONE:
        return
    if incident.failure_class is not FailureClass.CAPACITY and len(incident.zones) > 1:
        return  # machines that join in no zone have another cause, such as their image
    for place in {_place(each, zone) for zone in incident.zones}:
        yield CauseKind.ZONE, place, ""


def _same_incident(each: ClusterIncident) -> Iterator[_Key]:
    """Yield the kind of the incident, with the details that make it the same in several clusters."""
    incident = each.incident
    controller = incident.message if incident.kind is IncidentKind.CONTESTED else ""
    problems = tuple(sorted({problem.kind.value for problem in incident.problems}))
    yield CauseKind.INCIDENT, incident.kind.value, (incident.failure_class, controller, problems)


def is_everywhere(incident: Incident) -> bool:
    """Return True if a pool of several zones has capacity in none. A pool of one zone fails with its zone."""
    return incident.is_outage and len(incident.zones) > 1 and incident.failure_class is FailureClass.CAPACITY
