"""The sandbox's owners: who copies, clamps and writes back what, when, and what survives it."""

from datetime import timedelta
from typing import Any

import pytest

from sandbox.kube.controllers.cluster_autoscaler_operator import FINALIZER, MAX_SIZE, MIN_SIZE, OWNED_BY
from sandbox.kube.controllers.node_pools import NODE_POOL, NODE_POOLS
from sandbox.kube.controllers.objects import annotations_of, arguments_of, labels_of
from sandbox.kube.controllers.shoots import OPERATION, OPTIONS, SHOOTS
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
    """Every key or text in an object that speaks of Evenkeel."""
    if isinstance(value, dict):
        return [str(key) for key in value if "evenkeel" in str(key)] + [
            word for item in value.values() for word in words_of_ours(item)
        ]
    if isinstance(value, list):
        return [word for item in value for word in words_of_ours(item)]
    return [value] if isinstance(value, str) and "evenkeel" in value else []


PLAIN = [name for name in ECOSYSTEMS if name not in ("gardener", "cluster-api", "openshift", "self-managed")]


class TestClustersStraightFromTheirInstallers:
    @pytest.mark.parametrize("kind", PLAIN)
    def test_nothing_of_ours_is_on_any_object_but_the_sandboxs_own_mark_of_nodes(self, kind: str) -> None:
        scene = Scene(kind)
        found = [
            word
            for resource in scene.store.resources
            for item in scene.store.list(resource.full_name)
            for word in words_of_ours(item)
        ]
        assert {word.removeprefix("f:") for word in found} <= {"sandbox.evenkeel.dev/machine"}

    @pytest.mark.parametrize("kind", PLAIN)
    def test_three_zones_run_and_their_autoscaler_levels_what_demand_needs(self, kind: str) -> None:
        scene = Scene(kind, autoscaler=True)
        (pool,) = scene.cluster.pools
        assert [view.zone for view in scene.world.groups()] == list(ZONES)
        assert [view.running for view in scene.world.groups()] == [1, 1, 1]
        assert scene.bounds == [(1, 4)] * 3
        scene.world.set_demand(kind, pool, 9)
        scene.run(minutes=5)
        assert [view.running for view in scene.world.groups()] == [3, 3, 3]

    @pytest.mark.parametrize("kind", PLAIN)
    def test_a_zone_can_be_taken_away(self, kind: str) -> None:
        scene = Scene(kind, autoscaler=True)
        (pool,) = scene.cluster.pools
        scene.world.exhaust_zone(kind, ZONES[0])
        scene.world.set_demand(kind, pool, 9)
        scene.run(minutes=3)
        assert next(view.running for view in scene.world.groups() if view.zone == ZONES[0]) == 1

    @pytest.mark.parametrize("kind", [kind for kind in PLAIN if kind != "gardener-plain"])
    def test_a_quiet_cluster_is_never_written(self, kind: str) -> None:
        scene = Scene(kind)
        scene.run(minutes=1)
        before = scene.store.page("nodes", "", version="v1").resource_version
        scene.run(minutes=70)
        assert scene.store.page("nodes", "", version="v1").resource_version == before

    def test_in_a_quiet_gardener_an_hour_passes_between_two_writes(self) -> None:
        scene = Scene("gardener-plain")
        scene.run(minutes=59)
        before = scene.store.page("nodes", "", version="v1").resource_version
        scene.run(seconds=30)
        assert scene.store.page("nodes", "", version="v1").resource_version == before
        scene.run(minutes=5)
        assert scene.store.page("nodes", "", version="v1").resource_version != before

    def test_a_name_of_no_kind_is_refused(self) -> None:
        with pytest.raises(KeyError, match="gke"):
            World(clusters=["gke"])


MACHINE_DEPLOYMENTS = "machinedeployments.machine.sapcloud.io"
WORKERS = "workers.extensions.gardener.cloud"


class Gardener(Scene):
    """A Shoot with one pool of three zones."""

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
    def test_what_is_written_on_a_deployment_stands_until_the_worker_is_reconciled(self) -> None:
        scene = Gardener()
        scene.scale(0, 2, 9)
        scene.run(minutes=55)
        assert scene.requested == [0, 2, 9]
        scene.run(minutes=10)
        assert scene.requested == [1, 2, 3]

    def test_the_worker_is_reconciled_when_somebody_asks_by_annotation_and_not_for_its_spec(self) -> None:
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

    def test_gardenlet_replaces_the_workers_pools_within_the_hour(self) -> None:
        scene = Gardener()
        pools = [scene.worker["spec"]["pools"][0] | {"maximum": 15}]
        scene.patch(WORKERS, scene.worker, {"spec": {"pools": pools}})
        scene.run(minutes=65)
        assert scene.worker["spec"]["pools"][0]["maximum"] == 9

    def test_a_changed_shoot_reaches_the_worker_the_replicas_and_the_autoscaler_in_minutes(self) -> None:
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

    def test_the_workers_status_tells_every_zones_share(self) -> None:
        scene = Gardener(minimum=4, maximum=11)
        told = [(item["minimum"], item["maximum"]) for item in scene.worker["status"]["machineDeployments"]]
        assert told == [(2, 4), (1, 4), (1, 3)]
        assert [item["name"][-3:] for item in scene.worker["status"]["machineDeployments"]] == ["-z1", "-z2", "-z3"]

    def test_a_shoot_that_confines_its_rollouts_changes_nothing_the_same_day(self) -> None:
        scene = Gardener()
        scene.edit_shoot({"maintenance": {"confineSpecUpdateRollout": True}})
        scene.run(minutes=3)
        scene.edit_worker(maximum=30)
        scene.run(hours=2)
        assert scene.worker["spec"]["pools"][0]["maximum"] == 9
        scene.ask(SHOOTS, scene.shoot)
        scene.run(minutes=3)
        assert scene.worker["spec"]["pools"][0]["maximum"] == 30
        assert OPERATION not in annotations_of(scene.shoot)

    def test_an_ignored_shoot_is_left_alone(self) -> None:
        scene = Gardener()
        ignore = {"metadata": {"annotations": {"shoot.gardener.cloud/ignore": "true"}}}
        scene.patch(SHOOTS, scene.shoot, ignore)
        scene.edit_worker(maximum=30)
        scene.run(hours=3)
        assert scene.worker["spec"]["pools"][0]["maximum"] == 9

    def test_a_hibernated_shoot_has_no_replicas_and_wakes_up_with_its_minimum(self) -> None:
        scene = Gardener(minimum=4, replicas=(3, 3, 3), autoscaler=True)
        scene.edit_shoot({"hibernation": {"enabled": True}})
        scene.run(minutes=3)
        assert scene.requested == [0, 0, 0]
        assert scene.cluster.autoscaler is not None
        assert scene.cluster.autoscaler.blind == "it does not run"
        scene.world.set_demand("gardener-plain", "p", 0)
        scene.edit_shoot({"hibernation": {"enabled": False}})
        scene.run(minutes=3)
        assert scene.requested == [2, 1, 1]

    def test_where_no_pool_has_room_the_autoscaler_is_deleted_and_replicas_are_the_minimum(self) -> None:
        scene = Gardener(minimum=3, maximum=9, replicas=(2, 2, 2))
        scene.edit_worker(minimum=6, maximum=6)
        scene.run(minutes=3)
        assert scene.flags == []
        scene.scale(0, 5, 2)
        scene.ask(WORKERS, scene.worker)
        scene.run(seconds=10)
        assert scene.requested == [2, 2, 2]

    def test_options_of_the_autoscaler_are_set_or_deleted_all_five_and_other_annotations_stay(self) -> None:
        scene = Gardener()
        direct = dict.fromkeys(OPTIONS, "3m") | {"somebody.example/note": "stays"}
        for item in scene.groups:
            scene.patch(MACHINE_DEPLOYMENTS, item, {"metadata": {"annotations": direct}})
        scene.edit_worker(clusterAutoscaler={"maxNodeProvisionTime": "7m", "scaleDownUtilizationThreshold": 0.4})
        scene.run(minutes=3)
        for item in scene.groups:
            assert annotations_of(item) == {
                "autoscaler.gardener.cloud/max-node-provision-time": "7m",
                "autoscaler.gardener.cloud/scale-down-utilization-threshold": "0.4",
                "somebody.example/note": "stays",
            }

    def test_a_dead_zone_keeps_the_shoot_in_error_and_its_worker_is_reconciled_sooner(self) -> None:
        scene = Gardener(minimum=3, replicas=(1, 1, 1))
        scene.world.exhaust_zone("gardener-plain", ZONES[0])
        scene.scale(2, 1, 1)
        scene.run(minutes=70)
        assert scene.shoot["status"]["lastOperation"]["state"] == "Error"
        assert "InsufficientInstanceCapacity" in scene.shoot["status"]["lastOperation"]["description"]
        scene.scale(2, 1, 0)
        scene.run(minutes=10)
        assert scene.requested == [2, 1, 1], "below its share, it is brought back long before the hour is over"

    def test_fields_tell_who_wrote_them(self) -> None:
        scene = Gardener()
        assert scene.writers(MACHINE_DEPLOYMENTS, scene.groups[0], "f:spec", "f:replicas") == {
            "gardener-extension-provider-aws: Update"
        }
        assert scene.writers(WORKERS, scene.worker, "f:spec", "f:pools") == {"gardenlet: Update"}
        scene.scale(2, 1, 1)
        assert scene.writers(MACHINE_DEPLOYMENTS, scene.groups[0], "f:spec", "f:replicas") == {"sandbox: Update"}

    def test_a_restarted_autoscaler_has_forgotten_its_backoff(self) -> None:
        scene = Gardener(maximum=12, autoscaler=True)
        autoscaler = scene.cluster.autoscaler
        assert autoscaler is not None
        scene.run(minutes=1)
        before = autoscaler.model
        scene.edit_worker(maximum=15)
        scene.run(minutes=3)
        assert autoscaler.model is not before
        assert scene.bounds == [(1, 5)] * 3

    def test_surge_is_dealt_out_over_the_zones_and_percents_weigh_by_share(self) -> None:
        scene = Gardener(maximum=10)
        scene.edit_worker(maxSurge="10%", maxUnavailable=2)
        scene.run(minutes=3)
        rolling = [item["spec"]["strategy"]["rollingUpdate"] for item in scene.groups]
        assert [item["maxSurge"] for item in rolling] == ["12%", "9%", "9%"]
        assert [item["maxUnavailable"] for item in rolling] == [1, 1, 0]


CAPI = "machinedeployments.cluster.x-k8s.io"


class HyperShift(Scene):
    """A hosted cluster with one NodePool in one zone."""

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
    def told(self) -> tuple[str, str, int]:
        notes = annotations_of(self.group)
        return notes[CAPI_MIN], notes[CAPI_MAX], self.group["spec"]["replicas"]


class TestHyperShift:
    def test_bounds_written_on_the_deployment_live_for_seconds_and_other_keys_stay(self) -> None:
        scene = HyperShift()
        key = "cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime"
        notes = {CAPI_MIN: "0", CAPI_MAX: "2", key: "3m"}
        scene.patch(CAPI, scene.group, {"metadata": {"annotations": notes}})
        scene.run(seconds=10)
        assert scene.told == ("1", "6", 2)
        assert annotations_of(scene.group)[key] == "3m"
        assert scene.writers(CAPI, scene.group, "f:metadata", "f:annotations", f"f:{CAPI_MAX}") == {
            "hypershift-operator-manager: Update"
        }

    def test_replicas_inside_the_bounds_stand_and_others_are_clamped(self) -> None:
        scene = HyperShift(minimum=1, maximum=6, replicas=2)
        for written, stands in ((5, 5), (9, 6), (0, 1)):
            scene.store.scale(CAPI, scene.cluster.namespace, scene.group["metadata"]["name"], written)
            scene.run(seconds=10)
            assert scene.group["spec"]["replicas"] == stands

    def test_a_max_below_replicas_cuts_replicas_at_once(self) -> None:
        scene = HyperShift(replicas=4)
        scene.edit(autoScaling={"min": 0, "max": 1})
        assert scene.told == ("0", "1", 1)

    def test_replicas_instead_of_autoscaling_take_the_group_from_the_autoscaler_and_hold_it(self) -> None:
        scene = HyperShift(replicas=4)
        scene.edit(autoScaling=None, replicas=0)
        assert scene.told == ("0", "0", 0)
        deployment = scene.store.get("deployments.apps", scene.cluster.namespace, "cluster-autoscaler")
        assert arguments_of(deployment) is None, "no NodePool has autoScaling left"
        scene.edit(replicas=None, autoScaling={"min": 1, "max": 6})
        assert scene.told == ("1", "6", 1)

    @pytest.mark.parametrize("until", ["true", "2026-01-01T01:00:00Z"])
    def test_a_paused_pool_pauses_its_deployment_and_copies_nothing(self, until: str) -> None:
        scene = HyperShift(replicas=2)
        scene.edit(pausedUntil=until, autoScaling={"min": 3, "max": 9})
        assert annotations_of(scene.group)["cluster.x-k8s.io/paused"] == "true"
        assert scene.told == ("1", "6", 2)
        scene.run(minutes=70)
        if until == "true":
            scene.edit(pausedUntil=None)
        assert "cluster.x-k8s.io/paused" not in annotations_of(scene.group)
        assert scene.told == ("3", "9", 3)

    def test_an_invalid_pool_is_applied_in_neither_direction(self) -> None:
        scene = HyperShift(replicas=2)
        scene.edit(release={"image": "nonsense"}, autoScaling={"min": 3, "max": 9})
        scene.patch(CAPI, scene.group, {"metadata": {"annotations": {CAPI_MAX: "2"}}})
        scene.run(minutes=5)
        assert scene.told == ("1", "2", 2)
        states = {item["type"]: item["status"] for item in scene.pool["status"]["conditions"]}
        assert states["ValidReleaseImage"] == "False"

    def test_a_pool_of_unknown_machines_never_goes_to_zero(self) -> None:
        scene = HyperShift(minimum=0, replicas=0)
        assert scene.told == ("0", "6", 0)
        (template,) = scene.all("awsmachinetemplates.infrastructure.cluster.x-k8s.io")
        resource = "awsmachinetemplates.infrastructure.cluster.x-k8s.io"
        scene.patch(resource, template, {"status": {"capacity": None}}, subresource="status")
        scene.run(seconds=10)
        assert scene.told == ("1", "6", 1)

    def test_on_aws_the_zone_is_that_of_the_subnet_and_of_the_machines_and_elsewhere_it_has_a_name(self) -> None:
        aws, openstack = HyperShift(), HyperShift("hypershift-openstack")
        assert "failureDomain" not in aws.group["spec"]["template"]["spec"]
        assert openstack.group["spec"]["template"]["spec"]["failureDomain"] == ZONES[0]
        assert aws.pool["spec"]["platform"]["aws"]["subnet"]["id"].startswith("subnet-")
        for machine in aws.all("machines.cluster.x-k8s.io"):
            assert machine["spec"]["providerID"].startswith(f"aws:///{ZONES[0]}/")
            assert annotations_of(machine)[NODE_POOL] == f"clusters/{aws.pool['metadata']['name']}"

    def test_names_and_namespaces_lead_from_the_deployment_to_its_pool(self) -> None:
        scene = HyperShift()
        assert scene.group["metadata"]["namespace"] == "clusters-demo"
        assert scene.group["metadata"]["name"] == scene.pool["metadata"]["name"]
        assert annotations_of(scene.group)[NODE_POOL] == f"clusters/{scene.pool['metadata']['name']}"
        assert labels_of(scene.pool) == {"example.com/pool": "p"}

    def test_the_pools_status_counts_the_nodes_that_are_there(self) -> None:
        scene = HyperShift(replicas=3)
        scene.run(seconds=20)
        assert scene.pool["status"]["replicas"] == 3

    @pytest.mark.parametrize(
        ("spec", "says"),
        [
            ({"replicas": 2}, "Both replicas or autoScaling"),
            ({"autoScaling": {"min": 3, "max": 2}}, "max must be equal or greater than min"),
            ({"autoScaling": {"min": 0, "max": 0}}, "should be greater than or equal to 1"),
            ({"autoScaling": {"min": -1, "max": 2}}, "should be greater than or equal to 0"),
            ({"clusterName": "other"}, "ClusterName is immutable"),
            ({"pausedUntil": "tomorrow"}, "PausedUntil must be a date"),
        ],
    )
    def test_what_the_rules_of_a_node_pool_refuse(self, spec: Object, says: str) -> None:
        scene = HyperShift()
        with pytest.raises(ApiError, match=says) as refused:
            scene.edit(**spec)
        assert refused.value.code == 422

    def test_zero_is_refused_where_a_platform_cannot_come_back_from_it(self) -> None:
        scene = HyperShift("hypershift-openstack")
        with pytest.raises(ApiError, match="Scale-from-zero"):
            scene.edit(autoScaling={"min": 0, "max": 3})


class Classy(Scene):
    """A Cluster of a ClusterClass, with one machine deployment."""

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
    def test_keys_of_the_topology_are_put_back_and_keys_that_it_never_had_survive(self, api: str) -> None:
        scene = Classy(api=api)
        path = ("f:metadata", "f:annotations", f"f:{CAPI_MAX}")
        assert scene.writers(CAPI, scene.group, *path) == {"capi-topology: Apply"}
        scene.annotate(**{CAPI_MAX: "3", "somebody.example/note": "stays"})
        assert annotations_of(scene.group) == {CAPI_MIN: "1", CAPI_MAX: "6", "somebody.example/note": "stays"}
        assert scene.writers(CAPI, scene.group, *path) == {"capi-topology: Apply"}

    def test_a_key_that_leaves_the_topology_leaves_the_deployment_unless_somebody_else_wrote_it_too(
        self, api: str
    ) -> None:
        scene = Classy(api=api)
        scene.entry(metadata={"annotations": {"theirs": "1", "ours": "2"}, "labels": {"example.com/pool": "p"}})
        assert annotations_of(scene.group) == {"theirs": "1", "ours": "2"}
        shared = {
            "apiVersion": scene.group["apiVersion"],
            "kind": "MachineDeployment",
            "metadata": {
                "name": scene.group["metadata"]["name"],
                "namespace": "demo",
                "annotations": {"ours": "2"},
            },
        }
        scene.store.apply(CAPI, shared, manager="somebody")
        scene.entry(metadata={"labels": {"example.com/pool": "p"}})
        assert annotations_of(scene.group) == {"ours": "2"}
        assert scene.writers(CAPI, scene.group, "f:metadata", "f:annotations", "f:ours") == {"somebody: Apply"}

    def test_replicas_that_the_topology_does_not_name_are_not_its_own(self, api: str) -> None:
        scene = Classy(replicas=2, api=api)
        scene.store.scale(CAPI, "demo", scene.group["metadata"]["name"], 5)
        scene.run(minutes=2)
        assert scene.group["spec"]["replicas"] == 5
        assert not any("capi-topology" in who for who in scene.writers(CAPI, scene.group, "f:spec", "f:replicas"))

    def test_replicas_that_it_names_are_put_back(self, api: str) -> None:
        scene = Classy(replicas=2, api=api)
        scene.entry(metadata={"labels": {"example.com/pool": "p"}}, replicas=3)
        scene.store.scale(CAPI, "demo", scene.group["metadata"]["name"], 5)
        scene.run(seconds=10)
        assert scene.group["spec"]["replicas"] == 3

    def test_replicas_and_bounds_together_are_rejected(self, api: str) -> None:
        scene = Classy(api=api)
        with pytest.raises(ApiError, match="autoscaler annotations") as refused:
            scene.entry(replicas=3)
        assert refused.value.code == 422

    def test_the_class_says_what_the_topology_leaves_open(self, api: str) -> None:
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

    def test_what_the_topology_names_lands_on_machines_too_without_a_rollout(self, api: str) -> None:
        scene = Classy(replicas=2, api=api)
        before = {item["metadata"]["name"] for item in scene.all("machines.cluster.x-k8s.io")}
        scene.entry(metadata={"annotations": {CAPI_MIN: "1", CAPI_MAX: "9"}, "labels": {"example.com/pool": "p"}})
        scene.run(minutes=5)
        machines = scene.all("machines.cluster.x-k8s.io")
        assert {item["metadata"]["name"] for item in machines} == before
        assert {annotations_of(item)[CAPI_MAX] for item in machines} == {"9"}

    def test_a_paused_cluster_is_left_alone(self, api: str) -> None:
        scene = Classy(api=api)
        scene.patch("clusters.cluster.x-k8s.io", scene.cluster_object, {"spec": {"paused": True}})
        scene.annotate(**{CAPI_MAX: "3"})
        assert annotations_of(scene.group)[CAPI_MAX] == "3"


SETS = "machinesets.machine.openshift.io"
SCALERS = "machineautoscalers.autoscaling.openshift.io"
AUTOSCALERS = "clusterautoscalers.autoscaling.openshift.io"


class OpenShift(Scene):
    """Two zones, a MachineAutoscaler for each."""

    def __init__(self, **more: Any) -> None:
        pool = Pool(name="p", minimum=2, maximum=8, replicas=(1, 1), zones=ZONES[:2])
        super().__init__("openshift-plain", pool, **more)
        self.run(seconds=10)

    def set(self, index: int = 0) -> Object:
        return self.all(SETS)[index]

    def scaler(self, index: int = 0) -> Object:
        return self.all(SCALERS)[index]

    def told(self, index: int = 0) -> dict[str, str]:
        notes = annotations_of(self.set(index))
        return {key: notes[key] for key in (MIN_SIZE, MAX_SIZE, OWNED_BY) if key in notes}


class TestOpenShift:
    def test_a_deleted_machine_autoscaler_takes_its_bounds_and_its_name_with_it(self) -> None:
        scene = OpenShift()
        assert scene.scaler()["metadata"]["finalizers"] == [FINALIZER]
        scene.store.delete(SCALERS, scene.cluster.namespace, scene.scaler()["metadata"]["name"])
        scene.run(seconds=10)
        assert len(scene.all(SCALERS)) == 1
        assert scene.told() == {}
        assert annotations_of(scene.set())["machine.openshift.io/vCPU"] == "4"

    def test_one_that_turns_to_another_set_leaves_the_first_as_it_found_it(self) -> None:
        scene = OpenShift()
        scene.store.delete(SCALERS, scene.cluster.namespace, scene.scaler(1)["metadata"]["name"])
        scene.run(seconds=10)
        target = scene.scaler()["spec"]["scaleTargetRef"] | {"name": scene.set(1)["metadata"]["name"]}
        scene.patch(SCALERS, scene.scaler(), {"spec": {"scaleTargetRef": target}})
        scene.run(seconds=10)
        assert scene.told(0) == {}
        assert scene.told(1) == {MIN_SIZE: "1", MAX_SIZE: "4", OWNED_BY: "openshift-machine-api/p-eu-central-1a"}
        assert scene.scaler()["status"]["lastTargetRef"] == target

    def test_a_set_that_another_machine_autoscaler_owns_is_not_touched(self) -> None:
        scene = OpenShift()
        target = scene.scaler()["spec"]["scaleTargetRef"]
        second = {
            "metadata": {"name": "second", "namespace": scene.cluster.namespace},
            "spec": {"minReplicas": 0, "maxReplicas": 99, "scaleTargetRef": target},
        }
        scene.store.create(SCALERS, second)
        scene.run(minutes=1)
        assert scene.told()[MAX_SIZE] == "4"
        operator = scene.cluster.controllers.operator  # type: ignore[attr-defined]
        assert operator.errors == {"second": "already owned by another MachineAutoscaler"}

    @pytest.mark.parametrize("field", ["kind", "apiVersion"])
    def test_only_machine_sets_of_the_machine_api_are_targets(self, field: str) -> None:
        scene = OpenShift()
        scene.store.delete(SCALERS, scene.cluster.namespace, scene.scaler()["metadata"]["name"])
        scene.run(seconds=10)
        target = {"apiVersion": "machine.openshift.io/v1beta1", "kind": "MachineSet", "name": "x"} | {field: "other"}
        body = {
            "metadata": {"name": "odd", "namespace": scene.cluster.namespace},
            "spec": {"minReplicas": 0, "maxReplicas": 9, "scaleTargetRef": target},
        }
        scene.store.create(SCALERS, body)
        scene.run(seconds=10)
        assert scene.told() == {}

    def test_options_of_a_group_and_replicas_are_nobodys(self) -> None:
        scene = OpenShift()
        key = "machine.openshift.io/autoscaling-options-maxnodeprovisiontime"
        patch = {"metadata": {"annotations": {key: "3m", MAX_SIZE: "77"}}, "spec": {"replicas": 7}}
        scene.patch(SETS, scene.set(), patch)
        scene.run(minutes=1)
        assert annotations_of(scene.set())[key] == "3m"
        assert scene.set()["spec"]["replicas"] == 7
        assert scene.told()[MAX_SIZE] == "4"
        path = ("f:metadata", "f:annotations", f"f:{MAX_SIZE}")
        assert scene.writers(SETS, scene.set(), *path) == {"cluster-autoscaler-operator: Update"}

    def test_bounds_the_wrong_way_round_are_refused(self) -> None:
        scene = OpenShift()
        with pytest.raises(ApiError, match="denied the request"):
            scene.patch(SCALERS, scene.scaler(), {"spec": {"minReplicas": 5, "maxReplicas": 4}})

    def test_the_cluster_autoscaler_is_started_as_its_object_says_and_anew_when_that_changes(self) -> None:
        scene = OpenShift(autoscaler=True)
        autoscaler = scene.cluster.autoscaler
        assert autoscaler is not None
        scene.run(seconds=10)
        before = autoscaler.model
        assert autoscaler.in_force.balance
        (item,) = scene.all(AUTOSCALERS)
        scene.patch(AUTOSCALERS, item, {"spec": {"balanceSimilarNodeGroups": None}})
        scene.run(seconds=20)
        assert autoscaler.model is not before
        assert not autoscaler.in_force.balance

    def test_nodes_of_the_cluster_are_never_more_than_its_limit(self) -> None:
        scene = OpenShift(autoscaler=True)
        (item,) = scene.all(AUTOSCALERS)
        scene.patch(AUTOSCALERS, item, {"spec": {"resourceLimits": {"maxNodesTotal": 5}}})
        scene.run(seconds=20)
        scene.world.set_demand("openshift-plain", "p", 8)
        scene.run(minutes=10)
        assert sum(scene.requested) == 5

    def test_without_its_object_no_autoscaler_runs_that_the_operator_made(self) -> None:
        scene = OpenShift()
        (item,) = scene.all(AUTOSCALERS)
        scene.store.delete(AUTOSCALERS, "", item["metadata"]["name"])
        scene.run(seconds=10)
        assert scene.all("deployments.apps") == []
