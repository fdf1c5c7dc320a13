"""A cluster's verdict: remembered with what is to be told of it, told, and then struck out.

Whoever comes after a run that was killed in between tells it again; it has the same key. What the bus does not take
stays in the outbox, and is news until it has been told. So whatever was told to begin is told to end.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from evenkeel.application.errors import AccessError, AccessRefusedError, EvenkeelError, TooLargeError
from evenkeel.application.incidents.ports import HealthPorts
from evenkeel.application.plan_documents import problem_json
from evenkeel.application.ports import NAMELESS, DetailType, Versions
from evenkeel.domain.incidents.health import with_pending_changes
from evenkeel.domain.model.incidents import Change, ClusterHealth, Incident, IncidentChange, IncidentKind
from evenkeel.texts.english import problem_words, rfc3339
from evenkeel.texts.incidents import command_line, incident_headline, incident_words, runbook, todo

# Why a run is asked for that finds no record any more.
UNREGISTERED = "unregistered"
# Why a run is asked for that only sends what a paused cluster has in its outbox.
PAUSED = "paused"
# More than an outbox holds.
_MOST_AT_ONCE = 1000
_DETAIL_TYPES: Mapping[Change, DetailType] = {
    Change.OPENED: DetailType.INCIDENT_OPENED,
    Change.CHANGED: DetailType.INCIDENT_CHANGED,
    Change.CLOSED: DetailType.INCIDENT_CLOSED,
}


def kind_of(error: EvenkeelError) -> IncidentKind:
    """What keeps us from reading a cluster."""
    if isinstance(error, TooLargeError):
        return IncidentKind.TOO_LARGE
    return IncidentKind.ACCESS if isinstance(error, AccessError | AccessRefusedError) else IncidentKind.UNREACHABLE


def store_cluster_health(
    ports: HealthPorts, cluster: str, before: ClusterHealth, cluster_health: ClusterHealth, versions: Versions
) -> ClusterHealth:
    """Remember the verdict and tell what is new in it. What is remembered and told already is neither again.

    Returns the verdict as it is remembered then.

    Raises StateConflictError: somebody else has judged meanwhile.
    """
    now = ports.clock.now()
    cluster_health = _stamped(with_pending_changes(cluster_health), now)
    if cluster_health != before:
        ports.store.save_cluster_health(cluster, cluster_health, versions)
    kept: tuple[IncidentChange, ...] = ()
    for news in cluster_health.outbox:
        # A beginning that is told after its own end would stay open for good.
        waits = any(each.key == news.key for each in kept)
        event = _event(cluster, news, now, ports.stack)
        if waits or not ports.bus.publish(_DETAIL_TYPES[news.news].value, event):
            kept = (*kept, news)
    if kept != cluster_health.outbox:
        cluster_health = replace(cluster_health, outbox=kept)
        ports.store.save_cluster_health(cluster, cluster_health, versions)
    return cluster_health


def _stamped(cluster_health: ClusterHealth, now: datetime) -> ClusterHealth:
    """With the moment at which each news was found, which stays however often it is told.

    Two rounds of a run may find news within one second: the order goes on from one to the other.
    """
    order = now.microsecond * _MOST_AT_ONCE
    outbox = tuple(
        replace(news, at=now, order=order + place) if news.at is None else news
        for place, news in enumerate(cluster_health.outbox)
    )
    return replace(cluster_health, outbox=outbox)


def _event(cluster: str, news: IncidentChange, now: datetime, stack: str) -> dict[str, Any]:
    """What is published. ``key``: the same for all that is told of one trouble, whoever tells it, however often.

    ``order``: which is the later of two that were found in the same second.
    """
    return {
        "key": f"{cluster}/{news.key}",
        "news": news.news.value,
        "cluster": cluster,
        "at": rfc3339(news.at or now),
        "order": news.order,
        **incident_json(news.incident, cluster, now, stack),
    }


def incident_json(incident: Incident, cluster: str, now: datetime, stack: str = NAMELESS) -> dict[str, Any]:
    """A trouble for programs, and beside it the words for people."""
    return {
        "kind": incident.kind.value,
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
        "said": incident.said or None,
        "problems": [problem_json(problem) for problem in incident.problems],
        "says": [problem_words(problem) for problem in incident.problems],
        "headline": incident_headline(incident, now),
        "message": incident_words(incident, now),
        "todo": todo(incident),
        "command": command_line(incident, cluster, stack),
        "runbook": runbook(incident),
    }
