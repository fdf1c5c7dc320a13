"""Plans become patches in a safe order."""

import pytest

from evenkeel.domain.model.groups import Bounds, State
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.rebalancing.writes import Patch, fence_first, in_safe_order, is_complete, patches, stage_of
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


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((3, (0, 4)), (3, (0, 4)), []),
        ((5, (2, 6)), (1, (0, 1)), [((0, 1), 1)]),
        ((3, (0, 4)), (3, (0, 5)), [((0, 5), None)]),
        ((3, (0, 4)), (2, (0, 4)), [(None, 2)]),
    ],
)
def test_what_changes_on_one_object_goes_in_one_patch(before, after, expected) -> None:
    assert steps(planned("a", before, after)) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param((5, (2, 5)), (1, (1, 1)), [((1, 5), None), (None, 1), ((1, 1), None)], id="replicas fall"),
        pytest.param((5, (0, 5)), (1, (0, 1)), [(None, 1), ((0, 1), None)], id="bounds hold both"),
        pytest.param((3, (0, 4)), (3, (0, 5)), [((0, 5), None)], id="only bounds"),
        pytest.param((3, (0, 4)), (2, (0, 4)), [(None, 2)], id="only replicas"),
        pytest.param((1, (0, 1)), (3, (0, 4)), [((0, 4), None), (None, 3)], id="replicas rise"),
        pytest.param((0, (0, 0)), (2, (2, 2)), [((0, 2), None), (None, 2), ((2, 2), None)], id="the min rises"),
        pytest.param((1, None), (3, (3, 4)), [((1, 4), None), (None, 3), ((3, 4), None)], id="no bounds before"),
    ],
)
def test_on_two_objects_bounds_contain_replicas_after_each_patch(before, after, expected) -> None:
    assert steps(planned("a", before, after, two_objects=True)) == expected


@pytest.mark.parametrize(
    ("copied", "expected"),
    [
        (Bounds(0, 1), [((0, 4), None)]),  # replicas wait until the owner's controller has copied its bounds
        (Bounds(0, 4), [((0, 4), None), (None, 3)]),
        (None, [((0, 4), None), (None, 3)]),  # no program reads bounds of this scalable
    ],
)
def test_on_two_objects_replicas_rise_only_within_copied_bounds(copied: Bounds | None, expected: list[object]) -> None:
    assert steps(planned("a", (1, (0, 1)), (3, (0, 4)), two_objects=True, copied=copied)) == expected


def test_on_two_objects_replicas_fall_only_after_the_min_was_copied() -> None:
    lowered = planned("a", (5, (2, 5)), (1, (1, 1)), two_objects=True, copied=Bounds(2, 5))
    assert steps(lowered) == [((1, 5), None)]
    assert not is_complete(lowered)
    copied = planned("a", (5, (1, 5)), (1, (1, 1)), two_objects=True, copied=Bounds(1, 5))
    assert steps(copied) == [(None, 1), ((1, 1), None)]
    assert is_complete(copied)


LOWERS = {"two_objects": True, "lowers_replicas": True}


def test_an_owner_that_lowers_replicas_needs_one_patch() -> None:
    released = planned("a", (5, (0, 6)), (2, (0, 2)), **LOWERS)
    assert steps(released) == [((0, 2), 2)]
    assert patches(released)[0].lowers_requested, "so that machines are marked before"
    assert is_complete(released)
    assert fence_first(replace(released, state=State.FENCED)) is None


def test_replicas_that_the_owner_has_not_lowered_are_written() -> None:
    assert steps(planned("a", (5, (0, 2)), (2, (0, 2)), **LOWERS)) == [(None, 2)]


@pytest.mark.parametrize(
    ("before", "after", "fields"),
    [
        ((5, (0, 6)), (2, (0, 2)), {"journal_delta": -3}),  # its mark is on the object with the replicas
        ((5, (0, 6)), (0, (0, 1)), {}),  # below the least max
        ((5, (0, 6)), (4, (0, 6)), {}),  # the max is more
    ],
)
def test_replicas_are_written_where_the_owners_max_does_not_suffice(before, after, fields) -> None:
    plan = replace(planned("a", before, after, **LOWERS), **fields)
    assert (None, after[0]) in steps(plan)


def test_a_pinned_group_is_lowered_by_one_patch() -> None:
    plan = replace(planned("a", (2, (0, 2)), (0, (0, 0)), pinned=True, **LOWERS), pins=True)
    assert [(patch.bounds, patch.requested, patch.pins) for patch in patches(plan)] == [(Bounds(0, 0), 0, True)]


def test_pinning_is_written_although_no_number_changes() -> None:
    for now, wanted in ((False, True), (True, False)):
        plan = replace(planned("a", (2, (0, 2)), (2, (0, 2)), pinned=now, **LOWERS), pins=wanted)
        assert [(patch.bounds, patch.requested, patch.pins) for patch in patches(plan)] == [
            (Bounds(0, 2), None, wanted)
        ]


@pytest.mark.parametrize(("requested", "delta"), [(3, 1), (1, -1)])
def test_replicas_of_a_pinned_group_wait_until_it_is_unpinned(requested: int, delta: int) -> None:
    bounds = (0, max(2, requested))
    plan = planned("a", (2, (0, 2)), (requested, bounds), pinned=True, copied=Bounds(0, 0), **LOWERS)
    plan = replace(plan, journal_delta=delta, pins=delta < 0)
    assert [(patch.bounds, patch.requested, patch.pins) for patch in patches(plan)] == [(Bounds(*bounds), None, False)]
    assert not is_complete(plan)


@pytest.mark.parametrize(("bounds", "fence"), [((3, 9), Bounds(0, 5)), ((0, 5), None)])
def test_a_fence_is_written_once_before_the_marks_and_keeps_the_requested(bounds, fence: Bounds | None) -> None:
    members = zones((5, 3, 3), running=(2, 3, 3), bounds=[bounds, (0, 3), (0, 3)])
    patch = fence_first(pool_plan(members, numbers(0, 12), fenced=("a",)).groups[0])
    assert (patch and (patch.bounds, patch.requested)) == (fence and (fence, None))


def test_narrower_bounds_go_before_fewer_replicas_and_both_before_growth() -> None:
    changes = {"a": ((1, (0, 1)), (1, (0, 4))), "b": ((5, (0, 5)), (1, (0, 1))), "c": ((1, (0, 2)), (1, (0, 1)))}
    plans = [planned(zone, before, after) for zone, (before, after) in changes.items()]
    assert [plan.group.identity.zone for plan in in_safe_order(plans)] == ["c", "b", "a"]


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
def test_growth_waits_for_shrinking_groups(after, fields, waits) -> None:
    assert stage_of(replace(planned("a", (1, (0, 2)), after), **fields)).grows is waits


def test_a_patch_reports_whether_it_lowers_replicas() -> None:
    plan = planned("a", (5, (0, 5)), (1, (0, 1)))
    assert Patch(plan=plan, requested=1).lowers_requested
    assert not Patch(plan=plan, requested=5).lowers_requested
    assert not Patch(plan=plan, bounds=Bounds(0, 1)).lowers_requested
