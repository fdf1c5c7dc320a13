"""A whole zone is impaired, or well again: said by an operator, or by AWS (ARC zonal shift and autoshift).

Every group of the zone is then fenced until the end that was named. The newest word counts, whatever order the words
arrive in; an end that gets lost cannot fence a zone for ever.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from evenkeel.application.errors import StateConflictError
from evenkeel.application.failure import Heard, Verdict
from evenkeel.application.ports import Clock, Queue, Store
from evenkeel.config import ClusterRecord, ZoneRecord

_log = logging.getLogger("evenkeel.zones")
# An autoshift has no end of its own. One whose "completed" is lost is over after a day.
LONGEST = timedelta(hours=24)
_TRIES = 5


@dataclass(frozen=True, kw_only=True)
class ZoneShift:
    """A zone is impaired from ``at``, or well again since."""

    zone: str  # a zone's name, or its id such as use1-az1
    region: str
    impaired: bool
    at: datetime
    until: datetime | None
    by: str
    id: str


@dataclass(frozen=True, kw_only=True)
class HearZoneShift:
    """The use case with its ports."""

    store: Store
    queue: Queue
    clock: Clock

    def __call__(self, shift: ZoneShift) -> Heard:
        """Tell every registered cluster that has the zone.

        Raises:
            StateUnavailableError, QueueUnavailableError, StateConflictError: try the event again.
        """
        told, unknown = [], 0
        for cluster, record in self.store.due():
            zone = _zone_of(record, shift) if isinstance(record, ClusterRecord) else None
            if zone is None:
                unknown += 1
            elif self.tell(cluster, zone, shift):
                told.append(cluster)
        if not told and unknown:
            message = f"zone {shift.zone} of {shift.region}: no registered cluster has it (zone_ids of its record)"
            return Heard(verdict=Verdict.IGNORED, message=message)
        if not told:
            return Heard(verdict=Verdict.KNOWN, message=f"zone {shift.zone}: known already, it changes nothing")
        what = "impaired" if shift.impaired else "well again"
        return Heard(verdict=Verdict.RECORDED, message=f"zone {shift.zone} is {what} for {', '.join(told)}")

    def tell(self, cluster: str, zone: str, shift: ZoneShift) -> bool:
        """Remember it for one cluster and have the cluster looked at. False: a newer word is known already."""
        now = self.clock.now()
        end = min(shift.until or shift.at + LONGEST, shift.at + LONGEST) if shift.by != "operator" else shift.until
        until = end if shift.impaired and end is not None else shift.at
        for attempt in range(_TRIES):
            remembered = self.store.load(cluster)
            zone = remembered.record.zone_ids.get(zone, zone)
            known = remembered.zones.get(zone)
            if known is not None and known.said_at is not None and known.said_at >= shift.at:
                return False
            record = ZoneRecord(impaired_until=until, said_at=shift.at, by=shift.by)
            region = remembered.record.region or "-"  # the record's alone: one zone, one item
            try:
                version = remembered.versions.get(f"ZONE#{region}/{zone}")
                self.store.save_zone(cluster, region, zone, record, version)
            except StateConflictError:
                if attempt == _TRIES - 1:
                    raise
                continue
            break
        self.queue.request(cluster, f"zone {zone}", f"zone-{cluster}-{zone}-{now.timestamp()}-{shift.id}")
        return True


def _zone_of(record: ClusterRecord, shift: ZoneShift) -> str | None:
    """The zone's name in this cluster; None where it has no such zone."""
    if record.region and shift.region and record.region != shift.region:
        return None
    if shift.zone in record.zone_ids:
        return record.zone_ids[shift.zone]
    return shift.zone if shift.zone in record.zone_ids.values() else None
