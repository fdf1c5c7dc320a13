"""Learned provision timeouts: silent orders, machines given up, which count, and those that cannot be counted."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.read.groups import Listing, read_groups
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import GroupKey, Machine, MachineFailure, NodeGroup, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.provision_times import ProvisionTimes
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.model.workload import Node, Workload
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.health.provision_times import timeouts_of
from evenkeel.texts.english import sentence
from tests import objects
from tests.builders import MINUTE, NOW, group, numbers, remembered
from tests.objects import ZONES
from tests.parts import make, replace
from tests.workloads import node

SECOND = timedelta(seconds=1)
TYPE = "m5.large"
AUTO = replace(numbers(0, 60), timeout_mode="auto")
KNOWN = ProvisionTimes().with_times([100 * SECOND] * 60)  # three times as long, rounded up: 5 min 6 s
SLOW = ProvisionTimes().with_times([timedelta(hours=1)] * 60)
LEARNED = 306 * SECOND


def joined(number: int, created: timedelta, took: timedelta | None) -> Machine:
    at = None if took is None else NOW + created + took
    return Machine(name=f"j{number}", has_node=True, created_at=NOW + created, joined_at=at)


def with_times(state: PoolState, times: Mapping[str, ProvisionTimes]) -> PoolState:
    return replace(state, replicas=replace(state.replicas, provision_times=times))


class Checked:
    """A pool of two zones, whose state is stored after each check. Zone b is healthy."""

    def __init__(self, times: ProvisionTimes | None = KNOWN, policy: Policy = AUTO) -> None:
        self.policy = policy
        self.state = ClusterState()
        self.check([], 0)
        if times is not None:
            pools = {id: with_times(state, {TYPE: times}) for id, state in self.state.pools.items()}
            self.state = replace(self.state, pools=pools)

    def check(self, machines: Sequence[Machine], minute: float, **fields: Any) -> Plan:
        running = sum(machine.has_node for machine in machines)
        found = group("a", len(machines), running=running, bounds=(0, 30), machines=tuple(machines))
        zones = [replace(found, **{"machine_type": TYPE, **fields}), group("b", 3, bounds=(0, 30))]
        made = plan(Observation(groups=tuple(zones)), self.state, self.policy, NOW + minute * MINUTE)
        self.state = remembered(self.state, made)
        return made

    def state_at(self, machines: Sequence[Machine], minute: float, **fields: Any) -> State:
        return self.check(machines, minute, **fields).pools[0].groups[0].state

    def count_until(self, until: datetime) -> None:
        """Store that the machines of all groups are counted until this time."""
        pools = {
            id: replace(
                state,
                replicas=replace(state.replicas, counted_until=dict.fromkeys(state.replicas.counted_until, until)),
            )
            for id, state in self.state.pools.items()
        }
        self.state = replace(self.state, pools=pools)

    @property
    def pool(self) -> PoolState:
        (pool,) = self.state.pools.values()
        return pool

    @property
    def counted(self) -> int:
        return len(self.pool.replicas.provision_times.get(TYPE, ProvisionTimes()).letters)


def ordered(count: int, at: timedelta = timedelta(0), name: str = "w") -> list[Machine]:
    return [Machine(name=f"{name}{number}", has_node=False, created_at=NOW + at) for number in range(count)]


def fenced_after(checked: Checked, machines: Sequence[Machine], **fields: Any) -> timedelta:
    """Return when the zone is fenced, with a check every ten seconds."""
    tens = range(6, 6 * 31)
    return next(10 * ten * SECOND for ten in tens if checked.state_at(machines, ten / 6, **fields) is State.FENCED)


class TestWhichOrderIsSilent:
    def test_an_order_is_silent_after_the_learned_timeout(self) -> None:
        assert LEARNED <= fenced_after(Checked(), ordered(3)) < LEARNED + 10 * SECOND

    def test_a_lone_machine_waits_1_5_times_as_long(self) -> None:
        assert 1.5 * LEARNED <= fenced_after(Checked(), ordered(1)) < 1.5 * LEARNED + 10 * SECOND

    def test_a_lone_machine_stays_lone_when_a_younger_one_is_ordered(self) -> None:
        two = [*ordered(1), *ordered(1, 4 * MINUTE, "later")]
        assert 1.5 * LEARNED <= fenced_after(Checked(), two) < 1.5 * LEARNED + 10 * SECOND

    def test_an_order_of_which_a_machine_has_joined_is_not_silent(self) -> None:
        checked, (slow, late, quick) = Checked(), ordered(3)
        for minute in (1, 2):
            assert checked.state_at([slow, late, quick], minute) is State.HEALTHY
        came = replace(quick, has_node=True, joined_at=NOW + 3 * MINUTE)
        assert checked.state_at([slow, late, came], 3) is State.HEALTHY
        assert checked.state_at([slow, late, came], 8) is State.HEALTHY
        assert checked.state_at([slow, late, came], 8.3) is State.FENCED

    @pytest.mark.parametrize(
        ("times", "minutes"),
        [
            (None, 15),
            (ProvisionTimes().with_times([100 * SECOND] * 49), 15),
            (ProvisionTimes().with_times([SECOND] * 50), 2),
            (ProvisionTimes().with_times([*[100 * SECOND] * 199, timedelta(hours=1)]), 15),
            (ProvisionTimes().with_times([timedelta(hours=1), *[SECOND] * 200]), 2),
        ],
    )
    def test_few_machines_keep_15_minutes_and_one_slow_machine_lengthens_the_timeout(
        self, times: ProvisionTimes | None, minutes: int
    ) -> None:
        assert fenced_after(Checked(times), ordered(2)) == minutes * MINUTE

    def test_another_machine_type_keeps_15_minutes(self) -> None:
        assert fenced_after(Checked(), ordered(2), machine_type="m4.large") == 15 * MINUTE

    def test_a_number_in_the_record_replaces_it(self) -> None:
        policy = replace(numbers(0, 60), timeout_mode="set", provision_timeout=10 * MINUTE)
        checked = Checked(policy=policy)
        assert fenced_after(checked, ordered(2)) == 10 * MINUTE
        assert not checked.pool.replicas.provision_times

    @pytest.mark.parametrize(("own", "minutes"), [(20, 20), (8, 8), (2, 5.1)])
    def test_an_owners_longer_timeout_counts(self, own: int, minutes: float) -> None:
        given = {"provision_timeout": own * MINUTE}
        assert abs(fenced_after(Checked(), ordered(2), **given) - minutes * MINUTE) <= 10 * SECOND


class TestGivenUp:
    def test_machines_that_were_given_up_count_with_1_5_times_the_timeout_and_are_still_released(self) -> None:
        checked, silent = Checked(), ordered(3)
        fenced_after(checked, silent)
        assert checked.counted == 63
        assert checked.pool.replicas.provision_times[TYPE].longest >= 1.5 * LEARNED
        again = checked.check(silent, 5.6).pools[0].groups[0]  # the first write has failed
        assert (again.state, again.requested) == (State.FENCED, 0)
        assert checked.counted == 63

    def test_a_younger_machine_of_a_silent_zone_stays(self) -> None:
        checked, old, young = Checked(), ordered(2), ordered(1, 5 * MINUTE, "young")
        fenced_after(checked, [*old, *young])
        for minute in (5.5, 6, 8):
            assert checked.check([*old, *young], minute).pools[0].groups[0].requested == 1

    def test_a_machine_that_joins_after_it_was_given_up_counts_once(self) -> None:
        checked, silent = Checked(), ordered(2)
        fenced_after(checked, silent)
        late = [replace(one, has_node=True, joined_at=NOW + 9 * MINUTE) for one in silent]
        checked.check(late, 10)
        assert checked.counted == 62

    @pytest.mark.parametrize("until", [NOW + timedelta(days=1), NOW + 20 * MINUTE + SECOND])
    def test_a_clock_that_was_ahead_gives_up_no_young_machine(self, until: datetime) -> None:
        checked = Checked()
        fenced_after(checked, ordered(3))
        checked.count_until(until)
        probe = ordered(1, 20 * MINUTE, "probe")
        for minute in (20.1, 21, 21.9):
            assert checked.check(probe, minute).pools[0].groups[0].requested == 1

    def test_learning_goes_on_after_a_clock_was_ahead(self) -> None:
        checked = Checked()
        checked.check([joined(1, MINUTE, MINUTE)], 3)
        checked.count_until(NOW + timedelta(days=1))
        checked.check([joined(2, 4 * MINUTE, MINUTE)], 6)
        assert checked.counted == 62
        assert max(checked.pool.replicas.counted_until.values()) < NOW + 5 * MINUTE


class TestWhatCannotBeCounted:
    @pytest.mark.parametrize(
        "machine",
        [
            joined(1, -MINUTE, None),
            joined(1, timedelta(hours=2), MINUTE),
            joined(1, -MINUTE, timedelta(hours=2)),
            joined(1, -MINUTE, -MINUTE),
            replace(joined(1, -MINUTE, MINUTE), created_at=datetime.fromtimestamp(0, UTC)),
        ],
    )
    def test_a_machine_without_a_usable_time_is_reported_and_teaches_nothing(self, machine: Machine) -> None:
        checked = Checked(None)
        made = checked.check([machine, *ordered(1, 2 * MINUTE)], 2)
        assert made.pools[0].untimed == 1
        assert checked.pool.replicas.provision_times == {}

    @pytest.mark.parametrize("created", [NOW - MINUTE, datetime.fromtimestamp(0, UTC)])
    def test_a_machine_without_a_usable_time_is_reported_once(self, created: datetime) -> None:
        checked, machine = Checked(None), replace(joined(1, -MINUTE, None), created_at=created)
        untimed = [checked.check([machine], minute).pools[0].untimed for minute in (1, 2, 3)]
        assert untimed == [1, 0, 0]
        checked.check([machine, joined(2, 3 * MINUTE, MINUTE)], 5)
        assert checked.counted == 1

    def test_a_machine_that_failed_and_was_launched_again_is_no_sample(self) -> None:
        checked = Checked(None)
        again = replace(ordered(1)[0], failure=MachineFailure(code="InsufficientInstanceCapacity", message=""))
        checked.check([again], 1)
        late = replace(again, failure=None, has_node=True, joined_at=NOW + 20 * MINUTE)
        checked.check([late, *ordered(1, 21 * MINUTE, "later")], 21)
        assert checked.counted == 0

    def test_a_hundred_renamed_types_stay_few(self) -> None:
        checked = Checked(None)
        for number in range(30):
            at = number * 2 * MINUTE
            checked.check([joined(number, at, MINUTE), *ordered(1, at + MINUTE)], 2 * number + 1)
            times = checked.pool.replicas.provision_times
            renamed = {f"type-{number}": times[TYPE], **{name: each for name, each in times.items() if name != TYPE}}
            pools = {id: with_times(state, renamed) for id, state in checked.state.pools.items()}
            checked.state = replace(checked.state, pools=pools)
        assert len(checked.pool.replicas.provision_times) == 1


def test_a_group_that_one_check_does_not_find_counts_no_machine_twice() -> None:
    def zone(name: str, count: int) -> NodeGroup:
        machines = tuple(
            replace(joined(number, number * MINUTE, MINUTE), name=f"{name}{number}") for number in range(count)
        )
        return replace(group(name, count, bounds=(0, 30), machines=machines), machine_type=TYPE)

    checked = Checked(None)
    for minute, zones in ((2, "abc"), (4, "bc"), (6, "abc"), (8, "abc")):
        made = plan(
            Observation(groups=tuple(zone(name, minute) for name in zones)), checked.state, AUTO, NOW + minute * MINUTE
        )
        checked.state = remembered(checked.state, made)
    assert checked.counted == 3 * 8


class TestInstances:
    """Instances of Auto Scaling, where Evenkeel orders nodes: their launch ends long before their nodes join."""

    KEY = GroupKey("auto-scaling", "", "a")
    LAUNCHED = joined(1, timedelta(0), 20 * SECOND)

    def state_after(self, workload: Workload) -> PoolState:
        found = group("a", 1, machines=(self.LAUNCHED,), machine_type=TYPE, pool_max=30)
        found = replace(found, key=self.KEY)
        observation = Observation(groups=(found,), workload=workload)
        policy = make(Policy, strategy=BALANCED, demand=DemandStage.SCALE_UP, autoscaler=False, timeout_mode="auto")
        (state,) = plan(observation, ClusterState(), policy, NOW + 3 * MINUTE).pool_states.values()
        return state

    def test_without_its_node_an_instance_teaches_no_time(self) -> None:
        state = self.state_after(Workload(registered=frozenset(["j1"]), whole=False))
        assert not state.replicas.provision_times

    def test_its_node_shows_when_it_joined(self) -> None:
        state = self.state_after(Workload(nodes=(self.node(NOW + 100 * SECOND),)))
        assert state.replicas.provision_times[TYPE] == ProvisionTimes().with_times([100 * SECOND])

    def test_a_node_that_is_older_than_its_machine_teaches_no_time(self) -> None:
        state = self.state_after(Workload(nodes=(self.node(NOW - timedelta(days=1)),)))
        assert not state.replicas.provision_times

    def node(self, created_at: datetime) -> Node:
        return node("n", created_at=created_at, group=self.KEY, machine=self.LAUNCHED)


class TestTexts:
    @pytest.mark.parametrize(
        ("times", "fields", "text"),
        [
            (
                KNOWN,
                {},
                "an order of m5.large is silent after 5 min 06 s, and a lone machine after 7 min 39 s: learned",
            ),
            (None, {}, "an order of m5.large is silent after 15 min, by default or by the record"),
            (
                KNOWN,
                {"provision_timeout": 6 * MINUTE},
                "after 6 min, and a lone machine after 7 min 39 s, as the groups",
            ),
            (SLOW, {}, "an order of m5.large is silent after 15 min: learned from 60 machines"),
            (KNOWN, {"provision_timeout": 20 * MINUTE}, "is silent after 20 min, as the groups or their owner say"),
            (KNOWN.__class__(letters="a" * 7), {}, "the times of 7 machines are known, and 50 are needed"),
        ],
    )
    def test_the_timeout_that_holds_is_named_with_its_reason(
        self, times: ProvisionTimes | None, fields: dict[str, Any], text: str
    ) -> None:
        (pool,) = Checked(times).check(ordered(1), 1, **fields).pools
        assert any(text in sentence(reason) for reason in timeouts_of(pool))

    def test_a_silent_zone_does_not_change_the_timeout_that_is_named(self) -> None:
        checked, old, young = Checked(None), ordered(2), ordered(1, 5 * MINUTE, "young")
        fenced_after(checked, [*old, *young])
        (pool,) = checked.check([*old, *young], 15.5).pools
        assert "after 15 min: the times of 2 machines" in sentence(timeouts_of(pool)[0])


JOINED = "2026-01-15T12:01:40Z"


class TestFlavours:
    @pytest.mark.parametrize(
        ("flavour", "status"),
        [
            ("cluster-api", {"phase": "Running", "nodeRef": {"name": "n"}, "lastUpdated": JOINED}),
            ("openshift", {"phase": "Running", "nodeRef": {"name": "n"}, "lastUpdated": JOINED}),
            (
                "gardener",
                {
                    "currentStatus": {"phase": "Running"},
                    "lastOperation": {"type": "Create", "state": "Successful", "lastUpdateTime": JOINED},
                },
            ),
        ],
    )
    def test_a_machine_says_when_it_has_joined(self, flavour: str, status: dict[str, Any]) -> None:
        item = {"metadata": {"name": "m", "creationTimestamp": "2026-01-15T12:00:00Z"}, "status": status}
        api = FLAVOURS[flavour].machines
        machine = api.read(item).read(api.mark, NOW)
        assert (machine.has_node, machine.joined_at) == (True, NOW + 100 * SECOND)
        other = {**item, "status": {**status, "lastOperation": {"type": "HealthCheck"}, "phase": "Deleting"}}
        assert api.read(other).read(api.mark, NOW).joined_at is None

    def test_openshift_names_the_machine_type_and_spot(self) -> None:
        item = objects.MAKE["openshift"](ZONES[0], 1)
        provider = item["spec"]["template"]["spec"].setdefault("providerSpec", {}).setdefault("value", {})
        provider["instanceType"] = "m5.large"
        assert read("openshift", item).template.machine_type == "m5.large"
        provider["spotMarketOptions"] = {}
        assert read("openshift", item).template.machine_type == "m5.large spot"

    def test_a_capacity_annotation_names_the_machine_type(self) -> None:
        item = objects.MAKE["cluster-api"](ZONES[0], 1)
        labels = "node.kubernetes.io/instance-type=m5.large,karpenter.sh/capacity-type=on-demand"
        notes = item["metadata"].setdefault("annotations", {})
        notes["capacity.cluster-autoscaler.kubernetes.io/labels"] = labels
        assert read("cluster-api", item).template.machine_type == "m5.large on-demand"


def read(flavour: str, item: dict[str, Any]) -> NodeGroup:
    ((found,), _) = read_groups(Listing(flavour=FLAVOURS[flavour], objects={item["kind"]: [item]}))
    return found.group
