"""A model of cluster-autoscaler with its clusterapi provider, for one pod per node.

It returns actions, and has no I/O and no clock. ``evenkeel simulate`` performs the actions on simulated groups; the
sandbox performs them on Kubernetes objects. Times are seconds of a clock that the caller chooses.
``aws_autoscaler`` is the aws provider of this model.

It reads bounds and replicas. The provider reports no launch errors, so only a timeout shows that a zone has no machines
(kubernetes/autoscaler#5417). In this model, each timeout starts a backoff. In the real cluster-autoscaler, some
timeouts do not.

Sources: clusterstate/clusterstate.go, utils/backoff/exponential_backoff.go, core/scaleup/orchestrator/orchestrator.go,
processors/nodegroupset/balancing_processor.go, core/static_autoscaler.go, and
cloudprovider/clusterapi/clusterapi_nodegroup.go, all under cluster-autoscaler/.
"""

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.water_fill import water_fill

Demand = Mapping[tuple[str, str | None], int]
"""The number of pods by pool and zone. Each pod needs one node. Zone None: pods that may run in any zone."""

# --ok-total-unready-count and --max-total-unready-percentage
_MISSING_NODES, _MISSING_SHARE = 3, 0.45
# Since this version, only own orders are upcoming, and the size of a group whose order timed out is lowered.
_COUNTS_OWN = (1, 36)


class Machine(Protocol):
    """A machine object. The name is unique in its pool."""

    @property
    def name(self) -> str:
        """Return the name of the machine."""

    @property
    def created(self) -> float:
        """Return the time of creation in seconds."""

    @property
    def node(self) -> bool:
        """Return True if the machine's node has joined."""


class Group(Protocol):
    """The current state of a node group. Performing an action changes this state."""

    @property
    def key(self) -> Hashable:
        """Return the key that identifies the group."""

    @property
    def pool(self) -> str:
        """Return the name of the pool."""

    @property
    def zone(self) -> str:
        """Return the name of the zone."""

    @property
    def requested(self) -> int:
        """Return the requested replicas."""

    @property
    def running(self) -> int:
        """Return the number of machines with a node."""

    @property
    def readable_bounds(self) -> Bounds | None:
        """Return the bounds; None if the provider cannot parse them."""

    @property
    def has_template(self) -> bool:
        """Return True if cpu and memory of a node are known without a running node."""

    @property
    def machines(self) -> Sequence[Machine]:
        """Return the machines, oldest first."""


AnyGroup = TypeVar("AnyGroup", bound=Group)


@dataclass(frozen=True, kw_only=True)
class Flags:
    """Flags of cluster-autoscaler with their defaults there, except that ``balance`` is on. Times are in seconds."""

    balance: bool = True  # --balance-similar-node-groups
    provision_timeout: int = 900  # --max-node-provision-time
    backoff: int = 300  # --initial-node-group-backoff-duration
    longest_backoff: int = 1800  # --max-node-group-backoff-duration
    forget_after: int = 10800  # --node-group-backoff-reset-timeout
    scale_down: bool = True  # --scale-down-enabled
    unneeded: int = 600  # --scale-down-unneeded-time
    delay_after_add: int = 600  # --scale-down-delay-after-add
    most_nodes: int | None = None  # --max-nodes-total
    parallel: bool = False  # --parallel-scale-up
    version: tuple[int, int] = (1, 37)

    @property
    def counts_others(self) -> bool:
        """Return True if nodes are upcoming that others ordered, and in a backoff.

        Before 1.36 they are. They hide pods that wait (clusterstate.go, GetUpcomingNodes).
        """
        return self.version < _COUNTS_OWN


class Increase(NamedTuple, Generic[AnyGroup]):
    """Raise replicas. If replicas are still the same afterwards, the provider refused: the group gets a backoff."""

    group: AnyGroup
    nodes: int


class Decrease(NamedTuple, Generic[AnyGroup]):
    """Lower replicas by the number of nodes that never registered."""

    group: AnyGroup
    nodes: int


class Delete(NamedTuple, Generic[AnyGroup]):
    """Delete this machine, and lower replicas by one."""

    group: AnyGroup
    machine: Machine


class Refused(NamedTuple, Generic[AnyGroup]):
    """A change that the provider refuses, because ``size`` is outside of the bounds. It needs no action."""

    group: AnyGroup
    size: int


Action = Increase[AnyGroup] | Decrease[AnyGroup] | Delete[AnyGroup] | Refused[AnyGroup]


@dataclass(kw_only=True)
class _Order:
    increase: int
    since: float


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """The reason and end of a group's backoff."""

    until: float
    length: float
    last_failure: float
    since: float  # the time of the failure that started this backoff; later failures extend it
    code: str  # the reason code in the status ConfigMap of cluster-autoscaler


class ClusterAutoscaler(Generic[AnyGroup]):
    """The autoscaler and its state. A restart loses the state. ``seed`` determines the choices of the expander.

    ``similar`` returns True if two groups of a pool have equal node templates, so that it balances them. ``unneeded``
    returns a group's own unneeded time; None: the flag holds.

    From one loop to the next, a group is identified by its key, and a machine by its name.
    """

    def __init__(
        self,
        flags: Flags,
        *,
        seed: int | str = 0,
        similar: Callable[[AnyGroup, AnyGroup], bool] = lambda _group, _other: True,
        unneeded: Callable[[AnyGroup], float | None] = lambda _group: None,
    ) -> None:
        self._flags = flags
        self._similar = similar
        self._own_unneeded = unneeded
        self._orders: dict[Hashable, _Order] = {}
        self._backoffs: dict[Hashable, Backoff] = {}
        self._unneeded: dict[str, dict[str, float]] = {}  # by pool and node: the time since which the node is unneeded
        self._added_at: float | None = None
        self._expander = random.Random(seed)

    def loop(
        self, groups: Sequence[AnyGroup], demand: Demand, now: float, *, only_cleans_up: bool = False
    ) -> Iterator[Action[AnyGroup]]:
        """Yield the actions of one loop: for orders that timed out, for pending pods, and for unneeded nodes.

        The caller performs or refuses each action before it requests the next one. ``only_cleans_up``: an error ends
        the loop before pods and unneeded nodes.
        """
        self._backoffs = {
            key: backoff
            for key, backoff in self._backoffs.items()
            if backoff.last_failure + self._flags.forget_after >= now
        }
        if any(group.readable_bounds is None for group in groups):
            self._orders.clear()  # one group's unreadable bounds make the provider's NodeGroups() return nil
            return
        visible = [group for group in groups if _is_visible(group)]
        if self._orders:
            keys = {group.key for group in visible}
            self._orders = {key: order for key, order in self._orders.items() if key in keys}
        for group in visible:
            if group.running < group.requested or group.key in self._orders:
                yield from self._follow_up(group, now)
                yield from self._remove_unregistered(group, now)
        if only_cleans_up:
            return
        pools: dict[str, list[AnyGroup]] = {}
        for group in groups:
            pools.setdefault(group.pool, []).append(group)
        orders = self._within_total(self._scale_up(pools, visible, demand, now), visible, now)
        for group, nodes in orders:
            requested = group.requested
            yield Increase(group, nodes)
            if not self._follow_increase(group, requested, now) and not self._flags.parallel:
                break  # the first failure ends a scale-up (orchestrator/executor.go)
        if orders or not self._flags.scale_down:
            return  # cluster-autoscaler's loop ends after a scale-up
        yield from self._scale_down(pools, demand, now)

    def register_failure(self, group: AnyGroup, nodes: int, now: float, code: str) -> None:
        """Start a group's backoff, and take the nodes that the provider reports as refused off its order."""
        self._back_off(group, now, code)
        order = self._orders.get(group.key)
        if order is not None:
            order.increase -= nodes
            if order.increase <= 0:
                del self._orders[group.key]

    def hear_refusal(self, group: AnyGroup, nodes: int, now: float) -> Iterator[Action[AnyGroup]]:
        """Start a group's backoff, and yield the action that removes the nodes refused by the cloud.

        The caller performs the action as in ``loop``. Gardener's provider reports ResourceExhausted (clusterstate.go
        handleInstanceCreationErrors, static_autoscaler.go deleteCreatedNodesWithErrors). The clusterapi provider does
        not report it.
        """
        self.register_failure(group, nodes, now, "ResourceExhausted")
        size = group.requested - nodes
        yield Decrease(group, nodes) if _allows(group, size) else Refused(group, size)

    def has_order(self, key: Hashable) -> bool:
        """Return True if this autoscaler waits for nodes that it has ordered in a group."""
        return key in self._orders

    def backoff_of(self, key: Hashable, now: float) -> Backoff | None:
        """Return a group's backoff until the end of its last second; None: the group has no backoff now."""
        backoff = self._backoffs.get(key)
        return backoff if backoff is not None and now <= backoff.until else None

    def in_backoff(self, key: Hashable, now: float) -> bool:
        """Return True if a group has a backoff now, so that it gets no orders."""
        return self.backoff_of(key, now) is not None

    # Orders

    def _follow_up(self, group: AnyGroup, now: float) -> Iterator[Action[AnyGroup]]:
        order = self._orders.get(group.key)
        if order is None:
            return
        if group.running >= group.requested:
            del self._orders[group.key]  # all nodes run, or another writer lowered replicas
        elif now - order.since > self._flags.provision_timeout:
            del self._orders[group.key]
            self._back_off(group, now, "timeout")
            if self._flags.version < _COUNTS_OWN:
                return
            nodes = min(order.increase, group.requested - group.running)
            size = group.requested - nodes
            yield Decrease(group, nodes) if _allows(group, size) else Refused(group, size)

    def _follow_increase(self, group: AnyGroup, requested: int, now: float) -> bool:
        """Record the order and return True if replicas were raised. Otherwise, start a backoff and return False."""
        if group.requested <= requested:
            self._back_off(group, now, "cloudProviderError")
            return False
        self._added_at = now
        order = self._orders.setdefault(group.key, _Order(increase=0, since=now))
        order.increase += group.requested - requested
        order.since = now
        return True

    def _back_off(self, group: AnyGroup, now: float, code: str) -> None:
        backoff = self._backoffs.get(group.key)
        length, since = float(self._flags.backoff), now
        if backoff is not None and now <= backoff.until:
            length, since = backoff.length, backoff.since  # the backoff starts again with the same length
        elif backoff is not None:
            length = min(2 * backoff.length, self._flags.longest_backoff)
        self._backoffs[group.key] = Backoff(until=now + length, length=length, last_failure=now, since=since, code=code)

    def _unregistered(self, group: Group, now: float) -> list[Machine]:
        """Return machines that have had no node for longer than the provision timeout."""
        if group.running >= group.requested:
            return []
        timeout = self._flags.provision_timeout
        return [machine for machine in group.machines if not machine.node and now - machine.created > timeout]

    def _remove_unregistered(self, group: AnyGroup, now: float) -> Iterator[Action[AnyGroup]]:
        for machine in self._unregistered(group, now):
            size = group.requested - 1
            if size < _bounds(group).min:
                return
            yield Delete(group, machine) if _allows(group, size) else Refused(group, size)

    # Scale-up

    def _within_total(
        self, orders: list[tuple[AnyGroup, int]], visible: Sequence[AnyGroup], now: float
    ) -> list[tuple[AnyGroup, int]]:
        """Return the orders, reduced until all nodes are within ``most_nodes``. A reduced order starts no backoff."""
        if self._flags.most_nodes is None:
            return orders
        left = self._flags.most_nodes - sum(group.running + self._upcoming(group, now) for group in visible)
        cut = []
        for group, nodes in orders:
            if (nodes := min(nodes, left)) > 0:
                cut.append((group, nodes))
                left -= nodes
        return cut

    def _upcoming(self, group: AnyGroup, now: float) -> int:
        """Return the number of a group's upcoming nodes; 0 if this autoscaler ordered none, or in a backoff."""
        if not self._flags.counts_others and (group.key not in self._orders or self.in_backoff(group.key, now)):
            return 0
        return max(0, group.requested - group.running - len(self._unregistered(group, now)))

    def _is_healthy(self, group: AnyGroup, now: float) -> bool:
        """Return False if both the number and the share of missing nodes are too high.

        Nodes that are ordered or timed out do not count as missing.
        """
        missing = group.requested - group.running
        if missing <= _MISSING_NODES:
            return True
        order = self._orders.get(group.key)
        missing -= (order.increase if order else 0) + len(self._unregistered(group, now))
        return missing <= max(_MISSING_NODES, _MISSING_SHARE * group.running)

    def _may_grow(self, group: AnyGroup, now: float) -> bool:
        return (
            group.requested < _bounds(group).max
            and (group.running > 0 or group.has_template)
            and not self.in_backoff(group.key, now)
            and self._is_healthy(group, now)
        )

    def _waiting(self, pool: str, groups: Sequence[AnyGroup], demand: Demand, now: float) -> tuple[dict[str, int], int]:
        """Return the number of a pool's pending pods by the zone that they need, and of pending pods for any zone."""
        nodes: dict[str, int] = {}
        for group in groups:
            coming = self._upcoming(group, now) if self._orders or self._flags.counts_others else 0
            nodes[group.zone] = nodes.get(group.zone, 0) + group.running + coming
        bound: dict[str, int] = {}
        free = 0
        for zone, available in nodes.items():
            spare = available - demand.get((pool, zone), 0)
            if spare < 0:
                bound[zone] = -spare
            else:
                free += spare
        return bound, max(0, demand.get((pool, None), 0) - free)

    def _scale_up(
        self, pools: Mapping[str, list[AnyGroup]], visible: Sequence[AnyGroup], demand: Demand, now: float
    ) -> list[tuple[AnyGroup, int]]:
        """Return the increases of one option, which is chosen at random.

        An option is a group, its similar groups, and the number of pods that fit on the group's nodes.
        """
        options: list[tuple[AnyGroup, list[AnyGroup], int]] = []
        for pool, groups in pools.items():
            bound, anywhere = self._waiting(pool, groups, demand, now)
            if not bound and not anywhere:
                continue
            able = [group for group in visible if group.pool == pool and self._may_grow(group, now)]
            for group in able:
                zonal = bound.get(group.zone, 0)
                # All pods of the option must fit on the nodes of a similar group.
                fitting = [other for other in able if not zonal or other.zone == group.zone]
                similar = [other for other in fitting if other is group or self._similar(group, other)]
                if zonal + anywhere:
                    options.append((group, similar, zonal + anywhere))
        if not options or self._lacks_template(visible, now):
            return []
        best, similar, pods = options[0] if len(options) == 1 else self._expander.choice(options)
        return balance(similar if self._flags.balance else [best], pods)

    def _lacks_template(self, visible: Sequence[AnyGroup], now: float) -> bool:
        """Return True if an upcoming node has no template. Then every scale-up fails."""
        return any(not group.running and not group.has_template and self._upcoming(group, now) for group in visible)

    # Scale-down

    def _scale_down(
        self, pools: Mapping[str, list[AnyGroup]], demand: Demand, now: float
    ) -> Iterator[Action[AnyGroup]]:
        for pool, members in pools.items():
            yield from self._remove_empty(pool, members, demand, now)

    def _remove_empty(
        self, pool: str, groups: Sequence[AnyGroup], demand: Demand, now: float
    ) -> Iterator[Action[AnyGroup]]:
        """Yield deletions of empty nodes, newest first. A group at its min loses no node."""
        empty = [
            (machine, group)
            for machine, group in _empty_nodes(pool, groups, demand)
            if _is_visible(group) and group.requested > _bounds(group).min
        ]
        clocks = self._unneeded.get(pool, {})
        if empty or clocks:
            clocks = self._unneeded[pool] = {machine.name: clocks.get(machine.name, now) for machine, _ in empty}
        if self._has_just_added(now):
            return
        for machine, group in reversed(empty):
            size = group.requested - 1
            if now - clocks[machine.name] >= self._unneeded_time(group) and size >= _bounds(group).min:
                yield Delete(group, machine) if _allows(group, size) else Refused(group, size)

    def _unneeded_time(self, group: AnyGroup) -> float:
        own = self._own_unneeded(group)
        return self._flags.unneeded if own is None else own

    def _has_just_added(self, now: float) -> bool:
        return self._added_at is not None and now - self._added_at < self._flags.delay_after_add


def balance(groups: Sequence[AnyGroup], nodes: int) -> list[tuple[AnyGroup, int]]:
    """Return each group's share of new nodes. Each node goes to the smallest group below its max; min has no effect."""
    levels = [group.requested for group in groups]
    room = [_bounds(group).max - group.requested for group in groups]
    shares = water_fill(nodes, levels, room)
    return [(group, share) for group, share in zip(groups, shares, strict=True) if share]


def _bounds(group: Group) -> Bounds:
    bounds = group.readable_bounds
    assert bounds is not None  # with unreadable bounds, ``loop`` has returned
    return bounds


def _is_visible(group: Group) -> bool:
    """Return False for a group that the provider omits: its max is 0, or it has neither replicas nor a template."""
    return _bounds(group).max > 0 and (group.requested > 0 or group.has_template)


def _allows(group: Group, size: int) -> bool:
    """Return True if the size is within the bounds. Both growing and shrinking require this."""
    bounds = _bounds(group)
    return bounds.min <= size <= bounds.max


def _empty_nodes(pool: str, groups: Sequence[AnyGroup], demand: Demand) -> list[tuple[Machine, AnyGroup]]:
    """Return nodes without pods, oldest first. Pods are assumed to run on the oldest nodes."""
    running: dict[str, int] = {}
    for group in groups:
        running[group.zone] = running.get(group.zone, 0) + group.running
    anywhere = demand.get((pool, None), 0)
    spare = sum(max(0, nodes - demand.get((pool, zone), 0)) for zone, nodes in running.items())
    if spare <= anywhere:
        return []
    unbound: list[tuple[float, Machine, AnyGroup]] = []
    for zone in running:
        nodes = [
            (machine.created, machine, group)
            for group in groups
            if group.zone == zone
            for machine in group.machines
            if machine.node
        ]
        nodes.sort(key=itemgetter(0))
        unbound += nodes[demand.get((pool, zone), 0) :]
    unbound.sort(key=itemgetter(0))
    return [(machine, group) for _, machine, group in unbound[anywhere:]]
