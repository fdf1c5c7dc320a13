"""HyperShift's NodePool: it owns the bounds of the MachineDeployment or MachineSet that its operator makes of it.

The operator writes bounds and replicas back at any event of the scalable (hypershift-operator
controllers/nodepool/capi.go, setMachineDeploymentReplicas), so the NodePool is written. One NodePool is one zone.
"""

from collections.abc import Sequence
from typing import Any

from evenkeel.adapters.kubernetes.annotations import ADOPTED, DECISION, OWN_LABELS
from evenkeel.adapters.kubernetes.objects import (
    Kind,
    Object,
    Path,
    Reading,
    Scalable,
    get_path,
    mapping,
    name_of,
    string_map,
)
from evenkeel.adapters.kubernetes.owners.base import BoundKeys, BoundsInSpec, Claim, ref_of
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.reasons import Reason, Rule, because
from evenkeel.domain.model.values import read_count, shown

# What the operator writes on the scalable and its machines: <namespace>/<name> of the NodePool.
MADE_FROM = "hypershift.openshift.io/nodePool"
# Where a NodePool names its zone (api/hypershift/v1beta1/azure.go, gcp.go, openstack.go); on AWS it names a subnet.
_ZONES: tuple[Path, ...] = (
    ("spec", "platform", "azure", "availabilityZone"),
    ("spec", "platform", "gcp", "zone"),
    ("spec", "platform", "openstack", "availabilityZone"),
)


class NodePool(BoundsInSpec):
    """Claims scalables that carry the operator's annotation, where their NodePool was read."""

    kind = Kind(
        "hypershift.openshift.io",
        ("v1beta1",),
        "NodePool",
        "nodepools",
        optional=True,
        may_be_refused=True,
        named_by=MADE_FROM,
    )
    min_max = 1  # the CRD refuses spec.autoScaling.max below 1

    def __init__(self, keys: BoundKeys, items: Sequence[Object]) -> None:
        super().__init__(keys, items)
        self._items = {"/".join(name_of(item)): item for item in items}

    def _item(self, scalable: Scalable) -> Object | None:
        return self._items.get(str(scalable.annotations.get(MADE_FROM)))

    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        item = self._item(scalable)
        if item is None:
            return None
        annotations, labels = (mapping(get_path(item, ("metadata", name))) for name in ("annotations", "labels"))
        own = Reading(name=f"NodePool {'/'.join(name_of(item))}", faults=reading.faults)
        own.unknown_names(annotations, (DECISION, ADOPTED), "annotation")
        own.unknown_names(labels, OWN_LABELS, "label")
        scaling, fixed = get_path(item, ("spec", "autoScaling")), "spec.replicas"
        low, high = (fixed, fixed) if scaling is None else ("spec.autoScaling.min", "spec.autoScaling.max")
        zones = (zone for path in _ZONES if isinstance(zone := get_path(item, path), str) and zone)
        return Claim(
            owner=self,
            object=item,
            annotations=annotations,
            minimum=own.read(low, get_path(item, tuple(low.split("."))), read_count),
            maximum=own.read(high, get_path(item, tuple(high.split("."))), read_count),
            has_bounds=True,
            ref=ref_of(self.kind, item),
            fields=(low, high),
            labels=string_map(labels),
            zone=next(zones, None),
        )

    @property
    def paths(self) -> tuple[Path, ...]:
        return (("f:spec", "f:autoScaling", "f:max"),)

    def frozen(self, scalable: Scalable) -> Reason | None:
        if MADE_FROM not in scalable.annotations:
            return None
        item = self._item(scalable)
        owner = f"NodePool {shown(scalable.annotations[MADE_FROM])}"
        if item is None:
            # Its copies on the scalable are put back within seconds, and are nobody's wish.
            return because(Rule.OWNER_NOT_READ, owner=owner)
        return (
            because(Rule.OWNER_SETS_REPLICAS, owner=owner) if get_path(item, ("spec", "autoScaling")) is None else None
        )

    def spec(self, bounds: Bounds) -> dict[str, Any]:
        return {"autoScaling": {"min": bounds.min, "max": bounds.max}}
