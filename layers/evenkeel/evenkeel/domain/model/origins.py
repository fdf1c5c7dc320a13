"""The origins of a pool's PoolMinimum and PoolMaximum, as values."""

from dataclasses import dataclass
from enum import StrEnum

from evenkeel.domain.model.groups import NodeCap, NodeGroup, OwnerNumbers
from evenkeel.domain.model.policy import PoolRule

POOL_MIN, POOL_MAX = "evenkeel.dev/pool-min", "evenkeel.dev/pool-max"


class Source(StrEnum):
    """The sources of a pool's number, the highest precedence first. JSON contains the value."""

    ANNOTATION = "annotation"  # evenkeel.dev/pool-min or pool-max on any member
    RECORD = "record"
    OWNER = "owner"  # the object that owns the members' bounds
    ADOPTION = "adoption"  # the sum of the members' adopted bounds


@dataclass(frozen=True, kw_only=True)
class OwnerShare:
    """The share of one owner in a pool's number."""

    owner: OwnerNumbers
    desired: int  # the number that users set in the owner, even if the owner has Evenkeel's number now


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of PoolMinimum or PoolMaximum."""

    field: str  # POOL_MIN or POOL_MAX
    value: int
    source: Source
    groups: tuple[NodeGroup, ...] = ()  # the groups with the annotation or the adopted bounds
    rule: PoolRule | None = None
    owners: tuple[OwnerShare, ...] = ()
    cut_by: NodeCap | None = None  # the cluster's limit of nodes, if it has lowered the number
