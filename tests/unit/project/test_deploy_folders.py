"""One folder of manifests per ecosystem: least rights, limited field by field, and one file for each switch."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deploy.rights import FOLDERS as ECOSYSTEMS
from deploy.rights import files as rights_files
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from sandbox.admission import FILE, policies
from sandbox.kube.controllers.node_pools import node_pool_spec
from sandbox.kube.world import World
from sandbox.template import ROOT
from tests.unit.project.test_admission_policy import applies_to, documents, fenced, patchable, rights, rules, subjects

FOLDERS = sorted(path for path in FILE.parent.iterdir() if path.is_dir())
NAMES = [path.name for path in FOLDERS]
BASE = ["rbac.yaml", "rbac-readers.yaml", "admission-policy.yaml"]
Object = dict[str, Any]
Change = Callable[[Object], object]
EVERY_FOLDER = pytest.mark.parametrize("folder", FOLDERS, ids=NAMES)
ALL_APIS_TOO = pytest.mark.parametrize("folder", [FILE.parent, *FOLDERS], ids=["all", *NAMES])


@pytest.mark.parametrize(("path", "text"), rights_files().items())
def test_a_generated_file_is_up_to_date(path: str, text: str) -> None:
    assert (FILE.parent / path).read_text(encoding="utf-8") == text, "run: .venv/bin/python -m deploy.rights"


def test_each_flavour_has_a_folder_and_no_folder_is_left_over() -> None:
    assert sorted(ECOSYSTEMS) == NAMES
    assert {folder.flavour.name for folder in ECOSYSTEMS.values()} == set(FLAVOURS)


@ALL_APIS_TOO
def test_kubectl_apply_k_applies_the_rights_without_a_switch(folder: Path) -> None:
    (kustomization,) = documents(folder / "kustomization.yaml")
    assert kustomization == {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": BASE,
    }


@ALL_APIS_TOO
def test_no_right_is_granted_on_everything_and_only_events_are_created(folder: Path) -> None:
    core = {rule["resources"][0]: rule["verbs"] for rule in rules(folder / "rbac.yaml") if "" in rule["apiGroups"]}
    assert core == {"configmaps": ["get"], "events": ["create"]}
    for file in folder.glob("rbac*.yaml") if folder in FOLDERS else (folder / BASE[0], folder / BASE[1]):
        for rule in rules(file):
            words = {word for key in ("apiGroups", "resources", "verbs") for word in rule[key]}
            assert not words & {"*", "update", "delete", "deletecollection", "watch", "secrets", "pods"}
            assert "create" not in rule["verbs"] or rule["resources"] == ["events"]
            if rule["resources"] == ["configmaps"]:
                assert (rule["resourceNames"], rule["verbs"]) == (["cluster-autoscaler-status"], ["get"])


@ALL_APIS_TOO
def test_readers_may_list_what_writers_may_list_and_nothing_else(folder: Path) -> None:
    writer, reader = rights(folder / "rbac.yaml"), rights(folder / "rbac-readers.yaml")
    status = {("", "configmaps", "get")}
    assert reader == {right for right in writer if right[2] == "list"} | status
    (binding,) = (one for one in documents(folder / "rbac-readers.yaml") if one["kind"] == "ClusterRoleBinding")
    bound = [(subject["kind"], subject["name"]) for subject in binding["subjects"]]
    assert bound == [("Group", "evenkeel-readers"), ("ServiceAccount", "evenkeel-readers")]


@EVERY_FOLDER
def test_what_may_be_patched_is_fenced_and_a_switch_has_its_own_fence(folder: Path) -> None:
    assert fenced([folder / "admission-policy.yaml"]) == patchable([folder / "rbac.yaml"])
    for switch in folder.glob("rbac-*.yaml"):
        if not switch.name.endswith("readers.yaml"):
            fence = folder / switch.name.replace("rbac", "admission-policy")
            assert fenced([fence]) == patchable([switch]) != set()


@ALL_APIS_TOO
def test_every_policy_applies_to_all_that_rbac_lets_write_and_not_to_readers(folder: Path) -> None:
    writers = subjects(folder.glob("rbac*.yaml"))
    found = [policy for file in folder.glob("admission-policy*.yaml") for policy in policies(file).values()]
    assert {subject["kind"] for subject in writers} == {"Group", "ServiceAccount"}
    assert found
    for policy in found:
        assert all(applies_to(policy, subject) for subject in writers)
        assert not policy.applies_to("system:authenticated", "evenkeel-readers")


def test_names_of_objects_are_unique_over_all_folders() -> None:
    replaces = "admission-policy-fence.yaml"  # intended: it replaces a policy of the same name
    names = [
        (item["kind"], item["metadata"]["name"])
        for file in [*FILE.parent.glob("*.yaml"), *FILE.parent.glob("*/*.yaml")]
        if file.name not in (replaces, "kustomization.yaml")
        for item in documents(file)
    ]
    assert len(names) == len(set(names))


@EVERY_FOLDER
def test_rights_of_a_folder_are_those_for_all_apis_and_its_own_kinds(folder: Path) -> None:
    own = {
        "gardener": {("extensions.gardener.cloud", "clusters")},
        "hypershift": {("hypershift.openshift.io", "nodepools")},
    }
    beyond = rights(folder / "rbac.yaml") - rights(FILE.parent / "rbac.yaml")
    assert {(group, resource) for group, resource, _ in beyond} == own.get(folder.name, set())


def test_writing_a_cluster_topology_is_a_switch() -> None:
    folder = FILE.parent / "cluster-api"
    clusters = ("cluster.x-k8s.io", "clusters")
    assert (*clusters, "patch") not in rights(folder / "rbac.yaml")
    assert rights(folder / "rbac-topology.yaml") == {(*clusters, "patch")}
    assert clusters not in patchable([FILE.parent / "hypershift" / "rbac.yaml"])


def test_a_worker_and_a_cluster_autoscaler_are_never_written() -> None:
    never = {"workers", "clusterautoscalers", "hostedclusters", "deployments"}
    assert not {resource for _, resource in patchable(FILE.parent.glob("*/rbac*.yaml"))} & never


@pytest.mark.parametrize("name", ["rbac-shoots.yaml", "rbac-shoots-readers.yaml"])
def test_shoots_are_read_and_written_in_one_project_alone(name: str) -> None:
    file = FILE.parent / "gardener" / name
    role, binding = documents(file)
    assert (role["kind"], binding["kind"]) == ("Role", "RoleBinding")
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "garden-my-project"
    if "readers" in name:
        assert rights(file) == {("core.gardener.cloud", "shoots", "get")}
        assert {subject["name"] for subject in binding["subjects"]} == {"evenkeel-readers"}


def test_the_owners_objects_of_each_ecosystem_can_be_read() -> None:
    """A check may list every kind in which the sandbox's owners have their numbers."""
    owners = {
        "gardener-plain": {"workers.extensions.gardener.cloud", "clusters.extensions.gardener.cloud"},
        "cluster-class": {"clusters.cluster.x-k8s.io"},
        "hypershift": {"nodepools.hypershift.openshift.io"},
        "openshift-plain": {
            f"{kind}.autoscaling.openshift.io" for kind in ("machineautoscalers", "clusterautoscalers")
        },
    }
    folders = {"gardener-plain": "gardener", "cluster-class": "cluster-api", "openshift-plain": "openshift"}
    for kind, kinds in owners.items():
        store = World(clusters=[kind], settings=None).clusters[kind].store
        listed = rights(FILE.parent / folders.get(kind, kind) / "rbac-readers.yaml")
        for name in kinds:
            plural, _, group = name.partition(".")
            assert (group, plural, "list") in listed
            assert store.list(name)


def pool() -> Object:
    spec = node_pool_spec("p", "demo", "eu-central-1a", "AWS", "m5.xlarge")
    return {
        "metadata": {"name": "a", "labels": {"example.com/pool": "p"}, "annotations": {"owner": "team"}},
        "spec": spec | {"autoScaling": {"min": 1, "max": 4}},
        "status": {"replicas": 2},
    }


def shoot() -> Object:
    def worker(name: str) -> Object:
        return {"name": name, "minimum": 1, "maximum": 3, "machine": {"type": "m5"}, "zones": ["a", "b"]}

    return {
        "metadata": {"name": "main", "annotations": {"owner": "team"}},
        "spec": {"region": "r", "provider": {"type": "aws", "workers": [worker("p"), worker("q")]}},
    }


def spec(**changes: Any) -> Change:
    return lambda o: o["spec"].update(changes)


def note(key: str) -> Change:
    return lambda o: o["metadata"]["annotations"].update({key: "x"})


def workers(change: Callable[[list[Object]], object]) -> Change:
    return lambda o: change(o["spec"]["provider"]["workers"])


def fixed(o: Object) -> None:
    del o["spec"]["autoScaling"]
    o["spec"]["replicas"] = 0


NODE_POOLS, FENCE, SHOOTS = (
    ("hypershift/admission-policy.yaml", "evenkeel-hypershift-node-pools", pool),
    ("hypershift/admission-policy-fence.yaml", "evenkeel-hypershift-node-pools", pool),
    ("gardener/admission-policy-shoots.yaml", "evenkeel-gardener-shoots", shoot),
)
_COMMON: list[tuple[Any, Change, str]] = [
    (NODE_POOLS, spec(autoScaling={"min": 0, "max": 9}), ""),
    (NODE_POOLS, note("evenkeel.dev/decision"), ""),
    (NODE_POOLS, spec(autoScaling={"min": 5, "max": 4}), "1 or more and not below it"),
    (NODE_POOLS, spec(autoScaling={"min": 0, "max": 0}), "1 or more and not below it"),
    (NODE_POOLS, spec(autoScaling={"min": -1, "max": 4}), "0 or more"),
    (NODE_POOLS, spec(pausedUntil="true"), "spec but autoScaling"),
    (NODE_POOLS, spec(release={"image": "x/y"}), "spec but autoScaling"),
    (NODE_POOLS, note("owner"), "no annotations of a NodePool"),
    (NODE_POOLS, lambda o: o["metadata"]["labels"].clear(), "labels, finalizers"),
]
CASES: list[tuple[Any, Change, str]] = [
    *_COMMON,
    *((FENCE, change, says) for _, change, says in _COMMON),
    (NODE_POOLS, fixed, "spec but autoScaling"),
    (NODE_POOLS, lambda o: o["spec"].pop("autoScaling"), "switched on or off"),
    (FENCE, fixed, ""),
    (FENCE, lambda o: (fixed(o), o["spec"].update(replicas=-1)), "negative"),
    (FENCE, lambda o: o["spec"].pop("autoScaling"), "either autoScaling or replicas"),
    (SHOOTS, workers(lambda w: w[1].update(maximum=9)), ""),
    (SHOOTS, note("evenkeel.dev/decision"), ""),
    (SHOOTS, workers(lambda w: w[0].update(maximum=0)), "below its minimum"),
    (SHOOTS, workers(lambda w: w[0].update(minimum=0)), "but its maximum"),
    (SHOOTS, workers(lambda w: w[0].update(zones=["a"])), "but its maximum"),
    (SHOOTS, workers(lambda w: w[0].pop("machine")), "but its maximum"),
    (SHOOTS, workers(lambda w: w.pop()), "add, remove"),
    (SHOOTS, workers(lambda w: w.reverse()), "add, remove"),
    (SHOOTS, spec(hibernation={"enabled": True}), "but its workers"),
    (SHOOTS, lambda o: o["spec"]["provider"].update(type="gcp"), "provider but its workers"),
    (SHOOTS, note("gardener.cloud/operation"), "no annotations of a Shoot"),
]


@pytest.mark.parametrize(("which", "change", "says"), CASES)
def test_policies_of_node_pools_and_shoots_refuse_all_but_evenkeels_fields(
    which: tuple[str, str, Callable[[], Object]], change: Change, says: str
) -> None:
    file, name, made = which
    new = copy.deepcopy(made())
    change(new)
    refusals = policies(FILE.parent / file)[name].refusals(made(), new)
    assert bool(refusals) == bool(says), refusals
    assert not says or any(says in refusal for refusal in refusals), refusals


def test_fixed_replicas_can_be_undone_with_the_fence() -> None:
    old = pool()
    fixed(old)
    assert policies(FILE.parent / "hypershift/admission-policy-fence.yaml")[FENCE[1]].refusals(old, pool()) == []


def test_the_documentation_of_rights_names_every_file() -> None:
    text = (ROOT / "docs" / "reference/rbac.md").read_text(encoding="utf-8")
    for file in FILE.parent.glob("*/[ar]*.yaml"):
        assert f"deploy/kubernetes/{file.parent.name}/{file.name}" in text, file
