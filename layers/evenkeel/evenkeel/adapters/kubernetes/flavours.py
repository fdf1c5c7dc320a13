"""The three machine APIs as data: what each calls things.

Sources: Gardener machine-controller-manager pkg/apis/machine/v1alpha1; Cluster API api/core/v1beta1 and v1beta2;
OpenShift api machine/v1beta1 and cluster-autoscaler-operator; annotations: cluster-autoscaler
cloudprovider/clusterapi/clusterapi_utils.go:326-352. docs/flavours.md has the table.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Path = tuple[str, ...]

OWN = "evenkeel.dev/"
# What Cluster Autoscaler reads of a group's nodes (cloudprovider/clusterapi/clusterapi_utils.go:35-44).
CAPACITY = "capacity.cluster-autoscaler.kubernetes.io/"
DECISION = OWN + "decision"
ADOPTED = OWN + "adopted-bounds"
MOVE = OWN + "move"
POOL_LABEL = OWN + "pool"
# All names of ours that anybody may write on a scalable; another one is a slip of somebody's pen.
OWN_ANNOTATIONS = (
    *(OWN + name for name in ("pool-min", "pool-max", "strategy", "on-failure", "weight", "zone-max", "fence")),
    *(DECISION, ADOPTED, MOVE),
)
OWN_LABELS = (POOL_LABEL,)
# What the operator writes on a MachineSet whose bounds a MachineAutoscaler owns: <namespace>/<name>
# (cluster-autoscaler-operator machinetarget.go:80-104).
SCALER_OF = "autoscaling.openshift.io/machineautoscaler"


@dataclass(frozen=True)
class Kind:
    """A kind of object, and where the API serves it."""

    group: str
    versions: tuple[str, ...]  # preferred first
    kind: str
    plural: str
    optional: bool = False  # not every cluster serves it


@dataclass(frozen=True, kw_only=True)
class Flavour:
    """One machine API."""

    name: str
    group: str
    scalables: tuple[Kind, ...]
    companions: tuple[Kind, ...]  # read with the scalables: they own bounds, or say that all is paused
    machine: Kind
    pool_label: str | None  # the flavour's own pool label
    pool_paths: tuple[Path, ...] = ()  # where it stands besides metadata.labels
    cluster_paths: tuple[Path, ...] = ()  # the workload cluster's name
    zone_paths: tuple[Path, ...] = ()
    absent_replicas: int | None = None  # what a missing spec.replicas means; None: not defaulted yet
    machine_labels: Mapping[str, str] = field(default_factory=dict)  # kind of scalable -> label of its machines
    mark: tuple[str, str] = ("", "")  # annotation that makes a machine go first
    provision_timeout: str  # annotation with Cluster Autoscaler's max-node-provision-time of the group
    template_path: Path | None = None  # reference to the object that says what its nodes look like
    template: Kind | None = None  # the kind of that object, where it is always the same
    node_labels: Path  # labels that its nodes get
    # Only those of these domains, and with a leading dot of those below as well; none named: all.
    node_label_domains: tuple[str, ...] = ()
    node_taints: Path = ("spec", "template", "spec", "taints")
    older_capacity: Mapping[str, str] = field(default_factory=dict)  # annotation after CAPACITY -> its older name
    gpu: str | None = None  # the resource that GPUs are counted as, where no annotation says
    discovers_groups: bool = True  # Cluster Autoscaler finds the scalables itself; False: its flags name them

    @property
    def mark_is_ours(self) -> bool:
        """Whether the mark's value tells that we set it, and not Cluster Autoscaler."""
        return self.mark[1] == "evenkeel"

    @property
    def min_key(self) -> str:
        """Annotation that Cluster Autoscaler reads a group's min from."""
        return f"{self.group}/cluster-api-autoscaler-node-group-min-size"

    @property
    def max_key(self) -> str:
        """Annotation that Cluster Autoscaler reads a group's max from."""
        return f"{self.group}/cluster-api-autoscaler-node-group-max-size"

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Everything that one look lists, machines aside."""
        return self.scalables + self.companions


_TEMPLATE_LABELS: Path = ("spec", "template", "metadata", "labels")
_ZONE = "topology.kubernetes.io/zone"
_NODE_LABELS: Path = ("spec", "template", "spec", "nodeTemplate", "metadata", "labels")
_NVIDIA = "nvidia.com/gpu"

_MCM = "machine.sapcloud.io"
_CAPI = "cluster.x-k8s.io"
_CAPI_VERSIONS = ("v1beta2", "v1beta1")
_MAPI = "machine.openshift.io"

GARDENER = Flavour(
    name="gardener",
    group=_MCM,
    scalables=(
        Kind(_MCM, ("v1alpha1",), "MachineDeployment", "machinedeployments"),
        Kind(_MCM, ("v1alpha1",), "MachineSet", "machinesets"),
    ),
    companions=(Kind("extensions.gardener.cloud", ("v1alpha1",), "Worker", "workers", optional=True),),
    machine=Kind(_MCM, ("v1alpha1",), "Machine", "machines"),
    pool_label="worker.gardener.cloud/pool",
    pool_paths=((*_NODE_LABELS, "worker.gardener.cloud/pool"),),
    zone_paths=(
        (*_NODE_LABELS, _ZONE),
        (*_NODE_LABELS, "topology.ebs.csi.aws.com/zone"),
        (*_NODE_LABELS, "topology.gke.io/zone"),
    ),
    absent_replicas=0,  # int32 with omitempty: a zero is left out
    machine_labels={"MachineDeployment": "name"},
    mark=("machinepriority.machine.sapcloud.io", "1"),
    provision_timeout="autoscaler.gardener.cloud/max-node-provision-time",
    template_path=("spec", "template", "spec", "class"),
    template=Kind(_MCM, ("v1alpha1",), "MachineClass", "machineclasses"),
    node_labels=_NODE_LABELS,
    node_taints=("spec", "template", "spec", "nodeTemplate", "spec", "taints"),
    gpu=_NVIDIA,
    discovers_groups=False,
)

CLUSTER_API = Flavour(
    name="cluster-api",
    group=_CAPI,
    scalables=(
        Kind(_CAPI, _CAPI_VERSIONS, "MachineDeployment", "machinedeployments"),
        Kind(_CAPI, _CAPI_VERSIONS, "MachineSet", "machinesets"),
    ),
    companions=(Kind(_CAPI, _CAPI_VERSIONS, "Cluster", "clusters"),),
    machine=Kind(_CAPI, _CAPI_VERSIONS, "Machine", "machines"),
    pool_label=None,
    cluster_paths=(("spec", "clusterName"), ("metadata", "labels", f"{_CAPI}/cluster-name")),
    zone_paths=(("spec", "template", "spec", "failureDomain"), (*_TEMPLATE_LABELS, _ZONE)),
    machine_labels={"MachineDeployment": f"{_CAPI}/deployment-name", "MachineSet": f"{_CAPI}/set-name"},
    mark=(f"{_CAPI}/delete-machine", "evenkeel"),  # its presence counts
    provision_timeout=f"{_CAPI}/autoscaling-options-maxnodeprovisiontime",
    template_path=("spec", "template", "spec", "infrastructureRef"),
    node_labels=_TEMPLATE_LABELS,
    # What Cluster API carries over to nodes (internal/util/managed labels, GetManagedLabels).
    node_label_domains=("node-role.kubernetes.io", ".node-restriction.kubernetes.io", ".node.cluster.x-k8s.io"),
)

OPENSHIFT = Flavour(
    name="openshift",
    group=_MAPI,
    scalables=(Kind(_MAPI, ("v1beta1",), "MachineSet", "machinesets"),),
    companions=(
        Kind("autoscaling.openshift.io", ("v1beta1",), "MachineAutoscaler", "machineautoscalers", optional=True),
    ),
    machine=Kind(_MAPI, ("v1beta1",), "Machine", "machines"),
    pool_label=None,
    cluster_paths=(("metadata", "labels", f"{_MAPI}/cluster-api-cluster"),),
    zone_paths=(
        ("spec", "template", "spec", "providerSpec", "value", "placement", "availabilityZone"),
        ("spec", "template", "spec", "providerSpec", "value", "zone"),
        (*_TEMPLATE_LABELS, f"{_MAPI}/zone"),
        ("spec", "template", "spec", "metadata", "labels", _ZONE),
    ),
    machine_labels={"MachineSet": f"{_MAPI}/cluster-api-machineset"},
    # Must not be empty. The older cluster-api-delete-machine counts under delete policy Oldest only
    # (machine-api-operator pkg/controller/machineset/delete_policy.go), so it is no mark to rely on.
    mark=(f"{_MAPI}/delete-machine", "evenkeel"),
    provision_timeout=f"{_MAPI}/autoscaling-options-maxnodeprovisiontime",
    node_labels=("spec", "template", "spec", "metadata", "labels"),
    # The operator copies them to the newer names, its autoscaler reads both (openshift_utils.go:70-87).
    older_capacity={
        "cpu": f"{_MAPI}/vCPU",
        "memory": f"{_MAPI}/memoryMb",
        "gpu-count": f"{_MAPI}/GPU",
        "maxPods": f"{_MAPI}/maxPods",
    },
    gpu=_NVIDIA,
)

FLAVOURS: dict[str, Flavour] = {flavour.name: flavour for flavour in (GARDENER, CLUSTER_API, OPENSHIFT)}
ZONE_LABEL: Path = ("metadata", "labels", _ZONE)
TOPOLOGY_OWNED = "topology.cluster.x-k8s.io/owned"
TOPOLOGY_NAME = "topology.cluster.x-k8s.io/deployment-name"
