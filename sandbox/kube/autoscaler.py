"""A cluster autoscaler for the sandbox: it reads bounds, orders and removes machines as the real one does.

Modelled on Cluster Autoscaler's clusterapi provider (1.36 and 1.37): bounds from annotations, one bad bound blinds it
for all groups, orders go through an unversioned write of the scale subresource, replicas that someone else ordered do
not count as upcoming, and nothing raises replicas to the minimum. Pods are numbers: one pod fills one node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sandbox.kube.controllers import MachineControllers, parse_time
from sandbox.kube.errors import ApiError
from sandbox.kube.store import Object, Store

_SIZE = "/cluster-api-autoscaler-node-group-{}-size"


class BoundsError(ValueError):
    """Bounds that the real autoscaler cannot read; it then sees no group of the cluster at all."""


def read_bounds(annotations: dict[str, str], prefix: str) -> tuple[int, int]:
    """Minimum and maximum as the clusterapi provider parses them: missing is 0; BoundsError for anything unfit."""
    found = []
    for end in ("min", "max"):
        key = prefix + _SIZE.format(end)
        text = annotations.get(key)
        try:
            number = 0 if text is None else int(text)
        except ValueError:
            raise BoundsError(f"{key} {text!r}: no integer") from None
        if number < 0:
            raise BoundsError(f"{key} {text!r}: negative")
        found.append(number)
    low, high = found
    if high < low:
        raise BoundsError(f"{prefix}{_SIZE.format('max')} {high}: less than the minimum {low}")
    return low, high


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The flags of the real one that matter here, with its defaults."""

    max_node_provision_time: timedelta = timedelta(minutes=15)
    initial_backoff: timedelta = timedelta(minutes=5)
    max_backoff: timedelta = timedelta(minutes=30)
    backoff_reset: timedelta = timedelta(hours=3)
    unneeded_time: timedelta = timedelta(minutes=10)
    scale_down: bool = True


@dataclass(kw_only=True)
class NodeGroup:
    """A group as the autoscaler sees it in one loop."""

    name: str
    namespace: str
    pool: str
    zone: str
    size: int
    low: int
    high: int
    running: list[Object]
    machines: list[Object]

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(kw_only=True)
class _Order:
    """An open scale-up: `target` is the size that it leads to."""

    target: int
    increase: int
    since: datetime


@dataclass(kw_only=True)
class _Backoff:
    until: datetime
    duration: timedelta
    last_failure: datetime


@dataclass(frozen=True, kw_only=True)
class Flavoured:
    """What the actor must know of a machine API: where the groups are, and how a machine is marked for deletion."""

    scalables: str
    machines: str
    prefix: str
    mark: Callable[[datetime], dict[str, str]]
    pool_label: str | None = None


FLAVOURS = {
    "gardener": Flavoured(
        scalables="machinedeployments.machine.sapcloud.io",
        machines="machines.machine.sapcloud.io",
        prefix="machine.sapcloud.io",
        mark=lambda _now: {"machinepriority.machine.sapcloud.io": "1"},
        pool_label="worker.gardener.cloud/pool",
    ),
    "cluster-api": Flavoured(
        scalables="machinedeployments.cluster.x-k8s.io",
        machines="machines.cluster.x-k8s.io",
        prefix="cluster.x-k8s.io",
        mark=lambda now: {"cluster.x-k8s.io/delete-machine": str(now)},
    ),
    "openshift": Flavoured(
        scalables="machinesets.machine.openshift.io",
        machines="machines.machine.openshift.io",
        prefix="machine.openshift.io",
        mark=lambda now: {"machine.openshift.io/delete-machine": str(now)},
    ),
}
POOL_LABEL = "evenkeel.dev/pool"


def pool_of(item: Object, flavour: Flavoured) -> str:
    """The pool that a scalable's labels name; its own name when there is none."""
    labels = item["metadata"].get("labels") or {}
    own = labels.get(flavour.pool_label) if flavour.pool_label else None
    return str(labels.get(POOL_LABEL) or own or item["metadata"]["name"])


def zone_of(item: Object, flavour: str) -> str:
    """The zone of a scalable, from the flavour's own field."""
    spec = ((item["spec"].get("template") or {}).get("spec")) or {}
    if flavour == "gardener":
        labels = ((spec.get("nodeTemplate") or {}).get("metadata") or {}).get("labels") or {}
        return str(labels.get("topology.kubernetes.io/zone", ""))
    if flavour == "cluster-api":
        return str(spec.get("failureDomain", ""))
    placement = ((spec.get("providerSpec") or {}).get("value") or {}).get("placement") or {}
    return str(placement.get("availabilityZone", ""))


@dataclass(kw_only=True)
class ClusterAutoscaler:
    """One actor per cluster; `step` is one loop of the real one."""

    store: Store
    controllers: MachineControllers
    settings: Settings = field(default_factory=Settings)
    #: pods that fit any zone of a pool, and pods bound to one zone
    demand: dict[tuple[str, str | None], int] = field(default_factory=dict)
    #: why the last loop saw no groups at all; None when it saw them
    blind: str | None = None
    #: what went wrong in the last loop
    errors: list[str] = field(default_factory=list)
    #: machines ordered so far, per group
    ordered: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._flavour = FLAVOURS[self.controllers.flavour]
        self._orders: dict[str, _Order] = {}
        self._backoffs: dict[str, _Backoff] = {}
        self._unneeded: dict[str, datetime] = {}

    def set_demand(self, pool: str, pods: int, zone: str | None = None) -> None:
        """How many pods want a node of a pool, bound to `zone` or to none."""
        if pods < 0:
            raise ValueError(f"demand {pods} of pool {pool}: negative")
        self.demand[(pool, zone)] = pods

    def backed_off(self, key: str, now: datetime) -> bool:
        """Whether a group gets no orders; the last moment of a backoff belongs to it."""
        backoff = self._backoffs.get(key)
        return backoff is not None and now <= backoff.until

    def pending(self, pool: str) -> int:
        """Pods of a pool that have no node."""
        groups = [group for group in self.every_group() if group.pool == pool]
        bound = {zone: pods for (name, zone), pods in self.demand.items() if name == pool and zone is not None}
        free, waiting = 0, 0
        for zone in {group.zone for group in groups} | set(bound):
            nodes = sum(len(group.running) for group in groups if group.zone == zone)
            waiting += max(0, bound.get(zone, 0) - nodes)
            free += max(0, nodes - bound.get(zone, 0))
        return waiting + max(0, self.demand.get((pool, None), 0) - free)

    def step(self, now: datetime) -> None:
        """One loop: read the groups, follow up on orders, order for pods that wait, remove nodes that nobody needs."""
        self.errors = []
        self._backoffs = {
            key: item for key, item in self._backoffs.items() if item.last_failure + self.settings.backoff_reset >= now
        }
        try:
            groups = self.groups()
        except BoundsError as error:
            # the provider's NodeGroups() is nil: every open order is forgotten
            self.blind = str(error)
            self._orders.clear()
            return
        self.blind = None
        self._follow_up(groups, now)
        ordered = False
        for pool in sorted({group.pool for group in groups}):
            mine = [group for group in groups if group.pool == pool]
            # One scale-up per loop: the pods that it does not serve wait for the next one.
            ordered = ordered or self._scale_up(pool, mine, now)
            if self.settings.scale_down:
                self._scale_down(pool, mine, now)

    def groups(self) -> list[NodeGroup]:
        """The node groups of this loop; BoundsError when one of them has bounds that do not parse."""
        return [group for group in self.every_group(strict=True) if group.high > 0]

    def every_group(self, *, strict: bool = False) -> list[NodeGroup]:
        by_owner: dict[str, list[Object]] = {}
        set_owner: dict[str, str] = {}
        sets = f"machinesets.{self.controllers.group}"
        for machine_set in self.store.list(sets):
            for owner in machine_set["metadata"].get("ownerReferences") or ():
                set_owner[machine_set["metadata"]["uid"]] = owner["uid"]
        for machine in self.store.list(self._flavour.machines):
            for owner in machine["metadata"].get("ownerReferences") or ():
                by_owner.setdefault(set_owner.get(owner["uid"], owner["uid"]), []).append(machine)
        groups = []
        for item in self.store.list(self._flavour.scalables):
            metadata = item["metadata"]
            annotations = metadata.get("annotations") or {}
            if f"{self._flavour.prefix}/paused" in annotations:
                continue
            try:
                low, high = read_bounds(annotations, self._flavour.prefix)
            except BoundsError as error:
                if strict:
                    raise BoundsError(f"{metadata['namespace']}/{metadata['name']}: {error}") from None
                low = high = 0
            machines = by_owner.get(metadata["uid"], [])
            alive = [machine for machine in machines if "deletionTimestamp" not in machine["metadata"]]
            groups.append(
                NodeGroup(
                    name=metadata["name"],
                    namespace=metadata["namespace"],
                    pool=pool_of(item, self._flavour),
                    zone=zone_of(item, self.controllers.flavour),
                    size=item["spec"].get("replicas", 0),
                    low=low,
                    high=high,
                    running=[machine for machine in alive if self.controllers.has_node(machine)],
                    machines=machines,
                )
            )
        return groups

    def _follow_up(self, groups: list[NodeGroup], now: datetime) -> None:
        for group in groups:
            order = self._orders.get(group.key)
            if order is None:
                continue
            if len(group.running) >= min(order.target, group.size):
                # done, or taken back by someone who lowered replicas
                del self._orders[group.key]
            elif now - order.since > self.settings.max_node_provision_time:
                del self._orders[group.key]
                self._fail(group.key, now)
                missing = min(order.increase, group.size - len(group.running))
                self._set_size(group, group.size - missing)

    def _fail(self, key: str, now: datetime) -> None:
        known = self._backoffs.get(key)
        duration = self.settings.initial_backoff
        if known is not None:
            # a failure inside a backoff repeats its length, one after it doubles
            duration = known.duration if now <= known.until else min(2 * known.duration, self.settings.max_backoff)
        self._backoffs[key] = _Backoff(until=now + duration, duration=duration, last_failure=now)

    def _upcoming(self, group: NodeGroup, now: datetime) -> int:
        """Machines on their way that this autoscaler ordered itself; those of other writers do not count."""
        if group.key not in self._orders or self.backed_off(group.key, now):
            return 0
        return max(0, group.size - len(group.running))

    def _scale_up(self, pool: str, groups: list[NodeGroup], now: datetime) -> bool:
        """Order for the first pods that wait and that some group can serve. Whether anything was ordered."""
        bound = {zone: pods for (name, zone), pods in self.demand.items() if name == pool and zone is not None}
        free = 0
        for zone in sorted({group.zone for group in groups}):
            here = [group for group in groups if group.zone == zone]
            coming = sum(len(group.running) + self._upcoming(group, now) for group in here)
            missing = bound.get(zone, 0) - coming
            if missing > 0 and self._order(here, missing, now):
                return True
            free += max(0, -missing)
        missing = self.demand.get((pool, None), 0) - free
        return missing > 0 and self._order(groups, missing, now)

    def _order(self, groups: list[NodeGroup], nodes: int, now: datetime) -> bool:
        """Balance new nodes over the groups that have room: one at a time, to the smallest."""
        able = [group for group in groups if group.size < group.high and not self.backed_off(group.key, now)]
        nodes = min(nodes, sum(group.high - group.size for group in able))
        added = {group.key: 0 for group in able}
        for _ in range(nodes):
            roomy = [group for group in able if group.size + added[group.key] < group.high]
            smallest = min(roomy, key=lambda group: (group.size + added[group.key], group.name))
            added[smallest.key] += 1
        for group in able:
            if added[group.key] and self._increase(group, added[group.key], now):
                group.size += added[group.key]
        return nodes > 0

    def _increase(self, group: NodeGroup, delta: int, now: datetime) -> bool:
        """A live read of the scale and an unversioned write of it: whatever was written in between is overwritten."""
        live = self.store.scale_of(self._flavour.scalables, group.namespace, group.name)["spec"]["replicas"]
        if live + delta > group.high:
            self.errors.append(f"{group.key}: size increase too large, desired {live + delta} max {group.high}")
            self._fail(group.key, now)
            return False
        self.store.scale(
            self._flavour.scalables, group.namespace, group.name, live + delta, manager="cluster-autoscaler"
        )
        known = self._orders.get(group.key)
        increase = delta + (known.increase if known else 0)
        self._orders[group.key] = _Order(target=live + delta, increase=increase, since=now)
        self.ordered[group.key] = self.ordered.get(group.key, 0) + delta
        return True

    def _set_size(self, group: NodeGroup, size: int) -> bool:
        """Bounds hold in both directions: with max below the present size a group cannot even shrink."""
        if not group.low <= size <= group.high:
            self.errors.append(f"{group.key}: size {size} is outside {group.low}..{group.high}")
            return False
        try:
            self.store.scale(self._flavour.scalables, group.namespace, group.name, size, manager="cluster-autoscaler")
        except ApiError as error:
            self.errors.append(f"{group.key}: {error}")
            return False
        group.size = size
        return True

    def _scale_down(self, pool: str, groups: list[NodeGroup], now: datetime) -> None:
        """Remove nodes that had no pod for long enough. Pods sit on the oldest nodes."""
        bound = {zone: pods for (name, zone), pods in self.demand.items() if name == pool and zone is not None}
        free: list[tuple[Object, NodeGroup]] = []
        for zone in sorted({group.zone for group in groups}):
            nodes = [(machine, group) for group in groups if group.zone == zone for machine in group.running]
            free += sorted(nodes, key=_by_age)[bound.get(zone, 0) :]
        unneeded = sorted(free, key=_by_age)[self.demand.get((pool, None), 0) :]
        names = {f"{pool}/{machine['metadata']['name']}" for machine, _ in unneeded}
        self._unneeded = {
            key: since for key, since in self._unneeded.items() if key in names or not key.startswith(f"{pool}/")
        }
        for machine, group in reversed(unneeded):
            since = self._unneeded.setdefault(f"{pool}/{machine['metadata']['name']}", now)
            if now - since < self.settings.unneeded_time or group.size - 1 < group.low:
                continue
            if not group.low <= group.size - 1 <= group.high:
                self.errors.append(f"{group.key}: size {group.size - 1} is outside {group.low}..{group.high}")
                continue
            self.store.patch(
                self._flavour.machines,
                group.namespace,
                machine["metadata"]["name"],
                {"metadata": {"annotations": self._flavour.mark(now)}},
                manager="cluster-autoscaler",
            )
            self._set_size(group, group.size - 1)


def _by_age(entry: tuple[Object, NodeGroup]) -> tuple[datetime, str]:
    metadata = entry[0]["metadata"]
    return parse_time(metadata["creationTimestamp"]), str(metadata["name"])
