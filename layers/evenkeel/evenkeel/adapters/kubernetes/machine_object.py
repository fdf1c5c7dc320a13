"""The fields of Machine objects that Evenkeel reads. Each flavour adds the status of its API."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import field

from evenkeel.adapters.kubernetes.fields import Fields
from evenkeel.adapters.kubernetes.objects import moment_of
from evenkeel.domain.model.failures import class_of
from evenkeel.domain.model.groups import Machine, MachineFailure

# The cloud's id of an instance: aws:///<zone>/<instance> (cloud-provider-aws), gce://<project>/<zone>/<instance>.
_PROVIDER_ID = re.compile(r"(?:aws:///|gce://[^/]+/)(?P<zone>[^/]+)/[^/]+", re.ASCII)
# OpenShift's machine controller sets this label on every platform. On vSphere, no other field has the zone.
_OPENSHIFT_ZONE_LABEL = "machine.openshift.io/zone"
# Gardener has the node's name in a label (machine-controller-manager pkg/apis/machine/v1alpha1, NodeLabelKey).
_NODE_LABEL = "node"
_LONG_AGO = datetime.fromtimestamp(0, UTC)
# The phases of machines that have not been launched yet.
_LAUNCHING = ("", "Pending", "Provisioning")
_OURS = "evenkeel"
Time = Any
"""A text in JSON, a datetime in YAML. ``moment_of`` reads both."""


class _OwnerReference(Fields, frozen=True):
    kind: str = ""
    name: str = ""
    controller: bool = False


class _Metadata(Fields, frozen=True):
    namespace: str = ""
    name: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[Any, Any] = field(default_factory=dict)
    annotations: dict[Any, Any] = field(default_factory=dict)
    owner_references: tuple[_OwnerReference, ...] = ()
    creation_timestamp: Time = None
    deletion_timestamp: Time = None


class _Spec(Fields, frozen=True):
    provider_id: str = field(default="", name="providerID")
    failure_domain: str = ""


class MachineStatus(Fields, frozen=True):
    failure_domain: str = ""


class MachineObject(Fields, frozen=True):
    """A Machine of any API."""

    metadata: _Metadata = _Metadata()
    spec: _Spec = _Spec()
    status: MachineStatus = MachineStatus()

    def read(self, mark: "DeleteMark", now: datetime) -> Machine:
        """Return the machine. ``mark``: the annotation of machines that are deleted first."""
        raise NotImplementedError

    def shared_fields(self, mark: "DeleteMark") -> dict[str, Any]:
        """Return those fields of ``Machine`` that are the same in all APIs."""
        metadata = self.metadata
        facts: dict[str, Any] = {
            "name": metadata.name,
            "uid": metadata.uid,
            "created_at": moment_of(metadata.creation_timestamp) or _LONG_AGO,
            "zone": self._zone(),
        }
        if mark.annotation in metadata.annotations:
            facts["marked"] = mark.marks(self)
            facts["marked_by_us"] = mark.names_author and mark.is_set_on(self)
        if metadata.deletion_timestamp is not None:
            facts["deleting"] = True
            facts["deleting_since"] = moment_of(metadata.deletion_timestamp)
        return facts

    def _zone(self) -> str | None:
        """Return the zone: from the failure domain or OpenShift's label, else from the provider id."""
        zone = self.spec.failure_domain or self.status.failure_domain or self.metadata.labels.get(_OPENSHIFT_ZONE_LABEL)
        if isinstance(zone, str) and zone:
            return zone
        instance = _PROVIDER_ID.fullmatch(self.spec.provider_id)
        return instance["zone"] if instance else None

    def node_names(self) -> list[str]:
        """Return the names and the provider id that identify the machine's node."""
        names = (self.metadata.labels.get(_NODE_LABEL), self.spec.provider_id)
        return [name for name in names if isinstance(name, str) and name]

    def controller(self) -> _OwnerReference | None:
        """Return the controlling owner."""
        return next((owner for owner in self.metadata.owner_references if owner.controller), None)


class DeleteMark(NamedTuple):
    """The annotation that makes the controller of a machine delete this machine first."""

    annotation: str
    value: str = _OURS

    @property
    def names_author(self) -> bool:
        """Return True where the API accepts any value, so that Evenkeel's value names Evenkeel as the author."""
        return self.value == _OURS

    def marks(self, machine: MachineObject) -> bool:
        """Return True where the controller deletes this machine first."""
        value = machine.metadata.annotations.get(self.annotation)
        return bool(value) if self.names_author else value == self.value

    def is_set_on(self, machine: MachineObject) -> bool:
        """Return True where the machine has exactly this mark."""
        return bool(machine.metadata.annotations.get(self.annotation) == self.value)


class Condition(Fields, frozen=True):
    type: str = ""
    status: str = ""
    severity: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: Time = None


_NO_CONDITION = Condition()


def first_condition(conditions: Iterable[Condition], type: str) -> Condition:
    """Return the first condition of that type; one without a status where there is none."""
    for condition in conditions:
        if condition.type == type:
            return condition
    return _NO_CONDITION


class _NodeReference(Fields, frozen=True):
    name: Any = None  # of any type, because no machine with a node may count as one without


class StatusWithPhase(MachineStatus, frozen=True):
    phase: str = ""
    last_updated: Time = None
    node_ref: _NodeReference = _NodeReference()
    conditions: tuple[Condition, ...] = ()


class MachineWithPhase(MachineObject, frozen=True):
    """A Machine of Cluster API or OpenShift."""

    status: StatusWithPhase = StatusWithPhase()

    def read(self, mark: DeleteMark, now: datetime) -> Machine:  # noqa: ARG002
        """Return the machine.

        While the machine's controller still launches it, a text without a known cause is no failure: hosts that are
        made on demand take their time, so the provision timeout decides.
        """
        status, (launched_at, failure, for_good) = self.status, self.launch()
        has_node = status.node_ref.name is not None
        if failure is not None and status.phase in _LAUNCHING and class_of(failure).is_vague:
            failure = None
        return Machine(
            **self.shared_fields(mark),
            has_node=has_node,
            ready=first_condition(status.conditions, "NodeHealthy").status != "False",
            launched_at=launched_at,
            # A machine has the phase Running from its node's registration on. ``lastUpdated`` is the time when the
            # phase last changed (cluster-api internal/controllers/machine; OpenShift machine-api-operator
            # pkg/controller/machine/controller.go, updateStatus).
            joined_at=moment_of(status.last_updated) if has_node and status.phase == "Running" else None,
            failure=failure,
            failed_for_good=failure is not None and for_good,
        )

    def launch(self) -> tuple[datetime | None, MachineFailure | None, bool]:
        """Return when the machine was launched, its failure, and whether no controller tries to launch it again."""
        raise NotImplementedError

    def node_names(self) -> list[str]:
        """Return the names and the provider id that identify the machine's node."""
        name = self.status.node_ref.name
        return [*([name] if isinstance(name, str) and name else ()), *super().node_names()]
