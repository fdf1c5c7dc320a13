"""Gardener's machine-controller-manager (MCM): machine.sapcloud.io, pkg/apis/machine/v1alpha1."""

from datetime import datetime
from typing import Any

from evenkeel.adapters.kubernetes.fields import Fields
from evenkeel.adapters.kubernetes.flavours.base import (
    ARCH_LABEL,
    NVIDIA_GPU,
    Autoscaler,
    Flavour,
    GroupPaths,
    Machines,
    Nodes,
    NodeTemplateSource,
    Owners,
    Reference,
    being_deleted,
    paused,
    rolling,
)
from evenkeel.adapters.kubernetes.machine_object import DeleteMark, MachineObject, MachineStatus, Time
from evenkeel.adapters.kubernetes.objects import (
    ZONE_LABEL,
    Kind,
    Object,
    Path,
    Scalable,
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
from evenkeel.domain.model.groups import Machine
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


class _CurrentStatus(Fields, frozen=True):
    phase: str = ""
    last_update_time: Time = None
    preserve_expiry_time: Time = None


class _LastOperation(Fields, frozen=True):
    type: str = ""
    state: str = ""
    error_code: str = ""
    description: str = ""
    last_update_time: Time = None


class _Status(MachineStatus, frozen=True):
    current_status: _CurrentStatus = _CurrentStatus()
    last_operation: _LastOperation = _LastOperation()


class _Machine(MachineObject, frozen=True):
    status: _Status = _Status()

    def read(self, mark: DeleteMark, now: datetime) -> Machine:
        """Return the machine.

        The machine's label with the node's name exists before the node has joined. Only the phase and the successful
        creation show that the node has joined (machine-controller-manager pkg/util/provider/machinecontroller/
        machine_util.go, reconcileMachineHealth).
        """
        current, operation = self.status.current_status, self.status.last_operation
        phase, creation = current.phase, operation.state if operation.type == "Create" else ""
        has_node = phase in ("Running", "Unknown")
        launched_at = moment_of(operation.last_update_time) if creation == "Successful" else None
        return Machine(
            **self.shared_fields(mark),
            has_node=has_node,
            ready=phase != "Unknown",
            launched_at=launched_at,
            joined_at=launched_at if has_node else None,
            # After a failure, the controller creates another instance for the same object.
            awaited_since=moment_of(current.last_update_time) if phase == "Pending" else None,
            # The node has been unhealthy for too long, or is being updated in place.
            had_node=(phase == "Failed" and operation.type != "Create") or phase.startswith("InPlace"),
            preserved=self._is_preserved(now),
            # machine-controller-manager does not rewrite a similar status for 30 minutes (isMachineStatusSimilar). So
            # the time in the status is the time of the first failure.
            failure=failure_of(operation.error_code, operation.description, operation.last_update_time)
            if creation == "Failed"
            else None,
        )

    def _is_preserved(self, now: datetime) -> bool:
        """Return True where Gardener preserves the machine, whether it runs or has failed.

        An annotation requests preservation. Preservation begins when the status gets an expiry time, and ends at that
        time (machine-controller-manager pkg/controller/machineset.go, shouldFailedMachineBeTerminated).
        """
        current, annotations = self.status.current_status, self.metadata.annotations
        if current.preserve_expiry_time is not None:
            until = moment_of(current.preserve_expiry_time)
            return until is not None and until > now
        if current.phase != "Failed":
            return False
        # Preservation is requested, but not in effect yet.
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
        zones=(
            (*_NODE_LABELS, ZONE_LABEL),
            (*_NODE_LABELS, "topology.ebs.csi.aws.com/zone"),
            (*_NODE_LABELS, "topology.gke.io/zone"),
        ),
    ),
    machines=Machines(
        kind=Kind(_MCM, ("v1alpha1",), "Machine", "machines"),
        shape=_Machine,
        labels={"MachineDeployment": "name"},
        mark=DeleteMark("machinepriority.machine.sapcloud.io", "1"),
        # The annotation replaces the field (machine-controller-manager pkg/util/annotations/annotations.go).
        creation_timeouts=(
            ("metadata", "annotations", _CREATION_TIMEOUT),
            ("spec", "template", "spec", "creationTimeout"),
        ),
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
