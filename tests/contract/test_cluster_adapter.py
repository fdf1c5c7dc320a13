"""The cluster adapter on a Kubernetes API, as the user of deploy/kubernetes/rbac.yaml."""

import itertools
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trustme
import yaml
from kubernetes.client.exceptions import ApiException

from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.client import api as adapter_client
from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.flavours import FLAVOURS as FLAVOUR_DATA
from evenkeel.application.errors import ClusterUnavailableError, ConflictError, RejectedError, TooLargeError
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.ports import Cluster
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.model import reasons
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import UNNAMED, Bounds, GroupKey, NodeGroup, State
from evenkeel.domain.model.plans import GroupPlan, Removal
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.record import ClusterRecord, ControlRecord
from evenkeel.texts.english import sentence
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.real import RealKubernetesAPI, find_assets
from sandbox.kube.schema import load_crds
from sandbox.template import ROOT
from tests import objects
from tests.cluster_objects import topology_entries
from tests.contract.test_owners import APPLY, in_entry
from tests.fakes import FakeClock, FakeQueue, InMemoryStore, plenty, record, register_again
from tests.objects import ZONES, Object, becomes_a_node, machine, refused
from tests.parts import replace
from tests.timed import worker
from tests.tls_server import TOKEN, kubeconfig_for, response, serving

Api = KubernetesAPI | RealKubernetesAPI
ROLE, BINDING = yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / "rbac.yaml").read_text())
DEPLOYMENTS = "machinedeployments.cluster.x-k8s.io/v1beta1"
MAX_SIZE, MIN_SIZE = FLAVOUR_DATA["cluster-api"].max_key, FLAVOUR_DATA["cluster-api"].min_key
SCALERS = "machineautoscalers.autoscaling.openshift.io/v1beta1"


def simulated(**more: Any) -> KubernetesAPI:
    """Return a simulated API where `evenkeel` has exactly the rights of rbac.yaml."""
    users = {"evenkeel": Rule.of_role(ROLE), "cluster-autoscaler": [Rule.all()], "nobody": []}
    return KubernetesAPI(users=users, **more)


@pytest.fixture(scope="module", params=["sandbox", *(["real"] if find_assets() else [])])
def kube_api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Yield a server with rbac.yaml, on which `evenkeel` is bound to its role by name."""
    if request.param == "sandbox":
        with simulated() as api:
            yield api
    else:
        with RealKubernetesAPI() as real:
            path = "/apis/rbac.authorization.k8s.io/v1"
            real.call("POST", f"{path}/clusterroles", ROLE)
            real.call("POST", f"{path}/clusterrolebindings", BINDING)
            user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "evenkeel"}
            named = {**BINDING, "metadata": {"name": "evenkeel-by-name"}, "subjects": [user]}
            real.call("POST", f"{path}/clusterrolebindings", named)
            yield real


def opening(secret: Callable[[str, bool], str], clock: FakeClock | None = None) -> RecordedClusters:
    """Return the port that opens local clusters with this secret."""
    return RecordedClusters(session=None, secret=secret, clock=clock or FakeClock(), allow_loopback=True)


class Stage:
    """One namespace with machine objects, and Evenkeel: real adapter and use case, state in memory."""

    def __init__(self, api: Api, kind_of: Callable[..., Any], namespace: str, **fields: Any) -> None:
        self.api = api
        self.kind_of = kind_of
        self.namespace = namespace
        self.record: ClusterRecord = record(
            **{
                "namespaces": [namespace],
                "flavours": list(objects.MAKE),
                "pools": [{"name": name, "min": 0, "max": 12} for name in ("main", "workers", "worker")],
                **fields,
            }
        )
        # The API server dates its objects by the real time.
        self.clock = FakeClock(at=datetime.now(UTC))
        self.store = InMemoryStore()
        self.queue = FakeQueue()
        self.secrets: list[bool] = []  # for every read of the secret, whether it bypassed the cache
        self.user = "evenkeel"
        self._cached: dict[str, str] = {}
        self.clusters = opening(self._secret, self.clock)
        self.store.save_record(self.record, ControlRecord(), None)

    def register(self, **fields: Any) -> None:
        self.record = record(**{**self.record.model_dump(), **fields})
        register_again(self.store, self.record)

    def _secret(self, name: str, fresh: bool) -> str:
        """Return the secret as Powertools does: from its cache, unless a fresh one is requested."""
        self.secrets.append(fresh)
        if fresh or self.user not in self._cached:
            self._cached[self.user] = json.dumps(self.api.kubeconfig(self.user))
        return self._cached[self.user]

    @staticmethod
    def resource(item: Object) -> str:
        """Return an object's resource, such as machinesets.machine.openshift.io/v1beta1."""
        group, version = item["apiVersion"].split("/")
        return f"{item['kind'].lower()}s.{group}/{version}"

    def kind(self, item: Object | str, *, user: str = "admin", manager: str = "test") -> Any:
        full, version = (item if isinstance(item, str) else self.resource(item)).split("/")
        plural, _, group = full.partition(".")
        return self.kind_of(group, version, plural, user=user, manager=manager)

    def put(self, *items: Object) -> None:
        """Create objects, and write their status as their controllers do."""
        for item in items:
            body = {key: value for key, value in item.items() if key != "status"}
            self.kind(item).create(body)
            if "status" in item:
                self.set_status(item, {"status": item["status"]})

    def set_status(self, item: Object, patch: Object) -> None:
        self.kind(item).status(item["metadata"]["name"], patch)

    def delete(self, item: Object) -> None:
        self.kind(item).delete(item["metadata"]["name"])

    def get(self, item: Object) -> Object:
        found: Object = self.kind(item).get(item["metadata"]["name"])
        return found

    def list(self, kind: str) -> list[Object]:
        items: list[Object] = self.kind(kind).list()["items"]
        return items

    def merge(self, item: Object, patch: Object, manager: str = "test") -> None:
        self.kind(item, manager=manager).merge(item["metadata"]["name"], patch)

    def autoscaler_scales(self, item: Object, replicas: int) -> None:
        """Scale as Cluster Autoscaler does: /scale, without a version."""
        self.kind(item, user="admin", manager="cluster-autoscaler").scale(item["metadata"]["name"], replicas)

    # -- Evenkeel
    def open(self, remaining: Remaining = plenty) -> Cluster:
        return self.clusters.open(self.record, remaining)

    def observe(self) -> dict[str, NodeGroup]:
        return {group.key.name: group for group in self.open().observe().groups}

    def sum_of_maxima(self) -> int:
        return sum(group.bounds.max for group in self.observe().values() if group.bounds)

    def fail(self, flavour: str, item: Object) -> None:
        """Store a backoff of the group for lack of capacity, later than all objects."""
        self.clock.at = datetime.now(UTC) + timedelta(seconds=1)
        key = GroupKey(flavour, self.namespace, item["metadata"]["name"])
        state = record_failure(GroupState(), self.clock.at, FailureClass.CAPACITY, "no room", BackoffPolicy())
        self.store.save_group("demo", key, state, None)

    def run(self, *, before_apply: Callable[[Patch], None] | None = None, remaining: Remaining = plenty) -> RunSummary:
        self.clock.at += timedelta(minutes=1)
        clusters = self._hooked(before_apply) if before_apply else self.clusters
        return worker(self.store, clusters, self.clock, self.queue)("demo", "a test", remaining)

    def _hooked(self, before: Callable[[Patch], None]) -> Any:
        """Return clusters that call ``before`` right before each write of Evenkeel."""

        def opened(record: ClusterRecord, remaining: Remaining, **how: bool) -> Cluster:
            cluster = self.clusters.open(record, remaining, **how)
            for name in ("apply", "mark"):
                setattr(cluster, name, partial(written, getattr(cluster, name)))
            return cluster

        def written(write: Callable[..., None], patch: Patch, *more: Any) -> None:
            before(patch)
            write(patch, *more)

        return SimpleNamespace(open=opened)

    def settle(self) -> None:
        for _ in range(6):
            if not self.run().written:
                return
        raise AssertionError("six runs, and it still writes")

    def restore(self) -> None:
        """Leave the cluster, which restores the bounds from before Evenkeel."""
        stored = self.store.load("demo")
        self.store.save_record(stored.record, ControlRecord(restoring=True), stored.versions)
        self.settle()
        assert self.store.load("demo").control.paused


@pytest.fixture(autouse=True)
def _minutes_pass_on_our_clock_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the test's clock: the real API server's is not followed."""
    monkeypatch.setattr(adapter_client, "CLOCKS_AGREE", timedelta(days=1))


@pytest.fixture
def stage(kube_api: Api, kind_of: Callable[..., Any], namespace: str) -> Stage:
    return Stage(kube_api, kind_of, namespace)


@pytest.fixture
def own_stage() -> Iterator[Stage]:
    """Yield a stage on a simulated API of this test alone, with its request log and faults."""
    with simulated() as api:
        yield _stage_on(api)


def _stage_on(api: KubernetesAPI, **fields: Any) -> Stage:
    def kind_of(group: str, version: str, plural: str, *, user: str = "admin", manager: str = "test") -> _InProcess:
        return _InProcess(api, f"{plural}.{group}", version, manager)

    api.store.create("namespaces", {"metadata": {"name": "demo"}})
    return Stage(api, kind_of, "demo", **fields)


class _InProcess:
    """Writes to the simulated API that are not in its request log."""

    def __init__(self, api: KubernetesAPI, resource: str, version: str, manager: str) -> None:
        self._store = api.store
        self._resource = resource
        self._write: dict[str, Any] = {"version": version, "manager": manager}

    def create(self, body: Object) -> Object:
        return self._store.create(self._resource, body, namespace="demo", **self._write)

    def get(self, name: str) -> Object:
        return self._store.get(self._resource, "demo", name, version=self._write["version"])

    def merge(self, name: str, patch: Object) -> Object:
        return self._store.patch(self._resource, "demo", name, patch, **self._write)

    def status(self, name: str, patch: Object) -> Object:
        return self._store.patch(self._resource, "demo", name, patch, subresource="status", **self._write)

    def delete(self, name: str) -> None:
        self._store.delete(self._resource, "demo", name)

    def scale(self, name: str, replicas: int) -> Object:
        body = {"spec": {"replicas": replicas}}
        return self._store.patch(self._resource, "demo", name, body, subresource="scale", **self._write)


def three(flavour: str, replicas: tuple[int, ...], ready: tuple[int, ...] | None = None) -> list[Object]:
    """Return a pool of one flavour in three zones, without owners of bounds."""
    make = objects.MAKE[flavour]
    return [make(zone, replicas[i], (ready or replicas)[i], bounds=(0, 9)) for i, zone in enumerate(ZONES)]


def machine_pools(*numbers: tuple[int, int, int], **fields: Any) -> list[Object]:
    """Return one MachinePool per zone, with these numbers of requested, nodes and instances."""
    return [
        objects.machine_pool(zone, requested, nodes, instances=instances, bounds=(0, 9), **fields)
        for zone, (requested, nodes, instances) in zip(ZONES, numbers, strict=False)
    ]


PRESERVED = {"preserveExpiryTime": "2150-01-15T18:00:00Z"}


FLAVOURS = tuple(objects.MAKE)


@pytest.fixture(params=FLAVOURS)
def flavour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestObserving:
    def test_every_flavour_is_read_with_zone_pool_bounds_requested_and_running(
        self, stage: Stage, flavour: str
    ) -> None:
        pool = three(flavour, (2, 1, 0), (1, 1, 0))
        stage.put(*pool, machine(pool[0], 1, node=True), machine(pool[0], 2, node=False))
        found = stage.observe()
        assert list(found) == [item["metadata"]["name"] for item in pool]
        groups = list(found.values())
        assert {group.key.flavour for group in groups} == {flavour}
        assert [group.identity.zone for group in groups] == list(ZONES)
        assert [(group.requested, group.running) for group in groups] == [(2, 1), (1, 1), (0, 0)]
        assert {group.bounds for group in groups} == {Bounds(0, 9)}
        assert len({group.identity.pool_label for group in groups}) == 1
        assert groups[0].identity.pool_label in ("main", "workers", "worker")
        assert all(group.frozen_because is None and group.unreadable.faults == () for group in groups)

    def test_a_cluster_api_server_with_the_old_version_alone_is_read_and_written(self) -> None:
        with simulated(crds=load_crds(cluster_api_versions=("v1beta1",))) as api:
            stage = _stage_on(api, flavours=["cluster-api"])
            pool = three("cluster-api", (2, 1, 0), (1, 1, 0))
            machines = machine_pools((4, 1, 1), (2, 2, 2), (2, 2, 2), version="v1beta1", pool="others")
            stage.put(*pool, *machines, machine(pool[0], 1, node=True), machine(pool[0], 2, node=False))
            stage.fail("cluster-api", machines[0])
            assert sorted(group.running for group in stage.observe().values()) == [0, 1, 1, 1, 2, 2]
            assert stage.run().written
            assert stage.get(machines[0])["spec"]["replicas"] == 1
            assert {request.path.split("/")[3] for request in api.requests.matching(method="PATCH")} == {"v1beta1"}

    def test_where_both_versions_are_served_the_newer_one_is_used(self, own_stage: Stage) -> None:
        own_stage.put(*three("cluster-api", (1, 1, 1)))
        own_stage.run()
        requests = own_stage.api.requests.matching(path_contains="/apis/cluster.x-k8s.io/v")
        assert {request.path.split("/")[3] for request in requests} == {"v1beta2"}

    def test_machine_sets_of_a_deployment_are_no_groups_of_their_own(self, stage: Stage) -> None:
        (item, *_) = three("cluster-api", (2, 0, 0))
        name = item["metadata"]["name"]
        owner = {"apiVersion": item["apiVersion"], "kind": item["kind"], "name": name, "uid": "1", "controller": True}
        stage.put(item, {**item, "kind": "MachineSet", "metadata": {"name": "set", "ownerReferences": [owner]}})
        (group,) = stage.observe().values()
        assert (group.key.name, group.identity.sets) == (name, ("set",))

    def test_a_machine_set_without_a_deployment_is_a_group(self, stage: Stage) -> None:
        (item, *_) = three("cluster-api", (2, 0, 0))
        stage.put({**item, "kind": "MachineSet"})
        (found,) = stage.observe().values()
        assert (found.identity.kind, found.requested) == ("MachineSet", 2)

    def test_a_machine_counts_once_where_a_machine_set_without_a_deployment_is_near(self, stage: Stage) -> None:
        """Gardener's machines have no label of their MachineSet, so Evenkeel lists all machines for such a group."""
        deployment, other, *_ = three("gardener", (3, 2, 0), (1, 0, 0))
        stage.put(deployment, {**other, "kind": "MachineSet"}, machine(deployment, 1, node=True))
        found = stage.observe().values()
        assert [(group.identity.kind, len(group.machines or ())) for group in found] == [
            ("MachineDeployment", 1),
            ("MachineSet", 0),
        ]

    def test_discovery_strings_of_the_record_choose_the_groups_of_all_namespaces(self, stage: Stage) -> None:
        stage.register(discovery=["clusterapi:evenkeel.dev/pool=workers"], namespaces=[])
        stage.put(*three("cluster-api", (1, 1, 1)), objects.cluster_api(ZONES[0], 1, pool="others"))
        observation = stage.open().observe()
        assert len([group for group in observation.groups if group.key.namespace == stage.namespace]) == 3
        skipped = [skipped for skipped in observation.skipped if skipped.namespace == stage.namespace]
        assert [(one.name, one.reason.rule) for one in skipped] == [
            ("demo-others-eu-central-1a", reasons.Rule.NOT_DISCOVERED)
        ]

    def test_a_cluster_without_any_of_the_machine_apis_is_an_error_that_names_them(self) -> None:
        with simulated(crds=[]) as api:
            stage = _stage_on(api)
            with pytest.raises(ClusterUnavailableError, match="serves none of the machine APIs gardener, cluster-api"):
                stage.observe()

    @pytest.mark.parametrize(
        ("served", "flavours"),
        [
            pytest.param(lambda group, kind: group.endswith("openshift.io"), ["openshift"], id="one flavour"),
            pytest.param(
                lambda group, kind: kind not in ("MachineAutoscaler", "Worker"), FLAVOURS, id="without owners"
            ),
            pytest.param(lambda group, kind: kind != "MachinePool", FLAVOURS, id="without MachinePools"),
        ],
    )
    def test_a_cluster_that_serves_not_all_kinds_is_read_and_written(
        self, served: Callable[[str, str], bool], flavours: Sequence[str]
    ) -> None:
        crds = [crd for crd in load_crds() if served(crd["spec"]["group"], crd["spec"]["names"]["kind"])]
        with simulated(crds=crds) as api:
            stage = _stage_on(api)
            for flavour in flavours:
                stage.put(*three(flavour, (2, 2, 2)))
            assert len(stage.observe()) == 3 * len(flavours)
            assert stage.run().written

    @pytest.mark.parametrize("page", [1, 2, 3, 500])
    def test_lists_longer_than_a_page_are_read_to_their_end(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch, page: int
    ) -> None:
        monkeypatch.setattr(adapter_client, "PAGE", page)
        stage.put(*(objects.cluster_api(zone, 1, pool=name) for name in ("p0", "p1", "p2") for zone in ZONES))
        assert len(stage.observe()) == 9


class TestCostOfACheck:
    @staticmethod
    def lists(stage: Stage) -> list[str]:
        return [request.path.rpartition("/")[2] for request in stage.api.requests.matching(method="GET")]

    def test_a_quiet_check_is_one_list_per_kind_and_no_patch(self, own_stage: Stage) -> None:
        three_flavours = ["gardener", "cluster-api", "openshift"]
        own_stage.register(flavours=three_flavours)
        for flavour in three_flavours:
            own_stage.put(*three(flavour, (2, 2, 2)))
        own_stage.settle()
        own_stage.api.requests.clear()
        own_stage.run()
        assert sorted(self.lists(own_stage)) == sorted(
            [
                *("machinedeployments", "machinesets", "workers"),
                *("machinedeployments", "machinesets", "machinepools", "clusters"),
                *("machinesets", "machineautoscalers", "clusterautoscalers"),
            ]
        )
        assert own_stage.api.requests.count(method="PATCH") == 0

    @pytest.mark.parametrize(("page", "pages"), [(1, 9), (4, 3), (9, 1)])
    def test_a_list_costs_one_request_per_page(
        self, own_stage: Stage, monkeypatch: pytest.MonkeyPatch, page: int, pages: int
    ) -> None:
        monkeypatch.setattr(adapter_client, "PAGE", page)
        own_stage.register(flavours=["openshift"])
        for name in ("p1", "p2", "p3"):
            own_stage.put(*(objects.openshift(zone, 1, pool=name) for zone in ZONES))
        own_stage.observe()
        assert self.lists(own_stage).count("machinesets") == pages

    def test_machines_are_listed_only_for_groups_whose_nodes_are_not_all_there(
        self, own_stage: Stage, flavour: str
    ) -> None:
        pool = three(flavour, (2, 2, 2), (2, 1, 2))
        own_stage.put(*pool, *(machine(item, number, node=number != 2) for item in pool for number in (1, 2)))
        first, second, third = (group.machines for group in own_stage.observe().values())
        requests = own_stage.api.requests.matching(query_contains="labelSelector")
        (listed,) = [request for request in requests if request.path.endswith("/machines")]
        assert [item["metadata"]["name"] in listed.query["labelSelector"] for item in pool] == [False, True, False]
        assert first is third is None
        assert [machine.has_node for machine in second or ()] == [True, False]

    def test_machines_are_listed_as_well_for_the_groups_of_a_full_check(self, own_stage: Stage) -> None:
        pool = three("cluster-api", (1, 1, 1))
        own_stage.put(*pool, *(machine(item, 1, node=True) for item in pool))
        keys = [GroupKey("cluster-api", "demo", name) for name in (pool[1]["metadata"]["name"], "not-there")]
        groups = own_stage.open().observe(keys).groups
        assert [(group.machines is not None, group.running) for group in groups] == [(False, 1), (True, 1), (False, 1)]

    def test_machines_of_groups_that_belong_to_no_pool_are_not_listed(self, own_stage: Stage) -> None:
        own_stage.put(objects.alone(objects.cluster_api(ZONES[0], 3, 1)))
        own_stage.observe()
        assert "machines" not in self.lists(own_stage)

    def test_machines_of_many_groups_are_listed_in_selectors_that_fit_a_url(self, own_stage: Stage) -> None:
        own_stage.put(*(objects.cluster_api(ZONES[0], 2, 1, pool=f"p{number:03}") for number in range(120)))
        own_stage.observe()
        requests = own_stage.api.requests.matching(path_contains="/machines", query_contains="labelSelector")
        assert len(requests) == 3
        assert max(len(request.query["labelSelector"]) for request in requests) < 4000


class TestWriting:
    def test_one_patch_carries_bounds_replicas_and_annotations_with_the_version(
        self, own_stage: Stage, flavour: str
    ) -> None:
        pool = three(flavour, (4, 2, 2), (2, 2, 2))
        own_stage.put(*pool)
        own_stage.fail(flavour, pool[0])
        before = own_stage.get(pool[0])
        own_stage.run()
        name = pool[0]["metadata"]["name"]
        fence, patch = own_stage.api.requests.matching(method="PATCH", path_contains=name)
        assert "spec" not in fence.body
        assert fence.body["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        prefix = pool[0]["apiVersion"].split("/")[0]
        assert patch.manager == "evenkeel"
        assert patch.body["spec"] == {"replicas": 2}
        metadata = patch.body["metadata"]
        assert int(metadata["resourceVersion"]) > int(fence.body["metadata"]["resourceVersion"])
        decision = json.loads(metadata["annotations"].pop("evenkeel.dev/decision"))
        assert (decision["max"], decision["target"], decision["state"]) == (2, 2, "fenced")
        assert metadata["annotations"] == {
            f"{prefix}/cluster-api-autoscaler-node-group-min-size": "0",
            f"{prefix}/cluster-api-autoscaler-node-group-max-size": "2",
            "evenkeel.dev/adopted-bounds": "0,9",
        }

    def test_after_a_run_the_pool_is_as_planned_and_the_next_run_changes_nothing(
        self, stage: Stage, flavour: str
    ) -> None:
        pool = three(flavour, (3, 2, 1))
        pool[0]["metadata"]["annotations"]["team.example/note"] = "keep me"
        stage.put(*pool)
        template = stage.get(pool[0])["spec"]["template"]
        assert stage.run().written
        assert stage.sum_of_maxima() == 12
        assert all(group.ours.published and group.ours.adopted == Bounds(0, 9) for group in stage.observe().values())
        stage.settle()
        written = [stage.get(item) for item in pool]
        assert written[0]["metadata"]["annotations"]["team.example/note"] == "keep me"
        assert written[0]["spec"]["template"] == template
        assert "evenkeel" in {entry["manager"] for entry in written[0]["metadata"]["managedFields"]}
        stage.run()
        assert [stage.get(item) for item in pool] == written

    def test_events_for_people_are_left_out_when_time_is_short_and_the_patches_are_not(self, own_stage: Stage) -> None:
        own_stage.put(*three("cluster-api", (1, 1, 1)))
        assert own_stage.run(remaining=lambda: 20.0).written == 3
        assert own_stage.api.requests.count(method="POST") == 0

    def test_each_write_is_an_event_beside_its_object(self, own_stage: Stage) -> None:
        pool = three("cluster-api", (1, 1, 1))
        own_stage.put(*pool)
        own_stage.run()
        names = [event["involvedObject"]["name"] for event in own_stage.api.store.list("events", "demo")]
        assert sorted(names) == [item["metadata"]["name"] for item in pool]

    @pytest.mark.parametrize("change", ["409", "404"])
    def test_a_write_to_an_object_that_has_changed_or_gone_since_the_check_is_a_conflict(
        self, stage: Stage, flavour: str, change: str
    ) -> None:
        pool = three(flavour, (1, 1, 1))
        stage.put(*pool)
        cluster = stage.open()
        group = cluster.observe().groups[0]
        if change == "404":
            stage.delete(pool[0])
        else:
            stage.merge(pool[0], {"metadata": {"labels": {"touched": "yes"}}})
        before = stage.list(stage.resource(pool[0]))
        with pytest.raises(ConflictError, match=change):
            write(cluster, group, (0, 9))
        assert stage.list(stage.resource(pool[0])) == before

    def test_many_groups_are_marked_and_written_side_by_side(self, own_stage: Stage) -> None:
        pools = [three("cluster-api", (3, 2, 2), (1, 2, 2)), three("gardener", (3, 2, 2), (1, 2, 2))]
        pools.append([objects.cluster_api(zone, 3, 1, pool="more") for zone in ZONES])
        scalables = [item for pool in pools for item in pool if item["status"]["readyReplicas"] == 1]
        own_stage.put(*itertools.chain(*pools))
        own_stage.put(*(machine(item, number, node=number == 1) for item in scalables for number in (1, 2, 3)))
        cluster = own_stage.open()
        groups = {group.key.name: group for group in cluster.observe().groups}

        def release(item: Object) -> None:
            group = groups[item["metadata"]["name"]]
            patch = Patch(plan=planned(group, (0, 1)), bounds=Bounds(0, 1), requested=1)
            cluster.mark(patch, cluster.deletion_candidates(patch), ())
            cluster.apply(patch, "{}", "none")

        with ThreadPoolExecutor(5) as pool:
            list(pool.map(release, scalables))
        found = own_stage.observe()
        assert [(found[item["metadata"]["name"]].requested) for item in scalables] == [1] * 5
        assert all(found[item["metadata"]["name"]].bounds == Bounds(0, 1) for item in scalables)

    def test_a_refused_write_is_not_a_conflict(self, stage: Stage) -> None:
        stage.put(objects.openshift(ZONES[0], 0), objects.machine_autoscaler(ZONES[0], 0, 4))
        cluster = stage.open()
        (group,) = cluster.observe().groups
        with pytest.raises(RejectedError, match="422"):
            write(cluster, group, (0, 0))


def planned(group: NodeGroup, bounds: tuple[int, int]) -> GroupPlan:
    return GroupPlan(
        group=group, state=State.HEALTHY, requested=group.requested, bounds=Bounds(*bounds), reasons=("a test",)
    )


def write(cluster: Cluster, group: NodeGroup, bounds: tuple[int, int]) -> None:
    cluster.apply(Patch(plan=planned(group, bounds), bounds=Bounds(*bounds)), "{}", "none")


class TestBesideTheAutoscaler:
    def test_its_scale_between_our_check_and_our_patch_is_a_conflict_and_planned_with(
        self, stage: Stage, flavour: str
    ) -> None:
        pool = three(flavour, (2, 2, 2))
        stage.put(*pool)
        scaled: list[str] = []

        def scales(patch: Patch) -> None:
            if not scaled:
                scaled.append(patch.plan.group.key.name)
                stage.autoscaler_scales(next(item for item in pool if item["metadata"]["name"] in scaled), 4)

        assert stage.run(before_apply=scales).conflicts == 1
        groups = stage.observe()
        assert groups[scaled[0]].requested == 4
        assert all(group.bounds is not None and group.bounds.max >= group.requested for group in groups.values())
        assert stage.sum_of_maxima() == 12

    def test_its_scale_that_lands_after_our_fence_is_repaired_by_the_second_check(
        self, stage: Stage, flavour: str
    ) -> None:
        pool = three(flavour, (3, 2, 2), (0, 2, 2))
        stage.put(*pool)
        stage.fail(flavour, pool[0])
        for _ in range(2):
            stage.run()
            group = stage.observe()[pool[0]["metadata"]["name"]]
            assert (group.requested, group.bounds) == (0, Bounds(0, 0))
            assert stage.queue.second_checks
            stage.autoscaler_scales(pool[0], 3)


class TestDeleteMarks:
    @staticmethod
    def marks(stage: Stage, machines: list[Object]) -> list[bool]:
        found = [stage.get(item)["metadata"].get("annotations") or {} for item in machines]
        return [any(annotations.get(key) for key in objects.MARKS) for annotations in found]

    def test_only_machines_without_a_node_are_marked_and_they_are_marked_before_replicas_go(
        self, stage: Stage, flavour: str
    ) -> None:
        pool = three(flavour, (4, 2, 2), (2, 2, 2))
        machines = [machine(pool[0], number, node=number in (1, 3)) for number in (1, 2, 3, 4)]
        machines = [self.failed(item) if number % 2 else item for number, item in enumerate(machines)]
        stage.put(*pool, *machines)
        stage.fail(flavour, pool[0])
        marks_at_patch: list[list[bool]] = []

        def check(patch: Patch) -> None:
            if patch.lowers_requested:
                marks_at_patch.append(self.marks(stage, machines))

        stage.run(before_apply=check)
        assert marks_at_patch == [[False] * 4, [False, True, False, True]]  # before the marks, before the patch
        assert stage.get(pool[0])["spec"]["replicas"] == 2

    @pytest.mark.parametrize("marked", [False, True])
    def test_a_machine_that_has_just_become_a_node_is_neither_marked_nor_given_up(
        self, stage: Stage, flavour: str, marked: bool
    ) -> None:
        scalable, machines = self.one_node_of_three(stage, flavour)
        if marked:
            self.mark(stage, flavour, *machines[1:])
        outcome = stage.run(before_apply=self.joins(stage, *machines[1 if marked else 2 :]))
        # Its success ends the fence: no replica is removed any more, and no mark stays.
        assert stage.get(scalable)["spec"]["replicas"] == 3
        if not marked:
            assert outcome.conflicts == 1
            stage.run()
            assert self.marks(stage, machines) == [False, False, False]

    def test_no_machine_is_marked_twice(self, own_stage: Stage, flavour: str) -> None:
        scalable, machines = self.one_node_of_three(own_stage, flavour)
        count = partial(own_stage.api.requests.count, path_contains="/machines")
        cluster = own_stage.open()
        patch = self.release(cluster, scalable, 1)
        names = cluster.deletion_candidates(patch)
        cluster.mark(patch, names, ())
        assert count(method="PATCH") == 2
        cluster.mark(patch, names, names)  # the same check
        again = own_stage.open()
        patch = self.release(again, scalable, 1)
        lists = count(method="GET")
        again.mark(patch, again.deletion_candidates(patch), names)  # a new one
        assert count(method="PATCH") == 2
        assert count(method="GET") == lists + 1, "one list for all of the group"
        assert self.marks(own_stage, machines) == [False, True, True]

    @pytest.mark.parametrize(
        ("flavour", "change"),
        [*itertools.product(FLAVOURS, ("has become a node", "is going")), ("gardener", "is preserved")],
    )
    def test_a_marked_machine_that_has_changed_since_the_check_is_a_conflict(
        self, own_stage: Stage, flavour: str, change: str
    ) -> None:
        scalable, machines = self.one_node_of_three(own_stage, flavour)
        self.mark(own_stage, flavour, *machines[1:])
        cluster = own_stage.open()
        patch = self.release(cluster, scalable, 1)
        names = cluster.deletion_candidates(patch)
        if change == "has become a node":
            own_stage.set_status(machines[1], becomes_a_node(machines[1]))
        elif change == "is preserved":
            own_stage.set_status(machines[1], {"status": {"currentStatus": PRESERVED}})
        else:
            own_stage.merge(machines[1], {"metadata": {"finalizers": ["demo.example/wait"]}})
            own_stage.delete(machines[1])
        with pytest.raises(ConflictError, match=f"{change} since it was read"):
            cluster.mark(patch, names, names)
        if change == "has become a node":
            names = cluster.deletion_candidates(self.release(cluster, scalable, 2))
            assert names == (machines[2]["metadata"]["name"],)

    def test_replicas_are_not_lowered_where_a_machine_would_go_in_the_place_of_a_preserved_one(
        self, own_stage: Stage
    ) -> None:
        scalable = three("gardener", (3, 2, 2), (3, 2, 2))[0]
        machines = [machine(scalable, number, node=True) for number in (1, 2, 3)]
        own_stage.put(scalable, *machines)
        for item in machines[1:]:
            own_stage.set_status(item, {"status": {"currentStatus": {**PRESERVED, "phase": "Running"}}})
        going = partial(self.going, own_stage.open(), scalable, may_remove_running=True)
        assert going(2) == [1]
        with pytest.raises(RejectedError, match=r"2 of its 3 machines are preserved, so spec.replicas 1"):
            going(1)

    @staticmethod
    def release(cluster: Cluster, scalable: Object, requested: int, *, may_remove_running: bool = False) -> Patch:
        """Return the patch of a new check that would leave so many replicas."""
        name = scalable["metadata"]["name"]
        (group,) = [group for group in cluster.observe().groups if group.key.name == name]
        timeout = group.options.provision_timeout or timedelta(minutes=15)
        plan = replace(
            planned(group, (0, 9)), removal=Removal(may_remove_running=may_remove_running), provision_timeout=timeout
        )
        return Patch(plan=plan, requested=requested)

    def going(self, cluster: Cluster, scalable: Object, requested: int, **fields: Any) -> list[int]:
        """Return the numbers of the machines that would be removed, in order."""
        names = cluster.deletion_candidates(self.release(cluster, scalable, requested, **fields))
        return [int(name[-5:]) for name in names]

    def test_failed_machines_go_first_then_those_past_their_time_then_the_newest(
        self, own_stage: Stage, flavour: str
    ) -> None:
        scalable = three(flavour, (6, 2, 2), (2, 2, 2))[0]
        machines = [machine(scalable, number, node=number in (1, 2)) for number in range(1, 7)]
        own_stage.api.store.clock = lambda: own_stage.clock.at
        started = own_stage.clock.at
        own_stage.put(scalable)
        for item, minutes in zip(machines, (40, 30, 20, 3, 2, 1), strict=True):
            own_stage.clock.at = started - timedelta(minutes=minutes)
            own_stage.put(item)
        own_stage.clock.at = started
        own_stage.set_status(machines[3], {"status": refused(flavour)})
        going = partial(self.going, own_stage.open(), scalable)
        assert going(5) == [4]
        assert going(2) == [4, 3, 6, 5]
        assert going(0) == [4, 3, 6, 5], "what runs goes on request only"
        assert going(0, may_remove_running=True) == [4, 3, 6, 5, 2, 1]
        note = {FLAVOUR_DATA[flavour].autoscaler.provision_timeout: "1h"}
        own_stage.merge(scalable, {"metadata": {"annotations": note}})
        assert going(2) == [4, 6, 5, 3], "nothing is late by the group's own option"

    @staticmethod
    def mark(stage: Stage, flavour: str, *machines: Object) -> None:
        for item in machines:
            stage.merge(item, {"metadata": {"annotations": dict([FLAVOUR_DATA[flavour].machines.mark])}})

    @staticmethod
    def failed(item: Object) -> Object:
        flavour = next(one.name for one in FLAVOUR_DATA.values() if one.machines.kind.group in item["apiVersion"])
        return {**item, "status": {**item["status"], **refused(flavour)}}

    @staticmethod
    def one_node_of_three(stage: Stage, flavour: str) -> tuple[Object, list[Object]]:
        """Create a failing group that waits for two of its three machines. Return the scalable and the machines."""
        pool = three(flavour, (3, 2, 2), (1, 2, 2))
        machines = [machine(pool[0], number, node=number == 1) for number in (1, 2, 3)]
        machines[1:] = [TestDeleteMarks.failed(item) for item in machines[1:]]
        stage.put(*pool, *machines)
        stage.fail(flavour, pool[0])
        return pool[0], machines

    @staticmethod
    def joins(stage: Stage, *machines: Object) -> Callable[[Patch], None]:
        """Return a hook: the machines become nodes right before Evenkeel marks any."""
        late = list(machines)

        def before(patch: Patch) -> None:
            while patch.lowers_requested and late:
                item = late.pop()
                stage.set_status(item, becomes_a_node(item))

        return before


class TestMachineAutoscaler:
    def put(self, stage: Stage, replicas: tuple[int, ...], ready: tuple[int, ...], high: int) -> list[Object]:
        pool = [objects.openshift(zone, replicas[i], ready[i]) for i, zone in enumerate(ZONES)]
        stage.put(*pool, *(objects.machine_autoscaler(zone, 0, high) for zone in ZONES))
        return pool

    def test_its_bounds_are_the_groups_bounds_and_a_run_writes_them_there(self, stage: Stage) -> None:
        pool = self.put(stage, (1, 1, 1), (1, 1, 1), 9)
        assert {group.bounds for group in stage.observe().values()} == {Bounds(0, 9)}
        before = [stage.get(item) for item in pool]
        stage.run()
        scalers = stage.list(SCALERS)
        assert sum(item["spec"]["maxReplicas"] for item in scalers) == 12
        assert [stage.get(item) for item in pool] == before, "the sets themselves are not touched"

    def test_a_fenced_group_keeps_the_one_replica_that_its_owner_insists_on_offering(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written: list[tuple[int, int, int]] = []  # (min, requested, max) after every write of Evenkeel
        patch = KubernetesApi.patch

        def patched(self: KubernetesApi, *arguments: Any, **named: Any) -> dict[str, Any]:
            answer = patch(self, *arguments, **named)
            spec = stage.get(scaler)["spec"]
            written.append((spec["minReplicas"], stage.get(pool[0])["spec"]["replicas"], spec["maxReplicas"]))
            return answer

        scaler = objects.machine_autoscaler(ZONES[0], 0, 4)
        pool = self.put(stage, (2, 1, 1), (0, 1, 1), 4)
        stage.fail("openshift", pool[0])
        monkeypatch.setattr(KubernetesApi, "patch", patched)
        stage.run()
        assert all(low <= requested <= high for low, requested, high in written)
        # The last replica is kept: the owner accepts no max below 1, so it would be ordered there again.
        assert written[-1] == (0, 1, 1)
        stage.settle()

    def test_the_replicas_are_not_lowered_when_the_bounds_were_refused(self, own_stage: Stage) -> None:
        pool = self.put(own_stage, (3, 1, 1), (1, 1, 1), 4)
        own_stage.fail("openshift", pool[0])
        own_stage.api.faults.add(method="PATCH", path_contains="machinesets", status=422, times=9)
        outcome = own_stage.run()
        assert outcome.rejected == 1
        assert own_stage.get(pool[0])["spec"]["replicas"] == 3
        scaler = own_stage.get(objects.machine_autoscaler(ZONES[0], 0, 4))
        assert scaler["spec"]["maxReplicas"] >= 3


class TestClusterClass:
    NAMES = ("pool-a", "pool-b", "pool-c")

    def put(self, stage: Stage, replicas: tuple[int, ...] = (2, 2, 2), *, write: bool = True, **fields: Any) -> Object:
        stage.register(write_topology=write)
        cluster = objects.topology_cluster(*self.NAMES, **fields)
        pool = three("cluster-api", replicas)
        stage.put(cluster, *(objects.topology_owned(item, name) for item, name in zip(pool, self.NAMES, strict=True)))
        return cluster

    def test_the_bounds_of_all_groups_are_written_to_the_one_cluster_and_nothing_else_there_changes(
        self, stage: Stage
    ) -> None:
        cluster = self.put(stage)
        before, deployments = stage.get(cluster), stage.list(DEPLOYMENTS)
        outcome = stage.run()
        assert (outcome.written, outcome.conflicts) == (3, 0)
        after = stage.get(cluster)
        annotations = [entry["metadata"]["annotations"] for entry in topology_entries(after)]
        assert sum(int(entry[MAX_SIZE]) for entry in annotations) == 12
        for entry in annotations:
            ours = {MAX_SIZE, MIN_SIZE, "evenkeel.dev/decision", "evenkeel.dev/adopted-bounds"}
            assert set(entry) == {*ours, "team.example/keep"}
            assert entry["evenkeel.dev/adopted-bounds"] == "0,9"
        for entry in (*topology_entries(after), *topology_entries(before)):
            entry["metadata"]["annotations"] = None
        assert after["spec"] == before["spec"]
        assert stage.list(DEPLOYMENTS) == deployments
        assert stage.run().written == 0
        assert stage.sum_of_maxima() == 12

    def test_groups_that_share_the_cluster_are_written_through_one_object_and_others_through_their_own(
        self, stage: Stage
    ) -> None:
        self.put(stage)
        stage.put(objects.cluster_api(ZONES[0], 1, pool="others"))
        cluster = stage.open()
        named = [(group.identity.pool_label, cluster.turn_of(group.key)) for group in cluster.observe().groups]
        shared = f"cluster.x-k8s.io/Cluster/{stage.namespace}/demo"
        own = f"cluster.x-k8s.io/MachineDeployment/{stage.namespace}/demo-others-{ZONES[0]}"
        assert sorted(named) == [("others", own)] + [("workers", shared)] * 3

    def test_a_change_of_the_cluster_meanwhile_is_not_overwritten(self, stage: Stage) -> None:
        cluster = self.put(stage)
        upgrade = [{"spec": {"topology": {"version": "v1.35.0"}}}]
        assert stage.run(before_apply=lambda _: upgrade and stage.merge(cluster, upgrade.pop())).conflicts == 1
        assert stage.get(cluster)["spec"]["topology"]["version"] == "v1.35.0"
        assert stage.sum_of_maxima() == 12

    def entries(self, stage: Stage, cluster: Object) -> dict[str, Any]:
        return {entry["name"]: entry["metadata"]["annotations"] for entry in topology_entries(stage.get(cluster))}

    def apply(self, stage: Stage, cluster: Object, manager: str, maximum: int, *, force: bool = True) -> None:
        """Apply the first entry's max as another writer, by server-side apply."""
        (entry,) = [{"name": self.NAMES[0], "metadata": {"annotations": {MAX_SIZE: str(maximum)}}}]
        spec = {"topology": {"workers": {"machineDeployments": [entry]}}}
        body = {"apiVersion": cluster["apiVersion"], "kind": "Cluster", "metadata": {"name": "demo"}, "spec": spec}
        clusters = stage.kind(cluster)
        clusters.custom.patch_namespaced_custom_object(
            *clusters.where, "demo", body, field_manager=manager, force=force, _content_type=APPLY
        )

    def test_what_is_ours_is_applied_under_our_name_and_what_is_not_stays_its_writers(self, stage: Stage) -> None:
        cluster = self.put(stage)
        stage.run()
        stored = stage.get(cluster)
        for name in self.NAMES:
            notes = ("f:metadata", "f:annotations")
            for key in (MAX_SIZE, "evenkeel.dev/decision"):
                assert objects.writers(stored, *in_entry(name, *notes, f"f:{key}")) == {"evenkeel: Apply"}
            for path in (("f:class",), (*notes, "f:team.example/keep")):
                assert objects.writers(stored, *in_entry(name, *path)) == {"test: Update"}

    def test_a_later_write_to_one_entry_keeps_what_is_ours_in_the_others(self, stage: Stage) -> None:
        cluster = self.put(stage)
        stage.run()
        before = self.entries(stage, cluster)
        stage.fail("cluster-api", stage.list(DEPLOYMENTS)[0])
        stage.run()
        after = self.entries(stage, cluster)
        assert after != before
        assert [set(entry) for entry in after.values()] == [set(entry) for entry in before.values()]
        assert stage.sum_of_maxima() == 12

    def test_the_manager_that_applied_the_key_is_named_once_and_gets_the_conflict_next_time(self, stage: Stage) -> None:
        cluster = self.put(stage)
        self.apply(stage, cluster, "flux", 7)
        stage.run()
        groups = [group for decision in stage.store.decisions("demo", 10) for group in decision["pool"]["groups"]]
        (reason,) = [reason for group in groups for reason in group["reasons"] if "taken over from flux" in reason]
        assert MAX_SIZE in reason
        with pytest.raises(ApiException) as caught:
            self.apply(stage, cluster, "flux", 7, force=False)
        assert 'conflict with "evenkeel"' in json.loads(caught.value.body)["message"]
        stage.settle()
        assert stage.sum_of_maxima() == 12

    def test_another_number_that_is_applied_with_force_later_is_adopted(self, stage: Stage) -> None:
        stage.register(pools=[])
        cluster = self.put(stage)
        stage.run()
        self.apply(stage, cluster, "flux", 3)
        stage.run()
        (pool,) = stage.store.load("demo").state.pools.values()
        assert sorted(desired.bounds.max for desired in pool.desired_bounds.values()) == [3, 9, 9]
        assert stage.sum_of_maxima() == 3 + 9 + 9

    @pytest.mark.parametrize("end", ["restored", "switched off"])
    def test_restored_or_switched_off_it_holds_what_was_there_before_us(self, stage: Stage, end: str) -> None:
        cluster = self.put(stage)
        before = stage.get(cluster)["spec"]
        stage.run()
        assert stage.get(cluster)["spec"] != before
        if end == "restored":
            stage.restore()
        else:
            stage.register(write_topology=False)
            stage.settle()
        left = stage.get(cluster)
        assert left["spec"] == before
        assert stage.run().written == 0
        assert stage.get(cluster) == left
        if end == "switched off":
            stage.register(write_topology=True)
            stage.settle()
            assert stage.sum_of_maxima() == 12

    def test_what_a_merge_patch_of_ours_wrote_is_put_back_while_switched_off(self, stage: Stage) -> None:
        cluster = self.put(stage, write=False)
        before = stage.get(cluster)["spec"]
        decision = {"at": "2026-01-01T00:00:00Z", "state": "healthy", "target": 2, "min": 0, "max": 4}
        ours = {MAX_SIZE: "4", "evenkeel.dev/decision": json.dumps(decision), "evenkeel.dev/adopted-bounds": "0,9"}
        entries = topology_entries(stage.get(cluster))
        entries[0]["metadata"]["annotations"] |= ours
        stage.merge(cluster, {"spec": {"topology": {"workers": {"machineDeployments": entries}}}}, manager="evenkeel")
        stage.settle()
        assert stage.get(cluster)["spec"] == before

    def test_switched_off_bounds_stay_and_replicas_are_kept_inside_them(self, stage: Stage) -> None:
        stage.register(pools=[{"name": "workers", "min": 9, "max": 12}])
        cluster = self.put(stage, write=False)
        before = stage.get(cluster)
        stage.run()
        assert stage.get(cluster) == before
        assert [group.requested for group in stage.observe().values()] == [3, 3, 3]
        decisions = stage.store.decisions("demo", 10)
        problems = [problem for decision in decisions for problem in decision["pool"]["problems"]]
        ours = [problem for problem in problems if f"Cluster {stage.namespace}/demo" in problem]
        assert ours
        assert all("write_topology" in problem and "rbac-topology.yaml" in problem for problem in ours)
        stage.settle()
        assert stage.store.decisions("demo", 10) == decisions

    def test_bounds_that_the_topology_does_not_name_are_ours_on_the_deployment(self, stage: Stage) -> None:
        cluster = self.put(stage, write=False)
        spec = stage.get(cluster)["spec"]
        for entry in spec["topology"]["workers"]["machineDeployments"]:
            entry["metadata"]["annotations"] = {}
        stage.merge(cluster, {"spec": spec})
        version = stage.get(cluster)["metadata"]["resourceVersion"]
        stage.settle()
        assert stage.get(cluster)["metadata"]["resourceVersion"] == version
        assert stage.sum_of_maxima() == 12

    def test_without_the_right_the_outcome_names_the_files_and_nothing_is_written(self, own_stage: Stage) -> None:
        cluster = self.put(own_stage, (3, 2, 2))
        pool = three("cluster-api", (3, 2, 2))
        own_stage.fail("cluster-api", pool[0])
        before = [own_stage.get(item) for item in (cluster, *pool)]
        own_stage.api.faults.add(method="PATCH", path_contains="clusters/", status=403, times=99)
        outcome = own_stage.run()
        assert (outcome.rejected, outcome.written) == (3, 0)
        assert [own_stage.get(item) for item in (cluster, *pool)] == before
        group = own_stage.store.decisions("demo", 1)[0]["pool"]["groups"][0]
        assert "deploy/kubernetes/cluster-api/rbac-topology.yaml and admission-policy-topology.yaml" in group["outcome"]
        assert "\n" not in group["outcome"]


def _frozen() -> dict[str, tuple[str, list[Object]]]:
    """Return objects by reason: (flavour, objects), of which the first is frozen."""
    capi, gardener, openshift = (three(flavour, (2, 0, 0))[0] for flavour in ("cluster-api", "gardener", "openshift"))
    name = gardener["metadata"]["name"]
    owner = {**{key: gardener[key] for key in ("apiVersion", "kind")}, "uid": "1", "controller": True, "name": name}
    rolling = [
        {**gardener, "kind": "MachineSet", "metadata": {"name": f"{name}-{n}", "ownerReferences": [owner]}}
        for n in ("old", "new")
    ]
    cluster = {"apiVersion": capi["apiVersion"], "kind": "Cluster", "metadata": {"name": "demo"}}

    def with_(item: Object, part: str, **fields: Any) -> Object:
        return {**item, part: {**item[part], **fields}}

    moved = with_(openshift, "spec", authoritativeAPI="ClusterAPI")
    halted = {**gardener, "status": {"conditions": [{"type": "Frozen", "status": "True"}]}}
    return {
        "rollouts of the object are paused": ("cluster-api", [with_(capi, "spec", paused=True)]),
        "the object is paused": ("cluster-api", [with_(capi, "metadata", annotations={"cluster.x-k8s.io/paused": ""})]),
        "is paused": ("cluster-api", [capi, {**cluster, "spec": {"paused": True}}]),
        "rolling out: 2 MachineSets hold machines": ("gardener", [gardener, *rolling]),
        "spec.authoritativeAPI is 'ClusterAPI'": ("openshift", [moved]),
        "machine-controller-manager has frozen the group": ("gardener", [halted]),
        "the object is being deleted": ("cluster-api", [with_(capi, "metadata", finalizers=["demo.example/wait"])]),
    }


FROZEN = _frozen()


class TestRancher:
    """Rancher copies the sizes of its machine pools to annotations of MachineDeployments, and restores them."""

    def put(self, stage: Stage) -> list[Object]:
        stage.register(pools=[])
        pool = three("cluster-api", (2, 2, 2))
        for item, high in zip(pool, (6, 3, 3), strict=True):
            item["metadata"]["annotations"] |= objects.bounds_of("cluster-api", 0, high)
            item["spec"]["template"]["metadata"]["labels"] |= {
                "rke.cattle.io/cluster-name": "demo",
                "rke.cattle.io/rke-machine-pool-name": item["metadata"]["name"],
            }
        stage.put(*pool)
        return pool

    def resize(self, stage: Stage, item: Object, high: int) -> None:
        stage.merge(item, {"metadata": {"annotations": objects.bounds_of("cluster-api", 0, high)}}, manager="rancher")

    def test_a_new_size_is_followed_and_restore_returns_it(self, stage: Stage) -> None:
        pool = self.put(stage)
        stage.settle()
        assert [group.bounds for group in stage.observe().values()] == [Bounds(0, 4)] * 3
        self.resize(stage, pool[0], 9)
        stage.settle()
        assert stage.sum_of_maxima() == 15
        stage.restore()
        assert [group.bounds for group in stage.observe().values()] == [Bounds(0, 9), Bounds(0, 3), Bounds(0, 3)]

    def test_sizes_that_rancher_restores_are_contested_after_three_times(self, stage: Stage) -> None:
        pool = self.put(stage)
        for _ in range(4):
            stage.run()
            self.resize(stage, pool[0], 6)
        stage.settle()
        assert stage.observe()[pool[0]["metadata"]["name"]].bounds == Bounds(0, 6)
        (state,) = [each for each in stage.store.load("demo").state.groups.values() if each.contest.contested_since]
        assert state.contest.contested_by == "rancher"


class TestMachinePools:
    def test_nodes_are_running_instances_on_their_way_and_deployments_of_the_pool_groups_beside_them(
        self, stage: Stage
    ) -> None:
        stage.put(*machine_pools((3, 1, 2)), *three("cluster-api", (2, 2, 2))[1:])
        groups = sorted(stage.observe().values(), key=lambda group: str(group.identity.zone))
        assert [(group.identity.kind, group.requested, group.running, group.unreadable.faults) for group in groups] == [
            ("MachinePool", 3, 1, ()),
            *[("MachineDeployment", 2, 2, ())] * 2,
        ]
        assert groups[0].on_its_way(stage.clock.at, timedelta(minutes=15)) == 1
        assert stage.run().written
        assert stage.sum_of_maxima() == 12

    def test_replicas_without_an_instance_are_released_and_instances_stay(self, stage: Stage) -> None:
        pools = machine_pools((5, 1, 3), (2, 2, 2), (2, 2, 2))
        stage.put(*pools)
        stage.fail("cluster-api", pools[0])
        assert stage.run().written
        found = stage.get(pools[0])
        assert found["spec"]["replicas"] == 3, "one of the two that are no nodes yet, or the node, would go"
        assert found["metadata"]["annotations"]["cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"] == "3"
        assert found["spec"]["providerIDList"] == pools[0]["spec"]["providerIDList"]

    def test_with_machines_those_that_are_given_back_are_named(self, own_stage: Stage) -> None:
        (pool,) = machine_pools((3, 2, 3))
        machines = [machine(pool, number, node=number != 2) for number in (1, 2, 3)]
        own_stage.put(pool, *machines)
        cluster = own_stage.open()
        patch = TestDeleteMarks.release(cluster, pool, 1, may_remove_running=True)
        assert [int(name[-5:]) for name in cluster.deletion_candidates(patch)] == [2, 3]
        assert patch.plan.group.running == 2

    def test_a_role_that_may_not_list_them_is_reported_and_does_not_fail_the_check(self, own_stage: Stage) -> None:
        own_stage.put(*three("cluster-api", (2, 2, 2)), *machine_pools((1, 1, 1), pool="others"))
        own_stage.api.faults.add(method="GET", path_contains="/machinepools", status=403, times=9)
        found = own_stage.open().observe()
        assert len(found.groups) == 3
        assert [(skipped.name, sentence(skipped.reason)[:50]) for skipped in found.skipped] == [
            ("machinepools", "Evenkeel has no permission to list objects of this")
        ]
        assert own_stage.run().written

    @pytest.mark.parametrize(
        "fault", [{"status": 404}, {"status": 500}, {"status": 403, "query_contains": "continue="}], ids=str
    )
    def test_their_list_that_is_not_whole_leads_to_no_action(
        self, own_stage: Stage, monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any]
    ) -> None:
        monkeypatch.setattr(adapter_client, "PAGE", 2)
        own_stage.put(*three("cluster-api", (2, 2, 2)))
        own_stage.put(*(item for name in ("p", "q") for item in machine_pools(*[(1, 1, 1)] * 3, pool=name)))
        own_stage.api.faults.add(method="GET", path_contains="/machinepools", times=9, **fault)
        assert own_stage.run().unreachable
        assert own_stage.api.requests.count(method="PATCH") == 0


class TestFrozen:
    @pytest.mark.parametrize("why", FROZEN)
    def test_a_frozen_object_is_byte_identical_after_any_run(self, stage: Stage, why: str) -> None:
        flavour, (frozen, *others) = FROZEN[why]
        healthy = three(flavour, (2, 1, 1))[1:]
        stage.put(frozen, *others, *healthy)
        if why == "the object is being deleted":
            stage.delete(frozen)
        before = [stage.get(item) for item in (frozen, *others)]
        stage.fail(flavour, frozen)
        stage.run()
        stage.run()
        assert [stage.get(item) for item in (frozen, *others)] == before
        reason = stage.observe()[frozen["metadata"]["name"]].frozen_because
        assert reason is not None
        assert why.removesuffix(" by annotation") in sentence(reason)
        if why == "is paused":  # the whole Cluster is
            return
        versions = {item["metadata"]["name"]: stage.get(item)["metadata"] for item in healthy}
        assert all("evenkeel.dev/decision" in metadata["annotations"] for metadata in versions.values())


class TestBrokenLists:
    @pytest.fixture
    def broken(self, own_stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
        """Return three pools on pages of two. Complete lists would lead to writes."""
        monkeypatch.setattr(adapter_client, "PAGE", 2)
        for flavour in FLAVOURS:
            own_stage.put(*three(flavour, (2, 2, 2)))
        return own_stage

    @pytest.mark.parametrize(
        "fault",
        [
            *({"status": status} for status in (500, 410, 403, 404, None)),
            *({"status": 503, "times": 4}, {"cut_body": True}, {"stage": "after"}),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("where", ["machinedeployments", "machinesets"])
    def test_a_list_that_breaks_off_on_a_later_page_leads_to_no_action(
        self, broken: Stage, fault: dict[str, Any], where: str
    ) -> None:
        broken.api.faults.add(method="GET", path_contains=where, query_contains="continue=", **fault)
        outcome = broken.run()
        assert outcome.unreachable
        assert outcome.message.startswith("demo: not checked: ")
        assert "\n" not in outcome.message
        assert broken.api.requests.count(method="PATCH") == 0
        assert broken.run().written

    @pytest.mark.parametrize(
        "where", ["machineautoscalers", "workers", "clusters", "machinedeployments", "machinesets", "cluster.x-k8s.io"]
    )
    @pytest.mark.parametrize(("status", "times"), [(404, 1), (404, 2), (404, 99), (500, 99)])
    def test_a_kind_that_is_served_and_cannot_be_listed_leads_to_no_action(
        self, broken: Stage, where: str, status: int, times: int
    ) -> None:
        path = f"/apis/{where}" if "." in where else f"/{where}"
        broken.api.faults.add(method="GET", path_contains=path, status=status, times=times)
        outcome = broken.run()
        assert outcome.unreachable, outcome.message
        assert broken.api.requests.count(method="PATCH") == 0
        assert "and does not find them" in outcome.message or status == 500 or "." in where

    @pytest.mark.parametrize("fault", [{"status": 404}, {"status": 403}, {"status": 500}], ids=str)
    def test_where_discovery_cannot_say_that_a_kind_is_not_served_the_check_fails(
        self, broken: Stage, fault: dict[str, Any]
    ) -> None:
        broken.api.faults.add(method="GET", path_contains="/machineautoscalers", status=404)
        broken.api.faults.add(method="GET", path_contains="/apis/autoscaling.openshift.io/v1beta1", **fault)
        assert broken.run().unreachable

    def test_a_limit_of_the_cluster_that_may_not_be_read_is_reported_and_does_without(self, broken: Stage) -> None:
        broken.api.faults.add(method="GET", path_contains="/clusterautoscalers", status=403, times=2)
        observation = broken.open().observe()
        assert len(observation.groups) == len(broken.observe())
        (skipped,) = [skipped for skipped in observation.skipped if not skipped.namespace]
        assert sentence(skipped.reason).startswith(
            "Evenkeel has no permission to list ClusterAutoscaler (API group autoscaling.openshift.io)"
        )
        assert broken.run().written

    def test_node_pools_are_listed_only_where_a_scalable_names_one(self, own_stage: Stage) -> None:
        def asked() -> int:
            paths = [request.path for request in own_stage.api.requests.matching(method="GET")]
            return sum(path.endswith("/nodepools") for path in paths)

        first, *others = three("cluster-api", (2, 2, 2))
        own_stage.put(first, *others)
        own_stage.observe()
        assert asked() == 0
        own_stage.merge(first, {"metadata": {"annotations": {"hypershift.openshift.io/nodePool": "clusters/a"}}})
        groups = own_stage.observe().values()
        assert asked() == 1
        assert sorted(group.frozen_because is not None for group in groups) == [False, False, True]

    def test_without_the_machines_of_a_waiting_group_nothing_is_written(self, broken: Stage) -> None:
        broken.put(*(objects.cluster_api(zone, 3, 1, pool="more") for zone in ZONES))
        broken.api.faults.add(method="GET", query_contains="labelSelector=", status=500)
        assert broken.run().unreachable
        assert broken.api.requests.count(method="PATCH") == 0


#: resource, whether Evenkeel has the right, and the verbs
RIGHTS = [
    (resource, allowed, verb)
    for resource, allowed, verbs in (
        (DEPLOYMENTS, True, "list"),
        (DEPLOYMENTS, False, "create delete scale status put"),
        ("machines.machine.openshift.io/v1beta1", False, "create delete"),
        ("machinesets.machine.sapcloud.io/v1alpha1", False, "delete"),
        ("workers.extensions.gardener.cloud/v1alpha1", True, "list"),
        ("workers.extensions.gardener.cloud/v1alpha1", False, "merge"),
        ("machineclasses.machine.sapcloud.io/v1alpha1", True, "list"),
        ("machineclasses.machine.sapcloud.io/v1alpha1", False, "merge"),
        ("awsmachinetemplates.infrastructure.cluster.x-k8s.io/v1beta2", True, "list"),
        ("awsmachinetemplates.infrastructure.cluster.x-k8s.io/v1beta2", False, "merge"),
        ("awsmachines.infrastructure.cluster.x-k8s.io/v1beta2", False, "list"),
        (SCALERS, False, "delete"),
        ("clusters.cluster.x-k8s.io/v1beta1", False, "delete"),
    )
    for verb in verbs.split()
]


class TestCredentials:
    @pytest.mark.parametrize("throttled", [0, 2])
    def test_an_expired_credential_is_replaced_once(self, own_stage: Stage, throttled: int) -> None:
        own_stage.put(*three("cluster-api", (1, 1, 1)))
        own_stage.observe()
        own_stage.secrets.clear()
        own_stage.api.renew_token("evenkeel")
        if throttled:
            own_stage.api.faults.add(status=401)
            own_stage.api.faults.add(status=429, retry_after=1, times=throttled)
        assert len(own_stage.observe()) == 3
        assert own_stage.secrets.count(True) == 1
        assert own_stage.api.requests.count(status=401) == 1

    def test_a_credential_that_is_refused_again_is_an_error_and_not_retried(self, stage: Stage) -> None:
        wrong = json.dumps(stage.api.kubeconfig("evenkeel")).replace(stage.api.token("evenkeel"), "0123456789abcdef")
        stage.clusters = opening(lambda _, fresh: stage.secrets.append(fresh) or wrong, stage.clock)
        with pytest.raises(ClusterUnavailableError, match="401") as caught:
            stage.observe()
        assert stage.secrets.count(True) == 1
        assert "0123456789abcdef" not in str(caught.value)

    def test_a_credential_that_expires_between_check_and_patch_is_replaced(self, own_stage: Stage) -> None:
        own_stage.put(*three("cluster-api", (1, 1, 1)))
        renew = [own_stage.api.renew_token]
        assert own_stage.run(before_apply=lambda _: renew and renew.pop()("evenkeel")).written == 3

    def test_an_identity_without_rights_gets_the_manifest_that_grants_them(self, stage: Stage) -> None:
        stage.user = "nobody"
        with pytest.raises(ClusterUnavailableError, match=r"403 .*forbidden.*apply deploy/kubernetes/rbac\.yaml"):
            stage.observe()

    def test_rights_that_are_missing_are_named_before_anything_is_read(self, stage: Stage) -> None:
        def refused_lists(*, writes: bool) -> Sequence[str]:
            return stage.clusters.refused(stage.record, plenty, writes=writes)

        assert refused_lists(writes=True) == []
        stage.user = "nobody"
        stage.secrets.clear()
        stage._cached.clear()
        reported = refused_lists(writes=True)
        assert f"it may not list machines.machine.openshift.io in namespace {stage.namespace}" in reported
        assert f"it may not patch machinedeployments.cluster.x-k8s.io in namespace {stage.namespace}" in reported
        assert [line for line in refused_lists(writes=False) if "patch" in line] == []
        stage.record = record(**{**stage.record.model_dump(), "namespaces": [], "autoscaler_status": "kube-system"})
        reported = refused_lists(writes=False)
        assert "it may not list machines.machine.openshift.io" in reported
        assert "it may not get configmaps in namespace kube-system" in reported

    @pytest.mark.parametrize(("resource", "allowed", "verb"), RIGHTS)
    def test_the_manifest_grants_what_is_needed_and_no_more(
        self, stage: Stage, resource: str, allowed: bool, verb: str
    ) -> None:
        kind = stage.kind(resource, user="evenkeel")
        calls: dict[str, Callable[[], object]] = {
            "list": kind.list,
            "create": lambda: kind.create({"metadata": {"name": "x"}, "spec": {}}),
            "delete": lambda: kind.delete("x"),
            "scale": lambda: kind.scale("x", 3),
            "status": lambda: kind.status("x", {"status": {}}),
            "put": lambda: kind.put("x", {"metadata": {"name": "x"}, "spec": {}}),
            "merge": lambda: kind.merge("x", {"spec": {}}),
        }
        if allowed:
            calls[verb]()
            return
        with pytest.raises(ApiException) as caught:
            calls[verb]()
        assert caught.value.status == 403

    def test_the_manifest_grants_no_secrets_nodes_or_config_maps(
        self, kube_api: Api, connect: Callable[..., Any], namespace: str
    ) -> None:
        from kubernetes import client

        core = client.CoreV1Api(connect("evenkeel"))
        for call in (
            lambda: core.list_namespaced_secret(namespace),
            lambda: core.read_namespaced_secret("x", namespace),
            lambda: core.list_node(),
            lambda: core.list_namespaced_config_map(namespace),
            lambda: core.delete_namespace(namespace),
        ):
            with pytest.raises(ApiException) as caught:
                call()
            assert caught.value.status == 403


class TestPatience:
    @pytest.mark.parametrize(
        ("fault", "seconds"),
        [({"status": 429, "retry_after": 7}, 7.0), ({"status": 503, "retry_after": 7}, 7.0), ({"status": 429}, 1.0)],
        ids=str,
    )
    def test_a_list_waits_as_long_as_the_server_asks_or_a_second(
        self, own_stage: Stage, fault: dict[str, Any], seconds: float
    ) -> None:
        own_stage.put(*three("cluster-api", (1, 1, 1)))
        own_stage.api.faults.add(method="GET", path_contains="machinedeployments", **fault)
        assert len(own_stage.observe()) == 3
        assert own_stage.clock.slept == [seconds]

    @pytest.mark.parametrize("status", [429, 503])
    def test_a_patch_waits_the_same_way(self, own_stage: Stage, status: int) -> None:
        own_stage.put(*three("cluster-api", (1, 1, 1)))
        own_stage.api.faults.add(method="PATCH", status=status, retry_after=2)
        assert own_stage.run().written == 3
        assert own_stage.clock.slept == [2.0]

    def test_a_delay_beyond_the_time_that_is_left_is_an_error_at_once(self, own_stage: Stage) -> None:
        own_stage.put(*three("cluster-api", (1, 1, 1)))
        own_stage.api.faults.add(method="GET", path_contains="machinedeployments", status=429, retry_after=58)
        with pytest.raises(ClusterUnavailableError, match="429"):
            own_stage.observe()
        assert own_stage.clock.slept == []

    def test_a_server_that_always_throttles_is_left_after_three_waits(self, own_stage: Stage) -> None:
        own_stage.api.faults.add(method="GET", status=503, retry_after=1, times=100)
        with pytest.raises(ClusterUnavailableError, match="503"):
            own_stage.observe()
        assert own_stage.clock.slept == [1.0] * 3
        assert own_stage.api.requests.count(method="GET") == 4


class TestQuietChecks:
    """A check that writes nothing reads from the API server's cache and from this instance's memory."""

    @staticmethod
    def checked(stage: Stage, *, alone: bool = True) -> dict[GroupKey, NodeGroup]:
        """Return the groups that a check reads. Only runs read who wrote a value, to report it."""
        cluster = stage.clusters.open(stage.record, plenty, consistent=False, alone=alone)
        return {group.key: group for group in cluster.observe().groups}

    @staticmethod
    def seen_by_a_run(stage: Stage) -> dict[GroupKey, NodeGroup]:
        groups = stage.open().observe().groups
        unread: dict[str, Any] = {"bounds_by": UNNAMED, "replicas_by": UNNAMED}
        unread |= {"bounds_applied_by": None, "replicas_applied_by": None}
        return {
            group.key: replace(group, **unread, owner=group.owner.numbers and replace(group.owner.numbers, set_by=""))
            for group in groups
        }

    @pytest.mark.parametrize("flavour", FLAVOURS)
    def test_a_check_reads_what_a_run_reads(self, stage: Stage, flavour: str) -> None:
        pool = three(flavour, (3, 1, 0), (2, 1, 0))
        stage.put(*pool)
        stage.run()
        for change in ({"spec": {"replicas": 4}}, {"metadata": {"annotations": {"evenkeel.dev/pool-max": "9"}}}, {}):
            stage.merge(pool[1], change)
            expected = self.seen_by_a_run(stage)
            deadline = time.monotonic() + 10
            while (seen := self.checked(stage)) != expected:  # a real server's watch cache is a moment late
                assert time.monotonic() < deadline, seen
        stage.delete(pool[2])
        deadline = time.monotonic() + 10
        while len(self.checked(stage)) == 3:
            assert time.monotonic() < deadline

    def test_a_check_reads_the_watch_cache_and_a_run_does_not(self, own_stage: Stage) -> None:
        own_stage.put(*three("cluster-api", (3, 1, 1), (2, 1, 1)))
        requests = own_stage.api.requests
        for consistent, asked in ((False, {"0"}), (True, {None})):
            requests.clear()
            own_stage.clusters.open(own_stage.record, plenty, consistent=consistent).observe()
            lists = [request for request in requests if "limit" in request.query]
            assert {request.query.get("resourceVersion") for request in lists} == asked
            assert any(request.path.endswith("/machines") for request in lists)

    def test_a_cluster_too_large_to_check_beside_others_is_checked_alone(
        self, own_stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        own_stage.put(*three("openshift", (1, 1, 1)))
        monkeypatch.setattr("evenkeel.adapters.kubernetes.access.clusters.MOST_BYTES_BESIDE_OTHERS", 1000)
        with pytest.raises(TooLargeError, match="demo: the answer is not usable: it is larger than"):
            self.checked(own_stage, alone=False)
        assert len(self.checked(own_stage, alone=True)) == 3
        assert len(own_stage.clusters.open(own_stage.record, plenty, alone=False).observe().groups) == 3, "a run"


class Garbage:
    """A server that gives every request the same answer. `seen` are the first lines of the requests."""

    def __init__(self, *, consistent: bool) -> None:
        self.consistent = consistent
        self.url = ""
        self.answer = b""
        self.seen: list[bytes] = []

    def __call__(self, connection: socket.socket, head: bytes) -> None:
        self.seen.append(head.partition(b"\r\n")[0])
        connection.sendall(self.answer)

    def observe(self, flavour: str, **access: str) -> tuple[NodeGroup, ...]:
        text = kubeconfig_for(**{"url": self.url, **access})
        clusters = opening(lambda name, fresh: text)
        cluster = clusters.open(record(flavours=[flavour]), plenty, consistent=self.consistent)
        return tuple(cluster.observe().groups)


@pytest.fixture(params=["a run", "a check"])
def garbage(request: pytest.FixtureRequest) -> Iterator[Garbage]:
    made = Garbage(consistent=request.param == "a run")
    with serving(made) as made.url:
        yield made


JSON = {"Content-Type": "application/json"}


class TestGarbage:
    @pytest.mark.parametrize("flavour", ["openshift", "cluster-api"])
    @pytest.mark.parametrize(
        "body",
        [
            b"<html><body>Sign in to the proxy</body></html>",
            *(b'{"items": ' + b"9" * 10_000 + b"}", b'{"items": {"a": 1}}', b'{"items": [null]}'),
            *(b'{"items": [], "metadata": ' + rest for rest in (b'5, "versions": 5}', b'[1], "versions": {"a": 1}}')),
            b'{"items": [], "metadata": {"continue": {"a": 1}}, "versions": [5]}',
        ],
        ids=lambda body: str(body[:40]),
    )
    def test_an_answer_that_is_no_list_is_one_clear_error(self, garbage: Garbage, flavour: str, body: bytes) -> None:
        garbage.answer = response(200, body, JSON)
        with pytest.raises(ClusterUnavailableError) as caught:
            garbage.observe(flavour)
        message = str(caught.value)
        assert "demo" in message
        assert "\n" not in message
        assert len(message) < 500
        assert TOKEN not in message

    @pytest.mark.parametrize("status", [400, 401, 403, 429, 500, 502, 503, 301, 302, 307, 308])
    def test_an_error_page_of_a_proxy_is_one_line_and_no_redirect_gets_the_token(
        self, garbage: Garbage, status: int
    ) -> None:
        page, headers = b"<html>\n<h1>Bad\nGateway</h1>\n</html>", {"Content-Type": "text/html"}
        garbage.answer = response(status, page, {**headers, **({"Location": "/elsewhere"} if status < 400 else {})})
        with pytest.raises(ClusterUnavailableError, match=str(status)) as caught:
            garbage.observe("openshift")
        assert "\n" not in str(caught.value)
        assert not any(b"/elsewhere" in line for line in garbage.seen)

    def test_numbers_beyond_any_integer_are_faults_of_their_objects(self, garbage: Garbage) -> None:
        body = (
            b'{"kind": "MachineSetList", "apiVersion": "machine.openshift.io/v1beta1", "items": [{"metadata": '
            b'{"name": "a", "namespace": "n", "labels": {"evenkeel.dev/pool": "p"}}, "spec": {"replicas": 1e400}}]}'
        )
        garbage.answer = response(200, body, JSON)
        (group,) = garbage.observe("openshift")
        assert [str(fault) for fault in group.unreadable.faults] == [
            "MachineSet n/a: spec.replicas is 'inf': not an integer: write a whole number of nodes"
        ]

    @pytest.mark.parametrize("how", ["another authority", "another name", "nobody there"])
    def test_a_server_that_is_not_the_one_of_the_record_is_one_line(self, garbage: Garbage, how: str) -> None:
        access = {
            "another authority": {"ca_pem": trustme.CA().cert_pem.bytes().decode()},
            "another name": {"url": garbage.url.replace("127.0.0.1", "localhost")},
            "nobody there": {"url": "https://127.0.0.1:1"},
        }[how]
        with pytest.raises(ClusterUnavailableError, match="demo") as caught:
            garbage.observe("openshift", **access)
        assert "\n" not in str(caught.value)
        assert TOKEN not in str(caught.value)
        assert garbage.seen == []
