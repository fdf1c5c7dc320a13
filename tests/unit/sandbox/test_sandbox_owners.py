"""The sandbox's owners copy, clamp and reset bounds and replicas as the real ones do."""

from datetime import timedelta
from typing import Any

import pytest

from sandbox.kube.controllers.cluster_autoscaler_operator import FINALIZER, MAX_SIZE, MIN_SIZE, OWNED_BY
from sandbox.kube.controllers.objects import annotations_of, arguments_of
from sandbox.kube.controllers.shoots import SHOOTS
from sandbox.kube.errors import ApiError
from sandbox.kube.world import ZONES, Cluster, Pool, World
from tests.objects import as_sent, writers

CAPI_MIN, CAPI_MAX = (f"cluster.x-k8s.io/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
Object = dict[str, Any]
A_LOOP = timedelta(seconds=10)


class Scene:
    """One cluster of a kind, without an autoscaler, and methods to change its objects."""

    def __init__(self, kind: str, pool: Pool, **more: Any) -> None:
        self.world = World(clusters=[kind], pools={kind: [pool]}, settings=None, **more)
        self.cluster: Cluster = self.world.clusters[kind]
        self.store = self.cluster.store

    def run(self, **duration: float) -> None:
        """Play in steps of ten seconds over minutes, of a minute over longer times."""
        span = timedelta(**duration)
        self.world.run(span, every=A_LOOP if span <= timedelta(minutes=10) else timedelta(minutes=1))

    def all(self, resource: str) -> list[Object]:
        return self.store.list(resource)

    def patch(self, resource: str, item: Object, patch: Object) -> Object:
        metadata = item["metadata"]
        where = (metadata.get("namespace", ""), metadata["name"])
        return self.store.patch(resource, *where, patch, manager="another")

    def writers(self, resource: str, item: Object, *path: str) -> set[str]:
        return writers(as_sent(self.store, resource, item), *path)

    @property
    def requested(self) -> list[int]:
        return [view.requested for view in self.world.groups()]


MACHINE_DEPLOYMENTS = "machinedeployments.machine.sapcloud.io"
WORKERS = "workers.extensions.gardener.cloud"


class Gardener(Scene):
    def __init__(self, maximum: int = 9, replicas: tuple[int, int, int] = (1, 1, 1)) -> None:
        super().__init__("gardener-plain", Pool(name="p", minimum=3, maximum=maximum, replicas=replicas))

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
        """Change the pool in the Shoot as its user: the whole list, because it is a merge patch."""
        worker = self.shoot["spec"]["provider"]["workers"][0] | fields
        self.edit_shoot({"provider": {"workers": [worker]}})

    def edit_shoot(self, spec: Object) -> None:
        self.patch(SHOOTS, self.shoot, {"spec": spec})

    @property
    def flags(self) -> list[str]:
        """Return the --nodes flags of the autoscaler; none if it is not deployed."""
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
        scene = Gardener()
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
    def __init__(self) -> None:
        super().__init__("hypershift", Pool(name="p", minimum=1, maximum=6, replicas=(2,), zones=ZONES[:1]))

    @property
    def group(self) -> Object:
        (group,) = self.all(CAPI)
        return group

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


class Classy(Scene):
    def __init__(self, api: str) -> None:
        pool = Pool(name="p", minimum=1, maximum=6, replicas=(2,), zones=ZONES[:1])
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
        """Change fields of the topology's only machine deployment; None removes one."""
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
        scene = Classy(api)
        path = ("f:metadata", "f:annotations", f"f:{CAPI_MAX}")
        assert scene.writers(CAPI, scene.group, *path) == {"capi-topology: Apply"}
        scene.annotate(**{CAPI_MAX: "3", "another.example/note": "stays"})
        assert annotations_of(scene.group) == {CAPI_MIN: "1", CAPI_MAX: "6", "another.example/note": "stays"}
        assert scene.writers(CAPI, scene.group, *path) == {"capi-topology: Apply"}

    @pytest.mark.parametrize("named", [None, 3])
    def test_replicas_are_reset_only_where_the_topology_names_them(self, api: str, named: int | None) -> None:
        scene = Classy(api)
        if named:
            scene.entry(metadata={"labels": {"example.com/pool": "p"}}, replicas=named)
        scene.store.scale(CAPI, "demo", scene.group["metadata"]["name"], 5)
        scene.run(minutes=2)
        assert scene.group["spec"]["replicas"] == (named or 5)
        writers = scene.writers(CAPI, scene.group, "f:spec", "f:replicas")
        assert any("capi-topology" in writer for writer in writers) == bool(named)

    def test_replicas_and_bounds_together_are_rejected(self, api: str) -> None:
        scene = Classy(api)
        with pytest.raises(ApiError, match="autoscaler annotations") as refused:
            scene.entry(replicas=3)
        assert refused.value.code == 422


SETS = "machinesets.machine.openshift.io"
SCALERS = "machineautoscalers.autoscaling.openshift.io"


class OpenShift(Scene):
    def __init__(self) -> None:
        pool = Pool(name="p", minimum=2, maximum=8, replicas=(1, 1), zones=ZONES[:2])
        super().__init__("openshift-plain", pool)
        self.run(seconds=10)

    def set(self) -> Object:
        return self.all(SETS)[0]

    def scaler(self) -> Object:
        return self.all(SCALERS)[0]

    def copied(self) -> dict[str, str]:
        notes = annotations_of(self.set())
        return {key: notes[key] for key in (MIN_SIZE, MAX_SIZE, OWNED_BY) if key in notes}


class TestOpenShift:
    def test_a_deleted_machine_autoscaler_removes_its_bounds(self) -> None:
        scene = OpenShift()
        assert scene.scaler()["metadata"]["finalizers"] == [FINALIZER]
        scene.store.delete(SCALERS, scene.cluster.namespace, scene.scaler()["metadata"]["name"])
        scene.run(seconds=10)
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
