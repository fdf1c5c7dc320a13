"""Between which groups a step moves a node: the source that loses one, and the destination that gets one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from evenkeel.domain.convergence.returns import fallbacks_of
from evenkeel.domain.model.convergence import Starting
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Rule

Pairs = Sequence[tuple[Draft, Draft]]
_LONGEST_COURSE = 100  # a report lists at most this many steps


def rebalance_pairs(pool: PoolDraft, drafts: Iterable[Draft], least: Mapping[str, int]) -> Pairs:
    """Return the pairs of source and destination, the fullest source first; empty: the zones are level.

    Zones in doubt are included, so that the report can name the doubt that keeps the step from starting. The
    destination is the lowest zone, and among equally low zones a healthy one. Zones that have failed since the last
    drain are the last choice.
    test_a_zone_that_stays_out_keeps_no_other_zone_from_being_filled
    """
    able = [draft for draft in drafts if _is_able(draft)]
    sources = [draft for draft in able if draft.requested > least[draft.key]]
    # A zone that is far below any source is also far below the fullest source. So in a level pool, one comparison per
    # zone suffices.
    fullest = max(sources, key=lambda draft: (draft.requested - 1) / draft.group.annotations.weight, default=None)
    for low in sorted([draft for draft in able if draft.room > 0], key=partial(_turn, pool)):
        if fullest is not None and low.is_far_below(fullest):
            above = [draft for draft in sources if low.is_far_below(draft)]
            above.sort(key=lambda draft: (-draft.requested / draft.group.annotations.weight, draft.tie))
            return [(source, low) for source in above]
    return []


def _is_able(draft: Draft) -> bool:
    is_left = draft.group.status.launches_stopped is not None
    return draft.writable and not is_left and not draft.group.owner.bounds_held


def _turn(pool: PoolDraft, draft: Draft) -> tuple[float, float, bool, int]:
    """Return the sort key of destinations (``rebalance_pairs``)."""
    failed, last = draft.health.doubted_since, pool.convergence.state.last_drain
    waits = failed is not None and (last is None or last.at <= failed)
    since = failed.timestamp() if failed is not None and waits else 0.0
    return since, draft.requested / draft.group.annotations.weight, draft.state is not State.HEALTHY, draft.tie


def return_pairs(pool: PoolDraft) -> Pairs:
    """Return the pairs of a group with nodes that a fallback holds, and the group to which a node returns.

    The destination is in the same zone, so that pods that are bound to the zone can return. Zones that have failed
    since the last drain are the last choice.
    """
    able = sorted([draft for draft in pool.groups if _is_able(draft) and draft.room > 0], key=partial(_turn, pool))
    pairs = []
    for fallback in fallbacks_of(pool) if able else ():
        for source in fallback.groups:
            zone = source.group.identity.zone
            destination = next((draft for draft in able if draft.group.identity.zone == zone), able[0])
            if fallback.spare_of(source) > 0:
                pairs.append((source, destination))
    place = {id(draft): number for number, draft in enumerate(able)}
    return sorted(pairs, key=lambda pair: (_turn(pool, pair[1])[0], place[id(pair[1])]))


def least_replicas(pool: PoolDraft) -> dict[str, int]:
    """Return how many replicas each group keeps in a move to another zone, by its key."""
    return {draft.key: max(draft.floors.values(), default=0) for draft in pool.groups}


def course_of(pool: PoolDraft) -> tuple[tuple[str, str], ...]:
    """Return the source and destination of each step until the zones are level, except the step in progress."""
    step = pool.convergence.state.step
    one_less = ""  # key of the group that the open step will lower, or that this plan's step has raised
    if isinstance(pool.convergence.step, Starting) and step is None:
        one_less = pool.convergence.step.order.destination
    elif step is not None and step.is_open and pool.convergence.step is None:
        one_less = step.order.source
    played = [_played(draft, -(draft.key == one_less)) for draft in pool.groups]
    course: list[tuple[str, str]] = []
    least = least_replicas(pool)
    while len(course) < _LONGEST_COURSE and (pairs := rebalance_pairs(pool, played, least)):
        source, destination = pairs[0]
        course.append((source.group.identity.zone or source.key, destination.group.identity.zone or destination.key))
        played = [_played(draft, (draft is destination) - (draft is source)) for draft in played]
    return tuple(course)


def _played(draft: Draft, more: int) -> Draft:
    """Return a copy of a draft with more or fewer replicas, and without the limit of the step in progress."""
    limits: dict[Rule, int] = {rule: most for rule, most in draft.limits.items() if rule is not Rule.STEP_MAX}
    return replace(draft, requested=draft.requested + more, limits=limits)
