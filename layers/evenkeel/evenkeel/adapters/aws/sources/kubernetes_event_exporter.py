"""Reads the Kubernetes Events that kubernetes-event-exporter sends (its pkg/kube/event.go).

They have the Event's own fields, clusterName, and the involved object. The exporter adds the object's labels and owners
if its configuration has omitLookup: false.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import field_validator

from evenkeel.adapters.aws.signals import Envelope, EventPart, Rows, ShortText, Text, ignored
from evenkeel.application.rebalancing.events import Failure, InboundEvent, Report
from evenkeel.domain.model.failures import classify
from evenkeel.domain.model.values import quote
from evenkeel.validation import Count, KubernetesName, Moment, read_model

if TYPE_CHECKING:
    from evenkeel.adapters.kubernetes.flavours.base import Flavour

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # the valid names of a Kubernetes object


class _Owner(EventPart):
    kind: ShortText = ""
    name: ShortText = ""
    controller: bool | None = None


class _Involved(EventPart):
    kind: ShortText
    namespace: KubernetesName
    name: KubernetesName
    apiVersion: ShortText = ""  # noqa: N815
    labels: dict[str, str] | None = None
    ownerReferences: tuple[_Owner, ...] | None = None  # noqa: N815


class _Metadata(EventPart):
    uid: ShortText = ""


class _KubernetesEvent(EventPart):
    clusterName: ShortText = ""  # noqa: N815
    type: ShortText
    reason: ShortText
    message: Text = ""
    metadata: _Metadata = _Metadata()
    count: Count | None = None
    involvedObject: _Involved  # noqa: N815
    lastTimestamp: Moment | None = None  # noqa: N815
    eventTime: Moment | None = None  # noqa: N815
    firstTimestamp: Moment | None = None  # noqa: N815

    @field_validator("message", mode="before")
    @classmethod
    def _cut(cls, value: object) -> object:
        return value[:8192] if isinstance(value, str) else value  # the beginning of a message has the cause


# The reasons that controllers of all flavours report if they could not create a machine or the machine's object.
REASONS = {
    "FailedCreate",  # CAPA's AWSMachine, OpenShift's Machine, every MachineSet
    "FailedCreateMachine",
    "FailedProvisioning",
    "InstanceProvisionFailed",
    "MachineCreationFailed",
    "CreateError",
    "CreateFailed",
}
_FAILED_SCHEDULING = "FailedScheduling"  # the scheduler's reason if no node fits a pod


@cache
def _flavours() -> Mapping[str, "Flavour"]:
    """Return the flavour of each API group."""
    # Where it is used: events of other sources do not need it, nor msgspec, which it imports.
    from evenkeel.adapters.kubernetes.flavours import FLAVOURS

    return {group: flavour for flavour in FLAVOURS.values() for group in (flavour.group, *flavour.provider_groups)}


def _failure(event: Mapping[str, Any]) -> InboundEvent:
    envelope = read_model(Envelope, event, "kubernetes event")
    detail = read_model(_KubernetesEvent, event.get("detail"), "kubernetes event: detail")
    involved = detail.involvedObject
    failure = Failure(
        called=(detail.clusterName,),
        code=detail.reason,
        message="",
        occurred_at=detail.lastTimestamp or detail.eventTime or detail.firstTimestamp or envelope.time,
        id=f"{detail.metadata.uid}-{detail.count or 0}" if detail.metadata.uid else envelope.id,
    )
    if (involved.apiVersion, involved.kind, detail.reason) == ("v1", "Pod", _FAILED_SCHEDULING):
        return replace(failure, reports=Report.PENDING_POD) if detail.clusterName else _nameless()
    flavour = _flavours().get(involved.apiVersion.partition("/")[0])
    about_machines = involved.kind in ("MachineSet", "MachineDeployment") or involved.kind.endswith("Machine")
    if flavour is None or not about_machines:
        subject = f"{involved.apiVersion} {involved.kind}"
        return ignored("no failure", f"kubernetes event: {quote(subject)} is no machine of a known API")
    if detail.type != "Warning" or detail.reason not in REASONS:
        name = _scalable(flavour, involved)
        if detail.clusterName and name is not None:
            return replace(
                failure, reports=Report.ARRIVAL, flavour=flavour.name, namespace=involved.namespace, name=name
            )
        subject = f"{detail.type} {detail.reason}"
        return ignored("no failure", f"kubernetes event: {quote(subject)} reports no failed machine")
    if not detail.clusterName:
        return _nameless()
    # A message without a clear cause may be only about the machine's object, such as a webhook's refusal or a timeout
    # of the API server. So the event only requests a check. The check reads the machines' status, which shows a failure
    # of the provider.
    clear = not classify(detail.reason, detail.message).is_vague
    return replace(
        failure,
        flavour=flavour.name,
        namespace=involved.namespace,
        name=_scalable(flavour, involved) if clear else None,
        machine=involved.name if involved.kind.endswith("Machine") else None,
        message=detail.message,
    )


def _nameless() -> InboundEvent:
    reason = "clusterName is empty: set it in the exporter's configuration to the cluster's id or one of its names"
    return ignored("malformed", f"kubernetes event: detail: {reason}")


def _scalable(flavour: "Flavour", involved: _Involved) -> str | None:
    """Return the name of the object's scalable, which may be the object itself; None if it is unknown."""
    if involved.kind == "MachineDeployment":
        return involved.name
    labels = involved.labels or {}
    for label in flavour.machines.labels.values():  # the label of the outermost object is first
        if label in labels:
            # If the name is too long for a label, Cluster API writes a hash instead. The check then finds the group.
            return labels[label] if _NAME.fullmatch(labels[label]) else None
    owners = {owner.kind: owner.name for owner in involved.ownerReferences or () if owner.controller is not False}
    owner = owners.get("MachineDeployment") or (owners.get("MachineSet") if flavour.is_of_sets else None)
    if owner:
        return owner if _NAME.fullmatch(owner) else None
    # A MachineSet without an owner is a scalable. An event without labels does not show whether there is an owner.
    return involved.name if involved.kind == "MachineSet" and (labels or flavour.is_of_sets) else None


# Source and detail-type are free text in the exporter's configuration. Only these sources are accepted.
ROWS: Rows = {
    ("kubernetes-event-exporter", "*"): _failure,
    ("evenkeel.kubernetes*", "*"): _failure,
}
