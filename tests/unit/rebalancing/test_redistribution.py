"""Replicas are released, lowered and raised."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.drafts import PoolDraft, PoolInput
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, MachineFailure, NodeGroup, State
from evenkeel.domain.model.moves import RequestedNodes
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import BackoffPolicy, Policy
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState, ReplicasState
from evenkeel.domain.rebalancing.bounds.gep24 import BACKWARD_COMPATIBLE
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.domain.rebalancing.replicas.redistribution import redistribute
from evenkeel.domain.rebalancing.replicas.requested_nodes import recall_requested
from tests.builders import (
    MINUTE,
    NOW,
    Played,
    after_backoff,
    drafted,
    in_backoff,
    key,
    machines,
    maxima,
    numbers,
    pool_plan,
    problems_of,
    reasons,
    refused,
    requested,
    zones,
)
from tests.parts import replace

ANY, FENCED = numbers(0, 12), {"fenced": "a"}
HOLD = numbers(0, 12, on_failure=OnFailure.HOLD)
ALONE = replace(ANY, autoscaler=False)
THREE = zones((5, 3, 3), running=(2, 3, 3))
A, B = zones((5, 3), running=(2, 3))
OVER_A, OVER_B = zones((6, 6), running=(4, 4))
WITHIN_A, WITHIN_B = zones((6, 4), running=(4, 4))
NINE_A, NINE_B = zones((5, 5), running=(4, 4))
WATCHED = {"least_max": 1}  # the owner requires a max of at least one
OVER_QUOTA = MachineFailure(code="VcpuLimitExceeded", message="", at=NOW - timedelta(minutes=3))


def minutes(*ages: int) -> tuple[timedelta, ...]:
    return tuple(timedelta(minutes=age) for age in ages)


def failing(kind: FailureClass) -> dict[str, Any]:
    return {"states": {key("a"): in_backoff(kind)}}


def aged(group: NodeGroup, *ages: int) -> NodeGroup:
    """Return the group with machines without a node, of these ages in minutes."""
    return machines(group, *minutes(*ages))


def with_machine(group: NodeGroup, index: int, **fields: Any) -> NodeGroup:
    listed = list(group.machines or ())
    listed[index] = replace(listed[index], **fields)
    return replace(group, machines=tuple(listed))


RELEASED = [
    pytest.param(THREE, ANY, FENCED, (2, 3, 3), "released 3 stuck replicas", id="in a fenced zone"),
    pytest.param(THREE, ANY, {}, (5, 3, 3), "", id="not in a healthy zone"),
    pytest.param(THREE, HOLD, FENCED, (5, 3, 3), "on-failure is hold", id="not with hold"),
    *(
        pytest.param([A, B], ANY, failing(kind), (2, 3), "released 3", id=f"after {kind}")
        for kind in (FailureClass.CAPACITY, FailureClass.TIMEOUT, FailureClass.UNKNOWN)
    ),
    *(
        pytest.param([A, B], ANY, failing(kind), (5, 3), "", id=f"not after {kind}")
        for kind in (FailureClass.QUOTA, FailureClass.CONFIGURATION)
    ),
    pytest.param(
        *([with_machine(refused(A, *minutes(3, 3, 3)), -1, failure=OVER_QUOTA), B], ANY, FENCED, (3, 3)),
        "keeps 1 stuck replica: another zone would fail the same way",
        id="not those of machines over a quota",
    ),
    pytest.param([A, B], ANY, {"impaired": "a"}, (2, 3), "", id="in an impaired zone"),
    pytest.param(
        *([A, B], ANY, {**failing(FailureClass.QUOTA), "impaired": "a"}, (2, 3), ": zone a is impaired"),
        id="in an impaired zone whatever failed",
    ),
    pytest.param(
        *(
            [replace(A, allowed_replicas=Bounds(3, 9)), B],
            ANY,
            FENCED,
            (3, 3),
            "the Worker requires at least 3 replicas in this zone",
        ),
        id="down to the minimum of the Worker",
    ),
    pytest.param([aged(A, 14, 15, 16), B], ANY, FENCED, (3, 3), "", id="after the provision timeout"),
    pytest.param(
        *([replace(aged(A, 14, 15, 16), provision_timeout=timedelta(minutes=30)), B], ANY, FENCED, (5, 3), ""),
        id="not before the group's own provision timeout",
    ),
    pytest.param(
        *(zones((3, 3, 3), running=(0, 3, 3), **WATCHED), ANY, FENCED, (1, 3, 3)),
        "cluster-autoscaler would order the replicas again",
        id="down to the node that the owner insists on",
    ),
    pytest.param(zones((1, 4, 4), (0, 4, 4), **WATCHED), ANY, FENCED, (1, 4, 4), "", id="and not that node"),
    pytest.param(zones((3, 3, 3), (1, 3, 3), **WATCHED), ANY, FENCED, (1, 3, 3), "", id="that node runs"),
    pytest.param(zones((3, 3, 3), (0, 3, 3), **WATCHED), ALONE, FENCED, (0, 3, 3), "", id="all without an autoscaler"),
]

TAKEN_BACK = [
    pytest.param(
        *(zones((6, 4, 4), running=(4, 4, 4)), ANY, {}, (4, 4, 4), "cancelled 2 replicas without a node"),
        id="replicas without a machine",
    ),
    pytest.param(zones((6, 4, 4)), ANY, {}, (6, 4, 4), "", id="not running nodes"),
    pytest.param([aged(OVER_A, 9, 1), aged(OVER_B, 8, 2)], numbers(0, 10), {}, (5, 5), "", id="the newest of both"),
    pytest.param([aged(OVER_A, 3, 4), aged(OVER_B, 1, 2)], numbers(0, 10), {}, (6, 4), "", id="the newest of one"),
    pytest.param([aged(OVER_A, 1, 1), aged(OVER_B)], numbers(0, 10), {}, (6, 4), "", id="no machine is the newest"),
    pytest.param(
        *([replace(WITHIN_A, running=2, allowed_replicas=Bounds(5, 9)), WITHIN_B], numbers(0, 8), {}, (5, 4), ""),
        id="down to the minimum of the Worker",
    ),
    pytest.param(
        *([with_machine(aged(NINE_A, 1, 9), -2, deleting=True), aged(NINE_B, 5)], numbers(0, 9), {}, (5, 4), ""),
        id="not a machine that is being deleted",
    ),
    pytest.param(
        *([with_machine(aged(NINE_A, 1), -1, preserved=True), aged(NINE_B, 9)], numbers(0, 9), {}, (5, 4), ""),
        id="not a preserved machine",
    ),
    pytest.param(
        *([with_machine(aged(NINE_A, 1), -1, preserved=True), NINE_B], numbers(0, 8), {}, (5, 4), ""),
        id="not a preserved machine above the maximum",
    ),
    pytest.param([aged(WITHIN_A, 1, 2), WITHIN_B], numbers(0, 9), FENCED, (5, 4), "cancelled 1", id="in a fenced zone"),
    pytest.param(
        *([WITHIN_A, WITHIN_B], numbers(0, 9), failing(FailureClass.QUOTA), (6, 4), ""), id="not what a quota holds"
    ),
    pytest.param(
        *([WITHIN_A, WITHIN_B], numbers(0, 9, on_failure=OnFailure.HOLD), FENCED, (6, 4), ""), id="not with hold"
    ),
]


@pytest.mark.parametrize(("groups", "policy", "state", "expected", "says"), [*RELEASED, *TAKEN_BACK])
def test_replicas_are_released_or_taken_back(
    groups: Sequence[NodeGroup], policy: Policy, state: Any, expected: tuple[int, ...], says: str
) -> None:
    found = pool_plan(groups, policy, **state)
    assert requested(found) == expected
    assert says in reasons(found, "a")
    assert found.report.overcommitted is (sum(expected) > found.max)
    if found.groups[0].state is State.FENCED:
        assert maxima(found)[0] == max(expected[0], found.groups[0].group.owner.least_max or 0)
        assert sum(maxima(found)) <= max(found.max, sum(expected))


def test_without_a_healthy_zone_stuck_replicas_stay_and_starve() -> None:
    found = pool_plan(zones((5, 3), running=(2, 2)), ANY, fenced=("a", "b"))
    assert (requested(found), found.report.starved) == ((5, 3), 4)
    assert "keeps 3 stuck replicas: no healthy zone has room" in reasons(found, "a")
    assert "starved: no healthy zone has room for 4 nodes" in problems_of(found.report.problems)
    found = pool_plan(zones((5, 3), running=(2, 3), zone_max=3), ANY, fenced=("a",))
    assert (requested(found), found.report.starved) == ((5, 3), 3)


def test_a_refused_launch_does_not_release_the_machines_that_boot() -> None:
    a, b = zones((6, 3), running=(2, 3))
    (failed,) = refused(replace(a, running=0), *minutes(2)).machines or ()
    a = replace(a, machines=(*(aged(a, 1, 1, 1).machines or ()), replace(failed, name="failed")))
    found = pool_plan([a, b], ANY, **FENCED)
    assert (requested(found), maxima(found)[0]) == ((5, 3), 5)
    assert "released 1 stuck replica; keeps 2 running replicas and 3 on the way" in reasons(found, "a")


def test_a_preserved_machine_neither_fences_its_zone_nor_stops_a_trial() -> None:
    a, b = zones((3, 3), running=(2, 3), preserved_failed=0)
    a = replace(a, preserved_failed=1)
    probing = pool_plan([a, b], ANY, probing=("a",))
    assert (requested(probing), maxima(probing)[0]) == ((3, 3), 4)
    played = Played([a, b], ANY)
    for _ in range(40):
        found = played.check(60)
        assert [planned.state for planned in found.groups] == [State.HEALTHY, State.HEALTHY]
    assert "keeps 1 replica of machines that Gardener preserves" in reasons(found, "a")
    assert "preserves" not in reasons(found, "b")


def test_a_preserved_machine_is_not_stuck() -> None:
    a, b = zones((4, 3), running=(2, 3))
    a = with_machine(refused(a, *minutes(20, 20)), -2, preserved=True)
    assert requested(pool_plan([a, b], ANY, **FENCED)) == (3, 3)


def test_a_machine_with_a_quota_failure_is_missing_while_its_zone_is_probed() -> None:
    a, b = zones((3, 3), running=(2, 3))
    quota = MachineFailure(code="VcpuLimitExceeded", message="", at=NOW - timedelta(minutes=6))
    a = replace(with_machine(refused(replace(a, running=0), *minutes(7)), -1, failure=quota), running=2)
    assert pool_plan([a, b], ANY, states={key("a"): after_backoff(FailureClass.QUOTA)}).report.starved == 1


def test_released_replicas_are_not_reported_as_taken_back() -> None:
    found = pool_plan(zones((6, 6), running=(1, 5)), numbers(0, 5), fenced=("a",))
    assert requested(found) == (1, 5)
    assert "released 5" in reasons(found, "a")
    assert "cancelled" not in reasons(found, "a")
    assert "cancelled 1" in reasons(found, "b")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_only_the_surplus_is_taken_back_under_every_strategy(strategy: Any) -> None:
    assert sum(requested(pool_plan(zones((4, 4, 4), running=(1, 1, 1)), numbers(0, 4, strategy)))) == 4
    assert sum(requested(pool_plan(zones((6, 6, 4), running=(4, 4, 4)), numbers(0, 14, strategy)))) == 14


# -- minimum


def limited(*limits: dict[str, Any]) -> list[NodeGroup]:
    return [replace(group, **fields) for group, fields in zip(zones((0, 0, 0)), limits, strict=True)]


@pytest.mark.parametrize(
    ("groups", "policy", "state", "expected", "starved"),
    [
        (limited({"zone_max": 1}, {"allowed_replicas": Bounds(0, 2)}, {}), numbers(9, 12), {}, (1, 2, 6), 0),
        (zones((0, 0), zone_max=1), numbers(5, 12), {}, (1, 1), 3),
        (zones((4, 4, 4), running=(0, 4, 4)), numbers(12, 12), FENCED, (0, 6, 6), 0),
        (zones((1, 1, 0)), numbers(5, 12), {"probing": "abc"}, (2, 2, 1), 0),
        (zones((2, 2, 1), running=(1, 1, 0)), numbers(9, 12), {"probing": "abc"}, (2, 2, 1), 4),
        (zones((1, 1, 0)), numbers(5, 12), {"probing": "a"}, (1, 2, 2), 0),
    ],
    ids=[
        "within limits",
        "no room",
        "for a fenced zone",
        "one trial each",
        "one trial at a time",
        "healthy zones first",
    ],
)
def test_the_minimum_is_raised_where_replicas_are_allowed(
    groups: Sequence[NodeGroup], policy: Policy, state: Any, expected: tuple[int, ...], starved: int
) -> None:
    found = pool_plan(groups, policy, **state)
    assert (requested(found), found.report.starved) == (expected, starved)


def test_below_the_pool_minimum_healthy_zones_are_raised_levelled() -> None:
    found = pool_plan(zones((3, 0, 0)), numbers(6, 12))
    assert sorted(requested(found)) == [1, 2, 3]
    assert requested(found)[0] == 3
    assert "the pool requests less than PoolMinimum 6" in reasons(found, "b")
    assert "raised by" not in reasons(found, "a")


def test_a_zone_below_its_own_minimum_is_raised_while_the_pool_may_grow() -> None:
    found = pool_plan(zones((3, 0, 0)), numbers(3, 4, BACKWARD_COMPATIBLE))
    assert sum(requested(found)) == 4
    assert requested(found)[0] == 3
    assert "raised by 1 to the group's own min 1" in reasons(found, "b") + reasons(found, "c")


class TestBesideAnAutoscaler:
    """When Evenkeel raises replicas, the autoscaler has already ordered the pods' nodes again."""

    @staticmethod
    def pool(policy: Policy = numbers(6, 12)) -> Played:  # noqa: B008
        """Return a pool with PoolMinimum running, whose zone a then loses two machines and is fenced."""
        pool = Played(zones((2, 2, 2)), policy)
        pool.check()
        pool.groups[0] = replace(pool.groups[0], running=0)
        pool.state = replace(pool.state, groups={key("a"): in_backoff()})
        return pool

    @staticmethod
    def waiting() -> Played:
        pool = TestBesideAnAutoscaler.pool()
        assert requested(pool.check(60)) == (0, 2, 2)
        assert pool.next_check() == 15
        return pool

    def test_what_it_orders_for_the_pods_is_not_ordered_twice(self) -> None:
        pool = self.waiting()
        pool.check(5, b=3, c=3)
        for _ in range(5):
            assert requested(pool.check(15)) == (0, 3, 3)

    def test_what_it_does_not_order_is_raised_once_requested_is_steady(self) -> None:
        pool = self.waiting()
        assert requested(pool.check(14)) == (0, 2, 2)
        assert requested(pool.check(1)) == (0, 3, 3)

    def test_each_change_restarts_the_wait(self) -> None:
        pool = self.waiting()
        pool.check(10, b=3)
        assert requested(pool.check(14)) == (0, 3, 2)
        assert requested(pool.check(1)) == (0, 3, 3)

    def test_without_one_the_minimum_is_raised_at_once(self) -> None:
        assert requested(self.pool(replace(numbers(6, 12), autoscaler=False)).check(60)) == (0, 3, 3)


class TestWhereEvenkeelOrdersForPods:
    """Without an autoscaler, on_failure is move."""

    @staticmethod
    def draft(*, pods_read: bool = True, **request: Any) -> PoolDraft:
        state = ClusterState(groups={THREE[0].key: in_backoff()})
        policy = replace(numbers(0, 20, on_failure=OnFailure.MOVE), autoscaler=False)
        pool = drafted(THREE, policy, state)
        pool.given = PoolInput(orders_for_pods=pods_read)
        if request:
            pool.pool = replace(
                pool.pool, state=PoolState(replicas=ReplicasState(requested_nodes=(RequestedNodes(**request),)))
            )
            recall_requested(pool)
        redistribute(pool)
        return pool

    @staticmethod
    def numbers(pool: PoolDraft) -> tuple[list[int], list[int], list[int]]:
        groups = pool.groups
        return (
            [one.requested for one in groups],
            [one.journal_delta for one in groups],
            [one.health.stuck_kept for one in groups],
        )

    def test_a_refused_replica_is_released_where_pods_are_read(self) -> None:
        assert self.numbers(self.draft()) == ([2, 3, 3], [0, 0, 0], [0, 0, 0])

    def test_a_refused_replica_moves_where_pods_are_not_read(self) -> None:
        requested, moved, _ = self.numbers(self.draft(pods_read=False))
        assert (requested[0], sum(requested), moved[0], sum(moved)) == (2, 11, -3, 0)

    @pytest.mark.parametrize("pods_read", [True, False])
    def test_refused_nodes_of_a_request_move_to_the_zones_that_it_allows(self, *, pods_read: bool) -> None:
        nodes = {str(THREE[0].key): 2}
        pool = self.draft(pods_read=pods_read, at=NOW - 59 * MINUTE, only=(THREE[1].key.name,), nodes=nodes)
        requested, moved, _ = self.numbers(pool)
        assert requested[0] == 2
        assert (requested[1] >= 5, sum(requested)) == (True, 10 if pods_read else 11)
        assert sum(moved) == 0
        assert pool.request.requested_nodes[0].nodes == {str(THREE[1].key): 2}

    def test_refused_nodes_of_a_request_stay_if_no_zone_can_take_them(self) -> None:
        pool = self.draft(at=NOW, only=(THREE[0].key.name,), nodes={str(THREE[0].key): 2})
        assert self.numbers(pool) == ([4, 3, 3], [0, 0, 0], [2, 0, 0])

    def test_a_request_takes_its_refused_nodes_back_for_an_hour(self) -> None:
        pool = self.draft(at=NOW - 61 * MINUTE, nodes={str(THREE[0].key): 2})
        assert self.numbers(pool) == ([2, 3, 3], [0, 0, 0], [0, 0, 0])

    def test_nodes_of_a_request_that_run_are_of_the_request_no_more(self) -> None:
        pool = self.draft(at=NOW, nodes={str(THREE[0].key): 9, str(THREE[1].key): 1})
        assert sum(pool.request.requested_nodes[0].nodes.values()) == 3


class TestAGroupWhoseNodeCameAfterItsFailure:
    """It is probing, and gets one node at a time."""

    @staticmethod
    def planned(on_failure: OnFailure, *, proven: bool = True, running: int = 3) -> PoolPlan:
        failed = NOW - MINUTE
        state = replace(in_backoff(), ended=(NOW,) if proven else (), reports=(failed,))
        states = {key("a"): in_backoff(), key("b"): state, key("c"): in_backoff()}
        groups = zones((5, 3, 3), running=(2, running, 3))
        return pool_plan(groups, numbers(0, 12, on_failure=on_failure), states=states)

    def test_it_takes_one_stuck_replica(self) -> None:
        assert requested(self.planned(OnFailure.MOVE)) == (4, 4, 3)

    def test_an_autoscaler_may_order_one_released_replica_there(self) -> None:
        pool = self.planned(OnFailure.RELEASE)
        assert requested(pool) == (4, 3, 3)
        assert maxima(pool)[1] == 4

    @pytest.mark.parametrize("fields", [{"proven": False}, {"running": 2}])
    def test_without_such_a_node_or_with_a_machine_on_its_way_it_takes_none(self, fields: dict[str, Any]) -> None:
        assert requested(self.planned(OnFailure.MOVE, **fields)) == (5, 3, 3)


class TestMachinesThatFailedForGood:
    """No controller retries them, so the group releases them after the backoff, and a probe can be ordered."""

    @staticmethod
    def requested(*, pods_read: bool = True, minutes: int = 6, final: bool = True, **settings: Any) -> tuple[int, int]:
        """Return replicas and room of a group with 3 nodes of 5, so many minutes after the failure."""
        age = timedelta(minutes=minutes)
        group = refused(zones((5,), running=(3,))[0], age, age)
        found = [replace(one, failed_for_good=final and not one.has_node) for one in group.machines or ()]
        failed = record_failure(GroupState(), NOW - age, FailureClass.CAPACITY, "", BackoffPolicy())
        policy = replace(numbers(0, 20, **{"on_failure": OnFailure.MOVE, **settings}), autoscaler=False)
        state = ClusterState(groups={group.key: failed})
        pool = drafted((replace(group, machines=tuple(found)),), policy, state)
        pool.given = PoolInput(orders_for_pods=pods_read)
        redistribute(pool)
        return pool.groups[0].requested, pool.groups[0].room_for_pods

    def test_they_are_released_after_the_backoff_and_not_ordered_again_in_the_same_plan(self) -> None:
        assert self.requested() == (3, 0)

    @pytest.mark.parametrize(
        "fields", [{"pods_read": False}, {"minutes": 4}, {"final": False}, {"on_failure": OnFailure.HOLD}]
    )
    def test_they_stay_within_it_unread_retried_or_on_hold(self, fields: dict[str, Any]) -> None:
        assert self.requested(**fields) == (5, 0)
