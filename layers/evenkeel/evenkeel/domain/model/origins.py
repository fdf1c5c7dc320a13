"""The origins of a pool's PoolMinimum and PoolMaximum, as values."""

from dataclasses import dataclass
from enum import StrEnum

from evenkeel.domain.model.groups import NodeCap, NodeGroup, OwnerNumbers
from evenkeel.domain.model.policy import PoolRule

POOL_LABEL = "evenkeel.dev/pool"
POOL_MIN, POOL_MAX = "evenkeel.dev/pool-min", "evenkeel.dev/pool-max"


class Source(StrEnum):
    """The possible sources of PoolMinimum or PoolMaximum, the highest precedence first. JSON contains the value."""

    ANNOTATION = "annotation"  # evenkeel.dev/pool-min or pool-max on any member
    RECORD = "record"
    OWNER = "owner"  # the object that owns the members' bounds
    ADOPTION = "adoption"  # the sum of the members' adopted bounds


@dataclass(frozen=True, kw_only=True)
class OwnerShare:
    """The part of PoolMinimum or PoolMaximum that one owner contributes."""

    owner: OwnerNumbers
    desired: int  # the number that users have set in the owner, even if Evenkeel has replaced it since


@dataclass(kw_only=True, slots=True)  # not frozen, like the pools that have origins
class Origin:
    """The origin of PoolMinimum or PoolMaximum."""

    field: str  # POOL_MIN or POOL_MAX
    value: int
    source: Source
    groups: tuple[NodeGroup, ...] = ()  # the groups with the annotation or the adopted bounds
    rule: PoolRule | None = None
    owners: tuple[OwnerShare, ...] = ()
    cut_by: NodeCap | None = None  # the limit on the cluster's nodes to which ``value`` was lowered; None: it was not
