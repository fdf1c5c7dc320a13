"""From plans to patches: what goes first, and what stands between two of them."""

import pytest

from evenkeel.domain.model.groups import Bounds, State
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.rebalancing.writes import Patch, fence_first, grows, in_safe_order, is_complete, patches
from tests.builders import group, numbers, pool_plan, zones
from tests.parts import replace


def planned(zone: str, before: tuple[int, tuple[int, int] | None], after: tuple[int, tuple[int, int]], **fields):
    return GroupPlan(
        group=group(zone, before[0], bounds=before[1], **fields),
        state=State.HEALTHY,
        requested=after[0],
        bounds=Bounds(*after[1]),
        reasons=("because",),
    )


def steps(plan: GroupPlan) -> list[tuple[tuple[int, int] | None, int | None]]:
    return [(patch.bounds and (patch.bounds.min, patch.bounds.max), patch.requested) for patch in patches(plan)]


def test_nothing_to_change_is_no_patch() -> None:
    assert steps(planned("a", (3, (0, 4)), (3, (0, 4)))) == []


def test_bounds_and_replicas_on_one_object_go_in_one_patch() -> None:
    assert steps(planned("a", (5, (2, 6)), (1, (0, 1)))) == [((0, 1), 1)]


def test_what_stays_is_not_written() -> None:
    assert steps(planned("a", (3, (0, 4)), (3, (0, 5)))) == [((0, 5), None)]
    assert steps(planned("a", (3, (0, 4)), (2, (0, 4)))) == [(None, 2)]


def test_on_two_objects_bounds_are_widened_before_replicas_fall_and_narrowed_after() -> None:
    assert steps(planned("a", (5, (2, 5)), (1, (1, 1)), two_objects=True)) == [
        ((1, 5), None),
        (None, 1),
        ((1, 1), None),
    ]


def test_on_two_objects_bounds_that_hold_both_need_no_widening() -> None:
    assert steps(planned("a", (5, (0, 5)), (1, (0, 1)), two_objects=True)) == [(None, 1), ((0, 1), None)]


def test_on_two_objects_the_one_that_stays_is_not_written() -> None:
    assert steps(planned("a", (3, (0, 4)), (3, (0, 5)), two_objects=True)) == [((0, 5), None)]
    assert steps(planned("a", (3, (0, 4)), (2, (0, 4)), two_objects=True)) == [(None, 2)]


def test_on_two_objects_bounds_are_widened_before_replicas_rise() -> None:
    assert steps(planned("a", (1, (0, 1)), (3, (0, 4)), two_objects=True)) == [((0, 4), None), (None, 3)]


def test_on_two_objects_a_rising_min_waits_for_its_replicas() -> None:
    assert steps(planned("a", (0, (0, 0)), (2, (2, 2)), two_objects=True)) == [
        ((0, 2), None),
        (None, 2),
        ((2, 2), None),
    ]


def test_on_two_objects_a_group_that_never_had_bounds_gets_them_first() -> None:
    assert steps(planned("a", (1, None), (3, (3, 4)), two_objects=True)) == [((1, 4), None), (None, 3), ((3, 4), None)]


@pytest.mark.parametrize(
    ("copied", "expected"),
    [
        (Bounds(0, 1), [((0, 4), None)]),  # the owner's controller has not come by yet: replicas wait for the next look
        (Bounds(0, 4), [((0, 4), None), (None, 3)]),
        (None, [((0, 4), None), (None, 3)]),  # the scalable carries none, so nobody reads them there
    ],
)
def test_on_two_objects_replicas_rise_only_within_what_the_autoscaler_reads(
    copied: Bounds | None, expected: list[object]
) -> None:
    assert steps(planned("a", (1, (0, 1)), (3, (0, 4)), two_objects=True, copied=copied)) == expected


def test_on_two_objects_replicas_fall_only_below_a_min_that_has_been_copied() -> None:
    lowered = planned("a", (5, (2, 5)), (1, (1, 1)), two_objects=True, copied=Bounds(2, 5))
    assert steps(lowered) == [((1, 5), None)]
    assert not is_complete(lowered)
    copied = planned("a", (5, (1, 5)), (1, (1, 1)), two_objects=True, copied=Bounds(1, 5))
    assert steps(copied) == [(None, 1), ((1, 1), None)]
    assert is_complete(copied)


LOWERS = {"two_objects": True, "lowers_replicas": True}


def test_where_the_owner_lowers_replicas_itself_one_patch_of_it_makes_a_release() -> None:
    released = planned("a", (5, (0, 6)), (2, (0, 2)), **LOWERS)
    assert steps(released) == [((0, 2), 2)]
    assert patches(released)[0].lowers_requested, "so that machines are marked before"
    assert is_complete(released)
    assert fence_first(replace(released, state=State.FENCED)) is None


def test_an_owner_that_has_not_lowered_what_its_bounds_say_leaves_it_to_us() -> None:
    assert steps(planned("a", (5, (0, 2)), (2, (0, 2)), **LOWERS)) == [(None, 2)]


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ((5, (0, 6)), (2, (0, 2)), {"journal_delta": -3}),  # its mark stands with the replicas
        ((5, (0, 6)), (0, (0, 1)), {}),  # below the least max
        ((5, (0, 6)), (4, (0, 6)), {}),  # the max is more
    ],
)
def test_replicas_are_written_where_the_owners_max_alone_would_not_do(before, after, fields) -> None:
    plan = replace(planned("a", before, after, **LOWERS), **fields)
    assert (None, after[0]) in steps(plan)


def test_a_pinned_group_is_lowered_by_one_patch_and_also_to_none() -> None:
    plan = replace(planned("a", (2, (0, 2)), (0, (0, 0)), pinned=True, **LOWERS), pins=True)
    assert [(patch.bounds, patch.requested, patch.pins) for patch in patches(plan)] == [(Bounds(0, 0), 0, True)]


def test_what_is_pinned_or_let_go_is_written_though_no_number_changes() -> None:
    for now, wanted in ((False, True), (True, False)):
        plan = replace(planned("a", (2, (0, 2)), (2, (0, 2)), pinned=now, **LOWERS), pins=wanted)
        assert [(patch.bounds, patch.requested, patch.pins) for patch in patches(plan)] == [
            (Bounds(0, 2), None, wanted)
        ]


@pytest.mark.parametrize(("requested", "delta"), [(3, 1), (1, -1)])
def test_replicas_of_a_pinned_group_wait_until_it_has_been_let_go(requested: int, delta: int) -> None:
    bounds = (0, max(2, requested))
    plan = planned("a", (2, (0, 2)), (requested, bounds), pinned=True, copied=Bounds(0, 0), **LOWERS)
    plan = replace(plan, journal_delta=delta, pins=delta < 0)
    assert [(patch.bounds, patch.requested, patch.pins) for patch in patches(plan)] == [(Bounds(*bounds), None, False)]
    assert not is_complete(plan)


def test_the_fence_alone_keeps_what_is_requested_until_machines_are_marked() -> None:
    members = zones((5, 3, 3), running=(2, 3, 3), bounds=[(3, 9), (0, 3), (0, 3)])
    first = pool_plan(members, numbers(0, 12), fenced=("a",)).groups[0]
    patch = fence_first(first)
    assert (patch.bounds, patch.requested) == (Bounds(0, 5), None)


def test_a_fence_that_stands_already_is_not_written_again_before_the_marks() -> None:
    members = zones((5, 3, 3), running=(2, 3, 3), bounds=[(0, 5), (0, 3), (0, 3)])
    assert fence_first(pool_plan(members, numbers(0, 12), fenced=("a",)).groups[0]) is None


def test_shrinking_goes_before_growing() -> None:
    plans = [
        planned("a", (1, (0, 1)), (1, (0, 4))),
        planned("b", (5, (0, 5)), (1, (0, 1))),
        planned("c", (1, (0, 2)), (1, (0, 1))),
    ]
    assert [plan.group.identity.zone for plan in in_safe_order(plans)] == ["b", "c", "a"]


def test_a_fence_goes_before_the_growth_that_it_makes_room_for() -> None:
    members = zones((5, 3, 3), running=(2, 3, 3), bounds=[(0, 6), (0, 3), (0, 3)])
    found = pool_plan(members, numbers(0, 12), fenced=("a",))
    assert in_safe_order(found.changes)[0].group.identity.zone == "a"


@pytest.mark.parametrize(
    ("after", "fields", "waits"),
    [
        ((1, (0, 3)), {}, True),
        ((2, (0, 2)), {}, True),
        ((1, (0, 1)), {}, False),
        ((0, (0, 2)), {}, False),
        ((1, (0, 3)), {"journal_delta": -1}, False),
        ((1, (0, 3)), {"leaves": True}, False),
    ],
)
def test_what_grows_waits_for_what_shrinks_but_not_who_gives_replicas_up_or_is_left(after, fields, waits) -> None:
    assert grows(replace(planned("a", (1, (0, 2)), after), **fields)) is waits


def test_a_patch_knows_whether_machines_will_go() -> None:
    plan = planned("a", (5, (0, 5)), (1, (0, 1)))
    assert Patch(plan=plan, requested=1).lowers_requested
    assert not Patch(plan=plan, requested=5).lowers_requested
    assert not Patch(plan=plan, bounds=Bounds(0, 1)).lowers_requested
