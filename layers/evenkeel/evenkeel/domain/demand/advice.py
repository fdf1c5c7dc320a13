"""What demand says beside a plan: the pods that wait and the nodes that nobody needs, pool by pool.

What follows from it, where the record asks for more than advice, is ``domain.demand.orders``.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from fractions import Fraction

from evenkeel.domain.demand.scale_down import scale_down
from evenkeel.domain.demand.scale_up import scale_up
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import (
    Advice,
    DemandPolicy,
    GroupOffer,
    NodeAdvice,
    PoolAdvice,
    PoolOffer,
    ScaleDownState,
    Unneeded,
)
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import GroupKey, PoolId, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.reasons import Reason, Rule, Topic
from evenkeel.domain.model.workload import Node, Workload

_LASTING = frozenset({Rule.REPLICAS_OF_OTHERS, Rule.NO_MACHINE_CAN_BE_NAMED})
# How soon pods are looked at again that wait for a node that is on its way.
WHILE_PODS_WAIT = timedelta(seconds=15)
# Cluster Autoscaler renews its lease every two seconds and its status every loop. What is older was left behind.
AT_WORK = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class Advised:
    """What is said of the cluster, and of each pool that it concerns."""

    cluster: Advice
    pools: Mapping[PoolId, PoolAdvice]
    idle: Unneeded | None = None  # None: nobody has looked for nodes that nobody needs
    look_at: datetime | None = None  # where orders follow from it: when the pods are worth another look


def advise(
    observation: Observation,
    pools: Sequence[PoolOffer],
    stage: DemandStage,
    remembered: ScaleDownState,
    now: datetime,
    order: tuple[str, ...] = (),
) -> Advised:
    """What the pods and nodes of one look come to, with these pools as their plans leave them.

    ``remembered``: since when nodes are unneeded, where that is; with advice alone no clock runs. ``order``: pools by
    name or id, in which pods get nodes first. Nothing is said, with one sentence why, where pods could not be read, or
    where nobody can say whose they are.
    """
    workload, policy = with_going(observation.workload or Workload(), pools), DemandPolicy(order=order)
    beside_another = _is_beside_another(workload, now) if stage.orders else None
    why_unread = unread(observation, pools)
    if why_unread is None and beside_another and workload.autoscaler_at is not None:
        why_unread = Reason.of(Rule.TWO_AUTOSCALERS, at=workload.autoscaler_at)
    if why_unread is not None:
        return Advised(cluster=Advice(unread=why_unread, beside_another=beside_another), pools={})
    offers = with_coming(pools if stage.orders else [replace(pool, orders={}) for pool in pools], workload)
    found = scale_up(workload, offers, policy, now)
    leaving = remembered if not stage.removes else replace(remembered, leaving=_marked(workload, offers))
    judges = stage.judges_nodes and workload.whole
    idle = scale_down(workload, offers, leaving, policy, now) if judges else None
    nodes = {} if idle is None else _nodes(workload, offers, idle, clocks=stage.removes)
    advice = Advice(
        unmet=found.unmet,
        not_counted=found.not_counted,
        fit_already=len(found.fits_already),
        look_again=found.look_again,
        beside_another=beside_another,
    )
    # While all that waits is too young, nobody has been asked.
    quote = found.pools if stage.orders else [replace(each, blocked=()) for each in found.pools]
    asked = {} if found.look_again is not None else {each.pool: each for each in quote}
    waits = now + WHILE_PODS_WAIT if found.fits_already and _is_awaited(offers) else None
    ripe = idle.look_at + timedelta(seconds=1) if idle is not None and idle.look_at is not None else None
    again = (found.look_again or waits, found.retry_at, ripe if stage.removes else None)
    moments = [moment for moment in again if moment is not None]
    return Advised(
        look_at=min(moments, default=None) if stage.orders else None,
        cluster=advice,
        idle=idle,
        pools={
            id: PoolAdvice(asked=each, nodes=tuple(nodes.get(id, ())), not_counted=found.not_counted)
            for id, each in asked.items()
        },
    )


def _is_beside_another(workload: Workload, now: datetime) -> bool | None:
    if not workload.autoscaler_sought:
        return None
    return is_at_work(workload.autoscaler_at, now)


def is_at_work(autoscaler_at: datetime | None, now: datetime) -> bool:
    """Whether a cluster-autoscaler that has shown itself then is still there."""
    return autoscaler_at is not None and abs(now - autoscaler_at) < AT_WORK


def _is_awaited(offers: Iterable[PoolOffer]) -> bool:
    """Whether a node is on its way that was ordered before this look: each comes, or fails, within its timeout.

    What this very plan orders is looked at again because it was written; where it cannot be, nothing is awaited.
    """
    return any(offer.coming > offer.ordered for pool in offers for offer in pool.groups)


def unread(observation: Observation, pools: Sequence[PoolOffer]) -> Reason | None:
    """Why nothing can be said of pods and nodes; None: something can, where they were read."""
    if observation.workload_unread:
        return Reason.of(Rule.WORKLOAD_UNREAD, error=observation.workload_unread)
    for flavour in sorted({pool.pool.flavour for pool in pools}):
        clusters = {_workload_cluster(pool.pool) for pool in pools if pool.pool.flavour == flavour}
        if len(clusters) > 1:
            return Reason.of(Rule.WORKLOADS_MIXED, clusters=tuple(sorted(clusters)))
    return None


def _workload_cluster(pool: PoolId) -> str:
    """Where a flavour has one for each namespace, that is its name."""
    return "/".join(part for part in (pool.namespace, pool.cluster) if part)


def _nodes(
    workload: Workload, offers: Sequence[PoolOffer], found: Unneeded, *, clocks: bool
) -> dict[PoolId, list[NodeAdvice]]:
    """Every node of a pool, needed or not. Where nothing goes no clock runs, and nothing waits."""
    homes = {offer.group: pool.pool for pool in offers for offer in pool.groups}
    hanging = {each.node: each for each in found.hanging}
    advice: dict[PoolId, list[NodeAdvice]] = {}
    for node in sorted(workload.nodes, key=lambda node: node.name):
        if node.group in homes and (node.name in found.clocks or node.name in found.needed):
            said = NodeAdvice(
                node=node.name,
                group=node.group,
                needed=found.needed.get(node.name),
                since=found.clocks.get(node.name) if clocks else None,
                waits=found.waits.get(node.name) if clocks else None,
                hangs=hanging.get(node.name),
            )
            advice.setdefault(homes[node.group], []).append(said)
    return advice


def with_going(workload: Workload, pools: Sequence[PoolOffer]) -> Workload:
    """The look, with those nodes going that we have marked and whose replicas have fallen already.

    Until its controller comes to a machine, only its mark says which one it will take: as many as there are more nodes
    than replicas. Where replicas are raised meanwhile, none is.
    """
    offers = {offer.group: offer for pool in pools for offer in pool.groups if offer.marked}
    if not offers:
        return workload
    staying: Counter[GroupKey] = Counter(
        node.group for node in workload.nodes if node.group in offers and not node.deleting
    )
    more = {key: staying[key] - offer.before for key, offer in offers.items()}
    nodes = []
    for node in sorted(workload.nodes, key=lambda node: node.name):
        if node.group in offers and is_marked(node, offers[node.group]) and more[node.group] > 0:
            more[node.group] -= 1
            nodes.append(replace(node, deleting=True))
        else:
            nodes.append(node)
    return replace(workload, nodes=tuple(nodes))


def is_marked(node: Node, offer: GroupOffer) -> bool:
    """Whether the machine of a node carries a mark of ours."""
    return node.machine is not None and node.machine.name in offer.marked and node.machine.marked and not node.deleting


def _marked(workload: Workload, pools: Sequence[PoolOffer]) -> frozenset[str]:
    offers = {offer.group: offer for pool in pools for offer in pool.groups if offer.marked}
    return frozenset(
        node.name for node in workload.nodes if node.group in offers and is_marked(node, offers[node.group])
    )


# ---------------------------------------------------------------- what pools have to offer


def offer_of(pool: PoolDraft) -> PoolOffer:
    """A pool as its plan leaves it. Room is as a request for nodes finds it (``domain.rebalancing.replicas.requests``)
    once the published bounds have followed: they are for an autoscaler, and no limit of the zone.
    """
    room = pool.free_on_request
    busy = pool.moves or (pool.request is not None and not pool.request.is_of_plan)
    groups = tuple(_offer(pool, draft, room, Reason.of(Rule.POOL_BUSY) if busy else None) for draft in pool.groups)
    return PoolOffer(pool=pool.pool.id, groups=groups, room=room, min=pool.pool.min, orders=pool.pool.state.orders)


def _offer(pool: PoolDraft, draft: Draft, room: int, busy: Reason | None) -> GroupOffer:
    why = _in_its_state(draft)
    may_have = draft.room_for_pods
    keeps = draft.drain_blocked_by
    return GroupOffer(
        group=draft.group.key,
        zone=draft.group.zone or "",
        requested=draft.requested,
        coming=_coming(draft),
        ordered=max(0, draft.requested - draft.group.requested),
        room=min(room, may_have),
        before=draft.group.requested,
        min=pool.least_of(draft),
        template=draft.group.template,
        closed=None if may_have and draft.state is State.PROBING else why or _unknown(draft),
        held=_lasting(draft, why, keeps),
        waits=busy or keeps,
        marked=draft.marked,
        unneeded_for=draft.group.unneeded_time,
        unready_for=draft.group.unready_time,
        threshold=_share(draft.group.utilization_threshold),
        gpu_threshold=_share(draft.group.gpu_utilization_threshold),
        provision_timeout=draft.provision_timeout,
    )


def _share(share: float | None) -> Fraction | None:
    return None if share is None else Fraction(str(share))


def _lasting(draft: Draft, why: Reason | None, keeps: Reason | None) -> Reason | None:
    """What keeps all nodes of a group for as long as it is what it is. All else ends by itself, and clocks run on."""
    frozen = draft.group.frozen_because
    if draft.state is State.FROZEN and (frozen is None or frozen.rule is not Rule.WRITE_REFUSED):
        return why
    return keeps if keeps is not None and keeps.rule in _LASTING else None


def _unknown(draft: Draft) -> Reason | None:
    return None if draft.group.closed_because is None else Reason.of(Rule.CPU_AND_MEMORY_UNKNOWN)


def _in_its_state(draft: Draft) -> Reason | None:
    """Why a group is not healthy; None: it is."""
    if draft.state is State.HEALTHY:
        return None
    why = next((reason for reason in draft.reasons if reason.rule.topic is Topic.STATE), None)
    return why or Reason.of(Rule.IN_STATE, state=draft.state.value)


def _coming(draft: Draft) -> int:
    """Machines that are on their way, replicas that a group may yet get a machine for, and what this plan adds."""
    group = draft.group
    listed = [
        machine
        for machine in group.machines or ()
        if not machine.has_node and not machine.deleting and not machine.preserved
    ]
    # Ordered a moment ago, also in a zone that is tried: what makes machines has not come to it yet. Where it never
    # does, the provision timeout fences the group.
    may_be_made = draft.state in (State.HEALTHY, State.PROBING)
    made = len(listed) if group.launched is None else draft.coming
    unmade = max(0, group.waiting - made) if may_be_made else 0
    return draft.coming + unmade + max(0, draft.requested - group.requested)


def untouched(pool: AnyPool, rule: Rule) -> PoolOffer:
    """A pool that is left alone whole: no node comes, and none goes. Half a list is over in a minute: clocks run on."""
    why = Reason.of(rule)
    held, waits = (None, why) if rule is Rule.FEW_MEMBERS else (why, None)
    groups = tuple(
        GroupOffer(
            group=group.key, zone=group.zone or "", requested=group.requested, closed=why, held=held, waits=waits
        )
        for group in pool.groups
    )
    return PoolOffer(pool=pool.id, groups=groups, orders=pool.state.orders)


def with_coming(pools: Sequence[PoolOffer], workload: Workload) -> tuple[PoolOffer, ...]:
    """The pools, with no more on their way than their nodes that are there leave to come.

    A node registers before its machine says so: counted as both, its room would be there twice. One that is going is
    not among those requested: what comes in its place is on its way.
    """
    there: Counter[GroupKey] = Counter(
        node.group for node in workload.nodes if node.group is not None and not node.deleting
    )
    return tuple(
        replace(
            pool,
            groups=tuple(
                replace(offer, coming=min(offer.coming, max(0, offer.requested - there[offer.group])))
                for offer in pool.groups
            ),
        )
        for pool in pools
    )
