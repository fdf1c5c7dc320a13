"""Play a scenario in virtual time, and record each run as a timeline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from evenkeel.domain.model.choices import DemandStage, Strategy
from evenkeel.domain.model.groups import Bounds, MachineFailure, State
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES, read_strategy
from evenkeel_cli.simulation.agenda import Agenda, Turn
from evenkeel_cli.simulation.autoscaler import SimulatedAutoscaler
from evenkeel_cli.simulation.evenkeel import Decision, Evenkeel, record_of
from evenkeel_cli.simulation.pods import PodCounts
from evenkeel_cli.simulation.scenario import GroupSpan, Leaving, Loss, Scenario, spans_where
from evenkeel_cli.simulation.world import Demands, Group, World

# Variants that are not strategies. STATIC and LOOSE have an autoscaler and no Evenkeel: each group's max is its share
# of the pool's max, or all of it. ALONE and SERVERLESS have Evenkeel without an autoscaler, for demand in nodes and
# for pods.
STATIC, LOOSE, ALONE, SERVERLESS = "static", "loose", "no-autoscaler", "serverless"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The participants of a run. ``strategy`` None: each pool uses its own strategy."""

    name: str
    strategy: Strategy | None = None
    evenkeel: bool = True
    autoscaler: bool = True
    demand: DemandStage = DemandStage.OFF


class GroupSnapshot(NamedTuple):
    """A node group at one moment."""

    name: str
    pool: str
    zone: str
    requested: int
    running: int
    min: int | None  # None: unreadable
    max: int | None
    state: State
    drained: int  # the number of nodes that still run but are no longer replicas

    def json(self) -> dict[str, Any]:
        """Return the group as `simulate -o json` and `forecast -o json` print it."""
        fields = ("name", "zone", "requested", "running", "min", "max", "state")
        return {name: getattr(self, name) for name in fields}


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The state of the world from second ``at`` until the next snapshot."""

    at: int
    demand: Demands
    groups: tuple[GroupSnapshot, ...]
    ordered: int  # the number of nodes ordered so far
    pods: PodCounts | None  # None: the scenario gives demand in nodes

    def of_pool(self, pool: str) -> list[GroupSnapshot]:
        """Return a pool's groups, sorted by zone."""
        return [group for group in self.groups if group.pool == pool]

    def wanted(self, pool: str) -> int:
        """Return the nodes that a pool's pods need."""
        return sum(nodes for (name, _), nodes in self.demand.items() if name == pool)


@dataclass(frozen=True, kw_only=True)
class Record:
    """The timeline and the totals of a run."""

    scenario: Scenario
    variant: Variant
    snapshots: tuple[Snapshot, ...]  # one per change
    decisions: tuple[Decision, ...]
    failed_launches: int
    patches: int
    moved: int  # the number of nodes that converge moved


def variants_of(scenario: Scenario, choice: str) -> list[Variant]:
    """Return the variants of ``--strategy``: ``own``, ``all``, or one by name. Raises BadValueError."""
    with_autoscaler = scenario.autoscaler.enabled
    demand = DemandStage(scenario.evenkeel.demand)
    if scenario.pods and not with_autoscaler:
        demand = DemandStage.FULL
    if choice == "own":
        names = sorted({pool.strategy.name for pool in scenario.pools})
        return [Variant(name=" and ".join(names), autoscaler=with_autoscaler, demand=demand)]
    variants = [
        Variant(name=strategy.name, strategy=strategy, autoscaler=with_autoscaler, demand=demand)
        for strategy in STRATEGIES
    ]
    if with_autoscaler:
        variants += [Variant(name=name, evenkeel=False) for name in (STATIC, LOOSE)]
    if scenario.pods:
        variants.append(Variant(name=SERVERLESS, autoscaler=False, demand=DemandStage.FULL))
    elif with_autoscaler:
        variants.append(Variant(name=ALONE, autoscaler=False))
    if choice == "all":
        return variants
    name = choice if choice in (STATIC, LOOSE, ALONE, SERVERLESS) else read_strategy(choice).name
    return [variant for variant in variants if variant.name == name]


def play(
    run: "Run",
    progress: Callable[[int], None] = lambda _: None,
    is_over: Callable[[int], bool] = lambda _: False,
) -> Record:
    """Play a run from its first second to its last. Return its record.

    ``is_over`` is called with each second that has an event. If it returns True, the run ends before this second.
    """
    agenda, duration = run.agenda, run.scenario.duration
    run.fill_agenda()
    while (second := agenda.next_second()) is not None and second <= duration and not is_over(second):
        run.world.now = second
        progress(second)
        while agenda.next_second() == second:
            agenda.take()()
        run.notice()
    return run.record()


class Run:
    """The run of a scenario's cluster with one variant."""

    def __init__(self, scenario: Scenario, variant: Variant) -> None:
        self.scenario = scenario
        self.variant = variant
        self.agenda = Agenda()
        self.world = self._new_world()
        self.world.refused = self._refused
        if self.world.pods is not None:
            self.world.pods.refused = self._unschedulable
        self._autoscaler = SimulatedAutoscaler(self.world, scenario.autoscaler)
        self.evenkeel = self._new_evenkeel()
        self.snapshots: list[Snapshot] = []
        self._checks: set[int] = set()  # the seconds of requested checks; one check answers all requests
        self._version = 0  # the version of the pods at the last snapshot

    def _new_world(self) -> World:
        world = World(self.scenario, self.agenda)
        if self.variant.name == LOOSE:
            for pool in self.scenario.pools:
                for group in world.of_pool[pool.name]:
                    group.bounds = Bounds(group.bounds.min, pool.max)
        return world

    def _new_evenkeel(self) -> Evenkeel:
        variant = self.variant
        record = record_of(self.scenario, variant.strategy, autoscaler=variant.autoscaler, demand=variant.demand)
        return Evenkeel(self.world, record, self._check_in)

    def __call__(self, progress: Callable[[int], None] = lambda _: None) -> Record:
        """Play the run; ``progress`` is called with each second that has an event."""
        return play(self, progress)

    def notice(self) -> None:
        """Take a snapshot if something has changed."""
        version = self.world.pods.version if self.world.pods else 0
        if self.world.changed or version != self._version:
            self.world.changed, self._version = False, version
            self._take_snapshot()

    def record(self) -> Record:
        """Return the record of the run so far."""
        return Record(
            scenario=self.scenario,
            variant=self.variant,
            snapshots=tuple(self.snapshots),
            decisions=tuple(self.evenkeel.table.decisions),
            failed_launches=self.world.failed_launches,
            patches=self.evenkeel.patches,
            moved=self.evenkeel.table.moved,
        )

    def fill_agenda(self) -> None:
        """Add the events of the scenario, and the first loop of each participant."""
        enter = self.agenda.enter
        for demand in self.scenario.demand:
            pool = self.scenario.pool_named(demand.pool).name
            for step in demand.nodes:
                enter(step.at, Turn.WORLD, partial(self._want, (pool, demand.zone), step.nodes))
        for mark in ("frozen", "bad_bounds"):
            for span in getattr(self.scenario, mark):
                enter(span.start, Turn.WORLD, partial(self._mark, mark, span, True))
                enter(span.until, Turn.WORLD, partial(self._mark, mark, span, False))
        for loss in self.scenario.lost:
            enter(loss.at, Turn.WORLD, partial(self._lose, loss))
        if self.variant.autoscaler:
            enter(0, Turn.AUTOSCALER, self._loop)
        if self.variant.evenkeel:
            enter(0, Turn.WORLD, self._scan)  # at the start, Evenkeel checks before other participants act
            for fence in self.scenario.fences:
                enter(fence.start, Turn.EVENT, partial(self._fence, fence.zone, fence.until))
            for leaving in self.scenario.leaves:
                enter(leaving.start, Turn.EVENT, partial(self._leave, leaving))

    # Events

    def _want(self, key: tuple[str, str | None], nodes: int) -> None:
        self.world.demand[key] = nodes
        self.world.changed = True
        if not self.variant.autoscaler:
            # Without an autoscaler, a higher PoolMinimum requests the nodes.
            pool = self.scenario.pool_named(key[0])
            for group in self.world.of_pool[pool.name]:
                group.pool_min = min(pool.max, max(pool.min, self.world.wanted(pool.name)))

    def _lose(self, loss: Loss) -> None:
        self.world.lose(self._group_of(loss), loss.nodes)

    def _group_of(self, span: GroupSpan | Loss) -> Group:
        pool = self.scenario.pool_named(span.pool).name
        return next(group for group in self.world.of_pool[pool] if group.zone == span.zone)

    def _mark(self, mark: str, span: GroupSpan, on: bool) -> None:
        setattr(self._group_of(span), mark, on)
        self.world.changed = True

    def _loop(self) -> None:
        self._autoscaler.loop()
        self.agenda.enter(self.world.now + self.scenario.autoscaler.loop, Turn.AUTOSCALER, self._loop)

    def _scan(self) -> None:
        if not self.evenkeel.repeats():
            self.check()
        self.agenda.enter(self.world.now + self.scenario.evenkeel.scan_interval, Turn.EVENKEEL, self._scan)

    def _check_in(self, seconds: int) -> None:
        at = self.world.now + seconds
        if at not in self._checks:
            self._checks.add(at)
            self.agenda.enter(at, Turn.EVENKEEL, self._requested_check)

    def _requested_check(self) -> None:
        self._checks.discard(self.world.now)
        self.check()

    def _fence(self, zone: str, until: int) -> None:
        self.evenkeel.fence_zone(zone, until)
        self._check_in(0)

    def _leave(self, leaving: Leaving) -> None:
        self.evenkeel.leave_zone(leaving)
        self._check_in(0)

    def _refused(self, group: Group, failure: MachineFailure) -> None:
        if self.variant.evenkeel:
            latency = self.scenario.evenkeel.event_latency
            self.agenda.enter(self.world.now + latency, Turn.EVENT, partial(self._record_failure, group, failure))

    def _unschedulable(self) -> None:
        if self.variant.demand.orders:
            self._check_in(self.scenario.evenkeel.event_latency)

    def _record_failure(self, group: Group, failure: MachineFailure) -> None:
        self.evenkeel.record_failure(group, failure)
        self._check_in(0)

    def check(self) -> None:
        """Perform one run of Evenkeel; its patches take effect at once."""
        self.evenkeel.check()

    def _take_snapshot(self) -> None:
        world = self.world
        snapshot = Snapshot(
            at=world.now,
            demand=dict(world.demand),
            groups=tuple(
                GroupSnapshot(
                    name=group.key.name,
                    pool=group.pool,
                    zone=group.zone,
                    requested=group.requested,
                    running=group.running,
                    min=None if group.bad_bounds else group.bounds.min,
                    max=None if group.bad_bounds else group.bounds.max,
                    state=group.state,
                    drained=group.drained,
                )
                for group in world.groups
            ),
            ordered=world.ordered,
            pods=None if world.pods is None else world.pods.counts(),
        )
        last = self.snapshots[-1] if self.snapshots else None
        if last is None or (last.demand, last.groups, last.pods) != (snapshot.demand, snapshot.groups, snapshot.pods):
            self.snapshots.append(snapshot)


def fenced_spans(record: Record, pools: Sequence[str]) -> list[tuple[str, int, int]]:
    """Return (zone, from, until) of each span in which a group of these pools is fenced."""

    def is_fenced(snapshot: Snapshot, zone: str) -> bool:
        members = (group for group in snapshot.groups if group.zone == zone and group.pool in pools)
        return any(group.state is State.FENCED for group in members)

    return [
        (zone.name, *span)
        for zone in record.scenario.zones
        for span in spans_where(
            ((snapshot.at, is_fenced(snapshot, zone.name)) for snapshot in record.snapshots), record.scenario.duration
        )
    ]
