"""A look finds by itself what events report, and what no event reports: from the machines' own words, per flavour.

The worlds are those of the sandbox, where each flavour's controllers fail in their own way; between them and ``plan()``
stands the real adapter. No event is heard anywhere but in the last class.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.application.rebalancing.events import EventResult, Failure
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Machine, MachineFailure, NodeGroup, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, Plan
from evenkeel.domain.model.policy import BackoffPolicy, Policy
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.backoff import record_failure, state_at
from evenkeel.domain.rebalancing.health.observed import observe_health
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.world import ZONES, Pool, World
from tests.builders import NOW, group, key, machines, numbers, stated
from tests.crashing import PAUSED, Life, WirelessClusters
from tests.fakes import FakeClock, adopt, plenty, record
from tests.house import House

FLAVOURS = ("gardener", "cluster-api", "openshift")
A, B, C = ZONES
MINUTE = timedelta(minutes=1)
BACKOFF = BackoffPolicy()


class Watched:
    """A cluster with one pool of two machines per zone, and somebody who looks at it now and then."""

    def __init__(self, flavour: str, *, replicas: Sequence[int] = (2, 2, 2), frozen: bool = False, **timing: Any):
        self.clock = FakeClock()
        self.flavour = flavour
        pool = Pool(name="workers", minimum=0, maximum=12, replicas=replicas)
        self.world = World(
            clusters=[flavour],
            pools={flavour: [pool]},
            clock=self.clock.now,
            settings=None,
            timing=Timing(**timing) if timing else None,
        )
        self.cluster = self.world.clusters[flavour]
        self.cloud = self.cluster.cloud
        self.record = record(flavours=[flavour], on_failure="hold")
        self.clusters = WirelessClusters(self.cluster.api, Life(), self.clock)
        self.state = ClusterState()
        self.passes(2 * MINUTE)
        self.names = {view.zone: view.name for view in self.cluster.groups()}
        if frozen:
            for name in self.names.values():
                resource = self.cluster.controllers.resource(self.plural)
                self.cluster.store.patch(resource, self.cluster.namespace, name, PAUSED[flavour], manager="test")

    @property
    def plural(self) -> str:
        return "machinesets" if self.flavour == "openshift" else "machinedeployments"

    def passes(self, time: timedelta) -> None:
        """Time goes by; controllers work every half minute."""
        end = self.clock.at + time
        while self.clock.at < end:
            self.clock.at = min(end, self.clock.at + timedelta(seconds=30))
            self.cluster.step(self.clock.at)
            self.cluster.step(self.clock.at)

    def wants(self, zone: str, replicas: int) -> None:
        """Cluster Autoscaler asks for machines, and the controllers try at once."""
        resource = self.cluster.controllers.resource(self.plural)
        self.cluster.store.scale(resource, self.cluster.namespace, self.names[zone], replicas)
        self.cluster.step(self.clock.at)
        self.cluster.step(self.clock.at)

    def look(self) -> Plan:
        """One look; what it has learnt is remembered."""
        observation = self.clusters.open(self.record, plenty).observe()
        found = plan(observation, self.state, self.record.policy(), self.clock.at)
        self.state = replace(self.state, groups={**self.state.groups, **found.states})
        return found

    def planned(self, zone: str) -> GroupPlan:
        (pool,) = self.look().pools
        return next(planned for planned in pool.groups if planned.group.zone == zone)

    def known(self, zone: str) -> GroupState:
        return next(state for key, state in self.state.groups.items() if key.name == self.names[zone])


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def watched(flavour: str) -> Watched:
    return Watched(flavour)


class TestWhatTheMachinesSay:
    def test_a_zone_out_of_machines_is_fenced_at_the_next_look(self, watched: Watched) -> None:
        assert {planned.state for pool in watched.look().pools for planned in pool.groups} == {State.HEALTHY}
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 4)
        found = {planned.group.zone: planned for pool in watched.look().pools for planned in pool.groups}
        assert {zone: planned.state for zone, planned in found.items()} == {
            A: State.FENCED,
            B: State.HEALTHY,
            C: State.HEALTHY,
        }
        known = watched.known(A)
        assert (known.failure_class, known.failures) == (FailureClass.CAPACITY, 1)
        assert "sufficient m5.xlarge capacity" in known.message
        assert known.backoff_until == watched.clock.at + BACKOFF.initial

    def test_a_quota_is_told_apart_from_a_zone_without_machines(self, flavour: str) -> None:
        watched = Watched(flavour)
        watched.record = record(flavours=[flavour])
        watched.cloud.quota = 6
        watched.wants(A, 4)
        planned = watched.planned(A)
        assert planned.state is State.FENCED
        assert watched.known(A).failure_class is FailureClass.QUOTA
        assert planned.requested == 4, "another zone would run into the same quota"

    def test_a_request_that_can_never_succeed_is_held_and_not_released(self, flavour: str) -> None:
        watched = Watched(flavour)
        watched.record = record(flavours=[flavour])
        watched.cloud.refuse(A, code="InvalidAMIID.NotFound", message="The image id is unknown", status=400)
        watched.wants(A, 3)
        planned = watched.planned(A)
        assert planned.state is State.FENCED
        assert watched.known(A).failure_class is FailureClass.CONFIGURATION
        assert planned.requested == 3

    def test_an_old_api_version_tells_the_same(self) -> None:
        watched = Watched("cluster-api")
        world = World(
            clusters=["cluster-api"],
            pools={"cluster-api": [Pool(name="workers", minimum=0, maximum=12)]},
            clock=watched.clock.now,
            settings=None,
            cluster_api_versions=["v1beta1"],
        )
        watched.world, watched.cluster = world, world.clusters["cluster-api"]
        watched.cloud = watched.cluster.cloud
        watched.clusters = WirelessClusters(watched.cluster.api, Life(), watched.clock)
        watched.passes(2 * MINUTE)
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 3)
        assert watched.planned(A).state is State.FENCED
        assert watched.known(A).failure_class is FailureClass.CAPACITY


class TestANodeThatDoesNotCome:
    def test_it_counts_from_our_first_sight_and_not_from_what_the_machine_says(self, flavour: str) -> None:
        watched = Watched(flavour, creation_timeout=timedelta(hours=3))
        watched.cloud.never_join(A, 1)
        watched.wants(A, 3)
        watched.passes(40 * MINUTE)  # nobody looked
        assert watched.planned(A).state is State.HEALTHY
        watched.passes(14.5 * MINUTE)
        assert watched.planned(A).state is State.HEALTHY
        watched.passes(0.5 * MINUTE)
        assert watched.planned(A).state is State.FENCED
        known = watched.known(A)
        assert known.failure_class is FailureClass.TIMEOUT
        assert known.last_failure == watched.clock.at
        assert known.message == "no node within 15 min for 1 of its replicas"

    def test_the_records_own_provision_timeout_counts(self, flavour: str) -> None:
        watched = Watched(flavour)
        watched.record = record(flavours=[flavour], on_failure="hold", provision_timeout=120)
        watched.cloud.never_join(A, 1)
        watched.wants(A, 3)
        assert watched.planned(A).state is State.HEALTHY
        watched.passes(2 * MINUTE)
        assert watched.planned(A).state is State.FENCED


class TestBackoff:
    def test_the_same_stuck_machine_does_not_double_it(self, watched: Watched) -> None:
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 4)
        watched.look()
        first = watched.known(A)
        for _ in range(9):
            watched.passes(0.5 * MINUTE)
            watched.look()
        assert (watched.known(A).failures, watched.known(A).backoff_until) == (1, first.backoff_until)

    def test_mcms_old_status_is_the_old_failure_also_when_the_backoff_is_over(self) -> None:
        watched = Watched("gardener")
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 4)
        watched.look()
        watched.passes(6 * MINUTE)  # MCM tries an exhausted zone again after ten
        assert watched.planned(A).state is State.PROBING
        assert watched.known(A).failures == 1

    def test_a_try_after_the_backoff_that_fails_again_doubles_it(self) -> None:
        watched = Watched("cluster-api")
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 4)
        watched.look()
        watched.passes(6 * MINUTE)
        assert watched.planned(A).state is State.FENCED
        known = watched.known(A)
        assert known.failures == 2
        assert known.last_failure is not None
        assert known.backoff_until <= watched.clock.at + 2 * BACKOFF.initial

    def test_a_node_that_comes_closes_it(self, watched: Watched) -> None:
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 3)
        assert watched.planned(A).state is State.FENCED
        watched.wants(A, 2)  # released
        watched.cloud.restore_zone(A)
        watched.passes(6 * MINUTE)
        assert watched.planned(A).state is State.PROBING
        watched.wants(A, 3)
        watched.look()
        watched.passes(2 * MINUTE)
        planned = watched.planned(A)
        assert planned.group.running == 3
        assert planned.state is State.HEALTHY
        assert watched.known(A).last_success == watched.clock.at


class TestQuiet:
    def test_a_quiet_cluster_has_nothing_to_remember(self, watched: Watched) -> None:
        assert watched.look().states == {}
        watched.passes(60 * MINUTE)
        assert watched.look().states == {}

    def test_a_machine_under_way_is_remembered_once_and_its_node_once(self, flavour: str) -> None:
        watched = Watched(flavour, provision=3 * MINUTE)
        watched.passes(5 * MINUTE)  # those of the start
        watched.look()
        watched.wants(A, 3)
        writes = []
        for _ in range(12):
            writes.append(len(watched.look().states))
            watched.passes(0.5 * MINUTE)
        assert writes[0] == 1
        assert sum(writes) == 2

    def test_after_trouble_is_over_quiet_returns(self, watched: Watched) -> None:
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 3)
        watched.look()
        watched.wants(A, 2)
        watched.passes(1 * MINUTE)
        watched.look()
        for _ in range(8):
            watched.passes(1 * MINUTE)
            assert watched.look().states == {}

    def test_what_is_frozen_is_never_judged(self, flavour: str) -> None:
        watched = Watched(flavour, frozen=True)
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 4)
        watched.passes(30 * MINUTE)
        found = watched.look()
        assert {planned.state for pool in found.pools for planned in pool.groups} == {State.FROZEN}
        assert found.states == {}
        assert found.changes == ()


class TestTheClockOfAGroup:
    """``observe_health`` alone, where minutes need no world."""

    def observe_health(self, looked: NodeGroup, state: GroupState | None, minute: float) -> GroupState | None:
        return observe_health(looked, state, NOW + minute * MINUTE, BACKOFF, 15 * MINUTE)

    def test_every_node_that_comes_starts_it_anew(self) -> None:
        state = self.observe_health(group("a", 6, running=2), None, 0)
        state = self.observe_health(group("a", 6, running=3), state, 14)
        assert self.observe_health(group("a", 6, running=3), state, 28.9) is state
        late = self.observe_health(group("a", 6, running=3), state, 29)
        assert late.failure_class is FailureClass.TIMEOUT

    def test_a_node_that_goes_does_not(self) -> None:
        state = self.observe_health(group("a", 6, running=3), None, 0)
        state = self.observe_health(group("a", 6, running=2), state, 10)
        state = self.observe_health(group("a", 6, running=3), state, 12)
        late = self.observe_health(group("a", 6, running=3), state, 15)
        assert late.failures == 1

    def test_nothing_waited_for_stops_it(self) -> None:
        state = self.observe_health(group("a", 3, running=2), None, 0)
        state = self.observe_health(group("a", 2), state, 5)
        assert state.waiting_since is None
        state = self.observe_health(group("a", 3, running=2), state, 10)
        state = self.observe_health(group("a", 3, running=2), state, 24)
        assert state.failures == 0

    def test_a_group_that_goes_on_missing_its_time_doubles_its_backoff_each_time(self) -> None:
        state: GroupState | None = None
        for minute in range(0, 61):
            state = self.observe_health(group("a", 3, running=2), state, minute)
        assert state.failures == 3  # at 15, 30 and 45 min; the one at 60 falls into the 20 minutes of the third

    def test_a_thaw_starts_it_and_a_frost_does_not_let_it_run_on(self) -> None:
        frozen = group("a", 4, running=2, frozen_because=stated("it is paused"))
        assert self.observe_health(frozen, None, 0) is None
        state = self.observe_health(group("a", 4, running=2), None, 40)
        assert state.failures == 0
        # Fourteen minutes of waiting, an hour of rolling update, and on it goes: the hour does not count.
        stopped = self.observe_health(frozen, state, 54)
        assert self.observe_health(frozen, stopped, 55) is stopped
        thawed = self.observe_health(group("a", 4, running=2), stopped, 114)
        assert thawed.failures == 0
        late = self.observe_health(group("a", 4, running=2), thawed, 129)
        assert late.failures == 1

    def test_a_failure_from_the_future_counts_from_now(self) -> None:
        looked = machines(group("a", 3, running=2), MINUTE)
        (*ran, new) = looked.machines or ()
        failed = replace(new, failure=MachineFailure(code="X", message="", at=NOW + 60 * MINUTE))
        state = self.observe_health(replace(looked, machines=(*ran, failed)), None, 0)
        assert state.last_failure == NOW

    def test_a_machine_that_is_going_already_is_not_judged(self) -> None:
        looked = machines(group("a", 3, running=2), MINUTE)
        (*ran, new) = looked.machines or ()
        failed = replace(new, deleting=True, failure=MachineFailure(code="X", message="", at=NOW))
        state = self.observe_health(replace(looked, machines=(*ran, failed)), None, 0)
        assert state.failures == 0

    def test_a_failure_from_the_future_is_the_same_failure_at_the_next_look_and_hides_no_success(self) -> None:
        looked = machines(group("a", 3, running=2), MINUTE)
        (*ran, new) = looked.machines or ()
        ahead = MachineFailure(code="X", message="", at=NOW + 2 * MINUTE)
        looked = replace(looked, machines=(*ran, replace(new, failure=ahead)))
        state: GroupState | None = None
        for minute in (0, 1, 3, 6, 9):
            state = self.observe_health(looked, state, minute)
        assert (state.failures, state.last_failure) == (1, NOW)
        over = self.observe_health(group("a", 3), state, 10)
        assert over is not None
        assert state_at(over, NOW + 10 * MINUTE, None, BACKOFF) is State.HEALTHY

    def test_a_failure_that_the_autoscaler_tells_again_in_the_past_ends_no_success(self) -> None:
        ahead = MachineFailure(code="OutOfResources", message="", at=NOW + 2 * MINUTE)
        state = self.observe_health(group("a", 3, running=2, autoscaler_failure=ahead), None, 0)
        state = self.observe_health(group("a", 3, running=2, autoscaler_failure=ahead), state, 3)
        state = self.observe_health(group("a", 3, running=3, autoscaler_failure=ahead), state, 6)
        assert not state.is_failing
        assert self.observe_health(group("a", 3, autoscaler_failure=ahead), state, 7) is state


class TestWhatIsHeld:
    """A quota or a configuration stays the reason as long as the machines say it, however long no node comes."""

    @staticmethod
    def failing(code: str, minute: int) -> NodeGroup:
        looked = machines(group("a", 5, running=2, bounds=(0, 12)), MINUTE)
        (*ran, new) = looked.machines or ()
        refused = [
            replace(new, name=f"new-{i}", failure=MachineFailure(code=code, message=code, at=NOW + minute * MINUTE))
            for i in range(3)
        ]
        return replace(looked, machines=(*ran, *refused))

    @pytest.mark.parametrize(
        ("code", "kind"),
        [("InvalidAMIID.NotFound", FailureClass.CONFIGURATION), ("VcpuLimitExceeded", FailureClass.QUOTA)],
    )
    @pytest.mark.parametrize("on_failure", [OnFailure.RELEASE, OnFailure.MOVE])
    def test_it_is_never_hopped_at_any_age_and_counts_as_missing_nodes(
        self, code: str, kind: FailureClass, on_failure: OnFailure
    ) -> None:
        others = [group("b", 3, bounds=(0, 12)), group("c", 3, bounds=(0, 12))]
        state = ClusterState()
        for minute in range(0, 121):
            # MCM and CAPA write the failure anew at every try
            groups = (self.failing(code, minute - minute % 7), *others)
            found = plan(
                Observation(groups=groups), state, numbers(0, 12, on_failure=on_failure), NOW + minute * MINUTE
            )
            state = replace(state, groups={**state.groups, **found.states}, pools={**state.pools, **found.pool_states})
            (pool,) = found.pools
            assert [planned.requested for planned in pool.groups] == [5, 3, 3], minute
            assert state.groups[key("a")].failure_class is kind, minute
            if pool.groups[0].state is State.FENCED:
                assert pool.starved == 3, minute
        assert pool.groups[0].state is State.FENCED

    def test_a_timeout_takes_its_place_once_the_machines_say_so_no_more(self) -> None:
        state = observe_health(self.failing("VcpuLimitExceeded", 0), None, NOW, BACKOFF, 15 * MINUTE)
        silent = machines(group("a", 5, running=2, bounds=(0, 12)), *[MINUTE] * 3)
        assert state is not None
        for minute in range(1, 17):
            state = observe_health(silent, state, NOW + minute * MINUTE, BACKOFF, 15 * MINUTE)
        assert state.failure_class is FailureClass.TIMEOUT

    def test_an_unknown_failure_beside_it_does_not_take_its_place(self) -> None:
        quota = record_failure(GroupState(), NOW, FailureClass.QUOTA, "limit", BACKOFF)
        for kind in (FailureClass.UNKNOWN, FailureClass.TIMEOUT):
            assert record_failure(quota, NOW + MINUTE, kind, "?", BACKOFF).failure_class is FailureClass.QUOTA
        capacity = record_failure(quota, NOW + MINUTE, FailureClass.CAPACITY, "no room", BACKOFF)
        assert capacity.failure_class is FailureClass.CAPACITY


class TestASuccess:
    """What ends a fence before its time: a machine that was launched after the last failure, and runs."""

    def look(self, state: GroupState | None, minute: float, *machines_: Machine, requested: int = 4) -> GroupState:
        running = sum(machine.has_node for machine in machines_)
        looked = group("a", requested, running=running, machines=machines_)
        seen = observe_health(looked, state, NOW + minute * MINUTE, BACKOFF, 15 * MINUTE)
        assert seen is not None
        return seen

    def machine(self, name: str, created: float, *, node: bool = False, failed: float | None = None) -> Machine:
        failure = None if failed is None else MachineFailure(code="ZoneFull", message="", at=NOW + failed * MINUTE)
        return Machine(name=name, has_node=node, created_at=NOW + created * MINUTE, failure=failure)

    def found(self, state: GroupState, minute: float) -> State:
        return state_at(state, NOW + minute * MINUTE, None, BACKOFF)

    def test_siblings_that_were_booting_when_the_zone_failed_say_nothing(self) -> None:
        refused = self.machine("d", -1, failed=0)
        booting = [self.machine(name, -1) for name in "abc"]
        state = self.look(None, 0, *booting, refused)
        arrived = [replace(machine, has_node=True) for machine in booting]
        state = self.look(state, 2, *arrived[:1], *booting[1:], refused)
        state = self.look(state, 3, *arrived, refused)
        assert self.found(state, 3) is State.FENCED

    def test_a_machine_that_was_launched_after_the_failure_ends_the_fence(self) -> None:
        state = self.look(None, 0, self.machine("a", -9, node=True), self.machine("d", -1, failed=0))
        state = self.look(state, 1, self.machine("a", -9, node=True), self.machine("e", 0.5))
        assert self.found(state, 1) is State.FENCED
        state = self.look(state, 2, self.machine("a", -9, node=True), self.machine("e", 0.5, node=True))
        assert self.found(state, 2) is State.PROBING

    def test_a_machine_that_failed_and_was_launched_again_ends_the_fence(self) -> None:
        """Gardener tries the same machine again: it was created before the failure, and runs all the same."""
        state = self.look(None, 0, self.machine("a", -9, node=True), self.machine("d", -1, failed=0))
        again = replace(self.machine("d", -1, node=True), launched_at=NOW + 1 * MINUTE)
        state = self.look(state, 2, self.machine("a", -9, node=True), again)
        assert self.found(state, 2) is State.PROBING

    def test_a_node_that_was_there_before_the_failure_ends_nothing(self) -> None:
        state = self.look(None, 0, self.machine("a", -9, node=True), self.machine("d", -1, failed=0))
        assert self.found(self.look(state, 2, self.machine("a", -9, node=True)), 2) is State.FENCED


class TestEventAndScan:
    @pytest.mark.parametrize(
        ("code", "kind"),
        [
            ("InsufficientInstanceCapacity", FailureClass.CAPACITY),
            ("VcpuLimitExceeded", FailureClass.QUOTA),
            ("InvalidAMIID.NotFound", FailureClass.CONFIGURATION),
            ("?", FailureClass.UNKNOWN),
        ],
    )
    @pytest.mark.parametrize("order", ["event", "scan", "event, scan", "scan, event", "event, event, scan, scan"])
    def test_they_lead_to_the_same_state(self, code: str, kind: FailureClass, order: str) -> None:
        at = NOW - MINUTE
        house = House()
        adopt(house.store, "demo", [group("a").key])
        name = group("a").key
        looked = machines(group("a", 3, running=2), 2 * MINUTE)
        (*ran, new) = looked.machines or ()
        failure = MachineFailure(code=code, message="the provider's words", at=at)
        looked = replace(looked, machines=(*ran, replace(new, failure=failure)))
        for number, what in enumerate(order.split(", ")):
            if what == "event":
                heard = house.record_failure(
                    Failure(
                        cluster="demo",
                        namespace=name.namespace,
                        name=name.name,
                        code=code,
                        message="the provider's words",
                        occurred_at=at,
                        id=f"event-{number}",
                    )
                )
                assert heard.result in (EventResult.RECORDED, EventResult.KNOWN)
            else:
                remembered = house.store.load("demo")
                known = remembered.state.groups.get(name)
                after = observe_health(looked, known, NOW, BACKOFF, 15 * MINUTE)
                if after is not known and after is not None:
                    house.store.save_group("demo", name, after, remembered.versions)
        ended = house.group_state()
        assert (ended.failures, ended.last_failure, ended.backoff_until) == (1, at, at + BACKOFF.initial)
        assert ended.message == f"{code}: the provider's words"
        assert ended.failure_class is kind
        assert state_at(ended, NOW, None, BACKOFF) is State.FENCED


def test_a_node_that_comes_after_the_look_that_found_the_failure_has_come_since_it() -> None:
    coming = machines(group("a", 3, running=0), *3 * [MINUTE])
    assert coming.machines is not None
    refused = replace(
        coming.machines[0], failure=MachineFailure(code="InsufficientInstanceCapacity", message="none", at=NOW)
    )
    known = observe_health(replace(coming, machines=(refused, *coming.machines[1:])), None, NOW, BACKOFF, 15 * MINUTE)
    assert not known.has_arrivals
    later = observe_health(group("a", 2, running=2), known, NOW + MINUTE / 4, BACKOFF, 15 * MINUTE)
    assert later.has_arrivals
    assert state_at(later, NOW + MINUTE / 4, None, BACKOFF) is State.FENCED


class TestWhatEventsToldOfAMachineSet:
    """An event may name the MachineSet of a MachineDeployment. Its failure is the deployment's."""

    def planned(self, state: ClusterState, minute: float = 0) -> Plan:
        numbers = {"pool_min": 0, "pool_max": 9}
        groups = (group("a", 2, sets=("workers-a-5b6f7",), **numbers), group("b", 2, **numbers))
        return plan(Observation(groups=groups), state, Policy(strategy=BALANCED), NOW + minute * MINUTE)

    def told(self, *minutes: int) -> ClusterState:
        state = GroupState()
        for minute in minutes:
            state = record_failure(state, NOW + minute * MINUTE, FailureClass.CAPACITY, "no room", BACKOFF)
        return ClusterState(groups={replace(key("a"), name="workers-a-5b6f7"): state})

    def test_it_fences_the_group_as_if_the_event_had_named_that(self) -> None:
        found = self.planned(self.told(-2))
        state = found.states[key("a")]
        told = record_failure(GroupState(), NOW - 2 * MINUTE, FailureClass.CAPACITY, "no room", BACKOFF)
        assert state == replace(told, running_seen=2)
        assert {planned.group.key for planned in found.pools[0].groups if planned.state is State.FENCED} == {key("a")}

    def test_it_counts_once_and_adds_to_what_is_known_of_the_group(self) -> None:
        state = self.told(-30, -2)
        own = record_failure(GroupState(), NOW - 15 * MINUTE, FailureClass.CAPACITY, "no room", BACKOFF)
        groups = {**state.groups, key("a"): own}
        found = self.planned(ClusterState(groups=groups))
        assert found.states[key("a")].failures == 3
        assert self.planned(ClusterState(groups={**groups, **found.states})).states == {}

    def test_it_is_forgotten_like_any_other(self) -> None:
        assert key("a") in self.planned(self.told(-2), minute=177).states
        assert self.planned(self.told(-2), minute=179).states == {}
