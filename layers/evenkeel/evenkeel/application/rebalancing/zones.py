"""A whole zone is impaired, or well again: said by an operator, or by AWS (ARC zonal shift and autoshift).

Every group of the zone is then fenced until the end that was named. Words are kept per source, and the zone is fenced
while any of them holds: an operator's fence outlasts a shift that ends, and the reverse. Of each source the newest word
counts, whatever order they arrive in; an end that gets lost cannot fence a zone for ever.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from evenkeel.application.errors import BadRequestError, EvenkeelError, StateConflictError
from evenkeel.application.ports import Clock, Queue, StoredCluster
from evenkeel.application.rebalancing.events import EventOutcome, EventResult, ZoneShift, foreign_account
from evenkeel.application.rebalancing.ports import EventStore
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.values import near, quote
from evenkeel.record import ClusterRecord
from evenkeel.state_records import ZoneRecord, ZoneStatement
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.zones")
OPERATOR = "operator"
# An autoshift has no end of its own. One whose "completed" is lost is over after a day.
LONGEST = timedelta(hours=24)
# Two words of a source within this time are about one shift.
_ONE_SHIFT = timedelta(minutes=1)
_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class RecordZoneShift:
    """Remembers a shift for every registered cluster that has the zone, and asks for a look at each."""

    store: EventStore
    queue: Queue
    clock: Clock

    def __call__(self, shift: ZoneShift) -> EventOutcome:
        """What became of the event.

        Raises:
            StateUnavailableError, QueueUnavailableError, StateConflictError: try the event again.
        """
        clusters, unknown, refused = [], 0, None
        for cluster, record in self.store.registrations():
            zone = None if isinstance(record, str) else _zone_of(record, shift)
            try:
                if isinstance(record, str) or zone is None:
                    unknown += 1
                elif shift.sender is not None and not shift.sender.may_speak_of(record):
                    refused = foreign_account(f"zone {shift.zone} of {shift.region}", cluster, shift.sender)
                elif self.record(cluster, zone, shift):
                    clusters.append(cluster)
            except ConfigError as error:  # what is wrong with its state is its own; the others are not kept waiting
                _log.error("zone %s not remembered: %s", zone, error, extra={"cluster": cluster})
        if not clusters and refused is not None:
            return refused
        if not clusters and unknown:
            message = f"zone {shift.zone} of {shift.region}: no registered cluster has it (zone_ids of its record)"
            return EventOutcome(result=EventResult.IGNORED, message=message)
        if not clusters:
            return EventOutcome(
                result=EventResult.KNOWN, message=f"zone {shift.zone}: known already, it changes nothing"
            )
        condition = "impaired" if shift.impaired else "well again"
        return EventOutcome(
            result=EventResult.RECORDED,
            message=f"zone {shift.zone} is {condition} for {', '.join(clusters)}, says {shift.by}",
        )

    def record(self, cluster: str, zone: str, shift: ZoneShift) -> bool:
        """Remember it for one cluster and ask for a look there. False: it, or a newer word, is known already."""
        end = min(shift.until or shift.at + LONGEST, shift.at + LONGEST) if shift.by != OPERATOR else shift.until
        until = end if shift.impaired and end is not None else shift.at
        for attempt in range(_TRIES):
            remembered = self.store.load(cluster)
            zone = remembered.record.zone_ids.get(zone, zone)
            record = remembered.zones.get(zone)
            latest = record.words.get(shift.by) if record else None
            statement = _newer_statement(latest, ZoneStatement(until=until, said_at=shift.at), shift.by)
            if statement is None:
                return False
            is_news = statement != latest
            region = remembered.record.region or "-"  # the record's alone: one zone, one item
            try:
                if is_news:
                    statements = {**(record.words if record else {}), shift.by: statement}
                    self.store.save_zone(cluster, region, zone, ZoneRecord(words=statements), remembered.versions)
                break
            except StateConflictError:
                if attempt == _TRIES - 1:
                    raise
        # Also when an earlier try remembered it, and could not ask for the look.
        self.queue.request(cluster, f"zone {zone}", f"zone-{shift.at.timestamp()}-{shift.id}-{zone}-{cluster}")
        return is_news

    def still_impaired(self, cluster: str, zone: str) -> tuple[str, ...]:
        """Who else says that the zone is impaired: to an operator whose own fence is lifted."""
        remembered = self.store.load(cluster)
        record = remembered.zones.get(remembered.record.zone_ids.get(zone, zone))
        return tuple(sorted(record.holding(self.clock.now()))) if record else ()


def _newer_statement(latest: ZoneStatement | None, statement: ZoneStatement, source: str) -> ZoneStatement | None:
    """What to remember after another word of a source: the newer one. None: the latest so far is newer.

    ARC's event and CloudTrail's tell one shift twice, in any order, and only CloudTrail's says when it expires.
    """
    if latest is None or latest.said_at is None or statement.said_at is None:
        return statement
    begins = latest.until > latest.said_at and statement.until > statement.said_at
    if begins and source != OPERATOR and abs(latest.said_at - statement.said_at) < _ONE_SHIFT:
        return ZoneStatement(until=min(latest.until, statement.until), said_at=max(latest.said_at, statement.said_at))
    if latest.said_at >= statement.said_at:
        return latest if latest == statement else None
    return statement


def check_zone(remembered: StoredCluster, zone: str, observe: Callable[[], Observation]) -> str:
    """Whether the cluster has a zone of that name or id; what the answer must add where it cannot be said.

    The cluster is looked at only where its record and what was said before do not know the zone. That it cannot be
    looked at is no reason not to fence a zone: then something is wrong already.

    Raises:
        BadRequestError: it has no such zone; the nearest name is suggested.
    """
    ids = remembered.record.zone_ids
    if zone in ids or zone in ids.values() or zone in remembered.zones:
        return ""
    try:
        groups = observe().groups
    except EvenkeelError as error:
        return f". Whether it has such a zone could not be seen: {error}"
    names = sorted({group.zone for group in groups if group.zone})
    if zone in names:
        return ""
    seen = [pool.seen for pool in remembered.state.pools.values() if pool.seen is not None]
    known = {key for sighting in seen if sighting.few_since is None for key in sighting.requested}
    if not known <= {str(group.key) for group in groups}:
        return ". Whether it has such a zone could not be seen: known node groups were not found"
    known_zones = f"its zones are {', '.join(names[:20])}" if names else "none of its node groups says its zone"
    raise BadRequestError(
        f"zone is {quote(zone)}: no node group of {remembered.record.id} is there; {known_zones}"
        f"{near(zone, [*names, *ids])}"
    )


def _zone_of(record: ClusterRecord, shift: ZoneShift) -> str | None:
    """The zone's name in this cluster; None where it has no such zone."""
    if record.region and shift.region and record.region != shift.region:
        return None
    if shift.zone in record.zone_ids:
        return record.zone_ids[shift.zone]
    return shift.zone if shift.zone in record.zone_ids.values() else None
