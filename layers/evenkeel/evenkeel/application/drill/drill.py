"""Follow the drill of a cluster: measure it at each check, end it, and record its report among the decisions.

A run may be killed between any two writes. The stored drill has the end, so the fence is over with the first write.
Until ``is_recorded`` is stored, each check requests a run that continues.
"""

import hashlib
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import Field

from evenkeel.application.drill.ports import DrillStore
from evenkeel.application.errors import StateConflictError
from evenkeel.application.plan_documents import ONLY_WHEN_KNOWN, ONLY_WHEN_SET, Document, Timestamp, document_json
from evenkeel.application.ports import StoredCluster, Versions
from evenkeel.domain.drill.drill import Drill, DrillForecast, Facts, Measured
from evenkeel.domain.model.ulids import ulid
from evenkeel.texts.drill import drill_text
from evenkeel.texts.english import rfc3339
from evenkeel.validation import Count

_Name = Annotated[str, Field(min_length=1, max_length=600)]
_REPORT_KEPT = timedelta(days=30)  # as long as decisions


class DrillZone(Document):
    """The nodes of a zone before the drill."""

    requested: int
    running: int


class DrillEnd(Document):
    """The end of a drill. ``why``: time, incident, other-failure, other-fence, stopped or aborted."""

    at: Timestamp
    why: str
    incident: Annotated[str | None, ONLY_WHEN_KNOWN] = None
    pool: Annotated[str, ONLY_WHEN_SET] = ""
    zone: Annotated[str, ONLY_WHEN_SET] = ""
    by: Annotated[str, ONLY_WHEN_SET] = ""
    reason: Annotated[str, ONLY_WHEN_SET] = ""


class ForecastNumbers(Document):
    """The forecast for the loss of the zone. Times are seconds; null for pods: they are not known."""

    lost_nodes: Count
    pods: Count | None
    bound: Count | None
    without_place: Count | None
    longest_wait: Count | None
    ordered: Annotated[dict[_Name, Count], Field(max_length=100)]
    ready_after: Count | None
    at_maximum: Annotated[list[_Name], Field(max_length=20)]


class MeasuredNumbers(Document):
    """The effect of the drill so far. Times are seconds; null for pods: the cluster's pods are not read."""

    waiting_pods: int | None
    longest_wait: int | None
    ordered: dict[str, int]
    ready_after: int
    not_at_size: list[str]
    incidents: list[str]


class DrillDocument(Document):
    """A drill and its report."""

    id: str
    zone: str
    state: str  # open or ended
    at: Timestamp
    until: Timestamp
    by: str | None
    reason: str
    ended: DrillEnd | None
    start: dict[str, DrillZone]
    forecast: ForecastNumbers | None
    measured: MeasuredNumbers
    message: str


def drill_json(drill: Drill, now: datetime) -> dict[str, Any]:
    """Return the report of a drill, open or ended."""
    drill = drill.as_of(now)
    end = drill.ended
    document = DrillDocument(
        id=drill.id,
        zone=drill.zone,
        state="open" if end is None else "ended",
        at=drill.at,
        until=drill.until,
        by=drill.by or None,
        reason=drill.reason,
        ended=None
        if end is None
        else DrillEnd(
            at=end.at,
            why=end.why.value,
            incident=end.incident.value if end.incident is not None else None,
            pool=end.pool,
            zone=end.zone,
            by=end.by,
            reason=end.reason,
        ),
        start={
            zone: DrillZone(requested=nodes.requested, running=nodes.running) for zone, nodes in drill.start.items()
        },
        forecast=None if drill.forecast is None else _forecast(drill.forecast),
        measured=_measured(drill.measured, now),
        message=drill_text(drill, now),
    )
    return document_json(document)


def forecast_of(numbers: ForecastNumbers) -> DrillForecast:
    """Return a forecast as the domain's value."""
    wait, ready = numbers.longest_wait, numbers.ready_after
    return DrillForecast(
        lost_nodes=numbers.lost_nodes,
        pods=numbers.pods,
        bound=numbers.bound,
        without_place=numbers.without_place,
        longest_wait=None if wait is None else timedelta(seconds=wait),
        ordered=numbers.ordered,
        ready_after=None if ready is None else timedelta(seconds=ready),
        at_maximum=tuple(numbers.at_maximum),
    )


def _forecast(forecast: DrillForecast) -> ForecastNumbers:
    return ForecastNumbers(
        lost_nodes=forecast.lost_nodes,
        pods=forecast.pods,
        bound=forecast.bound,
        without_place=forecast.without_place,
        longest_wait=_seconds(forecast.longest_wait),
        ordered=dict(forecast.ordered),
        ready_after=_seconds(forecast.ready_after),
        at_maximum=list(forecast.at_maximum),
    )


def _measured(measured: Measured, now: datetime) -> MeasuredNumbers:
    return MeasuredNumbers(
        waiting_pods=measured.most_waiting if measured.reads_pods else None,
        longest_wait=_seconds(measured.waits.length(now)) if measured.reads_pods else None,
        ordered=dict(measured.ordered),
        ready_after=int(measured.unready.length(now).total_seconds()),
        not_at_size=list(measured.not_at_size),
        incidents=list(measured.incidents),
    )


def _seconds(length: timedelta | None) -> int | None:
    return None if length is None else int(length.total_seconds())


def follow(store: DrillStore, stored: StoredCluster, facts: Facts, now: datetime) -> bool:
    """Measure the drill with the facts of a check, and end it if they say so.

    Return True if the drill has ended early, so that a plan made before still fences its zone.

    Raises:
        StateConflictError: another writer has changed the drill.
    """
    before = stored.drill
    if before is None or before.is_recorded:
        return False
    drill = before.after(facts, now)
    if drill != before:
        store.save_drill(stored.record.id, drill, stored.versions)
    if drill.ended is not None:
        record_report(store, stored.record.id, drill, stored.versions)
    return before.is_open(now) and not drill.is_open(now)


def record_report(store: DrillStore, cluster: str, drill: Drill, versions: Versions) -> None:
    """Record the report of an ended drill among the cluster's decisions, once. Raises as ``follow`` does."""
    at = drill.fenced_until
    # The id is the same for each attempt, and sorts after that of the action that has ended the drill.
    id = ulid(at + timedelta(seconds=1), hashlib.sha256(drill.id.encode()).digest()[:10])
    report = drill_json(drill, at)
    entry: dict[str, Any] = {
        "id": id,
        "at": rfc3339(at),
        "cluster": cluster,
        "cause": "drill-ended",
        "by": drill.by or None,
    }
    entry |= {"reason": drill.reason, "what": report["message"], "drill": report}
    with suppress(StateConflictError):  # an earlier attempt has recorded it
        store.save_decision(cluster, id, entry, at + _REPORT_KEPT)
    store.save_drill(cluster, replace(drill, is_recorded=True), versions)
