"""Drains nodes of a cluster without a machine API: cordons them, and evicts their pods through the eviction API.

A drain takes several checks, because a pod is evicted only after a plan that knew all pods of the node:

    cordon    read, plan, evict    read, plan    terminate
    --*-------------*-------------------*------------*----->
      |             |                   pods that end
      |             a disruption budget may refuse: the next check tries again
      annotation evenkeel.dev/drain: since when, and whether the node was cordoned before

Each step looks at the node and its pods anew. So a run that ends half-way, or that runs twice, does no harm.
"""

from collections.abc import Collection, Iterator
from datetime import datetime

import msgspec

from evenkeel.adapters.kubernetes.client.api import described_right
from evenkeel.adapters.kubernetes.read.workload import KubernetesWorkload
from evenkeel.adapters.kubernetes.read.workload_objects import CORDONED_BEFORE, drained_since, was_cordoned
from evenkeel.adapters.own_annotations import DRAIN
from evenkeel.application.errors import DrainingError, RejectedError
from evenkeel.application.ports import Remaining
from evenkeel.domain.demand.drainability import Budgets, DrainDecision, drain_decision, ends_with_node
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.texts.english import sentence

RIGHTS = "deploy/kubernetes/rbac-drain.yaml"
_NEEDED = (
    {"verb": "patch", "group": "", "resource": "nodes", "namespace": ""},
    {"verb": "create", "group": "", "resource": "pods", "subresource": "eviction", "namespace": ""},
)


class _Metadata(msgspec.Struct, rename="camel"):
    name: str
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Spec(msgspec.Struct):
    id: str = msgspec.field(default="", name="providerID")
    unschedulable: bool = False


class _Node(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec

    @property
    def mark(self) -> str | None:
        """Return the value of Evenkeel's annotation."""
        return (self.metadata.annotations or {}).get(DRAIN)


class NodeDrainer:
    """Drains the nodes of one workload cluster during one run."""

    def __init__(self, workload: KubernetesWorkload, remaining: Remaining) -> None:
        self._api = workload.api
        self._workload = workload
        self._remaining = remaining

    def refused(self) -> list[str]:
        """Return a sentence for each missing right."""
        return [described_right(right) for right in _NEEDED if not self._api.allows(right, self._remaining)]

    def drain(
        self, instances: Collection[str], read_at: datetime, now: datetime, nodeless: Collection[str] = ()
    ) -> None:
        """Return if no pod is left on the nodes of these instances, and none can come.

        Args:
            instances: The ids of the instances.
            read_at: When the read of the cluster began on which the plan is based.
            now: The time.
            nodeless: The instances that had no node when they were read. They are drained if they have one now.

        Raises:
            DrainingError: a drain is not over. This call has taken its next step.
            RejectedError: an instance has no node in this cluster.
            ConflictError: a node has changed.
            AccessError, ClusterUnavailableError, ForbiddenError: a request failed.
        """
        nodes = dict(self._nodes(instances))
        if missing := sorted(set(instances) - nodes.keys() - set(nodeless)):
            raise RejectedError(
                f"{self._api.name}: instance {missing[0]} has no node: let workload.access lead to its cluster"
            )
        budgets, waits = Budgets(self._workload.budgets()), list[str]()
        for node in nodes.values():
            since = drained_since(node.mark) if node.spec.unschedulable else None
            if since is None:
                self._cordon(node, now)
            if since is None or since > read_at:
                waits.append(f"node {node.metadata.name} is cordoned")
            else:
                waits += self._evict(node.metadata.name, budgets, now)
        if waits:
            raise DrainingError(f"{waits[0]}{f', and {len(waits) - 1} more' if len(waits) > 1 else ''}")

    def autoscaler_status(self, namespace: str) -> tuple[str, datetime | None]:
        """Return the text of ConfigMap ``cluster-autoscaler-status``, and when the autoscaler has written it."""
        return self._workload.autoscaler_status(namespace)

    def release(self, instances: Collection[str]) -> set[str]:
        """Uncordon the nodes that Evenkeel has cordoned. Return the instances without a listed node.

        Raises as ``drain`` does.
        """
        without_node = set(instances)
        for instance, node in self._nodes(instances):
            without_node.discard(instance)
            if node.mark is not None:
                self._patch(node, None, unschedulable=node.spec.unschedulable and was_cordoned(node.mark))
        return without_node

    def _nodes(self, instances: Collection[str]) -> Iterator[tuple[str, _Node]]:
        """Yield the nodes of these instances by instance id. The provider id is ``aws:///<zone>/<instance>``."""
        for node in self._workload.each("/api/v1/nodes", _Node, lambda shape: shape):
            id = node.spec.id.rpartition("/")[2]
            if id in instances:
                yield id, node

    def _cordon(self, node: _Node, now: datetime) -> None:
        is_of_others = node.spec.unschedulable and (node.mark is None or was_cordoned(node.mark))
        self._patch(node, now.isoformat() + (CORDONED_BEFORE if is_of_others else ""), unschedulable=True)

    def _patch(self, node: _Node, mark: str | None, *, unschedulable: bool) -> None:
        metadata = {"resourceVersion": node.metadata.resource_version, "annotations": {DRAIN: mark}}
        body = {"metadata": metadata, "spec": {"unschedulable": unschedulable or None}}
        self._api.patch(f"/api/v1/nodes/{node.metadata.name}", body, self._remaining, rights=RIGHTS)

    def _evict(self, node: str, budgets: Budgets, now: datetime) -> list[str]:
        """Evict the pods of a node that may move. Return what each pod that is left waits for."""
        waits = []
        for pod, uid in self._workload.pods_on(node):
            if ends_with_node(pod, now):
                continue
            waits.append(f"pod {pod} of node {node} ends")
            if pod.deleted_at is not None:
                continue
            decision = drain_decision(pod, budgets, now)
            if decision is DrainDecision.WAITED_FOR:
                waits[-1] = f"pod {pod} of node {node} completes"
            elif isinstance(decision, Reason) and decision.rule is not Rule.BUDGET_EXHAUSTED:
                waits[-1] = f"node {node}: {sentence(decision)}"
            elif not self._api.evict(str(pod), uid, self._remaining, rights=RIGHTS):
                waits[-1] = f"pod {pod} of node {node} is kept by a disruption budget"
        return waits
