"""Measures of a run, to compare strategies."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any

from evenkeel.texts.english import rfc3339
from evenkeel_cli.simulation.engine import GroupSnapshot, Record, Snapshot, fenced_spans
from evenkeel_cli.simulation.scenario import Scenario

_HOUR, _MINUTE = 3600, 60


@dataclass(frozen=True, kw_only=True)
class DemandRise:
    """A rise of demand. ``seconds``: the time until enough nodes ran; None: the rise was never met."""

    at: int
    pool: str
    zone: str | None
    nodes: int
    seconds: int | None


@dataclass(frozen=True, kw_only=True)
class PodRise:
    """A rise in the pods of a kind. ``seconds``: the time until no pod was pending; None: some remained pending."""

    at: int
    kind: str
    pods: int
    seconds: int | None


@dataclass(frozen=True, kw_only=True)
class Wave:
    """A wave of demand of all pods. It lasts from the first rise after a fall until the next wave begins."""

    at: int
    pods: int  # the highest number of pods during the wave
    seconds: int | None  # the time until its slowest rise was met; None: a rise was not met
    ordered: int  # the number of nodes ordered during the wave
    skew_high: int  # skew of the worst pool, just before the first pods end
    skew_after: int  # skew of the worst pool, just before the next wave


@dataclass(frozen=True, kw_only=True)
class PodMeasures:
    """Measures of a run's pods."""

    rises: tuple[PodRise, ...]
    waves: tuple[Wave, ...]
    ordered: int  # the number of nodes ordered during the run
    waiting_pod_minutes: float
    evicted: int
    against_budget: int  # the number of evictions that left fewer ready pods than the budget requires


@dataclass(frozen=True, kw_only=True)
class Measures:
    """The measures of one run. ``over_*`` and ``skew_*`` are the values of the worst pool."""

    demand: tuple[DemandRise, ...]
    worst_seconds: int | None  # the time until the slowest rise was met; None: no rise, or one was not met
    unmet: int  # the number of rises that were not met
    waiting_node_hours: float  # nodes that pods waited for, times hours
    over_requested: int  # the largest number of requested nodes beyond PoolMaximum
    over_running: int  # the largest number of running nodes beyond PoolMaximum
    skew_mean: float  # nodes in the fullest zone minus nodes in the emptiest zone, mean over time
    skew_worst: int
    skew_recovered: float | None  # mean skew after the last outage; None: there was no outage
    failed_launches: int
    node_hours: float
    patches: int
    moved: int  # the number of nodes that converge moved
    pods: PodMeasures | None  # None: the scenario gives demand in nodes


def measure(record: Record) -> Measures:
    """Return the measures of a run until the end of its scenario."""
    spans = [(snapshot, until - snapshot.at) for snapshot, until in _until_next(record, record.scenario.duration)]
    demand, of_pods = tuple(_rises(record)), _measure_pods(record, spans)
    rises: tuple[DemandRise | PodRise, ...] = demand if of_pods is None else of_pods.rises
    times = [rise.seconds for rise in rises if rise.seconds is not None]
    return Measures(
        demand=demand,
        worst_seconds=max(times) if times and len(times) == len(rises) else None,
        unmet=len(rises) - len(times),
        waiting_node_hours=_hours(sum(_waiting(snapshot) * seconds for snapshot, seconds in spans)),
        over_requested=_over(record, attrgetter("requested")),
        over_running=_over(record, attrgetter("running")),
        skew_mean=_mean_skew(record, spans, since=0) or 0.0,
        skew_worst=max(_worst_skew(record, snapshot) for snapshot in record.snapshots),
        skew_recovered=_mean_skew(record, spans, record.scenario.recovered_at),
        failed_launches=record.failed_launches,
        node_hours=_hours(
            sum((group.running + group.drained) * seconds for snapshot, seconds in spans for group in snapshot.groups)
        ),
        patches=record.patches,
        moved=record.moved,
        pods=of_pods,
    )


def _measure_pods(record: Record, spans: Sequence[tuple[Snapshot, int]]) -> PodMeasures | None:
    last = record.snapshots[-1]
    if last.pods is None:
        return None
    rises = tuple(_pod_rises(record))
    waiting = sum(sum(snapshot.pods.waiting.values()) * seconds for snapshot, seconds in spans if snapshot.pods)
    return PodMeasures(
        rises=rises,
        waves=tuple(_waves(record, rises)),
        ordered=last.ordered,
        waiting_pod_minutes=round(waiting / _MINUTE, 1),
        evicted=last.pods.evicted,
        against_budget=last.pods.against_budget,
    )


def _pod_rises(record: Record) -> Iterator[PodRise]:
    for setup in record.scenario.pods:
        steps = [(step.at, step.pods) for step in setup.count]

        def is_met(snapshot: Snapshot, _pods: int, kind: str = setup.name) -> bool:
            return snapshot.pods is not None and not snapshot.pods.waiting[kind]

        for at, pods, seconds in _met(record, steps, is_met, falls=not setup.lifetime):
            yield PodRise(at=at, kind=setup.name, pods=pods, seconds=seconds)


def _met(
    record: Record, steps: Sequence[tuple[int, int]], is_met: Callable[[Snapshot, int], bool], *, falls: bool = True
) -> Iterator[tuple[int, int, int | None]]:
    """Yield the second and height of each rise, and the seconds until a snapshot met the rise; None: it was never met.

    A rise ends when demand falls below its height. If ``falls`` is False, each step is a rise, which ends with the run.
    """
    end, before = record.scenario.duration, 0
    for i, (at, wanted) in enumerate(steps):
        if at < end and wanted > before:
            last = next((later for later, height in steps[i:] if falls and later < end and height < wanted), end + 1)
            met = next(
                (
                    max(at, snapshot.at)
                    for snapshot, until in _until_next(record, last)
                    if until > at and snapshot.at < last and is_met(snapshot, wanted)
                ),
                None,
            )
            yield at, wanted, None if met is None else met - at
        before = wanted if falls else 0


def _waves(record: Record, rises: Sequence[PodRise]) -> Iterator[Wave]:
    heights = list(_heights(record.scenario))
    for i, (start, falls, pods) in enumerate(heights):
        end = heights[i + 1][0] if i + 1 < len(heights) else record.scenario.duration
        times = [rise.seconds for rise in rises if start <= rise.at < end]
        met = [seconds for seconds in times if seconds is not None]
        yield Wave(
            at=start,
            pods=pods,
            seconds=max(met, default=0) if len(met) == len(times) else None,
            ordered=_before(record, end).ordered - (_before(record, start).ordered if start else 0),
            skew_high=_worst_skew(record, _before(record, falls)),
            skew_after=_worst_skew(record, _before(record, end)),
        )


def _heights(scenario: Scenario) -> Iterator[tuple[int, int, int]]:
    """Yield for each wave its start, the second in which its first pods end, and its highest number of pods.

    Jobs are assumed to start and end as scheduled, so that waves are the same for all variants.
    """
    changes: Counter[int] = Counter()
    for setup in scenario.pods:
        before = 0
        for step in setup.count:
            changes[step.at] += step.pods - before
            if setup.lifetime:
                changes[step.at + setup.lifetime] -= step.pods
            else:
                before = step.pods
    start: int | None = None
    pods = 0
    for at, change in sorted(changes.items()):
        if at >= scenario.duration:
            break
        if change < 0 and start is not None:
            yield start, at, pods
            start = None
        elif change > 0 and start is None:
            start = at
        pods += change
    if start is not None:
        yield start, scenario.duration, pods


def _before(record: Record, second: int) -> Snapshot:
    """Return the last snapshot before a second; if there is none, the first snapshot of the run."""
    return next((snapshot for snapshot in reversed(record.snapshots) if snapshot.at < second), record.snapshots[0])


def _worst_skew(record: Record, snapshot: Snapshot) -> int:
    """Return the skew of the pool that has the largest skew."""
    return max(_skew(snapshot.of_pool(pool.name)) for pool in record.scenario.pools)


def _hours(node_seconds: int) -> float:
    return round(node_seconds / _HOUR, 2)


def _until_next(record: Record, end: int) -> Iterator[tuple[Snapshot, int]]:
    """Yield each snapshot with the second of the next snapshot; the last snapshot lasts until ``end``."""
    return zip(record.snapshots, [*(snapshot.at for snapshot in record.snapshots[1:]), end], strict=True)


def _over(record: Record, count: Callable[[GroupSnapshot], int]) -> int:
    """Return the largest number of nodes by which a pool exceeds its PoolMaximum."""
    return max(
        0,
        *(
            sum(map(count, snapshot.of_pool(pool.name))) - pool.max
            for snapshot in record.snapshots
            for pool in record.scenario.pools
        ),
    )


def _skew(groups: Sequence[GroupSnapshot]) -> int:
    running = [group.running for group in groups]
    return max(running) - min(running)


def _mean_skew(record: Record, spans: Sequence[tuple[Snapshot, int]], since: int | None) -> float | None:
    """Return the mean skew of the worst pool from ``since`` on; None if ``since`` is None or after the run's end."""
    left = record.scenario.duration - since if since is not None else 0
    if since is None or left <= 0:
        return None
    weights = [
        (snapshot, weight)
        for snapshot, seconds in spans
        if (weight := snapshot.at + seconds - max(snapshot.at, since)) > 0
    ]
    sums = [
        sum(_skew(snapshot.of_pool(pool.name)) * weight for snapshot, weight in weights)
        for pool in record.scenario.pools
    ]
    return round(max(sums) / left, 2)


def served(snapshot: Snapshot, pool: str, zone: str | None) -> int:
    """Return how many running nodes meet one demand. A zone's nodes first meet the demand that is bound to the zone."""
    running = {group.zone: group.running for group in snapshot.of_pool(pool)}
    bound = {name: min(nodes, snapshot.demand.get((pool, name), 0)) for name, nodes in running.items()}
    if zone is not None:
        return bound[zone]
    return min(snapshot.demand.get((pool, None), 0), sum(running.values()) - sum(bound.values()))


def _waiting(snapshot: Snapshot) -> int:
    return sum(nodes - served(snapshot, pool, zone) for (pool, zone), nodes in snapshot.demand.items())


def _rises(record: Record) -> Iterator[DemandRise]:
    for demand in record.scenario.demand:
        pool, zone = record.scenario.pool_named(demand.pool).name, demand.zone
        steps = [(step.at, step.nodes) for step in demand.nodes]

        def is_met(snapshot: Snapshot, nodes: int, pool: str = pool, zone: str | None = zone) -> bool:
            return served(snapshot, pool, zone) >= nodes

        for at, nodes, seconds in _met(record, steps, is_met):
            yield DemandRise(at=at, pool=pool, zone=zone, nodes=nodes, seconds=seconds)


def run_json(record: Record) -> dict[str, Any]:
    """Return one run as JSON, with the fields of docs/guides/simulate.md."""
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
                **_pods_json(snapshot),
                "groups": [group.json() for group in snapshot.of_pool(pool.name)],
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


def _pods_json(snapshot: Snapshot) -> dict[str, Any]:
    """Return the numbers of pods in the whole cluster, because pods may run in any pool."""
    pods = snapshot.pods
    return {} if pods is None else {"pods": sum(pods.wanted.values()), "waiting": sum(pods.waiting.values())}


def simulation_json(records: Sequence[Record]) -> dict[str, Any]:
    """Return all runs as JSON (``simulate -o json``)."""
    scenario = records[0].scenario
    return {
        "scenario": scenario.name,
        "start": rfc3339(scenario.start),
        "duration": scenario.duration,
        "runs": [run_json(record) for record in records],
    }
