"""The admission policies, evaluated in CEL, accept Evenkeel's writes and refuse all others; and the rights."""

import copy
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenkeel.adapters.kubernetes.access.service_account import READER, WRITER
from evenkeel.adapters.kubernetes.flavours import CLUSTER_API, FLAVOURS
from sandbox.admission import FILE, Policy, policies
from tests.objects import bounds_of

RBAC, READERS = (FILE.parent / name for name in ("rbac.yaml", "rbac-readers.yaml"))
POLICIES = policies()
MIN = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
MAX = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"

OPTION = CLUSTER_API.autoscaler.provision_timeout

Change = Callable[[dict[str, Any]], object]


def node_group() -> dict[str, Any]:
    return {
        "metadata": {
            "name": "workers-a",
            "labels": {"pool": "workers"},
            "annotations": {MIN: "1", MAX: "4", "owner": "team", OPTION: "20m"},
            "ownerReferences": [{"kind": "Cluster", "name": "c"}],
            "resourceVersion": "1",
            "generation": 1,
        },
        "spec": {"replicas": 2, "clusterName": "c", "template": {"spec": {"failureDomain": "a"}}},
        "status": {"replicas": 2},
    }


def machine() -> dict[str, Any]:
    return {"metadata": {"name": "m", "annotations": {"x": "y"}}, "spec": {"providerID": "aws:///a/i-1"}}


def machine_autoscaler() -> dict[str, Any]:
    return {
        "metadata": {"name": "workers-a"},
        "spec": {"minReplicas": 1, "maxReplicas": 4, "scaleTargetRef": {"kind": "MachineSet", "name": "workers-a"}},
    }


def cluster() -> dict[str, Any]:
    def deployment(name: str) -> dict[str, Any]:
        metadata = {"labels": {"a": "b"}, "annotations": {MIN: "1", MAX: "4", "owner": "team"}}
        return {"name": name, "class": "worker", "replicas": 2, "metadata": metadata}

    workers = {"machineDeployments": [deployment("a"), deployment("b")], "machinePools": []}
    topology = {"class": "k", "version": "v1.33.0", "workers": workers}
    return {
        "metadata": {"name": "c", "annotations": {"owner": "team"}},
        "spec": {"controlPlaneEndpoint": {"host": "h"}, "topology": topology},
    }


def annotations(changes: Mapping[str, str | None]) -> Change:
    def change(o: dict[str, Any]) -> None:
        kept = o["metadata"].setdefault("annotations", {})
        for key, value in changes.items():
            if value is None:
                kept.pop(key)
            else:
                kept[key] = value

    return change


def spec(**changes: Any) -> Change:
    return lambda o: o["spec"].update(changes)


def topology(change: Callable[[list[dict[str, Any]]], object]) -> Change:
    return lambda o: change(o["spec"]["topology"]["workers"]["machineDeployments"])


def bounds(low: str, high: str, *, of: int = 0) -> Callable[[list[dict[str, Any]]], object]:
    return lambda deployments: deployments[of]["metadata"]["annotations"].update({MIN: low, MAX: high})


OBJECTS: dict[str, Callable[[], dict[str, Any]]] = {
    "evenkeel-node-groups": node_group,
    "evenkeel-machines": machine,
    "evenkeel-machineautoscalers": machine_autoscaler,
    "evenkeel-clusters": cluster,
}

ALLOWED: dict[str, list[tuple[str, Change]]] = {
    "evenkeel-node-groups": [
        ("replicas", spec(replicas=0)),
        ("both bounds and a decision", annotations({MIN: "0", MAX: "9", "evenkeel.dev/d": "x"})),
        (
            "Gardener's and OpenShift's names of the bounds",
            annotations({**bounds_of("gardener", 3, 3), **bounds_of("openshift", 3, 3)}),
        ),
        ("bounds taken away", annotations({MIN: None, MAX: None})),
        ("resourceVersion and generation", lambda o: o["metadata"].update(generation=2)),
    ],
    "evenkeel-machines": [
        ("Cluster API's delete mark", annotations({"cluster.x-k8s.io/delete-machine": "now"})),
        ("OpenShift's delete mark", annotations({"machine.openshift.io/delete-machine": "now"})),
        ("Gardener's priority", annotations({"machinepriority.machine.sapcloud.io": "1"})),
    ],
    "evenkeel-machineautoscalers": [
        ("both bounds", spec(minReplicas=0, maxReplicas=1)),
        ("a decision", annotations({"evenkeel.dev/decision": "x"})),
    ],
    "evenkeel-clusters": [
        ("replicas of one deployment", topology(lambda d: d[1].update(replicas=5))),
        ("bounds of one", topology(lambda d: d[0]["metadata"]["annotations"].update({MAX: "7"}))),
        ("a decision on one", topology(lambda d: d[0]["metadata"]["annotations"].update({"evenkeel.dev/d": "x"}))),
        ("both bounds of one", topology(bounds("0", "9"))),
        ("a bound of one taken away", topology(lambda d: d[0]["metadata"]["annotations"].pop(MAX))),
        ("a decision on the cluster", annotations({"evenkeel.dev/decision": "x"})),
    ],
}

REFUSED: dict[str, list[tuple[str, Change, str]]] = {
    "evenkeel-node-groups": [
        ("another spec field", spec(paused=True), "spec but replicas"),
        ("the template", spec(template={"spec": {"failureDomain": "b"}}), "spec but replicas"),
        ("a field removed", lambda o: o["spec"].pop("clusterName"), "spec but replicas"),
        ("negative replicas", spec(replicas=-1), "negative"),
        ("replicas removed", lambda o: o["spec"].pop("replicas"), "removed"),
        ("a foreign annotation", annotations({"cluster.x-k8s.io/paused": ""}), "no annotations"),
        ("a foreign annotation removed", annotations({"owner": None}), "no annotations"),
        ("an option of the autoscaler", annotations({OPTION: "180s"}), "no annotations"),
        ("an option of the autoscaler, taken away", annotations({OPTION: None}), "no annotations"),
        ("a bound that is no number", annotations({MAX: "many"}), "whole numbers"),
        ("a negative bound", annotations({MIN: "-1"}), "whole numbers"),
        ("bounds the wrong way round", annotations({MIN: "5"}), "above the upper"),
        ("Gardener's bounds the wrong way round", annotations(bounds_of("gardener", 10, 9)), "above the upper"),
        ("a label", lambda o: o["metadata"]["labels"].update(pool="x"), "labels, finalizers"),
        ("finalizers", lambda o: o["metadata"].update(finalizers=["x"]), "labels, finalizers"),
        ("owners", lambda o: o["metadata"].pop("ownerReferences"), "labels, finalizers"),
    ],
    "evenkeel-machines": [
        ("its spec", spec(providerID="aws:///a/i-2"), "machine's spec"),
        ("another annotation", annotations({"x": "z"}), "delete mark"),
        ("finalizers", lambda o: o["metadata"].update(finalizers=["x"]), "labels, finalizers"),
    ],
    "evenkeel-machineautoscalers": [
        ("its target", spec(scaleTargetRef={"name": "b"}), "minReplicas and maxReplicas"),
        ("no room at all", spec(minReplicas=0, maxReplicas=0), "1 or more"),
        ("min above max", spec(minReplicas=5), "not below minReplicas"),
        ("another annotation", annotations({"x": "z"}), "but its own"),
    ],
    "evenkeel-clusters": [
        ("pausing it", spec(paused=True), "but its topology"),
        ("losing its topology", lambda o: o["spec"].pop("topology"), "but its topology"),
        ("an upgrade", lambda o: o["spec"]["topology"].update(version="v1.34.0"), "but its workers"),
        (
            "machine pools",
            lambda o: o["spec"]["topology"]["workers"].update(machinePools=[{"name": "p"}]),
            "workers but machineDeployments",
        ),
        ("one deployment less", topology(lambda d: d.pop()), "add, remove, rename"),
        ("another order", topology(lambda d: d.reverse()), "add, remove, rename"),
        ("another class", topology(lambda d: d[0].update({"class": "gpu"})), "replicas and annotations"),
        ("a new field", topology(lambda d: d[0].update(failureDomain="b")), "replicas and annotations"),
        ("a label", topology(lambda d: d[0]["metadata"]["labels"].update(a="c")), "and annotations"),
        (
            "a foreign annotation",
            topology(lambda d: d[0]["metadata"]["annotations"].update(owner="x")),
            "topology's machineDeployment but its own",
        ),
        ("a bound of one that is no number", topology(bounds("1", "four")), "topology must be whole"),
        ("a bound of the second", topology(bounds("1", "-4", of=1)), "topology must be whole"),
        ("a fraction", topology(bounds("1.5", "4")), "topology must be whole"),
        ("an empty bound", topology(bounds("", "4")), "topology must be whole"),
        ("a bound beyond any count", topology(bounds("1", "9" * 10)), "topology must be whole"),
        ("bounds of one the wrong way round", topology(bounds("5", "4")), "above the upper"),
        ("those of the second", topology(bounds("5", "4", of=1)), "above the upper"),
        ("an annotation of the cluster", annotations({"owner": "x"}), "of a Cluster but its own"),
    ],
}


EVERY_POLICY = pytest.mark.parametrize("name", OBJECTS)


def refusals(policy: Policy, name: str, change: Change) -> list[str]:
    new = OBJECTS[name]()
    change(new)
    return policy.refusals(OBJECTS[name](), new)


@EVERY_POLICY
def test_everything_that_evenkeel_writes_passes(name: str) -> None:
    for what, change in [("nothing", lambda _: None), *ALLOWED[name]]:
        assert refusals(POLICIES[name], name, change) == [], what


@EVERY_POLICY
def test_every_other_change_is_refused_with_a_reason(name: str) -> None:
    for what, change, reason in REFUSED[name]:
        answer = refusals(POLICIES[name], name, change)
        assert any(reason in refusal for refusal in answer), (what, answer)


ACCOUNT = "system:serviceaccount:{}:{}"


@EVERY_POLICY
@pytest.mark.parametrize(
    ("group", "username", "applies"),
    [
        ("evenkeel", "", True),
        ("", ACCOUNT.format("evenkeel", "evenkeel"), True),
        ("", ACCOUNT.format("another-namespace", "evenkeel"), True),
        # An AWS role whose token the API server maps by flags alone has no group.
        ("", "evenkeel:arn:aws:iam::123456789012:role/evenkeel-R-1", True),
        ("system:masters", "", False),
        ("", "", False),
        ("", "evenkeel", False),
        ("", "aws:evenkeel:x", False),
        ("", "evenkeel-readers", False),
        ("", ACCOUNT.format("evenkeel", "evenkeel-readers"), False),
        ("", ACCOUNT.format("evenkeel", "default"), False),
        ("", ACCOUNT.format("a", "evenkeel2"), False),
        ("", "x:a:evenkeel", False),
    ],
)
def test_a_policy_applies_to_evenkeels_identities_alone(name: str, group: str, username: str, applies: bool) -> None:
    assert POLICIES[name].applies_to("system:authenticated", group, username=username) is applies


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text(encoding="utf-8")))


def rules(file: Path) -> list[dict[str, Any]]:
    return [rule for item in documents(file) if item["kind"] in ("ClusterRole", "Role") for rule in item["rules"]]


def rights(file: Path) -> set[tuple[str, str, str]]:
    """Return group, resource and verb of all rights in a manifest."""
    return {
        (group, resource, verb)
        for rule in rules(file)
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def patchable(files: Iterable[Path]) -> set[tuple[str, str]]:
    return {(group, resource) for file in files for group, resource, verb in rights(file) if verb == "patch"}


def fenced(files: Iterable[Path]) -> set[tuple[str, str]]:
    return {
        (group, resource)
        for file in files
        for policy in policies(file).values()
        for rule in policy.rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }


def subjects(files: Iterable[Path]) -> list[dict[str, str]]:
    """Return the subjects of every binding in these manifests whose role has a right to write."""
    items = [item for file in files for item in documents(file)]
    granted = [(item["metadata"]["name"], set(rule["verbs"])) for item in items for rule in item.get("rules", ())]
    writing = {name for name, verbs in granted if verbs - {"get", "list"}}
    bindings = [item for item in items if "roleRef" in item and item["roleRef"]["name"] in writing]
    return [subject for binding in bindings for subject in binding["subjects"]]


def applies_to(policy: Policy, subject: dict[str, str]) -> bool:
    if subject["kind"] == "Group":
        return policy.applies_to("system:authenticated", subject["name"])
    namespace = subject["namespace"]
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    return policy.applies_to(*groups, username=ACCOUNT.format(namespace, subject["name"]))


def test_bad_bounds_of_one_topology_entry_do_not_block_the_others() -> None:
    old = cluster()
    topology(bounds("5", "four"))(old)
    new = copy.deepcopy(old)
    topology(bounds("2", "8", of=1))(new)
    assert POLICIES["evenkeel-clusters"].refusals(old, new) == []


@pytest.mark.parametrize(
    ("low", "high", "says"), [("1", "4", []), ("4", "1", ["above"]), ("a", "4", ["whole", "above"])]
)
def test_first_bounds_of_a_topology_entry_are_checked(low: str, high: str, says: list[str]) -> None:
    old = cluster()
    del old["spec"]["topology"]["workers"]["machineDeployments"][0]["metadata"]
    new = copy.deepcopy(old)
    topology(lambda deployments: deployments[0].update(metadata={"annotations": {MIN: low, MAX: high}}))(new)
    answer = POLICIES["evenkeel-clusters"].refusals(old, new)
    assert all(word in refusal for word, refusal in zip(says, answer, strict=True)), answer


def test_objects_without_annotations_or_labels_can_be_written() -> None:
    old = {"metadata": {"name": "a"}, "spec": {"replicas": 1}}
    new = {"metadata": {"name": "a", "annotations": {MAX: "3", MIN: "1"}}, "spec": {"replicas": 2}}
    assert POLICIES["evenkeel-node-groups"].refusals(old, new) == []


def test_everything_that_may_be_patched_is_fenced_by_a_policy() -> None:
    assert fenced([FILE]) == patchable([RBAC])


def test_readers_may_list_what_a_check_of_each_flavour_lists_and_nothing_else() -> None:
    listed = {(group, resource) for group, resource, verb in rights(READERS) if verb == "list"}
    kinds = {kind for flavour in FLAVOURS.values() for kind in (*flavour.kinds, flavour.machines.kind)}
    # Templates of groups without nodes are listed if an object refers to them, for any provider.
    described = {pair for pair in listed if pair[0] == "infrastructure.cluster.x-k8s.io" or pair[1] == "machineclasses"}
    assert listed - described == {(kind.group, kind.plural) for kind in kinds} - described
    assert all(resource.endswith(("machinetemplates", "machineclasses")) for _, resource in described)
    assert described


def test_a_service_account_may_request_tokens_of_the_two_accounts_alone() -> None:
    file = FILE.parent / "rbac-service-account.yaml"
    (role,) = (one for one in documents(file) if one["kind"] == "Role")
    names = [WRITER, READER]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": names, "verbs": ["create"]}
    ]
    (binding,) = (one for one in documents(file) if one["kind"] == "RoleBinding")
    assert [subject["name"] for subject in binding["subjects"]] == [WRITER]
    assert [one["metadata"]["name"] for one in documents(file) if one["kind"] == "ServiceAccount"] == names
