"""The status of all clusters, from stored items only. It needs three queries, and no answer from a cluster.

A cluster is ``well`` only if it was read within the last hours.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Annotated, Any

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.application.actions.zone_ids import ZoneIds
from evenkeel.application.errors import BadRequestError
from evenkeel.application.plan_documents import ONLY_WHEN_SET, Document, Timestamp, document_json
from evenkeel.application.ports import CheckTimes
from evenkeel.domain.incidents.causes import Cause, CauseKind, ClusterIncident, causes_of, is_everywhere
from evenkeel.domain.incidents.health import unreadable, with_stopped
from evenkeel.domain.model.incidents import ClusterHealth, Incident
from evenkeel.record import Registration
from evenkeel.texts.incidents import cause_command, cause_text, cause_title, cause_todo, runbook
from evenkeel.validation import Count

# Bytes. Lambda limits answers to 6 MB. Beyond this size, further summaries are shortened. The shortened summaries of
# 10,000 clusters have another 3 MB.
_LARGEST_ANSWER = 3_000_000
_FEW_WORDS = 100


class ClusterSummary(Document):
    """One cluster in the answer. ``places`` maps the names of zones with incidents to zone ids.

    The answer leaves out the fields with defaults if it becomes too large.
    """

    cluster: str
    ok: bool = True
    state: str
    severity: Annotated[str, ONLY_WHEN_SET] = ""  # of its worst incident that no cause tells
    dry_run: bool = False
    checked_at: Timestamp | None = None
    message: str
    incidents: list[dict[str, Any]] = field(default_factory=list)
    places: dict[str, str] = field(default_factory=dict)
    folded: Annotated[bool, ONLY_WHEN_SET] = False  # True: causes tell all of its incidents


class CauseSummary(Document):
    """What three or more clusters or pools share. ``clusters``: the worst first."""

    kind: str
    subject: str
    title: str
    severity: str
    clusters: list[str]
    pools: Count
    since: Timestamp
    seconds: Count
    missing: Count
    missing_in_several: Annotated[Count, ONLY_WHEN_SET] = 0  # zones; a part of ``missing``
    zones: list[str]
    classes: list[str]
    message: str
    todo: str
    command: str
    runbook: str


class OldestCheck(Document):
    """The last check of the cluster that was not checked for the longest time."""

    cluster: str
    at: Timestamp


class Overview(Document):
    """The answer: causes that clusters share, unhealthy clusters, the worst first, and the names of all others."""

    now: Timestamp
    incident: bool
    oldest_check: OldestCheck | None = None  # of the clusters that were checked and are not paused
    causes: list[CauseSummary]
    clusters: list[ClusterSummary]
    others: dict[str, list[str]]
    counts: dict[str, Count]
    message: str


@dataclass(frozen=True, kw_only=True)
class _StoredCluster:
    """The stored data of one cluster."""

    call: Call
    cluster: str
    registration: Registration | str
    cluster_health: ClusterHealth
    times: CheckTimes
    places: ZoneIds

    @property
    def checked_at(self) -> datetime | None:
        """Return when the cluster was last read; None: it was not read within the last hours."""
        return self.times.get(self.cluster)

    @property
    def is_dry(self) -> bool:
        record = self.registration
        return isinstance(record, Registration) and record.control().is_dry(record, self.call.ports.dry_run)

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """Return the stored incidents, and one more if checks have stopped, which checks themselves cannot detect."""
        if isinstance(self.registration, str):
            return unreadable(self.cluster_health, self.registration, self.call.now).incidents
        since = self.times.stopped_since(self.cluster, self.registration.scan_interval, self.call.now)
        return with_stopped(self.cluster_health, since).incidents

    @property
    def state(self) -> str:
        """Return `paused`, `incident`, `unseen` or `well`."""
        if isinstance(self.registration, Registration) and self.registration.control().is_paused(self.call.now):
            return "paused"
        if self.incidents:
            return "incident"
        return "unseen" if self.checked_at is None else "well"

    def of_causes(self) -> list[ClusterIncident]:
        """Return the incidents as their common causes are found: with the ids of zones."""
        places = self._places()
        return [ClusterIncident(cluster=self.cluster, incident=incident, places=places) for incident in self.incidents]

    def sort_key(self, titles: Mapping[str, str]) -> tuple[bool, tuple[object, ...], str]:
        """Return the sort key: the worst incident that no cause tells; clusters without such an incident are last."""
        own = [incident for incident in self.incidents if incident.key not in titles]
        return not own, (own or self.incidents)[0].urgency, self.cluster

    def summary(self, titles: Mapping[str, str]) -> ClusterSummary:
        """Return the cluster. ``titles``: the causes of its incidents, by the incident's key."""
        call = replace(self.call, cluster=self.cluster)
        incidents = [call.incident_json(each, call.now, titles.get(each.key, "")) for each in self.incidents]
        own = [incident for incident in incidents if "cause" not in incident]
        worst = (own or incidents)[:1]
        more = f" (+{len(incidents) - 1})" if len(incidents) > 1 else ""
        return ClusterSummary(
            cluster=self.cluster,
            state=self.state,
            severity=worst[0]["severity"] if worst else "",
            dry_run=self.is_dry,
            checked_at=self.checked_at,
            message=f"{worst[0]['message']}{more}" if worst else "not checked yet",
            incidents=incidents,
            places=self._places(),
            folded=bool(incidents) and not own,
        )

    def _places(self) -> dict[str, str]:
        record = self.registration
        if isinstance(record, str):
            return {}
        zones = {zone for incident in self.incidents for zone in incident.zones}
        return {zone: place for zone in sorted(zones) if (place := self.places.place(record, zone)) is not None}


def overview(call: Call, fields: Fields) -> Answer:
    """Return the state of all clusters. Raises BadRequestError if the fields name a pool."""
    if getattr(fields, "pool", None) is not None:
        raise BadRequestError("pool goes with a cluster: name the cluster, too")
    cluster_healths, times = call.ports.store.cluster_healths(), call.ports.store.checked_at()
    registrations = call.registrations()
    places = ZoneIds.of(registration for _, registration in registrations if not isinstance(registration, str))
    by_state: dict[str, list[_StoredCluster]] = {"incident": [], "unseen": [], "paused": [], "well": []}
    for cluster, registration in registrations:
        stored = _StoredCluster(
            call=call,
            cluster=cluster,
            registration=registration,
            cluster_health=cluster_healths.get(cluster, ClusterHealth()),
            times=times,
            places=places,
        )
        by_state[stored.state].append(stored)
    counts = {"clusters": len(registrations), **{state: len(clusters) for state, clusters in by_state.items()}}
    causes = causes_of(each for stored in by_state["incident"] for each in stored.of_causes())
    titles = titles_of_causes(causes)
    by_state["incident"].sort(key=lambda stored: stored.sort_key(titles[stored.cluster]))
    document = Overview(
        now=call.now,
        oldest_check=_oldest_check(by_state["incident"], by_state["well"]),
        causes=[cause_summary(cause, call) for cause in causes],
        incident=bool(by_state["incident"] or by_state["unseen"] or call.unknown()),
        clusters=[stored.summary(titles[stored.cluster]) for stored in (*by_state["incident"], *by_state["unseen"])],
        others={state: [stored.cluster for stored in by_state[state]] for state in ("well", "paused")},
        counts={**counts, "dryRun": sum(stored.is_dry for clusters in by_state.values() for stored in clusters)},
        message=_headline(counts),
    )
    answer = document_json(document)
    return {**answer, "clusters": _fitting(answer["clusters"])}


def _oldest_check(*groups: Iterable[_StoredCluster]) -> OldestCheck | None:
    times = [(at, stored.cluster) for group in groups for stored in group if (at := stored.checked_at) is not None]
    at, cluster = min(times, default=(None, ""))
    return None if at is None else OldestCheck(cluster=cluster, at=at)


def causes_of_cluster(call: Call, incidents: Iterable[Incident]) -> tuple[Cause, ...]:
    """Return the causes that pools of the call's cluster share. Its zones have the names that it uses."""
    return causes_of(ClusterIncident(cluster=call.cluster, incident=incident) for incident in incidents)


def titles_of_causes(causes: Iterable[Cause]) -> Mapping[str, Mapping[str, str]]:
    """Return the title of each incident's first cause, by cluster and by the key of the incident.

    An incident without capacity in any zone is also told on its own, where its cause is only one of these zones.
    """
    titles: dict[str, dict[str, str]] = defaultdict(dict)
    for cause in causes:
        for each in cause.incidents:
            if cause.kind is CauseKind.OUTAGE or not is_everywhere(each.incident):
                titles[each.cluster].setdefault(each.incident.key, cause_title(cause))
    return titles


def cause_summary(cause: Cause, call: Call) -> CauseSummary:
    """Return a cause with its texts for people."""
    return CauseSummary(
        kind=cause.kind.value,
        subject=cause.subject,
        title=cause_title(cause),
        severity=cause.worst.kind.severity.value,
        clusters=list(cause.clusters),
        pools=cause.pools,
        since=cause.since,
        seconds=max(0, int((call.now - cause.since).total_seconds())),
        missing=cause.missing,
        missing_in_several=cause.missing_in_several,
        zones=list(cause.zone_names),
        classes=list(cause.classes),
        message=cause_text(cause, call.now),
        todo=cause_todo(cause, call.now),
        command=cause_command(cause, call.ports.stack, call.selector.text if call.selector else ""),
        runbook=runbook(cause.worst, call.ports.runbooks),
    )


def _fitting(clusters: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the summaries of clusters. Those beyond the size limit are shortened to the worst incident."""
    summaries, room = [], _LARGEST_ANSWER
    for summary in clusters:
        size = len(json.dumps(summary))
        if size > room:
            own = [incident for incident in summary["incidents"] if "cause" not in incident]
            worst = next((incident["headline"] for incident in own or summary["incidents"]), summary["message"])
            named: dict[str, Any] = {
                name: summary[name] for name in ("cluster", "ok", "state", "severity", "folded") if name in summary
            }
            summaries.append({**named, "message": worst[:_FEW_WORDS], "truncated": True})
        else:
            summaries.append(summary)
        room -= size
    return summaries


def _headline(counts: Mapping[str, int]) -> str:
    words = {"incident": "with incidents", "unseen": "not checked yet", "paused": "paused", "well": "well"}
    return f"clusters: {counts['clusters']}; " + ", ".join(
        f"{counts[state]} {word}" for state, word in words.items() if counts[state] or state in ("incident", "well")
    )
