"""The sources of PoolMinimum and PoolMaximum, the fix of a PoolMaximum below the number of zones, and zone weights.

The sources are, in order of precedence: annotations of members, the record, the owners of the members' bounds, and the
sum of the adopted bounds.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import gcd

from evenkeel.domain.model.groups import Bounds, NodeGroup, OwnerNumbers
from evenkeel.domain.model.origins import POOL_MAX, POOL_MIN, Origin, OwnerShare, Source
from evenkeel.domain.model.owner_intent import desired_bounds_of
from evenkeel.domain.model.policy import PoolRule
from evenkeel.domain.model.pools import AnyPool, InvalidPool, adopted_bounds
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.model.values import LARGEST_COUNT


@dataclass(slots=True)
class NumberSources:
    """The objects that may contain a pool's PoolMinimum and PoolMaximum."""

    groups: Sequence[NodeGroup]
    rule: PoolRule  # the pool's rule in the record; an empty rule if there is none
    state: PoolState
    readable: bool  # False: a value of a member cannot be read, so a sum would be too small


def find_origin(field: str, annotated: int | None, ruled: int | None, sources: NumberSources) -> Origin | None:
    """Return the origin and the value of ``POOL_MIN`` or ``POOL_MAX``; None: the number has no source.

    Args:
        field: ``POOL_MIN`` or ``POOL_MAX``.
        annotated: The value of the members' annotations.
        ruled: The value of the record.
        sources: The other sources.
    """
    is_min = field == POOL_MIN
    if annotated is not None:
        groups = tuple(
            [
                group
                for group in sources.groups
                if (group.annotations.pool_min if is_min else group.annotations.pool_max) is not None
            ]
        )
        return _cut(Origin(field=field, value=annotated, source=Source.ANNOTATION, groups=groups), sources)
    if ruled is not None:
        return _cut(Origin(field=field, value=ruled, source=Source.RECORD, rule=sources.rule), sources)
    return _cut(_summed(field, sources), sources) if sources.readable else None


def _summed(field: str, sources: NumberSources) -> Origin | None:
    """Return the sum of the owners' numbers, and of the adopted bounds of members without an owner."""

    def number(bounds: Bounds) -> int:
        return bounds.min if field == POOL_MIN else bounds.max

    shares: dict[str, OwnerShare] = {}
    adopted: list[tuple[NodeGroup, int]] = []
    for group in sources.groups:
        if group.owner.numbers is not None:
            desired = desired_bounds_of(group, sources.state)
            if desired is not None:
                shares.setdefault(
                    group.owner.numbers.ref.id, OwnerShare(owner=group.owner.numbers, desired=number(desired))
                )
        elif (bounds := adopted_bounds(group, sources.state)) is not None:
            adopted.append((group, number(bounds)))
    if not shares and not adopted and field == POOL_MAX:
        return None
    total = sum(share.desired for share in shares.values()) + sum(bound for _, bound in adopted)
    return Origin(
        field=field,
        value=min(LARGEST_COUNT, total),  # a larger value could be written, but not read back
        source=Source.OWNER if shares else Source.ADOPTION,
        groups=tuple(group for group, _ in adopted),
        owners=tuple(shares.values()),
    )


def _cut(origin: Origin | None, sources: NumberSources) -> Origin | None:
    if origin is None or origin.field == POOL_MIN:
        return origin
    caps = [group.owner.node_cap for group in sources.groups if group.owner.node_cap is not None]
    cap = min(caps, key=lambda cap: cap.nodes) if caps else None
    if cap is None or origin.value <= cap.nodes:
        return origin
    return replace(origin, value=cap.nodes, cut_by=cap)


@dataclass(frozen=True, kw_only=True)
class Change:
    """A new PoolMaximum in the one object that stores it: a member, an owner or the record's entry."""

    group: NodeGroup | None = None  # the member whose annotation changes
    owner: OwnerNumbers | None = None  # the owner whose number changes
    rule: PoolRule | None = None
    before: int | None
    after: int


class Unfixable(StrEnum):
    """The reason why only a person can fix a fault in PoolMinimum or PoolMaximum."""

    AMBIGUOUS = "ambiguous"  # Evenkeel does not know the right value
    FROZEN = "frozen"  # Evenkeel may not write the group that stores PoolMaximum
    CUT = "cut"  # the node limit of the cluster lowers PoolMaximum


@dataclass(frozen=True, kw_only=True)
class Fix:
    """The changes that make a pool's PoolMaximum valid, or the reason why only a person can fix it."""

    changes: tuple[Change, ...] = ()
    unfixable: Unfixable | None = None
    frozen: NodeGroup | None = None  # the group that cannot be written


def fix_for(pool: AnyPool) -> Fix:
    """Return the fix that raises PoolMaximum to the number of zones. Any other fault of the pool needs a person."""
    problems = pool.problems if isinstance(pool, InvalidPool) else ()
    if any(problem.kind is not ProblemKind.FEWER_THAN_ZONES for problem in problems):
        return Fix(unfixable=Unfixable.AMBIGUOUS)
    if not problems and all(warning.kind is not ProblemKind.FEWER_THAN_ZONES_IN_USE for warning in pool.warnings):
        return Fix()
    source = next(origin for origin in pool.origins if origin.field == POOL_MAX)
    if source.cut_by is not None:
        return Fix(unfixable=Unfixable.CUT)
    if source.owners:
        least = min(source.owners, key=lambda share: (share.desired, share.owner.ref))
        after = least.desired + pool.zones - source.value
        return Fix(changes=(Change(owner=least.owner, before=least.desired, after=after),))
    if source.rule is not None:
        return Fix(changes=(Change(rule=source.rule, before=source.rule.max, after=pool.zones),))
    return _annotation_fix(pool, source.groups if source.source is Source.ANNOTATION else ())


def _annotation_fix(pool: AnyPool, holders: Sequence[NodeGroup]) -> Fix:
    """Return the fix of the members' annotations.

    If PoolMaximum is a sum of adopted bounds, no object stores it. Then one member gets the annotation, which takes
    precedence over the sum.
    """
    frozen = [group for group in holders or pool.groups if group.frozen_because is not None]
    if frozen and (holders or len(frozen) == len(pool.groups)):
        return Fix(unfixable=Unfixable.FROZEN, frozen=frozen[0])
    holders = holders or [group for group in pool.groups if group.frozen_because is None][:1]
    return Fix(
        changes=tuple(Change(group=group, before=group.annotations.pool_max, after=pool.zones) for group in holders)
    )


def with_shares(groups: Sequence[NodeGroup]) -> tuple[tuple[NodeGroup, ...], list[Problem]]:
    """Return the groups with integer weights in the ratio of their percentages.

    Groups without a percentage get the remaining percentage in the ratio of their weights. If all groups have a
    percentage, the sum may be below 100. A sum above 100 is a problem. If a group has no percentage, a sum of 100 is a
    problem, too.
    """
    named = [group.annotations.weight_percent for group in groups if group.annotations.weight_percent is not None]
    if not named:
        return tuple(groups), []
    total, others = sum(named), len(groups) - len(named)
    if total > 100 or (others and total == 100):
        return tuple(groups), [Problem.of(ProblemKind.WEIGHTS_PAST_POOL, percent=total, others=others)]
    together = sum(group.annotations.weight for group in groups if group.annotations.weight_percent is None) or 1
    weights = [
        group.annotations.weight * (100 - total)
        if group.annotations.weight_percent is None
        else group.annotations.weight_percent * together
        for group in groups
    ]
    unit = gcd(*weights)
    return tuple(
        replace(group, annotations=replace(group.annotations, weight=weight // unit))
        for group, weight in zip(groups, weights, strict=True)
    ), []
