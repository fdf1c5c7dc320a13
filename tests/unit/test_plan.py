"""A plan as a whole: its reasons, its news, and what it leaves alone."""

import pytest

from evenkeel.domain.model import Observation, Policy, Skipped, Strategy
from evenkeel.domain.plan import ClusterState, plan
from tests.builders import NOW, group, key, numbers, offered, plan_of, pool_plan, reasons, zones


def test_a_look_at_nothing_plans_nothing() -> None:
    found = plan(Observation(groups=()), ClusterState(), Policy(), NOW)
    assert (found.pools, found.skipped, found.changes, dict(found.states)) == ((), (), (), {})


def test_what_the_look_skipped_stays_skipped_with_its_reason() -> None:
    gone = Skipped(namespace="default", name="x", reason="not ours")
    assert plan(Observation(groups=(), skipped=(gone,)), ClusterState(), Policy(), NOW).skipped == (gone,)


def test_a_group_that_is_as_it_should_be_says_so() -> None:
    settled = [group(zone, 4, bounds=(0, 4), offer=offered(4, 4)) for zone in "abc"]
    found = pool_plan(settled, numbers(0, 12))
    assert not found.changes
    assert all("left alone: it is as it should be" in reasons(found, zone) for zone in "abc")


def test_groups_of_an_invalid_pool_say_that_they_are_left_alone() -> None:
    found = pool_plan(zones((1, 1)), numbers(5, 4))
    assert all("left alone: its pool is invalid" in reasons(found, zone) for zone in "ab")
    assert all(planned.bounds == planned.group.bounds for planned in found.groups)


def test_a_fenced_group_says_why_and_until_when() -> None:
    found = pool_plan(zones((2, 2)), numbers(0, 12), fenced=("a",))
    assert "fenced: capacity failure 1, in backoff until 2026-01-15T12:04:00Z" in reasons(found, "a")


def test_memory_of_a_group_that_is_gone_does_no_harm() -> None:
    members = zones((2, 2))
    states = {key("gone"): None}
    found = plan_of(members, numbers(0, 12), states={k: v for k, v in states.items() if v})
    assert [planned.group.zone for planned in found.pools[0].groups] == ["a", "b"]


def test_a_frozen_group_wins_over_its_backoff() -> None:
    members = [group("a", 3, running=1, bounds=(0, 3), frozen_because="paused"), group("b", 1, bounds=(0, 3))]
    found = pool_plan(members, numbers(0, 6), fenced=("a",))
    assert found.groups[0].state == "frozen"
    assert not found.groups[0].changes


def test_imbalance_is_the_fullest_zone_less_the_emptiest() -> None:
    assert pool_plan(zones((5, 2, 3)), numbers(0, 12)).imbalance == 3


def test_a_quiet_pool_has_no_news() -> None:
    settled = [group(zone, 4, bounds=(0, 4), offer=offered(4, 4)) for zone in "abc"]
    assert pool_plan(settled, numbers(0, 12)).digest(applied=False) == ""


def test_what_was_applied_is_no_news_any_more() -> None:
    found = pool_plan(zones((1, 1, 1)), numbers(0, 12))
    assert found.digest(applied=False) != ""
    assert found.digest(applied=True) == ""


@pytest.mark.parametrize("trouble", ["invalid", "over-committed", "starved"])
def test_trouble_stays_news_until_it_changes(trouble) -> None:
    found = {
        "invalid": lambda: pool_plan(zones((1, 1)), numbers(5, 4)),
        "over-committed": lambda: pool_plan(zones((7, 7)), numbers(0, 12)),
        "starved": lambda: pool_plan(zones((3, 3), running=(1, 3)), numbers(0, 12), fenced=("a", "b")),
    }
    first, second = found[trouble](), found[trouble]()
    assert first.digest(applied=True) == second.digest(applied=True) != ""
    others = {found[other]().digest(applied=True) for other in found if other != trouble}
    assert first.digest(applied=True) not in others


@pytest.mark.parametrize("strategy", list(Strategy))
def test_one_zone_alone_may_have_the_whole_pool(strategy) -> None:
    found = pool_plan([group("a", 2)], numbers(1, 5, strategy))
    bounds = found.groups[0].bounds
    assert bounds is not None
    assert (bounds.min, bounds.max) == (0 if strategy is Strategy.LAX_GREEDY else 1, 5)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_pool_of_nothing_is_nothing(strategy) -> None:
    found = pool_plan(zones((0, 0), bounds=[(0, 1)] * 2), numbers(0, 0, strategy))
    assert all(planned.bounds is not None and planned.bounds.max == 0 for planned in found.groups)


@pytest.mark.parametrize("strategy", list(Strategy))
def test_numbers_as_large_as_they_come_are_planned(strategy) -> None:
    most = 2**31 - 1
    found = pool_plan(zones((0, 0, 0)), numbers(most, most, strategy))
    assert sum(planned.requested for planned in found.groups) == most
