"""How all clusters fare, from what is remembered of them: four queries, whatever becomes of the clusters meanwhile.

A cluster counts as well only if it was read lately. One that nobody has looked at is not well, and not said to be.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any

from evenkeel.application.actions.call import Answer, Call, Fields
from evenkeel.application.incidents.notify import incident_json
from evenkeel.application.offerings.sharing import Places
from evenkeel.application.ports import Offerings
from evenkeel.domain.incidents.health import unreadable, with_stopped
from evenkeel.domain.model.incidents import ClusterHealth, Incident
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.offerings.reports import standing
from evenkeel.record import Registration
from evenkeel.texts.english import rfc3339

# Lambda answers with 6 MB at most. What comes after so much is told by name and a few words, 10,000 of them in 3 MB.
_LARGEST_ANSWER = 3_000_000
_FEW_WORDS = 100
# More are not read by anybody; the ones that most clusters lack come first.
_MOST_OFFERINGS = 100


@dataclass(frozen=True, kw_only=True)
class _Known:
    """A cluster, as the table knows it."""

    cluster: str
    stack: str
    registration: Registration | str
    cluster_health: ClusterHealth
    looked_at: datetime | None  # None: not within the last hours
    now: datetime
    stack_dry_run: bool
    places: Places

    @property
    def is_paused(self) -> bool:
        return isinstance(self.registration, Registration) and self.registration.control().is_paused(self.now)

    @property
    def is_dry(self) -> bool:
        return isinstance(self.registration, Registration) and self.registration.control().is_dry(
            self.registration, self.stack_dry_run
        )

    @cached_property
    def incidents(self) -> tuple[Incident, ...]:
        """The verdict's, and what only whoever reads all clusters can know: that nobody looks."""
        if isinstance(self.registration, str):
            return unreadable(self.cluster_health, self.registration, self.now).incidents
        return with_stopped(self.cluster_health, self.registration.scan_interval, self.looked_at, self.now).incidents

    @property
    def state(self) -> str:
        """`trouble`, `paused`, `unseen` or `well`."""
        if self.is_paused:
            return "paused"
        if self.incidents:
            return "incident"
        return "unseen" if self.looked_at is None else "well"

    def _places(self) -> dict[str, str]:
        """Of the zones that are in trouble."""
        record = self.registration
        if isinstance(record, str):
            return {}
        zones = {zone for incident in self.incidents for zone in incident.zones}
        return {zone: place for zone in sorted(zones) if (place := self.places.place(record, zone)) is not None}

    def json(self) -> dict[str, Any]:
        incidents = [incident_json(incident, self.cluster, self.now, self.stack) for incident in self.incidents]
        more = f" (+{len(incidents) - 1})" if len(incidents) > 1 else ""
        return {
            "cluster": self.cluster,
            "ok": True,
            "state": self.state,
            "dryRun": self.is_dry,
            "lookedAt": rfc3339(self.looked_at) if self.looked_at else None,
            "message": f"{incidents[0]['message']}{more}" if incidents else "not looked at yet",
            "incidents": incidents,
            "places": self._places(),
        }


def overview(call: Call, _fields: Fields) -> Answer:
    """Every cluster that is not known to be well, the worst first, and the names of all others by their state."""
    cluster_healths, looked_at = call.store.cluster_healths(), call.store.looked_at()
    registrations = call.registrations()
    places = Places.of(registration for _, registration in registrations if not isinstance(registration, str))
    known = [
        _Known(
            cluster=cluster,
            registration=registration,
            stack=call.stack,
            cluster_health=cluster_healths.get(cluster, ClusterHealth()),
            looked_at=looked_at.get(cluster),
            now=call.now,
            stack_dry_run=call.stack_dry_run,
            places=places,
        )
        for cluster, registration in registrations
    ]
    by_state: dict[str, list[_Known]] = {"incident": [], "unseen": [], "paused": [], "well": []}
    for each in known:
        by_state[each.state].append(each)
    by_state["incident"].sort(key=lambda each: (each.incidents[0].severity, each.cluster))
    counts = {"clusters": len(known), **{state: len(found) for state, found in by_state.items()}}
    return {
        "now": rfc3339(call.now),
        "incident": bool(by_state["incident"] or by_state["unseen"] or call.unknown()),
        "clusters": _fitting([*by_state["incident"], *by_state["unseen"]]),
        "others": {state: [each.cluster for each in by_state[state]] for state in ("well", "paused")},
        "counts": {**counts, "dryRun": sum(each.is_dry for each in known)},
        "offerings": _offerings(call.store.offerings(), call.now),
        "message": _headline(counts),
    }


def _offerings(offerings: Offerings, now: datetime) -> list[dict[str, Any]]:
    """What clusters could not buy, and which of them say so, as far as they let themselves be named."""
    found = []
    for offering, shared in offerings.items():
        if words := standing(shared.state, now, BackoffPolicy()):
            clusters = sorted(word.cluster for word in words)
            since = min(word.failed_at for word in words)
            found.append({"offering": str(offering), "clusters": clusters, "since": rfc3339(since)})
    return sorted(found, key=lambda each: (-len(each["clusters"]), each["offering"]))[:_MOST_OFFERINGS]


def _fitting(known: list[_Known]) -> list[dict[str, Any]]:
    """Of each cluster all that there is room for, at least its name, its state, and what is worst in it."""
    found, room = [], _LARGEST_ANSWER
    for each in known:
        whole = each.json()
        size = len(json.dumps(whole))
        if size > room:
            worst = whole["incidents"][0]["headline"] if whole["incidents"] else whole["message"]
            named = {name: whole[name] for name in ("cluster", "ok", "state")}
            whole = {**named, "message": worst[:_FEW_WORDS], "truncated": True}
        room -= size
        found.append(whole)
    return found


def _headline(counts: Mapping[str, int]) -> str:
    words = {"incident": "in trouble", "unseen": "not looked at yet", "paused": "paused", "well": "well"}
    return f"clusters: {counts['clusters']}; " + ", ".join(
        f"{counts[state]} {word}" for state, word in words.items() if counts[state] or state in ("incident", "well")
    )
