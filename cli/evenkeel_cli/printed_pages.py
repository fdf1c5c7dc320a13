"""Returns the pages of plans and simulations that the command line has printed as JSON."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import ConfigDict, Field, RootModel

from evenkeel.adapters.page.reading import Pool, lanes, pool_view
from evenkeel.adapters.page.view import Answer, Decision, GroupView, History, Page, PoolView, Section, Span, Text
from evenkeel.application.plan_documents import Number, PlanDocument
from evenkeel.domain.model.groups import State
from evenkeel.texts.english import duration
from evenkeel.validation import Moment, read_json

Seconds = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class _Plan(PlanDocument):
    pools: tuple[Pool, ...]


class _AnyPlan(RootModel[_Plan]):
    model_config = ConfigDict(defer_build=True)


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
    pool: str
    demand: Number = 0
    groups: tuple[_SimulatedGroup, ...]


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
    timeline: tuple[_Sample, ...]
    decisions: tuple[_SimulatedDecision, ...] = ()


class _Simulation(Answer):
    scenario: str
    start: Moment
    duration: Seconds
    runs: tuple[_Run, ...]


def page_of_plan(text: str, where: str) -> Page:
    """Return the page of a plan that `evenkeel plan -o json` has printed. Raises ConfigError."""
    plan = read_json(_AnyPlan, text, where).root
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


def _file(where: str) -> str:
    """Return the file's name without its folder, which the page must not reveal."""
    return PurePath(where).name


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
                    lanes=lanes(samples),
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
    """Yield the measures that are one number or word, by their JSON names. ``worst_seconds`` becomes a duration."""
    for name, value in measures.items():
        if name == "worst_seconds":  # null if demand was not met, or if there was no demand
            yield "demand met within", duration(value) if isinstance(value, int) else "-"
        elif value is None or isinstance(value, str | int | float):
            yield name.replace("_", " "), "-" if value is None else str(value)
