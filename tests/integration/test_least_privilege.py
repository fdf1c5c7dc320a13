"""What the functions do in a cluster is what rbac.yaml grants and the admission policy lets through, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from evenkeel.bootstrap import SystemClock, use_clock
from sandbox.admission import FILE, AdmissionWatch
from sandbox.aws import Deployment
from sandbox.kube.access import Rule
from sandbox.kube.world import World
from sandbox.triggers import InProcess, Triggers
from tests.integration.staging import put_kubeconfig, report_failure

ROLE = next(d for d in yaml.safe_load_all((FILE.parent / "rbac.yaml").read_text()) if d["kind"] == "ClusterRole")
ZONE = "eu-central-1a"


@dataclass
class Clock:
    at: datetime

    def now(self) -> datetime:
        return self.at

    def sleep(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


class Stage:
    """Three clusters that Evenkeel reaches as the user that rbac.yaml describes, watched by the admission policy."""

    def __init__(self, world: World, clock: Clock, deployment: Deployment, functions: InProcess) -> None:
        self.world = world
        self.clock = clock
        self.functions = functions
        self.triggers = Triggers(deployment, functions)
        self.deployment = deployment
        self.watches = {name: AdmissionWatch(cluster.api) for name, cluster in world.clusters.items()}
        for name, cluster in world.clusters.items():
            access = put_kubeconfig(deployment, name, cluster)
            record = {"flavours": [cluster.flavour], "access": access, "dry_run": False}
            answer = self.operator("register", name, record=record)
            assert answer["ok"], answer

    def operator(self, action: str, cluster: str, **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.functions("OperatorFunction", {"action": action, "cluster": cluster, **more})
        return answer

    def report_failure(self, cluster: str) -> None:
        """What an exporter in the cluster puts on the bus when no machine can be had in ZONE."""
        report_failure(self.deployment, cluster, self.world.clusters[cluster], ZONE, self.clock.now())

    def pass_minutes(self, minutes: int) -> None:
        """Autoscalers and controllers every ten seconds, a scan every minute."""
        for _ in range(minutes):
            for _ in range(6):
                self.clock.sleep(10)
                self.world.step(self.clock.now())
            self.triggers.tick(self.clock.now())
            self.triggers.drain()


@pytest.fixture
def stage(deployment: Deployment, functions: InProcess) -> Iterator[Stage]:
    clock = Clock(datetime.now(UTC))
    with World(clock=clock.now, users={"evenkeel": Rule.of_role(ROLE)}) as world:
        use_clock(clock)
        try:
            yield Stage(world, clock, deployment, functions)
        finally:
            use_clock(SystemClock())


def test_growth_an_outage_the_recovery_and_leaving_need_nothing_beyond_the_manifests(stage: Stage) -> None:
    pools = {"gardener": "main", "cluster-api": "workers", "openshift": "worker"}
    for cluster, pool in pools.items():
        stage.world.set_demand(cluster, pool, 6)
    stage.pass_minutes(2)
    for cluster, pool in pools.items():
        stage.world.take_away(cluster, ZONE)
        stage.world.set_demand(cluster, pool, 11)
    stage.pass_minutes(1)
    for cluster in pools:
        stage.report_failure(cluster)
    stage.pass_minutes(2)
    for cluster in pools:
        stage.world.give_back(cluster, ZONE)
    stage.pass_minutes(6)  # the first backoff lasts five
    for cluster in pools:
        assert stage.operator("restore", cluster)["ok"]
    stage.pass_minutes(1)

    for name, watch in stage.watches.items():
        assert watch.refused == [], name
        denied = [r for r in stage.world.clusters[name].api.requests if r.user == "evenkeel" and r.status in (401, 403)]
        assert denied == [], name
    assert stage.triggers.failures == []
    judged = {name: set(watch.judged) for name, watch in stage.watches.items()}
    assert judged["gardener"] >= {"machinedeployments", "machines"}
    assert judged["cluster-api"] >= {"machinedeployments", "machines"}
    assert judged["openshift"] >= {"machinesets", "machineautoscalers", "machines"}


def test_the_watch_notices_what_the_policy_forbids(stage: Stage) -> None:
    cluster = stage.world.clusters["cluster-api"]
    group = cluster.groups()[0]
    path = f"/apis/cluster.x-k8s.io/v1beta1/namespaces/{group.namespace}/machinedeployments/{group.name}"
    headers = {
        "authorization": f"Bearer {cluster.api.token('evenkeel')}",
        "content-type": "application/merge-patch+json",
    }
    cluster.api.answer("PATCH", path, headers, b'{"spec": {"minReadySeconds": 7}}')
    assert stage.watches["cluster-api"].refused == [
        f"{path}: Evenkeel may change nothing of a node group's spec but replicas"
    ]
