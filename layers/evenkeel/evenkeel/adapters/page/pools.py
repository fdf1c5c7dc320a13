"""Describes the node counts of a pool in words, and computes the bars of its zones."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.adapters.page.view import GroupView, IncidentView, PoolView, Span
from evenkeel.domain.model.groups import State
from evenkeel.texts.english import counted

# The width of the longest bar, in per cent of the row. The remaining width is for the number after the bar.
_DRAWN = 70
# The most healthy pools that a page shows one by one, and the most pools whose cards are open.
_MOST_HEALTHY, _MOST_CARDS = 3, 10


@dataclass(frozen=True, kw_only=True)
class _Bar:
    """A bar of nodes. Lengths are in per cent of the row; an empty length draws nothing."""

    label: str  # for a screen reader
    number: str
    running: str
    waiting: str  # the requested nodes that do not run yet
    end: str
    marks: tuple[str, ...]  # the positions of min and max


def _bar(running: int | None, requested: Span, low: int | None, high: int | None, scale: int) -> _Bar:
    def per_cent(number: int) -> str:
        return f"{_DRAWN * max(0, number) / scale:.2f}%"

    wanted = requested.after
    solid = running if running is not None else wanted  # a plan does not report running nodes
    waiting = wanted - solid if solid is not None and wanted is not None else 0
    named = {"running": running, "requested": wanted, "min": low, "max": high}
    return _Bar(
        label=", ".join(f"{name} {number}" for name, number in named.items() if number is not None),
        number=(f"{running} of " if running is not None else "") + _change(requested),
        running=per_cent(solid) if solid else "",
        waiting=per_cent(waiting) if waiting > 0 else "",
        end=per_cent(max(solid or 0, wanted or 0)),
        marks=tuple(per_cent(mark) for mark in (low, high) if mark is not None),
    )


def _group_bar(group: GroupView, scale: int) -> _Bar:
    return _bar(group.running, group.requested, group.min.after, group.max.after, scale)


def _bar_scale(pool: PoolView) -> int:
    """Return the number of nodes that the longest possible bar of a pool shows."""
    numbers = [
        number
        for group in pool.groups
        for number in (
            group.running,
            group.requested.before,
            *(s.after for s in (group.requested, group.min, group.max)),
        )
    ]
    return max(1, *(number or 0 for number in numbers))


def _incident_bar(incident: IncidentView) -> _Bar:
    requested = Span(incident.requested, incident.requested)
    return _bar(incident.running, requested, None, None, max(1, incident.requested))


def _incident_nodes(incident: IncidentView) -> str:
    return _nodes(incident.running, Span(incident.requested, incident.requested), incident.missing)


def _pool_nodes(pool: PoolView) -> str:
    before = _sum(group.requested.before for group in pool.groups)
    after = _sum(group.requested.after for group in pool.groups)
    return _nodes(_sum(group.running for group in pool.groups), Span(before, after), pool.missing)


def _nodes(running: int | None, requested: Span, missing: int) -> str:
    """Return the nodes in words, such as: 7 of 10 running, 3 missing."""
    wanted = requested.before
    if running is None or wanted is None:
        text = f"{_number(wanted)} requested"
    else:
        wanted = max(wanted, running + missing)  # no group requests released replicas that are missing
        coming = wanted - running - missing
        text = f"{running} of {wanted} running"
        text += (f", {missing} missing" if missing else "") + (f", {coming} on their way" if coming > 0 else "")
    return text if requested.before == requested.after else f"{text}; to become {_number(requested.after)}"


def _pool_facts(pool: PoolView) -> list[tuple[str, str]]:
    requested = _sum(group.requested.after for group in pool.groups)
    facts = [("PoolMinimum", _number(pool.min)), ("PoolMaximum", _number(pool.max))]
    if pool.max is not None and requested is not None:
        facts.append(("headroom", str(max(0, pool.max - requested))))
    return facts


def _shared_notes(pool: PoolView) -> dict[str, list[str]]:
    """Return each note that several zones share, with these zones. The page shows such a note once."""
    zones = _by_note((note, group.zone) for group in pool.groups for note in group.notes)
    return {
        note: ["all zones"] if len(named) == len(pool.groups) else named
        for note, named in zones.items()
        if len(named) > 1
    }


def _notes_of_pools(pools: Sequence[PoolView]) -> dict[str, list[str]]:
    """Return each note about blocked groups that several pools share, with these pools. The page shows it once."""
    noted: list[tuple[str, str]] = []
    for pool in pools:
        held = [f"{group.zone}: {note}" for group in pool.groups for note in group.held]
        noted += [(note, pool.name) for note in dict.fromkeys((*pool.notes, *held))]
    return {note: named for note, named in _by_note(noted).items() if len(named) > 1}


def _told_here(group: GroupView, of_zones: Collection[str], of_pools: Collection[str]) -> list[str]:
    """Return the notes of a group that the page does not show once for several zones or pools."""
    return [note for note in group.notes if note not in of_zones and f"{group.zone}: {note}" not in of_pools]


def _by_note(noted: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = defaultdict(list)
    for note, name in noted:
        names[note].append(name)
    return names


@dataclass(frozen=True, kw_only=True)
class _Pools:
    """The pools of a cluster, as the page lists them."""

    open: Sequence[PoolView]  # one card each
    rows: Sequence[PoolView]  # a folded card each, because there are many
    healthy: Sequence[PoolView]  # folded together
    shared: Mapping[str, list[str]]  # notes of several of the pools that are not healthy


def _listed(pools: Sequence[PoolView]) -> _Pools:
    healthy = [pool for pool in pools if pool.is_healthy]
    folded = healthy if len(healthy) > _MOST_HEALTHY else []
    shown = [pool for pool in pools if pool not in folded]
    is_many = len(shown) > _MOST_CARDS
    return _Pools(
        open=[] if is_many else shown,
        rows=sorted(shown, key=lambda pool: -pool.missing) if is_many else [],
        healthy=folded,
        shared=_notes_of_pools(shown),
    )


def _healthy_text(pools: Sequence[PoolView]) -> str:
    nodes = _sum(group.running for pool in pools for group in pool.groups)
    return counted(len(pools), "healthy pool") + (f", {counted(nodes)}" if nodes is not None else "")


def _states(pool: PoolView) -> str:
    """Return the zones of a pool that are not healthy, each with its state."""
    return ", ".join(f"{group.zone} {group.state.value}" for group in pool.groups if group.state is not State.HEALTHY)


def _alike(incidents: Sequence[IncidentView]) -> list[list[IncidentView]]:
    """Return the incidents of a cluster in groups that need the same remedy."""
    groups: dict[tuple[str, str, str], list[IncidentView]] = defaultdict(list)
    for incident in incidents:
        groups[incident.severity, incident.todo, incident.runbook].append(incident)
    return list(groups.values())


def _alike_title(incidents: Sequence[IncidentView]) -> str:
    """Return the title of incidents that need the same remedy: their pools, missing nodes, failures and zones."""
    if len(incidents) == 1:
        return incidents[0].headline
    missing = sum(incident.missing for incident in incidents)
    failures = dict.fromkeys((incident.failure_class or incident.kind).replace("-", " ") for incident in incidents)
    zones = sorted({zone for incident in incidents for zone in incident.zones})
    title = (
        f"{counted(len(incidents), 'pool')}: {f'{counted(missing)} missing: ' if missing else ''}{', '.join(failures)}"
    )
    return title + (f" in {', '.join(zones)}" if zones else "")


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum; None if any of the numbers is unknown."""
    counts = list(numbers)
    return None if None in counts else sum(count for count in counts if count is not None)


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _change(span: Span) -> str:
    after = _number(span.after)
    return after if span.before == span.after else f"{_number(span.before)} → {after}"


# The functions that templates call, by their names in the templates.
VIEWS: Mapping[str, Callable[..., Any]] = {
    "bar_scale": _bar_scale,
    "change": _change,
    "group_bar": _group_bar,
    "incident_bar": _incident_bar,
    "incident_nodes": _incident_nodes,
    "pool_facts": _pool_facts,
    "pool_nodes": _pool_nodes,
    "shared_notes": _shared_notes,
    "told_here": _told_here,
    "listed": _listed,
    "healthy_text": _healthy_text,
    "unhealthy_states": _states,
    "alike": _alike,
    "alike_title": _alike_title,
}
