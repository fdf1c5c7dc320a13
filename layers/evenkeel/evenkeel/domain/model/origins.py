"""Where a pool's numbers come from. Values; ``texts.english`` says them."""

from dataclasses import dataclass
from enum import StrEnum

from evenkeel.domain.model.groups import NodeCap, NodeGroup, OwnerNumbers
from evenkeel.domain.model.policy import PoolRule

POOL_MIN, POOL_MAX = "evenkeel.dev/pool-min", "evenkeel.dev/pool-max"


class Source(StrEnum):
    """Who is asked for a number, in this order. The value stands in JSON."""

    ANNOTATION = "annotation"  # of any member
    RECORD = "record"
    OWNER = "owner"  # the object that the members' numbers stand on
    ADOPTION = "adoption"  # the sum of the bounds that the members had before us


@dataclass(frozen=True, kw_only=True)
class OwnerShare:
    """What one owner adds to a pool's number."""

    owner: OwnerNumbers
    wish: int  # what its people want; what stands there now may be ours


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where PoolMinimum or PoolMaximum comes from."""

    field: str  # POOL_MIN or POOL_MAX
    value: int
    source: Source
    groups: tuple[NodeGroup, ...] = ()  # whose annotation it is, or whose bounds from before us are added up
    rule: PoolRule | None = None
    owners: tuple[OwnerShare, ...] = ()
    cut_by: NodeCap | None = None  # the cluster may have no more nodes
