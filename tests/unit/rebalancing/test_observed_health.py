"""A check finds failures from the machines of each flavour, in the sandbox's worlds with the real adapter."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.application.rebalancing.events import EventResult
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Machine, MachineFailure, NodeGroup, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, Plan
from evenkeel.domain.model.policy import BackoffPolicy, Policy
from evenkeel.domain.model.states import UNKNOWN, ClusterState, GroupState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.backoff import record_failure, state_at
from evenkeel.domain.rebalancing.health.observed import observe_health
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.world import ZONES, Pool, World
from tests.builders import MINUTE, NOW, group, key, machines, numbers, remembered, stated
from tests.crashing import PAUSED, Life, WirelessClusters
from tests.fakes import FakeClock, adopt, plenty, record
from tests.parts import make, replace
from tests.stack import Stack
from tests.unit.rebalancing.test_record_failure import failure

FLAVOURS = ("gardener", "cluster-api", "openshift")
A, B, C = ZONES
BACKOFF = BackoffPolicy()


class Watched:
    """A cluster with one pool of two machines per zone."""

    def __init__(self, flavour: str, *, frozen: bool = False, versions: Sequence[str] | None = None, **timing: Any):
        self.clock = FakeClock()
        self.flavour = flavour
        self.world = World(
            clusters=[flavour],
            pools={flavour: [Pool(name="workers", minimum=0, maximum=12, replicas=(2, 2, 2))]},
            clock=self.clock.now,
            settings=None,
            timing=Timing(**timing) if timing else None,
            **({} if versions is None else {"cluster_api_versions": versions}),
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
        """Let time pass; controllers work every half minute."""
        end = self.clock.at + time
        while self.clock.at < end:
            self.clock.at = min(end, self.clock.at + timedelta(seconds=30))
            self.cluster.step(self.clock.at)
            self.cluster.step(self.clock.at)

    def wants(self, zone: str, replicas: int) -> None:
        """Request machines as Cluster Autoscaler, and let the controllers try at once."""
        resource = self.cluster.controllers.resource(self.plural)
        self.cluster.store.scale(resource, self.cluster.namespace, self.names[zone], replicas)
        self.cluster.step(self.clock.at)
        self.cluster.step(self.clock.at)

    def check(self) -> Plan:
        """Check the cluster once and keep the new states."""
        observation = self.clusters.open(self.record, plenty).observe()
        found = plan(observation, self.state, self.record.policy(), self.clock.at)
        self.state = replace(self.state, groups={**self.state.groups, **found.states})
        return found

    def planned(self, zone: str) -> GroupPlan:
        (pool,) = self.check().pools
        return next(planned for planned in pool.groups if planned.group.identity.zone == zone)

    def known(self, zone: str) -> GroupState:
        return next(state for key, state in self.state.groups.items() if key.name == self.names[zone])


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def watched(flavour: str) -> Watched:
    return Watched(flavour)


class TestMachines:
    def test_a_zone_without_capacity_is_fenced_at_the_next_check(self, watched: Watched) -> None:
        assert {planned.state for pool in watched.check().pools for planned in pool.groups} == {State.HEALTHY}
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 4)
        found = {planned.group.identity.zone: planned for pool in watched.check().pools for planned in pool.groups}
        assert {zone: planned.state for zone, planned in found.items()} == {
            A: State.FENCED,
            B: State.HEALTHY,
            C: State.HEALTHY,
        }
        known = watched.known(A)
        assert (known.failure.failure_class, known.failure.failures) == (FailureClass.CAPACITY, 1)
        assert "sufficient m5.xlarge capacity" in known.failure.message
        assert known.failure.backoff_until == watched.clock.at + BACKOFF.initial

    @pytest.mark.parametrize("kind", [FailureClass.QUOTA, FailureClass.CONFIGURATION])
    def test_a_quota_or_configuration_failure_is_held_and_not_released(self, flavour: str, kind: FailureClass) -> None:
        watched = Watched(flavour)
        watched.record = record(flavours=[flavour])
        if kind is FailureClass.QUOTA:
            watched.cloud.quota = 6
        else:
            watched.cloud.refuse(A, code="InvalidAMIID.NotFound", message="The image id is unknown", status=400)
        watched.wants(A, 4)
        planned = watched.planned(A)
        assert (planned.state, planned.requested) == (State.FENCED, 4)
        assert watched.known(A).failure.failure_class is kind

    def test_an_old_api_version_reports_the_same(self) -> None:
        watched = Watched("cluster-api", versions=["v1beta1"])
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 3)
        assert watched.planned(A).state is State.FENCED
        assert watched.known(A).failure.failure_class is FailureClass.CAPACITY


class TestMissingNode:
    def test_the_timeout_counts_from_the_creation_and_is_the_records(self, flavour: str) -> None:
        watched = Watched(flavour, creation_timeout=timedelta(hours=3))
        watched.cloud.never_join(A, 1)
        watched.wants(A, 3)
        watched.passes(14.5 * MINUTE)  # without a check
        assert watched.planned(A).state is State.HEALTHY
        watched.passes(0.5 * MINUTE)
        assert watched.planned(A).state is State.FENCED
        known = watched.known(A)
        assert known.failure.failure_class is FailureClass.TIMEOUT
        assert known.failure.last_failure == watched.clock.at
        assert known.failure.message == "no node within 15 min for 1 of its replicas"
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
        watched.check()
        first = watched.known(A)
        for _ in range(9):
            watched.passes(0.5 * MINUTE)
            watched.check()
        failure = watched.known(A).failure
        assert (failure.failures, failure.backoff_until) == (1, first.failure.backoff_until)

    def test_the_old_status_of_mcm_is_no_new_failure(self) -> None:
        watched = Watched("gardener")
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 4)
        watched.check()
        watched.passes(6 * MINUTE)  # MCM tries an exhausted zone again after ten
        assert watched.planned(A).state is State.PROBING
        assert watched.known(A).failure.failures == 1

    def test_a_new_node_ends_the_backoff(self, watched: Watched) -> None:
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 3)
        assert watched.planned(A).state is State.FENCED
        watched.wants(A, 2)  # released
        watched.cloud.restore_zone(A)
        watched.passes(6 * MINUTE)
        assert watched.planned(A).state is State.PROBING
        watched.wants(A, 3)
        watched.check()
        watched.passes(2 * MINUTE)
        planned = watched.planned(A)
        assert planned.group.running == 3
        assert planned.state is State.HEALTHY
        assert watched.known(A).arrivals.last_success == watched.clock.at


class TestSteadyState:
    def test_a_quiet_cluster_stores_nothing(self, watched: Watched) -> None:
        assert watched.check().states == {}
        watched.passes(60 * MINUTE)
        assert watched.check().states == {}

    def test_a_booting_machine_and_its_node_are_stored_once_each(self, flavour: str) -> None:
        watched = Watched(flavour, provision=3 * MINUTE)
        watched.passes(5 * MINUTE)  # those of the start
        watched.check()
        watched.wants(A, 3)
        writes = []
        for _ in range(12):
            writes.append(len(watched.check().states))
            watched.passes(0.5 * MINUTE)
        assert writes[0] == 1
        assert sum(writes) == 2

    def test_a_frozen_group_is_not_evaluated(self, flavour: str) -> None:
        watched = Watched(flavour, frozen=True)
        watched.cloud.exhaust_zone(A)
        watched.wants(A, 4)
        watched.passes(30 * MINUTE)
        found = watched.check()
        assert {planned.state for pool in found.pools for planned in pool.groups} == {State.FROZEN}
        assert found.states == {}
        assert found.changes == ()


class TestTimeout:
    """``observe_health`` alone, without a world."""

    def observe_health(self, checked: NodeGroup, state: GroupState, minute: float) -> GroupState:
        return observe_health(checked, state, NOW + minute * MINUTE, BACKOFF, 15 * MINUTE)

    @pytest.mark.parametrize(
        ("story", "ends"),
        [
            ([(0, 6, 2), (14, 6, 3)], 29),
            ([(0, 6, 3), (10, 6, 2), (12, 6, 3)], 15),
            ([(0, 3, 2), (5, 2, 2), (10, 3, 2)], 25),
        ],
        ids=["every new node restarts it", "a node that goes does not", "it stops while no node is awaited"],
    )
    def test_it_ends_fifteen_minutes_after_the_last_node_came(
        self, story: list[tuple[int, int, int]], ends: int
    ) -> None:
        """The story has minutes, with requested and running nodes."""
        state = UNKNOWN
        for minute, requested, running in story:
            state = self.observe_health(group("a", requested, running=running), state, minute)
        waiting = group("a", requested, running=running)
        assert self.observe_health(waiting, state, ends - 0.1) is state
        late = self.observe_health(waiting, state, ends)
        assert (late.failure.failures, late.failure.failure_class) == (1, FailureClass.TIMEOUT)

    def test_every_timeout_doubles_the_backoff(self) -> None:
        state = UNKNOWN
        for minute in range(0, 61):
            state = self.observe_health(group("a", 3, running=2), state, minute)
        assert state.failure.failures == 3  # at 15, 30 and 45 min; the one at 60 is within the 20 minutes of the third

    def test_it_pauses_while_the_group_is_frozen(self) -> None:
        frozen = group("a", 4, running=2, frozen_because=stated("the object is paused"))
        assert self.observe_health(frozen, UNKNOWN, 0) is UNKNOWN
        state = self.observe_health(group("a", 4, running=2), UNKNOWN, 40)
        assert state.failure.failures == 0
        # Fourteen minutes of waiting, an hour of rolling update, then more waiting: the hour does not count.
        stopped = self.observe_health(frozen, state, 54)
        assert self.observe_health(frozen, stopped, 55) is stopped
        thawed = self.observe_health(group("a", 4, running=2), stopped, 114)
        assert thawed.failure.failures == 0
        late = self.observe_health(group("a", 4, running=2), thawed, 129)
        assert late.failure.failures == 1

    @staticmethod
    def refused_once(ahead: float = 0, **fields: Any) -> NodeGroup:
        """Return a group with a machine that failed so many minutes after NOW."""
        checked = machines(group("a", 3, running=2), MINUTE)
        (*ran, new) = checked.machines or ()
        failure = MachineFailure(code="X", message="", at=NOW + ahead * MINUTE)
        return replace(checked, machines=(*ran, replace(new, failure=failure, **fields)))

    def test_a_failure_from_the_future_is_one_failure_from_now_and_hides_no_success(self) -> None:
        state = UNKNOWN
        for minute in (0, 1, 3, 6, 9):
            state = self.observe_health(self.refused_once(2), state, minute)
            assert (state.failure.failures, state.failure.last_failure) == (1, NOW)
        over = self.observe_health(group("a", 3), state, 10)
        assert state_at(over, NOW + 10 * MINUTE, BACKOFF) is State.HEALTHY

    def test_a_machine_that_is_being_deleted_is_no_failure(self) -> None:
        assert self.observe_health(self.refused_once(deleting=True), UNKNOWN, 0).failure.failures == 0

    def test_a_repeated_failure_of_the_autoscaler_ends_no_success(self) -> None:
        ahead = MachineFailure(code="OutOfResources", message="", at=NOW + 2 * MINUTE)
        state = self.observe_health(group("a", 3, running=2, autoscaler_failure=ahead), UNKNOWN, 0)
        state = self.observe_health(group("a", 3, running=2, autoscaler_failure=ahead), state, 3)
        state = self.observe_health(group("a", 3, running=3, autoscaler_failure=ahead), state, 6)
        assert not state.is_failing
        assert self.observe_health(group("a", 3, autoscaler_failure=ahead), state, 7) is state


class TestHeldFailures:
    """A quota or configuration stays the reason as long as the machines report it, however long no node joins."""

    @staticmethod
    def failing(code: str, minute: int) -> NodeGroup:
        checked = machines(group("a", 5, running=2, bounds=(0, 12)), MINUTE)
        (*ran, new) = checked.machines or ()
        refused = [
            replace(new, name=f"new-{i}", failure=MachineFailure(code=code, message=code, at=NOW + minute * MINUTE))
            for i in range(3)
        ]
        return replace(checked, machines=(*ran, *refused))

    @pytest.mark.parametrize(
        ("code", "kind"),
        [("InvalidAMIID.NotFound", FailureClass.CONFIGURATION), ("VcpuLimitExceeded", FailureClass.QUOTA)],
    )
    @pytest.mark.parametrize("on_failure", [OnFailure.RELEASE, OnFailure.MOVE])
    def test_a_held_failure_is_never_moved_and_counts_as_missing_nodes(
        self, code: str, kind: FailureClass, on_failure: OnFailure
    ) -> None:
        others = [group("b", 3, bounds=(0, 12)), group("c", 3, bounds=(0, 12))]
        state = ClusterState()
        for minute in range(0, 121):
            # MCM and CAPA write the failure again at every try
            groups = (self.failing(code, minute - minute % 7), *others)
            found = plan(
                Observation(groups=groups), state, numbers(0, 12, on_failure=on_failure), NOW + minute * MINUTE
            )
            state = remembered(state, found)
            (pool,) = found.pools
            assert [planned.requested for planned in pool.groups] == [5, 3, 3], minute
            assert state.groups[key("a")].failure.failure_class is kind, minute
            if pool.groups[0].state is State.FENCED:
                assert pool.report.starved == 3, minute
        assert pool.groups[0].state is State.FENCED

    def test_a_timeout_replaces_it_once_the_machines_do_not_report_it(self) -> None:
        state = observe_health(self.failing("VcpuLimitExceeded", 0), UNKNOWN, NOW, BACKOFF, 15 * MINUTE)
        silent = machines(group("a", 5, running=2, bounds=(0, 12)), *[MINUTE] * 3)
        assert state is not None
        for minute in range(1, 17):
            state = observe_health(silent, state, NOW + minute * MINUTE, BACKOFF, 15 * MINUTE)
        assert state.failure.failure_class is FailureClass.TIMEOUT

    def test_an_unknown_failure_does_not_replace_it(self) -> None:
        quota = record_failure(GroupState(), NOW, FailureClass.QUOTA, "limit", BACKOFF)
        for kind in (FailureClass.UNKNOWN, FailureClass.TIMEOUT):
            assert record_failure(quota, NOW + MINUTE, kind, "?", BACKOFF).failure.failure_class is FailureClass.QUOTA
        capacity = record_failure(quota, NOW + MINUTE, FailureClass.CAPACITY, "no room", BACKOFF)
        assert capacity.failure.failure_class is FailureClass.CAPACITY


class TestSuccess:
    """A running machine that was launched after the last failure ends a fence before its time."""

    def check(self, state: GroupState, minute: float, *machines_: Machine, requested: int = 4) -> GroupState:
        running = sum(machine.has_node for machine in machines_)
        checked = group("a", requested, running=running, machines=machines_)
        return observe_health(checked, state, NOW + minute * MINUTE, BACKOFF, 15 * MINUTE)

    def machine(self, name: str, created: float, *, node: bool = False, failed: float | None = None) -> Machine:
        failure = None if failed is None else MachineFailure(code="ZoneFull", message="", at=NOW + failed * MINUTE)
        return Machine(name=name, has_node=node, created_at=NOW + created * MINUTE, failure=failure)

    def found(self, state: GroupState, minute: float) -> State:
        return state_at(state, NOW + minute * MINUTE, BACKOFF)

    def test_machines_that_booted_during_the_failure_end_no_fence(self) -> None:
        refused = self.machine("d", -1, failed=0)
        booting = [self.machine(name, -1) for name in "abc"]
        state = self.check(UNKNOWN, 0, *booting, refused)
        arrived = [replace(machine, has_node=True) for machine in booting]
        state = self.check(state, 2, *arrived[:1], *booting[1:], refused)
        state = self.check(state, 3, *arrived, refused)
        assert self.found(state, 3) is State.FENCED

    def test_a_machine_that_was_launched_after_the_failure_ends_the_fence(self) -> None:
        state = self.check(UNKNOWN, 0, self.machine("a", -9, node=True), self.machine("d", -1, failed=0))
        state = self.check(state, 1, self.machine("a", -9, node=True), self.machine("e", 0.5))
        assert self.found(state, 1) is State.FENCED
        state = self.check(state, 2, self.machine("a", -9, node=True), self.machine("e", 0.5, node=True))
        assert self.found(state, 2) is State.PROBING

    @pytest.mark.parametrize(
        ("created", "fields", "ends"),
        [
            pytest.param(-8, {}, False, id="one of before"),
            pytest.param(0, {}, False, id="one of the same moment"),
            pytest.param(0.5, {"deleting": True}, False, id="one that is being deleted"),
            # Gardener tries the same machine again: it was created before the failure, and runs all the same.
            pytest.param(-1, {"name": "d", "launched_at": NOW + MINUTE}, True, id="the same one, launched again"),
        ],
    )
    def test_only_a_machine_of_after_the_failure_that_stays_ends_the_fence(
        self, created: float, fields: dict[str, Any], ends: bool
    ) -> None:
        old = self.machine("a", -9, node=True)
        state = self.check(UNKNOWN, 0, old, self.machine("d", -1, failed=0))
        new = replace(self.machine("e", created, node=True), **fields)
        assert self.found(self.check(state, 2, old, new), 2) is (State.PROBING if ends else State.FENCED)


class TestEventsAndChecks:
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
    def test_events_and_checks_lead_to_the_same_state(self, code: str, kind: FailureClass, order: str) -> None:
        at, stack, name = NOW - MINUTE, Stack(), key("a")
        adopt(stack.store, "demo", [name])
        checked = machines(group("a", 3, running=2), 2 * MINUTE)
        (*ran, new) = checked.machines or ()
        refused = MachineFailure(code=code, message="the provider's words", at=at)
        checked = replace(checked, machines=(*ran, replace(new, failure=refused)))
        for number, source in enumerate(order.split(", ")):
            if source == "event":
                event = failure(code=code, message=refused.message, occurred_at=at, id=f"event-{number}")
                assert stack.record_failure(event).result in (EventResult.RECORDED, EventResult.KNOWN)
            else:
                stored = stack.store.load("demo")
                known = stored.state.groups.get(name, UNKNOWN)
                after = observe_health(checked, known, NOW, BACKOFF, 15 * MINUTE)
                if after is not known:
                    stack.store.save_group("demo", name, after, stored.versions)
        state = stack.group_state()
        assert (state.failure.failures, state.failure.last_failure, state.failure.backoff_until) == (
            1,
            at,
            at + BACKOFF.initial,
        )
        assert state.failure.message == f"{code}: the provider's words"
        assert state.failure.failure_class is kind
        assert state_at(state, NOW, BACKOFF) is State.FENCED


def test_a_node_after_the_check_of_the_failure_counts_as_later() -> None:
    coming = machines(group("a", 3, running=0), *3 * [MINUTE])
    assert coming.machines is not None
    refused = replace(
        coming.machines[0], failure=MachineFailure(code="InsufficientInstanceCapacity", message="none", at=NOW)
    )
    known = observe_health(
        replace(coming, machines=(refused, *coming.machines[1:])), UNKNOWN, NOW, BACKOFF, 15 * MINUTE
    )
    assert not known.has_arrivals
    later = observe_health(group("a", 2, running=2), known, NOW + MINUTE / 4, BACKOFF, 15 * MINUTE)
    assert later.has_arrivals
    assert state_at(later, NOW + MINUTE / 4, BACKOFF) is State.FENCED


class TestEventsOfAMachineSet:
    """An event may name the MachineSet of a MachineDeployment. Its failure is the deployment's."""

    def planned(self, state: ClusterState, minute: float = 0) -> Plan:
        numbers = {"pool_min": 0, "pool_max": 9}
        groups = (group("a", 2, sets=("workers-a-5b6f7",), **numbers), group("b", 2, **numbers))
        return plan(Observation(groups=groups), state, make(Policy, strategy=BALANCED), NOW + minute * MINUTE)

    def failed_at(self, *minutes: int) -> ClusterState:
        state = GroupState()
        for minute in minutes:
            state = record_failure(state, NOW + minute * MINUTE, FailureClass.CAPACITY, "no room", BACKOFF)
        return ClusterState(groups={key("a")._replace(name="workers-a-5b6f7"): state})

    def test_it_fences_the_group_as_if_the_event_had_named_that(self) -> None:
        found = self.planned(self.failed_at(-2))
        expected = record_failure(GroupState(), NOW - 2 * MINUTE, FailureClass.CAPACITY, "no room", BACKOFF)
        assert found.states[key("a")] == replace(expected, running_seen=2)
        assert {planned.group.key for planned in found.pools[0].groups if planned.state is State.FENCED} == {key("a")}
        assert key("a") in self.planned(self.failed_at(-2), minute=177).states
        assert self.planned(self.failed_at(-2), minute=179).states == {}

    def test_it_counts_once_and_adds_to_the_state_of_the_group(self) -> None:
        state = self.failed_at(-30, -2)
        own = record_failure(GroupState(), NOW - 15 * MINUTE, FailureClass.CAPACITY, "no room", BACKOFF)
        groups = {**state.groups, key("a"): own}
        found = self.planned(ClusterState(groups=groups))
        assert found.states[key("a")].failure.failures == 3
        assert self.planned(ClusterState(groups={**groups, **found.states})).states == {}
