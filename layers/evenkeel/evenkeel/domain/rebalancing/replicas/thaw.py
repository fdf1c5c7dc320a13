"""What groups that may not grow can add once they may grow again.

Such a group reserves only ``Draft.target``, and other groups use the rest of PoolMaximum. At a thaw, its other replicas
get machines, and an autoscaler may order up to its old max before the next check. So the pool may pass PoolMaximum. The
pool stores what each of these groups has reserved. What a group requests above that is taken back first, and nothing is
taken back from other groups for it. Nodes that run by then stay.
"""

from collections.abc import Mapping

from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.reasons import DELETIONS, Reason, Rule


def added_by_thaws(pool: PoolDraft) -> Mapping[str, int]:
    """Return the replicas of each group above those that it has reserved, by key of the group."""
    reserved = pool.pool.state.replicas.reserved
    return {
        draft.key: draft.target - reserved[draft.key]
        for draft in pool.groups
        if draft.key in reserved and draft.target > reserved[draft.key]
    }


def reserved_after(pool: PoolDraft) -> Mapping[str, int]:
    """Return what the pool stores after this plan: the replicas that each group which may not grow reserves.

    While the pool may pass PoolMaximum, known values stay, also those of groups that may grow again.
    """
    known = pool.pool.state.replicas.reserved
    stopped = {draft.key: draft.target for draft in pool.groups if not draft.may_grow and _at_thaw(pool, draft)}
    if not known or _is_within_max(pool):
        return stopped
    present = {draft.key for draft in pool.groups}
    return stopped | {key: nodes for key, nodes in known.items() if key in present}


def thaw_note(pool: PoolDraft) -> Reason | None:
    """Return by how many nodes the pool may pass PoolMaximum after a thaw; None: by none."""
    thawing = [(draft, more) for draft in pool.groups if not draft.may_grow and (more := _at_thaw(pool, draft))]
    if not thawing:
        return None
    added = sum(more for _, more in thawing)
    free = pool.pool.max - pool.target - sum(_room(pool, draft) for draft in pool.groups if draft.may_grow)
    nodes = min(added, added - free)
    if nodes <= 0:
        return None
    names = tuple(draft.group.key.name for draft, _ in thawing)
    return Reason.of(Rule.THAW_ADDS, groups=names, nodes=nodes, maximum=pool.pool.max)


def _at_thaw(pool: PoolDraft, draft: Draft) -> int:
    """Return how many nodes a group that may not grow can add at its thaw; none if it is being deleted."""
    frozen = draft.group.frozen_because
    if frozen is not None and frozen.rule in DELETIONS:
        return 0
    bounds = draft.group.bounds if pool.pool.settings.autoscaler else None
    return max(draft.requested, 0 if bounds is None else bounds.max) - draft.target


def _room(pool: PoolDraft, draft: Draft) -> int:
    """Return how many nodes an autoscaler may add to a group once this plan is written."""
    if not pool.pool.settings.autoscaler or draft.bounds is None:
        return 0
    return max(0, draft.bounds.max - draft.requested)


def _is_within_max(pool: PoolDraft) -> bool:
    """Return True if neither the replicas nor the bounds that autoscalers read now pass PoolMaximum."""
    drafts = [draft for draft in pool.groups if draft.may_grow]
    live = sum(max(0, draft.group.bounds.max - draft.requested) for draft in drafts if draft.group.bounds is not None)
    counts = pool.pool.settings.autoscaler and pool.pool.settings.strategy.reserves
    return pool.target + (live if counts else 0) <= pool.pool.max
