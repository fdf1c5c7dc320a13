"""What a plan knows of the zone that its pool leaves, and how far it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from evenkeel.domain.model.parts import Part
from evenkeel.domain.model.policy import Leave
from evenkeel.domain.model.pools import AnyPool, Pool, is_called
from evenkeel.domain.model.reasons import Reason


class Leaving(NamedTuple):
    """The input of the plan of a pool that leaves a zone. Times are of the API server's clock."""

    leave: Leave
    room: int  # how many more nodes of the cluster may start to move now
    waits: Reason | None = None  # why no node starts to move now; None: no reason outside the pool
    stays: Mapping[str, Reason] | None = None  # name of a pod that cannot move -> why; None: pods were not read


@dataclass(frozen=True, kw_only=True)
class Progress(Part):
    """The nodes that a pool still has in the zone that it leaves."""

    zone: str
    nodes: int
    stays: Mapping[str, Reason]
    per_hour: int  # the most nodes of this pool that move in an hour
    until: datetime | None = None


def leaves(pool: AnyPool, leave: Leave) -> bool:
    """Return True if a pool leaves the zone. A pool without another zone does not, because its pods need its nodes."""
    if not isinstance(pool, Pool) or (leave.pool and not is_called(pool.id, [leave.pool])):
        return False
    inside = [leave.zone in group.identity.zone_names for group in pool.groups]
    return any(inside) and not all(inside)
