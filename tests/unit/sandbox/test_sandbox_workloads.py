"""A workload cluster of the sandbox places, starts and evicts pods, and drains machines."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from sandbox.kube.autoscaler import FLAVOURS
from sandbox.kube.scheduler import quantity
from sandbox.kube.workloads import Workloads
from sandbox.kube.world import ZONES, Pool, World

EVERY_FLAVOUR = pytest.mark.parametrize("flavour", ["gardener", "cluster-api", "openshift"])
TAINT = {"key": "team", "value": "red", "effect": "NoSchedule"}
POOL = Pool(name="p", minimum=0, maximum=9)


class Scene:
    """A cluster of one node in each of three zones, with pods of its own."""

    def __init__(self, flavour: str = "cluster-api") -> None:
        self.world = World(clusters=[flavour], pools={flavour: [POOL]}, settings=None)
        self.cluster = self.world.clusters[flavour]
        self.cluster.workloads = Workloads(self.cluster.store, control_plane=self.cluster.namespace)
        self.store, self.flavour = self.cluster.store, FLAVOURS[flavour]

    def deploy(self, name: str, replicas: int, *, cpu: str = "1", **spec: Any) -> None:
        labels = {"app": name}
        containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
        template = {"metadata": {"labels": labels}, "spec": {"containers": containers, **spec}}
        body = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.store.create("deployments.apps", {"metadata": {"name": name}, "spec": body})

    def budget(self, name: str, **spec: Any) -> None:
        whole = {"selector": {"matchLabels": {"app": name}}, **spec}
        self.store.create("poddisruptionbudgets.policy", {"metadata": {"name": name}, "spec": whole})

    def change_groups(self, patch: Any) -> None:
        """Every scalable gets this patch, and half an hour passes."""
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

    def zones(self, app: str = "web") -> Counter[str]:
        zones = {
            item["metadata"]["name"]: item["metadata"]["labels"]["topology.kubernetes.io/zone"]
            for item in self.store.list("nodes")
        }
        return Counter(zones[pod["spec"]["nodeName"]] for pod in self.pods(app) if pod["status"]["phase"] == "Running")

    def waiting(self, app: str = "web") -> list[Any]:
        """What the scheduler says of pods that have no node."""
        conditions = [pod["status"]["conditions"][0] for pod in self.pods(app) if not pod["spec"].get("nodeName")]
        return [(item["status"], item["reason"], item["message"]) for item in conditions]

    def order_away(self, zone: str = ZONES[0]) -> Any:
        for machine in self.store.list(self.flavour.machines):
            if self.cluster.controllers.zone_of(machine["spec"]) == zone:
                metadata = machine["metadata"]
                self.store.delete(self.flavour.machines, metadata["namespace"], metadata["name"])
                return machine
        raise AssertionError(zone)

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


class TestScheduler:
    def test_pods_are_placed_where_most_is_free(self) -> None:
        scene = Scene()
        scene.deploy("web", 6)
        scene.run(seconds=20)
        assert scene.zones() == dict.fromkeys(ZONES, 2)

    def test_a_pod_without_room_waits_with_one_event_until_room_comes(self) -> None:
        scene = Scene()
        scene.deploy("web", 10)
        scene.run(minutes=2)
        assert scene.zones() == dict.fromkeys(ZONES, 3)
        assert scene.waiting() == [("False", "Unschedulable", "0/3 nodes are available: 3 Insufficient cpu.")]
        (event,) = scene.store.list("events", fields="reason=FailedScheduling")
        assert event["message"] == scene.waiting()[0][2]
        assert event["involvedObject"]["kind"] == "Pod"
        metadata = scene.store.list(scene.flavour.scalables)[0]["metadata"]
        scene.store.scale(scene.flavour.scalables, metadata["namespace"], metadata["name"], 2)
        scene.run(minutes=2)
        assert scene.waiting() == []
        assert sum(scene.zones().values()) == 10

    def test_each_node_is_counted_with_its_reason(self) -> None:
        scene = Scene()
        scene.deploy("other", 3, cpu="3")
        scene.run(seconds=20)
        scene.deploy("web", 1, nodeSelector={"topology.kubernetes.io/zone": ZONES[1]})
        scene.run(seconds=20)
        text = "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) didn't match Pod's node affinity/selector."
        assert [said for _, _, said in scene.waiting()] == [text]

    def test_a_gated_pod_waits_with_another_reason(self) -> None:
        scene = Scene()
        scene.deploy("web", 1, schedulingGates=[{"name": "example.com/later"}])
        scene.run(seconds=20)
        assert [reason for _, reason, _ in scene.waiting()] == ["SchedulingGated"]
        assert scene.store.list("events", fields="reason=FailedScheduling") == []

    def test_a_claim_for_first_consumer_binds_its_pod_to_a_zone(self) -> None:
        scene = Scene()
        mode = {"volumeBindingMode": "WaitForFirstConsumer", "provisioner": "disk.example"}
        scene.store.create("storageclasses.storage.k8s.io", {"metadata": {"name": "zonal"}, **mode})
        asked = {"resources": {"requests": {"storage": "1Gi"}}, "accessModes": ["ReadWriteOnce"]}
        claim = {"metadata": {"name": "data"}, "spec": {"storageClassName": "zonal", **asked}}
        scene.store.create("persistentvolumeclaims", claim)
        scene.deploy("web", 1, volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}])
        scene.run(seconds=20)
        (zone,) = scene.zones()
        (volume,) = scene.store.list("persistentvolumes")
        assert volume["spec"]["claimRef"]["name"] == "data"
        scene.order_away(zone)
        scene.run(seconds=30)
        ((_, _, said),) = scene.waiting()
        assert "2 node(s) didn't match PersistentVolume's node affinity" in said


class TestControllers:
    def test_a_deployment_keeps_its_number_of_pods(self) -> None:
        scene = Scene()
        scene.deploy("web", 3)
        scene.run(seconds=20)
        gone = scene.pods()[0]["metadata"]
        scene.store.delete("pods", "default", gone["name"])
        scene.run(seconds=30)
        assert len(scene.pods()) == 3
        assert gone["uid"] not in {pod["metadata"]["uid"] for pod in scene.pods()}
        scene.store.scale("deployments.apps", "default", "web", 1)
        scene.run(seconds=30)
        assert len(scene.pods()) == 1
        scene.store.delete("deployments.apps", "default", "web")
        scene.run(seconds=30)
        assert scene.pods() == []

    def test_a_daemon_set_has_a_pod_on_each_matching_node(self) -> None:
        scene = Scene()
        template = {"metadata": {"labels": {"app": "agent"}}, "spec": {"containers": [{"name": "c"}]}}
        template["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": ZONES[2]}
        scene.store.create("daemonsets.apps", {"metadata": {"name": "agent"}, "spec": {"template": template}})
        scene.run(seconds=30)
        assert scene.zones("agent") == {ZONES[2]: 1}

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

    def test_a_quiet_cluster_with_pods_is_never_written(self) -> None:
        scene = Scene()
        scene.deploy("web", 10)
        scene.budget("web", maxUnavailable=1)
        scene.run(minutes=1)
        before = scene.store.page("nodes", "", version="v1").resource_version
        scene.run(minutes=10)
        assert scene.store.page("nodes", "", version="v1").resource_version == before

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
    @pytest.mark.parametrize(
        ("flavour", "template"),
        [
            ("gardener", {"nodeTemplate": {"metadata": {"labels": {"disk": "ssd"}}, "spec": {"taints": [TAINT]}}}),
            ("openshift", {"metadata": {"labels": {"disk": "ssd"}}, "taints": [TAINT]}),
        ],
    )
    def test_a_node_has_the_labels_and_taints_of_its_machines_template(self, flavour: str, template: Any) -> None:
        scene = Scene(flavour)
        scene.change_groups({"spec": {"template": {"spec": template}, "replicas": 2}})
        made = scene.store.list("nodes", labels="disk=ssd")
        assert {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in made} == set(ZONES)
        for node in made:
            assert node["spec"]["taints"] == [TAINT]
            assert quantity(node["status"]["allocatable"]["cpu"]) < quantity(node["status"]["capacity"]["cpu"])

    def test_cluster_api_copies_only_node_labels_from_machines_to_nodes(self) -> None:
        scene = Scene()
        labels = {"node-role.kubernetes.io/worker": "", "example.com/cost": "low"}
        scene.change_groups({"spec": {"template": {"metadata": {"labels": labels}}, "replicas": 2}})
        assert len(scene.store.list("nodes", labels="node-role.kubernetes.io/worker")) >= len(ZONES)
        assert scene.store.list("nodes", labels="example.com/cost") == []


class TestDrain:
    @EVERY_FLAVOUR
    def test_a_deleted_machine_goes_once_its_pods_moved(self, flavour: str) -> None:
        scene = budgeted(flavour, maxUnavailable=1)
        machine = scene.order_away()
        fewest = 6
        for _ in range(12):
            scene.run(seconds=10)
            fewest = min(fewest, sum(scene.zones().values()))
        assert not scene.has(machine)
        assert sum(scene.zones().values()) == 6
        assert fewest >= 5

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
