"""A cluster autoscaler for the sandbox: what Evenkeel's model of the real one decides is done to Kubernetes objects.

Here is what the model leaves to its surroundings: bounds are read from annotations as the clusterapi provider parses
them, orders go through an unversioned write of the scale subresource, and machines are marked before they go. Pods are
numbers: one pod fills one node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import yaml

from evenkeel.domain.model.groups import Bounds
from evenkeel_cli.simulation import autoscaler_model as model
from sandbox.kube.controllers.life import MachineControllers
from sandbox.kube.controllers.objects import parse_time
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import Object
from sandbox.kube.store import Store

_SIZE = "/cluster-api-autoscaler-node-group-{}-size"


class BoundsError(ValueError):
    """Bounds that the real autoscaler cannot read; it then sees no group of the cluster at all."""


def read_bounds(annotations: dict[str, str], prefix: str) -> Bounds:
    """Minimum and maximum as the clusterapi provider parses them: missing is 0; BoundsError for anything unfit."""
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
    """The groups that `--nodes=min:max:namespace.name` names: how Gardener's provider is told of all it has."""
    found = {}
    for argument in arguments:
        if argument.startswith("--nodes="):
            low, high, name = argument.removeprefix("--nodes=").split(":", 2)
            found[name] = Bounds(int(low), int(high))
    return found


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine that is not being deleted. ``created`` in seconds since 1970."""

    name: str
    created: float
    node: bool
    refused: bool = False  # by the cloud, as the provider passes it on


@dataclass(kw_only=True)
class NodeGroup:
    """A group as the autoscaler sees it in one loop. ``fault``: why its bounds are not readable."""

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
        return f"{self.namespace}/{self.name}"

    @property
    def running(self) -> int:
        return sum(machine.node for machine in self.machines)


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
_MANAGER = "cluster-autoscaler"
#: its status ConfigMap
STATUS = ("configmaps", "kube-system", "cluster-autoscaler-status")
_EXHAUSTED = "ResourceExhausted"  # the code that Gardener's provider, which has its groups from flags, passes on
_CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
#: either of these says what a node has; OpenShift wrote the second before there was the first
_CAPACITY_ANNOTATIONS = (
    {f"{_CAPACITY}cpu", f"{_CAPACITY}memory"},
    {"machine.openshift.io/vCPU", "machine.openshift.io/memoryMb"},
)


def pool_of(item: Object, flavour: Flavoured) -> str:
    """The pool that a scalable's labels name; its own name when there is none."""
    labels = item["metadata"].get("labels") or {}
    own = labels.get(flavour.pool_label) if flavour.pool_label else None
    return str(labels.get(POOL_LABEL) or own or item["metadata"]["name"])


def knows_its_nodes(item: Object, flavour: str, store: Store) -> bool:
    """Whether cpu and memory of a scalable's nodes are known where none runs.

    From the scalable's annotations, from Cluster API's machine template, or from Gardener's machine class.
    """
    annotations = item["metadata"].get("annotations") or {}
    if any(annotations.keys() >= keys for keys in _CAPACITY_ANNOTATIONS):
        return True
    namespace, spec = item["metadata"]["namespace"], ((item["spec"].get("template") or {}).get("spec")) or {}
    try:
        if flavour == "gardener":
            machine_class = store.get("machineclasses.machine.sapcloud.io", namespace, spec["class"]["name"])
            capacity = (machine_class.get("nodeTemplate") or {}).get("capacity") or {}
        elif flavour == "cluster-api":
            name = spec["infrastructureRef"]["name"]
            template = store.get("awsmachinetemplates.infrastructure.cluster.x-k8s.io", namespace, name)
            capacity = (template.get("status") or {}).get("capacity") or {}
        else:
            capacity = {}
    except (ApiError, KeyError):
        return False
    return bool(capacity.keys() >= {"cpu", "memory"})


@dataclass(kw_only=True)
class ClusterAutoscaler:
    """One actor per cluster; `step` is one loop of the real one."""

    store: Store
    controllers: MachineControllers
    flags: model.Flags = field(default_factory=model.Flags)
    seed: int = 0
    #: pods that fit any zone of a pool, and pods bound to one zone
    demand: dict[tuple[str, str | None], int] = field(default_factory=dict)
    #: why the last loop saw no groups at all; None when it saw them
    blind: str | None = None
    #: what went wrong in the last loop
    errors: list[str] = field(default_factory=list)
    #: whether it writes its status ConfigMap after each loop
    writes_status: bool = False

    def __post_init__(self) -> None:
        self._flavour = FLAVOURS[self.controllers.flavour]
        self._start()

    def _start(self) -> None:
        """As the process starts: nothing is remembered."""
        self._arguments = self.controllers.autoscaler_arguments()
        # what a controller's arguments leave out is off, as in the real one; without any, `flags` hold
        given = dict(argument.removeprefix("--").partition("=")[::2] for argument in self._arguments or ())
        flags = self.flags
        if "balance-similar-node-groups" in given or "cloud-provider" in given:
            flags = replace(flags, balance=given.get("balance-similar-node-groups") == "true")
        if "scale-down-enabled" in given:
            flags = replace(flags, scale_down=given["scale-down-enabled"] == "true")
        if "max-nodes-total" in given:
            flags = replace(flags, most_nodes=int(given["max-nodes-total"]))
        self.in_force = flags
        self.model = model.ClusterAutoscaler[NodeGroup](flags, seed=self.seed)

    def set_demand(self, pool: str, pods: int, zone: str | None = None) -> None:
        """How many pods want a node of a pool, bound to `zone` or to none."""
        if pods < 0:
            raise ValueError(f"demand {pods} of pool {pool}: negative")
        self.demand[(pool, zone)] = pods

    def pending(self, pool: str) -> int:
        """Pods of a pool that have no node."""
        groups = [group for group in self.groups() if group.pool == pool]
        bound = {zone: pods for (name, zone), pods in self.demand.items() if name == pool and zone is not None}
        free, waiting = 0, 0
        for zone in {group.zone for group in groups} | set(bound):
            nodes = sum(group.running for group in groups if group.zone == zone)
            waiting += max(0, bound.get(zone, 0) - nodes)
            free += max(0, nodes - bound.get(zone, 0))
        return waiting + max(0, self.demand.get((pool, None), 0) - free)

    def step(self, now: datetime) -> None:
        """One loop: read the groups, and do what the model says of them. Other arguments are a start anew."""
        self.errors = []
        if self.controllers.autoscaler_arguments() != self._arguments:
            self._start()
        if self._arguments is None:
            self.blind = "it does not run"
            return
        groups = self.groups()
        if nodes_flags(self._arguments):  # a group that no flag names, or with max 0, is none
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
        """Write which groups are backed off, and why (clusterstate/api/types.go), if that has changed."""
        kind = self.store.resource(self._flavour.scalables).kind
        said = []
        for group in groups:
            of_flags = self.controllers.flavour == "gardener"
            name = f"{group.namespace}.{group.name}" if of_flags else f"{kind}/{group.key}"
            backoff = self.model.backoff_of(group.key, now.timestamp())
            scale_up: dict[str, object] = {"status": "NoActivity"}
            if backoff is not None:
                since = datetime.fromtimestamp(backoff.since, UTC).isoformat()
                info = {"errorCode": backoff.code, "errorMessage": f"{backoff.code}: {group.key}"}
                scale_up = {"status": "Backoff", "lastTransitionTime": since, "backoffInfo": info}
            said.append({"name": name, "scaleUp": scale_up})
        status = {"data": {"status": yaml.safe_dump({"autoscalerStatus": "Running", "nodeGroups": said})}}
        try:
            if STATUS[2] not in self.store.names(STATUS[0]):
                metadata = {"namespace": STATUS[1], "name": STATUS[2]}
                self.store.create(STATUS[0], {"metadata": metadata, **status}, manager=_MANAGER)
            elif self.store.get(*STATUS)["data"] != status["data"]:
                self.store.patch(*STATUS, status, manager=_MANAGER)
        except ApiError as error:
            self.errors.append(f"status: {error}")

    def _actions(self, groups: list[NodeGroup], now: float) -> Iterator[model.Action[NodeGroup]]:
        for group in groups:
            if group.readable_bounds and (refused := sum(machine.refused for machine in group.machines)):
                yield from self.model.hear_refusal(group, refused, now)
        yield from self.model.loop(groups, self.demand, now)

    def groups(self) -> list[NodeGroup]:
        """The node groups that are not paused, as they stand now."""
        machines = self._machines_by_owner()
        flags = nodes_flags(self.controllers.autoscaler_arguments() or ())
        groups = []
        for item in self.store.list(self._flavour.scalables):
            metadata = item["metadata"]
            annotations = metadata.get("annotations") or {}
            if f"{self._flavour.prefix}/paused" in annotations:
                continue
            bounds, fault = None, ""
            if flags:
                bounds = flags.get(f"{metadata['namespace']}.{metadata['name']}")
            else:
                try:
                    bounds = read_bounds(annotations, self._flavour.prefix)
                except BoundsError as error:
                    fault = str(error)
            members = machines.get(metadata["uid"], [])
            flavour = self.controllers.flavour
            groups.append(
                NodeGroup(
                    name=metadata["name"],
                    namespace=metadata["namespace"],
                    pool=self.controllers.pool_of(item) or pool_of(item, self._flavour),
                    zone=self.controllers.zone_of((item["spec"].get("template") or {}).get("spec") or {}),
                    requested=item["spec"].get("replicas", 0),
                    readable_bounds=bounds,
                    fault=fault,
                    has_template=any(machine.node for machine in members) or knows_its_nodes(item, flavour, self.store),
                    machines=members,
                )
            )
        return groups

    def _machines_by_owner(self) -> dict[str, list[Machine]]:
        """Machines by the uid of their scalable, oldest first."""
        scalables: dict[str, str] = {}
        for machine_set in self.store.list(f"machinesets.{self.controllers.group}"):
            for owner in machine_set["metadata"].get("ownerReferences") or ():
                scalables[machine_set["metadata"]["uid"]] = owner["uid"]
        machines: dict[str, list[Machine]] = {}
        for item in self.store.list(self._flavour.machines):
            metadata = item["metadata"]
            if "deletionTimestamp" in metadata:
                continue
            machine = Machine(
                name=metadata["name"],
                created=parse_time(metadata["creationTimestamp"]).timestamp(),
                node=self.controllers.has_node(item),
                refused=(item.get("status") or {}).get("lastOperation", {}).get("errorCode") == _EXHAUSTED
                and bool(self._arguments),
            )
            for owner in metadata.get("ownerReferences") or ():
                machines.setdefault(scalables.get(owner["uid"], owner["uid"]), []).append(machine)
        for members in machines.values():
            members.sort(key=lambda machine: (machine.created, machine.name))
        return machines

    def _increase(self, group: NodeGroup, nodes: int) -> None:
        """A live read of the scale and an unversioned write of it: whatever was written in between is overwritten."""
        assert group.readable_bounds is not None
        live = self.store.scale_of(self._flavour.scalables, group.namespace, group.name)["spec"]["replicas"]
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
        mark = {"metadata": {"annotations": self._flavour.mark(now)}}
        try:
            self.store.patch(self._flavour.machines, group.namespace, machine.name, mark, manager=_MANAGER)
        except ApiError as error:
            self.errors.append(f"{group.key}: {error}")
            return
        if self._write_size(group, group.requested - 1):
            group.requested -= 1
            group.machines = [other for other in group.machines if other != machine]

    def _write_size(self, group: NodeGroup, size: int) -> bool:
        try:
            self.store.scale(self._flavour.scalables, group.namespace, group.name, size, manager=_MANAGER)
        except ApiError as error:
            self.errors.append(f"{group.key}: {error}")
            return False
        return True
