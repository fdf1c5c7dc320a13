"""The result of a forecast as text and as JSON."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.survival.model import Survival
from evenkeel.texts.english import counted, problem_text, rfc3339
from evenkeel_cli.console import Table, print_line, print_table, terminal
from evenkeel_cli.simulation.forecast import Outcome
from evenkeel_cli.simulation.loss import EVICTED, PROVISIONED
from evenkeel_cli.simulation.scenario import write_duration

_MOST_ROWS = 15  # of a table; JSON has all
_CANNOT_SURVIVE = {
    ProblemKind.SURVIVES_NO_ZONE,
    ProblemKind.SURVIVAL_PAST_MAX,
    ProblemKind.SURVIVAL_PAST_LIMITS,
    ProblemKind.SURVIVAL_PAST_ZONES,
}


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """The forecast of one cluster."""

    name: str  # empty: the input names no cluster
    outcome: Outcome
    planned: Plan
    surviving: Plan  # the plan in which each pool survives the loss of a zone
    unread: str  # why pods are not known; empty: they are, or the input has none

    @property
    def badness(self) -> tuple[int, int, int, int, str]:
        """Return the sort key: pods without a place or missing nodes, bound pods, longest wait, displaced pods."""
        outcome = self.outcome
        longest = max((waits.longest or 0 for waits in outcome.waits), default=0)
        without = outcome.never + sum(outcome.missing.values())
        return without, sum(outcome.bound.values()), longest, outcome.displaced, self.name


def forecast_json(foreseen: Foreseen) -> dict[str, Any]:
    """Return the forecast as a document. Times are seconds since the loss."""
    outcome = foreseen.outcome
    return {
        "now": rfc3339(foreseen.planned.now),
        "zone": outcome.zone,
        "says": [*sayings(foreseen)],
        "seconds": outcome.seconds,
        "survives": outcome.survives,
        "podsKnown": outcome.has_pods,
        "evictedAfter": EVICTED,
        "provisionedAfter": PROVISIONED,
        "lostNodes": outcome.lost_nodes,
        "pods": [
            {"owner": waits.name, "pods": waits.pods, "longest": waits.longest, "withoutPlace": waits.never}
            for waits in outcome.waits
        ],
        "bound": dict(outcome.bound),
        "missing": dict(outcome.missing),
        "nodes": _timeline(outcome),
        "pools": _pools_json(foreseen),
        "atMaximum": list(outcome.at_maximum),
        "atZoneMax": list(outcome.at_zone_max),
        "surviveZones": {
            str(pool.id): survival.survives
            for pool in foreseen.planned.pools
            if (survival := pool.parts.of(Survival)) is not None
        },
        "costOfSurviving": [
            {"pool": cost.pool, "nodes": cost.nodes, "more": cost.more, "only": cost.only, "possible": not cost.problem}
            for cost in costs(foreseen)
        ],
    }


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The nodes that a pool needs to survive the loss of one zone."""

    pool: str
    nodes: int  # that the pool has, and those to add so that it survives
    more: int  # of them, nodes to add
    only: int  # of them, nodes that it keeps only to survive
    problem: str  # why it cannot survive; empty: it can


def costs(foreseen: Foreseen) -> list[Cost]:
    """Return the costs by pool. Pools without a result or a cost have none."""
    found = []
    for pool in foreseen.surviving.pools:
        if (survival := pool.parts.of(Survival)) is None:
            continue
        only = max(survival.held, survival.short)  # the held nodes are those after this plan's orders
        nodes = sum(plan.group.requested for plan in pool.groups) + survival.short
        problem = next((problem_text(each) for each in pool.report.problems if each.kind in _CANNOT_SURVIVE), "")
        found.append(Cost(pool=str(pool.id), nodes=nodes, more=survival.short, only=only, problem=problem))
    return [cost for cost in found if cost.only or cost.problem]


def _pools_json(foreseen: Foreseen) -> list[dict[str, Any]]:
    """Return each pool with its groups, once for each change."""
    planned = {str(pool.id): pool for pool in foreseen.planned.pools}
    timelines: dict[str, list[dict[str, Any]]] = {}
    for snapshot in foreseen.outcome.snapshots:
        of_pool: dict[str, list[dict[str, Any]]] = {}
        for group in snapshot.groups:
            of_pool.setdefault(group.pool, []).append(group.json())
        for name, groups in of_pool.items():
            lines = timelines.setdefault(name, [])
            if not lines or lines[-1]["groups"] != groups:
                lines.append({"t": snapshot.at, "groups": groups})
    found = []
    for name, lines in sorted(timelines.items()):
        pool = planned.get(name)
        numbers = {"min": None, "max": None} if pool is None else {"min": pool.min, "max": pool.max}
        found.append({"name": name, **numbers, "timeline": lines})
    return found


def _timeline(outcome: Outcome) -> list[dict[str, Any]]:
    """Return the nodes by zone and the waiting pods, once for each change."""
    lines: list[dict[str, Any]] = []
    for snapshot in outcome.snapshots:
        requested, running = Counter[str](), Counter[str]()
        for group in snapshot.groups:
            requested[group.zone] += group.requested
            running[group.zone] += group.running
        nodes = {"requested": dict(sorted(requested.items())), "running": dict(sorted(running.items()))}
        line = {**nodes, "waiting": sum(snapshot.pods.waiting.values()) if snapshot.pods is not None else None}
        if not lines or {**lines[-1], "at": 0} != {**line, "at": 0}:
            lines.append({"at": snapshot.at, **line})
    return lines


def sayings(foreseen: Foreseen) -> Iterator[str]:
    """Yield the effect of the loss, line by line."""
    outcome = foreseen.outcome
    if outcome.has_pods:
        never = f"{counted(outcome.never, 'pod')} without a place"
        answer = "every pod that may run elsewhere gets a place" if outcome.survives else never
    else:
        short = ", ".join(f"{pool} lacks {counted(nodes)}" for pool, nodes in outcome.missing.items())
        answer = short or "the other zones get all of them"
    yield f"zone {outcome.zone} is lost, {counted(outcome.lost_nodes)}: {answer}"
    if outcome.has_pods:
        yield f"pods that need a place when they are evicted, after {write_duration(EVICTED)}: {outcome.displaced}"
        yield f"pods that are bound to the zone and wait for it: {sum(outcome.bound.values())}"
    else:
        yield "pods are not known: each pool wants the nodes that it had"
    for name in outcome.at_maximum:
        yield f"{name}: PoolMaximum is reached"
    for name in outcome.at_zone_max:
        yield f"{name}: evenkeel.dev/zone-max is reached"
    if foreseen.unread:
        yield f"pods are not read: {foreseen.unread}"
    yield f"assumed: a launched node is Ready after {write_duration(PROVISIONED)}"


def _cost_text(cost: Cost) -> str:
    """Return the nodes with which a pool survives the loss of one zone, in one line."""
    if cost.problem:
        return f"{cost.pool}: {cost.problem}"
    nodes = f"{counted(cost.nodes)}: {cost.more} new, {cost.only} kept for it"
    return f"{cost.pool}: survives one zone with {nodes}"


def print_forecast(foreseen: Foreseen) -> None:
    """Print the forecast as text."""
    console, outcome = terminal(), foreseen.outcome
    for text in (*sayings(foreseen), *map(_cost_text, costs(foreseen)[:_MOST_ROWS])):
        print_line(console, text)
    numbers = ("pods", "placed by", "no place")
    pods = Table(("pods of", *numbers), right=numbers)
    for waits in outcome.waits[:_MOST_ROWS]:
        pods.add_row(waits.name, str(waits.pods), _duration(waits.longest), str(waits.never))
    if outcome.waits:
        print_table(console, pods)
    zones = sorted({group.zone for group in outcome.snapshots[-1].groups})[:4]
    waiting = ["waiting"] if outcome.has_pods else []
    headings = ("at", *zones, *waiting)
    changes = Table(headings, right=headings)
    for change in _timeline(outcome)[:_MOST_ROWS]:
        cells = [f"{change['running'][zone]} of {change['requested'][zone]}" for zone in zones]
        changes.add_row(write_duration(change["at"]), *cells, *([str(change["waiting"])] if waiting else []))
    print_table(console, changes)
    notes = ["at: time since the loss", "zones: running of requested nodes", *(["waiting: pods"] if waiting else [])]
    print_line(console, "; ".join(notes))


def _duration(seconds: int | None) -> str:
    return "-" if seconds is None else write_duration(seconds)


# A fleet


def fleet_json(found: Sequence[Foreseen], spared: Sequence[str], unread: Mapping[str, str]) -> dict[str, Any]:
    """Return the forecasts of several clusters as a document, the worst first."""
    return {
        "clusters": [{"cluster": foreseen.name, **forecast_json(foreseen)} for foreseen in found],
        "spared": [*spared],
        "unread": dict(unread),
    }


def print_fleet(found: Sequence[Foreseen], spared: Sequence[str]) -> None:
    """Print one line per cluster."""
    facts = ("zone", "nodes", "pods", "placed by", "no place", "bound", "survives")
    console, rows = terminal(), Table(("cluster", *facts), right=facts)
    for foreseen in found:
        outcome = foreseen.outcome
        longest = max((waits.longest for waits in outcome.waits if waits.longest is not None), default=None)
        pods = [outcome.displaced, _duration(longest), outcome.never, sum(outcome.bound.values())]
        rows.add_row(
            foreseen.name,
            outcome.zone,
            str(outcome.lost_nodes),
            *(map(str, pods) if outcome.has_pods else "----"),
            "yes" if outcome.survives else "no",
        )
    if found:
        print_table(console, rows)
    if spared:
        print_line(console, f"{counted(len(spared), 'cluster')} with nothing in the zone")
