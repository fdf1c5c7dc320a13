"""A whole zone is impaired, or well again: said by an operator, or by AWS (ARC zonal shift and autoshift).

Every group of the zone is then fenced until the end that was named. The newest word counts, whatever order the words
arrive in; an end that gets lost cannot fence a zone for ever.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from difflib import get_close_matches

from evenkeel.application.errors import BadRequestError, EvenkeelError, StateConflictError
from evenkeel.application.failure import Heard, Verdict
from evenkeel.application.ports import Clock, Queue, Remembered, Store
from evenkeel.config import ClusterRecord, ConfigError, ZoneRecord
from evenkeel.domain.model import Observation
from evenkeel.domain.values import shown

_log = logging.getLogger("evenkeel.zones")
# An autoshift has no end of its own. One whose "completed" is lost is over after a day.
LONGEST = timedelta(hours=24)
# Two words of the same source within this time are about one shift.
_ONE_SHIFT = timedelta(minutes=1)
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
            try:
                if zone is None:
                    unknown += 1
                elif self.tell(cluster, zone, shift):
                    told.append(cluster)
            except ConfigError as error:  # what is wrong with its state is its own; the others are told
                _log.error("zone %s not remembered: %s", zone, error, extra={"cluster": cluster})
        if not told and unknown:
            message = f"zone {shift.zone} of {shift.region}: no registered cluster has it (zone_ids of its record)"
            return Heard(verdict=Verdict.IGNORED, message=message)
        if not told:
            return Heard(verdict=Verdict.KNOWN, message=f"zone {shift.zone}: known already, it changes nothing")
        what = "impaired" if shift.impaired else "well again"
        return Heard(verdict=Verdict.RECORDED, message=f"zone {shift.zone} is {what} for {', '.join(told)}")

    def tell(self, cluster: str, zone: str, shift: ZoneShift) -> bool:
        """Remember it for one cluster and have the cluster looked at. False: it, or a newer word, is known already."""
        end = min(shift.until or shift.at + LONGEST, shift.at + LONGEST) if shift.by != "operator" else shift.until
        until = end if shift.impaired and end is not None else shift.at
        record = ZoneRecord(impaired_until=until, said_at=shift.at, by=shift.by)
        for attempt in range(_TRIES):
            remembered = self.store.load(cluster)
            zone = remembered.record.zone_ids.get(zone, zone)
            known = remembered.zones.get(zone)
            word = _together(known, record)
            if word is None:
                return False
            news = word != known
            region = remembered.record.region or "-"  # the record's alone: one zone, one item
            try:
                if news:
                    version = remembered.versions.get(f"ZONE#{region}/{zone}")
                    self.store.save_zone(cluster, region, zone, word, version)
            except StateConflictError:
                if attempt == _TRIES - 1:
                    raise
                continue
            break
        # Also when an earlier try remembered it, and could not ask for the look.
        self.queue.request(cluster, f"zone {zone}", f"zone-{shift.at.timestamp()}-{shift.id}-{zone}-{cluster}")
        return news


def _together(known: ZoneRecord | None, word: ZoneRecord) -> ZoneRecord | None:
    """What to remember after another word about the zone: the newer one. None: the known one is newer.

    ARC's event and CloudTrail's tell one shift twice, in any order, and only CloudTrail's says when it expires.
    """
    if known is None or known.said_at is None or word.said_at is None:
        return word
    begins = known.impaired_until > known.said_at and word.impaired_until > word.said_at
    if begins and known.by == word.by != "operator" and abs(known.said_at - word.said_at) < _ONE_SHIFT:
        until = min(known.impaired_until, word.impaired_until)
        return ZoneRecord(impaired_until=until, said_at=max(known.said_at, word.said_at), by=word.by)
    if known.said_at >= word.said_at:
        return known if known == word else None
    return word


def check_zone(remembered: Remembered, zone: str, observe: Callable[[], Observation]) -> str:
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
    nearest = get_close_matches(zone, [*names, *ids], n=1)
    guess = f"; did you mean {nearest[0]}?" if nearest else ""
    where = f"its zones are {', '.join(names[:20])}" if names else "none of its node groups says its zone"
    raise BadRequestError(f"zone is {shown(zone)}: no node group of {remembered.record.id} is there; {where}{guess}")


def _zone_of(record: ClusterRecord, shift: ZoneShift) -> str | None:
    """The zone's name in this cluster; None where it has no such zone."""
    if record.region and shift.region and record.region != shift.region:
        return None
    if shift.zone in record.zone_ids:
        return record.zone_ids[shift.zone]
    return shift.zone if shift.zone in record.zone_ids.values() else None
