"""Reads status answers in JSON, and returns the data of a page."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import chain, groupby
from typing import Any, TypeVar

from pydantic import Field

from evenkeel.adapters.page.view import (
    Answer,
    CauseView,
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
    Text,
)
from evenkeel.application.plan_documents import Number
from evenkeel.domain.model.groups import State
from evenkeel.texts.english import counted, without_request_ids
from evenkeel.validation import Count, Moment, read_model

_Value = TypeVar("_Value")


class _Failure(Answer):
    kind: Text = Field(alias="class")
    failures: Number
    message: Text = ""


class _Replicas(Answer):
    before: Count = Field(alias="from")
    after: Count = Field(alias="to")


class _Bound(Answer):
    before: Number | None = Field(alias="from")
    after: Number | None = Field(alias="to")


class _Group(Answer):
    """A node group of a plan, a decision or a status answer. Each has only some of the fields with defaults."""

    flavour: str
    namespace: str
    name: str
    zone: str | None
    state: State
    requested: _Replicas
    min: _Bound
    max: _Bound
    reasons: tuple[str, ...] = ()
    rules: tuple[dict[str, Any], ...] = ()
    outcome: str | None = None
    result: str | None = None
    running: Number | None = None
    since: Moment | None = None
    until: Moment | None = None
    failure: _Failure | None = None
    held: tuple[str, ...] = ()


class Says(Answer):
    """A part of an answer of which the page shows only the sentences."""

    says: tuple[str, ...] = ()


class Pool(Answer):
    """A pool of a plan. To read all of ``PlannedPoolDocument`` would take three times as long at a cold start."""

    name: str
    strategy: str
    min: Number | None
    max: Number | None
    valid: bool = True
    healthy: bool = False
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    groups: tuple[_Group, ...]
    demand: Says | None = None
    level: Says | None = None


class _DecidedPool(Answer):
    name: str
    max: Number | None
    problems: tuple[str, ...] = ()
    groups: tuple[_Group, ...]


class _Decision(Answer):
    at: Moment
    cause: Text = ""
    dry_run: bool = Field(default=False, alias="dryRun")
    pool: _DecidedPool


class _Known(Answer):
    """A node group as the DynamoDB table stores it."""

    state: State
    kind: Text = Field(default="", alias="class")
    failures: Number = 0
    until: Moment | None = Field(default=None, alias="backoffUntil")
    message: Text = ""


class _Zone(Answer):
    until: Moment = Field(alias="impairedUntil")
    impaired: bool
    by: Text = ""


class _Status(Answer):
    ok: bool = True
    cluster: str = ""
    message: str
    mode: str = ""
    paused: bool = False
    unread: str = ""
    incidents: tuple[IncidentView, ...] = ()
    causes: tuple[CauseView, ...] = ()
    demand: Says | None = None
    pools: tuple[Pool, ...] = ()
    groups: dict[str, _Known] = Field(default_factory=dict)
    zones: dict[str, _Zone] = Field(default_factory=dict)
    decisions: tuple[_Decision, ...] = ()


class _Statuses(Answer):
    clusters: tuple[_Status, ...]
    causes: tuple[CauseView, ...] = ()


class _ClusterHealth(Answer):
    """A cluster as its stored health describes it."""

    cluster: str
    state: str
    severity: str = ""
    folded: bool = False
    message: str = ""
    incidents: tuple[IncidentView, ...] = ()
    places: dict[str, str] = Field(default_factory=dict)


class _Others(Answer):
    well: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()


class _Counts(Answer):
    dry_run: Number = Field(default=0, alias="dryRun")


class _Overview(Answer):
    causes: tuple[CauseView, ...] = ()
    clusters: tuple[_ClusterHealth, ...]
    others: _Others = Field(default_factory=_Others)
    counts: _Counts


def page_of_status(answer: object, where: str, now: datetime) -> Page:
    """Return the page of a status answer about one cluster or about all clusters. Raises ConfigError."""
    fleet: Fleet | None = None
    if isinstance(answer, dict) and "counts" in answer:
        sections, fleet = _fleet(read_model(_Overview, answer, where))
    elif isinstance(answer, dict) and "clusters" in answer:
        statuses = read_model(_Statuses, answer, where)
        sections = tuple(sorted(map(_status_section, statuses.clusters), key=_worst_first))
        fleet = Fleet(causes=statuses.causes)
    else:
        sections = (_status_section(read_model(_Status, answer, where)),)
    return Page(title="Evenkeel status", source=where, at=now, sections=sections, fleet=fleet)


def _shown(number: int | None) -> str:
    return "none" if number is None else str(number)


def _failure(failure: _Failure | _Known) -> str:
    message = f": {without_request_ids(failure.message)}" if failure.message else ""
    return f"failure {failure.failures} in a row, {failure.kind}{message}"


def _span(number: _Replicas | _Bound) -> Span:
    return Span(number.before, number.after)


def _group_view(group: _Group, shown: Collection[str]) -> GroupView:
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


def pool_view(pool: Pool, incidents: Sequence[IncidentView] = ()) -> PoolView:
    keys = {f"{group.flavour}/{group.namespace}/{group.name}" for group in pool.groups}
    return PoolView(
        name=pool.name,
        strategy=pool.strategy,
        min=pool.min,
        max=pool.max,
        valid=pool.valid,
        is_healthy=pool.healthy,
        problems=tuple(pool.problems),
        groups=tuple(_group_view(group, {incident.said for incident in incidents}) for group in pool.groups),
        missing=sum(incident.missing for incident in incidents if not keys.isdisjoint(incident.groups)),
        demand=pool.demand.says if pool.demand else (),
        level=pool.level.says if pool.level else (),
        notes=pool.notes,
    )


def _decision_view(decision: _Decision) -> Decision:
    groups = [group for group in decision.pool.groups if _changes_of(group)] or decision.pool.groups
    return Decision(
        at=decision.at,
        pool=decision.pool.name,
        title=f"{decision.cause}{', dry run: nothing was written' if decision.dry_run else ''}",
        lines=(*decision.pool.problems, *(_decision_line(group) for group in groups)),
    )


def _changes_of(group: _Group) -> str:
    """Return the numbers that change, in words."""
    numbers = (("requested", group.requested), ("min", group.min), ("max", group.max))
    changes = (
        f"{name} {_shown(number.before)} → {_shown(number.after)}"
        for name, number in numbers
        if number.before != number.after
    )
    return ", ".join(changes)


def _decision_line(group: _Group) -> str:
    outcome = f" ({group.outcome})" if group.outcome else ""
    return f"{group.zone or group.name}: {_changes_of(group) or 'as it was'}{outcome}: {'; '.join(group.reasons)}"


def _fleet(overview: _Overview) -> tuple[tuple[Section, ...], Fleet]:
    sections = tuple(
        Section(
            name=cluster.cluster,
            state=cluster.state,
            severity=cluster.severity,
            is_folded=cluster.folded,
            incidents=cluster.incidents,
            is_read=False,
            message="" if cluster.incidents else cluster.message,
            places=cluster.places,
        )
        for cluster in overview.clusters
    )
    others, dry_run = overview.others, overview.counts.dry_run
    fleet = Fleet(
        well=others.well,
        paused=others.paused,
        dry_run=dry_run,
        causes=overview.causes,
    )
    return sections, fleet


# The states of a zone's groups, the most urgent first.
_WORST = (State.FENCED, State.PROBING, State.FROZEN, State.HEALTHY)
_ORDER = ("incident", "unseen", "paused", "well")


def _worst_first(section: Section) -> tuple[int, int]:
    """Return the sort key of a cluster that was read for this page. Clusters from stored health are already sorted."""
    return _ORDER.index(section.state), -section.missing


def _status_section(cluster: _Status) -> Section:
    if not cluster.ok:
        name = cluster.cluster or "Cluster"
        return Section(name=name, state="incident", severity="warning", is_read=False, unread=cluster.message)
    groups = () if cluster.pools else tuple(_remembered(key, group) for key, group in sorted(cluster.groups.items()))
    has_incident = bool(cluster.incidents or cluster.unread)
    return Section(
        name=cluster.cluster or "Cluster",
        message="" if cluster.mode == "on" else cluster.mode or cluster.message,
        state="paused" if cluster.paused else "incident" if has_incident else "well",
        severity=cluster.incidents[0].severity if cluster.incidents else "warning" if has_incident else "",
        incidents=cluster.incidents,
        unread=""
        if any(incident.said in cluster.unread for incident in cluster.incidents if incident.said)
        else cluster.unread,
        is_read=not cluster.unread,
        causes=cluster.causes,
        pools=tuple(pool_view(pool, cluster.incidents) for pool in cluster.pools),
        last_groups=groups,
        fences=tuple(_fences(cluster)),
        decisions=tuple(_decision_view(decision) for decision in cluster.decisions),
        histories=tuple(_past(cluster.decisions)),
        demand=cluster.demand.says if cluster.demand else (),
    )


def _fences(cluster: _Status) -> Iterable[Fence]:
    """Yield each zone that is fenced as a whole, or in which a pool is, with the states of all its pools there."""
    impaired = {name: zone for name, zone in cluster.zones.items() if zone.impaired}
    pools: dict[str, list[list[_Group]]] = {}  # by zone: the groups of each pool
    for pool in cluster.pools:
        of_zone: dict[str, list[_Group]] = {}
        for group in pool.groups:
            of_zone.setdefault(group.zone or "?", []).append(group)
        for zone, groups in of_zone.items():
            pools.setdefault(zone, []).append(groups)
    fenced = {
        zone: [group for group in chain.from_iterable(groups) if group.state is State.FENCED]
        for zone, groups in pools.items()
    }
    for zone in sorted({*impaired, *(zone for zone, groups in fenced.items() if groups)}):
        word = impaired.get(zone)
        yield Fence(
            zone=zone,
            until=word.until if word else min((group.until for group in fenced[zone] if group.until), default=None),
            why=f"reported by {word.by or 'an event'}" if word else "after failures",
            pools=_states(pools.get(zone, ())),
        )


def _states(pools: Sequence[Sequence[_Group]]) -> str:
    """Return how many pools are in which state, the most urgent first. A pool's state is the worst of its groups."""
    worst = [next(state for state in _WORST if any(group.state is state for group in groups)) for groups in pools]
    counts = [f"{worst.count(state)} {state.value}" for state in _WORST if state in worst]
    return f"{counted(len(pools), 'pool')}: {', '.join(counts)}" if pools else ""


def _remembered(key: str, group: _Known) -> GroupView:
    nothing = Span(None, None)
    return GroupView(
        name=key,
        zone="?",
        state=group.state,
        requested=nothing,
        min=nothing,
        max=nothing,
        until=group.until if group.state is State.FENCED else None,
        notes=(_failure(group),) if group.failures else (),
    )


def _past(decisions: Sequence[_Decision]) -> Iterable[History]:
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
