"""What a page shows, whatever it was made from: a plan, a status answer or a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from evenkeel.domain.model.groups import State, is_outage


@dataclass(frozen=True)
class Span:
    """A number as it is, and as it is to become; the same where nothing changes."""

    before: int | None
    after: int | None


@dataclass(frozen=True, kw_only=True)
class IncidentView:
    """What needs a person: what is wrong, and what to do. Counts are 0 where it is not about nodes."""

    headline: str  # without what was said
    kind: str
    since: datetime
    pool: str = ""
    zones: tuple[str, ...] = ()
    failure_class: str = ""
    missing: int = 0
    requested: int = 0
    running: int = 0
    is_outage: bool = False  # no zone of its pool is known to deliver
    said: str = ""  # the words of whoever said it
    todo: str = ""
    command: str = ""
    runbook: str = ""

    @property
    def label(self) -> str:
        """In two or three words: the pool, and what is wrong with it."""
        what = (self.failure_class or self.kind).replace("-", " ")
        return f"{self.pool}: {what}" if self.pool else what


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """One node group: one zone of a pool."""

    name: str
    zone: str
    state: State
    requested: Span
    min: Span
    max: Span
    running: int | None = None  # None: the source does not say
    since: datetime | None = None
    until: datetime | None = None  # when the backoff or the impairment ends
    notes: tuple[str, ...] = ()  # what holds it, and the reasons for its numbers


@dataclass(frozen=True, kw_only=True)
class PoolView:
    """One pool with its zones. Numbers of the pool are None where they could not be read."""

    name: str
    strategy: str = ""
    min: int | None = None
    max: int | None = None
    valid: bool = True
    problems: tuple[str, ...] = ()
    groups: tuple[GroupView, ...] = ()
    missing: int = 0  # of the requested nodes; others without one are on their way
    demand: tuple[str, ...] = ()  # sentences: which pods wait for its nodes, which of these nobody needs
    level: tuple[
        str, ...
    ] = ()  # sentences: the step of converge that is under way or waits, and what the budget leaves
    notes: tuple[str, ...] = ()

    @property
    def is_out(self) -> bool:
        """Whether no zone is known to deliver."""
        return is_outage(group.state for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A zone that gets no growth."""

    zone: str
    why: str
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What was decided for one pool, and why."""

    at: datetime | float  # a moment, or seconds of a simulation
    pool: str
    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One zone of a pool over time: from each moment on, so many nodes, in that state."""

    zone: str
    nodes: tuple[tuple[float, int], ...]
    states: tuple[tuple[float, State], ...]


@dataclass(frozen=True, kw_only=True)
class History:
    """A pool over time. Seconds count from ``begin``, or from the start of a simulation where that is None."""

    pool: str
    counts: str  # what the lanes count: "running" or "requested"
    begin: datetime | None
    seconds: float
    max: int | None
    lanes: tuple[Lane, ...]
    demand: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """One cluster, or one run of a simulation."""

    name: str
    message: str = ""
    state: str = ""  # of a cluster: trouble, unseen, paused or well
    incidents: tuple[IncidentView, ...] = ()  # the worst first
    places: Mapping[str, str] = field(default_factory=dict)  # of zones: their id, or account/name; as far as known
    looked_at: datetime | None = None
    is_read: bool = True  # whether pools could be listed; what is told from verdicts alone lists none
    unread: str = ""  # why the cluster itself could not be read
    pools: tuple[PoolView, ...] = ()
    remembered: tuple[GroupView, ...] = ()  # what the table knows of node groups, where the cluster is not readable
    fences: tuple[Fence, ...] = ()
    decisions: tuple[Decision, ...] = ()
    histories: tuple[History, ...] = ()
    skipped: tuple[str, ...] = ()
    measures: tuple[tuple[str, str], ...] = ()
    demand: tuple[str, ...] = ()  # what pods say beside pools, in sentences

    @property
    def missing(self) -> int:
        return sum(incident.missing for incident in self.incidents)

    @property
    def outages(self) -> int:
        """Pools of which no zone is known to deliver."""
        if self.pools:
            return sum(pool.is_out for pool in self.pools)
        return sum(incident.is_outage for incident in self.incidents)


@dataclass(frozen=True, kw_only=True)
class OfferingView:
    """A machine type that clusters could not get in a zone."""

    name: str
    clusters: tuple[str, ...]  # an empty name: one that is not to be named
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """All clusters of a stack. Those that need a look are sections of the page; of the others only names are known."""

    well: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    dry_run: int = 0
    offerings: tuple[OfferingView, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything on one page."""

    title: str
    source: str  # what it was made from, for people
    at: datetime
    sections: tuple[Section, ...]  # of a fleet the worst first
    fleet: Fleet | None = None  # None: not about all clusters of a stack
