"""The members of a pool compared with the last check: absent members, and replicas that others have changed."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import NamedTuple

from evenkeel.domain.model.groups import NodeGroup, PoolId
from evenkeel.domain.model.observations import Check, Observation
from evenkeel.domain.model.pools import AnyPool, InvalidPool, Pool, tie_of
from evenkeel.domain.model.second_checks import doubted_since, is_confirmed
from evenkeel.domain.model.states import MemberSnapshot, PoolState


class Comparison(NamedTuple):
    """A pool's replicas, compared with the last check."""

    snapshot: MemberSnapshot  # the snapshot to store
    others_changed: bool  # True: another controller has changed the replicas of a group
    grower: str  # key of the group that other controllers have raised most; empty: they raised no group


@dataclass(frozen=True)
class FoundMembers:
    """The members of all pools, compared with the last check."""

    # For each pool with absent members: the snapshot to store until a second check confirms the absence.
    few: Mapping[PoolId, MemberSnapshot]
    # For each stored pool of which this check found no member: the same kind of snapshot.
    absent: Mapping[PoolId, MemberSnapshot]
    complete: Mapping[PoolId, Comparison]  # for each other valid pool

    @property
    def groups(self) -> dict[PoolId, frozenset[str]]:
        """Return the keys of the known groups of each pool that has absent members."""
        return {id: frozenset(snapshot.requested) for id, snapshot in (*self.few.items(), *self.absent.items())}


def compare_pools(pools: Iterable[AnyPool], check: Check) -> FoundMembers:
    """Return the members of all pools, compared with the last check.

    A list of groups may be incomplete, or empty by mistake. So a member counts as absent only if a second check
    misses exactly the same members (``domain.model.second_checks``).
    """
    now = check.now

    @cache
    def names() -> frozenset[str]:
        return _names_in(check.observation)

    few, complete, present = {}, {}, set[PoolId | None]()
    for pool in pools:
        present |= {pool.id, pool.known_as}
        if isinstance(pool, InvalidPool):
            continue
        requested, owners = {str(group.key): group.requested for group in pool.groups}, _owners(pool.groups)
        if (snapshot := _few_members(pool, requested, owners, names, now)) is not None:
            few[pool.id] = snapshot
        else:
            complete[pool.id] = _compare(pool, requested, owners, now)
    absent = {
        id: snapshot
        for id in sorted(check.state.pools.keys() - present)
        if (snapshot := _absent_members(check.state.pools[id], names, now)) is not None
    }
    return FoundMembers(few, absent, complete)


def _names_in(observation: Observation) -> frozenset[str]:
    """Return the keys of groups, the ids of owners and the names of skipped objects that the check found."""
    groups, skipped = observation.groups, observation.skipped
    objects = [f"{item.namespace}/{item.name}" for item in skipped]
    return frozenset([*(str(group.key) for group in groups), *_owners(groups), *objects])


def _few_members(
    pool: Pool,
    requested: Mapping[str, int],
    owners: tuple[str, ...],
    names: Callable[[], frozenset[str]],
    now: datetime,
) -> MemberSnapshot | None:
    """Return the snapshot to store while a known group or owner is absent, or half of the groups have left the pool.

    None: no member is absent, or a second check has confirmed the absence.
    """
    before = pool.state.seen
    if before is None:
        return None
    if before.requested.keys() <= requested.keys() and before.owners == owners:
        return None
    present = requested.keys() & before.requested.keys()
    has_left = bool(before.requested) and 2 * len(present) <= len(before.requested)
    if has_left or not names().issuperset(before.owners):
        return _waiting(before, (before.requested.keys() - present) | (set(before.owners) - names()), now)
    return _absent_members(pool.state, names, now)


def _absent_members(state: PoolState, names: Callable[[], frozenset[str]], now: datetime) -> MemberSnapshot | None:
    """Return the snapshot to store while a known group of a pool is absent from the cluster; else None."""
    before = state.seen
    if before is None:
        return None
    missing = [key for key in before.requested if not (key in names() or key.partition("/")[2] in names())]
    return _waiting(before, missing, now) if missing else None


def _waiting(before: MemberSnapshot, absent: Iterable[str], now: datetime) -> MemberSnapshot | None:
    """Return the snapshot with what the first check missed, and its time; None: this is the second check."""
    missing = tuple(sorted(absent))
    is_same = before.members_missing in ((), missing)  # empty: an older item does not have the names
    since = doubted_since(before.members_missing_since if is_same else None, now)
    confirmed = is_confirmed(since, now)
    return None if confirmed else replace(before, members_missing=missing, members_missing_since=since)


def _owners(groups: Iterable[NodeGroup]) -> tuple[str, ...]:
    owners = {group.owner.numbers.ref.id for group in groups if group.owner.numbers is not None}
    return tuple(sorted(owners)) if owners else ()


def created_again(pool: Pool) -> frozenset[str]:
    """Return the keys of the groups that were created after the last check in which the pool changed.

    A former group with such a name had other bounds.
    """
    seen = pool.state.seen
    if seen is None:
        return frozenset()
    return frozenset(
        [
            str(group.key)
            for group in pool.groups
            if (created_at := group.identity.created_at) is not None and created_at > seen.since
        ]
    )


def _compare(pool: Pool, requested: Mapping[str, int], owners: tuple[str, ...], now: datetime) -> Comparison:
    before, is_created_again = pool.state.seen, bool(created_again(pool))
    is_same = before is not None and requested == before.requested and owners == before.owners
    if before is not None and is_same and not is_created_again and before.members_missing_since is None:
        return Comparison(before, others_changed=False, grower="")
    tagged = {} if before is None else before.tagged
    anew = MemberSnapshot(since=now, requested=requested, owners=owners, tagged=tagged)
    if before is None or is_created_again:
        return Comparison(anew, others_changed=is_created_again, grower="")
    expected = {**before.requested, **before.planned}
    if requested in (before.requested, expected):
        planned = before.planned if requested == before.requested else {}
        after = replace(anew, since=before.since, planned=planned)
        return Comparison(after, others_changed=False, grower="")
    grown = {
        str(group.key): more
        for group in pool.groups
        if (more := group.requested - expected.get(str(group.key), group.requested)) > 0
    }
    ties = {str(group.key): tie_of(pool.id, group) for group in pool.groups} if len(grown) > 1 else {}
    grower = max(grown, key=lambda key: (grown[key], ties.get(key, 0)), default="")
    return Comparison(anew, others_changed=True, grower=grower)
