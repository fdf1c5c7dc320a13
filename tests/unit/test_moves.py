"""Moving stuck replicas: what is owed, who takes it, in which order it is written, and when it is over."""

from contextlib import suppress
from typing import Any

import pytest

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.rebalancing.writes import in_safe_order
from tests.builders import (
    MINUTE,
    NOW,
    group,
    in_backoff,
    key,
    machines,
    numbers,
    pool_plan,
    reasons,
    refused,
    requested,
    stated,
    zones,
)
from tests.fakes import plenty
from tests.house import NUMBERS, House
from tests.parts import replace

MOVE = numbers(0, 12, on_failure=OnFailure.MOVE)
ALONE = replace(MOVE, autoscaler=False)


class EndError(BaseException):
    """The end of a process."""


def failing(found: PoolPlan) -> dict[str, int]:
    """What each zone gives or takes, by zone."""
    return {planned.group.identity.zone or "": planned.journal_delta for planned in found.groups}


def moving(nodes: list[int], bounds: list[tuple[int, int]], *, two_objects: bool = False, **fields: Any) -> House:
    """A pool that moves stuck replicas, with two nodes in zone a, which is in backoff, and three in zone b."""
    groups = zones(nodes, [2, 3], bounds, two_objects=two_objects)
    house = House(groups, pools=[{**NUMBERS[0], "min": 0, "on_failure": "move"}], **fields)
    house.store.save_group("demo", key("a"), in_backoff(), None)
    return house


def owing(groups: list[NodeGroup], move: Move, policy: Policy = MOVE, **more: Any) -> PoolPlan:
    """The plan of a pool with an unfinished move."""
    id = pool_plan(groups, policy).id
    return pool_plan(groups, policy, adopted={id: PoolState(move=move)}, **more)


class TestWhoTakesThem:
    def test_the_emptiest_healthy_zones_level_them(self) -> None:
        found = pool_plan(zones([5, 3, 0], [2, 3, 0]), MOVE, fenced="a")
        assert requested(found) == (2, 3, 3)
        assert failing(found) == {"a": -3, "b": 0, "c": 3}

    def test_with_every_zone_failing_they_stay_and_the_pool_starves(self) -> None:
        found = pool_plan(zones([3, 2], [1, 1]), MOVE, fenced="ab")
        assert requested(found) == (3, 2)
        assert found.report.starved == 3
        assert "no healthy zone can take over" in reasons(found, "a")

    def test_the_operators_cap_on_a_zone_is_kept_and_what_does_not_fit_stays(self) -> None:
        found = pool_plan([group("a", 5, running=2), group("b", 3, zone_max=4)], MOVE, fenced="a")
        assert requested(found) == (4, 4)
        assert found.report.starved == 2

    def test_room_that_a_frozen_zone_keeps_loses_none_of_it(self) -> None:
        groups = [
            group("a", 5, running=2),
            group("b", 3),
            group("c", 1, bounds=(0, 9), frozen_because=stated("rolling")),
        ]
        assert requested(pool_plan(groups, MOVE, fenced="a")) == (2, 6, 1)


class TestBesideAnAutoscaler:
    def test_without_one_the_room_is_left_open(self) -> None:
        found = pool_plan(zones([5, 3, 0], [2, 3, 0], [(0, 12)] * 3), ALONE, fenced="a")
        assert [planned.bounds.max > 3 for planned in found.groups if planned.bounds and planned.journal_delta > 0] == [
            True
        ]

    @pytest.mark.parametrize(
        ("ago", "running", "is_cut"), [(0, 3, True), (14.9, 3, True), (15, 3, False), (40, 3, False), (0, 4, False)]
    )
    def test_what_we_ordered_counts_as_coming_for_as_long_as_a_machine_may_take_and_no_longer(
        self, ago: float, running: int, is_cut: bool
    ) -> None:
        ours = ulid(NOW - ago * MINUTE, b"\x00" * 10)
        found = pool_plan([group("a", 2), group("b", 4, running=running, move=ours)], MOVE)
        bounds = found.groups[1].bounds
        assert (bounds.max == 4) is is_cut


class TestTheOrderOfWrites:
    def test_who_gives_comes_before_who_takes_even_where_the_taker_loses_more_room(self) -> None:
        # The taker's max goes from 12 to 4, the giver's only from 3 to 2: by room alone the taker would be first.
        found = pool_plan(zones([3, 3], [2, 3], [(0, 3), (0, 12)]), MOVE, fenced="a")
        assert failing(found) == {"a": -1, "b": 1}
        assert [planned.group.identity.zone for planned in in_safe_order(found.changes)] == ["a", "b"]

    @pytest.mark.parametrize("end", [EndError, ClusterUnavailableError], ids=["killed", "no answer"])
    @pytest.mark.parametrize("two_objects", [False, True])
    @pytest.mark.parametrize("done", range(5))
    def test_wherever_a_run_ends_no_replica_is_lost_and_none_doubled(
        self, done: int, two_objects: bool, end: type[BaseException]
    ) -> None:
        house = moving([3, 3], [(0, 9), (0, 3)], two_objects=two_objects)

        def ends(patch: Any) -> None:
            if len(house.cluster.applied) == done:
                raise end("after so many patches")

        house.cluster.before_apply = ends
        with suppress(EndError):
            house.run()
        (pool,) = house.state.pools.values()
        unplaced = pool.move.still_unplaced(house.cluster.groups.values()) if pool.move else 0
        assert sum(member.requested for member in house.cluster.groups.values()) + unplaced == 6
        house.answer_writes(None)
        house.clock.at += MINUTE
        house.run()
        assert {member.identity.zone: member.requested for member in house.cluster.groups.values()} == {"a": 2, "b": 4}
        (pool,) = house.state.pools.values()
        assert pool.move is None


class TestWhatIsOwed:
    def test_nothing_before_the_first_patch(self) -> None:
        move = Move(id="m", steps={str(key("a")): -3, str(key("b")): 3})
        assert move.still_unplaced(zones([5, 3], [2, 3])) == 0

    def test_what_was_given_and_not_taken(self) -> None:
        move = Move(id="m", steps={str(key("a")): -3, str(key("b")): 2, str(key("c")): 1})
        after = [group("a", 2, move="m"), group("b", 5, move="m"), group("c", 0)]
        assert move.still_unplaced(after) == 1

    def test_nothing_when_all_was_taken(self) -> None:
        move = Move(id="m", steps={str(key("a")): -3, str(key("b")): 3})
        assert move.still_unplaced([group("a", 2, move="m"), group("b", 6, move="m")]) == 0

    def test_nothing_when_more_was_taken_than_given_and_never_less_than_nothing(self) -> None:
        move = Move(id="m", steps={str(key("a")): -3, str(key("b")): 3})
        assert move.still_unplaced([group("a", 5), group("b", 6, move="m")]) == 0

    def test_nothing_when_more_was_given_back_than_asked_for(self) -> None:
        move = Move(id="m", unplaced=-2, steps={str(key("a")): -3}, request="r")
        assert move.still_unplaced([group("a", 5)]) == -2
        assert move.still_unplaced([group("a", 2, move="m")]) == 0

    def test_marks_of_another_move_do_not_count(self) -> None:
        move = Move(id="m", steps={str(key("a")): -3, str(key("b")): 3})
        assert move.still_unplaced([group("a", 2, move="m"), group("b", 6, move="older")]) == 3

    def test_what_the_move_before_left_owed_is_carried(self) -> None:
        move = Move(id="m", unplaced=2, steps={str(key("b")): 2})
        assert move.still_unplaced([group("a", 2), group("b", 3)]) == 2
        assert move.still_unplaced([group("a", 2), group("b", 5, move="m")]) == 0

    def test_what_an_autoscaler_adds_meanwhile_changes_nothing(self) -> None:
        move = Move(id="m", steps={str(key("a")): -3, str(key("b")): 3})
        assert move.still_unplaced([group("a", 4, running=2, move="m"), group("b", 9)]) == 3

    def test_the_next_plan_places_it(self) -> None:
        groups = [group("a", 2, move="m"), group("b", 3), group("c", 0)]
        found = owing(groups, Move(id="m", steps={str(key("a")): -3, str(key("b")): 3}), fenced="a")
        assert sum(requested(found)) == 8
        assert requested(found)[0] == 2
        assert found.replicas.unplaced == 0

    def test_it_is_placed_also_where_the_pool_is_on_release_now(self) -> None:
        groups = [group("a", 2, move="m"), group("b", 3)]
        found = owing(groups, Move(id="m", steps={str(key("a")): -3}), numbers(0, 12), fenced="a")
        assert requested(found) == (2, 6)

    def test_what_finds_no_place_stays_owed_and_starves_the_pool(self) -> None:
        groups = [group("a", 2, move="m"), group("b", 3, zone_max=4)]
        found = owing(groups, Move(id="m", steps={str(key("a")): -3}), fenced="a")
        assert requested(found) == (2, 4)
        assert (found.replicas.unplaced, found.report.starved) == (2, 2)

    def test_what_pool_maximum_no_longer_allows_is_no_longer_owed(self) -> None:
        groups = [group("a", 2, move="m"), group("b", 9)]
        found = owing(groups, Move(id="m", steps={str(key("a")): -3}), fenced="a")
        assert requested(found) == (2, 10)
        assert found.replicas.unplaced == 0

    def test_it_comes_before_what_is_stuck_now(self) -> None:
        groups = [group("a", 2, move="m"), group("b", 4, running=1), group("c", 0, zone_max=4)]
        found = owing(groups, Move(id="m", steps={str(key("a")): -3}), fenced="ab")
        assert requested(found) == (2, 3, 4)
        assert (found.replicas.unplaced, found.report.starved) == (0, 2)


class TestWhileItIsUnderWay:
    def test_a_machine_that_boots_beside_a_refused_one_is_not_given_up(self) -> None:
        booting = machines(group("a", 5, running=2), MINUTE).machines or ()
        failed = refused(group("a", 5, running=0), 2 * MINUTE, 2 * MINUTE).machines or ()
        groups = [group("a", 5, running=2, machines=(*booting, *failed)), group("b", 3)]
        assert requested(pool_plan(groups, MOVE, fenced="a")) == (3, 5)

    def test_in_dry_run_nothing_is_written_down(self) -> None:
        house = moving([5, 3], [(0, 5), (0, 9)], dry_run=True)
        plan = house.rebalance("demo", "test", plenty).plan
        assert plan.pools[0].moves == {str(key("a")): -3, str(key("b")): 3}
        assert house.cluster.applied == []
        assert all(pool.move is None for pool in house.state.pools.values())
