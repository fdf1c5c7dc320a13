from datetime import timedelta

import pytest

from evenkeel.domain.model.holds import doubled, held_until
from tests.builders import NOW

HOUR = timedelta(hours=1)


def test_a_hold_ends_at_its_last_moment() -> None:
    assert held_until(NOW, NOW - timedelta(microseconds=1)) == NOW
    assert held_until(NOW, NOW) is None
    assert held_until(NOW, NOW, HOUR) == NOW + HOUR
    assert held_until(NOW, NOW + HOUR, HOUR) is None


def test_what_never_began_holds_nothing() -> None:
    assert held_until(None, NOW, HOUR) is None


@pytest.mark.parametrize(("times", "hours"), [(0, 1), (1, 2), (3, 8), (4, 12), (10**9, 12)])
def test_a_hold_doubles_up_to_the_longest(times: int, hours: int) -> None:
    assert doubled(HOUR, times, 12 * HOUR) == hours * HOUR
