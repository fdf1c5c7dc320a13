"""The workload view on a Kubernetes API, as the user of deploy/kubernetes/rbac-workload.yaml."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.client import api as adapter_client
from evenkeel.adapters.kubernetes.read import workload as adapter_workload
from evenkeel.application.errors import AccessError, ClusterUnavailableError, TooLargeError
from evenkeel.application.rebalancing.ports import WorkloadCluster
from evenkeel.domain.model.observations import MachineNode
from evenkeel.domain.model.workload import Node, Pod, Workload
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.real import RealKubernetesAPI, find_assets
from sandbox.template import ROOT
from tests.builders import key
from tests.fakes import FakeClock, plenty, record

Api = KubernetesAPI | RealKubernetesAPI
Json = dict[str, Any]
FILE = ROOT / "deploy" / "kubernetes" / "rbac-workload.yaml"
ROLE, BINDING, BY_NAME, BINDING_BY_NAME = yaml.safe_load_all(FILE.read_text(encoding="utf-8"))
RULES = [*Rule.of_role(ROLE), *Rule.of_role(BY_NAME)]
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture(scope="module", params=["sandbox", *(["real"] if find_assets() else [])])
def kube_api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Yield a server with rbac-workload.yaml, on which `evenkeel` is bound to its role by name."""
    if request.param == "sandbox":
        with KubernetesAPI(users={"evenkeel": RULES, "nobody": []}) as api:
            yield api
    else:
        with RealKubernetesAPI() as real:
            real.call("POST", f"{RBAC}/clusterroles", ROLE)
            real.call("POST", f"{RBAC}/clusterrolebindings", BINDING)
            user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "evenkeel"}
            named = {**BINDING, "metadata": {"name": "evenkeel-by-name"}, "subjects": [user]}
            real.call("POST", f"{RBAC}/clusterrolebindings", named)
            where = f"{RBAC}/namespaces/kube-system"
            real.call("POST", f"{where}/roles", BY_NAME)
            real.call("POST", f"{where}/rolebindings", {**BINDING_BY_NAME, "subjects": [user]})
            yield real


class Scene:
    """Objects of a test, created by an administrator and deleted at its end, and the view of `evenkeel`."""

    def __init__(self, api: Api, admin: client.ApiClient, namespace: str) -> None:
        self.api, self.namespace = api, namespace
        self.core, self.storage = client.CoreV1Api(admin), client.StorageV1Api(admin)
        self.admin = admin
        self.user = "evenkeel"
        self.record: Any = record(demand="advise", workload={"access": {"kind": "same"}})
        self.made: list[Callable[[], object]] = []

    def pod(self, name: str, node: str = "", phase: str = "", **spec: Any) -> None:
        body = {
            "metadata": {"name": name, "labels": {"app": "web"}},
            "spec": {
                "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "250m"}}}],
                "automountServiceAccountToken": False,
                **({"nodeName": node} if node else {}),
                **spec,
            },
        }
        self.core.create_namespaced_pod(self.namespace, body)
        if phase:
            self.core.patch_namespaced_pod_status(name, self.namespace, {"status": {"phase": phase}})
        self.made.append(
            lambda: self.core.delete_namespaced_pod(
                name, self.namespace, grace_period_seconds=0, _preload_content=False
            )
        )

    def waits(self, name: str) -> None:
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        self.core.patch_namespaced_pod_status(name, self.namespace, {"status": {"conditions": [condition]}})

    def node(self, name: str) -> None:
        labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": "a"}
        self.core.create_node({"metadata": {"name": name, "labels": labels}, "spec": {"providerID": f"x:///{name}"}})
        size = {"cpu": "4", "memory": "16Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True"}
        status = {"capacity": size, "allocatable": size, "conditions": [ready]}
        self.core.patch_node_status(name, {"status": status})
        self.made.append(lambda: self.core.delete_node(name, _preload_content=False))

    def budget(self, body: Json) -> None:
        """Create a budget in the version that the server has: they are stable since Kubernetes 1.21."""
        versions = client.ApisApi(self.admin).get_api_versions().groups
        served = {entry.version for group in versions if group.name == "policy" for entry in group.versions}
        version = "v1" if "v1" in served else "v1beta1"
        custom = client.CustomObjectsApi(self.admin)
        custom.create_namespaced_custom_object("policy", version, self.namespace, "poddisruptionbudgets", body)

    def open(self, clusters: RecordedClusters | None = None, **how: bool) -> WorkloadCluster:
        clusters = clusters or self.clusters()
        clusters.open(self.record, plenty)
        return clusters.open_workload(self.record, plenty, **how)

    def clusters(self) -> RecordedClusters:
        return RecordedClusters(
            session=None,
            secret=lambda name, fresh: json.dumps(self.api.kubeconfig(self.user)),
            clock=FakeClock(),
            allow_loopback=True,
        )

    def read(self, machines: Mapping[str, MachineNode] | None = None, *, judges_nodes: bool = True) -> Workload:
        return self.open().read(lambda: machines or {}, judges_nodes=judges_nodes)

    def mine(self, found: Workload) -> dict[str, Pod]:
        return {pod.name: pod for pod in found.pods if pod.namespace == self.namespace}

    def reset(self) -> None:
        for undo in reversed(self.made):
            undo()
        self.made.clear()


@pytest.fixture
def scene(kube_api: Api, connect: Callable[..., client.ApiClient], namespace: str) -> Iterator[Scene]:
    made = Scene(kube_api, connect(), namespace)
    yield made
    made.reset()


def nodes(found: Workload) -> dict[str, Node]:
    return {node.name: node for node in found.nodes}


class TestReading:
    def test_pods_and_nodes_come_as_the_server_shows_them(self, scene: Scene) -> None:
        scene.node("n1")
        scene.pod("runs", "n1", "Running", priority=None, tolerations=[{"operator": "Exists"}])
        scene.pod("waits", nodeSelector={"disk": "ssd"})
        scene.waits("waits")
        scene.pod("over", "n1", "Succeeded")
        found = scene.read({"n1": MachineNode(group=key("a"))})
        pods = scene.mine(found)
        assert pods.keys() == {"runs", "waits"}
        assert (pods["runs"].node, pods["runs"].phase, pods["runs"].unscheduled) == ("n1", "Running", None)
        assert pods["waits"].unscheduled is not None
        assert pods["waits"].unscheduled.reason == "Unschedulable"
        assert pods["waits"].needs.node_selector == {"disk": "ssd"}
        assert pods["waits"].needs.unread == ()
        assert str(pods["runs"].needs.resources.containers[0].requests["cpu"]) == "1/4"
        assert (nodes(found)["n1"].group, nodes(found)["n1"].ready) == (key("a"), True)

    @pytest.mark.parametrize("waits", [False, True])
    def test_running_pods_and_nodes_are_read_only_where_a_pod_waits(self, scene: Scene, waits: bool) -> None:
        scene.node("n1")
        scene.pod("runs", "n1", "Running")
        scene.pod("new")
        if waits:
            scene.waits("new")
        found = scene.read(judges_nodes=False)
        assert scene.mine(found).keys() == ({"runs", "new"} if waits else {"new"})
        assert ("n1" in nodes(found)) is waits
        assert waits or found.nodes == ()
        assert found.budgets == ()

    def test_an_autoscaler_at_work_is_seen_by_its_status(self, scene: Scene) -> None:
        assert scene.read().autoscaler_at is None
        said = {"cluster-autoscaler.kubernetes.io/last-updated": "2026-01-15 12:00:00.123456789 +0000 UTC"}
        body = {"metadata": {"name": "cluster-autoscaler-status", "annotations": said}}
        scene.core.create_namespaced_config_map("kube-system", body)
        scene.made.append(lambda: scene.core.delete_namespaced_config_map(body["metadata"]["name"], "kube-system"))
        assert scene.read().autoscaler_at == datetime(2026, 1, 15, 12, tzinfo=UTC)
        assert scene.clusters().autoscaler_at(scene.record, plenty) == datetime(2026, 1, 15, 12, tzinfo=UTC)

    @pytest.mark.parametrize("orders", [False, True])
    def test_missing_rights_are_named(self, scene: Scene, orders: bool) -> None:
        def reported() -> Sequence[str]:
            return scene.clusters().open_workload(scene.record, plenty).refused(orders=orders)

        assert reported() == []
        scene.user = "nobody"
        lists = [line for line in reported() if line.startswith("it may not list ")]
        assert len(lists) == sum(len(rule["resources"]) for rule in ROLE["rules"])
        signs = [
            "it may not get leases.coordination.k8s.io in namespace kube-system",
            "it may not get configmaps in namespace kube-system",
        ]
        assert [*lists, *signs] == reported() if orders else lists == reported()

    def test_pages_are_all_read_and_equal_pods_share_what_they_ask_for(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for number in range(7):
            scene.pod(f"p{number}")
        monkeypatch.setattr(adapter_client, "PAGE", 2)
        pods = scene.mine(scene.read())
        assert len(pods) == 7
        assert len({id(pod.needs) for pod in pods.values()}) == 1

    def test_volumes_are_read_where_a_pod_has_any(self, scene: Scene) -> None:
        scene.pod("plain")
        assert scene.read().claims == ()
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]
        volume = {
            "metadata": {"name": f"pv-{scene.namespace}"},
            "spec": {
                "capacity": {"storage": "1Gi"},
                "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "v"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            },
        }
        claim = {
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}},
                "volumeName": f"pv-{scene.namespace}",
                "storageClassName": "",
            },
        }
        scene.core.create_persistent_volume(volume)
        scene.core.create_namespaced_persistent_volume_claim(scene.namespace, claim)
        name = f"class-{scene.namespace}"
        scene.storage.create_storage_class(
            {"metadata": {"name": name}, "provisioner": "x", "volumeBindingMode": "WaitForFirstConsumer"}
        )
        scene.pod("db", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}])
        found = scene.read()
        (mine,) = (claim for claim in found.claims if claim.namespace == scene.namespace)
        assert mine.volume == f"pv-{scene.namespace}"
        (there,) = (volume for volume in found.volumes if volume.name == mine.volume)
        assert (there.driver, len(there.terms or ())) == ("ebs.csi.aws.com", 1)
        assert next(each for each in found.storage_classes if each.name == name).waits

    def test_limits_of_drivers_and_budgets_and_namespaces_where_they_count(self, scene: Scene) -> None:
        scene.node("n1")
        drivers = [{"name": "ebs.csi.aws.com", "nodeID": "i", "topologyKeys": [], "allocatable": {"count": 25}}]
        scene.storage.create_csi_node({"metadata": {"name": "n1"}, "spec": {"drivers": drivers}})
        scene.made.append(lambda: scene.storage.delete_csi_node("n1", _preload_content=False))
        budget = {
            "metadata": {"name": "web"},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
        }
        scene.budget(budget)
        scene.core.patch_namespace(scene.namespace, {"metadata": {"labels": {"team": "blue"}}})
        term = {"topologyKey": "zone", "labelSelector": {}, "namespaceSelector": {}}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        scene.pod("db", volumes=[{"name": "d", "persistentVolumeClaim": {"claimName": "x"}}])
        scene.pod("away", affinity={"podAntiAffinity": required})
        found = scene.read()
        assert nodes(found)["n1"].attach_limits == {"ebs.csi.aws.com": 25}
        (mine,) = (budget for budget in found.budgets if budget.namespace == scene.namespace)
        assert (mine.name, mine.allowed) == ("web", 0)
        (away,) = scene.mine(found)["away"].needs.anti_affinity
        if away.namespace_selector is not None:  # servers before Kubernetes 1.21 leave it out
            assert found.namespaces[scene.namespace]["team"] == "blue"


class TestRefusals:
    @pytest.mark.parametrize(("kind", "limit"), [("pods", 2), ("nodes", 1)])
    def test_beyond_a_limit_there_is_one_sentence_and_no_partial_view(
        self, scene: Scene, kind: str, limit: int
    ) -> None:
        for number in range(limit + 1):
            scene.pod(f"p{number}") if kind == "pods" else scene.node(f"n{number}")
        scene.record = record(demand="advise", workload={"access": {"kind": "same"}, f"most_{kind}": limit})
        with pytest.raises(TooLargeError, match=rf"it has more than {limit} {kind}: raise workload\.most_{kind}"):
            scene.read()

    def test_without_the_right_to_list_the_file_to_apply_is_named(self, scene: Scene) -> None:
        scene.user = "nobody"
        with pytest.raises(ClusterUnavailableError, match=r"apply deploy/kubernetes/rbac-workload\.yaml"):
            scene.read()

    def test_nodes_of_which_none_is_a_machine_are_those_of_another_cluster(self, scene: Scene) -> None:
        scene.node("n1")
        with pytest.raises(ClusterUnavailableError, match="none of its 1 nodes is a machine"):
            scene.read({"elsewhere": MachineNode(group=key("a"))})

    def test_the_role_lists_these_kinds_and_can_do_nothing_else(
        self, scene: Scene, connect: Callable[..., client.ApiClient]
    ) -> None:
        scene.pod("p")
        ours = client.CoreV1Api(connect("evenkeel"))
        ours.list_pod_for_all_namespaces()
        refused: list[Callable[[], object]] = [
            lambda: ours.read_namespaced_pod("p", scene.namespace),
            lambda: ours.delete_namespaced_pod("p", scene.namespace),
            lambda: ours.patch_namespaced_pod("p", scene.namespace, {"metadata": {"labels": {"x": "y"}}}),
            lambda: ours.create_namespaced_pod_eviction("p", scene.namespace, {"metadata": {"name": "p"}}),
            lambda: ours.list_secret_for_all_namespaces(),
            lambda: ours.list_config_map_for_all_namespaces(),
            lambda: ours.read_namespaced_config_map("cluster-autoscaler-status", scene.namespace),
            lambda: ours.read_namespaced_config_map("other", "kube-system"),
            lambda: ours.create_namespace({"metadata": {"name": "new"}}),
        ]
        for call in refused:
            with pytest.raises(ApiException) as caught:
                call()
            assert caught.value.status in (403, 404)


class TestAccess:
    """A workload cluster by a kubeconfig in a Secret of the cluster that holds the machine objects."""

    def secret(self, scene: Scene, data: Mapping[str, str]) -> None:
        body = {"metadata": {"name": "blue-kubeconfig"}, "data": dict(data)}
        scene.core.create_namespaced_secret(scene.namespace, body)
        access = {"kind": "secret", "name": "blue-kubeconfig", "namespace": scene.namespace}
        scene.record = record(demand="advise", workload={"access": access})

    def may_read_it(self, scene: Scene) -> None:
        """Create a Role for that one name, as in docs/guides/demand.md."""
        if isinstance(scene.api, RealKubernetesAPI):
            where = f"{RBAC}/namespaces/{scene.namespace}"
            rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["blue-kubeconfig"], "verbs": ["get"]}
            scene.api.call("POST", f"{where}/roles", {"metadata": {"name": "one"}, "rules": [rule]})
            subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "evenkeel"}
            role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"}
            body = {"metadata": {"name": "one"}, "roleRef": role, "subjects": [subject]}
            scene.api.call("POST", f"{where}/rolebindings", body)
        else:
            where = {"names": ("blue-kubeconfig",), "namespaces": (scene.namespace,)}
            scene.api.grant("evenkeel", [Rule(verbs=("get",), groups=("",), resources=("secrets",), **where)])

    def test_its_pods_are_read_with_the_rights_of_that_kubeconfig(self, scene: Scene) -> None:
        text = json.dumps(scene.api.kubeconfig("evenkeel")).encode()
        self.secret(scene, {"value": base64.b64encode(text).decode()})
        self.may_read_it(scene)
        scene.pod("p")
        for _ in range(100):  # until the server uses the binding
            try:
                assert scene.mine(scene.read()).keys() == {"p"}
                return
            except AccessError:
                continue
        raise AssertionError("never let in")

    def test_an_unusable_one_is_named_and_never_quoted(self, scene: Scene) -> None:
        self.secret(scene, {"other": base64.b64encode(b"hush").decode()})
        with pytest.raises((AccessError, ClusterUnavailableError)) as caught:
            scene.read()
        assert f"Secret {scene.namespace}/blue-kubeconfig" in str(caught.value)
        assert "hush" not in str(caught.value)


class TestSimulatedApiOnly:
    """Tests that count requests or need a fault."""

    @pytest.fixture
    def alone(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[KubernetesAPI, WorkloadCluster]]:
        """Yield a server with five pods, two to a page, and its view."""
        monkeypatch.setattr(adapter_client, "PAGE", 2)
        with KubernetesAPI(users={"evenkeel": RULES}) as api:
            for number in range(5):
                body = {"metadata": {"name": f"p{number}"}, "spec": {"containers": [], "nodeName": "n"}}
                api.store.create("pods", body, namespace="default")
            given = record(demand="advise", workload={"access": {"kind": "same"}})
            secret = json.dumps(api.kubeconfig("evenkeel"))
            clusters = RecordedClusters(
                session=None, secret=lambda name, fresh: secret, clock=FakeClock(), allow_loopback=True
            )
            clusters.open(given, plenty)
            yield api, clusters.open_workload(given, plenty)

    def test_pods_come_page_by_page_and_without_a_waiting_pod_in_one_request(
        self, alone: tuple[KubernetesAPI, WorkloadCluster]
    ) -> None:
        api, workload = alone
        before = len(api.requests)
        assert workload.read(dict, judges_nodes=False).pods == ()
        assert len(api.requests) == before + 1
        assert len(workload.read(dict, judges_nodes=True).pods) == 5
        assert sum(call.path == "/api/v1/pods" for call in list(api.requests)[before + 1 :]) == 3

    @pytest.mark.parametrize("fault", [{"status": 500}, {"status": 410}, {"cut_body": True}, {"status": 403}])
    def test_a_page_that_fails_is_no_partial_view(
        self, alone: tuple[KubernetesAPI, WorkloadCluster], fault: dict[str, Any]
    ) -> None:
        api, workload = alone
        api.faults.add(method="GET", path_contains="/api/v1/pods", query_contains="continue=", **fault)
        with pytest.raises(ClusterUnavailableError):
            workload.read(dict, judges_nodes=True)

    def test_an_invalid_object_is_no_partial_view_either(self, alone: tuple[KubernetesAPI, WorkloadCluster]) -> None:
        api, workload = alone
        api.store.create("pods", {"metadata": {"name": "odd"}, "spec": {"priority": "high"}}, namespace="default")
        with pytest.raises(ClusterUnavailableError, match=r"object . is not as its kind is: Expected `int"):
            workload.read(dict, judges_nodes=True)

    def test_too_many_different_pod_requirements_are_refused(
        self, alone: tuple[KubernetesAPI, WorkloadCluster], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        api, workload = alone
        monkeypatch.setattr(adapter_workload, "_MOST_KEPT", 2**20)
        for number in range(8):
            labels = {f"label-{number}-{i}": "x" * 63 for i in range(3_000)}
            api.store.create(
                "pods", {"metadata": {"name": f"odd{number}", "labels": labels}, "spec": {}}, namespace="default"
            )
        with pytest.raises(TooLargeError, match="more than 1 MiB of different pod requirements"):
            workload.read(dict, judges_nodes=True)
