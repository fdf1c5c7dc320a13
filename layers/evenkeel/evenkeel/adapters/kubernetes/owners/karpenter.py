"""MachineDeployments that karpenter-provider-cluster-api orders machines from.

It reads their max alone, and writes their replicas: those that we lowered would be machines that it has claimed
(pkg/cloudprovider/cloudprovider.go, pkg/providers/machinedeployment).
"""

from evenkeel.adapters.kubernetes.objects import Path, Reading, Scalable
from evenkeel.adapters.kubernetes.owners.base import BoundsOwner, Claim
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.values import read_count

MEMBER = "node.cluster.x-k8s.io/karpenter-member"


class KarpenterMember(BoundsOwner):
    """Claims MachineDeployments with Karpenter's label."""

    max_only = True

    def claim(self, scalable: Scalable, reading: Reading) -> Claim | None:
        if MEMBER not in scalable.labels:
            return None
        annotations, key = scalable.annotations, self.keys.max
        return Claim(
            owner=self,
            object=None,
            annotations=annotations,
            minimum=0,
            maximum=reading.read(key, annotations.get(key), read_count),
            has_bounds=key in annotations,
        )

    @property
    def paths(self) -> tuple[Path, ...]:
        return (("f:metadata", "f:annotations", f"f:{self.keys.max}"),)

    def bounds_annotations(self, bounds: Bounds | None) -> dict[str, str | None]:
        return {self.keys.max: str(bounds.max) if bounds else None}
