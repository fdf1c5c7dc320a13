"""Moving stuck replicas to other zones, so that a crash at any point neither loses nor doubles one.

Before its first patch a move is written down: how many replicas each group gives up or takes on. Each patch of replicas
carries the move's id in annotation ``evenkeel.dev/move``, in the same write, so that the objects themselves say which
steps were done, whatever became of the answer. What was given up and not yet taken on is *owed*: the next plan places
it.

    written down     zone a -3          zone b +2    (crash)
    -----*---------------*------------------*----------x----> next look: a and b carry the id, c does not: owed 1
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from evenkeel.domain.model import NodeGroup


@dataclass(frozen=True, kw_only=True)
class Move:
    """One move of one pool, as it was written down before its first patch."""

    id: str
    carried: int = 0  # owed by the move before it
    steps: Mapping[str, int] = field(default_factory=dict)  # group -> replicas taken on (negative: given up)

    def owed(self, groups: Iterable[NodeGroup]) -> int:
        """Replicas that were given up and not yet taken on, from what the groups themselves say."""
        done = sum(self.steps.get(str(group.key), 0) for group in groups if group.move == self.id)
        return max(0, self.carried - done)
