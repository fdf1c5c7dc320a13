"""What a plan knows of the zone that its pool leaves, and how far it is."""

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from evenkeel.domain.model.convergence import BUDGET, ConvergePolicy
from evenkeel.domain.model.parts import Part
from evenkeel.domain.model.policy import Leave
from evenkeel.domain.model.pools import AnyPool, Pool, is_called
from evenkeel.domain.model.reasons import Reason

Stays = tuple[tuple[str, Reason], ...]
"""The name of a node, and why one of its pods cannot move."""


class Leaving(NamedTuple):
    """The input of the plan of a pool that leaves a zone. Times are of the API server's clock."""

    leave: Leave
    room: int  # how many more nodes of the cluster may start to move now
    waits: Reason | None = None  # why no node starts to move now; None: no reason outside the pool
    stays: Stays | None = None  # None: pods were not read


@dataclass(frozen=True, kw_only=True)
class Progress(Part):
    """The nodes that a pool still has in the zone that it leaves."""

    nodes: int
    stays: Stays
    converge: ConvergePolicy  # when steps of this pool may start

    @property
    def moving(self) -> int:
        """Return how many of the nodes can move."""
        return max(0, self.nodes - len({node for node, _ in self.stays}))


def leaves(pool: AnyPool, leave: Leave) -> bool:
    """Return True if a pool leaves the zone. A pool without another zone does not, because its pods need its nodes."""
    inside = [leave.zone in group.identity.zone_names for group in pool.groups]
    is_named = not leave.pool or is_called(pool.id, [leave.pool])
    return isinstance(pool, Pool) and is_named and any(inside) and not all(inside)


def last_start(nodes: int, converge: ConvergePolicy, now: datetime) -> datetime | None:
    """Return the earliest time at which the last of these nodes starts to move; None: no window ever opens."""
    starts = [now]
    for number in range(nodes):
        earliest = starts[-converge.per_hour] + BUDGET if number >= converge.per_hour else starts[-1]
        if (opens := converge.opens(max(earliest, starts[-1]))) is None:
            return None
        starts.append(opens)
    return starts[-1]
