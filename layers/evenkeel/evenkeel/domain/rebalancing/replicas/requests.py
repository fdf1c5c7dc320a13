"""Requests to add nodes or to give nodes back: a number of nodes is divided among the groups of a pool at once.

Adding follows Cluster Autoscaler's balancing (processors/nodegroupset/balancing_processor.go:79-181): each node is
added to the smallest group below its max. The result is computed in closed form. Giving back is the reverse
(kubernetes/autoscaler#3693): each node is removed from the largest group above its min. ``request_queue`` assigns
requests to pools.
"""

from dataclasses import replace

from evenkeel.domain.model.demand import KeptNodes
from evenkeel.domain.model.drafts import OWNER_FLOORS, Draft, PoolDraft
from evenkeel.domain.model.flavours import MOST_REMOVED
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.plans import Removal
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.water_fill import water_fill
from evenkeel.domain.rebalancing.replicas.changes import order, take
from evenkeel.domain.rebalancing.replicas.deletion import remove
from evenkeel.domain.rebalancing.replicas.requested_nodes import remember_requested


def begin_request(pool: PoolDraft) -> None:
    """Delay a request that has not begun, while a move between zones is in progress.

    The journal stores one change at a time. A request that the plan itself makes also waits while the plan lowers
    replicas. Until the lower number is written, the machines of these replicas may still register.
    """
    step, request = pool.convergence.state.step, pool.request.current
    if request is None:
        return
    gives_in_step = request.nodes < 0 and step is not None and step.is_open
    if request.is_of_plan:
        if pool.moves or gives_in_step or any(draft.requested < draft.group.requested for draft in pool.groups):
            _drop(pool, request)
    elif pool.pool.scale_request is None and (pool.moves or gives_in_step):
        pool.request.current, pool.request.waits = None, request


def _drop(pool: PoolDraft, request: ScaleRequest) -> None:
    """Drop a request that the plan itself made. If an earlier run has begun the request, close its journal."""
    begun = pool.pool.scale_request is not None
    pool.request.current = replace(request, nodes=0, shares={}, machines={}) if begun else None


def carry_out_request(pool: PoolDraft) -> None:
    """Add the requested nodes, or remove the nodes to give back. Unmet nodes lack room, or must remain."""
    request = pool.request.current
    if request is None:
        return
    if request.is_over(pool.now):
        pool.request.unmet = abs(request.nodes) + request.later
    elif request.nodes > 0:
        pool.request.unmet = _grow(pool, request)
    elif request.machines:
        if not remove(pool, request.machines):
            _drop(pool, request)
    elif request.nodes < 0:
        pool.request.unmet = _give_back(pool, request)
    else:
        _leave(pool, request, 0)


def _grow(pool: PoolDraft, request: ScaleRequest) -> int:
    """Divide the nodes among the groups that may get nodes, within each max and PoolMaximum.

    Return how many nodes lack room. This number excludes the nodes that max_step leaves to later runs.
    """
    rooms: list[int] = []
    obstacles: list[Reason | None] = []
    for draft, cap in zip(pool.groups, _caps(pool), strict=True):
        if request.is_of_plan:
            rooms.append(min(draft.room_for_pods, request.shares.get(draft.key, 0)))
            obstacles.append(None)
            continue
        room = draft.room if cap is None else min(draft.room, max(0, cap - draft.requested))
        obstacle = _obstacle(draft, request) or (None if room else Reason.of(Rule.AT_ITS_MAX))
        rooms.append(0 if obstacle else room)
        obstacles.append(obstacle)

    def share(_draft: Draft, more: int) -> Reason:
        return Reason.of(Rule.REQUEST_SHARE, count=more, nodes=request.nodes, request=request.id)

    # Groups are compared only by size, as in Cluster Autoscaler. Weights apply only to headroom.
    ordered = order(pool, request.nodes, [*zip(pool.groups, rooms, strict=True)], share, journaled=True)
    added = {draft.key: more for draft, more in ordered.raised}
    remember_requested(pool, request, added)
    for draft, obstacle in zip(pool.groups, obstacles, strict=True):
        if obstacle is not None and draft.key not in added:
            draft.add_reason(Rule.REQUEST_NO_SHARE, nodes=request.nodes, request=request.id, why=obstacle)
    _leave(pool, request, ordered.later)
    return ordered.unmet


def _leave(pool: PoolDraft, request: ScaleRequest, later: int) -> None:
    """Count the nodes of the request that later runs add. An order for pods needs no count: its pods remain pending."""
    pool.replicas.later += later + request.later
    pool.request.later = 0 if request.is_of_plan else later + request.later


def _caps(pool: PoolDraft) -> list[int | None]:
    """Return each group's published max; None: the group has none.

    While a move or a request orders machines in a group, the group's published max is lowered to its requested
    replicas, so that no node is ordered twice. The lowered max does not limit requests. The strategy's max is used
    instead.
    """
    if _may_place_anywhere(pool):
        return [None] * len(pool.groups)
    published = [None if draft.group.bounds is None else draft.group.bounds.max for draft in pool.groups]
    closed = pool.pool.state.closed_at is not None
    ours = [closed or draft.group.is_ordered_by_us(pool.now, draft.provision_timeout) for draft in pool.groups]
    if not any(ours):
        return published
    sizes = pool.pool.settings.strategy.size(pool)
    return [size.max if own else cap for own, size, cap in zip(ours, sizes, published, strict=True)]


def _may_place_anywhere(pool: PoolDraft) -> bool:
    """Return True for the last nodes under PoolMaximum where no autoscaler reads in which zone they are offered."""
    if pool.pool.settings.autoscaler or not pool.pool.settings.strategy.reserves:
        return False
    return pool.free < sum(draft.state is State.HEALTHY for draft in pool.groups)


def _obstacle(draft: Draft, request: ScaleRequest) -> Reason | None:
    """Return why a group must not grow for this request, even with room; None: it may grow."""
    if not request.fits(draft.group):
        return Reason.of(Rule.PODS_DO_NOT_FIT)
    is_wanted = draft.state is State.UNHEALTHY and request.names(draft.group)
    if draft.state is not State.HEALTHY and not is_wanted:
        return Reason.of(Rule.IN_STATE, state=draft.state.value)
    return draft.group.template.closed_because


def _give_back(pool: PoolDraft, request: ScaleRequest) -> int:
    """Remove the nodes from the largest groups, not below a min or PoolMinimum. Return how many nodes must remain.

    This number excludes the nodes that MOST_REMOVED leaves to later runs.

    Fenced groups are last, because they could not get a node back. Unhealthy groups keep their nodes unless the request
    names one. A preserved machine without a node cannot be given back, and does not count for a minimum. A node remains
    if its pods fit on no other node, or if another rule keeps it.
    """
    unmet = -request.nodes
    pool.request.later = request.later
    if pool.request.pods_unread:
        return unmet
    pool.release.asks_waiting = pool.request.kept is None
    nodes = pool.target - sum(draft.group.preserved for draft in pool.groups)
    allowed = min(unmet, max(0, nodes - pool.pool.min))
    minima = _minima(pool)
    for states in ((State.HEALTHY, State.PROBING), (State.FENCED, State.UNHEALTHY)):
        givers = [draft for draft in pool.groups if draft.state in states and _may_give(draft, request)]
        levels = [draft.group.preserved - draft.requested for draft in givers]
        room = [_spare(draft, minima[draft.key], pool.request.kept) for draft in givers]
        # A function must not read ``givers``, because the loop changes it.
        shares = water_fill(allowed, levels, room, [draft.tie for draft in givers].__getitem__)
        for draft, share in zip(givers, shares, strict=True):
            less = min(share, MOST_REMOVED.get(draft.group.key.flavour, share))
            pool.request.later += share - less
            allowed -= share - less
            unmet -= share - less
            if less:
                keeps = pool.request.kept.machines if pool.request.kept is not None else frozenset()
                draft.removal = Removal(may_remove_running=True, keeps=keeps)
                allowed -= less
                unmet -= less
                reason = Reason.of(Rule.GIVES_BACK, count=less, nodes=request.nodes, request=request.id)
                take(draft, less, reason, journaled=True)
    return unmet


def _may_give(draft: Draft, request: ScaleRequest) -> bool:
    """Return True if nodes of the group may be removed. An unhealthy group keeps its nodes unless it is named."""
    return request.fits(draft.group) and (draft.group.status.unhealthy is None or request.names(draft.group))


def _minima(pool: PoolDraft) -> dict[str, int]:
    """Return the fewest nodes that each group keeps: its floors for nodes, and its published min.

    Level shrink raises published minima, and so do pods that decide which nodes stay. Then the strategy's min counts
    instead, because a raised min is only for autoscalers, and ``pool.request.kept`` is more exact.
    """
    is_level_held = held_until(pool.pool.state.held_until, pool.now) is not None
    if is_level_held or pool.given.pods_decide:
        sizes = zip(pool.groups, pool.pool.settings.strategy.size(pool), strict=True)
        minima = {draft.key: draft.kept(size.min) for draft, size in sizes}
    else:
        minima = {draft.key: 0 if draft.group.bounds is None else draft.group.bounds.min for draft in pool.groups}
    return {draft.key: max(minima[draft.key], draft.kept(draft.fewest(without=OWNER_FLOORS))) for draft in pool.groups}


def _spare(draft: Draft, minimum: int, kept_nodes: KeptNodes | None) -> int:
    if draft.requested > draft.group.requested:
        return 0  # this plan raises the group, and the new nodes do not exist yet
    group = draft.group
    nodes = draft.requested - group.preserved
    # Preserved nodes are deleted last. If at least as many nodes remain as are preserved, this request deletes no
    # preserved node.
    kept = sum(machine.preserved and machine.has_node and not machine.deleting for machine in group.machines or ())
    unplaceable = 0 if kept_nodes is None else kept_nodes.by_group.get(group.key, 0)
    others = {} if kept_nodes is None else {rule: nodes.get(group.key, 0) for rule, nodes in kept_nodes.others.items()}
    if unplaceable:
        draft.add_reason(Rule.KEPT_FOR_PODS, count=unplaceable)
    for rule, count in others.items():
        if count:
            draft.add_reason(rule, count=count)
    if (stay := unplaceable + sum(others.values())) and group.status.launched is not None:
        return 0  # the API cannot name the machine to delete
    return max(0, min(nodes - max(minimum, kept + stay), draft.requested - draft.owner_min))
