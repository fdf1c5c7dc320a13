"""Whatever a function's clock says, an outage costs as many patches and notifications as with right clocks."""

from datetime import timedelta

import pytest

from tests.clocks import FUNCTIONS, Skews, play_skewed
from tests.outages import Outage

_OFF = timedelta(minutes=10)
_MINUTE = 60
SKEWS: list[Skews] = [
    dict.fromkeys(names, sign * _OFF)
    for sign in (1, -1)
    for names in (*([name] for name in FUNCTIONS), list(FUNCTIONS))
]
WORLDS = [
    (Outage(name="one zone fails", boot=8, limits=(0, None, None)), 10),
    (Outage(name="all zones fail", boot=8, limits=(0, 0, 0)), 10),
    (Outage(name="each zone gets its one missing node inside the fence", boot=8, limits=(2, 2, 2)), 2),
    (Outage(name="all zones fail on Gardener", boot=8, limits=(0, 0, 0), flavour="gardener"), 10),
]


@pytest.mark.parametrize(("outage", "ends"), WORLDS, ids=lambda value: getattr(value, "name", None))
def test_no_clock_that_is_ten_minutes_off_costs_more_than_two_patches_or_notifications(
    outage: Outage, ends: int
) -> None:
    play = {"ends": ends * _MINUTE, "horizon": (ends + 30) * _MINUTE}
    patches, notifications, is_well = play_skewed(outage, {}, **play)
    assert is_well
    for skews in SKEWS:
        more_patches, more_notifications, is_well = play_skewed(outage, skews, **play)
        assert is_well, skews
        assert more_patches <= patches + 2, skews
        assert more_notifications.total() <= notifications.total() + 2, (skews, notifications, more_notifications)
