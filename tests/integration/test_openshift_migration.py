"""Evenkeel during OpenShift's move to Cluster API: real use case, real adapter, an API that refuses twins."""

from datetime import timedelta
from typing import Any, cast

import pytest

from evenkeel.application.actions.ports import ActionStore
from evenkeel.application.ports import Queue
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.model.plans import PoolPlan
from sandbox.kube.controllers.cluster_autoscaler_operator import SCALERS
from sandbox.kube.controllers.migration import CLUSTER_API_NAMESPACE, CLUSTER_API_SETS, NAMESPACE, SETS
from sandbox.kube.controllers.openshift import OpenShiftControllers
from sandbox.kube.errors import ApiError
from sandbox.kube.world import ZONES, Pool, World
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeClock, FakeQueue, InMemoryStore, plenty, register
from tests.timed import worker

KEYS = [f"cluster.x-k8s.io/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max")]


class Moving:
    """An OpenShift cluster whose MachineSets have twins."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        pool = Pool(name="worker", minimum=3, maximum=12, replicas=(2, 2, 2))
        world = World(clusters=["openshift"], pools={"openshift": [pool]}, clock=self.clock.now, settings=None)
        self.cluster = world.clusters["openshift"]
        self.store = self.cluster.store
        self.memory = InMemoryStore()
        register(self.memory, flavours=["cluster-api", "openshift"])
        controllers = self.cluster.controllers
        assert isinstance(controllers, OpenShiftControllers)
        self.controllers = controllers
        controllers.start_migration()
        self.wait()

    def wait(self, minutes: float = 1) -> None:
        self.clock.at += timedelta(minutes=minutes)
        for _ in range(4):
            self.controllers.step(self.clock.at)

    def names(self) -> list[str]:
        return [item["metadata"]["name"] for item in self.store.list(SETS)]

    def move(self, *names: str, until: str = "ClusterAPI") -> None:
        """Request the move of these MachineSets, and let it proceed up to ``until``."""
        for name in names:
            self.store.patch(SETS, NAMESPACE, name, {"spec": {"authoritativeAPI": "ClusterAPI"}}, manager="kubectl")
        self.clock.at += timedelta(minutes=1)
        for _ in range(1 if until == "Migrating" else 4):
            self.controllers.step(self.clock.at)
        assert {self.mapi(name)["status"]["authoritativeAPI"] for name in names} == {until}

    def mapi(self, name: str) -> Any:
        return self.store.get(SETS, NAMESPACE, name)

    def capi(self, name: str) -> Any:
        return self.store.get(CLUSTER_API_SETS, CLUSTER_API_NAMESPACE, name)

    def run(self) -> tuple[RunSummary, PoolPlan]:
        """Run once, check that no write was refused, and return the plan of the only pool."""
        clusters = WirelessClusters(self.cluster.api, Life(), self.clock)
        queue = cast("Queue", FakeQueue())
        summary = worker(cast("ActionStore", self.memory), clusters, self.clock, queue)("demo", "a test", plenty)
        assert (summary.unreachable, summary.rejected) == (False, 0), summary.message
        assert summary.plan is not None
        (pool,) = summary.plan.pools
        return summary, pool


@pytest.fixture
def moving() -> Moving:
    return Moving()


def test_the_api_refuses_what_we_would_write_to_a_twin(moving: Moving) -> None:
    first, second, _ = moving.names()
    with pytest.raises(ApiError, match=r"status\.authoritativeAPI is set to MachineAPI"):
        moving.store.patch(CLUSTER_API_SETS, CLUSTER_API_NAMESPACE, first, {"spec": {"replicas": 3}})
    bounds = {"metadata": {"annotations": dict.fromkeys(KEYS, "1")}}
    with pytest.raises(ApiError, match="cluster-api-machine-set-vap"):
        moving.store.patch(CLUSTER_API_SETS, CLUSTER_API_NAMESPACE, first, bounds)
    moving.move(second)
    with pytest.raises(ApiError, match=r"status\.authoritativeAPI is set to ClusterAPI"):
        moving.store.patch(SETS, NAMESPACE, second, {"spec": {"replicas": 3}})
    ours = {"metadata": {"annotations": {"evenkeel.dev/weight": "2"}}}
    moving.store.patch(CLUSTER_API_SETS, CLUSTER_API_NAMESPACE, first, ours)


@pytest.mark.parametrize("until", ["Migrating", "ClusterAPI"])
def test_a_group_that_moves_stays_in_its_pool_and_is_not_written(moving: Moving, until: str) -> None:
    moving.run()
    moving.wait()
    first, other, _ = moving.names()
    moving.cluster.cloud.exhaust_zone(ZONES[1])
    moving.store.scale(SETS, NAMESPACE, other, 4)
    moving.move(first, until=until)
    before = moving.mapi(first), moving.capi(first)
    _, pool = moving.run()
    assert [plan.state for plan in pool.groups] == ["frozen", "fenced", "healthy"]
    assert moving.mapi(other)["spec"]["replicas"] == 2, "released: the others go on"
    assert (moving.mapi(first), moving.capi(first)) == before


def test_after_the_move_its_bounds_are_written_in_cluster_api(moving: Moving) -> None:
    moving.run()
    moving.wait()
    moving.move(*moving.names())
    moving.wait()
    summary, pool = moving.run()
    assert [plan.group.key.flavour for plan in pool.groups] == ["cluster-api"] * 3
    assert all("set cluster.x-k8s.io/" in str(note) for plan in pool.groups for note in plan.group.unreadable.notes)
    assert summary.plan is not None
    assert [skipped.reason.rule for skipped in summary.plan.skipped] == ["twin-has-moved"] * 3
    annotations = [moving.capi(name)["metadata"]["annotations"] for name in moving.names()]
    assert sum(int(found[KEYS[1]]) for found in annotations) == 12
    assert moving.run()[1].groups[0].group.unreadable.notes == (), "there they are"


def test_replicas_that_are_released_in_cluster_api_are_released(moving: Moving) -> None:
    moving.move(*moving.names())
    moving.run()
    first = moving.names()[0]
    moving.cluster.cloud.exhaust_zone(ZONES[0])
    moving.store.scale(CLUSTER_API_SETS, CLUSTER_API_NAMESPACE, first, 4)
    moving.wait()
    moving.run()
    moving.wait(minutes=16)
    moving.run()
    moving.wait()
    assert moving.capi(first)["spec"]["replicas"] == moving.mapi(first)["spec"]["replicas"] == 2
    assert moving.capi(first)["metadata"]["annotations"][KEYS[1]] == "2"


def test_a_backoff_from_before_the_move_is_forgotten(moving: Moving) -> None:
    first = moving.names()[0]
    moving.cluster.cloud.exhaust_zone(ZONES[0])
    moving.store.scale(SETS, NAMESPACE, first, 4)
    moving.wait()
    _, pool = moving.run()
    assert pool.groups[0].state == "fenced"
    moving.move(*moving.names())
    moving.wait()
    _, pool = moving.run()
    assert [plan.state for plan in pool.groups] == ["healthy"] * 3


def test_a_machine_autoscaler_moves_nothing_after_the_move(moving: Moving) -> None:
    moving.move(*moving.names())
    moving.wait()
    moving.run()
    before = [moving.capi(name)["metadata"]["annotations"][KEYS[1]] for name in moving.names()]
    scaler = moving.store.list(SCALERS)[0]
    patch = {"spec": {"maxReplicas": 9}}
    moving.store.patch(SCALERS, NAMESPACE, scaler["metadata"]["name"], patch, manager="kubectl")
    moving.wait()
    _, pool = moving.run()
    assert [moving.capi(name)["metadata"]["annotations"][KEYS[1]] for name in moving.names()] == before
    assert {share.owner.ref.kind for origin in pool.report.origins for share in origin.owners} == set()
    assert {plan.group.identity.kind for plan in pool.groups} == {"MachineSet"}
