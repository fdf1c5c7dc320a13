"""Returns the pages of plans, simulations and forecasts that the command line has printed as JSON."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import ConfigDict, Field, RootModel

from evenkeel.adapters.page.reading import lanes, pool_view
from evenkeel.adapters.page.view import Answer, Decision, GroupView, History, Page, PoolView, Section, Span, Table, Text
from evenkeel.application.actions.status import PoolStatus
from evenkeel.application.plan_documents import Number, PlanDocument, read_document
from evenkeel.domain.model.groups import State
from evenkeel.texts.english import duration
from evenkeel.validation import Moment, parse_json, read_json

_MOST_OWNERS = 100  # of pods on the page of a forecast, those with the longest waits; the JSON has all
Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class _Plan(PlanDocument):
    """A plan. Its pools are read as those of a status, without what a status adds."""

    pools: tuple[PoolStatus, ...]


class _SimulatedGroup(Answer):
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


class _Sample(Answer):
    t: Seconds
    demand: Number = 0
    groups: tuple[_SimulatedGroup, ...]


class _SampleOfPool(_Sample):
    pool: str


class _SimulatedPool(Answer):
    name: str
    min: Number | None = None
    max: Number | None = None


class _SimulatedDecision(Answer):
    t: Seconds
    pool: str
    reasons: tuple[str, ...] = ()


class _Run(Answer):
    strategy: str
    measures: dict[str, Any] = Field(default_factory=dict)
    pools: tuple[_SimulatedPool, ...]
    timeline: tuple[_SampleOfPool, ...]
    decisions: tuple[_SimulatedDecision, ...] = ()


class _Simulation(Answer):
    scenario: str
    start: Moment
    duration: Seconds
    runs: tuple[_Run, ...]


class _ForecastPool(_SimulatedPool):
    timeline: tuple[_Sample, ...]


class _Waits(Answer):
    owner: str
    pods: Number
    longest: Seconds | None = None
    never: Number = Field(alias="withoutPlace")


class _Cost(Answer):
    pool: str
    nodes: Number
    more: Number
    only: Number
    possible: bool


class _Forecast(Answer):
    cluster: str = ""
    now: Moment
    zone: str
    seconds: Seconds
    survives: bool
    says: tuple[str, ...] = ()
    pods: tuple[_Waits, ...] = ()
    bound: dict[str, Number] = Field(default_factory=dict)
    pools: tuple[_ForecastPool, ...] = ()
    costs: tuple[_Cost, ...] = Field(default=(), alias="costOfSurviving")


class _Forecasts(Answer):
    clusters: tuple[_Forecast, ...]
    unread: dict[str, str] = Field(default_factory=dict)


class _AnyForecast(RootModel[_Forecasts | _Forecast]):
    model_config = ConfigDict(defer_build=True)


def page_of_plan(text: str, where: str) -> Page:
    """Return the page of a plan that `evenkeel plan -o json` has printed. Raises ConfigError."""
    plan = read_document(_Plan, parse_json(text, where), where)
    section = Section(
        name="Plan",
        pools=tuple(pool_view(pool) for pool in plan.pools),
        demand=plan.demand.says if plan.demand else (),
        skipped=tuple(
            f"{'/'.join((skipped.namespace, skipped.name or '(no name)'))}: {skipped.reason}"
            for skipped in plan.skipped
        )
        + plan.refused,
    )
    return Page(title="Evenkeel plan", source=f"made from {_file(where)}", at=plan.now, sections=(section,))


def page_of_simulation(text: str, where: str) -> Page:
    """Return the page of a simulation that `evenkeel simulate -o json` has printed. Raises ConfigError."""
    simulation = read_json(_Simulation, text, where)
    return Page(
        title=f"Simulation {simulation.scenario}",
        source=f"made from {_file(where)}, {duration(simulation.duration)} of virtual time",
        at=simulation.start + timedelta(seconds=simulation.duration),
        sections=tuple(_run_section(run, simulation.duration) for run in simulation.runs),
    )


def page_of_forecast(text: str, where: str) -> Page:
    """Return the page of a forecast of one or several clusters that `evenkeel forecast -o json` has printed.

    Raises ConfigError.
    """
    answer = read_json(_AnyForecast, text, where).root
    forecasts = answer.clusters if isinstance(answer, _Forecasts) else (answer,)
    unread = answer.unread if isinstance(answer, _Forecasts) else {}
    sections = [_forecast_section(forecast) for forecast in forecasts]
    sections += [Section(name=name, unread=why, is_read=False) for name, why in unread.items()]
    return Page(
        title="Loss of a zone",
        source=f"made from {_file(where)}, in virtual time",
        headline=_forecast_headline(forecasts),
        at=max((forecast.now for forecast in forecasts), default=datetime.now(UTC)),
        sections=tuple(sections),
    )


def _forecast_headline(forecasts: Sequence[_Forecast]) -> str:
    if len(forecasts) == 1:
        return next(iter(forecasts[0].says), "")
    failing = sum(not forecast.survives for forecast in forecasts)
    return f"{failing} of {len(forecasts)} clusters would not survive it"


def _forecast_section(forecast: _Forecast) -> Section:
    rows = [
        (waits.owner, str(waits.pods), "-" if waits.longest is None else duration(waits.longest), str(waits.never))
        for waits in forecast.pods[:_MOST_OWNERS]
    ]
    bound = [(owner, str(pods)) for owner, pods in forecast.bound.items()]
    costs = [
        (cost.pool, *(map(str, (cost.nodes, cost.more, cost.only)) if cost.possible else ["cannot", "-", "-"]))
        for cost in forecast.costs
    ]
    tables = (
        Table(title="Pods that need a place", head=("owner", "pods", "placed within", "no place"), rows=tuple(rows)),
        Table(title=f"Pods bound to {forecast.zone}", head=("owner", "pods"), rows=tuple(bound)),
        Table(title="To survive one zone", head=("pool", "nodes", "new", "kept for it"), rows=tuple(costs)),
    )
    histories = (_history(pool, pool.timeline, forecast.seconds) for pool in forecast.pools)
    name = f"{forecast.cluster}: loss of zone {forecast.zone}" if forecast.cluster else f"Loss of zone {forecast.zone}"
    return Section(
        name=name,
        message="Pools are shown at the end of the forecast. Times count from the loss.",
        demand=forecast.says,
        tables=tuple(table for table in tables if table.rows),
        pools=tuple(_last_view(pool, pool.timeline) for pool in forecast.pools),
        histories=tuple(filter(None, histories)),
    )


def _last_view(pool: _SimulatedPool, samples: Sequence[_Sample], strategy: str = "") -> PoolView:
    groups = tuple(group.view() for group in samples[-1].groups) if samples else ()
    return PoolView(name=pool.name, strategy=strategy, min=pool.min, max=pool.max, groups=groups)


def _history(
    pool: _SimulatedPool, samples: Sequence[_Sample], end: float, demand: tuple[tuple[float, int], ...] = ()
) -> History | None:
    """Return the running nodes of a pool over time; None if it has no group, or if no time passes."""
    seconds = max([end, *(sample.t for sample in samples)])
    running = [(m.t, group.zone or group.name, group.running, group.state) for m in samples for group in m.groups]
    if not running or not seconds:
        return None
    return History(
        pool=pool.name,
        counts="running",
        begin=None,
        seconds=seconds,
        max=pool.max,
        lanes=lanes(running),
        demand=demand,
    )


def _file(where: str) -> str:
    """Return the file's name without its folder, which the page must not reveal."""
    return PurePath(where).name


def _run_section(run: _Run, end: float) -> Section:
    views, histories = [], []
    for pool in run.pools:
        samples = sorted((sample for sample in run.timeline if sample.pool == pool.name), key=lambda sample: sample.t)
        views.append(_last_view(pool, samples, run.strategy))
        demand = tuple((sample.t, max(0, sample.demand)) for sample in samples)
        histories.append(_history(pool, samples, end, demand))
    return Section(
        name=run.strategy,
        message="at the end of the simulation",
        pools=tuple(views),
        histories=tuple(filter(None, histories)),
        decisions=tuple(
            Decision(at=decision.t, pool=decision.pool, title="", lines=decision.reasons) for decision in run.decisions
        ),
        measures=tuple(_measures(run.measures)),
    )


def _measures(measures: dict[str, Any]) -> Iterable[tuple[str, str]]:
    """Yield the measures that are one number or word, by their JSON names. ``worst_seconds`` becomes a duration."""
    for name, value in measures.items():
        if name == "worst_seconds":  # null if demand was not met, or if there was no demand
            yield "demand met within", duration(value) if isinstance(value, int) else "-"
        elif value is None or isinstance(value, str | int | float):
            yield name.replace("_", " "), "-" if value is None else str(value)
