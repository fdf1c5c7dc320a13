"""Reads a workload cluster page by page. Of each page, only the fields that scheduling needs are kept."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from msgspec import MsgspecError, Struct

from evenkeel.access_config import WorkloadEntry
from evenkeel.adapters.kubernetes.client.api import KubernetesApi, described_right
from evenkeel.adapters.kubernetes.client.lists import list_decoder
from evenkeel.adapters.kubernetes.client.transport import MOST_BYTES, MOST_VALUES, Allowance
from evenkeel.adapters.kubernetes.flavours import flavours_of
from evenkeel.adapters.kubernetes.objects import get_path
from evenkeel.adapters.kubernetes.read.pods import Pods, PodShape
from evenkeel.adapters.kubernetes.read.workload_objects import (
    AttachmentShape,
    BudgetShape,
    ClaimShape,
    ClassShape,
    CsiNodeShape,
    DaemonSetShape,
    NamespaceShape,
    NodeShape,
    VolumeShape,
)
from evenkeel.application.errors import AccessRefusedError, ClusterUnavailableError, TooLargeError
from evenkeel.application.ports import Remaining
from evenkeel.domain.demand.volumes import OF_CLAIMS
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.observations import MachineNode
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.model.workload import Node, Pod, PodDisruptionBudget, Workload, machine_names

RIGHTS = "deploy/kubernetes/rbac-workload.yaml"
# The largest number of pods of a cluster that is read in parallel with others.
_BESIDE_OTHERS = 2_000
# The limit of the size of all pods' needs, in bytes. Equal pods share their needs, so those of 150,000 pods of 500
# templates need two megabytes.
_MOST_KEPT = 32 * 2**20
# The limits of a list of any other kind, for all pages together: 5,000 nodes of 25 KiB.
_MOST_RECEIVED, _MOST_RECEIVED_VALUES = 2 * MOST_BYTES, 2 * MOST_VALUES
# cluster-autoscaler's default namespace.
_KUBE_SYSTEM = "kube-system"
# The objects that show a running autoscaler (its lease and its status), and every kind that is listed.
# deploy/kubernetes/rbac-workload.yaml grants the rights to read them.
_STATUS = {"group": "", "resource": "configmaps", "name": "cluster-autoscaler-status"}
_SIGNS = ({"group": "coordination.k8s.io", "resource": "leases", "name": "cluster-autoscaler"}, _STATUS)
_LISTED = (
    *(("", plural) for plural in ("pods", "nodes", "persistentvolumes", "persistentvolumeclaims", "namespaces")),
    ("storage.k8s.io", "storageclasses"),
    ("storage.k8s.io", "csinodes"),
    ("storage.k8s.io", "volumeattachments"),
    ("policy", "poddisruptionbudgets"),
    ("apps", "daemonsets"),
)
_LAST_UPDATED = "cluster-autoscaler.kubernetes.io/last-updated"
_TIME = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.\d+)? ?(Z|[+-]\d\d:?\d\d)")
_LIVE = "status.phase!=Succeeded,status.phase!=Failed"
_Shape = TypeVar("_Shape", bound=Struct)
_Value = TypeVar("_Value")


class KubernetesWorkload:
    """Implements ``WorkloadCluster`` for one API server and one check."""

    def __init__(
        self,
        api: KubernetesApi,
        entry: WorkloadEntry,
        remaining: Remaining,
        *,
        flavours: Iterable[str] = (),
        alone: bool = True,
    ) -> None:
        self.api = api
        names = frozenset(flavours)
        # An Auto Scaling group lists instances, and only a Node shows that one of them is a node.
        self._seeks_nodes = AUTO_SCALING in names
        self._autoscaler_namespaces = sorted(
            {_KUBE_SYSTEM, *(flavour.autoscaler.namespace or _KUBE_SYSTEM for flavour in flavours_of(names))}
        )
        self._most_nodes, self._most_pods = entry.most_nodes, entry.most_pods
        self._remaining = remaining
        self._alone = alone
        self._pods = Pods()

    def read(self, machines: Callable[[], Mapping[str, MachineNode]], *, judges_nodes: bool) -> Workload:
        """Return the workload. Pending pods are read first, so that a pod that is bound meanwhile is not missed."""
        pods: dict[str, Pod] = {}
        if not judges_nodes:
            self._read_pods("spec.nodeName=", pods)
            if not any(pod.unscheduled is not None and pod.deleted_at is None for pod in pods.values()):
                registered = machine_names(self._nodes(machines())) if self._seeks_nodes else None
                return Workload(pods=tuple(pods.values()), registered=registered, whole=False)
        self._read_pods("" if judges_nodes else "spec.nodeName!=", pods)
        nodes = self._nodes(machines())
        workload = Workload(pods=tuple(pods.values()), nodes=nodes, registered=machine_names(nodes), whole=judges_nodes)
        workload = replace(workload, autoscaler_sought=True, autoscaler_at=self.autoscaler_at())
        workload = replace(workload, daemon_sets=self._daemon_sets())
        all_needs = {id(pod.needs): pod.needs for pod in workload.pods}.values()
        if any(volume.kind in OF_CLAIMS for needs in all_needs for volume in needs.volumes):
            workload = self._with_volumes(workload)
        if judges_nodes:
            workload = replace(workload, budgets=self.budgets())
        terms = (term for needs in all_needs for term in (*needs.affinity, *needs.anti_affinity))
        if any(term.namespace_selector is not None for term in terms):
            namespaces = dict(self.each("/api/v1/namespaces", NamespaceShape, NamespaceShape.read))
            workload = replace(workload, namespaces=namespaces)
        return workload

    def refused(self, *, orders: bool) -> Sequence[str]:
        """Return a sentence for each missing right. ``orders``: include the autoscaler's lease and status."""
        rights = [{"group": group, "resource": plural, "verb": "list", "namespace": ""} for group, plural in _LISTED]
        if orders:
            places = self._autoscaler_namespaces
            rights += [{"namespace": place, "verb": "get", **sign} for place in places for sign in _SIGNS]
        return [described_right(right) for right in rights if not self.api.allows(right, self._remaining)]

    def autoscaler_at(self) -> datetime | None:
        """Return when a cluster-autoscaler last renewed its lease or wrote its status; None if both are unreadable."""
        times = []
        for place in (f"namespaces/{name}" for name in self._autoscaler_namespaces):
            lease = self.api.get(f"/apis/coordination.k8s.io/v1/{place}/leases/cluster-autoscaler", self._remaining)
            status = self.api.get(f"/api/v1/{place}/configmaps/cluster-autoscaler-status", self._remaining)
            times.append(get_path(lease, ("spec", "renewTime")))
            times.append(get_path(status, ("metadata", "annotations", _LAST_UPDATED)))
        return max((moment for text in times if (moment := _moment(text)) is not None), default=None)

    def autoscaler_status(self, namespace: str) -> tuple[str, datetime | None]:
        """Return the text of cluster-autoscaler's status, and when it was written; empty and None: there is none."""
        status = self.api.get(f"/api/v1/namespaces/{namespace}/configmaps/cluster-autoscaler-status", self._remaining)
        text = get_path(status, ("data", "status"))
        return str(text or ""), _moment(get_path(status, ("metadata", "annotations", _LAST_UPDATED)))

    def refused_status(self, namespace: str) -> Sequence[str]:
        """Return a sentence if the right to read cluster-autoscaler's status is missing."""
        right = {"namespace": namespace, "verb": "get", **_STATUS}
        return [] if self.api.allows(right, self._remaining) else [described_right(right)]

    def pods_on(self, node: str) -> Sequence[tuple[Pod, str]]:
        """Return the pods of a node that have not ended, each with its uid."""
        fields = f"spec.nodeName={node},{_LIVE}"
        return [
            *self.each("/api/v1/pods", PodShape, lambda shape: (self._pods.read(shape), shape.metadata.uid), fields)
        ]

    def _read_pods(self, fields: str, pods: dict[str, Pod]) -> None:
        for pod in self.each("/api/v1/pods", PodShape, self._pods.read, f"{fields},{_LIVE}" if fields else _LIVE):
            pods[str(pod)] = pod
            if self._pods.weight > _MOST_KEPT:
                size = f"more than {_MOST_KEPT // 2**20} MiB of different pod requirements"
                raise TooLargeError(f"{self.api.name}: {size}")
            if not self._alone and len(pods) > _BESIDE_OTHERS:
                raise TooLargeError(
                    f"{self.api.name}: more than {_BESIDE_OTHERS} pods, while other clusters are checked too"
                )
            if len(pods) > self._most_pods:
                raise self._too_large("pods", self._most_pods)

    def _nodes(self, machines: Mapping[str, MachineNode]) -> tuple[Node, ...]:
        nodes: list[Node] = []
        for node in self.each("/api/v1/nodes", NodeShape, lambda shape: shape.read(machines)):
            if len(nodes) == self._most_nodes:
                raise self._too_large("nodes", self._most_nodes)
            nodes.append(node)
        # A machine that is still starting has an id and no node.
        joined = any(
            not node.is_sought and (node.machine is None or node.machine.has_node) for node in machines.values()
        )
        if nodes and joined and not any(node.group for node in nodes):
            raise ClusterUnavailableError(
                f"{self.api.name}: none of its {len(nodes)} nodes is a machine of the record's node groups: "
                "let workload.access lead to the cluster that runs on them"
            )
        return tuple(nodes)

    def _daemon_sets(self) -> tuple[Pod, ...]:
        """Return a pod of each DaemonSet. Empty where listing is forbidden; then only running pods are known."""
        try:
            listed = self.each(
                "/apis/apps/v1/daemonsets",
                DaemonSetShape,
                lambda shape: None if shape.metadata.deletion_timestamp else self._pods.read(shape.as_pod()),
            )
            return tuple(pod for pod in listed if pod is not None)
        except AccessRefusedError:
            return ()

    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """Return the budgets. In v1beta1 (Kubernetes 1.20), an empty selector matches nothing."""
        version = "v1" if "v1" in self.api.served("policy", self._remaining) else "v1beta1"
        budgets = self.each(f"/apis/policy/{version}/poddisruptionbudgets", BudgetShape, BudgetShape.read)
        if version == "v1":
            return tuple(budgets)
        return tuple(replace(budget, selector=budget.selector or None) for budget in budgets)

    def _too_large(self, plural: str, most: int) -> TooLargeError:
        return TooLargeError(f"{self.api.name}: it has more than {most} {plural}: raise workload.most_{plural}")

    def _with_volumes(self, workload: Workload) -> Workload:
        """Return the workload with volumes, claims and related objects. They are read only where a pod has a claim."""
        storage = "/apis/storage.k8s.io/v1"
        limits = dict(self.each(f"{storage}/csinodes", CsiNodeShape, CsiNodeShape.read))
        return replace(
            workload,
            claims=tuple(self.each("/api/v1/persistentvolumeclaims", ClaimShape, ClaimShape.read)),
            volumes=tuple(self.each("/api/v1/persistentvolumes", VolumeShape, VolumeShape.read)),
            attachments=tuple(self.each(f"{storage}/volumeattachments", AttachmentShape, AttachmentShape.read)),
            storage_classes=tuple(self.each(f"{storage}/storageclasses", ClassShape, ClassShape.read)),
            nodes=tuple(replace(node, attach_limits=limits.get(node.name, {})) for node in workload.nodes),
        )

    def each(
        self, path: str, shape: type[_Shape], read: Callable[[_Shape], _Value], fields: str = ""
    ) -> Iterator[_Value]:
        """Yield what ``read`` returns of every object of a kind. Keeps no page in memory.

        Raises ClusterUnavailableError, also where an object is not valid, because an incomplete list must not be used.
        """
        decode, count = list_decoder(shape), 0
        # Evenkeel keeps only a hundredth of a page of pods, so each page of pods has its own limit. It keeps most of a
        # page of any other kind, so all pages of such a kind share one limit.
        allowance = None if fields else Allowance(_MOST_RECEIVED, _MOST_RECEIVED_VALUES)
        try:
            for page in self.api.each_page(path, self._remaining, allowance, fields, rights=RIGHTS):
                for item in decode(page).items:
                    count += 1
                    # The limit of pods applies to every kind, because pods are the most numerous.
                    if count > self._most_pods + 1:
                        raise TooLargeError(f"GET {path} of {self.api.name}: more than {self._most_pods} objects")
                    yield read(item)
            return
        except (MsgspecError, BadValueError, UnicodeError, RecursionError) as error:
            problem = " ".join(str(error).split())[:200]
        raise ClusterUnavailableError(f"GET {path} of {self.api.name}: object {count} is not as its kind is: {problem}")


def _moment(text: object) -> datetime | None:
    """Return the time in a text, or None: RFC 3339, or as Go prints it, ``2026-01-15 12:00:00.123456789 +0000 UTC``."""
    match = _TIME.match(text) if isinstance(text, str) else None
    if match is None:
        return None
    day, time, zone = match.groups()
    try:
        return datetime.fromisoformat(f"{day}T{time}{'+00:00' if zone == 'Z' else zone}")
    except ValueError:
        return None
