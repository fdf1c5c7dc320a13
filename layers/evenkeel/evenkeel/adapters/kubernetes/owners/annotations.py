"""The scalable's own annotations: where bounds stand that nobody else owns. Replicas go into the same patch."""

from evenkeel.adapters.kubernetes.objects import Path, Reading, Scalable
from evenkeel.adapters.kubernetes.owners.base import BoundsOwner, Claim


class Annotations(BoundsOwner):
    """Claims every scalable: the last of a flavour's owners."""

    def claim(self, scalable: Scalable, reading: Reading) -> Claim:
        return self.claim_of(scalable.annotations, None, reading)

    @property
    def paths(self) -> tuple[Path, ...]:
        return (("f:metadata", "f:annotations", f"f:{self.keys.max}"),)
