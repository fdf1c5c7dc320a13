"""Plans, status answers and simulations as JSON has them, turned into the view of a page."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import PurePath
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, RootModel

from evenkeel.adapters.page.view import (
    Decision,
    Fence,
    Fleet,
    GroupView,
    History,
    IncidentView,
    Lane,
    OfferingView,
    Page,
    PoolView,
    Section,
    Span,
)
from evenkeel.adapters.page.words import duration
from evenkeel.application.plan_documents import (
    BoundChange,
    ClusterDemandDocument,
    DecisionDocument,
    GroupDocument,
    Number,
    PlanDocument,
    PlannedPoolDocument,
    ReplicaChange,
)
from evenkeel.domain.model.groups import State
from evenkeel.validation import Moment, read_json, read_model

_Value = TypeVar("_Value")
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


class _Read(BaseModel):
    # Answers grow fields; what a page does not show is no fault.
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True, defer_build=True)


class _Failure(_Read):
    kind: Text = Field(alias="class")
    failures: Number
    message: Text = ""


@dataclass(kw_only=True, slots=True)
class _Group(GroupDocument):
    """A group of a plan, and what a status answer has beside it."""

    running: Number | None = None
    since: Moment | None = None
    until: Moment | None = None
    failure: _Failure | None = None
    held: tuple[str, ...] = ()


@dataclass(kw_only=True, slots=True)
class _Pool(PlannedPoolDocument):
    groups: tuple[_Group, ...]


@dataclass(kw_only=True, slots=True)
class _Plan(PlanDocument):
    pools: tuple[_Pool, ...]


class _AnyPlan(RootModel[_Plan]):
    pass


class _Known(_Read):
    """A node group as the table knows it."""

    state: State
    kind: Text = Field(default="", alias="class")
    failures: Number = 0
    until: Moment | None = Field(default=None, alias="backoffUntil")
    message: Text = ""


class _Zone(_Read):
    until: Moment = Field(alias="impairedUntil")
    impaired: bool
    by: Text = ""


class _Incident(_Read):
    kind: str
    pool: Text = ""
    since: Moment
    zones: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    missing: Number = 0
    requested: Number = 0
    running: Number = 0
    outage: bool = False  # a release before this one does not say
    failure_class: Text = Field(default="", alias="class")
    said: Text = ""
    message: str
    headline: str = ""  # a release before this one has the message alone
    todo: str = ""
    command: str = ""
    runbook: str = ""

    def view(self) -> IncidentView:
        return IncidentView(
            headline=self.headline or self.message,
            kind=self.kind,
            since=self.since,
            pool=self.pool.rpartition("/")[2],
            zones=self.zones,
            failure_class=self.failure_class,
            missing=self.missing,
            requested=self.requested,
            running=self.running,
            is_outage=self.outage,
            said=self.said if self.headline else "",
            todo=self.todo,
            command=self.command,
            runbook=self.runbook,
        )


class _Status(_Read):
    ok: bool = True
    cluster: str = ""
    message: str
    headline: str = ""  # the message, without why nothing was read
    mode: str = ""  # a release before this one has it in the headline alone
    paused: bool = False
    unread: str = ""
    incidents: tuple[_Incident, ...] = ()
    demand: ClusterDemandDocument | None = None
    pools: tuple[_Pool, ...] = ()
    groups: dict[str, _Known] = {}
    zones: dict[str, _Zone] = {}
    decisions: tuple[DecisionDocument, ...] = ()


class _Statuses(_Read):
    clusters: tuple[_Status, ...]


class _Judged(_Read):
    """A cluster as its verdict has it."""

    cluster: str
    state: str
    looked_at: Moment | None = Field(default=None, alias="lookedAt")
    message: str = ""
    incidents: tuple[_Incident, ...] = ()
    places: dict[str, str] = {}


class _Others(_Read):
    well: tuple[str, ...] = ()
    paused: tuple[str, ...] = ()


class _Counts(_Read):
    dry_run: Number = Field(default=0, alias="dryRun")


class _Offering(_Read):
    offering: str
    clusters: tuple[str, ...] = ()
    since: Moment


class _Overview(_Read):
    clusters: tuple[_Judged, ...]
    others: _Others = _Others()
    counts: _Counts
    offerings: tuple[_Offering, ...] = ()


class _SimulatedGroup(_Read):
    name: str
    zone: Text = ""
    requested: Number
    running: Number
    min: Number | None = None
    max: Number | None = None
    state: State

    def view(self) -> GroupView:
        requested, low, high = (Span(number, number) for number in (self.requested, self.min, self.max))
        return GroupView(
            name=self.name,
            zone=self.zone or self.name,
            state=self.state,
            requested=requested,
            min=low,
            max=high,
            running=self.running,
        )


class _Sample(_Read):
    t: Seconds
    pool: str
    demand: Number = 0
    groups: tuple[_SimulatedGroup, ...]


class _SimulatedPool(_Read):
    name: str
    min: Number | None = None
    max: Number | None = None


class _SimulatedDecision(_Read):
    t: Seconds
    pool: str
    reasons: tuple[str, ...] = ()


class _Run(_Read):
    strategy: str
    measures: dict[str, Any] = {}
    pools: tuple[_SimulatedPool, ...]
    timeline: tuple[_Sample, ...]
    decisions: tuple[_SimulatedDecision, ...] = ()


class _Simulation(_Read):
    scenario: str
    start: Moment
    duration: Seconds
    runs: tuple[_Run, ...]


def page_of_plan(text: str, where: str) -> Page:
    """What `evenkeel plan -o json` printed. Raises ConfigError."""
    plan = read_json(_AnyPlan, text, where).root
    section = Section(
        name="Plan",
        pools=tuple(_pool_view(pool) for pool in plan.pools),
        demand=plan.demand.says if plan.demand else (),
        skipped=tuple(
            f"{'/'.join((skipped.namespace, skipped.name or '(no name)'))}: {skipped.reason}"
            for skipped in plan.skipped
        )
        + plan.refused,
    )
    return Page(title="Evenkeel plan", source=f"made from {_file(where)}", at=plan.now, sections=(section,))


def page_of_status(answer: object, where: str, now: datetime) -> Page:
    """The operator's status answer, of one cluster or of all. Raises ConfigError."""
    fleet: Fleet | None = None
    if isinstance(answer, dict) and "counts" in answer:
        sections, fleet = _fleet(read_model(_Overview, answer, where))
    elif isinstance(answer, dict) and "clusters" in answer:
        clusters = read_model(_Statuses, answer, where).clusters
        sections, fleet = tuple(sorted(map(_status_section, clusters), key=_worst_first)), Fleet()
    else:
        sections = (_status_section(read_model(_Status, answer, where)),)
    return Page(title="Evenkeel status", source=where, at=now, sections=sections, fleet=fleet)


def page_of_simulation(text: str, where: str) -> Page:
    """What `evenkeel simulate -o json` printed. Raises ConfigError."""
    simulation = read_json(_Simulation, text, where)
    return Page(
        title=f"Simulation {simulation.scenario}",
        source=f"made from {_file(where)}, {duration(simulation.duration)} of virtual time",
        at=simulation.start + timedelta(seconds=simulation.duration),
        sections=tuple(_run_section(run, simulation.duration) for run in simulation.runs),
    )


def _file(where: str) -> str:
    """Without its folder, which is nobody's business where the page is read."""
    return PurePath(where).name


def _shown(number: int | None) -> str:
    return "none" if number is None else str(number)


def _failure(failure: _Failure | _Known) -> str:
    message = f": {failure.message}" if failure.message else ""
    return f"failure {failure.failures} in a row, {failure.kind}{message}"


def _span(number: ReplicaChange | BoundChange) -> Span:
    return Span(number.before, number.after)


def _group_view(group: _Group, told: Collection[str]) -> GroupView:
    """``told``: words of a cloud that the page has already; the reasons for a state count failures themselves."""
    is_news = group.failure and group.failure.message not in told and group.state is not State.HEALTHY
    failure = [_failure(group.failure)] if group.failure and is_news else []
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
        notes=tuple(dict.fromkeys((*failure, *group.held, *group.reasons))),
    )


def _pool_view(pool: _Pool, incidents: Sequence[_Incident] = ()) -> PoolView:
    keys = {group.key for group in pool.groups}
    return PoolView(
        name=pool.name,
        strategy=pool.strategy,
        min=pool.min,
        max=pool.max,
        valid=pool.valid,
        problems=tuple(pool.problems),
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
    changes = [f"{name} {_shown(span.before)} → {_shown(span.after)}" for name, span in group.changes.items()]
    outcome = f" ({group.outcome})" if group.outcome else ""
    return f"{group.zone or group.name}: {', '.join(changes) or 'as it was'}{outcome}: {'; '.join(group.reasons)}"


def _fleet(overview: _Overview) -> tuple[tuple[Section, ...], Fleet]:
    sections = tuple(
        Section(
            name=cluster.cluster,
            state=cluster.state,
            incidents=tuple(incident.view() for incident in cluster.incidents),
            looked_at=cluster.looked_at,
            is_read=False,
            message="" if cluster.incidents else cluster.message,
            places=cluster.places,
        )
        for cluster in overview.clusters
    )
    offerings = tuple(
        OfferingView(name=offering.offering, clusters=offering.clusters, since=offering.since)
        for offering in overview.offerings
    )
    others = overview.others
    return sections, Fleet(well=others.well, paused=others.paused, dry_run=overview.counts.dry_run, offerings=offerings)


_ORDER = ("incident", "unseen", "paused", "well")


def _worst_first(section: Section) -> tuple[int, int]:
    """Verdicts come in order; what was read live is put in one: by what is missing."""
    return _ORDER.index(section.state), -section.missing


def _status_section(cluster: _Status) -> Section:
    if not cluster.ok:
        return Section(name=cluster.cluster or "Cluster", state="incident", is_read=False, unread=cluster.message)
    groups = () if cluster.pools else tuple(_remembered(key, group) for key, group in sorted(cluster.groups.items()))
    is_trouble = bool(cluster.incidents or cluster.unread)
    return Section(
        name=cluster.cluster or "Cluster",
        message="" if cluster.mode == "on" else cluster.mode or cluster.headline or cluster.message,
        state="paused" if cluster.paused else "incident" if is_trouble else "well",
        incidents=tuple(incident.view() for incident in cluster.incidents),
        unread=""
        if any(incident.said in cluster.unread for incident in cluster.incidents if incident.said)
        else cluster.unread,
        is_read=not cluster.unread,
        pools=tuple(_pool_view(pool, cluster.incidents) for pool in cluster.pools),
        remembered=groups,
        fences=tuple(
            Fence(zone=name, until=zone.until, why=f"said by {zone.by or 'an event'}")
            for name, zone in cluster.zones.items()
            if zone.impaired
        ),
        decisions=tuple(_decision_view(decision) for decision in cluster.decisions),
        histories=tuple(_past(cluster.decisions)),
        demand=cluster.demand.says if cluster.demand else (),
    )


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


def _past(decisions: Sequence[DecisionDocument]) -> Iterable[History]:
    """What the last decisions say of a pool's requested nodes, where there are two or more of them."""
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
                lanes=_lanes(samples),
            )


def _lanes(samples: Iterable[tuple[float, str, int | None, State]]) -> tuple[Lane, ...]:
    """Samples in order of time; groups of one zone are added up, and the worst of their states is shown."""
    nodes: dict[str, dict[float, int]] = {}
    states: dict[str, dict[float, State]] = {}
    worst = list(State)[::-1]
    for at, zone, count, state in samples:
        counts, zone_states = nodes.setdefault(zone, {}), states.setdefault(zone, {})
        counts[at] = counts.get(at, 0) + max(0, count or 0)
        zone_states[at] = min(zone_states.get(at, state), state, key=worst.index)
    return tuple(Lane(zone=zone, nodes=_changes(nodes[zone]), states=_changes(states[zone])) for zone in sorted(nodes))


def _changes(samples: dict[float, _Value]) -> tuple[tuple[float, _Value], ...]:
    """Samples without those that say what the one before them said."""
    return tuple(next(same) for _, same in groupby(samples.items(), key=lambda sample: sample[1]))


def _run_section(run: _Run, end: float) -> Section:
    views, histories = [], []
    for pool in run.pools:
        moments = sorted((moment for moment in run.timeline if moment.pool == pool.name), key=lambda moment: moment.t)
        last = moments[-1].groups if moments else ()
        groups = tuple(group.view() for group in last)
        views.append(PoolView(name=pool.name, strategy=run.strategy, min=pool.min, max=pool.max, groups=groups))
        seconds = max([end, *(moment.t for moment in moments)])
        if last and seconds:
            samples = [
                (m.t, group.zone or group.name, group.running, group.state) for m in moments for group in m.groups
            ]
            histories.append(
                History(
                    pool=pool.name,
                    counts="running",
                    begin=None,
                    seconds=seconds,
                    max=pool.max,
                    lanes=_lanes(samples),
                    demand=tuple((moment.t, max(0, moment.demand)) for moment in moments),
                )
            )
    return Section(
        name=run.strategy,
        message="at the end of the simulation",
        pools=tuple(views),
        histories=tuple(histories),
        decisions=tuple(
            Decision(at=decision.t, pool=decision.pool, title="", lines=decision.reasons) for decision in run.decisions
        ),
        measures=tuple(_measures(run.measures)),
    )


def _measures(measures: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Those that are one number or word, named as in the JSON; what took seconds is told as a duration."""
    for name, value in measures.items():
        if name == "worst_seconds":  # null where some demand was never met, or there was none
            yield "demand met within", duration(value) if isinstance(value, int) else "-"
        elif value is None or isinstance(value, str | int | float):
            yield name.replace("_", " "), "-" if value is None else str(value)
