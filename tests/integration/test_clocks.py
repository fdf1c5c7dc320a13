"""Whatever a function's clock says, an outage costs as many patches and notifications as with right clocks."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pytest

from evenkeel.application.ports import sequentially
from evenkeel.application.rebalancing.check import CheckClusters
from evenkeel.application.rebalancing.failure import RecordFailure
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeBus, FakeClock, plenty
from tests.integration.test_outages import Outage, Play
from tests.timed import Who, worker

#: the functions that read a clock and decide by it
FUNCTIONS = ("check", "rebalance", "provisioning_failure")
Skews = Mapping[str, timedelta]


@dataclass
class OffClock:
    """A clock that is ahead of the world's by so much."""

    world: FakeClock
    ahead: timedelta

    def now(self) -> datetime:
        return self.world.now() + self.ahead

    def sleep(self, seconds: float) -> None:
        self.world.sleep(seconds)


class _Skewed(Play):
    """A play in which each function has its own clock. A scan asks for checks, and these for runs."""

    def __init__(self, outage: Outage, skews: Skews) -> None:
        super().__init__(outage, Who.EVENTS)
        self.bus = FakeBus()
        clocks = {name: OffClock(self.clock, skews.get(name, timedelta(0))) for name in FUNCTIONS}
        clusters: dict[str, Any] = {
            name: WirelessClusters(self.api, Life(), clock)  # type: ignore[arg-type]
            for name, clock in clocks.items()
        }
        self.receive = RecordFailure(store=self.store, queue=self.queue, clock=clocks["provisioning_failure"])
        self.rebalance = worker(self.store, clusters["rebalance"], clocks["rebalance"], self.queue, bus=self.bus)
        self._check = CheckClusters(
            store=self.store,  # type: ignore[arg-type]
            clusters=clusters["check"],
            queue=self.queue,
            clock=clocks["check"],
            dry_run=False,
            together=sequentially,
        )

    def scan(self) -> None:
        self._check(("demo",), plenty)


def play_skewed(outage: Outage, skews: Skews, *, ends: int, horizon: int) -> tuple[int, Counter[str], bool]:
    """Return patches, notifications by detail-type, and whether every node runs and no incident is open at the end.

    Args:
        outage: What fails, from the moment at which pods appear.
        skews: By function, how far its clock is ahead.
        ends: Seconds until every zone delivers.
        horizon: Seconds that are played.
    """
    play = _Skewed(outage, skews)
    play.timetable.at(outage.appear + ends, lambda: play.shortage.limits.update(dict.fromkeys(play.zones)))
    while play.since < horizon:
        play.step()
    running = sum(view.running for view in play.cluster.groups())
    is_well = running >= outage.pods and not play.store.load("demo").cluster_health.incidents
    return play.patches, Counter(detail_type for detail_type, _ in play.bus.published), is_well


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
