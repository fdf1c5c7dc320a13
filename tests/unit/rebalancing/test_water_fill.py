"""Levelling, on examples."""

from evenkeel.domain.model.water_fill import water_fill


def test_a_huge_amount_costs_no_more_than_a_small_one() -> None:
    assert water_fill(2**31, [0, 0], [2**31, 2**31]) == [2**30, 2**30]
