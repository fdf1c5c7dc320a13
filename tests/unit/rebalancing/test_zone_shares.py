"""Zones with their own min, and weights as percentages of a pool."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.values import BadValueError, read_percent
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel.domain.rebalancing.membership.numbers import with_shares
from tests import objects
from tests.builders import group, maxima, minima, numbers, pool_plan, problems_of, reasons, requested, zones
from tests.unit.kubernetes.test_read_groups import only


def weighed(*weights: int | str) -> list[NodeGroup]:
    """Return a zone for each weight; text is a percentage."""
    return [
        group("abcde"[i], weight=weight) if isinstance(weight, int) else group("abcde"[i], weight_percent=int(weight))
        for i, weight in enumerate(weights)
    ]


@pytest.mark.parametrize("weight", ["0", "1001", "1000000000"])
def test_a_weight_out_of_range_is_one_line(weight: str) -> None:
    item = objects.cluster_api("eu-central-1a", 1, annotations={"evenkeel.dev/weight": weight})
    (fault,) = only("cluster-api", item).unreadable.faults
    assert str(fault).endswith(f"evenkeel.dev/weight is '{weight}': a weight is 1 to 1000")


def test_a_zones_own_min_is_its_first_share_of_pool_minimum() -> None:
    groups = [group("a", 6, zone_min=4), group("b", 6), group("c", 6)]
    assert minima(pool_plan(groups, numbers(6, 30))) == (4, 1, 1)
    assert minima(pool_plan(groups, numbers(0, 30))) == (4, 0, 0)


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_a_zone_keeps_its_own_min_under_every_strategy(strategy: Strategy) -> None:
    groups = [group("a", 3, zone_min=4), group("b", 6), group("c", 6, zone_min=2)]
    found = pool_plan(groups, numbers(0, 30, strategy))
    assert minima(found) == (3, 0, 2)
    assert requested(found) == (3, 6, 6)


def test_zones_with_their_own_min_are_raised_first() -> None:
    groups = [group("a", 0, zone_min=4), group("b", 0), group("c", 0)]
    assert requested(pool_plan(groups, numbers(6, 30))) == (4, 1, 1)
    assert requested(pool_plan(groups, numbers(3, 30))) == (3, 0, 0)
    assert requested(pool_plan(groups, numbers(0, 30))) == (0, 0, 0)


def test_a_fenced_zones_own_min_counts_what_runs() -> None:
    groups = [group("a", 4, running=2, zone_min=4), group("b", 6), group("c", 6)]
    assert minima(pool_plan(groups, numbers(0, 30), fenced="a"))[0] == 2


def test_a_raised_min_has_a_reason() -> None:
    found = pool_plan([group("a", 3, zone_min=4), group("b", 6)], numbers(0, 30, STRATEGIES[0]))
    assert "min raised to 3: evenkeel.dev/zone-min is 4" in reasons(found, "a")


def test_headroom_is_levelled_by_percentages_of_the_pool() -> None:
    found = pool_plan(weighed("50", "25", "25"), numbers(0, 40))
    assert maxima(found) == (20, 10, 10)
    assert maxima(pool_plan(weighed("60", 1, 1), numbers(0, 40))) == (24, 8, 8)
    assert maxima(pool_plan(weighed("60", 3, 1), numbers(0, 40))) == (24, 12, 4)


@pytest.mark.parametrize("weights", [("60", "50"), ("100", 1), ("70", "30", 2)])
def test_percentages_that_leave_no_share_make_the_pool_invalid(weights: tuple[int | str, ...]) -> None:
    found = pool_plan(weighed(*weights), numbers(0, 40))
    assert not found.mode.valid
    assert problems_of(found.report.problems)[0].startswith("evenkeel.dev/weight: the percentages add up to 1")


@given(st.lists(st.integers(1, 33), min_size=1, max_size=3), st.lists(st.integers(1, 1000), max_size=3))
def test_shares_are_in_proportion_to_percentages(percents: list[int], weights: list[int]) -> None:
    groups = [group(f"p{i}", weight_percent=percent) for i, percent in enumerate(percents)]
    groups += [group(f"w{i}", weight=weight) for i, weight in enumerate(weights)]
    found, problems = with_shares(groups)
    assert problems == []
    whole = sum(member.annotations.weight for member in found)
    left = 100 if weights else sum(percents)
    for member, percent in zip(found, percents, strict=False):
        assert member.annotations.weight * left == percent * whole
    for first, other in zip(found[len(percents) :], groups[len(percents) :], strict=True):
        assert (
            first.annotations.weight * sum(weights) * left == other.annotations.weight * (left - sum(percents)) * whole
        )


def test_without_percentages_weights_are_unchanged() -> None:
    groups = tuple(zones([1, 2, 3]))
    assert with_shares(groups) == (groups, [])


@pytest.mark.parametrize(("text", "percent"), [("1%", 1), ("40%", 40), ("100%", 100), ("40", None), (" 4%", None)])
def test_a_percentage_is_read(text: str, percent: int | None) -> None:
    assert read_percent(text) == percent


@pytest.mark.parametrize("text", ["0%", "101%", "999%"])
def test_a_percentage_outside_1_to_100_is_refused(text: str) -> None:
    with pytest.raises(BadValueError, match="1% to 100%"):
        read_percent(text)
