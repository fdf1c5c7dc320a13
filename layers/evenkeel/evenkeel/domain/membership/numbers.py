"""Where a pool's numbers stand, and what a PoolMaximum below the number of zones would have to become."""

from dataclasses import dataclass
from enum import StrEnum

from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.pools import AnyPool, InvalidPool, rule_of
from evenkeel.domain.model.problems import ProblemKind

POOL_MIN, POOL_MAX = "evenkeel.dev/pool-min", "evenkeel.dev/pool-max"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Who names a number: members by annotation, else an entry of the record; neither: the sum at adoption."""

    field: str
    groups: tuple[NodeGroup, ...] = ()
    rule: PoolRule | None = None


def origin(pool: AnyPool, policy: Policy, field: str) -> Origin:
    """Where PoolMinimum (``POOL_MIN``) or PoolMaximum (``POOL_MAX``) comes from, in the order of :mod:`pools`."""
    is_min = field == POOL_MIN
    groups = tuple(g for g in pool.groups if (g.pool_min if is_min else g.pool_max) is not None)
    rule = rule_of(pool.id, policy)
    if rule is not None and (rule.min if is_min else rule.max) is None:
        rule = None
    return Origin(field=field, groups=groups, rule=None if groups else rule)


@dataclass(frozen=True, kw_only=True)
class Change:
    """PoolMaximum as it should be, at one place that names it. ``group`` None: the record's entry ``rule``."""

    group: NodeGroup | None  # whose annotation it is
    rule: PoolRule | None
    before: int | None
    after: int


class Unfixable(StrEnum):
    """Why a fault in a pool's numbers is left to people."""

    AMBIGUOUS = "ambiguous"  # which value is meant is for people to say
    FROZEN = "frozen"  # the object that holds the number is not written


@dataclass(frozen=True, kw_only=True)
class Fix:
    """What would make a pool's numbers keep the rules; else why that is left to people."""

    changes: tuple[Change, ...] = ()
    unfixable: Unfixable | None = None
    frozen: NodeGroup | None = None  # the group that stands in the way


def fix_for(pool: AnyPool, policy: Policy) -> Fix:
    """PoolMaximum := number of zones, where that is all that is wrong with a pool; everything else is for people."""
    problems = pool.problems if isinstance(pool, InvalidPool) else ()
    if any(problem.kind is not ProblemKind.FEWER_THAN_ZONES for problem in problems):
        return Fix(unfixable=Unfixable.AMBIGUOUS)
    if not problems and all(warning.kind is not ProblemKind.FEWER_THAN_ZONES_IN_USE for warning in pool.warnings):
        return Fix()
    source = origin(pool, policy, POOL_MAX)
    frozen = [group for group in source.groups or pool.groups if group.frozen_because is not None]
    if frozen and (source.groups or len(frozen) == len(pool.groups)):
        return Fix(unfixable=Unfixable.FROZEN, frozen=frozen[0])
    if source.rule is not None:
        return Fix(changes=(Change(group=None, rule=source.rule, before=source.rule.max, after=pool.zones),))
    # A sum is held by nobody: one member gets the annotation, which then goes before the sum.
    holders = source.groups or tuple(group for group in pool.groups if group not in frozen)[:1]
    return Fix(
        changes=tuple(Change(group=group, rule=None, before=group.pool_max, after=pool.zones) for group in holders)
    )
