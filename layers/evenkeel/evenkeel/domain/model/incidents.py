"""What an operator must know of a cluster: one value for status, page, alarm, metric and event. Never a sentence."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.problems import Problem
from evenkeel.domain.model.reasons import Reason

# How long a node may be missing that others may take over, and a cluster may not answer, before that is trouble.
# Where a cluster's record has no trouble_after.
TROUBLE_AFTER = timedelta(minutes=5)


class IncidentKind(StrEnum):
    """Kinds of trouble, the worst first. The value stands in JSON."""

    # Nodes that pods wait for come before a cluster that cannot be seen: its autoscaler goes on with the last bounds.
    MISSING = "missing"  # nodes of a pool
    # of a whole cluster, which no plan can know
    UNREACHABLE = "unreachable"  # it gives no usable answer
    ACCESS = "access"  # secret, credential or rights are no good
    TOO_LARGE = "too-large"
    INVALID_RECORD = "invalid-record"
    STOPPED = "stopped"  # nobody has looked at it
    # of a whole cluster that was read
    TWO_AUTOSCALERS = "two-autoscalers"  # it orders nodes beside us
    # of a pool
    INVALID = "invalid"
    REFUSED = "writes-refused"
    CONTESTED = "contested"
    OVER_COMMITTED = "over-committed"
    DRAIN_HANGS = "drain-hangs"  # a node that is to go, whose pods stay
    INEFFECTIVE_ORDER = "ineffective-order"  # nodes that were ordered for pods do not help them
    STEP_HANGS = "step-hangs"  # a machine of converge does not go, so that nothing else is moved

    @property
    def of_cluster(self) -> bool:
        """Whether the cluster as a whole could not be read."""
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
class Incident:
    """One trouble of a cluster, or of a pool of it."""

    kind: IncidentKind
    since: datetime
    pool: str = ""  # its id; empty: of the whole cluster
    zones: tuple[str, ...] = ()  # where, sorted
    groups: tuple[str, ...] = ()  # keys of the node groups that it is about, sorted
    missing: int = 0  # nodes
    untaken: int = 0  # of those, what was released and no autoscaler has ordered again
    requested: int = 0  # of the pool
    running: int = 0
    wanted: int = 0  # nodes that were to run when a node was last missing
    is_outage: bool = False  # no zone of the pool is known to deliver
    is_rollout: bool = False  # a rollout keeps Evenkeel from releasing what is missing
    calm_since: datetime | None = None  # no node is missing since then, but no zone has shown that it delivers
    failure_class: FailureClass | None = None  # None: nobody says why
    said: str = ""  # in the words of whoever said it: the cloud, the API server, who contests
    problems: tuple[Problem, ...] = ()  # of an invalid or over-committed pool

    @property
    def key(self) -> str:
        """Its name within the cluster: one for each pool and kind."""
        return f"{self.pool}/{self.kind.value}" if self.pool else self.kind.value

    @property
    def severity(self) -> tuple[int, int, str]:
        """Sorts the worst first."""
        return _RANK[self.kind], -self.missing, self.pool

    @property
    def matter(self) -> tuple[object, ...]:
        """What people are told anew where it changes. Words are not among it: clouds put the request's id into them."""
        if self.kind is IncidentKind.INEFFECTIVE_ORDER:  # pods and nodes come and go under new names
            rules = {why.rule.value for each in self.problems if isinstance(why := each.facts.get("why"), Reason)}
            return self.zones, tuple(sorted(rules))
        problems = tuple((problem.kind, tuple(sorted(problem.facts.items()))) for problem in self.problems)
        who = self.said if self.kind in (IncidentKind.CONTESTED, IncidentKind.DRAIN_HANGS) else ""
        matter = (self.zones, self.failure_class, who, problems)
        return (*matter, "untaken") if self.untaken else matter


@dataclass(frozen=True, kw_only=True)
class Notified:
    """What was told last of a trouble that is open, as far as anybody was told."""

    kind: IncidentKind
    since: datetime
    pool: str = ""
    missing: int = 0
    matter: str = ""  # a fingerprint


class Change(StrEnum):
    """What has become of a trouble."""

    OPENED = "opened"
    CHANGED = "changed"
    CLOSED = "closed"


@dataclass(frozen=True, kw_only=True)
class IncidentChange:
    """Something that is to be told. Told twice, it has the same key, the same moment and the same order."""

    news: Change
    incident: Incident  # of one that is over, only what was told of it
    at: datetime | None = None  # when it was found; None: it has just been, or by the release before
    order: int = 0  # among what was found in the same second

    @property
    def key(self) -> str:
        return self.incident.key


@dataclass(frozen=True, kw_only=True)
class PublishedStatus:
    """What the cluster's status ConfigMap says, as a fingerprint."""

    print: str
    tried_at: datetime | None = None  # when it was tried to be written; None: it stands there


# A cluster with more has one trouble: the others would not fit into an item of the table.
_MOST_TROUBLES = 80


@dataclass(frozen=True, kw_only=True)
class ClusterHealth:
    """All trouble of one cluster, the worst first, and what was told of it, by ``key``.

    What is to be told stands in ``outbox`` from before it is told until after, in order.
    """

    incidents: tuple[Incident, ...] = ()
    told: Mapping[str, Notified] = field(default_factory=dict)
    outbox: tuple[IncidentChange, ...] = ()
    published_status: PublishedStatus | None = None  # None: the cluster has no status ConfigMap

    @property
    def is_empty(self) -> bool:
        """Whether there is no trouble, and nothing about any is to be told."""
        return not (self.incidents or self.told or self.outbox)

    @property
    def unread(self) -> Incident | None:
        """Why the cluster could not be read, where it could not; the other troubles are then of before."""
        return next((incident for incident in self.incidents if incident.kind.of_cluster), None)

    def with_incidents(self, incidents: Sequence[Incident]) -> "ClusterHealth":
        """Other trouble, of which nobody has been told yet."""
        worst_first = sorted(incidents, key=lambda incident: incident.severity)
        return replace(self, incidents=tuple(worst_first[:_MOST_TROUBLES]))
