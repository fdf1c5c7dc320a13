"""The sandbox's machine controllers delete and fail as the real ones do."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sandbox.kube.controllers.cluster_api import cluster_api_deletion_order
from sandbox.kube.controllers.gardener import gardener_deletion_order
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.controllers.objects import parse_time
from sandbox.kube.controllers.openshift import openshift_deletion_order
from sandbox.kube.store import rfc3339
from sandbox.kube.world import Cluster, Pool, World
from tests.objects import machine_pool

START = datetime(2026, 1, 1, tzinfo=UTC)
ZONE = "eu-central-1a"
PRESERVE, PRIORITY = "node.machine.sapcloud.io/preserve", "machinepriority.machine.sapcloud.io"
FIRST = {PRIORITY: "1"}
CAPI_MARK = {"cluster.x-k8s.io/delete-machine": ""}


def machine(name: str, *, age: int = 60, notes: dict[str, str] | None = None, gone: bool = False, **status: Any) -> Any:
    """Return a machine that is `age` minutes old at START."""
    metadata: dict[str, Any] = {
        "name": name,
        "creationTimestamp": rfc3339(START - timedelta(minutes=age)),
        "annotations": notes or {},
    }
    if gone:
        metadata["deletionTimestamp"] = rfc3339(START)
    return {"metadata": metadata, "status": status}


def phased(name: str, phase: str, **fields: Any) -> Any:
    return machine(name, currentStatus={"phase": phase}, **fields)


def names(machines: list[Any]) -> list[str]:
    return [item["metadata"]["name"] for item in machines]


class Scene:
    def __init__(
        self,
        flavour: str,
        *,
        replicas: int = 2,
        api: str = "v1beta2",
        timing: Timing | None = None,
        pool: Pool | None = None,
    ) -> None:
        pool = pool or Pool(name="p", minimum=1, maximum=9, replicas=(replicas,), zones=(ZONE,))
        versions = ("v1beta1", "v1beta2") if api == "v1beta2" else ("v1beta1",)
        self.world = World(
            clusters=[flavour], pools={flavour: [pool]}, settings=None, timing=timing, cluster_api_versions=versions
        )
        self.cluster: Cluster = self.world.clusters[flavour]
        self.flavour = self.cluster.controllers.api
        self.store = self.cluster.store

    @property
    def group(self) -> Any:
        (item,) = self.store.list(self.flavour.scalables)
        return item

    def machines(self) -> list[Any]:
        return self.store.list(self.flavour.machines)

    def has(self, item: Any) -> bool:
        return item["metadata"]["name"] in names(self.machines())

    def scale(self, replicas: int, **duration: float) -> None:
        """Change replicas, and let time pass."""
        metadata = self.group["metadata"]
        self.store.scale(self.flavour.scalables, metadata["namespace"], metadata["name"], replicas)
        self.run(**duration)

    def condition(self, kind: str) -> Any:
        (stuck,) = self.stuck()
        return {item["type"]: item for item in stuck["status"]["conditions"]}[kind]

    def annotate(self, item: Any, notes: dict[str, str]) -> None:
        self.patch(self.flavour.machines, item, {"metadata": {"annotations": notes}})

    def patch(self, resource: str, item: Any, patch: Any) -> None:
        self.store.patch(resource, item["metadata"]["namespace"], item["metadata"]["name"], patch)

    def patch_group(self, patch: Any) -> None:
        self.patch(self.flavour.scalables, self.group, patch)

    def run(self, **duration: float) -> None:
        self.world.run(timedelta(**duration))

    def stuck(self) -> list[Any]:
        has_node: Callable[[Any], bool] = self.cluster.controllers.has_node
        return [item for item in self.machines() if not has_node(item)]


def exhausted(flavour: str, replicas: int = 1, **fields: Any) -> Scene:
    """Return a scene with these running nodes, and one more machine requested ten seconds ago in an exhausted zone."""
    scene = Scene(flavour, replicas=replicas, **fields)
    scene.cluster.cloud.exhaust_zone(ZONE)
    scene.scale(replicas + 1, seconds=10)
    return scene


def lame(flavour: str = "gardener", **fields: Any) -> tuple[Scene, Any]:
    """Return a scene with one running node, and a machine half a minute old whose node never joins."""
    scene = Scene(flavour, replicas=1, **fields)
    scene.cluster.cloud.never_join(ZONE, 1)
    scene.scale(2, seconds=30)
    (machine,) = scene.stuck()
    return scene, machine


class TestDeletionOrder:
    def test_gardener_goes_by_priority_then_phase_then_age(self) -> None:
        machines = [
            phased("running-old", "Running", age=90),
            phased("running-new", "Running", age=10),
            phased("pending", "Pending"),
            phased("crashing", "CrashLoopBackOff"),
            phased("failed", "Failed"),
            machine("untried"),
            phased("kept", "Failed", notes={PRIORITY: "5"}),
            phased("marked", "Running", notes=FIRST),
            phased("garbled", "Unknown", notes={PRIORITY: "x"}),
        ]
        expected = "marked untried failed crashing garbled pending running-old running-new kept"
        assert " ".join(names(gardener_deletion_order(machines, START))) == expected

    def test_gardener_takes_the_older_mark_first_and_any_mark_before_a_phase(self) -> None:
        key = "machine.sapcloud.io/marked-for-deletion-time"
        machines = [
            phased("unmarked", "Failed", notes=FIRST),
            phased("newer", "Running", notes={**FIRST, key: "2025-12-31T23:00:00Z"}),
            phased("older", "Running", notes={**FIRST, key: "2025-12-31T22:00:00Z"}),
            phased("garbled", "Running", notes={**FIRST, key: "soon"}),
        ]
        assert names(gardener_deletion_order(machines, START)) == ["older", "newer", "unmarked", "garbled"]

    def test_gardener_takes_preserved_machines_last_whatever_their_mark(self) -> None:
        def kept(name: str, hours: int, notes: dict[str, str] | None = None) -> Any:
            expires = rfc3339(START + timedelta(hours=hours))
            status = {"phase": "Failed", "preserveExpiryTime": expires}
            return machine(name, notes={PRESERVE: "now", **(notes or {})}, currentStatus=status)

        machines = [
            kept("marked", 9, FIRST),
            kept("soon-over", 1),
            kept("by-itself", 20, {PRESERVE: "auto-preserved"}),
            kept("over", -1),
            phased("running", "Running"),
        ]
        expected = ["over", "running", "by-itself", "soon-over", "marked"]
        assert names(gardener_deletion_order(machines, START)) == expected

    def test_cluster_api_takes_marked_then_unhealthy_then_by_name(self) -> None:
        node = {"name": "n"}
        sick = [{"type": "NodeHealthy", "status": "False"}]
        machines = [
            machine("b", nodeRef=node),
            machine("a", nodeRef=node),
            machine("without-node"),
            machine("sick", nodeRef=node, conditions=sick),
            machine("marked", notes=CAPI_MARK, nodeRef=node),
            machine("going", gone=True, nodeRef=node),
        ]
        expected = ["going", "marked", "sick", "without-node", "a", "b"]
        assert names(cluster_api_deletion_order(machines, "Random", START)) == expected

    @pytest.mark.parametrize(("order", "first"), [("Newest", "new"), ("Oldest", "old")])
    def test_cluster_api_orders_healthy_ones_by_age_when_asked(self, order: str, first: str) -> None:
        machines = [machine("old", age=9000, nodeRef={"name": "n"}), machine("new", age=1, nodeRef={"name": "m"})]
        assert names(cluster_api_deletion_order(machines, order, START))[0] == first

    def test_openshift_takes_marked_or_failed_then_those_without_node(self) -> None:
        node = {"name": "n"}
        machines = [
            machine("healthy", nodeRef=node),
            machine("without-node"),
            machine("emptily-marked", notes={"machine.openshift.io/delete-machine": ""}, nodeRef=node),
            machine("failed", errorReason="InvalidConfiguration"),
            machine("marked", notes={"machine.openshift.io/delete-machine": "yes"}, nodeRef=node),
            machine("going", gone=True),
        ]
        order = names(openshift_deletion_order(machines, "Random", START, seed=1))
        assert (order[0], set(order[1:3]), order[3]) == ("going", {"failed", "marked"}, "without-node")


class TestProvisioning:
    @pytest.mark.parametrize(("flavour", "machines"), [("gardener", 3), ("openshift", 3), ("cluster-api", 2)])
    def test_only_cluster_api_waits_for_a_deleted_machine_to_end(self, flavour: str, machines: int) -> None:
        scene = Scene(flavour, replicas=2, timing=Timing(deletion=timedelta(minutes=5)))
        metadata = scene.machines()[0]["metadata"]
        scene.store.delete(scene.flavour.machines, metadata["namespace"], metadata["name"])
        scene.run(minutes=2)
        assert len(scene.machines()) == machines
        scene.run(minutes=5)
        assert len(scene.machines()) == 2
        assert metadata["name"] not in names(scene.machines())

    def test_statuses_omit_zeros_as_the_real_ones_do(self) -> None:
        gardener, openshift, capi = (Scene(flavour, replicas=0) for flavour in ("gardener", "openshift", "cluster-api"))
        for scene in (gardener, openshift, capi):
            scene.run(seconds=10)
        assert "replicas" not in gardener.group["status"]
        assert openshift.group["status"] == {"replicas": 0, "observedGeneration": 1}
        assert capi.group["status"]["readyReplicas"] == 0

    def test_cluster_api_statuses_have_the_shape_of_the_stored_version(self) -> None:
        old, new = Scene("cluster-api", api="v1beta1"), Scene("cluster-api", api="v1beta2")
        assert old.group["apiVersion"] == "cluster.x-k8s.io/v1beta1"
        assert old.group["status"]["updatedReplicas"] == 2
        assert new.group["status"]["upToDateReplicas"] == 2
        assert "kind" in old.machines()[0]["status"]["nodeRef"]
        assert set(new.machines()[0]["status"]["nodeRef"]) == {"name"}


class TestRollout:
    @pytest.mark.parametrize("flavour", ["gardener", "cluster-api"])
    def test_a_new_template_replaces_machines_one_by_one(self, flavour: str) -> None:
        scene = Scene(flavour, replicas=3, timing=Timing(provision=timedelta(seconds=20)))
        before = set(names(scene.machines()))
        scene.patch_group({"spec": {"template": {"metadata": {"labels": {"new": "one"}}}}})
        seen = []
        for _ in range(30):
            scene.run(seconds=10)
            ready = scene.group["status"]["readyReplicas"]
            updated = scene.group["status"].get("updatedReplicas", scene.group["status"].get("upToDateReplicas", 0))
            seen.append((ready, updated))
        assert min(ready for ready, _ in seen) >= 3
        assert max(ready for ready, _ in seen) <= 4
        assert [updated for _, updated in seen] == sorted(updated for _, updated in seen)
        assert seen[-1] == (3, 3)
        assert not before & set(names(scene.machines()))


REFUSAL: dict[str, Any] = {"code": "UnauthorizedOperation", "message": "You are not authorized.", "status": 403}


class TestFailures:
    def test_gardener_reports_resource_exhausted_and_fails_after_the_creation_timeout(self) -> None:
        scene = exhausted("gardener")
        (stuck,) = scene.stuck()
        operation = stuck["status"]["lastOperation"]
        assert stuck["status"]["currentStatus"]["phase"] == "CrashLoopBackOff"
        facts = (operation["type"], operation["state"], operation["errorCode"])
        assert facts == ("Create", "Failed", "ResourceExhausted")
        assert operation["description"].startswith(
            "Cloud provider message - machine codes error: code = [ResourceExhausted] message = "
            "[InsufficientInstanceCapacity: We currently do not have sufficient m5.xlarge capacity"
        )
        (failed,) = scene.group["status"]["failedMachines"]
        assert failed["name"] == stuck["metadata"]["name"]
        assert failed["lastOperation"] == operation
        assert failed["ownerRef"] == stuck["metadata"]["ownerReferences"][0]["name"]
        assert scene.store.list("events") == []
        scene.run(minutes=18)
        assert scene.stuck()[0]["status"]["lastOperation"] == operation  # a similar status is not written again
        scene.run(minutes=5)
        assert names(scene.stuck()) != [stuck["metadata"]["name"]]  # failed, deleted and replaced
        assert len(scene.machines()) == 2

    def test_gardener_keeps_a_preserved_failed_machine_for_its_time(self) -> None:
        scene, machine = lame(timing=Timing(preserve=timedelta(hours=1)))
        scene.annotate(machine, {PRESERVE: "when-failed"})
        scene.run(minutes=40)
        (kept,) = scene.stuck()
        assert names([kept]) == names([machine])
        assert kept["status"]["currentStatus"]["phase"] == "Failed"
        assert "preserveExpiryTime" in kept["status"]["currentStatus"]
        assert len(scene.machines()) == 2
        scene.run(minutes=60)
        assert not scene.has(machine)
        assert len(scene.machines()) == 2

    def test_gardener_auto_preserves_up_to_the_deployments_limit(self) -> None:
        scene, machine = lame()
        scene.patch_group({"spec": {"autoPreserveFailedMachineMax": 1}})
        scene.run(minutes=40)
        (kept,) = scene.stuck()
        assert kept["metadata"]["name"] == machine["metadata"]["name"]
        assert kept["metadata"]["annotations"][PRESERVE] == "auto-preserved"
        (machine_set,) = scene.store.list("machinesets.machine.sapcloud.io")
        assert machine_set["status"]["autoPreserveFailedMachineCount"] == 1
        assert scene.group["status"]["preservedFailedReplicas"] == 1
        assert "failedMachines" not in scene.group["status"], "it does not make the deployment unavailable"
        scene.patch_group({"spec": {"autoPreserveFailedMachineMax": 0}})
        scene.run(minutes=3)
        assert not scene.has(machine)
        assert "preservedFailedReplicas" not in scene.group["status"]

    @pytest.mark.parametrize(
        ("refusal", "code", "text"),
        [
            (None, "ResourceExhausted", "VcpuLimitExceeded"),
            (REFUSAL, "Internal", "UnauthorizedOperation: You are not authorized."),
        ],
        ids=["quota", "refusal"],
    )
    def test_gardener_reports_the_clouds_error(self, refusal: dict[str, Any] | None, code: str, text: str) -> None:
        scene = Scene("gardener", replicas=1)
        if refusal:
            scene.cluster.cloud.refuse(ZONE, **refusal)
        else:
            scene.cluster.cloud.quota = 1
        scene.scale(2, seconds=10)
        operation = scene.stuck()[0]["status"]["lastOperation"]
        assert operation["errorCode"] == code
        assert text in operation["description"]

    def test_gardener_gives_no_error_code_for_a_node_that_never_joins(self) -> None:
        scene, machine = lame()
        assert machine["status"]["currentStatus"]["phase"] == "Pending"
        scene.world.run(START + timedelta(minutes=20, seconds=20) - scene.world.now)
        failed = [item for item in scene.machines() if item["status"]["currentStatus"]["phase"] == "Failed"]
        assert names(failed) == names([machine])
        operation = failed[0]["status"]["lastOperation"]
        assert "errorCode" not in operation
        assert "failed to join the cluster" in operation["description"]

    @pytest.mark.parametrize("api", ["v1beta1", "v1beta2"])
    def test_cluster_api_stays_provisioning_and_the_provider_reports_the_reason(self, api: str) -> None:
        scene = exhausted("cluster-api", api=api)
        (stuck,) = scene.stuck()
        assert stuck["status"]["phase"] == "Provisioning"
        assert not {"failureMessage", "failureReason"} & set(stuck["status"])
        mirrored = scene.condition("InfrastructureReady")
        assert (mirrored["status"], mirrored["reason"]) == ("False", "InstanceProvisionFailed")
        assert ("severity" in mirrored) == (api == "v1beta1")
        metadata = stuck["metadata"]
        aws = scene.store.get("awsmachines.infrastructure.cluster.x-k8s.io", metadata["namespace"], metadata["name"])
        ready = {item["type"]: item for item in aws["status"]["conditions"]}["InstanceReady"]
        assert (ready["status"], ready["reason"], ready["severity"]) == ("False", "InstanceProvisionFailed", "Error")
        assert "InsufficientInstanceCapacity" in ready["message"]
        (event,) = scene.store.list("events")
        assert (event["reason"], event["type"]) == ("FailedCreate", "Warning")
        assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("AWSMachine", metadata["name"])
        assert event["message"].startswith("Failed to create instance: ")
        scene.run(minutes=5)
        (event,) = scene.store.list("events")
        assert event["count"] > 5
        assert parse_time(event["lastTimestamp"]) > parse_time(event["firstTimestamp"])

    def test_openshift_stays_provisioning_on_missing_capacity(self) -> None:
        scene = exhausted("openshift")
        (stuck,) = scene.stuck()
        assert stuck["status"]["phase"] == "Provisioning"
        assert "errorReason" not in stuck["status"]
        (condition,) = stuck["status"]["providerStatus"]["conditions"]
        assert (condition["type"], condition["status"]) == ("MachineCreation", "False")
        assert condition["reason"] == "MachineCreationFailed"
        assert scene.condition("InstanceExists")["status"] == "False"
        (event,) = scene.store.list("events")
        name = stuck["metadata"]["name"]
        assert (event["reason"], event["involvedObject"]["kind"]) == ("FailedCreate", "Machine")
        assert event["message"].startswith(
            f"{name}: reconciler failed to Create machine: failed to launch instance: error creating EC2 instance: "
            "InsufficientInstanceCapacity: "
        )

    def test_openshift_fails_permanently_on_an_invalid_request(self) -> None:
        scene = Scene("openshift", replicas=1)
        scene.cluster.cloud.quota = 1
        scene.scale(2, seconds=10)
        (stuck,) = scene.stuck()
        assert (stuck["status"]["phase"], stuck["status"]["errorReason"]) == ("Failed", "InvalidConfiguration")
        assert "vCPU limit of 4" in stuck["status"]["errorMessage"]
        scene.cluster.cloud.quota = None
        scene.run(minutes=10)
        assert names(scene.stuck()) == names([stuck])


class PoolScene(Scene):
    def __init__(self, *zones: str, replicas: int = 2) -> None:
        pool = Pool(name="p", minimum=1, maximum=9, replicas=(0, 0), zones=(ZONE, OTHER))
        super().__init__("cluster-api", pool=pool)
        body = machine_pool(ZONE, replicas, 0, instances=0)
        body["metadata"]["namespace"] = "demo"
        body["spec"] |= {"failureDomains": list(zones), "providerIDList": []}
        self.store.create(POOLS, {key: value for key, value in body.items() if key in ("metadata", "spec")})
        self.run(minutes=2)

    @property
    def pool(self) -> Any:
        (item,) = self.store.list(POOLS)
        return item

    def change(self, **patch: Any) -> None:
        self.patch(POOLS, self.pool, patch)

    def nodes(self) -> set[str]:
        return set(names(self.store.list("nodes")))


POOLS = "machinepools.cluster.x-k8s.io"
OTHER = "eu-central-1b"


class TestMachinePools:
    def test_a_refused_instance_is_reported_by_no_object(self) -> None:
        scene = PoolScene(ZONE, replicas=1)
        scene.cluster.cloud.exhaust_zone(ZONE)
        scene.change(spec={"replicas": 3})
        scene.run(minutes=5)
        assert scene.pool["status"]["replicas"] == 1
        assert scene.store.list("events") == []
        assert "conditions" not in scene.pool["status"]

    def test_when_replicas_fall_the_oldest_instance_goes(self) -> None:
        scene = PoolScene(ZONE, replicas=1)
        (node,) = scene.nodes()
        scene.change(spec={"replicas": 2})
        scene.run(seconds=20)
        scene.change(spec={"replicas": 1})
        scene.run(seconds=20)
        assert node not in scene.nodes()

    def test_a_pool_without_zones_is_spread_over_all(self) -> None:
        scene = PoolScene(replicas=4)
        zones = [member.split("/")[3] for member in scene.pool["spec"]["providerIDList"]]
        assert sorted(zones) == [ZONE, ZONE, OTHER, OTHER]
