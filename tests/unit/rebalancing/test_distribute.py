"""Gardener's split over zones, of nodes and of rolling-update numbers."""

import pytest

from evenkeel.domain.model.groups import Rolling
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rebalancing.bounds.distribute import (
    distribute_over_zones,
    distribute_percent_over_zones,
    distribute_rolling,
    pool_rolling,
    read_int_or_percent,
)
from tests.builders import group, numbers, pool_plan, reasons


@pytest.mark.parametrize(("index", "zones"), [(-1, 3), (3, 3), (0, 0)])
def test_a_zone_that_does_not_exist_has_no_share(index, zones) -> None:
    with pytest.raises(ValueError, match="outside"):
        distribute_over_zones(index, 4, zones)


@pytest.mark.parametrize(
    ("percent", "zones", "total", "expected"),
    [
        (20, 3, 6, [20, 20, 20]),
        (25, 3, 0, [25, 25, 25]),
        (50, 2, 3, [67, 34]),  # 50 * 2/1.5 = 66.7, 50 * 1/1.5 = 33.3
        (10, 3, 10, [12, 9, 9]),  # the average is 3.33 nodes: 4 is 120 %, 3 is 90 %
        (100, 3, 1, [300, 0, 0]),
    ],
)
def test_a_percentage_is_weighted_by_the_zones_share_and_rounded_up(percent, zones, total, expected) -> None:
    assert [distribute_percent_over_zones(i, percent, zones, total) for i in range(zones)] == expected


def test_surge_is_weighted_by_the_maximum_and_unavailability_by_the_minimum() -> None:
    shares = [distribute_rolling(Rolling("50%", "50%"), i, 2, pool_min=4, pool_max=3) for i in range(2)]
    assert shares == [Rolling("67%", "50%"), Rolling("34%", "50%")]
    assert [distribute_rolling(Rolling(1, 3), i, 2, pool_min=0, pool_max=9) for i in range(2)] == [
        Rolling(1, 2),
        Rolling(0, 1),
    ]


@pytest.mark.parametrize(
    ("members", "pool"),
    [
        ([Rolling(1, 0), Rolling(2, 1)], Rolling(3, 1)),
        ([Rolling("25%", 0), Rolling("25%", 2)], Rolling("25%", 2)),
        ([Rolling("25%", 0), Rolling("30%", 0)], None),
        ([Rolling("25%", 0), Rolling(1, 0)], None),
    ],
    ids=["sums", "the same percentage", "two percentages", "two forms"],
)
def test_rolling_numbers_of_a_pool(members, pool) -> None:
    assert pool_rolling(members) == pool


@pytest.mark.parametrize(("value", "read"), [(3, 3), ("3", 3), ("25%", "25%"), ("0%", "0%")])
def test_counts_and_percentages_are_read(value, read) -> None:
    assert read_int_or_percent(value) == read


@pytest.mark.parametrize("value", ["%", "-5%", "2.5%", "x%", "a", None, 1.5, -1, True])
def test_any_other_value_is_refused(value) -> None:
    with pytest.raises(BadValueError):
        read_int_or_percent(value)


def test_the_shares_are_reported_with_the_plan_and_not_written() -> None:
    rolling = Rolling(1, 0)
    steady = pool_plan([group("a", 1, rolling=rolling), group("b", 1, rolling=rolling)], numbers(0, 2))
    again = pool_plan(
        [group("a", 1, rolling=rolling, bounds=(0, 1)), group("b", 1, rolling=rolling, bounds=(0, 1))], numbers(0, 2)
    )
    assert [plan.rolling for plan in steady.groups] == [rolling, rolling]
    assert "maxSurge 1, maxUnavailable 0 (reported, not written)" in reasons(steady, "a")
    assert not again.changes
