"""Pods, nodes and volumes from files, read as a look reads them."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from msgspec import MsgspecError
from msgspec.json import Decoder, encode

from evenkeel.adapters.kubernetes.objects import name_of
from evenkeel.adapters.kubernetes.read.pods import Pods, PodShape, Shape
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
from evenkeel.application.rebalancing.ports import MachineNode
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.model.workload import Workload
from evenkeel.validation import ConfigError

# By API group (of the first one its version) and kind; nodes have a place of their own among the objects.
SHAPES: Mapping[tuple[str, str], type[Shape]] = {
    ("v1", "Pod"): PodShape,
    ("v1", "Namespace"): NamespaceShape,
    ("v1", "PersistentVolume"): VolumeShape,
    ("v1", "PersistentVolumeClaim"): ClaimShape,
    ("storage.k8s.io", "StorageClass"): ClassShape,
    ("storage.k8s.io", "CSINode"): CsiNodeShape,
    ("storage.k8s.io", "VolumeAttachment"): AttachmentShape,
    ("policy", "PodDisruptionBudget"): BudgetShape,
    ("apps", "DaemonSet"): DaemonSetShape,
}
_KINDS = {kind: shape for (_, kind), shape in SHAPES.items()} | {"Node": NodeShape}


class WorkloadFiles:
    """What files hold of a workload cluster.

    Args:
        needs_pods: Files without any pod show no workload: nothing says then which nodes are in use.
    """

    def __init__(self, *, needs_pods: bool = False) -> None:
        self._needs_pods = needs_pods
        self._found: dict[str, list[Any]] = defaultdict(list)
        self._nodes: list[NodeShape] = []
        self._pods = Pods()

    def take(self, item: Mapping[str, Any]) -> None:
        """Read one object. Raises ConfigError, with its kind, its name and what is wrong."""
        kind = str(item["kind"])
        try:
            shape: Any = Decoder(_KINDS[kind]).decode(encode(item))
            if isinstance(shape, DaemonSetShape):
                shape = shape.as_pod()
            if isinstance(shape, NodeShape):
                shape.read({})
                self._nodes.append(shape)
            else:
                self._found[kind].append(self._pods.read(shape) if isinstance(shape, PodShape) else shape.read())
        except (MsgspecError, BadValueError, TypeError, ValueError) as error:
            name = "/".join(part for part in name_of(item) if part)
            raise ConfigError([f"{f'{kind} {name}'.strip()}: {' '.join(str(error).split())[:200]}"]) from None

    def read(self, machines: Mapping[str, MachineNode]) -> Workload | None:
        """All that was taken; None: too little. ``machines`` as a look has them, of those that the files hold."""
        if self._needs_pods and "Pod" not in self._found:
            return None
        found = {kind: tuple(items) for kind, items in self._found.items()}
        limits = dict(found.get("CSINode", ()))
        nodes = [shape.read(machines) for shape in self._nodes]
        return Workload(
            pods=found.get("Pod", ()),
            nodes=tuple(replace(node, attach_limits=limits.get(node.name, {})) for node in nodes),
            claims=found.get("PersistentVolumeClaim", ()),
            volumes=found.get("PersistentVolume", ()),
            attachments=found.get("VolumeAttachment", ()),
            storage_classes=found.get("StorageClass", ()),
            budgets=found.get("PodDisruptionBudget", ()),
            namespaces=dict(found.get("Namespace", ())),
            daemon_sets=found.get("DaemonSet", ()),
        )
