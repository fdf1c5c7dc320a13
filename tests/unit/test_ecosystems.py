"""What docs/flavours.md says of each ecosystem, played: whose numbers count, who takes ours, what it costs, what fails.

Every test here stands for a cell of that table, as test_flavours_table.py has it.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel.domain.model.groups import Bounds, State
from evenkeel_cli.main import app
from sandbox.kube.autoscaler import read_bounds
from sandbox.kube.controllers.cluster_autoscaler_operator import MACHINE_SETS
from sandbox.kube.controllers.gardener import GardenerControllers
from sandbox.kube.controllers.node_pools import NODE_POOLS
from sandbox.kube.controllers.objects import annotations_of, arguments_of
from sandbox.kube.controllers.shoots import SHOOTS, WORKERS
from sandbox.kube.controllers.topology import CLUSTERS
from tests.ecosystems import (
    CAPI_DEPLOYMENTS,
    DEAD,
    MACHINE_POOLS,
    POOL,
    Estate,
    cluster_api,
    karpenter,
    machine_pools,
    openshift_by_hand,
)
from tests.objects import ZONES, as_sent, writers

Json = dict[str, Any]
DEPLOYMENTS = "deployments.apps"
NOW = "2026-01-15T12:10:00Z"  # some minutes after the estates begin
_SIZE = "cluster-api-autoscaler-node-group-{}-size"


def planned(estate: Estate, folder: Path, **dump: Any) -> Json:
    """What `evenkeel plan -f` answers of all its objects."""
    path, record = estate.dump(folder / "objects.yaml", **dump), estate.record_file(folder / "record.yaml")
    arguments = ["plan", "-f", path, "--record", record, "--now", NOW, "-o", "json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    answer: Json = json.loads(done.stdout)
    return answer


def origins(estate: Estate, folder: Path, **dump: Any) -> Json:
    """Where the numbers of its only pool come from."""
    (pool,) = planned(estate, folder, **dump)["pools"]
    assert (pool["valid"], len(pool["groups"])) == (True, len(ZONES))
    found: Json = pool["numbersFrom"]
    assert {"min", "max"} == set(found)
    assert (pool["min"], pool["max"]) == (3, 12)
    return found


def fields(origin: Json) -> set[str]:
    """Kind and field of the owners of a number, the entry of a list left open."""
    assert origin["source"] == "owner"
    return {f"{one['kind']} {one['field'].replace('[' + str(one.get('part')) + ']', '[]')}" for one in origin["owners"]}


class TestNumbers:
    """Of clusters with no word of ours on them, but for a pool's label where nothing else says what a pool is."""

    def test_gardeners_are_the_workers(self, tmp_path: Path) -> None:
        found = origins(Estate("gardener-plain"), tmp_path)
        assert fields(found["min"]) == {"Worker spec.pools[].minimum"}
        assert fields(found["max"]) == {"Worker spec.pools[].maximum"}

    def test_without_the_worker_gardeners_are_the_shoots_in_the_cluster_of_the_extensions(self, tmp_path: Path) -> None:
        found = origins(Estate("gardener-plain"), tmp_path, without=("Worker", "Shoot"))
        assert fields(found["max"]) == {"Shoot spec.provider.workers[].maximum"}

    def test_hypershifts_are_those_of_its_node_pools_together(self, tmp_path: Path) -> None:
        found = origins(Estate("hypershift"), tmp_path)
        assert fields(found["min"]) == {"NodePool spec.autoScaling.min"}
        assert fields(found["max"]) == {"NodePool spec.autoScaling.max"}
        assert [owner["wanted"] for owner in found["max"]["owners"]] == [4, 4, 4]

    def test_openshifts_are_those_of_its_machine_autoscalers_together(self, tmp_path: Path) -> None:
        found = origins(Estate("openshift-plain"), tmp_path)
        assert fields(found["min"]) == {"MachineAutoscaler spec.minReplicas"}
        assert fields(found["max"]) == {"MachineAutoscaler spec.maxReplicas"}

    @pytest.mark.parametrize("limit", [5, 30])
    def test_no_pool_of_openshift_is_above_what_the_cluster_may_have(self, limit: int, tmp_path: Path) -> None:
        estate = Estate("openshift-plain")
        (autoscaler,) = estate.all("clusterautoscalers.autoscaling.openshift.io")
        patch = {"spec": {"resourceLimits": {"maxNodesTotal": limit}}}
        estate.patch("clusterautoscalers.autoscaling.openshift.io", autoscaler, patch)
        (pool,) = planned(estate, tmp_path)["pools"]
        assert pool["max"] == min(12, limit)
        cut = "spec.resourceLimits.maxNodesTotal of ClusterAutoscaler default" in pool["numbersFrom"]["max"]["says"]
        assert cut == (limit < 12)

    @pytest.mark.parametrize("make", [cluster_api, openshift_by_hand, machine_pools])
    def test_where_nobody_owns_bounds_they_are_the_sums_of_what_the_scalables_had(
        self, make: Callable[[], Estate], tmp_path: Path
    ) -> None:
        (pool,) = planned(make(), tmp_path)["pools"]
        low = 0 if make is machine_pools else 3
        assert (pool["min"], pool["max"]) == (low, 12)
        assert {origin["source"] for origin in pool["numbersFrom"].values()} == {"adoption"}
        assert len(pool["numbersFrom"]["max"]["groups"]) == len(ZONES)

    def test_a_cluster_class_has_them_in_the_topology(self, tmp_path: Path) -> None:
        found = origins(Estate("cluster-class"), tmp_path)
        key = f"cluster.x-k8s.io/{_SIZE.format('max')}"
        place = f"Cluster spec.topology.workers.machineDeployments[].metadata.annotations[{key}]"
        assert fields(found["max"]) == {place}

    def test_karpenters_are_its_max_annotations(self, tmp_path: Path) -> None:
        (pool,) = planned(karpenter()[0], tmp_path)["pools"]
        assert (pool["min"], pool["max"]) == (0, 12)
        assert {origin["source"] for origin in pool["numbersFrom"].values()} == {"adoption"}


@pytest.mark.parametrize("kind", ["gardener-plain", "hypershift", "openshift-plain", "cluster-class"])
def test_a_cluster_straight_from_its_installer_has_a_full_valid_plan_without_a_record(
    kind: str, tmp_path: Path
) -> None:
    """With nothing but its objects: every scalable is in a pool, and every number has an owner."""
    estate = Estate(kind)
    arguments = ["plan", "-f", estate.dump(tmp_path / "objects.yaml"), "--now", NOW, "-o", "json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (pool,) = found["pools"]
    assert (pool["valid"], pool["min"], pool["max"]) == (True, 3, 12)
    assert [group["state"] for group in pool["groups"]] == ["healthy"] * len(ZONES)
    assert sorted(group["zone"] for group in pool["groups"]) == list(ZONES)
    for origin in pool["numbersFrom"].values():
        assert origin["source"] == "owner"
        assert all(owner["kind"] in origin["says"] and owner["name"] in origin["says"] for owner in origin["owners"])
    scalables = {view.name for view in estate.cluster.groups()}
    assert scalables == {group["name"] for group in pool["groups"]}
    assert scalables.isdisjoint(skipped["name"] for skipped in found["skipped"])


def test_where_nothing_says_what_a_node_has_each_group_says_so_and_a_label_of_their_users_makes_a_pool(
    tmp_path: Path,
) -> None:
    """HyperShift on OpenStack: its template has no capacity, so that groups cannot be found alike."""
    estate = Estate("hypershift-openstack")
    arguments = ["plan", "-f", estate.dump(tmp_path / "objects.yaml"), "--now", NOW, "-o", "json"]
    found = json.loads(CliRunner().invoke(app, arguments, catch_exceptions=False).stdout)
    told = [one["reason"] for one in found["skipped"] if "the cpu and memory of its nodes are unknown" in one["reason"]]
    assert (found["pools"], len(told)) == ([], len(ZONES))
    assert fields(origins(estate, tmp_path)["max"]) == {"NodePool spec.autoScaling.max"}


@pytest.mark.parametrize("kind", ["gardener-plain", "hypershift", "openshift-plain", "cluster-class"])
def test_numbers_from_files_are_those_from_the_api(kind: str, tmp_path: Path) -> None:
    estate = Estate(kind)
    (told,) = planned(estate, tmp_path)["pools"]
    pool = estate.pool()
    assert (pool.min, pool.max) == (told["min"], told["max"])
    assert [share.owner.ref.kind for origin in pool.origins for share in origin.owners] == [
        owner["kind"] for origin in told["numbersFrom"].values() for owner in origin["owners"]
    ]


def bounds_written(estate: Estate, pods: int = 9) -> set[str]:
    """Where ours have gone in an outage, without our own annotations, replicas, marks and versions."""
    estate.outage(pods)
    assert estate.writes()
    left = ("spec.replicas", "resourceVersion", "evenkeel.dev/", "delete-machine", "machinepriority", "metadata.uid")
    return {place for place in estate.written() if not any(part in place for part in left)}


def annotated(plural: str, prefix: str) -> set[str]:
    return {f"{plural} metadata.annotations[{prefix}/{_SIZE.format(end)}]" for end in ("min", "max")}


class TestBounds:
    def test_gardeners_go_to_annotations_of_the_machine_deployment(self) -> None:
        estate = Estate("gardener-plain", on_failure="move")
        assert bounds_written(estate) == annotated("machinedeployments", "machine.sapcloud.io")

    def test_hypershifts_go_to_the_node_pool(self) -> None:
        assert bounds_written(Estate("hypershift")) == {f"nodepools spec.autoScaling.{end}" for end in ("min", "max")}

    def test_openshifts_go_to_the_machine_autoscaler(self) -> None:
        written = bounds_written(Estate("openshift-plain"))
        assert written == {f"machineautoscalers spec.{field}" for field in ("minReplicas", "maxReplicas")}

    def test_without_a_machine_autoscaler_they_go_to_annotations_of_the_machine_set(self) -> None:
        assert bounds_written(openshift_by_hand()) == annotated("machinesets", "machine.openshift.io")

    def test_a_cluster_classs_go_to_the_clusters_topology(self) -> None:
        estate = Estate("cluster-class")
        bounds_written(estate)
        estate.pass_by(2)
        (cluster,) = estate.all(CLUSTERS)
        entries = cluster["spec"]["topology"]["workers"]["machineDeployments"]
        most = [int(annotations_of(entry)[f"cluster.x-k8s.io/{_SIZE.format('max')}"]) for entry in entries]
        assert most == [high for _, high in estate.autoscalers]
        assert most != [4, 4, 4]

    def test_cluster_apis_go_to_annotations_of_the_scalable(self) -> None:
        assert bounds_written(cluster_api()) == annotated("machinedeployments", "cluster.x-k8s.io")

    def test_karpenters_are_a_max_alone(self) -> None:
        estate, _ = karpenter(replicas=(4, 2, 1))
        estate.run()
        assert {place for place in estate.written() if "-size" in place} == {
            f"machinedeployments metadata.annotations[cluster.x-k8s.io/{_SIZE.format('max')}]"
        }
        assert not any("spec.replicas" in place for place in estate.written())

    def test_those_of_machine_pools_go_to_their_annotations(self) -> None:
        estate = machine_pools(replicas=(4, 1, 1))
        estate.run()
        assert {place for place in estate.written() if "-size" in place} == annotated(
            "machinepools", "cluster.x-k8s.io"
        )


def published(estate: Estate) -> list[tuple[int, int]]:
    """What we last decided, in order of zones; nothing of it is still to be written."""
    pool = estate.pool()
    estate.pass_by(2)
    return [(plan.bounds.min, plan.bounds.max) for plan in pool.groups if plan.bounds]


class TestReaders:
    @pytest.mark.parametrize(
        ("make", "resource", "key", "manager"),
        [
            (lambda: Estate("hypershift"), CAPI_DEPLOYMENTS, "cluster.x-k8s.io", "hypershift-operator-manager: Update"),
            (
                lambda: Estate("openshift-plain"),
                MACHINE_SETS,
                "machine.openshift.io",
                "cluster-autoscaler-operator: Update",
            ),
            (lambda: Estate("cluster-class"), CAPI_DEPLOYMENTS, "cluster.x-k8s.io", "capi-topology: Apply"),
            (openshift_by_hand, MACHINE_SETS, "machine.openshift.io", "evenkeel: Update"),
            (cluster_api, CAPI_DEPLOYMENTS, "cluster.x-k8s.io", "evenkeel: Update"),
        ],
        ids=["hypershift", "openshift", "cluster-class", "openshift-by-hand", "cluster-api"],
    )
    def test_the_owners_controller_copies_what_we_write_and_the_autoscaler_goes_by_it(
        self, make: Callable[[], Estate], resource: str, key: str, manager: str
    ) -> None:
        estate = make()
        estate.outage(9)
        copied = published(estate)
        assert estate.autoscalers == copied
        assert sum(high for _, high in estate.autoscalers if high is not None) == 12
        for item in estate.all(resource):
            sent = as_sent(estate.objects, resource, item)
            assert writers(sent, "f:metadata", "f:annotations", f"f:{key}/{_SIZE.format('max')}") == {manager}

    def test_on_gardener_nobody_does_because_its_autoscaler_has_flags(self) -> None:
        estate = Estate("gardener-plain", pools=[{"name": POOL, "min": 3, "max": 9}])
        (before,) = autoscaler_of(estate)
        estate.outage(9)
        assert published(estate) != estate.autoscalers == [(1, 4)] * 3
        assert max(estate.replicas) == 4, "it has ordered as many as its flags let it"
        assert autoscaler_of(estate) == [before]

    @pytest.mark.parametrize("replicas", [(4, 4, 4), (6, 4, 2)])
    def test_karpenter_orders_nothing_where_max_is_what_is_there(self, replicas: tuple[int, int, int]) -> None:
        estate, orders = karpenter(replicas=replicas)
        most = {zone: plan.bounds.max for zone, plan in estate.groups().items() if plan.bounds}
        for zone, before in zip(ZONES, replicas, strict=True):
            orders.order(zone, 1)
            assert estate.replicas[ZONES.index(zone)] == before + (most[zone] > before)
        assert any(most[zone] == before for zone, before in zip(ZONES, replicas, strict=True))

    def test_what_is_written_on_a_machine_pool_is_what_the_autoscaler_reads(self) -> None:
        estate = machine_pools(replicas=(4, 1, 1))
        estate.run()
        read = [read_bounds(annotations_of(item), "cluster.x-k8s.io") for item in estate.all(MACHINE_POOLS)]
        assert read == [plan.bounds for plan in estate.pool().groups]


def autoscaler_of(estate: Estate) -> list[tuple[str, ...]]:
    """What the autoscaler was started with: another thing would be a start anew."""
    return [
        arguments_of(item)
        for item in estate.all(DEPLOYMENTS)
        if item["metadata"]["name"].startswith("cluster-autoscaler")
    ]


def machines_of(estate: Estate, group: str) -> set[str]:
    return {item["metadata"]["uid"] for item in estate.all(f"machines.{group}")}


class TestCosts:
    def test_gardeners_autoscaler_is_not_started_anew_nothing_rolls_and_the_next_reconciliation_keeps_it(self) -> None:
        estate = Estate("gardener-plain", on_failure="move")
        before, machines = autoscaler_of(estate), machines_of(estate, "machine.sapcloud.io")
        spec = estate.all(WORKERS)[0]["spec"]
        estate.outage(9)
        replicas = estate.replicas
        assert replicas != [2, 2, 2]
        controllers = estate.cluster.controllers
        assert isinstance(controllers, GardenerControllers)
        controllers.gardenlet.reconcile(estate.all(SHOOTS)[0], estate.clock.at)
        assert estate.replicas == replicas, "inside the shares, which stand"
        assert (autoscaler_of(estate), estate.all(WORKERS)[0]["spec"]) == (before, spec)
        assert machines <= machines_of(estate, "machine.sapcloud.io")

    def test_hypershifts_operator_needs_a_moment_and_no_node_goes_by_a_lower_max(self) -> None:
        estate = Estate("hypershift", replicas=(4, 1, 1))
        nodes = estate.nodes()
        estate.run()
        lowered = [item["spec"]["autoScaling"]["max"] for item in estate.all(NODE_POOLS)]
        assert lowered != [high for _, high in estate.autoscalers], "not copied yet"
        estate.outage(10)
        assert nodes <= estate.nodes()
        copied = published(estate)
        assert estate.autoscalers == copied

    def test_openshifts_replicas_and_bounds_are_two_patches_of_two_objects(self) -> None:
        estate = Estate("openshift-plain", replicas=(4, 1, 1))
        estate.run()
        estate.cluster.cloud.exhaust_zone(DEAD)
        estate.objects.scale(MACHINE_SETS, estate.cluster.namespace, estate.cluster.groups()[0].name, 6)
        estate.live(3)
        name = estate.cluster.groups()[0].name
        assert {plural_of(request.path) for request in estate.writes()} - {"machines"} == {
            "machinesets",
            "machineautoscalers",
        }
        released = [request for request in estate.writes() if "replicas" in (request.body.get("spec") or {})]
        assert [request.path.rsplit("/", 1)[1] for request in released] == [name]
        assert not any(bounds_in(request.body) for request in released)

    @pytest.mark.parametrize("make", [cluster_api, openshift_by_hand])
    def test_where_nobody_owns_bounds_they_go_in_one_patch_with_replicas_and_nothing_else_is_written(
        self, make: Callable[..., Estate]
    ) -> None:
        estate = make(replicas=(4, 1, 1))
        estate.run()
        estate.cluster.cloud.exhaust_zone(DEAD)
        first = estate.cluster.groups()[0]
        resource = CAPI_DEPLOYMENTS if make is cluster_api else MACHINE_SETS
        estate.objects.scale(resource, first.namespace, first.name, 6)
        estate.live(3)
        assert {plural_of(request.path) for request in estate.writes()} <= {resource.partition(".")[0], "machines"}
        released = [request for request in estate.writes() if "replicas" in (request.body.get("spec") or {})]
        assert released
        assert all(bounds_in(request.body) for request in released)

    def test_what_is_written_in_a_topology_goes_down_to_machines_without_a_rollout(self) -> None:
        estate = Estate("cluster-class")
        machines = machines_of(estate, "cluster.x-k8s.io")
        estate.outage(9)
        estate.pass_by(3)
        told = {
            annotations_of(item).get("evenkeel.dev/adopted-bounds") for item in estate.all("machines.cluster.x-k8s.io")
        }
        assert told == {"1,4"}
        assert machines <= machines_of(estate, "cluster.x-k8s.io"), "the same machines"

    def test_a_batch_of_karpenters_may_pass_a_max_and_is_not_taken_back(self) -> None:
        estate, orders = karpenter(replicas=(2, 2, 2))
        estate.run()
        orders.order(DEAD, 7)
        assert sum(estate.replicas) == 13, "one more than the pool may have"
        plan = estate.groups()[DEAD]
        assert plan.requested == plan.group.requested == estate.replicas[0] == 9
        assert plan.bounds == Bounds(0, 9)

    def test_a_zone_of_machine_pools_is_fenced_when_the_provision_timeout_is_over_and_no_sooner(self) -> None:
        estate = machine_pools()
        estate.run()
        estate.cluster.cloud.exhaust_zone(DEAD)
        pool = next(item for item in estate.all(MACHINE_POOLS) if item["metadata"]["name"].endswith(DEAD))
        estate.patch(MACHINE_POOLS, pool, {"spec": {"replicas": 3}}, manager="cluster-autoscaler")
        estate.live(14)
        assert estate.groups()[DEAD].state is State.HEALTHY
        estate.live(4)
        assert estate.groups()[DEAD].state is State.FENCED


def plural_of(path: str) -> str:
    return path.rstrip("/").split("/")[-2]


def bounds_in(body: Json) -> bool:
    return any(key.endswith("-max-size") for key in (body.get("metadata") or {}).get("annotations") or {})


class TestLimits:
    def test_no_zone_of_gardener_gets_more_than_its_share_whatever_another_cannot_deliver(self) -> None:
        estate = Estate("gardener-plain", on_failure="move")
        estate.outage(12)
        assert estate.running == [2, 4, 4]
        assert max(estate.replicas) == 4

    @pytest.mark.parametrize("kind", ["hypershift", "openshift-plain"])
    def test_an_empty_zone_that_fails_keeps_a_max_of_one_where_the_owner_accepts_no_less(self, kind: str) -> None:
        estate = Estate(kind, replicas=(0, 2, 2), minimum=0)
        for pool in estate.all(NODE_POOLS):  # on AWS nothing else says the zone of one without machines
            zone = pool["metadata"]["name"].removeprefix(f"demo-{POOL}-")
            estate.patch(NODE_POOLS, pool, {"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})
        estate.outage(9, minutes=4)
        assert estate.groups()[DEAD].state is State.FENCED
        assert estate.autoscalers[0] == (0, 1)
        assert [estate.running[0], estate.replicas[0]] == [0, 1], "which waits there, as it is offered"

    def test_a_machine_set_without_bounds_and_numbers_takes_no_part(self, tmp_path: Path) -> None:
        found = planned(openshift_by_hand(bounds=None), tmp_path)
        assert found["pools"] == []
        told = [
            skipped["reason"]
            for skipped in found["skipped"]
            if "has neither bounds nor pool numbers" in skipped["reason"]
        ]
        assert len(told) == len(ZONES)
