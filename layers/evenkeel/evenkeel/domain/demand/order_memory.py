"""What earlier orders say about the pods that wait: which nodes did not help them, and when the next one is ordered.

The first order for pods of one kind and one expected node is free. If its node has arrived, is Ready and would not
hold one of the pods even if it were empty, the next order waits: 10 min, doubled each time, at most 1 h. Then one node
is ordered, and none while that one is on its way. Where other pools, or other nodes of the same pool, have not been
tried for them, one node is ordered at once, up to three times; if it helps, the rest follow.

    order       node is no use     one node          one node                        one node
    |-- boots --|                  |                 |                               |
    *-----------x - - 10 min - - - *- - - 20 min - - *- - - - - - 40 min - - - - - - *- - - 1 h - - -

A digest of what the pods need and of what they read of the expected node is the key. A change of either is another
key, so it is ordered at once. Names and labels of pods are not part of it: a controller makes its pods anew.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property

from evenkeel.domain.demand.drainability import is_replicated
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.pods import comes_with_node
from evenkeel.domain.demand.requests import PODS, counts, request_of
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.demand.taints import is_going
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
from evenkeel.domain.model.workload import HOSTNAME, Node, NodeSelectorTerm, Pod, Workload

Orders = Mapping[str, PastOrder]

# Rules that may let a pod in once other nodes have come.
CHANGING = frozenset({Rule.SPREAD_SKEW, Rule.WITHOUT_COMPANY})
# Amounts that differ by less are equal: machines of one type differ by some KiB.
_ALIKE = 1.05
_NOTHING: Mapping[GroupKey, PastOrder] = {}


class OrderMemory:
    """The orders that the pools remember, as one check sees them."""

    def __init__(self, workload: Workload, simulation: Simulation, pools: Sequence[PoolOffer]) -> None:
        self._workload, self._world, self._pools, self._now = workload, simulation, pools, simulation.now
        self._fresh = simulation.template_nodes
        self._digests: dict[PodGroup, str] = {}
        self._vain: dict[PodGroup, Mapping[GroupKey, PastOrder]] = {}
        self._until: dict[PodGroup, datetime | None] = {}
        self._latest = _latest(pools)
        self._waiting = self._pods_with_orders()
        self._kept = {pool.pool: self._unexpired(pool) for pool in pools}
        self._on_its_way: Counter[GroupKey] = Counter(simulation.starting.values())
        self._on_its_way.update({offer.group: offer.coming for pool in pools for offer in pool.groups})
        self._helped: set[tuple[PoolId, str]] = set()  # orders of which every group's node helps
        self._untried: set[tuple[PodGroup, GroupKey]] = set()  # where other nodes did not help a kind, and these may
        for pool in pools:
            self._judge_all(pool)

    def _unexpired(self, pool: PoolOffer) -> dict[str, PastOrder]:
        """The orders that count: while their pods wait, and for as long as any pool still orders for the same pods.

        A time in the future counts as now: the clock has been set back.
        """
        return {
            key: replace(order, at=min(order.at, self._now))
            for key, order in pool.orders.items()
            if self._now - self._latest[_of_pods(key)] < ORDERS_KEPT or _of_pods(key) in self._waiting
        }

    def _pods_with_orders(self) -> dict[str, list[Pod]]:
        """The pods that wait and for which nodes were ordered, by the digest of their needs."""
        known = self._latest.keys()
        if not known:
            return {}
        found: dict[str, list[Pod]] = {}
        for kind, pods in self._world.pod_groups.group(self._world.waiting).items():
            if (digest := self.digest(kind)) in known:
                found.setdefault(digest, []).extend(pods)
        return found

    def digest(self, kind: PodGroup) -> str:
        """Return the digest of what a kind needs."""
        if kind not in self._digests:
            self._digests[kind] = pods_digest(kind)
        return self._digests[kind]

    # ---------------------------------------------------------------- whether nodes that have come help

    def _judge_all(self, pool: PoolOffer) -> None:
        for key, order in self._kept[pool.pool].items():
            pods = self._waiting.get(_of_pods(key))
            if pods:
                self._judge(pool.pool, key, order, pods[0])

    def _judge(self, pool: PoolId, key: str, order: PastOrder, pod: Pod) -> None:
        """Note whether the nodes of an order hold such a pod, group by group: zones may differ in what they make."""
        misfits: dict[str, tuple[str, Reason]] = {}
        helps: set[str] = set()
        arrived = sorted(self._arrived(order), key=lambda node: (node.ready, node.created_at, node.name))
        is_any_ready = any(node.ready for node in arrived)
        for node in arrived:
            if is_any_ready and not node.ready:
                continue
            reason = self._misfit_if_empty(pod, node) if node.ready else Reason.of(Rule.NODE_NOT_READY)
            if reason is None:
                helps.add(str(node.group))
            elif reason.rule not in CHANGING or not self._is_awaited(order):
                misfits[str(node.group)] = node.name, reason
        failed_in = {*order.failed_in, *misfits} - helps
        if not misfits.keys() - helps:
            if helps and not failed_in:
                self._helped.add((pool, key))
                if order.failed:
                    del self._mutable(pool)[key]
            elif helps:
                self._learn(pool, key, replace(order, is_open=False), failed_in, helps)
            return
        name, why = misfits[max(misfits.keys() - helps, key=lambda group: misfits[group][0])]
        if order.is_open:
            order = replace(order, is_open=False, failed=order.failed + 1, node=name, why=why)
        self._learn(pool, key, order, failed_in, helps)

    def _learn(self, pool: PoolId, key: str, order: PastOrder, failed_in: set[str], helps: set[str]) -> None:
        helped_in = tuple(sorted({*order.helped_in, *helps} - failed_in))
        after = replace(order, failed_in=tuple(sorted(failed_in)), helped_in=helped_in)
        if after != self._kept[pool][key]:
            self._mutable(pool)[key] = after

    def _mutable(self, pool: PoolId) -> dict[str, PastOrder]:
        self._kept[pool] = dict(self._kept[pool])
        return self._kept[pool]

    def _arrived(self, order: PastOrder) -> Iterable[Node]:
        """The nodes that were created after an order, where it expected them, and that are what they will be."""
        for node in self._workload.nodes:
            if (
                node.group is not None
                and str(node.group) in order.groups
                and node.created_at is not None
                and node.created_at > order.seen
                and node.name in self._world.there
                and not is_going(node, self._now)
            ):
                yield node

    def _misfit_if_empty(self, pod: Pod, node: Node) -> Reason | None:
        """Return the first rule that keeps a pod from a node without the pods that could be elsewhere.

        Those that come with it stay, and those that some controller has made for this one node.
        """
        simulation = self._imagined
        kind = simulation.pod_groups.of(pod)
        pod_groups = [(each, simulation.pod_groups.of(each)) for each in simulation.pods_on[node.name]]
        pods_on = Counter(other for each, other in pod_groups if other.by_node or _is_made_for(each, node))
        fork = simulation.snapshot.fork()
        simulation.snapshot.remove(simulation.snapshot.node_infos[node.name])
        room = simulation.add_node(node, pods_on)
        reason = simulation.snapshot.failing_filter(kind, room)
        simulation.snapshot.revert(fork)
        return reason

    @cached_property
    def _imagined(self) -> Simulation:
        """A world of its own: taking nodes away and back changes the order in which places are sought."""
        return Simulation(self._workload, tuple(self._pools), self._world.policy, self._now)

    def _is_awaited(self, order: PastOrder) -> bool:
        """Whether a node is on its way where an order expects one."""
        return any(self._on_its_way[group] for group in self._on_its_way if str(group) in order.groups)

    # ---------------------------------------------------------------- what follows from it

    def vain(self, kind: PodGroup) -> Mapping[GroupKey, PastOrder]:
        """Return the groups whose expected node did not help pods of a kind, each with the last order there."""
        if kind not in self._vain:
            self._vain[kind] = self._find_vain(kind)
        return self._vain[kind]

    def _find_vain(self, kind: PodGroup) -> Mapping[GroupKey, PastOrder]:
        if not any(order.failed for orders in self._kept.values() for order in orders.values()):
            return _NOTHING
        own = max(self._failed_of(self.digest(kind)), key=lambda order: order.at, default=None)
        found = {}
        for pool in self._pools:
            orders = self._kept[pool.pool]
            failed = [order for order in orders.values() if order.failed]
            # So many kinds of pods had no use of the pool's nodes that the next kind has to wait as well.
            last = max(failed, key=lambda order: order.at) if len(failed) >= MOST_ORDERS else None
            if own is None and last is None:
                continue
            for offer in pool.groups:
                if offer.group not in self._fresh:
                    continue
                key, group = self.key(kind, offer.group), str(offer.group)
                order = orders.get(key)
                if order is not None and group in order.failed_in:
                    found[offer.group] = order
                elif (pool.pool, key) in self._helped or (order is not None and group in order.helped_in):
                    continue
                elif own is not None:
                    found[offer.group] = own
                    self._untried.add((kind, offer.group))
                elif last is not None and not self._fits_some_node(kind, offer.group):
                    found[offer.group] = last
        return found

    def _fits_some_node(self, kind: PodGroup, group: GroupKey, younger_than: timedelta = timedelta.max) -> bool:
        """Return whether a Ready node of a group, of any age unless given, would hold a kind if it were empty."""
        pod = self._pods_by_digest.get(self.digest(kind))
        nodes = (
            node
            for node in self._workload.nodes
            if node.group == group
            and node.ready
            and node.name in self._world.there
            and not is_going(node, self._now)
            and node.created_at is not None
            and self._now - node.created_at < younger_than
        )
        return pod is not None and any(self._misfit_if_empty(pod, node) is None for node in nodes)

    @cached_property
    def _pods_by_digest(self) -> dict[str, Pod]:
        """A pod of each kind that waits."""
        return {self.digest(kind): pods[0] for kind, pods in self._world.pod_groups.group(self._world.waiting).items()}

    def key(self, kind: PodGroup, group: GroupKey) -> str:
        """Return the key of an order for a kind in a group."""
        return f"{self.digest(kind)}/{node_digest(kind, self._fresh[group])}"

    def until(self, kind: PodGroup) -> datetime | None:
        """Return when the next node may be ordered for a kind that earlier nodes did not help; None: one is coming.

        All orders for the kind count, of whatever pool: it does not go from one pool to the next without effect.
        """
        if kind not in self._until:
            self._until[kind] = self._find_until(kind)
        return self._until[kind]

    def _find_until(self, kind: PodGroup) -> datetime | None:
        mine = self._orders_of(self.digest(kind))
        if any(order.is_open and self._is_awaited(order) for order in mine):
            return None
        # An open order of which nothing is on its way, and nothing has come, was lost.
        known = [order for order in mine or self.vain(kind).values() if order.failed and not order.is_open]
        if not known:
            return self._now
        counted = sum(order.counted for order in known) if mine else max(order.counted for order in known)
        if counted > 1 and any(self._fits_some_node(kind, group, HELP_COUNTS) for group in self.vain(kind)):
            counted = 1
        last = max(known, key=lambda order: order.at)
        return last.at + max(last.wait, wait_after(counted))

    def _orders_of(self, digest: str) -> list[PastOrder]:
        return [order for orders in self._kept.values() for key, order in orders.items() if _of_pods(key) == digest]

    def _failed_of(self, digest: str) -> list[PastOrder]:
        return [order for order in self._orders_of(digest) if order.failed]

    def due(self, kind: PodGroup) -> list[GroupKey]:
        """Return the groups in which a node may be ordered again for a kind: untried ones, then that tried first."""
        vain = self.vain(kind)
        until = self.until(kind) if vain else None
        if until is None:
            return []
        retrying = {
            pool
            for pool, orders in self._kept.items()
            if any(order.failed and order.is_open and self._is_awaited(order) for order in orders.values())
        }
        homes = {offer.group: pool.pool for pool in self._pools for offer in pool.groups}
        untried = [group for group in vain if (kind, group) in self._untried]
        failed = sum(order.failed for order in self._orders_of(self.digest(kind)))
        at_once = untried if failed < FREE_ORDERS else ()
        open_now = vain if until <= self._now else at_once
        groups = sorted(group for group in open_now if homes[group] not in retrying)
        # Each retry begins with another group: one may be what it is for good, and the others fixed.
        turn = {group: (place - vain[group].failed) % len(groups) for place, group in enumerate(groups)}
        return sorted(groups, key=lambda group: (group not in untried, vain[group].at, turn[group]))

    def why_not(self, kind: PodGroup, group: GroupKey) -> Reason | None:
        """Return why no node is ordered in a group for a kind that would fit one; None: it may be."""
        order = self.vain(kind).get(group)
        if order is None:
            return None
        until = self.until(kind) or self._now + self._world.policy.startup
        return Reason.of(Rule.ORDER_DID_NOT_HELP, node=order.node, why=order.why, until=until)

    def ineffective(self, pool: PoolId) -> tuple[IneffectiveOrder, ...]:
        """Return the orders of a pool whose nodes have arrived, and whose pods wait all the same."""
        return tuple(
            IneffectiveOrder(
                pods=tuple(str(pod) for pod in self._waiting[_of_pods(key)]),
                since=order.at,
                node=order.node,
                why=order.why,
                groups=order.groups,
            )
            for key, order in sorted(self._kept[pool].items())
            if order.why is not None and self._waiting.get(_of_pods(key))
        )

    # ---------------------------------------------------------------- what is remembered

    def orders(self, pool: PoolOffer) -> Orders:
        """Return what a pool remembers if it orders nothing. What has expired stays until something else changes."""
        kept = self._kept[pool.pool]
        return pool.orders if kept == self._unexpired(pool) else kept

    def with_ordered(self, pool: PoolId, ordered: Mapping[PodGroup, Collection[GroupKey]]) -> Orders:
        """Return what a pool remembers once nodes are ordered, for each kind in these groups."""
        orders = dict(self._kept[pool])
        pod_groups = sorted(ordered.items(), key=lambda item: item[0].name)
        for kind, groups in pod_groups if orders else pod_groups[:MOST_ORDERS]:
            for group in sorted(groups):
                key = self.key(kind, group)
                orders[key] = self._ordered(orders.get(key), group, is_new=(pool, key) in self._helped)
        by_age = sorted(orders.items(), key=lambda item: (item[1].failed > 0, item[1].at, item[0]))
        return dict(sorted(by_age[-MOST_ORDERS:]))

    def _ordered(self, before: PastOrder | None, group: GroupKey, *, is_new: bool) -> PastOrder:
        """An order that goes on keeps the time by which it tells its nodes from older ones."""
        if before is None or is_new:
            return PastOrder(at=self._now, seen=self._seen, groups=(str(group),))
        groups = tuple(sorted({*before.groups, str(group)}))
        if before.is_open:
            return replace(before, at=self._now, groups=groups)
        return replace(before, at=self._now, seen=self._seen, groups=groups, is_open=True)

    @cached_property
    def _seen(self) -> datetime:
        """The latest time in any object that was read, as the API server sets them."""
        nodes = [node.created_at for node in self._workload.nodes if node.created_at is not None]
        return max([*nodes, *(pod.created_at for pod in self._workload.pods)], default=self._now)

    @cached_property
    def retry_at(self) -> datetime | None:
        """When time alone lets a node be ordered again."""
        pod_groups = [kind for kind in self._vain if self._vain[kind]]
        moments = [until for kind in pod_groups if (until := self.until(kind)) is not None and until > self._now]
        return min(moments, default=None)


def _latest(pools: Iterable[PoolOffer]) -> dict[str, datetime]:
    """Return when nodes were last ordered for which pods, in whatever pool."""
    found: dict[str, datetime] = {}
    for pool in pools:
        for key, order in pool.orders.items():
            pods = _of_pods(key)
            found[pods] = max(order.at, found.get(pods, order.at))
    return found


def _of_pods(key: str) -> str:
    return key.partition("/")[0]


# ---------------------------------------------------------------- digests


def pods_digest(kind: PodGroup) -> str:
    """Return a digest of what pods need of a node, equal for the pods that a controller makes in their place."""
    needs = kind.needs
    terms = (*needs.affinity, *needs.anti_affinity)
    selectors = [*(each.selector for each in needs.spread), *(each.selector for each in terms)]
    itself = [matches(selector, kind.labels) for selector in selectors]
    volumes = kind.volumes
    return _digest(
        {name: count for name, count in kind.request.items() if count},
        sorted(map(repr, kind.ports)),
        needs.node_selector,
        needs.node_terms,
        needs.tolerations,
        needs.spread,
        terms,
        itself,
        kind.namespace if itself else "",
        sorted(repr(_plain((reach.terms, reach.labels))) for reach in volumes.reaches),
        volumes.drivers,
        len(volumes.exclusive),
    )


def node_digest(kind: PodGroup, template_nodes: TemplateNode) -> str:
    """Return a digest of what pods of a kind read of an expected node. All else may differ from node to node."""
    node = template_nodes.node
    whole, taken = counts(node.allocatable), Counter[str]()
    for pod in template_nodes.pods:
        taken.update(request_of(pod))
        taken[PODS] += 1
    amounts = {
        name: _rounded(whole.get(name, 0) - taken[name])
        for name in (PODS, *(name for name, asked in kind.request.items() if asked))
    }
    limits = {driver: node.attach_limits.get(driver) for driver, _ in kind.volumes.drivers}
    return _digest({key: node.labels.get(key) for key in _keys_read(kind)}, amounts, limits)


def _keys_read(kind: PodGroup) -> set[str]:
    """The labels of a node that decide where a kind may be. Each node has a hostname of its own."""
    needs, reaches = kind.needs, kind.volumes.reaches
    keys = {*needs.node_selector, *_keys_of(needs.node_terms), *(each.key for each in needs.spread)}
    keys |= {each.key for each in (*needs.affinity, *needs.anti_affinity)}
    for reach in reaches:
        keys |= {*_keys_of(reach.terms), *(key for key, _ in reach.labels)}
    return keys - {HOSTNAME}


def _keys_of(terms: tuple[NodeSelectorTerm, ...] | None) -> set[str]:
    return {each.key for term in terms or () for each in term.expressions}


def _rounded(amount: int) -> int:
    return round(math.log(amount) / math.log(_ALIKE)) if amount > 0 else -1


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(_plain(parts)).encode()).hexdigest()[:12]


def _plain(value: object) -> object:
    """The value with all that has no order of its own sorted, so that each process has the same digest."""
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(_plain(getattr(value, each.name)) for each in fields(value))
    if isinstance(value, Mapping):
        return tuple((key, _plain(value[key])) for key in sorted(value))
    if isinstance(value, set | frozenset):
        return tuple(sorted(map(repr, map(_plain, value))))
    return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value


def _is_made_for(pod: Pod, node: Node) -> bool:
    """Return whether a pod exists only because its node does: a DaemonSet's, or one of a controller per node.

    A controller that is not known to replicate pods may do so all the same. Pods for which it waited are older than
    the node.
    """
    if comes_with_node(pod):
        return True
    is_younger = node.created_at is not None and pod.created_at >= node.created_at
    return is_younger and pod.owner is not None and not is_replicated(pod)
