"""A Cluster's topology, which owns the bounds of MachineDeployments that come from a ClusterClass.

The topology controller copies the annotations of an entry in ``spec.topology.workers.machineDeployments`` to the
entry's MachineDeployment, and overwrites other values of these annotations there. So Evenkeel writes these bounds to
the Cluster, and replicas to the MachineDeployment. Where the entry names no bounds, the MachineDeployment owns its
bounds.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from evenkeel.adapters.kubernetes.objects import (
    Kind,
    Object,
    Path,
    Scalable,
    annotations_of,
    applied_by_us,
    entries_of,
    get_path,
    name_of,
)
from evenkeel.adapters.kubernetes.owners.base import AppliedBounds, BoundKeys, Claim, ref_of
from evenkeel.adapters.own_annotations import Reading
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.reasons import Reason, Rule

TOPOLOGY_OWNED = "topology.cluster.x-k8s.io/owned"
TOPOLOGY_NAME = "topology.cluster.x-k8s.io/deployment-name"
_ENTRIES: Path = ("spec", "topology", "workers", "machineDeployments")


class ClusterTopology(AppliedBounds):
    """Claims MachineDeployments with the label of a ClusterClass, where their entry in the Cluster names bounds."""

    kind = Kind("cluster.x-k8s.io", ("v1beta2", "v1beta1"), "Cluster", "clusters")
    rights = "deploy/kubernetes/cluster-api/rbac-topology.yaml and admission-policy-topology.yaml"

    def __init__(self, keys: BoundKeys, items: Sequence[Object]) -> None:
        super().__init__(keys, items)
        # The API does not allow two entries with the same name. If there are two, the first entry is used.
        self._entries = {
            (*name_of(cluster), name): entry
            for cluster in items
            for entry in reversed(entries_of(cluster, _ENTRIES))
            if isinstance(name := entry.get("name"), str)
        }

    def _entry(self, scalable: Scalable) -> Object | None:
        return self._entries.get((scalable.namespace, scalable.cluster, scalable.labels.get(TOPOLOGY_NAME, "")))

    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        """Return the bounds of the scalable's entry in its Cluster, or None if the entry names no bounds."""
        entry = self._entry(scalable) if TOPOLOGY_OWNED in scalable.labels else None
        if entry is None or scalable.parent is None:
            return None
        annotations = annotations_of(entry)
        if self.keys.min not in annotations and self.keys.max not in annotations:
            # Then the topology controller does not overwrite the MachineDeployment's bounds. If these bounds come from
            # a ClusterClass, managedFields show it.
            return None
        name = str(entry.get("name"))
        place = f"{'.'.join(_ENTRIES)}[{name}].metadata.annotations"
        return self.claim_of(annotations, reading)._replace(
            object=scalable.parent,
            ref=ref_of(self.kind, scalable.parent, name),
            path=(*_annotations_path(name), f"f:{self.keys.max}"),
            fields=(f"{place}[{self.keys.min}]", f"{place}[{self.keys.max}]"),
        )

    def frozen(self, scalable: Scalable) -> Reason | None:
        """Return the reason if the topology has no entry for the scalable, or the entry sets replicas; else None."""
        if TOPOLOGY_OWNED not in scalable.labels:
            return None
        entry = self._entry(scalable)
        if entry is None:
            return Reason.of(Rule.TOPOLOGY_ENTRY_MISSING)
        return None if entry.get("replicas") is None else Reason.of(Rule.TOPOLOGY_SETS_REPLICAS)

    def applied(self, item: Object, scalable: Object, annotations: Mapping[str, str]) -> dict[str, Any]:
        """Return the body of the apply: annotations that Evenkeel has applied, and new ones of the scalable's entry."""
        wanted = get_path(scalable, ("metadata", "labels", TOPOLOGY_NAME))
        entries = []
        for entry in entries_of(item, _ENTRIES):
            name, current = entry.get("name"), annotations_of(entry)
            ours = {key: current[key] for key in applied_by_us(item, _annotations_path(str(name))) if key in current}
            if name == wanted:
                ours |= annotations
            if ours:
                entries.append({"name": name, "metadata": {"annotations": ours}})
        return {"spec": {"topology": {"workers": {"machineDeployments": entries}}}}

    def patch(
        self, item: Object, scalable: Object, annotations: Mapping[str, str | None], bounds: Bounds | None
    ) -> dict[str, Any]:
        """Return a merge patch with all entries, because a patch replaces the list. Only one entry changes."""
        name = get_path(scalable, ("metadata", "labels", TOPOLOGY_NAME))
        entries: list[Any] = []
        for entry in get_path(item, _ENTRIES):
            if get_path(entry, ("name",)) == name:
                metadata = entry.get("metadata") or {}
                merged = {**(metadata.get("annotations") or {}), **annotations}
                remaining = {key: value for key, value in merged.items() if value is not None}
                entry = {**entry, "metadata": {**metadata, "annotations": remaining}}
            entries.append(entry)
        return {"spec": {"topology": {"workers": {"machineDeployments": entries}}}}


def _annotations_path(entry: str) -> Path:
    """Return the path of an entry's annotations in managedFields."""
    return (*(f"f:{step}" for step in _ENTRIES), f'k:{{"name":"{entry}"}}', "f:metadata", "f:annotations")
