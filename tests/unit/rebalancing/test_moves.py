"""Moving stuck replicas: the zones that take them, unplaced ones, and the order of writes."""

from typing import Any

import pytest

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
    refused,
    requested,
    stated,
    zones,
)
from tests.fakes import plenty
from tests.parts import replace
from tests.stack import NUMBERS, Stack

MOVE = numbers(0, 12, on_failure=OnFailure.MOVE)
ALONE = replace(MOVE, autoscaler=False)


def moving(nodes: list[int], bounds: list[tuple[int, int]], *, two_objects: bool = False, **fields: Any) -> Stack:
    """Return a pool that moves stuck replicas, with two nodes in zone a, which is in backoff, and three in zone b."""
    groups = zones(nodes, [2, 3], bounds, two_objects=two_objects)
    stack = Stack(groups, pools=[{**NUMBERS[0], "min": 0, "on_failure": "move"}], **fields)
    stack.store.save_group("demo", key("a"), in_backoff(), None)
    return stack


def owing(groups: list[NodeGroup], move: Move, policy: Policy = MOVE, **more: Any) -> PoolPlan:
    """Return the plan of a pool with an unfinished move."""
    id = pool_plan(groups, policy).id
    return pool_plan(groups, policy, adopted={id: PoolState(move=move)}, **more)


class TestTakers:
    @pytest.mark.parametrize(
        ("groups", "fenced", "expected", "starved"),
        [
            (zones([5, 3, 0], [2, 3, 0]), "a", (2, 3, 3), 0),
            (zones([3, 2], [1, 1]), "ab", (3, 2), 3),
            ([group("a", 5, running=2), group("b", 3, zone_max=4)], "a", (4, 4), 2),
            (
                [
                    group("a", 5, running=2),
                    group("b", 3),
                    group("c", 1, bounds=(0, 9), frozen_because=stated("rolling")),
                ],
                *("a", (2, 6, 1), 0),
            ),
        ],
        ids=["the emptiest", "no healthy zone", "within zone-max", "not a frozen zone"],
    )
    def test_the_emptiest_healthy_zones_take_them(
        self, groups: list[NodeGroup], fenced: str, expected: tuple[int, ...], starved: int
    ) -> None:
        found = pool_plan(groups, MOVE, fenced=fenced)
        assert (requested(found), found.report.starved) == (expected, starved)
        assert [one.journal_delta for one in found.groups] == [
            after - before.requested for after, before in zip(expected, groups, strict=True)
        ]


class TestBesideAnAutoscaler:
    def test_without_an_autoscaler_the_maximum_stays_open(self) -> None:
        found = pool_plan(zones([5, 3, 0], [2, 3, 0], [(0, 12)] * 3), ALONE, fenced="a")
        (taker,) = (planned for planned in found.groups if planned.journal_delta > 0)
        assert taker.bounds.max > 3

    @pytest.mark.parametrize(
        ("ago", "running", "is_cut"), [(0, 3, True), (14.9, 3, True), (15, 3, False), (40, 3, False), (0, 4, False)]
    )
    def test_moved_replicas_count_as_coming_until_the_provision_timeout(
        self, ago: float, running: int, is_cut: bool
    ) -> None:
        ours = ulid(NOW - ago * MINUTE, b"\x00" * 10)
        found = pool_plan([group("a", 2), group("b", 4, running=running, move=ours)], MOVE)
        bounds = found.groups[1].bounds
        assert (bounds.max == 4) is is_cut


class TestTheOrderOfWrites:
    def test_the_giver_is_written_before_the_taker(self) -> None:
        # The taker's max goes from 12 to 4, the giver's only from 3 to 2: by room alone the taker would be first.
        found = pool_plan(zones([3, 3], [2, 3], [(0, 3), (0, 12)]), MOVE, fenced="a")
        assert [planned.journal_delta for planned in found.groups] == [-1, 1]
        assert [planned.group.identity.zone for planned in in_safe_order(found.changes)] == ["a", "b"]


def after(a: int, b: int, *marked: str, c: int | None = None, older: str | None = None) -> list[NodeGroup]:
    """Return groups of zones a and b (and c), of which some have the mark of the move."""
    requested = {"a": a, "b": b} | ({} if c is None else {"c": c})
    return [group(zone, nodes, move="m" if zone in marked else older) for zone, nodes in requested.items()]


#: the move's steps of zones a, b and c; replicas unplaced before; the groups then; replicas unplaced now
UNPLACED: dict[str, tuple[tuple[int, ...], int, list[NodeGroup], int]] = {
    "before the first patch": ((-3, 3), 0, after(5, 3), 0),
    "given and not taken": ((-3, 2, 1), 0, after(2, 5, "a", "b", c=0), 1),
    "all taken": ((-3, 3), 0, after(2, 6, "a", "b"), 0),
    "more taken than given": ((-3, 3), 0, after(5, 6, "b"), 0),
    "a request to remove, not begun": ((-3,), -2, after(5, 0), -2),
    "a request to remove, done": ((-3,), -2, after(2, 0, "a"), 0),
    "marks of another move": ((-3, 3), 0, after(2, 6, "a", older="older"), 3),
    "carried from the move before": ((0, 2), 2, after(2, 3), 2),
    "carried and taken": ((0, 2), 2, after(2, 5, "b"), 0),
    "an autoscaler adds replicas": ((-3, 3), 0, after(4, 9, "a"), 3),
}


class TestUnplaced:
    @pytest.mark.parametrize(("steps", "unplaced", "groups", "still"), UNPLACED.values(), ids=UNPLACED)
    def test_unplaced_replicas(self, steps: tuple[int, ...], unplaced: int, groups: Any, still: int) -> None:
        named = {str(key(zone)): step for zone, step in zip("abc", steps, strict=False) if step}
        move = Move(id="m", unplaced=unplaced, steps=named, request="r" if unplaced < 0 else "")
        assert move.still_unplaced(groups) == still

    @pytest.mark.parametrize(
        ("others", "policy", "fenced", "expected", "unplaced", "starved"),
        [
            ([group("b", 3), group("c", 0)], MOVE, "a", (2, 3, 3), 0, 0),
            ([group("b", 3)], numbers(0, 12), "a", (2, 6), 0, 0),
            ([group("b", 3, zone_max=4)], MOVE, "a", (2, 4), 2, 2),
            ([group("b", 9)], MOVE, "a", (2, 10), 0, 0),
            ([group("b", 4, running=1), group("c", 0, zone_max=4)], MOVE, "ab", (2, 3, 4), 0, 2),
        ],
        ids=["in the emptiest zone", "with on-failure release", "within zone-max", "within PoolMaximum", "first"],
    )
    def test_the_next_plan_places_them(
        self,
        others: list[NodeGroup],
        policy: Policy,
        fenced: str,
        expected: tuple[int, ...],
        unplaced: int,
        starved: int,
    ) -> None:
        found = owing(
            [group("a", 2, move="m"), *others], Move(id="m", steps={str(key("a")): -3}), policy, fenced=fenced
        )
        assert (requested(found), found.replicas.unplaced, found.report.starved) == (expected, unplaced, starved)


class TestWhileItIsUnderWay:
    def test_a_booting_machine_beside_a_refused_one_stays(self) -> None:
        booting = machines(group("a", 5, running=2), MINUTE).machines or ()
        failed = refused(group("a", 5, running=0), 2 * MINUTE, 2 * MINUTE).machines or ()
        groups = [group("a", 5, running=2, machines=(*booting, *failed)), group("b", 3)]
        assert requested(pool_plan(groups, MOVE, fenced="a")) == (3, 5)

    def test_a_dry_run_stores_no_move(self) -> None:
        stack = moving([5, 3], [(0, 5), (0, 9)], dry_run=True)
        plan = stack.rebalance("demo", "test", plenty).plan
        assert plan.pools[0].moves == {str(key("a")): -3, str(key("b")): 3}
        assert stack.cluster.applied == []
        assert all(pool.move is None for pool in stack.state.pools.values())
