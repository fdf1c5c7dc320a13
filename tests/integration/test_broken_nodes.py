"""A zone of a simulated cluster whose kubelets stop, on each machine API, read and written as in a real one."""

from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.model.incidents import IncidentKind
from sandbox.kube.schema import Object
from sandbox.kube.workloads import Workloads
from sandbox.kube.world import ZONES, Pool, World
from tests.cluster_objects import ClusterObjects
from tests.crashing import Runs
from tests.fakes import FakeClock, register

FULL: dict[str, Any] = {"demand": "full", "autoscaler": "none", "workload": {"access": {"kind": "same"}}}
DEAD, WELL, OTHER = ZONES


class Scene(Runs, ClusterObjects):
    """Three zones of four nodes, each with one large pod."""

    def __init__(self, kind: str) -> None:
        self.clock = FakeClock()
        pool = Pool(name="workers", minimum=0, maximum=40, replicas=(4, 4, 4))
        world = World(clusters=[kind], pools={kind: [pool]}, clock=self.clock.now, settings=None)
        Runs.__init__(self)
        ClusterObjects.__init__(self, world.clusters[kind])
        self.workloads = Workloads(self.objects, control_plane=self.namespace)
        register(self.memory, flavours=[self.flavour], dry_run=False, **FULL)
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "3"}}}
        template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}
        body = {"replicas": 12, "selector": {"matchLabels": {"app": "web"}}, "template": template}
        self.objects.create("deployments.apps", {"metadata": {"name": "web"}, "spec": body})
        self.live(20)

    def live(self, minutes: int) -> None:
        for _ in range(minutes):
            self.run()
            for _ in range(4):
                self.clock.at += timedelta(seconds=15)
                self.workloads.step(self.clock.at)
                self.controllers.step(self.clock.at)

    def waiting(self) -> list[Object]:
        return [pod for pod in self.objects.list("pods") if not pod["spec"].get("nodeName")]

    def incidents(self) -> list[IncidentKind]:
        return [incident.kind for incident in self.memory.load("demo").cluster_health.incidents]


@pytest.mark.parametrize("kind", ["cluster-api", "gardener", "openshift"])
def test_pods_of_a_broken_zone_run_in_the_others_and_its_nodes_stay(kind: str) -> None:
    scene = Scene(kind)
    machines = set(scene.machines())
    assert (scene.replicas(), scene.waiting()) == ({DEAD: 4, WELL: 4, OTHER: 4}, [])
    scene.cloud.break_nodes(DEAD)
    scene.live(10)
    assert scene.waiting() == []
    assert scene.replicas() == {DEAD: 4, WELL: 6, OTHER: 6}
    assert scene.incidents() == [IncidentKind.ZONE_UNHEALTHY]
    scene.live(60)
    assert machines <= set(scene.machines())
    scene.cloud.repair_nodes(DEAD, 2)  # two kubelets come back late, and flap
    scene.live(2)
    assert scene.incidents() == []
    scene.cloud.break_nodes(DEAD, 2)
    scene.live(2)
    scene.cloud.repair_nodes(DEAD)
    scene.live(45)
    assert scene.incidents() == []
    assert scene.waiting() == []
    assert sum(scene.replicas().values()) == 12, "the nodes that nobody needs any more have gone"
