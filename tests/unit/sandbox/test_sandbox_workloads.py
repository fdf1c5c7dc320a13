"""A workload cluster of the sandbox places, starts and evicts pods, and drains machines."""

from datetime import timedelta
from typing import Any

import pytest

from sandbox.kube.workloads import Workloads
from sandbox.kube.world import ZONES, Pool, World

POOL = Pool(name="p", minimum=0, maximum=9)


class Scene:
    """A cluster of one node in each of three zones, and its pods."""

    def __init__(self, flavour: str = "cluster-api") -> None:
        self.world = World(clusters=[flavour], pools={flavour: [POOL]}, settings=None)
        self.cluster = self.world.clusters[flavour]
        self.cluster.workloads = Workloads(self.cluster.store, control_plane=self.cluster.namespace)
        self.store, self.flavour = self.cluster.store, self.cluster.controllers.api

    def deploy(self, name: str, replicas: int) -> None:
        labels = {"app": name}
        containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
        body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.store.create("deployments.apps", {"metadata": {"name": name}, "spec": body})

    def budget(self, name: str, **spec: Any) -> None:
        whole = {"selector": {"matchLabels": {"app": name}}, **spec}
        self.store.create("poddisruptionbudgets.policy", {"metadata": {"name": name}, "spec": whole})

    def change_groups(self, patch: Any) -> None:
        """Patch every scalable, and let half an hour pass."""
        for item in self.store.list(self.flavour.scalables):
            metadata = item["metadata"]
            self.store.patch(self.flavour.scalables, metadata["namespace"], metadata["name"], patch)
        self.run(minutes=30)

    def status_of_budget(self, name: str) -> Any:
        return self.store.get("poddisruptionbudgets.policy", "default", name)["status"]

    def run(self, **duration: float) -> None:
        self.world.run(timedelta(**duration))

    def pods(self, app: str = "web") -> list[Any]:
        return self.store.list("pods", labels=f"app={app}")

    def order_away(self) -> Any:
        for machine in self.store.list(self.flavour.machines):
            if self.cluster.controllers.zone_of(machine["spec"]) == ZONES[0]:
                metadata = machine["metadata"]
                self.store.delete(self.flavour.machines, metadata["namespace"], metadata["name"])
                return machine
        raise AssertionError(ZONES[0])

    def has(self, machine: Any) -> bool:
        return machine["metadata"]["name"] in {
            item["metadata"]["name"] for item in self.store.list(self.flavour.machines)
        }


def budgeted(flavour: str = "cluster-api", replicas: int = 6, **spec: Any) -> Scene:
    scene = Scene(flavour)
    scene.deploy("web", replicas)
    scene.budget("web", **spec)
    scene.run(seconds=20)
    return scene


class TestControllers:
    def test_on_an_unready_node_no_pod_starts_or_ends(self) -> None:
        scene = Scene()
        for node in scene.store.list("nodes"):
            conditions = {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
            scene.store.patch("nodes", "", node["metadata"]["name"], conditions, subresource="status")
        scene.deploy("web", 1)
        scene.run(seconds=30)
        assert [pod["status"]["phase"] for pod in scene.pods()] == ["Pending"]
        scene.store.delete("pods", "default", scene.pods()[0]["metadata"]["name"])
        scene.run(minutes=5)
        assert sum("deletionTimestamp" in pod["metadata"] for pod in scene.pods()) == 1

    @pytest.mark.parametrize(
        ("spec", "wanted"),
        [
            ({"minAvailable": 3}, 3),
            ({"minAvailable": "50%"}, 3),
            ({"maxUnavailable": 2}, 3),
            ({"maxUnavailable": "50%"}, 2),
        ],
    )
    def test_a_budget_counts_allowed_disruptions(self, spec: Any, wanted: int) -> None:
        scene = budgeted(replicas=5, **spec)
        status = scene.status_of_budget("web")
        assert (status["currentHealthy"], status["desiredHealthy"]) == (5, wanted)
        assert status["disruptionsAllowed"] == 5 - wanted


class TestNodes:
    def test_cluster_api_copies_only_node_labels_from_machines_to_nodes(self) -> None:
        scene = Scene()
        labels = {"node-role.kubernetes.io/worker": "", "example.com/cost": "low"}
        scene.change_groups({"spec": {"template": {"metadata": {"labels": labels}}, "replicas": 2}})
        assert len(scene.store.list("nodes", labels="node-role.kubernetes.io/worker")) >= len(ZONES)
        assert scene.store.list("nodes", labels="example.com/cost") == []


class TestDrain:
    @pytest.mark.parametrize(("flavour", "forced"), [("gardener", True), ("cluster-api", False), ("openshift", False)])
    def test_a_budget_without_room_holds_the_machine_on_gardener_for_two_hours(
        self, flavour: str, forced: bool
    ) -> None:
        scene = budgeted(flavour, maxUnavailable=0)
        machine = scene.order_away()
        scene.run(hours=1)
        assert scene.has(machine)
        assert len([pod for pod in scene.pods() if pod["status"]["phase"] == "Running"]) == 6
        assert [item["spec"]["unschedulable"] for item in scene.store.list("nodes", fields="spec.unschedulable=true")]
        scene.world.run(timedelta(hours=2), every=timedelta(minutes=5))
        assert scene.has(machine) is not forced

    def test_daemon_and_mirror_pods_end_with_their_node(self) -> None:
        scene = Scene()
        template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c"}]}}
        scene.store.create("daemonsets.apps", {"metadata": {"name": "agent"}, "spec": {"template": template}})
        scene.run(seconds=20)
        (node,) = scene.store.list("nodes", labels=f"topology.kubernetes.io/zone={ZONES[0]}")
        mirror = {"name": "proxy", "annotations": {"kubernetes.io/config.mirror": "x"}, "labels": {"app": "proxy"}}
        spec = {"nodeName": node["metadata"]["name"], "containers": [{"name": "c"}]}
        scene.store.create("pods", {"metadata": mirror, "spec": spec})
        machine = scene.order_away()
        scene.run(seconds=20)
        assert not scene.has(machine)
        scene.run(seconds=10)
        assert scene.pods("proxy") == []


class TestBrokenNodes:
    def ready(self, scene: Scene, zone: str) -> list[str]:
        nodes = scene.store.list("nodes", labels=f"topology.kubernetes.io/zone={zone}")
        return [entry["status"] for node in nodes for entry in node["status"]["conditions"] if entry["type"] == "Ready"]

    def test_pods_of_a_node_without_a_kubelet_are_replaced_elsewhere_after_five_minutes(self) -> None:
        scene = Scene()
        scene.deploy("web", 6)
        scene.run(minutes=1)
        scene.cluster.cloud.break_nodes(ZONES[0])
        scene.run(minutes=4)
        assert self.ready(scene, ZONES[0]) == ["Unknown"]
        assert len(scene.pods()) == 6
        scene.run(minutes=2)
        assert len([pod for pod in scene.pods() if "deletionTimestamp" in pod["metadata"]]) == 2
        assert len(scene.pods()) == 8
        scene.cluster.cloud.repair_nodes(ZONES[0])
        scene.run(minutes=1)
        assert self.ready(scene, ZONES[0]) == ["True"]
        assert len(scene.pods()) == 6

    def test_a_new_node_of_a_broken_zone_is_not_ready_until_its_kubelet_comes_back(self) -> None:
        scene = Scene()
        scene.cluster.cloud.break_nodes(ZONES[0])
        for item in scene.store.list(scene.flavour.scalables):
            metadata = item["metadata"]
            scene.store.patch(
                scene.flavour.scalables, metadata["namespace"], metadata["name"], {"spec": {"replicas": 2}}
            )
        scene.run(minutes=5)
        assert sorted(self.ready(scene, ZONES[0])) == ["False", "Unknown"]
        assert self.ready(scene, ZONES[1]) == ["True", "True"]
        scene.cluster.cloud.repair_nodes(ZONES[0], 1)
        scene.run(seconds=20)
        assert self.ready(scene, ZONES[0]).count("True") == 1
        scene.cluster.cloud.break_nodes(ZONES[0], 1)  # it flaps
        scene.cluster.cloud.repair_nodes(ZONES[0])
        scene.run(seconds=20)
        assert self.ready(scene, ZONES[0]) == ["True", "True"]
