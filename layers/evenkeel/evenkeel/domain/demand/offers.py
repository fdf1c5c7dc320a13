"""The input of scale-up and scale-down from each pool: its nodes, its limits, and reasons that exclude node groups."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from evenkeel.domain.model.demand import (
    UNNEEDED_TIME,
    UNREADY_TIME,
    UTILIZATION_THRESHOLD,
    GroupOffer,
    PoolOffer,
    ScaleDownOptions,
)
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import GroupKey, State
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.reasons import Reason, Rule, Topic
from evenkeel.domain.model.workload import Node, Workload

_LASTING = frozenset({Rule.REPLICAS_OF_OTHERS, Rule.NO_MACHINE_CAN_BE_NAMED, Rule.NOTHING_DRAINS})


def offer_of(pool: PoolDraft) -> PoolOffer:
    """Return the offer of a pool, based on the pool's draft plan.

    The offer's ``room`` is the number of nodes that a scale request could add
    (``domain.rebalancing.replicas.requests``). The published bounds do not limit it, because they are for autoscalers,
    and Evenkeel adapts them to the replicas.
    """
    room = max(0, pool.free)
    is_busy = pool.moves or (pool.request.current is not None and not pool.request.current.is_of_plan)
    busy = Reason.of(Rule.POOL_BUSY) if is_busy else None
    groups = tuple(_offer_of(pool, draft, room, busy) for draft in pool.groups)
    return PoolOffer(
        pool=pool.pool.id,
        groups=groups,
        room=room,
        min=pool.pool.min,
        orders=pool.pool.state.orders,
        drains_held=pool.demand.drains_held,
        guard=pool.demand.guard,
        first_pools=pool.pool.first_pools,
    )


def _offer_of(pool: PoolDraft, draft: Draft, room: int, busy: Reason | None) -> GroupOffer:
    group, not_healthy, unhealthy = draft.group, _not_healthy_because(draft), draft.group.status.unhealthy
    rest = unhealthy if unhealthy is not None and unhealthy.rule is Rule.CLUSTER_UNHEALTHY else None
    limit, blocked = draft.room_for_pods, draft.drain_blocked_by
    return GroupOffer(
        group=group.key,
        zone=group.identity.zone or "",
        zone_label=group.identity.zone_label,
        requested=draft.target,
        coming=_coming(draft),
        ordered=max(0, draft.requested - group.requested),
        room=min(room, limit),
        takes=draft.takes,
        before=group.requested,
        min=draft.fewest(),
        kept_empty=pool.demand.kept_empty.get(draft.key),
        template=group.template.node,
        ignored_taints=pool.pool.settings.ignored_taints,
        closed=None if limit and draft.state is State.PROBING else not_healthy or rest or group.template.closed_because,
        unhealthy=unhealthy,
        held=rest or _held_because(draft, not_healthy, blocked),
        waits=busy or blocked,
        marked=draft.machines.marked,
        options=ScaleDownOptions(
            unneeded_for=UNNEEDED_TIME if group.options.unneeded_time is None else group.options.unneeded_time,
            unready_for=UNREADY_TIME if group.options.unready_time is None else group.options.unready_time,
            threshold=_threshold(group.options.utilization_threshold),
            gpu_threshold=_threshold(group.options.gpu_utilization_threshold),
            provision_timeout=draft.provision_timeout,
        ),
    )


def _threshold(share: float | None) -> Fraction:
    return UTILIZATION_THRESHOLD if share is None else Fraction(str(share))


def _held_because(draft: Draft, not_healthy: Reason | None, blocked: Reason | None) -> Reason | None:
    """Return the lasting reason why all nodes of a group count as needed; None: there is none.

    A lasting reason ends the unneeded clocks of the nodes. A temporary reason does not.
    """
    frozen = draft.group.frozen_because
    if not draft.writable and (frozen is None or frozen.rule is not Rule.WRITE_REFUSED):
        return not_healthy
    return blocked if blocked is not None and blocked.rule in _LASTING else None


def _not_healthy_because(draft: Draft) -> Reason | None:
    if draft.state in (State.HEALTHY, State.UNHEALTHY):
        return None
    reason = next((reason for reason in draft.reasons if reason.rule.topic is Topic.STATE), None)
    return reason or Reason.of(Rule.IN_STATE, state=draft.state.value)


def _coming(draft: Draft) -> int:
    """Return the number of upcoming nodes of a group.

    It is the sum of machines that are provisioning, replicas that may still get a machine, and replicas that this plan
    adds.
    """
    group = draft.group
    provisioning = draft.machines.coming
    if group.status.launched is None:
        machines = group.machines or ()
        provisioning = sum(not (machine.has_node or machine.deleting or machine.preserved) for machine in machines)
    # The machine controller may not have created machines for the latest replicas yet. This is also possible in a
    # probing group. If it never creates these machines, the group is fenced at the provision timeout.
    may_be_made = draft.state in (State.HEALTHY, State.PROBING, State.UNHEALTHY)
    unmade = max(0, group.waiting - provisioning) if may_be_made else 0
    return draft.machines.coming + unmade + max(0, draft.requested - group.requested)


def untouched(pool: AnyPool, rule: Rule) -> PoolOffer:
    """Return the offer of a pool that Evenkeel does not change. The pool neither gets nor loses nodes.

    FEW_MEMBERS means that some members of the pool are missing from the list, which lasts a minute at most. So this
    reason is temporary: the pool's nodes wait, and their unneeded clocks continue.
    """
    reason = Reason.of(rule)
    held, waits = (None, reason) if rule is Rule.FEW_MEMBERS else (reason, None)
    groups = tuple(
        GroupOffer(
            group=group.key,
            zone=group.identity.zone or "",
            zone_label=group.identity.zone_label,
            requested=group.requested,
            closed=reason,
            held=held,
            waits=waits,
        )
        for group in pool.groups
    )
    return PoolOffer(pool=pool.id, groups=groups, orders=pool.state.orders)


def with_coming(pools: Sequence[PoolOffer], workload: Workload) -> tuple[PoolOffer, ...]:
    """Return the pools, with the number of upcoming nodes limited to the requested nodes that do not exist yet.

    A node registers before its machine reports it. Without the limit, such a node would count as existing and as
    upcoming. A node that is being deleted does not count as existing, because its replacement is upcoming.
    """
    existing = Counter(node.group for node in workload.nodes if not node.deleting)

    def reduced(offer: GroupOffer) -> GroupOffer:
        return replace(offer, coming=min(offer.coming, max(0, offer.requested - existing[offer.group])))

    return tuple(replace(pool, groups=tuple(map(reduced, pool.groups))) for pool in pools)


# ---------------------------------------------------------------- nodes with Evenkeel's delete mark


def _marked_offers(pools: Sequence[PoolOffer]) -> dict[GroupKey, GroupOffer]:
    return {offer.group: offer for pool in pools for offer in pool.groups if offer.marked}


def _is_marked(node: Node, offers: dict[GroupKey, GroupOffer]) -> bool:
    machine, offer = node.machine, offers.get(node.group) if node.group is not None else None
    if offer is None or machine is None or machine.name not in offer.marked:
        return False
    return machine.marked or node.drained_since is not None


def marked_nodes(workload: Workload, pools: Sequence[PoolOffer]) -> frozenset[str]:
    """Return the names of the nodes that are not being deleted, but whose machines have Evenkeel's delete mark."""
    offers = _marked_offers(pools)
    return frozenset(node.name for node in workload.nodes if not node.deleting and _is_marked(node, offers))


def with_deleting(workload: Workload, pools: Sequence[PoolOffer]) -> Workload:
    """Return the workload, with ``deleting`` set for the marked nodes that the machine controller will delete.

    Their number is the group's number of nodes minus its replicas. Until the machine controller acts, only the delete
    marks show which machines it will delete. If the replicas are raised meanwhile, it deletes no machine.
    """
    offers = _marked_offers(pools)
    if not offers:
        return workload
    surplus: Counter[GroupKey | None] = Counter(node.group for node in workload.nodes if not node.deleting)
    surplus.subtract({group: offer.before for group, offer in offers.items()})
    nodes = []
    for node in sorted(workload.nodes, key=lambda node: node.name):
        if not node.deleting and _is_marked(node, offers) and surplus[node.group] > 0:
            surplus[node.group] -= 1
            node = replace(node, deleting=True)
        nodes.append(node)
    return replace(workload, nodes=tuple(nodes))
