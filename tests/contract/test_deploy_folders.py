"""The applied folders of deploy/kubernetes: the rights of their two users on the objects of their ecosystem."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from deploy import rights
from evenkeel.adapters.kubernetes.flavours import CLUSTER_API
from sandbox.admission import FILE
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.real import RealKubernetesAPI, find_assets
from tests.contract.test_owners import APPLY, objects_of

Api = KubernetesAPI | RealKubernetesAPI
Json = dict[str, Any]
#: the ecosystem with the objects of each folder
FOLDERS = {
    **{folder: folder for folder in rights.FOLDERS},
    "gardener": "gardener-plain",
    "cluster-api": "cluster-class",
    "openshift": "openshift-plain",
}
EVERY_FOLDER = pytest.mark.parametrize(("folder", "kind"), FOLDERS.items(), ids=FOLDERS)
#: user -> files; by their names, the policies apply to the first and to the switched, not to the readers
USERS = {
    **{f"evenkeel:{folder}": (folder, "rbac.yaml") for folder in FOLDERS},
    **{f"reader-of-{folder}": (folder, "rbac-readers.yaml") for folder in FOLDERS},
    "evenkeel:topology": ("cluster-api", "rbac-topology.yaml"),
}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
NOTE = {"metadata": {"annotations": {"evenkeel.dev/decision": "x"}}}


def documents(folder: str, file: str) -> list[Json]:
    return list(yaml.safe_load_all((FILE.parent / folder / file).read_text(encoding="utf-8")))


def role_of(user: str) -> Json:
    return next(item for item in documents(*USERS[user]) if item["kind"] == "ClusterRole")


def apply_all(real: RealKubernetesAPI) -> None:
    """Apply all shipped files as an administrator, and bind each role to its user by name."""
    for name in ("garden-my-project", "openshift-machine-api"):
        real.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    known = {item["name"] for item in real.call("GET", "/apis/admissionregistration.k8s.io/v1")["resources"]}
    for file in sorted(FILE.parent.glob("*/[ar]*.yaml")):
        for item in documents(file.parent.name, file.name):
            plural = f"{item['kind'].lower()}s".replace("policys", "policies")
            if item["apiVersion"].startswith("rbac"):
                inside = item["metadata"].get("namespace")
                real.call("POST", f"{RBAC}/{f'namespaces/{inside}/' if inside else ''}{plural}", item)
            elif plural in known and file.name != "admission-policy-fence.yaml":
                real.call("POST", f"/apis/admissionregistration.k8s.io/v1/{plural}", item)
    for index, user in enumerate(USERS):
        role = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": role_of(user)["metadata"]["name"],
        }
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
        body = {"metadata": {"name": f"by-name-{index}"}, "roleRef": role, "subjects": [subject]}
        real.call("POST", f"{RBAC}/clusterrolebindings", body)


@pytest.fixture(scope="module", params=["sandbox", *(["real"] if find_assets() else [])])
def kube_api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Yield a server on which every folder has been applied."""
    if request.param == "sandbox":
        with KubernetesAPI(users={user: Rule.of_role(role_of(user)) for user in USERS}) as api:
            yield api
    else:
        with RealKubernetesAPI(users=tuple(USERS)) as real:
            apply_all(real)
            yield real


def code_of(call: Callable[[], Any]) -> int:
    """Return 200, or the code of the refusal."""
    try:
        call()
    except ApiException as error:
        return int(error.status)
    return 200


def knows_policies(api: Api) -> bool:
    """Return True if the server has the applied policies."""
    if isinstance(api, KubernetesAPI):
        return False
    known = {item["name"] for item in api.call("GET", "/apis/admissionregistration.k8s.io/v1")["resources"]}
    return "validatingadmissionpolicies" in known


class Scene:
    """The objects of an ecosystem in one namespace, and calls on them by one user."""

    def __init__(self, connect: Any, namespace: str, kind: str) -> None:
        self.admin, self.connect, self.namespace = client.CustomObjectsApi(connect()), connect, namespace
        self.kinds: dict[tuple[str, str], tuple[str, str]] = {}  # version, and the name of an object
        for plural, version, namespaced, item in objects_of(kind):
            group = item["apiVersion"].partition("/")[0]
            metadata = {
                key: item["metadata"][key] for key in ("labels", "annotations", "name") if key in item["metadata"]
            }
            if namespaced:
                body = {**item, "metadata": metadata}
                self.admin.create_namespaced_custom_object(group, version, namespace, plural, body)
                self.kinds[group, plural] = (version, metadata["name"])

    def code(self, user: str, verb: str, group: str, plural: str, body: Json | None = None) -> int:
        custom = client.CustomObjectsApi(self.connect(user))
        version, name = self.kinds[group, plural]
        where = (group, version, self.namespace, plural)
        calls: dict[str, Callable[[], Any]] = {
            "get": lambda: custom.get_namespaced_custom_object(*where, name),
            "list": lambda: custom.list_namespaced_custom_object(*where),
            "patch": lambda: custom.patch_namespaced_custom_object(*where, name, body or NOTE),
            "delete": lambda: custom.delete_namespaced_custom_object(*where, name),
            "create": lambda: custom.create_namespaced_custom_object(*where, {"metadata": {"name": "new"}}),
        }
        return code_of(calls[verb])

    def wait(self, user: str, group: str, plural: str) -> None:
        """Wait until the server uses a new binding."""
        for _ in range(1000):
            if self.code(user, "list", group, plural) == 200:
                return


def granted(user: str) -> set[tuple[str, str, str]]:
    return {
        (verb, group, plural)
        for rule in role_of(user)["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for plural in rule["resources"]
    }


@EVERY_FOLDER
def test_each_user_has_the_rights_of_its_file_and_no_others(
    connect: Any, namespace: str, folder: str, kind: str
) -> None:
    scene = Scene(connect, namespace, kind)
    listed = 0
    for user in (f"evenkeel:{folder}", f"reader-of-{folder}"):
        rights = granted(user)
        group, plural = next((group, plural) for verb, group, plural in rights if (group, plural) in scene.kinds)
        scene.wait(user, group, plural)
        for group, plural in scene.kinds:
            for verb in ("get", "list", "patch", "create", "delete"):
                allowed = (verb, group, plural) in rights
                assert (scene.code(user, verb, group, plural) == 200) == allowed, (user, verb, plural)
                listed += allowed and verb == "list"
    assert listed >= 4, "node groups and machines, by both"


def test_only_the_topology_role_may_write_a_topology(connect: Any, namespace: str) -> None:
    scene = Scene(connect, namespace, "cluster-class")
    clusters = ("cluster.x-k8s.io", "clusters")
    scene.wait("evenkeel:cluster-api", *clusters)
    assert scene.code("evenkeel:cluster-api", "patch", *clusters) == 403
    codes = (scene.code("evenkeel:topology", "patch", *clusters) for _ in range(1000))
    assert 200 in codes, "a moment after the binding"
    assert scene.code("evenkeel:topology", "list", *clusters) == 403


def test_the_topology_role_applies_bounds_and_no_other_field(kube_api: Api, connect: Any, namespace: str) -> None:
    scene = Scene(connect, namespace, "cluster-class")
    clusters = ("cluster.x-k8s.io", "clusters")
    scene.wait("evenkeel:cluster-api", *clusters)
    version, name = scene.kinds[clusters]
    where = (clusters[0], version, namespace, clusters[1], name)
    found = scene.admin.get_namespaced_custom_object(*where)
    first = found["spec"]["topology"]["workers"]["machineDeployments"][0]

    def applied(user: str, **entry: Any) -> int:
        spec = {"topology": {"workers": {"machineDeployments": [{"name": first["name"], **entry}]}}}
        metadata = {"name": name, "namespace": namespace, "uid": found["metadata"]["uid"]}
        body = {"apiVersion": found["apiVersion"], "kind": "Cluster", "metadata": metadata, "spec": spec}
        custom = client.CustomObjectsApi(connect(user))
        return code_of(
            lambda: custom.patch_namespaced_custom_object(
                *where, body, field_manager="evenkeel", force=True, _content_type=APPLY
            )
        )

    bounds = {"metadata": {"annotations": {CLUSTER_API.min_key: "0", CLUSTER_API.max_key: "4", "evenkeel.dev/x": "y"}}}
    assert applied("evenkeel:cluster-api", **bounds) == 403
    assert 200 in (applied("evenkeel:topology", **bounds) for _ in range(1000)), "a moment after the binding"
    after = scene.admin.get_namespaced_custom_object(*where)
    assert after["spec"]["topology"]["workers"]["machineDeployments"][0]["metadata"]["annotations"].items() >= (
        bounds["metadata"]["annotations"].items()
    )
    if knows_policies(kube_api):
        assert applied("evenkeel:topology", **bounds, **{"class": "another"}) in (403, 422)
        bad = {"metadata": {"annotations": {**bounds["metadata"]["annotations"], CLUSTER_API.max_key: "many"}}}
        assert applied("evenkeel:topology", **bad) in (403, 422)


@EVERY_FOLDER
def test_objects_of_other_ecosystems_are_out_of_reach(connect: Any, namespace: str, folder: str, kind: str) -> None:
    scene = Scene(connect, namespace, kind)
    shared = {("cluster-api", "hypershift"), ("hypershift", "cluster-api")}
    for other in FOLDERS:
        if other != folder and (folder, other) not in shared:
            for group, plural in scene.kinds:
                assert scene.code(f"evenkeel:{other}", "list", group, plural) == 403, (other, plural)


@EVERY_FOLDER
def test_a_server_that_knows_the_policies_refuses_a_field_that_is_not_ours(
    kube_api: Api, connect: Any, namespace: str, folder: str, kind: str
) -> None:
    if isinstance(kube_api, KubernetesAPI):
        pytest.skip("the simulated API has no admission policies; sandbox/admission.py judges from outside")
    if not knows_policies(kube_api):
        pytest.skip("this API server is older than ValidatingAdmissionPolicy (Kubernetes 1.30)")
    scene = Scene(connect, namespace, kind)
    user = f"evenkeel:{folder}"
    for verb, group, plural in granted(user):
        if verb == "patch" and (group, plural) in scene.kinds:
            foreign = {"metadata": {"labels": {"theirs": "changed"}}}
            assert scene.code(user, "patch", group, plural, foreign) in (403, 422), plural
