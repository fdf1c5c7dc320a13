"""Reads status answers in JSON, and returns the data of a page."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import chain, groupby
from typing import Any, TypeVar

from evenkeel.adapters.page.view import (
    Decision,
    Fence,
    Fleet,
    GroupView,
    History,
    IncidentView,
    Lane,
    Page,
    PoolView,
    Section,
    Span,
)
from evenkeel.application.actions.overview import CauseSummary, Overview
from evenkeel.application.actions.status import (
    GroupFailure,
    GroupStatus,
    ModeStatus,
    PoolStatus,
    StatusDocument,
    StoredGroup,
)
from evenkeel.application.plan_documents import (
    BoundChange,
    DecisionDocument,
    Document,
    GroupDocument,
    ReplicaChange,
    read_decisions,
    read_document,
)
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Rule
from evenkeel.texts.english import counted, without_request_ids
from evenkeel.validation import read_model

_Value = TypeVar("_Value")


class _AnyAnswer(Document):
    """What every answer about a cluster has. If ``ok`` is False, it has nothing else."""

    ok: bool = True
    cluster: str = ""
    message: str


class _Answers(Document):
    """The answers about all clusters, which were read for this page."""

    clusters: tuple[dict[str, Any], ...]
    causes: tuple[CauseSummary, ...] = ()


def page_of_status(answer: object, where: str, now: datetime) -> Page:
    """Return the page of a status answer about one cluster or about all clusters. Raises ConfigError."""
    fleet: Fleet | None = None
    if isinstance(answer, dict) and "counts" in answer:
        sections, fleet = _fleet(read_document(Overview, answer, where), where)
    elif isinstance(answer, dict) and "clusters" in answer:
        answers = read_document(_Answers, answer, where)
        found = [_status_section(each, f"{where}: clusters.{place}") for place, each in enumerate(answers.clusters)]
        sections = tuple(sorted(found, key=_worst_first))
        fleet = Fleet(causes=answers.causes)
    else:
        sections = (_status_section(answer, where),)
    return Page(title="Evenkeel status", source=where, at=now, sections=sections, fleet=fleet)


def _incidents(incidents: Sequence[Mapping[str, Any]], where: str) -> tuple[IncidentView, ...]:
    return tuple(
        read_model(IncidentView, incident, f"{where}: incidents.{place}") for place, incident in enumerate(incidents)
    )


def _shown(number: int | None) -> str:
    return "none" if number is None else str(number)


def _failure(failure: GroupFailure | StoredGroup) -> str:
    message = f": {without_request_ids(failure.message)}" if failure.message else ""
    return f"failure {failure.failures} in a row, {failure.failure_class}{message}"


def _span(number: ReplicaChange | BoundChange) -> Span:
    return Span(number.before, number.after)


def _group_view(group: GroupStatus, shown: Collection[str]) -> GroupView:
    """Return the view of a node group. ``shown``: messages of the cloud that the page already shows elsewhere."""
    is_new = group.failure and group.failure.message not in shown and group.state is not State.HEALTHY
    failure = [_failure(group.failure)] if group.failure and is_new else []
    return GroupView(
        name="/".join(part for part in (group.namespace, group.name) if part),
        zone=group.zone or "?",
        state=group.state,
        requested=_span(group.requested),
        min=_span(group.min),
        max=_span(group.max),
        running=group.running,
        since=group.since,
        until=group.until,
        held=(*failure, *group.held),
        notes=tuple(dict.fromkeys((*failure, *group.held, *group.reasons))),
    )


def pool_view(pool: PoolStatus, incidents: Sequence[IncidentView] = ()) -> PoolView:
    keys = {group.key for group in pool.groups}
    return PoolView(
        name=pool.name,
        strategy=pool.strategy,
        min=pool.min,
        max=pool.max,
        valid=pool.valid,
        is_healthy=pool.healthy,
        problems=pool.problems,
        groups=tuple(_group_view(group, {incident.said for incident in incidents}) for group in pool.groups),
        missing=sum(incident.missing for incident in incidents if not keys.isdisjoint(incident.groups)),
        demand=pool.demand.says if pool.demand else (),
        level=pool.level.says if pool.level else (),
        notes=pool.notes,
    )


def _decision_view(decision: DecisionDocument) -> Decision:
    groups = [group for group in decision.pool.groups if group.changes] or decision.pool.groups
    return Decision(
        at=decision.at,
        pool=decision.pool.name,
        title=f"{decision.cause}{', dry run: nothing was written' if decision.dry_run else ''}",
        lines=(*decision.pool.problems, *(_decision_line(group) for group in groups)),
    )


def _decision_line(group: GroupDocument) -> str:
    changes = (f"{name} {_shown(number.before)} → {_shown(number.after)}" for name, number in group.changes.items())
    outcome = f" ({group.outcome})" if group.outcome else ""
    return f"{group.zone or group.name}: {', '.join(changes) or 'as it was'}{outcome}: {'; '.join(group.reasons)}"


def _fleet(overview: Overview, where: str) -> tuple[tuple[Section, ...], Fleet]:
    incidents = [
        _incidents(cluster.incidents, f"{where}: clusters.{place}") for place, cluster in enumerate(overview.clusters)
    ]
    sections = tuple(
        Section(
            name=cluster.cluster,
            state=cluster.state,
            severity=cluster.severity,
            is_folded=cluster.folded,
            incidents=of_cluster,
            is_read=False,
            message="" if of_cluster else cluster.message,
            places=cluster.places,
        )
        for cluster, of_cluster in zip(overview.clusters, incidents, strict=True)
    )
    others = overview.others
    fleet = Fleet(
        well=tuple(others.get("well", ())),
        paused=tuple(others.get("paused", ())),
        dry_run=overview.counts.get("dryRun", 0),
        causes=tuple(overview.causes),
    )
    return sections, fleet


# The states of a zone's groups, the most urgent first.
_WORST = (State.UNHEALTHY, State.FENCED, State.PROBING, State.FROZEN, State.HEALTHY)
_ORDER = ("incident", "unseen", "paused", "well")


def _worst_first(section: Section) -> tuple[int, int]:
    """Return the sort key of a cluster that was read for this page. Clusters from stored health are already sorted."""
    return _ORDER.index(section.state), -section.missing


def _status_section(answer: object, where: str) -> Section:
    of_cluster = read_document(_AnyAnswer, answer, where)
    if not of_cluster.ok:
        name = of_cluster.cluster or "Cluster"
        return Section(name=name, state="incident", severity="warning", is_read=False, unread=of_cluster.message)
    modes, status = read_document(ModeStatus, answer, where), read_document(StatusDocument, answer, where)
    incidents, decisions = _incidents(status.incidents, where), read_decisions(status.decisions, where)
    groups = () if status.pools else tuple(_remembered(key, group) for key, group in sorted(status.groups.items()))
    unread = status.unread or ""
    has_incident = bool(incidents or unread)
    return Section(
        name=of_cluster.cluster or "Cluster",
        message="" if status.mode == "on" else status.mode or status.message,
        state="paused" if modes.paused else "incident" if has_incident else "well",
        severity=incidents[0].severity if incidents else "warning" if has_incident else "",
        incidents=incidents,
        unread="" if any(incident.said in unread for incident in incidents if incident.said) else unread,
        is_read=not unread,
        causes=tuple(status.causes),
        pools=tuple(pool_view(pool, incidents) for pool in status.pools),
        last_groups=groups,
        fences=tuple(_fences(status)),
        decisions=tuple(_decision_view(decision) for decision in decisions),
        histories=tuple(_past(decisions)),
        demand=status.demand.says if status.demand else (),
    )


def _fences(status: StatusDocument) -> Iterable[Fence]:
    """Yield each zone that is fenced as a whole, or in which a pool is, with the states of all its pools there."""
    impaired = {name: zone for name, zone in status.zones.items() if zone.impaired}
    pools: dict[str, list[list[GroupStatus]]] = {}  # by zone: the groups of each pool
    for pool in status.pools:
        of_zone: dict[str, list[GroupStatus]] = {}
        for group in pool.groups:
            of_zone.setdefault(group.zone or "?", []).append(group)
        for zone, groups in of_zone.items():
            pools.setdefault(zone, []).append(groups)
    fenced = {
        zone: [group for group in chain.from_iterable(groups) if group.state is State.FENCED]
        for zone, groups in pools.items()
    }
    for zone in sorted({*impaired, *(zone for zone, groups in fenced.items() if groups)}):
        word, ends = impaired.get(zone), [group.until for group in fenced.get(zone, ()) if group.until]
        yield Fence(
            zone=zone,
            until=word.impaired_until if word else min(ends, default=None),
            why=f"reported by {word.by or 'an event'}" if word else _cause(fenced[zone]),
            pools=_states(pools.get(zone, ())),
        )


def _cause(fenced: Sequence[GroupStatus]) -> str:
    """Return why groups are fenced in a zone that is not reported as impaired."""
    stopped = [group.facts(Rule.LAUNCHES_STOPPED) is not None for group in fenced]
    return "launches are stopped" if all(stopped) else "after failures"


def _states(pools: Sequence[Sequence[GroupStatus]]) -> str:
    """Return how many pools are in which state, the most urgent first. A pool's state is the worst of its groups."""
    worst = [next(state for state in _WORST if any(group.state is state for group in groups)) for groups in pools]
    counts = [f"{worst.count(state)} {state.value}" for state in _WORST if state in worst]
    return f"{counted(len(pools), 'pool')}: {', '.join(counts)}" if pools else ""


def _remembered(key: str, group: StoredGroup) -> GroupView:
    nothing = Span(None, None)
    return GroupView(
        name=key,
        zone="?",
        state=group.state,
        requested=nothing,
        min=nothing,
        max=nothing,
        until=group.backoff_until if group.state is State.FENCED else None,
        notes=(_failure(group),) if group.failures else (),
    )


def _past(decisions: Sequence[DecisionDocument]) -> Iterable[History]:
    """Yield a history of requested nodes for each pool with two or more decisions."""
    in_order = sorted(decisions, key=lambda decision: (decision.pool.name, decision.at))
    for name, of_pool in groupby(in_order, key=lambda decision: decision.pool.name):
        steps = list(of_pool)
        begin, seconds = steps[0].at, (steps[-1].at - steps[0].at) / timedelta(seconds=1)
        if seconds:
            samples = [
                ((step.at - begin) / timedelta(seconds=1), group.zone or group.name, group.requested.after, group.state)
                for step in steps
                for group in step.pool.groups
            ]
            yield History(
                pool=name,
                counts="requested",
                begin=begin,
                seconds=seconds,
                max=steps[-1].pool.max,
                lanes=lanes(samples),
            )


def lanes(samples: Iterable[tuple[float, str, int | None, State]]) -> tuple[Lane, ...]:
    """Return for each zone the sum of its groups' nodes and their worst state over time. Samples are sorted by time."""
    nodes: dict[str, dict[float, int]] = {}
    states: dict[str, dict[float, State]] = {}
    worst = list(State)[::-1]
    for at, zone, count, state in samples:
        counts, zone_states = nodes.setdefault(zone, {}), states.setdefault(zone, {})
        counts[at] = counts.get(at, 0) + max(0, count or 0)
        zone_states[at] = min(zone_states.get(at, state), state, key=worst.index)
    return tuple(Lane(zone=zone, nodes=_changes(nodes[zone]), states=_changes(states[zone])) for zone in sorted(nodes))


def _changes(samples: dict[float, _Value]) -> tuple[tuple[float, _Value], ...]:
    """Return the first sample, and each sample that differs from the sample before it."""
    return tuple(next(same) for _, same in groupby(samples.items(), key=lambda sample: sample[1]))
