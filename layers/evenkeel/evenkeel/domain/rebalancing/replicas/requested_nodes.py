"""The nodes of a person's request that do not run yet. For the hour of the request, refused nodes go back into it.

Without an autoscaler, a released replica is ordered again only for a pod. A person may request nodes before the pods
exist. So a refused node of a request moves to another zone that the request allows, or stays requested.
"""

from collections.abc import Sequence
from dataclasses import replace

from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.moves import SCALE_REQUEST_KEPT, RequestedNodes, ScaleRequest
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.replicas.raising import raise_together


def recall_requested(pool: PoolDraft) -> None:
    """Keep the stored nodes that do not run yet, for the hour of their request."""
    if not pool.pool.state.requested_nodes or pool.pool.settings.autoscaler:
        return
    waiting = {draft.key: draft.group.waiting for draft in pool.groups}
    kept = []
    for one in pool.pool.state.requested_nodes:
        if pool.now - one.at > SCALE_REQUEST_KEPT:
            continue
        nodes = {key: min(count, waiting.get(key, 0)) for key, count in one.nodes.items()}
        for key, count in nodes.items():
            waiting[key] = waiting.get(key, 0) - count
        if any(nodes.values()):
            kept.append(replace(one, nodes={key: count for key, count in nodes.items() if count}))
    pool.request.requested_nodes = tuple(kept)


def remember_requested(pool: PoolDraft, request: ScaleRequest, added: dict[str, int]) -> None:
    """Store the nodes that this plan adds for a person's request."""
    if added and not request.is_of_plan and not pool.pool.settings.autoscaler:
        nodes = RequestedNodes(at=request.at, only=tuple(sorted(request.only)), nodes=added)
        pool.request.requested_nodes = (*pool.request.requested_nodes, nodes)


def is_of_request(pool: PoolDraft, draft: Draft) -> bool:
    """Return True if some nodes of the group that do not run yet are of a person's request."""
    return any(draft.key in one.nodes for one in pool.request.requested_nodes)


def place_requested(pool: PoolDraft, draft: Draft, refused: int, takers: Sequence[Draft], room: int) -> tuple[int, int]:
    """Move the refused nodes of requests to groups that the requests allow.

    Returns:
        How many nodes moved, and how many stay because no group can take them.
    """
    moved = stays = 0
    above = max(0, pool.target - pool.pool.max)
    entries = []
    for one in pool.request.requested_nodes:
        own = min(one.nodes.get(draft.key, 0), refused - moved - stays)
        allowed = [taker for taker in takers if one.fits(taker.group) and taker.group.template.closed_because is None]
        limits = [taker.takes for taker in allowed]
        raised = raise_together(allowed, max(0, min(own - above, room - moved)), limits)
        nodes = dict(one.nodes)
        for taker, more in raised:
            taker.journal_delta += more
            taker.add_reason(Rule.TAKES_ON, count=more)
            nodes[taker.key] = nodes.get(taker.key, 0) + more
            nodes[draft.key] -= more
            moved += more
            own -= more
        stays += own
        entries.append(replace(one, nodes={key: count for key, count in nodes.items() if count}))
    draft.requested -= moved
    draft.journal_delta -= moved
    pool.request.requested_nodes = tuple(entries)
    return moved, stays
