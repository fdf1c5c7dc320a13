"""The bounds to publish. For every strategy, only this module applies caps on growth and makes bounds safe.

Cluster Autoscaler reads bounds every ten seconds. A single invalid bound hides every node group of the cluster from the
autoscaler (clusterapi_controller.go:804-808). A max below the replicas stops scale-down permanently
(kubernetes/autoscaler#9395). With a min above the replicas, the autoscaler refuses small scale-ups
(kubernetes/autoscaler#4942).
"""

from evenkeel.domain.model.choices import Size
from evenkeel.domain.model.drafts import LIMITS, Draft, PoolDraft
from evenkeel.domain.model.groups import Bounds, NodeGroup, State
from evenkeel.domain.model.reasons import Fact, Reason, Rule


def size(pool: PoolDraft) -> None:
    """Set the size of each group, as the pool's strategy computes it."""
    strategy = pool.pool.settings.strategy
    pool.bounds.sizes = strategy.size(pool)
    if strategy.publishes_minima:
        for draft, its in zip(pool.groups, pool.bounds.sizes, strict=True):
            draft.floors[Rule.STRATEGY] = its.min


def publish(pool: PoolDraft) -> None:
    """Set the bounds of each group: the strategy's bounds, limited by every cap on growth and made safe.

    Frozen groups and groups with held bounds keep their bounds.
    """
    for draft, proposal in zip(pool.groups, pool.bounds.sizes, strict=True):
        if not draft.writable:
            continue
        owner, minimum = draft.group.owner, proposal.min
        if owner.bounds_held:
            draft.add_reason(Rule.BOUNDS_HELD, owner=str(owner.numbers and owner.numbers.ref))
            continue
        maximum = _capped(pool, draft, proposal)
        if (zone_min := draft.floors.get(Rule.ZONE_MIN, 0)) and draft.kept(zone_min) > minimum:
            minimum = draft.kept(zone_min)
            draft.add_reason(Rule.ZONE_MIN, min=minimum, zone_min=zone_min)
        for rule, least in (draft.autoscaler.floors | draft.autoscaler.mins).items():
            if least and draft.kept(least) > minimum:
                minimum = draft.kept(least)
                draft.add_reason(rule, min=minimum)
        if draft.autoscaler.protected and minimum < draft.requested:
            minimum = draft.requested
            draft.add_reason(Rule.STEP_MIN, min=minimum)
        draft.bounds, reasons = safe_bounds(minimum, maximum, draft.group, draft.requested)
        draft.reasons += reasons
        draft.pins = owner.may_be_pinned and draft.state is State.FENCED
        if draft.pins:
            draft.add_reason(Rule.PINNED, requested=draft.requested)


def _capped(pool: PoolDraft, draft: Draft, proposal: Size) -> int:
    """Return the strategy's max, lowered to the tightest limit on growth, but never below the group's replicas."""
    group, maximum = draft.group, proposal.max
    if draft.state is State.FENCED and not draft.is_unfenced:
        maximum = draft.requested
        # A drill's fence is opened like a closed group, if the pool is paused or put into dry run meanwhile.
        draft.autoscaler.closes = draft.health.is_drilled
        draft.add_reason(Rule.FENCE, requested=draft.requested)
    elif draft.state is State.UNHEALTHY and group.annotations.fencing_enabled:
        maximum = draft.requested
        draft.add_reason(Rule.UNHEALTHY_MAX, requested=draft.requested)
    elif (rule := _closing_rule(pool, draft)) is not None:
        maximum = _closed(pool, draft, rule)
        draft.autoscaler.closes = maximum < proposal.max
    else:
        draft.reasons.append(proposal.why)
        if pool.opens:
            draft.add_reason(Rule.OPENED)
        if draft.state is State.PROBING and not draft.is_unfenced:
            maximum = _cut(draft, maximum, draft.requested + draft.probe, Rule.PROBE)
    for rule in LIMITS if draft.limits else ():
        if (cap := draft.limits.get(rule)) is None:
            continue
        facts: dict[Rule, dict[str, Fact]] = {
            Rule.SLOW_START_MAX: {"nodes": cap - group.running},
            Rule.WORKER_SHARE: {"share": cap},
            Rule.ZONE_MAX: {"zone_max": cap},
        }
        maximum = _cut(draft, maximum, cap, rule, **facts.get(rule, {}))
    if draft.journal_delta < 0 and pool.pool.settings.strategy.adds_up and group.bounds is not None:
        # This group's patch is written before other groups lower their max. So this patch must not raise this group's
        # max.
        maximum = _cut(draft, maximum, group.bounds.max, Rule.GIVES_UP_FIRST)
    return maximum


def _cut(draft: Draft, maximum: int, cap: int, rule: Rule, **facts: Fact) -> int:
    lowest = max(cap, draft.requested)
    if maximum <= lowest:
        return maximum
    draft.add_reason(rule, max=lowest, **facts)
    return lowest


def _closing_rule(pool: PoolDraft, draft: Draft) -> Rule | None:
    """Return the rule by which autoscalers must not order nodes in the group; None: they may order.

    In a pool that is being opened to autoscalers (paused or in dry run), autoscalers may always order.
    """
    if pool.opens:
        return None
    if _has_moved_machines_coming(pool, draft) and pool.pool.settings.autoscaler:
        return Rule.MOVE_UNDER_WAY
    return Rule.CLOSED_FOR_ORDER if pool.release.closed and draft.state is not State.FENCED else None


def stays_closed(draft: Draft) -> bool:
    """Return True if Evenkeel cannot write the group now, and its present max leaves no room for growth."""
    group = draft.group
    if group.frozen_because is None or group.bounds is None or not group.owner.bounds_are_read:
        return False
    return group.bounds.max <= max(group.requested, group.owner.least_max)


def _closed(pool: PoolDraft, draft: Draft, rule: Rule) -> int:
    """Return a closed group's max: its replicas, plus the nodes that pods need in addition to upcoming machines.

    An autoscaler can order only these additional nodes.
    """
    more = pool.release.open_for.get(draft.key, 0)
    if more:
        draft.add_reason(Rule.OPEN_FOR_PODS, nodes=more)
        return draft.requested + more
    orders = (
        {}
        if rule is not Rule.CLOSED_FOR_ORDER
        else {"until": pool.release.orders_at, "nodes": pool.release.not_reordered}
    )
    draft.add_reason(rule, **orders)
    return draft.requested


def _has_moved_machines_coming(pool: PoolDraft, draft: Draft) -> bool:
    """Return True while the group waits for machines of replicas that Evenkeel moved to it from another zone.

    Cluster Autoscaler does not count machines that it did not order (clusterstate.go:1126-1139). If max left room, the
    autoscaler would order these nodes again.
    """
    if draft.journal_delta > 0:
        return True
    is_ours = draft.state is State.HEALTHY and draft.group.is_ordered_by_us(pool.now, draft.provision_timeout)
    return is_ours and draft.group.waiting > 0


def safe_bounds(minimum: int, maximum: int, group: NodeGroup, requested: int) -> tuple[Bounds, list[Reason]]:
    """Return safe bounds for a group, and a reason for each change of the proposed bounds.

    Args:
        minimum: The proposed min; may be negative or too large.
        maximum: The proposed max; may be negative.
        group: The group. Its owner may require a least max or min (an OpenShift MachineAutoscaler requires a max of at
            least 1).
        requested: The replicas that the same patch requests, >= 0.
    """
    reasons, owner = [], group.owner
    if owner.max_only:
        minimum = 0
    if maximum < requested:
        reasons.append(Reason.of(Rule.MAX_BELOW_REQUESTED, max=maximum, requested=requested))
        maximum = requested
    if maximum < owner.least_max:
        reasons.append(Reason.of(Rule.OWNER_MIN_MAX, max=maximum, owner_min_max=owner.least_max))
        maximum = owner.least_max
    if minimum > requested:
        reasons.append(Reason.of(Rule.MIN_ABOVE_REQUESTED, min=minimum, requested=requested))
        minimum = requested
    if owner.min_within_running and minimum > group.running:
        reasons.append(Reason.of(Rule.MIN_ABOVE_RUNNING, min=minimum, running=group.running))
        minimum = group.running
    if minimum < owner.least_min:
        reasons.append(Reason.of(Rule.OWNER_MIN_MIN, min=max(0, minimum), owner_min_min=owner.least_min))
        minimum, maximum = owner.least_min, max(maximum, owner.least_min)
    minimum, same = max(0, minimum), group.bounds
    if same is not None and same.max == maximum and same.min == minimum:
        return same, reasons
    return Bounds(minimum, maximum), reasons
