"""The facts that each flavour states of its machine API. A flavour that omits a required one cannot be constructed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any, NamedTuple

from evenkeel.adapters.kubernetes.objects import (
    Kind,
    Object,
    Path,
    Reading,
    Scalable,
    annotations_of,
    condition_of,
    get_path,
    is_being_deleted,
)
from evenkeel.adapters.kubernetes.owners.base import BoundKeys, BoundsOwner, CapOwner, ReplicasOwner
from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.offerings import Bought
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate

TEMPLATE_LABELS: Path = ("spec", "template", "metadata", "labels")
NVIDIA_GPU = "nvidia.com/gpu"
ARCH_LABEL, OS_LABEL = "kubernetes.io/arch", "kubernetes.io/os"
_OURS = "evenkeel"


class Joined(NamedTuple):
    """How far a machine has come."""

    has_node: bool
    ready: bool  # False where its node is reported unhealthy


@dataclass(frozen=True)
class Reference:
    """The object, in the group's own namespace, that describes a group's nodes."""

    kind: Kind  # without versions: any that is served
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


@dataclass(frozen=True, kw_only=True)
class InstancePool:
    """A kind of scalable whose machines are the cloud's own, such as an auto-scaling group.

    The provider chooses the machine that goes when replicas fall, and reports machines only once they exist. So none
    of them has failed, and lowering replicas could remove a node.
    """

    kind: str
    domains: Path  # the zones that it spans
    members: Path  # its machines
    nodes: Path  # the machines that have joined
    left_out: Callable[[Object], Reason | None]  # why it is no node group, although it has bounds


class DeleteMark(NamedTuple):
    """The annotation that makes a machine go first."""

    annotation: str
    value: str = _OURS

    @property
    def is_ours(self) -> bool:
        """Return True where any value marks, so that Evenkeel's own value names its author."""
        return self.value == _OURS

    def marks(self, machine: Object) -> bool:
        """Return True where the machine goes first."""
        value = annotations_of(machine).get(self.annotation)
        return bool(value) if self.is_ours else value == self.value

    def is_set_on(self, machine: Object) -> bool:
        """Return True where the machine has exactly this mark."""
        return bool(annotations_of(machine).get(self.annotation) == self.value)


@dataclass(frozen=True, kw_only=True)
class Machines:
    """How the API's machines are found and read."""

    kind: Kind
    labels: Mapping[str, str]  # kind of scalable -> label of its machines; without one, machines name a controller
    mark: DeleteMark
    joined: Callable[[Object], Joined]
    launched_at: Callable[[Object], datetime | None]  # when the provider last launched a machine
    failure: Callable[[Object], MachineFailure | None]  # the provider's answer to a launch that failed
    is_preserved: Callable[[Object, datetime], bool] | None = None  # it stays when replicas fall, marked or not
    preserved_failed: Path | None = None  # the scalable's count of preserved machines that have failed


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """How Cluster Autoscaler handles the API's groups. The first five are annotations with a group's options."""

    provision_timeout: str
    unneeded_time: str
    unready_time: str
    utilization_threshold: str
    gpu_utilization_threshold: str
    keeps_options: bool = True  # False: the API's controllers remove options that they have not set
    status_name: str = "{kind}/{namespace}/{name}"  # a group's name in cluster-autoscaler-status
    namespace: str | None = None  # of the autoscaler that comes with the API; None: kube-system
    discovers_groups: bool = True  # False: its flags name the groups

    @classmethod
    def of_group(cls, group: str, namespace: str | None = None) -> "Autoscaler":
        """Return the options' names in an API group (cloudprovider/clusterapi/clusterapi_utils.go:326-352)."""
        prefix = f"{group}/autoscaling-options"
        return cls(
            provision_timeout=f"{prefix}-maxnodeprovisiontime",
            unneeded_time=f"{prefix}-scaledownunneededtime",
            unready_time=f"{prefix}-scaledownunreadytime",
            utilization_threshold=f"{prefix}-scaledownutilizationthreshold",
            gpu_utilization_threshold=f"{prefix}-scaledowngpuutilizationthreshold",
            namespace=namespace,
        )


@dataclass(frozen=True, kw_only=True)
class Owners:
    """The classes that read the owners of bounds, replicas and the cluster's size."""

    bounds: tuple[type[BoundsOwner], ...]  # the first that claims a scalable; the last one, Annotations, claims all
    replicas: type[ReplicasOwner] | None = None
    cap: type[CapOwner] | None = None
    former_keys: BoundKeys | None = None  # annotations of an API that groups may come from; no autoscaler reads them


@dataclass(frozen=True, kw_only=True)
class GroupPaths:
    """Where a scalable names its pool, cluster and zone."""

    zones: tuple[Path, ...]
    clusters: tuple[Path, ...] = ()
    pool_label: str | None = None
    pools: tuple[Path, ...] = ()  # of the pool's name, besides the label


@dataclass(frozen=True, kw_only=True)
class NodeTemplateSource:
    """An object, other than the scalable, that describes its nodes."""

    path: Path  # of the scalable's reference to it
    reference: Callable[[Any], Reference | None]  # None where the reference cannot be followed
    holds: Callable[[str, str, str], bool]  # True where an API group, version and kind is such an object
    read: Callable[[Object, Reading], NodeTemplate]


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """What a group's nodes look like, and how the cloud sells them."""

    template: NodeTemplateSource | None = None
    bought: Callable[[Object], Bought | None]  # read from the template's object; without one, from the scalable
    labels: Path  # labels that its nodes get
    label_domains: tuple[str, ...] = ()  # only labels of these domains; with a leading dot, of those below; empty: all
    taints: Path = ("spec", "template", "spec", "taints")
    # Annotation after capacity.cluster-autoscaler.kubernetes.io/ -> its older name, and the function that reads it.
    older_capacity: Mapping[str, tuple[str, Callable[[object], Fraction]]] = field(default_factory=dict)
    gpu: str | None = None  # the resource that GPUs count as, where no annotation names one


FreezeRule = Callable[[Scalable], Reason | None]
"""Returns the reason why a scalable must not be written now, or None."""


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """One machine API."""

    name: str
    group: str
    provider_groups: tuple[str, ...] = ()  # API groups of its providers' objects
    scalables: tuple[Kind, ...]
    instance_pool: InstancePool | None = None  # one of the scalables
    cluster: Kind | None = None  # the workload cluster's object, which pauses its groups
    absent_replicas: int | None  # the meaning of a missing spec.replicas; None: not defaulted yet
    freeze_rules: tuple[FreezeRule, ...]  # the first reason counts
    owners: Owners
    paths: GroupPaths
    machines: Machines
    autoscaler: Autoscaler
    nodes: Nodes

    @property
    def is_of_sets(self) -> bool:
        """Return True where every MachineSet is a node group, also one with an owner."""
        return all(kind.kind != "MachineDeployment" for kind in self.scalables)

    @property
    def bound_keys(self) -> BoundKeys:
        """Return the annotations of a group's min and max."""
        return bound_keys_of(self.group)

    @property
    def min_key(self) -> str:
        """Return the annotation that Cluster Autoscaler reads a group's min from."""
        return self.bound_keys.min

    @property
    def max_key(self) -> str:
        """Return the annotation that Cluster Autoscaler reads a group's max from."""
        return self.bound_keys.max

    @property
    def companions(self) -> tuple[Kind, ...]:
        """Return the kinds that are listed with the scalables: the Cluster, and owners of bounds, replicas and size."""
        owners = (*self.owners.bounds, self.owners.replicas, self.owners.cap)
        kinds = (self.cluster, *(owner.kind for owner in owners if owner is not None))
        return tuple(dict.fromkeys(kind for kind in kinds if kind is not None))

    @property
    def copies(self) -> tuple[Kind, ...]:
        """Return the kinds that repeat what companions say. They are read from files only; no check lists them."""
        owner = self.owners.replicas
        kinds = (owner.copy_kind, owner.source_kind) if owner else ()
        return tuple(kind for kind in kinds if kind is not None)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return every kind that a check lists, machines aside."""
        return self.scalables + self.companions


def bound_keys_of(group: str) -> BoundKeys:
    """Return the annotations of min and max that Cluster Autoscaler reads for this API group."""
    low, high = (f"{group}/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
    return BoundKeys(low, high)


def being_deleted(scalable: Scalable) -> Reason | None:
    """Freeze a scalable that is being deleted, in every API."""
    return Reason.of(Rule.OBJECT_BEING_DELETED) if is_being_deleted(scalable.item) else None


def paused(scalable: Scalable) -> Reason | None:
    """Freeze a scalable whose controller is paused."""
    is_paused = get_path(scalable.item, ("spec", "paused")) is True or "cluster.x-k8s.io/paused" in scalable.annotations
    return Reason.of(Rule.OBJECT_PAUSED) if is_paused else None


def rolling(scalable: Scalable) -> Reason | None:
    """Freeze a MachineDeployment of which more than one MachineSet has machines: a rollout.

    Cluster Autoscaler recognizes it the same way (clusterapi_nodegroup.go:531-587).
    """
    replicas = (("spec", "replicas"), ("status", "replicas"))
    holding = sum(any(get_path(item, path) for path in replicas) for item in scalable.sets)
    return Reason.of(Rule.ROLLING_SETS, sets=holding) if holding > 1 else None


def joined_by_node_ref(machine: Object) -> Joined:
    """Read a machine that names its node, and whose condition NodeHealthy describes it."""
    health = condition_of(machine, ("status", "conditions"), "NodeHealthy")
    return Joined(
        has_node=get_path(machine, ("status", "nodeRef", "name")) is not None,
        ready=health is None or health.get("status") != "False",
    )
