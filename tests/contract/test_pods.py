"""Pods, their evictions and their selectors on the simulated API and on a real kube-apiserver."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from tests.contract.test_owners import refused

Json = dict[str, Any]


class Pods:
    """Pods and disruption budgets of one namespace, as an administrator."""

    def __init__(self, api: client.ApiClient, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.core, self.custom = client.CoreV1Api(api), client.CustomObjectsApi(api)
        groups = {group.name: group for group in client.ApisApi(api).get_api_versions().groups}
        served = {entry.version for entry in groups["policy"].versions}
        self.version = "v1" if "v1" in served else "v1beta1"  # stable since Kubernetes 1.21
        self.budgets = ("policy", self.version, namespace, "poddisruptionbudgets")

    def make(self, name: str, *, phase: str = "", ready: bool = True, **spec: Any) -> Json:
        whole = {"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": False, **spec}
        made = self.call("POST", "pods", {"metadata": {"name": name, "labels": {"app": "web"}}, "spec": whole})
        if phase:
            conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
            status = {"status": {"phase": phase, "conditions": conditions}}
            self.core.patch_namespaced_pod_status(name, self.namespace, status)
        return made

    def runs(self, name: str, **spec: Any) -> Json:
        return self.make(name, phase="Running", nodeName="node-of-nobody", **spec)

    def get(self, name: str) -> Json:
        return self.call("GET", f"pods/{name}")

    def names(self, **how: str) -> set[str]:
        found = self.core.list_namespaced_pod(self.namespace, **how).items
        return {item.metadata.name for item in found}

    def delete(self, name: str, **how: Any) -> None:
        self.call("DELETE", f"pods/{name}", how)

    def budget(self, name: str, allowed: int, *, counted: bool = True, **status: int) -> None:
        spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
        body = {"apiVersion": f"policy/{self.version}", "kind": "PodDisruptionBudget", "spec": spec}
        made = self.custom.create_namespaced_custom_object(*self.budgets, {**body, "metadata": {"name": name}})
        if counted:
            known = {"desiredHealthy": 1, "currentHealthy": 1 + allowed, "expectedPods": 1 + allowed, **status}
            whole = {"observedGeneration": made["metadata"]["generation"], "disruptionsAllowed": allowed, **known}
            self.custom.patch_namespaced_custom_object_status(*self.budgets, name, {"status": whole})

    def spare(self, name: str) -> int:
        return int(self.custom.get_namespaced_custom_object(*self.budgets, name)["status"]["disruptionsAllowed"])

    def evict(self, name: str, *, named: str | None = None, **how: Any) -> Json:
        kind = {"apiVersion": f"policy/{self.version}", "kind": "Eviction"}
        metadata = {"name": name if named is None else named, "namespace": self.namespace}
        return self.call("POST", f"pods/{name}/eviction", {**kind, "metadata": metadata, **how})

    def call(self, method: str, path: str, body: Json | None = None) -> Json:
        sent = self.api.param_serialize(
            method=method,
            resource_path=f"/api/v1/namespaces/{self.namespace}/{path}",
            header_params={"Accept": "application/json", "Content-Type": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
        )
        answer = self.api.call_api(*sent)
        text = answer.read()
        if answer.status >= 400:
            raise ApiException(http_resp=answer, body=text.decode(), data=None)
        return dict(json.loads(text))


@pytest.fixture
def pods(connect: Callable[..., client.ApiClient], namespace: str) -> Iterator[Pods]:
    made = Pods(connect(), namespace)
    yield made
    for name in made.names():
        made.delete(name, gracePeriodSeconds=0)


class TestPods:
    def test_a_new_one_is_pending_and_has_what_a_scheduler_and_a_kubelet_read(self, pods: Pods) -> None:
        made = pods.make("new")
        assert made["status"]["phase"] == "Pending"
        assert made["spec"]["schedulerName"] == "default-scheduler"
        assert made["spec"]["terminationGracePeriodSeconds"] == 30
        assert made["spec"]["restartPolicy"] == "Always"
        assert "nodeName" not in made["spec"]

    def test_one_without_a_node_is_gone_at_once_and_one_with_a_node_has_its_grace(self, pods: Pods) -> None:
        pods.make("waits")
        pods.runs("runs", terminationGracePeriodSeconds=60)
        pods.delete("waits")
        pods.delete("runs")
        assert pods.names() == {"runs"}
        metadata = pods.get("runs")["metadata"]
        assert (metadata["deletionGracePeriodSeconds"], "deletionTimestamp" in metadata) == (60, True)

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            ("spec.nodeName=", {"waits"}),
            ("spec.nodeName!=", {"runs", "ended"}),
            ("spec.nodeName=node-of-nobody", {"runs", "ended"}),
            ("status.phase=Running", {"runs"}),
            ("status.phase!=Succeeded,status.phase!=Failed", {"runs", "waits"}),
            ("spec.schedulerName=default-scheduler,metadata.name!=runs", {"waits", "ended"}),
        ],
    )
    def test_field_selectors_choose(self, pods: Pods, selector: str, expected: set[str]) -> None:
        pods.make("waits")
        pods.runs("runs")
        pods.make("ended", phase="Succeeded", nodeName="node-of-nobody")
        assert pods.names(field_selector=selector) == expected

    def test_nodes_are_chosen_by_whether_they_are_cordoned(self, pods: Pods) -> None:
        names = {cordoned: f"{pods.namespace}-{cordoned}".lower() for cordoned in (False, True)}
        for cordoned, name in names.items():
            pods.core.create_node({"metadata": {"name": name}, "spec": {"unschedulable": cordoned}})
        try:
            items = pods.core.list_node(field_selector="spec.unschedulable=true").items
            assert {item.metadata.name for item in items} & set(names.values()) == {names[True]}
        finally:
            for name in names.values():
                pods.core.delete_node(name, _preload_content=False)


class TestEviction:
    @pytest.mark.parametrize(("options", "left"), [({}, {"a"}), ({"deleteOptions": {"gracePeriodSeconds": 0}}, set())])
    def test_without_a_budget_the_pod_goes_with_its_grace(self, pods: Pods, options: Json, left: set[str]) -> None:
        pods.runs("a")
        assert pods.evict("a", **options)["status"] == "Success"
        assert pods.names() == left
        assert all("deletionTimestamp" in pods.get(name)["metadata"] for name in left)

    def test_each_eviction_costs_the_budget_one_until_it_has_none(self, pods: Pods) -> None:
        for name in "abc":
            pods.runs(name)
        pods.budget("web", 2)
        pods.evict("a")
        assert pods.spare("web") == 1
        pods.evict("a")
        assert pods.spare("web") == 1, "it goes already"
        pods.evict("b")
        assert pods.spare("web") == 0
        code, answer = refused(lambda: pods.evict("c"))
        assert (code, answer["reason"]) == (429, "TooManyRequests")
        assert answer["message"] == "Cannot evict pod as it would violate the pod's disruption budget."
        (cause,) = answer["details"]["causes"]
        assert cause["reason"] == "DisruptionBudget"
        assert cause["message"].startswith("The disruption budget web needs 1 healthy pods and has 3 currently")
        assert "deletionTimestamp" not in pods.get("c")["metadata"]

    def test_a_budget_without_a_count_lets_no_pod_go_yet(self, pods: Pods) -> None:
        pods.runs("a")
        pods.budget("web", 1, counted=False)
        code, answer = refused(lambda: pods.evict("a"))
        (cause,) = answer["details"]["causes"]
        assert (code, cause["message"]) == (429, "The disruption budget web is still being processed by the server.")

    def test_a_pending_pod_goes_without_the_budget(self, pods: Pods) -> None:
        pods.make("waits")
        pods.budget("web", 0)
        pods.evict("waits")
        assert pods.names() == set()

    def test_two_budgets_for_one_pod_are_an_error(self, pods: Pods) -> None:
        pods.runs("a")
        for name in ("one", "two"):
            pods.budget(name, 1)
        code, answer = refused(lambda: pods.evict("a"))
        assert code == 500
        assert "more than one PodDisruptionBudget" in answer["message"]
