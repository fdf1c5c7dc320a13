"""Cluster Autoscaler as far as it matters here: its clusterapi provider of release 1.37, one pod per node.

It reads bounds and replicas, and knows nothing of zones that have no machines: the provider passes no launch error on,
so only its own timeout tells it (kubernetes/autoscaler#5417). Kinder than the real one in one thing: its timeout always
ends in a backoff here. Sources: clusterstate/clusterstate.go, utils/backoff/exponential_backoff.go,
processors/nodegroupset/balancing_processor.go, core/static_autoscaler.go, all under cluster-autoscaler/.
"""

import random
from dataclasses import dataclass

from evenkeel.cli.simulation.scenario import AutoscalerSetup
from evenkeel.cli.simulation.world import Group, SimulatedMachine, World
from evenkeel.domain.model.water_fill import Bucket, water_fill


@dataclass(kw_only=True)
class _Order:
    """An open scale-up: ``target`` is the size that it leads to."""

    target: int
    increase: int
    since: int


@dataclass(kw_only=True)
class _Backoff:
    until: int
    length: int
    last_failure: int


class ClusterAutoscaler:
    """Its memory; ``loop`` is one round of it. A restart would forget all of it."""

    def __init__(self, world: World, setup: AutoscalerSetup) -> None:
        self._world = world
        self._setup = setup
        self._orders: dict[Group, _Order] = {}
        self._backoffs: dict[Group, _Backoff] = {}
        self._unneeded: dict[str, dict[SimulatedMachine, int]] = {}  # pool -> node -> since
        self._added_at: int | None = None
        self._chance = random.Random(f"{world.scenario.seed}/expander")

    def loop(self) -> None:
        """Follow up on orders, order for pods that wait, remove nodes that nobody has needed for long enough."""
        now = self._world.now
        self._backoffs = {
            group: backoff
            for group, backoff in self._backoffs.items()
            if backoff.last_failure + self._setup.forget_after >= now
        }
        if any(group.bad_bounds for group in self._world.groups):
            self._orders.clear()  # the provider's NodeGroups() is nil: there is no group at all
            return
        visible = [group for group in self._world.groups if group.bounds.max > 0]
        for group in visible:
            self._follow_up(group, now)
            self._remove_unregistered(group, now)
        self._scale_up(visible, now)
        for pool in self._world.of_pool:
            self._scale_down(pool, visible, now)

    def _follow_up(self, group: Group, now: int) -> None:
        order = self._orders.get(group)
        if order is None:
            return
        if group.running >= min(order.target, group.requested):
            del self._orders[group]  # done, or taken back by somebody who lowered replicas
        elif now - order.since > self._setup.provision_timeout:
            del self._orders[group]
            self._back_off(group, now)
            self._set_size(group, group.requested - min(order.increase, group.requested - group.running))

    def _back_off(self, group: Group, now: int) -> None:
        known = self._backoffs.get(group)
        length = self._setup.backoff
        if known is not None:
            # Inside a backoff the same length begins anew; after it, twice as much.
            length = known.length if now <= known.until else min(2 * known.length, self._setup.longest_backoff)
        self._backoffs[group] = _Backoff(until=now + length, length=length, last_failure=now)

    def _backed_off(self, group: Group, now: int) -> bool:
        known = self._backoffs.get(group)
        return known is not None and now <= known.until

    def _remove_unregistered(self, group: Group, now: int) -> None:
        """Machines that somebody else ordered and that never came."""
        if group in self._orders or group.running == group.requested:
            return
        for machine in [machine for machine in group.machines if not machine.node]:
            if now - machine.created > self._setup.provision_timeout and self._may_be(group, group.requested - 1):
                self._world.remove(group, machine)

    def _may_be(self, group: Group, size: int) -> bool:
        """Bounds hold in both directions: with max below its size a group cannot even shrink."""
        return group.bounds.min <= size <= group.bounds.max

    def _set_size(self, group: Group, size: int) -> None:
        if size < group.requested and self._may_be(group, size):
            self._world.shrink(group, size)

    def _upcoming(self, group: Group, now: int) -> int:
        """Nodes on their way that it ordered itself; those of other writers do not count."""
        if group not in self._orders or self._backed_off(group, now):
            return 0
        return group.requested - group.running

    def _scale_up(self, visible: list[Group], now: int) -> None:
        """One scale-up per loop: for the pool, or the zone of a pool, for which most pods wait."""
        waiting: list[tuple[int, str, str]] = []
        for pool, groups in self._world.of_pool.items():
            free = 0
            for group in groups:
                spare = group.running + self._upcoming(group, now)
                missing = self._world.demand.get((pool, group.zone), 0) - spare
                if missing > 0:
                    waiting.append((-missing, pool, group.zone))
                free += max(0, -missing)
            missing = self._world.demand.get((pool, None), 0) - free
            if missing > 0:
                waiting.append((-missing, pool, ""))
        for pods, pool, zone in sorted(waiting):
            able = [
                group
                for group in visible
                if group.pool == pool
                and zone in ("", group.zone)
                and group.requested < group.bounds.max
                and not self._backed_off(group, now)
            ]
            if able:
                self._order(able, -pods, now)
                return

    def _order(self, able: list[Group], nodes: int, now: int) -> None:
        if not self._setup.balance:
            able = [self._chance.choice(able)]
        buckets = [
            Bucket(level=group.requested, room=group.bounds.max - group.requested, tie=tie)
            for tie, group in enumerate(able)
        ]
        for group, more in zip(able, water_fill(buckets, nodes), strict=True):
            if more:
                known = self._orders.get(group)
                self._orders[group] = _Order(
                    target=group.requested + more, increase=more + (known.increase if known else 0), since=now
                )
                self._world.order(group, more)
                self._added_at = now

    def _scale_down(self, pool: str, visible: list[Group], now: int) -> None:
        """Remove nodes without a pod. Pods sit on the oldest nodes: of a deployment's pods, the newest go first."""
        groups, demand = self._world.of_pool[pool], self._world.demand
        empty: list[tuple[SimulatedMachine, Group]] = []
        if sum(group.running for group in groups) > self._world.wanted(pool):
            free = [(node, group) for group in groups for node in group.nodes()[demand.get((pool, group.zone), 0) :]]
            free.sort(key=lambda entry: entry[0].number)
            empty = free[demand.get((pool, None), 0) :]
        known = self._unneeded.get(pool, {})
        self._unneeded[pool] = {node: known.get(node, now) for node, _ in empty}
        if self._added_at is not None and now - self._added_at < self._setup.delay_after_add:
            return
        for node, group in reversed(empty):
            long_enough = now - self._unneeded[pool][node] >= self._setup.unneeded
            if long_enough and group in visible and self._may_be(group, group.requested - 1):
                self._world.remove(group, node)
