"""HyperShift's NodePool, which owns the bounds of the MachineDeployment or MachineSet that is created from it.

The hypershift-operator overwrites bounds and replicas of the scalable at any event (controllers/nodepool/capi.go,
setMachineDeploymentReplicas), so Evenkeel writes the NodePool. A max below replicas lowers replicas. A NodePool with
``spec.replicas`` instead of ``spec.autoScaling`` has a fixed number of nodes, and the autoscaler does not see its
group. Only fixed replicas can fence a group at 0 nodes. The nodes of a NodePool are in one zone.
"""

from collections.abc import Sequence
from typing import Any

from evenkeel.adapters.kubernetes.objects import (
    Kind,
    Object,
    Path,
    Scalable,
    annotations_of,
    condition_of,
    get_path,
    is_being_deleted,
    labels_of,
    mapping,
    name_of,
)
from evenkeel.adapters.kubernetes.owners.base import BoundKeys, BoundsInSpec, Claim, ref_of
from evenkeel.adapters.own_annotations import ADOPTED, DECISION, OWN_LABELS, Reading
from evenkeel.domain.model.groups import Bounds, Pinning
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import quote, read_count
from evenkeel.domain.rebalancing.annotations import read_published

# The annotation that hypershift-operator sets on the scalable and its machines: <namespace>/<name> of the NodePool.
MADE_FROM = "hypershift.openshift.io/nodePool"
# The paths of a NodePool's zone (api/hypershift/v1beta1/azure.go, gcp.go, openstack.go). On AWS, a NodePool names a
# subnet instead.
_ZONES: tuple[Path, ...] = (
    ("spec", "platform", "azure", "availabilityZone"),
    ("spec", "platform", "gcp", "zone"),
    ("spec", "platform", "openstack", "availabilityZone"),
)
_TO_ZERO = ("AWS", "Azure", None)  # platforms where the CRD accepts spec.autoScaling.min 0
_SCALING, _REPLICAS, _UNTIL = ("spec", "autoScaling"), ("spec", "replicas"), ("spec", "pausedUntil")


class NodePool(BoundsInSpec):
    """Claims scalables with hypershift-operator's annotation, where their NodePool was read."""

    kind = Kind(
        "hypershift.openshift.io",
        ("v1beta1",),
        "NodePool",
        "nodepools",
        optional=True,
        may_be_refused=True,
        named_by=MADE_FROM,
    )
    rights = "deploy/kubernetes/hypershift/rbac.yaml"
    least_max = 1  # the CRD refuses spec.autoScaling.max below 1
    lowers_replicas = True

    def __init__(self, keys: BoundKeys, items: Sequence[Object]) -> None:
        super().__init__(keys, items)
        self._items = {"/".join(name_of(item)): item for item in items}
        scaled: dict[str, set[str]] = {}  # ids of the NodePools with autoScaling, by hosted cluster
        for item in items:
            if get_path(item, _SCALING) is not None and not is_being_deleted(item):
                scaled.setdefault(_hosted_cluster(item), set()).add(ref_of(self.kind, item).id)
        self._scaled = {cluster: frozenset(ids) for cluster, ids in scaled.items()}

    def _item(self, scalable: Scalable) -> Object | None:
        return self._items.get(str(scalable.annotations.get(MADE_FROM)))

    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        """Return the bounds in the scalable's NodePool, or None if the NodePool was not read."""
        item = self._item(scalable)
        if item is None:
            return None
        own, annotations = reading.of(self.kind.kind, *name_of(item)), annotations_of(item)
        own.unknown_names(annotations, (DECISION, ADOPTED), "annotation")
        own.unknown_names(mapping(get_path(item, ("metadata", "labels"))), OWN_LABELS, "label")
        scaling, fixed = get_path(item, _SCALING), "spec.replicas"
        low, high = (fixed, fixed) if scaling is None else ("spec.autoScaling.min", "spec.autoScaling.max")
        zones = (zone for path in _ZONES if isinstance(zone := get_path(item, path), str) and zone)
        pinned, cluster = _pinned(item), _hosted_cluster(item)
        least = own.read(low, get_path(item, tuple(low.split("."))), read_count) if pinned is None else pinned.min
        return Claim(
            owner=self,
            path=("f:spec", "f:autoScaling", "f:max"),
            object=item,
            annotations=annotations,
            minimum=least,
            maximum=own.read(high, get_path(item, tuple(high.split("."))), read_count),
            has_bounds=True,
            ref=ref_of(self.kind, item),
            fields=(low, high),
            labels=labels_of(item),
            zone=next(zones, None),
            least_min=0 if get_path(item, ("spec", "platform", "type")) in _TO_ZERO else 1,
            pinning=Pinning(cluster=cluster, scaled=self._scaled.get(cluster, frozenset())),
            pinned=pinned is not None,
        )

    def frozen(self, scalable: Scalable) -> Reason | None:
        """Return the reason if the NodePool is unread, paused, or has replicas that Evenkeel has not set; else None."""
        if MADE_FROM not in scalable.annotations:
            return None
        item = self._item(scalable)
        owner = f"NodePool {quote(scalable.annotations[MADE_FROM])}"
        if item is None:
            # The bounds on the scalable are copies, which hypershift-operator overwrites within seconds.
            return Reason.of(Rule.OWNER_NOT_READ, owner=owner)
        if _is_paused(item):
            return Reason.of(Rule.OWNER_PAUSED, owner=owner, until=quote(get_path(item, _UNTIL)))
        has_fixed_size = get_path(item, _SCALING) is None and _pinned(item) is None
        return Reason.of(Rule.OWNER_SETS_REPLICAS, owner=owner) if has_fixed_size else None

    def spec(self, bounds: Bounds) -> dict[str, Any]:
        """Return the ``spec`` of a merge patch that sets ``autoScaling`` and removes ``replicas``."""
        return {"autoScaling": {"min": bounds.min, "max": bounds.max}, "replicas": None}

    def pin(self, replicas: int) -> dict[str, Any]:
        """Return the ``spec`` of a merge patch that sets ``replicas`` and removes ``autoScaling``."""
        return {"autoScaling": None, "replicas": replicas}


def _hosted_cluster(item: Object) -> str:
    return f"{name_of(item)[0]}/{get_path(item, ('spec', 'clusterName'))}"


def _pinned(item: Object) -> Bounds | None:
    """Return the bounds that Evenkeel has written as fixed replicas, or None if these replicas are not in effect."""
    replicas, decision = get_path(item, _REPLICAS), get_path(item, ("metadata", "annotations", DECISION))
    if replicas is None or get_path(item, _SCALING) is not None or not isinstance(decision, str):
        return None
    published = read_published(decision)
    if published is None or not published.pinned or published.bounds is None or published.bounds.max != replicas:
        return None
    return published.bounds


def _is_paused(item: Object) -> bool:
    """Return True where hypershift-operator ignores the NodePool. The result does not depend on a clock.

    A time in ``spec.pausedUntil`` no longer pauses the NodePool once hypershift-operator reports active reconciliation
    of the current generation (support/util, ProcessPausedUntilField). A value that Go's ParseBool reads as false does
    not pause the NodePool.
    """
    until = get_path(item, _UNTIL)
    if until is None or str(until).lower() in ("false", "f", "0"):
        return False
    active = condition_of(item, ("status", "conditions"), "ReconciliationActive")
    if active is None or active.get("status") != "True":
        return True
    return bool(active.get("observedGeneration") != get_path(item, ("metadata", "generation")))
