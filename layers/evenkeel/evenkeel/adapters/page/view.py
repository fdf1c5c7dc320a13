"""What a page shows, whatever it was made from: a plan, a status answer or a simulation."""

from dataclasses import dataclass
from datetime import datetime

from evenkeel.domain.model.groups import State


@dataclass(frozen=True)
class Span:
    """A number as it is, and as it is to become; the same where nothing changes."""

    before: int | None
    after: int | None


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


@dataclass(frozen=True, kw_only=True)
class Fence:
    """A zone that gets no growth, or one node group in it."""

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
    unread: str = ""  # why the cluster itself could not be read
    pools: tuple[PoolView, ...] = ()
    remembered: tuple[GroupView, ...] = ()  # what the table knows of node groups, where the cluster is not readable
    fences: tuple[Fence, ...] = ()
    decisions: tuple[Decision, ...] = ()
    histories: tuple[History, ...] = ()
    skipped: tuple[str, ...] = ()
    measures: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """Everything on one page."""

    title: str
    source: str  # what it was made from, for people
    at: datetime
    sections: tuple[Section, ...]
