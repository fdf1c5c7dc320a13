"""The owners' kinds and server-side apply on the simulated API and on a real one: equal schemas and answers."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from sandbox.kube.api import KubernetesAPI
from sandbox.kube.controllers.node_pools import node_pool_spec
from sandbox.kube.real import RealKubernetesAPI
from sandbox.kube.world import ECOSYSTEMS, World
from tests.objects import writers

Api = KubernetesAPI | RealKubernetesAPI
Json = dict[str, Any]
NODE_POOLS = ("hypershift.openshift.io", "v1beta1", "nodepools")
SHOOTS = ("core.gardener.cloud", "v1beta1", "shoots")
CLUSTERS = ("cluster.x-k8s.io", "v1beta2", "clusters")
DEPLOYMENTS = ("cluster.x-k8s.io", "v1beta2", "machinedeployments")
PLAIN = [name for name in ECOSYSTEMS if name not in ("gardener", "cluster-api", "openshift", "self-managed")]
APPLY = "application/apply-patch+yaml"
_runs = itertools.count()


def refused(call: Callable[[], Any]) -> tuple[int, Json]:
    """Return the code and the Status of a call that must fail."""
    with pytest.raises(ApiException) as caught:
        call()
    return int(caught.value.status), json.loads(caught.value.body)


def knows_rules(api: Api) -> bool:
    """Return True if the server evaluates rules in CEL. Before Kubernetes 1.25, it drops them from the schema."""
    if isinstance(api, KubernetesAPI):
        return True
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodepools.hypershift.openshift.io"
    return "x-kubernetes-validations" in json.dumps(api.call("GET", path))


def objects_of(kind: str) -> list[tuple[str, str, bool, Json]]:
    """Return plural, version, scope and body of every custom object of a cluster."""
    store = World(clusters=[kind], settings=None).clusters[kind].store
    return [
        (resource.plural, resource.storage, resource.namespaced, item)
        for resource in store.resources
        if resource.group and resource.group != "apps"
        for item in store.list(resource.full_name)
    ]


class TestShapes:
    @pytest.mark.parametrize("kind", PLAIN)
    def test_objects_of_owners_and_their_controllers_are_stored_as_written(
        self, connect: Any, namespace: str, kind: str
    ) -> None:
        custom = client.CustomObjectsApi(connect())
        run = next(_runs)
        seen = set()
        for plural, version, namespaced, item in objects_of(kind):
            group = item["apiVersion"].partition("/")[0]
            name = f"{item['metadata']['name']}-{run}" if not namespaced else item["metadata"]["name"]
            metadata = {key: item["metadata"][key] for key in ("labels", "annotations") if key in item["metadata"]}
            body = {**item, "metadata": {**metadata, "name": name}}
            if namespaced:
                made = custom.create_namespaced_custom_object(group, version, namespace, plural, body)
            else:
                made = custom.create_cluster_custom_object(group, version, plural, body)
            assert {k: made[k] for k in made if k not in ("metadata", "status")} == {
                k: item[k] for k in item if k not in ("metadata", "status")
            }
            if "status" in item and namespaced:
                status = {"status": item["status"]}
                reported = custom.patch_namespaced_custom_object_status(group, version, namespace, plural, name, status)
                assert reported["status"] == item["status"]
            seen.add(f"{plural}.{group}")
        of_hypershift = {"nodepools.hypershift.openshift.io", "hostedclusters.hypershift.openshift.io"}
        expected = {
            "hypershift": of_hypershift,
            "hypershift-openstack": of_hypershift,
            "gardener-plain": {"shoots.core.gardener.cloud", "clusters.extensions.gardener.cloud"},
            "cluster-class": {"clusterclasses.cluster.x-k8s.io"},
            "openshift-plain": {"clusterautoscalers.autoscaling.openshift.io"},
        }
        assert seen >= expected.get(kind, set())


def node_pool(**spec: Any) -> Json:
    body = node_pool_spec("p", "demo", "eu-central-1a", "AWS", "m5.xlarge")
    return {
        "apiVersion": "hypershift.openshift.io/v1beta1",
        "kind": "NodePool",
        "metadata": {"name": "a"},
        "spec": body | spec,
    }


class TestNodePools:
    def test_fixed_and_scaled_turn_into_each_other_in_one_patch(self, kind_of: Any) -> None:
        pools = kind_of(*NODE_POOLS)
        assert "replicas" not in pools.create(node_pool(autoScaling={"min": 0, "max": 3}))["spec"]
        for scaling, replicas in (({"min": 0, "max": 2}, None), (None, 2), ({"min": 1, "max": 4}, None), (None, 0)):
            spec = pools.merge("a", {"spec": {"autoScaling": scaling, "replicas": replicas}})["spec"]
            assert (spec.get("autoScaling"), spec.get("replicas")) == (scaling, replicas)
        assert pools.scale("a", 3)["spec"]["replicas"] == pools.get("a")["spec"]["replicas"] == 3

    @pytest.mark.parametrize(
        ("spec", "field"),
        [
            ({"replicas": 2}, "spec"),
            ({"autoScaling": {"min": -1, "max": 3}}, "spec.autoScaling.min"),
            ({"autoScaling": {"min": 0, "max": 0}}, "spec.autoScaling.max"),
            ({"autoScaling": {"min": None}}, "spec.autoScaling.min"),
            ({"pausedUntil": ""}, "spec.pausedUntil"),
            ({"pausedUntil": "x" * 36}, "spec.pausedUntil"),
        ],
    )
    def test_every_server_refuses_both_sizes_at_once_and_numbers_that_are_none(
        self, kind_of: Any, spec: Json, field: str
    ) -> None:
        pools = kind_of(*NODE_POOLS)
        pools.create(node_pool(autoScaling={"min": 0, "max": 3}))
        code, status = refused(lambda: pools.merge("a", {"spec": spec}))
        assert (code, status["reason"]) == (422, "Invalid")
        assert field in status["message"]

    @pytest.mark.parametrize(
        ("spec", "says"),
        [
            ({"autoScaling": {"min": 4}}, "max must be equal or greater than min"),
            ({"clusterName": "other"}, "ClusterName is immutable"),
            ({"autoScaling": {"min": 0}, "platform": {"type": "GCP"}}, "Scale-from-zero"),
        ],
    )
    def test_a_server_that_knows_rules_refuses_what_they_forbid(
        self, kube_api: Api, kind_of: Any, spec: Json, says: str
    ) -> None:
        pools = kind_of(*NODE_POOLS)
        pools.create(node_pool(autoScaling={"min": 1, "max": 3}))
        if not knows_rules(kube_api):
            pytest.skip("this API server is older than rules in CEL (Kubernetes 1.25)")
        code, status = refused(lambda: pools.merge("a", {"spec": spec}))
        assert code == 422
        assert says in status["message"]

    def test_a_dry_run_is_validated_as_the_patch_and_changes_nothing(self, kind_of: Any) -> None:
        pools, theirs = kind_of(*NODE_POOLS), kind_of(*NODE_POOLS, user="nobody")
        made = pools.create(node_pool(autoScaling={"min": 0, "max": 3}))
        hold = {"spec": {"autoScaling": None, "replicas": 2}}
        assert pools.merge("a", hold, dry_run="All")["spec"]["replicas"] == 2
        assert refused(lambda: pools.merge("a", {"spec": {"autoScaling": {"max": 0}}}, dry_run="All"))[0] == 422
        assert refused(lambda: theirs.merge("a", hold, dry_run="All"))[0] == 403
        stale = {"metadata": {"resourceVersion": "1"}, **hold}
        assert refused(lambda: pools.merge("a", stale, dry_run="All"))[0] == 409
        assert pools.get("a") == made


class TestShoots:
    def shoot(self, **worker: Any) -> Json:
        one = {"name": "p", "minimum": 1, "maximum": 3, "machine": {"type": "m5.xlarge"}, "zones": ["a"]} | worker
        spec = {"region": "eu-central-1", "provider": {"type": "aws", "workers": [one]}}
        return {"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "metadata": {"name": "a"}, "spec": spec}

    @pytest.mark.parametrize(
        "worker", [{"minimum": -1}, {"maximum": -1}, {"name": "longer-than-fifteen"}, {"priority": -2}]
    )
    def test_numbers_and_names_outside_gardeners_limits_are_refused(self, kind_of: Any, worker: Json) -> None:
        assert refused(lambda: kind_of(*SHOOTS).create(self.shoot(**worker)))[0] == 422

    def test_workers_have_names_of_their_own(self, kind_of: Any) -> None:
        body = self.shoot()
        body["spec"]["provider"]["workers"] *= 2
        code, status = refused(lambda: kind_of(*SHOOTS).create(body))
        assert code == 422
        assert "spec.provider.workers[1]: Duplicate value" in status["message"]


def topology(*entries: Json) -> Json:
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "spec": {"topology": {"classRef": {"name": "k"}, "workers": {"machineDeployments": list(entries)}}},
    }


def entry(name: str, **notes: str) -> Json:
    return {"class": "worker", "name": name, "metadata": {"annotations": notes}}


def in_entry(name: str, *path: str) -> tuple[str, ...]:
    """Return the path in managedFields of a field of a topology's machine deployment."""
    start = ("f:spec", "f:topology", "f:workers", "f:machineDeployments")
    return (*start, json.dumps({"name": name}, separators=(",", ":")).join(("k:", "")), *path)


class Applier:
    """Server-side apply to one object by one manager."""

    def __init__(self, kind: Any, manager: str, name: str) -> None:
        self._kind, self._manager, self._name = kind, manager, name

    def __call__(self, body: Json, **more: Any) -> Json:
        self._kind.custom.patch_namespaced_custom_object(
            *self._kind.where, self._name, body, field_manager=self._manager, _content_type=APPLY, **more
        )
        return dict(self._kind.get(self._name))  # after a 201 the client library returns no object


class TestServerSideApply:
    def test_an_object_that_is_not_there_is_made(self, kind_of: Any) -> None:
        made = Applier(kind_of(*CLUSTERS), "another", "c")(topology(entry("a", x="1")))
        assert writers(made, *in_entry("a", "f:class")) == {"another: Apply"}

    def test_another_managers_value_is_a_conflict_with_manager_and_field(self, kind_of: Any) -> None:
        clusters = kind_of(*CLUSTERS, manager="kubectl")
        clusters.create(topology(entry("a", x="1"), entry("b", x="1")))
        desired = topology({"name": "b", "metadata": {"annotations": {"x": "2"}}})
        code, status = refused(lambda: Applier(clusters, "evenkeel", "c")(desired))
        assert (code, status["reason"]) == (409, "Conflict")
        assert 'Apply failed with 1 conflict: conflict with "kubectl"' in status["message"]
        (cause,) = status["details"]["causes"]
        assert cause["reason"] == "FieldManagerConflict"
        assert cause["field"] == '.spec.topology.workers.machineDeployments[name="b"].metadata.annotations.x'
        spec = clusters.get("c")["spec"]["topology"]["workers"]["machineDeployments"]
        assert [item["metadata"]["annotations"] for item in spec] == [{"x": "1"}, {"x": "1"}]

    def test_with_force_one_entry_of_a_list_changes_and_nothing_else(self, kind_of: Any) -> None:
        clusters = kind_of(*CLUSTERS, manager="kubectl")
        before = clusters.create(topology(entry("a", x="1"), entry("b", x="1", y="1")))
        desired = topology({"name": "b", "metadata": {"annotations": {"x": "2"}}})
        del desired["spec"]["topology"]["classRef"]
        new = Applier(clusters, "evenkeel", "c")(desired, force=True)
        before["spec"]["topology"]["workers"]["machineDeployments"][1]["metadata"]["annotations"]["x"] = "2"
        assert new["spec"] == before["spec"]
        key = in_entry("b", "f:metadata", "f:annotations", "f:x")
        assert writers(new, *key) == {"evenkeel: Apply"}
        assert writers(new, *in_entry("b", "f:metadata", "f:annotations", "f:y")) == {"kubectl: Update"}
        assert writers(new, *in_entry("b", "f:name")) == {"evenkeel: Apply", "kubectl: Update"}

    def test_a_manager_that_applied_before_gets_the_conflict_next_time(self, kind_of: Any) -> None:
        clusters = kind_of(*CLUSTERS)
        theirs, ours = (Applier(clusters, manager, "c") for manager in ("gitops", "evenkeel"))
        theirs(topology(entry("a", x="1")))
        ours(topology({"name": "a", "metadata": {"annotations": {"x": "2"}}}), force=True)
        code, status = refused(lambda: theirs(topology(entry("a", x="1"))))
        assert code == 409
        assert 'conflict with "evenkeel"' in status["message"]

    def test_a_key_that_is_no_longer_applied_goes_unless_another_manager_has_it(self, kind_of: Any) -> None:
        deployments = kind_of(*DEPLOYMENTS, manager="kubectl")
        body = {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachineDeployment",
            "metadata": {"name": "a", "annotations": {"theirs": "1"}},
            "spec": {"clusterName": "c", "selector": {}, "template": {}},
        }
        deployments.create(body)
        first, second = (Applier(deployments, manager, "a") for manager in ("first", "second"))
        bare = {"apiVersion": body["apiVersion"], "kind": body["kind"]}

        def notes(**annotations: str) -> Json:
            return {**bare, "metadata": {"name": "a", "annotations": annotations}}

        first(notes(mine="1", shared="1"))
        second(notes(shared="1"))
        left = first(notes(mine="1"))
        assert left["metadata"]["annotations"] == {"theirs": "1", "mine": "1", "shared": "1"}
        left = first({**bare, "metadata": {"name": "a"}})
        assert left["metadata"]["annotations"] == {"theirs": "1", "shared": "1"}
        assert writers(left, "f:metadata", "f:annotations", "f:shared") == {"second: Apply"}

    def test_an_entry_that_is_no_longer_applied_goes(self, kind_of: Any) -> None:
        clusters = kind_of(*CLUSTERS)
        ours = Applier(clusters, "evenkeel", "c")
        ours(topology(entry("a", x="1"), entry("b", x="1")))
        left = ours(topology(entry("b", x="1")))["spec"]["topology"]["workers"]["machineDeployments"]
        assert [item["name"] for item in left] == ["b"]

    def test_the_same_again_changes_nothing(self, kind_of: Any) -> None:
        ours = Applier(kind_of(*CLUSTERS), "evenkeel", "c")
        once = ours(topology(entry("a", x="1")))
        again = ours(topology(entry("a", x="1")))
        assert again["metadata"]["resourceVersion"] == once["metadata"]["resourceVersion"]

    def test_replicas_that_were_never_applied_belong_to_their_last_writer(self, kind_of: Any) -> None:
        deployments = kind_of(*DEPLOYMENTS, manager="autoscaler")
        body = {
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "MachineDeployment",
            "metadata": {"name": "a"},
            "spec": {"clusterName": "c", "selector": {}, "template": {}},
        }
        apply = Applier(deployments, "capi-topology", "a")
        apply(body)
        deployments.merge("a", {"spec": {"replicas": 5}})
        left = apply(body, force=True)
        assert left["spec"]["replicas"] == 5
        assert writers(left, "f:spec", "f:replicas") == {"autoscaler: Update"}

    def test_a_stale_version_is_a_conflict_also_with_force(self, kind_of: Any) -> None:
        clusters = kind_of(*CLUSTERS)
        read = clusters.create(topology(entry("a", x="1")))
        clusters.merge("c", {"metadata": {"labels": {"later": "yes"}}})
        desired = topology({"name": "a", "metadata": {"annotations": {"x": "2"}}})
        desired["metadata"]["resourceVersion"] = read["metadata"]["resourceVersion"]
        code, status = refused(lambda: Applier(clusters, "evenkeel", "c")(desired, force=True))
        assert (code, status["reason"]) == (409, "Conflict")
        assert "the object has been modified" in status["message"]

    def test_a_value_that_a_merge_patch_of_ours_puts_there_is_no_longer_applied(self, kind_of: Any) -> None:
        clusters = kind_of(*CLUSTERS, manager="kubectl")
        before = clusters.create(topology(entry("a", x="1")))
        Applier(clusters, "evenkeel", "c")(topology({"name": "a", "metadata": {"annotations": {"x": "2"}}}), force=True)
        clusters.merge("c", {"spec": before["spec"]}, field_manager="evenkeel")
        left = clusters.get("c")
        assert left["spec"] == before["spec"]
        assert writers(left, *in_entry("a", "f:metadata", "f:annotations", "f:x")) == {"evenkeel: Update"}


class TestDeployments:
    def test_what_an_operator_starts_the_autoscaler_with_can_be_read(self, connect: Any, namespace: str) -> None:
        store = World(clusters=["hypershift"], settings=None).clusters["hypershift"].store
        (item,) = store.list("deployments.apps")
        apps = client.AppsV1Api(connect())
        body = {"metadata": {"name": item["metadata"]["name"]}, "spec": item["spec"]}
        apps.create_namespaced_deployment(namespace, body)
        (found,) = apps.list_namespaced_deployment(namespace).items
        assert found.spec.template.spec.containers[0].args == item["spec"]["template"]["spec"]["containers"][0]["args"]
        assert found.spec.replicas == 1
