"""OpenShift's Machine API: machine.openshift.io/v1beta1, and its cluster-autoscaler-operator."""

from datetime import datetime
from fractions import Fraction

from evenkeel.adapters.kubernetes.flavours.base import (
    NVIDIA_GPU,
    TEMPLATE_LABELS,
    Flavour,
    being_deleted,
    joined_by_node_ref,
    paused,
)
from evenkeel.adapters.kubernetes.objects import (
    ZONE_LABEL,
    Kind,
    Object,
    Scalable,
    condition_of,
    failure_of,
    get_path,
    moment_of,
    read_amount,
    read_pieces,
)
from evenkeel.adapters.kubernetes.offering_reader import by_provider_spec
from evenkeel.adapters.kubernetes.owners.annotations import Annotations
from evenkeel.adapters.kubernetes.owners.cluster_autoscaler import ClusterAutoscaler
from evenkeel.adapters.kubernetes.owners.machine_autoscaler import MachineAutoscaler
from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import quote

_MAPI = "machine.openshift.io"
MACHINE_API, CLUSTER_API = "MachineAPI", "ClusterAPI"
_PROVIDER_VALUE = ("spec", "template", "spec", "providerSpec", "value")
_NODE_LABELS = ("spec", "template", "spec", "metadata", "labels")
_PROVIDER_CONDITIONS = ("status", "providerStatus", "conditions")
_MEBIBYTE = 2**20


def authority_of(machine_set: Object) -> str | None:
    """The API that a MachineSet is written through: MachineAPI or ClusterAPI; None while that is about to change.

    Its spec says who should be, its status who is. Cluster Autoscaler goes by the one, admission by the other
    (openshift/kubernetes-autoscaler openshift_utils.go; cluster-capi-operator admission-policies). A status that says
    nothing yet is set to what the spec says (machineset_migration_controller.go).
    """
    wanted, found = (get_path(machine_set, (place, "authoritativeAPI")) or "" for place in ("spec", "status"))
    if wanted in ("", MACHINE_API) and found in ("", MACHINE_API):
        return MACHINE_API
    return CLUSTER_API if wanted == found == CLUSTER_API else None


def _owned_by_another_api(scalable: Scalable) -> Reason | None:
    authority = authority_of(scalable.item)
    if authority == MACHINE_API:
        return None
    wanted, found = (get_path(scalable.item, (place, "authoritativeAPI")) for place in ("spec", "status"))
    if authority is None:
        return Reason.of(Rule.AUTHORITY_MOVES, wanted=quote(wanted or ""), found=quote(found or ""))
    return Reason.of(Rule.NOT_AUTHORITATIVE, field="status.authoritativeAPI", value=quote(found))


def _launched_at(machine: Object) -> datetime | None:
    condition = condition_of(machine, _PROVIDER_CONDITIONS, "MachineCreation")
    if condition is None or condition.get("status") != "True":
        return None
    return moment_of(condition.get("lastTransitionTime"))


def _failure(machine: Object) -> MachineFailure | None:
    """``errorReason`` where the provider's answer was final, else the provider's MachineCreation condition.

    InsufficientInstanceCapacity is a 5xx: phase stays Provisioning and only the condition tells
    (machine-api-provider-aws pkg/actuators/machine/instances.go:552-579, utils.go:396-411).
    """
    message = get_path(machine, ("status", "errorMessage"))
    if message is not None:
        return failure_of(get_path(machine, ("status", "errorReason")), message, None)
    condition = condition_of(machine, _PROVIDER_CONDITIONS, "MachineCreation")
    if condition is None or condition.get("status") != "False":
        return None
    return failure_of(condition.get("reason"), condition.get("message"), condition.get("lastTransitionTime"))


def _read_mebibytes(value: object) -> Fraction:
    """machine.openshift.io/memoryMb is in MiB, whatever its name says."""
    return read_pieces(value) * _MEBIBYTE


OPENSHIFT = Flavour(
    name="openshift",
    group=_MAPI,
    scalables=(Kind(_MAPI, ("v1beta1",), "MachineSet", "machinesets"),),
    machine=Kind(_MAPI, ("v1beta1",), "Machine", "machines"),
    bounds_owners=(MachineAutoscaler, Annotations),
    cap_owner=ClusterAutoscaler,
    cluster_paths=(("metadata", "labels", f"{_MAPI}/cluster-api-cluster"),),
    zone_paths=(
        (*_PROVIDER_VALUE, "placement", "availabilityZone"),
        (*_PROVIDER_VALUE, "zone"),
        (*TEMPLATE_LABELS, f"{_MAPI}/zone"),
        (*_NODE_LABELS, ZONE_LABEL),
    ),
    absent_replicas=None,
    freeze_rules=(being_deleted, paused, _owned_by_another_api),
    machine_labels={"MachineSet": f"{_MAPI}/cluster-api-machineset"},
    # Must not be empty. The older cluster-api-delete-machine counts under delete policy Oldest only
    # (machine-api-operator pkg/controller/machineset/delete_policy.go), so it is no mark to rely on.
    mark=(f"{_MAPI}/delete-machine", "evenkeel"),
    joined=joined_by_node_ref,
    launched_at=_launched_at,
    failure=_failure,
    provision_timeout=f"{_MAPI}/autoscaling-options-maxnodeprovisiontime",
    unneeded_time=f"{_MAPI}/autoscaling-options-scaledownunneededtime",
    unready_time=f"{_MAPI}/autoscaling-options-scaledownunreadytime",
    utilization_threshold=f"{_MAPI}/autoscaling-options-scaledownutilizationthreshold",
    gpu_utilization_threshold=f"{_MAPI}/autoscaling-options-scaledowngpuutilizationthreshold",
    status_name="{kind}/{namespace}/{name}",
    autoscaler_namespace="openshift-machine-api",  # cluster-autoscaler-operator pkg/controller/clusterautoscaler
    bought=lambda scalable: by_provider_spec(get_path(scalable, _PROVIDER_VALUE)),
    node_labels=_NODE_LABELS,
    # The operator copies them to the newer names, its autoscaler reads both (openshift_utils.go:70-87).
    older_capacity={
        "cpu": (f"{_MAPI}/vCPU", read_amount),
        "memory": (f"{_MAPI}/memoryMb", _read_mebibytes),
        "gpu-count": (f"{_MAPI}/GPU", read_pieces),
        "maxPods": (f"{_MAPI}/maxPods", read_pieces),
    },
    gpu=NVIDIA_GPU,
)
