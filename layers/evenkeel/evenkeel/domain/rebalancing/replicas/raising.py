"""Raising replicas: to PoolMinimum, to a group's own min, and to probe a group that an autoscaler cannot see.

Cluster Autoscaler does not raise a group to a minimum by default.
"""

from collections.abc import Iterable, Sequence

from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.water_fill import water_fill


def raise_together(
    drafts: Sequence[Draft], amount: int, limits: Sequence[int] | None = None, *, weighted: bool = True
) -> list[tuple[Draft, int]]:
    """Distribute ``amount`` nodes so that the groups become level. Return each raised group with its increase.

    ``limits`` is the largest increase of each group; None: only the room of the group limits its increase.
    """
    levels = [draft.requested for draft in drafts]
    room = [draft.room if limits is None else min(draft.room, limits[i]) for i, draft in enumerate(drafts)]
    weights = [draft.group.annotations.weight for draft in drafts] if weighted else ()
    shares = zip(drafts, water_fill(amount, levels, room, lambda i: drafts[i].tie, weights), strict=True)
    raised = [(draft, more) for draft, more in shares if more]
    for draft, more in raised:
        draft.requested += more
    return raised


def take_on(raised: Iterable[tuple[Draft, int]]) -> None:
    """Store in the journal by how much each group is raised for replicas of other groups."""
    for draft, more in raised:
        draft.journal_delta += more
        draft.add_reason(Rule.TAKES_ON, count=more)


def probe_the_unseen(pool: PoolDraft) -> None:
    """Raise a probing group from zero to one machine if Cluster Autoscaler cannot see the group.

    Without cpu and memory information, Cluster Autoscaler ignores a group at zero, whatever its max is
    (clusterapi_nodegroup.go:589-625).
    """
    if not pool.pool.settings.autoscaler:
        return
    for draft in pool.groups:
        unseen = draft.group.template.invisible_at_zero and draft.requested == 0
        if (
            unseen
            and draft.state is State.PROBING
            and draft.room
            and pool.target < pool.bounds.pool_max
            and pool.may_add
        ):
            # ``add`` must be called before the raise. After the raise, the machine counts as provisioning, so ``probe``
            # is 0.
            pool.add(draft.probe, draft.probe)
            draft.requested = draft.probe
            draft.add_reason(Rule.PROBE_UNSEEN)


def set_unchanged_since(pool: PoolDraft) -> None:
    """Set since when the requested replicas have not changed. ``PoolDraft.may_raise`` reads this time."""
    takes_away = any([draft.requested < draft.group.requested for draft in pool.groups])
    pool.replicas.unchanged_since = pool.now if takes_away else pool.snapshot.since


def raise_to_minimum(pool: PoolDraft) -> None:
    """Raise healthy groups evenly until the pool has PoolMinimum, then raise probing groups by one machine each.

    Zones with a min of their own are first raised to that min. Nodes below PoolMinimum that no group can get are stored
    as missing.
    """
    target, minimum = pool.target, pool.pool.min
    if target >= minimum or not pool.may_raise:
        return
    wanted = max(0, min(minimum, pool.bounds.pool_max) - target)
    allowed = step = min(wanted, pool.may_add)
    healthy = [draft for draft in pool.groups if draft.state is State.HEALTHY]
    before = [draft.requested for draft in healthy]
    own = [max(0, (draft.group.annotations.zone_min or 0) - draft.requested) for draft in healthy]
    allowed -= sum(more for _, more in raise_together(healthy, allowed, own, weighted=False))
    allowed -= sum(more for _, more in raise_together(healthy, allowed))
    for draft, start in zip(healthy, before, strict=True):
        if draft.requested > start:
            draft.add_reason(Rule.POOL_MINIMUM, count=draft.requested - start, minimum=minimum)
    probing = [draft for draft in pool.groups if draft.state is State.PROBING and draft.probe and draft.room]
    for draft in sorted(probing, key=lambda draft: (draft.requested, draft.tie))[:allowed]:
        allowed -= 1
        draft.requested += draft.probe
        draft.add_reason(Rule.PROBE_FOR_MINIMUM, minimum=minimum)
    later = pool.add(step - allowed, wanted)
    pool.replicas.missing = minimum - pool.target - later
    pool.replicas.later = max(pool.replicas.later, later)  # nodes for a group's own min also count for PoolMinimum


def raise_to_own_minimum(pool: PoolDraft) -> None:
    """Raise each healthy group to its own min, as far as PoolMaximum allows.

    Backward-Compatible and Adaptive publish a min per zone, which Cluster Autoscaler does not enforce by default.
    """
    if not pool.may_raise:
        return
    sized = zip(pool.groups, pool.bounds.sizes, strict=True)
    healthy = [(draft, size.min) for draft, size in sized if draft.state is State.HEALTHY]
    drafts, minima = [draft for draft, _ in healthy], {draft.key: minimum for draft, minimum in healthy}
    short = [max(0, minimum - draft.requested) for draft, minimum in healthy]
    room = sum(min(draft.room, nodes) for draft, nodes in zip(drafts, short, strict=True))
    wanted = min(pool.bounds.pool_max - pool.target, room)
    raised = raise_together(drafts, min(wanted, pool.may_add), short, weighted=False)
    for draft, more in raised:
        draft.add_reason(Rule.OWN_MINIMUM, count=more, minimum=minima[draft.key])
    pool.replicas.later = pool.add(sum(more for _, more in raised), wanted)
