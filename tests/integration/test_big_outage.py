"""An outage of 300 node groups with 3,000 stuck machines is fenced in the first run and released with the second."""

import heapq
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from evenkeel.adapters.thread_pool import THREADS
from sandbox.kube.api import Request
from sandbox.kube.world import ZONES, Pool
from tests.fakes import FakeClock
from tests.sandbox_world import SandboxWorld
from tests.timed import worker

_PATCH_SECONDS, _INVOCATION = 0.4, 60.0
_DEAD = ZONES[:2]


@dataclass
class Workers:
    """Parallel tasks in simulated time: the first free worker, each with its own clock, takes the next one."""

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


class BigOutage(SandboxWorld):
    """Pools of three zones, of which two have no more machines; ``stuck`` machines wait in each of those."""

    def __init__(self, *, pools: int = 150, stuck: int = 10, workers: int = THREADS) -> None:
        made = [Pool(name=f"pool-{n:03}", minimum=0, maximum=4 * stuck, replicas=(0, 0, 1)) for n in range(pools)]
        super().__init__(*made, autoscaler="cluster-autoscaler")
        for zone in _DEAD:
            self.cloud.exhaust_zone(zone)
        for name in self._dead_groups():
            self.objects.scale(self.scalables, self.namespace, name, stuck, manager="cluster-autoscaler")
        self._reconcile()
        self.marked: Counter[str] = Counter()  # delete marks, by machine
        self.sent: list[bool] = []  # patches of a run: True is a mark
        self.api.before.append(self._patched)
        together = Workers(self.clock, workers)
        self.rebalance = worker(self.store, self.clusters, self.clock, self.queue, together=together)

    def _dead_groups(self) -> dict[str, tuple[int, int]]:
        return {
            item["metadata"]["name"]: (
                item["spec"].get("replicas", 0),
                int(item["metadata"]["annotations"][self.machine_api.max_key]),
            )
            for item in self.objects.list(self.scalables)
            if item["metadata"]["name"].endswith(_DEAD)
        }

    def _patched(self, request: Request) -> None:
        if request.method == "PATCH" and request.manager == "evenkeel":
            self.clock.at += timedelta(seconds=_PATCH_SECONDS)
            is_mark = "/machines/" in request.path
            self.sent.append(is_mark)
            if is_mark:
                self.marked[request.path.rpartition("/")[2]] += 1

    def _reconcile(self) -> None:
        self.clock.at += timedelta(seconds=30)
        for _ in range(2):
            self.controllers.step(self.clock.at)

    def run(self) -> Run:
        started, self.sent = self.clock.at, []
        self.rebalance("demo", "scan", lambda: _INVOCATION - (self.clock.at - started).total_seconds())
        marks = sum(self.sent)
        fences = self.sent.index(True) if marks else len(self.sent)
        left = self._dead_groups().values()
        done = Run(
            seconds=(self.clock.at - started).total_seconds(),
            fences=fences,
            marks=marks,
            groups=len(self.sent) - marks - fences,
            open_groups=sum(high > requested for requested, high in left),
            stuck=sum(requested for requested, _ in left),
        )
        self._reconcile()
        return done


def test_every_fence_is_published_in_the_first_run_and_no_machine_is_marked_twice() -> None:
    outage = BigOutage()
    first = outage.run()
    assert (first.fences, first.open_groups) == (300, 0)
    assert first.marks > 1000
    assert first.seconds < _INVOCATION
    second = outage.run()
    assert (second.open_groups, second.stuck) == (0, 0)
    assert second.seconds < _INVOCATION
    assert len(outage.marked) == 3000
    assert set(outage.marked.values()) == {1}
    assert outage.run().groups == 0


def test_one_after_the_other_fences_come_before_the_first_mark_as_well() -> None:
    outage = BigOutage(pools=80, stuck=2, workers=1)
    first = outage.run()
    assert (first.open_groups > 0, first.marks) == (True, 0)
    second = outage.run()
    assert second.open_groups == 0
    assert second.marks > 0
