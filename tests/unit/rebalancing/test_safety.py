"""Published bounds are valid under any strategy, and exceed no cap on growth."""

from typing import Any

import pytest

from evenkeel.domain.model.choices import Size
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.rebalancing.bounds.safety import publish
from evenkeel.texts.english import sentences
from tests.builders import drafted, group, numbers


def published(minimum: int, maximum: int, requested: int, **fields: Any) -> tuple[Bounds | None, list[str]]:
    """Return the bounds made of a strategy's numbers for one group, and the reasons besides the strategy's own."""
    pool = drafted([group("a", requested, **fields)], numbers(0, 9))
    pool.bounds.sizes = [Size(minimum, maximum, Reason.of(Rule.SAID, text="so says the strategy"))]
    publish(pool)
    (draft,) = pool.groups
    return draft.bounds, sentences(draft.reasons)[1:]


def test_valid_bounds_pass_unchanged_without_a_reason() -> None:
    assert published(1, 4, 2) == (Bounds(1, 4), [])
    assert published(-2, 4, 1)[0] == Bounds(0, 4)


@pytest.mark.parametrize(
    ("minimum", "maximum", "requested", "fields", "expected", "reason"),
    [
        (0, 1, 3, {}, Bounds(0, 3), "max raised from 1 to the 3 requested"),
        (0, -4, 0, {}, Bounds(0, 0), "max raised from -4 to the 0 requested"),
        (3, 4, 2, {}, Bounds(2, 4), "min lowered from 3 to the 2 requested"),
        (0, 9, 2, {"zone_max": 4}, Bounds(0, 4), "max cut to 4: evenkeel.dev/zone-max is 4"),
        (0, 9, 6, {"zone_max": 4}, Bounds(0, 6), "max cut to 6"),
        (
            0,
            9,
            2,
            {"allowed_replicas": Bounds(0, 4)},
            Bounds(0, 4),
            "max cut to 4: the Worker's share of the zone is 4",
        ),
        (0, 0, 0, {"least_max": 1}, Bounds(0, 1), "max raised from 0 to 1"),
        (0, 4, 0, {"least_max": 1, "zone_max": 0}, Bounds(0, 1), "max raised from 0 to 1"),
    ],
)
def test_a_changed_bound_has_a_reason(minimum, maximum, requested, fields, expected, reason) -> None:
    bounds, reasons = published(minimum, maximum, requested, **fields)
    assert bounds == expected
    assert any(reason in text for text in reasons)


@pytest.mark.parametrize(("low", "high"), [(-1, 2), (3, 2)])
def test_contradictory_bounds_are_refused(low, high) -> None:
    with pytest.raises(ValueError, match="0 <= min <= max"):
        Bounds(low, high)
