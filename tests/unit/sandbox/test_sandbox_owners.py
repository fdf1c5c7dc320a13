"""The sandbox's owners copy, clamp and reset bounds and replicas as the real ones do."""

from datetime import timedelta
from typing import Any

import pytest

from sandbox.kube.controllers.cluster_autoscaler_operator import FINALIZER, MAX_SIZE, MIN_SIZE, OWNED_BY
from sandbox.kube.controllers.node_pools import NODE_POOL, NODE_POOLS
from sandbox.kube.controllers.objects import annotations_of, arguments_of, labels_of
from sandbox.kube.controllers.shoots import OPERATION, SHOOTS
from sandbox.kube.errors import ApiError
from sandbox.kube.world import ECOSYSTEMS, ZONES, Cluster, Pool, World
from tests.objects import as_sent, writers

CAPI_MIN, CAPI_MAX = (f"cluster.x-k8s.io/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
Object = dict[str, Any]
A_LOOP = timedelta(seconds=10)


class Scene:
    """One cluster of a kind, without an autoscaler unless it is asked for, and handles on its objects."""

    def __init__(self, kind: str, *pools: Pool, autoscaler: bool = False, **more: Any) -> None:
        given = {kind: list(pools)} if pools else None
        settings = {} if autoscaler else {"settings": None}
        self.world = World(clusters=[kind], pools=given, **settings, **more)
        self.cluster: Cluster = self.world.clusters[kind]
        self.store = self.cluster.store

    def run(self, **duration: float) -> None:
        """Steps of ten seconds over minutes, of a minute over longer times."""
        span = timedelta(**duration)
        self.world.run(span, every=A_LOOP if span <= timedelta(minutes=10) else timedelta(minutes=1))

    def all(self, resource: str) -> list[Object]:
        return self.store.list(resource)

    def patch(self, resource: str, item: Object, patch: Object, manager: str = "somebody", **more: Any) -> Object:
        metadata = item["metadata"]
        where = (metadata.get("namespace", ""), metadata["name"])
        return self.store.patch(resource, *where, patch, manager=manager, **more)

    def writers(self, resource: str, item: Object, *path: str) -> set[str]:
        return writers(as_sent(self.store, resource, item), *path)

    def fresh(self, resource: str, item: Object) -> Object:
        return self.store.get(resource, item["metadata"].get("namespace", ""), item["metadata"]["name"])

    @property
    def requested(self) -> list[int]:
        return [view.requested for view in self.world.groups()]

    @property
    def bounds(self) -> list[tuple[int | None, int | None]]:
        return [(view.minimum, view.maximum) for view in self.world.groups()]


def words_of_ours(value: Any) -> list[str]:
    """Every key or text in an object that names Evenkeel."""
    if isinstance(value, dict):
        return [str(key) for key in value if "evenkeel" in str(key)] + [
            word for item in value.values() for word in words_of_ours(item)
        ]
    if isinstance(value, list):
        return [word for item in value for word in words_of_ours(item)]
    return [value] if isinstance(value, str) and "evenkeel" in value else []


PLAIN = [name for name in ECOSYSTEMS if name not in ("gardener", "cluster-api", "openshift", "self-managed")]


class TestInstalledClusters:
    @pytest.mark.parametrize("kind", PLAIN)
    def test_no_object_names_evenkeel_but_the_sandboxs_mark_of_nodes(self, kind: str) -> None:
        store = Scene(kind).store
        items = [item for resource in store.resources for item in store.list(resource.full_name)]
        words = {word.removeprefix("f:") for item in items for word in words_of_ours(item)}
        assert words <= {"sandbox.evenkeel.dev/machine"}

    @pytest.mark.parametrize(("kind", "dead"), [(kind, dead) for kind in PLAIN for dead in (False, True)])
    def test_the_autoscaler_levels_demand_over_the_zones_that_deliver(self, kind: str, dead: bool) -> None:
        scene = Scene(kind, autoscaler=True)
        (pool,) = scene.cluster.pools
        assert [(view.zone, view.running) for view in scene.world.groups()] == [(zone, 1) for zone in ZONES]
        assert scene.bounds == [(1, 4)] * 3
        if dead:
            scene.world.exhaust_zone(kind, ZONES[0])
        scene.world.set_demand(kind, pool, 9)
        scene.run(minutes=5)
        running = [view.running for view in scene.world.groups()]
        assert running[0] == 1 if dead else running == [3, 3, 3]

    @pytest.mark.parametrize("kind", [kind for kind in PLAIN if kind != "gardener-plain"])
    def test_a_quiet_cluster_is_never_written(self, kind: str) -> None:
        scene = Scene(kind)
        scene.run(minutes=1)
        before = scene.store.page("nodes", "", version="v1").resource_version
        scene.run(minutes=70)
        assert scene.store.page("nodes", "", version="v1").resource_version == before

    def test_an_unknown_kind_is_refused(self) -> None:
        with pytest.raises(KeyError, match="gke"):
            World(clusters=["gke"])


MACHINE_DEPLOYMENTS = "machinedeployments.machine.sapcloud.io"
WORKERS = "workers.extensions.gardener.cloud"


class Gardener(Scene):
    def __init__(self, minimum: int = 3, maximum: int = 9, **more: Any) -> None:
        replicas = more.pop("replicas", (1, 1, 1))
        super().__init__("gardener-plain", Pool(name="p", minimum=minimum, maximum=maximum, replicas=replicas), **more)

    @property
    def shoot(self) -> Object:
        (shoot,) = self.all(SHOOTS)
        return shoot

    @property
    def worker(self) -> Object:
        (worker,) = self.all(WORKERS)
        return worker

    @property
    def groups(self) -> list[Object]:
        return self.all(MACHINE_DEPLOYMENTS)

    def scale(self, *replicas: int) -> None:
        for item, count in zip(self.groups, replicas, strict=True):
            self.store.scale(MACHINE_DEPLOYMENTS, self.cluster.namespace, item["metadata"]["name"], count)

    def edit_worker(self, **fields: Any) -> None:
        """The user changes the pool in the Shoot. The whole list, as a merge patch has it."""
        worker = self.shoot["spec"]["provider"]["workers"][0] | fields
        self.edit_shoot({"provider": {"workers": [worker]}})

    def edit_shoot(self, spec: Object) -> None:
        self.patch(SHOOTS, self.shoot, {"spec": spec})

    def ask(self, resource: str, item: Object) -> None:
        self.patch(resource, item, {"metadata": {"annotations": {OPERATION: "reconcile"}}})

    @property
    def flags(self) -> list[str]:
        """The --nodes flags of the autoscaler; none where it is not deployed."""
        found = self.store.list("deployments.apps", fields="metadata.name=cluster-autoscaler")
        arguments = arguments_of(found[0]) if found else ()
        return [item.rpartition(":")[0] for item in arguments or () if item.startswith("--nodes=")]


class TestGardener:
    def test_replicas_last_until_the_worker_is_reconciled(self) -> None:
        scene = Gardener()
        scene.scale(0, 2, 9)
        scene.run(minutes=55)
        assert scene.requested == [0, 2, 9]
        scene.run(minutes=10)
        assert scene.requested == [1, 2, 3]

    def test_the_worker_is_reconciled_by_annotation_and_replaced_within_the_hour(self) -> None:
        scene = Gardener()
        scene.scale(0, 2, 9)
        pools = [scene.worker["spec"]["pools"][0] | {"maximum": 15}]
        scene.patch(WORKERS, scene.worker, {"spec": {"pools": pools}})
        scene.run(minutes=5)
        assert scene.requested == [0, 2, 9]
        scene.ask(WORKERS, scene.worker)
        scene.run(seconds=10)
        assert scene.requested == [1, 2, 5]
        assert OPERATION not in annotations_of(scene.worker)
        assert scene.bounds == [(1, 3)] * 3, "the autoscaler's flags are gardenlet's"
        scene.run(minutes=65)
        assert scene.worker["spec"]["pools"][0]["maximum"] == 9

    def test_a_changed_shoot_is_carried_out_in_minutes(self) -> None:
        scene = Gardener(maximum=12, replicas=(4, 2, 1))
        scene.edit_worker(maximum=7)
        scene.run(minutes=1)
        assert scene.worker["spec"]["pools"][0]["maximum"] == 12
        scene.run(minutes=2)
        assert scene.worker["spec"]["pools"][0]["maximum"] == 7
        assert scene.requested == [3, 2, 1], "a lower maximum deletes a node"
        assert scene.flags == ["--nodes=1:3", "--nodes=1:2", "--nodes=1:2"]
        (cluster,) = scene.all("clusters.extensions.gardener.cloud")
        assert cluster["metadata"]["name"] == scene.cluster.namespace
        assert cluster["spec"]["shoot"]["spec"]["provider"]["workers"][0]["maximum"] == 7

    def test_a_dead_zone_puts_the_shoot_in_error(self) -> None:
        scene = Gardener(minimum=3, replicas=(1, 1, 1))
        scene.world.exhaust_zone("gardener-plain", ZONES[0])
        scene.scale(2, 1, 1)
        scene.run(minutes=70)
        assert scene.shoot["status"]["lastOperation"]["state"] == "Error"
        assert "InsufficientInstanceCapacity" in scene.shoot["status"]["lastOperation"]["description"]
        scene.scale(2, 1, 0)
        scene.run(minutes=10)
        assert scene.requested == [2, 1, 1], "below its share, it is brought back long before the hour is over"


CAPI = "machinedeployments.cluster.x-k8s.io"


class HyperShift(Scene):
    def __init__(self, kind: str = "hypershift", *, minimum: int = 1, maximum: int = 6, replicas: int = 2) -> None:
        pool = Pool(name="p", minimum=minimum, maximum=maximum, replicas=(replicas,), zones=ZONES[:1])
        super().__init__(kind, pool)

    @property
    def pool(self) -> Object:
        (pool,) = self.all(NODE_POOLS)
        return pool

    @property
    def group(self) -> Object:
        (group,) = self.all(CAPI)
        return group

    def edit(self, **spec: Any) -> None:
        self.patch(NODE_POOLS, self.pool, {"spec": spec})
        self.run(seconds=10)

    @property
    def copied(self) -> tuple[str, str, int]:
        notes = annotations_of(self.group)
        return notes[CAPI_MIN], notes[CAPI_MAX], self.group["spec"]["replicas"]


class TestHyperShift:
    def test_bounds_on_the_deployment_are_reset_in_seconds_and_other_keys_stay(self) -> None:
        scene = HyperShift()
        key = "cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime"
        scene.patch(CAPI, scene.group, {"metadata": {"annotations": {CAPI_MIN: "0", CAPI_MAX: "2", key: "3m"}}})
        scene.run(seconds=10)
        assert scene.copied == ("1", "6", 2)
        assert annotations_of(scene.group)[key] == "3m"
        path = ("f:metadata", "f:annotations", f"f:{CAPI_MAX}")
        assert scene.writers(CAPI, scene.group, *path) == {"hypershift-operator-manager: Update"}

    def test_replicas_in_place_of_autoscaling_are_held(self) -> None:
        scene = HyperShift(replicas=4)
        scene.edit(autoScaling=None, replicas=0)
        assert scene.copied == ("0", "0", 0)
        deployment = scene.store.get("deployments.apps", scene.cluster.namespace, "cluster-autoscaler")
        assert arguments_of(deployment) is None, "no NodePool has autoScaling left"
        scene.edit(replicas=None, autoScaling={"min": 1, "max": 6})
        assert scene.copied == ("1", "6", 1)

    def test_the_zone_is_the_subnets_on_aws_and_named_elsewhere(self) -> None:
        aws, openstack = HyperShift(), HyperShift("hypershift-openstack")
        assert "failureDomain" not in aws.group["spec"]["template"]["spec"]
        assert openstack.group["spec"]["template"]["spec"]["failureDomain"] == ZONES[0]
        assert aws.pool["spec"]["platform"]["aws"]["subnet"]["id"].startswith("subnet-")
        for machine in aws.all("machines.cluster.x-k8s.io"):
            assert machine["spec"]["providerID"].startswith(f"aws:///{ZONES[0]}/")
            assert annotations_of(machine)[NODE_POOL] == f"clusters/{aws.pool['metadata']['name']}"

    def test_the_deployment_names_its_pool_whose_status_counts_nodes(self) -> None:
        scene = HyperShift(replicas=3)
        assert scene.group["metadata"]["namespace"] == "clusters-demo"
        assert scene.group["metadata"]["name"] == scene.pool["metadata"]["name"]
        assert annotations_of(scene.group)[NODE_POOL] == f"clusters/{scene.pool['metadata']['name']}"
        assert labels_of(scene.pool) == {"example.com/pool": "p"}
        scene.run(seconds=20)
        assert scene.pool["status"]["replicas"] == 3

    @pytest.mark.parametrize(
        ("kind", "spec", "says"),
        [
            ("hypershift", {"replicas": 2}, "Both replicas or autoScaling"),
            ("hypershift", {"autoScaling": {"min": 3, "max": 2}}, "max must be equal or greater than min"),
            ("hypershift", {"autoScaling": {"min": 0, "max": 0}}, "should be greater than or equal to 1"),
            ("hypershift", {"autoScaling": {"min": -1, "max": 2}}, "should be greater than or equal to 0"),
            ("hypershift", {"clusterName": "other"}, "ClusterName is immutable"),
            ("hypershift", {"pausedUntil": "tomorrow"}, "PausedUntil must be a date"),
            ("hypershift-openstack", {"autoScaling": {"min": 0, "max": 3}}, "Scale-from-zero"),
        ],
    )
    def test_an_invalid_node_pool_is_refused(self, kind: str, spec: Object, says: str) -> None:
        with pytest.raises(ApiError, match=says) as refused:
            HyperShift(kind).edit(**spec)
        assert refused.value.code == 422


class Classy(Scene):
    def __init__(self, *, replicas: int = 2, api: str = "v1beta2") -> None:
        pool = Pool(name="p", minimum=1, maximum=6, replicas=(replicas,), zones=ZONES[:1])
        versions = ("v1beta1", "v1beta2") if api == "v1beta2" else ("v1beta1",)
        super().__init__("cluster-class", pool, cluster_api_versions=versions)

    @property
    def cluster_object(self) -> Object:
        (item,) = self.all("clusters.cluster.x-k8s.io")
        return item

    @property
    def group(self) -> Object:
        (group,) = self.all(CAPI)
        return group

    def entry(self, **fields: Any) -> None:
        """The only machine deployment of the topology, with other fields; None takes one away."""
        (before,) = self.cluster_object["spec"]["topology"]["workers"]["machineDeployments"]
        entry = {key: value for key, value in (before | fields).items() if value is not None}
        patch = {"spec": {"topology": {"workers": {"machineDeployments": [entry]}}}}
        self.patch("clusters.cluster.x-k8s.io", self.cluster_object, patch)
        self.run(seconds=10)

    def annotate(self, **notes: str | None) -> None:
        self.patch(CAPI, self.group, {"metadata": {"annotations": notes}})
        self.run(seconds=10)


@pytest.mark.parametrize("api", ["v1beta1", "v1beta2"])
class TestClusterClass:
    def test_only_keys_of_the_topology_are_reset(self, api: str) -> None:
        scene = Classy(api=api)
        path = ("f:metadata", "f:annotations", f"f:{CAPI_MAX}")
        assert scene.writers(CAPI, scene.group, *path) == {"capi-topology: Apply"}
        scene.annotate(**{CAPI_MAX: "3", "somebody.example/note": "stays"})
        assert annotations_of(scene.group) == {CAPI_MIN: "1", CAPI_MAX: "6", "somebody.example/note": "stays"}
        assert scene.writers(CAPI, scene.group, *path) == {"capi-topology: Apply"}

    @pytest.mark.parametrize("named", [None, 3])
    def test_replicas_are_reset_only_where_the_topology_names_them(self, api: str, named: int | None) -> None:
        scene = Classy(replicas=2, api=api)
        if named:
            scene.entry(metadata={"labels": {"example.com/pool": "p"}}, replicas=named)
        scene.store.scale(CAPI, "demo", scene.group["metadata"]["name"], 5)
        scene.run(minutes=2)
        assert scene.group["spec"]["replicas"] == (named or 5)
        writers = scene.writers(CAPI, scene.group, "f:spec", "f:replicas")
        assert any("capi-topology" in writer for writer in writers) == bool(named)

    def test_replicas_and_bounds_together_are_rejected(self, api: str) -> None:
        scene = Classy(api=api)
        with pytest.raises(ApiError, match="autoscaler annotations") as refused:
            scene.entry(replicas=3)
        assert refused.value.code == 422

    def test_the_class_completes_the_topology(self, api: str) -> None:
        scene = Classy(api=api)
        (item,) = scene.all("clusterclasses.cluster.x-k8s.io")
        (entry,) = item["spec"]["workers"]["machineDeployments"]
        notes = {"annotations": {CAPI_MAX: "20", "from-class": "yes"}}
        entry |= {"metadata": notes} if api == "v1beta2" else {"template": entry["template"] | {"metadata": notes}}
        patch = {"spec": {"workers": {"machineDeployments": [entry]}}}
        scene.patch("clusterclasses.cluster.x-k8s.io", item, patch)
        scene.run(seconds=10)
        assert annotations_of(scene.group) == {CAPI_MIN: "1", CAPI_MAX: "6", "from-class": "yes"}
        scene.entry(metadata={"labels": {"example.com/pool": "p"}})
        assert annotations_of(scene.group) == {CAPI_MAX: "20", "from-class": "yes"}

    def test_topology_annotations_reach_machines_without_a_rollout(self, api: str) -> None:
        scene = Classy(replicas=2, api=api)
        before = {item["metadata"]["name"] for item in scene.all("machines.cluster.x-k8s.io")}
        scene.entry(metadata={"annotations": {CAPI_MIN: "1", CAPI_MAX: "9"}, "labels": {"example.com/pool": "p"}})
        scene.run(minutes=5)
        machines = scene.all("machines.cluster.x-k8s.io")
        assert {item["metadata"]["name"] for item in machines} == before
        assert {annotations_of(item)[CAPI_MAX] for item in machines} == {"9"}

    def test_a_paused_cluster_is_not_reconciled(self, api: str) -> None:
        scene = Classy(api=api)
        scene.patch("clusters.cluster.x-k8s.io", scene.cluster_object, {"spec": {"paused": True}})
        scene.annotate(**{CAPI_MAX: "3"})
        assert annotations_of(scene.group)[CAPI_MAX] == "3"


SETS = "machinesets.machine.openshift.io"
SCALERS = "machineautoscalers.autoscaling.openshift.io"
AUTOSCALERS = "clusterautoscalers.autoscaling.openshift.io"


class OpenShift(Scene):
    def __init__(self, **more: Any) -> None:
        pool = Pool(name="p", minimum=2, maximum=8, replicas=(1, 1), zones=ZONES[:2])
        super().__init__("openshift-plain", pool, **more)
        self.run(seconds=10)

    def set(self, index: int = 0) -> Object:
        return self.all(SETS)[index]

    def scaler(self, index: int = 0) -> Object:
        return self.all(SCALERS)[index]

    def delete_scaler(self, index: int = 0) -> None:
        self.store.delete(SCALERS, self.cluster.namespace, self.scaler(index)["metadata"]["name"])
        self.run(seconds=10)

    def create_scaler(self, name: str, low: int, high: int, target: Object) -> None:
        metadata = {"name": name, "namespace": self.cluster.namespace}
        spec = {"minReplicas": low, "maxReplicas": high, "scaleTargetRef": target}
        self.store.create(SCALERS, {"metadata": metadata, "spec": spec})
        self.run(minutes=1)

    def copied(self, index: int = 0) -> dict[str, str]:
        notes = annotations_of(self.set(index))
        return {key: notes[key] for key in (MIN_SIZE, MAX_SIZE, OWNED_BY) if key in notes}


class TestOpenShift:
    def test_a_deleted_machine_autoscaler_removes_its_bounds(self) -> None:
        scene = OpenShift()
        assert scene.scaler()["metadata"]["finalizers"] == [FINALIZER]
        scene.delete_scaler()
        assert len(scene.all(SCALERS)) == 1
        assert scene.copied() == {}
        assert annotations_of(scene.set())["machine.openshift.io/vCPU"] == "4"

    def test_a_minimum_above_the_maximum_is_refused(self) -> None:
        scene = OpenShift()
        with pytest.raises(ApiError, match="denied the request"):
            scene.patch(SCALERS, scene.scaler(), {"spec": {"minReplicas": 5, "maxReplicas": 4}})

    def test_options_and_replicas_of_a_set_are_not_reset(self) -> None:
        scene = OpenShift()
        key = "machine.openshift.io/autoscaling-options-maxnodeprovisiontime"
        patch = {"metadata": {"annotations": {key: "3m", MAX_SIZE: "77"}}, "spec": {"replicas": 7}}
        scene.patch(SETS, scene.set(), patch)
        scene.run(minutes=1)
        assert annotations_of(scene.set())[key] == "3m"
        assert scene.set()["spec"]["replicas"] == 7
        assert scene.copied()[MAX_SIZE] == "4"
        path = ("f:metadata", "f:annotations", f"f:{MAX_SIZE}")
        assert scene.writers(SETS, scene.set(), *path) == {"cluster-autoscaler-operator: Update"}

    def test_the_cluster_autoscaler_follows_its_object(self) -> None:
        scene = OpenShift(autoscaler=True)
        autoscaler = scene.cluster.autoscaler
        assert autoscaler is not None
        scene.run(seconds=10)
        before = autoscaler.model
        assert autoscaler.in_force.balance
        (item,) = scene.all(AUTOSCALERS)
        spec = {"balanceSimilarNodeGroups": None, "resourceLimits": {"maxNodesTotal": 5}}
        scene.patch(AUTOSCALERS, item, {"spec": spec})
        scene.run(seconds=20)
        assert autoscaler.model is not before
        assert not autoscaler.in_force.balance
        scene.world.set_demand("openshift-plain", "p", 8)
        scene.run(minutes=10)
        assert sum(scene.requested) == 5
        scene.store.delete(AUTOSCALERS, "", item["metadata"]["name"])
        scene.run(seconds=10)
        assert scene.all("deployments.apps") == []
