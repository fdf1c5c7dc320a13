"""Level shrink: raise the mins of smaller zones while cluster-autoscaler removes nodes, so that fuller zones shrink.

cluster-autoscaler ignores zones when it scales down. It removes no node of a group at its min. It also restarts the
unneeded clocks of such a group (measured), so the group's unneeded nodes remain for up to one unneeded time longer. A
*hold* is a time with raised mins. To limit this delay, a hold ends ``LEVEL_HELD`` after the last removal, and the next
hold starts at the earliest ``RESTS`` later. If pods are read, a hold starts with the first unneeded node of a fuller
zone, and applies only while such a node exists.

    a node goes, and zones differ     HELD after the last one             RESTS later, a node goes
    ------------*----*-----*------------------|------------------------------------*-------
                hold                            no hold                              hold

Level shrink evicts no pod and orders no node, because it raises no min above the requested replicas.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.reasons import Rule

LEVEL_HELD = timedelta(minutes=30)
RESTS = timedelta(hours=3)


def hold_level(pool: PoolDraft) -> None:
    """Raise each smaller zone's min to its requested replicas, and fuller zones' mins to the smaller zones' level."""
    if pool.pool.settings.level is Level.OFF:
        return
    pool.bounds.held_until = pool.pool.state.held_until
    if not pool.pool.settings.autoscaler:
        return
    minima = level_minima(
        [draft for draft in pool.groups if draft.state is State.HEALTHY and not draft.group.owner.bounds_held]
    )
    if not _holds(pool, minima):
        return
    pool.bounds.sizes = list(pool.bounds.sizes)
    for i, draft in enumerate(pool.groups):
        low = minima.get(draft.key)
        if low is not None and low > pool.bounds.sizes[i].min:
            pool.bounds.sizes[i] = pool.bounds.sizes[i]._replace(min=low)
            rule = Rule.LEVEL_KEPT if low == draft.requested else Rule.LEVEL_GIVES
            draft.add_reason(rule, min=low, until=pool.bounds.held_until)


def _holds(pool: PoolDraft, minima: Mapping[str, int]) -> bool:
    """Return True if a hold with these mins applies or starts, and store the hold's end in the draft."""
    holds = held_until(pool.bounds.held_until, pool.now) is not None
    rest_ends = None if holds else held_until(pool.bounds.held_until, pool.now, RESTS)
    if not minima:
        if holds:
            pool.bounds.held_until = None  # the zones are level, so the next hold need not wait
        return False
    helps = _helps(pool, minima)
    pool.demand.asks_idle = helps is None and pool.given.demand is not None
    if helps is False:
        return False  # no fuller zone has an unneeded node, so the hold is not prolonged
    if rest_ends is not None:
        for draft in pool.groups:
            if draft.key in minima:
                draft.add_reason(Rule.LEVEL_RESTS, until=rest_ends)
        return False
    if _a_node_went(pool) or (helps and not holds):
        pool.bounds.held_until = pool.now + LEVEL_HELD
        return True
    return holds


def _helps(pool: PoolDraft, minima: Mapping[str, int]) -> bool | None:
    """Return True if a fuller zone has an unneeded node; None: this check did not look for unneeded nodes."""
    idle = pool.idle
    if idle is None:
        return None
    return any(idle.get(draft.key) for draft in pool.groups if minima.get(draft.key, draft.requested) < draft.requested)


def level_minima(drafts: Sequence[Draft]) -> dict[str, int]:
    """Return the min of each group by key; empty: no zone is far below the fullest, by nodes per weight.

    With equal weights, "far below" means at least two nodes fewer. A hold for one node would restart unneeded clocks
    for little gain. Zones far below keep their requested nodes. The other zones may shrink to the level of the highest
    of these zones.
    """
    fullest = max(drafts, key=lambda draft: (draft.requested / draft.group.annotations.weight, draft.key), default=None)
    if fullest is None:
        return {}
    kept = [draft for draft in drafts if draft.is_far_below(fullest)]
    if not kept:
        return {}
    highest = max(kept, key=lambda draft: draft.requested / draft.group.annotations.weight)
    minima = {draft.key: draft.requested for draft in kept}
    for draft in drafts:
        if draft.key not in minima:
            level = -(
                -highest.requested * draft.group.annotations.weight // highest.group.annotations.weight
            )  # rounded up
            minima[draft.key] = max(0, min(draft.requested - 1, level))
    return minima


def _a_node_went(pool: PoolDraft) -> bool:
    """Return True if another controller has lowered the replicas of a healthy group since the last check."""
    before = pool.pool.state.seen
    if before is None or pool.snapshot.since != pool.now:
        return False
    return any(
        draft.state is State.HEALTHY
        and draft.group.requested < min(before.requested.get(draft.key, 0), before.planned.get(draft.key, 2**31))
        for draft in pool.groups
    )
