"""Read the objects of a workload cluster from files: pods, nodes, volumes and what limits them."""

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
from evenkeel.domain.model.observations import MachineNode
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.model.workload import Workload
from evenkeel.validation import ConfigError

# The shape of each kind, by API group and kind. The core group has no name, so v1 replaces it. ``objects`` sorts nodes.
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
    """The objects of a workload cluster that the files contain.

    Args:
        needs_pods: If True, ``read`` returns None for files without pods: they do not show which nodes are in use.
    """

    def __init__(self, *, needs_pods: bool = False) -> None:
        self._needs_pods = needs_pods
        self._items: dict[str, list[Any]] = defaultdict(list)
        self._nodes: list[NodeShape] = []
        self._pods = Pods()

    def take(self, item: Mapping[str, Any]) -> None:
        """Read one object. Raises ConfigError with the object's kind and name, and the fault."""
        kind = str(item["kind"])
        try:
            shape: Any = Decoder(_KINDS[kind]).decode(encode(item))
            if isinstance(shape, DaemonSetShape):
                shape = shape.as_pod()
            if isinstance(shape, NodeShape):
                shape.read({})
                self._nodes.append(shape)
            else:
                self._items[kind].append(self._pods.read(shape) if isinstance(shape, PodShape) else shape.read())
        except (MsgspecError, BadValueError, TypeError, ValueError) as error:
            name = "/".join(part for part in name_of(item) if part)
            raise ConfigError([f"{f'{kind} {name}'.strip()}: {' '.join(str(error).split())[:200]}"]) from None

    def read(self, machines: Mapping[str, MachineNode]) -> Workload | None:
        """Return the workload; None if pods are needed and the files contain none.

        ``machines``: the machines of the files, by node name.
        """
        if self._needs_pods and "Pod" not in self._items:
            return None
        kinds = {kind: tuple(items) for kind, items in self._items.items()}
        limits = dict(kinds.get("CSINode", ()))
        nodes = [shape.read(machines) for shape in self._nodes]
        return Workload(
            pods=kinds.get("Pod", ()),
            nodes=tuple(replace(node, attach_limits=limits.get(node.name, {})) for node in nodes),
            claims=kinds.get("PersistentVolumeClaim", ()),
            volumes=kinds.get("PersistentVolume", ()),
            attachments=kinds.get("VolumeAttachment", ()),
            storage_classes=kinds.get("StorageClass", ()),
            budgets=kinds.get("PodDisruptionBudget", ()),
            namespaces=dict(kinds.get("Namespace", ())),
            daemon_sets=kinds.get("DaemonSet", ()),
        )
