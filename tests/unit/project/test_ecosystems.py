"""The cells of the table in docs/guides/machine-apis.md, in the sandbox: a class of tests for each column."""

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
_SHOOT = "Shoot spec.provider.workers[]"
_TOPOLOGY = "Cluster spec.topology.workers.machineDeployments[].metadata.annotations[cluster.x-k8s.io/{}]"
_OPERATOR = "cluster-autoscaler-operator"


def plan_of_files(estate: Estate, folder: Path, *arguments: str, **dump: Any) -> Json:
    """Return the answer of `evenkeel plan -f` for all objects. Exit code 4 means that there is no pool."""
    path = estate.dump(folder / "objects.yaml", **dump)
    given = ["plan", "-f", path, *arguments, "--now", NOW, "-o", "json"]
    done = CliRunner().invoke(app, given, catch_exceptions=False)
    answer: Json = json.loads(done.stdout)
    assert done.exit_code == (0 if answer["pools"] else 4), done.output
    return answer


def planned(estate: Estate, folder: Path, **dump: Any) -> Json:
    """Return the same with the estate's record."""
    return plan_of_files(estate, folder, "--record", estate.record_file(folder / "record.yaml"), **dump)


def origins(estate: Estate, folder: Path, **dump: Any) -> Json:
    """Return the origins of the only pool's numbers."""
    (pool,) = planned(estate, folder, **dump)["pools"]
    assert (pool["valid"], len(pool["groups"]), pool["min"], pool["max"]) == (True, len(ZONES), 3, 12)
    numbers: Json = pool["numbersFrom"]
    assert {"min", "max"} == set(numbers)
    return numbers


def fields(origin: Json) -> set[str]:
    """Return kind and field of a number's owners, without the names of list entries."""
    assert origin["source"] == "owner"
    return {f"{one['kind']} {one['field'].replace('[' + str(one.get('part')) + ']', '[]')}" for one in origin["owners"]}


class TestNumbers:
    """The clusters have no annotations of Evenkeel, only a pool's label if nothing else has the pool."""

    @pytest.mark.parametrize(
        ("kind", "without", "low", "high"),
        [
            ("gardener-plain", (), "Worker spec.pools[].minimum", "Worker spec.pools[].maximum"),
            ("gardener-plain", ("Worker", "Shoot"), *(f"{_SHOOT}.{end}" for end in ("minimum", "maximum"))),
            ("hypershift", (), "NodePool spec.autoScaling.min", "NodePool spec.autoScaling.max"),
            ("openshift-plain", (), "MachineAutoscaler spec.minReplicas", "MachineAutoscaler spec.maxReplicas"),
            ("cluster-class", (), *(_TOPOLOGY.format(_SIZE.format(end)) for end in ("min", "max"))),
        ],
        ids=["gardener", "gardener without Worker", "hypershift", "openshift", "cluster-class"],
    )
    def test_they_are_those_of_their_owners(
        self, kind: str, without: tuple[str, ...], low: str, high: str, tmp_path: Path
    ) -> None:
        numbers = origins(Estate(kind), tmp_path, without=without)
        assert (fields(numbers["min"]), fields(numbers["max"])) == ({low}, {high})
        assert sum(owner["wanted"] for owner in numbers["max"]["owners"]) == 12

    @pytest.mark.parametrize(
        ("make", "low"),
        [(cluster_api, 3), (openshift_by_hand, 3), (machine_pools, 0), (lambda: karpenter()[0], 0)],
        ids=["cluster-api", "openshift by hand", "machine pools", "karpenter"],
    )
    def test_without_an_owner_they_are_sums(self, make: Callable[[], Estate], low: int, tmp_path: Path) -> None:
        (pool,) = planned(make(), tmp_path)["pools"]
        assert (pool["min"], pool["max"]) == (low, 12)
        assert {origin["source"] for origin in pool["numbersFrom"].values()} == {"adoption"}
        assert len(pool["numbersFrom"]["max"]["groups"]) == len(ZONES)


def test_groups_of_unknown_capacity_are_reported_and_need_a_label(tmp_path: Path) -> None:
    """HyperShift on OpenStack: its template has no capacity, so the groups are not similar."""
    estate = Estate("hypershift-openstack")
    plan = plan_of_files(estate, tmp_path)
    unknown = [one for one in plan["skipped"] if "the cpu and memory of a node are unknown" in one["reason"]]
    assert (plan["pools"], len(unknown)) == ([], len(ZONES))
    (line,) = plan["proposals"]
    assert line.startswith("kubectl label nodepools.hypershift.openshift.io -n clusters ")
    assert fields(origins(estate, tmp_path)["max"]) == {"NodePool spec.autoScaling.max"}


def bounds_written(estate: Estate, pods: int = 9) -> set[str]:
    """Return the written fields in an outage, without Evenkeel's annotations, replicas, marks and versions."""
    estate.outage(pods)
    assert estate.writes()
    left = ("spec.replicas", "resourceVersion", "evenkeel.dev/", "delete-machine", "machinepriority", "metadata.uid")
    return {place for place in estate.written() if not any(part in place for part in left)}


def annotated(plural: str, prefix: str, *ends: str) -> set[str]:
    return {f"{plural} metadata.annotations[{prefix}/{_SIZE.format(end)}]" for end in ends or ("min", "max")}


class TestBounds:
    @pytest.mark.parametrize(
        ("make", "places"),
        [
            (
                lambda: Estate("gardener-plain", on_failure="move"),
                annotated("machinedeployments", "machine.sapcloud.io"),
            ),
            (lambda: Estate("hypershift"), {f"nodepools spec.autoScaling.{end}" for end in ("min", "max")}),
            (lambda: Estate("openshift-plain"), {f"machineautoscalers spec.{end}Replicas" for end in ("min", "max")}),
            (openshift_by_hand, annotated("machinesets", "machine.openshift.io")),
            (cluster_api, annotated("machinedeployments", "cluster.x-k8s.io")),
        ],
        ids=["gardener", "hypershift", "openshift", "openshift by hand", "cluster-api"],
    )
    def test_they_go_where_the_owner_takes_them(self, make: Callable[[], Estate], places: set[str]) -> None:
        assert bounds_written(make()) == places

    @pytest.mark.parametrize(
        ("make", "places"),
        [
            (lambda: karpenter(replicas=(4, 2, 1))[0], annotated("machinedeployments", "cluster.x-k8s.io", "max")),
            (lambda: machine_pools(replicas=(4, 1, 1)), annotated("machinepools", "cluster.x-k8s.io")),
        ],
        ids=["karpenter: a max alone", "machine pools"],
    )
    def test_they_go_to_annotations_without_replicas(self, make: Callable[[], Estate], places: set[str]) -> None:
        estate = make()
        estate.run()
        assert {place for place in estate.written() if "-size" in place} == places
        assert not any("spec.replicas" in place for place in estate.written())

    def test_those_of_a_cluster_class_go_to_the_topology(self) -> None:
        estate = Estate("cluster-class")
        bounds_written(estate)
        estate.pass_by(2)
        (cluster,) = estate.all(CLUSTERS)
        entries = cluster["spec"]["topology"]["workers"]["machineDeployments"]
        most = [int(annotations_of(entry)[f"cluster.x-k8s.io/{_SIZE.format('max')}"]) for entry in entries]
        assert most == [high for _, high in estate.autoscalers]
        assert most != [4, 4, 4]


def published(estate: Estate) -> list[tuple[int, int]]:
    """Return Evenkeel's last bounds in zone order, after they are written."""
    pool = estate.pool()
    estate.pass_by(2)
    return [(plan.bounds.min, plan.bounds.max) for plan in pool.groups if plan.bounds]


class TestReaders:
    @pytest.mark.parametrize(
        ("make", "resource", "key", "manager"),
        [
            (lambda: Estate("hypershift"), CAPI_DEPLOYMENTS, "cluster.x-k8s.io", "hypershift-operator-manager: Update"),
            (lambda: Estate("openshift-plain"), MACHINE_SETS, "machine.openshift.io", f"{_OPERATOR}: Update"),
            (lambda: Estate("cluster-class"), CAPI_DEPLOYMENTS, "cluster.x-k8s.io", "capi-topology: Apply"),
            (openshift_by_hand, MACHINE_SETS, "machine.openshift.io", "evenkeel: Update"),
            (cluster_api, CAPI_DEPLOYMENTS, "cluster.x-k8s.io", "evenkeel: Update"),
        ],
        ids=["hypershift", "openshift", "cluster-class", "openshift-by-hand", "cluster-api"],
    )
    def test_the_autoscaler_uses_evenkeels_bounds(
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

    def test_gardeners_autoscaler_uses_its_flags_instead(self) -> None:
        estate = Estate("gardener-plain", pools=[{"name": POOL, "min": 3, "max": 9}])
        (before,) = autoscaler_of(estate)
        estate.outage(9)
        assert published(estate) != estate.autoscalers == [(1, 4)] * 3
        assert max(estate.replicas) == 4, "it has ordered as many as its flags let it"
        assert autoscaler_of(estate) == [before]

    @pytest.mark.parametrize("replicas", [(4, 4, 4), (6, 4, 2)])
    def test_karpenter_orders_nothing_in_a_zone_at_its_max(self, replicas: tuple[int, int, int]) -> None:
        estate, orders = karpenter(replicas=replicas)
        most = {zone: plan.bounds.max for zone, plan in estate.groups().items() if plan.bounds}
        for zone, before in zip(ZONES, replicas, strict=True):
            orders.order(zone, 1)
            assert estate.replicas[ZONES.index(zone)] == before + (most[zone] > before)
        assert any(most[zone] == before for zone, before in zip(ZONES, replicas, strict=True))

    def test_the_autoscaler_reads_the_bounds_of_a_machine_pool(self) -> None:
        estate = machine_pools(replicas=(4, 1, 1))
        estate.run()
        read = [read_bounds(annotations_of(item), "cluster.x-k8s.io") for item in estate.all(MACHINE_POOLS)]
        assert read == [plan.bounds for plan in estate.pool().groups]


def autoscaler_of(estate: Estate) -> list[tuple[str, ...]]:
    deployments = estate.all(DEPLOYMENTS)
    return [arguments_of(item) for item in deployments if item["metadata"]["name"].startswith("cluster-autoscaler")]


def machines_of(estate: Estate, group: str) -> set[str]:
    return {item["metadata"]["uid"] for item in estate.all(f"machines.{group}")}


class TestCosts:
    def test_gardeners_autoscaler_is_not_restarted_and_nothing_rolls(self) -> None:
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

    def test_hypershifts_operator_copies_later_and_a_lower_max_removes_no_node(self) -> None:
        estate = Estate("hypershift", replicas=(4, 1, 1))
        nodes = estate.nodes()
        estate.run()
        lowered = [item["spec"]["autoScaling"]["max"] for item in estate.all(NODE_POOLS)]
        assert lowered != [high for _, high in estate.autoscalers], "not copied yet"
        estate.outage(10)
        assert nodes <= estate.nodes()
        copied = published(estate)
        assert estate.autoscalers == copied

    @staticmethod
    def released(estate: Estate, resource: str) -> list[Any]:
        """Return the patches of replicas of a zone that fails while six are requested there."""
        estate.run()
        estate.cluster.cloud.exhaust_zone(DEAD)
        first = estate.cluster.groups()[0]
        estate.objects.scale(resource, first.namespace, first.name, 6)
        estate.live(3)
        released = [request for request in estate.writes() if "replicas" in (request.body.get("spec") or {})]
        assert [request.path.rsplit("/", 1)[1] for request in released] == [first.name]
        return released

    def test_openshifts_replicas_and_bounds_are_two_patches_of_two_objects(self) -> None:
        estate = Estate("openshift-plain", replicas=(4, 1, 1))
        assert not any(bounds_in(request.body) for request in self.released(estate, MACHINE_SETS))
        written = {plural_of(request.path) for request in estate.writes()}
        assert written - {"machines"} == {"machinesets", "machineautoscalers"}

    @pytest.mark.parametrize(("make", "resource"), [(cluster_api, CAPI_DEPLOYMENTS), (openshift_by_hand, MACHINE_SETS)])
    def test_without_an_owner_both_are_one_patch(self, make: Callable[..., Estate], resource: str) -> None:
        estate = make(replicas=(4, 1, 1))
        assert all(bounds_in(request.body) for request in self.released(estate, resource))
        assert {plural_of(request.path) for request in estate.writes()} <= {resource.partition(".")[0], "machines"}

    def test_annotations_in_a_topology_reach_machines_without_a_rollout(self) -> None:
        estate = Estate("cluster-class")
        machines = machines_of(estate, "cluster.x-k8s.io")
        estate.outage(9)
        estate.pass_by(3)
        items = estate.all("machines.cluster.x-k8s.io")
        assert {annotations_of(item).get("evenkeel.dev/adopted-bounds") for item in items} == {"1,4"}
        assert machines <= machines_of(estate, "cluster.x-k8s.io"), "the same machines"

    def test_a_batch_of_karpenter_may_exceed_a_max_and_is_kept(self) -> None:
        estate, orders = karpenter(replicas=(2, 2, 2))
        estate.run()
        orders.order(DEAD, 7)
        assert sum(estate.replicas) == 13, "one more than the pool may have"
        plan = estate.groups()[DEAD]
        assert plan.requested == plan.group.requested == estate.replicas[0] == 9
        assert plan.bounds == Bounds(0, 9)

    def test_a_zone_of_machine_pools_is_fenced_at_the_provision_timeout(self) -> None:
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
    def test_no_zone_of_gardener_gets_more_than_its_share(self) -> None:
        estate = Estate("gardener-plain", on_failure="move")
        estate.outage(12)
        assert estate.running == [2, 4, 4]
        assert max(estate.replicas) == 4

    @pytest.mark.parametrize("kind", ["hypershift", "openshift-plain"])
    def test_an_empty_failing_zone_keeps_a_max_of_one_where_the_owner_requires_it(self, kind: str) -> None:
        estate = Estate(kind, replicas=(0, 2, 2), minimum=0)
        for pool in estate.all(NODE_POOLS):  # on AWS nothing else shows the zone of one without machines
            zone = pool["metadata"]["name"].removeprefix(f"demo-{POOL}-")
            estate.patch(NODE_POOLS, pool, {"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}})
        estate.outage(9, minutes=4)
        assert estate.groups()[DEAD].state is State.FENCED
        assert estate.autoscalers[0] == (0, 1)
        assert [estate.running[0], estate.replicas[0]] == [0, 1], "which waits there, as it is offered"

    def test_a_machine_set_without_bounds_and_numbers_is_skipped(self, tmp_path: Path) -> None:
        plan = planned(openshift_by_hand(bounds=None), tmp_path)
        skipped = [one for one in plan["skipped"] if "neither bounds nor pool numbers" in one["reason"]]
        assert (plan["pools"], len(skipped)) == ([], len(ZONES))
