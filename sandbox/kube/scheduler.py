"""kube-scheduler as far as its filters go: pods are bound to nodes, or refused in its words.

Written from its rules alone and over the objects as they are stored, so that it can disagree with what Evenkeel
computes: `tests/property/test_scheduler_agrees.py` asks both. In the order of the default profile (Kubernetes 1.36,
pkg/scheduler/framework/plugins). Of those that fit, the emptiest node takes the pod. There is no preemption, no
preferred affinity and no device claim; a pod whose containers are resized in place counts by its spec.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from hashlib import sha256
from typing import Self

from sandbox.kube.controllers.objects import annotations_of, condition, is_deleting, labels_of, parse_time, status_of
from sandbox.kube.schema import Json, Object
from sandbox.kube.selectors import holds, is_readable, selects
from sandbox.kube.store import Store, rfc3339

NAME = "default-scheduler"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND = "pv.kubernetes.io/bind-completed"
_BINARY = {f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", start=1)}
_DECIMAL = {
    letter: Fraction(10) ** (3 * power)
    for power, letter in zip(range(-3, 7), ("n", "u", "m", "", "k", "M", "G", "T", "P", "E"), strict=True)
}
_BETA = {f"topology.kubernetes.io/{end}": f"failure-domain.beta.kubernetes.io/{end}" for end in ("zone", "region")}
Why = Iterator[str]


def quantity(text: Json) -> Fraction:
    """A Kubernetes quantity, exactly."""
    text = str(text)
    number = text.rstrip("KMGTPEikmnu")
    suffix = text[len(number) :]
    return Fraction(number) * (_BINARY.get(suffix) or _DECIMAL[suffix])


def amounts(quantities: Mapping[str, Json] | None) -> Counter[str]:
    """Whole numbers, rounded up as the scheduler does: cpu in thousandths, all else as it is."""
    return _rounded({name: quantity(text) for name, text in (quantities or {}).items()})


def _rounded(exact: Mapping[str, Fraction]) -> Counter[str]:
    return Counter({name: math.ceil(amount * (1000 if name == "cpu" else 1)) for name, amount in exact.items()})


def requests_of(pod: Object) -> Counter[str]:
    """What a pod takes of a node (component-helpers/resource/helpers.go)."""
    spec = pod["spec"]
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container in spec.get("initContainers") or ():
        asked = _sum(sidecars, _asked(container))
        if container.get("restartPolicy") == "Always":
            sidecars = asked
        peak = _most(peak, asked)
    running = sidecars
    for container in spec.get("containers") or ():
        running = _sum(running, _asked(container))
    whole = {
        name: amount
        for name, amount in _asked(spec).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }
    overhead = {name: quantity(text) for name, text in (spec.get("overhead") or {}).items()}
    return _rounded(_sum(_most(peak, running) | whole, overhead))


def _asked(of: Object) -> dict[str, Fraction]:
    return {name: quantity(text) for name, text in ((of.get("resources") or {}).get("requests") or {}).items()}


def _sum(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {name: one.get(name, Fraction()) + other.get(name, Fraction()) for name in one.keys() | other.keys()}


def _most(one: Mapping[str, Fraction], other: Mapping[str, Fraction]) -> dict[str, Fraction]:
    return {name: max(one.get(name, Fraction()), other.get(name, Fraction())) for name in one.keys() | other.keys()}


def ports_of(pod: Object) -> list[tuple[str, str, int]]:
    """Address, protocol and number of every port of the host; plain init containers hold none."""
    sidecars = [item for item in pod["spec"].get("initContainers") or () if item.get("restartPolicy") == "Always"]
    return [
        (port.get("hostIP") or "0.0.0.0", port.get("protocol") or "TCP", port["hostPort"])
        for container in (*(pod["spec"].get("containers") or ()), *sidecars)
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def node_matches(selector: Object | None, node: Object) -> bool:
    """A node selector: terms of which one must hold. An empty term never does, nor one that cannot be read."""
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
    """Node selector and required node affinity."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    has = (pod["spec"].get("nodeSelector") or {}).items() <= labels_of(node).items()
    return has and node_matches(affinity, node)


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def untolerated(pod: Object, taints: list[Object]) -> Object | None:
    """The first taint that keeps a pod away."""
    for taint in taints:
        if taint["effect"] == "PreferNoSchedule":
            continue
        if not any(_tolerates(item, taint) for item in pod["spec"].get("tolerations") or ()):
            return taint
    return None


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") not in (None, "", taint["effect"]):
        return False
    exists = toleration.get("operator") == "Exists"
    if not toleration.get("key"):
        return exists
    same = toleration.get("value", "") == taint.get("value", "")
    return toleration["key"] == taint["key"] and (exists or same)


@dataclass(kw_only=True)
class Sight:
    """What the scheduler sees of a cluster. `pods` are those that have a node and have not ended."""

    nodes: list[Object]
    pods: list[Object] = field(default_factory=list)
    claims: dict[tuple[str, str], Object] = field(default_factory=dict)
    volumes: dict[str, Object] = field(default_factory=dict)
    classes: dict[str, Object] = field(default_factory=dict)
    limits: dict[str, Mapping[str, int]] = field(default_factory=dict)  # volumes per driver, by node
    attachments: list[Object] = field(default_factory=list)
    namespaces: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, store: Store) -> Self:
        return cls.over(
            {resource: store.list(resource) for resource in KINDS if resource != "pods"}
            | {"pods": [pod for pod in store.list("pods") if pod["spec"].get("nodeName")]}
        )

    @classmethod
    def over(cls, objects: Mapping[str, list[Object]]) -> Self:
        """From lists of objects, by resource."""

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
        return [pod for pod in self.pods if pod["spec"]["nodeName"] == node["metadata"]["name"]]

    def misfits(self, pod: Object, node: Object) -> list[str]:
        """Why not there, in the scheduler's words: all that the first filter that fails has to say."""
        return next((found for rule in _FILTERS if (found := list(rule(self, pod, node)))), [])

    # what several rules ask

    def claims_of(self, pod: Object) -> Iterator[tuple[str, Object | None]]:
        """The names of a pod's claims, and the claims where they are there."""
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
        return self.classes.get(claim["spec"].get("storageClassName") or "", {})

    def waits(self, claim: Object) -> bool:
        """Whether the claim is bound for its first pod."""
        unbound = not claim["spec"].get("volumeName")
        return unbound and self.class_of(claim).get("volumeBindingMode") == "WaitForFirstConsumer"

    def free_volume(self, claim: Object, node: Object, taken: set[str]) -> Object | None:
        """The smallest free volume that serves a claim and can be reached from a node."""
        found = [
            volume
            for name, volume in sorted(self.volumes.items())
            if name not in taken
            and volume["spec"].get("storageClassName", "") == claim["spec"].get("storageClassName", "")
            and not volume["spec"].get("claimRef")
            and status_of(volume).get("phase", "Available") == "Available"
            and quantity(volume["spec"]["capacity"]["storage"]) >= _asked(claim["spec"])["storage"]
            and set(claim["spec"]["accessModes"]) <= set(volume["spec"]["accessModes"])
            and selects(claim["spec"].get("selector") or {}, labels_of(volume))
            and _reaches(volume, node)
        ]
        return min(found, key=lambda volume: quantity(volume["spec"]["capacity"]["storage"]), default=None)

    def provisions(self, claim: Object, node: Object) -> bool:
        """Whether a volume can be made for a claim where this node can reach it."""
        storage = self.class_of(claim)
        allowed = storage.get("allowedTopologies") or ()
        return storage["provisioner"] != "kubernetes.io/no-provisioner" and (
            not allowed
            or any(
                all(
                    labels_of(node).get(item["key"]) in item["values"] for item in term.get("matchLabelExpressions", ())
                )
                for term in allowed
            )
        )


KINDS = (
    "nodes",
    "pods",
    "persistentvolumeclaims",
    "persistentvolumes",
    "storageclasses.storage.k8s.io",
    "csinodes.storage.k8s.io",
    "volumeattachments.storage.k8s.io",
    "namespaces",
)


def _reaches(volume: Object, node: Object) -> bool:
    return node_matches((volume["spec"].get("nodeAffinity") or {}).get("required"), node)


# -- the filters, in the order of the default profile -------------------------------------------------------------


def _unschedulable(_: Sight, pod: Object, node: Object) -> Why:
    cordon = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    if node.get("spec", {}).get("unschedulable") and untolerated(pod, [cordon]):
        yield "node(s) were unschedulable"


def _taints(_: Sight, pod: Object, node: Object) -> Why:
    if taint := untolerated(pod, node.get("spec", {}).get("taints") or []):
        yield f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"


def _node_affinity(_: Sight, pod: Object, node: Object) -> Why:
    if not wants_node(pod, node):
        yield "node(s) didn't match Pod's node affinity/selector"


def _ports(seen: Sight, pod: Object, node: Object) -> Why:
    every = "0.0.0.0"
    taken = [port for other in seen.on(node) for port in ports_of(other)]
    for address, protocol, number in ports_of(pod):
        if any((protocol, number) == (p, n) and (every in (address, a) or a == address) for a, p, n in taken):
            yield "node(s) didn't have free ports for the requested pod ports"
            return


def _resources(seen: Sight, pod: Object, node: Object) -> Why:
    free, standing = amounts(status_of(node).get("allocatable")), seen.on(node)
    if len(standing) + 1 > free["pods"]:
        yield "Too many pods"
    for other in standing:
        free.subtract(requests_of(other))
    for name, asked in sorted(requests_of(pod).items()):
        if asked > max(free[name], 0):
            yield f"Insufficient {name}"


def _exclusive(seen: Sight, pod: Object, _: Object) -> Why:
    namespace = pod["metadata"]["namespace"]
    taken = {
        name for other in seen.pods if other["metadata"]["namespace"] == namespace for name, _ in seen.claims_of(other)
    }
    for name, claim in seen.claims_of(pod):
        if claim and "ReadWriteOncePod" in claim["spec"]["accessModes"] and name in taken:
            yield "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"


def _volume_limits(seen: Sight, pod: Object, node: Object) -> Why:
    limits = seen.limits.get(node["metadata"]["name"], {})

    def attached(pods: list[Object]) -> set[tuple[str, str]]:
        """Driver and volume; of a claim that has none yet, the claim."""
        found = set()
        for other in pods:
            for name, claim in seen.claims_of(other):
                volume = seen.volumes.get((claim or {"spec": {}})["spec"].get("volumeName", ""))
                if volume:
                    found.add(((volume["spec"].get("csi") or {}).get("driver", ""), volume["metadata"]["name"]))
                elif claim:
                    found.add((seen.class_of(claim).get("provisioner", ""), f"{other['metadata']['namespace']}/{name}"))
        return found

    there, here = attached(seen.on(node)), attached([pod])
    beside = _attachments(seen, node) - there
    for driver, limit in limits.items():
        new = sum(name == driver for name, _ in here - there)
        if new and sum(name == driver for name, _ in (*there, *beside)) + new > limit:
            yield "node(s) exceed max volume count"
            return


def _attachments(seen: Sight, node: Object) -> set[tuple[str, str]]:
    """Driver and volume of what is attached to a node, or soon is; also where no pod names it."""
    found = set()
    for item in seen.attachments:
        spec = item["spec"]
        name = spec["source"].get("persistentVolumeName", "")
        if spec["nodeName"] == node["metadata"]["name"] and "csi" in seen.volumes.get(name, {"spec": {}})["spec"]:
            found.add((spec["attacher"], name))
    return found


def _volumes(seen: Sight, pod: Object, node: Object) -> Why:
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


def _volume_zone(seen: Sight, pod: Object, node: Object) -> Why:
    labels = labels_of(node)
    if not labels.keys() & {*_BETA, *_BETA.values()}:
        return
    for _, claim in seen.claims_of(pod):
        volume = seen.volumes.get((claim or {"spec": {}})["spec"].get("volumeName", ""))
        for today, beta in _BETA.items() if volume else ():
            for key in (today, beta):
                allowed = labels_of(volume or {}).get(key)
                found = labels.get(key) or (labels.get(today) if key == beta else None)
                if allowed is not None and found not in allowed.split("__"):
                    yield "node(s) had no available volume zone"
                    return


def _spread(seen: Sight, pod: Object, node: Object) -> Why:
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
        domains: Counter[str] = Counter()
        for other in seen.nodes:
            if not keys <= labels_of(other).keys():
                continue
            if constraint.get("nodeAffinityPolicy") != "Ignore" and not wants_node(pod, other):
                continue
            taints = other.get("spec", {}).get("taints") or []
            if constraint.get("nodeTaintsPolicy") == "Honor" and untolerated(pod, taints):
                continue
            domains[labels_of(other)[key]] += sum(
                standing["metadata"]["namespace"] == pod["metadata"]["namespace"]
                and not is_deleting(standing)
                # a selector that says nothing counts nobody, though it selects everybody
                and any((selector or {}).values())
                and selects(selector, labels_of(standing))
                for standing in seen.on(other)
            )
        least = min(domains.values(), default=0) if len(domains) >= (constraint.get("minDomains") or 1) else 0
        if domains[labels_of(node)[key]] + selects(selector, labels_of(pod)) - least > constraint["maxSkew"]:
            yield "node(s) didn't match pod topology spread constraints"
            return


def _pod_affinity(seen: Sight, pod: Object, node: Object) -> Why:
    zones = {item["metadata"]["name"]: labels_of(item) for item in seen.nodes}

    def near(other: Object, key: str) -> bool:
        """Whether another pod stands in the domain of this node."""
        theirs = zones.get(other["spec"]["nodeName"], {}).get(key)
        return theirs is not None and theirs == labels_of(node).get(key)

    terms = _terms(pod, "podAffinity")
    mates = [other for other in seen.pods if all(_means(seen, term, pod, other) for term in terms)]
    apart = [term for term in terms if not any(near(other, term["topologyKey"]) for other in mates)]
    if apart:
        somewhere = any(
            term["topologyKey"] in zones.get(other["spec"]["nodeName"], {}) for other in mates for term in terms
        )
        first = not somewhere and all(_means(seen, term, pod, pod) for term in terms)
        if not first or any(term["topologyKey"] not in labels_of(node) for term in terms):
            yield "node(s) didn't match pod affinity rules"
            return
    for term in _terms(pod, "podAntiAffinity"):
        if any(_means(seen, term, pod, other) and near(other, term["topologyKey"]) for other in seen.pods):
            yield "node(s) didn't match pod anti-affinity rules"
            return
    for other in seen.pods:
        for term in _terms(other, "podAntiAffinity"):
            if _means(seen, term, other, pod) and near(other, term["topologyKey"]):
                yield "node(s) didn't satisfy existing pods anti-affinity rules"
                return


def _terms(pod: Object, kind: str) -> list[Object]:
    return list(((pod["spec"].get("affinity") or {}).get(kind) or {}).get(_REQUIRED) or ())


def _means(seen: Sight, term: Object, of: Object, other: Object) -> bool:
    """Whether a term of a pod is about another one."""
    namespace, named, selector = other["metadata"]["namespace"], term.get("namespaces"), term.get("namespaceSelector")
    if named or selector is not None:
        inside = namespace in (named or ()) or selects(selector, seen.namespaces.get(namespace, {}))
    else:
        inside = namespace == of["metadata"]["namespace"]
    return inside and selects(term.get("labelSelector"), labels_of(other))


_FILTERS: tuple[Callable[[Sight, Object, Object], Why], ...] = (
    _unschedulable,
    _taints,
    _node_affinity,
    _ports,
    _resources,
    _exclusive,
    _volume_limits,
    _volumes,
    _volume_zone,
    _spread,
    _pod_affinity,
)


# -- the scheduler -----------------------------------------------------------------------------------------------


class Scheduler:
    """Every step tries each pod that has no node once: the highest priority first, then the oldest."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def step(self, now: datetime) -> None:
        """Bind what fits, and say of the rest why not."""
        waiting = [pod for pod in self._store.list("pods", fields="spec.nodeName=") if _is_ours(pod)]
        if not waiting:
            return
        seen = Sight.of(self._store)
        for pod in sorted(waiting, key=_turn):
            if gates := pod["spec"].get("schedulingGates"):
                names = ", ".join(gate["name"] for gate in gates)
                self._say(
                    pod, "SchedulingGated", f"Scheduling is blocked due to non-empty scheduling gates: {names}", now
                )
                continue
            misfits = {node["metadata"]["name"]: seen.misfits(pod, node) for node in seen.nodes}
            fitting = [node for node in seen.nodes if not misfits[node["metadata"]["name"]]]
            if fitting:
                node = max(fitting, key=lambda node: (_free_share(seen, node), node["metadata"]["name"]))
                seen.pods.append(self._bind(pod, node, seen, now))
                continue
            counted = Counter(reason for found in misfits.values() for reason in found)
            reasons = ", ".join(sorted(f"{number} {reason}" for reason, number in counted.items()))
            message = f"0/{len(seen.nodes)} nodes are available{': ' if reasons else ''}{reasons}."
            self._say(pod, "Unschedulable", message if seen.nodes else "no nodes available to schedule pods", now)
            self._record(pod, now)

    def _bind(self, pod: Object, node: Object, seen: Sight, now: datetime) -> Object:
        """The pod on its node; claims that waited for it get their volumes first."""
        for _, claim in seen.claims_of(pod):
            if claim is not None and seen.waits(claim):
                self._bind_claim(claim, node, seen)
        metadata = pod["metadata"]
        where = ("pods", metadata["namespace"], metadata["name"])
        self._store.patch(*where, {"spec": {"nodeName": node["metadata"]["name"]}}, manager=NAME)
        return self._condition(pod, condition("PodScheduled", "True", now))

    def _bind_claim(self, claim: Object, node: Object, seen: Sight) -> None:
        """A free volume, or a new one in the zone of the node: what the binder, provisioner and controller do."""
        metadata, storage = claim["metadata"], seen.class_of(claim)
        volume = seen.free_volume(claim, node, set())
        if volume is None:
            zone = [
                {"key": key, "operator": "In", "values": [labels_of(node)[key]]}
                for key in _BETA
                if key in labels_of(node)
            ]
            reach = {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": zone}]}}} if zone else {}
            volume = self._store.create(
                "persistentvolumes",
                {
                    "metadata": {"name": f"pvc-{metadata['uid']}"},
                    "spec": {
                        "capacity": claim["spec"]["resources"]["requests"],
                        "accessModes": claim["spec"]["accessModes"],
                        "storageClassName": storage["metadata"]["name"],
                        "csi": {"driver": storage["provisioner"], "volumeHandle": f"vol-{metadata['uid']}"},
                        **reach,
                    },
                },
                manager="csi-provisioner",
            )
        name = volume["metadata"]["name"]
        reference = {"claimRef": {"namespace": metadata["namespace"], "name": metadata["name"], "uid": metadata["uid"]}}
        binder = "kube-controller-manager"
        self._store.patch("persistentvolumes", "", name, {"spec": reference}, manager=binder)
        seen.volumes[name] = self._store.patch(
            "persistentvolumes", "", name, {"status": {"phase": "Bound"}}, subresource="status", manager=binder
        )
        where = ("persistentvolumeclaims", metadata["namespace"], metadata["name"])
        done = {"metadata": {"annotations": {BOUND: "yes"}}, "spec": {"volumeName": name}}
        self._store.patch(*where, done, manager=binder)
        bound = self._store.patch(*where, {"status": {"phase": "Bound"}}, subresource="status", manager=binder)
        seen.claims[metadata["namespace"], metadata["name"]] = bound

    def _say(self, pod: Object, reason: str, message: str, now: datetime) -> None:
        before = _scheduled(pod)
        if (before.get("reason"), before.get("message")) == (reason, message):
            return
        new = condition("PodScheduled", "False", now, reason=reason, message=message)
        if before.get("status") == "False":
            new["lastTransitionTime"] = before["lastTransitionTime"]
        self._condition(pod, new)

    def _condition(self, pod: Object, new: Object) -> Object:
        metadata = pod["metadata"]
        others = [item for item in status_of(pod).get("conditions") or () if item["type"] != "PodScheduled"]
        return self._store.patch(
            "pods",
            metadata["namespace"],
            metadata["name"],
            {"status": {"conditions": [*others, new]}},
            subresource="status",
            manager=NAME,
        )

    def _record(self, pod: Object, now: datetime) -> None:
        """FailedScheduling, told anew when its message is another one (events.k8s.io counts the rest as a series)."""
        metadata = pod["metadata"]
        message = _scheduled(self._store.get("pods", metadata["namespace"], metadata["name"]))["message"]
        digest = sha256(f"{metadata['uid']}{message}".encode()).hexdigest()[:16]
        name = f"{metadata['name']}.{digest}"
        if any(self._store.list("events", metadata["namespace"], fields=f"metadata.name={name}")):
            return
        involved = {"apiVersion": "v1", "kind": "Pod", "uid": metadata["uid"]}
        involved |= {key: metadata[key] for key in ("namespace", "name")}
        event = {
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": involved,
            "type": "Warning",
            "reason": "FailedScheduling",
            "message": message,
            "source": {"component": NAME},
            "count": 1,
            "firstTimestamp": rfc3339(now),
            "lastTimestamp": rfc3339(now),
        }
        self._store.create("events", event, manager=NAME)


def _is_ours(pod: Object) -> bool:
    ended = status_of(pod).get("phase") in ("Succeeded", "Failed")
    return not (ended or is_deleting(pod)) and pod["spec"].get("schedulerName", NAME) == NAME


def _turn(pod: Object) -> tuple[int, datetime, str]:
    metadata = pod["metadata"]
    return -(pod["spec"].get("priority") or 0), parse_time(metadata["creationTimestamp"]), metadata["name"]


def _scheduled(pod: Object) -> Object:
    found = (item for item in status_of(pod).get("conditions") or () if item["type"] == "PodScheduled")
    return next(found, {})


def _free_share(seen: Sight, node: Object) -> Fraction:
    """How empty a node is: of cpu and memory together (NodeResourcesFit scores LeastAllocated)."""
    all_of, asked = amounts(status_of(node).get("allocatable")), Counter[str]()
    for pod in seen.on(node):
        asked.update(requests_of(pod))
    return sum(
        (1 - Fraction(asked[name], all_of[name]) for name in ("cpu", "memory") if all_of[name]), start=Fraction()
    )
