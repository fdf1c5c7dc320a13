"""Zones, machines and node groups in virtual time.

The cloud answers each request for a machine. The machine's node registers after the zone's provision delay. When
replicas fall, machines with a delete mark are deleted first, then the newest machines without a node. Running nodes
remain when the cloud has no more machines in their zone.

A group of flavour auto-scaling is an EC2 Auto Scaling group. Its replicas are the desired capacity, and a machine is an
instance from its launch on. Before, it is a placeholder. When the desired capacity falls, Auto Scaling gives up
placeholders first. It then ends the oldest instances, without a drain.
"""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import count

from evenkeel.domain.model.flavours import AUTO_SCALING, PLACEHOLDER
from evenkeel.domain.model.groups import (
    Annotations,
    Bounds,
    GroupKey,
    GroupStatus,
    GroupTemplate,
    Identity,
    Machine,
    MachineFailure,
    NodeGroup,
    Ownership,
    State,
    Unreadable,
    WrittenByUs,
)
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.values import Fault
from evenkeel.domain.rebalancing.annotations import read_adopted, read_published
from evenkeel.domain.rebalancing.bounds.distribute import distribute_over_zones
from evenkeel_cli.simulation.agenda import Agenda, Turn
from evenkeel_cli.simulation.pods import Pods
from evenkeel_cli.simulation.scenario import Limit, PoolSetup, Refusal, Scenario, Zone
from evenkeel_cli.simulation.scheduling import NodeInfo

Demands = dict[tuple[str, str | None], int]
"""The number of wanted nodes by pool and zone. Zone None: nodes in any zone."""


@dataclass(kw_only=True, eq=False, slots=True)
class SimulatedMachine:
    """A machine object and the cloud's machine that it represents. Its node has the same name."""

    number: int  # in order of creation
    name: str
    created: int
    launched: bool = False
    launched_at: int = -1
    node: bool = False
    joined: int = 0
    gone: bool = False
    failure: MachineFailure | None = None


@dataclass(kw_only=True, eq=False)
class Group:
    """A node group: its object and its machines."""

    key: GroupKey
    pool: str
    zone: str
    bounds: Bounds
    machines: list[SimulatedMachine] = field(default_factory=list)  # oldest first
    running: int = 0
    drained: int = 0  # the number of nodes that are being drained and are no longer replicas
    marked: frozenset[str] = frozenset()  # machines with a delete mark
    frozen: bool = False
    bad_bounds: bool = False
    has_template: bool = True  # True: cpu and memory of its nodes are known without a running node
    state: State = State.HEALTHY
    # The values of the object's annotations.
    decision: str | None = None
    adopted: str | None = None
    move: str | None = None
    pool_min: int | None = None
    refused_at: int | None = None  # when the newest launch began that the cloud has refused

    @property
    def is_auto_scaling(self) -> bool:
        """Return True if this is an EC2 Auto Scaling group."""
        return self.key.flavour == AUTO_SCALING

    @property
    def launched(self) -> int:
        """Return the number of machines that the cloud has launched."""
        return sum(machine.launched for machine in self.machines)

    @property
    def requested(self) -> int:
        """Return the replicas. Each replica has a machine object."""
        return len(self.machines)

    @property
    def readable_bounds(self) -> Bounds | None:
        """Return the bounds; None while they are unreadable."""
        return None if self.bad_bounds else self.bounds

    def nodes(self) -> list[SimulatedMachine]:
        """Return machines with a node, oldest first."""
        return [machine for machine in self.machines if machine.node]


class World:
    """Zones, groups and demand. ``refused`` is called with each launch failure that an event reports."""

    def __init__(self, scenario: Scenario, agenda: Agenda) -> None:
        self.scenario = scenario
        self.agenda = agenda
        self.now = 0
        self.demand: Demands = {}
        self.failed_launches = self.ordered = 0
        self.changed = True
        self.refused: Callable[[Group, MachineFailure], None] = lambda *_: None
        self.zones = {zone.name: zone for zone in scenario.zones}
        # The numbers of existing machines and of launches.
        self._given = dict.fromkeys(self.zones, 0)
        self._launches = dict.fromkeys(self.zones, 0)
        self._given_of_type: Counter[tuple[str, str]] = Counter()  # by pool and zone; a pool is one machine type
        self._numbers = count(1)
        self.pods = self._first_pods()  # None: demand is in nodes
        self.leaving: dict[str, tuple[Group, Machine]] = {}  # draining nodes by name, with group and machine
        self.groups = sorted(self._first_groups(), key=lambda group: group.key)
        self.of_pool = {pool.name: [g for g in self.groups if g.pool == pool.name] for pool in scenario.pools}

    def _first_pods(self) -> Pods | None:
        """Return the pods of the start."""
        return Pods(self.scenario, self.agenda, lambda: self.now) if self.scenario.pods else None

    def _first_groups(self) -> Iterable[Group]:
        """Return the groups of the start, in any order."""
        return [self._group(pool, i) for pool in self.scenario.pools for i in range(len(self.scenario.zones_of(pool)))]

    def _group(self, pool: PoolSetup, index: int) -> Group:
        """Return a group with its first nodes. Unless bounds are given, they are a static share, as in Gardener."""
        zones = self.scenario.zones_of(pool)
        shares = [distribute_over_zones(index, number, len(zones)) for number in (pool.min, pool.max)]
        given = pool.bounds.get(zones[index])
        bounds = Bounds(*shares) if given is None else Bounds(given.min, given.max)
        name = f"{pool.name}-{zones[index]}"
        group = Group(
            key=GroupKey(self.scenario.flavour, "simulated", name), pool=pool.name, zone=zones[index], bounds=bounds
        )
        for _ in range(self.scenario.start_of(pool)[group.zone]):
            machine = self._machine(group)
            machine.node = True
            machine.created = -1  # older than all later machines
            self._deliver(group, machine)
            self._register(group, machine)
        return group

    @property
    def time(self) -> datetime:
        """Return the current time in UTC."""
        return self.moment(self.now)

    def moment(self, second: int) -> datetime:
        """Return a second of the scenario in UTC."""
        return self.scenario.start + timedelta(seconds=second)

    def wanted(self, pool: str) -> int:
        """Return the nodes that a pool's pods need."""
        return sum(nodes for (name, _), nodes in self.demand.items() if name == pool)

    # Changes of groups

    def order(self, group: Group, nodes: int) -> None:
        """Add machines to a group. The cloud launches them after the zone's answer time."""
        for _ in range(nodes):
            self._later(self.zones[group.zone].answer, partial(self._launch, group, self._machine(group)))
        self.ordered += nodes
        self.changed = True

    def _machine(self, group: Group) -> SimulatedMachine:
        number = next(self._numbers)
        name = f"{PLACEHOLDER if group.is_auto_scaling else ''}{group.key.name}-{number}"
        machine = SimulatedMachine(number=number, name=name, created=self.now)
        group.machines.append(machine)
        return machine

    def shrink(self, group: Group, replicas: int) -> None:
        """Lower a group's replicas, removing marked machines first. If ``replicas`` is not lower, change nothing."""

        def order(entry: tuple[int, SimulatedMachine]) -> tuple[bool, bool, int]:
            index, machine = entry
            if group.is_auto_scaling:
                return machine.name not in group.marked, machine.launched, index if machine.launched else -index
            return machine.name not in group.marked, machine.node, -index

        for _, machine in sorted(enumerate(group.machines), key=order)[: max(0, group.requested - replicas)]:
            if group.is_auto_scaling and machine.name not in group.marked:
                self.end(group, machine)
            else:
                self.remove(group, machine)

    def resize(self, group: Group, replicas: int) -> None:
        """Set a group's replicas."""
        self.shrink(group, replicas)
        self.order(group, replicas - group.requested)

    def end(self, group: Group, machine: SimulatedMachine) -> None:
        """End a machine and its replica at once. In a scenario with pods, the pods on its node end, too."""
        self._take(group, machine)
        self._give(group, -machine.launched)
        if self.pods is not None and machine.node:
            self.pods.lose_node(self.pods.scheduler.nodes[machine.name])

    def lose(self, group: Group, nodes: int) -> None:
        """End a group's oldest nodes. The cloud is asked for others in their places."""
        for machine in group.nodes()[:nodes]:
            self.end(group, machine)
            self.order(group, 1)

    def _take(self, group: Group, machine: SimulatedMachine) -> None:
        group.machines.remove(machine)
        machine.gone = True
        group.running -= machine.node
        self.changed = True

    def remove(self, group: Group, machine: SimulatedMachine) -> None:
        """Remove a machine and its replica. In a scenario with pods, the machine ends after its node is drained."""
        self._take(group, machine)
        if self.pods is None or not machine.node:
            self._give(group, -machine.launched)
            return
        group.drained += 1
        self.leaving[machine.name] = group, replace(self.seen(machine), deleting=True, deleting_since=self.time)
        self.pods.drain(self.pods.scheduler.nodes[machine.name], partial(self._drained, group, machine))

    def _drained(self, group: Group, machine: SimulatedMachine) -> None:
        self._give(group, -machine.launched)
        group.drained -= 1
        del self.leaving[machine.name]
        self.changed = True

    # The cloud

    def _later(self, seconds: int, event: Callable[[], None]) -> None:
        self.agenda.enter(self.now + seconds, Turn.MACHINE, event)

    def _launch(self, group: Group, machine: SimulatedMachine) -> None:
        if machine.gone:
            return
        zone = self.zones[group.zone]
        refusal = self._refusal(group, zone)
        if refusal is not None:
            self._refuse(group, machine, refusal)
            return
        machine.failure, machine.launched_at = None, self.now
        self._deliver(group, machine)
        self._launches[zone.name] += 1
        # The nth launch in a zone takes the same time in all variants, so that the variants can be compared.
        rng = random.Random(f"{self.scenario.seed}/{zone.name}/{self._launches[zone.name]}")
        self._later(zone.provision + rng.randint(0, zone.jitter), partial(self._join, group, machine))

    def _deliver(self, group: Group, machine: SimulatedMachine) -> None:
        machine.launched = True
        machine.name = machine.name.removeprefix(PLACEHOLDER)
        self._give(group, 1)

    def _give(self, group: Group, machines: int) -> None:
        self._given[group.zone] += machines
        self._given_of_type[group.pool, group.zone] += machines

    def _refusal(self, group: Group, zone: Zone) -> Refusal | None:
        given, quota = self._given, limit_at(self.scenario.quota.nodes, self.now)
        if quota is not None and sum(given.values()) >= quota:
            return self.scenario.quota.failure
        capacity = limit_at(zone.capacity, self.now)
        if capacity is not None and given[zone.name] >= capacity:
            return zone.failure
        of_type = limit_at(self.scenario.pool_named(group.pool).capacity.get(zone.name, ()), self.now)
        is_sold_out = of_type is not None and self._given_of_type[group.pool, zone.name] >= of_type
        return zone.failure if is_sold_out else None

    def _refuse(self, group: Group, machine: SimulatedMachine, refusal: Refusal) -> None:
        self.failed_launches += 1
        self.changed = True
        failure = MachineFailure(code=refusal.code, message=refusal.message, at=self.time)
        if refusal.seen != "never":
            group.refused_at = self.now
        if refusal.seen != "never" and (machine.failure is None or group.is_auto_scaling):
            machine.failure = failure  # on an object, a repeated failure keeps the time of the first
        if refusal.seen == "event":
            self.refused(group, failure)
        self._later(refusal.retry, partial(self._launch, group, machine))

    def _join(self, group: Group, machine: SimulatedMachine) -> None:
        if not machine.gone:
            self._register(group, machine)
            self.changed = True

    def _register(self, group: Group, machine: SimulatedMachine) -> None:
        machine.node = True
        machine.joined = self.now
        group.running += 1
        if self.pods is not None:
            self.pods.join(self.new_node(group, machine.name))

    def new_node(self, group: Group, name: str) -> NodeInfo:
        """Return an empty node of a group, in a scenario with pods."""
        size = self.scenario.pool_named(group.pool).node
        assert size is not None  # required with pods
        return NodeInfo.of(name, group.pool, group.zone, size)

    # Observation

    def machines_of(self, group: Group) -> tuple[Machine, ...]:
        """Return the group's machines as objects of the API."""
        leaving = (machine for home, machine in self.leaving.values() if home is group)
        seen = [self.seen(machine) for machine in group.machines]
        if group.is_auto_scaling:  # only launches have a time, and what is launched is on its way at any age
            times = [
                self.now if machine.launched and not machine.node else max(machine.created, machine.launched_at)
                for machine in group.machines
            ]
            seen = [replace(each, created_at=self.moment(at)) for each, at in zip(seen, times, strict=True)]
        return (*seen, *leaving)

    def seen(self, machine: SimulatedMachine) -> Machine:
        """Return a machine as an object of the API."""
        return Machine(
            name=machine.name,
            uid=str(machine.number),
            has_node=machine.node,
            created_at=self.moment(machine.created),
            joined_at=self.moment(machine.joined) if machine.node else None,
            failure=machine.failure,
        )

    def observe(self, group: Group, *, reads_machines: bool = False) -> NodeGroup:
        """Return the group as Evenkeel observes it.

        The result has machines if nodes are missing, if the group is not healthy, or if ``reads_machines`` is True.
        """
        fault = Fault(object=str(group.key), field="max", value="'many'", problem="not an integer")
        return NodeGroup(
            key=group.key,
            requested=group.requested,
            running=group.running,
            machines=None
            if group.requested == group.running and group.state is State.HEALTHY and not reads_machines
            else self.machines_of(group),
            bounds=group.readable_bounds,
            frozen_because=Reason.of(Rule.SAID, text="rolling out") if group.frozen else None,
            identity=Identity(
                kind="AutoScalingGroup" if group.is_auto_scaling else "MachineDeployment",
                pool_label=group.pool,
                zone=group.zone,
            ),
            # Without pods, Evenkeel drains no nodes, so that it ends no instance of an Auto Scaling group.
            status=GroupStatus(launched=group.launched if group.is_auto_scaling and self.pods is None else None),
            owner=Ownership(bounds_field="MaxSize", min_within_running=True) if group.is_auto_scaling else Ownership(),
            template=self._template(group),
            unreadable=Unreadable(faults=(fault,) if group.bad_bounds else ()),
            ours=WrittenByUs(
                adopted=None if group.adopted is None else read_adopted(group.adopted),
                has_adopted=group.adopted is not None,
                published=read_published(group.decision),
                move=group.move,
            ),
            annotations=Annotations(pool_min=group.pool_min),
        )

    def _template(self, group: Group) -> GroupTemplate:
        size = self.scenario.pool_named(group.pool).node
        if size is None:
            return GroupTemplate(machine_type=group.pool)
        amounts = {"cpu": size.cpu, "memory": size.memory}
        labels = self.new_node(group, "").labels
        node = NodeTemplate(capacity=amounts, allocatable=amounts, labels=labels)
        return GroupTemplate(machine_type=group.pool, node=node)


def limit_at(steps: Sequence[Limit], now: int) -> int | None:
    """Return the limit at second ``now``; None: no limit."""
    return next((step.nodes for step in reversed(steps) if step.at <= now), None)
