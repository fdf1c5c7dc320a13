"""A check of a workload cluster: the requested lists, their order, and the kept fields."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import pytest
import yaml

from evenkeel.access_config import WorkloadEntry
from evenkeel.adapters.kubernetes.read import workload as module
from evenkeel.adapters.kubernetes.read.workload import KubernetesWorkload
from evenkeel.adapters.kubernetes.write.drainer import NodeDrainer
from evenkeel.application.errors import AccessRefusedError, ClusterUnavailableError, TooLargeError
from evenkeel.domain.demand.pods import unplaceable
from evenkeel.domain.demand.requests import request_of
from evenkeel.domain.model.groups import Machine
from evenkeel.domain.model.observations import MachineNode
from evenkeel.domain.model.workload import Owner
from sandbox.template import ROOT
from tests.builders import key
from tests.fakes import plenty
from tests.unit.kubernetes.test_workload_reader import pod_object

UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


def waiting(name: str, **parts: Any) -> dict[str, Any]:
    return pod_object(name, status={"phase": "Pending", "conditions": UNSCHEDULABLE}, **parts)


class Pages:
    """An API server with one page of each list; of pods, one for pending and one for running ones."""

    name = "blue"

    def __init__(self, unassigned: list[Any], assigned: list[Any], **lists: list[Any]) -> None:
        self.pods = {"spec.nodeName=,": unassigned, "spec.nodeName!=,": assigned, "": [*unassigned, *assigned]}
        self.lists = lists
        self.asked: list[str] = []
        self.objects: dict[str, dict[str, Any]] = {}  # those that are read one by one, by name
        self.got: list[str] = []

    def each_page(
        self, path: str, _remaining: Any, _allowance: Any, fields: str = "", *, rights: str
    ) -> Iterator[bytes]:
        assert rights == module.RIGHTS
        plural = path.rpartition("/")[2]
        self.asked.append(plural)
        items = self.lists.get(plural, [])
        if plural == "pods":
            items = next(pods for begin, pods in self.pods.items() if fields.startswith(begin))
        yield json.dumps({"items": items}).encode()

    def get(self, path: str, _remaining: Any) -> dict[str, Any] | None:
        self.got.append(path)
        return self.objects.get(path) or self.objects.get(path.rpartition("/")[2])

    def served(self, _group: str, _remaining: Any) -> list[str]:
        return ["v1"]

    def view(self, **how: Any) -> KubernetesWorkload:
        entry = WorkloadEntry.model_validate({"access": {"kind": "same"}})
        return KubernetesWorkload(cast("Any", self), entry, plenty, **how)


def test_a_pod_in_both_lists_counts_once_and_where_it_runs() -> None:
    pages = Pages([waiting("web-1"), waiting("web-2")], [pod_object("web-1", spec={"nodeName": "n1"})])
    found = {pod.name: pod for pod in pages.view().read(dict, judges_nodes=False).pods}
    assert {name: pod.node for name, pod in found.items()} == {"web-1": "n1", "web-2": ""}
    assert found["web-1"].unscheduled is None
    assert pages.asked == ["pods", "pods", "nodes", "daemonsets"]


@pytest.mark.parametrize(
    "spec",
    [
        {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]},
        {"schedulingGroup": {"podGroupName": "g"}},
        {"workloadRef": {"name": "w", "podGroup": "g"}},
        {"schedulerName": "volcano"},
        {"volumes": [{"name": "d", "awsElasticBlockStore": {"volumeID": "v"}}]},
        {"volumes": [{"name": "d", "rbd": {"image": "i"}}]},
        {"fieldOfTomorrow": True},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_unplaceable_needs_are_read_of_assigned_pods(spec: dict[str, Any]) -> None:
    there = [pod_object("plain", spec={"nodeName": "n1"}), pod_object("odd", spec={"nodeName": "n1", **spec})]
    read = Pages([], there).view().read(dict, judges_nodes=True)
    assert {pod.name: unplaceable(pod) is None for pod in read.pods} == {"plain": True, "odd": False}


def test_volume_attachments_are_read_where_a_pod_has_a_volume() -> None:
    source = {"persistentVolumeName": "pv"}
    items = [
        {"metadata": {"name": "a"}, "spec": {"attacher": "d", "nodeName": "n1", "source": source}},
        {"metadata": {"name": "b"}, "spec": {"attacher": "d", "nodeName": "n1", "source": {"inlineVolumeSpec": {}}}},
    ]
    claim = {"name": "d", "persistentVolumeClaim": {"claimName": "pg"}}
    pages = Pages([waiting("db", spec={"volumes": [claim]})], [], volumeattachments=items)
    found = pages.view().read(dict, judges_nodes=True).attachments
    assert [(each.node, each.driver, each.volume) for each in found] == [("n1", "d", "pv"), ("n1", "d", "")]
    without = Pages([waiting("web")], [], volumeattachments=items)
    without.view().read(dict, judges_nodes=True)
    assert "volumeattachments" not in without.asked


@pytest.mark.parametrize(
    "held",
    [
        pod_object("new", status={"phase": "Pending"}),
        waiting("going", metadata={"deletionTimestamp": "2026-01-15T11:59:00Z"}),
    ],
    ids=["not tried yet", "going"],
)
def test_without_pods_that_wait_only_pods_are_listed(held: dict[str, Any]) -> None:
    def machines() -> dict[str, MachineNode]:
        raise AssertionError("not needed")

    pages = Pages([held], [pod_object("web", spec={"nodeName": "n1"})])
    workload = pages.view().read(machines, judges_nodes=False)
    assert (len(workload.pods), workload.nodes, pages.asked) == (1, (), ["pods"])


def test_the_shipped_role_grants_exactly_what_a_full_check_lists() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    claim = {"name": "d", "persistentVolumeClaim": {"claimName": "pg"}}
    pages = Pages([waiting("db", spec={"affinity": affinity, "volumes": [claim]})], [])
    pages.view().read(dict, judges_nodes=True)
    text = (ROOT / "deploy" / "kubernetes" / "rbac-workload.yaml").read_text(encoding="utf-8")
    lists, by_name = (each["rules"] for each in yaml.safe_load_all(text) if "rules" in each)
    assert {resource for rule in lists for resource in rule["resources"]} == set(pages.asked)
    assert {verb for rule in lists for verb in rule["verbs"]} == {"list"}
    named = {(*rule["resources"], *rule["resourceNames"], *rule["verbs"]) for rule in by_name}
    assert named == {(*path.split("/")[-2:], "get") for path in pages.got}


LEASE = {"spec": {"renewTime": "2026-01-15T11:59:58.123456Z"}}
STATUS = {
    "metadata": {
        "annotations": {"cluster-autoscaler.kubernetes.io/last-updated": "2026-01-15 13:59:59.123456789 +0200 CEST"}
    }
}


@pytest.mark.parametrize(
    ("objects", "second"),
    [
        ({}, None),
        ({"cluster-autoscaler": LEASE}, 58),
        ({"cluster-autoscaler-status": STATUS}, 59),
        ({"cluster-autoscaler": LEASE, "cluster-autoscaler-status": STATUS}, 59),
        ({"cluster-autoscaler": {"spec": {"renewTime": "soon"}}, "cluster-autoscaler-status": {"metadata": {}}}, None),
        ({"cluster-autoscaler": {"spec": {"renewTime": "2026-13-45T99:99:99Z"}}}, None),
        ({"cluster-autoscaler": {"spec": {"renewTime": 7}}}, None),
    ],
)
def test_a_running_autoscaler_is_known_by_lease_or_status(objects: dict[str, Any], second: int | None) -> None:
    pages = Pages([waiting("web")], [])
    pages.objects = objects
    found = pages.view().read(dict, judges_nodes=False)
    assert found.autoscaler_sought
    expected = None if second is None else datetime(2026, 1, 15, 11, 59, second, tzinfo=UTC)
    assert found.autoscaler_at == expected


def test_openshifts_autoscaler_has_its_lease_in_another_namespace() -> None:
    pages = Pages([waiting("web")], [])
    pages.objects = {"/apis/coordination.k8s.io/v1/namespaces/openshift-machine-api/leases/cluster-autoscaler": LEASE}
    assert pages.view(flavours=["cluster-api"]).autoscaler_at() is None
    assert pages.view(flavours=["openshift"]).autoscaler_at() is not None
    pages.got.clear()
    pages.view(flavours=["openshift"]).autoscaler_at()
    folder = ROOT / "deploy" / "kubernetes"
    may = {
        (role["metadata"]["namespace"], *rule["resources"], *rule["resourceNames"], *rule["verbs"])
        for file in (folder / "rbac-workload.yaml", folder / "openshift" / "rbac-workload-readers.yaml")
        for role in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        if role["kind"] == "Role"
        for rule in role["rules"]
    }
    assert may == {(*path.split("/")[-3:], "get") for path in pages.got}


def test_a_large_cluster_waits_until_it_is_checked_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BESIDE_OTHERS", 2)
    pages = Pages([waiting(f"web-{number}") for number in range(3)], [])
    with pytest.raises(TooLargeError, match="while other clusters are checked too"):
        pages.view(alone=False).read(dict, judges_nodes=True)
    assert len(pages.view().read(dict, judges_nodes=True).pods) == 3


@pytest.mark.parametrize("joined", [True, False])
def test_a_cluster_without_nodes_of_our_machines_is_another_one(joined: bool) -> None:
    machine = Machine(name="m1", uid="u1", has_node=joined, created_at=datetime(2026, 1, 15, tzinfo=UTC))
    pages = Pages([waiting("web")], [], nodes=[{"metadata": {"name": "control-plane"}}])
    machines = {"aws:///a/i-1": MachineNode(group=key("a"), machine=machine)}
    read = partial(pages.view().read, lambda: machines, judges_nodes=True)
    if not joined:
        assert [node.group for node in read().nodes] == [None]
        return
    with pytest.raises(ClusterUnavailableError, match="none of its 1 nodes is a machine"):
        read()


def test_a_node_whose_machine_is_being_deleted_is_being_deleted() -> None:
    nodes = [{"metadata": {"name": "n1"}, "spec": {"providerID": "aws:///a/i-1"}}]
    machines = {"aws:///a/i-1": MachineNode(group=key("a"), deleting=True)}
    pages = Pages([waiting("web")], [], nodes=nodes)
    (found,) = pages.view().read(lambda: machines, judges_nodes=True).nodes
    assert (found.group, found.deleting) == (key("a"), True)


def daemon_set(name: str, **metadata: Any) -> dict[str, Any]:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1500m"}}}]
    spec = {"template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers}}}
    return {"metadata": {"name": name, "namespace": "kube-system", **metadata}, "spec": spec}


def test_daemon_sets_are_read_as_pods() -> None:
    going = daemon_set("going", deletionTimestamp="2026-01-15T12:00:00Z")
    pages = Pages([waiting("web-1")], [], daemonsets=[daemon_set("agent"), going])
    (found,) = pages.view().read(dict, judges_nodes=False).daemon_sets
    assert (str(found), found.owner) == ("kube-system/agent", Owner("DaemonSet", "agent"))
    assert request_of(found)["cpu"] == 1500


def test_without_the_right_to_list_daemon_sets_the_rest_is_read() -> None:
    class Refusing(Pages):
        def each_page(self, path: str, *args: Any, **rest: Any) -> Iterator[bytes]:
            if path.endswith("daemonsets"):
                raise AccessRefusedError("403")
            return super().each_page(path, *args, **rest)

    found = Refusing([waiting("web-1")], []).view().read(dict, judges_nodes=True)
    assert (len(found.pods), found.daemon_sets) == (1, ())


def test_a_drain_tells_which_node_is_not_valid() -> None:
    pages = Pages([], [], nodes=[{"metadata": {"name": "n1"}, "spec": {}}, {"metadata": {"name": "n2"}, "spec": 5}])
    drainer = NodeDrainer(pages.view(), plenty)
    with pytest.raises(ClusterUnavailableError, match=r"^GET /api/v1/nodes of blue: .*items\[1\]\.spec"):
        drainer.release(["i-1"])
