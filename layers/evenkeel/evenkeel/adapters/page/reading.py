"""Plans, status answers and simulations as JSON has them, turned into the view of a page."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import PurePath
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from evenkeel.adapters.page.view import (
    Decision,
    Fence,
    GroupView,
    History,
    Lane,
    Page,
    PoolView,
    Section,
    Span,
)
from evenkeel.adapters.page.words import duration
from evenkeel.config import Moment, read_json, read_model
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.values import LARGEST_COUNT

Number = Annotated[int, Field(ge=-LARGEST_COUNT, le=LARGEST_COUNT, strict=True)]
_Value = TypeVar("_Value")
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


class _Read(BaseModel):
    # Answers grow fields; what a page does not show is no fault.
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class _Span(_Read):
    before: Number | None = Field(alias="from")
    after: Number | None = Field(alias="to")

    def view(self) -> Span:
        return Span(self.before, self.after)


class _Failure(_Read):
    kind: Text = Field(alias="class")
    failures: Number
    message: Text = ""


class _Group(_Read):
    namespace: Text = ""
    name: str
    zone: Text = ""
    state: State
    requested: _Span
    min: _Span
    max: _Span
    reasons: tuple[str, ...] = ()
    running: Number | None = None
    since: Moment | None = None
    until: Moment | None = None
    failure: _Failure | None = None
    held: tuple[str, ...] = ()
    outcome: str = ""

    def view(self) -> GroupView:
        failure = [_failure(self.failure)] if self.failure and self.state is not State.HEALTHY else []
        return GroupView(
            name="/".join(part for part in (self.namespace, self.name) if part),
            zone=self.zone or "?",
            state=self.state,
            requested=self.requested.view(),
            min=self.min.view(),
            max=self.max.view(),
            running=self.running,
            since=self.since,
            until=self.until,
            notes=tuple(dict.fromkeys((*failure, *self.held, *self.reasons))),
        )

    def told(self) -> str:
        """One line of a decision."""
        changes = [
            f"{name} {_shown(span.before)} → {_shown(span.after)}"
            for name, span in (("requested", self.requested), ("min", self.min), ("max", self.max))
            if span.before != span.after
        ]
        outcome = f" ({self.outcome})" if self.outcome else ""
        return f"{self.zone or self.name}: {', '.join(changes) or 'as it was'}{outcome}: {'; '.join(self.reasons)}"

    @property
    def changes(self) -> bool:
        return any(span.before != span.after for span in (self.requested, self.min, self.max))


class _Pool(_Read):
    name: str
    strategy: Text = ""
    min: Number | None = None
    max: Number | None = None
    valid: bool = True
    problems: tuple[str, ...] = ()
    starved: Number = 0
    overcommitted: bool = False
    groups: tuple[_Group, ...]

    def view(self) -> PoolView:
        more = []
        if self.starved:
            more.append(f"starved: {self.starved} of the requested nodes find no zone that may take them")
        if self.overcommitted:
            more.append("over-committed: more is requested than PoolMaximum, so that no zone may grow")
        return PoolView(
            name=self.name,
            strategy=self.strategy,
            min=self.min,
            max=self.max,
            valid=self.valid,
            problems=(*self.problems, *more),
            groups=tuple(group.view() for group in self.groups),
        )


class _Skipped(_Read):
    namespace: Text = ""
    name: Text = ""
    reason: str


class _Plan(_Read):
    now: Moment
    pools: tuple[_Pool, ...]
    skipped: tuple[_Skipped, ...] = ()
    refused: tuple[str, ...] = ()


class _Decided(_Read):
    at: Moment
    cause: Text = ""
    dry_run: bool = Field(default=False, alias="dryRun")
    pool: _Pool

    def view(self) -> Decision:
        changed = [group for group in self.pool.groups if group.changes] or self.pool.groups
        return Decision(
            at=self.at,
            pool=self.pool.name,
            title=f"{self.cause}{', dry run: nothing was written' if self.dry_run else ''}",
            lines=(*self.pool.problems, *(group.told() for group in changed)),
        )


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


class _Status(_Read):
    ok: bool = True
    cluster: str = ""
    message: str
    unread: str = ""
    pools: tuple[_Pool, ...] = ()
    groups: dict[str, _Known] = {}
    zones: dict[str, _Zone] = {}
    decisions: tuple[_Decided, ...] = ()


class _Statuses(_Read):
    clusters: tuple[_Status, ...]


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
    plan = read_json(_Plan, text, where)
    section = Section(
        name="Plan",
        pools=tuple(pool.view() for pool in plan.pools),
        fences=_fences(plan.pools),
        skipped=tuple(f"{'/'.join((one.namespace, one.name or '(no name)'))}: {one.reason}" for one in plan.skipped)
        + plan.refused,
    )
    return Page(title="Evenkeel plan", source=f"made from {_file(where)}", at=plan.now, sections=(section,))


def page_of_status(answer: object, where: str, now: datetime) -> Page:
    """The operator's status answer, of one cluster or of all. Raises ConfigError."""
    several = isinstance(answer, dict) and "clusters" in answer
    clusters = read_model(_Statuses, answer, where).clusters if several else (read_model(_Status, answer, where),)
    return Page(
        title="Evenkeel status", source=where, at=now, sections=tuple(_status_section(cluster) for cluster in clusters)
    )


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
    return "standard input" if where == "-" else PurePath(where).name


def _shown(number: int | None) -> str:
    return "none" if number is None else str(number)


def _failure(failure: _Failure | _Known) -> str:
    said = f": {failure.message}" if failure.message else ""
    return f"failure {failure.failures} in a row, {failure.kind}{said}"


def _fences(pools: Iterable[_Pool], zones: dict[str, _Zone] | None = None) -> tuple[Fence, ...]:
    fences = [
        Fence(zone=zone, until=told.until, why=f"the whole zone, said by {told.by or 'an event'}")
        for zone, told in (zones or {}).items()
        if told.impaired
    ]
    for pool in pools:
        for group in pool.groups:
            if group.state is State.FENCED:
                why = _failure(group.failure) if group.failure else "; ".join(group.reasons)
                fences.append(
                    Fence(zone=group.zone or "?", until=group.until, why=f"pool {pool.name}, {group.name}: {why}")
                )
    return tuple(fences)


def _status_section(cluster: _Status) -> Section:
    if not cluster.ok:
        return Section(name=cluster.cluster or "Cluster", unread=cluster.message)
    known = () if cluster.pools else tuple(_remembered(key, group) for key, group in sorted(cluster.groups.items()))
    return Section(
        name=cluster.cluster or "Cluster",
        message=cluster.message.removesuffix(f"; not read: {cluster.unread}"),
        unread=cluster.unread,
        pools=tuple(pool.view() for pool in cluster.pools),
        remembered=known,
        fences=_fences(cluster.pools, cluster.zones),
        decisions=tuple(decided.view() for decided in cluster.decisions),
        histories=tuple(_past(cluster.decisions)),
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


def _past(decisions: Sequence[_Decided]) -> Iterable[History]:
    """What the last decisions say of a pool's requested nodes, where there are two or more of them."""
    in_order = sorted(decisions, key=lambda decided: (decided.pool.name, decided.at))
    for name, found in groupby(in_order, key=lambda decided: decided.pool.name):
        steps = list(found)
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
        counts, seen = nodes.setdefault(zone, {}), states.setdefault(zone, {})
        counts[at] = counts.get(at, 0) + max(0, count or 0)
        seen[at] = min(seen.get(at, state), state, key=worst.index)
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
        decisions=tuple(Decision(at=one.t, pool=one.pool, title="", lines=one.reasons) for one in run.decisions),
        measures=tuple(_measures(run.measures)),
    )


def _measures(measures: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Those that are one number or word, named as in the JSON; what took seconds is told as a duration."""
    for name, value in measures.items():
        if name == "worst_seconds":  # null where some demand was never met, or there was none
            yield "demand met within", duration(value) if isinstance(value, int) else "-"
        elif value is None or isinstance(value, str | int | float):
            yield name.replace("_", " "), "-" if value is None else str(value)
