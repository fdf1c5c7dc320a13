"""Where a pool's numbers come from, and what a PoolMaximum below the number of zones would have to become.

In this order: annotations of members, the record, the owners of the members' numbers, the sum of the bounds that the
members had before us.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from evenkeel.domain.model.groups import Bounds, NodeGroup, OwnerNumbers
from evenkeel.domain.model.origins import POOL_MAX, POOL_MIN, Origin, OwnerShare, Source
from evenkeel.domain.model.owner_intent import desired_bounds_of
from evenkeel.domain.model.policy import PoolRule
from evenkeel.domain.model.pools import AnyPool, InvalidPool, adopted_bounds
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.model.values import LARGEST_COUNT


class NumberSources(NamedTuple):
    """Whom to ask for a pool's numbers."""

    groups: Sequence[NodeGroup]
    rule: PoolRule  # of the record; an empty one where it has none
    state: PoolState
    readable: bool  # False: something about a member cannot be read, so what is added up would be too little


def find_origin(field: str, annotated: int | None, ruled: int | None, ways: NumberSources) -> Origin | None:
    """Where ``POOL_MIN`` or ``POOL_MAX`` comes from, with its value; None: nobody says it.

    Args:
        annotated: What the members' annotations say.
        ruled: What the record says.
    """
    is_min = field == POOL_MIN
    if annotated is not None:
        groups = tuple(g for g in ways.groups if (g.pool_min if is_min else g.pool_max) is not None)
        return _cut(Origin(field=field, value=annotated, source=Source.ANNOTATION, groups=groups), ways)
    if ruled is not None:
        return _cut(Origin(field=field, value=ruled, source=Source.RECORD, rule=ways.rule), ways)
    return _cut(_summed(field, ways), ways) if ways.readable else None


def _summed(field: str, ways: NumberSources) -> Origin | None:
    """What the owners say together, and of members without one what they had before us."""

    def number(bounds: Bounds) -> int:
        return bounds.min if field == POOL_MIN else bounds.max

    shares: dict[str, OwnerShare] = {}
    adopted: list[tuple[NodeGroup, int]] = []
    for group in ways.groups:
        if group.owner is not None:
            wish = desired_bounds_of(group, ways.state)
            if wish is not None:
                shares.setdefault(group.owner.ref.id, OwnerShare(owner=group.owner, wish=number(wish)))
        elif (bounds := adopted_bounds(group, ways.state)) is not None:
            adopted.append((group, number(bounds)))
    if not shares and not adopted and field == POOL_MAX:
        return None
    total = sum(share.wish for share in shares.values()) + sum(bound for _, bound in adopted)
    return Origin(
        field=field,
        value=min(LARGEST_COUNT, total),  # what replicas cannot hold could be published, but never read back
        source=Source.OWNER if shares else Source.ADOPTION,
        groups=tuple(group for group, _ in adopted),
        owners=tuple(shares.values()),
    )


def _cut(origin: Origin | None, ways: NumberSources) -> Origin | None:
    """A pool can be no larger than its cluster."""
    caps = [group.node_cap for group in ways.groups if group.node_cap is not None]
    cap = min(caps, key=lambda cap: cap.nodes, default=None)
    if origin is None or cap is None or origin.field == POOL_MIN or origin.value <= cap.nodes:
        return origin
    return replace(origin, value=cap.nodes, cut_by=cap)


@dataclass(frozen=True, kw_only=True)
class Change:
    """PoolMaximum as it should be, at the one place that names it: a member, an owner, else the record's entry."""

    group: NodeGroup | None = None  # whose annotation it is
    owner: OwnerNumbers | None = None  # whose number it is; of several that add up, this one's
    rule: PoolRule | None = None
    before: int | None
    after: int


class Unfixable(StrEnum):
    """Why a fault in a pool's numbers is left to people."""

    AMBIGUOUS = "ambiguous"  # which value is meant is for people to say
    FROZEN = "frozen"  # the object that holds the number is not written
    CUT = "cut"  # the cluster may have no more nodes


@dataclass(frozen=True, kw_only=True)
class Fix:
    """What would make a pool's numbers keep the rules; else why that is left to people."""

    changes: tuple[Change, ...] = ()
    unfixable: Unfixable | None = None
    frozen: NodeGroup | None = None  # the group that stands in the way


def fix_for(pool: AnyPool) -> Fix:
    """PoolMaximum := number of zones, where that is all that is wrong with a pool; everything else is for people."""
    problems = pool.problems if isinstance(pool, InvalidPool) else ()
    if any(problem.kind is not ProblemKind.FEWER_THAN_ZONES for problem in problems):
        return Fix(unfixable=Unfixable.AMBIGUOUS)
    if not problems and all(warning.kind is not ProblemKind.FEWER_THAN_ZONES_IN_USE for warning in pool.warnings):
        return Fix()
    source = next(origin for origin in pool.origins if origin.field == POOL_MAX)
    if source.cut_by is not None:
        return Fix(unfixable=Unfixable.CUT)
    if source.owners:
        least = min(source.owners, key=lambda share: (share.wish, share.owner.ref))
        after = least.wish + pool.zones - source.value
        return Fix(changes=(Change(owner=least.owner, before=least.wish, after=after),))
    if source.rule is not None:
        return Fix(changes=(Change(rule=source.rule, before=source.rule.max, after=pool.zones),))
    return _annotation_fix(pool, source.groups if source.source is Source.ANNOTATION else ())


def _annotation_fix(pool: AnyPool, holders: Sequence[NodeGroup]) -> Fix:
    """On the members whose annotation it is.

    A sum of their bounds is held by nobody: then one member gets the annotation, which goes before the sum.
    """
    frozen = [group for group in holders or pool.groups if group.frozen_because is not None]
    if frozen and (holders or len(frozen) == len(pool.groups)):
        return Fix(unfixable=Unfixable.FROZEN, frozen=frozen[0])
    holders = holders or [group for group in pool.groups if group.frozen_because is None][:1]
    return Fix(changes=tuple(Change(group=group, before=group.pool_max, after=pool.zones) for group in holders))
