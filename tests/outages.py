"""A shortage of machines in simulated time, with events, by scans alone and without Evenkeel."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, cast

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.application.rebalancing.events import Failure
from evenkeel.application.rebalancing.ports import Clusters
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.workload import Unscheduled, Workload
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.kube.api import Request
from sandbox.kube.autoscaler import STATUS, NodeGroup
from sandbox.kube.cloud import Cloud, Instance, LaunchError
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.errors import ApiError
from sandbox.kube.world import ZONES, Pool, World
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeClock, InMemoryStore, register
from tests.timed import TimedStack
from tests.workloads import node, pod

POOL, MAXIMUM = "workers", 12
#: seconds of a step: short while things happen, longer once they hardly do
_STEP, _LONG_STEP, _LONG_AFTER = 1, 5, 300
#: from a refused launch to the function that receives it: exporter, EventBridge and Lambda
_TRAVEL = 2
#: the moment within the minute of scans at which the pods appear, and that of Cluster Autoscaler's loops
_APPEAR = 13
_HORIZON = 30 * 60


class Who(StrEnum):
    """Who manages the pool."""

    EVENTS = "with events"
    SCANS = "scans of 60 s only"
    NOBODY = "no Evenkeel"


@dataclass(frozen=True, kw_only=True)
class Outage:
    """What the cloud refuses, and how long what it accepts takes to become a node."""

    name: str
    boot: int
    pods: int = 9
    flavour: str = "cluster-api"
    limits: Sequence[int | None] = (None, None, None)  # machines that each zone has to give
    one_in: int = 0  # of so many launches one is refused, by chance
    every: int = 0  # every so many launches one is refused, in the order in which they are asked for
    refuses_for: int = 0  # seconds in which every zone refuses everything
    replicas: Sequence[int] = (0, 0, 0)
    on_failure: str = "release"
    seed: int = 0
    appear: int = _APPEAR
    away: int = 0  # seconds for which the API server is away, from the moment at which replicas were released
    late: int = 0  # seconds from replicas to their machine objects
    loop: int = 10  # seconds of the autoscaler's loop
    limit: int | None = None  # the autoscaler's own limit of all nodes
    parallel: bool = False  # the autoscaler orders in all zones at once


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of the pods."""

    nodes: int  # of those that pods want, at the end
    after: int | None  # seconds until as many ran; None: none ever did
    met: bool
    surplus: int  # nodes and orders beyond what pods want, at the worst moment
    most: int  # nodes and orders, at the worst moment
    killed: tuple[str, ...]  # machines with a node that went although nobody had scaled down
    checks: int
    patches: int
    away_from: int | None = None  # seconds from the pods to the absence of the API server

    @property
    def rank(self) -> tuple[int, float]:
        """Better is less: more nodes, and as many sooner."""
        return -self.nodes, float("inf") if self.after is None else self.after


class _Shortage(Cloud):
    """A cloud that refuses launches as an outage says."""

    def prepare(self, outage: Outage, clock: FakeClock) -> None:
        self._outage, self._clock = outage, clock
        self._chance = {zone: random.Random(f"{outage.seed} {zone}") for zone in self.zones}
        self._from = clock.at
        self._asked = 0
        self.refused: list[tuple[str, datetime, LaunchError]] = []
        for zone, limit in zip(ZONES, outage.limits, strict=True):
            self.limits[zone] = limit

    def launch(self, zone: str, machine_type: str | None = None) -> Instance:
        outage = self._outage
        unlucky = bool(outage.one_in) and self._chance[zone].randrange(outage.one_in) == 0
        hiccup = self._clock.at < self._from + timedelta(seconds=outage.refuses_for)
        self._asked += 1
        unlucky |= bool(outage.every) and self._asked % outage.every == 0
        limit = self.limits[zone]
        if unlucky or hiccup:
            self.limits[zone] = 0
        try:
            return super().launch(zone, machine_type)
        except LaunchError as error:
            self.refused.append((zone, self._clock.at, error))
            raise
        finally:
            self.limits[zone] = limit


class _Away:
    """The ways to a cluster, closed while its API server is away."""

    def __init__(self, play: "Play", clusters: WirelessClusters) -> None:
        self._play, self._clusters = play, clusters

    def open(self, *arguments: Any, **named: Any) -> Any:
        if self._play.is_away:
            raise ClusterUnavailableError("demo: connection refused")
        return self._clusters.open(*arguments, **named)

    def open_workload(self, *_: Any, **__: Any) -> Any:
        if self._play.is_away:
            raise ClusterUnavailableError("demo: connection refused")
        return self

    def read(self, _machines: object, *, judges_nodes: bool) -> Workload:
        assert judges_nodes in (False, True)
        return self._play.workload()


@dataclass
class Play:
    """One outage, second by second.

    ``view``: Evenkeel may read the pods. ``reports``: it reads the autoscaler's status. ``away_from``: when the API
    server goes away where Evenkeel releases nothing. ``restarts_at``: when the autoscaler starts anew, and forgets its
    backoffs. ``in_flight``: seconds until a write of the autoscaler arrives; ``adds``: it raises what it finds then,
    and does not set what it wanted. All three in seconds from the pods.
    ``window`` seconds pass between a check and its first patch, its first delete mark or the patch after the marks, as
    ``window_before`` says; the controllers and the autoscaler live on meanwhile. ``at_once``: the controllers act right
    after each patch of ours.
    """

    outage: Outage
    who: Who
    window: int = 0
    window_before: str = "first patch"
    at_once: bool = False
    horizon: int = _HORIZON
    view: bool = False
    reports: bool = False
    away_from: int | None = None
    restarts_at: int | None = None
    in_flight: int = 0
    adds: bool = False
    fields: dict[str, Any] = field(default_factory=dict)  # further ones of the record
    killed: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        outage = self.outage
        self.clock = FakeClock()
        flavour = outage.flavour
        pool = Pool(name=POOL, minimum=0, maximum=MAXIMUM, replicas=outage.replicas)
        world = World(
            clusters=[flavour],
            pools={flavour: [pool]},
            clock=self.clock.now,
            timing=Timing(provision=timedelta(seconds=outage.boot), creation=timedelta(seconds=outage.late)),
            settings=Flags(scale_down=False, most_nodes=outage.limit, parallel=outage.parallel),
        )
        self.cluster = world.clusters[flavour]
        self.objects = self.cluster.store
        self.cloud = _Shortage(zones=ZONES)
        self.cloud.prepare(outage, self.clock)
        self.cluster.cloud = self.cluster.controllers.cloud = self.cloud
        store = InMemoryStore()
        fields: dict[str, Any] = {"autoscaler": "cluster-autoscaler", "autoscaler_loop": outage.loop, **self.fields}
        if self.view:
            fields["workload"] = {"access": {"kind": "same"}}
        if self.reports:
            fields["autoscaler_status"] = STATUS[1]
        register(store, flavours=[flavour], on_failure=outage.on_failure, **fields)
        clusters = _Away(self, WirelessClusters(self.cluster.api, Life(), self.clock))
        self.store = store
        self.stack = TimedStack(cast("Clusters", clusters), self.clock, store)
        self.checks = 0
        self._second = 0
        self.is_away = False
        self._has_released = False
        if self.away_from is not None:
            self.away_from += outage.appear
        self._landing: list[tuple[int, Callable[[], None]]] = []
        self._prepare_autoscaler()
        self._stepped, self._known, self._views = self.clock.at, -1, self.cluster.groups()
        self._received = 0
        self._marked = False
        self._slipped = True
        self.cluster.api.before.append(self._before)
        self.cluster.api.after.append(self._after)
        delete = self.objects.delete

        def watched(resource: str, namespace: str, name: str, *more: Any, **named: Any) -> Any:
            if resource == self.cluster.controllers.resource("machines"):
                machine = self.objects.get(resource, namespace, name)
                if self.cluster.controllers.has_node(machine) and "deletionTimestamp" not in machine["metadata"]:
                    self.killed.append(f"{self._second - outage.appear} s: {name}")
            return delete(resource, namespace, name, *more, **named)

        self.objects.delete = watched  # type: ignore[method-assign]

    # -- the autoscaler, and the pods
    def _prepare_autoscaler(self) -> None:
        autoscaler = self.cluster.autoscaler
        assert autoscaler is not None
        autoscaler.writes_status = self.reports
        scale, write_size = self.objects.scale, autoscaler._write_size

        def scale_unless_away(*arguments: Any, **named: Any) -> Any:
            if self.is_away:
                raise ApiError(503, "connection refused")
            return scale(*arguments, **named)

        def write_later(group: NodeGroup, size: int) -> bool:
            if self.is_away or not self.in_flight:
                return write_size(group, size)
            more, key = size - group.requested, (autoscaler._api.scalables, group.namespace, group.name)
            bounds = group.readable_bounds

            def land() -> None:
                live = self.objects.scale_of(*key)["spec"]["replicas"]
                wanted = live + more if self.adds else size
                if bounds is not None and wanted <= bounds.max:
                    self.objects.scale(*key, wanted, manager="cluster-autoscaler")

            self._landing.append((self._second + self.in_flight, land))
            return True

        self.objects.scale = scale_unless_away  # type: ignore[method-assign]
        autoscaler._write_size = write_later  # type: ignore[method-assign]

    def workload(self) -> Workload:
        """Pods and nodes: one pod fills a node."""
        outage, since = self.outage, self.clock.at - timedelta(seconds=self._second - self.outage.appear)
        nodes = [
            node(f"{view.name}-{i}", view.zone, group=GroupKey(outage.flavour, view.namespace, view.name))
            for view in self._views
            for i in range(view.running)
        ]
        count = outage.pods if self._second >= outage.appear else 0
        pods = [pod(f"p-{i}", cpu="3", node=there.name) for i, there in enumerate(nodes[:count])]
        pods += [
            pod(f"p-{i}", cpu="3", created_at=since, unscheduled=Unscheduled("Unschedulable", since))
            for i in range(len(nodes), count)
        ]
        return Workload(pods=tuple(pods), nodes=tuple(nodes))

    # -- what happens while a run is under way
    def _before(self, request: Request) -> None:
        if self._slipped or request.method != "PATCH" or request.manager != "evenkeel":
            return
        marks = "/machines/" in request.path
        due = {"first patch": True, "first mark": marks, "patch after marks": self._marked and not marks}
        self._marked |= marks
        if due[self.window_before]:
            self._slipped = True
            for _ in range(self.window):
                self._live()

    def _after(self, request: Request) -> None:
        if request.method == "PATCH" and request.manager == "evenkeel" and self._second >= self.outage.appear:
            requested = sum(view.requested for view in self.cluster.groups())
            self._has_released |= requested < sum(view.requested for view in self._views)
        if request.method == "PATCH" and request.manager == "evenkeel" and self.at_once:
            self.cluster.controllers.step(self.clock.at)

    # -- time
    def _live(self) -> None:
        since = self._second - self.outage.appear
        step = _LONG_STEP if since > _LONG_AFTER and self._second % _LONG_STEP == 0 else _STEP
        self.clock.at += timedelta(seconds=step)
        self._second += step
        if self._second == self.outage.appear:
            self.cluster.set_demand(POOL, self.outage.pods)
            self.cloud.prepare(self.outage, self.clock)
            self._received = 0
        outage, autoscaler = self.outage, self.cluster.autoscaler
        assert autoscaler is not None
        if outage.away and self.away_from is not None:
            self.is_away = self.away_from <= self._second < self.away_from + outage.away
        if self.restarts_at is not None and self._second == outage.appear + self.restarts_at:
            autoscaler._start()
        if self._second % outage.loop == 0:
            autoscaler.step(self.clock.at)
        landing, self._landing = self._landing, [each for each in self._landing if each[0] > self._second]
        for due, land in landing:
            if due <= self._second:
                land()
        if not self.is_away:
            self._reconcile()

    def _reconcile(self) -> None:
        """The controllers' work, where there is any: something was written, or a launch or a node is due."""
        controllers = self.cluster.controllers
        due = (when for launch in controllers._launches.values() for when in (launch.joins_at, launch.next_try))
        timely = any(when is not None and self._stepped < when <= self.clock.at for when in due)
        timely |= bool(controllers._short_since)
        # Gardener's creation timeout counts from the machine's creation.
        if timely or self.objects._version != self._known or self._second % 60 == 0:
            controllers.step(self.clock.at)
            self._stepped, self._known = self.clock.at, self.objects._version
            self._views = self.cluster.groups()

    def _check_after(self) -> None:
        if self.who is Who.NOBODY:
            return
        self.stack.scan(self._second)
        while self.who is Who.EVENTS and self._received < len(self.cloud.refused):
            zone, at, error = self.cloud.refused[self._received]
            if self.clock.at < at + timedelta(seconds=_TRAVEL):
                break
            self._received += 1
            view = next(view for view in self.cluster.groups() if view.zone == zone)
            self.stack.receive(
                Failure(
                    cluster="demo",
                    namespace=view.namespace,
                    name=view.name,
                    code=error.code,
                    message=error.message,
                    occurred_at=at,
                    id=error.request_id,
                )
            )
        self.stack.check(before=self._begin_check)
        if self._has_released and self.away_from is None:
            self.away_from = self._second + 1

    def _begin_check(self, cluster: str) -> None:
        self.checks += 1
        self._slipped, self._marked = self.window == 0, False

    @property
    def patches(self) -> int:
        return self.cluster.api.requests.count(method="PATCH", manager="evenkeel")

    def run(self) -> Result:
        """Until the horizon, or until every pod has had its node for five minutes."""
        outage = self.outage
        nodes, after, surplus, most = 0, None, 0, 0
        while self._second < outage.appear + self.horizon:
            self._live()
            self._check_after()
            views = self._views
            wanted = outage.pods if self._second >= outage.appear else sum(outage.replicas)
            running = min(wanted, sum(view.running for view in views))
            most = max(most, sum(view.requested for view in views))
            surplus = max(surplus, sum(view.requested for view in views) - wanted)
            if self._second < outage.appear:
                continue
            if running != nodes or after is None:
                nodes, after = running, self._second - outage.appear
            if nodes == wanted and self._second - outage.appear >= (after or 0) + 300:
                break
        return Result(
            nodes=nodes,
            after=after,
            met=nodes == outage.pods,
            surplus=surplus,
            most=most,
            killed=tuple(self.killed),
            checks=self.checks,
            patches=self.patches,
            away_from=None if self.away_from is None else self.away_from - outage.appear,
        )


BOOTS = (8, 60, 240)
FLAVOURS = ("cluster-api", "gardener", "openshift")
SEEDS = 40
WINDOWS = (0, 1, 2, 5, 10, 20)
PLACES = ("first patch", "first mark", "patch after marks")


def certain(flavour: str, boot: int) -> list[Outage]:
    common = Outage(name="", flavour=flavour, boot=boot)
    return [
        replace(common, name="room for 0, 3 and 5, 9 pods", limits=(0, 3, 5)),
        replace(common, name="one zone refuses everything, 9 pods", limits=(0, None, None)),
        replace(common, name="all zones refuse for 10 s, 12 pods", pods=12, refuses_for=10),
        replace(common, name="every fourth launch is refused, 9 pods", every=4),
    ]


def away(flavour: str, boot: int) -> list[Outage]:
    """Return outages in which one zone refuses everything and the API server goes away right after the release.

    cluster-autoscaler's requests fail meanwhile, in all zones at once (--parallel-scale-up), and it backs off from them
    for five minutes.
    """
    return [
        Outage(
            name=f"API server away for {seconds} s, machine objects {late} s late, loop of {loop} s",
            flavour=flavour,
            boot=boot,
            limits=(0, None, None),
            away=seconds,
            late=late,
            loop=loop,
            parallel=True,
        )
        for seconds in (20, 30)
        for late in (0, 3)
        for loop in (10, 30)
    ]


def ways(outage: Outage) -> dict[str, Result]:
    """Play an outage with the API server away: with a view of the pods, without, by scans, without Evenkeel."""
    seen = Play(outage, Who.EVENTS, view=True).run()
    return {
        "with a view": seen,
        "with a view and autoscaler_status": Play(outage, Who.EVENTS, view=True, reports=True).run(),
        "without a view": Play(outage, Who.EVENTS).run(),
        "without a view, with autoscaler_status": Play(outage, Who.EVENTS, reports=True).run(),
        Who.SCANS: Play(outage, Who.SCANS, view=True).run(),  # with a view
        Who.NOBODY: Play(outage, Who.NOBODY, away_from=seen.away_from).run(),
    }


def by_chance(flavour: str, boot: int, seeds: int = SEEDS) -> list[Outage]:
    """Return outages that refuse one launch in four; pods appear at three moments of a scan's minute."""
    return [
        Outage(name="one in four", flavour=flavour, boot=boot, one_in=4, seed=seed, appear=(13, 33, 53)[seed % 3])
        for seed in range(seeds)
    ]


def three_ways(outage: Outage) -> dict[Who, Result]:
    """Play an outage with events, by scans alone, and without Evenkeel."""
    return {who: Play(outage, who).run() for who in Who}


def worse(results: dict[Who, Result]) -> list[str]:
    """Return comparisons that got worse: fewer nodes, or as many later, with events or with Evenkeel."""
    pairs = ((Who.EVENTS, Who.SCANS), (Who.EVENTS, Who.NOBODY), (Who.SCANS, Who.NOBODY))
    return [f"{one} is worse than {other}" for one, other in pairs if results[one].rank > results[other].rank]


def windows(flavour: str, seeds: int = 5) -> Iterator[tuple[str, int, bool, Outage]]:
    """Yield where time passes within a run, how much, whether controllers act at once, and the outage."""
    outages = [*certain(flavour, 8), *by_chance(flavour, 8, seeds), *by_chance(flavour, 20, seeds)]
    for at_once in (False, True):
        for place in PLACES:
            for window in WINDOWS:
                for outage in outages:
                    yield place, window, at_once, outage
