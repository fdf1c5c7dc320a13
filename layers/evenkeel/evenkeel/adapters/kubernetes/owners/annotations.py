"""The scalable's own annotations: where bounds stand that nobody else owns. Replicas go into the same patch."""

from evenkeel.adapters.kubernetes.objects import Path, Reading, Scalable
from evenkeel.adapters.kubernetes.owners.base import BoundsOwner, Claim
from evenkeel.domain.model.values import read_count


class Annotations(BoundsOwner):
    """Claims every scalable: the last of a flavour's owners."""

    def claim(self, scalable: Scalable, reading: Reading) -> Claim:
        low, high = self.keys
        annotations = scalable.annotations
        return Claim(
            owner=self,
            object=None,
            annotations=annotations,
            minimum=reading.read(low, annotations.get(low), read_count),
            maximum=reading.read(high, annotations.get(high), read_count),
            has_bounds=low in annotations or high in annotations,
        )

    @property
    def paths(self) -> tuple[Path, ...]:
        return (("f:metadata", "f:annotations", f"f:{self.keys.max}"),)
