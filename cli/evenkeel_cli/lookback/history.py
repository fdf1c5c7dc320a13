"""A history of node groups, whichever source has told it. Times are whole seconds since 1970, in UTC."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from operator import attrgetter

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.flavours import AUTO_SCALING

_LONGEST_LAUNCH, _LONGEST_WAIT = 5400, 900  # seconds from a launch to a node, and from an order to its launch


@dataclass(frozen=True)
class Level:
    """A number of nodes from second ``at`` until the next level."""

    at: int
    nodes: int


Levels = tuple[Level, ...]
"""Levels in order of time. The first one is at the start of the history."""


@dataclass(frozen=True)
class Order:
    """A request of the autoscaler for more nodes of a group. ``total``: the group's requested nodes afterwards."""

    at: int
    nodes: int
    total: int


@dataclass(frozen=True)
class Refusal:
    """A node that the cloud refused. The source may report it later than the autoscaler ordered the node."""

    at: int
    zone: str
    kind: FailureClass
    text: str
    last: int = 0  # when it was refused for the last time; 0: the source tells each refusal

    @property
    def until(self) -> int:
        """Return when the node was refused for the last time."""
        return max(self.at, self.last)


@dataclass(frozen=True)
class Launch:
    """A node that the cloud delivered: when its launch began, and since when it runs.

    ``ordered``: when the autoscaler ordered it; None: the cloud tried again after a refusal.
    """

    zone: str
    ordered: int | None
    began: int
    runs: int

    @property
    def since(self) -> int:
        """Return since when the node is awaited."""
        return self.began if self.ordered is None else self.ordered


@dataclass(frozen=True)
class KnownBounds:
    """The bounds of a group from second ``at`` on."""

    at: int
    min: int
    max: int


@dataclass(frozen=True)
class Doubt:
    """Why what is known from before a second is not whole, as a sentence. ``since``: it is whole before this one."""

    before: int
    text: str
    since: int = 0


@dataclass(frozen=True, kw_only=True)
class GroupHistory:
    """What is known about a node group. Nodes that replace unhealthy nodes count as the nodes that they replace."""

    name: str
    pool: str
    zones: tuple[str, ...]
    bounds: tuple[KnownBounds, ...]  # in order of time; the first bounds also hold before
    running: Levels
    orders: tuple[Order, ...] = ()
    removals: tuple[int, ...] = ()  # when the autoscaler removed a running node; a second is there once per node
    losses: tuple[int, ...] = ()  # when a running node ended that nothing replaced soon
    refusals: tuple[Refusal, ...] = ()  # in order of time, as are orders, removals and launches
    launches: tuple[Launch, ...] = ()
    doubts: tuple[Doubt, ...] = ()
    # Of a source of replicas: the requested ones, and when the autoscaler took ordered nodes back that did not come.
    requested: Levels = ()
    given_up: tuple[int, ...] = ()

    def coming_at(self, second: int) -> list[Launch]:
        """Return the launches of nodes that are ordered at a second, and do not run yet."""
        began = attrgetter("began")
        first = bisect_right(self.launches, second - _LONGEST_LAUNCH, key=began)
        last = bisect_right(self.launches, second + _LONGEST_WAIT, key=began)
        return [launch for launch in self.launches[first:last] if launch.since <= second < launch.runs]

    def bounds_at(self, second: int) -> KnownBounds:
        """Return the bounds at a second."""
        return next((known for known in reversed(self.bounds) if known.at <= second), self.bounds[0])


@dataclass(frozen=True, kw_only=True)
class History:
    """The histories of the groups of a Region or cluster."""

    source: str
    since: int
    until: int
    step: int  # seconds between two samples of the source; 1: it gives the time of each change
    groups: tuple[GroupHistory, ...]
    unknown: tuple[str, ...] = ()  # what the source lacks, as sentences
    flavour: str = AUTO_SCALING  # it decides which autoscaler is simulated
    provision: tuple[int, ...] = ()  # seconds from a machine to its node, sorted; empty: only launches tell them

    @property
    def pools(self) -> tuple[str, ...]:
        """Return the names of the pools, sorted."""
        return tuple(sorted({group.pool for group in self.groups}))

    def of_pool(self, pool: str) -> tuple[GroupHistory, ...]:
        """Return the groups of a pool."""
        return tuple(group for group in self.groups if group.pool == pool)


def moment(at: int) -> datetime:
    """Return a second as a time."""
    return datetime.fromtimestamp(at, UTC)


def levels(start: int, first: int, changes: Iterable[tuple[int, int]]) -> Levels:
    """Return the levels that begin with ``first`` at ``start`` and rise by each change. Earlier changes are in it."""
    nodes, found = first, {start: first}
    for at, change in sorted(changes):
        nodes += change
        found[max(start, at)] = nodes
    return tuple(Level(at, number) for at, number in found.items())


def level_at(series: Sequence[Level], second: int) -> int:
    """Return the nodes at a second."""
    place = bisect_right(series, second, key=attrgetter("at"))
    return series[max(0, place - 1)].nodes


def total(series: Iterable[Levels]) -> Levels:
    """Return the sum of several levels."""
    all_series = [*series]
    times = sorted({level.at for one in all_series for level in one})
    return tuple(Level(at, sum(level_at(one, at) for one in all_series)) for at in times)


def area(series: Sequence[Level], since: int, until: int) -> int:
    """Return node-seconds between two seconds."""
    ends = [*series, Level(max(until, since), 0)]
    return sum(
        level.nodes * seconds
        for level, after in pairwise(ends)
        if (seconds := min(after.at, until) - max(level.at, since)) > 0
    )
