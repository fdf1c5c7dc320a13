"""Demand's advice for a plan: nodes for pending pods, and unneeded nodes, by pool.

If the record's ``demand`` allows Evenkeel to order or remove nodes, ``domain.demand.orders`` turns the advice into
requests.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from evenkeel.domain.demand.offers import marked_nodes, with_coming, with_deleting
from evenkeel.domain.demand.pods import old_enough_at
from evenkeel.domain.demand.scale_down import scale_down
from evenkeel.domain.demand.scale_up import scale_up
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.demand import (
    Advice,
    Demand,
    DemandPolicy,
    NodeAdvice,
    PoolAdvice,
    PoolOffer,
    ScaleDownState,
    Unneeded,
)
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Workload

# The time to the next check while pods wait for an upcoming node.
WHILE_PODS_WAIT = timedelta(seconds=15)
# Cluster-autoscaler renews its lease every 2 s and its status every loop. If it has done neither for this time, it does
# not run any more.
AT_WORK = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class Advised:
    """The advice for the cluster, and for each of its pools."""

    cluster: Advice
    pools: Mapping[PoolId, PoolAdvice]
    idle: Unneeded | None = None  # None: the check did not search for unneeded nodes
    check_at: datetime | None = None  # when demand needs the next check; None: at no certain time


def advise(
    observation: Observation,
    pools: Sequence[PoolOffer],
    stage: DemandStage,
    state: ScaleDownState,
    now: datetime,
    order: tuple[str, ...] = (),
) -> Advised:
    """Return the advice of one check, or the reason why there can be no advice.

    ``state`` has unneeded clocks, which are used only if ``stage`` allows removals. The pools in ``order`` (names or
    ids) get new nodes first.
    """
    workload, policy = with_deleting(observation.workload or Workload(), pools), DemandPolicy(order=order)
    beside_another = _is_beside_another(workload, stage, now)
    reason = unread(observation, [pool.pool for pool in pools])
    if reason is None and beside_another:
        reason = Reason.of(Rule.TWO_AUTOSCALERS, at=workload.autoscaler_at)
    if reason is not None:
        return Advised(cluster=Advice(orders=stage.orders, unread=reason, beside_another=beside_another), pools={})
    offers = with_coming(pools if stage.orders else [replace(pool, orders={}) for pool in pools], workload)
    simulation, idle, nodes = Simulation(workload, offers, policy, now), None, {}
    start = simulation.snapshot.fork()
    result = scale_up(simulation)
    if stage.judges_nodes and workload.whole:
        leaving = marked_nodes(workload, offers) if stage.removes else state.leaving
        simulation.snapshot.revert(start)
        idle = scale_down(simulation, replace(state, leaving=leaving))
        nodes = _nodes(workload, offers, idle, clocks=stage.removes)
    advice = Advice(
        orders=stage.orders,
        unmet=result.unmet,
        not_counted=result.not_counted,
        fit_already=len(result.fits_already),
        check_again=result.check_again,
        beside_another=beside_another,
    )
    # If all pending pods are too young, ``result`` has no pools.
    asked = result.pools if stage.orders else [replace(pool, blocked=()) for pool in result.pools]
    return Advised(
        cluster=advice,
        pools={
            pool.pool: PoolAdvice(asked=pool, nodes=tuple(nodes.get(pool.pool, ())), not_counted=result.not_counted)
            for pool in asked
        },
        idle=idle,
        check_at=_check_at(result, idle if stage.removes else None, offers, now) if stage.orders else None,
    )


def _check_at(result: Demand, idle: Unneeded | None, offers: Iterable[PoolOffer], now: datetime) -> datetime | None:
    """Return when demand needs the next check. ``idle``: None if no node may be removed."""
    waits = now + WHILE_PODS_WAIT if result.fits_already and _has_upcoming(offers) else None
    removal = idle.check_at + timedelta(seconds=1) if idle and idle.check_at else None
    return min(filter(None, (result.check_again or waits, result.retry_at, removal)), default=None)


def expects_advice(observation: Observation, pools: Iterable[PoolId], stage: DemandStage, now: datetime) -> bool:
    """Return False if ``advise`` probably has no advice for any of these pools. The plans do not depend on this guess.

    There is no advice if pods cannot be assigned to pools, if another autoscaler orders nodes, or if all pending pods
    are too young.
    """
    workload = observation.workload
    if workload is None or not pods_decide(observation, pools, stage, now):
        return False
    pending = [pod for pod in workload.pods if not pod.node and pod.unscheduled is not None]
    old_enough = old_enough_at(pending, DemandPolicy(), now)
    return old_enough is None or old_enough <= now


def pods_decide(observation: Observation, pools: Iterable[PoolId], stage: DemandStage, now: datetime) -> bool:
    """Return True if the check has read pods, can assign them to pools, and found no autoscaler at work."""
    workload = observation.workload
    return workload is not None and unread(observation, pools) is None and not _is_beside_another(workload, stage, now)


def _is_beside_another(workload: Workload, stage: DemandStage, now: datetime) -> bool | None:
    """Return True if another autoscaler orders nodes; None: the check did not look for one."""
    return is_at_work(workload.autoscaler_at, now) if stage.orders and workload.autoscaler_sought else None


def is_at_work(autoscaler_at: datetime | None, now: datetime) -> bool:
    """Return True if a cluster-autoscaler counts as running; ``autoscaler_at`` is when it was last active."""
    return autoscaler_at is not None and abs(now - autoscaler_at) < AT_WORK


def _has_upcoming(offers: Iterable[PoolOffer]) -> bool:
    """Return True if a node that was ordered before this plan is upcoming.

    Such a node registers, or fails, within its provision timeout. Orders of this plan do not count. If they are
    written, a second check follows anyway. If they cannot be written, their nodes are not upcoming.
    """
    return any(offer.coming > offer.ordered for pool in offers for offer in pool.groups)


def unread(observation: Observation, pools: Iterable[PoolId]) -> Reason | None:
    """Return why pods and nodes could not be read, or cannot be assigned to pools; None: there is no such reason."""
    if observation.workload_unread is not None:
        return observation.workload_unread
    clusters: dict[str, set[str]] = {}
    for id in pools:
        # If a flavour has one workload cluster for each namespace, the namespace identifies the cluster.
        clusters.setdefault(id.flavour, set()).add("/".join(filter(None, (id.namespace, id.cluster))))
    mixed = [names for _, names in sorted(clusters.items()) if len(names) > 1]
    return Reason.of(Rule.WORKLOADS_MIXED, clusters=tuple(sorted(mixed[0]))) if mixed else None


def _nodes(
    workload: Workload, offers: Sequence[PoolOffer], idle: Unneeded, *, clocks: bool
) -> dict[PoolId, list[NodeAdvice]]:
    """Return the advice for each node, by pool. If ``clocks`` is False, leave out clocks and reasons to wait."""
    pool_of = {offer.group: pool.pool for pool in offers for offer in pool.groups}
    hanging = {drain.node: drain for drain in idle.hanging}
    advice: dict[PoolId, list[NodeAdvice]] = {}
    for node in sorted(workload.nodes, key=lambda node: node.name):
        name, group = node.name, node.group
        if group in pool_of and (name in idle.clocks or name in idle.needed):
            node_advice = NodeAdvice(
                node=name,
                group=group,
                needed=idle.needed.get(name),
                since=idle.clocks.get(name) if clocks else None,
                waits=idle.waits.get(name) if clocks else None,
                hangs=hanging.get(name),
            )
            advice.setdefault(pool_of[group], []).append(node_advice)
    return advice
