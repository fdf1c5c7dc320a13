"""The status of all clusters, from stored items only. It needs four queries, and no answer from a cluster.

A cluster is ``well`` only if it was read within the last hours.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.application.incidents.notify import incident_json
from evenkeel.application.offerings.sharing import ZoneIds
from evenkeel.application.plan_documents import Document, Timestamp, document_json
from evenkeel.application.ports import Offerings
from evenkeel.domain.incidents.health import unreadable, with_stopped
from evenkeel.domain.model.incidents import ClusterHealth, Incident
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.offerings.reports import standing
from evenkeel.record import Registration
from evenkeel.texts.english import rfc3339

# Bytes. Lambda limits answers to 6 MB. Beyond this size, further summaries are shortened. The shortened summaries of
# 10,000 clusters have another 3 MB.
_LARGEST_ANSWER = 3_000_000
_FEW_WORDS = 100
# An answer lists at most this many offerings, first the offerings that the most clusters could not buy.
_MOST_OFFERINGS = 100


class ClusterSummary(Document):
    """One cluster in the answer. ``places`` maps the names of zones with incidents to zone ids."""

    cluster: str
    ok: bool = True
    state: str
    dry_run: bool
    checked_at: Timestamp | None
    message: str
    incidents: list[dict[str, Any]]
    places: dict[str, str]


class OfferingSummary(Document):
    """An offering that clusters could not buy. ``clusters`` has an empty name for each anonymous report."""

    offering: str
    clusters: list[str]
    since: str


class Overview(Document):
    """The answer. It describes clusters with incidents, the worst first, and unseen clusters, and names all others."""

    now: Timestamp
    incident: bool
    clusters: list[dict[str, Any]]
    others: dict[str, list[str]]
    counts: dict[str, int]
    offerings: list[OfferingSummary]
    message: str


@dataclass(frozen=True, kw_only=True)
class _StoredCluster:
    """The stored data of one cluster."""

    call: Call
    cluster: str
    registration: Registration | str
    cluster_health: ClusterHealth
    checked_at: datetime | None  # None: the cluster was not read within the last hours
    places: ZoneIds

    @property
    def is_dry(self) -> bool:
        record = self.registration
        return isinstance(record, Registration) and record.control().is_dry(record, self.call.ports.dry_run)

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """Return the stored incidents, and one more if checks have stopped, which checks themselves cannot detect."""
        if isinstance(self.registration, str):
            return unreadable(self.cluster_health, self.registration, self.call.now).incidents
        return with_stopped(
            self.cluster_health, self.registration.scan_interval, self.checked_at, self.call.now
        ).incidents

    @property
    def state(self) -> str:
        """Return `paused`, `incident`, `unseen` or `well`."""
        if isinstance(self.registration, Registration) and self.registration.control().is_paused(self.call.now):
            return "paused"
        if self.incidents:
            return "incident"
        return "unseen" if self.checked_at is None else "well"

    def summary(self) -> ClusterSummary:
        incidents = [
            incident_json(incident, self.cluster, self.call.now, self.call.ports.stack) for incident in self.incidents
        ]
        more = f" (+{len(incidents) - 1})" if len(incidents) > 1 else ""
        return ClusterSummary(
            cluster=self.cluster,
            state=self.state,
            dry_run=self.is_dry,
            checked_at=self.checked_at,
            message=f"{incidents[0]['message']}{more}" if incidents else "not checked yet",
            incidents=incidents,
            places=self._places(),
        )

    def _places(self) -> dict[str, str]:
        record = self.registration
        if isinstance(record, str):
            return {}
        zones = {zone for incident in self.incidents for zone in incident.zones}
        return {zone: place for zone in sorted(zones) if (place := self.places.place(record, zone)) is not None}


def overview(call: Call, _fields: Fields) -> Answer:
    """Return the state of all clusters."""
    cluster_healths, checked_at = call.ports.store.cluster_healths(), call.ports.store.checked_at()
    registrations = call.registrations()
    places = ZoneIds.of(registration for _, registration in registrations if not isinstance(registration, str))
    by_state: dict[str, list[_StoredCluster]] = {"incident": [], "unseen": [], "paused": [], "well": []}
    for cluster, registration in registrations:
        stored = _StoredCluster(
            call=call,
            cluster=cluster,
            registration=registration,
            cluster_health=cluster_healths.get(cluster, ClusterHealth()),
            checked_at=checked_at.get(cluster),
            places=places,
        )
        by_state[stored.state].append(stored)
    by_state["incident"].sort(key=lambda stored: (stored.incidents[0].severity, stored.cluster))
    counts = {"clusters": len(registrations), **{state: len(clusters) for state, clusters in by_state.items()}}
    answer = Overview(
        now=call.now,
        incident=bool(by_state["incident"] or by_state["unseen"] or call.unknown()),
        clusters=_fitting([*by_state["incident"], *by_state["unseen"]]),
        others={state: [stored.cluster for stored in by_state[state]] for state in ("well", "paused")},
        counts={**counts, "dryRun": sum(stored.is_dry for clusters in by_state.values() for stored in clusters)},
        offerings=_offerings(call.ports.store.offerings(), call.now),
        message=_headline(counts),
    )
    return document_json(answer)


def _offerings(offerings: Offerings, now: datetime) -> list[OfferingSummary]:
    summaries = [
        OfferingSummary(
            offering=str(offering),
            clusters=sorted(report.cluster for report in reports),
            since=rfc3339(min(report.failed_at for report in reports)),
        )
        for offering, shared in offerings.items()
        if (reports := standing(shared.state, now, BackoffPolicy()))
    ]
    return sorted(summaries, key=lambda summary: (-len(summary.clusters), summary.offering))[:_MOST_OFFERINGS]


def _fitting(clusters: list[_StoredCluster]) -> list[dict[str, Any]]:
    """Return the summaries of clusters. Summaries beyond the size limit are shortened to their worst incident."""
    summaries, room = [], _LARGEST_ANSWER
    for stored in clusters:
        summary = document_json(stored.summary())
        size = len(json.dumps(summary))
        if size > room:
            worst = summary["incidents"][0]["headline"] if summary["incidents"] else summary["message"]
            named = {name: summary[name] for name in ("cluster", "ok", "state")}
            summary = {**named, "message": worst[:_FEW_WORDS], "truncated": True}
        room -= size
        summaries.append(summary)
    return summaries


def _headline(counts: Mapping[str, int]) -> str:
    words = {"incident": "with incidents", "unseen": "not checked yet", "paused": "paused", "well": "well"}
    return f"clusters: {counts['clusters']}; " + ", ".join(
        f"{counts[state]} {word}" for state, word in words.items() if counts[state] or state in ("incident", "well")
    )
