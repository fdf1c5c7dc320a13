"""The controllers of a workload cluster besides its scheduler. They create and run pods, and update budgets.

They do only what tests of demand need: a Deployment has one ReplicaSet, a changed template starts no rollout, and
containers start and end at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime, timedelta

from sandbox.kube.client import Client
from sandbox.kube.controllers.objects import (
    condition,
    conditions_of,
    controller_reference,
    is_deleting,
    labels_of,
    parse_time,
    status_of,
)
from sandbox.kube.disruption import is_ready, protects
from sandbox.kube.scheduler import Scheduler, untolerated, wants_node
from sandbox.kube.schema import Json, Object
from sandbox.kube.store import Store

_MANAGER = "kube-controller-manager"
_EVICTED_AFTER = timedelta(minutes=5)
#: the tolerations of every DaemonSet pod (pkg/controller/daemon/util/daemonset_util.go:47-102)
_OF_DAEMONS = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)


class Workloads:
    """The controllers of one API server. `control_plane`: a namespace whose Deployments run in another cluster."""

    def __init__(self, store: Store, *, control_plane: str = "") -> None:
        self._store = store
        self._client = Client(store, _MANAGER)
        self._control_plane = control_plane
        self._scheduler = Scheduler(store)

    def step(self, now: datetime) -> None:
        """Delete orphans, create missing pods, schedule, start and end pods, then update disruption budgets."""
        self._collect()
        for deployment in self._store.list("deployments.apps"):
            if deployment["metadata"]["namespace"] != self._control_plane:
                self._reconcile_deployment(deployment)
        for item in self._store.list("replicasets.apps"):
            self._reconcile_replica_set(item)
        for item in self._store.list("daemonsets.apps"):
            self._reconcile_daemon_set(item)
        self._evict_from_broken_nodes(now)
        self._scheduler.step(now)
        self._run_kubelets(now)
        self._count_budgets()

    def _evict_from_broken_nodes(self, now: datetime) -> None:
        """Delete the pods that have no toleration for a taint NoExecute, five minutes after their node's last Ready.

        The pods end once their kubelet answers again, or their node is gone (DefaultTolerationSeconds).
        """
        for node in self._store.list("nodes"):
            taints = [taint for taint in node["spec"].get("taints") or () if taint["effect"] == "NoExecute"]
            ready = conditions_of(node).get("Ready", {})
            since = ready.get("lastTransitionTime")
            if not taints or ready.get("status") == "True" or since is None or now - parse_time(since) < _EVICTED_AFTER:
                continue
            for pod in self._store.list("pods", fields=f"spec.nodeName={node['metadata']['name']}"):
                if not is_deleting(pod) and untolerated(pod, taints):
                    self._client.delete(pod)

    # -- controllers ----------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Delete objects whose owner is gone and pods whose node is gone (garbage collector, pod GC)."""
        nodes = {item["metadata"]["name"] for item in self._store.list("nodes")}
        for resource, owner in (
            ("replicasets.apps", "deployments.apps"),
            ("pods", "replicasets.apps"),
            ("pods", "daemonsets.apps"),
        ):
            kind = self._store.resource(owner).kind
            owners = {item["metadata"]["uid"] for item in self._store.list(owner)}
            for item in self._store.list(resource):
                references = item["metadata"].get("ownerReferences", ())
                if any(ref["kind"] == kind and ref["uid"] not in owners for ref in references):
                    self._client.delete(item)
        for pod in self._store.list("pods"):
            if pod["spec"].get("nodeName", "") not in {"", *nodes}:
                self._end(pod)

    def _reconcile_deployment(self, deployment: Object) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        replica_sets = self._store.list("replicasets.apps", metadata["namespace"])
        current = next((item for item in replica_sets if _is_owned(item, deployment)), None)
        desired = {"replicas": spec.get("replicas", 1), "selector": spec["selector"], "template": spec["template"]}
        if current is None:
            owners = [controller_reference(deployment)]
            name = {"generateName": f"{metadata['name']}-", "namespace": metadata["namespace"]}
            body = {"metadata": {**name, "ownerReferences": owners}, "spec": desired}
            current = self._client.create("replicasets.apps", body)
        elif current["spec"] != desired:
            self._client.patch(current, {"spec": desired})
        self._write_status(deployment, status_of(current))

    def _reconcile_replica_set(self, owner: Object) -> None:
        """Create missing pods and delete surplus ones: pods without a node first, then the newest."""
        living = [pod for pod in self._pods_of(owner) if not is_deleting(pod)]
        replicas = owner["spec"].get("replicas", 1)
        for _ in range(replicas - len(living)):
            self._client.create("pods", _pod_of(owner))
        order = sorted(living, key=lambda pod: pod["metadata"]["creationTimestamp"], reverse=True)
        order.sort(key=lambda pod: bool(pod["spec"].get("nodeName")))
        for pod in order[: max(0, len(living) - replicas)]:
            self._client.delete(pod)
        self._write_status(owner, {"replicas": len(living), "readyReplicas": sum(map(is_ready, living))})

    def _reconcile_daemon_set(self, owner: Object) -> None:
        """Create a pod for each node that the template allows; the pod's node affinity names the node."""
        pods = {_node_wanted(pod): pod for pod in self._pods_of(owner)}
        for node in self._store.list("nodes"):
            name = node["metadata"]["name"]
            body = _pod_of(owner)
            body["spec"]["tolerations"] = [*(body["spec"].get("tolerations") or ()), *_OF_DAEMONS]
            taints = node.get("spec", {}).get("taints") or []
            if name in pods or not wants_node(body, node) or untolerated(body, taints):
                continue
            field = {"key": "metadata.name", "operator": "In", "values": [name]}
            terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
            required = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
            body["spec"]["affinity"] = {**(body["spec"].get("affinity") or {}), "nodeAffinity": required}
            self._client.create("pods", body)

    def _pods_of(self, owner: Object) -> list[Object]:
        pods = self._store.list("pods", owner["metadata"]["namespace"])
        return [pod for pod in pods if _is_owned(pod, owner) and not _has_ended(pod)]

    def _write_status(self, item: Object, status: Object) -> None:
        if any(status_of(item).get(key) != value for key, value in status.items()):
            self._client.patch_status(item, status)

    def _run_kubelets(self, now: datetime) -> None:
        """Start the pods on ready nodes, and end pods that are being deleted."""
        kubelet = Client(self._store, "kubelet")
        ready = {item["metadata"]["name"] for item in self._store.list("nodes") if is_ready(item)}
        for pod in self._store.list("pods"):
            if pod["spec"].get("nodeName") not in ready:
                continue
            if is_deleting(pod):
                self._end(pod)
            elif status_of(pod).get("phase", "Pending") == "Pending":
                started = [condition(kind, "True", now) for kind in ("Initialized", "ContainersReady", "Ready")]
                scheduled = [entry for kind, entry in conditions_of(pod).items() if kind == "PodScheduled"]
                kubelet.patch_status(pod, {"phase": "Running", "conditions": [*scheduled, *started]})

    def _end(self, pod: Object) -> None:
        self._store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], grace=0)

    # -- disruption budgets ---------------------------------------------------------------------------------------

    def _count_budgets(self) -> None:
        """Write how many healthy pods each budget has, and how many may be disrupted (pkg/controller/disruption)."""
        for budget in self._store.list("poddisruptionbudgets.policy"):
            metadata = budget["metadata"]
            pods = self._store.list("pods", metadata["namespace"])
            pods = [pod for pod in pods if protects(budget, pod) and not _has_ended(pod)]
            expected, wanted = self._expected(budget, pods)
            healthy = sum(is_ready(pod) and not is_deleting(pod) for pod in pods)
            status = {
                "observedGeneration": metadata["generation"],
                "expectedPods": expected,
                "desiredHealthy": wanted,
                "currentHealthy": healthy,
                "disruptionsAllowed": max(0, healthy - wanted) if expected else 0,
            }
            if gone := status_of(budget).get("disruptedPods"):
                status["disruptedPods"] = dict.fromkeys(gone)  # a deleted pod no longer counts
            self._write_status(budget, status)

    def _expected(self, budget: Object, pods: list[Object]) -> tuple[int, int]:
        """Return the numbers of expected and of desired healthy pods. Percentages refer to the owners' replicas."""
        spec = budget["spec"]
        least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
        if most is None and not isinstance(least, str):
            return len(pods), 1 if least is None else least
        wanted = sum(self._wanted_by_owners(pods))
        if most is not None:
            return wanted, max(0, wanted - _share(most, wanted))
        return wanted, _share(least, wanted)

    def _wanted_by_owners(self, pods: list[Object]) -> Iterator[int]:
        owners = {ref["uid"] for pod in pods for ref in pod["metadata"].get("ownerReferences") or ()}
        for item in self._store.list("replicasets.apps"):
            if item["metadata"]["uid"] in owners:
                yield item["spec"].get("replicas", 1)


def _share(text: Json, of: int) -> int:
    """Return a number unchanged, or a percentage of `of`, rounded up."""
    return math.ceil(int(text.removesuffix("%")) * of / 100) if isinstance(text, str) else int(text)


def _has_ended(pod: Object) -> bool:
    return status_of(pod).get("phase") in ("Succeeded", "Failed")


def _is_owned(item: Object, owner: Object) -> bool:
    references = item["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def _pod_of(owner: Object) -> Object:
    """Return a pod of the owner's template."""
    template = owner["spec"]["template"]
    metadata = {
        "generateName": f"{owner['metadata']['name']}-",
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [controller_reference(owner)],
    }
    if labels := labels_of(template):
        metadata["labels"] = labels
    return {"metadata": metadata, "spec": dict(template["spec"])}


def _node_wanted(pod: Object) -> str:
    """Return the node of a DaemonSet's pod."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
