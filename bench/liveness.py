"""Whether demand is met, how soon, and how level: the tables of docs/strategies.md, and 10,000 random worlds.

A simulation of one pool beside a model of Cluster Autoscaler (tests/liveness); the same figures at every run.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import BACKWARD_COMPATIBLE, LAX_GREEDY
from tests.liveness.cases import Case, Demand, drawn
from tests.liveness.simulation import Result, simulate

WORLDS = 10_000
RUNS = 60  # per cell of a table
PODS = 100
LOOPS = (10, 30, 60)
STRATEGIES = (BALANCED, LAX_GREEDY, BACKWARD_COMPATIBLE)
# A quiet pool first, then the demand at any moment between two scans and two loops of the autoscaler.
_QUIET, _WITHIN = 600, 300


def bursts(base: Case, runs: int = RUNS) -> list[Case]:
    """Empty pools in which all pods appear at once, each time bound to some one zone."""
    found = []
    for seed in range(runs):
        chance = random.Random(f"burst {seed}")
        zone, at = chance.randrange(base.zones), _QUIET + chance.randrange(_WITHIN)
        bound = tuple(PODS * (index == zone) for index in range(base.zones))
        found.append(replace(base, seed=seed, demand=(Demand(at=at, free=0, bound=bound),), boot=8, delay=1))
    return found


def spreads(base: Case, pods: int, waves: int, every: int, runs: int = RUNS) -> list[Case]:
    """Empty pools that pods come to which run in any zone, in waves."""
    found = []
    for seed in range(runs):
        began = _QUIET + random.Random(f"spread {seed}").randrange(_WITHIN)
        demand = tuple(
            Demand(at=began + every * wave, free=pods * (wave + 1) // waves, bound=(0,) * base.zones)
            for wave in range(waves)
        )
        found.append(replace(base, seed=seed, demand=demand, boot=8, delay=1))
    return found


def _seconds(result: Result) -> float:
    """From the demand to the last order for it."""
    return float("inf") if result.last_order is None else result.last_order - result.case.demand[0].at


def _times(results: Iterable[Result]) -> str:
    """Median, 90th percentile and worst."""
    times = sorted(_seconds(result) for result in results)
    told = (statistics.median_high(times), times[int(0.9 * (len(times) - 1))], times[-1])
    if times[0] == float("inf"):
        return "never"
    return " / ".join("never" if seconds == float("inf") else f"{seconds:.0f}" for seconds in told)


def _unevenness(results: Sequence[Result]) -> str:
    """Mean and worst."""
    found = [result.unevenness for result in results]
    return f"{statistics.mean(found):.0f} / {max(found)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    print("| " + " | ".join(head) + " |")
    print("|" + "--|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def _simulate_all(pool: ProcessPoolExecutor, cells: Sequence[Sequence[Case]]) -> list[list[Result]]:
    """The results of each cell of a table."""
    flat = pool.map(simulate, [case for cell in cells for case in cell], chunksize=8)
    return [[next(flat) for _ in cell] for cell in cells]


def _burst_tables(pool: ProcessPoolExecutor) -> None:
    print(f"{PODS} pods bound to one zone of an empty pool of three, scans every minute, up to a second per patch.")
    print(f"Seconds to the last order, of {RUNS} runs: median / 90th percentile / worst.\n")
    maxima, columns = (100, 110, 120, 150, 300), [(strategy, loop) for strategy in STRATEGIES for loop in LOOPS]
    cells = [bursts(Case(maximum=most, loop=loop, strategy=strategy)) for most in maxima for strategy, loop in columns]
    results = iter(_simulate_all(pool, cells))
    rows = [[str(most), *[_times(next(results)) for _ in columns]] for most in maxima]
    _table(["M", *[f"{strategy.name}, loop {loop} s" for strategy, loop in columns]], rows)

    print("The same with M=120 and a loop of 10 s, when other pools of the cluster cause looks as well.\n")
    often = (None, 15, 5, 2)
    results = iter(_simulate_all(pool, [bursts(Case(maximum=120, others=others)) for others in often]))
    rows = [["scans alone" if others is None else f"every {others} s", _times(next(results))] for others in often]
    _table(["looks", "Balanced"], rows)


_SHAPES = (("all at once", 1, 0), ("6 waves, a minute apart", 6, 60), ("one by one, every 10 s", 58, 10))


def _unevenness_table(pool: ProcessPoolExecutor) -> None:
    print("58 pods that run in any of three zones, M=60, a loop of 10 s. Nodes of the fullest zone less those of the")
    print(f"emptiest, of {RUNS} runs: mean / worst.\n")
    strategies = (BALANCED, BACKWARD_COMPATIBLE, LAX_GREEDY, None)
    keys = [
        (shape, balancing, expander)
        for shape in _SHAPES
        for balancing in (False, True)
        for expander in ("random", "priority")
    ]
    cells = [
        spreads(Case(maximum=60, balancing=balancing, expander=expander, strategy=strategy), 58, waves, every)
        for (_, waves, every), balancing, expander in keys
        for strategy in strategies
    ]
    results = iter(_simulate_all(pool, cells))
    rows = [
        [shape, "on" if balancing else "off", expander, *[_unevenness(next(results)) for _ in strategies]]
        for (shape, _, _), balancing, expander in keys
    ]
    names = [strategy.name if strategy else "autoscaler alone" for strategy in strategies]
    _table(["pods come", "balancing", "expander", *names], rows)


def _trade_table(pool: ProcessPoolExecutor) -> None:
    print("What `still` trades: unevenness without balancing (58 pods, M=60, mean / worst), and the burst of")
    print(f"{PODS} (M=120; median / 90th percentile / worst), Balanced, a loop of 10 s.\n")
    keys = [(shape, expander) for shape in _SHAPES[1:] for expander in ("random", "priority")]
    rows = []
    for still in (15, 30, 70):
        base = Case(maximum=60, autoscaler_loop=still / 1.5)
        cells = [spreads(replace(base, expander=expander), 58, waves, every) for (_, waves, every), expander in keys]
        *spread, burst = _simulate_all(pool, [*cells, bursts(replace(base, maximum=120))])
        rows.append([f"{still} s", *[_unevenness(results) for results in spread], _times(burst)])
    _table(["still", *[f"{shape}: {expander}" for (shape, _, _), expander in keys], "burst"], rows)


def _verdict(world: tuple[int, Strategy]) -> tuple[bool, bool, bool, bool, float]:
    """Of one drawn world: unmet, M passed, bounds unsafe, running nodes removed, and how long it took."""
    result = simulate(drawn(*world))
    waited = float("inf") if result.met_at is None else result.met_at - result.case.settles
    return not result.met, bool(result.passed), bool(result.unsafe), bool(result.removed), waited


def _worlds(pool: ProcessPoolExecutor, strategy: Strategy, worlds: int) -> list[str]:
    found = list(pool.map(_verdict, [(seed, strategy) for seed in range(worlds)], chunksize=20))
    unmet, passed, unsafe, removed = ([cluster_health[i] for cluster_health in found] for i in range(4))
    first = ", ".join(str(seed) for seed, bad in enumerate(zip(unmet, passed, removed, strict=True)) if any(bad)) or "-"
    waited = sorted(cluster_health[4] for cluster_health in found)
    return [
        strategy.name,
        f"{worlds:,}",
        f"{sum(unmet):,}",
        f"{sum(passed):,}",
        f"{sum(unsafe):,}",
        f"{sum(removed):,}",
        f"{waited[len(waited) // 2]:.0f} / {waited[int(0.99 * (len(waited) - 1))]:.0f} / {waited[-1]:.0f}",
        first if strategy is BALANCED else "",
    ]


def main(worlds: int = WORLDS) -> None:
    """The tables, then the worlds."""
    with ProcessPoolExecutor() as pool:
        _burst_tables(pool)
        _unevenness_table(pool)
        _trade_table(pool)
        print("Random worlds: 2 to 6 zones, M from tight to wide, demand up to what M, caps and capacity allow.\n")
        rows = [_worlds(pool, strategy, worlds if strategy is BALANCED else worlds // 10) for strategy in STRATEGIES]
        head = ["strategy", "worlds", "unmet", "M passed", "Σ max > M", "running nodes removed"]
        _table([*head, "seconds to be met: median / 99th percentile / worst", "seeds"], rows)


if __name__ == "__main__":
    main()
