"""What a run was like, in numbers that can be compared."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evenkeel.texts.english import rfc3339
from evenkeel_cli.simulation.engine import GroupSnapshot, Record, Snapshot, fenced_spans
from evenkeel_cli.simulation.scenario import Scenario

_HOUR, _MINUTE = 3600, 60


@dataclass(frozen=True, kw_only=True)
class DemandRise:
    """A rise of demand, and how long it took. ``seconds`` None: it was still waiting at its end."""

    at: int
    pool: str
    zone: str | None
    nodes: int
    seconds: int | None


@dataclass(frozen=True, kw_only=True)
class PodRise:
    """More pods of a kind, and how long until none of them waited. ``seconds`` None: some waited at its end."""

    at: int
    kind: str
    pods: int
    seconds: int | None


@dataclass(frozen=True, kw_only=True)
class Wave:
    """From a rise of all pods together that follows a fall, until the next such one."""

    at: int
    pods: int  # at its height
    seconds: int | None  # the longest until nobody waited, of its rises; None: somebody waited for ever
    ordered: int  # nodes
    skew_high: int  # of the worst pool, as long as its height lasted
    skew_after: int  # the same, when the next one begins


@dataclass(frozen=True, kw_only=True)
class PodMeasures:
    """What a run was like for pods."""

    rises: tuple[PodRise, ...]
    waves: tuple[Wave, ...]
    ordered: int  # nodes
    waiting_pod_minutes: float
    evicted: int
    against_budget: int  # evicted with too few of its kind left to serve
    held: int  # times that a drain found that a budget lets nobody go


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
    moved: int  # nodes that converge has moved home
    pods: PodMeasures | None  # None: demand is numbers


def measure(record: Record) -> Measures:
    """Over every second of a run, until the end of its scenario."""
    pools = record.scenario.pools
    spans = list(_spans(record))
    length = record.scenario.duration
    skews = {
        pool.name: [(_skew(snapshot.of_pool(pool.name)), seconds) for snapshot, seconds in spans] for pool in pools
    }
    demand, of_pods = tuple(_rises(record)), _measure_pods(record, spans)
    rises: tuple[DemandRise | PodRise, ...] = demand if of_pods is None else of_pods.rises
    times = [rise.seconds for rise in rises if rise.seconds is not None]
    return Measures(
        demand=demand,
        worst_seconds=max(times) if times and len(times) == len(rises) else None,
        unmet=len(rises) - len(times),
        waiting_node_hours=_hours(sum(_waiting(snapshot) * seconds for snapshot, seconds in spans)),
        over_requested=_over(record, [[g.requested for g in snapshot.groups] for snapshot in record.snapshots]),
        over_running=_over(record, [[g.running for g in snapshot.groups] for snapshot in record.snapshots]),
        skew_mean=round(max(sum(skew * s for skew, s in of_pool) / length for of_pool in skews.values()), 2),
        skew_worst=max(skew for of_pool in skews.values() for skew, _ in of_pool),
        skew_recovered=_skew_recovered(record, skews.values()),
        held_node_hours=_hours(sum(_held(record, snapshot) * seconds for snapshot, seconds in spans)),
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
        held=last.pods.held,
    )


def _pod_rises(record: Record) -> Iterator[PodRise]:
    """Every step with more pods, and when none of that kind waited for the first time."""
    end = record.scenario.duration
    for setup in record.scenario.pods:
        before = 0
        steps = [step for step in setup.count if step.at < end]
        for i, step in enumerate(steps):
            if step.pods > before:
                # A later rise does not end it; a fall below it does. Jobs do not fall.
                falls = (later.at for later in steps[i:] if later.pods < step.pods and not setup.lifetime)
                met = _nobody_waits(record, setup.name, step.at, next(falls, end + 1))
                seconds = None if met is None else met - step.at
                yield PodRise(at=step.at, kind=setup.name, pods=step.pods, seconds=seconds)
            before = 0 if setup.lifetime else step.pods


def _nobody_waits(record: Record, kind: str, since: int, end: int) -> int | None:
    """The first second in which no pod of a kind waits."""
    for snapshot, until in zip(record.snapshots, [*(s.at for s in record.snapshots[1:]), end], strict=True):
        if until > since and snapshot.at < end and snapshot.pods is not None and not snapshot.pods.waiting[kind]:
            return max(since, snapshot.at)
    return None


def _waves(record: Record, rises: Sequence[PodRise]) -> Iterator[Wave]:
    heights = list(_heights(record.scenario))
    for i, (start, falls, pods) in enumerate(heights):
        end = heights[i + 1][0] if i + 1 < len(heights) else record.scenario.duration
        of_it = [rise.seconds for rise in rises if start <= rise.at < end]
        met = [seconds for seconds in of_it if seconds is not None]
        yield Wave(
            at=start,
            pods=pods,
            seconds=max(met, default=0) if len(met) == len(of_it) else None,
            ordered=_before(record, end).ordered - (_before(record, start).ordered if start else 0),
            skew_high=_worst_skew(record, falls),
            skew_after=_worst_skew(record, end),
        )


def _heights(scenario: Scenario) -> Iterator[tuple[int, int, int]]:
    """Of each wave when it begins, when pods begin to go, and how many are wanted in between, at most.

    Jobs are taken to begin and to end on time: so waves are the same whoever runs.
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
    """The world just before a second; at the start, as it was then."""
    return next((snapshot for snapshot in reversed(record.snapshots) if snapshot.at < second), record.snapshots[0])


def _worst_skew(record: Record, second: int) -> int:
    """Just before a second."""
    snapshot = _before(record, second)
    return max(_skew(snapshot.of_pool(pool.name)) for pool in record.scenario.pools)


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
                **_pods_json(snapshot),
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


def _pods_json(snapshot: Snapshot) -> dict[str, Any]:
    """Pods of the whole cluster: most of them may run in any pool."""
    pods = snapshot.pods
    return {} if pods is None else {"pods": sum(pods.wanted.values()), "waiting": sum(pods.waiting.values())}


def simulation_json(records: Sequence[Record]) -> dict[str, Any]:
    """All runs of a scenario, as ``simulate -o json`` prints them."""
    scenario = records[0].scenario
    return {
        "scenario": scenario.name,
        "start": rfc3339(scenario.start),
        "duration": scenario.duration,
        "runs": [run_json(record) for record in records],
    }
