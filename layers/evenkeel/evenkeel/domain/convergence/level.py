"""Level shrink: while nodes go, the fuller zones give, and the others keep what they have.

Cluster Autoscaler's scale-down never looks at zones. A min that is what a zone requests keeps it from taking there, so
that it takes where most are. The price is idle nodes: it starts the clocks of a group at its min anew (measured), so
what was unneeded there lives an unneeded time longer than the hold. So a hold stands only while nodes go: for
``HELD`` after the last one that went, and, once it has ended like that, not again for ``RESTS``. Where nodes and pods
are seen, it begins with the first node that a fuller zone could give, and stands only while there is one.

    a node goes, and zones differ     HELD after the last one             RESTS later, a node goes
    ------------*----*-----*------------------|------------------------------------*-------
                hold                            as if there were no levelling        hold

It evicts nobody and orders nothing: a min is never above what is requested.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Rule

HELD = timedelta(minutes=30)
RESTS = timedelta(hours=3)


def hold_level(pool: PoolDraft) -> None:
    """Raise the minima of the zones that keep what they have, and that of the fullest to the level below it."""
    pool.held_until = None if pool.pool.level is Level.OFF else pool.pool.state.held_until
    if pool.pool.level is Level.OFF or not pool.pool.autoscaler:
        return
    minima = level_minima(
        [draft for draft in pool.groups if draft.state is State.HEALTHY and not draft.group.bounds_held]
    )
    if not _holds(pool, minima):
        return
    for i, draft in enumerate(pool.groups):
        if draft.key not in minima:
            continue
        low = minima[draft.key]
        if low > pool.sizes[i].min:
            pool.sizes = [*pool.sizes[:i], pool.sizes[i]._replace(min=low), *pool.sizes[i + 1 :]]
            rule = Rule.LEVEL_KEPT if low == draft.requested else Rule.LEVEL_GIVES
            draft.add_reason(rule, min=low, until=pool.held_until)


def _holds(pool: PoolDraft, minima: Mapping[str, int]) -> bool:
    """Whether a hold of these stands, or begins. Leaves in the draft until when."""
    until = pool.held_until
    stands, rests = until is not None and pool.now < until, until is not None and until <= pool.now < until + RESTS
    if not minima:
        if stands:
            pool.held_until = None  # it has done its work: there is nothing to rest from
        return False
    helps = _helps(pool, minima)
    pool.asks_idle = helps is None and pool.advice is not None
    if helps is False:
        return False  # its time runs on: nodes that are needed now and then are not held for longer
    if rests and until is not None:
        for draft in pool.groups:
            if draft.key in minima:
                draft.add_reason(Rule.LEVEL_RESTS, until=until + RESTS)
        return False
    if _a_node_went(pool) or (helps and not stands):
        pool.held_until = pool.now + HELD
        return True
    return stands


def _helps(pool: PoolDraft, minima: Mapping[str, int]) -> bool | None:
    """Whether a zone that gives has a node that an autoscaler would find unneeded; None: nobody has looked."""
    idle = pool.idle
    if idle is None:
        return None
    return any(idle.get(draft.key) for draft in pool.groups if minima.get(draft.key, draft.requested) < draft.requested)


def level_minima(drafts: Sequence[Draft]) -> dict[str, int]:
    """What each zone keeps while the fuller ones give, by key; nothing where none is far enough below the fullest.

    Zones are compared by nodes per weight. Far enough below is one that would not pass the fullest with one node more
    and the fullest one less: two nodes, where weights are equal. It keeps what it requests. The others give, down to
    the highest of those: a zone held for one node's difference would have its clocks started anew for little.
    """
    fullest = max(drafts, key=lambda draft: (draft.requested / draft.group.weight, draft.key), default=None)
    if fullest is None:
        return {}
    kept = [draft for draft in drafts if draft.is_far_below(fullest)]
    if not kept:
        return {}
    highest = max(kept, key=lambda draft: draft.requested / draft.group.weight)
    minima = {draft.key: draft.requested for draft in kept}
    for draft in drafts:
        if draft.key not in minima:
            level = -(-highest.requested * draft.group.weight // highest.group.weight)  # rounded up
            minima[draft.key] = max(0, min(draft.requested - 1, level))
    return minima


def _a_node_went(pool: PoolDraft) -> bool:
    """Whether others have lowered a healthy group since the last look."""
    before = pool.pool.state.seen
    if before is None or pool.snapshot.since != pool.now:
        return False
    return any(
        draft.state is State.HEALTHY
        and draft.group.requested < min(before.requested.get(draft.key, 0), before.planned.get(draft.key, 2**31))
        for draft in pool.groups
    )
