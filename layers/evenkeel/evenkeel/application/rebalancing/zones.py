"""Store that a zone is impaired, or healthy again, as an operator or AWS reports (ARC zonal shift and autoshift).

Every node group in an impaired zone is fenced until the stated end. The newest statement of each source is stored, even
if events arrive out of order. The fence lasts while at least one source reports the zone as impaired. So the end of a
shift does not end a fence that an operator requested. If the event that ends a shift is lost, the fence ends after a
day.
"""

import logging
from dataclasses import dataclass
from datetime import timedelta

from evenkeel.application.errors import BadRequestError, EvenkeelError, StateConflictError
from evenkeel.application.ports import Clock, Queue, Remaining, StoredCluster
from evenkeel.application.rebalancing.events import EventOutcome, EventResult, ZoneShift, foreign_account
from evenkeel.application.rebalancing.observe import observe_cluster, see_all_pods
from evenkeel.application.rebalancing.ports import Clusters, EventStore
from evenkeel.domain.model.values import near, quote
from evenkeel.domain.model.zone_names import with_zone_labels, zone_called
from evenkeel.record import ClusterRecord
from evenkeel.state_records import ZoneRecord, ZoneStatement, zones_with_drill
from evenkeel.validation import ConfigError

_log = logging.getLogger("evenkeel.zones")
OPERATOR = "operator"
# The start event of an autoshift states no end. If the "completed" event is lost, the shift ends after this time.
LONGEST = timedelta(hours=24)
# If two statements of a source are less than this time apart, they are about the same shift.
_ONE_SHIFT = timedelta(minutes=1)
_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class RecordZoneShift:
    """Stores a shift for every registered cluster that has the zone, and requests a run of each such cluster."""

    store: EventStore
    queue: Queue
    clock: Clock

    def __call__(self, shift: ZoneShift) -> EventOutcome:
        """Store the shift, and return the result of the event.

        Raises StateUnavailableError, QueueUnavailableError or StateConflictError if the event must be tried again.
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
            except ConfigError as error:  # an invalid record of one cluster does not affect the others
                _log.error("zone %s not stored: %s", zone, error, extra={"cluster": cluster})
        if not clusters and refused is not None:
            return refused
        if not clusters and unknown:
            message = f"zone {shift.zone} of {shift.region}: no registered cluster has it (zone_ids of its record)"
            return EventOutcome(EventResult.IGNORED, message)
        if not clusters:
            return EventOutcome(EventResult.KNOWN, f"zone {shift.zone}: known already, it changes nothing")
        condition = "impaired" if shift.impaired else "well again"
        return EventOutcome(
            EventResult.RECORDED,
            f"zone {shift.zone} is {condition} for {', '.join(clusters)}, says {shift.by}",
        )

    def record(self, cluster: str, zone: str, shift: ZoneShift) -> bool:
        """Store the shift for one cluster, and request a run. Return False if this or a newer statement is stored."""
        end = min(shift.until or shift.at + LONGEST, shift.at + LONGEST) if shift.by != OPERATOR else shift.until
        until = end if shift.impaired and end is not None else shift.at
        for attempt in range(_TRIES):
            stored = self.store.load(cluster)
            zone = stored.record.zone_ids.get(zone, zone)
            record = stored.zones.get(zone)
            latest = record.statements.get(shift.by) if record else None
            statement = _newer_statement(latest, ZoneStatement(until=until, stated_at=shift.at), shift.by)
            if statement is None:
                return False
            is_new = statement != latest
            # The record's region, not the event's, so that a zone has only one item.
            region = stored.record.region or "-"
            try:
                if is_new:
                    statements = {**(record.statements if record else {}), shift.by: statement}
                    self.store.save_zone(cluster, region, zone, ZoneRecord(statements=statements), stored.versions)
                break
            except StateConflictError:
                if attempt == _TRIES - 1:
                    raise
        # The run is requested for a known statement, too, because the invocation that stored it may have ended before
        # its request.
        self.queue.request(cluster, f"zone {zone}", f"zone-{shift.at.timestamp()}-{shift.id}-{zone}-{cluster}")
        return is_new

    def still_impaired(self, cluster: str, zone: str) -> tuple[str, ...]:
        """Return the sources that still report the zone as impaired after an operator's own fence is lifted."""
        stored = self.store.load(cluster)
        record = zones_with_drill(stored.zones, stored.drill).get(stored.record.zone_ids.get(zone, zone))
        return tuple(sorted(record.holding(self.clock.now()))) if record else ()


def _newer_statement(latest: ZoneStatement | None, statement: ZoneStatement, source: str) -> ZoneStatement | None:
    """Return the statement to store; None: the stored statement is newer.

    ARC and CloudTrail both report the start of a shift, in any order, and only CloudTrail's event has the end. So the
    two statements are merged.
    """
    if latest is None or latest.stated_at is None or statement.stated_at is None:
        return statement
    begins = latest.until > latest.stated_at and statement.until > statement.stated_at
    if begins and source != OPERATOR and abs(latest.stated_at - statement.stated_at) < _ONE_SHIFT:
        return ZoneStatement(
            until=min(latest.until, statement.until), stated_at=max(latest.stated_at, statement.stated_at)
        )
    if latest.stated_at >= statement.stated_at:
        return latest if latest == statement else None
    return statement


def check_zone(
    stored: StoredCluster,
    zone: str,
    clusters: Clusters,
    remaining: Remaining,
) -> tuple[str, str]:
    """Return the name of a zone, given by its name in the machine API or by the zone label of its nodes.

    Also return a sentence for the caller if it is unknown whether the cluster has the zone; empty: the cluster has it.
    The cluster is read only if neither its record nor its stored statements name the zone, and its nodes only if no
    node group names it. An operator may fence a zone of a cluster that cannot be read, because the outage of that zone
    may be the cause. Raises BadRequestError, with the nearest name, if the cluster has no such zone.
    """
    ids = stored.record.zone_ids
    if zone in ids or zone in ids.values() or zone in stored.zones:
        return zone, ""
    try:
        cluster, observation = observe_cluster(clusters, stored.record, remaining)
        observation = with_zone_labels(observation)
        if all(zone not in group.identity.zone_names for group in observation.groups):
            observation = see_all_pods(clusters, stored.record, cluster, observation, remaining)
            observation = with_zone_labels(observation)
    except EvenkeelError as error:
        return zone, f". It is unknown if it has such a zone: {error}"
    groups = observation.groups
    names = sorted({group.identity.zone for group in groups if group.identity.zone})
    if (called := zone_called(zone, groups)) in names:
        return called, ""
    seen = [pool.seen for pool in stored.state.pools.values() if pool.seen is not None]
    known = {key for sighting in seen if sighting.members_missing_since is None for key in sighting.requested}
    if not known <= {str(group.key) for group in groups}:
        return zone, ". It is unknown if it has such a zone: known node groups were not found"
    labels = sorted({group.identity.zone_label for group in groups if group.identity.zone_label})
    known_zones = f"its zones are {', '.join(names[:20])}" if names else "none of its node groups says its zone"
    raise BadRequestError(
        f"zone is {quote(zone)}: no node group of {stored.record.id} is there; {known_zones}"
        f"{near(zone, [*names, *labels, *ids])}"
    )


def _zone_of(record: ClusterRecord, shift: ZoneShift) -> str | None:
    """Return the zone's name in this cluster; None if it has no such zone."""
    if record.region and shift.region and record.region != shift.region:
        return None
    if shift.zone in record.zone_ids:
        return record.zone_ids[shift.zone]
    return shift.zone if shift.zone in record.zone_ids.values() else None
