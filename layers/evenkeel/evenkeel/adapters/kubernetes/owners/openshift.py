"""OpenShift's MachineAutoscaler, which owns the bounds of a MachineSet, and its ClusterAutoscaler.

The cluster-autoscaler-operator copies the MachineAutoscaler's values to annotations of the MachineSet, and overwrites
other values of these annotations (machineautoscaler_controller.go).
"""

from collections.abc import Iterable, Sequence
from typing import Any

from evenkeel.adapters.kubernetes.objects import Kind, Object, Scalable, annotations_of, get_path, name_of
from evenkeel.adapters.kubernetes.owners.base import BoundKeys, BoundsInSpec, CapOwner, Claim, ref_of
from evenkeel.adapters.own_annotations import ADOPTED, DECISION, Reading
from evenkeel.domain.model.groups import Bounds, NodeCap
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import BadValueError, quote, read_count

_AUTOSCALING = "autoscaling.openshift.io"
# The annotation that cluster-autoscaler-operator sets on a MachineSet: <namespace>/<name> of the MachineAutoscaler
# (machinetarget.go:80-104).
OWNED_BY = f"{_AUTOSCALING}/machineautoscaler"
_NODES = ("spec", "resourceLimits", "maxNodesTotal")


class MachineAutoscaler(BoundsInSpec):
    """Claims the MachineSet that ``spec.scaleTargetRef`` of a MachineAutoscaler names, in the same namespace."""

    kind = Kind(_AUTOSCALING, ("v1beta1",), "MachineAutoscaler", "machineautoscalers", optional=True)
    least_max = 1  # a webhook refuses spec.maxReplicas below 1

    def __init__(self, keys: BoundKeys, items: Sequence[Object]) -> None:
        super().__init__(keys, items)
        self._by_target = {
            (name_of(item)[0], target): item
            for item in items
            if get_path(item, ("spec", "scaleTargetRef", "kind")) in (None, "MachineSet")
            and isinstance(target := get_path(item, ("spec", "scaleTargetRef", "name")), str)
        }

    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        """Return the bounds in the MachineAutoscaler that targets the scalable, or None if there is none."""
        item = self._by_target.get((scalable.namespace, scalable.name))
        if item is None:
            return None
        own, annotations = reading.of(self.kind.kind, *name_of(item)), annotations_of(item)
        own.unknown_names(annotations, (DECISION, ADOPTED), "annotation")
        return Claim(
            owner=self,
            path=("f:spec", "f:maxReplicas"),
            object=item,
            annotations=annotations,
            minimum=own.read("spec.minReplicas", get_path(item, ("spec", "minReplicas")), read_count),
            maximum=own.read("spec.maxReplicas", get_path(item, ("spec", "maxReplicas")), read_count),
            has_bounds=True,
            ref=ref_of(self.kind, item),
            fields=("spec.minReplicas", "spec.maxReplicas"),
        )

    def frozen(self, scalable: Scalable) -> Reason | None:
        """Return the reason if the scalable names a MachineAutoscaler, but none targets the scalable; else None."""
        if OWNED_BY not in scalable.annotations or (scalable.namespace, scalable.name) in self._by_target:
            return None
        # The bounds in the annotations are copies, which cluster-autoscaler-operator overwrites.
        owner = f"MachineAutoscaler {quote(scalable.annotations[OWNED_BY])}"
        return Reason.of(Rule.OWNER_MISSING, owner=owner)

    def spec(self, bounds: Bounds) -> dict[str, Any]:
        """Return the ``spec`` of a merge patch with these bounds as ``minReplicas`` and ``maxReplicas``."""
        return {"minReplicas": bounds.min, "maxReplicas": bounds.max}


class ClusterAutoscaler(CapOwner):
    """Reads ``spec.resourceLimits.maxNodesTotal`` (clusterautoscaler_types.go:43-125). Evenkeel never writes it."""

    kind = Kind(
        _AUTOSCALING,
        ("v1",),
        "ClusterAutoscaler",
        "clusterautoscalers",
        optional=True,
        namespaced=False,
        may_be_refused=True,
    )

    def cap(self, items: Iterable[Object]) -> NodeCap | None:
        """Return the lowest limit above 0, or None. Skips a value that is no count."""
        caps = []
        for item in items:
            try:
                nodes = read_count(get_path(item, _NODES))
            except BadValueError:
                continue
            if nodes:  # 0 means no limit, as in Cluster Autoscaler's --max-nodes-total
                caps.append(NodeCap(ref=ref_of(self.kind, item), field=".".join(_NODES), nodes=nodes))
        return min(caps, key=lambda cap: cap.nodes, default=None)
