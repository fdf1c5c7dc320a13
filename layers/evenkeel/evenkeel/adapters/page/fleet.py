"""The first screen where many clusters are shown: which are in trouble, the worst first, and which zones hurt whom."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

from evenkeel.adapters.page.html import Html, el, joined
from evenkeel.adapters.page.view import Fleet, Page, Section
from evenkeel.adapters.page.words import duration, moment
from evenkeel.application.offerings.sharing import OWN_ACCOUNT
from evenkeel.domain.model.groups import State
from evenkeel.texts.english import counted
from evenkeel.texts.pool_numbers import MOST_NAMED

_STATES = {"unseen": "not looked at yet", "paused": "paused", "well": "well"}


def anchor(cluster: str) -> str:
    """Where the card of a cluster stands on the page; the same in whoever links to it."""
    return f"cluster-{quote(cluster, safe='')}"


def first_screen(page: Page, fleet: Fleet, *, linked: bool) -> Html:
    """``linked``: whether cards can be jumped to; a console around a widget has other uses for links."""
    is_failing = [section for section in page.sections if section.state in ("incident", "unseen")]
    return joined(
        _search(page.sections) if linked else None,
        _clusters(page.at, is_failing, linked) if is_failing else el("p", _no_incident(page, fleet), class_="card"),
        _zones(page.sections, linked),
        _offerings(page, fleet) if fleet.offerings else None,
        _others("paused", fleet.paused),
        _others("well", fleet.well),
    )


def headline(page: Page, fleet: Fleet) -> str:
    """Never says well of what was not read."""
    states = [section.state for section in page.sections]
    counts = {state: states.count(state) for state in ("incident", *_STATES)}
    counts["paused"] += len(fleet.paused)
    counts["well"] += len(fleet.well)
    known = sum(counts.values())
    parts = [f"{counts['incident']} of {counted(known, 'cluster')} in trouble"]
    is_failing = [section for section in page.sections if section.state == "incident"]
    if missing := sum(section.missing for section in is_failing):
        parts[0] += f", {counted(missing)} missing"
    if out := sum(section.outages for section in is_failing):
        parts.append(outage_words(out))
    parts += [f"{counts[state]} {words}" for state, words in _STATES.items() if counts[state]]
    if fleet.dry_run:
        parts.append(f"{fleet.dry_run} in dry run")
    return "; ".join(parts)


def outage_words(pools: int) -> str:
    """Of pools that no zone is known to deliver for: all are fenced, or only tried again."""
    return f"outage: no zone is known to deliver for {counted(pools, 'pool')}"


def found_by(section: Section) -> dict[str, str]:
    """What search and filter know a cluster's row and card by."""
    words = [section.name]
    for incident in section.incidents:
        words += [incident.pool, incident.kind, incident.failure_class, *incident.zones]
    words += [word for pool in section.pools for word in (pool.name, *(group.zone for group in pool.groups))]
    kinds = dict.fromkeys(incident.kind for incident in section.incidents) or [section.state]
    return {"data_find": " ".join(dict.fromkeys(words)).lower(), "data_kinds": " ".join(kinds)}


def _no_incident(page: Page, fleet: Fleet) -> str:
    if not page.sections and not fleet.well and not fleet.paused:
        return "No cluster is registered: evenkeel register --stack NAME --cluster ID --record FILE"
    return "Nothing is in trouble: every cluster that is not paused was looked at lately, and misses nothing."


def _search(sections: Iterable[Section]) -> Html:
    kinds = dict.fromkeys(incident.kind for section in sections for incident in section.incidents)
    options = [el("option", kind.replace("-", " "), value=kind) for kind in kinds]
    return el(
        "div",
        el("label", "Search ", el("input", id="find", type="search", placeholder="cluster, pool, zone")),
        el("label", "Trouble ", el("select", el("option", "any", value=""), *options, id="kind")),
        el("span", id="found", role="status", class_="soft"),
        class_="tools",
        hidden="",  # until the script is there that it needs
    )


def _name(cluster: str, linked: bool) -> Html:
    return el("a", cluster, href=f"#{anchor(cluster)}") if linked else joined(cluster)


def _clusters(at: datetime, sections: Iterable[Section], linked: bool) -> Html:
    rows = []
    for section in sections:
        cells = [el("td", words, role="cell") for words in _worst(section, at)]
        name = el("th", _name(section.name, linked), scope="row", role="rowheader")
        rows.append(el("tr", name, *cells, role="row", **found_by(section)))
    return _table("Clusters in trouble", ("cluster", "incident", "nodes", "for"), rows)


def _worst(section: Section, at: datetime) -> tuple[str, str, str]:
    """What is wrong, how many nodes are missing, and for how long."""
    if not section.incidents:
        unknown = "not readable" if section.unread else f"{section.message}; the answer had no room for more"
        return _STATES.get(section.state, unknown), "", ""
    worst, more = section.incidents[0], len(section.incidents) - 1
    return (
        worst.label + (f" (+{more})" if more else ""),
        f"{worst.missing} of {worst.requested} missing" if worst.missing else "",
        duration(max(0.0, (at - worst.since).total_seconds())),
    )


def _table(title: str, columns: Iterable[str], rows: Iterable[Html], note: str = "") -> Html:
    # The roles are spelled out: on a phone rows are laid out as blocks, and browsers forget that it is a table.
    head = [el("th", column, scope="col", role="columnheader") for column in columns]
    table = el(
        "table",
        el("thead", el("tr", *head, role="row"), role="rowgroup"),
        el("tbody", *rows, role="rowgroup"),
        role="table",
        aria_label=title,
    )
    below = el("p", note, class_="soft") if note else None
    return el("section", el("h2", title), table, below, class_="card rows", aria_label=title)


@dataclass
class _Zone:
    """One zone, or several of one name that nobody can tell apart."""

    names: dict[str, None] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)  # what is wrong there


def _zones(sections: Iterable[Section], linked: bool) -> Html | None:
    """Which zone hurts whom, the one that hurts most clusters first."""
    hurt: dict[tuple[str, bool], _Zone] = defaultdict(_Zone)
    for section in sections:
        for name, words in _hurt_in(section).items():
            zone = hurt[section.places.get(name, name), name in section.places]
            zone.names[name] = None
            zone.clusters[section.name] = words
    if not hurt:
        return None
    rows = []
    for (place, _), zone in sorted(hurt.items(), key=lambda each: (-len(each[1].clusters), each[0])):
        cells = [
            el("th", _zone_words(place, zone), scope="row", role="rowheader"),
            el("td", counted(len(zone.clusters), "cluster"), role="cell", class_="nowrap"),
            el("td", _named(zone.clusters, linked), role="cell"),
        ]
        rows.append(el("tr", *cells, role="row", data_find=" ".join((place, *zone.names, *zone.clusters)).lower()))
    is_added_up = any(not is_known and len(zone.clusters) > 1 for (_, is_known), zone in hurt.items())
    return _table("Zones", ("zone", "hurts", "which"), rows, _ADDED_UP if is_added_up else "")


_ADDED_UP = (
    "A zone without an id or an account is added up by its name, which others may have for another zone: "
    "zone_ids and account in the clusters' records tell them apart."
)


def _zone_words(place: str, zone: _Zone) -> str:
    """Its name; where accounts differ, the id that they share or whose name it is."""
    account, slash, name = place.rpartition("/")
    if slash:
        return name if account == OWN_ACCOUNT else f"{name} of {account}"
    return place if place in zone.names else f"{place} ({', '.join(sorted(zone.names))})"


def _hurt_in(section: Section) -> Mapping[str, str]:
    """By zone, what is wrong there."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for incident in section.incidents:
        if incident.kind == "missing":
            for zone in incident.zones:
                found[zone][incident.failure_class or "missing"] = None
    for fence in section.fences:
        found[fence.zone]["fenced"] = None
    for pool in section.pools:
        for group in pool.groups:
            if group.state is State.FENCED:
                found[group.zone]["fenced"] = None
    return {zone: ", ".join(words) for zone, words in found.items()}


def _named(clusters: Mapping[str, str], linked: bool) -> Html:
    """The first of them, each with what is wrong there."""
    parts: list[Html | str] = []
    for name in list(clusters)[:MOST_NAMED]:
        parts += [", " if parts else "", _name(name, linked), f" ({clusters[name]})"]
    if len(clusters) > MOST_NAMED:
        parts.append(f" and {len(clusters) - MOST_NAMED} more")
    return joined(*parts)


def _offerings(page: Page, fleet: Fleet) -> Html:
    rows = []
    for offering in fleet.offerings:
        clusters = [cluster or "one that is not named" for cluster in offering.clusters]
        cells = [
            el("th", offering.name, scope="row", role="rowheader"),
            el("td", ", ".join(clusters), role="cell"),
            el("td", moment(offering.since, beside=page.at), role="cell"),
        ]
        rows.append(el("tr", *cells, role="row", data_find=" ".join((offering.name, *clusters)).lower()))
    return _table("Machine types that are not to be had", ("offering", "for", "since"), rows)


def _others(state: str, clusters: tuple[str, ...]) -> Html | None:
    """Only names: nothing is wrong with them."""
    if not clusters:
        return None
    names = [el("li", cluster, data_find=cluster.lower(), data_kinds=state) for cluster in clusters]
    summary = el("summary", f"{counted(len(clusters), 'cluster')} {_STATES[state]}")
    return el("details", summary, el("ul", *names, class_="names"), class_="card others")
