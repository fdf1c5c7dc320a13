"""Raising replicas: to the minima of zones, to PoolMinimum, and to probe a group that an autoscaler cannot see.

Cluster Autoscaler does not raise a group to a minimum by default.
"""

from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import LARGEST_COUNT
from evenkeel.domain.rebalancing.replicas.changes import Ordered, order


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
            order(pool, 1, [(draft, draft.orderable)], lambda *_: Reason.of(Rule.PROBE_UNSEEN))


def set_unchanged_since(pool: PoolDraft) -> None:
    """Set since when the requested replicas have not changed. ``PoolDraft.may_raise`` reads this time."""
    takes_away = any([draft.requested < draft.group.requested for draft in pool.groups])
    pool.replicas.unchanged_since = pool.now if takes_away else pool.snapshot.since


def raise_to_strategy_minima(pool: PoolDraft) -> None:
    """Raise each healthy group to the strategy's min, as far as PoolMaximum allows.

    Backward-Compatible and Adaptive publish a min per zone, which Cluster Autoscaler does not enforce by default.
    """
    if pool.may_raise:
        pool.replicas.later = _raise_to(pool, Rule.STRATEGY).later


def raise_to_minimum(pool: PoolDraft) -> None:
    """Raise healthy groups evenly until the pool has PoolMinimum, then raise probing groups by one machine each.

    Zones with ``evenkeel.dev/zone-min`` are first raised to it. Nodes below PoolMinimum that no group can get are
    stored as missing.
    """
    minimum = pool.pool.min
    missing = minimum - pool.target
    if missing <= 0 or not pool.may_raise:
        return

    def why(_draft: Draft, more: int) -> Reason:
        return Reason.of(Rule.POOL_MINIMUM, count=more, minimum=minimum)

    _raise_to(pool, Rule.ZONE_MIN, missing)
    rooms = [(draft, draft.room) for draft in pool.groups if draft.state is State.HEALTHY]
    level = order(pool, minimum - pool.target, rooms, why, weighted=True)
    probing = [(draft, draft.orderable) for draft in pool.groups if draft.state is State.PROBING]
    probe = Reason.of(Rule.PROBE_FOR_MINIMUM, minimum=minimum)
    probes = order(pool, level.unmet, probing, lambda *_: probe)
    pool.replicas.missing = probes.unmet
    # Nodes for a group's own min also count for PoolMinimum.
    pool.replicas.later = max(pool.replicas.later, level.later + probes.later)


def _raise_to(pool: PoolDraft, floor: Rule, most: int = LARGEST_COUNT) -> Ordered:
    """Raise each healthy group to its floor by this rule, all groups together by at most this many nodes."""

    def why(draft: Draft, more: int) -> Reason:
        return Reason.of(Rule.OWN_MINIMUM, count=more, minimum=draft.floors[floor])

    healthy = [draft for draft in pool.groups if draft.state is State.HEALTHY]
    short = [(draft, min(draft.room, draft.floors.get(floor, 0) - draft.requested)) for draft in healthy]
    return order(pool, most, short, why)
