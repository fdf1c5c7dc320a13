"""The pods, nodes, volumes and disruption budgets of a workload cluster, reduced to the fields that scheduling reads.

Names follow the Kubernetes API. Amounts are exact, in the resource's base unit (cores, bytes, pieces).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from fractions import Fraction

from evenkeel.domain.model.groups import GroupKey, Machine
from evenkeel.domain.model.templates import Taint

Amounts = Mapping[str, Fraction]

HOSTNAME = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
DEFAULT_SCHEDULER = "default-scheduler"
# Names of kube-scheduler profiles with the default filters. Gardener's bin packing only scores nodes differently
# (gardener/gardener, pkg/component/kubernetes/scheduler/templates).
SCHEDULERS = frozenset({DEFAULT_SCHEDULER, "bin-packing-scheduler"})

# The longest grace period of the node controller. Once it has passed, the node controller has noticed even a kubelet
# that stopped right after its start.
FIRST_MINUTES = timedelta(minutes=5)


@dataclass(frozen=True)
class Requirement:
    """One expression of a selector. ``matchLabels`` and ``nodeSelector`` are read as ``In`` with one value."""

    key: str
    operator: str  # In, NotIn, Exists, DoesNotExist; in node selectors also Gt, Lt
    values: tuple[str, ...] = ()


Selector = tuple[Requirement, ...]
"""Requirements that must all match. An empty selector matches everything; None, the API's null, matches nothing."""


@dataclass(frozen=True)
class NodeSelectorTerm:
    """One term of a node selector: ``matchExpressions`` and ``matchFields``."""

    expressions: Selector = ()
    fields: Selector = ()


@dataclass(frozen=True)
class Toleration:
    """One toleration. An empty operator means Equal. An empty key or effect matches every key or effect."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True)
class HostPort:
    """A host port of a container. An empty address means every address."""

    port: int
    protocol: str = "TCP"
    address: str = ""


@dataclass(frozen=True, kw_only=True)
class Container:
    """A container, or an init container."""

    name: str = ""
    requests: Amounts = field(default_factory=dict)
    ports: tuple[HostPort, ...] = ()
    stays: bool = False  # True: a sidecar, an init container with restartPolicy Always
    running_with: Amounts | None = None  # resources.requests of the container's status; None: there is no status yet
    allocated: Amounts | None = None  # allocatedResources of the container's status


@dataclass(frozen=True, kw_only=True)
class TopologySpreadConstraint:
    """A required topology spread constraint (``whenUnsatisfiable: DoNotSchedule``)."""

    key: str
    max_skew: int
    selector: Selector | None
    min_domains: int = 1
    honors_affinity: bool = True  # True: nodeAffinityPolicy is Honor
    honors_taints: bool = False  # True: nodeTaintsPolicy is Honor; the API's default is Ignore
    label_keys: tuple[str, ...] = ()  # matchLabelKeys


@dataclass(frozen=True, kw_only=True)
class PodAffinityTerm:
    """A term of a required pod affinity or anti-affinity."""

    key: str  # topologyKey
    selector: Selector | None
    namespaces: frozenset[str] = frozenset()
    namespace_selector: Selector | None = None  # None, with empty ``namespaces``: the pod's own namespace


@dataclass(frozen=True)
class PodVolume:
    """A volume of a pod. ``kind`` is the name of its field in the API, such as ``emptyDir``."""

    name: str
    kind: str
    claim: str = ""  # the name of its claim; for an ephemeral volume, <pod>-<volume>
    in_memory: bool = False  # emptyDir with medium Memory


@dataclass(frozen=True, kw_only=True)
class Resources:
    """The fields of a pod's spec and status that determine the amounts that it requests."""

    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    pod_requests: Amounts = field(default_factory=dict)  # spec.resources.requests
    pod_running_with: Amounts | None = None  # status.resources.requests of a pod with pod_requests
    pod_allocated: Amounts | None = None  # status.allocatedResources of such a pod
    overhead: Amounts = field(default_factory=dict)
    resize_infeasible: bool = False  # condition PodResizePending, reason Infeasible


@dataclass(frozen=True, kw_only=True)
class Needs:
    """A pod's requirements on a node, from its spec."""

    resources: Resources = field(default_factory=Resources)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    node_terms: tuple[NodeSelectorTerm, ...] | None = None  # required node affinity
    tolerations: tuple[Toleration, ...] = ()
    spread: tuple[TopologySpreadConstraint, ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    volumes: tuple[PodVolume, ...] = ()
    resource_claims: tuple[str, ...] = ()  # spec.resourceClaims, by name
    scheduler: str = DEFAULT_SCHEDULER
    gates: tuple[str, ...] = ()  # spec.schedulingGates, by name
    unread: tuple[str, ...] = ()  # unknown fields, which may restrict the pod to some nodes


@dataclass(frozen=True)
class Owner:
    """The controller among ``metadata.ownerReferences``."""

    kind: str
    name: str


@dataclass(frozen=True)
class Unscheduled:
    """Condition ``PodScheduled`` with status False."""

    reason: str
    since: datetime | None = None


# The reason of a pod for which the scheduler finds no node.
UNSCHEDULABLE = "Unschedulable"


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod, running or not."""

    namespace: str
    name: str
    created_at: datetime
    needs: Needs = field(default_factory=Needs)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    owner: Owner | None = None
    node: str = ""  # spec.nodeName
    nominated: str = ""  # status.nominatedNodeName
    phase: str = "Pending"
    priority: int | None = None
    unscheduled: Unscheduled | None = None
    deleted_at: datetime | None = None  # deletionTimestamp
    grace: timedelta = timedelta(seconds=30)  # spec.terminationGracePeriodSeconds
    scale_up_delay: timedelta = timedelta(0)  # cluster-autoscaler.kubernetes.io/pod-scale-up-delay

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def has_ended(self) -> bool:
        """Return True if the phase is Succeeded or Failed."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node, or a template of one."""

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    capacity: Amounts = field(default_factory=dict)
    allocatable: Amounts = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    unschedulable: bool = False
    drained_since: datetime | None = None  # since when Evenkeel itself drains it, which no machine controller does
    created_at: datetime | None = None
    ready: bool = True
    not_ready_since: datetime | None = None  # lastTransitionTime of condition Ready; None: Ready, or unknown
    deleting: bool = False  # the node object or its machine is being deleted
    # CSI driver -> the most volumes of this driver that the node can attach. No entry: no limit.
    attach_limits: Mapping[str, int] = field(default_factory=dict)
    group: GroupKey | None = None  # the group of its machine; None: none, or unknown
    machine: Machine | None = None  # None: unknown, or machines are not objects

    def ready_by(self, provision_timeout: timedelta) -> datetime | None:
        """Return when a node that is not Ready counts as failed; None: unknown.

        This is the provision timeout of its machine. A node that registers late still gets five minutes, or the
        provision timeout if that is shorter.
        """
        if self.created_at is None:
            return None
        latest = self.created_at + provision_timeout
        if self.machine is None:
            return latest
        return min(latest, max(self.machine.created_at + provision_timeout, self.created_at + FIRST_MINUTES))


@dataclass(frozen=True, kw_only=True)
class Volume:
    """A persistent volume."""

    name: str
    driver: str = ""  # its CSI driver; for an in-tree volume, the driver that it migrates to
    terms: tuple[NodeSelectorTerm, ...] | None = None  # spec.nodeAffinity.required; None: every node reaches it
    labels: Mapping[str, str] = field(default_factory=dict)
    storage_class: str = ""
    claim: str = ""  # spec.claimRef, <namespace>/<name>; empty: the volume is free
    capacity: Fraction = Fraction(0)
    access_modes: frozenset[str] = frozenset()
    phase: str = "Bound"


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A persistent volume claim."""

    namespace: str
    name: str
    volume: str = ""  # spec.volumeName
    bound: bool = False  # True: annotation pv.kubernetes.io/bind-completed is set
    lost: bool = False
    deleting: bool = False
    storage_class: str = ""
    size: Fraction = Fraction(0)
    access_modes: frozenset[str] = frozenset()
    selector: Selector = ()
    selected_node: str = ""  # annotation volume.kubernetes.io/selected-node
    for_pod: str = ""  # name of the pod that controls the claim of an ephemeral volume

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Attachment:
    """A VolumeAttachment: a persistent volume that is attached to a node, or being attached or detached."""

    node: str
    driver: str  # spec.attacher
    volume: str


@dataclass(frozen=True, kw_only=True)
class StorageClass:
    """A storage class."""

    name: str
    provisioner: str
    waits: bool = False  # volumeBindingMode WaitForFirstConsumer
    allowed_topologies: tuple[Selector, ...] = ()  # at least one selector must match; empty: no restriction


@dataclass(frozen=True, kw_only=True)
class PodDisruptionBudget:
    """A PodDisruptionBudget."""

    namespace: str
    name: str
    selector: Selector | None
    allowed: int  # status.disruptionsAllowed

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """One complete reading of a workload cluster. The objects are in any order."""

    pods: tuple[Pod, ...] = ()
    nodes: tuple[Node, ...] = ()
    claims: tuple[Claim, ...] = ()
    volumes: tuple[Volume, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    storage_classes: tuple[StorageClass, ...] = ()
    budgets: tuple[PodDisruptionBudget, ...] = ()
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # name -> labels
    autoscaler_sought: bool = False  # True: the check looked for an autoscaler
    autoscaler_at: datetime | None = None  # when an autoscaler was last seen; None: never
    whole: bool = True  # True: all pods and budgets were read, as scale-down requires
    # One pod from the template of each DaemonSet. Empty: the newest pod of each DaemonSet is used instead.
    daemon_sets: tuple[Pod, ...] = ()
    # Names of the machines that have a Node. None: only ``nodes`` shows them, or the nodes were not read.
    registered: frozenset[str] | None = None

    @property
    def machines_with_node(self) -> frozenset[str] | None:
        """Return the names of the machines that have a Node; None: the nodes were not read."""
        if self.registered is not None:
            return self.registered
        return machine_names(self.nodes) if self.nodes else None


def machine_names(nodes: Iterable[Node]) -> frozenset[str]:
    """Return the names of the nodes' machines."""
    return frozenset([node.machine.name for node in nodes if node.machine is not None])
