"""Raising replicas: to PoolMinimum, to a group's own min, and to probe a group that an autoscaler cannot see.

Cluster Autoscaler does not raise a group to a minimum by default.
"""

from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.rebalancing.replicas.changes import order


def probe_the_unseen(pool: PoolDraft) -> None:
    """Raise a probing group from zero to one machine if Cluster Autoscaler cannot see the group.

    Without cpu and memory information, Cluster Autoscaler ignores a group at zero, whatever its max is
    (clusterapi_nodegroup.go:589-625).
    """
    if not pool.pool.settings.autoscaler:
        return
    for draft in pool.groups:
        unseen = draft.group.template.invisible_at_zero and draft.requested == 0
        if unseen and draft.state is State.PROBING:
            order(pool, 1, [(draft, min(draft.room, draft.probe))], lambda *_: Reason.of(Rule.PROBE_UNSEEN))


def set_unchanged_since(pool: PoolDraft) -> None:
    """Set since when the requested replicas have not changed. ``PoolDraft.may_raise`` reads this time."""
    takes_away = any([draft.requested < draft.group.requested for draft in pool.groups])
    pool.replicas.unchanged_since = pool.now if takes_away else pool.snapshot.since


def raise_to_minimum(pool: PoolDraft) -> None:
    """Raise healthy groups evenly until the pool has PoolMinimum, then raise probing groups by one machine each.

    Zones with a min of their own are first raised to that min. Nodes below PoolMinimum that no group can get are stored
    as missing.
    """
    minimum = pool.pool.min
    missing = minimum - pool.target
    if missing <= 0 or not pool.may_raise:
        return
    healthy = [draft for draft in pool.groups if draft.state is State.HEALTHY]

    def own_minimum(draft: Draft, more: int) -> Reason:
        return Reason.of(Rule.OWN_MINIMUM, count=more, minimum=draft.group.annotations.zone_min)

    def pool_minimum(_draft: Draft, more: int) -> Reason:
        return Reason.of(Rule.POOL_MINIMUM, count=more, minimum=minimum)

    own = [(draft, min(draft.room, (draft.group.annotations.zone_min or 0) - draft.requested)) for draft in healthy]
    order(pool, missing, own, own_minimum)
    rooms = [(draft, draft.room) for draft in healthy]
    level = order(pool, minimum - pool.target, rooms, pool_minimum, weighted=True)
    probing = [(draft, min(draft.room, draft.probe)) for draft in pool.groups if draft.state is State.PROBING]
    why = Reason.of(Rule.PROBE_FOR_MINIMUM, minimum=minimum)
    probes = order(pool, level.unmet, probing, lambda *_: why)
    pool.replicas.missing = probes.unmet
    # Nodes for a group's own min also count for PoolMinimum.
    pool.replicas.later = max(pool.replicas.later, level.later + probes.later)


def raise_to_own_minimum(pool: PoolDraft) -> None:
    """Raise each healthy group to its own min, as far as PoolMaximum allows.

    Backward-Compatible and Adaptive publish a min per zone, which Cluster Autoscaler does not enforce by default.
    """
    if not pool.may_raise:
        return
    sized = zip(pool.groups, pool.bounds.sizes, strict=True)
    healthy = [(draft, size.min) for draft, size in sized if draft.state is State.HEALTHY]
    short = [(draft, min(draft.room, minimum - draft.requested)) for draft, minimum in healthy]
    minima = {draft.key: minimum for draft, minimum in healthy}

    def why(draft: Draft, more: int) -> Reason:
        return Reason.of(Rule.OWN_MINIMUM, count=more, minimum=minima[draft.key])

    nodes = sum(max(0, most) for _, most in short)
    pool.replicas.later = order(pool, nodes, short, why).later
