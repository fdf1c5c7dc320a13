"""What every flavour states of its machine API. A flavour that leaves something out cannot be made.

Annotations: cluster-autoscaler cloudprovider/clusterapi/clusterapi_utils.go:326-352.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from typing import Any, NamedTuple

from evenkeel.adapters.kubernetes.objects import Kind, Object, Path, Reading, Scalable, condition_of, get_path
from evenkeel.adapters.kubernetes.owners.base import BoundKeys, BoundsOwner, CapOwner, ReplicasOwner
from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.offerings import Bought
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate

TEMPLATE_LABELS: Path = ("spec", "template", "metadata", "labels")
NVIDIA_GPU = "nvidia.com/gpu"
ARCH_LABEL, OS_LABEL = "kubernetes.io/arch", "kubernetes.io/os"


class Joined(NamedTuple):
    """How far a machine has come."""

    has_node: bool
    ready: bool  # nothing says that its node is unwell


@dataclass(frozen=True)
class Reference:
    """The object that says what a group's nodes look like. It stands in the group's own namespace."""

    kind: Kind  # without versions: any that is served
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


@dataclass(frozen=True, kw_only=True)
class InstancePool:
    """A kind of scalable whose machines are the cloud's own: an auto-scaling group and its like.

    The provider decides which of them goes when replicas fall, and reports them once they are there. So there are no
    failed ones, and none may be given up that is: a node could go in its place.
    """

    kind: str
    domains: Path  # the zones that it is spread over
    members: Path  # the machines that there are
    nodes: Path  # those that are nodes
    left_out: Callable[[Object], Reason | None]  # why it is no node group, for all its bounds


@dataclass(frozen=True, kw_only=True)
class NodeTemplateSource:
    """Another object than the scalable that says what its nodes look like."""

    path: Path  # where the scalable refers to it
    reference: Callable[[Any], Reference | None]  # of what stands there; None where it cannot be followed
    holds: Callable[[str, str, str], bool]  # whether objects of this API group, version and kind are such sources
    read: Callable[[Object, Reading], NodeTemplate]


FreezeRule = Callable[[Scalable], Reason | None]
"""Why a scalable must not be written now, or None."""


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """One machine API."""

    name: str
    group: str
    provider_groups: tuple[str, ...] = ()  # API groups of the objects that stand behind its machines
    scalables: tuple[Kind, ...]
    machine: Kind
    instance_pool: InstancePool | None = None  # which of the scalables is one
    cluster: Kind | None = None  # the object of the workload cluster: read besides, and paused with its groups
    # The first that claims a scalable owns its bounds; the last of them, Annotations, claims every one.
    bounds_owners: tuple[type[BoundsOwner], ...]
    replicas_owner: type[ReplicasOwner] | None = None
    former_bound_keys: BoundKeys | None = None  # annotations of an API that groups may come from, and nobody reads here
    cap_owner: type[CapOwner] | None = None
    pool_label: str | None = None  # the flavour's own
    pool_paths: tuple[Path, ...] = ()  # where it stands besides metadata.labels
    cluster_paths: tuple[Path, ...] = ()  # the workload cluster's name
    zone_paths: tuple[Path, ...]
    absent_replicas: int | None  # what a missing spec.replicas means; None: not defaulted yet
    freeze_rules: tuple[FreezeRule, ...]  # the first that gives a reason is told
    machine_labels: Mapping[str, str]  # kind of scalable -> label of its machines; not named: by their controller
    mark: tuple[str, str]  # annotation that makes a machine go first
    joined: Callable[[Object], Joined]
    launched_at: Callable[[Object], datetime | None]  # when the provider last made a machine
    failure: Callable[[Object], MachineFailure | None]  # how the provider refused a machine
    is_preserved: Callable[[Object, datetime], bool] | None = None  # whether it stays when replicas fall, mark or not
    preserved_failed: Path | None = None  # where the scalable counts such machines that have failed
    provision_timeout: str  # annotation with Cluster Autoscaler's max-node-provision-time of the group
    keeps_options: bool = True  # False: its controllers take off such annotations that they have not set
    unneeded_time: str  # annotation with its scale-down-unneeded-time
    unready_time: str  # annotation with its scale-down-unready-time
    utilization_threshold: str  # annotation with its scale-down-utilization-threshold
    gpu_utilization_threshold: str  # annotation with its scale-down-gpu-utilization-threshold
    status_name: str  # what cluster-autoscaler-status calls a group of this {kind}, {namespace} and {name}
    autoscaler_namespace: str | None = None  # where the autoscaler that comes with it signs; None: in kube-system
    discovers_groups: bool = True  # Cluster Autoscaler finds the scalables itself; False: its flags name them
    node_template: NodeTemplateSource | None = None
    # What a group buys: from the object of node_template, or where the flavour has none from the scalable itself.
    bought: Callable[[Object], Bought | None]
    node_labels: Path  # labels that its nodes get
    # Only those of these domains, and with a leading dot of those below as well; none named: all.
    node_label_domains: tuple[str, ...] = ()
    node_taints: Path = ("spec", "template", "spec", "taints")
    # Annotation after capacity.cluster-autoscaler.kubernetes.io/ -> its older name, and how that is read.
    older_capacity: Mapping[str, tuple[str, Callable[[object], Fraction]]] = field(default_factory=dict)
    gpu: str | None = None  # the resource that GPUs are counted as, where no annotation says

    @property
    def is_of_sets(self) -> bool:
        """Whether MachineSets are node groups of their own, whoever owns them."""
        return all(kind.kind != "MachineDeployment" for kind in self.scalables)

    @property
    def mark_is_ours(self) -> bool:
        """Whether any value marks, so that ours can tell that we set it, and not Cluster Autoscaler."""
        return self.mark[1] == "evenkeel"

    def is_marked(self, annotations: Mapping[str, Any]) -> bool:
        """Whether a machine with these annotations goes first."""
        key, value = self.mark
        return bool(annotations.get(key)) if self.mark_is_ours else annotations.get(key) == value

    @property
    def bound_keys(self) -> BoundKeys:
        """The annotations of a group's min and max."""
        return bound_keys_of(self.group)

    @property
    def min_key(self) -> str:
        """Annotation that Cluster Autoscaler reads a group's min from."""
        return self.bound_keys.min

    @property
    def max_key(self) -> str:
        """Annotation that Cluster Autoscaler reads a group's max from."""
        return self.bound_keys.max

    @property
    def companions(self) -> tuple[Kind, ...]:
        """Read with the scalables: they own numbers, bounds or replicas, or say that all is paused."""
        others = (self.replicas_owner, self.cap_owner)
        owners = (*self.bounds_owners, *(owner for owner in others if owner is not None))
        kinds = (self.cluster, *(owner.kind for owner in owners))
        return tuple(dict.fromkeys(kind for kind in kinds if kind is not None))

    @property
    def copies(self) -> tuple[Kind, ...]:
        """Say what companions say, and are read where somebody hands them in: no look lists them."""
        owner = self.replicas_owner
        kinds = (owner.copy_kind, owner.source_kind) if owner else ()
        return tuple(kind for kind in kinds if kind is not None)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Everything that one look lists, machines aside."""
        return self.scalables + self.companions


def bound_keys_of(group: str) -> BoundKeys:
    """The annotations of a group's min and max that Cluster Autoscaler reads for this API group."""
    low, high = (f"{group}/cluster-api-autoscaler-node-group-{end}-size" for end in ("min", "max"))
    return BoundKeys(low, high)


def being_deleted(scalable: Scalable) -> Reason | None:
    """A freeze rule of every API."""
    is_going = get_path(scalable.item, ("metadata", "deletionTimestamp")) is not None
    return Reason.of(Rule.OBJECT_BEING_DELETED) if is_going else None


def paused(scalable: Scalable) -> Reason | None:
    """A freeze rule: the controller of the scalable does nothing now."""
    is_paused = get_path(scalable.item, ("spec", "paused")) is True or "cluster.x-k8s.io/paused" in scalable.annotations
    return Reason.of(Rule.OBJECT_PAUSED) if is_paused else None


def rolling(scalable: Scalable) -> Reason | None:
    """A freeze rule of MachineDeployments: more than one MachineSet still has machines.

    Kubernetes' own way to see a rollout (cluster-autoscaler clusterapi_nodegroup.go:531-587).
    """
    holding = sum(
        bool((get_path(item, ("spec", "replicas")) or 0) or (get_path(item, ("status", "replicas")) or 0))
        for item in scalable.sets
    )
    return Reason.of(Rule.ROLLING_SETS, sets=holding) if holding > 1 else None


def joined_by_node_ref(machine: Object) -> Joined:
    """For APIs whose machines name their node, and say in condition NodeHealthy how it is doing."""
    health = condition_of(machine, ("status", "conditions"), "NodeHealthy")
    return Joined(
        has_node=get_path(machine, ("status", "nodeRef", "name")) is not None,
        ready=health is None or health.get("status") != "False",
    )
