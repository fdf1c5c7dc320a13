"""Origins of a pool's numbers, as values."""

from dataclasses import dataclass
from enum import StrEnum

from evenkeel.domain.model.groups import NodeCap, NodeGroup, OwnerNumbers
from evenkeel.domain.model.policy import PoolRule

POOL_MIN, POOL_MAX = "evenkeel.dev/pool-min", "evenkeel.dev/pool-max"


class Source(StrEnum):
    """Sources of a number, in order of precedence. JSON contains the value."""

    ANNOTATION = "annotation"  # of any member
    RECORD = "record"
    OWNER = "owner"  # the object that holds the members' numbers
    ADOPTION = "adoption"  # the sum of the members' adopted bounds


@dataclass(frozen=True, kw_only=True)
class OwnerShare:
    """The share of one owner in a pool's number."""

    owner: OwnerNumbers
    desired: int  # the number that its owner wants; the object may have Evenkeel's number instead


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The origin of PoolMinimum or PoolMaximum."""

    field: str  # POOL_MIN or POOL_MAX
    value: int
    source: Source
    groups: tuple[NodeGroup, ...] = ()  # with the annotation, or with the adopted bounds
    rule: PoolRule | None = None
    owners: tuple[OwnerShare, ...] = ()
    cut_by: NodeCap | None = None  # the cluster may have no more nodes
