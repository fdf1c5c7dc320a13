"""The overview of a fleet lists the clusters with incidents, the worst first, and the affected zones."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from evenkeel.adapters.page.view import Fleet, IncidentView, Page, Section
from evenkeel.adapters.page_anchors import cluster_anchor, incident_anchor
from evenkeel.application.actions.overview import CauseSummary
from evenkeel.domain.incidents.causes import OWN_ACCOUNT
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.incidents import Severity
from evenkeel.texts.english import counted, duration
from evenkeel.texts.incidents import outage_text, sharers

_STATES = {"unseen": "not checked yet", "paused": "paused", "well": "well"}
_ADDED_UP = (
    "A zone without an id or an account is added up by its name, which other accounts may have for another zone: "
    "zone_ids and account in the clusters' records tell them apart."
)


def headline(page: Page, fleet: Fleet) -> str:
    """Return a line with the number of clusters in each state. Only a cluster that was read has state ``well``."""
    states = [section.state for section in page.sections]
    counts = {state: states.count(state) for state in ("incident", *_STATES)}
    counts["paused"] += len(fleet.paused)
    counts["well"] += len(fleet.well)
    parts = [f"{counts['incident']} of {counted(sum(counts.values()), 'cluster')} with incidents"]
    failing = [section for section in page.sections if section.state == "incident"]
    if missing := sum(section.missing for section in failing):
        parts[0] += f", {counted(missing)} missing"
    most_missing = sorted(failing, key=lambda section: -section.missing)
    if out := [name for section in most_missing for name in section.outages]:
        parts.append(outage_text(out))
    parts += [f"{counts[state]} {text}" for state, text in _STATES.items() if counts[state]]
    if fleet.dry_run:
        parts.append(f"{fleet.dry_run} in dry run")
    return "; ".join(parts)


def _no_incident(page: Page) -> str:
    if page.fleet is None or not (page.sections or page.fleet.well or page.fleet.paused):
        return "No cluster is registered: evenkeel register --stack NAME --cluster ID --record FILE"
    return "No incident: every cluster that is not paused was checked recently, and no node is missing."


def _incident_kinds(sections: Iterable[Section]) -> list[str]:
    return list(dict.fromkeys(incident.kind for section in sections for incident in section.incidents))


def _kinds(section: Section) -> list[str]:
    """Return the words by which the page's filter finds a cluster: its kinds of incidents, or else its state."""
    return _incident_kinds([section]) or [section.state]


def _search_words(section: Section) -> str:
    """Return the words by which the page's search finds a cluster."""
    words = [section.name]
    for incident in section.incidents:
        words += [incident.pool, incident.kind, incident.failure_class, *incident.zones]
    words += [word for pool in section.pools for word in (pool.name, *(group.zone for group in pool.groups))]
    return " ".join(dict.fromkeys(words)).lower()


def _worst(section: Section, at: datetime, cause: str = "") -> tuple[str, str, str]:
    """Return three texts about a cluster's worst incident: its label, its missing nodes and its duration.

    ``cause``: the title of the cause whose incident is meant; empty: an incident that no cause tells.
    """
    if not section.incidents:
        unknown = "not readable" if section.unread else f"{section.message}; the answer had no room for more"
        return _STATES.get(section.state, unknown), "", ""
    worst = next((each for each in section.incidents if each.cause == cause), section.incidents[0])
    more = len(section.incidents) - 1
    return (
        worst.label + (f" (+{more})" if more else ""),
        _missing(worst) if worst.requested else "",
        duration(max(0.0, (at - worst.since).total_seconds())),
    )


def _missing(incident: IncidentView) -> str:
    nowhere = ", no zone delivers" if incident.is_outage else ""
    return f"{incident.missing} of {incident.requested} missing{nowhere}"


@dataclass
class _Zone:
    """One zone, or several zones of one name that the page cannot distinguish."""

    place: str  # the zone's id, its account/name, or its name
    is_known: bool  # True: a record names the zone's id or account
    names: dict[str, None] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)  # the failures in this zone, by cluster

    @property
    def find(self) -> str:
        """Return the words by which the page's search finds the zone."""
        return " ".join((self.place, *self.names, *self.clusters)).lower()

    @property
    def title(self) -> str:
        """Return the zone's name, with its id if that is known, or with its account if that is not the stack's."""
        account, slash, name = self.place.rpartition("/")
        if slash:
            return name if account == OWN_ACCOUNT else f"{name} of {account}"
        return self.place if self.place in self.names else f"{self.place} ({', '.join(sorted(self.names))})"


def _affected_zones(sections: Iterable[Section]) -> list[_Zone]:
    """Return the zones with failures. The zone with the most clusters is first."""
    zones: dict[tuple[str, bool], _Zone] = {}
    for section in sections:
        for name, text in _failures(section).items():
            key = section.places.get(name, name), name in section.places
            zone = zones.setdefault(key, _Zone(*key))
            zone.names[name] = None
            zone.clusters[section.name] = text
    return sorted(zones.values(), key=lambda zone: (-len(zone.clusters), zone.place, zone.is_known))


def _failures(section: Section) -> Mapping[str, str]:
    """Return the failures of a cluster by zone."""
    failures: dict[str, dict[str, None]] = defaultdict(dict)
    for incident in section.incidents:
        if incident.kind == "missing":
            for zone in incident.zones:
                failures[zone][incident.failure_class or "missing"] = None
    fenced = [fence.zone for fence in section.fences]
    fenced += [group.zone for pool in section.pools for group in pool.groups if group.state is State.FENCED]
    for zone in fenced:
        failures[zone]["fenced"] = None
    return {zone: ", ".join(texts) for zone, texts in failures.items()}


def _added_up(zones: Sequence[_Zone]) -> str:
    """Return the note that an entry may combine several zones with the same name; empty if no entry can."""
    return _ADDED_UP if any(not zone.is_known and len(zone.clusters) > 1 for zone in zones) else ""


def _sections_of(cause: CauseSummary, sections: Iterable[Section]) -> list[Section]:
    """Return the clusters that share a cause, the worst first."""
    by_name = {section.name: section for section in sections}
    return [by_name[cluster] for cluster in cause.clusters if cluster in by_name]


def _sharers(cause: CauseSummary) -> str:
    return sharers(len(cause.clusters), cause.pools)


def _severity(severity: str) -> str:
    """Return the severity as a CSS class; an unknown one looks like a warning."""
    return severity if severity in set(Severity) else Severity.WARNING.value


# The functions that templates call, by their names in the templates.
VIEWS: Mapping[str, Callable[..., Any]] = {
    "anchor": cluster_anchor,
    "incident_anchor": incident_anchor,
    "no_incident": _no_incident,
    "incident_kinds": _incident_kinds,
    "kinds": _kinds,
    "search_words": _search_words,
    "worst": _worst,
    "sections_of": _sections_of,
    "sharers": _sharers,
    "severity_class": _severity,
    "affected_zones": _affected_zones,
    "added_up": _added_up,
}
