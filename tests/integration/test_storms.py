"""No storm causes more work than its cause: two simulated hours of writers that undo changes, and 2,000 events."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

import pytest

from evenkeel.application.rebalancing.events import Failure
from evenkeel.domain.model.states import GroupState
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.world import ZONES, Pool
from tests.builders import group, key
from tests.fakes import FakeClock, FakeCluster, FakeClusters, InMemoryStore, register
from tests.sandbox_world import SandboxWorld
from tests.timed import TimedWorld

_HOUR = 3600


@dataclass(kw_only=True)
class Counted:
    """Counts of two hours. ``last`` ones are of the second hour alone."""

    checks: int
    last_checks: int
    busiest_minute: int  # checks of one cluster in a minute of the second hour
    patches: int
    last_patches: int
    written: int  # to the table
    last_written: int
    messages: int
    waited: int = 0  # seconds from the failure of another zone to its check


def two_hours(world: TimedWorld, patches: Callable[[], int]) -> Counted:
    def hour() -> tuple[int, int]:
        for _ in range(_HOUR):
            world.step()
        return patches(), sum(entry.startswith("save") for entry in world.store.journal.entries)

    first_patches, first_written = hour()
    both_patches, both_written = hour()
    minutes = Counter((cluster, second // 60) for second, cluster in world.checks if second >= _HOUR)
    return Counted(
        checks=len(world.checks),
        last_checks=minutes.total(),
        busiest_minute=max(minutes.values()),
        patches=both_patches,
        last_patches=both_patches - first_patches,
        written=both_written,
        last_written=both_written - first_written,
        messages=world.queue.sent.total(),
    )


class Contested(SandboxWorld):
    """A pool of three zones of two nodes each, with the autoscaler. ``dead``: the first zone gives no machines."""

    def __init__(self, *, dead: bool = False, minimum: int = 0, pods: int = 6) -> None:
        pool = Pool(name="workers", minimum=minimum, maximum=12, replicas=(2, 2, 2))
        timing = Timing(provision=timedelta(seconds=30))
        super().__init__(pool, timing=timing, settings=Flags(), autoscaler="cluster-autoscaler")
        self.cluster.set_demand("workers", pods)
        self.original = {zone: self.bounds(zone) for zone in ZONES}
        if dead:
            self.cloud.exhaust_zone(ZONES[0])
        self.timetable.every(10, lambda: self.cluster.step(self.clock.at))

    def put_back_bounds(self) -> None:
        """Write the bounds of a GitOps tool's repository."""
        for zone, (low, high) in self.original.items():
            self.set_bounds(zone, low, high, manager="argocd")

    def put_back_replicas(self, *replicas: int) -> None:
        """Write the replicas of a GitOps tool's repository."""
        for zone, number in zip(ZONES, replicas, strict=True):
            self.change(zone, {"spec": {"replicas": number}}, manager="argocd")

    @property
    def contested(self) -> list[str]:
        """Return the groups that Evenkeel no longer writes, because another writer puts them back."""
        states = self.store.load("demo").state.groups
        return sorted(name.name for name, state in states.items() if state.contest.contested_since is not None)

    def two_hours(self, gitops: Callable[[], None] = lambda: None) -> tuple[Counted, "Contested"]:
        """Play two hours in which a GitOps tool acts every half minute."""
        self.timetable.every(30, gitops, first=7)
        return two_hours(self, lambda: self.patches), self


def gitops_puts_bounds_back() -> tuple[Counted, Contested]:
    """Play a GitOps tool that puts the bounds of all zones back; one zone has no machines."""
    world = Contested(dead=True, pods=9)
    return world.two_hours(world.put_back_bounds)


def gitops_puts_replicas_back() -> tuple[Counted, Contested]:
    """Play a GitOps tool that wants four nodes in a zone without machines, which Evenkeel releases."""
    world = Contested(dead=True)
    return world.two_hours(lambda: world.put_back_replicas(4, 2, 2))


def gitops_puts_a_raise_back() -> tuple[Counted, Contested]:
    """Play a GitOps tool that wants six nodes where PoolMinimum is nine."""
    world = Contested(minimum=9)
    return world.two_hours(lambda: world.put_back_replicas(2, 2, 2))


def webhook_answers(status: int) -> tuple[Counted, Contested]:
    """Play a webhook that answers every patch of the group in a zone without machines."""
    world = Contested(dead=True, pods=9)
    message, name = "admission webhook denied the request", world.name_of(ZONES[0])
    world.api.faults.add(method="PATCH", path_contains=name, status=status, times=1_000_000, message=message)
    return world.two_hours()


def events(clusters: int, number: int = 2000, seconds: int = 10) -> Counted:
    """Play failure events about one group of each cluster, five minutes after the start, and one of another zone."""
    store, names = InMemoryStore(), [f"cluster-{n:03}" for n in range(clusters)]
    opened = {}
    for name in names:
        groups = [group("a", 5, running=3, bounds=(0, 5)), group("b", 3, bounds=(0, 5)), group("c", 3, bounds=(0, 5))]
        opened[name] = FakeCluster(groups)
        register(store, name, pools=[{"name": "workers", "min": 0, "max": 18}])
        store.save_group(name, key("a"), GroupState(), None)
        store.save_group(name, key("b"), GroupState(), None)
    world = TimedWorld(FakeClusters(dict(opened)), FakeClock(), store, names=names)
    start, another, share = 300, 300 + seconds // 2, number // seconds

    def notify(zone: str, about: str, id: str) -> None:
        failure = Failure(
            cluster=about,
            namespace="default",
            name=f"workers-{zone}",
            code="InsufficientInstanceCapacity",
            message="no room",
            occurred_at=world.clock.at - timedelta(seconds=2),
            id=id,
        )
        world.receive(failure)

    for count in range(share * seconds):
        world.timetable.at(start + count // share, partial(notify, "a", names[count % clusters], f"a-{count}"))
    world.timetable.at(another, lambda: notify("b", names[0], "b"))
    counted = two_hours(world, lambda: sum(len(cluster.applied) for cluster in opened.values()))
    checked = next(second for second, name in world.checks if name == names[0] and second > another)
    counted.waited = checked - another
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

_MINUTES = 60
#: checks a minute that a storm may cause in addition to the scan's
_MORE = 4


@pytest.mark.parametrize("play", [gitops_puts_bounds_back, gitops_puts_a_raise_back])
def test_what_is_put_back_is_contested_and_not_written_again(play: Callable[[], tuple[Counted, Contested]]) -> None:
    counted, world = play()
    assert world.contested
    assert counted.patches <= 30
    assert counted.last_patches == 0
    assert counted.busiest_minute <= 1 + _MORE
    assert counted.last_checks <= 1.5 * _MINUTES


def test_replicas_that_are_put_back_are_contested_and_only_bounds_follow_the_autoscaler() -> None:
    counted, world = gitops_puts_replicas_back()
    assert world.contested
    sent = world.api.requests.matching(method="PATCH", manager="evenkeel")
    assert not [patch for patch in sent[-counted.last_patches :] if "replicas" in patch.body.get("spec", {})]
    # The autoscaler removes them a quarter of an hour after each return, and they come back: two changes.
    assert counted.last_patches <= 4 * 4
    assert counted.busiest_minute <= 1 + _MORE
    assert counted.last_checks <= 1.5 * _MINUTES


@pytest.mark.parametrize("status", [500, 422])
def test_a_webhook_that_refuses_one_group_gets_one_patch_a_check(status: int) -> None:
    counted, _ = webhook_answers(status)
    assert counted.busiest_minute <= 1 + _MORE
    assert counted.last_checks <= (1 + _MORE) * _MINUTES
    assert counted.last_patches <= counted.last_checks + 2


def test_two_thousand_events_for_one_cluster_are_a_few_checks_and_delay_no_other_zone() -> None:
    counted = events(1)
    assert counted.checks - 120 <= 20
    assert counted.waited <= 20
    assert counted.written < 100
    assert (counted.last_patches, counted.last_written) == (0, 0)


def test_two_thousand_events_for_many_clusters_are_a_few_checks_of_each() -> None:
    counted = events(20)
    assert counted.checks - 20 * 120 <= 20 * 20
    assert counted.busiest_minute <= 1 + _MORE
    assert (counted.last_patches, counted.last_written) == (0, 0)
