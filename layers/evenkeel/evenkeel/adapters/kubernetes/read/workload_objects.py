"""Reads the fields of nodes, volumes, claims, budgets and DaemonSets that scheduling needs."""

from collections.abc import Mapping
from datetime import datetime
from fractions import Fraction
from typing import Any

import msgspec
from msgspec import Raw

from evenkeel.adapters.kubernetes.read.pods import (
    ConditionShape,
    Metadata,
    NodeSelectorShape,
    OwnerShape,
    PodAnnotations,
    PodMetadata,
    PodShape,
    ResourcesShape,
    SelectorShape,
    Shape,
    amounts,
    node_terms,
    selector,
    utc,
)
from evenkeel.adapters.own_annotations import DRAIN
from evenkeel.domain.model.observations import MachineNode
from evenkeel.domain.model.templates import Taint
from evenkeel.domain.model.workload import (
    Attachment,
    Claim,
    Node,
    PodDisruptionBudget,
    Requirement,
    StorageClass,
    Volume,
)

# The kinds of in-tree volumes. Each entry has the field, the provisioner, and the CSI driver that serves such volumes
# now (k8s.io/csi-translation-lib, plugins).
_IN_TREE = (
    ("aws_elastic_block_store", "aws-ebs", "ebs.csi.aws.com"),
    ("gce_persistent_disk", "gce-pd", "pd.csi.storage.gke.io"),
    ("azure_disk", "azure-disk", "disk.csi.azure.com"),
    ("azure_file", "azure-file", "file.csi.azure.com"),
    ("cinder", "cinder", "cinder.csi.openstack.org"),
    ("vsphere_volume", "vsphere-volume", "csi.vsphere.vmware.com"),
    ("portworx_volume", "portworx-volume", "pxd.portworx.com"),
)
_DRIVERS = {f"kubernetes.io/{provisioner}": driver for _, provisioner, driver in _IN_TREE}
CORDONED_BEFORE = " cordoned"  # the end of annotation evenkeel.dev/drain
_UNSCHEDULABLE = "node.kubernetes.io/unschedulable"  # the taint of a cordoned node
KEPT = "cluster-autoscaler.kubernetes.io/scale-down-disabled"


class _AnnotatedMetadata(Metadata):
    annotations: dict[str, str] | None = None


class _Taint(Shape):
    key: str
    effect: str
    value: str | None = None


class _NodeSpec(Shape):
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    taints: list[_Taint] | None = None
    unschedulable: bool | None = None


class _NodeStatus(Shape):
    capacity: dict[str, Any] | None = None
    allocatable: dict[str, Any] | None = None
    conditions: list[ConditionShape] | None = None


def drained_since(text: str | None) -> datetime | None:
    """Return the time in the value of annotation ``evenkeel.dev/drain``; None: Evenkeel does not drain the node."""
    try:
        return utc(datetime.fromisoformat((text or "").partition(" ")[0]))
    except ValueError:
        return None


def was_cordoned(mark: str | None) -> bool:
    """Return True if somebody else had cordoned the node before Evenkeel began to drain it."""
    return (mark or "").endswith(CORDONED_BEFORE)


class NodeShape(Shape):
    metadata: _AnnotatedMetadata
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None

    def read(self, machines: Mapping[str, MachineNode]) -> Node:
        """Return a node, with its group where a machine has the node's name or id. Raises BadValueError."""
        metadata, spec, status = self.metadata, self.spec or _NodeSpec(), self.status or _NodeStatus()
        annotations = metadata.annotations or {}
        disabled = annotations.get(KEPT)
        mark = annotations.get(DRAIN)
        drained_at = drained_since(mark) if spec.unschedulable else None
        # Evenkeel uncordons a node that it drains as soon as a pod needs the node. So for a plan, pods still fit there.
        is_cordoned = bool(spec.unschedulable) and (drained_at is None or was_cordoned(mark))
        conditions = [one for one in status.conditions or () if one.type == "Ready"]
        ready = any(one.status == "True" for one in conditions)
        machine = machines.get(metadata.name) or machines.get(spec.provider_id or "")
        return Node(
            name=metadata.name,
            labels=metadata.labels or {},
            taints=tuple(
                Taint(one.key, one.value or "", one.effect)
                for one in spec.taints or ()
                if drained_at is None or is_cordoned or one.key != _UNSCHEDULABLE
            ),
            capacity=amounts(status.capacity),
            allocatable=amounts(status.allocatable),
            annotations={} if disabled is None else {KEPT: disabled},
            unschedulable=is_cordoned,
            drained_since=drained_at,
            created_at=utc(metadata.creation_timestamp),
            ready=ready,
            not_ready_since=None if ready or not conditions else utc(conditions[-1].last_transition_time),
            deleting=metadata.deletion_timestamp is not None or (machine is not None and machine.deleting),
            group=None if machine is None else machine.group,
            machine=None if machine is None else machine.machine,
        )


class _Driver(Shape):
    driver: str = ""


class _ClaimRef(Shape):
    namespace: str = ""
    name: str = ""


class _VolumeAffinity(Shape):
    required: NodeSelectorShape | None = None


class _VolumeSpec(Shape):
    csi: _Driver | None = None
    aws_elastic_block_store: Any = None
    gce_persistent_disk: Any = None
    azure_disk: Any = None
    azure_file: Any = None
    cinder: Any = None
    vsphere_volume: Any = None
    portworx_volume: Any = None
    node_affinity: _VolumeAffinity | None = None
    storage_class_name: str | None = None
    claim_ref: _ClaimRef | None = None
    capacity: dict[str, Any] | None = None
    access_modes: list[str] | None = None


class _Phase(Shape):
    phase: str | None = None


class VolumeShape(Shape):
    metadata: Metadata
    spec: _VolumeSpec
    status: _Phase | None = None

    def read(self) -> Volume:
        """Return a volume. Raises BadValueError."""
        spec, claim = self.spec, self.spec.claim_ref
        older = (driver for field, _, driver in _IN_TREE if getattr(spec, field) is not None)
        return Volume(
            name=self.metadata.name,
            driver=spec.csi.driver if spec.csi else next(older, ""),
            terms=node_terms(spec.node_affinity.required if spec.node_affinity else None),
            labels=self.metadata.labels or {},
            storage_class=spec.storage_class_name or "",
            claim=f"{claim.namespace}/{claim.name}" if claim else "",
            capacity=amounts(spec.capacity).get("storage", Fraction(0)),
            access_modes=frozenset(spec.access_modes or ()),
            phase=(self.status.phase if self.status else None) or "",
        )


class _Source(Shape):
    persistent_volume_name: str | None = None


class _AttachmentSpec(Shape):
    attacher: str = ""
    node_name: str = ""
    source: _Source | None = None


class AttachmentShape(Shape):
    """A VolumeAttachment. Without a persistent volume, it attaches an inline volume, which is counted with its pod."""

    metadata: Metadata
    spec: _AttachmentSpec

    def read(self) -> Attachment:
        """Return an attachment."""
        spec = self.spec
        volume = spec.source.persistent_volume_name if spec.source else None
        return Attachment(node=spec.node_name, driver=spec.attacher, volume=volume or "")


class _ClaimSpec(Shape):
    volume_name: str | None = None
    storage_class_name: str | None = None
    resources: ResourcesShape | None = None
    access_modes: list[str] | None = None
    selector: SelectorShape | None = None


class ClaimShape(Shape):
    metadata: _AnnotatedMetadata
    spec: _ClaimSpec
    status: _Phase | None = None

    def read(self) -> Claim:
        """Return a claim. Raises BadValueError."""
        metadata, spec = self.metadata, self.spec
        annotations, owner = metadata.annotations or {}, metadata.controller
        requests = spec.resources.requests if spec.resources else None
        return Claim(
            namespace=metadata.namespace,
            name=metadata.name,
            volume=spec.volume_name or "",
            bound="pv.kubernetes.io/bind-completed" in annotations,
            lost=self.status is not None and self.status.phase == "Lost",
            deleting=metadata.deletion_timestamp is not None,
            storage_class=spec.storage_class_name or "",
            size=amounts(requests).get("storage", Fraction(0)),
            access_modes=frozenset(spec.access_modes or ()),
            selector=selector(spec.selector) or (),
            selected_node=annotations.get("volume.kubernetes.io/selected-node", ""),
            for_pod=owner.name if owner is not None and owner.kind == "Pod" else "",
        )


class _LabelValues(Shape):
    key: str
    values: list[str] | None = None


class _Topology(Shape):
    match_label_expressions: list[_LabelValues] | None = None


class ClassShape(Shape):
    """A storage class. Its fields are at the top level, because it has no ``spec``."""

    metadata: Metadata
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[_Topology] | None = None

    def read(self) -> StorageClass:
        """Return a storage class."""
        return StorageClass(
            name=self.metadata.name,
            provisioner=_DRIVERS.get(self.provisioner, self.provisioner),
            waits=self.volume_binding_mode == "WaitForFirstConsumer",
            allowed_topologies=tuple(
                tuple(
                    Requirement(one.key, "In", tuple(one.values or ())) for one in entry.match_label_expressions or ()
                )
                for entry in self.allowed_topologies or ()
            ),
        )


class _Count(Shape):
    count: int | None = None


class _DriverOnNode(Shape):
    name: str
    allocatable: _Count | None = None


class _CsiSpec(Shape):
    drivers: list[_DriverOnNode] | None = None


class CsiNodeShape(Shape):
    metadata: Metadata
    spec: _CsiSpec | None = None

    def read(self) -> tuple[str, Mapping[str, int]]:
        """Return a node's name, and the largest number of volumes by driver. A driver without a number has no limit."""
        drivers = (self.spec.drivers if self.spec else None) or ()
        limits = {one.name: None if one.allocatable is None else one.allocatable.count for one in drivers}
        return self.metadata.name, {name: limit for name, limit in limits.items() if limit is not None}


class _BudgetSpec(Shape):
    selector: SelectorShape | None = None


class _BudgetStatus(Shape):
    disruptions_allowed: int = 0


class BudgetShape(Shape):
    metadata: Metadata
    spec: _BudgetSpec | None = None
    status: _BudgetStatus | None = None

    def read(self) -> PodDisruptionBudget:
        """Return a budget. A budget allows no disruption until its controller has counted its pods."""
        return PodDisruptionBudget(
            namespace=self.metadata.namespace,
            name=self.metadata.name,
            selector=selector(self.spec.selector if self.spec else None),
            allowed=self.status.disruptions_allowed if self.status else 0,
        )


class NamespaceShape(Shape):
    metadata: Metadata

    def read(self) -> tuple[str, Mapping[str, str]]:
        """Return a namespace's name and labels."""
        return self.metadata.name, self.metadata.labels or {}


class _TemplateMetadata(Shape):
    labels: dict[str, str] | None = None
    annotations: PodAnnotations | None = None


class _Template(Shape):
    spec: Raw
    metadata: _TemplateMetadata | None = None


class _DaemonSetSpec(Shape):
    template: _Template


class DaemonSetShape(Shape):
    metadata: Metadata
    spec: _DaemonSetSpec

    def as_pod(self) -> PodShape:
        """Return a pod of the DaemonSet as its controller creates it, before the pod is bound to a node."""
        template = self.spec.template.metadata or _TemplateMetadata()
        metadata = PodMetadata(
            name=self.metadata.name,
            namespace=self.metadata.namespace,
            labels=template.labels,
            owner_references=[OwnerShape(kind="DaemonSet", name=self.metadata.name, controller=True)],
            creation_timestamp=self.metadata.creation_timestamp,
            annotations=template.annotations,
        )
        return PodShape(metadata=metadata, spec=self.spec.template.spec)
