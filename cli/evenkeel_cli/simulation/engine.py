"""One run of a scenario: everything that happens, second by second of virtual time, as a timeline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from evenkeel.domain.model.choices import DemandStage, Strategy
from evenkeel.domain.model.groups import MachineFailure, State
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES, read_strategy
from evenkeel_cli.simulation.agenda import Agenda, Turn
from evenkeel_cli.simulation.autoscaler import SimulatedAutoscaler
from evenkeel_cli.simulation.evenkeel import CLUSTER, Decision, Evenkeel, SharedTable, record_of
from evenkeel_cli.simulation.pods import PodCounts
from evenkeel_cli.simulation.scenario import ClusterSetup, GroupSpan, Lie, Scenario, spans_where
from evenkeel_cli.simulation.world import Cloud, Demands, Group, World

# Beside the strategies: each zone keeps its share and nobody looks; Evenkeel without an autoscaler, where demand is
# numbers; and where it is pods, Evenkeel in the autoscaler's place.
STATIC, ALONE, SERVERLESS = "static", "no-autoscaler", "serverless"


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Who takes part in a run. ``strategy`` None: each pool has its own."""

    name: str
    strategy: Strategy | None = None
    evenkeel: bool = True
    autoscaler: bool = True
    demand: DemandStage = DemandStage.OFF


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
    drained: int  # nodes that are not among the replicas any more, and still run


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The world from a moment on, until the next one."""

    at: int
    demand: Demands
    groups: tuple[GroupSnapshot, ...]
    ordered: int  # nodes that anybody has ordered so far
    pods: PodCounts | None  # None: demand is numbers

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
    moved: int  # nodes, by converge


def variants_of(scenario: Scenario, choice: str) -> list[Variant]:
    """The runs that ``--strategy`` asks for: ``own``, ``all``, or one by name. Raises BadValueError."""
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
        variants.append(Variant(name=STATIC, evenkeel=False))
    if scenario.pods:
        variants.append(Variant(name=SERVERLESS, autoscaler=False, demand=DemandStage.FULL))
    elif with_autoscaler:
        variants.append(Variant(name=ALONE, autoscaler=False))
    if choice == "all":
        return variants
    name = choice if choice in (STATIC, ALONE, SERVERLESS) else read_strategy(choice).name
    return [variant for variant in variants if variant.name == name]


class Stage:
    """What the clusters of a scenario share: time, the cloud, and what they say of it to one another."""

    def __init__(self, scenario: Scenario) -> None:
        self.agenda = Agenda()
        self.cloud = Cloud(scenario)
        self.table = SharedTable()


def play(runs: Sequence["Run"], progress: Callable[[int], None] = lambda _: None) -> list[Record]:
    """Clusters on one stage, from the first second to the last."""
    agenda, duration = runs[0].agenda, runs[0].scenario.duration
    for run in runs:
        run.fill_agenda()
    while (second := agenda.next_second()) is not None and second <= duration:
        for run in runs:
            run.world.now = second
        progress(second)
        while agenda.next_second() == second:
            agenda.take()()
        for run in runs:
            run.notice()
    return [run.record() for run in runs]


def runs_of(scenario: Scenario, variant: Variant) -> list["Run"]:
    """One run; of a fleet one for each cluster, by its name."""
    if not scenario.fleet:
        return [Run(scenario, variant)]
    stage = Stage(scenario)
    return [
        Run(scenario.of_cluster(i), replace(variant, name=f"{variant.name} {cluster.name}"), stage, cluster)
        for i, cluster in enumerate(scenario.fleet)
    ]


class Run:
    """One cluster of a scenario on its way through time."""

    def __init__(
        self,
        scenario: Scenario,
        variant: Variant,
        stage: "Stage | None" = None,
        cluster: ClusterSetup | None = None,
    ) -> None:
        stage = stage or Stage(scenario)
        self.scenario = scenario
        self.variant = variant
        self.agenda = stage.agenda
        self.world = World(scenario, self.agenda, stage.cloud)
        self.world.refused = self._refused
        if self.world.pods is not None:
            self.world.pods.refused = self._unschedulable
        self._autoscaler = SimulatedAutoscaler(self.world, scenario.autoscaler)
        self._lies = cluster.lies if cluster else ()
        name = cluster.name if cluster else CLUSTER
        record = record_of(
            scenario, variant.strategy, autoscaler=variant.autoscaler, demand=variant.demand, cluster=name
        )
        self.evenkeel = Evenkeel(self.world, record, self._look_in, stage.table)
        self.snapshots: list[Snapshot] = []
        self._version = 0  # of the pods, at the last snapshot

    def __call__(self, progress: Callable[[int], None] = lambda _: None) -> Record:
        """From the first second to the last; ``progress`` is told each second in which something happens."""
        (record,) = play([self], progress)
        return record

    def notice(self) -> None:
        """Take down what has changed."""
        version = self.world.pods.version if self.world.pods else 0
        if self.world.changed or version != self._version:
            self.world.changed, self._version = False, version
            self._take_snapshot()

    def record(self) -> Record:
        """What has become of it so far."""
        return Record(
            scenario=self.scenario,
            variant=self.variant,
            snapshots=tuple(self.snapshots),
            decisions=tuple(self.evenkeel.decisions),
            failed_launches=self.world.failed_launches,
            patches=self.evenkeel.patches,
            moved=self.evenkeel.moved,
        )

    def fill_agenda(self) -> None:
        """Enter what is known to happen."""
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
            for lie in self._lies:
                enter(lie.at, Turn.EVENT, partial(self._lie, lie))

    # What happens on the agenda

    def _want(self, key: tuple[str, str | None], nodes: int) -> None:
        self.world.demand[key] = nodes
        self.world.changed = True
        if not self.variant.autoscaler:
            # Somebody has to say how many nodes are wanted: it is done by way of PoolMinimum.
            pool = self.scenario.pool_named(key[0])
            for group in self.world.of_pool[pool.name]:
                group.pool_min = min(pool.max, max(pool.min, self.world.wanted(pool.name)))

    def _group_of(self, span: GroupSpan | Lie) -> Group:
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

    def _lie(self, lie: Lie) -> None:
        group = self._group_of(lie)
        refusal = self.world.zones[group.zone].failure
        self._record_failure(group, MachineFailure(code=refusal.code, message=refusal.message, at=self.world.time))

    def _refused(self, group: Group, failure: MachineFailure) -> None:
        if self.variant.evenkeel:
            latency = self.scenario.evenkeel.event_latency
            self.agenda.enter(self.world.now + latency, Turn.EVENT, partial(self._record_failure, group, failure))

    def _unschedulable(self) -> None:
        if self.variant.demand.orders:
            self._look_in(self.scenario.evenkeel.event_latency)

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
