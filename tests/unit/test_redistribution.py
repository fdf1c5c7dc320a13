"""What happens to replicas: released, taken back, raised."""

from datetime import timedelta

import pytest

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, MachineFailure, State
from evenkeel.domain.rebalancing.bounds.gep24 import BACKWARD_COMPATIBLE
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from tests.builders import (
    NOW,
    Played,
    after_backoff,
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


def minutes(*ages: int) -> tuple[timedelta, ...]:
    return tuple(timedelta(minutes=age) for age in ages)


# -- release


def test_a_fenced_zone_gives_up_replicas_that_have_no_machine_running() -> None:
    found = pool_plan(zones((5, 3, 3), running=(2, 3, 3)), numbers(0, 12), fenced=("a",))
    assert requested(found) == (2, 3, 3)
    assert maxima(found)[0] == 2
    assert sum(maxima(found)) == 12
    assert "released 3 stuck replicas" in reasons(found, "a")


def test_replicas_that_wait_in_a_healthy_zone_are_left_to_arrive() -> None:
    found = pool_plan(zones((5, 3, 3), running=(2, 3, 3)), numbers(0, 12))
    assert requested(found) == (5, 3, 3)


def test_hold_fences_and_leaves_replicas_alone() -> None:
    found = pool_plan(zones((5, 3, 3), running=(2, 3, 3)), numbers(0, 12, on_failure=OnFailure.HOLD), fenced=("a",))
    assert requested(found) == (5, 3, 3)
    assert maxima(found)[0] == 5
    assert "on-failure is hold" in reasons(found, "a")


def test_the_node_that_an_owner_insists_on_offering_is_not_released_to_be_ordered_again_in_the_next_loop() -> None:
    beside = pool_plan(zones((3, 3, 3), running=(0, 3, 3), least_max=1), numbers(0, 12), fenced=("a",))
    assert (requested(beside), maxima(beside)[0], beside.report.starved) == ((1, 3, 3), 1, 1)
    assert "cluster-autoscaler would order them again" in reasons(beside, "a")
    again = pool_plan(zones((1, 4, 4), running=(0, 4, 4), least_max=1), numbers(0, 12), fenced=("a",))
    assert requested(again) == (1, 4, 4)
    running = pool_plan(zones((3, 3, 3), running=(1, 3, 3), least_max=1), numbers(0, 12), fenced=("a",))
    assert requested(running) == (1, 3, 3)
    alone = pool_plan(
        zones((3, 3, 3), running=(0, 3, 3), least_max=1), replace(numbers(0, 12), autoscaler=False), fenced=("a",)
    )
    assert requested(alone) == (0, 3, 3)


@pytest.mark.parametrize("kind", [FailureClass.CAPACITY, FailureClass.TIMEOUT, FailureClass.UNKNOWN])
def test_failures_of_a_zone_release_what_is_stuck_there(kind) -> None:
    found = pool_plan(zones((5, 3), running=(2, 3)), numbers(0, 12), states={key("a"): in_backoff(kind)})
    assert requested(found) == (2, 3)


@pytest.mark.parametrize("kind", [FailureClass.QUOTA, FailureClass.CONFIGURATION])
def test_failures_of_a_region_or_of_the_group_itself_move_nothing(kind) -> None:
    found = pool_plan(zones((5, 3), running=(2, 3)), numbers(0, 12), states={key("a"): in_backoff(kind)})
    assert requested(found) == (5, 3)


def test_an_impaired_zone_releases_whatever_failure_is_known_of_its_group() -> None:
    found = pool_plan(
        zones((5, 3), running=(2, 3)),
        numbers(0, 12),
        states={key("a"): in_backoff(FailureClass.QUOTA)},
        impaired=("a",),
    )
    assert requested(found) == (2, 3)
    assert "(zone a is impaired)" in reasons(found, "a")
    assert requested(pool_plan(zones((5, 3), running=(2, 3)), numbers(0, 12), impaired=("a",))) == (2, 3)


def test_nobody_healthy_to_take_them_keeps_stuck_replicas_and_reports_starvation() -> None:
    found = pool_plan(zones((5, 3), running=(2, 2)), numbers(0, 12), fenced=("a", "b"))
    assert requested(found) == (5, 3)
    assert found.report.starved == 4
    assert "keeps 3 stuck replicas: no healthy zone can take over" in reasons(found, "a")
    assert "starved: no healthy zone can take 4 nodes" in problems_of(found.report.problems)


def test_healthy_zones_at_their_own_cap_take_nothing() -> None:
    found = pool_plan(zones((5, 3), running=(2, 3), zone_max=3), numbers(0, 12), fenced=("a",))
    assert requested(found) == (5, 3)
    assert found.report.starved == 3


def test_the_worker_keeps_its_minimum_in_the_failing_zone() -> None:
    a, b = zones((5, 3), running=(2, 3))
    found = pool_plan([replace(a, worker_range=Bounds(3, 9)), b], numbers(0, 12), fenced=("a",))
    assert requested(found) == (3, 3)
    assert "the Worker requires 3 in this zone" in reasons(found, "a")


def test_one_refused_launch_does_not_discard_the_machines_that_boot_beside_it() -> None:
    a, b = zones((6, 3), running=(2, 3))
    booting, (failed,) = machines(a, *minutes(1, 1, 1)), refused(replace(a, running=0), *minutes(2)).machines or ()
    a = replace(a, machines=(*(booting.machines or ()), replace(failed, name="failed")))
    found = pool_plan([a, b], numbers(0, 12), fenced=("a",))
    assert requested(found) == (5, 3)
    assert maxima(found)[0] == 5
    assert "released 1 stuck replica; keeps 2 running and 3 on the way" in reasons(found, "a")


def test_a_machine_that_is_older_than_the_provision_timeout_is_not_on_its_way() -> None:
    a, b = zones((5, 3), running=(2, 3))
    found = pool_plan([machines(a, *minutes(14, 15, 16)), b], numbers(0, 12), fenced=("a",))
    assert requested(found) == (3, 3)
    patient = replace(machines(a, *minutes(14, 15, 16)), provision_timeout=timedelta(minutes=30))
    assert requested(pool_plan([patient, b], numbers(0, 12), fenced=("a",))) == (5, 3)


def test_a_preserved_machine_is_told_and_neither_fences_its_zone_nor_keeps_it_from_being_tried() -> None:
    a, b = zones((3, 3), running=(2, 3), preserved_failed=0)
    a = replace(a, preserved_failed=1)
    probing = pool_plan([a, b], numbers(0, 12), probing=("a",))
    assert (requested(probing), maxima(probing)[0]) == ((3, 3), 4)
    played = Played([a, b], numbers(0, 12))
    for _ in range(40):
        found = played.look(60)
        assert [planned.state for planned in found.groups] == [State.HEALTHY, State.HEALTHY]
    assert "keeps 1 replica of machines that Gardener preserves" in reasons(found, "a")
    assert "preserves" not in reasons(found, "b")


def test_a_machine_that_gardener_preserves_is_not_stuck() -> None:
    a, b = zones((4, 3), running=(2, 3))
    kept, failed = refused(a, *minutes(20, 20)).machines[-2:]  # type: ignore[index]
    ran = machines(a).machines or ()
    a = replace(a, machines=(*ran, replace(kept, preserved=True), failed))
    assert requested(pool_plan([a, b], numbers(0, 12), fenced=("a",))) == (3, 3)


def test_a_machine_that_tells_a_quota_itself_is_missing_also_while_its_zone_is_tried() -> None:
    a, b = zones((3, 3), running=(2, 3))
    (machine,) = refused(replace(a, running=0), *minutes(7)).machines or ()
    quota = MachineFailure(code="VcpuLimitExceeded", message="", at=NOW - timedelta(minutes=6))
    a = replace(a, machines=(replace(machine, failure=quota),))
    tried = {key("a"): after_backoff(FailureClass.QUOTA)}
    assert pool_plan([a, b], numbers(0, 12), states=tried).report.starved == 1


# -- overshoot


def test_above_the_pool_maximum_replicas_without_a_machine_go() -> None:
    found = pool_plan(zones((6, 4, 4), running=(4, 4, 4)), numbers(0, 12))
    assert requested(found) == (4, 4, 4)
    assert "took back 2 replicas without a machine" in reasons(found, "a")
    assert not found.report.overcommitted


def test_running_nodes_above_the_pool_maximum_are_left_to_scale_down() -> None:
    found = pool_plan(zones((6, 4, 4)), numbers(0, 12))
    assert requested(found) == (6, 4, 4)
    assert found.report.overcommitted


def test_only_the_surplus_is_taken_back() -> None:
    found = pool_plan(zones((6, 6, 4), running=(4, 4, 4)), numbers(0, 14))
    assert sum(requested(found)) == 14


def test_the_newest_machines_go_first() -> None:
    a, b = zones((6, 6), running=(4, 4))
    found = pool_plan([machines(a, *minutes(9, 1)), machines(b, *minutes(8, 2))], numbers(0, 10))
    assert requested(found) == (5, 5)
    found = pool_plan([machines(a, *minutes(3, 4)), machines(b, *minutes(1, 2))], numbers(0, 10))
    assert requested(found) == (6, 4)


def test_a_replica_without_even_a_machine_object_is_the_newest_of_all() -> None:
    a, b = zones((6, 6), running=(4, 4))
    found = pool_plan([machines(a, *minutes(1, 1)), machines(b)], numbers(0, 10))
    assert requested(found) == (6, 4)


def test_an_overshoot_is_not_taken_back_below_what_the_owner_lets_stand() -> None:
    a, b = zones((6, 4), running=(2, 4))
    found = pool_plan([replace(a, worker_range=Bounds(5, 9)), b], numbers(0, 8))
    assert requested(found) == (5, 4)


def test_a_machine_that_is_going_already_is_not_counted_as_one_to_take() -> None:
    a, b = zones((5, 5), running=(4, 4))
    going = machines(a, *minutes(1, 9))
    assert going.machines is not None
    going = replace(
        going, machines=(*going.machines[:-2], replace(going.machines[-2], deleting=True), going.machines[-1])
    )
    found = pool_plan([going, machines(b, *minutes(5))], numbers(0, 9))
    assert requested(found) == (5, 4)


def test_a_machine_that_gardener_preserves_holds_its_replica_also_above_the_pool_maximum() -> None:
    a, b = zones((5, 5), running=(4, 4))
    preserved = machines(a, *minutes(1)).machines or ()
    a = replace(a, machines=(*preserved[:-1], replace(preserved[-1], preserved=True)))
    assert requested(pool_plan([a, machines(b, *minutes(9))], numbers(0, 9))) == (5, 4)
    assert requested(pool_plan([a, b], numbers(0, 8))) == (5, 4)


def test_above_the_pool_maximum_what_waits_in_a_fenced_zone_is_taken_back_as_well() -> None:
    a, b = zones((6, 4), running=(4, 4))
    found = pool_plan([machines(a, *minutes(1, 2)), b], numbers(0, 9), fenced=("a",))
    assert requested(found) == (5, 4)
    assert "took back 1" in reasons(found, "a")


@pytest.mark.parametrize("why", ["quota", "hold"])
def test_above_the_pool_maximum_what_is_held_stays(why: str) -> None:
    kind = FailureClass.QUOTA if why == "quota" else FailureClass.CAPACITY
    treatment = OnFailure.HOLD if why == "hold" else OnFailure.RELEASE
    found = pool_plan(
        zones((6, 4), running=(4, 4)), numbers(0, 9, on_failure=treatment), states={key("a"): in_backoff(kind)}
    )
    assert requested(found) == (6, 4)
    assert found.report.overcommitted


def test_what_was_released_is_not_said_to_be_taken_back() -> None:
    found = pool_plan(zones((6, 6), running=(1, 5)), numbers(0, 5), fenced=("a",))
    assert requested(found) == (1, 5)
    assert "released 5" in reasons(found, "a")
    assert "took back" not in reasons(found, "a")
    assert "took back 1" in reasons(found, "b")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_overshoot_is_taken_back_under_every_strategy(strategy) -> None:
    found = pool_plan(zones((4, 4, 4), running=(1, 1, 1)), numbers(0, 4, strategy))
    assert sum(requested(found)) == 4


# -- minimum


def test_below_the_pool_minimum_healthy_zones_are_raised_levelled() -> None:
    found = pool_plan(zones((3, 0, 0)), numbers(6, 12))
    assert sorted(requested(found)) == [1, 2, 3]
    assert requested(found)[0] == 3
    assert "the pool requests less than PoolMinimum 6" in reasons(found, "b")
    assert "raised by" not in reasons(found, "a")


class TestBesideAnAutoscaler:
    """What pods need, it has ordered again itself by the time that we raise."""

    @staticmethod
    def pool() -> Played:
        """All of PoolMinimum runs; then zone a loses two machines and is fenced."""
        pool = Played(zones((2, 2, 2)), numbers(6, 12))
        pool.look()
        pool.groups[0] = replace(pool.groups[0], running=0)
        pool.state = replace(pool.state, groups={key("a"): in_backoff()})
        assert requested(pool.look(60)) == (0, 2, 2)
        assert pool.next_check() == 15
        return pool

    def test_what_it_orders_for_the_pods_is_not_ordered_twice(self) -> None:
        pool = self.pool()
        pool.look(5, b=3, c=3)
        for _ in range(5):
            assert requested(pool.look(15)) == (0, 3, 3)

    def test_what_it_does_not_order_is_raised_once_requested_has_stood_still(self) -> None:
        pool = self.pool()
        assert requested(pool.look(14)) == (0, 2, 2)
        assert requested(pool.look(1)) == (0, 3, 3)

    def test_standing_still_begins_anew_with_each_change(self) -> None:
        pool = self.pool()
        pool.look(10, b=3)
        assert requested(pool.look(14)) == (0, 3, 2)
        assert requested(pool.look(1)) == (0, 3, 3)

    def test_without_one_it_is_raised_at_once(self) -> None:
        pool = Played(zones((2, 2, 2)), replace(numbers(6, 12), autoscaler=False))
        pool.look()
        pool.groups[0] = replace(pool.groups[0], running=0)
        pool.state = replace(pool.state, groups={key("a"): in_backoff()})
        assert requested(pool.look(60)) == (0, 3, 3)


def test_the_minimum_is_raised_where_replicas_may_stand() -> None:
    a, b, c = zones((0, 0, 0))
    found = pool_plan([replace(a, zone_max=1), replace(b, worker_range=Bounds(0, 2)), c], numbers(9, 12))
    assert requested(found) == (1, 2, 6)


def test_where_no_zone_is_healthy_the_minimum_is_what_probing_zones_are_tried_with_one_machine_each() -> None:
    found = pool_plan(zones((1, 1, 0)), numbers(5, 12), probing=("a", "b", "c"))
    assert requested(found) == (2, 2, 1)
    assert found.report.starved == 0
    again = pool_plan(zones((2, 2, 1), running=(1, 1, 0)), numbers(9, 12), probing=("a", "b", "c"))
    assert requested(again) == (2, 2, 1)
    assert again.report.starved == 4
    beside = pool_plan(zones((1, 1, 0)), numbers(5, 12), probing=("a",))
    assert requested(beside)[0] == 1


def test_a_minimum_that_finds_no_room_is_starved() -> None:
    found = pool_plan(zones((0, 0), zone_max=1), numbers(5, 12))
    assert requested(found) == (1, 1)
    assert found.report.starved == 3


def test_what_a_fenced_zone_gives_up_below_the_minimum_is_raised_elsewhere() -> None:
    found = pool_plan(zones((4, 4, 4), running=(0, 4, 4)), numbers(12, 12), fenced=("a",))
    assert requested(found) == (0, 6, 6)
    assert maxima(found) == (0, 6, 6)


def test_a_zone_below_its_own_minimum_is_raised_while_the_pool_may_grow() -> None:
    found = pool_plan(zones((3, 0, 0)), numbers(3, 4, BACKWARD_COMPATIBLE))
    assert sum(requested(found)) == 4
    assert requested(found)[0] == 3
    assert "raised by 1 to its own min 1" in reasons(found, "b") + reasons(found, "c")
