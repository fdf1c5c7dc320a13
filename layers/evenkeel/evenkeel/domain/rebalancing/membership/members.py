"""The members of a pool compared with the last check: absent ones, and changes by others."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.model.groups import NodeGroup, PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.pools import AnyPool, Pool, tie_of
from evenkeel.domain.model.states import PARTIAL_LIST_GRACE, MemberSnapshot, PoolState


def names_in(observation: Observation) -> frozenset[str]:
    """Return the names that a check has found: groups by key, owners of numbers by id, skipped objects by name."""
    groups, skipped = observation.groups, observation.skipped
    objects = [f"{item.namespace}/{item.name}" for item in skipped]
    return frozenset([*(str(group.key) for group in groups), *_owners(groups), *objects])


def few_members(pool: Pool, names: frozenset[str], now: datetime) -> MemberSnapshot | None:
    """Return the snapshot to store while a known group or owner is absent, or half of the groups have left the pool.

    A list may be incomplete, or empty by mistake: a second check, one ``PARTIAL_LIST_GRACE`` later, must agree. None:
    no group is absent, or the second check agreed.
    """
    before = pool.state.seen
    if before is None:
        return None
    present = set(before.requested) & {str(group.key) for group in pool.groups}
    has_left = bool(before.requested) and 2 * len(present) <= len(before.requested)
    if has_left or not names.issuperset(before.owners):
        return _waiting(before, now)
    return absent_members(pool.state, names, now)


def absent_members(state: PoolState, names: frozenset[str], now: datetime) -> MemberSnapshot | None:
    """Return the snapshot to store while a known group of a pool is absent from the cluster; else None."""
    before = state.seen
    if before is None or all(key in names or key.partition("/")[2] in names for key in before.requested):
        return None
    return _waiting(before, now)


def absent_groups(
    pools: Iterable[AnyPool], absent: Mapping[PoolId, PoolState], names: frozenset[str], now: datetime
) -> dict[PoolId, frozenset[str]]:
    """Return the known groups of each pool of which too few were found, or none (``absent``)."""
    few = [pool for pool in pools if isinstance(pool, Pool) and few_members(pool, names, now) is not None]
    states = {pool.id: pool.state for pool in few} | dict(absent)
    return {id: frozenset(state.seen.requested if state.seen is not None else ()) for id, state in states.items()}


def _waiting(before: MemberSnapshot, now: datetime) -> MemberSnapshot | None:
    """Return the snapshot with the time of the first check that missed groups; None: the second check is over."""
    since = before.few_since or now
    return None if now >= since + PARTIAL_LIST_GRACE else replace(before, few_since=since)


def _owners(groups: Iterable[NodeGroup]) -> tuple[str, ...]:
    return tuple(sorted({group.owner.numbers.ref.id for group in groups if group.owner.numbers is not None}))


def compare_members(pool: Pool, now: datetime) -> tuple[MemberSnapshot, bool, str]:
    """Return the snapshot to store, whether others have changed requested, and the group that they raised most."""
    requested = {str(group.key): group.requested for group in pool.groups}
    before, owners = pool.state.seen, _owners(pool.groups)
    if before is None:
        return MemberSnapshot(since=now, requested=requested, owners=owners), False, ""
    expected = {**before.requested, **before.planned}
    if requested in (before.requested, expected):
        planned = before.planned if requested == before.requested else {}
        return replace(before, requested=requested, planned=planned, owners=owners, few_since=None), False, ""
    grown = {
        str(group.key): more
        for group in pool.groups
        if (more := group.requested - expected.get(str(group.key), group.requested)) > 0
    }
    ties = {str(group.key): tie_of(str(pool.id), group) for group in pool.groups} if len(grown) > 1 else {}
    grower = max(grown, key=lambda key: (grown[key], ties.get(key, 0)), default="")
    return MemberSnapshot(since=now, requested=requested, owners=owners), True, grower
