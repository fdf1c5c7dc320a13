"""The sandbox's machine controllers: deletion orders and failure shapes as the real ones have them."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sandbox.kube.autoscaler import FLAVOURS
from sandbox.kube.controllers.cluster_api import cluster_api_deletion_order
from sandbox.kube.controllers.gardener import gardener_deletion_order
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.controllers.objects import parse_time
from sandbox.kube.controllers.openshift import openshift_deletion_order
from sandbox.kube.controllers.shoots import distribute
from sandbox.kube.store import rfc3339
from sandbox.kube.world import Cluster, Pool, World
from tests.objects import machine_pool

START = datetime(2026, 1, 1, tzinfo=UTC)
ZONE = "eu-central-1a"
EVERY_FLAVOUR = pytest.mark.parametrize("flavour", ["gardener", "cluster-api", "openshift"])


def machine(name: str, *, age: int = 60, notes: dict[str, str] | None = None, gone: bool = False, **status: Any) -> Any:
    """A machine that is `age` minutes old at START."""
    metadata: dict[str, Any] = {
        "name": name,
        "creationTimestamp": rfc3339(START - timedelta(minutes=age)),
        "annotations": notes or {},
    }
    if gone:
        metadata["deletionTimestamp"] = rfc3339(START)
    return {"metadata": metadata, "status": status}


def names(machines: list[Any]) -> list[str]:
    return [item["metadata"]["name"] for item in machines]


class Scene:
    """One cluster with one pool and a handle on its objects."""

    def __init__(self, flavour: str, *, replicas: int = 2, api: str = "v1beta2", timing: Timing | None = None) -> None:
        pool = Pool(name="p", minimum=1, maximum=9, replicas=(replicas,), zones=(ZONE,))
        self.world = World(
            clusters=[flavour],
            pools={flavour: [pool]},
            settings=None,
            timing=timing,
            cluster_api_versions=("v1beta1", "v1beta2") if api == "v1beta2" else ("v1beta1",),
        )
        self.cluster: Cluster = self.world.clusters[flavour]
        self.flavour = FLAVOURS[flavour]
        self.store = self.cluster.store

    @property
    def group(self) -> Any:
        (item,) = self.store.list(self.flavour.scalables)
        return item

    def machines(self) -> list[Any]:
        return self.store.list(self.flavour.machines)

    def scale(self, replicas: int) -> None:
        metadata = self.group["metadata"]
        self.store.scale(self.flavour.scalables, metadata["namespace"], metadata["name"], replicas)

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


def exhausted(flavour: str, **fields: Any) -> Scene:
    """One node runs; a second machine has been wanted for ten seconds where the zone has none left."""
    scene = Scene(flavour, replicas=1, **fields)
    scene.cluster.cloud.exhaust_zone(ZONE)
    scene.scale(2)
    scene.run(seconds=10)
    return scene


def lame(flavour: str = "gardener", **fields: Any) -> tuple[Scene, Any]:
    """One node runs; a second machine has been there for half a minute whose node never joins."""
    scene = Scene(flavour, replicas=1, **fields)
    scene.cluster.cloud.never_join(ZONE, 1)
    scene.scale(2)
    scene.run(seconds=30)
    (machine,) = scene.stuck()
    return scene, machine


class TestDeletionOrder:
    def test_gardener_goes_by_priority_then_phase_then_age(self) -> None:
        machines = [
            machine("running-old", age=90, currentStatus={"phase": "Running"}),
            machine("running-new", age=10, currentStatus={"phase": "Running"}),
            machine("pending", currentStatus={"phase": "Pending"}),
            machine("crashing", currentStatus={"phase": "CrashLoopBackOff"}),
            machine("failed", currentStatus={"phase": "Failed"}),
            machine("untried"),
            machine("kept", notes={"machinepriority.machine.sapcloud.io": "5"}, currentStatus={"phase": "Failed"}),
            machine("marked", notes={"machinepriority.machine.sapcloud.io": "1"}, currentStatus={"phase": "Running"}),
            machine("garbled", notes={"machinepriority.machine.sapcloud.io": "x"}, currentStatus={"phase": "Unknown"}),
        ]
        expected = "marked untried failed crashing garbled pending running-old running-new kept"
        assert " ".join(names(gardener_deletion_order(machines, START))) == expected

    def test_gardener_takes_the_older_mark_first_and_any_mark_before_a_phase(self) -> None:
        first, key = {"machinepriority.machine.sapcloud.io": "1"}, "machine.sapcloud.io/marked-for-deletion-time"
        machines = [
            machine("unmarked", notes=first, currentStatus={"phase": "Failed"}),
            machine("newer", notes={**first, key: "2025-12-31T23:00:00Z"}, currentStatus={"phase": "Running"}),
            machine("older", notes={**first, key: "2025-12-31T22:00:00Z"}, currentStatus={"phase": "Running"}),
            machine("garbled", notes={**first, key: "soon"}, currentStatus={"phase": "Running"}),
        ]
        assert names(gardener_deletion_order(machines, START)) == ["older", "newer", "unmarked", "garbled"]

    def test_gardener_takes_what_it_preserves_last_whatever_its_mark(self) -> None:
        def kept(name: str, hours: int, **notes: str) -> Any:
            expires = rfc3339(START + timedelta(hours=hours))
            status = {"phase": "Failed", "preserveExpiryTime": expires}
            return machine(name, notes={"node.machine.sapcloud.io/preserve": "now"} | notes, currentStatus=status)

        machines = [
            kept("marked", 9, **{"machinepriority.machine.sapcloud.io": "1"}),
            kept("soon-over", 1),
            kept("by-itself", 20, **{"node.machine.sapcloud.io/preserve": "auto-preserved"}),
            kept("over", -1),
            machine("running", currentStatus={"phase": "Running"}),
        ]
        expected = ["over", "running", "by-itself", "soon-over", "marked"]
        assert names(gardener_deletion_order(machines, START)) == expected

    @pytest.mark.parametrize(
        "notes",
        [
            {"in-place-updates.internal.cluster.x-k8s.io/update-in-progress": ""},
            {"runtime.cluster.x-k8s.io/pending-hooks": "Other,UpdateMachine"},
        ],
    )
    def test_cluster_api_takes_what_it_updates_in_place_after_the_marked_and_before_the_unhealthy(
        self, notes: dict[str, str]
    ) -> None:
        machines = [
            machine("healthy", nodeRef={"name": "a"}),
            machine("unhealthy"),
            machine("updating", notes=notes, nodeRef={"name": "b"}),
            machine("marked", notes={"cluster.x-k8s.io/delete-machine": ""}, nodeRef={"name": "c"}),
        ]
        for order in ("Random", "Oldest", "Newest"):
            found = names(cluster_api_deletion_order(machines, order, START))
            assert found == ["marked", "updating", "unhealthy", "healthy"]

    def test_cluster_api_takes_marked_then_unhealthy_then_any_by_name(self) -> None:
        node = {"name": "n"}
        sick = [{"type": "NodeHealthy", "status": "False"}]
        machines = [
            machine("b", nodeRef=node),
            machine("a", nodeRef=node),
            machine("without-node"),
            machine("sick", nodeRef=node, conditions=sick),
            machine("marked", notes={"cluster.x-k8s.io/delete-machine": ""}, nodeRef=node),
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
        assert order[0] == "going"
        assert set(order[1:3]) == {"failed", "marked"}
        assert order[3] == "without-node"
        assert set(order[4:]) == {"healthy", "emptily-marked"}

    def test_openshifts_ties_are_settled_by_the_seed_alone(self) -> None:
        machines = [machine(f"m{index}", nodeRef={"name": "n"}) for index in range(9)]
        once = names(openshift_deletion_order(machines, "Random", START, seed=3))
        assert names(openshift_deletion_order(machines[::-1], "Random", START, seed=3)) == once
        others = [names(openshift_deletion_order(machines, "Random", START, seed=seed)) for seed in range(9)]
        assert any(other != once for other in others)

    def test_openshifts_older_mark_counts_under_oldest_only(self) -> None:
        notes = {"machine.openshift.io/cluster-api-delete-machine": "yes"}
        machines = [
            machine("old", age=900, nodeRef={"name": "n"}),
            machine("marked", age=1, notes=notes, nodeRef={"name": "m"}),
        ]
        assert names(openshift_deletion_order(machines, "Oldest", START, seed=0))[0] == "marked"
        assert {names(openshift_deletion_order(machines, "Random", START, seed=seed))[0] for seed in range(9)} == {
            "marked",
            "old",
        }

    @EVERY_FLAVOUR
    def test_a_shrinking_group_loses_the_marked_machine_even_if_it_has_a_node(self, flavour: str) -> None:
        scene = Scene(flavour, replicas=3)
        victim = scene.machines()[1]
        scene.annotate(victim, scene.flavour.mark(START))
        scene.scale(2)
        scene.run(seconds=20)
        assert len(scene.machines()) == 2
        assert victim["metadata"]["name"] not in names(scene.machines())

    @EVERY_FLAVOUR
    def test_without_a_mark_the_stuck_machine_goes_before_the_running_one(self, flavour: str) -> None:
        scene = Scene(flavour, replicas=2)
        scene.cluster.cloud.exhaust_zone(ZONE)
        scene.scale(4)
        scene.run(seconds=30)
        running = set(names(scene.machines())) - set(names(scene.stuck()))
        scene.scale(2)
        scene.run(seconds=20)
        assert set(names(scene.machines())) == running


class TestProvisioning:
    @EVERY_FLAVOUR
    def test_a_machine_becomes_a_node_after_the_delay_and_not_before(self, flavour: str) -> None:
        scene = Scene(flavour, replicas=1, timing=Timing(provision=timedelta(seconds=45)))
        scene.scale(2)
        scene.run(seconds=40)
        assert (len(scene.machines()), len(scene.stuck())) == (2, 1)
        scene.run(seconds=30)
        assert scene.stuck() == []
        zones = {node["metadata"]["labels"]["topology.kubernetes.io/zone"] for node in scene.store.list("nodes")}
        assert (len(scene.store.list("nodes")), zones) == (2, {ZONE})

    @EVERY_FLAVOUR
    def test_a_deleted_machine_takes_node_and_instance_with_it(self, flavour: str) -> None:
        scene = Scene(flavour, replicas=3)
        scene.scale(0)
        scene.run(seconds=20)
        assert scene.machines() == []
        assert scene.store.list("nodes") == []
        assert scene.cluster.cloud.used() == {ZONE: 0}
        assert scene.store.list("awsmachines.infrastructure.cluster.x-k8s.io") == []

    @EVERY_FLAVOUR
    def test_a_zone_that_was_given_back_delivers_what_is_still_wanted(self, flavour: str) -> None:
        scene = Scene(flavour, replicas=1)
        scene.cluster.cloud.exhaust_zone(ZONE)
        scene.scale(2)
        scene.run(minutes=2)
        assert len(scene.stuck()) == 1
        scene.cluster.cloud.restore_zone(ZONE)
        scene.run(minutes=12)
        assert scene.stuck() == []

    @EVERY_FLAVOUR
    def test_a_quiet_cluster_is_never_written(self, flavour: str) -> None:
        scene = Scene(flavour)
        scene.run(minutes=1)
        before = scene.store.page("nodes", "", version="v1").resource_version
        scene.run(minutes=10)
        assert scene.store.page("nodes", "", version="v1").resource_version == before

    @pytest.mark.parametrize(("flavour", "machines"), [("gardener", 3), ("openshift", 3), ("cluster-api", 2)])
    def test_only_cluster_api_waits_for_the_end_of_a_deleted_machine_before_it_makes_another(
        self, flavour: str, machines: int
    ) -> None:
        scene = Scene(flavour, replicas=2, timing=Timing(deletion=timedelta(minutes=5)))
        metadata = scene.machines()[0]["metadata"]
        scene.store.delete(scene.flavour.machines, metadata["namespace"], metadata["name"])
        scene.run(minutes=2)
        assert len(scene.machines()) == machines
        scene.run(minutes=5)
        assert len(scene.machines()) == 2
        assert metadata["name"] not in names(scene.machines())

    def test_statuses_leave_zeros_out_where_the_real_ones_do(self) -> None:
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

    def test_a_paused_cluster_api_group_is_left_alone(self) -> None:
        scene = Scene("cluster-api", replicas=1)
        (cluster,) = scene.store.list("clusters.cluster.x-k8s.io")
        scene.patch("clusters.cluster.x-k8s.io", cluster, {"spec": {"paused": True}})
        scene.scale(3)
        scene.run(seconds=30)
        assert len(scene.machines()) == 1


class TestRollout:
    @pytest.mark.parametrize("flavour", ["gardener", "cluster-api"])
    def test_a_new_template_replaces_the_machines_one_by_one_and_never_runs_fewer(self, flavour: str) -> None:
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

    def test_sets_carry_rising_revisions_and_old_ones_end_empty(self) -> None:
        scene = Scene("cluster-api", replicas=1)
        for label in ("one", "two"):
            scene.patch_group({"spec": {"template": {"metadata": {"labels": {"new": label}}}}})
            scene.run(minutes=5)
        sets = scene.store.list("machinesets.cluster.x-k8s.io")
        revision = "machinedeployment.clusters.x-k8s.io/revision"
        replicas = [(item["metadata"]["annotations"][revision], item["spec"]["replicas"]) for item in sets]
        assert sorted(replicas) == [("1", 0), ("2", 0), ("3", 1)]


class TestFailures:
    def test_gardener_reports_resource_exhausted_and_fails_after_the_creation_timeout(self) -> None:
        scene = exhausted("gardener")
        (stuck,) = scene.stuck()
        operation = stuck["status"]["lastOperation"]
        assert stuck["status"]["currentStatus"]["phase"] == "CrashLoopBackOff"
        assert (operation["type"], operation["state"], operation["errorCode"]) == (
            "Create",
            "Failed",
            "ResourceExhausted",
        )
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

    def test_a_failed_machine_of_gardeners_that_is_preserved_stays_for_its_time_and_holds_its_replica(self) -> None:
        scene, machine = lame(timing=Timing(preserve=timedelta(hours=1)))
        scene.annotate(machine, {"node.machine.sapcloud.io/preserve": "when-failed"})
        scene.run(minutes=40)
        (kept,) = scene.stuck()
        assert kept["metadata"]["name"] == machine["metadata"]["name"]
        assert kept["status"]["currentStatus"]["phase"] == "Failed"
        assert "preserveExpiryTime" in kept["status"]["currentStatus"]
        assert len(scene.machines()) == 2
        scene.run(minutes=60)
        assert machine["metadata"]["name"] not in names(scene.machines())
        assert len(scene.machines()) == 2

    def test_a_preserved_machine_of_gardeners_is_let_go_when_somebody_says_so(self) -> None:
        scene, machine = lame()
        scene.annotate(machine, {"node.machine.sapcloud.io/preserve": "now"})
        scene.run(minutes=30)
        scene.annotate(machine, {"node.machine.sapcloud.io/preserve": "false"})
        scene.run(minutes=3)
        assert machine["metadata"]["name"] not in names(scene.machines())

    def test_gardener_preserves_failed_machines_by_itself_as_far_as_their_deployment_says(self) -> None:
        scene, machine = lame()
        scene.patch_group({"spec": {"autoPreserveFailedMachineMax": 1}})
        scene.run(minutes=40)
        (kept,) = scene.stuck()
        assert kept["metadata"]["name"] == machine["metadata"]["name"]
        assert kept["metadata"]["annotations"]["node.machine.sapcloud.io/preserve"] == "auto-preserved"
        (machine_set,) = scene.store.list("machinesets.machine.sapcloud.io")
        assert machine_set["status"]["autoPreserveFailedMachineCount"] == 1
        assert scene.group["status"]["preservedFailedReplicas"] == 1
        assert "failedMachines" not in scene.group["status"], "it does not make the deployment unavailable"
        scene.patch_group({"spec": {"autoPreserveFailedMachineMax": 0}})
        scene.run(minutes=3)
        assert machine["metadata"]["name"] not in names(scene.machines())
        assert "preservedFailedReplicas" not in scene.group["status"]

    def test_what_a_node_asks_for_wins_over_what_its_machine_asks_for(self) -> None:
        scene = Scene("gardener", replicas=1)
        (machine,) = scene.machines()
        (node,) = scene.store.list("nodes")
        scene.annotate(machine, {"node.machine.sapcloud.io/preserve": "now"})
        scene.run(seconds=30)
        assert "preserveExpiryTime" in scene.machines()[0]["status"]["currentStatus"]
        note = {"metadata": {"annotations": {"node.machine.sapcloud.io/preserve": "false"}}}
        scene.store.patch("nodes", "", node["metadata"]["name"], note)
        scene.run(seconds=30)
        (let_go,) = scene.machines()
        assert "preserveExpiryTime" not in let_go["status"]["currentStatus"]
        assert let_go["metadata"]["annotations"] == {
            "node.machine.sapcloud.io/last-applied-node-preserve-value": "false"
        }

    def test_when_replicas_fall_a_healthy_node_goes_in_the_place_of_a_preserved_machine(self) -> None:
        scene, machine = lame()
        marks = {"node.machine.sapcloud.io/preserve": "now", "machinepriority.machine.sapcloud.io": "1"}
        scene.annotate(machine, marks)
        scene.run(minutes=30)
        scene.scale(1)
        scene.run(minutes=1)
        assert names(scene.machines()) == [machine["metadata"]["name"]]

    def test_machines_named_for_deletion_go_with_the_change_of_replicas_that_names_them(self) -> None:
        scene = Scene("gardener", replicas=3)
        metadata = scene.group["metadata"]
        chosen = names(scene.machines())[1]
        moment = rfc3339(scene.world.now)
        notes = {
            "node.machine.sapcloud.io/trigger-deletion-by-mcm": f"{chosen}~{moment},gone~{moment},odd~soon",
            "machine.sapcloud.io/last-deployment-replica-change-by-scaler-time": moment,
        }
        patch = {"metadata": {"annotations": notes}, "spec": {"replicas": 2}}
        scene.store.patch(scene.flavour.scalables, metadata["namespace"], metadata["name"], patch)
        scene.run(minutes=2)
        assert len(scene.machines()) == 2
        assert chosen not in names(scene.machines())
        assert "node.machine.sapcloud.io/trigger-deletion-by-mcm" not in scene.group["metadata"]["annotations"]

    def test_gardener_calls_quota_resource_exhausted_too_and_only_the_text_tells(self) -> None:
        scene = Scene("gardener", replicas=1)
        scene.cluster.cloud.quota = 1
        scene.scale(2)
        scene.run(seconds=10)
        operation = scene.stuck()[0]["status"]["lastOperation"]
        assert operation["errorCode"] == "ResourceExhausted"
        assert "VcpuLimitExceeded" in operation["description"]

    def test_gardener_gives_no_error_code_for_a_node_that_never_joins(self) -> None:
        scene = Scene("gardener", replicas=1)
        scene.cluster.cloud.never_join(ZONE, 1)
        scene.scale(2)
        scene.run(minutes=1)
        (waiting,) = scene.stuck()
        assert waiting["status"]["currentStatus"]["phase"] == "Pending"
        now = START + timedelta(minutes=20, seconds=20)
        scene.world.run(now - scene.world.now)
        seen = scene.store.list("machines.machine.sapcloud.io")
        failed = [item for item in seen if item["status"]["currentStatus"]["phase"] == "Failed"]
        assert names(failed) == names([waiting])
        operation = failed[0]["status"]["lastOperation"]
        assert "errorCode" not in operation
        assert "failed to join the cluster" in operation["description"]

    @pytest.mark.parametrize("api", ["v1beta1", "v1beta2"])
    def test_cluster_api_stays_provisioning_and_the_provider_says_why(self, api: str) -> None:
        scene = exhausted("cluster-api", api=api)
        (stuck,) = scene.stuck()
        assert stuck["status"]["phase"] == "Provisioning"
        assert not {"failureMessage", "failureReason"} & set(stuck["status"])
        mirrored = {item["type"]: item for item in stuck["status"]["conditions"]}["InfrastructureReady"]
        assert (mirrored["status"], mirrored["reason"]) == ("False", "InstanceProvisionFailed")
        assert ("severity" in mirrored) == (api == "v1beta1")
        metadata = stuck["metadata"]
        aws = scene.store.get("awsmachines.infrastructure.cluster.x-k8s.io", metadata["namespace"], metadata["name"])
        condition = {item["type"]: item for item in aws["status"]["conditions"]}["InstanceReady"]
        assert (condition["status"], condition["reason"], condition["severity"]) == (
            "False",
            "InstanceProvisionFailed",
            "Error",
        )
        assert "InsufficientInstanceCapacity" in condition["message"]
        (event,) = scene.store.list("events")
        assert (event["reason"], event["type"]) == ("FailedCreate", "Warning")
        assert (event["involvedObject"]["kind"], event["involvedObject"]["name"]) == ("AWSMachine", metadata["name"])
        assert event["message"].startswith("Failed to create instance: ")

    def test_repeated_failures_raise_the_count_of_one_event(self) -> None:
        scene = Scene("cluster-api", replicas=1)
        scene.cluster.cloud.exhaust_zone(ZONE)
        scene.scale(2)
        scene.run(minutes=5)
        (event,) = scene.store.list("events")
        assert event["count"] > 5
        assert parse_time(event["lastTimestamp"]) > parse_time(event["firstTimestamp"])

    def test_openshift_stays_provisioning_on_missing_capacity_and_sets_no_error_reason(self) -> None:
        scene = exhausted("openshift")
        (stuck,) = scene.stuck()
        assert stuck["status"]["phase"] == "Provisioning"
        assert "errorReason" not in stuck["status"]
        (condition,) = stuck["status"]["providerStatus"]["conditions"]
        assert (condition["type"], condition["status"]) == ("MachineCreation", "False")
        assert condition["reason"] == "MachineCreationFailed"
        assert stuck["status"]["conditions"][0]["type"] == "InstanceExists"
        assert stuck["status"]["conditions"][0]["status"] == "False"
        (event,) = scene.store.list("events")
        name = stuck["metadata"]["name"]
        assert (event["reason"], event["involvedObject"]["kind"]) == ("FailedCreate", "Machine")
        assert event["message"].startswith(
            f"{name}: reconciler failed to Create machine: failed to launch instance: error creating EC2 instance: "
            "InsufficientInstanceCapacity: "
        )

    def test_openshift_fails_for_good_on_a_fault_of_the_caller(self) -> None:
        scene = Scene("openshift", replicas=1)
        scene.cluster.cloud.quota = 1
        scene.scale(2)
        scene.run(seconds=10)
        (stuck,) = scene.stuck()
        assert (stuck["status"]["phase"], stuck["status"]["errorReason"]) == ("Failed", "InvalidConfiguration")
        assert "vCPU limit of 4" in stuck["status"]["errorMessage"]
        scene.cluster.cloud.quota = None
        scene.run(minutes=10)
        assert names(scene.stuck()) == names([stuck])

    @EVERY_FLAVOUR
    def test_a_node_that_never_joins_leaves_the_machine_without_one(self, flavour: str) -> None:
        scene = Scene(flavour, replicas=1)
        scene.cluster.cloud.never_join(ZONE, 1)
        scene.scale(2)
        scene.run(minutes=15)
        (stuck,) = scene.stuck()
        assert stuck["spec"]["providerID"].startswith(f"aws:///{ZONE}/i-")

    def test_an_error_of_choice_reaches_the_machine(self) -> None:
        scene = Scene("gardener", replicas=1)
        scene.cluster.cloud.refuse(ZONE, code="UnauthorizedOperation", message="You are not authorized.", status=403)
        scene.scale(2)
        scene.run(seconds=10)
        operation = scene.stuck()[0]["status"]["lastOperation"]
        assert operation["errorCode"] == "Internal"
        assert "UnauthorizedOperation: You are not authorized." in operation["description"]


class TestOwners:
    def test_the_machine_autoscaler_writes_its_bounds_over_others_edits(self) -> None:
        scene = Scene("openshift")
        key = "machine.openshift.io/cluster-api-autoscaler-node-group-max-size"
        scene.patch_group({"metadata": {"annotations": {key: "77"}}})
        scene.run(seconds=10)
        assert scene.group["metadata"]["annotations"][key] == "9"
        (owner,) = scene.store.list("machineautoscalers.autoscaling.openshift.io")
        scene.patch("machineautoscalers.autoscaling.openshift.io", owner, {"spec": {"maxReplicas": 5}})
        scene.run(seconds=10)
        assert scene.group["metadata"]["annotations"][key] == "5"

    def test_a_workers_reconciler_puts_replicas_back_into_the_zones_share(self) -> None:
        world = World(clusters=["gardener"], settings=None)
        cluster = world.clusters["gardener"]
        deployments = "machinedeployments.machine.sapcloud.io"
        first, second, third = (item["metadata"]["name"] for item in cluster.store.list(deployments))
        for name, replicas in ((first, 0), (second, 4), (third, 9)):
            cluster.store.scale(deployments, cluster.namespace, name, replicas)
        world.run(timedelta(seconds=10))
        assert [view.requested for view in world.groups()] == [0, 4, 9]
        cluster.controllers.worker_controller = True  # type: ignore[attr-defined]
        world.run(timedelta(seconds=10))
        assert [view.requested for view in world.groups()] == [1, 4, 4]

    def test_the_topology_controller_puts_its_own_keys_back_and_leaves_the_others(self) -> None:
        scene = Scene("cluster-api")
        labels = {"topology.cluster.x-k8s.io/owned": "", "topology.cluster.x-k8s.io/deployment-name": "md"}
        scene.patch_group({"metadata": {"labels": labels}})
        entry = {"class": "c", "name": "md", "metadata": {"annotations": {"owned": "1"}}}
        topology = {"class": "aws", "workers": {"machineDeployments": [entry]}}
        (cluster,) = scene.store.list("clusters.cluster.x-k8s.io")
        scene.patch("clusters.cluster.x-k8s.io", cluster, {"spec": {"topology": topology}})
        scene.patch_group({"metadata": {"annotations": {"owned": "2", "foreign": "3"}}})
        scene.run(seconds=10)
        annotations = scene.group["metadata"]["annotations"]
        assert (annotations["owned"], annotations["foreign"]) == ("1", "3")

    def test_shares_give_remainders_to_the_first_zones(self) -> None:
        assert [distribute(index, 8, 3) for index in range(3)] == [3, 3, 2]


class PoolScene:
    """A management cluster with one MachinePool, and a handle on it."""

    def __init__(self, *zones: str, replicas: int = 2, api: str = "v1beta2", machines: bool = False) -> None:
        versions = ("v1beta1", "v1beta2") if api == "v1beta2" else ("v1beta1",)
        pool = Pool(name="p", minimum=1, maximum=9, replicas=(0, 0), zones=(ZONE, OTHER))
        self.world = World(
            clusters=["cluster-api"], pools={"cluster-api": [pool]}, settings=None, cluster_api_versions=versions
        )
        self.cluster = self.world.clusters["cluster-api"]
        self.store = self.cluster.store
        self.pools: Any = self.cluster.controllers.machine_pools  # type: ignore[attr-defined]
        self.pools.has_machines = machines
        body = machine_pool(ZONE, replicas, 0, instances=0)
        body["metadata"]["namespace"] = "demo"
        body["spec"] |= {"failureDomains": list(zones), "providerIDList": []}
        self.store.create(POOLS, {key: value for key, value in body.items() if key in ("metadata", "spec")})
        self.run(minutes=2)

    @property
    def pool(self) -> Any:
        (item,) = self.store.list(POOLS)
        return item

    def patch(self, **patch: Any) -> None:
        self.store.patch(POOLS, "demo", self.pool["metadata"]["name"], patch)

    def run(self, **duration: float) -> None:
        self.world.run(timedelta(**duration))

    def machines(self) -> list[Any]:
        return self.store.list("machines.cluster.x-k8s.io")

    def nodes(self) -> set[str]:
        return {item["metadata"]["name"] for item in self.store.list("nodes")}


POOLS = "machinepools.cluster.x-k8s.io"
OTHER = "eu-central-1b"


class TestMachinePools:
    def test_instances_become_members_and_then_nodes_and_no_machines_show_them(self) -> None:
        scene = PoolScene(ZONE, replicas=2)
        assert len(scene.pool["spec"]["providerIDList"]) == 2
        assert {reference["name"] for reference in scene.pool["status"]["nodeRefs"]} == scene.nodes()
        assert scene.machines() == []

    def test_in_the_newer_version_ready_counts_instances_where_there_are_no_machines(self) -> None:
        for api, machines, ready in (("v1beta2", False, 2), ("v1beta2", True, 1), ("v1beta1", False, 1)):
            scene = PoolScene(ZONE, replicas=1, api=api, machines=machines)
            scene.cluster.cloud.never_join(ZONE, 1)
            scene.patch(spec={"replicas": 2})
            scene.run(minutes=2)
            assert scene.pool["status"]["readyReplicas"] == ready
            assert len(scene.pool["status"]["nodeRefs"]) == 1

    def test_what_the_cloud_refuses_no_object_tells(self) -> None:
        scene = PoolScene(ZONE, replicas=1)
        scene.cluster.cloud.exhaust_zone(ZONE)
        scene.patch(spec={"replicas": 3})
        scene.run(minutes=5)
        assert scene.pool["status"]["replicas"] == 1
        assert scene.store.list("events") == []
        assert "conditions" not in scene.pool["status"]

    def test_when_replicas_fall_the_oldest_goes_although_another_is_no_node_yet(self) -> None:
        scene = PoolScene(ZONE, replicas=1)
        (node,) = scene.nodes()
        scene.patch(spec={"replicas": 2})
        scene.run(seconds=20)
        scene.patch(spec={"replicas": 1})
        scene.run(seconds=20)
        assert node not in scene.nodes()

    def test_a_provider_with_machines_takes_the_marked_one(self) -> None:
        scene = PoolScene(ZONE, replicas=3, machines=True)
        chosen = scene.machines()[1]
        assert chosen["metadata"]["labels"]["cluster.x-k8s.io/pool-name"] == scene.pool["metadata"]["name"]
        note = {"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": "yes"}}}
        scene.store.patch("machines.cluster.x-k8s.io", "demo", chosen["metadata"]["name"], note)
        scene.patch(spec={"replicas": 2})
        scene.run(seconds=20)
        assert chosen["metadata"]["name"] not in names(scene.machines())
        assert len(scene.machines()) == 2

    def test_a_pool_that_names_no_zone_is_spread_over_all(self) -> None:
        scene = PoolScene(replicas=4)
        zones = [member.split("/")[3] for member in scene.pool["spec"]["providerIDList"]]
        assert sorted(zones) == [ZONE, ZONE, OTHER, OTHER]

    def test_replicas_that_are_managed_outside_are_written_back(self) -> None:
        scene = PoolScene(ZONE, replicas=1)
        scene.patch(metadata={"annotations": {"cluster.x-k8s.io/replicas-managed-by": ""}})
        scene.pools.external_sizes[scene.pool["metadata"]["name"]] = 3
        scene.patch(spec={"replicas": 1})
        scene.run(minutes=2)
        assert (scene.pool["spec"]["replicas"], len(scene.nodes())) == (3, 3)
