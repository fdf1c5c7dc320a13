"""The safety pass: whatever a formula said, what is published can be read and obeyed."""

import pytest

from evenkeel.domain.bounds.safety import safe_bounds
from evenkeel.domain.model.groups import Bounds


def test_good_bounds_pass_unchanged_and_without_a_word() -> None:
    assert safe_bounds(1, 4, target=2) == (Bounds(1, 4), [])


@pytest.mark.parametrize(
    ("minimum", "maximum", "limits", "expected", "reason"),
    [
        (0, 1, {"target": 3}, Bounds(0, 3), "max raised from 1 to the 3 requested"),
        (0, -4, {"target": 0}, Bounds(0, 0), "max raised from -4 to the 0 requested"),
        (3, 4, {"target": 2}, Bounds(2, 4), "min lowered from 3 to the 2 requested"),
        (0, 9, {"target": 2, "zone_max": 4}, Bounds(0, 4), "max cut to 4: evenkeel.dev/zone-max is 4"),
        (0, 9, {"target": 6, "zone_max": 4}, Bounds(0, 6), "max cut to 6"),
        (0, 0, {"target": 0, "owner_min_max": 1}, Bounds(0, 1), "max raised from 0 to 1"),
        (0, 4, {"target": 0, "owner_min_max": 1, "zone_max": 0}, Bounds(0, 1), "max raised from 0 to 1"),
    ],
)
def test_what_the_pass_changes_it_gives_a_reason_for(minimum, maximum, limits, expected, reason) -> None:
    found, told = safe_bounds(minimum, maximum, **limits)
    assert found == expected
    assert any(reason in text for text in told)


def test_a_negative_min_is_none() -> None:
    assert safe_bounds(-2, 4, target=1)[0] == Bounds(0, 4)


@pytest.mark.parametrize(("low", "high"), [(-1, 2), (3, 2)])
def test_bounds_that_contradict_themselves_cannot_be_made(low, high) -> None:
    with pytest.raises(ValueError, match="0 <= min <= max"):
        Bounds(low, high)
