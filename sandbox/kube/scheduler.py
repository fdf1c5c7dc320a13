"""kube-scheduler with its filters: binds pods to nodes, or reports in kube-scheduler's words why no node fits.

The module follows only kube-scheduler's rules and reads the stored objects, so it can disagree with Evenkeel's model.
`tests/property/demand/test_scheduler_agrees.py` compares the two. The filters have the order of the default profile
(Kubernetes 1.36, pkg/scheduler/framework/plugins). A pod is bound to the emptiest node that fits. Preemption, preferred
affinity and device claims are not simulated. For containers that are resized in place, the pod's spec counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Self

from sandbox.kube.client import Client
from sandbox.kube.controllers.objects import (
    annotations_of,
    condition,
    conditions_of,
    is_deleting,
    labels_of,
    parse_time,
    status_of,
)
from sandbox.kube.schema import Json, Object
from sandbox.kube.selectors import holds, is_readable, selects
from sandbox.kube.store import Store

NAME = "default-scheduler"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
_BINARY = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {
    letter: Fraction(10) ** (3 * power)
    for power, letter in zip(range(-3, 7), ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), strict=True)
}
_BETA = {f"topology.kubernetes.io/{end}": f"failure-domain.beta.kubernetes.io/{end}" for end in ("zone", "region")}
Reasons = Iterator[str]


def quantity(text: Json) -> Fraction:
    """Return the exact value of a Kubernetes quantity."""
    text = str(text)
    number = text.rstrip("KMGTPEikmnu")
    suffix = text[len(number) :]
    return Fraction(number) * (_BINARY.get(suffix) or _DECIMAL[suffix])


def amounts(quantities: Mapping[str, Json] | None) -> Counter[str]:
    """Return whole numbers, rounded up as the scheduler does; cpu is in thousandths."""
    return _rounded({name: quantity(text) for name, text in (quantities or {}).items()})


def _rounded(exact: Mapping[str, Fraction]) -> Counter[str]:
    return Counter({name: math.ceil(amount * (1000 if name == "cpu" else 1)) for name, amount in exact.items()})


def requests_of(pod: Object) -> Counter[str]:
    """Return the resources that a pod requests from a node (component-helpers/resource/helpers.go)."""
    spec = pod["spec"]
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        running = _sum(sidecars, _requests(container))
        if container.get("restartPolicy") == "Always":
            sidecars = running
        peak = _max(peak, running)
    running = sidecars
    for container in spec.get("containers") or ():
        running = _sum(running, _requests(container))
    of_pod = {
        name: amount
        for name, amount in _requests(spec).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }
    overhead = {name: quantity(text) for name, text in (spec.get("overhead") or {}).items()}
    return _rounded(_sum(_max(peak, running) | of_pod, overhead))


def _requests(item: Object) -> dict[str, Fraction]:
    return {name: quantity(text) for name, text in ((item.get("resources") or {}).get("requests") or {}).items()}


def _sum(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {name: one.get(name, Fraction()) + other.get(name, Fraction()) for name in one.keys() | other.keys()}


def _max(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {name: max(one.get(name, Fraction()), other.get(name, Fraction())) for name in one.keys() | other.keys()}


def ports_of(pod: Object) -> list[tuple[str, str, int]]:
    """Return address, protocol and number of every host port; plain init containers reserve none."""
    sidecars = [item for item in pod["spec"].get("initContainers") or () if item.get("restartPolicy") == "Always"]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in (*(pod["spec"].get("containers") or ()), *sidecars)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def node_matches(selector: Object | None, node: Object) -> bool:
    """Return whether one term of a node selector holds. An empty or unreadable term never holds."""
    if selector is None:
        return True
    name = {"metadata.name": node["metadata"]["name"]}
    return any(
        bool(term.get("matchExpressions") or term.get("matchFields"))
        and all(is_readable(item) and holds(item, labels_of(node)) for item in term.get("matchExpressions") or ())
        and all(holds(item, name) for item in term.get("matchFields") or ())
        for term in selector.get("nodeSelectorTerms") or ()
    )


def wants_node(pod: Object, node: Object) -> bool:
    """Return whether node selector and required node affinity match a node."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    has = (pod["spec"].get("nodeSelector") or {}).items() <= labels_of(node).items()
    return has and node_matches(affinity, node)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def untolerated(pod: Object, taints: list[Object]) -> Object | None:
    """Return the first taint that the pod does not tolerate."""
    tolerations = pod["spec"].get("tolerations") or ()
    hard = (taint for taint in taints if taint["effect"] != "PreferNoSchedule")
    return next((taint for taint in hard if not any(_tolerates(item, taint) for item in tolerations)), None)


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    same = toleration.get("value", "") == taint.get("value", "")
    return toleration["key"] == taint["key"] and (exists or same)


@dataclass(kw_only=True)
class SchedulerSnapshot:
    """The scheduler's snapshot of a cluster. `pods` are those that have a node and have not ended."""

    nodes: list[Object]
    pods: list[Object] = field(default_factory=list)
    claims: dict[tuple[str, str], Object] = field(default_factory=dict)
    volumes: dict[str, Object] = field(default_factory=dict)
    classes: dict[str, Object] = field(default_factory=dict)
    limits: dict[str, Mapping[str, int]] = field(default_factory=dict)  # the limit of volumes per driver, by node
    attachments: list[Object] = field(default_factory=list)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store) -> Self:
        """Return the snapshot of a store."""
        return cls.over(
            {resource: store.list(resource) for resource in KINDS if resource != "pods"}
            | {"pods": [pod for pod in store.list("pods") if pod["spec"].get("nodeName")]}
        )

    @classmethod
    def over(cls, objects: Mapping[str, list[Object]]) -> Self:
        """Return the snapshot of lists of objects by resource."""

        def named(resource: str) -> dict[str, Object]:
            return {item["metadata"]["name"]: item for item in objects.get(resource, ())}

        return cls(
            nodes=list(objects.get("nodes", ())),
            pods=[pod for pod in objects.get("pods", ()) if status_of(pod).get("phase") not in ("Succeeded", "Failed")],
            claims={
                (item["metadata"]["namespace"], item["metadata"]["name"]): item
                for item in objects.get("persistentvolumeclaims", ())
            },
            volumes=named("persistentvolumes"),
            classes=named("storageclasses.storage.k8s.io"),
            limits={
                name: {
                    driver["name"]: driver["allocatable"]["count"]
                    for driver in item["spec"].get("drivers") or ()
                    if (driver.get("allocatable") or {}).get("count") is not None
                }
                for name, item in named("csinodes.storage.k8s.io").items()
            },
            attachments=list(objects.get("volumeattachments.storage.k8s.io", ())),
            namespaces={name: labels_of(item) for name, item in named("namespaces").items()},
        )

    def on(self, node: Object) -> list[Object]:
        """Return the pods on a node."""
        return [pod for pod in self.pods if pod["spec"]["nodeName"] == node["metadata"]["name"]]

    def misfits(self, pod: Object, node: Object) -> list[str]:
        """Return the reasons of the first filter that rejects the node, in the scheduler's words."""
        return next((reasons for rule in _FILTERS if (reasons := list(rule(self, pod, node)))), [])

    def claims_of(self, pod: Object) -> Iterator[tuple[str, Object | None]]:
        """Yield the name of each claim of a pod, with the claim, or with None if the claim does not exist."""
        namespace = pod["metadata"]["namespace"]
        for volume in pod["spec"].get("volumes") or ():
            if "ephemeral" in volume:
                name = f"{pod['metadata']['name']}-{volume['name']}"
                claim = self.claims.get((namespace, name))
                owners = (claim or {"metadata": {}})["metadata"].get("ownerReferences") or ()
                mine = any(item["kind"] == "Pod" and item["name"] == pod["metadata"]["name"] for item in owners)
                yield name, claim if mine else None
            elif "persistentVolumeClaim" in volume:
                name = volume["persistentVolumeClaim"]["claimName"]
                yield name, self.claims.get((namespace, name))

    def class_of(self, claim: Object) -> Object:
        """Return the StorageClass of a claim; empty if it has none."""
        return self.classes.get(claim["spec"].get("storageClassName") or "", {})

    def waits(self, claim: Object) -> bool:
        """Return whether the claim waits for its first pod."""
        unbound = not claim["spec"].get("volumeName")
        return unbound and self.class_of(claim).get("volumeBindingMode") == "WaitForFirstConsumer"

    def free_volume(self, claim: Object, node: Object, taken: set[str]) -> Object | None:
        """Return the smallest free volume that fits a claim and is reachable from a node."""
        volumes = [
            volume
            for name, volume in sorted(self.volumes.items())
            if name not in taken
            and volume["spec"].get("storageClassName", "") == claim["spec"].get("storageClassName", "")
            and not volume["spec"].get("claimRef")
            and status_of(volume).get("phase", "Available") == "Available"
            and quantity(volume["spec"]["capacity"]["storage"]) >= _requests(claim["spec"])["storage"]
            and set(claim["spec"]["accessModes"]) <= set(volume["spec"]["accessModes"])
            and selects(claim["spec"].get("selector") or {}, labels_of(volume))
            and _reaches(volume, node)
        ]
        return min(volumes, key=lambda volume: quantity(volume["spec"]["capacity"]["storage"]), default=None)

    def provisions(self, claim: Object, node: Object) -> bool:
        """Return whether the provisioner can create a claim's volume within reach of this node."""
        storage, labels = self.class_of(claim), labels_of(node)
        allowed = storage.get("allowedTopologies") or ({},)
        return storage["provisioner"] != "kubernetes.io/no-provisioner" and any(
            all(labels.get(item["key"]) in item["values"] for item in term.get("matchLabelExpressions", ()))
            for term in allowed
        )


_STORAGE = ("storageclasses", "csinodes", "volumeattachments")
KINDS = (
    *("nodes", "pods", "persistentvolumeclaims", "persistentvolumes"),
    *(f"{plural}.storage.k8s.io" for plural in _STORAGE),
    "namespaces",
)


def _reaches(volume: Object, node: Object) -> bool:
    return node_matches((volume["spec"].get("nodeAffinity") or {}).get("required"), node)


# -- the filters, in the order of the default profile -------------------------------------------------------------


def _unschedulable(_: SchedulerSnapshot, pod: Object, node: Object) -> Reasons:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node.get("spec", {}).get("unschedulable") and untolerated(pod, [cordon]):
        yield "node(s) were unschedulable"


def _taints(_: SchedulerSnapshot, pod: Object, node: Object) -> Reasons:
    if taint := untolerated(pod, node.get("spec", {}).get("taints") or []):
        yield f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"


def _node_affinity(_: SchedulerSnapshot, pod: Object, node: Object) -> Reasons:
    if not wants_node(pod, node):
        yield "node(s) didn't match Pod's node affinity/selector"


def _ports(seen: SchedulerSnapshot, pod: Object, node: Object) -> Reasons:
    wildcard = "0.0.0.0"
    taken = [port for other in seen.on(node) for port in ports_of(other)]
    for address, protocol, number in ports_of(pod):
        if any((protocol, number) == (p, n) and (wildcard in (address, a) or a == address) for a, p, n in taken):
            yield "node(s) didn't have free ports for the requested pod ports"
            return


def _resources(seen: SchedulerSnapshot, pod: Object, node: Object) -> Reasons:
    free, others = amounts(status_of(node).get("allocatable")), seen.on(node)
    if len(others) + 1 > free["pods"]:
        yield "Too many pods"
    for other in others:
        free.subtract(requests_of(other))
    for name, amount in sorted(requests_of(pod).items()):
        if amount > max(free[name], 0):
            yield f"Insufficient {name}"


def _exclusive(seen: SchedulerSnapshot, pod: Object, _: Object) -> Reasons:
    namespace = pod["metadata"]["namespace"]
    taken = {
        name for other in seen.pods if other["metadata"]["namespace"] == namespace for name, _ in seen.claims_of(other)
    }
    for name, claim in seen.claims_of(pod):
        if claim and "ReadWriteOncePod" in claim["spec"]["accessModes"] and name in taken:
            yield "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


def _volume_limits(seen: SchedulerSnapshot, pod: Object, node: Object) -> Reasons:
    limits = seen.limits.get(node["metadata"]["name"], {})

    def attached(pods: list[Object]) -> set[tuple[str, str]]:
        """Return driver and volume of every claim; an unbound claim counts as a volume."""
        volumes = set()
        for other in pods:
            for name, claim in seen.claims_of(other):
                volume = seen.volumes.get((claim or {"spec": {}})["spec"].get("volumeName", ""))
                if volume:
                    volumes.add(((volume["spec"].get("csi") or {}).get("driver", ""), volume["metadata"]["name"]))
                elif claim:
                    volumes.add(
                        (seen.class_of(claim).get("provisioner", ""), f"{other['metadata']['namespace']}/{name}")
                    )
        return volumes

    there, here = attached(seen.on(node)), attached([pod])
    beside = _attachments(seen, node) - there
    for driver, limit in limits.items():
        new = sum(name == driver for name, _ in here - there)
        if new and sum(name == driver for name, _ in (*there, *beside)) + new > limit:
            yield "node(s) exceed max volume count"
            return


def _attachments(seen: SchedulerSnapshot, node: Object) -> set[tuple[str, str]]:
    """Return driver and volume of every attachment to a node, with or without a pod that uses it."""
    volumes = set()
    for item in seen.attachments:
        spec = item["spec"]
        name = spec["source"].get("persistentVolumeName", "")
        if spec["nodeName"] == node["metadata"]["name"] and "csi" in seen.volumes.get(name, {"spec": {}})["spec"]:
            volumes.add((spec["attacher"], name))
    return volumes


def _volumes(seen: SchedulerSnapshot, pod: Object, node: Object) -> Reasons:
    taken: set[str] = set()
    for name, claim in seen.claims_of(pod):
        if claim is None:
            yield f'persistentvolumeclaim "{name}" not found'
        elif is_deleting(claim):
            yield f'persistentvolumeclaim "{name}" is being deleted'
        elif status_of(claim).get("phase") == "Lost":
            yield f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume'
        elif BOUND in annotations_of(claim):
            volume = seen.volumes.get(claim["spec"]["volumeName"])
            if volume is None:
                yield "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
            elif not _reaches(volume, node):
                yield "node(s) didn't match PersistentVolume's node affinity"
        elif not seen.waits(claim):
            yield "pod has unbound immediate PersistentVolumeClaims"
        elif selected := annotations_of(claim).get(SELECTED_NODE):
            if selected != node["metadata"]["name"]:
                yield "node(s) didn't find available persistent volumes to bind"
        elif volume := seen.free_volume(claim, node, taken):
            taken.add(volume["metadata"]["name"])
        elif not seen.provisions(claim, node):
            yield "node(s) didn't find available persistent volumes to bind"


def _volume_zone(seen: SchedulerSnapshot, pod: Object, node: Object) -> Reasons:
    labels = labels_of(node)
    if not labels.keys() & {*_BETA, *_BETA.values()}:
        return
    for _, claim in seen.claims_of(pod):
        volume = seen.volumes.get((claim or {"spec": {}})["spec"].get("volumeName", ""))
        for today, beta in _BETA.items() if volume else ():
            for key in (today, beta):
                allowed = labels_of(volume or {}).get(key)
                zone = labels.get(key) or (labels.get(today) if key == beta else None)
                if allowed is not None and zone not in allowed.split("__"):
                    yield "node(s) had no available volume zone"
                    return


def _spread(seen: SchedulerSnapshot, pod: Object, node: Object) -> Reasons:
    constraints = [
        item
        for item in pod["spec"].get("topologySpreadConstraints") or ()
        if item.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"
    ]
    keys = {item["topologyKey"] for item in constraints}
    for constraint in constraints:
        key = constraint["topologyKey"]
        if key not in labels_of(node):
            yield "node(s) didn't match pod topology spread constraints (missing required label)"
            return
        selector = constraint.get("labelSelector")
        for label in constraint.get("matchLabelKeys") or ():
            if label in labels_of(pod):
                more = {"key": label, "operator": "In", "values": [labels_of(pod)[label]]}
                selector = {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), more]}
        domains = _domains(seen, pod, constraint, selector, keys)
        least = min(domains.values(), default=0) if len(domains) >= (constraint.get("minDomains") or 1) else 0
        if domains[labels_of(node)[key]] + selects(selector, labels_of(pod)) - least > constraint["maxSkew"]:
            yield "node(s) didn't match pod topology spread constraints"
            return


def _domains(
    seen: SchedulerSnapshot, pod: Object, constraint: Object, selector: Object | None, keys: set[str]
) -> Counter[str]:
    """Return the number of matching pods in each eligible domain of a topology spread constraint."""
    domains: Counter[str] = Counter()
    for node in seen.nodes:
        taints = node.get("spec", {}).get("taints") or []
        if (
            not keys <= labels_of(node).keys()
            or (constraint.get("nodeAffinityPolicy") != "Ignore" and not wants_node(pod, node))
            or (constraint.get("nodeTaintsPolicy") == "Honor" and untolerated(pod, taints))
        ):
            continue
        domains[labels_of(node)[constraint["topologyKey"]]] += sum(
            other["metadata"]["namespace"] == pod["metadata"]["namespace"]
            and not is_deleting(other)
            # here, an empty selector counts no pod, although it selects every pod elsewhere
            and any((selector or {}).values())
            and selects(selector, labels_of(other))
            for other in seen.on(node)
        )
    return domains


def _pod_affinity(seen: SchedulerSnapshot, pod: Object, node: Object) -> Reasons:
    zones = {item["metadata"]["name"]: labels_of(item) for item in seen.nodes}

    def near(other: Object, key: str) -> bool:
        """Return whether another pod is in the domain of this node."""
        domain = zones.get(other["spec"]["nodeName"], {}).get(key)
        return domain is not None and domain == labels_of(node).get(key)

    terms = _terms(pod, "podAffinity")
    mates = [other for other in seen.pods if all(_matches(seen, term, pod, other) for term in terms)]
    apart = [term for term in terms if not any(near(other, term["topologyKey"]) for other in mates)]
    if apart:
        somewhere = any(
            term["topologyKey"] in zones.get(other["spec"]["nodeName"], {}) for other in mates for term in terms
        )
        first = not somewhere and all(_matches(seen, term, pod, pod) for term in terms)
        if not first or any(term["topologyKey"] not in labels_of(node) for term in terms):
            yield "node(s) didn't match pod affinity rules"
            return
    for term in _terms(pod, "podAntiAffinity"):
        if any(_matches(seen, term, pod, other) and near(other, term["topologyKey"]) for other in seen.pods):
            yield "node(s) didn't match pod anti-affinity rules"
            return
    for other in seen.pods:
        for term in _terms(other, "podAntiAffinity"):
            if _matches(seen, term, other, pod) and near(other, term["topologyKey"]):
                yield "node(s) didn't satisfy existing pods anti-affinity rules"
                return


def _terms(pod: Object, kind: str) -> list[Object]:
    return list(((pod["spec"].get("affinity") or {}).get(kind) or {}).get(_REQUIRED) or ())


def _matches(seen: SchedulerSnapshot, term: Object, of: Object, other: Object) -> bool:
    """Return whether an affinity term of a pod matches another pod."""
    namespace, named, selector = other["metadata"]["namespace"], term.get("namespaces"), term.get("namespaceSelector")
    if named or selector is not None:
        inside = namespace in (named or ()) or selects(selector, seen.namespaces.get(namespace, {}))
    else:
        inside = namespace == of["metadata"]["namespace"]
    return inside and selects(term.get("labelSelector"), labels_of(other))


_FILTERS: tuple[Callable[[SchedulerSnapshot, Object, Object], Reasons], ...] = (
    *(_unschedulable, _taints, _node_affinity, _ports, _resources, _exclusive),
    *(_volume_limits, _volumes, _volume_zone, _spread, _pod_affinity),
)


# -- the scheduler -----------------------------------------------------------------------------------------------


class Scheduler:
    """Each step tries to bind each pod without a node once: the highest priority first, then the oldest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._client = Client(store, NAME)
        self._binder = Client(store, "kube-controller-manager")

    def step(self, now: datetime) -> None:
        """Bind the pods that fit a node, and report for the other pods why no node fits."""
        waiting = [pod for pod in self._store.list("pods", fields="spec.nodeName=") if _is_ours(pod)]
        seen = SchedulerSnapshot.of(self._store) if waiting else SchedulerSnapshot(nodes=[])
        for pod in sorted(waiting, key=_turn):
            if gates := pod["spec"].get("schedulingGates"):
                names = ", ".join(gate["name"] for gate in gates)
                text = f"Scheduling is blocked due to non-empty scheduling gates: {names}"
                self._report(pod, "SchedulingGated", text, now)
                continue
            misfits = {node["metadata"]["name"]: seen.misfits(pod, node) for node in seen.nodes}
            fitting = [node for node in seen.nodes if not misfits[node["metadata"]["name"]]]
            if fitting:
                node = max(fitting, key=lambda node: (_free_share(seen, node), node["metadata"]["name"]))
                seen.pods.append(self._bind(pod, node, seen, now))
                continue
            counted = Counter(reason for reasons in misfits.values() for reason in reasons)
            reasons = ", ".join(sorted(f"{number} {reason}" for reason, number in counted.items()))
            message = f"0/{len(seen.nodes)} nodes are available{': ' if reasons else ''}{reasons}."
            message = message if seen.nodes else "no nodes available to schedule pods"
            self._report(pod, "Unschedulable", message, now)
            # events.k8s.io counts repetitions in a series, which the sandbox leaves out
            self._client.record_event(pod, "FailedScheduling", message, now, count=False)

    def _bind(self, pod: Object, node: Object, seen: SchedulerSnapshot, now: datetime) -> Object:
        """Bind a pod to a node, and return the pod. Before, bind the claims that waited for the pod."""
        for _, claim in seen.claims_of(pod):
            if claim is not None and seen.waits(claim):
                self._bind_claim(claim, node, seen)
        self._client.patch(pod, {"spec": {"nodeName": node["metadata"]["name"]}})
        return self._set_condition(pod, condition("PodScheduled", "True", now))

    def _bind_claim(self, claim: Object, node: Object, seen: SchedulerSnapshot) -> None:
        """Bind a free volume, or a new one in the zone of the node, as binder, provisioner and controller do."""
        metadata, binder = claim["metadata"], self._binder
        volume = seen.free_volume(claim, node, set()) or self._provision(claim, node, seen.class_of(claim))
        name = volume["metadata"]["name"]
        binder.patch(volume, {"spec": {"claimRef": {key: metadata[key] for key in ("namespace", "name", "uid")}}})
        seen.volumes[name] = binder.patch_status(volume, {"phase": "Bound"})
        binder.patch(claim, {"metadata": {"annotations": {BOUND: "yes"}}, "spec": {"volumeName": name}})
        seen.claims[metadata["namespace"], metadata["name"]] = binder.patch_status(claim, {"phase": "Bound"})

    def _provision(self, claim: Object, node: Object, storage: Object) -> Object:
        uid, labels, spec = claim["metadata"]["uid"], labels_of(node), claim["spec"]
        zone = [{"key": key, "operator": "In", "values": [labels[key]]} for key in _BETA if key in labels]
        reach = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": zone}]}}} if zone else {}
        volume = {
            "capacity": spec["resources"]["requests"],
            "accessModes": spec["accessModes"],
            "storageClassName": storage["metadata"]["name"],
            "csi": {"driver": storage["provisioner"], "volumeHandle": f"vol-{uid}"},
            **reach,
        }
        body = {"metadata": {"name": f"pvc-{uid}"}, "spec": volume}
        return Client(self._store, "csi-provisioner").create("persistentvolumes", body)

    def _report(self, pod: Object, reason: str, message: str, now: datetime) -> None:
        before = conditions_of(pod).get("PodScheduled", {})
        if (before.get("reason"), before.get("message")) == (reason, message):
            return
        new = condition("PodScheduled", "False", now, reason=reason, message=message)
        if before.get("status") == "False":
            new["lastTransitionTime"] = before["lastTransitionTime"]
        self._set_condition(pod, new)

    def _set_condition(self, pod: Object, new: Object) -> Object:
        others = [item for item in status_of(pod).get("conditions") or () if item["type"] != "PodScheduled"]
        return self._client.patch_status(pod, {"conditions": [*others, new]})


def _is_ours(pod: Object) -> bool:
    ended = status_of(pod).get("phase") in ("Succeeded", "Failed")
    return not (ended or is_deleting(pod)) and pod["spec"].get("schedulerName", NAME) == NAME


def _turn(pod: Object) -> tuple[int, datetime, str]:
    metadata = pod["metadata"]
    return -(pod["spec"].get("priority") or 0), parse_time(metadata["creationTimestamp"]), metadata["name"]


def _free_share(seen: SchedulerSnapshot, node: Object) -> Fraction:
    """Return the free share of cpu plus that of memory (NodeResourcesFit scores LeastAllocated)."""
    allocatable, requested = amounts(status_of(node).get("allocatable")), Counter[str]()
    for pod in seen.on(node):
        requested.update(requests_of(pod))
    names = [name for name in ("cpu", "memory") if allocatable[name]]
    return sum((1 - Fraction(requested[name], allocatable[name]) for name in names), start=Fraction())
