"""What has become of a pool's members since the last look: who is missing, what others have changed, since when."""

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.pools import Pool, tie_of
from evenkeel.domain.model.states import MemberSnapshot, PoolState

# How long a check that misses known groups of a pool, or their owners, waits for another one.
PARTIAL_LIST_GRACE = timedelta(minutes=1)


def found_in(observation: Observation) -> frozenset[str]:
    """Return what a check has found: groups by key, owners of their numbers by id, skipped objects by their names."""
    groups, skipped = observation.groups, observation.skipped
    names = [f"{each.namespace}/{each.name}" for each in skipped]
    return frozenset([*(str(group.key) for group in groups), *_owners(groups), *names])


def few_members(pool: Pool, found: frozenset[str], now: datetime) -> MemberSnapshot | None:
    """Return the sighting to store while a known group or owner is absent, or half of the groups left the pool.

    A list may be incomplete, or empty by mistake: a second check, one ``PARTIAL_LIST_GRACE`` later must agree. None: no
    group is absent, or it did.
    """
    before = pool.state.seen
    if before is None:
        return None
    present = set(before.requested) & {str(group.key) for group in pool.groups}
    has_left = bool(before.requested) and 2 * len(present) <= len(before.requested)
    if has_left or not found.issuperset(before.owners):
        return _waiting(before, now)
    return absent_members(pool.state, found, now)


def absent_members(state: PoolState, found: frozenset[str], now: datetime) -> MemberSnapshot | None:
    """Return the sighting to store while a known group of a pool is absent from the cluster; else None."""
    before = state.seen
    if before is None or all(key in found or key.partition("/")[2] in found for key in before.requested):
        return None
    return _waiting(before, now)


def _waiting(before: MemberSnapshot, now: datetime) -> MemberSnapshot | None:
    """Return the sighting with the time since when a second check is awaited; None: it has come, and agrees."""
    since = before.few_since or now
    return None if now >= since + PARTIAL_LIST_GRACE else replace(before, few_since=since)


def _owners(groups: Iterable[NodeGroup]) -> tuple[str, ...]:
    return tuple(sorted({group.owner.ref.id for group in groups if group.owner is not None}))


def compare_members(pool: Pool, now: datetime) -> tuple[MemberSnapshot, bool, str]:
    """What is requested now and since when, whether others changed it, and the group that they let grow most."""
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
