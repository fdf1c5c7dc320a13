"""An incident about missing nodes ends within ten minutes after every node runs, and no sooner."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import product
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel.domain.incidents.health import evaluate
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import Machine, MachineFailure, NodeGroup
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from tests.builders import NOW, applied, machines, numbers, zones
from tests.parts import replace

AFTER = timedelta(minutes=5)
ENDS_WITHIN = timedelta(minutes=10)
STEP = timedelta(seconds=20)
#: seconds from a launch to its node
BOOT = timedelta(seconds=60)
RETRY = timedelta(seconds=40)
#: of the autoscaler, after one of its orders has failed
HOLDS_BACK = timedelta(minutes=5)
GIVES_UP_AFTER = timedelta(minutes=7)


@dataclass
class PoolWorld:
    groups: list[NodeGroup]
    policy: Policy
    chance: Random
    works: list[bool]
    pods: int
    relaunches: bool = False  # a refused machine is launched again under its name, as on Gardener
    now: datetime = NOW
    state: ClusterState = field(default_factory=ClusterState)
    cluster_health: ClusterHealth = field(default_factory=ClusterHealth)
    blocked: dict[int, datetime] = field(default_factory=dict)
    refused_since: dict[int, datetime] = field(default_factory=dict)
    made: int = 0
    well_since: datetime | None = None
    delivered: bool = True  # a node has joined since the incident opened
    episodes: int = 0

    @property
    def incident(self) -> Incident | None:
        return next((each for each in self.cluster_health.incidents if each.kind is IncidentKind.MISSING), None)

    @property
    def running(self) -> int:
        return sum(group.running for group in self.groups)

    def live(self) -> None:
        self.now += STEP
        self.groups = [self._reconciled(index, group) for index, group in enumerate(self.groups)]
        if self.policy.settings.autoscaler:
            self._scale_up()
        is_well = all(group.requested == group.running for group in self.groups) and self.pods <= self.running
        self.well_since = (self.well_since or self.now) if is_well else None

    def _reconciled(self, index: int, group: NodeGroup) -> NodeGroup:
        machines = list(group.machines or ())
        while len(machines) < group.requested:
            self.made += 1
            machines.append(self._launched(index, f"m{self.made}", self.now))
        spare = sorted(machines, key=lambda machine: (machine.has_node, machine.failure is None))
        gone = {machine.name for machine in spare[: len(machines) - group.requested]}
        after = []
        for machine in machines:
            if machine.name in gone:
                continue
            started = machine.launched_at or machine.created_at
            if machine.failure is not None and machine.failure.at is not None:
                if self.now - machine.failure.at >= RETRY:
                    self.made += not self.relaunches
                    again = (machine.name, machine.created_at) if self.relaunches else (f"m{self.made}", self.now)
                    machine = self._launched(index, *again)
            elif not machine.has_node and self.now - started >= BOOT:
                machine = replace(machine, has_node=True)
                self.delivered = True
            after.append(machine)
        return replace(group, machines=tuple(after), running=sum(machine.has_node for machine in after))

    def _launched(self, index: int, name: str, created_at: datetime) -> Machine:
        launched_at = self.now if created_at != self.now else None
        machine = Machine(name=name, has_node=False, created_at=created_at, launched_at=launched_at)
        if self.works[index]:
            return machine
        failure = MachineFailure(code="InsufficientInstanceCapacity", message="no room", at=self.now)
        return replace(machine, failure=failure)

    def _scale_up(self) -> None:
        """Act as Cluster Autoscaler: give up refused orders, and order for waiting pods, where bounds allow."""
        for index, group in enumerate(self.groups):
            refused = group.refused_machines
            if not refused:
                self.refused_since.pop(index, None)
            elif self.now - self.refused_since.setdefault(index, self.now) >= GIVES_UP_AFTER:
                kept = tuple(machine for machine in group.machines or () if machine not in refused)
                self.groups[index] = replace(group, requested=group.requested - len(refused), machines=kept)
                self.blocked[index] = self.now + HOLDS_BACK
        for _ in range(self.pods - sum(group.requested for group in self.groups)):
            open_ones = [
                index
                for index, group in enumerate(self.groups)
                if group.bounds is not None
                and group.requested < group.bounds.max
                and self.now >= self.blocked.get(index, self.now)
            ]
            if not open_ones:
                return
            index = self.chance.choice(open_ones)
            self.groups[index] = replace(self.groups[index], requested=self.groups[index].requested + 1)

    def check(self) -> None:
        """Play one check (plan, write, evaluate), and check the incident's properties."""
        before = self.incident
        planned = plan(Observation(groups=tuple(self.groups)), self.state, self.policy, self.now)
        states = {**self.state.groups, **planned.states}
        self.cluster_health = evaluate(self.cluster_health, planned, states, AFTER)
        observation, self.state = applied(planned, self.state, self.now)
        self.groups = list(observation.groups)
        if before is None and self.incident is not None:
            self.delivered = False
            self.episodes += 1
        if self.incident is not None and self.well_since is not None:
            assert self.now - self.well_since < ENDS_WITHIN, "every node runs"
        if before is not None and self.incident is None:
            waiting = sum(len(group.refused_machines) for group in self.groups)
            assert not waiting or any(self.works), "a node is missing"
            assert self.delivered or self.pods <= self.running or any(self.works), "no zone delivers"

    def pass_minutes(self, minutes: int) -> None:
        for _ in range(minutes):
            for _ in range(3):
                self.live()
            self.check()


def pool_world(count: int, autoscaler: bool, on_failure: OnFailure, relaunches: bool, seed: int = 1) -> PoolWorld:
    groups = [machines(group) for group in zones((2,) * count, bounds=[(0, 6)] * count)]
    policy = replace(numbers(1, 12, on_failure=on_failure), autoscaler=autoscaler)
    world = PoolWorld(groups, policy, Random(seed), works=[True] * count, pods=2 * count, relaunches=relaunches)
    world.pass_minutes(3)
    return world


def ask(world: PoolWorld, more: int) -> None:
    """Add pods. If nothing orders nodes for them, an operator scales the groups, in turn."""
    world.pods += more
    if not world.policy.settings.autoscaler:
        for number in range(more):
            index = number % len(world.groups)
            world.groups[index] = replace(world.groups[index], requested=world.groups[index].requested + 1)


EVERY_POOL = list(product((1, 2, 3), (True, False), OnFailure, (True, False)))


@pytest.mark.parametrize(("count", "autoscaler", "on_failure", "relaunches"), EVERY_POOL)
def test_the_incident_ends_when_each_zone_gets_its_node(
    count: int, autoscaler: bool, on_failure: OnFailure, relaunches: bool
) -> None:
    world = pool_world(count, autoscaler, on_failure, relaunches)
    world.works = [False] * count
    ask(world, count)
    for _ in range(12):
        if world.incident is None:
            world.pass_minutes(1)
    assert world.incident is not None
    world.works = [True] * count
    world.pass_minutes(40)
    assert world.incident is None
    assert world.episodes == 1, "and it does not flap"


HISTORIES = st.lists(
    st.tuples(
        st.lists(st.booleans(), min_size=3, max_size=3),  # which zones deliver
        st.integers(0, 4),  # new pods
        st.sampled_from([1, 1, 2, 3, 5, 8, 20]),  # minutes
    ),
    min_size=1,
    max_size=8,
)


@given(HISTORIES, st.integers(1, 3), st.booleans(), st.sampled_from(list(OnFailure)), st.booleans(), st.integers(0, 99))
@example([([False] * 3, 1, 1), ([True] * 3, 0, 20)], 1, True, OnFailure.RELEASE, True, 0).via("one zone, one node")
def test_an_incident_ends_once_every_node_runs(
    history: list[tuple[list[bool], int, int]],
    count: int,
    autoscaler: bool,
    on_failure: OnFailure,
    relaunches: bool,
    seed: int,
) -> None:
    world = pool_world(count, autoscaler, on_failure, relaunches, seed)
    for works, more, minutes in history:
        world.works = works[:count]
        ask(world, min(more, 12 - world.pods))
        world.pass_minutes(minutes)
    world.works = [True] * count
    world.pass_minutes(60)
    if world.pods <= world.running:
        assert world.incident is None
