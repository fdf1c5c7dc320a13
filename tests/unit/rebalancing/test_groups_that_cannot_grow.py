"""Groups that Evenkeel may not write, or that cannot grow: the room that each reserves, and a thaw's added nodes."""

from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.rebalancing.bounds.gep24 import ADAPTIVE, LAX_GREEDY
from tests.builders import (
    MINUTE,
    NOW,
    Played,
    group,
    in_backoff,
    key,
    machines,
    maxima,
    minima,
    numbers,
    pool_plan,
    reasons,
    refused,
    requested,
    stated,
)
from tests.parts import replace

PAUSED = Reason.of(Rule.OBJECT_PAUSED)
ROLLING = Reason.of(Rule.ROLLING_SETS, sets=2)
STOPS = [
    PAUSED,
    Reason.of(Rule.OBJECT_BEING_DELETED),
    Reason.of(Rule.CLUSTER_BEING_DELETED, cluster="demo"),
    Reason.of(Rule.CLUSTER_PAUSED, cluster="demo"),
    Reason.of(Rule.OWNER_PAUSED, owner="NodePool demo", until="true"),
    Reason.of(Rule.HIBERNATED),
]
GROWING = [ROLLING, Reason.of(Rule.ROLLOUTS_PAUSED), Reason.of(Rule.PROCESS_SUSPENDED, process="Terminate")]
SUSPENDED = {"launches_stopped": stated("Launch suspended")}


def pool(requested: int = 4, running: int = 4, maximum: int = 10, **fields: Any) -> list[NodeGroup]:
    """Return group a as given, and two groups of three nodes."""
    first = group("a", requested, running=running, bounds=(1, maximum), **fields)
    return [first, group("b", 3, bounds=(1, 6)), group("c", 3, bounds=(1, 6))]


def played(policy: Policy | None = None, **fields: Any) -> Played:
    return Played(pool(**fields), policy or numbers(6, 18))


def notes(found: Any) -> list[dict[str, Any]]:
    return [dict(note.facts) for note in found.report.notes if note.rule is Rule.THAW_ADDS]


class TestReserves:
    @pytest.mark.parametrize("why", STOPS, ids=lambda why: why.rule)
    def test_a_group_that_may_not_grow_reserves_what_it_has(self, why: Reason) -> None:
        found = pool_plan(pool(requested=6, frozen_because=why), numbers(6, 18))
        assert maxima(found) == (10, 7, 7)
        assert found.headroom == 18 - 4 - 2 * 3

    @pytest.mark.parametrize("why", GROWING, ids=lambda why: why.rule)
    def test_any_other_frozen_group_reserves_its_max(self, why: Reason) -> None:
        assert maxima(pool_plan(pool(frozen_because=why), numbers(6, 18))) == (10, 4, 4)

    @pytest.mark.parametrize("why", GROWING, ids=lambda why: why.rule)
    def test_no_frozen_group_grows_without_an_autoscaler(self, why: Reason) -> None:
        policy = replace(numbers(6, 18), autoscaler=False)
        assert maxima(pool_plan(pool(frozen_because=why), policy)) == (10, 7, 7)

    def test_nor_one_whose_launches_are_stopped(self) -> None:
        assert maxima(pool_plan(pool(frozen_because=ROLLING, **SUSPENDED), numbers(6, 18))) == (10, 7, 7)

    def test_machines_on_their_way_count(self) -> None:
        first, *others = pool(requested=8, frozen_because=PAUSED)
        assert sum(maxima(pool_plan([machines(first, MINUTE, MINUTE), *others], numbers(6, 18)))[1:]) == 18 - 6

    def test_a_rollout_creates_each_machine_again_that_it_deletes(self) -> None:
        first, *others = pool(running=2, frozen_because=ROLLING)
        listed = machines(first, MINUTE).machines or ()
        deleting = replace(listed[0], name="old", deleting=True)
        policy = replace(numbers(6, 18), autoscaler=False)
        found = pool_plan([replace(first, machines=(*listed, deleting)), *others], policy)
        assert sum(maxima(found)[1:]) == 18 - 4

    @pytest.mark.parametrize("why", GROWING, ids=lambda why: why.rule)
    def test_without_an_autoscaler_replicas_still_get_their_machines_where_nothing_stops_them(
        self, why: Reason
    ) -> None:
        policy = replace(numbers(6, 18), autoscaler=False)
        first, *others = pool(requested=7, frozen_because=why)
        found = pool_plan([machines(first, MINUTE), *others], policy)  # two of seven have no machine yet
        assert sum(maxima(found)[1:]) == 18 - 7
        first = refused(replace(first, requested=6), MINUTE, MINUTE)
        assert sum(maxima(pool_plan([first, *others], policy))[1:]) == 18 - 4

    def test_pool_minimum_counts_what_the_group_has(self) -> None:
        paused = pool(requested=6, frozen_because=PAUSED)
        assert requested(pool_plan(paused, numbers(14, 18))) == (6, 5, 5)
        assert minima(pool_plan(paused, numbers(12, 18))) == (1, 4, 4)
        deleted = pool(requested=4, running=0, frozen_because=STOPS[1])
        assert minima(pool_plan(deleted, numbers(6, 18))) == (1, 3, 3)

    @pytest.mark.parametrize(("strategy", "expected"), [(LAX_GREEDY, (10, 11, 11)), (ADAPTIVE, (10, 11, 11))])
    def test_the_formulas_of_the_gep_count_the_same(self, strategy: Any, expected: tuple[int, ...]) -> None:
        found = pool_plan(pool(requested=6, frozen_because=PAUSED), numbers(6, 18, strategy=strategy))
        assert maxima(found) == expected

    def test_its_old_max_is_no_offer_beside_owners_that_accept_no_max_of_zero(self) -> None:
        groups = [replace(each, least_max=1) for each in pool(requested=0, running=0, frozen_because=STOPS[1])]
        found = pool_plan(groups, numbers(0, 18))
        assert maxima(found) == (10, 9, 9)
        assert found.report.problems == ()

    def test_nothing_elsewhere_is_taken_back_for_it(self) -> None:
        first, b, c = pool(requested=10, frozen_because=PAUSED)
        booting = [machines(replace(each, requested=7), *[MINUTE] * 4) for each in (b, c)]
        found = pool_plan([first, *booting], numbers(6, 18))
        assert requested(found) == (10, 7, 7)
        assert not found.report.overcommitted


class TestLaunchesStopped:
    def test_fence_the_group_and_release_what_it_lacks(self) -> None:
        found = pool_plan(pool(requested=6, **SUSPENDED), numbers(6, 18))
        assert found.groups[0].state is State.FENCED
        assert reasons(found, "a").startswith("fenced: Launch suspended")
        assert (requested(found), maxima(found)) == ((4, 3, 3), (4, 7, 7))
        assert notes(found) == []

    def test_fence_the_group_also_without_fences(self) -> None:
        found = pool_plan(pool(fencing_enabled=False, **SUSPENDED), numbers(6, 18))
        assert maxima(found) == (4, 7, 7)

    def test_keep_each_instance(self) -> None:
        found = pool_plan(pool(**SUSPENDED), numbers(6, 18))
        assert found.groups[0].drain_blocked_by == stated("Launch suspended")

    def test_end_with_their_cause(self) -> None:
        play = played(requested=6, **SUSPENDED)
        play.check()
        play.groups[0] = replace(play.groups[0], launches_stopped=None)
        found = play.check(60)
        assert found.groups[0].state is State.HEALTHY
        assert sum(maxima(found)) == 18

    def test_do_not_count_as_failures_of_the_zone(self) -> None:
        play = played(requested=6, **SUSPENDED)
        play.policy = numbers(6, 18, on_failure=OnFailure.HOLD)
        for _ in range(60):
            play.check(60)
        play.groups[0] = replace(play.groups[0], launches_stopped=None)
        assert play.check(15).groups[0].state is State.HEALTHY

    def test_are_named_before_a_failure_and_are_not_probed(self) -> None:
        groups = [replace(each, **SUSPENDED) for each in pool()]
        failed = in_backoff(FailureClass.QUOTA)
        failed = replace(failed, arrived_at=NOW)
        found = pool_plan(groups, numbers(6, 18), states={key(zone): failed for zone in "abc"})
        assert {planned.state for planned in found.groups} == {State.FENCED}
        assert reasons(found, "a").startswith("fenced: Launch suspended")


def paused(booted: timedelta = MINUTE) -> Played:
    """Return a pool whose paused group reserves less than its max, while four machines boot in each other group."""
    play = played(requested=6, frozen_because=PAUSED)
    play.check()
    first, *others = play.groups
    play.groups = [first, *(machines(replace(each, requested=7), *[booted] * 4) for each in others)]
    return play


def thaw(play: Played, **fields: Any) -> None:
    play.groups[0] = replace(play.groups[0], **{"frozen_because": None, **fields})


class TestThaws:
    def test_the_plan_says_by_how_much_the_pool_may_pass_its_maximum(self) -> None:
        found = pool_plan(pool(requested=6, frozen_because=PAUSED), numbers(6, 18))
        assert notes(found) == [{"groups": ("workers-a",), "nodes": 6, "maximum": 18}]

    def test_without_an_autoscaler_only_its_own_replicas_can_come(self) -> None:
        policy = replace(numbers(6, 18), autoscaler=False)
        found = pool_plan(pool(requested=6, frozen_because=PAUSED), policy)
        assert notes(found) == []
        full = [replace(each, requested=7, running=7) if each.requested == 3 else each for each in pool(6)]
        full[0] = replace(full[0], running=4, frozen_because=PAUSED)
        assert notes(pool_plan(full, policy))[0]["nodes"] == 2

    @pytest.mark.parametrize("fields", [{"frozen_because": STOPS[1]}, {"frozen_because": PAUSED, "maximum": 4}])
    def test_it_says_nothing_of_a_group_that_adds_nothing(self, fields: dict[str, Any]) -> None:
        assert notes(pool_plan(pool(**fields), numbers(6, 18))) == []

    def test_the_groups_own_replicas_without_a_machine_go_first(self) -> None:
        play = paused(booted=-MINUTE)  # newer than any of a
        thaw(play, requested=10, running=4)
        play.groups[0] = machines(play.groups[0], *[MINUTE] * 6)
        assert requested(play.check(15)) == (4, 7, 7)

    def test_what_runs_there_by_then_costs_no_machine_elsewhere_at_any_check(self) -> None:
        play = paused()
        thaw(play, requested=10, running=8)
        for _ in range(3):
            found = play.check(15)
            assert requested(found) == (8, 7, 7)
            assert found.report.overcommitted
        assert found.next_state.replicas.reserved == {str(key("a")): 4}

    def test_a_lower_maximum_is_not_charged_to_the_thaw(self) -> None:
        play = paused()
        thaw(play, requested=8, running=8)
        play.policy = numbers(6, 16)
        found = play.check(15)
        assert sum(requested(found)) == 20  # two above 18 are the thaw's: only two booting ones are removed

    def test_a_thaw_into_a_rollout_costs_nothing_elsewhere_either(self) -> None:
        play = paused()
        thaw(play, frozen_because=ROLLING)
        assert requested(play.check(15)) == (6, 7, 7)
        play.groups[0] = replace(play.groups[0], requested=10, running=10)
        assert requested(play.check(15)) == (10, 7, 7)

    def test_it_is_forgotten_once_bounds_and_replicas_are_within_the_maximum(self) -> None:
        play = played(requested=6, frozen_because=PAUSED)
        assert play.check().next_state.replicas.reserved == {str(key("a")): 4}
        thaw(play)
        assert play.check(15).next_state.replicas.reserved == {str(key("a")): 4}  # its old max was live until now
        assert play.check(15).next_state.replicas.reserved == {}
