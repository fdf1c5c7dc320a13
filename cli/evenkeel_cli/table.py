"""A plan as a table: pools x zones, what changes, and why."""

from itertools import chain

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evenkeel.application.convergence.summary import pool_level
from evenkeel.application.demand.summary import cluster_demand, pool_demand
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.origins import POOL_MIN
from evenkeel.domain.model.plans import GroupPlan, Plan
from evenkeel.texts.english import counted, problem_words, sentence, sentences
from evenkeel.texts.pool_numbers import origin_words
from evenkeel_cli.terminal import cell, terminal

STYLES = {State.HEALTHY: "green", State.FENCED: "red", State.PROBING: "yellow", State.FROZEN: "blue"}


def span(before: int | None, after: int | None) -> Text:
    """A number, or how it changes."""
    if before == after:
        return Text("-" if after is None else str(after))
    return Text(f"{'-' if before is None else before} → {'-' if after is None else after}", style="bold")


def _row(plan: GroupPlan) -> list[Text]:
    old, new = plan.group.bounds, plan.bounds
    return [
        cell(plan.group.zone or "?"),
        cell(f"{plan.group.key.namespace}/{plan.group.key.name}"),
        Text(plan.state.value, style=STYLES[plan.state]),
        Text(str(plan.group.running)),
        span(plan.group.requested, plan.requested),
        span(old.min if old else None, new.min if new else None),
        span(old.max if old else None, new.max if new else None),
    ]


def print_plan(plan: Plan, console: Console | None = None) -> None:
    """One table per pool, then what was left out."""
    console = console or terminal()
    for pool in plan.pools:
        numbers = f"min {'?' if pool.min is None else pool.min}, max {'?' if pool.max is None else pool.max}"
        table = Table(title=cell(f"{pool.id}: {pool.strategy}, {numbers}"), title_justify="left")
        for heading in ("zone", "node group", "state", "running", "requested", "min", "max"):
            table.add_column(heading, justify="right" if heading in ("running", "requested", "min", "max") else "left")
        for group in pool.groups:
            table.add_row(*_row(group))
        console.print(table)
        for origin in pool.origins:
            console.print(
                cell(f"  {'min' if origin.field == POOL_MIN else 'max'} {origin.value}: {origin_words(origin)}"),
                soft_wrap=True,
            )
        for note in sentences(pool.notes):
            console.print(cell(f"  note: {note}"), soft_wrap=True)
        for group in pool.groups:
            console.print(cell(f"  {group.group.zone or '?'}: {'; '.join(sentences(group.reasons))}"), soft_wrap=True)
        documents = (pool_level(pool.converging), pool_demand(pool.demand))
        for said in chain.from_iterable(document.says for document in documents if document):
            console.print(cell(f"  {said}"), soft_wrap=True)
        for problem in map(problem_words, pool.problems):
            console.print(
                cell(f"{'!' if pool.valid else 'invalid:'} {problem}", style="yellow" if pool.valid else "red")
            )
    for said in of_cluster.says if (of_cluster := cluster_demand(plan.demand)) else ():
        console.print(cell(said), soft_wrap=True)
    for skipped in plan.skipped:
        name = f"{skipped.namespace}/{skipped.name or '(no name)'}"
        console.print(cell(f"skipped {name}: {sentence(skipped.reason)}", style="dim"), soft_wrap=True)
    if not plan.pools:
        console.print("no pools found")
    else:
        console.print(f"{counted(len(plan.pools), 'pool')}, {counted(len(plan.changes), 'node group')} would change")
