"""Gardener's machine-controller-manager (MCM): machine.sapcloud.io, pkg/apis/machine/v1alpha1."""

from datetime import datetime
from typing import Any

from evenkeel.adapters.kubernetes.flavours.base import (
    ARCH_LABEL,
    NVIDIA_GPU,
    Flavour,
    Joined,
    NodeTemplateSource,
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
    Reading,
    Scalable,
    condition_of,
    failure_of,
    get_path,
    mapping,
    moment_of,
    name_of,
    read_resources,
)
from evenkeel.adapters.kubernetes.offering_reader import by_machine_class
from evenkeel.adapters.kubernetes.owners.annotations import Annotations
from evenkeel.adapters.kubernetes.owners.worker import Worker
from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate

_MCM = "machine.sapcloud.io"
_NODE_LABELS: Path = ("spec", "template", "spec", "nodeTemplate", "metadata", "labels")
_POOL_LABEL = "worker.gardener.cloud/pool"
_MACHINE_CLASS = Kind(_MCM, ("v1alpha1",), "MachineClass", "machineclasses")
# What keeps a failed machine (machine-controller-manager pkg/util/provider/machineutils/utils.go): values of an
# annotation on it or on its node. That of the node wins, and is written down on the machine as it was last obeyed; the
# machine's own is taken off then (updatePreserveAnnotationOnMachine in pkg/util/provider/machinecontroller/machine.go).
_ASKS_TO_PRESERVE = ("now", "when-failed", "auto-preserved")
_PRESERVE = "node.machine.sapcloud.io/preserve"
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
    # The node label is set when the VM is made; the phase says whether the node has joined
    # (machine-controller-manager pkg/util/provider/machinecontroller/machine_util.go).
    phase = get_path(machine, ("status", "currentStatus", "phase"))
    return Joined(has_node=phase in ("Running", "Unknown"), ready=phase != "Unknown")


def _launched_at(machine: Object) -> datetime | None:
    operation = get_path(machine, ("status", "lastOperation"))
    if get_path(operation, ("type",)) != "Create" or get_path(operation, ("state",)) != "Successful":
        return None
    return moment_of(get_path(operation, ("lastUpdateTime",)))


def _failure(machine: Object) -> MachineFailure | None:
    """``status.lastOperation``: what machine-controller-manager last tried, and how the provider refused it.

    A similar status is not written again for 30 minutes (isMachineStatusSimilar), so its time is that of the first.
    """
    operation = get_path(machine, ("status", "lastOperation"))
    if get_path(operation, ("type",)) != "Create" or get_path(operation, ("state",)) != "Failed":
        return None
    return failure_of(operation.get("errorCode"), operation.get("description"), operation.get("lastUpdateTime"))


def _is_preserved(machine: Object, now: datetime) -> bool:
    """Whether Gardener keeps the machine, running or failed.

    Asked for by annotation, in effect once a time of expiry is set, and over when that has come
    (machine-controller-manager pkg/controller/machineset.go, shouldFailedMachineBeTerminated).
    """
    status = mapping(get_path(machine, ("status", "currentStatus")))
    expires = status.get("preserveExpiryTime")
    if expires is not None:
        until = moment_of(expires)
        return until is not None and until > now
    if status.get("phase") != "Failed":
        return False
    # Not in effect yet.
    annotations = mapping(get_path(machine, ("metadata", "annotations")))
    return (annotations.get(_PRESERVE_OF_NODE) or annotations.get(_PRESERVE)) in _ASKS_TO_PRESERVE


def _reference(value: Any) -> Reference | None:
    kind, name = get_path(value, ("kind",)), get_path(value, ("name",))
    if kind != _MACHINE_CLASS.kind or not isinstance(name, str) or not name:
        return None
    return Reference(_MACHINE_CLASS, name)


def _node_template(machine_class: Object, reading: Reading) -> NodeTemplate:
    """A MachineClass's ``nodeTemplate`` (gardener/autoscaler mcm_manager.go, GetMachineDeploymentNodeTemplate)."""
    reading = reading.of("MachineClass", machine_class)
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
    machine=Kind(_MCM, ("v1alpha1",), "Machine", "machines"),
    bounds_owners=(Annotations,),
    replicas_owner=Worker,
    pool_label=_POOL_LABEL,
    pool_paths=((*_NODE_LABELS, _POOL_LABEL),),
    zone_paths=(
        (*_NODE_LABELS, ZONE_LABEL),
        (*_NODE_LABELS, "topology.ebs.csi.aws.com/zone"),
        (*_NODE_LABELS, "topology.gke.io/zone"),
    ),
    absent_replicas=0,  # int32 with omitempty: a zero is left out
    freeze_rules=(being_deleted, paused, _frozen_by_condition, rolling, _frozen_by_label),
    machine_labels={"MachineDeployment": "name"},
    mark=("machinepriority.machine.sapcloud.io", "1"),
    joined=_joined,
    launched_at=_launched_at,
    failure=_failure,
    is_preserved=_is_preserved,
    preserved_failed=("status", "preservedFailedReplicas"),
    # The Worker's controller sets all five of these or deletes them (genericactuator/actuator_reconcile.go).
    keeps_options=False,
    provision_timeout="autoscaler.gardener.cloud/max-node-provision-time",
    unneeded_time="autoscaler.gardener.cloud/scale-down-unneeded-time",
    unready_time="autoscaler.gardener.cloud/scale-down-unready-time",
    utilization_threshold="autoscaler.gardener.cloud/scale-down-utilization-threshold",
    gpu_utilization_threshold="autoscaler.gardener.cloud/scale-down-gpu-utilization-threshold",
    status_name="{namespace}.{name}",
    discovers_groups=False,
    node_template=NodeTemplateSource(
        path=("spec", "template", "spec", "class"),
        reference=_reference,
        holds=lambda group, version, kind: (
            (group, kind) == (_MACHINE_CLASS.group, _MACHINE_CLASS.kind) and version in _MACHINE_CLASS.versions
        ),
        read=_node_template,
    ),
    bought=by_machine_class,
    node_labels=_NODE_LABELS,
    node_taints=("spec", "template", "spec", "nodeTemplate", "spec", "taints"),
    gpu=NVIDIA_GPU,
)
