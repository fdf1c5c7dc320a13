"""A cluster autoscaler for the sandbox: it applies the decisions of Evenkeel's model to Kubernetes objects.

This module adds the provider to the model. It parses bounds from annotations as the clusterapi provider does, writes
the scale subresource without a version, and marks machines before it deletes them. Pods are only a number, and one pod
fills one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import yaml

from evenkeel.domain.model.groups import Bounds
from evenkeel_cli.simulation import autoscaler_model as model
from sandbox.kube.client import Client
from sandbox.kube.controllers.machine_controller import MachineAPI, MachineControllers
from sandbox.kube.controllers.objects import annotations_of, is_deleting, labels_of, parse_time, status_of
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object
from sandbox.kube.store import Store

_SIZE = "/cluster-api-autoscaler-node-group-{}-size"


class BoundsError(ValueError):
    """Bounds that the real autoscaler cannot parse. The autoscaler then ignores all groups of the cluster."""


def read_bounds(annotations: dict[str, str], prefix: str) -> Bounds:
    """Return minimum and maximum as the clusterapi provider parses them: a missing one is 0. Raises BoundsError."""
    numbers = []
    for end in ("min", "max"):
        key = prefix + _SIZE.format(end)
        text = annotations.get(key)
        try:
            number = 0 if text is None else int(text)
        except ValueError:
            raise BoundsError(f"{key} {text!r}: no integer") from None
        if number < 0:
            raise BoundsError(f"{key} {text!r}: negative")
        numbers.append(number)
    low, high = numbers
    if high < low:
        raise BoundsError(f"{prefix}{_SIZE.format('max')} {high}: less than the minimum {low}")
    return Bounds(low, high)


def nodes_flags(arguments: Sequence[str]) -> dict[str, Bounds]:
    """Return the bounds in `--nodes=min:max:namespace.name` by group. Gardener's provider reads only these groups."""
    groups = {}
    for argument in arguments:
        if argument.startswith("--nodes="):
            low, high, name = argument.removeprefix("--nodes=").split(":", 2)
            groups[name] = Bounds(int(low), int(high))
    return groups


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine that is not being deleted. ``created`` in seconds since 1970."""

    name: str
    created: float
    node: bool
    refused: bool = False  # True: the provider reports that the cloud refused it


@dataclass(kw_only=True)
class NodeGroup:
    """A group in one loop of the autoscaler. ``fault``: the reason why its bounds do not parse."""

    name: str
    namespace: str
    pool: str
    zone: str
    requested: int
    readable_bounds: Bounds | None
    fault: str
    has_template: bool
    machines: list[Machine]

    @property
    def key(self) -> str:
        """Return the namespace and the name."""
        return f"{self.namespace}/{self.name}"

    @property
    def running(self) -> int:
        """Return the number of machines with a node."""
        return sum(machine.node for machine in self.machines)


POOL_LABEL = "evenkeel.dev/pool"
_MANAGER = "cluster-autoscaler"
#: the status ConfigMap of cluster-autoscaler
STATUS = ("configmaps", "kube-system", "cluster-autoscaler-status")
_EXHAUSTED = "ResourceExhausted"  # the code of Gardener's provider, which reads its groups from flags
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
#: Annotations with the capacity of a node: either pair is enough. The second pair is OpenShift's older one.
_CAPACITY_ANNOTATIONS = (
    {f"{_CAPACITY}cpu", f"{_CAPACITY}memory"},
    {"machine.openshift.io/vCPU", "machine.openshift.io/memoryMb"},
)


def pool_of(item: Object, api: MachineAPI) -> str:
    """Return the pool in the labels of a scalable; the name of the scalable if no label has a pool."""
    labels = labels_of(item)
    own = labels.get(api.pool_label) if api.pool_label else None
    return str(labels.get(POOL_LABEL) or own or item["metadata"]["name"])


def has_node_template(item: Object, flavour: str, store: Store) -> bool:
    """Return whether the autoscaler knows cpu and memory of a scalable's nodes while the scalable has no node.

    These values are in the scalable's annotations, in Cluster API's machine template, or in Gardener's machine class.
    """
    if any(annotations_of(item).keys() >= keys for keys in _CAPACITY_ANNOTATIONS):
        return True
    client, namespace = Client(store, _MANAGER), item["metadata"]["namespace"]
    spec = (item["spec"].get("template") or {}).get("spec") or {}
    capacity: Object = {}
    if flavour == "gardener" and "class" in spec:
        machine_class = client.find("machineclasses.machine.sapcloud.io", namespace, spec["class"]["name"]) or {}
        capacity = (machine_class.get("nodeTemplate") or {}).get("capacity") or {}
    elif flavour == "cluster-api" and "infrastructureRef" in spec:
        name = spec["infrastructureRef"]["name"]
        template = client.find("awsmachinetemplates.infrastructure.cluster.x-k8s.io", namespace, name) or {}
        capacity = status_of(template).get("capacity") or {}
    return bool(capacity.keys() >= {"cpu", "memory"})


@dataclass(kw_only=True)
class ClusterAutoscaler:
    """The cluster-autoscaler of one cluster. `step` is one loop of the real cluster-autoscaler."""

    store: Store
    controllers: MachineControllers
    flags: model.Flags = field(default_factory=model.Flags)
    seed: int = 0
    #: pods by pool and zone; zone None is any zone
    demand: dict[tuple[str, str | None], int] = field(default_factory=dict)
    #: the reason why the last loop ignored all groups; None if it did not ignore them
    blind: str | None = None
    #: the errors of the last loop
    errors: list[str] = field(default_factory=list)
    #: write the status ConfigMap after each loop
    writes_status: bool = False

    def __post_init__(self) -> None:
        self._api = self.controllers.api
        self._start()

    def _start(self) -> None:
        """Start the process anew, without any state of earlier loops."""
        self._arguments = self.controllers.autoscaler_arguments()
        # As in the real autoscaler, a flag that is no argument is off. Without any arguments, `flags` apply.
        values = dict(argument.removeprefix("--").partition("=")[::2] for argument in self._arguments or ())
        flags = self.flags
        if "balance-similar-node-groups" in values or "cloud-provider" in values:
            flags = replace(flags, balance=values.get("balance-similar-node-groups") == "true")
        if "scale-down-enabled" in values:
            flags = replace(flags, scale_down=values["scale-down-enabled"] == "true")
        if "max-nodes-total" in values:
            flags = replace(flags, most_nodes=int(values["max-nodes-total"]))
        self.in_force = flags
        self.model = model.ClusterAutoscaler[NodeGroup](flags, seed=self.seed)

    def set_demand(self, pool: str, pods: int, zone: str | None = None) -> None:
        """Set how many pods need a node of a pool, in one zone or in any."""
        if pods < 0:
            raise ValueError(f"demand {pods} of pool {pool}: negative")
        self.demand[(pool, zone)] = pods

    def pending(self, pool: str) -> int:
        """Return how many pods of a pool have no node."""
        groups = [group for group in self.groups() if group.pool == pool]
        bound = {zone: pods for (name, zone), pods in self.demand.items() if name == pool and zone is not None}
        free, waiting = 0, 0
        for zone in {group.zone for group in groups} | set(bound):
            nodes = sum(group.running for group in groups if group.zone == zone)
            waiting += max(0, bound.get(zone, 0) - nodes)
            free += max(0, nodes - bound.get(zone, 0))
        return waiting + max(0, self.demand.get((pool, None), 0) - free)

    def step(self, now: datetime) -> None:
        """Run one loop: read the groups and apply the model's actions. Changed arguments restart the process."""
        self.errors = []
        if self.controllers.autoscaler_arguments() != self._arguments:
            self._start()
        if self._arguments is None:
            self.blind = "it does not run"
            return
        groups = self.groups()
        if nodes_flags(self._arguments):  # a group without a flag, or with max 0, is ignored
            groups = [group for group in groups if group.readable_bounds and group.readable_bounds.max]
        self.blind = next((f"{group.key}: {group.fault}" for group in groups if group.fault), None)
        for action in self._actions(groups, now.timestamp()):
            match action:
                case model.Increase(group, nodes):
                    self._increase(group, nodes)
                case model.Decrease(group, nodes):
                    self._decrease(group, nodes)
                case model.Delete(group, machine):
                    self._delete(group, machine, now)
                case model.Refused(group, size):
                    bounds = group.readable_bounds
                    assert bounds is not None
                    self.errors.append(f"{group.key}: size {size} is outside {bounds.min}..{bounds.max}")
        if self.writes_status:
            self._write_status(groups, now)

    def _write_status(self, groups: list[NodeGroup], now: datetime) -> None:
        """Write the backoffs of all groups (clusterstate/api/types.go) if they have changed."""
        kind = self.store.resource(self._api.scalables).kind
        entries = []
        for group in groups:
            of_flags = self.controllers.flavour == "gardener"
            name = f"{group.namespace}.{group.name}" if of_flags else f"{kind}/{group.key}"
            backoff = self.model.backoff_of(group.key, now.timestamp())
            scale_up: dict[str, object] = {"status": "NoActivity"}
            if backoff is not None:
                since = datetime.fromtimestamp(backoff.since, UTC).isoformat()
                info = {"errorCode": backoff.code, "errorMessage": f"{backoff.code}: {group.key}"}
                scale_up = {"status": "Backoff", "lastTransitionTime": since, "backoffInfo": info}
            entries.append({"name": name, "scaleUp": scale_up})
        status = {"data": {"status": yaml.safe_dump({"autoscalerStatus": "Running", "nodeGroups": entries})}}
        try:
            Client(self.store, _MANAGER).create_or_patch(*STATUS, status)
        except ApiError as error:
            self.errors.append(f"status: {error}")

    def _actions(self, groups: list[NodeGroup], now: float) -> Iterator[model.Action[NodeGroup]]:
        for group in groups:
            if group.readable_bounds and (refused := sum(machine.refused for machine in group.machines)):
                yield from self.model.hear_refusal(group, refused, now)
        yield from self.model.loop(groups, self.demand, now)

    def groups(self) -> list[NodeGroup]:
        """Return the node groups that are not paused."""
        machines = self._machines_by_owner()
        flags = nodes_flags(self.controllers.autoscaler_arguments() or ())
        groups = []
        for item in self.store.list(self._api.scalables):
            metadata, annotations = item["metadata"], annotations_of(item)
            if f"{self._api.prefix}/paused" in annotations:
                continue
            bounds, fault = flags.get(f"{metadata['namespace']}.{metadata['name']}"), ""
            if not flags:
                try:
                    bounds = read_bounds(annotations, self._api.prefix)
                except BoundsError as error:
                    fault = str(error)
            members = machines.get(metadata["uid"], [])
            has_node = any(machine.node for machine in members)
            group = NodeGroup(
                name=metadata["name"],
                namespace=metadata["namespace"],
                pool=self.controllers.pool_of(item) or pool_of(item, self._api),
                zone=self.controllers.zone_of((item["spec"].get("template") or {}).get("spec") or {}),
                requested=item["spec"].get("replicas", 0),
                readable_bounds=bounds,
                fault=fault,
                has_template=has_node or has_node_template(item, self.controllers.flavour, self.store),
                machines=members,
            )
            groups.append(group)
        return groups

    def _machines_by_owner(self) -> dict[str, list[Machine]]:
        """Return the machines by the uid of their scalable, oldest first."""
        scalables = {
            machine_set["metadata"]["uid"]: owner["uid"]
            for machine_set in self.controllers.objects("machinesets")
            for owner in machine_set["metadata"].get("ownerReferences") or ()
        }
        machines: dict[str, list[Machine]] = {}
        for uid, items in self.controllers.by_owner("machines").items():
            machines.setdefault(scalables.get(uid, uid), []).extend(
                Machine(
                    name=item["metadata"]["name"],
                    created=parse_time(item["metadata"]["creationTimestamp"]).timestamp(),
                    node=self.controllers.has_node(item),
                    refused=status_of(item).get("lastOperation", {}).get("errorCode") == _EXHAUSTED
                    and bool(self._arguments),
                )
                for item in items
                if not is_deleting(item)
            )
        for members in machines.values():
            members.sort(key=lambda machine: (machine.created, machine.name))
        return machines

    def _increase(self, group: NodeGroup, nodes: int) -> None:
        """Read the scale, and write it without a resourceVersion, which overwrites any write in between."""
        assert group.readable_bounds is not None
        live = self.store.scale_of(self._api.scalables, group.namespace, group.name)["spec"]["replicas"]
        high = group.readable_bounds.max
        if live + nodes > high:
            self.errors.append(f"{group.key}: size increase too large, desired {live + nodes} max {high}")
        elif self._write_size(group, live + nodes):
            group.requested += nodes

    def _decrease(self, group: NodeGroup, nodes: int) -> None:
        if self._write_size(group, group.requested - nodes):
            group.requested -= nodes
            waiting = [machine for machine in group.machines if not machine.node]
            group.machines = [machine for machine in group.machines if machine not in waiting[:nodes]]

    def _delete(self, group: NodeGroup, machine: model.Machine, now: datetime) -> None:
        mark = {"metadata": {"annotations": self._api.mark(now)}}
        try:
            self.store.patch(self._api.machines, group.namespace, machine.name, mark, manager=_MANAGER)
        except ApiError as error:
            self.errors.append(f"{group.key}: {error}")
            return
        if self._write_size(group, group.requested - 1):
            group.requested -= 1
            group.machines = [other for other in group.machines if other != machine]

    def _write_size(self, group: NodeGroup, size: int) -> bool:
        try:
            self.store.scale(self._api.scalables, group.namespace, group.name, size, manager=_MANAGER)
        except ApiError as error:
            self.errors.append(f"{group.key}: {error}")
            return False
        return True
