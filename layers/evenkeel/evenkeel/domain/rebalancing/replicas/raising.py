"""Raising replicas: to PoolMinimum, to a group's own min, and to probe a group that an autoscaler cannot see.

Cluster Autoscaler never raises a group to a minimum unless told to.
"""

from collections.abc import Sequence

from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.water_fill import Bucket, water_fill


def raise_together(drafts: Sequence[Draft], amount: int) -> list[tuple[Draft, int]]:
    """Raise the groups by ``amount`` together, levelled, as far as there is room. Who was raised, and by how much."""
    buckets = [
        Bucket(level=draft.requested, room=draft.room, weight=draft.group.weight, tie=draft.tie) for draft in drafts
    ]
    raised = [(draft, more) for draft, more in zip(drafts, water_fill(buckets, amount), strict=True) if more]
    for draft, more in raised:
        draft.requested += more
    return raised


def probe_the_unseen(pool: PoolDraft) -> None:
    """A probing group at zero that Cluster Autoscaler cannot see gets the one machine of its probe from us.

    Without cpu and memory information a group at zero does not exist for it, whatever its max says
    (clusterapi_nodegroup.go:589-625).
    """
    if not pool.pool.autoscaler:
        return
    for draft in pool.groups:
        unseen = draft.state is State.PROBING and draft.requested == 0 and draft.group.invisible_at_zero
        if unseen and draft.room and pool.requested < pool.pool_max and pool.may_add:
            pool.add(draft.probe, draft.probe)  # before: what is requested is on its way, and leaves no probe
            draft.requested = draft.probe
            draft.add_reason(Rule.PROBE_UNSEEN)


def wait_for_standstill(pool: PoolDraft) -> None:
    """Beside an autoscaler, nothing is raised until requested has stood still for a while.

    What pods need, the autoscaler has ordered again by then; raised at once, it would be ordered twice.
    """
    takes_away = any(draft.requested < draft.group.requested for draft in pool.groups)
    pool.stood_since = pool.now if takes_away else pool.snapshot.since
    first_seen = pool.pool.state.seen is None
    ends = pool.stood_since + pool.pool.standstill
    pool.raises = not pool.pool.autoscaler or first_seen or pool.now >= ends


def raise_to_minimum(pool: PoolDraft) -> None:
    """Below PoolMinimum, healthy groups are raised, levelled; what finds no place is missing.

    What they cannot take is what a probing group is tried with: one machine each.
    """
    if not pool.raises:
        return
    minimum = pool.pool.min
    requested = pool.requested
    missing = minimum - requested
    if missing <= 0:
        return
    wanted = max(0, min(missing, pool.pool_max - requested))
    allowed = step = min(wanted, pool.may_add)
    healthy = [draft for draft in pool.groups if draft.state is State.HEALTHY]
    for draft, more in _raise_healthy(healthy, allowed):
        missing -= more
        allowed -= more
        draft.add_reason(Rule.POOL_MINIMUM, count=more, minimum=minimum)
    probing = [draft for draft in pool.groups if draft.state is State.PROBING and draft.probe and draft.room]
    for draft in sorted(probing, key=lambda draft: (draft.requested, draft.tie))[:allowed]:
        missing -= 1
        allowed -= 1
        draft.requested += draft.probe
        draft.add_reason(Rule.PROBE_FOR_MINIMUM, minimum=minimum)
    later = pool.add(step - allowed, wanted)
    pool.missing = missing - later
    pool.later = max(pool.later, later)  # nodes of a group's own min count for PoolMinimum


def _raise_healthy(healthy: Sequence[Draft], amount: int) -> list[tuple[Draft, int]]:
    """Zones with a min of their own first, up to that; then all of them, levelled. Who was raised, and by how much."""
    before = [draft.requested for draft in healthy]
    own = [max(0, (draft.group.zone_min or 0) - draft.requested) for draft in healthy]
    buckets = [
        Bucket(level=draft.requested, room=min(draft.room, short), tie=draft.tie)
        for draft, short in zip(healthy, own, strict=True)
    ]
    for draft, more in zip(healthy, water_fill(buckets, amount), strict=True):
        draft.requested += more
        amount -= more
    raise_together(healthy, amount)
    raised = [(draft, draft.requested - requested) for draft, requested in zip(healthy, before, strict=True)]
    return [(draft, more) for draft, more in raised if more]


def raise_to_own_minimum(pool: PoolDraft) -> None:
    """Healthy groups below their own min are raised to it, as far as PoolMaximum allows.

    Backward-Compatible and Adaptive publish a min per zone; Cluster Autoscaler does not enforce it by default.
    """
    if not pool.raises:
        return
    healthy = [
        (draft, size) for draft, size in zip(pool.groups, pool.sizes, strict=True) if draft.state is State.HEALTHY
    ]
    buckets = [
        Bucket(
            level=draft.requested,
            room=min(draft.room, max(0, size.min - draft.requested)),
            tie=draft.tie,
        )
        for draft, size in healthy
    ]
    wanted = min(pool.pool_max - pool.requested, sum(bucket.room for bucket in buckets))
    before = pool.requested
    for (draft, size), more in zip(healthy, water_fill(buckets, min(wanted, pool.may_add)), strict=True):
        if more:
            draft.requested += more
            draft.add_reason(Rule.OWN_MINIMUM, count=more, minimum=size.min)
    pool.later = pool.add(pool.requested - before, wanted)
