"""Store a cluster's health with its pending changes, publish the changes, and remove them from the outbox.

A change is published to the queue of chats and pagers, and to the bus. If a run is killed before it removes published
changes, the next run publishes these changes again, with the same keys. A change that the queue or the bus does not
accept remains in the outbox. So the end of every published incident is published, too.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from evenkeel.application.errors import AccessError, AccessRefusedError, EvenkeelError, TooLargeError
from evenkeel.application.incidents.ports import HealthPorts
from evenkeel.application.plan_documents import problem_json
from evenkeel.application.ports import NAMELESS, RUNBOOKS, DetailType, Versions
from evenkeel.domain.incidents.health import with_pending_changes
from evenkeel.domain.model.incidents import Change, ClusterHealth, Incident, IncidentChange, IncidentKind
from evenkeel.texts.english import problem_text, rfc3339
from evenkeel.texts.incidents import command_line, incident_headline, incident_text, runbook, todo

# The reason of a run for a cluster that has no record any more.
UNREGISTERED = "unregistered"
# The reason of a run that only publishes the outbox of a paused cluster.
PAUSED = "paused"
# Larger than the number of changes in any outbox.
_MOST_AT_ONCE = 1000
_DETAIL_TYPES: Mapping[Change, DetailType] = {
    Change.OPENED: DetailType.INCIDENT_OPENED,
    Change.CHANGED: DetailType.INCIDENT_CHANGED,
    Change.CLOSED: DetailType.INCIDENT_CLOSED,
}


def kind_of(error: EvenkeelError) -> IncidentKind:
    """Return the kind of incident that a failed read of a cluster opens."""
    if isinstance(error, TooLargeError):
        return IncidentKind.TOO_LARGE
    return IncidentKind.ACCESS if isinstance(error, AccessError | AccessRefusedError) else IncidentKind.UNREACHABLE


def store_cluster_health(
    ports: HealthPorts, cluster: str, before: ClusterHealth, health: ClusterHealth, versions: Versions
) -> ClusterHealth:
    """Store the health and publish its pending changes. Return the health that is stored afterwards.

    Raises StateConflictError if another run has stored the health since it was read.
    """
    now = ports.clock.now()
    health = _stamped(with_pending_changes(health), now)
    if health != before:
        ports.store.save_cluster_health(cluster, health, versions)
    unpublished: tuple[IncidentChange, ...] = ()
    for change in health.outbox:
        # Changes of one incident are published in order. If the opening came after the end, the incident would remain
        # open.
        waits = any(each.key == change.key for each in unpublished)
        event = _event(cluster, change, now, ports)
        if waits or not _publish(change, event, ports):
            unpublished = (*unpublished, change)
    if unpublished != health.outbox:
        health = replace(health, outbox=unpublished)
        ports.store.save_cluster_health(cluster, health, versions)
    return health


def _publish(change: IncidentChange, event: Mapping[str, Any], ports: HealthPorts) -> bool:
    is_queued = ports.alerts is None or ports.alerts.send(event)
    return is_queued and ports.bus.publish(_DETAIL_TYPES[change.change].value, event)


def _stamped(health: ClusterHealth, now: datetime) -> ClusterHealth:
    """Return the health with a time for each new change. A change that is published again keeps its time.

    A run may find several changes within a second, so ``order`` contains the microseconds.
    """
    order = now.microsecond * _MOST_AT_ONCE
    outbox = tuple(
        replace(change, at=now, order=order + place) if change.at is None else change
        for place, change in enumerate(health.outbox)
    )
    return replace(health, outbox=outbox)


def _event(cluster: str, change: IncidentChange, now: datetime, ports: HealthPorts) -> dict[str, Any]:
    """Return the event of a change. ``key`` identifies the incident; ``order`` sorts the changes of one second."""
    return {
        "key": f"{cluster}/{change.key}",
        "change": change.change.value,
        "cluster": cluster,
        "at": rfc3339(change.at or now),
        "order": change.order,
        **incident_json(change.incident, cluster, now, ports.stack, ports.runbooks),
    }


def incident_json(
    incident: Incident, cluster: str, now: datetime, stack: str = NAMELESS, runbooks: str = RUNBOOKS
) -> dict[str, Any]:
    """Return an incident for programs, with its texts for people."""
    return {
        "kind": incident.kind.value,
        "severity": incident.kind.severity.value,
        "pool": incident.pool or None,
        "since": rfc3339(incident.since),
        "seconds": max(0, int((now - incident.since).total_seconds())),
        "zones": list(incident.zones),
        "groups": list(incident.groups),
        "missing": incident.missing,
        "requested": incident.requested,
        "running": incident.running,
        "outage": incident.is_outage,
        "rollout": incident.is_rollout,
        "class": incident.failure_class.value if incident.failure_class else None,
        "said": incident.message or None,
        "problems": [problem_json(problem) for problem in incident.problems],
        "says": [problem_text(problem, incident.flavour) for problem in incident.problems],
        "headline": incident_headline(incident, now),
        "message": incident_text(incident, now),
        "todo": todo(incident),
        "command": command_line(incident, cluster, stack),
        "runbook": runbook(incident, runbooks),
    }
