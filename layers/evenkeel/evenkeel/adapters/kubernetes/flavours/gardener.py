"""Gardener's machine-controller-manager (MCM): machine.sapcloud.io, pkg/apis/machine/v1alpha1."""

from datetime import datetime
from typing import Any

from evenkeel.adapters.kubernetes.flavours.base import (
    ARCH_LABEL,
    NVIDIA_GPU,
    Autoscaler,
    DeleteMark,
    Flavour,
    GroupPaths,
    Joined,
    Machines,
    Nodes,
    NodeTemplateSource,
    Owners,
    Reference,
    being_deleted,
    paused,
    rolling,
)
from evenkeel.adapters.kubernetes.objects import (
    ZONE_LABEL,
    Kind,
    Object,
    Path,
    Scalable,
    annotations_of,
    condition_of,
    failure_of,
    get_path,
    mapping,
    moment_of,
    name_of,
    read_resources,
)
from evenkeel.adapters.kubernetes.owners.annotations import Annotations
from evenkeel.adapters.kubernetes.owners.worker import Worker
from evenkeel.adapters.own_annotations import Reading
from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate

_MCM, _AUTOSCALER = "machine.sapcloud.io", "autoscaler.gardener.cloud"
_NODE_LABELS: Path = ("spec", "template", "spec", "nodeTemplate", "metadata", "labels")
_POOL_LABEL = "worker.gardener.cloud/pool"
_MACHINE_CLASS = Kind(_MCM, ("v1alpha1",), "MachineClass", "machineclasses")
# An annotation of a machine, or of its node, preserves a failed machine (pkg/util/provider/machineutils/utils.go). The
# node's annotation takes precedence, because the machine controller copies it to the machine, and removes the machine's
# own annotation (updatePreserveAnnotationOnMachine in pkg/util/provider/machinecontroller/machine.go).
_ASKS_TO_PRESERVE = ("now", "when-failed", "auto-preserved")
_PRESERVE = "node.machine.sapcloud.io/preserve"
_CREATION_TIMEOUT = "node.machine.sapcloud.io/effective-creation-timeout"
_PRESERVE_OF_NODE = "node.machine.sapcloud.io/last-applied-node-preserve-value"


def _frozen_by_condition(scalable: Scalable) -> Reason | None:
    condition = condition_of(scalable.item, ("status", "conditions"), "Frozen")
    if condition is None or condition.get("status") != "True":
        return None
    return Reason.of(Rule.FROZEN_BY_CONTROLLER, controller="machine-controller-manager")


def _frozen_by_label(scalable: Scalable) -> Reason | None:
    if scalable.labels.get("freeze") != "True":
        return None
    return Reason.of(Rule.FROZEN_BY_CONTROLLER, controller="machine-controller-manager")


def _joined(machine: Object) -> Joined:
    # The machine's label with the node's name exists before the node has joined. Only the phase shows that the node has
    # joined (machine-controller-manager pkg/util/provider/machinecontroller/machine_util.go).
    phase = get_path(machine, ("status", "currentStatus", "phase"))
    return Joined(has_node=phase in ("Running", "Unknown"), ready=phase != "Unknown")


def _creation(machine: Object, state: str) -> Object | None:
    """Return the machine's last operation if it is a creation in this state; else None."""
    operation = mapping(get_path(machine, ("status", "lastOperation")))
    return operation if (operation.get("type"), operation.get("state")) == ("Create", state) else None


def _launched_at(machine: Object) -> datetime | None:
    operation = _creation(machine, "Successful")
    return None if operation is None else moment_of(operation.get("lastUpdateTime"))


def _awaited_since(machine: Object) -> datetime | None:
    """Return when the controller has created the instance that has not joined yet.

    After a failure, the controller creates another instance for the same object.
    """
    status = mapping(get_path(machine, ("status", "currentStatus")))
    return moment_of(status.get("lastUpdateTime")) if status.get("phase") == "Pending" else None


def _had_node(machine: Object) -> bool:
    """Return True where a machine's node has been unhealthy for too long, or is being updated in place."""
    phase = str(get_path(machine, ("status", "currentStatus", "phase")))
    has_failed = phase == "Failed" and get_path(machine, ("status", "lastOperation", "type")) != "Create"
    return has_failed or phase.startswith("InPlace")


def _failure(machine: Object) -> MachineFailure | None:
    """Return the provider's failure to create the machine.

    machine-controller-manager does not rewrite a similar status for 30 minutes (isMachineStatusSimilar). So the time in
    the status is the time of the first failure.
    """
    operation = _creation(machine, "Failed")
    if operation is None:
        return None
    return failure_of(operation.get("errorCode"), operation.get("description"), operation.get("lastUpdateTime"))


def _is_preserved(machine: Object, now: datetime) -> bool:
    """Return True where Gardener preserves the machine, whether it runs or has failed.

    An annotation requests preservation. Preservation begins when the status gets an expiry time, and ends at that time
    (machine-controller-manager pkg/controller/machineset.go, shouldFailedMachineBeTerminated).
    """
    status = mapping(get_path(machine, ("status", "currentStatus")))
    expires = status.get("preserveExpiryTime")
    if expires is not None:
        until = moment_of(expires)
        return until is not None and until > now
    if status.get("phase") != "Failed":
        return False
    annotations = annotations_of(machine)  # preservation is requested, but not in effect yet
    return (annotations.get(_PRESERVE_OF_NODE) or annotations.get(_PRESERVE)) in _ASKS_TO_PRESERVE


def _reference(value: Any) -> Reference | None:
    kind, name = get_path(value, ("kind",)), get_path(value, ("name",))
    if kind != _MACHINE_CLASS.kind or not isinstance(name, str) or not name:
        return None
    return Reference(_MACHINE_CLASS, name)


def _node_template(machine_class: Object, reading: Reading) -> NodeTemplate:
    """Return a MachineClass's node template (gardener/autoscaler mcm_manager.go, GetMachineDeploymentNodeTemplate)."""
    reading = reading.of("MachineClass", *name_of(machine_class))
    template = mapping(machine_class.get("nodeTemplate"))
    capacity = {
        **read_resources("nodeTemplate.capacity", template.get("capacity"), reading),
        **read_resources("nodeTemplate.virtualCapacity", template.get("virtualCapacity"), reading),
    }
    if gpus := capacity.pop("gpu", None):
        capacity[NVIDIA_GPU] = gpus
    labels = {
        ARCH_LABEL: template.get("architecture"),
        "node.kubernetes.io/instance-type": template.get("instanceType"),
        "topology.kubernetes.io/region": template.get("region"),
        ZONE_LABEL: template.get("zone"),
    }
    return NodeTemplate(
        capacity=capacity,
        labels={key: value for key, value in labels.items() if isinstance(value, str) and value},
        source=f"MachineClass {name_of(machine_class)[1]}",
    )


GARDENER = Flavour(
    name="gardener",
    group=_MCM,
    scalables=(
        Kind(_MCM, ("v1alpha1",), "MachineDeployment", "machinedeployments"),
        Kind(_MCM, ("v1alpha1",), "MachineSet", "machinesets"),
    ),
    absent_replicas=0,  # the field is an int32 with omitempty, so JSON omits a zero
    freeze_rules=(being_deleted, paused, _frozen_by_condition, rolling, _frozen_by_label),
    owners=Owners(bounds=(Annotations,), replicas=Worker),
    paths=GroupPaths(
        pool_label=_POOL_LABEL,
        pools=((*_NODE_LABELS, _POOL_LABEL),),
        zones=(
            (*_NODE_LABELS, ZONE_LABEL),
            (*_NODE_LABELS, "topology.ebs.csi.aws.com/zone"),
            (*_NODE_LABELS, "topology.gke.io/zone"),
        ),
    ),
    machines=Machines(
        kind=Kind(_MCM, ("v1alpha1",), "Machine", "machines"),
        labels={"MachineDeployment": "name"},
        mark=DeleteMark("machinepriority.machine.sapcloud.io", "1"),
        joined=_joined,
        launched_at=_launched_at,
        # A creation is successful once the node has joined (machinecontroller/machine_util.go, reconcileMachineHealth).
        joined_at=_launched_at,
        awaited_since=_awaited_since,
        had_node=_had_node,
        # The annotation replaces the field (machine-controller-manager pkg/util/annotations/annotations.go).
        creation_timeouts=(
            ("metadata", "annotations", _CREATION_TIMEOUT),
            ("spec", "template", "spec", "creationTimeout"),
        ),
        failure=_failure,
        is_preserved=_is_preserved,
        preserved_failed=("status", "preservedFailedReplicas"),
    ),
    autoscaler=Autoscaler(
        provision_timeout=f"{_AUTOSCALER}/max-node-provision-time",
        unneeded_time=f"{_AUTOSCALER}/scale-down-unneeded-time",
        unready_time=f"{_AUTOSCALER}/scale-down-unready-time",
        utilization_threshold=f"{_AUTOSCALER}/scale-down-utilization-threshold",
        gpu_utilization_threshold=f"{_AUTOSCALER}/scale-down-gpu-utilization-threshold",
        status_name="{namespace}.{name}",
        discovers_groups=False,
    ),
    nodes=Nodes(
        template=NodeTemplateSource(
            path=("spec", "template", "spec", "class"),
            reference=_reference,
            holds=lambda group, version, kind: (
                (group, kind) == (_MACHINE_CLASS.group, _MACHINE_CLASS.kind) and version in _MACHINE_CLASS.versions
            ),
            read=_node_template,
        ),
        labels=_NODE_LABELS,
        taints=("spec", "template", "spec", "nodeTemplate", "spec", "taints"),
        gpu=NVIDIA_GPU,
    ),
)
