"""One run of a scenario: everything that happens, second by second of virtual time, as a timeline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from evenkeel.cli.simulation.autoscaler import SimulatedAutoscaler
from evenkeel.cli.simulation.evenkeel import Decision, Evenkeel, record_of
from evenkeel.cli.simulation.scenario import GroupSpan, Scenario, spans_where
from evenkeel.cli.simulation.world import Agenda, Demands, Group, Turn, World
from evenkeel.domain.bounds.strategies import STRATEGIES, read_strategy
from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.groups import MachineFailure, State

# Beside the strategies: each zone keeps its share and nobody looks; and Evenkeel without an autoscaler.
STATIC, ALONE = "static", "no-autoscaler"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Who takes part in a run. ``strategy`` None: each pool has its own."""

    name: str
    strategy: Strategy | None = None
    evenkeel: bool = True
    autoscaler: bool = True


@dataclass(frozen=True, kw_only=True)
class GroupSnapshot:
    """A node group at one moment."""

    name: str
    pool: str
    zone: str
    requested: int
    running: int
    min: int | None  # None: bounds that nobody can read
    max: int | None
    state: State


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The world from a moment on, until the next one."""

    at: int
    demand: Demands
    groups: tuple[GroupSnapshot, ...]

    def of_pool(self, pool: str) -> list[GroupSnapshot]:
        """The groups of one pool, in zone order."""
        return [group for group in self.groups if group.pool == pool]

    def wanted(self, pool: str) -> int:
        """Nodes of a pool that pods want, bound to a zone or not."""
        return sum(nodes for (name, _), nodes in self.demand.items() if name == pool)


@dataclass(frozen=True, kw_only=True)
class Record:
    """A run from its first second to its last, as every measure and picture needs it."""

    scenario: Scenario
    variant: Variant
    snapshots: tuple[Snapshot, ...]  # one per change
    decisions: tuple[Decision, ...]
    failed_launches: int
    patches: int


def variants_of(scenario: Scenario, choice: str) -> list[Variant]:
    """The runs that ``--strategy`` asks for: ``own``, ``all``, or one by name. Raises BadValueError."""
    with_autoscaler = scenario.autoscaler.enabled
    if choice == "own":
        names = sorted({pool.strategy.name for pool in scenario.pools})
        return [Variant(name=" and ".join(names), autoscaler=with_autoscaler)]
    variants = [Variant(name=strategy.name, strategy=strategy, autoscaler=with_autoscaler) for strategy in STRATEGIES]
    if with_autoscaler:
        variants += [Variant(name=STATIC, evenkeel=False), Variant(name=ALONE, autoscaler=False)]
    if choice == "all":
        return variants
    name = choice if choice in (STATIC, ALONE) else read_strategy(choice).name
    return [variant for variant in variants if variant.name == name]


class Run:
    """A scenario on its way through time."""

    def __init__(self, scenario: Scenario, variant: Variant) -> None:
        self.scenario = scenario
        self.variant = variant
        self.agenda = Agenda()
        self.world = World(scenario, self.agenda)
        self.world.refused = self._refused
        self._autoscaler = SimulatedAutoscaler(self.world, scenario.autoscaler)
        record = record_of(scenario, variant.strategy, autoscaler=variant.autoscaler)
        self.evenkeel = Evenkeel(self.world, record, self._look_in)
        self.snapshots: list[Snapshot] = []

    def __call__(self, progress: Callable[[int], None] = lambda _: None) -> Record:
        """From the first second to the last; ``progress`` is told each second in which something happens."""
        self._fill_agenda()
        while (second := self.agenda.next_second()) is not None and second <= self.scenario.duration:
            self.world.now = second
            progress(second)
            while self.agenda.next_second() == second:
                self.agenda.take()()
            if self.world.changed:
                self.world.changed = False
                self._take_snapshot()
        return Record(
            scenario=self.scenario,
            variant=self.variant,
            snapshots=tuple(self.snapshots),
            decisions=tuple(self.evenkeel.decisions),
            failed_launches=self.world.failed_launches,
            patches=self.evenkeel.patches,
        )

    def _fill_agenda(self) -> None:
        enter = self.agenda.enter
        for demand in self.scenario.demand:
            pool = self.scenario.pool_named(demand.pool).name
            for step in demand.nodes:
                enter(step.at, Turn.WORLD, partial(self._want, (pool, demand.zone), step.nodes))
        for span, mark in [(s, self._freeze) for s in self.scenario.frozen] + [
            (s, self._spoil) for s in self.scenario.bad_bounds
        ]:
            enter(span.start, Turn.WORLD, partial(mark, span, True))
            enter(span.until, Turn.WORLD, partial(mark, span, False))
        if self.variant.autoscaler:
            enter(0, Turn.AUTOSCALER, self._loop)
        if self.variant.evenkeel:
            enter(0, Turn.WORLD, self._scan)  # Evenkeel has been there before the scenario begins
            for fence in self.scenario.fences:
                enter(fence.start, Turn.EVENT, partial(self._fence, fence.zone, fence.until))

    # What happens on the agenda

    def _want(self, key: tuple[str, str | None], nodes: int) -> None:
        self.world.demand[key] = nodes
        self.world.changed = True
        if not self.variant.autoscaler:
            # Somebody has to say how many nodes are wanted: it is done by way of PoolMinimum.
            pool = self.scenario.pool_named(key[0])
            for group in self.world.of_pool[pool.name]:
                group.pool_min = min(pool.max, max(pool.min, self.world.wanted(pool.name)))

    def _group_of(self, span: GroupSpan) -> Group:
        pool = self.scenario.pool_named(span.pool).name
        return next(group for group in self.world.of_pool[pool] if group.zone == span.zone)

    def _freeze(self, span: GroupSpan, on: bool) -> None:
        self._group_of(span).frozen = on

    def _spoil(self, span: GroupSpan, on: bool) -> None:
        self._group_of(span).bad_bounds = on
        self.world.changed = True

    def _loop(self) -> None:
        self._autoscaler.loop()
        self.agenda.enter(self.world.now + self.scenario.autoscaler.loop, Turn.AUTOSCALER, self._loop)

    def _scan(self) -> None:
        self.look()
        self.agenda.enter(self.world.now + self.scenario.evenkeel.scan_interval, Turn.EVENKEEL, self._scan)

    def _look_in(self, seconds: int) -> None:
        self.agenda.enter(self.world.now + seconds, Turn.EVENKEEL, self.look)

    def _fence(self, zone: str, until: int) -> None:
        self.evenkeel.fence_zone(zone, until)
        self._look_in(0)

    def _refused(self, group: Group, failure: MachineFailure) -> None:
        if self.variant.evenkeel:
            latency = self.scenario.evenkeel.event_latency
            self.agenda.enter(self.world.now + latency, Turn.EVENT, partial(self._record_failure, group, failure))

    def _record_failure(self, group: Group, failure: MachineFailure) -> None:
        self.evenkeel.record_failure(group, failure)
        self._look_in(0)

    def look(self) -> None:
        """One look of Evenkeel; its patches take effect at once."""
        self.evenkeel.look()

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
                )
                for group in world.groups
            ),
        )
        last = self.snapshots[-1] if self.snapshots else None
        if last is None or (last.demand, last.groups) != (snapshot.demand, snapshot.groups):
            self.snapshots.append(snapshot)


def fenced_spans(record: Record, pools: Sequence[str]) -> list[tuple[str, int, int]]:
    """(zone, from, until) in seconds wherever a group of one of these pools was fenced."""
    spans: list[tuple[str, int, int]] = []
    for zone in record.scenario.zones:
        samples = (
            (
                snapshot.at,
                any(
                    group.zone == zone.name and group.pool in pools and group.state is State.FENCED
                    for group in snapshot.groups
                ),
            )
            for snapshot in record.snapshots
        )
        spans += [(zone.name, *span) for span in spans_where(samples, record.scenario.duration)]
    return spans
