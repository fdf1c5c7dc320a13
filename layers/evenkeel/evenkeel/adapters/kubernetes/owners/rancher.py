"""Rancher, which owns replicas and bounds of the MachineDeployments that it makes from a Cluster's ``machinePools``.

Rancher copies ``autoscalingMinSize`` and ``autoscalingMaxSize`` of a machine pool to annotations of its
MachineDeployment (pkg/controllers/provisioningv2/provisioningcluster/template.go). Evenkeel reads the copies, as it
has no right to read the Cluster. So a new size in Rancher is a new desired bound.
"""

from evenkeel.adapters.kubernetes.objects import Scalable
from evenkeel.adapters.kubernetes.owners.base import BoundsOwner, Claim
from evenkeel.adapters.own_annotations import Reading
from evenkeel.domain.model.groups import OwnerRef
from evenkeel.domain.model.reasons import Reason, Rule


def _machine_pool(scalable: Scalable) -> OwnerRef | None:
    """Return the machine pool from which Rancher makes the scalable, or None."""
    labels = scalable.node_labels
    pool, cluster = labels.get("rke.cattle.io/rke-machine-pool-name"), labels.get("rke.cattle.io/cluster-name")
    if not isinstance(pool, str):
        return None
    name = cluster if isinstance(cluster, str) and cluster else scalable.cluster
    return OwnerRef(kind="Rancher Cluster", namespace=scalable.namespace, name=name, part=pool)


class RancherMachinePool(BoundsOwner):
    """Claims MachineDeployments of Rancher that have both bounds."""

    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        """Return the bounds in the annotations, as those of the machine pool; None if there is none, or no bounds."""
        ref = _machine_pool(scalable)
        if ref is None or not {*self.keys} <= scalable.annotations.keys():
            return None
        place = f"spec.rkeConfig.machinePools[{ref.part}]"
        fields = (f"{place}.autoscalingMinSize", f"{place}.autoscalingMaxSize")
        return self.claim_of(scalable.annotations, reading)._replace(ref=ref, fields=fields)


def managed_by_rancher(scalable: Scalable) -> Reason | None:
    """Return the note that Rancher writes the scalable, or None."""
    ref = _machine_pool(scalable)
    return None if ref is None else Reason.of(Rule.MANAGED_BY_RANCHER, cluster=f"{ref.namespace}/{ref.name}")
