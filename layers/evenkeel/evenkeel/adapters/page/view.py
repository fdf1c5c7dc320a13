"""The data of a page, from a plan, a status answer or a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from evenkeel.application.actions.overview import CauseSummary
from evenkeel.application.plan_documents import Number
from evenkeel.domain.model.groups import State, is_outage
from evenkeel.texts.incidents import KIND_NAMES
from evenkeel.validation import Moment

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


@dataclass(frozen=True)
class Span:
    """The present value and the planned value of a number."""

    before: int | None
    after: int | None


class Answer(BaseModel):
    """A part of a JSON answer. The page reads some of its fields and ignores the others."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)


class IncidentView(Answer):
    """One incident. Its counts are 0 if the incident is not about nodes."""

    kind: str
    severity: str = "warning"  # critical, warning or info
    cause: str = ""  # the title of the cause that several clusters share; empty: there is none
    pool_id: Text = Field(default="", alias="pool")
    since: Moment
    zones: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    missing: Number = 0
    requested: Number = 0
    running: Number = 0
    is_outage: bool = Field(default=False, alias="outage")  # True: no zone of the pool is known to deliver nodes
    failure_class: Text = Field(default="", alias="class")
    said: Text = ""  # the message of the cloud or of the API server
    headline: str  # a sentence that does not repeat ``said``
    todo: str = ""
    command: str = ""
    runbook: str = ""

    @property
    def pool(self) -> str:
        """Return the pool's name; empty where the incident is about the whole cluster."""
        return self.pool_id.rpartition("/")[2]

    @property
    def label(self) -> str:
        """Return the pool and the failure in two or three words."""
        text = (self.failure_class or KIND_NAMES.get(self.kind, self.kind)).replace("-", " ")
        return f"{self.pool}: {text}" if self.pool else text


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """One node group, which is the part of a pool in one zone."""

    name: str
    zone: str
    state: State
    requested: Span
    min: Span
    max: Span
    running: int | None = None  # None: the source does not report the number
    since: datetime | None = None
    until: datetime | None = None  # when the backoff or the impairment ends
    held: tuple[str, ...] = ()  # the notes about what blocks the group
    notes: tuple[str, ...] = ()  # texts: what blocks the group, and the reasons for its replicas and bounds


@dataclass(frozen=True, kw_only=True)
class PoolView:
    """One pool with its zones. ``min`` and ``max`` are None if they could not be read."""

    name: str
    strategy: str = ""
    min: int | None = None
    max: int | None = None
    valid: bool = True
    is_healthy: bool = False  # True: a status says that nothing holds the pool
    problems: tuple[str, ...] = ()
    groups: tuple[GroupView, ...] = ()
    # The number of missing nodes in the pool's incidents. Other replicas without a node are still starting.
    missing: int = 0
    demand: tuple[str, ...] = ()  # sentences about the pool's pending pods and unneeded nodes
    level: tuple[str, ...] = ()  # sentences about the pool's convergence step and budget
    notes: tuple[str, ...] = ()

    @property
    def is_out(self) -> bool:
        """Return True if no zone is known to deliver nodes."""
        return is_outage(group.state for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A zone in which Evenkeel stops scale-up. ``pools``: how many of the zone's pools are in which state."""

    zone: str
    why: str
    until: datetime | None = None  # the first end, where pools have several
    pools: str = ""


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision about a pool, with its reasons."""

    at: datetime | float  # a time, or seconds since the start of a simulation
    pool: str
    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One zone of a pool over time: its counts of nodes and its states, each with the time from which it applies."""

    zone: str
    nodes: tuple[tuple[float, int], ...]
    states: tuple[tuple[float, State], ...]


@dataclass(frozen=True, kw_only=True)
class History:
    """A pool over time. Seconds count from ``begin`` or, where that is None, from the start of a simulation."""

    pool: str
    counts: str  # what the lanes count: "running" or "requested" nodes
    begin: datetime | None
    seconds: float
    max: int | None
    lanes: tuple[Lane, ...]
    demand: tuple[tuple[float, int], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table. All columns but the first have numbers."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Section:
    """One cluster, or one run of a simulation."""

    name: str
    message: str = ""
    severity: str = ""  # of its worst incident that no cause tells
    is_folded: bool = False  # True: causes tell all of its incidents
    state: str = ""  # the cluster's state: incident, unseen, paused or well; empty: not a cluster
    incidents: tuple[IncidentView, ...] = ()  # the worst first
    causes: tuple[CauseSummary, ...] = ()  # of several of its pools
    places: Mapping[str, str] = field(default_factory=dict)  # by zone name: the zone's id or account/name, where known
    is_read: bool = True  # False: the answer does not list the cluster's pools
    unread: str = ""  # the error that prevented reading the cluster; empty: no error
    pools: tuple[PoolView, ...] = ()
    # The last stored state of the node groups, where the cluster cannot be read.
    last_groups: tuple[GroupView, ...] = ()
    fences: tuple[Fence, ...] = ()
    decisions: tuple[Decision, ...] = ()
    histories: tuple[History, ...] = ()
    skipped: tuple[str, ...] = ()
    measures: tuple[tuple[str, str], ...] = ()
    demand: tuple[str, ...] = ()  # sentences about pods that belong to no pool
    tables: tuple[Table, ...] = ()

    @property
    def missing(self) -> int:
        """Return the number of missing nodes in all incidents."""
        return sum(incident.missing for incident in self.incidents)

    @property
    def outages(self) -> list[str]:
        """Return the pools without a zone that is known to deliver nodes, as cluster/pool."""
        pools = [pool.name for pool in self.pools if pool.is_out]
        pools = pools if self.pools else [incident.pool for incident in self.incidents if incident.is_outage]
        return [f"{self.name}/{pool}" for pool in pools]


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """All clusters of a stack. Clusters with incidents are sections of the page; this class names all others."""

    well: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    dry_run: int = 0
    causes: tuple[CauseSummary, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """The data of one page."""

    title: str
    source: str  # where its data comes from
    headline: str = ""  # empty: a count of the page's clusters, runs or pools
    at: datetime
    sections: tuple[Section, ...]  # of a fleet, the worst cluster is first
    fleet: Fleet | None = None  # None: the page is not about all clusters of a stack
    has_runbooks: bool = False  # True: the page as one file ends with the runbooks, to which its incidents link
