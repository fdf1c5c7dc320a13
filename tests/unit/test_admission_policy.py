"""The admission policy, evaluated in CEL over pairs of objects: what Evenkeel does passes, all else is refused."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import yaml

from evenkeel.adapters.kubernetes.access.service_account import LOOKER, WRITER
from evenkeel.adapters.kubernetes.flavours import CLUSTER_API, FLAVOURS, OPENSHIFT
from evenkeel.adapters.kubernetes.objects import PROVISION_TIME
from sandbox.admission import FILE, Policy, policies
from tests.objects import bounds_of

RBAC = FILE.parent / "rbac.yaml"
POLICIES = policies()
MIN = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
MAX = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"

# One as Evenkeel has set it, beside its own mark, and one that is somebody's.
OURS, THEIRS = (flavour.autoscaler.provision_timeout for flavour in (OPENSHIFT, CLUSTER_API))

Change = Callable[[dict[str, Any]], object]


def node_group() -> dict[str, Any]:
    return {
        "metadata": {
            "name": "workers-a",
            "labels": {"pool": "workers"},
            "annotations": {MIN: "1", MAX: "4", "owner": "team", OURS: "180s", PROVISION_TIME: "180s", THEIRS: "20m"},
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
        return {
            "name": name,
            "class": "worker",
            "replicas": 2,
            "metadata": {"labels": {"a": "b"}, "annotations": {MIN: "1", MAX: "4", "owner": "team"}},
        }

    return {
        "metadata": {"name": "c", "annotations": {"owner": "team"}},
        "spec": {
            "controlPlaneEndpoint": {"host": "h"},
            "topology": {
                "class": "k",
                "version": "v1.33.0",
                "workers": {"machineDeployments": [deployment("a"), deployment("b")], "machinePools": []},
            },
        },
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
        ("how long we let wait", annotations({OURS: "240s", PROVISION_TIME: "240s"})),
        ("how long we let wait, taken away", annotations({OURS: None, PROVISION_TIME: None})),
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
        ("how long somebody lets wait", annotations({THEIRS: "180s"}), "only where Evenkeel has set it"),
        ("how long somebody lets wait, taken away", annotations({THEIRS: None}), "only where Evenkeel has set it"),
        ("a wait without our mark", annotations({OURS: "240s"}), "only where Evenkeel has set it"),
        ("a wait that is none", annotations({OURS: "1s", PROVISION_TIME: "1s"}), "only where Evenkeel has set it"),
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


@pytest.fixture(scope="module", params=OBJECTS)
def named(request: pytest.FixtureRequest) -> tuple[str, Policy]:
    return request.param, POLICIES[request.param]


def test_an_unchanged_object_passes(named: tuple[str, Policy]) -> None:
    name, policy = named
    assert policy.refusals(OBJECTS[name](), OBJECTS[name]()) == []


def test_everything_that_evenkeel_does_passes(named: tuple[str, Policy]) -> None:
    name, policy = named
    for what, change in ALLOWED[name]:
        changed = OBJECTS[name]()
        change(changed)
        assert policy.refusals(OBJECTS[name](), changed) == [], what


def test_everything_else_is_refused_with_a_reason(named: tuple[str, Policy]) -> None:
    name, policy = named
    for what, change, reason in REFUSED[name]:
        changed = OBJECTS[name]()
        change(changed)
        refusals = policy.refusals(OBJECTS[name](), changed)
        assert any(reason in refusal for refusal in refusals), (what, refusals)


def test_the_policy_speaks_to_members_of_the_group_and_its_service_account_alone(named: tuple[str, Policy]) -> None:
    _, policy = named
    account = "system:serviceaccount:{}:{}"
    assert policy.applies_to("system:authenticated", "evenkeel")
    assert policy.applies_to("system:serviceaccounts", username=account.format("evenkeel", "evenkeel"))
    assert policy.applies_to(username=account.format("another-namespace", "evenkeel"))
    assert not policy.applies_to("system:authenticated", "system:masters")
    assert not policy.applies_to()
    # An AWS role whose token the API server maps by flags alone has no group.
    assert policy.applies_to("system:authenticated", username="evenkeel:arn:aws:iam::123456789012:role/evenkeel-R-1")
    for other in (
        "evenkeel",
        "aws:evenkeel:x",
        "evenkeel-readers",
        account.format("evenkeel", "evenkeel-readers"),
        account.format("evenkeel", "default"),
        account.format("a", "evenkeel2"),
        "x:a:evenkeel",
    ):
        assert not policy.applies_to("system:authenticated", username=other), other


def subjects() -> list[dict[str, str]]:
    """Whoever one of the shipped manifests lets patch something."""
    documents = [d for file in sorted(FILE.parent.glob("rbac*.yaml")) for d in yaml.safe_load_all(file.read_text())]
    writing = {
        document["metadata"]["name"]
        for document in documents
        if document["kind"] == "ClusterRole" and any(set(rule["verbs"]) - {"get", "list"} for rule in document["rules"])
    }
    bindings = [document for document in documents if document["kind"] == "ClusterRoleBinding"]
    return [subject for binding in bindings if binding["roleRef"]["name"] in writing for subject in binding["subjects"]]


def test_whoever_rbac_lets_in_is_fenced_by_every_policy(named: tuple[str, Policy]) -> None:
    _, policy = named
    assert {subject["kind"] for subject in subjects()} == {"Group", "ServiceAccount"}
    for subject in subjects():
        if subject["kind"] == "Group":
            assert policy.applies_to("system:authenticated", subject["name"])
        else:
            username = f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
            groups = (
                "system:serviceaccounts",
                f"system:serviceaccounts:{subject['namespace']}",
                "system:authenticated",
            )
            assert policy.applies_to(*groups, username=username)


def test_bounds_of_a_topology_that_were_wrong_before_do_not_stand_in_the_way_of_the_others() -> None:
    old = cluster()
    topology(bounds("5", "four"))(old)
    new = copy.deepcopy(old)
    topology(bounds("2", "8", of=1))(new)
    assert POLICIES["evenkeel-clusters"].refusals(old, new) == []


def test_bounds_that_a_topology_did_not_have_yet_are_judged_too() -> None:
    old = cluster()
    del old["spec"]["topology"]["workers"]["machineDeployments"][0]["metadata"]
    for low, high, says in (("1", "4", []), ("4", "1", ["above"]), ("a", "4", ["whole", "above"])):
        new = copy.deepcopy(old)
        deployment = new["spec"]["topology"]["workers"]["machineDeployments"][0]
        deployment["metadata"] = {"annotations": {MIN: low, MAX: high}}
        found = POLICIES["evenkeel-clusters"].refusals(old, new)
        assert len(found) == len(says), found
        assert all(word in refusal for word, refusal in zip(says, found, strict=True)), found


def test_objects_without_annotations_or_labels_are_no_obstacle() -> None:
    old = {"metadata": {"name": "a"}, "spec": {"replicas": 1}}
    new = {"metadata": {"name": "a", "annotations": {MAX: "3", MIN: "1"}}, "spec": {"replicas": 2}}
    assert POLICIES["evenkeel-node-groups"].refusals(old, new) == []


def test_everything_that_may_be_patched_is_fenced_by_a_policy_that_is_bound() -> None:
    rules = next(iter(yaml.safe_load_all(RBAC.read_text())))["rules"]
    patchable = {
        (group, resource)
        for rule in rules
        if "patch" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    fenced = {
        (group, resource)
        for policy in POLICIES.values()
        for rule in policy.rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert fenced == patchable


def test_no_right_is_granted_on_everything() -> None:
    rules = next(iter(yaml.safe_load_all(RBAC.read_text())))["rules"]
    granted = {word for rule in rules for key in ("apiGroups", "resources", "verbs") for word in rule[key]}
    assert "*" not in granted
    assert not granted & {"update", "delete", "deletecollection", "watch", "secrets"}
    assert [rule["resources"] for rule in rules if "create" in rule["verbs"]] == [["events"]]
    core = {
        rule["resources"][0]: (rule.get("resourceNames"), rule["verbs"]) for rule in rules if "" in rule["apiGroups"]
    }
    assert core == {"configmaps": (["cluster-autoscaler-status"], ["get"]), "events": (None, ["create"])}


def test_readers_may_read_what_the_worker_reads_and_write_nothing() -> None:
    def granted(file: str) -> set[tuple[str, str, str, str]]:
        rules = next(iter(yaml.safe_load_all((FILE.parent / file).read_text())))["rules"]
        return {
            (group, resource, verb, ",".join(rule.get("resourceNames", [])))
            for rule in rules
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    reads = {right for right in granted("rbac.yaml") if right[2] == "list" or right[1] == "configmaps"}
    assert granted("rbac-readers.yaml") == reads
    assert {right for right in reads if right[2] != "list"} == {("", "configmaps", "get", "cluster-autoscaler-status")}


def test_readers_may_list_what_a_look_at_each_flavour_lists_and_nothing_else() -> None:
    rules = next(iter(yaml.safe_load_all((FILE.parent / "rbac-readers.yaml").read_text())))["rules"]
    listed = {
        (group, resource)
        for rule in rules
        if "list" in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    kinds = {kind for flavour in FLAVOURS.values() for kind in (*flavour.kinds, flavour.machines.kind)}
    looked_at = {(kind.group, kind.plural) for kind in kinds}
    # What a group without nodes would look like is listed where an object refers to it: whichever provider's.
    described = {pair for pair in listed if pair[0] == "infrastructure.cluster.x-k8s.io" or pair[1] == "machineclasses"}
    assert listed - described == looked_at - described
    assert all(resource.endswith(("machinetemplates", "machineclasses")) for _, resource in described)
    assert described


def test_a_reader_is_nobody_whom_a_policy_must_fence() -> None:
    documents = list(yaml.safe_load_all((FILE.parent / "rbac-readers.yaml").read_text()))
    (binding,) = (one for one in documents if one["kind"] == "ClusterRoleBinding")
    assert [(subject["kind"], subject["name"]) for subject in binding["subjects"]] == [
        ("Group", "evenkeel-readers"),
        ("ServiceAccount", "evenkeel-readers"),
    ]
    assert {verb for rule in documents[0]["rules"] for verb in rule["verbs"]} == {"list", "get"}


def test_a_service_account_may_ask_for_tokens_of_itself_and_of_the_one_that_looks_and_of_nobody_else() -> None:
    documents = list(yaml.safe_load_all((FILE.parent / "rbac-service-account.yaml").read_text()))
    (role,) = (one for one in documents if one["kind"] == "Role")
    names = [WRITER, LOOKER]
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": names, "verbs": ["create"]}
    ]
    (binding,) = (one for one in documents if one["kind"] == "RoleBinding")
    assert [subject["name"] for subject in binding["subjects"]] == [WRITER]
    assert [one["metadata"]["name"] for one in documents if one["kind"] == "ServiceAccount"] == names
