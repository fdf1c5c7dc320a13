"""Incidents: what an operator must know of a cluster, as one value for status, page, alarm, metric and event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.problems import Problem
from evenkeel.domain.model.reasons import Reason

# The delay where a record has no trouble_after: a missing node or an unreachable cluster is an incident then.
TROUBLE_AFTER = timedelta(minutes=5)


class IncidentKind(StrEnum):
    """Kinds of incident, the worst first. The value is a JSON key."""

    # Missing nodes come before a cluster that cannot be read: its autoscaler keeps the last bounds.
    MISSING = "missing"
    # of a cluster that cannot be read or planned for
    UNREACHABLE = "unreachable"
    ACCESS = "access"  # a secret, credential or right is missing
    TOO_LARGE = "too-large"
    INVALID_RECORD = "invalid-record"
    STOPPED = "stopped"  # no check for too long
    # of a cluster that was read
    TWO_AUTOSCALERS = "two-autoscalers"
    # of a pool
    INVALID = "invalid"
    REFUSED = "writes-refused"
    CONTESTED = "contested"
    OVER_COMMITTED = "over-committed"
    DRAIN_HANGS = "drain-hangs"
    INEFFECTIVE_ORDER = "ineffective-order"  # nodes that were ordered for pods do not help them
    STEP_HANGS = "step-hangs"  # a step of converge does not end

    @property
    def of_cluster(self) -> bool:
        """Return True if the cluster could not be read or planned for."""
        return self in _OF_CLUSTER


_OF_CLUSTER = frozenset(
    {
        IncidentKind.UNREACHABLE,
        IncidentKind.ACCESS,
        IncidentKind.TOO_LARGE,
        IncidentKind.INVALID_RECORD,
        IncidentKind.STOPPED,
    }
)
_RANK = {kind: rank for rank, kind in enumerate(IncidentKind)}


@dataclass(frozen=True, kw_only=True)
class IncidentNodes:
    """The nodes of a pool with an incident."""

    missing: int = 0
    untaken: int = 0  # of those, replicas that were released and that no autoscaler has ordered
    requested: int = 0
    running: int = 0
    wanted: int = 0  # nodes that were to run when a node was last missing


@dataclass(frozen=True, kw_only=True)
class Incident(IncidentNodes):
    """One incident of a cluster or of one of its pools."""

    kind: IncidentKind
    since: datetime
    pool: str = ""  # its id; empty: of the whole cluster
    zones: tuple[str, ...] = ()  # sorted
    groups: tuple[str, ...] = ()  # keys of the node groups concerned, sorted
    is_outage: bool = False  # no zone of the pool is known to deliver
    is_rollout: bool = False  # a rollout keeps Evenkeel from releasing missing replicas
    calm_since: datetime | None = None  # since when no node is missing, although no zone has delivered yet
    failure_class: FailureClass | None = None  # None: not known
    message: str = ""  # the message of the cloud or API server, or the name of a contesting controller
    problems: tuple[Problem, ...] = ()  # of an invalid or over-committed pool

    @property
    def key(self) -> str:
        """Return its name within the cluster: one for each pool and kind."""
        return f"{self.pool}/{self.kind.value}" if self.pool else self.kind.value

    @property
    def severity(self) -> tuple[int, int, str]:
        """Return the sort key: the worst first."""
        return _RANK[self.kind], -self.missing, self.pool

    @property
    def matter(self) -> tuple[object, ...]:
        """Return the facts whose change is notified. Messages are not: clouds put the request's id into them."""
        if self.kind is IncidentKind.INEFFECTIVE_ORDER:  # pods and nodes come and go under new names
            rules = {why.rule.value for each in self.problems if isinstance(why := each.facts.get("why"), Reason)}
            return self.zones, tuple(sorted(rules))
        problems = tuple((problem.kind, tuple(sorted(problem.facts.items()))) for problem in self.problems)
        names = self.message if self.kind in (IncidentKind.CONTESTED, IncidentKind.DRAIN_HANGS) else ""
        matter = (self.zones, self.failure_class, names, problems)
        return (*matter, "untaken") if self.untaken else matter


@dataclass(frozen=True, kw_only=True)
class Notified:
    """The last notification of an open incident."""

    kind: IncidentKind
    since: datetime
    pool: str = ""
    missing: int = 0
    matter: str = ""  # its fingerprint


class Change(StrEnum):
    """What happened to an incident."""

    OPENED = "opened"
    CHANGED = "changed"
    CLOSED = "closed"


@dataclass(frozen=True, kw_only=True)
class IncidentChange:
    """A change to be notified. A repeat has the same key, time and order."""

    change: Change
    incident: Incident  # if closed, only the facts that were notified
    at: datetime | None = None  # when it was found; None: in this run
    order: int = 0  # among the changes of the same second

    @property
    def key(self) -> str:
        """Return the key of the incident."""
        return self.incident.key


@dataclass(frozen=True, kw_only=True)
class PublishedStatus:
    """The content of the cluster's status ConfigMap, as a fingerprint."""

    print: str
    tried_at: datetime | None = None  # when a write of it began; None: it was written


# More would not fit into the stored item of a cluster. The worst are kept.
_MOST_INCIDENTS = 80


@dataclass(frozen=True, kw_only=True)
class ClusterHealth:
    """All incidents of one cluster, the worst first, and the last notification of each, by ``key``.

    A change stays in ``outbox``, in order, until it is published.
    """

    incidents: tuple[Incident, ...] = ()
    notified: Mapping[str, Notified] = field(default_factory=dict)
    outbox: tuple[IncidentChange, ...] = ()
    published_status: PublishedStatus | None = None  # None: the cluster has no status ConfigMap

    @property
    def is_empty(self) -> bool:
        """Return True if there is no incident, and nothing to notify."""
        return not (self.incidents or self.notified or self.outbox)

    @property
    def unread(self) -> Incident | None:
        """Return why the cluster could not be read. Its other incidents are then the last known ones."""
        return next((incident for incident in self.incidents if incident.kind.of_cluster), None)

    def with_incidents(self, incidents: Sequence[Incident]) -> "ClusterHealth":
        """Return the health with these incidents instead, which are not notified yet."""
        worst_first = sorted(incidents, key=lambda incident: incident.severity)
        return replace(self, incidents=tuple(worst_first[:_MOST_INCIDENTS]))
