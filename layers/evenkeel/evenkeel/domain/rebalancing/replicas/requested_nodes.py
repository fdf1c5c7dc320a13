"""For an hour, a refused node moves to another zone that the request allows, or stays requested.

Without an autoscaler, a released replica is ordered again only for a pod. But a scale request may ask for nodes before
the pods exist.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.moves import FOR_PODS, SCALE_REQUEST_KEPT, UNNEEDED_NODES, RequestedNodes, ScaleRequest
from evenkeel.domain.rebalancing.replicas.changes import give, takes_on


def recall_requested(pool: PoolDraft) -> None:
    """Keep the stored nodes that do not run yet, for the hour of their request."""
    if not pool.pool.state.replicas.requested_nodes or pool.pool.settings.autoscaler:
        return
    waiting = {draft.key: draft.group.waiting for draft in pool.groups}
    kept = []
    for one, stored in zip(pool.pool.state.replicas.requested_nodes, _as_written(pool), strict=True):
        if pool.now - one.at > SCALE_REQUEST_KEPT:
            continue
        nodes = {key: min(count, waiting.get(key, 0)) for key, count in stored.items()}
        for key, count in nodes.items():
            waiting[key] = waiting.get(key, 0) - count
        if any(nodes.values()) or pool.pool.unplaced:
            kept.append(replace(one, nodes={key: count for key, count in nodes.items() if count}))
    pool.request.requested_nodes = tuple(kept)


def _as_written(pool: PoolDraft) -> list[Counter[str]]:
    """Return the stored nodes of each request, without the steps of an interrupted move that were not written."""
    nodes = [Counter(one.nodes) for one in pool.pool.state.replicas.requested_nodes]
    move = pool.pool.state.move
    if move is None or move.request in (FOR_PODS, UNNEEDED_NODES):
        return nodes
    for draft in pool.groups:
        left = move.left_of(draft.group)
        nodes[0][draft.key] += max(0, -left)
        for counts in reversed(nodes):
            less = min(max(0, left), counts[draft.key])
            counts[draft.key] -= less
            left -= less
    return nodes


def place_unplaced(pool: PoolDraft, takers: Sequence[Draft], unplaced: int) -> list[tuple[Draft, int]]:
    """Raise groups by the replicas that an interrupted move has lost. Return each raised group with its increase."""
    entries = pool.request.requested_nodes
    allowed = [taker for taker in takers if not entries or entries[0].fits(taker.group)]
    raised = give(unplaced, [(taker, taker.takes) for taker in allowed], takes_on)
    if entries and raised:
        nodes = Counter(entries[0].nodes) + Counter({taker.key: more for taker, more in raised})
        pool.request.requested_nodes = (replace(entries[0], nodes=dict(nodes)), *entries[1:])
    return raised


def remember_requested(pool: PoolDraft, request: ScaleRequest, added: dict[str, int]) -> None:
    """Without an autoscaler, store the nodes that this plan adds for a scale request."""
    if added and not request.is_of_plan and not pool.pool.settings.autoscaler:
        nodes = RequestedNodes(at=request.at, only=tuple(sorted(request.only)), nodes=added)
        pool.request.requested_nodes = (*pool.request.requested_nodes, nodes)


def is_of_request(pool: PoolDraft, draft: Draft) -> bool:
    """Return True if some nodes of the group that do not run yet are of a scale request."""
    return any(draft.key in one.nodes for one in pool.request.requested_nodes)


def place_requested(pool: PoolDraft, draft: Draft, refused: int, takers: Sequence[Draft], room: int) -> tuple[int, int]:
    """Give the refused nodes of requests to groups that the requests allow. The caller takes them from the group.

    Returns:
        How many nodes move, and how many stay because no group can take them.
    """
    moved = stays = 0
    above = max(0, pool.target - pool.pool.max)
    entries = []
    for one in pool.request.requested_nodes:
        own = min(one.nodes.get(draft.key, 0), refused - moved - stays)
        allowed = [taker for taker in takers if one.fits(taker.group) and taker.group.template.closed_because is None]
        raised = give(min(own - above, room - moved), [(taker, taker.takes) for taker in allowed], takes_on)
        nodes = dict(one.nodes)
        for taker, more in raised:
            nodes[taker.key] = nodes.get(taker.key, 0) + more
            nodes[draft.key] -= more
            moved += more
            own -= more
        stays += own
        entries.append(replace(one, nodes={key: count for key, count in nodes.items() if count}))
    pool.request.requested_nodes = tuple(entries)
    return moved, stays
