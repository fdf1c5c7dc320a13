"""Incidents: conditions about which an operator must know. Status, page, alarms, metrics and events show them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.problems import Problem
from evenkeel.domain.model.reasons import Reason

# The default of trouble_after: the delay until a missing node or an unreachable cluster is an incident.
TROUBLE_AFTER = timedelta(minutes=5)
# Checks count as stopped only after at least this time without a check, because a single lost check is no incident.
_STOPPED_AFTER = timedelta(minutes=5)


class Severity(StrEnum):
    """How urgent an incident is, the worst first. The value is printed, and is a JSON value."""

    CRITICAL = "critical"  # nodes are missing, or most are broken: this pages the person on call, also at night
    WARNING = "warning"  # Evenkeel cannot do all of its work
    INFO = "info"  # it can wait for the day


class IncidentKind(StrEnum):
    """The kinds of incident, the worst first. The value is a JSON key."""

    # Missing or broken nodes are worse than an unreadable cluster, whose autoscaler still works within the last bounds.
    MISSING = "missing"
    CLUSTER_UNHEALTHY = "cluster-unhealthy"  # too many of its nodes are not Ready, so Evenkeel orders and removes none
    # The next kinds concern a cluster that cannot be read or planned for.
    UNREACHABLE = "unreachable"
    ACCESS = "access"  # a secret, credential or right is missing
    TOO_LARGE = "too-large"
    INVALID_RECORD = "invalid-record"
    STOPPED = "stopped"  # the cluster was not checked for too long
    # The next kind concerns a cluster that was read.
    TWO_AUTOSCALERS = "two-autoscalers"
    # The next kind concerns a pool, or the cluster if no pool has nodes for the pods.
    PODS_WAIT = "pods-wait"  # no node is on its way to pending pods, or pods cannot be read
    # The next kinds concern a pool.
    ZONE_UNHEALTHY = "zone-unhealthy"  # too many nodes of the group or its zone are not Ready
    INVALID = "invalid"
    REFUSED = "writes-refused"
    LOST_GROUP = "lost-group"  # an Auto Scaling group has lost a tag, and still has Evenkeel's bounds
    CONTESTED = "contested"
    BOUNDS_UNREAD = "bounds-unread"  # the autoscaler uses flags, and ignores the bounds of groups
    OVER_COMMITTED = "over-committed"
    DRAIN_HANGS = "drain-hangs"
    INEFFECTIVE_ORDER = "ineffective-order"  # nodes were ordered for pods, but the pods still do not run
    STEP_HANGS = "step-hangs"  # a step of converge does not end

    @property
    def of_cluster(self) -> bool:
        """Return True if the cluster could not be read or planned for."""
        return self in _OF_CLUSTER

    @property
    def severity(self) -> Severity:
        """Return how urgent an incident of this kind is."""
        if self in _CRITICAL:
            return Severity.CRITICAL
        return Severity.INFO if self in _CAN_WAIT else Severity.WARNING


_OF_CLUSTER = frozenset(
    {
        IncidentKind.UNREACHABLE,
        IncidentKind.ACCESS,
        IncidentKind.TOO_LARGE,
        IncidentKind.INVALID_RECORD,
        IncidentKind.STOPPED,
    }
)
_CRITICAL = frozenset({IncidentKind.MISSING, IncidentKind.CLUSTER_UNHEALTHY})
_CAN_WAIT = frozenset(
    {IncidentKind.INVALID_RECORD, IncidentKind.INVALID, IncidentKind.CONTESTED, IncidentKind.OVER_COMMITTED}
)
_SEVERITY_RANK = {severity: rank for rank, severity in enumerate(Severity)}
_RANK = {kind: rank for rank, kind in enumerate(IncidentKind)}


@dataclass(frozen=True, kw_only=True)
class Incident:
    """One incident of a cluster or of one of its pools. The integers are numbers of nodes of the pool."""

    missing: int = 0
    not_reordered: int = 0  # the part of ``missing`` that was released and that no autoscaler has ordered again
    requested: int = 0
    running: int = 0
    wanted: int = 0  # the number of nodes that should have run at the last check with a missing node
    kind: IncidentKind
    since: datetime
    pool: str = ""  # the id of the pool; empty: the incident is about the whole cluster
    zones: tuple[str, ...] = ()  # sorted
    groups: tuple[str, ...] = ()  # keys of the affected node groups, sorted
    is_outage: bool = False  # True: no zone of the pool is known to deliver nodes
    of_workload: bool = False  # True: the cluster itself was read, but its pods or nodes are too many
    in_dry_run: bool = False  # True: Evenkeel writes nothing to the pool
    is_rollout: bool = False  # True: Evenkeel does not release the missing replicas, because of a rolling update
    fenced_until: datetime | None = None  # the end of the fences of all its zones; None: not all are impaired
    # Since when the incident has no cause, while it is still open: no node is missing, or each new node is Ready.
    calm_since: datetime | None = None
    failure_class: FailureClass | None = field(default=None, metadata={"alias": "class"})  # None: unknown
    message: str = ""  # the message of the cloud or API server, or the name of a contesting controller
    problems: tuple[Problem, ...] = ()  # the problems of an invalid or over-committed pool

    @property
    def flavour(self) -> str:
        """Return the flavour of the incident's pool; empty if the incident is about the whole cluster."""
        return self.pool.partition("/")[0]

    @property
    def key(self) -> str:
        """Return the name of the incident within its cluster: the id of its pool, if any, and its kind."""
        return f"{self.pool}/{self.kind.value}" if self.pool else self.kind.value

    @property
    def sort_key(self) -> tuple[int, bool, int, str]:
        """Return the sort key. Ascending order puts the worst incident first: missing nodes that no zone delivers."""
        return _RANK[self.kind], not (self.is_outage and self.missing), -self.missing, self.pool

    @property
    def urgency(self) -> tuple[int, int, bool, int, str]:
        """Return the sort key of clusters: first by severity, then as ``sort_key``."""
        return _SEVERITY_RANK[self.kind.severity], *self.sort_key

    @property
    def matter(self) -> tuple[object, ...]:
        """Return the facts that cause a notification when they change.

        Messages of clouds are excluded, because each message contains a new request id.
        """
        if self.kind is IncidentKind.INEFFECTIVE_ORDER:  # Names of pods and nodes are excluded, because they change.
            rules = {why.rule.value for each in self.problems if isinstance(why := each.facts.get("why"), Reason)}
            return self.zones, tuple(sorted(rules))
        if self.kind is IncidentKind.PODS_WAIT:  # Names and times are excluded, because they change.
            return self.zones, tuple(sorted({rule for each in self.problems for rule in _rules(each)}))
        problems = tuple((problem.kind, tuple(sorted(problem.facts.items()))) for problem in self.problems)
        names = self.message if self.kind in (IncidentKind.CONTESTED, IncidentKind.DRAIN_HANGS) else ""
        matter = (self.zones, self.failure_class, names, problems)
        return (*matter, "not_reordered") if self.not_reordered else matter


def _rules(problem: Problem) -> set[str]:
    """Return the kind of a problem, and the rules by which pools give its pods no node."""
    reasons = problem.facts.get("why")
    whys = reasons if isinstance(reasons, tuple) else (reasons,)
    of_pools = [why.facts.get("why", why) for why in whys if isinstance(why, Reason)]
    return {problem.kind.value, *(why.rule.value for why in of_pools if isinstance(why, Reason))}


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Since when pods wait without a node on its way, or cannot be read."""

    since: datetime
    calm_since: datetime | None = None  # since when no pod waits any more; None: pods wait


@dataclass(frozen=True, kw_only=True)
class Notified:
    """The last notification of an open incident."""

    kind: IncidentKind
    since: datetime
    pool: str = ""
    missing: int = 0
    matter: str = ""  # the fingerprint of ``Incident.matter``


class Change(StrEnum):
    """The kind of a change to an incident."""

    OPENED = "opened"
    CHANGED = "changed"
    CLOSED = "closed"


@dataclass(frozen=True, kw_only=True)
class IncidentChange:
    """A change of an incident, to be notified. If it is sent again, its key, time and order do not change."""

    change: Change
    incident: Incident  # if the incident is closed: only the facts that were notified
    at: datetime | None = None  # when an earlier run found the change; None: the present run found it
    order: int = 0  # the position among the changes of the same second

    @property
    def key(self) -> str:
        """Return the key of the incident."""
        return self.incident.key


@dataclass(frozen=True, kw_only=True)
class PublishedStatus:
    """The content of the cluster's status ConfigMap, as a fingerprint."""

    print: str
    tried_at: datetime | None = None  # when the write started; None: the write has succeeded


# The maximum number of incidents in the stored item of a cluster. If there are more, only the worst are stored.
_MOST_INCIDENTS = 80


@dataclass(frozen=True, kw_only=True)
class ClusterHealth:
    """The incidents of one cluster, the worst first, and the last notification of each, by ``Incident.key``.

    ``outbox`` has the changes that are not published yet, in order.
    """

    incidents: tuple[Incident, ...] = ()
    notified: Mapping[str, Notified] = field(default_factory=dict)
    outbox: tuple[IncidentChange, ...] = ()
    published_status: PublishedStatus | None = None  # None: the cluster has no status ConfigMap
    waiting: Mapping[str, Waiting] = field(default_factory=dict)  # ``domain.incidents.pods_wait`` has its keys

    @property
    def is_empty(self) -> bool:
        """Return True if there is no incident, nothing to notify, and no pod waits."""
        return not (self.incidents or self.notified or self.outbox or self.waiting)

    @property
    def unread(self) -> Incident | None:
        """Return the incident that says why the cluster could not be read; None: it was read.

        If there is such an incident, an earlier check found all other incidents.
        """
        return next((each for each in self.incidents if each.kind.of_cluster and not each.of_workload), None)

    def with_incidents(self, incidents: Sequence[Incident]) -> "ClusterHealth":
        """Return the health with its incidents replaced by these. Notifications and the outbox do not change."""
        worst_first = sorted(incidents, key=lambda incident: incident.sort_key)
        return replace(self, incidents=tuple(worst_first[:_MOST_INCIDENTS]))


def stopped_since(scan_interval: int, checked_at: datetime | None, now: datetime) -> datetime | None:
    """Return the time of a cluster's last check if checks have stopped; None: they go on, or this time is unknown.

    ``scan_interval`` is in seconds.
    """
    longest = max(_STOPPED_AFTER, 2 * timedelta(seconds=scan_interval) + timedelta(minutes=1))
    return checked_at if checked_at is not None and now - checked_at >= longest else None
