"""The facts that each flavour declares about its machine API. A flavour without a required fact cannot be created."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from evenkeel.adapters.kubernetes.fields import read_fields
from evenkeel.adapters.kubernetes.machine_object import DeleteMark, MachineObject
from evenkeel.adapters.kubernetes.objects import Kind, Object, Path, Scalable, get_path, is_being_deleted
from evenkeel.adapters.kubernetes.owners.base import BoundKeys, BoundsOwner, CapOwner, ReplicasOwner
from evenkeel.adapters.own_annotations import Reading
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate

TEMPLATE_LABELS: Path = ("spec", "template", "metadata", "labels")
NVIDIA_GPU = "nvidia.com/gpu"
ARCH_LABEL, OS_LABEL = "kubernetes.io/arch", "kubernetes.io/os"


@dataclass(frozen=True)
class Reference:
    """A reference to the object, in the group's namespace, that describes the group's nodes."""

    kind: Kind  # a kind without versions means any served version
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


@dataclass(frozen=True, kw_only=True)
class InstancePool:
    """A kind of scalable whose machines the cloud manages, such as an Auto Scaling group.

    When replicas fall, the provider chooses the machine that is deleted. The provider reports only machines that exist.
    So no reported machine has failed, and lower replicas could remove a running node.
    """

    kind: str
    domains: Path  # the path of the zones that the pool spans
    members: Path  # the path of the pool's machines
    nodes: Path  # the path of the machines that have become nodes
    left_out: Callable[[Object], Reason | None]  # returns why an object with bounds is no node group; else None


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The facts that Evenkeel needs to find and read the API's machines."""

    kind: Kind
    shape: type[MachineObject]  # the fields of a machine
    # The label by which a machine names its scalable, by kind of scalable. A kind without a label is the controller of
    # its machines.
    labels: Mapping[str, str]
    mark: DeleteMark
    creation_timeouts: tuple[Path, ...] = ()  # in a scalable: how long the machine controller waits for a node
    preserved_failed: Path | None = None  # the path of the scalable's count of preserved machines that have failed

    def read(self, item: Object) -> MachineObject:
        """Return the fields of a machine. A field with a value of a wrong type is logged, and counts as missing."""
        return read_fields(self.shape, item)

    def scalable_of(self, machine: MachineObject, kind: str) -> str | None:
        """Return the name of the machine's scalable of this kind: from the machine's label, else of its controller."""
        label = self.labels.get(kind)
        if label is not None:
            name = machine.metadata.labels.get(label)
            return name if isinstance(name, str) else None
        controller = machine.controller()
        return controller.name if controller is not None and controller.kind == kind else None


@dataclass(frozen=True, kw_only=True)
class Autoscaler:
    """How Cluster Autoscaler handles the API's groups. The first five fields are annotations with a group's options."""

    provision_timeout: str
    unneeded_time: str
    unready_time: str
    utilization_threshold: str
    gpu_utilization_threshold: str
    status_name: str = "{kind}/{namespace}/{name}"  # a group's name in cluster-autoscaler-status
    namespace: str | None = None  # the namespace of the API's own autoscaler; None: kube-system
    discovers_groups: bool = True  # False: the autoscaler's flags name the groups

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

    # The order matters, because the first class that claims a scalable owns its bounds. The last class, Annotations,
    # claims all.
    bounds: tuple[type[BoundsOwner], ...]
    replicas: type[ReplicasOwner] | None = None
    cap: type[CapOwner] | None = None
    # The former API's annotations of bounds, which a migrated group may still have. In this API, no autoscaler reads
    # these annotations.
    former_keys: BoundKeys | None = None
    # Functions that return a note where another tool writes the scalable and its bounds, else None.
    managers: tuple[Callable[[Scalable], Reason | None], ...] = ()


@dataclass(frozen=True, kw_only=True)
class GroupPaths:
    """The paths in a scalable of its pool, its cluster and its zone."""

    zones: tuple[Path, ...]
    clusters: tuple[Path, ...] = ()
    pool_label: str | None = None  # a label of the scalable or of its nodes


@dataclass(frozen=True, kw_only=True)
class NodeTemplateSource:
    """An object, other than the scalable, that describes the nodes of the scalable."""

    path: Path  # the path of the scalable's reference to the object
    reference: Callable[[Any], Reference | None]  # returns None where the reference cannot be followed
    # Returns True where objects of this API group, version and kind describe nodes.
    holds: Callable[[str, str, str], bool]
    read: Callable[[Object, Reading], NodeTemplate]


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """The sources of a group's node template."""

    template: NodeTemplateSource | None = None
    labels: Path  # the path of the labels that nodes get
    # Only labels of these domains reach nodes. A leading dot includes subdomains. Empty: all labels reach nodes.
    label_domains: tuple[str, ...] = ()
    taints: Path = ("spec", "template", "spec", "taints")
    # The older name of an annotation, and the function that reads the older annotation's value. The key is the end of
    # the newer name, after capacity.cluster-autoscaler.kubernetes.io/.
    older_capacity: Mapping[str, tuple[str, Callable[[object], Fraction]]] = field(default_factory=dict)
    gpu: str | None = None  # the resource name of GPUs, where no annotation names one


FreezeRule = Callable[[Scalable], Reason | None]
"""Returns the reason why a scalable must not be written now, or None."""


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """One machine API."""

    name: str
    group: str
    provider_groups: tuple[str, ...] = ()  # the API groups of its infrastructure providers' objects
    scalables: tuple[Kind, ...]
    instance_pool: InstancePool | None = None  # the kind among ``scalables`` that is an instance pool
    cluster: Kind | None = None  # the kind of the workload cluster's object, which can pause the cluster's groups
    # The replicas of a scalable without spec.replicas. None: unknown until the API server sets the default.
    absent_replicas: int | None
    freeze_rules: tuple[FreezeRule, ...]  # the first reason that a rule returns is used
    owners: Owners
    paths: GroupPaths
    machines: Machines
    autoscaler: Autoscaler
    nodes: Nodes

    @property
    def is_of_sets(self) -> bool:
        """Return True if the API has no MachineDeployment. Every MachineSet is then a node group, even if owned."""
        return all(kind.kind != "MachineDeployment" for kind in self.scalables)

    @property
    def bound_keys(self) -> BoundKeys:
        """Return the annotations of a group's min and max."""
        return bound_keys_of(self.group)

    @property
    def min_key(self) -> str:
        """Return the annotation from which Cluster Autoscaler reads a group's min."""
        return self.bound_keys.min

    @property
    def max_key(self) -> str:
        """Return the annotation from which Cluster Autoscaler reads a group's max."""
        return self.bound_keys.max

    @property
    def companions(self) -> tuple[Kind, ...]:
        """Return the kinds that are listed with the scalables: the Cluster, and owners of bounds, replicas and size."""
        owners = (*self.owners.bounds, self.owners.replicas, self.owners.cap)
        kinds = (self.cluster, *(owner.kind for owner in owners if owner is not None))
        return tuple(dict.fromkeys(kind for kind in kinds if kind is not None))

    @property
    def copies(self) -> tuple[Kind, ...]:
        """Return the kinds that repeat values of the companions. No check lists such objects; files may have them."""
        owner = self.owners.replicas
        kinds = (owner.copy_kind, owner.source_kind) if owner else ()
        return tuple(kind for kind in kinds if kind is not None)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return every kind that a check lists, except machines."""
        return self.scalables + self.companions


def bound_keys_of(group: str) -> BoundKeys:
    """Return the annotations of min and max that Cluster Autoscaler reads for this API group."""
    low, high = (f"{group}/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
    return BoundKeys(low, high)


def being_deleted(scalable: Scalable) -> Reason | None:
    """Return the reason why Evenkeel must not write a scalable that is being deleted; else None."""
    return Reason.of(Rule.OBJECT_BEING_DELETED) if is_being_deleted(scalable.item) else None


def paused(scalable: Scalable) -> Reason | None:
    """Return the reason why Evenkeel must not write a scalable that is paused; else None.

    The annotation stops its controllers. ``spec.paused`` stops only rollouts: the controllers of MachineDeployments
    (Cluster API, machine-controller-manager) still follow its replicas.
    """
    if "cluster.x-k8s.io/paused" in scalable.annotations:
        return Reason.of(Rule.OBJECT_PAUSED)
    return Reason.of(Rule.ROLLOUTS_PAUSED) if get_path(scalable.item, ("spec", "paused")) is True else None


def rolling(scalable: Scalable) -> Reason | None:
    """Return the reason why Evenkeel must not write a MachineDeployment during a rollout; else None.

    A rollout is in progress while more than one of its MachineSets has machines. Cluster Autoscaler applies the same
    rule (clusterapi_nodegroup.go:531-587).
    """
    replicas = (("spec", "replicas"), ("status", "replicas"))
    holding = sum(any(get_path(item, path) for path in replicas) for item in scalable.sets)
    return Reason.of(Rule.ROLLING_SETS, sets=holding) if holding > 1 else None
