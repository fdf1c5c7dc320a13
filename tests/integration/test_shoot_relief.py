"""A zone of a Gardener pool without machines, with and without relief by the Shoot's maximum."""

import contextlib
from datetime import timedelta
from typing import Any, cast

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.cluster import KubernetesCluster
from evenkeel.adapters.kubernetes.garden import Garden
from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.errors import EvenkeelError, LeaseHeldError
from evenkeel.application.ports import Queue, Remaining, sequentially
from evenkeel.application.rebalancing.check import CheckClusters
from evenkeel.application.rebalancing.events import Failure
from evenkeel.application.rebalancing.failure import RecordFailure
from evenkeel.application.rebalancing.ports import Cluster
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.relief.model import Relief, ReliefStep
from evenkeel.record import ClusterRecord
from evenkeel_cli.simulation.autoscaler_model import Flags
from sandbox.admission import FILE, policies
from sandbox.kube.api import Request
from sandbox.kube.cloud import Instance, LaunchError
from sandbox.kube.controllers.gardener import GardenerControllers
from sandbox.kube.controllers.objects import arguments_of
from sandbox.kube.controllers.shoots import MACHINE_DEPLOYMENTS, SHOOTS
from sandbox.kube.world import ZONES, Pool, World
from tests.crashing import How, KilledError, Life, Runs, WirelessClusters, _Wireless, harmed_at
from tests.fakes import FakeClock, FakeQueue, plenty, register

Object = dict[str, Any]
KIND, POOL, A = "gardener-plain", "p", ZONES[0]
ACCESS = {"kind": "kubeconfig", "secret": "evenkeel/garden"}


class WithGarden(WirelessClusters):
    """Clusters whose garden is the same simulated server."""

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> Cluster:
        api = KubernetesApi(record.id, cast("Any", _Wireless(self.api, self.life)), None, self.clock)
        relief = record.shoot_relief
        others = {} if relief is None else {ReliefStep: Garden(lambda: api, relief, remaining)}
        return KubernetesCluster(api, record, remaining, consistent=consistent, others=others)


class Scene(Runs):
    """A pool of three zones with one node each and room for nine. The cluster acts every ten seconds."""

    def __init__(self, *, relief: bool = True, scale_down: bool = False, **record: Any) -> None:
        super().__init__()
        self.clock = FakeClock()
        pools = {KIND: [Pool(name=POOL, minimum=0, maximum=9, replicas=(1, 1, 1))]}
        self.world = World(clusters=[KIND], pools=pools, clock=self.clock.now, settings=Flags(scale_down=scale_down))
        self.cluster = self.world.clusters[KIND]
        self.store, controllers = self.cluster.store, self.cluster.controllers
        assert isinstance(controllers, GardenerControllers)
        self.api = self.cluster.api
        given = {"shoot_relief": {"garden": ACCESS}} if relief else {}
        register(self.memory, flavours=["gardener"], **given, **record)
        #: replicas that the Worker's actuator has removed, by machine deployment
        self.taken: list[tuple[str, int, int]] = []
        self.written: list[int] = []  # the Shoot's maximum after each write of Evenkeel
        self._maximum = 9
        self._refused: list[tuple[str, LaunchError]] = []
        self.cluster.api.before.append(lambda _: setattr(self, "_maximum", self.maximum))
        self.cluster.api.after.append(self._after)
        reconcile, launch = controllers.actuator.reconcile, self.cluster.cloud.launch

        def watched(*arguments: Any) -> None:
            before = self.replicas
            reconcile(*arguments)
            after = self.replicas
            self.taken += [(name, before[name], after[name]) for name in before if after[name] < before[name]]

        def reported(zone: str) -> Instance:
            """Report the cloud's refusal as an event: the autoscaler gives its order up before a scan could read it."""
            try:
                return launch(zone)
            except LaunchError as error:
                self._refused.append((zone, error))
                raise

        controllers.actuator.reconcile = watched  # type: ignore[method-assign]
        self.cluster.cloud.launch = reported  # type: ignore[method-assign]

    def _report_failures(self) -> None:
        queue = cast("Queue", FakeQueue())
        record = RecordFailure(store=cast("ActionStore", self.memory), queue=queue, clock=self.clock)
        for zone, error in self._refused:
            view = next(view for view in self.cluster.groups() if view.zone == zone)
            names = {"cluster": "demo", "namespace": view.namespace, "name": view.name}
            texts = {"code": error.code, "message": error.message, "id": error.request_id}
            record(Failure(**names, **texts, occurred_at=self.clock.at))
        self._refused.clear()

    def _after(self, request: Request) -> None:
        if self.maximum != self._maximum:
            self.written.append(self.maximum)

    @property
    def replicas(self) -> dict[str, int]:
        return {
            item["metadata"]["name"]: item["spec"].get("replicas", 0) for item in self.store.list(MACHINE_DEPLOYMENTS)
        }

    @property
    def running(self) -> list[int]:
        return [view.running for view in self.cluster.groups()]

    @property
    def shoot(self) -> Object:
        (shoot,) = self.store.list(SHOOTS)
        return shoot

    @property
    def maximum(self) -> int:
        return int(self.shoot["spec"]["provider"]["workers"][0]["maximum"])

    @property
    def flags(self) -> list[str]:
        found = self.store.list("deployments.apps", fields="metadata.name=cluster-autoscaler")
        return [one.split(":")[1] for one in arguments_of(found[0]) or () if one.startswith("--nodes=")]

    def edit(self, manager: str = "kubectl", /, **fields: Any) -> None:
        """Change the worker, or with ``spec`` the Shoot, as an operator."""
        workers = [self.shoot["spec"]["provider"]["workers"][0] | fields]
        self.store.patch(SHOOTS, "garden-demo", "main", {"spec": {"provider": {"workers": workers}}}, manager=manager)

    def spec(self, **fields: Any) -> None:
        self.store.patch(SHOOTS, "garden-demo", "main", {"spec": fields}, manager="kubectl")

    def clusters_of(self, life: Life) -> WithGarden:
        return WithGarden(self.api, life, self.clock)

    def pool(self) -> PoolPlan:
        plan = self.run().plan
        assert plan is not None
        (pool,) = plan.pools
        return pool

    def live(self, minutes: float, *, evenkeel: bool = True) -> None:
        for tick in range(int(minutes * 6)):
            self.clock.at += timedelta(seconds=10)
            self.world.step()
            self._report_failures()
            if evenkeel and tick % 6 == 5:
                with contextlib.suppress(LeaseHeldError):  # of a run that has died
                    self.run()

    def outage(self, pods: int = 9) -> None:
        self.live(1)
        self.world.exhaust_zone(KIND, A)
        self.world.set_demand(KIND, POOL, pods)

    def relieved(self) -> "Scene":
        self.outage()
        self.live(20)
        assert (self.maximum, self.running) == (12, [1, 4, 4])
        return self

    def emptied(self) -> "Scene":
        """Lower demand until it fits each zone's share of the maximum, and let the autoscaler follow."""
        self.world.set_demand(KIND, POOL, 3)
        self.live(40)
        return self

    def restore(self) -> None:
        stored = self.memory.load("demo")
        control = stored.control.model_copy(update={"restoring": True})
        self.memory.save_record(stored.record, control, stored.versions)


def test_with_relief_the_healthy_zones_take_what_the_failing_one_cannot() -> None:
    scene = Scene()
    scene.outage()
    scene.live(20)
    assert scene.world.pending(KIND, POOL) == 0
    assert scene.running == [1, 4, 4]
    assert scene.written == [12], "once, and not again"
    assert scene.flags == ["4", "4", "4"]
    assert scene.taken == []


def test_the_number_goes_back_when_the_zone_delivers_and_every_node_has_its_place() -> None:
    scene = Scene(scale_down=True).relieved()
    scene.world.restore_zone(KIND, A)
    scene.live(30)
    assert scene.maximum == 12, "two zones hold more than their shares of nine"
    scene.emptied()
    scene.world.set_demand(KIND, POOL, 6)  # the recovered zone must show that it delivers
    scene.live(40)
    assert (scene.maximum, scene.written) == (9, [12, 9])
    assert scene.flags == ["3", "3", "3"]
    assert (sum(scene.running), scene.world.pending(KIND, POOL)) == (6, 0)
    assert scene.taken == [], "no node was deleted by a lower number"
    relief = scene.memory.load("demo").state.pools
    assert all(Relief not in pool.parts for pool in relief.values())


def test_quiet_checks_do_not_read_the_garden() -> None:
    scene = Scene()
    scene.live(10)
    life = Life()
    scene.run(life)
    assert not [step for step in life.steps if "/shoots/" in step]
    scene.outage()
    scene.live(20)
    life = Life()
    scene.run(life)
    assert [step for step in life.steps if "/shoots/" in step] == [
        "GET /apis/core.gardener.cloud/v1beta1/namespaces/garden-demo/shoots/main"
    ]


def checked(scene: Scene) -> list[str]:
    queue, store = FakeQueue(), cast("Any", scene.memory)
    ports: dict[str, Any] = {
        "store": store,
        "clusters": scene.clusters_of(Life()),
        "queue": queue,
        "clock": scene.clock,
    }
    before = scene.cluster.api.requests.count(method="PATCH")
    CheckClusters(**ports, dry_run=False, together=sequentially)(["demo"], plenty)
    assert scene.cluster.api.requests.count(method="PATCH") == before
    return queue.clusters


def test_a_check_writes_nothing_and_queues_what_is_to_be_written() -> None:
    scene = before_the_write(minute_of_the_write())
    assert checked(scene) == ["demo"]
    scene.run()
    assert scene.written == [12]
    scene.live(10)
    assert checked(scene) == [], "it stands, and nothing happens"
    scene.edit(maximum=9)
    assert checked(scene) == ["demo"], "another writer has put it back"


def test_restore_does_not_end_before_the_worker_has_followed_and_leaves_no_number_of_ours() -> None:
    scene = Scene(scale_down=True).relieved().emptied()
    scene.restore()
    scene.run()
    assert (scene.maximum, scene.flags) == (9, ["4", "4", "4"]), "written back, and not carried out yet"
    for pods, minutes in ((9, 20), (3, 60)):
        scene.world.set_demand(KIND, POOL, pods)
        scene.live(minutes)
        assert scene.taken == []
    assert (scene.maximum, scene.memory.load("demo").control.paused) == (9, True)


def test_the_policy_of_the_garden_lets_the_write_pass() -> None:
    scene = Scene()
    (policy,) = policies(FILE.parent / "gardener" / "admission-policy-shoots.yaml").values()
    judged: list[list[str]] = []
    patch = scene.store.patch

    def watched(resource: str, *arguments: Any, **named: Any) -> Any:
        before = scene.shoot if resource == SHOOTS else None
        after = patch(resource, *arguments, **named)
        if before is not None and named.get("manager") == "evenkeel":
            judged.append(policy.refusals(before, after))
        return after

    scene.store.patch = watched  # type: ignore[method-assign]
    scene.outage()
    scene.live(20)
    assert scene.maximum == 12
    assert judged == [[]]


def minute_of_the_write() -> int:
    scene = Scene()
    scene.outage()
    for minute in range(1, 30):
        scene.live(1)
        if scene.written:
            return minute
    raise AssertionError("nothing was written")


def before_the_write(minute: int) -> Scene:
    """Return the same scene right before the run that writes the Shoot."""
    scene = Scene()
    scene.outage()
    scene.live(minute - 1)
    scene.live(1, evenkeel=False)
    return scene


def test_a_run_that_writes_it_may_die_anywhere() -> None:
    minute = minute_of_the_write()
    scene, undisturbed = before_the_write(minute), Life()
    scene.run(undisturbed)
    assert scene.written == [12]
    wrong = {}
    for how in (How.AFTER, How.LOST):  # a death before a request is one after the previous request
        for at, step in harmed_at(undisturbed.steps, how):
            scene = before_the_write(minute)
            with contextlib.suppress(KilledError, EvenkeelError):
                scene.run(Life(at=at, how=how))
            scene.live(15)
            pool = scene.pool()
            found = (scene.maximum, set(scene.written), scene.running, pool.max, scene.taken)
            if found != (12, {12}, [1, 4, 4], 9, []):
                wrong[f"{at} {step}: {how.value}"] = found
    assert wrong == {}
