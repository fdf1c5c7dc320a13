"""Nodes for pods that find none: which pools are asked for how many, in which zones, and why no other.

As Cluster Autoscaler does it (core/scaleup/orchestrator, estimator/binpacking_estimator.go, expander/waste), with two
differences: all pods are served in one look, pool after pool, and a new node is tried in the emptiest zone that fits,
so that what comes out is how many nodes each zone gets.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction

from evenkeel.domain.demand.blocked import Blocked
from evenkeel.domain.demand.node_info import NodeInfo
from evenkeel.domain.demand.order_memory import CHANGING, OrderMemory
from evenkeel.domain.demand.pod_groups import PodGroup
from evenkeel.domain.demand.pods import judged_from
from evenkeel.domain.demand.requests import CPU, MEMORY, counts
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import Demand, DemandPolicy, GroupOffer, PendingPods, PoolDemand, PoolOffer, Unfit
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.pools import place_in
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import Pod, Workload


def demand(workload: Workload, pools: Iterable[PoolOffer], policy: DemandPolicy, now: datetime) -> Demand:
    """What the waiting pods of one complete look come to, pool by pool. Pure: it asks for nothing, and writes nothing.

    ``pools``: of each group what it has, what is on its way and how many nodes it may still get. ``nodes`` of the
    answer never pass that room. A pod without a node is
    either placed on what is there or on its way, or for a new node, or in ``unmet`` with one reason about all pools,
    or in ``not_counted`` with the need that nobody here can judge. The order of objects plays no part.
    """
    offers = tuple(pools)
    simulation = Simulation(workload, offers, policy, now)
    ready_at = judged_from(simulation.waiting, policy, now)
    if ready_at is not None and now < ready_at:
        return Demand(not_counted=tuple(simulation.not_counted), look_again=ready_at)
    memory = OrderMemory(workload, simulation, offers)
    found = _found(simulation, offers, memory)
    ordered = _ordered(simulation, offers) if found.nodes else Counter[GroupKey]()
    if ordered:
        found = _as_it_was_ordered(workload, offers, memory, simulation, ordered, found)
    return replace(found, retry_at=memory.retry_at)


def _ordered(simulation: Simulation, offers: Iterable[PoolOffer]) -> Counter[GroupKey]:
    """Nodes that are on their way or still starting, and that nothing stands on yet."""
    ordered: Counter[GroupKey] = Counter()
    for pool in offers:
        for offer in pool.groups:
            if offer.group in simulation.template_nodes:
                ordered[offer.group] = offer.coming
    ordered.update(group for node in simulation.starting if (group := simulation.awaited_of(node)) is not None)
    return +ordered


def _as_it_was_ordered(
    workload: Workload,
    offers: Sequence[PoolOffer],
    memory: OrderMemory,
    simulation: Simulation,
    ordered: Counter[GroupKey],
    found: Demand,
) -> Demand:
    """The same, where a better place is known for who waits: the one that the nodes on their way were ordered for.

    Pods are put onto those by size and name, and not as they were when the nodes were asked for. One that is left over
    then would have a node ordered twice. So all is asked anew as if nothing were on its way, which for the same pods
    comes to the same nodes, and what is on its way is taken off.
    """
    there = tuple(
        node
        for node in workload.nodes
        if node.name not in simulation.starting or simulation.awaited_of(node.name) is None
    )
    asked_anew = tuple(
        replace(
            pool,
            room=pool.room + sum(ordered[offer.group] for offer in pool.groups),
            groups=tuple(_without(offer, ordered[offer.group]) for offer in pool.groups),
        )
        for pool in offers
    )
    policy = replace(simulation.policy, most_nodes=simulation.policy.most_nodes + ordered.total())
    again = _found(Simulation(replace(workload, nodes=there), asked_anew, policy, simulation.now), asked_anew, memory)
    pools = []
    for pool in again.pools:
        more = Counter(pool.nodes) - ordered
        pools.append(replace(pool, nodes={group: more[group] for group in pool.nodes if more[group]}))
    again = replace(again, pools=tuple(pools))
    # What is on its way takes room in its pool, also where it would stand elsewhere by now.
    is_over = any(sum(pool.nodes.values()) > offer.room for pool, offer in zip(again.pools, offers, strict=True))
    if is_over or (_pods(again.unmet), again.nodes) > (_pods(found.unmet), found.nodes):
        return found
    if again.nodes:
        return again
    fit = (name for pool in again.pools for each in pool.pending for name in each.pods)
    return replace(
        again,
        pools=tuple(replace(pool, pending=()) for pool in again.pools),
        fits_already=tuple(sorted((*again.fits_already, *fit))),
    )


def _without(offer: GroupOffer, ordered: int) -> GroupOffer:
    """The group as it was before these nodes were ordered. One that is closed since keeps what is on its way."""
    room = ordered + (offer.room if offer.closed is None else 0)
    closed = None if ordered else offer.closed
    return replace(offer, requested=offer.requested - ordered, coming=0, room=room, closed=closed)


def _pods(unmet: Iterable[Unfit]) -> int:
    return sum(len(each.pods) for each in unmet)


def _found(simulation: Simulation, offers: Sequence[PoolOffer], memory: OrderMemory) -> Demand:
    simulation.vain = memory.vain
    left, placed = simulation.schedule_pending()
    growth = _Growth(simulation, offers, left, memory)
    growth.run()
    growth.retry()
    blocked = Blocked(simulation, growth.left())
    return Demand(
        pools=tuple(replace(growth.answer_of(offer), blocked=blocked.of_pool(offer)) for offer in offers),
        unmet=tuple(growth.unmet()),
        not_counted=tuple(simulation.not_counted),
        fits_already=tuple(placed),
    )


@dataclass
class _Option:
    """What one pool could do: nodes by group, pods placed by kind, and the share of the new nodes left unused."""

    nodes: Counter[GroupKey] = field(default_factory=Counter)
    placed: Counter[PodGroup] = field(default_factory=Counter)
    waste: Fraction = Fraction(0)


@dataclass
class _Given:
    """What one pool has been asked for so far."""

    nodes: Counter[GroupKey] = field(default_factory=Counter)
    node_infos: list[NodeInfo] = field(default_factory=list)
    pods: dict[PodGroup, list[Pod]] = field(default_factory=dict)
    retried: dict[PodGroup, set[GroupKey]] = field(default_factory=dict)  # whom the node that is ordered again is for

    def groups(self, pod_groups: Collection[PodGroup]) -> dict[PodGroup, set[GroupKey]]:
        """Return where its new nodes hold pods of these kinds."""
        found = {kind: set(groups) for kind, groups in self.retried.items()}
        for room in self.node_infos:
            for kind in room.pod_groups:
                if kind in pod_groups and room.node.group is not None:
                    found.setdefault(kind, set()).add(room.node.group)
        return found


class _Growth:
    """Pool after pool is asked for nodes until nobody is left who fits any."""

    def __init__(
        self,
        simulation: Simulation,
        pools: Sequence[PoolOffer],
        left: Mapping[PodGroup, list[Pod]],
        memory: OrderMemory,
    ) -> None:
        self._world = simulation
        self._memory = memory
        self._placing = simulation.snapshot
        self._pools = pools
        self._pods = dict(left)
        self._open = Counter({kind: len(pods) for kind, pods in left.items()})
        self._most = simulation.policy.most_nodes  # nodes that this look may still ask for
        self._given = {pool.pool: _Given() for pool in pools}
        self._misfits = {pool.pool: self._misfits_of(pool) for pool in pools}
        order = simulation.policy.order
        self._rank = {pool.pool: place_in(order, pool.pool) for pool in pools}
        self._cache: dict[PoolId, tuple[Hashable, _Option]] = {}

    def run(self) -> None:
        while +self._open:
            options = [(pool, option) for pool in self._pools if (option := self._option(pool)).placed]
            if not options:
                return
            pool = min(options, key=lambda each: (self._rank[each[0].pool], each[1].waste, each[0].pool))[0]
            self._take(pool)

    def retry(self) -> None:
        """Order one node more in each pool for pods that its nodes did not help before. It is for nobody else.

        What it shows, it shows of all of them that would fit it.
        """
        tried: dict[PoolId, GroupKey] = {}
        offers = {offer.group: (pool, offer) for pool in self._pools for offer in pool.groups}
        for kind in sorted((kind for kind, count in self._open.items() if count), key=lambda kind: kind.name):
            for group in self._memory.due(kind):
                pool, offer = offers[group]
                if tried.get(pool.pool, group) != group:
                    continue
                if pool.pool not in tried and self._closed(pool, offer) is not None:
                    continue
                if self._retry(kind, pool, group, is_first=pool.pool not in tried):
                    tried[pool.pool] = group
                    break

    def _retry(self, kind: PodGroup, pool: PoolOffer, group: GroupKey, *, is_first: bool) -> bool:
        """Order a node of a group for a kind, or count on the one that is ordered. Returns whether it would hold it."""
        given = self._given[pool.pool]
        fork = self._placing.fork()
        count = self._placing.fill(kind, self._world.add_template_node(group), self._open[kind])
        if not (count and is_first):
            self._placing.revert(fork)
        if not count:
            return False
        given.retried.setdefault(kind, set()).add(group)
        if is_first:
            given.nodes[group] += 1
            self._most -= 1
            first = len(self._pods[kind]) - self._open[kind]
            given.pods.setdefault(kind, []).extend(self._pods[kind][first : first + count])
            self._open[kind] -= count
        return True

    def _take(self, pool: PoolOffer) -> None:
        """Do what the pool's option says, and keep it."""
        option = self._pack(pool)
        given = self._given[pool.pool]
        given.nodes += option.nodes
        for kind, count in option.placed.items():
            first = len(self._pods[kind]) - self._open[kind]
            given.pods.setdefault(kind, []).extend(self._pods[kind][first : first + count])
        self._open -= option.placed

    # ---------------------------------------------------------------- what fits a fresh node of which group

    def _misfits_of(self, pool: PoolOffer) -> dict[PodGroup, dict[GroupKey, Reason]]:
        """For each kind that waits the groups of a pool that do not hold one more, and the first rule that says so."""
        found: dict[PodGroup, dict[GroupKey, Reason]] = {kind: {} for kind in self._pods}
        for offer in pool.groups:
            closed = self._closed(pool, offer)
            if closed is not None:
                for misfits in found.values():
                    misfits[offer.group] = closed
                continue
            fork = self._placing.fork()
            room = self._world.add_template_node(offer.group)
            for kind, misfits in found.items():
                if reason := self._placing.failing_filter(kind, room) or self._memory.why_not(kind, offer.group):
                    misfits[offer.group] = reason
            self._placing.revert(fork)
        return found

    def _closed(self, pool: PoolOffer, offer: GroupOffer) -> Reason | None:
        """Why a group gets no node at all, or no further one; None: it may."""
        given = self._given[pool.pool].nodes
        if offer.closed is not None:
            return offer.closed
        if given.total() >= pool.room:
            return Reason.of(Rule.POOL_AT_ITS_MAX)
        if given[offer.group] >= offer.room:
            return Reason.of(Rule.AT_ITS_MAX)
        if offer.group not in self._world.template_nodes:
            return Reason.of(Rule.FRESH_NODE_UNKNOWN)
        return Reason.of(Rule.LOOK_AT_ITS_MOST, nodes=self._world.policy.most_nodes) if self._most < 1 else None

    def _may_fit(self, pool: PoolOffer, kind: PodGroup) -> bool:
        """Whether some group of the pool holds the kind, or may once others are placed."""
        misfits = self._misfits[pool.pool][kind]
        return len(misfits) < len(pool.groups) or any(reason.rule in CHANGING for reason in misfits.values())

    # ---------------------------------------------------------------- first fit, the largest first

    def _option(self, pool: PoolOffer) -> _Option:
        """What the pool could do for those who are left; found out again only where that may have changed."""
        pod_groups = [kind for kind, count in self._open.items() if count and self._may_fit(pool, kind)]
        if not pod_groups:
            return _Option()
        key = tuple((kind, self._open[kind]) for kind in pod_groups)
        # Asked now, and not when it was kept: who has come since, in another pool, may keep others away.
        depends = any(self._placing.depends_on_others(kind) for kind in pod_groups)
        cached = None if depends else self._cache.get(pool.pool)
        if cached is not None and cached[0] == key and cached[1].nodes.total() <= self._most:
            return cached[1]
        given = self._given[pool.pool]
        fork, node_infos, most = self._placing.fork(), len(given.node_infos), self._most
        option = self._pack(pool)
        self._placing.revert(fork)
        del given.node_infos[node_infos:]
        self._most = most
        self._cache[pool.pool] = key, option
        return option

    def _pack(self, pool: PoolOffer) -> _Option:
        """Place whoever is left on new nodes of one pool, as far as its room goes.

        Who has to be with others that came after it is placed in the next round.
        """
        option = _Option()
        for kind in self._by_size(pool):
            if put := self._place(pool, kind, self._open[kind], option):
                option.placed[kind] += put
        option.waste = self._waste(option)
        return option

    def _by_size(self, pool: PoolOffer) -> list[PodGroup]:
        """Share of cpu and of memory together, descending (decreasing_pod_orderer.go:63-88); then pods that spread."""
        groups = sorted(offer.group for offer in pool.groups if offer.group in self._world.template_nodes)
        whole = counts(self._world.template_nodes[groups[0]].node.allocatable) if groups else {}
        cpu, memory = max(1, whole.get(CPU, 0)), max(1, whole.get(MEMORY, 0))
        pod_groups = [kind for kind, count in self._open.items() if count and self._may_fit(pool, kind)]
        return sorted(
            pod_groups, key=lambda kind: (-(kind.cpu * memory + kind.memory * cpu), not kind.spread, kind.name)
        )

    def _place(self, pool: PoolOffer, kind: PodGroup, wanted: int, option: _Option) -> int:
        """First the new nodes that are there, then one more, until no group holds one more pod of the kind."""
        lets_others_in = bool(kind.spread or kind.needs.affinity)
        new = self._world.rooms_for(kind, self._given[pool.pool].node_infos)
        put = self._on_nodes_there(kind, new, wanted) if lets_others_in else self._placing.fill_any(kind, new, wanted)
        while put < wanted and (more := self._on_new_node(pool, kind, wanted - put, option)):
            put += more
            if lets_others_in:
                put += self._on_nodes_there(kind, self._given[pool.pool].node_infos, wanted - put)
        return put

    def _on_nodes_there(self, kind: PodGroup, new: Sequence[NodeInfo], wanted: int) -> int:
        """Each pod of a kind that spreads, or has to be with others, may make room for the next one on any node: so
        all of them are gone through again and again before one more is opened (kubernetes/autoscaler#8181).
        """
        put = 0
        are_new = set(new)
        node_infos = [*new, *(room for room in self._world.schedulable_nodes() if room not in are_new)]
        node_infos = list(self._world.rooms_for(kind, node_infos))
        while put < wanted and (more := self._placing.fill_any(kind, node_infos, wanted - put)):
            put += more
        return put

    def _on_new_node(self, pool: PoolOffer, kind: PodGroup, wanted: int, option: _Option) -> int:
        """Open a node in the emptiest zone in which it holds a pod. Returns how many it holds; 0: no zone would."""
        given = self._given[pool.pool]
        new = given.nodes + option.nodes
        if self._most < 1 or new.total() >= pool.room:
            return 0
        misfits = self._misfits[pool.pool][kind]
        for offer in sorted(pool.groups, key=lambda offer: (offer.requested + new[offer.group], offer.group)):
            reason = misfits.get(offer.group)
            if new[offer.group] >= offer.room or (reason is not None and reason.rule not in CHANGING):
                continue
            fork = self._placing.fork()
            room = self._world.add_template_node(offer.group)
            count = self._placing.fill(kind, room, wanted)
            if count:
                given.node_infos.append(room)
                option.nodes[offer.group] += 1
                self._most -= 1
                return count
            self._placing.revert(fork)
        return 0

    def _waste(self, option: _Option) -> Fraction:
        """The unused shares of the new nodes' cpu and memory together, of capacity (expander/waste/waste.go:36-90).

        A node of which nobody says its capacity is all waste: it would come first for good.
        """
        if not option.nodes:
            return Fraction(0)
        wasted = Fraction(0)
        for name in (CPU, MEMORY):
            whole = sum(self._whole(group, name) * nodes for group, nodes in option.nodes.items())
            used = sum(kind.request.get(name, 0) * count for kind, count in option.placed.items())
            wasted += 1 - Fraction(used, whole) if whole else 1
        return wasted

    def _whole(self, group: GroupKey, resource: str) -> int:
        return counts(self._world.template_nodes[group].node.capacity).get(resource, 0)

    # ---------------------------------------------------------------- what came out

    def answer_of(self, pool: PoolOffer) -> PoolDemand:
        """What the pool is asked for, and which waiting pods it would not hold."""
        given = self._given[pool.pool]
        pending = []
        for kind, pods in given.pods.items():
            misfits = self._misfits[pool.pool][kind]
            retried = given.retried.get(kind, ())
            zones = {offer.zone for offer in pool.groups if offer.group not in misfits or offer.group in retried}
            names = tuple(str(pod) for pod in pods)
            pending.append(PendingPods(pods=names, since=_since(pods), zones=tuple(sorted(zones))))
        unfit = []
        for kind, pods in self._pods.items():
            if kind not in given.pods and not self._may_fit(pool, kind):
                unfit.append(_unfit(pods, self._misfits[pool.pool][kind]))
        return PoolDemand(
            pool=pool.pool,
            pending=tuple(sorted(pending, key=lambda each: (each.since, each.pods))),
            nodes={group: nodes for group, nodes in sorted(given.nodes.items()) if nodes},
            unfit=tuple(sorted(unfit, key=lambda each: (each.since, each.pods))),
            orders=self._memory.orders(pool),
            orders_after=self._memory.with_ordered(pool.pool, given.groups(self._pods.keys())) if given.nodes else {},
            ineffective=self._memory.ineffective(pool.pool),
        )

    def left(self) -> dict[PodGroup, list[Pod]]:
        """Return the pods that get no node anywhere, by kind."""
        return {kind: self._pods[kind][-count:] for kind, count in self._open.items() if count}

    def unmet(self) -> list[Unfit]:
        """Who gets no node anywhere, with one reason about all pools."""
        left = self.left()
        if not left:
            return []
        now = {pool.pool: self._misfits_of(pool) for pool in self._pools}
        found = []
        for kind, pods in left.items():
            why = []
            by_group: dict[GroupKey, Reason] = {}
            for pool in sorted(self._pools, key=lambda pool: pool.pool):
                misfits = now[pool.pool][kind]
                by_group |= misfits
                if misfits:
                    reason = _first(misfits)
                    why.append(Reason.of(Rule.UNFIT_IN_POOL, pool=str(pool.pool), why=reason))
            reason = Reason.of(Rule.FITS_NO_POOL, pods=len(pods), pod=str(pods[0]), why=tuple(why))
            found.append(Unfit(pods=_names(pods), since=_since(pods), reason=reason, by_group=by_group))
        return sorted(found, key=lambda each: (each.since, each.pods))


def _unfit(pods: Sequence[Pod], misfits: Mapping[GroupKey, Reason]) -> Unfit:
    return Unfit(pods=_names(pods), since=_since(pods), reason=_first(misfits), by_group=dict(misfits))


def _first(misfits: Mapping[GroupKey, Reason]) -> Reason:
    """What the first group says, by its key. A pool without groups has nothing to say, and no pod."""
    return misfits[min(misfits)] if misfits else Reason.of(Rule.POOL_AT_ITS_MAX)


def _names(pods: Iterable[Pod]) -> tuple[str, ...]:
    return tuple(str(pod) for pod in pods)


def _since(pods: Iterable[Pod]) -> datetime:
    """Since when the first of them waits: since the scheduler said so, else since it was made."""
    return min(pod.unscheduled.since if pod.unscheduled and pod.unscheduled.since else pod.created_at for pod in pods)
