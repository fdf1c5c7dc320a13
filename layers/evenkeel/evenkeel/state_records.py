"""Items that events and operators store for a cluster: impaired zones, requested checks, and requests for nodes."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Self

from pydantic import Field, model_validator

from evenkeel.domain.drill.drill import Drill
from evenkeel.domain.fleet.event_source import EventSource
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.values import LARGEST_COUNT
from evenkeel.validation import Moment, Strict

# The source of a drill's fence.
DRILL = "drill"
_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)


class ZoneStatement(Strict):
    """The last statement of one source about a zone."""

    until: Moment  # the zone is impaired until this time; a past time: the zone is healthy
    stated_at: Moment | None = None  # when the source made the statement; a later statement replaces it


class ZoneRecord(Strict):
    """The statements about a zone, by source: an operator, ARC's autoshift, ARC's zonal shift, and so on.

    The zone is impaired until the latest ``until`` of its statements.
    """

    statements: dict[str, ZoneStatement] = Field(min_length=1)

    @property
    def impaired_until(self) -> datetime:
        """Return the latest ``until`` of all statements. A past time means that the zone is healthy."""
        return max(statement.until for statement in self.statements.values())

    def holding(self, now: datetime) -> dict[str, ZoneStatement]:
        """Return the statements that fence the zone now, by source."""
        return {source: statement for source, statement in self.statements.items() if now < statement.until}

    def since(self, now: datetime) -> datetime | None:
        """Return the earliest ``stated_at`` of the statements that fence the zone now; None: it is unknown."""
        return min(
            (statement.stated_at for statement in self.holding(now).values() if statement.stated_at), default=None
        )

    def merged(self, other: Self) -> Self:
        """Return a record with the statements of both records; if a source has two, with the later one."""
        statements = dict(self.statements)
        for source, statement in other.statements.items():
            earlier = statements.get(source)
            if earlier is None or (statement.stated_at or _LONG_AGO) > (earlier.stated_at or _LONG_AGO):
                statements[source] = statement
        return self.model_copy(update={"statements": statements})


def zones_with_drill(zones: Mapping[str, ZoneRecord], drill: Drill | None) -> Mapping[str, ZoneRecord]:
    """Return the statements about zones, and that of a drill whose report is not recorded yet."""
    if drill is None or drill.is_recorded:
        return zones
    statement = ZoneStatement(until=drill.fenced_until, stated_at=drill.at)
    statements = zones[drill.zone].statements if drill.zone in zones else {}
    return {**zones, drill.zone: ZoneRecord(statements={**statements, DRILL: statement})}


def fenced_zones(zones: Mapping[str, ZoneRecord], now: datetime) -> list[str]:
    """Return the zones that a statement fences now."""
    return [zone for zone, record in zones.items() if record.holding(now)]


class EventCheckRecord(Strict):
    """The last check that an event requested, and what the events of the cluster have shown (``EventSource``)."""

    at: Moment  # when the check is due
    by: str  # id of the event
    proven_at: Moment | None = None
    missed_at: Moment | None = None
    missed_group: str = ""

    @property
    def source(self) -> EventSource:
        """Return the domain's value."""
        return EventSource(proven_at=self.proven_at, missed_at=self.missed_at, missed_group=self.missed_group)

    def of(self, source: EventSource) -> Self:
        """Return the record with another event source."""
        return self.model_copy(update=vars(source))

    @property
    def ends_at(self) -> datetime:
        """Return the latest time at which the record may still have an effect."""
        return max(self.at, self.source.doubted_until or self.at)


class ScaleRequestRecord(Strict):
    """A request to add nodes, or to remove nodes if ``nodes`` is negative."""

    id: str = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:-]+$")
    nodes: int = Field(ge=-LARGEST_COUNT, le=LARGEST_COUNT, strict=True)
    pool: str = Field(default="", max_length=600)
    group: str = Field(default="", max_length=600)
    only: tuple[Annotated[str, Field(min_length=1, max_length=600)], ...] = Field(default=(), max_length=1000)
    at: Moment
    by: str = Field(default="", max_length=2048)  # the unverified caller, or an event's account and source
    done: bool = False
    result: str = ""
    # The number of nodes that later runs must add or remove. None: the request is not divided among runs.
    left: int | None = Field(default=None, ge=0, le=LARGEST_COUNT, strict=True)
    stepped_at: Moment | None = None  # when a run last added or removed a part of the nodes
    unfound_since: Moment | None = None  # when a check first found no node group for the request

    @model_validator(mode="after")
    def _whose(self) -> Self:
        if bool(self.pool) == bool(self.group):
            raise ValueError("name either a pool or one of its groups")
        if not self.nodes:
            raise ValueError("nodes is 0: ask for at least one")
        return self

    @property
    def added(self) -> int:
        """Return the number of nodes that runs have added or removed so far; 0 if the request is not divided."""
        return 0 if self.left is None else abs(self.nodes) - self.left

    def asks_the_same(self, other: "ScaleRequestRecord") -> bool:
        """Return True if both records describe one request. Their times and progress are not compared."""
        named = [(each.id, each.nodes, each.pool, each.group, set(each.only)) for each in (self, other)]
        return named[0] == named[1]

    def scale_request(self) -> ScaleRequest:
        """Return the domain's request."""
        return ScaleRequest(
            id=self.id,
            nodes=self.nodes if self.left is None else self.left if self.nodes > 0 else -self.left,
            at=self.stepped_at or self.at,
            is_rest=self.left is not None,
            made_at=self.at,
            unfound_since=self.unfound_since,
            pool=self.pool,
            group=self.group,
            only=frozenset(self.only),
        )
