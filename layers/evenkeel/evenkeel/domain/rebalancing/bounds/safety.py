"""What is published, whatever a strategy said: every cap on growth, and then the safety pass. Both stand here only.

Cluster Autoscaler reads bounds every ten seconds, and one bad bound hides every node group of the cluster from it
(clusterapi_controller.go:804-808). A max below replicas stops scale-down for good (kubernetes/autoscaler#9395); a min
above replicas refuses small growth (kubernetes/autoscaler#4942).
"""

from evenkeel.domain.model.choices import Size
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import Bounds, NodeGroup, State
from evenkeel.domain.model.reasons import Reason, Rule


def size(pool: PoolDraft) -> None:
    """Have the pool's strategy say a size for each of its groups."""
    pool.sizes = pool.pool.strategy.size(pool)


def publish(pool: PoolDraft) -> None:
    """What the strategy says, less every cap on growth, and then made safe. Bounds of a frozen group, or held, stay."""
    for draft, proposal in zip(pool.groups, pool.sizes, strict=True):
        if draft.state is State.FROZEN:
            continue
        if draft.group.bounds_held:
            draft.add_reason(Rule.BOUNDS_HELD, owner=str(draft.group.owner and draft.group.owner.ref))
            continue
        maximum = _capped(pool, draft, proposal)
        minimum = max(proposal.min, draft.zone_share)
        if minimum > proposal.min:
            draft.add_reason(Rule.ZONE_MIN, min=minimum, zone_min=draft.group.zone_min)
        if draft.protected and minimum < draft.requested:
            minimum = draft.requested
            draft.add_reason(Rule.STEP_MIN, min=minimum)
        draft.bounds, reasons = safe_bounds(minimum, maximum, draft.group, draft.requested)
        draft.reasons += reasons
        draft.pins = draft.state is State.FENCED and draft.group.may_be_pinned
        if draft.pins:
            draft.add_reason(Rule.PINNED, requested=draft.requested)


def _capped(pool: PoolDraft, draft: Draft, proposal: Size) -> int:
    """The strategy's max, cut by whatever keeps the group from growing."""
    group, maximum = draft.group, proposal.max
    if draft.state is State.FENCED and group.fencing_enabled:
        maximum = draft.requested
        draft.add_reason(Rule.FENCE, requested=draft.requested)
    elif (why := _why_closed(pool, draft)) is not None:
        maximum = _closed(pool, draft, why)
        draft.closes = maximum < proposal.max
    else:
        draft.reasons.append(proposal.why)
        if pool.opens:
            draft.add_reason(Rule.OPENED)
        if draft.state is State.PROBING and group.fencing_enabled and maximum > draft.requested + draft.probe:
            maximum = draft.requested + draft.probe
            draft.add_reason(Rule.PROBE, max=maximum)
    if draft.throttled_max is not None and maximum > max(draft.throttled_max, draft.requested):
        maximum = max(draft.throttled_max, draft.requested)
        draft.add_reason(Rule.CAUTIOUS_MAX, max=maximum)
    if draft.slow_start_max is not None and maximum > max(draft.slow_start_max, draft.requested):
        maximum = max(draft.slow_start_max, draft.requested)
        draft.add_reason(Rule.SLOW_START_MAX, max=maximum, nodes=draft.slow_start_max - group.running)
    if draft.step_max is not None and maximum > max(draft.step_max, draft.requested):
        maximum = max(draft.step_max, draft.requested)
        draft.add_reason(Rule.STEP_MAX, max=maximum)
    if group.worker_range is not None and maximum > max(group.worker_range.max, draft.requested):
        maximum = max(group.worker_range.max, draft.requested)
        draft.add_reason(Rule.WORKER_SHARE, max=maximum, share=group.worker_range.max)
    if group.zone_max is not None and maximum > max(group.zone_max, draft.requested):
        maximum = max(group.zone_max, draft.requested)
        draft.add_reason(Rule.ZONE_MAX, max=maximum, zone_max=group.zone_max)
    if pool.pool.strategy.adds_up and draft.journal_delta < 0 and group.bounds is not None:
        # Its patch comes first, before any that lowers a max.
        protected = max(group.bounds.max, draft.requested)
        if maximum > protected:
            maximum = protected
            draft.add_reason(Rule.GIVES_UP_FIRST, max=maximum)
    return maximum


def _why_closed(pool: PoolDraft, draft: Draft) -> Rule | None:
    """Return why no autoscaler is to order in the group. Where Evenkeel stops acting, one always may."""
    if pool.opens:
        return None
    if pool.pool.autoscaler and _has_moved_machines_coming(pool, draft):
        return Rule.MOVE_UNDER_WAY
    return Rule.CLOSED_FOR_ORDER if pool.closed and draft.state is not State.FENCED else None


def stays_closed(draft: Draft) -> bool:
    """Return True if what keeps the group from being written now will end, and its max leaves no room until then."""
    group = draft.group
    if group.frozen_because is None or group.bounds is None or not group.bounds_are_read:
        return False
    return group.bounds.max <= max(group.requested, group.owner_min_max)


def _closed(pool: PoolDraft, draft: Draft, why: Rule) -> int:
    """Return what is requested, and what pods want beyond what is on its way: an autoscaler can order just that."""
    more = pool.open_for.get(str(draft.key), 0)
    if more:
        draft.add_reason(Rule.OPEN_FOR_PODS, nodes=more)
        return draft.requested + more
    orders = {} if why is not Rule.CLOSED_FOR_ORDER else {"until": pool.orders_at, "nodes": pool.untaken}
    draft.add_reason(why, **orders)
    return draft.requested


def _has_moved_machines_coming(pool: PoolDraft, draft: Draft) -> bool:
    """Whether machines that we ordered here for another zone are still on their way.

    Cluster Autoscaler does not count what it did not order (clusterstate.go:1126-1139): with room left, it would order
    them again.
    """
    if draft.journal_delta > 0:
        return True
    waits = draft.state is State.HEALTHY and draft.group.waiting > 0
    return waits and draft.group.is_ordered_by_us(pool.now, draft.provision_timeout)


def safe_bounds(minimum: int, maximum: int, group: NodeGroup, requested: int) -> tuple[Bounds, list[Reason]]:
    """Bounds that may be published for a group, and a reason for each change.

    Args:
        minimum: What is wanted as min; may be negative or too large.
        maximum: What is wanted as max; may be negative.
        group: Its owner may accept no max, or no min, below some number (an OpenShift MachineAutoscaler: max 1).
        requested: Of the group after the same patch, >= 0.
    """
    reasons = []
    if group.max_only:
        minimum = 0
    if maximum < requested:
        reasons.append(Reason.of(Rule.MAX_BELOW_REQUESTED, max=maximum, requested=requested))
        maximum = requested
    if maximum < group.owner_min_max:
        reasons.append(Reason.of(Rule.OWNER_MIN_MAX, max=maximum, owner_min_max=group.owner_min_max))
        maximum = group.owner_min_max
    if minimum > requested:
        reasons.append(Reason.of(Rule.MIN_ABOVE_REQUESTED, min=minimum, requested=requested))
        minimum = requested
    if minimum < group.owner_min_min:
        reasons.append(Reason.of(Rule.OWNER_MIN_MIN, min=max(0, minimum), owner_min_min=group.owner_min_min))
        minimum, maximum = group.owner_min_min, max(maximum, group.owner_min_min)
    return Bounds(max(0, minimum), maximum), reasons
