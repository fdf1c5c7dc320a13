"""OpenShift's MachineAutoscaler: it owns the bounds of the MachineSet that it targets.

Its operator writes the values back onto the MachineSet (cluster-autoscaler-operator machineautoscaler_controller.go),
so what is written to the annotations there would not last.
"""

from collections.abc import Sequence
from typing import Any

from evenkeel.adapters.kubernetes.objects import (
    ADOPTED,
    DECISION,
    Kind,
    Object,
    Path,
    Reading,
    Scalable,
    get_path,
    mapping,
    name_of,
)
from evenkeel.adapters.kubernetes.owners.base import BoundKeys, BoundsInSpec, Claim, ref_of
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import quote, read_count

# What the operator writes on a MachineSet whose bounds a MachineAutoscaler owns: <namespace>/<name>
# (cluster-autoscaler-operator machinetarget.go:80-104).
OWNED_BY = "autoscaling.openshift.io/machineautoscaler"


class MachineAutoscaler(BoundsInSpec):
    """Claims the MachineSet that ``spec.scaleTargetRef`` names, in its own namespace."""

    kind = Kind("autoscaling.openshift.io", ("v1beta1",), "MachineAutoscaler", "machineautoscalers", optional=True)
    min_max = 1  # a webhook refuses spec.maxReplicas below 1

    def __init__(self, keys: BoundKeys, items: Sequence[Object]) -> None:
        super().__init__(keys, items)
        self._by_target = {
            (name_of(item)[0], target): item
            for item in items
            if get_path(item, ("spec", "scaleTargetRef", "kind")) in (None, "MachineSet")
            and isinstance(target := get_path(item, ("spec", "scaleTargetRef", "name")), str)
        }

    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        item = self._by_target.get((scalable.namespace, scalable.name))
        if item is None:
            return None
        annotations = mapping(get_path(item, ("metadata", "annotations")))
        own = Reading(name=f"MachineAutoscaler {'/'.join(name_of(item))}", faults=reading.faults)
        own.unknown_names(annotations, (DECISION, ADOPTED), "annotation")
        return Claim(
            owner=self,
            object=item,
            annotations=annotations,
            minimum=own.read("spec.minReplicas", get_path(item, ("spec", "minReplicas")), read_count),
            maximum=own.read("spec.maxReplicas", get_path(item, ("spec", "maxReplicas")), read_count),
            has_bounds=True,
            ref=ref_of(self.kind, item),
            fields=("spec.minReplicas", "spec.maxReplicas"),
        )

    @property
    def paths(self) -> tuple[Path, ...]:
        return (("f:spec", "f:maxReplicas"),)

    def frozen(self, scalable: Scalable) -> Reason | None:
        if OWNED_BY not in scalable.annotations or (scalable.namespace, scalable.name) in self._by_target:
            return None
        # The annotations are copies: what is written there does not last, and is nobody's wish.
        owner = f"MachineAutoscaler {quote(scalable.annotations[OWNED_BY])}"
        return Reason.of(Rule.OWNER_MISSING, owner=owner)

    def spec(self, bounds: Bounds) -> dict[str, Any]:
        return {"minReplicas": bounds.min, "maxReplicas": bounds.max}
