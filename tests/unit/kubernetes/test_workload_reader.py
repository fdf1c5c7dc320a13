"""Pods, nodes and volumes are read field by field from the API's objects."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import msgspec
import pytest

from evenkeel.adapters.kubernetes.read.pods import Pods, PodShape
from evenkeel.adapters.kubernetes.read.workload_objects import (
    BudgetShape,
    ClaimShape,
    ClassShape,
    CsiNodeShape,
    NodeShape,
    VolumeShape,
)
from evenkeel.domain.demand.requests import request_of
from evenkeel.domain.model.observations import MachineNode
from evenkeel.domain.model.templates import Taint
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.model.workload import (
    HostPort,
    NodeSelectorTerm,
    Owner,
    Pod,
    PodVolume,
    Requirement,
    Toleration,
    Unscheduled,
)
from tests.workloads import group_key

Object = dict[str, Any]
MADE = "2026-01-15T11:50:00Z"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
SPREAD = {"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}


def decoded(shape: Any, item: Mapping[str, Any]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(item), type=shape)


def pod_object(name: str = "web-1", **parts: Any) -> Object:
    """Return a pod as `kubectl get -o json` shows it, with many fields that are not read."""
    spec = {
        "containers": [
            {
                "name": "web",
                "image": "registry.example/web:1",
                "env": [{"name": "PASSWORD", "value": "secret"}],
                "resources": {"requests": {"cpu": "250m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            }
        ],
        "serviceAccountName": "default",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 60,
        "volumes": [{"name": f"kube-api-access-{name}", "projected": {"sources": []}}],
        **parts.pop("spec", {}),
    }
    metadata = {
        "name": name,
        "namespace": "prod",
        "uid": f"uid-{name}",
        "creationTimestamp": MADE,
        "labels": {"app": "web", "pod-template-hash": "5c9"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5c9", "controller": True}],
        "managedFields": [{"manager": "kubelet"}],
        **parts.pop("metadata", {}),
    }
    return {"metadata": metadata, "spec": spec, "status": parts.pop("status", {"phase": "Running"})}


def read(item: Object, pods: Pods | None = None) -> Pod:
    return (pods or Pods()).read(decoded(PodShape, item))


class TestPods:
    def test_a_pending_pod(self) -> None:
        waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": MADE}
        found = read(pod_object(status={"phase": "Pending", "conditions": [waiting]}, spec={"priority": 7}))
        assert (str(found), found.node, found.phase, found.priority) == ("prod/web-1", "", "Pending", 7)
        assert found.unscheduled == Unscheduled("Unschedulable", datetime(2026, 1, 15, 11, 50, tzinfo=UTC))
        assert found.owner == Owner("ReplicaSet", "web-5c9")
        assert found.grace == timedelta(minutes=1)
        asked = request_of(found)
        assert (asked["cpu"], asked["memory"]) == (250, 64 * 2**20)

    def test_equal_pods_share_their_needs(self) -> None:
        pods = Pods()
        first, second = (read(pod_object(name, spec={"nodeName": f"n-{name}"}), pods) for name in ("web-1", "web-2"))
        other = read(pod_object("web-3", spec={"tolerations": [{"operator": "Exists"}]}), pods)
        assert first.needs is second.needs is not other.needs
        assert first.labels is second.labels is other.labels
        assert (first.node, second.node) == ("n-web-1", "n-web-2")

    def test_every_placement_field_is_read(self) -> None:
        term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
        company = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "db"}}, "namespaceSelector": {}}
        needs = read(
            pod_object(
                spec={
                    "nodeSelector": {"arch": "arm64"},
                    "affinity": {
                        "nodeAffinity": {
                            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term, {}]},
                            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": term}],
                        },
                        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [company]},
                        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
                    },
                    "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
                    "topologySpreadConstraints": [
                        {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule", "minDomains": 3},
                        {"topologyKey": "host", "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway"},
                    ],
                    "overhead": {"cpu": "10m"},
                    "resources": {"requests": {"cpu": "2"}},
                    "schedulingGates": [{"name": "quota"}],
                    "resourceClaims": [{"name": "gpu", "resourceClaimName": "x"}],
                    "schedulerName": "volcano",
                }
            )
        ).needs
        assert needs.node_selector == {"arch": "arm64"}
        assert needs.node_terms == (NodeSelectorTerm((Requirement("disk", "In", ("ssd",)),)), NodeSelectorTerm())
        (together,) = needs.affinity
        assert (together.selector, together.namespace_selector) == ((Requirement("app", "In", ("db",)),), ())
        assert needs.anti_affinity == ()
        assert needs.tolerations == (Toleration("gpu", "Exists", "", "NoSchedule"),)
        (spread,) = needs.spread
        assert (spread.key, spread.max_skew, spread.min_domains, spread.selector) == ("zone", 2, 3, None)
        assert (spread.honors_affinity, spread.honors_taints) == (True, False)
        assert needs.resources.overhead == {"cpu": Fraction(1, 100)}
        assert needs.resources.pod_requests == {"cpu": Fraction(2)}
        assert (needs.gates, needs.resource_claims, needs.scheduler) == (("quota",), ("gpu",), "volcano")

    def test_an_affinity_without_terms_matches_nothing(self) -> None:
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}
        assert read(pod_object(spec={"affinity": {"nodeAffinity": required}})).needs.node_terms == ()
        assert read(pod_object()).needs.node_terms is None

    def test_containers_have_ports_sidecars_and_resources(self) -> None:
        found = read(
            pod_object(
                spec={
                    "initContainers": [{"name": "mesh", "restartPolicy": "Always"}, {"name": "init"}],
                    "containers": [
                        {"name": "web", "ports": [{"containerPort": 80}, {"hostPort": 53, "protocol": "UDP"}]}
                    ],
                },
                status={
                    "phase": "Running",
                    "containerStatuses": [
                        {"name": "web", "resources": {"requests": {"cpu": "1"}}, "allocatedResources": {"cpu": "2"}}
                    ],
                    "conditions": [{"type": "PodResizePending", "status": "True", "reason": "Infeasible"}],
                },
            )
        )
        (web,) = found.needs.resources.containers
        assert web.ports == (HostPort(53, "UDP", ""),)
        assert (web.running_with, web.allocated) == ({"cpu": Fraction(1)}, {"cpu": Fraction(2)})
        assert [item.stays for item in found.needs.resources.init_containers] == [True, False]
        assert found.needs.resources.resize_infeasible

    def test_a_resized_pod_has_current_and_allocated_resources(self) -> None:
        whole = {"resources": {"requests": {"cpu": "2"}}}
        status = {
            "phase": "Running",
            "resources": {"requests": {"cpu": "3"}, "limits": {"cpu": "9"}},
            "allocatedResources": {"cpu": "4"},
        }
        needs = read(pod_object(spec=whole, status=status)).needs
        assert (needs.resources.pod_running_with, needs.resources.pod_allocated) == (
            {"cpu": Fraction(3)},
            {"cpu": Fraction(4)},
        )
        assert request_of(read(pod_object(spec=whole, status=status)))["cpu"] == 4000
        assert read(pod_object(spec=whole)).needs.resources.pod_running_with is None
        # It is not read of a pod without pod-level requests: its status would prevent the pod from sharing its needs.
        assert read(pod_object(status=status)).needs == read(pod_object()).needs

    def test_volumes_have_kinds_and_claims(self) -> None:
        volumes = [
            {"name": "data", "persistentVolumeClaim": {"claimName": "pg"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
            {"name": "cache", "emptyDir": {"medium": "Memory"}},
            {"name": "by-chance-x7", "configMap": {"name": "c"}},
            {"name": "odd", "newKind": {}},
        ]
        assert read(pod_object(spec={"volumes": volumes})).needs.volumes == (
            PodVolume("data", "persistentVolumeClaim", "pg"),
            PodVolume("scratch", "ephemeral", "web-1-scratch"),
            PodVolume("cache", "emptyDir", in_memory=True),
            PodVolume("", "configMap"),
            PodVolume("", "newKind"),
        )

    @pytest.mark.parametrize(
        ("spec", "path"),
        [
            ({"workloadRef": {"name": "gang"}}, "workloadRef"),
            ({"affinity": {"gpuAffinity": {"x": 1}}}, "affinity.gpuAffinity"),
            ({"affinity": {"nodeAffinity": {"forbidden": {}}}}, "affinity.nodeAffinity.forbidden"),
            (
                {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, {"matchDevices": []}]}}}},
                f"affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[].matchDevices",
            ),
            (
                {"affinity": {"podAffinity": {REQUIRED: [{"topologyKey": "zone", "least": 2}]}}},
                f"affinity.podAffinity.{REQUIRED}[].least",
            ),
            (
                {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone", "labelSelector": {"cel": ""}}]}}},
                f"affinity.podAntiAffinity.{REQUIRED}[].labelSelector.cel",
            ),
            ({"topologySpreadConstraints": [{**SPREAD, "newField": False}]}, "topologySpreadConstraints[].newField"),
            (
                {"topologySpreadConstraints": [{**SPREAD, "whenUnsatisfiable": "Evict"}]},
                "topologySpreadConstraints[].whenUnsatisfiable",
            ),
            ({"containers": [{"name": "a", "resources": {"shares": {}}}]}, "containers[].resources.shares"),
            ({"initContainers": [{"name": "a", "resources": {"shares": {}}}]}, "initContainers[].resources.shares"),
            ({"resources": {"shares": {}}}, "resources.shares"),
        ],
    )
    def test_an_unknown_field_of_its_placement_is_named(self, spec: dict[str, Any], path: str) -> None:
        reader = Pods()
        plain = read(pod_object(), reader).needs
        assert [read(pod_object(spec=spec), reader).needs.unread for _ in range(2)] == [(path,), (path,)]
        assert plain.unread == ()

    def test_pods_that_differ_in_an_unknown_field_do_not_share_their_needs(self) -> None:
        reader = Pods()
        known, unknown = ({"name": "a", "resources": {"requests": {"cpu": "1"}, **more}} for more in ({}, {"new": 1}))
        found = [read(pod_object(spec={"containers": [one]}), reader).needs for one in (known, unknown)]
        assert [needs.unread for needs in found] == [(), ("containers[].resources.new",)]

    def test_known_fields_are_read_and_null_is_absent(self) -> None:
        selector = {"matchLabels": {"a": "b"}, "matchExpressions": [], "future": None}
        term = {
            "topologyKey": "zone",
            "labelSelector": selector,
            "namespaces": ["x"],
            "namespaceSelector": selector,
            "matchLabelKeys": ["a"],
            "mismatchLabelKeys": ["b"],
            "future": None,
        }
        pods = {REQUIRED: [term], PREFERRED: [{"weight": 1, "podAffinityTerm": {**term, "future": 1}}]}
        nodes = {
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [], "matchFields": [], "future": None}]},
            PREFERRED: [{"weight": 1, "preference": {}}],
        }
        spread = {
            **SPREAD,
            "labelSelector": selector,
            "minDomains": 2,
            "nodeAffinityPolicy": "Honor",
            "nodeTaintsPolicy": "Honor",
            "matchLabelKeys": ["a"],
            "future": None,
        }
        resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}, "claims": [{"name": "x"}], "future": None}
        spec = {
            "affinity": {"nodeAffinity": nodes, "podAffinity": pods, "podAntiAffinity": pods, "future": None},
            "topologySpreadConstraints": [spread, {**spread, "whenUnsatisfiable": "ScheduleAnyway"}],
            "containers": [{"name": "a", "resources": resources}],
            "initContainers": [{"name": "b", "resources": resources}],
            "resources": resources,
            "future": None,
        }
        assert read(pod_object(spec=spec)).needs.unread == ()
        absent = {"affinity": None, "topologySpreadConstraints": None, "resources": None}
        assert read(pod_object(spec={**absent, "containers": [{"name": "a", "resources": None}]})).needs.unread == ()

    def test_only_annotations_in_use_are_read(self) -> None:
        ca = "cluster-autoscaler.kubernetes.io"
        given = {f"{ca}/safe-to-evict": "false", f"{ca}/pod-scale-up-delay": "90s", "big": "x" * 1000}
        found = read(pod_object(metadata={"annotations": given}))
        assert found.annotations == {name: text for name, text in given.items() if name != "big"}
        assert found.scale_up_delay == timedelta(seconds=90)
        odd = read(pod_object(metadata={"annotations": {f"{ca}/pod-scale-up-delay": "soon"}}))
        assert odd.scale_up_delay == timedelta(0)

    @pytest.mark.parametrize(
        "spec", [[], {"priority": "high"}, {"containers": [{"resources": {"requests": {"cpu": "lots"}}}]}]
    )
    def test_an_invalid_pod_is_refused(self, spec: Any) -> None:
        with pytest.raises((msgspec.ValidationError, BadValueError)):
            read({**pod_object(), "spec": spec} if isinstance(spec, list) else pod_object(spec=spec))


NODE: Object = {
    "metadata": {"name": "n1", "labels": {"zone": "a"}, "creationTimestamp": MADE},
    "spec": {"providerID": "aws:///a/i-1", "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": "4"},
        "allocatable": {"cpu": "3920m"},
        "conditions": [{"type": "Ready", "status": "True"}],
        "images": [{"names": ["x"], "sizeBytes": 1}],
    },
}


class TestOtherObjects:
    def test_a_node_belongs_to_the_machine_that_has_its_name_or_id(self) -> None:
        for name in ("n1", "aws:///a/i-1"):
            found = decoded(NodeShape, NODE).read({name: MachineNode(group=group_key(), deleting=True)})
            assert (found.group, found.deleting, found.ready) == (group_key(), True, True)
        stranger = decoded(NodeShape, NODE).read({})
        assert (stranger.group, stranger.deleting, stranger.taints) == (None, False, (Taint("gpu", "", "NoSchedule"),))
        assert stranger.allocatable == {"cpu": Fraction(392, 100)}
        assert not decoded(NodeShape, {"metadata": {"name": "n"}}).read({}).ready

    def test_a_volume_has_its_driver_also_before_csi(self) -> None:
        terms = {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "z", "operator": "Exists"}]}]}}
        spec = {
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol"},
            "nodeAffinity": terms,
            "claimRef": {"namespace": "prod", "name": "pg"},
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "gp3",
        }
        found = decoded(VolumeShape, {"metadata": {"name": "pv"}, "spec": spec, "status": {"phase": "Bound"}}).read()
        assert (found.driver, found.claim, found.capacity) == ("ebs.csi.aws.com", "prod/pg", 2**30)
        assert found.terms == (NodeSelectorTerm((Requirement("z", "Exists"),)),)
        older = decoded(VolumeShape, {"metadata": {"name": "pv"}, "spec": {"awsElasticBlockStore": {"volumeID": "v"}}})
        assert older.read().driver == "ebs.csi.aws.com"
        assert older.read().terms is None

    def test_a_claim_names_the_pod_it_was_made_for(self) -> None:
        metadata = {
            "name": "web-1-scratch",
            "namespace": "prod",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes", "volume.kubernetes.io/selected-node": "n1"},
            "ownerReferences": [{"kind": "Pod", "name": "web-1", "controller": True}],
        }
        spec = {"storageClassName": "gp3", "resources": {"requests": {"storage": "8Gi"}}, "volumeName": "pv"}
        found = decoded(ClaimShape, {"metadata": metadata, "spec": spec, "status": {"phase": "Lost"}}).read()
        assert (found.bound, found.lost, found.selected_node, found.for_pod) == (True, True, "n1", "web-1")
        assert (found.size, found.volume, found.selector) == (8 * 2**30, "pv", ())

    def test_a_storage_class_has_topologies_and_binding_mode(self) -> None:
        item = {
            "metadata": {"name": "gp2"},
            "provisioner": "kubernetes.io/aws-ebs",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [{"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}],
        }
        found = decoded(ClassShape, item).read()
        assert (found.waits, found.provisioner) == (True, "ebs.csi.aws.com")
        assert found.allowed_topologies == ((Requirement("zone", "In", ("a", "b")),),)

    def test_a_node_has_the_limits_of_its_drivers(self) -> None:
        drivers = [
            {"name": "ebs.csi.aws.com", "allocatable": {"count": 25}},
            {"name": "efs.csi.aws.com"},
            {"name": "local", "allocatable": {"count": 0}},
        ]
        item = {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}
        assert decoded(CsiNodeShape, item).read() == ("n1", {"ebs.csi.aws.com": 25, "local": 0})

    def test_an_uncounted_budget_allows_nothing(self) -> None:
        named = {"name": "web", "namespace": "prod"}
        fresh = decoded(BudgetShape, {"metadata": named, "spec": {"selector": {}}}).read()
        assert (fresh.allowed, fresh.selector) == (0, ())
        counted = decoded(BudgetShape, {"metadata": named, "spec": {}, "status": {"disruptionsAllowed": 2}}).read()
        assert (counted.allowed, counted.selector) == (2, None)
