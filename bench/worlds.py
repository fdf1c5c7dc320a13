"""Benches of the tests' worlds, in simulated time: the figures are the same at every run."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from itertools import product
from statistics import mean, median_high
from unittest.mock import patch

from bench.rows import Rows
from evenkeel.adapters.thread_pool import THREADS
from evenkeel.domain.demand.order_memory import OrderMemory
from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import BACKWARD_COMPATIBLE, LAX_GREEDY
from tests import stories
from tests.integration.test_big_outage import BigOutage
from tests.integration.test_outages import (
    FLAVOURS,
    PLACES,
    Play,
    away,
    by_chance,
    certain,
    three_ways,
    ways,
    windows,
    worse,
)
from tests.integration.test_outages import Result as Outcome
from tests.integration.test_storms import STORMS
from tests.liveness.cases import Case, Demand, drawn
from tests.liveness.simulation import Result, simulate
from tests.timed import Who
from tests.world import HOUR

BOOTS = (8, 60, 240)  # seconds


def _percentiles(values: Sequence[float]) -> str:
    """Return median, 90th percentile and worst."""
    ordered = sorted(values)
    chosen = (median_high(ordered), ordered[int(0.9 * (len(ordered) - 1))], ordered[-1])
    if ordered[0] == float("inf"):
        return "never"
    return " / ".join("never" if value == float("inf") else f"{value:.0f}" for value in chosen)


# --- outages


def outages(seeds: int = 40) -> Rows:
    """Measure nodes, and seconds to the last node, in an outage: with events, by scans alone, and without Evenkeel."""
    yield "nodes after seconds"
    outages = [outage for flavour in FLAVOURS for boot in BOOTS for outage in certain(flavour, boot)]
    for outage in outages:
        results = three_ways(outage)
        seen = results[Who.EVENTS]
        columns = _outcomes(results, list(Who)) | {"checks": str(seen.checks), "patches": str(seen.patches)}
        yield f"{outage.flavour}, boot {outage.boot} s: {outage.name}", columns
    yield "API server away right after the release"
    for outage in (outage for flavour in FLAVOURS for outage in away(flavour, 8)):
        shown = ("with a view", Who.SCANS, "without a view", Who.NOBODY)
        yield f"{outage.flavour}: {outage.name}", _outcomes(ways(outage), shown)
    yield f"one launch in four refused, {seeds} seeds: seconds to 9 nodes"
    for flavour in FLAVOURS:
        for boot in BOOTS:
            yield f"{flavour}, boot {boot} s", _chance_columns([three_ways(o) for o in by_chance(flavour, boot, seeds)])
    yield "time that passes within a run: machines with a node that a release deleted"
    for flavour in FLAVOURS:
        killed: dict[str, list[int]] = {place: [] for place in PLACES}
        for place, window, at_once, outage in windows(flavour):
            play = Play(outage, Who.EVENTS, window=window, window_before=place, at_once=at_once, horizon=240)
            killed[place].append(len(play.run().killed))
        for place, counts in killed.items():
            yield f"{flavour}, before the {place}", {"runs": len(counts), "deleted": sum(counts)}


def _outcomes(results: dict[str, Outcome] | dict[Who, Outcome], names: Sequence[str]) -> dict[str, str]:
    columns = {}
    for name in names:
        result = results[name]  # type: ignore[index]
        columns[str(name)] = "none" if result.after is None else f"{result.nodes} after {result.after} s"
    return columns | {"killed": str(sum(len(result.killed) for result in results.values()))}


def _chance_columns(played: list[dict[Who, Outcome]]) -> dict[str, float | str]:
    ranks = [(results[Who.EVENTS].rank, results[Who.NOBODY].rank) for results in played]
    every = [result for results in played for result in results.values()]
    return {
        **{str(who): _percentiles([results[who].after or 0 for results in played]) for who in Who},
        "later than without": sum(ours > theirs for ours, theirs in ranks),
        "at most s": max(0, *(round(ours[1] - theirs[1]) for ours, theirs in ranks)),
        "sooner": sum(ours < theirs for ours, theirs in ranks),
        "worse": sum(bool(worse(results)) for results in played),
        "killed": sum(len(result.killed) for result in every),
        "fewer than 9 nodes": sum(result.nodes < 9 for result in every),
    }


def big_outage() -> Rows:
    """Measure runs in an outage of 3,000 stuck machines in 300 groups, 0.4 s per patch."""
    for workers in (THREADS, 1):
        outage = BigOutage(workers=workers)
        for number in range(1, 6):
            run = outage.run()
            yield (
                f"run {number}, {workers} patches at a time",
                {
                    "seconds": run.seconds,
                    "groups before the first mark": run.fences,
                    "marks": run.marks,
                    "groups after them": run.groups,
                    "dead groups that may grow": run.open_groups,
                    "stuck": run.stuck,
                    "marked twice": sum(count > 1 for count in outage.marked.values()),
                },
            )
            if not run.stuck:
                break


def storms() -> Rows:
    """Measure two hours of GitOps tools, webhooks and event storms; in brackets the second hour alone."""
    for name, play in STORMS.items():
        counted, world = play()
        yield (
            name,
            {
                "checks": f"{counted.checks} ({counted.last_checks})",
                "most checks a minute": str(counted.busiest_minute),
                "another zone's failure waits": f"{counted.waited} s" if counted.waited else "",
                "patches": f"{counted.patches} ({counted.last_patches})",
                "writes to the table": f"{counted.written} ({counted.last_written})",
                "messages": str(counted.messages),
                "contested": str(len(world.contested)) if world else "",
            },
        )


# --- liveness

_RUNS, _PODS = 60, 100  # per cell of a table; of a burst
_LOOPS = (10, 30, 60)
_STRATEGIES = (BALANCED, LAX_GREEDY, BACKWARD_COMPATIBLE)
# A quiet pool first, then the demand at any moment between two scans and two loops of the autoscaler.
_QUIET, _WITHIN = 600, 300
_EXPANDERS = ("random", "priority")
_SHAPES = (("all at once", 1, 0), ("6 waves, a minute apart", 6, 60), ("one by one, every 10 s", 58, 10))


def _bursts(base: Case) -> list[Case]:
    """Return empty pools in which all pods appear at once, each time bound to one zone."""
    cases = []
    for seed in range(_RUNS):
        chance = random.Random(f"burst {seed}")
        zone, at = chance.randrange(base.zones), _QUIET + chance.randrange(_WITHIN)
        bound = tuple(_PODS * (index == zone) for index in range(base.zones))
        cases.append(replace(base, seed=seed, demand=(Demand(at=at, free=0, bound=bound),), boot=8, delay=1))
    return cases


def _spreads(base: Case, waves: int, every: int, pods: int = 58) -> list[Case]:
    """Return empty pools to which pods come in waves; they run in any zone."""
    cases = []
    for seed in range(_RUNS):
        began = _QUIET + random.Random(f"spread {seed}").randrange(_WITHIN)
        demand = tuple(
            Demand(at=began + every * wave, free=pods * (wave + 1) // waves, bound=(0,) * base.zones)
            for wave in range(waves)
        )
        cases.append(replace(base, seed=seed, demand=demand, boot=8, delay=1))
    return cases


def _times(results: Sequence[Result]) -> str:
    """Return the seconds from the demand to the last order for it."""
    infinite = float("inf")
    return _percentiles([infinite if r.last_order is None else r.last_order - r.case.demand[0].at for r in results])


def _unevenness(results: Sequence[Result]) -> str:
    values = [result.unevenness for result in results]
    return f"{mean(values):.0f} / {max(values)}"


_Cells = dict[str, tuple[list[Case], Callable[[Sequence[Result]], str]]]


def liveness(worlds: int = 10_000) -> Rows:
    """Measure how soon and how evenly a pool meets demand, in simulations with a model of cluster-autoscaler.

    Seconds are median / 90th percentile / worst of 60 runs; nodes of the fullest less the emptiest zone, mean / worst.
    """
    with ProcessPoolExecutor() as pool:
        for row in _liveness_rows():
            if isinstance(row, str):
                yield row
                continue
            name, cells = row
            flat = pool.map(simulate, [case for cases, _ in cells.values() for case in cases], chunksize=8)
            yield name, {column: show([next(flat) for _ in cases]) for column, (cases, show) in cells.items()}
        yield "random worlds"
        for strategy in _STRATEGIES:
            yield strategy.name, _world_columns(pool, strategy, worlds if strategy is BALANCED else worlds // 10)


def _liveness_rows() -> Iterator[str | tuple[str, _Cells]]:
    """Yield the cases of each cell, by row and column."""
    yield f"{_PODS} pods bound to one zone of three: seconds to the last order, by M"
    for maximum in (100, 110, 120, 150, 300):
        bursts = {
            f"{strategy.name}, loop {loop} s": _bursts(Case(maximum=maximum, loop=loop, strategy=strategy))
            for strategy in _STRATEGIES
            for loop in _LOOPS
        }
        yield str(maximum), {column: (cases, _times) for column, cases in bursts.items()}
    yield "the same with M=120, by checks that other pools cause"
    for others in (None, 15, 5, 2):
        cases = _bursts(Case(maximum=120, others=others))
        yield "scans alone" if others is None else f"every {others} s", {"Balanced": (cases, _times)}
    yield "58 pods of any zone, M=60: pods come, balancing, expander"
    for (shape, waves, every), balancing, expander in product(_SHAPES, (False, True), _EXPANDERS):
        cells: _Cells = {}
        for strategy in (BALANCED, BACKWARD_COMPATIBLE, LAX_GREEDY, None):
            case = Case(maximum=60, balancing=balancing, expander=expander, strategy=strategy)
            cells[strategy.name if strategy else "autoscaler alone"] = _spreads(case, waves, every), _unevenness
        yield f"{shape}, {'on' if balancing else 'off'}, {expander}", cells
    yield "what `still` trades, without balancing"
    for still in (15, 30, 70):
        base = Case(maximum=60, autoscaler_loop=still / 1.5)
        cells = {
            f"{shape}: {expander}": (_spreads(replace(base, expander=expander), waves, every), _unevenness)
            for (shape, waves, every), expander in product(_SHAPES[1:], _EXPANDERS)
        }
        yield f"{still} s", {**cells, "burst, M=120": (_bursts(replace(base, maximum=120)), _times)}


def _faults(world: tuple[int, Strategy]) -> tuple[bool, bool, bool, bool, float]:
    """Return of a drawn world: unmet, M passed, bounds unsafe, running nodes removed, and seconds until it was met."""
    result = simulate(drawn(*world))
    waited = float("inf") if result.met_at is None else result.met_at - result.case.settles
    return not result.met, bool(result.passed), bool(result.unsafe), bool(result.removed), waited


def _world_columns(pool: ProcessPoolExecutor, strategy: Strategy, worlds: int) -> dict[str, float | str]:
    results = list(pool.map(_faults, [(seed, strategy) for seed in range(worlds)], chunksize=20))
    unmet, passed, unsafe, removed, waited = zip(*results, strict=True)
    bad = [str(seed) for seed, faults in enumerate(zip(unmet, passed, removed, strict=True)) if any(faults)]
    return {
        "worlds": worlds,
        "unmet": sum(unmet),
        "M passed": sum(passed),
        "Σ max > M": sum(unsafe),
        "running nodes removed": sum(removed),
        "median s": median_high(waited),
        "p99 s": sorted(waited)[int(0.99 * (worlds - 1))],
        "worst s": max(waited),
        "seeds": ", ".join(bad) or "-" if strategy is BALANCED else "",
    }


# --- random worlds that search for faults


def _play(worlds: int, first: int, play: Callable[[int], tuple[str, Counter[str]]]) -> Rows:
    """Play one seed after the other until interrupted: a row for each faulty seed, then what happened in all."""
    happened: Counter[str] = Counter()
    seed, faulty = first, 0
    try:
        for seed in range(first, first + worlds):
            problem, counts = play(seed)
            happened += counts
            if problem:
                faulty += 1
                yield f"seed {seed}", {"fault": problem}
    except KeyboardInterrupt:
        yield "interrupted", {"continue with": f"--worlds {first + worlds - seed} --first {seed}"}
    yield f"seeds {first} to {seed}", {"faulty": faulty, **dict(sorted(happened.items()))}
    if faulty:
        raise SystemExit(1)


def demand_crashes(worlds: int = 10_000, first: int = 0) -> Rows:
    """Play worlds of pods in which nodes come and go and workers die at any request (tests/stories.py)."""

    def play(seed: int) -> tuple[str, Counter[str]]:
        story = stories.DemandStory(seed)
        faults = "; ".join(story.play())
        story.happened["nodes ordered"] += story.world.ordered
        story.happened["nodes removed"] += len(story.world.removed)
        story.happened["pods evicted"] += sum(story.world.evicted.values())
        return faults, story.happened

    yield from _play(worlds, first, play)


def convergence_crashes(worlds: int = 10_000, first: int = 0, hostile: bool = False) -> Rows:
    """Play converging pools whose runs die at random steps; hostile: with an autoscaler, an operator and refusals."""

    def play(seed: int) -> tuple[str, Counter[str]]:
        story = stories.ConvergenceStory(seed, hostile=hostile)
        faults = "; ".join(story.play())
        story.happened["nodes moved"] += story.world.moved
        return faults, story.happened

    yield from _play(worlds, first, play)


def _ineffective_columns(seeds: int) -> dict[str, int]:
    """Return ordered nodes and remaining pending pods of random worlds."""
    total: Counter[str] = Counter()
    for seed in range(seeds):
        world = stories.ExpectedNodesStory(seed).play()
        total["ordered"] += world.ordered
        total["pods pending in the end"] += len(world.waiting())
    return {name: total[name] for name in ("ordered", "pods pending in the end")}


def ineffective_orders(worlds: int = 100, hours: int = 6) -> Rows:
    """Measure nodes ordered each hour where new nodes do not help, with the memory of orders and without it."""
    without = patch.object(OrderMemory, "ineffective_groups", lambda _, __: {})
    for name, case in stories.CASES.items():
        columns = {}
        for how, memory in (("with memory", nullcontext()), ("without", without)):
            with memory:
                world = case.make()
                world.live_for(hours * HOUR)
            columns[how] = " ".join(map(str, stories.per_hour(world, hours)))
        yield name, columns
    yield f"{worlds} random worlds"
    yield "with memory", _ineffective_columns(worlds)
    with without:
        yield "without", _ineffective_columns(worlds)
