"""An outage of 3,000 stuck machines in 300 groups of one cluster, 0.4 s per patch."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from evenkeel.adapters.thread_pool import THREADS
from sandbox.kube.api import Request
from sandbox.kube.world import ZONES, Pool, World
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeClock, FakeQueue, InMemoryStore, register
from tests.timed import worker

PATCH_SECONDS = 0.4
INVOCATION = 60.0
_SCALABLES = "machinedeployments.cluster.x-k8s.io"


@dataclass
class Workers:
    """Parallel tasks in simulated time: the first free worker takes the next one, on a clock of its own."""

    clock: FakeClock
    number: int

    def __call__(self, tasks: Sequence[Callable[[], None]]) -> None:
        free = [self.clock.at] * self.number
        for task in tasks:
            self.clock.at = heapq.heappop(free)
            task()
            heapq.heappush(free, self.clock.at)
        self.clock.at = max(free)


@dataclass(frozen=True, kw_only=True)
class Run:
    seconds: float
    fences: int  # patches of groups before the first machine is marked
    marks: int
    groups: int  # patches of groups after that
    open_groups: int  # dead groups whose max still lets them grow
    stuck: int


class BigOutage:
    """Pools of three zones, of which two have no more machines; ``stuck`` machines wait in each of those."""

    def __init__(self, *, pools: int = 150, stuck: int = 10, workers: int = THREADS) -> None:
        self.clock = FakeClock()
        made = [Pool(name=f"pool-{n:03}", minimum=0, maximum=4 * stuck, replicas=(0, 0, 1)) for n in range(pools)]
        world = World(clusters=["cluster-api"], pools={"cluster-api": made}, clock=self.clock.now, settings=None)
        self.cluster = world.clusters["cluster-api"]
        self.objects = self.cluster.store
        self.dead = ZONES[:2]
        for zone in self.dead:
            self.cluster.cloud.exhaust_zone(zone)
        for name in self._dead_groups():
            namespace = self.cluster.namespace
            self.objects.scale(_SCALABLES, namespace, name, stuck, manager="cluster-autoscaler")
        self._live()
        self.store = InMemoryStore()
        register(self.store, autoscaler="cluster-autoscaler")
        self.marked: Counter[str] = Counter()  # delete marks, by machine
        self._before_marks = self._after_marks = 0
        self.cluster.api.before.append(self._patched)
        clusters = WirelessClusters(self.cluster.api, Life(), self.clock)
        self._rebalance = worker(self.store, clusters, self.clock, FakeQueue(), together=Workers(self.clock, workers))

    def _dead_groups(self) -> dict[str, tuple[int, int]]:
        key = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
        return {
            item["metadata"]["name"]: (item["spec"].get("replicas", 0), int(item["metadata"]["annotations"][key]))
            for item in self.objects.list(_SCALABLES)
            if item["metadata"]["name"].endswith(self.dead)
        }

    def _patched(self, request: Request) -> None:
        if request.method != "PATCH" or request.manager != "evenkeel":
            return
        self.clock.at += timedelta(seconds=PATCH_SECONDS)
        if "/machines/" in request.path:
            self.marked[request.path.rpartition("/")[2]] += 1
        elif sum(self.marked.values()) == self._marks_before:
            self._before_marks += 1
        else:
            self._after_marks += 1

    def _live(self) -> None:
        self.clock.at += timedelta(seconds=30)
        for _ in range(2):
            self.cluster.controllers.step(self.clock.at)

    def run(self) -> Run:
        started = self.clock.at
        self._marks_before = sum(self.marked.values())
        self._before_marks = self._after_marks = 0
        self._rebalance("demo", "scan", lambda: INVOCATION - (self.clock.at - started).total_seconds())
        seconds = (self.clock.at - started).total_seconds()
        left = self._dead_groups().values()
        done = Run(
            seconds=seconds,
            fences=self._before_marks,
            marks=sum(self.marked.values()) - self._marks_before,
            groups=self._after_marks,
            open_groups=sum(high > requested for requested, high in left),
            stuck=sum(requested for requested, _ in left),
        )
        self._live()
        return done
