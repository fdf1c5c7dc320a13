"""Bounds in the scalable's own annotations. Evenkeel writes them in the same patch as replicas."""

from evenkeel.adapters.kubernetes.objects import Scalable
from evenkeel.adapters.kubernetes.owners.base import BoundsOwner, Claim
from evenkeel.adapters.own_annotations import Reading
from evenkeel.domain.model.groups import Bounds

MEMBER = "node.cluster.x-k8s.io/karpenter-member"


class Annotations(BoundsOwner):
    """Claims every scalable, so it is the last of a flavour's owners."""

    def claim(self, scalable: Scalable, reading: Reading) -> Claim:
        """Return the bounds in the scalable's own annotations."""
        return self.claim_of(scalable.annotations, reading)


class KarpenterMember(BoundsOwner):
    """Claims MachineDeployments whose label lets karpenter-provider-cluster-api order machines from them.

    The provider reads only max, and writes replicas itself. Lower replicas would remove machines that the provider has
    claimed (pkg/cloudprovider/cloudprovider.go, pkg/providers/machinedeployment).
    """

    max_only = True

    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        """Return the max in the scalable's annotations with a min of 0, or None without Karpenter's label."""
        if MEMBER not in scalable.labels:
            return None
        only_max = {key: value for key, value in scalable.annotations.items() if key != self.keys.min}
        return self.claim_of(only_max, reading)._replace(annotations=scalable.annotations, minimum=0)

    def bounds_annotations(self, bounds: Bounds | None) -> dict[str, str | None]:
        """Return only the annotation of max. Where ``bounds`` is None, its value None removes it."""
        return {self.keys.max: str(bounds.max) if bounds else None}
