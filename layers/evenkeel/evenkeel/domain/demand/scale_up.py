"""Scale-up: the nodes to order for pending pods in each pool and zone, or why a pool gets no node.

Sources: core/scaleup/orchestrator, estimator/binpacking_estimator.go, expander/waste. Unlike cluster-autoscaler, one
check orders nodes for all pending pods, in one pool after another. Each new node is in the smallest zone where a
pending pod fits the node.

1. Pods are placed on existing and upcoming nodes first.
2. The pool that is first in the record's expander_order gets the new nodes. Among pools of equal rank, the pool with
   the least unused capacity on its new nodes gets them. A fallback gets nodes only if the pool of which it is a
   fallback can get none.
3. Within a pool the largest pods are placed first, each on the first new node where it fits.
4. An upcoming node counts for the pods for which it was ordered, even if the simulation places other pods on it.
5. If an order did not help its pods, the next order for them waits (``domain.demand.order_memory``).
6. An unhealthy group or zone gets one node at a time, for pods that no other zone can take, and only if no other node
   is ordered. The next node waits until this one is Ready or has failed.
"""

from bisect import insort
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction

from evenkeel.domain.demand.blocked import Blocked
from evenkeel.domain.demand.certain import CertainPods, requests_of
from evenkeel.domain.demand.node_info import NodeInfo, with_room
from evenkeel.domain.demand.order_memory import CHANGING, OrderMemory
from evenkeel.domain.demand.pod_groups import PodGroup, PodGroupClasses
from evenkeel.domain.demand.pods import old_enough_at
from evenkeel.domain.demand.requests import CPU, MEMORY, Counts, counts
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import Demand, GroupOffer, PendingPods, PoolDemand, PoolOffer, Unfit
from evenkeel.domain.model.flavours import SIZE_TAGS
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.pools import place_in
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Pod

_UNKNOWN = float("-inf")  # the lower bound of an unknown waste
_BATCH = 16  # a packing selects the new nodes with room for the next pods once for so many pod groups


def scale_up(simulation: Simulation) -> Demand:
    """Return the nodes that the pending pods need, by pool and group. This function only plans.

    A pod without a node is placed on an existing, upcoming or new node, and remains in the snapshot. A pod that fits no
    node is in ``unmet``, with one reason that covers all pools. A pod that does not count as demand is in
    ``not_counted``. The order of objects in the workload does not matter.
    """
    old_enough = old_enough_at(simulation.pending, simulation.policy, simulation.now)
    if old_enough is not None and simulation.now < old_enough:
        return Demand(not_counted=tuple(simulation.not_counted), check_again=old_enough)
    memory = OrderMemory(simulation)
    result = _demand(simulation, memory)
    upcoming = _upcoming(simulation) if result.nodes else Counter[GroupKey]()
    if upcoming:
        again = _demand_as_ordered(memory, simulation, upcoming)
        is_better = (_unmet_pods(again), again.nodes) <= (_unmet_pods(result), result.nodes)
        result = again if is_better and not _exceeds_room(again, simulation.pools) else result
    return replace(result, retry_at=memory.retry_at)


def _upcoming(simulation: Simulation) -> Counter[GroupKey]:
    """Return, by group, the number of ordered nodes that do not exist yet, or that are starting and still empty."""
    upcoming = Counter(group for node, group in simulation.starting.items() if simulation.starting_and_empty(node))
    for pool in simulation.pools:
        upcoming.update(
            {offer.group: offer.coming for offer in pool.groups if offer.group in simulation.template_nodes}
        )
    return +upcoming


def _demand_as_ordered(memory: OrderMemory, simulation: Simulation, upcoming: Counter[GroupKey]) -> Demand:
    """Return the demand as if no node were upcoming, minus the upcoming nodes (principle 4).

    Pods are placed in the order of size and name. So the simulation may place other pods on an upcoming node, and the
    pods for which the node was ordered would get a second node. If no node were upcoming, the same pods would need the
    same nodes as before.
    """
    workload = simulation.workload
    existing = tuple(node for node in workload.nodes if not simulation.starting_and_empty(node.name))
    before = tuple(
        replace(
            pool,
            room=pool.room + sum(upcoming[offer.group] for offer in pool.groups),
            groups=tuple(_before_order(offer, upcoming[offer.group]) for offer in pool.groups),
        )
        for pool in simulation.pools
    )
    policy = replace(simulation.policy, most_nodes=simulation.policy.most_nodes + upcoming.total())
    again = _demand(Simulation(replace(workload, nodes=existing), before, policy, simulation.now), memory)
    pools = []
    for pool in again.pools:
        more = Counter(pool.nodes) - upcoming
        pools.append(replace(pool, nodes={group: more[group] for group in pool.nodes if more[group]}))
    if any(pool.nodes for pool in pools):
        return replace(again, pools=tuple(pools))
    fit = (name for pool in pools for pods in pool.pending for name in pods.pods)
    return replace(
        again,
        pools=tuple(replace(pool, pending=()) for pool in pools),
        fits_already=tuple(sorted((*again.fits_already, *fit))),
    )


def _before_order(offer: GroupOffer, ordered: int) -> GroupOffer:
    """Return the offer as it was before these nodes were ordered.

    If the group does not accept new nodes any more, it has room for these nodes only.
    """
    is_open = offer.closed is None and offer.unhealthy is None
    room = ordered + (offer.room if is_open else 0)
    closed, unhealthy = (None, None) if ordered else (offer.closed, offer.unhealthy)
    requested = offer.requested - ordered
    return replace(offer, requested=requested, coming=0, room=room, closed=closed, unhealthy=unhealthy)


def _exceeds_room(demand: Demand, offers: Sequence[PoolOffer]) -> bool:
    """Return True if a pool would get more nodes than it has room for.

    Upcoming nodes use room of their pool, even if the pods for which they were ordered now fit other nodes.
    """
    return any(sum(pool.nodes.values()) > offer.room for pool, offer in zip(demand.pools, offers, strict=True))


def _unmet_pods(demand: Demand) -> int:
    return sum(len(unfit.pods) for unfit in demand.unmet)


def _demand(simulation: Simulation, memory: OrderMemory) -> Demand:
    pending, placed = simulation.schedule_pending(memory.usable_nodes)
    growth = _ScaleUp(simulation, pending, memory)
    growth.run()
    growth.retry()
    growth.try_unhealthy()
    demands = [(offer, growth.demand_of(offer)) for offer in simulation.pools]
    blocked = Blocked(simulation, growth.left())
    unmet = growth.unmet(blocked)
    return Demand(
        pools=tuple(replace(demand, blocked=blocked.of_pool(offer)) for offer, demand in demands),
        unmet=tuple(unmet),
        not_counted=tuple(simulation.not_counted),
        fits_already=tuple(placed),
    )


@dataclass
class _Option:
    """Possible new nodes of one pool (cluster-autoscaler's expander option), their pods, and their unused share."""

    pod_groups: Sequence[PodGroup] = ()  # the pod groups that were tried
    nodes: Counter[GroupKey] = field(default_factory=Counter)
    placed: dict[PodGroup, int] = field(default_factory=dict)
    waste: Fraction = Fraction(0)


@dataclass
class _Packing:
    """The state of one packing of a pool."""

    offers: Sequence[GroupOffer]
    rejections: Mapping[PodGroup, Mapping[GroupKey, Reason]]  # ``_ScaleUp._rejections`` of the pool
    sizes: list[tuple[int, int]]  # number of nodes of each group, and the group's position in ``offers``; sorted
    room: int  # number of nodes that the pool may still get
    new: list[NodeInfo]  # the pool's new nodes
    others: list[NodeInfo]  # all other nodes, without full nodes
    roomy: list[NodeInfo] = field(default_factory=list)  # those of ``new`` that may have room for the next pods
    added: list[NodeInfo] = field(default_factory=list)  # the nodes that the packing added


@dataclass
class _Order:
    """The nodes that were ordered in one pool so far, and the pods on these nodes."""

    nodes: Counter[GroupKey] = field(default_factory=Counter)
    node_infos: list[NodeInfo] = field(default_factory=list)
    pods: dict[PodGroup, list[Pod]] = field(default_factory=dict)
    # Pod group -> node groups in which a node is ordered again.
    retried: dict[PodGroup, set[GroupKey]] = field(default_factory=dict)

    def groups(self, pod_groups: Collection[PodGroup]) -> dict[PodGroup, set[GroupKey]]:
        """Return, by pod group, the node groups with new nodes that hold its pods, or with a retry for its pods."""
        groups = {pod_group: set(retried) for pod_group, retried in self.retried.items()}
        for node_info in self.node_infos:
            for pod_group in node_info.pod_groups:
                if pod_group in pod_groups and node_info.node.group is not None:
                    groups.setdefault(pod_group, set()).add(node_info.node.group)
        return groups


class _ScaleUp:
    """Orders nodes, in one pool after another, until no pending pod fits a new node."""

    def __init__(self, simulation: Simulation, pending: Mapping[PodGroup, list[Pod]], memory: OrderMemory) -> None:
        pools = simulation.pools
        self._simulation = simulation
        self._memory = memory
        self._snapshot = simulation.snapshot
        self._templates = simulation.template_nodes
        self._pools = pools
        self._pods = dict(pending)
        self._open = Counter({pod_group: len(pods) for pod_group, pods in pending.items()})
        self._nodes_left = simulation.policy.most_nodes
        self._open_nodes = with_room(simulation.schedulable_nodes(), pending)
        self._offers = {pool.pool: sorted(pool.groups, key=lambda offer: offer.group) for pool in pools}
        self._sorted: dict[Fraction, list[PodGroup]] = {}  # share of cpu and memory -> pod groups by size
        self._orders = {pool.pool: _Order() for pool in pools}
        of = simulation.pod_groups.of
        self._on_new_nodes = {of(pod) for template in self._templates.values() for pod in template.pods}
        classes = PodGroupClasses(pending)
        self._rejections = {pool.pool: self._rejections_of(pool, classes) for pool in pools}
        self._unfit = {pool.pool: self._unfit_in(pool) for pool in pools}
        self._names_and_age = {pod_group: (_names(pods), _since(pods)) for pod_group, pods in pending.items()}
        self._rank = {pool.pool: place_in(simulation.policy.order, pool.pool) for pool in pools}
        by_id = {pool.pool: pool for pool in pools}
        self._first_pools = {
            pool.pool: [by_id[first] for first in pool.first_pools if first in by_id] for pool in pools
        }
        self._options: dict[PoolId, _Option] = {}  # only options that are still right (``_is_current``)

    def run(self) -> None:
        """Order new nodes for the pending pods, in the best pool first (principle 2)."""
        while +self._open:
            pool = self._best_pool()
            if pool is None:
                return
            order, fork = self._orders[pool.pool], self._snapshot.fork()
            option, added = self._pack(pool, self._option(pool).pod_groups)
            changed = self._snapshot.changed_since(fork)
            self._open_nodes = with_room((*self._open_nodes, *added), self._pods)
            self._nodes_left -= option.nodes.total()
            order.nodes += option.nodes
            order.node_infos += added
            for pod_group, count in option.placed.items():
                self._assign(pool, pod_group, count)
            self._options = {
                id: other for id, other in self._options.items() if self._is_current(other, option, changed)
            }

    def _is_current(self, option: _Option, chosen: _Option, changed: Collection[NodeInfo]) -> bool:
        """Return True if placing the chosen option's pods, on these nodes, leaves an option as it is.

        The chosen option's nodes are subtracted from ``_nodes_left`` before.
        """
        return option.nodes.total() <= self._nodes_left and not any(
            pod_group in chosen.placed or self._snapshot.depends_on(pod_group, changed)
            for pod_group in option.pod_groups
        )

    def _best_pool(self) -> PoolOffer | None:
        """Return the pool with the best option (principle 2); None: no pool gets a pod.

        A pool is not packed if the least waste that its option may have is more than the waste of the best option.
        """
        pending = +self._open
        requests = requests_of(pending)
        certain = CertainPods(self._snapshot, pending, self._open_nodes, self._on_new_nodes)
        bounds = [
            ((self._rank[pool.pool], self._least_waste(pool, requests, certain), pool.pool), pool)
            for pool in self._pools
        ]
        best = None
        for bound, pool in sorted(bounds, key=lambda item: item[0]):
            if best is not None and best[0] < bound:
                break
            if any(self._option(first).placed for first in self._first_pools[pool.pool]):
                continue
            option = self._option(pool)
            key = self._rank[pool.pool], option.waste, pool.pool
            if option.placed and (best is None or key < best[0]):
                best = key, pool
        return best[1] if best is not None else None

    def _least_waste(self, pool: PoolOffer, requests: Counts, certain: CertainPods) -> float | Fraction:
        """Return a lower bound of the waste of a pool's option, or the waste if known; minus infinity: unknown.

        Each certain pod is placed, unless the pool has no room left. So the pool gets all nodes for which it has room,
        or at least as many nodes as these pods fill. If some pods need a zone, a pod may stop at the first node group
        without room.
        """
        if (option := self._options.get(pool.pool)) is not None:
            return option.waste
        if self._orders[pool.pool].node_infos or not all(offer.group in self._templates for offer in pool.groups):
            return _UNKNOWN
        nodes, waste = 0, Fraction(0)
        templates = [self._templates[offer.group].node for offer in pool.groups]
        placed, fit_all = certain.requests(certain.spanned(templates), self._rejections[pool.pool], len(pool.groups))
        for name in (CPU, MEMORY):
            largest = max((counts(template.allocatable).get(name, 0) for template in templates), default=0)
            if largest:
                nodes = max(nodes, -(-placed[name] // largest))
        rooms = [offer.room for offer in pool.groups if offer.room > 0]
        nodes = min(nodes, pool.room, sum(rooms) if fit_all else min(rooms, default=0), self._nodes_left)
        for name in (CPU, MEMORY):
            total = nodes * min((counts(template.capacity).get(name, 0) for template in templates), default=0)
            if total <= 0:
                return _UNKNOWN
            waste += 1 - Fraction(requests[name], total)
        return waste

    def retry(self) -> None:
        """Order at most one more node in each pool for pods that earlier nodes did not help.

        Only such pods are placed on the node. The node will show whether the cause is fixed, for all pods that would
        fit it.
        """
        retried: dict[PoolId, GroupKey] = {}
        offers = {offer.group: (pool, offer) for pool in self._pools for offer in pool.groups}
        for pod_group in sorted(self.left(), key=lambda pod_group: pod_group.name):
            for group in self._memory.due(pod_group):
                pool, offer = offers[group]
                is_first = pool.pool not in retried
                if is_first and self._closed_because(pool, offer) is not None:
                    continue
                if retried.get(pool.pool, group) == group and self._retry(pod_group, pool, group, is_first=is_first):
                    retried[pool.pool] = group
                    break

    def _retry(self, pod_group: PodGroup, pool: PoolOffer, group: GroupKey, *, is_first: bool) -> bool:
        """Order a node of a group, or use the node ordered for other pods. Return True if one of these pods fits it."""
        order = self._orders[pool.pool]
        fork = self._snapshot.fork()
        node_info = self._simulation.add_template_node(group)
        count = self._snapshot.fill_node(pod_group, node_info, self._open[pod_group])
        if not (count and is_first):
            self._snapshot.revert(fork)
        if not count:
            return False
        order.retried.setdefault(pod_group, set()).add(group)
        if is_first:
            order.nodes[group] += 1
            self._nodes_left -= 1
            self._assign(pool, pod_group, count)
        return True

    def try_unhealthy(self) -> None:
        """Order one node in an unhealthy group for pods that fit no other group, unless a node is ordered elsewhere.

        The pools come in the order of principle 2, and the smallest group of a pool is first.
        """
        left = self.left()
        if not left or any(order.nodes for order in self._orders.values()):
            return
        offers = [(pool, offer) for pool in self._pools for offer in pool.groups if self._may_be_tried(pool, offer)]
        offers.sort(
            key=lambda each: (len(each[0].first_pools), self._rank[each[0].pool], each[1].requested, each[1].group)
        )
        for pod_group in sorted(left, key=lambda pod_group: pod_group.name):
            for pool, offer in offers:
                waits = self._memory.no_order_because(pod_group, offer.group) is not None
                if waits and offer.group not in self._memory.due(pod_group):
                    continue
                if self._retry(pod_group, pool, offer.group, is_first=True):
                    return

    def _may_be_tried(self, pool: PoolOffer, offer: GroupOffer) -> bool:
        """Return True if an unhealthy group may get a node: it has room, and none is upcoming in its zone."""
        if offer.unhealthy is None or offer.closed is not None or self._full_because(pool, offer) is not None:
            return False
        in_zone = [other for each in self._pools for other in each.groups if other.zone == offer.zone]
        starting = set(self._simulation.starting.values())
        return not any(other.coming or other.group in starting for other in in_zone)

    def _assign(self, pool: PoolOffer, pod_group: PodGroup, count: int) -> None:
        """Count the next ``count`` pods of a pod group as placed on a pool's new nodes."""
        pods = self._pods[pod_group]
        first = len(pods) - self._open[pod_group]
        self._orders[pool.pool].pods.setdefault(pod_group, []).extend(pods[first : first + count])
        self._open[pod_group] -= count

    # ---------------------------------------------------------------- pods that fit a new node of a group

    def _rejections_of(self, pool: PoolOffer, classes: PodGroupClasses) -> dict[PodGroup, dict[GroupKey, Reason]]:
        """Return, by pod group, the node groups of a pool whose new node rejects its pods, and why.

        Pod groups that fit a new node of each node group are left out.
        """
        rejections: dict[PodGroup, dict[GroupKey, Reason]] = {}
        for offer in pool.groups:
            closed = self._closed_because(pool, offer)
            for pod_group, reason in (
                self._rejected_by(offer.group, classes) if closed is None else dict.fromkeys(classes.pod_groups, closed)
            ).items():
                rejections.setdefault(pod_group, {})[offer.group] = _with_field(reason, offer)
        return rejections

    def _rejected_by(self, group: GroupKey, classes: PodGroupClasses) -> dict[PodGroup, Reason]:
        fork = self._snapshot.fork()
        rejections = self._snapshot.rejections(classes, self._simulation.add_template_node(group))
        self._snapshot.revert(fork)
        for pod_group in classes.pod_groups if self._memory.has_failed else ():
            if pod_group not in rejections and (reason := self._memory.no_order_because(pod_group, group)):
                rejections[pod_group] = reason
        return rejections

    def _closed_because(self, pool: PoolOffer, offer: GroupOffer) -> Reason | None:
        """Return why a group gets no further node for any pod; None: it may get a node."""
        return offer.closed or offer.unhealthy or self._full_because(pool, offer)

    def _full_because(self, pool: PoolOffer, offer: GroupOffer) -> Reason | None:
        """Return why no further node of a group can be ordered, even if the group accepts nodes; None: one can be."""
        nodes = self._orders[pool.pool].nodes
        if nodes.total() >= pool.room:
            return Reason.of(Rule.POOL_AT_ITS_MAX)
        if nodes[offer.group] >= offer.room:
            return Reason.of(Rule.AT_ITS_MAX)
        if offer.group not in self._templates:
            return Reason.of(Rule.FRESH_NODE_UNKNOWN, tags=SIZE_TAGS.get(offer.group.flavour, ()))
        most = self._simulation.policy.most_nodes
        return Reason.of(Rule.CHECK_AT_ITS_MOST, nodes=most) if self._nodes_left < 1 else None

    def _candidates(self, pool: PoolOffer) -> list[PodGroup]:
        """Return the pod groups that may fit a new node of the pool, the largest first (``_by_size``)."""
        unfit = self._unfit[pool.pool]
        return [pod_group for pod_group in self._by_size(pool) if self._open[pod_group] and pod_group not in unfit]

    def _unfit_in(self, pool: PoolOffer) -> set[PodGroup]:
        """Return the pod groups that fit no new node of the pool, even once other pods are placed."""
        if not pool.groups:  # no node group rejects them
            return set(self._pods)
        return {
            pod_group
            for pod_group, rejections in self._rejections[pool.pool].items()
            if len(rejections) == len(pool.groups)
            and not any(reason.rule in CHANGING for reason in rejections.values())
        }

    # ---------------------------------------------------------------- first fit, the largest first

    def _option(self, pool: PoolOffer) -> _Option:
        """Return the new nodes that a pool would get for the remaining pods. It is cached until it may change."""
        option = self._options.get(pool.pool)
        if option is None:
            fork = self._snapshot.fork()
            option, _ = self._pack(pool, self._candidates(pool))
            self._snapshot.revert(fork)
            self._options[pool.pool] = option
        return option

    def _pack(self, pool: PoolOffer, pod_groups: Sequence[PodGroup]) -> tuple[_Option, list[NodeInfo]]:
        """Place the remaining pods on new nodes of one pool, as far as its room allows, and also return these nodes.

        If a pod's affinity requires pods that are placed later, the pod is placed in the next round.
        """
        option, order, offers = _Option(pod_groups), self._orders[pool.pool], self._offers[pool.pool]
        own = set(order.node_infos)
        packing = _Packing(
            offers=offers,
            rejections=self._rejections[pool.pool],
            sizes=sorted(
                (offer.requested + order.nodes[offer.group], position) for position, offer in enumerate(offers)
            ),
            room=min(self._nodes_left, pool.room - order.nodes.total()),
            new=list(order.node_infos),
            others=[node_info for node_info in self._open_nodes if node_info not in own],
        )
        for start in range(0, len(pod_groups), _BATCH):
            batch = pod_groups[start : start + _BATCH]
            packing.roomy = with_room(packing.new, batch)
            for pod_group in batch:
                if placed := self._place(pod_group, self._open[pod_group], packing):
                    option.placed[pod_group] = placed
        for size, position in packing.sizes:
            offer = offers[position]
            if new := size - offer.requested - order.nodes[offer.group]:
                option.nodes[offer.group] = new
        option.waste = self._waste(option)
        return option, packing.added

    def _by_size(self, pool: PoolOffer) -> list[PodGroup]:
        """Return all pod groups by their shares of cpu and memory, largest first (decreasing_pod_orderer.go:63-88).

        Among pods of equal size, those with spread constraints are first.
        """
        group = next((offer.group for offer in self._offers[pool.pool] if offer.group in self._templates), None)
        total = counts(self._templates[group].node.allocatable) if group is not None else {}
        cpu, memory = max(1, total.get(CPU, 0)), max(1, total.get(MEMORY, 0))

        def size(pod_group: PodGroup) -> int:
            return pod_group.cpu * memory + pod_group.memory * cpu

        share = Fraction(cpu, memory)
        if share not in self._sorted:
            self._sorted[share] = sorted(self._pods, key=lambda group: (-size(group), not group.spread, group.name))
        return self._sorted[share]

    def _place(self, pod_group: PodGroup, wanted: int, packing: _Packing) -> int:
        """Place pods on the pool's new nodes, and add nodes while each gets a pod. Return the number placed."""
        if pod_group.in_rounds:
            placed = self._fill_all(pod_group, packing, wanted)
        else:
            placed = self._snapshot.fill(pod_group, self._memory.usable_nodes(pod_group, packing.roomy), wanted)
        while placed < wanted and (more := self._open_node(pod_group, wanted - placed, packing)):
            placed += more
            if pod_group.in_rounds:
                placed += self._fill_all(pod_group, packing, wanted - placed)
        return placed

    def _fill_all(self, pod_group: PodGroup, packing: _Packing, wanted: int) -> int:
        """Place pods on new and existing nodes, in rounds. Return the number placed."""
        usable = self._memory.usable_nodes(pod_group, [*packing.roomy, *packing.others])
        return self._snapshot.fill_in_rounds(pod_group, usable, wanted)

    def _open_node(self, pod_group: PodGroup, wanted: int, packing: _Packing) -> int:
        """Add a node in the smallest zone where a pod fits it. Return its number of pods; 0: no node was added."""
        if packing.room < 1:
            return 0
        sizes, rejections = packing.sizes, packing.rejections.get(pod_group)
        for index, (size, position) in enumerate(sizes):
            offer = packing.offers[position]
            reason = rejections.get(offer.group) if rejections else None
            if size - offer.requested >= offer.room or (reason is not None and reason.rule not in CHANGING):
                continue
            fork = self._snapshot.fork()
            node_info = self._simulation.add_template_node(offer.group)
            count = self._snapshot.fill_node(pod_group, node_info, wanted)
            if count:
                packing.added.append(node_info)
                packing.new.append(node_info)
                packing.roomy.append(node_info)
                del sizes[index]
                insort(sizes, (size + 1, position))
                packing.room -= 1
                return count
            self._snapshot.revert(fork)
        return 0

    def _waste(self, option: _Option) -> Fraction:
        """Return the sum of the new nodes' unused shares of cpu and memory (expander/waste/waste.go:36-90).

        An unknown capacity counts as unused. Otherwise a pool with unknown capacity would always be first.
        """
        waste, requests = Fraction(0), requests_of(option.placed)
        for name in (CPU, MEMORY) if option.nodes else ():
            capacities = {group: counts(self._templates[group].node.capacity).get(name, 0) for group in option.nodes}
            total = sum(capacities[group] * nodes for group, nodes in option.nodes.items())
            waste += 1 - Fraction(requests[name], total) if total else 1
        return waste

    # ---------------------------------------------------------------- the result

    def demand_of(self, pool: PoolOffer) -> PoolDemand:
        """Return the nodes that a pool gets, the pods on these nodes, and the pending pods that fit no node of it."""
        order, rejections = self._orders[pool.pool], self._rejections[pool.pool]
        pending, unfit = [], []
        for pod_group, pods in order.pods.items():
            rejecting = rejections.get(pod_group, {}).keys() - order.retried.get(pod_group, set())
            zones = {offer.zone for offer in pool.groups if offer.group not in rejecting}
            pending.append(PendingPods(pods=_names(pods), since=_since(pods), zones=tuple(sorted(zones))))
        for pod_group in self._unfit[pool.pool] - order.pods.keys():
            (names, since), by_group = self._names_and_age[pod_group], rejections.get(pod_group, {})
            unfit.append(Unfit(pods=names, since=since, reason=_first(by_group), by_group=by_group))
        return PoolDemand(
            pool=pool.pool,
            pending=tuple(sorted(pending, key=_by_age)),
            nodes={group: nodes for group, nodes in sorted(order.nodes.items()) if nodes},
            unfit=tuple(sorted(unfit, key=_by_age)),
            orders=self._memory.orders(pool),
            orders_after=self._memory.with_ordered(pool.pool, order.groups(self._pods.keys())) if order.nodes else {},
            ineffective=self._memory.ineffective(pool.pool),
        )

    def left(self) -> dict[PodGroup, list[Pod]]:
        """Return the pods that get no node, by group."""
        return {pod_group: self._pods[pod_group][-count:] for pod_group, count in self._open.items() if count}

    def unmet(self, blocked: Blocked) -> list[Unfit]:
        """Return the pods that get no node, with one reason that covers all pools."""
        left = self.left()
        classes = PodGroupClasses(left)
        rejections = {pool.pool: self._rejections_of(pool, classes) for pool in self._pools} if left else {}
        unmet = []
        for pod_group, pods in left.items():
            of_pools = [(id, rejections[id][pod_group]) for id in sorted(rejections) if pod_group in rejections[id]]
            fits = blocked.fitting(pod_group)
            why = tuple(_unfit_in_pool(id, rejected, fits) for id, rejected in of_pools)
            reason = Reason.of(Rule.FITS_NO_POOL, pods=len(pods), pod=str(pods[0]), why=why)
            by_group = {group: rejected[group] for _, rejected in of_pools for group in rejected}
            fitting = {id: tuple(sorted(fits.intersection(rejected))) for id, rejected in of_pools}
            unmet.append(
                Unfit(
                    pods=_names(pods),
                    since=_since(pods),
                    reason=reason,
                    by_group=by_group,
                    fitting={id: groups for id, groups in fitting.items() if groups},
                )
            )
        return sorted(unmet, key=_by_age)


def _first(rejections: Mapping[GroupKey, Reason]) -> Reason:
    """Return the reason of the first node group by key. Without node groups, the reason is that the pool is full."""
    return rejections[min(rejections)] if rejections else Reason.of(Rule.POOL_AT_ITS_MAX)


def _with_field(reason: Reason, offer: GroupOffer) -> Reason:
    """Return the reason. If nodes have a taint that their template lacks, it names the field that ignores the taint."""
    taint = str(reason.facts.get("taint", ""))
    own = offer.template.taints if offer.template is not None else ()
    if reason.rule is not Rule.TAINT_NOT_TOLERATED or any(taint == f"{key}={text}:{end}" for key, text, end in own):
        return reason
    return Reason.of(Rule.TAINT_NOT_TOLERATED, taint=taint, key=taint.partition("=")[0])


def _unfit_in_pool(pool: PoolId, rejections: Mapping[GroupKey, Reason], fitting: Collection[GroupKey]) -> Reason:
    """Return why a pool gives pods no node. The reason that ends first is used, of a group whose node would fit."""
    ending = {group: reason for group, reason in rejections.items() if group in fitting}
    if not ending:
        return Reason.of(Rule.UNFIT_IN_POOL, pool=str(pool), group="", why=_first(rejections))
    group = min(ending, key=lambda group: (_end(ending[group]), group))
    name = group.name if len(set(map(str, rejections.values()))) > 1 else ""
    return Reason.of(Rule.UNFIT_IN_POOL, pool=str(pool), group=name, why=ending[group])


def _end(reason: Reason) -> str:
    """Return when a reason ends, such as a fence, as a text to sort by. A reason without an end is last."""
    until = reason.facts.get("until")
    return until.isoformat() if isinstance(until, datetime) else "unknown"


def _by_age(pods: PendingPods | Unfit) -> tuple[datetime, tuple[str, ...]]:
    return pods.since, pods.pods


def _names(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple(map(str, pods))


def _since(pods: Iterable[Pod]) -> datetime:
    """Return the earliest time at which one of these pods became unschedulable or, if unknown, was created."""
    return min(pod.unscheduled.since if pod.unscheduled and pod.unscheduled.since else pod.created_at for pod in pods)
