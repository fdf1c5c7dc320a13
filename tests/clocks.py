"""A zone fails and recovers while the functions' clocks differ from the API server's."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from evenkeel.application.ports import CheckResult, Clock, sequentially
from evenkeel.application.rebalancing.check import CheckClusters
from evenkeel.application.rebalancing.failure import RecordFailure
from evenkeel.domain.fleet.check_times import Chunk, SteadyState
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeBus, FakeClock, InMemoryStore, plenty
from tests.outages import Outage, Play, Who
from tests.timed import TimedQueue, TimedStack, worker

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


class _Queue(TimedQueue):
    """Also passes on what a check has found."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.found: dict[tuple[str, str], tuple[CheckResult | None, SteadyState | None]] = {}

    def request(
        self,
        cluster: str,
        reason: str,
        deduplication: str,
        found: CheckResult | None = None,
        steady: SteadyState | None = None,
    ) -> None:
        self.found[cluster, reason] = found, steady
        super().request(cluster, reason, deduplication)

    def request_checks(self, chunks: list[Chunk]) -> None:
        raise AssertionError("the cluster always answers")


class SkewedStack(TimedStack):
    """The functions, each with its own clock."""

    def __init__(self, play: Play, store: InMemoryStore, skews: Skews) -> None:
        self.store, self.bus = store, FakeBus()
        self.queue: _Queue = _Queue(play.clock)
        clocks = {name: OffClock(play.clock, skews.get(name, timedelta(0))) for name in FUNCTIONS}
        clusters: dict[str, Any] = {
            name: WirelessClusters(play.cluster.api, Life(), clock)  # type: ignore[arg-type]
            for name, clock in clocks.items()
        }
        self.receive = RecordFailure(store=store, queue=self.queue, clock=clocks["provisioning_failure"])
        self._rebalance = worker(store, clusters["rebalance"], clocks["rebalance"], self.queue, bus=self.bus)
        clusters["check"] = _Asked(clusters["check"])
        self._check = CheckClusters(
            store=store,  # type: ignore[arg-type]
            clusters=clusters["check"],
            queue=self.queue,
            clock=clocks["check"],
            dry_run=False,
            together=sequentially,
        )

    def scan(self, second: int, clusters: Any = ("demo",)) -> None:
        if second % 60 == 0:
            self._check(clusters, plenty)

    def check(self, before: Any) -> None:
        for cluster, why in self.queue.next_checks():
            before(cluster)
            self._rebalance(cluster, why, plenty, *self.queue.found.get((cluster, why), (None, None)))


class _Asked:
    """Clusters, none of which needs a run for its access."""

    def __init__(self, clusters: WirelessClusters) -> None:
        self.open, self.open_workload = clusters.open, clusters.open_workload

    def needs_run(self, _record: object) -> bool:
        return False


def play_skewed(outage: Outage, skews: Skews, *, ends: int, horizon: int) -> tuple[int, Counter[str], bool]:
    """Return patches, notifications by detail-type, and whether every node runs and no incident is open at the end.

    Args:
        outage: What fails, from the moment at which pods appear.
        skews: By function, how far its clock is ahead.
        ends: Seconds until every zone delivers.
        horizon: Seconds that are played.
    """
    play = Play(outage, Who.EVENTS)
    stack = SkewedStack(play, play.stack.store, skews)
    play.stack = stack
    while play._second < outage.appear + horizon:
        if play._second >= outage.appear + ends:
            for zone in play.cloud.limits:
                play.cloud.limits[zone] = None
        play._live()
        play._check_after()
    views = play.cluster.groups()
    running = sum(view.running for view in views)
    stored = stack.store.load("demo")
    is_well = running >= outage.pods and not stored.cluster_health.incidents
    return play.patches, Counter(detail_type for detail_type, _ in stack.bus.published), is_well
