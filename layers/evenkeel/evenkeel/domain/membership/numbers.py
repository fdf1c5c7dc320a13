"""Where a pool's numbers stand, and what a PoolMaximum below the number of zones would have to become."""

from dataclasses import dataclass

from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.pools import Pool, rule_of

POOL_MIN, POOL_MAX = "evenkeel.dev/pool-min", "evenkeel.dev/pool-max"


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Who names a number: members by annotation, else an entry of the record; neither: the sum at adoption."""

    field: str
    groups: tuple[NodeGroup, ...] = ()
    rule: PoolRule | None = None

    @property
    def sentence(self) -> str:
        """For people, to follow the number."""
        if self.groups:
            return f"annotation {self.field} on {', '.join(_object(group) for group in self.groups)}"
        if self.rule is not None:
            return f"the record's {self.field[-3:]} for pool {self.rule.name}"
        return "the sum of its members' bounds as they were at adoption"


def origin(pool: Pool, policy: Policy, field: str) -> Origin:
    """Where PoolMinimum (``POOL_MIN``) or PoolMaximum (``POOL_MAX``) comes from, in the order of :mod:`pools`."""
    is_min = field == POOL_MIN
    groups = tuple(g for g in pool.groups if (g.pool_min if is_min else g.pool_max) is not None)
    rule = rule_of(pool.id, policy)
    if rule is not None and (rule.min if is_min else rule.max) is None:
        rule = None
    return Origin(field=field, groups=groups, rule=None if groups else rule)


@dataclass(frozen=True, kw_only=True)
class Change:
    """PoolMaximum as it should be, at one place that names it. ``key`` None: the record's entry ``rule``."""

    object: str
    key: GroupKey | None
    rule: PoolRule | None
    before: int | None
    after: int

    @property
    def diff(self) -> tuple[str, ...]:
        """The change as a diff."""
        what = f'{POOL_MAX}: "{{}}"' if self.key is not None else "max: {}"
        gone = () if self.before is None else (f"-{what.format(self.before)}",)
        return (f"--- {self.object}", f"+++ {self.object}", *gone, f"+{what.format(self.after)}")


@dataclass(frozen=True, kw_only=True)
class Fix:
    """What would make a pool's numbers keep the rules, and why nothing would where it is left to people."""

    changes: tuple[Change, ...] = ()
    left: str = ""


def fix_for(pool: Pool, policy: Policy) -> Fix:
    """PoolMaximum := number of zones, where that is all that is wrong with a pool; everything else is for people."""
    zones = len({group.zone for group in pool.groups})
    too_small = pool.max is not None and pool.max < zones
    others = [problem for problem in pool.problems if not (too_small and "smaller than the number of zones" in problem)]
    if others:
        return Fix(left="which value is meant is for people to say")
    if not too_small:
        return Fix()
    where = origin(pool, policy, POOL_MAX)
    frozen = [group for group in where.groups or pool.groups if group.frozen_because is not None]
    # A sum is held by nobody: one member gets the annotation, which then goes before the sum.
    holders = where.groups or (() if where.rule else tuple(g for g in pool.groups if g not in frozen)[:1])
    if frozen and (where.groups or len(frozen) == len(pool.groups)):
        return Fix(left=f"{frozen[0].key} is left alone: {frozen[0].frozen_because}")
    if where.rule is not None:
        name = f"record, pool {where.rule.name}"
        return Fix(changes=(Change(object=name, key=None, rule=where.rule, before=where.rule.max, after=zones),))
    return Fix(
        changes=tuple(
            Change(object=_object(group), key=group.key, rule=None, before=group.pool_max, after=zones)
            for group in holders
        )
    )


def _object(group: NodeGroup) -> str:
    return f"{group.kind} {group.key.namespace}/{group.key.name}"
