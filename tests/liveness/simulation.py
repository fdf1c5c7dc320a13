"""Evenkeel's ``plan()`` with a model of Cluster Autoscaler, in simulated seconds.

The autoscaler is modelled from the sources of release 1.37 alone (core/scaleup/orchestrator,
processors/nodegroupset/balancing_processor.go:79-181, clusterstate.go:1126-1139). There is one scale-up per loop, into
one group that the expander chooses among those with room for waiting pods, or balanced over similar groups; it reads
every max from the current objects and exceeds none; it counts its own orders, and not those of others, as upcoming for
a quarter of an hour; it removes a node that has been unneeded for ten minutes, unless its group is at its min.

No part of this module knows how a strategy sizes a group.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count

from evenkeel.domain.fleet.check_times import Timer, next_timer
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, GroupKey, Machine, MachineFailure, NodeGroup, PublishedBounds
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.annotations import read_published, write_published
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.domain.rebalancing.writes import in_safe_order
from tests.builders import group as node_group
from tests.builders import key as group_key
from tests.builders import numbers, remembered, stated
from tests.liveness.cases import ZONES, Case, Demand, first_max
from tests.parts import make, replace

_PAUSED, _ROLLING = Reason.of(Rule.OBJECT_PAUSED), stated("a rolling update is under way")
START = datetime(2026, 1, 15, tzinfo=UTC)
HORIZON = 12 * 3600  # seconds after the last event of the case: the last nodes of a pool move slowly
PATIENCE = 900  # seconds that the autoscaler waits for an order
UNNEEDED = 600
AT_ONCE = 10  # empty nodes that it removes in one loop
REFUSED_AFTER = 3
TRIED_AGAIN_AFTER = 60
DELIVERED_AGAIN_AFTER = 90  # seconds until a dead run's message is delivered again
AFTERWARDS = 300  # seconds for which a world is watched after its demand is met


def moment(at: int) -> datetime:
    return START + timedelta(seconds=at)


@dataclass(eq=False, kw_only=True, slots=True)
class SimulatedMachine:
    name: str
    created: int
    launched: int
    running: bool = False
    ordered: bool = False  # by the autoscaler
    failed: int | None = None  # when its last launch was refused
    gone: bool = False

    def seen(self) -> Machine:
        failure = None
        if self.failed is not None:
            failure = MachineFailure(code="InsufficientInstanceCapacity", message="", at=moment(self.failed))
        return Machine(
            name=self.name,
            has_node=self.running,
            created_at=moment(self.created),
            launched_at=moment(self.launched),
            failure=failure,
        )


@dataclass(eq=False, kw_only=True)
class Group:
    """A node group: the object, its machines, and its last state as read by a check."""

    index: int
    bounds: Bounds
    requested: int
    machines: list[SimulatedMachine]
    running: int
    frozen: bool = False
    paused: bool = False
    suspended: bool = False
    version: int = 0
    published: PublishedBounds | None = None
    seen: NodeGroup | None = None  # as the last check read it; None: changed since

    @property
    def zone(self) -> str:
        return ZONES[self.index]

    @property
    def key(self) -> GroupKey:
        return group_key(self.zone)

    @property
    def stands(self) -> bool:
        """Return True if no machine is made for replicas without one."""
        return self.paused or self.suspended

    @property
    def rests(self) -> bool:
        """Return True if Evenkeel may not write the group, and it gets no machines."""
        return self.paused or (self.frozen and self.suspended)

    @property
    def target(self) -> int:
        """Return the replicas that can have machines now."""
        return min(self.requested, len(self.machines)) if self.rests else self.requested

    @property
    def room(self) -> int:
        return max(0, self.bounds.max - self.requested)

    def coming(self, now: int) -> int:
        """Return the nodes that the autoscaler expects: those that run, and its orders that it still waits for."""
        if self.running == self.requested:
            return self.running
        unmade = 0 if self.stands else max(0, self.requested - len(self.machines))
        return (
            self.running
            + unmade
            + sum(
                machine.ordered and not machine.running and now - machine.created < PATIENCE
                for machine in self.machines
            )
        )

    def changed(self) -> None:
        self.version += 1
        self.seen = None


@dataclass(kw_only=True)
class Result:
    case: Case
    met_at: int | None = None  # when the last pod of all had its node
    last_order: int | None = None  # when enough was first requested for all pods
    passed: str = ""  # the first moment at which the autoscaler passed PoolMaximum
    unsafe: list[str] = field(default_factory=list)  # forbidden published bounds
    lost: list[str] = field(default_factory=list)  # replicas removed from groups that have never thawed
    thaw_adds: int = 0  # the most nodes by which a plan has said that thaws may pass PoolMaximum
    removed: int = 0  # running nodes that a write of Evenkeel removed
    running: tuple[int, ...] = ()
    checks: int = 0
    writes: int = 0
    trace: list[str] = field(default_factory=list)

    @property
    def met(self) -> bool:
        return self.met_at is not None

    @property
    def unevenness(self) -> int:
        return max(self.running) - min(self.running)


@dataclass(kw_only=True)
class _Write:
    planned: GroupPlan
    version: int


class Simulation:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.chance = random.Random(case.seed)
        self.now = 0
        self.result = Result(case=case)
        self._agenda: list[tuple[int, float, int, Callable[[], None]]] = []
        self._numbers = count()
        self.policy = make(Policy, strategy=BALANCED)
        if case.strategy is not None:
            loop = timedelta(seconds=case.autoscaler_loop)
            self.policy = replace(numbers(case.minimum, case.maximum, case.strategy), autoscaler_loop=loop)
        self.state = ClusterState()
        self.groups = [self._group(index) for index in range(case.zones)]
        self.demand = next(
            (step for step in case.demand if step.at == 0), Demand(at=0, free=0, bound=(0,) * case.zones)
        )
        self._thaws = {span.zone for span in (*case.paused, *case.suspended)}
        self._first_target = sum(group.target for group in self.groups)
        self._order = self.chance.sample(range(case.zones), case.zones)  # of the priority expander
        self._phase = self.chance.randrange(case.loop)
        self._loop_at: int | None = None
        self._last_loop = -1
        self._surplus_since: int | None = None
        self._writes: deque[_Write] = deque()
        self._wanted_check = ""  # while a run writes, the next one waits
        self._published = False
        self._timer: Timer | None = None
        self._check_at: datetime | None = None

    def _group(self, index: int) -> Group:
        nodes = self.case.nodes[index] if self.case.nodes else 0
        most = self.case.maximum if self.case.strategy is None else first_max(self.case, index)
        machines = [
            SimulatedMachine(name=f"{ZONES[index]}-start-{i}", created=-86400, launched=-86400, running=True)
            for i in range(nodes)
        ]
        return Group(
            index=index,
            bounds=Bounds(0, most),
            requested=nodes,
            machines=machines,
            running=nodes,
            frozen=any(span.holds(index, 0) for span in self.case.frozen),
            paused=any(span.holds(index, 0) for span in self.case.paused),
            suspended=any(span.holds(index, 0) for span in self.case.suspended),
        )

    def _at(self, when: int, what: Callable[[], None]) -> None:
        """Schedule an act. The order within one second is random."""
        heapq.heappush(self._agenda, (max(when, self.now), self.chance.random(), next(self._numbers), what))

    def run(self) -> Result:
        case = self.case
        for step in case.demand:
            if step.at:
                self._at(step.at, partial(self._demand, step))
        for mark in ("frozen", "paused", "suspended"):
            for span in getattr(case, mark):
                self._at(span.start, partial(self._freeze, self.groups[span.zone], mark, True))
                if span.end is not None:
                    self._at(span.end, partial(self._freeze, self.groups[span.zone], mark, False))
        if case.strategy is not None:
            self._at(0, partial(self._check, "first check"))
            self._at(self.chance.randrange(case.scan), self._scan)
            if case.others:
                self._at(self.chance.randrange(case.others), self._others_check)
        self._touch()
        settles, patience = case.settles, case.settles + HORIZON
        while self._agenda:
            when, _, _, what = heapq.heappop(self._agenda)
            if when > patience or (self.result.met_at is not None and when > self.result.met_at + AFTERWARDS):
                break
            self.now = when
            what()
            if when >= settles:
                if self.result.met_at is None and self._met():
                    self.result.met_at = when
                    self._note("met")
                elif self.result.met_at is not None and not self._met():
                    self.result.met_at = None
        self.result.running = tuple(group.running for group in self.groups)
        return self.result

    def _note(self, what: str) -> None:
        each = [
            f"{g.requested}" + (f"({g.running})" if g.running != g.requested else "") + f"/{g.bounds.max}"
            for g in self.groups
        ]
        self.result.trace.append(f"{self.now:>6} s  {' '.join(each):<40} {what}")

    def _demand(self, step: Demand) -> None:
        self.demand = step
        self._note(f"pods: {step.free} free, {' '.join(map(str, step.bound))} bound")
        self._touch()

    def _met(self) -> bool:
        nodes, wanted = [group.running for group in self.groups], self.case.wanted
        enough = all(have >= pods for have, pods in zip(nodes, wanted.bound, strict=True))
        return enough and sum(nodes) >= wanted.pods

    def _freeze(self, group: Group, mark: str, holds: bool) -> None:
        setattr(group, mark, holds)
        group.changed()
        self._note(f"{group.zone} {mark}" if holds else f"{group.zone} no longer {mark}")
        self._make(group)

    def _make(self, group: Group, *, ordered: bool = False) -> None:
        """Make the machines that the group's replicas lack, unless none can be made now."""
        for _ in range(0 if group.stands else group.requested - len(group.machines)):
            name = f"{group.zone}-{next(self._numbers)}"
            machine = SimulatedMachine(name=name, created=self.now, launched=self.now, ordered=ordered)
            group.machines.append(machine)
            group.changed()
            self._launch(group, machine)
        self._note_excess()

    def _note_excess(self) -> None:
        counted = sum(group.target for group in self.groups)
        most = max(self.case.maximum, self._first_target) + self.result.thaw_adds
        if counted > most and self._thaws and self._published and not self.result.passed:
            self.result.passed = f"{self.now} s: {counted} of {self.case.maximum}, {self.result.thaw_adds} more said"

    def _grow(self, group: Group, nodes: int, *, ordered: bool = False) -> None:
        group.requested += nodes
        if self.case.made:
            self._at(self.now + self.case.made, partial(self._make, group, ordered=ordered))
        else:
            self._make(group, ordered=ordered)
        group.changed()
        if self.result.last_order is None and sum(g.requested for g in self.groups) >= self.case.wanted.pods:
            self.result.last_order = self.now

    def _launch(self, group: Group, machine: SimulatedMachine) -> None:
        if machine.gone:
            return
        if any(span.holds(group.index, self.now) for span in self.case.refusing):
            self._at(self.now + REFUSED_AFTER, partial(self._refuse, group, machine))
            return
        machine.launched = self.now
        if machine.failed is not None:
            machine.failed = None
            group.changed()
        self._at(self.now + self.case.boot + self.chance.randint(0, 9), partial(self._boot, group, machine))

    def _refuse(self, group: Group, machine: SimulatedMachine) -> None:
        if machine.gone:
            return
        machine.failed = self.now
        group.changed()
        self._at(self.now + TRIED_AGAIN_AFTER, partial(self._launch, group, machine))
        if self.case.events and self.case.strategy is not None:
            self._at(self.now + self.chance.randint(0, 2), partial(self._receive, group, self.now))

    def _boot(self, group: Group, machine: SimulatedMachine) -> None:
        if machine.gone:
            return
        machine.running = True
        group.running += 1
        group.changed()
        self._touch()

    def _shrink(self, group: Group, nodes: int) -> int:
        """Remove machines: failed first, then the newest without a node. Return the number of running ones."""
        goes = sorted(group.machines, key=lambda machine: (machine.running, machine.failed is None, -machine.created))
        running, unmade = 0, group.requested - len(group.machines)
        for machine in goes[: max(0, nodes - unmade)]:
            machine.gone = True
            running += machine.running
        group.machines = [machine for machine in group.machines if not machine.gone]
        group.running -= running
        group.requested -= nodes
        group.changed()
        return running

    def _touch(self) -> None:
        self._loop_not_before(self.now)

    def _loop_not_before(self, at: int) -> None:
        at = max(at, self._last_loop + 1)
        at += (self._phase - at) % self.case.loop
        if self._loop_at is None or at < self._loop_at:
            self._loop_at = at
            self._at(at, partial(self._loop, at))

    def _loop(self, at: int) -> None:
        if at != self._loop_at:
            return
        self._loop_at, self._last_loop = None, at
        if self._scale_up():
            self._touch()
        else:
            self._scale_down()

    def _waiting(self) -> tuple[list[int], int]:
        """Return the pods that will have no node, bound per zone and free, when all upcoming nodes run."""
        nodes = [group.coming(self.now) for group in self.groups]
        bound = [max(0, pods - have) for pods, have in zip(self.demand.bound, nodes, strict=True)]
        spare = sum(max(0, have - pods) for pods, have in zip(self.demand.bound, nodes, strict=True))
        return bound, max(0, self.demand.free - spare)

    def _scale_up(self) -> bool:
        bound, free = self._waiting()
        seen = [group for group in self.groups if not (group.paused and self.case.skips_paused)]
        options = [group for group in seen if group.room and (bound[group.index] or free)]
        if not options:
            return False
        if self.case.expander == "priority":
            chosen = min(options, key=lambda group: self._order.index(group.index))
        else:
            chosen = self.chance.choice(options)
        pods = bound[chosen.index] + free
        # Similar groups share a scale-up only if they fit all of its pods.
        alike = options if self.case.balancing and not bound[chosen.index] else [chosen]
        for group, nodes in self._shares(alike, pods):
            self._order_nodes(group, nodes)
        return True

    def _shares(self, groups: Sequence[Group], pods: int) -> list[tuple[Group, int]]:
        added = dict.fromkeys(groups, 0)
        for _ in range(pods):
            able = [group for group in groups if added[group] < group.room]
            if not able:
                break
            added[min(able, key=lambda group: (group.requested + added[group], self._order.index(group.index)))] += 1
        return [(group, nodes) for group, nodes in added.items() if nodes]

    def _order_nodes(self, group: Group, nodes: int) -> None:
        before = sum(g.requested for g in self.groups)
        self._grow(group, nodes, ordered=True)
        self._at(self.now + PATIENCE, self._touch)
        self._note(f"autoscaler: {nodes} in {group.zone}")
        if before <= self.case.maximum < before + nodes and not self.result.passed and not self._thaws:
            self.result.passed = f"{self.now} s: {before + nodes} of {self.case.maximum}"

    def _scale_down(self) -> None:
        idle = self._idle()
        if not idle:
            self._surplus_since = None
            return
        if self._surplus_since is None:
            self._surplus_since = self.now
        if self.now - self._surplus_since < UNNEEDED:
            self._loop_not_before(self._surplus_since + UNNEEDED)
            return
        for _ in range(AT_ONCE):
            if idle:
                self._remove_node(self.chance.choice(idle))
                idle = self._idle()
        self._touch()

    def _idle(self) -> list[Group]:
        spare = [max(0, group.running - pods) for group, pods in zip(self.groups, self.demand.bound, strict=True)]
        if sum(spare) <= self.demand.free:
            return []
        able = [group for group in self.groups if not group.paused]
        return [group for group in able if spare[group.index] and group.requested > group.bounds.min]

    def _remove_node(self, group: Group) -> None:
        machine = next(machine for machine in group.machines if machine.running)
        machine.gone = True
        group.machines.remove(machine)
        group.running -= 1
        group.requested -= 1
        group.changed()
        self._note(f"autoscaler: one node less in {group.zone}")

    def _scan(self) -> None:
        self._check("scan")
        self._at(self.now + self.case.scan, self._scan)

    def _others_check(self) -> None:
        self._check("check that another pool caused")
        self._at(self.now + (self.case.others or 0), self._others_check)

    def _receive(self, group: Group, at: int) -> None:
        state = record_failure(
            self.state.groups.get(group.key, GroupState()),
            moment(at),
            FailureClass.CAPACITY,
            "InsufficientInstanceCapacity",
            self.policy.settings.backoff,
            now=moment(self.now),
        )
        self.state = replace(self.state, groups={**self.state.groups, group.key: state})
        self._check("failure event")

    def _check_again(self, wrote: bool) -> None:
        """Request the next check unless an earlier one is requested. A request cannot be withdrawn."""
        now = moment(self.now)
        self._timer, seconds = next_timer(self._timer, now, wrote=wrote, doubtful=False, wanted=self._check_at)
        if seconds is not None and self.case.timers:
            self._at(self.now + seconds, partial(self._check, "timer"))

    def _observed(self, group: Group) -> NodeGroup:
        known = self.state.groups.get(group.key)
        listed = group.running != group.requested or (known is not None and known.is_failing)
        if group.seen is None or (group.seen.machines is not None) != listed:
            case, index = self.case, group.index
            group.seen = node_group(
                group.zone,
                group.requested,
                running=group.running,
                machines=tuple(machine.seen() for machine in group.machines) if listed else None,
                bounds=(group.bounds.min, group.bounds.max),
                published=group.published,
                weight=case.weights[index] if case.weights else 1,
                zone_max=case.zone_max[index] if case.zone_max else None,
                least_max=case.floor,
                frozen_because=_PAUSED if group.paused else _ROLLING if group.frozen else None,
                launches_stopped=stated("Launch is suspended") if group.suspended else None,
            )
        return group.seen

    def _check(self, why: str) -> None:
        if self._writes:
            self._wanted_check = why
            return
        self.result.checks += 1
        observation = Observation(groups=tuple(self._observed(group) for group in self.groups))
        made = plan(observation, self.state, self.policy, moment(self.now))
        self.state = remembered(self.state, made)
        self._check_at = made.check_at
        if self._thaws:
            self._check_plan(made.pools[0])
        of_key = {group.key: group for group in self.groups}
        for planned in in_safe_order(made.changes):
            self._writes.append(_Write(planned=planned, version=of_key[planned.group.key].version))
        if not self._writes:
            self._published = True
            self._check_again(wrote=False)
            return
        self._note(f"{why}: writes {' '.join(str(write.planned.group.identity.zone) for write in self._writes)}")
        self._write_next()

    def _check_plan(self, pool: PoolPlan) -> None:
        """Check that written maxima keep PoolMaximum, and that only thawed groups lose replicas."""
        said = [note.facts["nodes"] for note in pool.report.notes if note.rule is Rule.THAW_ADDS]
        self.result.thaw_adds = max(self.result.thaw_adds, *map(int, map(str, said)), 0)
        kept, targets = 0, 0
        for group, planned in zip(self.groups, pool.groups, strict=True):
            top = planned.bounds.max if planned.bounds else 0
            target = group.target if group.rests else planned.requested
            targets += target
            kept += 0 if group.rests or not group.frozen else max(0, top - target)
            if planned.requested < planned.group.requested and group.index not in self._thaws:
                self.result.lost.append(f"{self.now} s: {group.zone}")
        written = sum(
            group.target if group.rests else max(planned.requested, planned.bounds.max if planned.bounds else 0)
            for group, planned in zip(self.groups, pool.groups, strict=True)
        )
        if written > max(self.case.maximum, targets + kept) + self.case.floor * self.case.zones:
            self.result.unsafe.append(f"{self.now} s: maxima of {written}, PoolMaximum is {self.case.maximum}")

    def _write_next(self) -> None:
        self._at(self.now + self.chance.randint(0, self.case.delay), self._write)

    def _write(self) -> None:
        """Write the next patch of a run. If the object has changed since the plan, check again instead."""
        if self.chance.random() < self.case.deaths:
            self._writes.clear()
            self._note("the run dies")
            self._at(self.now + DELIVERED_AGAIN_AFTER, partial(self._check, "message delivered again"))
            return
        write = self._writes.popleft()
        group = next(group for group in self.groups if group.key == write.planned.group.key)
        conflict = group.version != write.version
        if conflict:
            self._writes.clear()
            self._note(f"conflict in {group.zone}")
        else:
            self._apply(group, write.planned)
        if self._writes:
            self._write_next()
            return
        self._published = self._published or not conflict
        self._check_again(wrote=True)
        if conflict or self._wanted_check:
            why, self._wanted_check = self._wanted_check or "conflict", ""
            self._check(why)

    def _apply(self, group: Group, planned: GroupPlan) -> None:
        before = group.requested
        bounds = planned.bounds or group.bounds
        if planned.requested < before:
            self.result.removed += self._shrink(group, before - planned.requested)
        elif planned.requested > before:
            self._grow(group, planned.requested - before)
        group.bounds = bounds
        published = PublishedBounds(
            at=moment(self.now),
            bounds=bounds,
            state=planned.state,
            requested=planned.requested,
            before=before if planned.requested != before else None,
        )
        group.published = read_published(write_published(published, planned.requested, ""))
        group.changed()
        self.result.writes += 1
        self._note(f"written: {group.zone}, {planned.state.value}")
        self._check_safety(group)
        self._touch()

    def _check_safety(self, group: Group) -> None:
        bounds, requested = group.bounds, sum(g.requested for g in self.groups)
        if not 0 <= bounds.min <= bounds.max or bounds.max < group.requested:
            self.result.unsafe.append(f"{self.now} s: {group.zone} requests {group.requested} within {bounds}")
        most = sum(g.bounds.max for g in self.groups)
        if self._published and requested <= self.case.maximum < most and not self._thaws:
            self.result.unsafe.append(f"{self.now} s: maxima of {most}, PoolMaximum is {self.case.maximum}")


def simulate(case: Case) -> Result:
    return Simulation(case).run()
