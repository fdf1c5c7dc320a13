"""Past orders of nodes for pending pods: which nodes did not help the pods, and when the next order is allowed.

1. The first order of a kind of node for pods with equal needs is allowed at once.
2. An order did not help if its node would reject the pods even if the node were empty. A node that is not Ready in time
   did not help either.
3. After an order that did not help, the next order waits 10 min. The wait doubles each time, up to 1 h. A repeated
   order is for one node. While this node is upcoming, no other node is ordered for these pods.
4. If a pool or a kind of node was not tried for these pods yet, one such node is ordered without a wait, up to three
   times. If the node helps, more such nodes are ordered.

    order       node is no use     one node          one node                        one node
    |-- boots --|                  |                 |                               |
    *-----------x - - 10 min - - - *- - - 20 min - - *- - - - - - 40 min - - - - - - *- - - 1 h - - -

The key of an order has two digests: one of the pods' needs, and one of those parts of the expected node to which the
needs refer. If the needs or these parts change, the key changes. The digests leave out names and labels of pods,
because a controller's next pods have other names and labels.
"""

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from functools import cache, cached_property

from evenkeel.domain.demand.drainability import is_replicated
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.pods import comes_with_node
from evenkeel.domain.demand.requests import PODS, counts, request_of
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.demand.taints import is_being_deleted
from evenkeel.domain.demand.template_node import TemplateNode
from evenkeel.domain.model.demand import PoolOffer
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.past_orders import (
    FREE_ORDERS,
    HELP_COUNTS,
    MOST_ORDERS,
    ORDERS_KEPT,
    IneffectiveOrder,
    PastOrder,
    wait_after,
)
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import HOSTNAME, Node, NodeSelectorTerm, Pod

Orders = Mapping[str, PastOrder]

# Rules of filters that may accept a pod once other nodes exist.
CHANGING = frozenset({Rule.SPREAD_SKEW, Rule.WITHOUT_COMPANY})
# Machines of one type differ by some KiB. Amounts that differ by less than this factor count as equal.
_ALIKE = 1.05


class OrderMemory:
    """The stored orders of all pools, updated with the nodes that this check found."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation, self._workload, self._now = simulation, simulation.workload, simulation.now
        self._pools = pools = simulation.pools
        self._digest = cache(pods_digest)
        self._retry_time = cache(self._find_retry_time)
        self._ineffective: dict[PodGroup, Mapping[GroupKey, PastOrder]] = {}
        self._latest: dict[str, datetime] = {}  # digest of pods -> time of the last order for these pods in any pool
        for key, order in ((key, order) for pool in pools for key, order in pool.orders.items()):
            self._latest[_of_pods(key)] = max(order.at, self._latest.get(_of_pods(key), order.at))
        self._pending = self._pending_by_digest if self._latest else {}
        self._upcoming: Counter[GroupKey] = Counter(simulation.starting.values())
        self._upcoming.update({offer.group: offer.coming for pool in pools for offer in pool.groups})
        # Pool and key of each order whose nodes help the pods, in every group that has such nodes.
        self._helped: set[tuple[PoolId, str]] = set()
        self._untried: set[tuple[PodGroup, GroupKey]] = set()  # pod group, and node group that was not tried for it
        self._orders = {pool.pool: self._updated(pool) for pool in pools}

    @cached_property
    def _pending_by_digest(self) -> dict[str, list[Pod]]:
        pending: dict[str, list[Pod]] = {}
        for pod_group, pods in self._simulation.pending_groups.items():
            pending.setdefault(self._digest(pod_group), []).extend(pods)
        return pending

    # ---------------------------------------------------------------- do the nodes that have arrived help?

    def _unexpired(self, pool: PoolOffer) -> dict[str, PastOrder]:
        """Return the orders of a pool that have not expired.

        An order expires once its pods are not pending and no pool has ordered nodes for them within ``ORDERS_KEPT``.

        If a clock was set back, an order's time may be in the future. Such a time counts as now.
        """
        return {
            key: replace(order, at=min(order.at, self._now))
            for key, order in pool.orders.items()
            if self._now - self._latest[_of_pods(key)] < ORDERS_KEPT or _of_pods(key) in self._pending
        }

    def _updated(self, pool: PoolOffer) -> dict[str, PastOrder]:
        orders = {}
        for key, order in self._unexpired(pool).items():
            pods = self._pending.get(_of_pods(key))
            updated = self._evaluated(pool.pool, key, order, pods[0]) if pods else order
            if updated is not None:
                orders[key] = updated
        return orders

    def _evaluated(self, pool: PoolId, key: str, order: PastOrder, pod: Pod) -> PastOrder | None:
        """Return an order, updated with the results of its nodes; None: the order had failed, but its nodes help now.

        Nodes may differ between zones, so each group is evaluated separately.
        """
        rejecting: dict[str, tuple[str, Reason]] = {}
        helping: set[str] = set()
        arrived = sorted(self._arrived(order), key=lambda node: (node.ready, node.created_at, node.name))
        is_any_ready = any(node.ready for node in arrived)
        for node in arrived:
            if is_any_ready and not node.ready:
                continue
            reason = self._rejects_if_empty(node, pod) if node.ready else Reason.of(Rule.NODE_NOT_READY)
            if reason is None:
                helping.add(str(node.group))
            elif reason.rule not in CHANGING or not self._is_upcoming(order):
                rejecting[str(node.group)] = node.name, reason
        failing = rejecting.keys() - helping
        failed_in = {*order.failed_in, *rejecting} - helping
        if helping and not failed_in:
            self._helped.add((pool, key))
            return None if order.failed else order
        if not helping and not failing:
            return order
        if order.is_open and failing:
            node_name, reason = max(rejecting[group] for group in failing)
            order = replace(order, failed=order.failed + 1, node=node_name, why=reason)
        helped_in = {*order.helped_in, *helping} - failed_in
        return replace(order, is_open=False, failed_in=tuple(sorted(failed_in)), helped_in=tuple(sorted(helped_in)))

    def _arrived(self, order: PastOrder) -> Iterator[Node]:
        """Yield the nodes of an order: the started nodes of its groups that were created after the order."""
        for group in order.groups:
            for node in self._started_nodes[group]:
                if node.created_at is not None and node.created_at > order.seen:
                    yield node

    @cached_property
    def _started_nodes(self) -> Mapping[str, list[Node]]:  # by node group
        started = defaultdict[str, list[Node]](list)
        for node in self._workload.nodes:
            is_started = node.group is not None and node.name in self._simulation.started
            if is_started and not is_being_deleted(node, self._now):
                started[str(node.group)].append(node)
        return started

    def _rejects_if_empty(self, node: Node, pod: Pod) -> Reason | None:
        """Return why a node would reject a pod even if all movable pods had left it; None: it would accept the pod.

        Three kinds of pods cannot move: pods that come with the node, pods that select this node, and pods that a
        controller created for it.
        """
        simulation = self._copy
        snapshot, pod_groups = simulation.snapshot, simulation.pod_groups
        grouped = [(other, pod_groups.of(other)) for other in simulation.pods_on[node.name]]
        staying = Counter(group for other, group in grouped if group.by_node or _is_made_for(other, node))
        fork = snapshot.fork()
        snapshot.remove_node(snapshot.node_infos[node.name])
        reason = snapshot.failing_filter(pod_groups.of(pod), simulation.add_node(node, staying))
        snapshot.revert(fork)
        return reason

    @cached_property
    def _copy(self) -> Simulation:
        """Return a second simulation for trials.

        A trial removes a node and adds it again, which changes the order in which nodes are filled.
        """
        return Simulation(self._workload, self._pools, self._simulation.policy, self._now)

    def _is_upcoming(self, order: PastOrder) -> bool:
        return any(count and str(group) in order.groups for group, count in self._upcoming.items())

    # ---------------------------------------------------------------- the next order

    def ineffective_groups(self, pod_group: PodGroup) -> Mapping[GroupKey, PastOrder]:
        """Return the node groups in which an order for these pods must wait.

        Each group is returned with the failed order that is the reason.
        """
        if pod_group not in self._ineffective:
            self._ineffective[pod_group] = self._find_ineffective(pod_group)
        return self._ineffective[pod_group]

    def _find_ineffective(self, pod_group: PodGroup) -> Mapping[GroupKey, PastOrder]:
        if not self.has_failed:
            return {}
        of_pods = (order for order in self._orders_of(self._digest(pod_group)) if order.failed)
        own = max(of_pods, key=lambda order: order.at, default=None)
        groups = {}
        for pool in self._pools:
            of_pool = self._failed[pool.pool]
            # Once ``MOST_ORDERS`` orders of a pool have failed, the pool's nodes count as ineffective for all other
            # pods, too.
            last = max(of_pool, key=lambda order: order.at) if len(of_pool) >= MOST_ORDERS else None
            if own is None and last is None:
                continue
            for group in (offer.group for offer in pool.groups if offer.group in self._simulation.template_nodes):
                key = self._key(pod_group, group)
                order = self._orders[pool.pool].get(key)
                if order is not None and str(group) in order.failed_in:
                    groups[group] = order
                elif (pool.pool, key) in self._helped or (order is not None and str(group) in order.helped_in):
                    continue
                elif own is not None:
                    groups[group] = own
                    self._untried.add((pod_group, group))
                elif last is not None and not self._fits_a_node(pod_group, group):
                    groups[group] = last
        return groups

    @cached_property
    def _failed(self) -> dict[PoolId, list[PastOrder]]:
        return {pool: [order for order in orders.values() if order.failed] for pool, orders in self._orders.items()}

    @cached_property
    def has_failed(self) -> bool:
        """Return True if any order of any pool did not help its pods."""
        return any(self._failed.values())

    def _fits_a_node(self, pod_group: PodGroup, group: GroupKey, younger_than: timedelta = timedelta.max) -> bool:
        """Return True if the pods would fit a Ready node of a group if the node were empty.

        Only nodes that are younger than ``younger_than`` count.
        """
        pods = self._pending_by_digest.get(self._digest(pod_group))
        nodes = (
            node
            for node in self._started_nodes[str(group)]
            if node.ready and node.created_at is not None and self._now - node.created_at < younger_than
        )
        return pods is not None and any(self._rejects_if_empty(node, pods[0]) is None for node in nodes)

    def _key(self, pod_group: PodGroup, group: GroupKey) -> str:
        return f"{self._digest(pod_group)}/{node_digest(pod_group, self._simulation.template_nodes[group])}"

    def _find_retry_time(self, pod_group: PodGroup) -> datetime | None:
        """Return when the next node may be ordered for these pods; None: a node ordered for them is still upcoming.

        The failed orders of all pools count. Otherwise Evenkeel would order ineffective nodes in one pool after
        another.
        """
        own = self._orders_of(self._digest(pod_group))
        if any(order.is_open and self._is_upcoming(order) for order in own):
            return None
        ineffective = self.ineffective_groups(pod_group)
        # An order that is still open without an upcoming node was lost, and does not count.
        known = [order for order in own or ineffective.values() if order.failed and not order.is_open]
        if not known:
            return self._now
        failed = sum(order.counted for order in known) if own else max(order.counted for order in known)
        if failed > 1 and any(self._fits_a_node(pod_group, group, HELP_COUNTS) for group in ineffective):
            failed = 1
        last = max(known, key=lambda order: order.at)
        return last.at + max(last.wait, wait_after(failed))

    def _orders_of(self, digest: str) -> list[PastOrder]:
        return [order for orders in self._orders.values() for key, order in orders.items() if _of_pods(key) == digest]

    def usable_nodes(self, pod_group: PodGroup, node_infos: Sequence[NodeInfo]) -> Sequence[NodeInfo]:
        """Return the nodes on which a pod group may be placed.

        In the node groups of ``ineffective_groups``, only started nodes are usable.
        """
        if not self.has_failed or not (groups := self.ineffective_groups(pod_group)):
            return node_infos
        started = self._simulation.started
        return [info for info in node_infos if info.name in started or info.node.group not in groups]

    def due(self, pod_group: PodGroup) -> list[GroupKey]:
        """Return the node groups in which a node may be ordered now, although earlier nodes did not help the pods.

        Groups that were not tried yet are first, then the groups whose last failed order is the oldest.
        """
        ineffective = self.ineffective_groups(pod_group)
        until = self._retry_time(pod_group) if ineffective else None
        if until is None:
            return []
        untried = [group for group in ineffective if (pod_group, group) in self._untried]
        failed = sum(order.failed for order in self._orders_of(self._digest(pod_group)))
        at_once = untried if failed < FREE_ORDERS else ()
        allowed = ineffective if until <= self._now else at_once
        groups = sorted(
            offer.group
            for pool in self._pools
            if not any(order.is_open and self._is_upcoming(order) for order in self._failed[pool.pool])
            for offer in pool.groups
            if offer.group in allowed
        )
        # Each retry starts with another group, because one group may remain broken after the others are fixed.
        turn = {group: (place - ineffective[group].failed) % len(groups) for place, group in enumerate(groups)}
        return sorted(groups, key=lambda group: (group not in untried, ineffective[group].at, turn[group]))

    def no_order_because(self, pod_group: PodGroup, group: GroupKey) -> Reason | None:
        """Return why no node is ordered in a group for pods that fit a new node; None: a node may be ordered."""
        order = self.ineffective_groups(pod_group).get(group)
        if order is None:
            return None
        until = self._retry_time(pod_group) or self._now + self._simulation.policy.startup
        return Reason.of(Rule.ORDER_DID_NOT_HELP, node=order.node, why=order.why, until=until)

    def ineffective(self, pool: PoolId) -> tuple[IneffectiveOrder, ...]:
        """Return the orders of a pool whose nodes did not help, and whose pods are still pending."""
        return tuple(
            IneffectiveOrder(
                pods=tuple(map(str, self._pending[_of_pods(key)])),
                since=order.at,
                node=order.node,
                why=order.why,
                groups=order.groups,
            )
            for key, order in sorted(self._orders[pool].items())
            if order.why is not None and self._pending.get(_of_pods(key))
        )

    # ---------------------------------------------------------------- orders to store

    def orders(self, pool: PoolOffer) -> Orders:
        """Return the orders to store if no node is ordered in the pool.

        Expired orders remain stored until another change of the orders is written.
        """
        orders = self._orders[pool.pool]
        return pool.orders if orders == self._unexpired(pool) else orders

    def with_ordered(self, pool: PoolId, ordered: Mapping[PodGroup, Collection[GroupKey]]) -> Orders:
        """Return the orders to store once nodes are ordered in these groups."""
        orders = dict(self._orders[pool])
        by_name = sorted(ordered.items(), key=lambda item: item[0].name)
        for pod_group, groups in by_name if orders else by_name[:MOST_ORDERS]:
            for group in sorted(groups):
                key = self._key(pod_group, group)
                before = None if (pool, key) in self._helped else orders.get(key)
                orders[key] = self._ordered(before, group)
        by_age = sorted(orders.items(), key=lambda item: (item[1].failed > 0, item[1].at, item[0]))
        return dict(sorted(by_age[-MOST_ORDERS:]))

    def _ordered(self, before: PastOrder | None, group: GroupKey) -> PastOrder:
        if before is None:
            return PastOrder(at=self._now, seen=self._seen, groups=(str(group),))
        # While an order is open, ``seen`` does not change, because all nodes created after it belong to the order.
        seen = before.seen if before.is_open else self._seen
        groups = tuple(sorted({*before.groups, str(group)}))
        return replace(before, at=self._now, seen=seen, groups=groups, is_open=True)

    @cached_property
    def _seen(self) -> datetime:
        """Return the latest creation time of any node or pod, which the API server has set."""
        nodes = (node.created_at for node in self._workload.nodes if node.created_at is not None)
        return max([*nodes, *(pod.created_at for pod in self._workload.pods)], default=self._now)

    @cached_property
    def retry_at(self) -> datetime | None:
        """Return the earliest time at which a waiting order is allowed; None: no order waits for a known time."""
        times = (self._retry_time(pod_group) for pod_group, groups in self._ineffective.items() if groups)
        return min((time for time in times if time is not None and time > self._now), default=None)


def _of_pods(key: str) -> str:
    return key.partition("/")[0]


def _is_made_for(pod: Pod, node: Node) -> bool:
    """Return True if a pod exists only because of its node.

    Either the pod comes with the node, or a controller created the pod for this node.

    A controller of unknown kind may also create pods for any node. So its pod counts only if the pod is younger than
    the node.
    """
    if comes_with_node(pod):
        return True
    is_younger = node.created_at is not None and pod.created_at >= node.created_at
    return is_younger and pod.owner is not None and not is_replicated(pod)


# ---------------------------------------------------------------- digests


def pods_digest(pod_group: PodGroup) -> str:
    """Return a digest of the pods' needs. New pods of the same controller have the same digest."""
    needs, volumes = pod_group.needs, pod_group.volumes
    terms = (*needs.affinity, *needs.anti_affinity)
    selectors = [*(constraint.selector for constraint in needs.spread), *(term.selector for term in terms)]
    matches_itself = [matches(selector, pod_group.labels) for selector in selectors]
    return _hash(
        dict(pod_group.request),
        sorted(map(repr, pod_group.ports)),
        needs.node_selector,
        needs.node_terms,
        needs.tolerations,
        needs.spread,
        terms,
        matches_itself,
        pod_group.namespace if selectors else "",
        sorted(repr(_plain((reach.terms, reach.labels))) for reach in volumes.reaches),
        tuple(sorted(volumes.number_by_driver.items())),
        len(volumes.exclusive),
    )


def node_digest(pod_group: PodGroup, template: TemplateNode) -> str:
    """Return a digest of those parts of an expected node to which the pods' needs refer."""
    node = template.node
    free = Counter(counts(node.allocatable))
    for pod in template.pods:
        free.subtract({**request_of(pod), PODS: 1})
    amounts = {name: _rounded(free[name]) for name in (PODS, *pod_group.request)}
    limits = {driver: node.attach_limits.get(driver) for driver in pod_group.volumes.number_by_driver}
    return _hash({key: node.labels.get(key) for key in _keys_read(pod_group)}, amounts, limits)


def _keys_read(pod_group: PodGroup) -> set[str]:
    """Return the keys of the node labels that decide whether the pods fit.

    The hostname is left out, because it is unique for each node.
    """
    needs, reaches = pod_group.needs, pod_group.volumes.reaches
    keys = {*needs.node_selector, *_keys_of(needs.node_terms), *(constraint.key for constraint in needs.spread)}
    keys |= {term.key for term in (*needs.affinity, *needs.anti_affinity)}
    for reach in reaches:
        keys |= {*_keys_of(reach.terms), *(key for key, _ in reach.labels)}
    return keys - {HOSTNAME}


def _keys_of(terms: Iterable[NodeSelectorTerm] | None) -> set[str]:
    return {requirement.key for term in terms or () for requirement in term.expressions}


def _rounded(amount: int) -> int:
    return round(math.log(amount) / math.log(_ALIKE)) if amount > 0 else -1


def _hash(*parts: object) -> str:
    return hashlib.sha256(repr(_plain(parts)).encode()).hexdigest()[:12]


def _plain(value: object) -> object:
    """Return the value with unordered parts sorted, so that each process computes the same digest."""
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(_plain(getattr(value, part.name)) for part in fields(value))
    if isinstance(value, Mapping):
        return tuple((key, _plain(value[key])) for key in sorted(value))
    if isinstance(value, set | frozenset):
        return tuple(sorted(map(repr, map(_plain, value))))
    return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value
