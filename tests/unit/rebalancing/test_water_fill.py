"""Levelling, on examples."""

import pytest

from evenkeel.domain.model.water_fill import water_fill


@pytest.mark.parametrize(
    ("levels", "amount", "given"),
    [
        ([0, 0, 0], 6, [2, 2, 2]),
        ([3, 1, 0], 3, [0, 1, 2]),
        ([5, 0, 0], 4, [0, 2, 2]),
        ([0], 7, [7]),
        ([1, 2], 0, [0, 0]),
        ([1, 2], -3, [0, 0]),
        ([], 5, []),
    ],
)
def test_the_lowest_is_filled_first(levels, amount, given) -> None:
    assert water_fill(amount, levels, [100] * len(levels)) == given


def test_a_huge_amount_costs_no_more_than_a_small_one() -> None:
    assert water_fill(2**31, [0, 0], [2**31, 2**31]) == [2**30, 2**30]
