"""Whether a pool survives the loss of one zone, as values."""

from collections.abc import Mapping
from dataclasses import dataclass

from evenkeel.domain.model.reasons import Reason, Rule


@dataclass(frozen=True, kw_only=True)
class Survival:
    """The result for a pool with ``survive-zones``. Each integer is a number of nodes."""

    possible: bool = True  # False: a problem of the pool says why it cannot survive
    short: int = 0  # nodes that must be added, so that enough remain after the loss of any zone
    held: int = 0  # nodes that the pool keeps only to survive
    bound: Mapping[str, int] | None = None  # zone -> number of its pods that may run in no other zone

    @property
    def survives(self) -> bool:
        """Return True if the pool holds enough after the loss of any one zone, except for pods bound to that zone."""
        return self.possible and not self.short

    @property
    def note(self) -> Reason:
        """Return the result as a reason to report."""
        bound = tuple(
            Reason.of(Rule.PODS_BOUND, count=count, zone=zone) for zone, count in sorted((self.bound or {}).items())
        )
        return Reason.of(Rule.SURVIVES_ZONE, short=self.short, held=self.held, bound=bound)
