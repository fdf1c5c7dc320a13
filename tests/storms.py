"""Two simulated hours of GitOps tools, webhooks and event storms: checks, patches, writes to the table and messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta

from evenkeel.application.rebalancing.events import Failure
from evenkeel.application.rebalancing.ports import Clusters
from evenkeel.domain.model.states import GroupState
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.world import ZONES, Pool, World
from tests.builders import group, key
from tests.cluster_objects import ClusterObjects
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeClock, FakeCluster, FakeClusters, InMemoryStore, register
from tests.timed import TimedStack

HOURS = 2
_GITOPS_SECONDS, _LOOP_SECONDS = 30, 10


@dataclass(kw_only=True)
class Counted:
    """Counts of two hours; ``last`` ones are of the second hour alone."""

    checks: int = 0
    last_checks: int = 0
    busiest_minute: int = 0  # checks of one cluster in a minute of the second hour
    patches: int = 0
    last_patches: int = 0
    written: int = 0  # to the table
    last_written: int = 0
    messages: int = 0
    waited: int = 0  # seconds from the failure of another zone to its check


@dataclass
class Hours:
    """Two hours of a stack, second by second: scans, due messages, and one check per cluster and second."""

    clusters: Clusters
    clock: FakeClock
    store: InMemoryStore
    patches: Callable[[], int]
    each_second: Callable[[int], None] = lambda _second: None
    names: tuple[str, ...] = ("demo",)
    second: int = 0
    checks: Counter[tuple[str, int]] = field(default_factory=Counter)  # by cluster and minute
    checked: dict[str, int] = field(default_factory=dict)  # second of the last check

    def __post_init__(self) -> None:
        self.stack = TimedStack(self.clusters, self.clock, self.store)

    def run(self) -> Counted:
        counted = Counted()
        half = HOURS * 1800
        for _ in range(HOURS * 3600):
            self.second += 1
            self.clock.at += timedelta(seconds=1)
            self.each_second(self.second)
            self.stack.scan(self.second, self.names)
            self.stack.check(before=self._begin_check)
            if self.second == half:
                counted.last_patches, counted.last_written = -self.patches(), -self._written()
        counted.checks = self.checks.total()
        late = {when: number for when, number in self.checks.items() if when[1] >= half // 60}
        counted.last_checks, counted.busiest_minute = sum(late.values()), max(late.values())
        counted.patches, counted.written = self.patches(), self._written()
        counted.last_patches += counted.patches
        counted.last_written += counted.written
        counted.messages = self.stack.queue.sent.total()
        return counted

    def _begin_check(self, cluster: str) -> None:
        self.checks[cluster, self.second // 60] += 1
        self.checked[cluster] = self.second

    def _written(self) -> int:
        return sum(entry.startswith("save") for entry in self.store.journal.entries)


class Contested(ClusterObjects):
    """A pool of three zones of two nodes each beside the autoscaler. ``dead``: the first zone gives no machines."""

    def __init__(self, *, dead: bool = False, minimum: int = 0, pods: int = 6) -> None:
        self.clock = FakeClock()
        pool = Pool(name="workers", minimum=minimum, maximum=12, replicas=(2, 2, 2))
        world = World(
            clusters=["cluster-api"],
            pools={"cluster-api": [pool]},
            clock=self.clock.now,
            timing=Timing(provision=timedelta(seconds=30)),
            settings=Flags(),
        )
        self.cluster = world.clusters["cluster-api"]
        super().__init__(self.cluster)
        self.cluster.set_demand("workers", pods)
        self.original = {zone: self.bounds(zone) for zone in ZONES}
        if dead:
            self.cloud.exhaust_zone(ZONES[0])
        self.gitops: Callable[[], None] = lambda: None
        store = InMemoryStore()
        register(store, autoscaler="cluster-autoscaler")
        clusters = WirelessClusters(self.api, Life(), self.clock)
        self.hours = Hours(clusters, self.clock, store, self._patches, self._second)

    def _patches(self) -> int:
        return self.api.requests.count(method="PATCH", manager="evenkeel")

    def _second(self, second: int) -> None:
        if second % _GITOPS_SECONDS == 7:
            self.gitops()
        if second % _LOOP_SECONDS == 0:
            self.cluster.step(self.clock.at)

    def put_back_bounds(self) -> None:
        """Write the bounds of a GitOps tool's repository."""
        for zone, (low, high) in self.original.items():
            self.set_bounds(zone, low, high, manager="argocd")

    def put_back_replicas(self, *replicas: int) -> None:
        """Write the replicas of a GitOps tool's repository."""
        for zone, number in zip(ZONES, replicas, strict=True):
            self.change(zone, {"spec": {"replicas": number}}, manager="argocd")

    def answer(self, status: int) -> None:
        """Let a webhook answer every patch of the first group with this status."""
        message = "admission webhook denied the request"
        name = self.name_of(ZONES[0])
        self.api.faults.add(method="PATCH", path_contains=name, status=status, times=1_000_000, message=message)

    @property
    def contested(self) -> list[str]:
        """Return the groups that Evenkeel no longer writes, because another writer puts them back."""
        states = self.hours.store.load("demo").state.groups
        return sorted(name.name for name, state in states.items() if state.contest.contested_since is not None)


def gitops_puts_bounds_back() -> tuple[Counted, Contested]:
    """Play a GitOps tool that puts the bounds of all zones back; one zone has no machines."""
    world = Contested(dead=True, pods=9)
    world.gitops = world.put_back_bounds
    return world.hours.run(), world


def gitops_puts_replicas_back() -> tuple[Counted, Contested]:
    """Play a GitOps tool that wants four nodes in a zone without machines, which we release."""
    world = Contested(dead=True)
    world.gitops = lambda: world.put_back_replicas(4, 2, 2)
    return world.hours.run(), world


def gitops_puts_a_raise_back() -> tuple[Counted, Contested]:
    """Play a GitOps tool that wants six nodes where PoolMinimum is nine."""
    world = Contested(minimum=9)
    world.gitops = lambda: world.put_back_replicas(2, 2, 2)
    return world.hours.run(), world


def webhook_answers(status: int) -> tuple[Counted, Contested]:
    """Play a webhook that answers every patch of the group in a zone without machines."""
    world = Contested(dead=True, pods=9)
    world.answer(status)
    return world.hours.run(), world


def events(clusters: int, number: int = 2000, seconds: int = 10) -> Counted:
    """Play failure events about one group of each cluster, five minutes after the start, and one of another zone."""
    clock, store = FakeClock(), InMemoryStore()
    names = tuple(f"cluster-{n:03}" for n in range(clusters))
    opened = {}
    for name in names:
        groups = [
            group("a", 5, running=3, bounds=(0, 5)),
            group("b", 3, bounds=(0, 5)),
            group("c", 3, bounds=(0, 5)),
        ]
        opened[name] = FakeCluster(groups)
        policy = {"pools": [{"name": "workers", "min": 0, "max": 18}]}
        register(store, name, **policy)
        store.save_group(name, key("a"), GroupState(), None)
        store.save_group(name, key("b"), GroupState(), None)
    start, waited = 300, 0

    def notify(zone: str, about: str, id: str) -> None:
        failure = Failure(
            cluster=about,
            namespace="default",
            name=f"workers-{zone}",
            code="InsufficientInstanceCapacity",
            message="no room",
            occurred_at=clock.at - timedelta(seconds=2),
            id=id,
        )
        hours.stack.receive(failure)

    def each_second(second: int) -> None:
        nonlocal waited
        if start <= second < start + seconds:
            share = number // seconds
            for n in range(share):
                count = (second - start) * share + n
                notify("a", names[count % clusters], f"a-{count}")
        if second == start + seconds // 2:
            notify("b", names[0], "b")
        if second > start + seconds // 2 and not waited and hours.checked.get(names[0], 0) > start + seconds // 2:
            waited = second - 1 - start - seconds // 2

    hours = Hours(
        FakeClusters(dict(opened)),
        clock,
        store,
        lambda: sum(len(cluster.applied) for cluster in opened.values()),
        each_second,
        names,
    )
    counted = hours.run()
    counted.waited = waited
    return counted


STORMS: dict[str, Callable[[], tuple[Counted, Contested | None]]] = {
    "GitOps puts bounds back every 30 s": gitops_puts_bounds_back,
    "GitOps puts back replicas that we release": gitops_puts_replicas_back,
    "GitOps puts back replicas that we raise to PoolMinimum": gitops_puts_a_raise_back,
    "a webhook answers 500 to every patch of one group": lambda: webhook_answers(500),
    "a webhook answers 422 to every patch of one group": lambda: webhook_answers(422),
    "2,000 failure events in 10 s for one cluster": lambda: (events(1), None),
    "2,000 failure events in 10 s for 500 clusters": lambda: (events(500), None),
}
