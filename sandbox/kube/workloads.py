"""What runs a workload cluster besides its scheduler: controllers that make pods, kubelets, and who counts budgets.

As far as demand reaches: a Deployment is one ReplicaSet, a template that changes rolls nothing out, containers start at
once and end as soon as they are asked to.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import datetime

from sandbox.kube.controllers.objects import condition, controller_reference, is_deleting, labels_of, status_of
from sandbox.kube.disruption import is_ready, protects
from sandbox.kube.scheduler import Scheduler, untolerated, wants_node
from sandbox.kube.schema import Json, Object
from sandbox.kube.store import Store

_MANAGER = "kube-controller-manager"
_KUBELET = "kubelet"
#: what every pod of a DaemonSet tolerates (pkg/controller/daemon/util/daemonset_util.go:47-102)
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
    """All of it for one API server. `control_plane`: a namespace whose Deployments run elsewhere."""

    def __init__(self, store: Store, *, control_plane: str = "") -> None:
        self._store = store
        self._control_plane = control_plane
        self._scheduler = Scheduler(store)

    def step(self, now: datetime) -> None:
        """Pods are made and collected, placed, started and ended; then budgets are counted."""
        self._collect()
        for deployment in self._store.list("deployments.apps"):
            if deployment["metadata"]["namespace"] != self._control_plane:
                self._reconcile_deployment(deployment)
        for item in self._store.list("replicasets.apps"):
            self._keep_replicas(item)
        for item in self._store.list("daemonsets.apps"):
            self._keep_daemons(item)
        self._scheduler.step(now)
        self._run_kubelets(now)
        self._count_budgets()

    # -- controllers ----------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Who owns nothing any more, and who stood on a node that is gone, goes (garbage collector, pod GC)."""
        nodes = {item["metadata"]["name"] for item in self._store.list("nodes")}
        for resource, owner in (
            ("replicasets.apps", "deployments.apps"),
            ("pods", "replicasets.apps"),
            ("pods", "daemonsets.apps"),
        ):
            kind = self._store.resource(owner).kind
            owners = {item["metadata"]["uid"] for item in self._store.list(owner)}
            for item in self._store.list(resource):
                if any(
                    ref["kind"] == kind and ref["uid"] not in owners
                    for ref in item["metadata"].get("ownerReferences", ())
                ):
                    self._store.delete(resource, item["metadata"]["namespace"], item["metadata"]["name"])
        for pod in self._store.list("pods"):
            if pod["spec"].get("nodeName", "") not in {"", *nodes}:
                self._end(pod)

    def _reconcile_deployment(self, deployment: Object) -> None:
        metadata, spec = deployment["metadata"], deployment["spec"]
        mine = [
            item for item in self._store.list("replicasets.apps", metadata["namespace"]) if _is_owned(item, deployment)
        ]
        wanted = {"replicas": spec.get("replicas", 1), "selector": spec["selector"], "template": spec["template"]}
        if not mine:
            body = {
                "metadata": {
                    "generateName": f"{metadata['name']}-",
                    "namespace": metadata["namespace"],
                    "ownerReferences": [controller_reference(deployment)],
                },
                "spec": wanted,
            }
            mine = [self._store.create("replicasets.apps", body, manager=_MANAGER)]
        elif mine[0]["spec"] != wanted:
            name = mine[0]["metadata"]["name"]
            self._store.patch("replicasets.apps", metadata["namespace"], name, {"spec": wanted}, manager=_MANAGER)
        self._write_status("deployments.apps", deployment, status_of(mine[0]))

    def _keep_replicas(self, owner: Object) -> None:
        """As many pods as wanted. Who goes does not count; too many: those without a node go first, then the newest."""
        pods = self._pods_of(owner)
        living = [pod for pod in pods if not is_deleting(pod)]
        wanted = owner["spec"].get("replicas", 1)
        for _ in range(wanted - len(living)):
            self._store.create("pods", _pod_of(owner), manager=_MANAGER)
        first = sorted(living, key=lambda pod: pod["metadata"]["creationTimestamp"], reverse=True)
        first.sort(key=lambda pod: bool(pod["spec"].get("nodeName")))
        for pod in first[: max(0, len(living) - wanted)]:
            self._store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
        status = {"replicas": len(living), "readyReplicas": sum(map(is_ready, living))}
        self._write_status("replicasets.apps", owner, status)

    def _keep_daemons(self, owner: Object) -> None:
        """One pod for each node that its template lets it run on; its name stands in the place of a node affinity."""
        pods = {_node_wanted(pod): pod for pod in self._pods_of(owner)}
        for node in self._store.list("nodes"):
            name = node["metadata"]["name"]
            body = _pod_of(owner)
            body["spec"]["tolerations"] = [*(body["spec"].get("tolerations") or ()), *_OF_DAEMONS]
            if (
                name in pods
                or not wants_node(body, node)
                or untolerated(body, node.get("spec", {}).get("taints") or [])
            ):
                continue
            field = {"key": "metadata.name", "operator": "In", "values": [name]}
            terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
            affinity = body["spec"].get("affinity") or {}
            here = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
            self._store.create(
                "pods", {**body, "spec": {**body["spec"], "affinity": {**affinity, **here}}}, manager=_MANAGER
            )

    def _pods_of(self, owner: Object) -> list[Object]:
        found = self._store.list("pods", owner["metadata"]["namespace"])
        return [
            pod for pod in found if _is_owned(pod, owner) and status_of(pod).get("phase") not in ("Succeeded", "Failed")
        ]

    def _write_status(self, resource: str, item: Object, status: Object) -> None:
        if any(status_of(item).get(key) != value for key, value in status.items()):
            metadata = item["metadata"]
            where = (resource, metadata["namespace"], metadata["name"])
            self._store.patch(*where, {"status": status}, subresource="status", manager=_MANAGER)

    # -- kubelets -------------------------------------------------------------------------------------------------

    def _run_kubelets(self, now: datetime) -> None:
        """On nodes that are ready, pods are started, and ended when they are deleted."""
        ready = {item["metadata"]["name"] for item in self._store.list("nodes") if is_ready(item)}
        for pod in self._store.list("pods"):
            if pod["spec"].get("nodeName") not in ready:
                continue
            if is_deleting(pod):
                self._end(pod)
            elif status_of(pod).get("phase", "Pending") == "Pending":
                started = [condition(kind, "True", now) for kind in ("Initialized", "ContainersReady", "Ready")]
                known = [item for item in status_of(pod).get("conditions") or () if item["type"] == "PodScheduled"]
                status = {"phase": "Running", "conditions": [*known, *started]}
                where = ("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])
                self._store.patch(*where, {"status": status}, subresource="status", manager=_KUBELET)

    def _end(self, pod: Object) -> None:
        self._store.delete("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], grace=0)

    # -- disruption budgets ---------------------------------------------------------------------------------------

    def _count_budgets(self) -> None:
        """How many healthy pods each budget sees, and how many it can spare (pkg/controller/disruption)."""
        for budget in self._store.list("poddisruptionbudgets.policy"):
            metadata = budget["metadata"]
            pods = [pod for pod in self._store.list("pods", metadata["namespace"]) if protects(budget, pod)]
            pods = [pod for pod in pods if status_of(pod).get("phase") not in ("Succeeded", "Failed")]
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
                status["disruptedPods"] = dict.fromkeys(gone)  # they are deleted, and so not counted
            self._write_status("poddisruptionbudgets.policy", budget, status)

    def _expected(self, budget: Object, pods: list[Object]) -> tuple[int, int]:
        """How many pods there should be, and how many of them healthy; shares are of what their owners want."""
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
    """A number, or a percentage rounded up."""
    return math.ceil(int(text.removesuffix("%")) * of / 100) if isinstance(text, str) else int(text)


def _is_owned(item: Object, owner: Object) -> bool:
    references = item["metadata"].get("ownerReferences") or ()
    return any(reference["uid"] == owner["metadata"]["uid"] for reference in references)


def _pod_of(owner: Object) -> Object:
    """A pod of the owner's template."""
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
    """The node that a DaemonSet's pod is for."""
    required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return str(required["nodeSelectorTerms"][0]["matchFields"][0]["values"][0])
