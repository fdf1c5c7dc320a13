"""The data of a page, from a plan, a status answer or a simulation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from evenkeel.application.plan_documents import Number
from evenkeel.domain.model.groups import State, is_outage
from evenkeel.validation import Moment

Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


@dataclass(frozen=True)
class Span:
    """A number now and as planned."""

    before: int | None
    after: int | None


class Answer(BaseModel):
    """A part of an answer. A page shows some of its fields and ignores the others."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)


class IncidentView(Answer):
    """One incident. Counts are 0 if it is not about nodes."""

    kind: str
    pool_id: Text = Field(default="", alias="pool")
    since: Moment
    zones: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    missing: Number = 0
    requested: Number = 0
    running: Number = 0
    is_outage: bool = Field(default=False, alias="outage")  # no zone of its pool is known to deliver
    failure_class: Text = Field(default="", alias="class")
    said: Text = ""  # the message of the cloud or of the API server
    headline: str  # without that message
    todo: str = ""
    command: str = ""
    runbook: str = ""

    @property
    def pool(self) -> str:
        """Return the name of its pool; empty: it is about the whole cluster."""
        return self.pool_id.rpartition("/")[2]

    @property
    def label(self) -> str:
        """Return the pool and the failure in two or three words."""
        text = (self.failure_class or self.kind).replace("-", " ")
        return f"{self.pool}: {text}" if self.pool else text


@dataclass(frozen=True, kw_only=True)
class GroupView:
    """One node group: one zone of a pool."""

    name: str
    zone: str
    state: State
    requested: Span
    min: Span
    max: Span
    running: int | None = None  # None: the source does not have it
    since: datetime | None = None
    until: datetime | None = None  # when the backoff or the impairment ends
    notes: tuple[str, ...] = ()  # its obstacles, and the reasons for its numbers


@dataclass(frozen=True, kw_only=True)
class PoolView:
    """One pool with its zones. Its numbers are None if they could not be read."""

    name: str
    strategy: str = ""
    min: int | None = None
    max: int | None = None
    valid: bool = True
    problems: tuple[str, ...] = ()
    groups: tuple[GroupView, ...] = ()
    missing: int = 0  # of the requested nodes; the other replicas without a node are on the way
    demand: tuple[str, ...] = ()  # sentences about its pending pods and unneeded nodes
    level: tuple[str, ...] = ()  # sentences about its convergence step and budget
    notes: tuple[str, ...] = ()

    @property
    def is_out(self) -> bool:
        """Return True if no zone is known to deliver."""
        return is_outage(group.state for group in self.groups)


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A zone that gets no growth."""

    zone: str
    why: str
    until: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One decision about a pool, with its reasons."""

    at: datetime | float  # or seconds of a simulation
    pool: str
    title: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One zone of a pool over time: from each time on, its nodes and its state."""

    zone: str
    nodes: tuple[tuple[float, int], ...]
    states: tuple[tuple[float, State], ...]


@dataclass(frozen=True, kw_only=True)
class History:
    """A pool over time. Seconds count from ``begin``; None: from the start of a simulation."""

    pool: str
    counts: str  # "running" or "requested" nodes
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
    state: str = ""  # of a cluster: incident, unseen, paused or well
    incidents: tuple[IncidentView, ...] = ()  # the worst first
    places: Mapping[str, str] = field(default_factory=dict)  # of zones: their id, or account/name; as far as known
    is_read: bool = True  # False: the answer lists no pools
    unread: str = ""  # the error that kept the cluster from being read
    pools: tuple[PoolView, ...] = ()
    last_groups: tuple[GroupView, ...] = ()  # node groups of the table, if the cluster cannot be read
    fences: tuple[Fence, ...] = ()
    decisions: tuple[Decision, ...] = ()
    histories: tuple[History, ...] = ()
    skipped: tuple[str, ...] = ()
    measures: tuple[tuple[str, str], ...] = ()
    demand: tuple[str, ...] = ()  # sentences about pods of no pool

    @property
    def missing(self) -> int:
        """Return the missing nodes of all incidents."""
        return sum(incident.missing for incident in self.incidents)

    @property
    def outages(self) -> int:
        """Return how many pools have no zone that is known to deliver."""
        if self.pools:
            return sum(pool.is_out for pool in self.pools)
        return sum(incident.is_outage for incident in self.incidents)


class OfferingView(Answer):
    """A machine type that clusters could not get in a zone."""

    name: str = Field(alias="offering")
    clusters: tuple[str, ...] = ()  # an empty name: a cluster that may not be named
    since: Moment


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """All clusters of a stack. Those with incidents are sections of the page; the others have only names here."""

    well: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()
    dry_run: int = 0
    offerings: tuple[OfferingView, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything on one page."""

    title: str
    source: str  # where its data comes from
    at: datetime
    sections: tuple[Section, ...]  # of a fleet the worst first
    fleet: Fleet | None = None  # None: the page is not about all clusters of a stack
