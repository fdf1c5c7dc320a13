"""No outage ends worse with events than with scans alone, or worse with Evenkeel than without it.

An outage is played in virtual time, with events, by scans alone and without Evenkeel.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import mean
from typing import Any

import pytest

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.application.rebalancing.events import Failure
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.workload import Unscheduled, Workload
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.kube.api import Request
from sandbox.kube.autoscaler import STATUS, NodeGroup
from sandbox.kube.cloud import Cloud, Instance, LaunchError
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.errors import ApiError
from sandbox.kube.world import ZONES, Pool
from tests.crashing import WirelessClusters
from tests.sandbox_world import SandboxWorld
from tests.timed import Who
from tests.workloads import node, pod

POOL, MAXIMUM = "workers", 12
#: seconds of a step when little happens, and from which second; the step divides each period of the timetable
_LONG_STEP, _LONG_AFTER = 5, 300
#: the second in the scans' minute at which the pods appear, and that of Cluster Autoscaler's loops
_APPEAR = 13
_HORIZON = 30 * 60


@dataclass(frozen=True, kw_only=True)
class Outage:
    """The launches that the cloud refuses, and the time until others become nodes."""

    name: str
    boot: int
    pods: int = 9
    flavour: str = "cluster-api"
    limits: Sequence[int | None] = (None, None, None)  # machines that each zone has to give
    one_in: int = 0  # of so many launches one is refused, at random
    every: int = 0  # every so many launches one is refused, in the order of requests
    refuses_for: int = 0  # seconds in which every zone refuses everything
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
    """The end of the pods."""

    nodes: int  # of those that pods need, at the end
    after: int | None  # seconds until as many ran; None: none ever did
    met: bool
    surplus: int  # nodes and orders beyond the pods' need, at the worst moment
    most: int  # nodes and orders, at the worst moment
    killed: tuple[str, ...]  # machines with a node that were deleted, although the autoscaler does not scale down
    checks: int
    patches: int
    away_from: int | None = None  # seconds from the pods to the absence of the API server

    @property
    def rank(self) -> tuple[int, float]:
        """Return a rank, smaller for better results: more nodes, then sooner."""
        return -self.nodes, float("inf") if self.after is None else self.after


class _Shortage(Cloud):
    """A cloud that refuses launches as an outage says."""

    def begin(self, outage: Outage, refused: Callable[[str, LaunchError], None]) -> None:
        self.hiccup = False  # True: it refuses everything
        self._outage, self._refused, self._asked = outage, refused, 0
        self._chance = {zone: random.Random(f"{outage.seed} {zone}") for zone in self.zones}
        self.limits.update(zip(ZONES, outage.limits, strict=True))

    def launch(self, zone: str, machine_type: str | None = None) -> Instance:
        outage, limit = self._outage, self.limits[zone]
        self._asked += 1
        unlucky = bool(outage.one_in) and self._chance[zone].randrange(outage.one_in) == 0
        unlucky |= bool(outage.every) and self._asked % outage.every == 0
        if unlucky or self.hiccup:
            self.limits[zone] = 0
        try:
            return super().launch(zone, machine_type)
        except LaunchError as error:
            self._refused(zone, error)
            raise
        finally:
            self.limits[zone] = limit


class Play(SandboxWorld):
    """One outage, second by second.

    ``view``: Evenkeel may read the pods; ``reports``: it reads the autoscaler's status; ``away_from``: seconds from the
    pods until the API server goes away (None: right after Evenkeel releases replicas); ``restarts_at``: seconds from
    the pods until the autoscaler restarts and forgets its backoffs; ``in_flight``: seconds that a write of the
    autoscaler takes; ``adds``: such a write adds to the replicas that it then finds; ``window``: seconds that pass in a
    run before the patch named by ``window_before``, while controllers and autoscaler act; ``at_once``: the controllers
    act right after each patch of Evenkeel.
    """

    def __init__(
        self,
        outage: Outage,
        who: Who,
        *,
        window: int = 0,
        window_before: str = "first patch",
        at_once: bool = False,
        horizon: int = _HORIZON,
        view: bool = False,
        reports: bool = False,
        away_from: int | None = None,
        restarts_at: int | None = None,
        in_flight: int = 0,
        adds: bool = False,
    ) -> None:
        self.outage, self.horizon, self.away_from = outage, horizon, away_from
        self.window, self.window_before, self.at_once = window, window_before, at_once
        super().__init__(
            Pool(name=POOL, minimum=0, maximum=MAXIMUM, replicas=(0, 0, 0)),
            flavour=outage.flavour,
            timing=Timing(provision=timedelta(seconds=outage.boot), creation=timedelta(seconds=outage.late)),
            settings=Flags(scale_down=False, most_nodes=outage.limit, parallel=outage.parallel),
            who=who,
            on_failure=outage.on_failure,
            autoscaler="cluster-autoscaler",
            autoscaler_loop=outage.loop,
            **({"workload": {"access": {"kind": "same"}}} if view else {}),
            **({"autoscaler_status": STATUS[1]} if reports else {}),
        )
        self.shortage = _Shortage(zones=ZONES)
        self.shortage.begin(outage, self._refused)
        self.cluster.cloud = self.controllers.cloud = self.shortage
        self.killed: list[str] = []
        self._has_released = self._marked = False
        self._window_is_over = True
        self._stepped, self._known, self._views = self.clock.at, -1, self.cluster.groups()
        self.api.before.append(self._before)
        self.api.after.append(self._after)
        self._watch_deletions()
        self._prepare_autoscaler(reports=reports, restarts_at=restarts_at, in_flight=in_flight, adds=adds)
        self.timetable.at(outage.appear, self._pods_appear)

    def opened(self, clusters: WirelessClusters) -> Any:
        return _Reachable(self, clusters)

    @property
    def since(self) -> int:
        """Return the seconds since the pods appeared."""
        return self.second - self.outage.appear

    @property
    def is_away(self) -> bool:
        return self.away_from is not None and self.away_from <= self.since < self.away_from + self.outage.away

    def _pods_appear(self) -> None:
        self.cluster.set_demand(POOL, self.outage.pods)
        self.shortage.hiccup = bool(self.outage.refuses_for)
        self.timetable.at(self.outage.appear + self.outage.refuses_for, self._hiccup_ends)

    def _hiccup_ends(self) -> None:
        self.shortage.hiccup = False

    def _refused(self, zone: str, error: LaunchError) -> None:
        view = next(view for view in self._views if view.zone == zone)
        self.report(
            Failure(
                cluster="demo",
                namespace=view.namespace,
                name=view.name,
                code=error.code,
                message=error.message,
                occurred_at=self.clock.at,
                id=error.request_id,
            )
        )

    def _watch_deletions(self) -> None:
        delete = self.objects.delete

        def watched(resource: str, namespace: str, name: str, *more: Any, **named: Any) -> Any:
            if resource == self.controllers.resource("machines"):
                machine = self.objects.get(resource, namespace, name)
                if self.controllers.has_node(machine) and "deletionTimestamp" not in machine["metadata"]:
                    self.killed.append(f"{self.since} s: {name}")
            return delete(resource, namespace, name, *more, **named)

        self.objects.delete = watched  # type: ignore[method-assign]

    def _prepare_autoscaler(self, *, reports: bool, restarts_at: int | None, in_flight: int, adds: bool) -> None:
        autoscaler = self.cluster.autoscaler
        assert autoscaler is not None
        autoscaler.writes_status = reports
        scale, write_size = self.objects.scale, autoscaler._write_size

        def scale_unless_away(*arguments: Any, **named: Any) -> Any:
            if self.is_away:
                raise ApiError(503, "connection refused")
            return scale(*arguments, **named)

        def write_later(group: NodeGroup, size: int) -> bool:
            if self.is_away or not in_flight:
                return write_size(group, size)
            more, key = size - group.requested, (autoscaler._api.scalables, group.namespace, group.name)
            bounds = group.readable_bounds

            def land() -> None:
                wanted = self.objects.scale_of(*key)["spec"]["replicas"] + more if adds else size
                if bounds is not None and wanted <= bounds.max:
                    self.objects.scale(*key, wanted, manager="cluster-autoscaler")

            self.timetable.at(self.second + in_flight, land)
            return True

        self.objects.scale = scale_unless_away  # type: ignore[method-assign]
        autoscaler._write_size = write_later  # type: ignore[method-assign]
        if restarts_at is not None:
            self.timetable.at(self.outage.appear + restarts_at, autoscaler._start)
        self.timetable.every(self.outage.loop, lambda: autoscaler.step(self.clock.at))

    def workload(self) -> Workload:
        """Return pods and nodes. One pod fills a node."""
        outage, since = self.outage, self.clock.at - timedelta(seconds=self.since)
        nodes = [
            node(f"{view.name}-{i}", view.zone, group=GroupKey(outage.flavour, view.namespace, view.name))
            for view in self._views
            for i in range(view.running)
        ]
        count = outage.pods if self.since >= 0 else 0
        pods = [pod(f"p-{i}", cpu="3", node=there.name) for i, there in enumerate(nodes[:count])]
        pods += [
            pod(f"p-{i}", cpu="3", created_at=since, unscheduled=Unscheduled("Unschedulable", since))
            for i in range(len(nodes), count)
        ]
        return Workload(pods=tuple(pods), nodes=tuple(nodes))

    # -- during a run
    def check(self, cluster: str, why: str) -> None:
        self._window_is_over, self._marked = self.window == 0, False
        super().check(cluster, why)

    def _before(self, request: Request) -> None:
        if self._window_is_over or request.method != "PATCH" or request.manager != "evenkeel":
            return
        marks = "/machines/" in request.path
        due = {"first patch": True, "first mark": marks, "patch after marks": self._marked and not marks}
        self._marked |= marks
        if due[self.window_before]:
            self._window_is_over = True
            for _ in range(self.window):
                self.without_evenkeel()

    def _after(self, request: Request) -> None:
        if request.method != "PATCH" or request.manager != "evenkeel":
            return
        if self.since >= 0:
            requested = sum(view.requested for view in self.cluster.groups())
            self._has_released |= requested < sum(view.requested for view in self._views)
        if self.at_once:
            self.controllers.step(self.clock.at)

    # -- time
    def without_evenkeel(self, seconds: int = 1) -> None:
        super().without_evenkeel(seconds)
        if not self.is_away:
            self._reconcile()

    def _reconcile(self) -> None:
        """Let the controllers act if something was written, or a launch or a node is due."""
        due = (when for launch in self.controllers._launches.values() for when in (launch.joins_at, launch.next_try))
        timely = any(when is not None and self._stepped < when <= self.clock.at for when in due)
        timely |= bool(self.controllers._short_since)
        # Gardener's creation timeout counts from the machine's creation.
        if timely or self.objects._version != self._known or self.second % 60 == 0:
            self.controllers.step(self.clock.at)
            self._stepped, self._known = self.clock.at, self.objects._version
            self._views = self.cluster.groups()

    def step(self, seconds: int = 1) -> None:
        super().step(seconds)
        if self._has_released and self.away_from is None:
            self.away_from = self.since + 1

    def run(self) -> Result:
        """Play until the horizon, or until every pod has had its node for five minutes."""
        nodes, after, most, wanted = 0, None, 0, self.outage.pods
        while self.since < self.horizon:
            self.step(_LONG_STEP if self.since > _LONG_AFTER and self.second % _LONG_STEP == 0 else 1)
            most = max(most, sum(view.requested for view in self._views))
            if self.since < 0:
                continue
            running = min(wanted, sum(view.running for view in self._views))
            if running != nodes or after is None:
                nodes, after = running, self.since
            if nodes == wanted and self.since >= after + 300:
                break
        return Result(
            nodes=nodes,
            after=after,
            met=nodes == wanted,
            surplus=max(0, most - wanted),
            most=most,
            killed=tuple(self.killed),
            checks=len(self.checks),
            patches=self.patches,
            away_from=self.away_from,
        )


class _Reachable:
    """A cluster's clients, which fail while its API server is away."""

    def __init__(self, play: Play, clusters: WirelessClusters) -> None:
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

    Meanwhile cluster-autoscaler's requests fail in all zones at once (--parallel-scale-up). It backs off for five
    minutes.
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
    """Play an outage with the API server away in six ways.

    Evenkeel runs with or without a view and status, by scans alone, or not at all.
    """
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
    """Return outages that refuse one launch in four. Pods appear at three moments of a scan's minute."""
    return [
        Outage(name="one in four", flavour=flavour, boot=boot, one_in=4, seed=seed, appear=(13, 33, 53)[seed % 3])
        for seed in range(seeds)
    ]


def three_ways(outage: Outage) -> dict[Who, Result]:
    """Play an outage with events, by scans alone, and without Evenkeel."""
    return {who: Play(outage, who).run() for who in Who}


def worse(results: dict[Who, Result]) -> list[str]:
    """Return the pairs whose first member, with more of Evenkeel, ends with fewer nodes or later."""
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


CERTAIN = [outage for flavour in FLAVOURS for outage in certain(flavour, 8)]


@pytest.mark.parametrize("outage", CERTAIN, ids=lambda outage: f"{outage.flavour}: {outage.name}")
def test_neither_events_nor_evenkeel_nor_a_view_of_the_pods_makes_an_outage_worse(outage: Outage) -> None:
    results = three_ways(outage)
    assert worse(results) == []
    assert [result.killed for result in results.values()] == [(), (), ()]
    with_both = Play(outage, Who.EVENTS, view=True, reports=True).run()
    assert with_both.rank <= results[Who.EVENTS].rank
    assert (with_both.surplus, with_both.killed) == (results[Who.EVENTS].surplus, ())


@pytest.mark.parametrize("outage", away("cluster-api", 8), ids=lambda outage: outage.name)
def test_what_is_released_while_the_api_server_goes_away_is_ordered_elsewhere(outage: Outage) -> None:
    results = ways(outage)
    for way in ("with a view", "with a view and autoscaler_status", Who.SCANS):
        result = results[way]
        assert result.met
        assert result.away_from is not None
        assert result.after is not None
        assert result.after <= result.away_from + outage.away + 2 * outage.loop + 60
    assert results["with a view and autoscaler_status"].rank <= results["with a view"].rank
    assert results["without a view, with autoscaler_status"].rank <= results["without a view"].rank
    assert all(result.rank <= results[Who.NOBODY].rank for result in results.values())
    assert {(result.surplus, result.killed) for result in results.values()} == {(0, ())}


@pytest.mark.parametrize("flavour", ["gardener", "openshift"])
def test_where_owners_bound_the_zones_a_view_delays_nothing_and_the_released_are_ordered(flavour: str) -> None:
    for outage in away(flavour, 8)[::5]:
        results = ways(outage)
        assert results["with a view"].rank <= results["without a view"].rank <= results[Who.NOBODY].rank
        assert results["with a view"].surplus <= results["without a view"].surplus
        assert {result.killed for result in results.values()} == {()}
    outage = away(flavour, 8)[0]
    result = Play(outage, Who.EVENTS, view=True, horizon=150).run()
    assert result.nodes == 8
    assert (result.after or 0) <= (result.away_from or 0) + outage.away + 2 * outage.loop + 60


def test_nothing_is_ordered_twice_where_bounds_stand_on_an_object_of_their_own() -> None:
    """The autoscaler forgets its order in the dead zone, with a view and without: one node more."""
    for restarts_at in (56, 60, 66):
        play = Play(away("openshift", 8)[0], Who.EVENTS, view=True, restarts_at=restarts_at, in_flight=4, adds=True)
        assert play.run().most <= 10


@pytest.mark.parametrize(
    ("case", "restarts", "play"),
    [
        *((0, (44, 47, 56, 57, 60), {"in_flight": wait, "adds": adds}) for adds in (False, True) for wait in (0, 3, 8)),
        *((2, (46, 56, 60), {"in_flight": 4, "window": window}) for window in (2, 9)),
    ],
)
def test_nothing_is_ordered_twice_when_the_autoscaler_recovers_meanwhile(
    case: int, restarts: tuple[int, ...], play: dict[str, Any]
) -> None:
    """Its loops are 37, 47, 57… s after the pods. The pool is closed to it at 50 s, and the order is at 60 s."""
    for restarts_at in restarts:
        result = Play(away("cluster-api", 8)[case], Who.EVENTS, view=True, restarts_at=restarts_at, **play).run()
        assert (result.met, result.surplus) == (True, 0), f"it restarts after {restarts_at} s"


@pytest.mark.parametrize("limit", [9, 8, 7])
def test_a_limit_of_the_autoscalers_own_is_not_passed(limit: int) -> None:
    for outage in (away("cluster-api", 8)[0], certain("cluster-api", 8)[1]):
        result = Play(replace(outage, limit=limit), Who.EVENTS, view=True).run()
        assert (result.nodes, result.most) == (limit, limit)


def test_one_refused_launch_in_four_costs_no_node_and_no_time() -> None:
    played = [three_ways(outage) for outage in by_chance("cluster-api", 60, seeds=10)]
    assert {result.nodes for results in played for result in results.values()} == {9}
    assert {result.killed for results in played for result in results.values()} == {()}
    seconds = {who: mean(results[who].after or 0 for results in played) for who in Who}
    assert seconds[Who.EVENTS] <= seconds[Who.SCANS] <= seconds[Who.NOBODY]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_running_pod_is_killed_by_a_release_however_long_the_run_takes(flavour: str, place: str) -> None:
    for outage in (certain(flavour, 8)[0], *by_chance(flavour, 8, seeds=2)):
        for window in (3, 20):
            play = Play(outage, Who.EVENTS, window=window, window_before=place, at_once=window == 20, horizon=120)
            assert play.run().killed == ()


def test_a_zone_that_an_owner_insists_on_offering_is_not_written_again_and_again() -> None:
    result = Play(certain("openshift", 8)[1], Who.EVENTS).run()
    assert result.nodes == 9  # the last of them by Cluster Autoscaler's own timeout
    assert result.patches < 10
