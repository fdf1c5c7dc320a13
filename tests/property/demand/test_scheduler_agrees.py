"""A pod fits the same nodes by Evenkeel and by the sandbox's scheduler, except for decisions 172 and 173."""

from collections import Counter
from dataclasses import replace
from typing import Any

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from evenkeel.adapters.kubernetes.read.pods import Pods, PodShape
from evenkeel.adapters.kubernetes.read.workload_objects import (
    AttachmentShape,
    ClaimShape,
    ClassShape,
    CsiNodeShape,
    NamespaceShape,
    NodeShape,
    VolumeShape,
)
from evenkeel.domain.demand.cluster_snapshot import ClusterSnapshot
from evenkeel.domain.demand.pod_groups import PodGroups
from evenkeel.domain.demand.volumes import Volumes
from evenkeel.domain.model.workload import Workload
from sandbox.kube.scheduler import SchedulerSnapshot

Object = dict[str, Any]
Case = tuple[Object, dict[str, list[Object]]]
HOSTNAME, ZONE, RACK = "kubernetes.io/hostname", "topology.kubernetes.io/zone", "rack"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
KEYS = st.sampled_from([HOSTNAME, ZONE, RACK])
ZONES = st.sampled_from("abc")
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NAMESPACES = {"default": {"team": "red"}, "other": {}}


def maybe(strategy: st.SearchStrategy[Any], *, seldom: bool = False) -> st.SearchStrategy[Any]:
    nothing = st.none()
    return nothing | nothing | strategy if not seldom else nothing | nothing | nothing | nothing | strategy


def given_fields(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Object]:
    """Draw an object without the fields whose value is None."""
    return st.fixed_dictionaries(strategies).map(
        lambda made: {key: value for key, value in made.items() if value is not None}
    )


app_expressions = st.sampled_from(
    [
        {"key": "app", "operator": "In", "values": ["web", "db"]},
        {"key": "app", "operator": "NotIn", "values": ["web"]},
        {"key": "app", "operator": "Exists"},
        {"key": "app", "operator": "DoesNotExist"},
    ]
)
node_expressions = st.sampled_from(
    [
        {"key": ZONE, "operator": "In", "values": ["a", "b"]},
        {"key": ZONE, "operator": "NotIn", "values": ["a"]},
        {"key": ZONE, "operator": "NotIn", "values": ["a", "no label!"]},
        {"key": "cores", "operator": "Gt", "values": ["3"]},
        {"key": "cores", "operator": "Lt", "values": ["8"]},
        {"key": RACK, "operator": "Exists"},
        {"key": RACK, "operator": "DoesNotExist"},
    ]
)
label_selectors = st.sampled_from([{}, {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "db"}}]) | st.builds(
    lambda item: {"matchExpressions": [item]}, app_expressions
)
node_terms = given_fields(
    matchExpressions=maybe(st.lists(node_expressions, max_size=2)),
    matchFields=maybe(
        st.builds(
            lambda name, operator: [{"key": "metadata.name", "operator": operator, "values": [name]}],
            st.sampled_from(["n0", "n1"]),
            st.sampled_from(["In", "NotIn"]),
        )
    ),
)
pod_terms = st.lists(
    given_fields(
        topologyKey=KEYS,
        labelSelector=maybe(label_selectors) | label_selectors,
        namespaces=maybe(st.sampled_from([["other"], ["default", "other"]])),
        namespaceSelector=maybe(st.sampled_from([{}, {"matchLabels": {"team": "red"}}])),
    ),
    min_size=1,
    max_size=2,
).map(lambda terms: {REQUIRED: terms})
spreads = given_fields(
    topologyKey=KEYS,
    maxSkew=st.integers(1, 2),
    whenUnsatisfiable=st.sampled_from(["DoNotSchedule"] * 3 + ["ScheduleAnyway"]),
    labelSelector=label_selectors,
    minDomains=maybe(st.integers(1, 3)),
    nodeAffinityPolicy=maybe(st.sampled_from(["Honor", "Ignore"])),
    nodeTaintsPolicy=maybe(st.sampled_from(["Honor", "Ignore"])),
    matchLabelKeys=maybe(st.just(["version"])),
)
quantities = st.sampled_from(["0", "1", "500m", "1500m", "0.25", "2", "3"])
sizes = st.sampled_from(["0", "1Gi", "512Mi", "3G", "1500M", "100000k", "2Gi"])
requests = given_fields(
    cpu=maybe(quantities) | quantities,
    memory=maybe(sizes) | sizes,
    **{"vendor.example/gpu": maybe(st.sampled_from(["1", "2"]), seldom=True)},
)
ports = st.lists(
    given_fields(
        containerPort=st.just(80),
        hostPort=maybe(st.sampled_from([80, 443])),
        hostIP=maybe(st.sampled_from(["10.0.0.1", "10.0.0.2", "0.0.0.0"])),
        protocol=maybe(st.sampled_from(["TCP", "UDP"])),
    ),
    max_size=2,
)
containers = st.builds(
    lambda asked, taken: {"name": "c", "resources": {"requests": asked}, "ports": taken}, requests, maybe(ports)
)
inits = st.builds(
    lambda container, stays: container | ({"restartPolicy": "Always"} if stays else {}), containers, st.booleans()
)
tolerations = st.lists(
    given_fields(
        key=maybe(st.sampled_from(["team", "node.kubernetes.io/unschedulable"])),
        operator=st.sampled_from(["Exists", "Equal", None]),
        value=maybe(st.sampled_from(["red", "blue"])),
        effect=maybe(st.sampled_from(["NoSchedule", "NoExecute"])),
    ),
    max_size=2,
)
node_affinity = st.builds(
    lambda terms: {REQUIRED: {"nodeSelectorTerms": terms}}, st.lists(node_terms, min_size=1, max_size=2)
)
#: a pod's fields besides its containers; few are drawn for each pod
ASPECTS: dict[str, st.SearchStrategy[Object]] = {
    "needs": st.builds(lambda found: {"containers": found}, st.lists(containers, min_size=1, max_size=2)),
    "inits": st.builds(lambda found: {"initContainers": found}, st.lists(inits, min_size=1, max_size=3)),
    "whole": st.builds(lambda asked: {"resources": {"requests": asked}}, given_fields(cpu=maybe(quantities))),
    "overhead": st.just({"overhead": {"cpu": "100m", "memory": "64Mi"}}),
    "selector": st.sampled_from([{"nodeSelector": {ZONE: "a"}}, {"nodeSelector": {RACK: "1"}}]),
    "node affinity": st.builds(lambda found: {"affinity": {"nodeAffinity": found}}, node_affinity),
    "company": st.builds(lambda found: {"affinity": {"podAffinity": found}}, pod_terms),
    "distance": st.builds(lambda found: {"affinity": {"podAntiAffinity": found}}, pod_terms),
    "spread": st.builds(lambda found: {"topologySpreadConstraints": found}, st.lists(spreads, min_size=1, max_size=2)),
    "tolerations": st.builds(lambda found: {"tolerations": found}, tolerations),
}


@st.composite
def specs(draw: st.DrawFn) -> Object:
    spec: Object = {"containers": [{"name": "c"}]}
    for aspect in draw(st.lists(st.sampled_from(sorted(ASPECTS)), max_size=4, unique=True)):
        for key, value in draw(ASPECTS[aspect]).items():
            spec[key] = {**spec[key], **value} if key == "affinity" and key in spec else value
    return spec


taints = st.lists(
    given_fields(
        key=st.just("team"),
        value=maybe(st.sampled_from(["red", "blue"])),
        effect=st.sampled_from(["NoSchedule", "NoExecute", "PreferNoSchedule"]),
    ),
    max_size=1,
)
modes = st.sampled_from([["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteOncePod"]])


@st.composite
def pods(draw: st.DrawFn, name: str, node: str = "") -> Object:
    labels = draw(given_fields(app=maybe(st.sampled_from(["web", "db"])), version=maybe(st.sampled_from(["1", "2"]))))
    metadata = {"name": name, "namespace": draw(st.sampled_from(["default", "default", "other"])), "labels": labels}
    if node and draw(st.integers(0, 9)) == 0:  # it is being deleted, within its grace period
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "spec": draw(specs()) | ({"nodeName": node} if node else {}), "status": {}}


@st.composite
def nodes(draw: st.DrawFn, number: int) -> Object:
    name = f"n{number}"
    labels = draw(
        given_fields(
            **{
                HOSTNAME: st.just(name),
                ZONE: maybe(ZONES) | ZONES,
                OLD_ZONE: maybe(ZONES, seldom=True),
                RACK: maybe(st.sampled_from("12")),
                "cores": maybe(st.sampled_from(["2", "4", "16", "many"])),
            }
        )
    )
    allocatable = draw(
        given_fields(
            cpu=st.sampled_from(["2", "3920m", "8"]),
            memory=st.sampled_from(["4Gi", "15Gi"]),
            pods=st.sampled_from(["110", "110", "2"]),
            **{"vendor.example/gpu": maybe(st.just("1"))},
        )
    )
    spec = draw(given_fields(taints=maybe(taints))) | ({"unschedulable": True} if draw(st.integers(0, 9)) == 0 else {})
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"allocatable": allocatable}}


@st.composite
def volumes(draw: st.DrawFn, pod: Object, world: dict[str, list[Object]], *, waits: bool) -> None:
    """Add one volume of a pod, with a claim in any state. `waits`: the pod is not placed yet."""
    metadata = pod["metadata"]
    ephemeral = draw(st.integers(0, 3)) == 0
    name = f"{metadata['name']}-data"
    source = {"ephemeral": {}} if ephemeral else {"persistentVolumeClaim": {"claimName": name}}
    pod["spec"]["volumes"] = [{"name": "data", **source}]
    storage = draw(st.sampled_from(["local", "zonal", "anywhere", "at-once"]))
    claim: Object = {
        "metadata": {"name": name, "namespace": metadata["namespace"], "annotations": {}},
        "spec": {
            "storageClassName": storage,
            "accessModes": draw(modes),
            "resources": {"requests": {"storage": draw(st.sampled_from(["1Gi", "8Gi"]))}},
        },
        "status": {"phase": "Pending"},
    }
    if ephemeral:
        owner = metadata["name"] if draw(st.integers(0, 4)) else "another"
        claim["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": owner, "uid": "u", "controller": True}]
    state = draw(st.sampled_from(["bound"] * 3 + ["unbound"] * 4 + ["missing", "lost", "going", "selected"]))
    if not waits and state in ("unbound", "selected"):
        state = "bound"
    if state == "missing":
        return
    if state == "going":
        claim["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    if state == "selected":
        claim["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "n0"
    if state in ("bound", "lost") or not waits:
        claim["spec"]["volumeName"] = f"pv-{name}"
        claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = "yes"
        claim["status"]["phase"] = "Lost" if state == "lost" else "Bound"
        if state != "lost" and draw(st.integers(0, 9)):
            world["persistentvolumes"].append(draw(persistent(f"pv-{name}", storage, claim)))
    if state == "unbound" and draw(st.booleans()):
        world["persistentvolumes"].append(draw(persistent(f"free-{name}", storage, None)))
    world["persistentvolumeclaims"].append(claim)


@st.composite
def persistent(draw: st.DrawFn, name: str, storage: str, claim: Object | None) -> Object:
    term = {
        "matchExpressions": [{"key": draw(KEYS), "operator": "In", "values": [draw(st.sampled_from(["a", "n0", "1"]))]}]
    }
    affinity = {"required": {"nodeSelectorTerms": [term]}}
    labels = draw(
        given_fields(**{ZONE: maybe(st.sampled_from(["a", "a__b"])), OLD_ZONE: maybe(st.just("a"), seldom=True)})
    )
    spec = {
        "storageClassName": storage,
        "capacity": {"storage": draw(st.sampled_from(["2Gi", "10Gi"]))},
        "accessModes": ["ReadWriteOnce", "ReadWriteOncePod"],
        "csi": {"driver": "disk.example", "volumeHandle": name},
    }
    if draw(st.booleans()):
        spec["nodeAffinity"] = affinity
    if claim is not None:
        spec["claimRef"] = {key: claim["metadata"][key] for key in ("namespace", "name")}
    phase = "Available" if claim is None else "Bound"
    return {"metadata": {"name": name, "labels": labels}, "spec": spec, "status": {"phase": phase}}


def classes() -> list[Object]:
    waits, zone = {"volumeBindingMode": "WaitForFirstConsumer"}, {"key": ZONE, "values": ["a", "b"]}
    return [
        {"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner", **waits},
        {
            "metadata": {"name": "zonal"},
            "provisioner": "disk.example",
            "allowedTopologies": [{"matchLabelExpressions": [zone]}],
            **waits,
        },
        {"metadata": {"name": "anywhere"}, "provisioner": "disk.example", **waits},
        {"metadata": {"name": "at-once"}, "provisioner": "disk.example", "volumeBindingMode": "Immediate"},
    ]


def csi_node(name: str, count: int) -> Object:
    drivers = [{"name": "disk.example", "allocatable": {"count": count}}]
    return {"metadata": {"name": name}, "spec": {"drivers": drivers}}


def cluster(nodes: list[Object], csi_nodes: list[Object]) -> dict[str, list[Object]]:
    """Return the objects of a cluster without pods, by plural."""
    storage = {"storageclasses": classes(), "csinodes": csi_nodes, "volumeattachments": []}
    return {
        **{f"{plural}.storage.k8s.io": items for plural, items in storage.items()},
        **{plural: [] for plural in ("pods", "persistentvolumeclaims", "persistentvolumes")},
        "nodes": nodes,
        "namespaces": [{"metadata": {"name": name, "labels": labels}} for name, labels in NAMESPACES.items()],
    }


@st.composite
def worlds(draw: st.DrawFn) -> Case:
    found = [draw(nodes(number)) for number in range(draw(st.integers(1, 4)))]
    names = [item["metadata"]["name"] for item in found]
    standing = [draw(pods(f"r{number}", draw(st.sampled_from(names)))) for number in range(draw(st.integers(0, 5)))]
    asking = draw(pods("w"))
    csi_nodes = [csi_node(name, draw(st.integers(0, 2))) for name in names if draw(st.booleans())]
    world = cluster(found, csi_nodes)
    world["pods"] += standing
    for pod in (*standing, asking):
        if draw(st.integers(0, 2)) == 0:
            draw(volumes(pod, world, waits=pod is asking))
    claims = world["persistentvolumeclaims"]
    if claims and draw(st.integers(0, 5)) == 0:  # a claim that a running pod already has
        name = draw(st.sampled_from(claims))["metadata"]
        if name["namespace"] == asking["metadata"]["namespace"] and "ownerReferences" not in name:
            exclusive = next(item for item in claims if item["metadata"] is name)["spec"]["accessModes"]
            if exclusive == ["ReadWriteOncePod"]:
                asking["spec"]["volumes"] = [{"name": "shared", "persistentVolumeClaim": {"claimName": name["name"]}}]
    return asking, world


@st.composite
def attached_worlds(draw: st.DrawFn) -> Case:
    """Return a pod with volumes and a world in which only the limits of volumes tell nodes apart.

    Volumes are attached to nodes for their pods, without a pod, or for a deleted volume. Pods may share claims, and
    name a claim twice.
    """
    names = ["n0", "n1"]
    free = {"cpu": "8", "memory": "8Gi", "pods": "110"}
    nodes = [{"metadata": {"name": name, "labels": {}}, "status": {"allocatable": free}} for name in names]
    world = cluster(nodes, [csi_node(name, draw(st.integers(0, 4))) for name in names])
    pods = [
        {"metadata": {"name": f"p{number}", "namespace": "default"}, "spec": {"containers": []}, "status": {}}
        for number in range(draw(st.integers(1, 4)))
    ]
    for pod in pods:
        name = pod["metadata"]["name"]
        claims = [name, *draw(st.lists(st.sampled_from([other["metadata"]["name"] for other in pods]), max_size=2))]
        pod["spec"]["volumes"] = [
            {"name": f"data-{number}", "persistentVolumeClaim": {"claimName": claim}}
            for number, claim in enumerate(claims[draw(st.integers(0, len(claims) - 1)) :])
        ]
        bound = {"pv.kubernetes.io/bind-completed": "yes"}
        metadata = {"name": name, "namespace": "default", "annotations": bound}
        claim = {"metadata": metadata, "spec": {"volumeName": name, "accessModes": []}}
        world["persistentvolumeclaims"].append(claim)
    for pod in pods[1:]:
        pod["spec"]["nodeName"] = draw(st.sampled_from(names))
    world["pods"] += pods[1:]
    for name in [*(pod["metadata"]["name"] for pod in pods), "left", "gone"]:
        if name != "gone":
            csi = {"driver": "disk.example", "volumeHandle": name}
            claimed = {"namespace": "default", "name": name}
            world["persistentvolumes"].append(
                {"metadata": {"name": name}, "spec": {"csi": csi, "claimRef": claimed, "capacity": {"storage": "1Gi"}}}
            )
        for node in draw(st.lists(st.sampled_from(names), max_size=2)):
            source = {"persistentVolumeName": name}
            spec = {"attacher": draw(st.sampled_from(["disk.example"] * 3 + ["other"])), "nodeName": node}
            world["volumeattachments.storage.k8s.io"].append(
                {"metadata": {"name": f"csi-{name}"}, "spec": {**spec, "source": source}}
            )
    return pods[0], world


def read(shape: Any, items: list[Object], *how: Any) -> tuple[Any, ...]:
    return tuple(msgspec.json.decode(msgspec.json.encode(item), type=shape).read(*how) for item in items)


def evenkeels(asking: Object, world: dict[str, list[Object]]) -> dict[str, str]:
    """Return the rule by which the pod does not fit, by node. Empty: it fits."""
    reader = Pods()
    waiting, *standing = (
        reader.read(msgspec.json.decode(msgspec.json.encode(item), type=PodShape)) for item in (asking, *world["pods"])
    )
    limits = dict(read(CsiNodeShape, world["csinodes.storage.k8s.io"]))
    workload = Workload(
        nodes=tuple(
            replace(node, attach_limits=limits.get(node.name, {})) for node in read(NodeShape, world["nodes"], {})
        ),
        pods=(*standing, waiting),
        claims=read(ClaimShape, world["persistentvolumeclaims"]),
        volumes=read(VolumeShape, world["persistentvolumes"]),
        attachments=read(AttachmentShape, world["volumeattachments.storage.k8s.io"]),
        storage_classes=read(ClassShape, world["storageclasses.storage.k8s.io"]),
        namespaces=dict(read(NamespaceShape, world["namespaces"])),
    )
    volumes = Volumes(workload)
    kinds, snapshot = PodGroups(volumes), ClusterSnapshot(workload.namespaces)
    there = {node.name: [pod for pod in standing if pod.node == node.name] for node in workload.nodes}
    beside = volumes.attached_without_pod(there)
    for node in workload.nodes:
        snapshot.add_node(node, Counter(kinds.of(pod) for pod in there[node.name]), beside.get(node.name, {}))
    kind = kinds.of(waiting)
    answers = {name: snapshot.failing_filter(kind, room) for name, room in snapshot.node_infos.items()}
    return {name: "" if reason is None else reason.rule.value for name, reason in answers.items()}


@settings(max_examples=5 * settings().max_examples)
@given(worlds())
def test_pods_fit_exactly_where_the_sandbox_schedules_them(drawn: Case) -> None:
    asking, world = drawn
    seen = SchedulerSnapshot.over(world)
    bound = {node["metadata"]["name"]: seen.misfits(asking, node) for node in world["nodes"]}
    computed = evenkeels(asking, world)
    for name, misfits in bound.items():
        event(misfits[0].split('"')[0] if misfits else "fits")
        assert bool(misfits) == bool(computed[name]), (name, misfits, computed[name])


@given(attached_worlds())
def test_attached_volumes_count_as_for_the_scheduler(drawn: Case) -> None:
    asking, world = drawn
    seen, computed = SchedulerSnapshot.over(world), evenkeels(asking, world)
    for node in world["nodes"]:
        name = node["metadata"]["name"]
        assert (seen.misfits(asking, node) == ["node(s) exceed max volume count"]) == (computed[name] == "volume-limit")
        assert bool(seen.misfits(asking, node)) == bool(computed[name])
