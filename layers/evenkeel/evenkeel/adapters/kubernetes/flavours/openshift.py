"""OpenShift's Machine API: machine.openshift.io/v1beta1, and its cluster-autoscaler-operator."""

from datetime import datetime

from evenkeel.adapters.kubernetes.fields import Fields
from evenkeel.adapters.kubernetes.flavours.base import (
    NVIDIA_GPU,
    TEMPLATE_LABELS,
    Autoscaler,
    Flavour,
    GroupPaths,
    Machines,
    Nodes,
    Owners,
    being_deleted,
    paused,
)
from evenkeel.adapters.kubernetes.machine_object import (
    Condition,
    DeleteMark,
    MachineWithPhase,
    StatusWithPhase,
    first_condition,
)
from evenkeel.adapters.kubernetes.objects import (
    ZONE_LABEL,
    Kind,
    Object,
    Scalable,
    failure_of,
    get_path,
    moment_of,
    read_pieces,
)
from evenkeel.adapters.kubernetes.owners.annotations import Annotations
from evenkeel.adapters.kubernetes.owners.managers import hive
from evenkeel.adapters.kubernetes.owners.openshift import ClusterAutoscaler, MachineAutoscaler
from evenkeel.domain.model.groups import MachineFailure
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import quote
from evenkeel.domain.rebalancing.membership.quantities import read_amount

_MAPI = "machine.openshift.io"
MACHINE_API, CLUSTER_API = "MachineAPI", "ClusterAPI"
_PROVIDER_VALUE = ("spec", "template", "spec", "providerSpec", "value")
_NODE_LABELS = ("spec", "template", "spec", "metadata", "labels")


def authority_of(machine_set: Object) -> str | None:
    """Return the API in which a MachineSet is written, MachineAPI or ClusterAPI; None during a migration.

    Cluster Autoscaler reads ``spec.authoritativeAPI``; admission policies read ``status.authoritativeAPI``
    (openshift/kubernetes-autoscaler openshift_utils.go; cluster-capi-operator admission-policies). While
    ``status.authoritativeAPI`` is empty, a controller copies it from spec (machineset_migration_controller.go).
    """
    wanted, current = (get_path(machine_set, (place, "authoritativeAPI")) or "" for place in ("spec", "status"))
    if wanted in ("", MACHINE_API) and current in ("", MACHINE_API):
        return MACHINE_API
    return CLUSTER_API if wanted == current == CLUSTER_API else None


def _owned_by_another_api(scalable: Scalable) -> Reason | None:
    authority = authority_of(scalable.item)
    if authority == MACHINE_API:
        return None
    wanted, current = (get_path(scalable.item, (place, "authoritativeAPI")) for place in ("spec", "status"))
    if authority is None:
        return Reason.of(Rule.AUTHORITY_MOVES, wanted=quote(wanted or ""), found=quote(current or ""))
    return Reason.of(Rule.NOT_AUTHORITATIVE, field="status.authoritativeAPI", value=quote(current))


class _ProviderStatus(Fields, frozen=True):
    conditions: tuple[Condition, ...] = ()


class _Status(StatusWithPhase, frozen=True):
    error_reason: str = ""
    error_message: str | None = None
    provider_status: _ProviderStatus = _ProviderStatus()


class _Machine(MachineWithPhase, frozen=True):
    status: _Status = _Status()

    def launch(self) -> tuple[datetime | None, MachineFailure | None, bool]:
        """Return the launch."""
        creation = first_condition(self.status.provider_status.conditions, "MachineCreation")
        launched_at = moment_of(creation.last_transition_time) if creation.status == "True" else None
        return launched_at, self._failure(creation), self.status.error_message is not None

    def _failure(self, creation: Condition) -> MachineFailure | None:
        """Return a final failure from ``errorReason``, else a failure from the provider's condition MachineCreation.

        AWS answers InsufficientInstanceCapacity with a 5xx status, which is not a final failure. So the phase remains
        Provisioning, and only the condition shows the failure (machine-api-provider-aws
        pkg/actuators/machine/instances.go:552-579, utils.go:396-411).
        """
        if self.status.error_message is not None:
            return failure_of(self.status.error_reason, self.status.error_message, None)
        if creation.status == "False":
            return failure_of(creation.reason, creation.message, creation.last_transition_time)
        return None


OPENSHIFT = Flavour(
    name="openshift",
    group=_MAPI,
    scalables=(Kind(_MAPI, ("v1beta1",), "MachineSet", "machinesets"),),
    absent_replicas=None,
    freeze_rules=(being_deleted, paused, _owned_by_another_api),
    owners=Owners(bounds=(MachineAutoscaler, Annotations), cap=ClusterAutoscaler, managers=(hive,)),
    paths=GroupPaths(
        clusters=(("metadata", "labels", f"{_MAPI}/cluster-api-cluster"),),
        zones=(
            (*_PROVIDER_VALUE, "placement", "availabilityZone"),
            (*_PROVIDER_VALUE, "zone"),
            (*_PROVIDER_VALUE, "availabilityZone"),  # OpenStack
            (*TEMPLATE_LABELS, f"{_MAPI}/zone"),
            (*_NODE_LABELS, ZONE_LABEL),
        ),
    ),
    machines=Machines(
        kind=Kind(_MAPI, ("v1beta1",), "Machine", "machines"),
        shape=_Machine,
        labels={"MachineSet": f"{_MAPI}/cluster-api-machineset"},
        # The mark's value must not be empty. Evenkeel does not use the older cluster-api-delete-machine, which has an
        # effect only under delete policy Oldest (machine-api-operator pkg/controller/machineset/delete_policy.go).
        mark=DeleteMark(f"{_MAPI}/delete-machine"),
    ),
    # Source of the namespace: cluster-autoscaler-operator pkg/controller/clusterautoscaler.
    autoscaler=Autoscaler.of_group(_MAPI, namespace="openshift-machine-api"),
    nodes=Nodes(
        labels=_NODE_LABELS,
        # The cluster-autoscaler-operator copies these values to annotations with the newer names. OpenShift's
        # autoscaler reads old and new names (openshift_utils.go:70-87).
        older_capacity={
            "cpu": (f"{_MAPI}/vCPU", read_amount),
            # The value is in MiB, despite the annotation's name.
            "memory": (f"{_MAPI}/memoryMb", lambda value: read_pieces(value) * 2**20),
            "gpu-count": (f"{_MAPI}/GPU", read_pieces),
            "maxPods": (f"{_MAPI}/maxPods", read_pieces),
        },
        gpu=NVIDIA_GPU,
    ),
)
