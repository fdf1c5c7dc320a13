"""What a run was like, in numbers that can be compared."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evenkeel.application.words import rfc3339
from evenkeel.cli.simulation.engine import GroupSnapshot, Record, Snapshot, fenced_spans

_HOUR = 3600


@dataclass(frozen=True, kw_only=True)
class DemandRise:
    """A rise of demand, and how long it took. ``seconds`` None: it was still waiting at its end."""

    at: int
    pool: str
    zone: str | None
    nodes: int
    seconds: int | None


@dataclass(frozen=True, kw_only=True)
class Measures:
    """One run in numbers. Over and skew are those of the pool where they were worst."""

    demand: tuple[DemandRise, ...]
    worst_seconds: int | None  # None: some demand was never met, or there was none
    unmet: int
    waiting_node_hours: float  # nodes that pods waited for, times the hours that they waited
    over_requested: int  # most that a pool requested beyond PoolMaximum
    over_running: int
    skew_mean: float  # nodes running in the fullest zone less those in the emptiest, over time
    skew_worst: int
    skew_recovered: float | None  # mean from the moment on when the last zone was well again; None: there was none
    held_node_hours: float  # nodes of groups at their min, beyond PoolMinimum, times how long
    failed_launches: int
    node_hours: float
    patches: int


def measure(record: Record) -> Measures:
    """Over every second of a run, until the end of its scenario."""
    pools = record.scenario.pools
    spans = list(_spans(record))
    length = record.scenario.duration
    skews = {
        pool.name: [(_skew(snapshot.of_pool(pool.name)), seconds) for snapshot, seconds in spans] for pool in pools
    }
    demand = tuple(_rises(record))
    times = [rise.seconds for rise in demand if rise.seconds is not None]
    return Measures(
        demand=demand,
        worst_seconds=max(times) if times and len(times) == len(demand) else None,
        unmet=len(demand) - len(times),
        waiting_node_hours=_hours(sum(_waiting(snapshot) * seconds for snapshot, seconds in spans)),
        over_requested=_over(record, [[g.requested for g in snapshot.groups] for snapshot in record.snapshots]),
        over_running=_over(record, [[g.running for g in snapshot.groups] for snapshot in record.snapshots]),
        skew_mean=round(max(sum(skew * s for skew, s in of_pool) / length for of_pool in skews.values()), 2),
        skew_worst=max(skew for of_pool in skews.values() for skew, _ in of_pool),
        skew_recovered=_skew_recovered(record, skews.values()),
        held_node_hours=_hours(sum(_held(record, snapshot) * seconds for snapshot, seconds in spans)),
        failed_launches=record.failed_launches,
        node_hours=_hours(sum(group.running * seconds for snapshot, seconds in spans for group in snapshot.groups)),
        patches=record.patches,
    )


def _hours(node_seconds: int) -> float:
    return round(node_seconds / _HOUR, 2)


def _spans(record: Record) -> Iterator[tuple[Snapshot, int]]:
    """Each shot with the seconds that it holds."""
    ends = [snapshot.at for snapshot in record.snapshots[1:]] + [record.scenario.duration]
    for snapshot, end in zip(record.snapshots, ends, strict=True):
        yield snapshot, end - snapshot.at


def _over(record: Record, counts: Sequence[Sequence[int]]) -> int:
    pools = [group.pool for group in record.snapshots[0].groups]
    worst = 0
    for pool in record.scenario.pools:
        for numbers in counts:
            worst = max(worst, sum(n for n, name in zip(numbers, pools, strict=True) if name == pool.name) - pool.max)
    return worst


def _skew(groups: Sequence[GroupSnapshot]) -> int:
    running = [group.running for group in groups]
    return max(running) - min(running)


def _skew_recovered(record: Record, skews: Iterable[Sequence[tuple[int, int]]]) -> float | None:
    """The mean skew of the worst pool since the last zone got more machines again, or the last fence ended."""
    since = record.scenario.recovered_at
    left = record.scenario.duration - since if since is not None else 0
    if since is None or left <= 0:
        return None
    sums = []
    for of_pool in skews:
        at = total = 0
        for skew, seconds in of_pool:
            total += skew * max(0, at + seconds - max(at, since))
            at += seconds
        sums.append(total)
    return round(max(sums) / left, 2)


def _held(record: Record, snapshot: Snapshot) -> int:
    """Nodes of groups that stand at their min, beyond PoolMinimum: no autoscaler would take them away."""
    at_min = {
        pool.name: sum(group.requested for group in snapshot.of_pool(pool.name) if group.min == group.requested)
        for pool in record.scenario.pools
    }
    return sum(max(0, at_min[pool.name] - pool.min) for pool in record.scenario.pools)


def served(snapshot: Snapshot, pool: str, zone: str | None) -> int:
    """Nodes of one demand that run: those that are bound to a zone come first there."""
    running = {group.zone: group.running for group in snapshot.of_pool(pool)}
    bound = {name: min(nodes, snapshot.demand.get((pool, name), 0)) for name, nodes in running.items()}
    if zone is not None:
        return bound[zone]
    return min(snapshot.demand.get((pool, None), 0), sum(running.values()) - sum(bound.values()))


def _waiting(snapshot: Snapshot) -> int:
    return sum(nodes - served(snapshot, pool, zone) for (pool, zone), nodes in snapshot.demand.items())


def _rises(record: Record) -> Iterator[DemandRise]:
    """Every rise of demand that did not find its nodes there already, and when so many ran for the first time."""
    for demand in record.scenario.demand:
        pool = record.scenario.pool_named(demand.pool).name
        steps = [step for step in demand.nodes if step.at < record.scenario.duration]
        before = 0
        for i, step in enumerate(steps):
            if step.nodes > before:
                # A later rise does not end it; a fall below it does.
                end = next((later.at for later in steps[i:] if later.nodes < step.nodes), record.scenario.duration + 1)
                snapshots = [snapshot for snapshot in record.snapshots if snapshot.at < end]
                before_rise = [snapshot for snapshot in snapshots if snapshot.at <= step.at]
                since_rise = before_rise[-1:] + [snapshot for snapshot in snapshots if snapshot.at > step.at]
                met = next(
                    (snapshot.at for snapshot in since_rise if served(snapshot, pool, demand.zone) >= step.nodes), None
                )
                seconds = None if met is None else max(0, met - step.at)
                yield DemandRise(at=step.at, pool=pool, zone=demand.zone, nodes=step.nodes, seconds=seconds)
            before = step.nodes


def run_json(record: Record) -> dict[str, Any]:
    """One run; the names are a contract (docs/simulate.md)."""
    pools = record.scenario.pools
    measures = asdict(measure(record))
    return {
        "strategy": record.variant.name,
        "measures": measures,
        "pools": [{"name": pool.name, "min": pool.min, "max": pool.max} for pool in pools],
        "timeline": [
            {
                "t": snapshot.at,
                "pool": pool.name,
                "demand": snapshot.wanted(pool.name),
                "groups": [
                    {
                        "name": group.name,
                        "zone": group.zone,
                        "requested": group.requested,
                        "running": group.running,
                        "min": group.min,
                        "max": group.max,
                        "state": group.state.value,
                    }
                    for group in snapshot.of_pool(pool.name)
                ],
            }
            for snapshot in record.snapshots
            for pool in pools
        ],
        "decisions": [
            {"t": decision.at, "pool": decision.pool, "reasons": list(decision.reasons)}
            for decision in record.decisions
        ],
        "fenced": [
            {"zone": zone, "from": start, "until": until}
            for zone, start, until in fenced_spans(record, [pool.name for pool in pools])
        ],
    }


def simulation_json(records: Sequence[Record]) -> dict[str, Any]:
    """All runs of a scenario, as ``simulate -o json`` prints them."""
    scenario = records[0].scenario
    return {
        "scenario": scenario.name,
        "start": rfc3339(scenario.start),
        "duration": scenario.duration,
        "runs": [run_json(record) for record in records],
    }
