"""What trouble looks like on the bus: a table from (source, detail-type) to a parser; what no row knows is explained.

One new event shape is one new row. Events are hints, so a parser claims little: a node group only where the event names
it, else a look at the cluster. No endpoint, credential or namespace to connect to is ever taken from an event: it only
names a cluster that is registered, and a group in it. Nothing here raises: what cannot be used is explained.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from evenkeel.application.failure import Failure, Ignored, Sender
from evenkeel.application.request_scale import ScaleRequestEvent
from evenkeel.application.zones import ZoneShift
from evenkeel.config import ClusterId, ConfigError, Count, KubernetesName, Moment, ScaleRequestRecord, read_model
from evenkeel.domain.health.failures import classify
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.values import shown

Word = Failure | ZoneShift | ScaleRequestEvent | Ignored

# An EventBridge entry of any source that we know stays far below. What arrives larger came by another way.
LARGEST_EVENT = 256 * 1024
_Text = Annotated[str, Field(max_length=8192)]
_Short = Annotated[str, Field(max_length=256)]
_Id = Annotated[str, Field(min_length=1, max_length=256)]
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")  # of a Kubernetes object


class _Lenient(BaseModel):
    """A part of an event. Its senders are many and not ours: unknown fields are let be."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Envelope(_Lenient):
    """What EventBridge puts around every detail."""

    id: _Id
    time: Moment
    region: Annotated[str, Field(pattern=r"^[a-z0-9-]{0,64}$")] = ""


def _no(kind: str, reason: str) -> Ignored:
    return Ignored(kind=kind, reason=_clean(reason, 500))


def _clean(text: str, length: int) -> str:
    """One line that can be written anywhere: JSON may carry half characters that UTF-8 has no bytes for."""
    return " ".join(text[: 4 * length].encode(errors="replace").decode().split())[:length]


# ---------------------------------------------------------------- the native event
class _Native(_Lenient):
    cluster: ClusterId
    namespace: KubernetesName
    kind: _Text = ""
    name: KubernetesName | None = None
    machine: KubernetesName | None = None
    zone: _Text | None = None
    code: _Text
    message: _Text = ""
    occurredAt: Moment  # noqa: N815  the contract's own name
    id: _Id


def _native(event: Mapping[str, Any]) -> Word:
    detail = read_model(_Native, event.get("detail"), "failure event: detail")
    if detail.name is None and detail.machine is None:
        return _no("malformed", "failure event: detail names neither the scalable (name) nor the machine (machine)")
    of_machine = detail.kind == "Machine"
    return Failure(
        cluster=detail.cluster,
        namespace=detail.namespace,
        name=None if of_machine else detail.name,
        machine=detail.machine or (detail.name if of_machine else None),
        code=detail.code,
        message=detail.message,
        occurred_at=detail.occurredAt,
        id=detail.id,
        zone=detail.zone,
    )


# ---------------------------------------------------------------- growth on request
class _ScaleUp(_Lenient):
    cluster: ClusterId
    pool: _Text = ""
    group: _Text = ""
    nodes: Annotated[int, Field(ge=1, strict=True)]
    only: tuple[_Text, ...] = ()
    occurredAt: Moment | None = None  # noqa: N815  as in the failure event
    id: _Id


def _scale_up(event: Mapping[str, Any]) -> Word:
    envelope = read_model(_Envelope, event, "scale-up event")
    detail = read_model(_ScaleUp, event.get("detail"), "scale-up event: detail")
    fields = {"id": detail.id, "nodes": detail.nodes, "pool": detail.pool, "group": detail.group, "only": detail.only}
    fields["by"] = "/".join(str(event.get(name) or "?")[:256] for name in ("account", "source"))
    record = read_model(
        ScaleRequestRecord, {**fields, "at": detail.occurredAt or envelope.time}, "scale-up event: detail"
    )
    return ScaleRequestEvent(cluster=detail.cluster, record=record)


# ---------------------------------------------------------------- kubernetes-event-exporter
# A Kubernetes Event as the exporter sends it (pkg/kube/event.go): the Event's own fields, clusterName, and the involved
# object with its labels and owners, where the exporter looks them up (omitLookup: false).
class _Owner(_Lenient):
    kind: _Short = ""
    name: _Short = ""
    controller: bool | None = None


class _Involved(_Lenient):
    kind: _Short
    namespace: KubernetesName
    name: KubernetesName
    apiVersion: _Short = ""  # noqa: N815
    labels: dict[str, str] | None = None
    ownerReferences: tuple[_Owner, ...] | None = None  # noqa: N815


class _Metadata(_Lenient):
    uid: _Short = ""


class _KubernetesEvent(_Lenient):
    clusterName: _Short = ""  # noqa: N815
    type: _Short
    reason: _Short
    message: _Text = ""
    metadata: _Metadata = _Metadata()
    count: Count | None = None
    involvedObject: _Involved  # noqa: N815
    lastTimestamp: Moment | None = None  # noqa: N815
    eventTime: Moment | None = None  # noqa: N815
    firstTimestamp: Moment | None = None  # noqa: N815

    @field_validator("message", mode="before")
    @classmethod
    def _cut(cls, value: object) -> object:
        return value[:8192] if isinstance(value, str) else value  # the beginning says what went wrong


# What the controllers of the three flavours say when a machine, or a machine's object, could not be made.
_REASONS = {
    "FailedCreate",  # CAPA's AWSMachine, OpenShift's Machine, every MachineSet
    "FailedCreateMachine",
    "FailedProvisioning",
    "InstanceProvisionFailed",
    "MachineCreationFailed",
    "CreateError",
    "CreateFailed",
}
_FLAVOUR_OF = {
    "machine.sapcloud.io": "gardener",
    "cluster.x-k8s.io": "cluster-api",
    "infrastructure.cluster.x-k8s.io": "cluster-api",
    "machine.openshift.io": "openshift",
}
# Labels that name the scalable, the outermost first.
_SCALABLE_LABELS = {
    "gardener": ("name",),
    "cluster-api": ("cluster.x-k8s.io/deployment-name", "cluster.x-k8s.io/set-name"),
    "openshift": ("machine.openshift.io/cluster-api-machineset",),
}


def _kubernetes(event: Mapping[str, Any]) -> Word:
    envelope = read_model(_Envelope, event, "kubernetes event")
    detail = read_model(_KubernetesEvent, event.get("detail"), "kubernetes event: detail")
    involved = detail.involvedObject
    flavour = _FLAVOUR_OF.get(involved.apiVersion.partition("/")[0])
    about_machines = involved.kind in ("MachineSet", "MachineDeployment") or involved.kind.endswith("Machine")
    if flavour is None or not about_machines:
        what = f"{involved.apiVersion} {involved.kind}"
        return _no("no failure", f"kubernetes event: {shown(what)} is no machine of a known API")
    if detail.type != "Warning" or detail.reason not in _REASONS:
        what = f"{detail.type} {detail.reason}"
        return _no("no failure", f"kubernetes event: {shown(what)} reports no failed machine")
    if not detail.clusterName:
        why = "clusterName is empty: set it in the exporter's configuration to the cluster's id or one of its names"
        return _no("malformed", f"kubernetes event: detail: {why}")
    # A message of no known kind may be about the machine's object alone (a webhook, a timeout of the API server); the
    # look that it asks for sees in the machines' status whether the provider has failed.
    clear = classify(detail.reason, detail.message) is not FailureClass.UNKNOWN
    is_machine = involved.kind.endswith("Machine")
    return Failure(
        called=(detail.clusterName,),
        flavour=flavour,
        namespace=involved.namespace,
        name=_scalable(flavour, involved) if clear else None,
        machine=involved.name if is_machine else None,
        code=detail.reason,
        message=detail.message,
        occurred_at=detail.lastTimestamp or detail.eventTime or detail.firstTimestamp or envelope.time,
        id=f"{detail.metadata.uid}-{detail.count or 0}" if detail.metadata.uid else envelope.id,
    )


def _scalable(flavour: str, involved: _Involved) -> str | None:
    """The scalable that the object is or belongs to; None where labels and owners do not say."""
    if involved.kind == "MachineDeployment":
        return involved.name
    labels = involved.labels or {}
    for label in _SCALABLE_LABELS[flavour]:
        if label in labels:
            # Cluster API writes a hash where the name is too long for a label; then the look has to find the group.
            return labels[label] if _NAME.fullmatch(labels[label]) else None
    owners = {owner.kind: owner.name for owner in involved.ownerReferences or () if owner.controller is not False}
    owner = owners.get("MachineDeployment") or (owners.get("MachineSet") if flavour == "openshift" else None)
    if owner:
        return owner if _NAME.fullmatch(owner) else None
    # A MachineSet without an owner is a scalable of its own; whether it has one is known where labels came with it.
    return involved.name if involved.kind == "MachineSet" and (labels or flavour == "openshift") else None


# ---------------------------------------------------------------- CloudTrail
class _CloudTrail(_Lenient):
    eventSource: _Short  # noqa: N815
    eventName: _Short  # noqa: N815
    eventID: _Id | None = None  # noqa: N815
    errorCode: _Short | None = None  # noqa: N815
    errorMessage: str | None = None  # noqa: N815
    requestParameters: dict[str, Any] | None = None  # noqa: N815
    responseElements: dict[str, Any] | None = None  # noqa: N815


# kubernetes.io/cluster/<name>: machine-controller-manager, OpenShift, EKS; the other is CAPA's own.
_CLUSTER_TAGS = ("sigs.k8s.io/cluster-api-provider-aws/cluster/", "kubernetes.io/cluster/")


def _cloudtrail(event: Mapping[str, Any]) -> Word:
    envelope = read_model(_Envelope, event, "CloudTrail event")
    detail = read_model(_CloudTrail, event.get("detail"), "CloudTrail event: detail")
    call = f"{detail.eventSource} {detail.eventName}"
    if call not in ("ec2.amazonaws.com RunInstances", "ec2.amazonaws.com CreateFleet"):
        return _no("no failure", f"CloudTrail event: {shown(call)} launches no instances")
    errors = [(detail.errorCode, detail.errorMessage or "")] if detail.errorCode else list(_fleet_errors(detail))
    if not errors or errors[0][0] == "Client.DryRunOperation":
        return _no("no failure", f"CloudTrail event: {detail.eventName} did not fail")
    request = detail.requestParameters or {}
    tags = dict(_tags([value for key, value in _inside(request).items() if key.lower().startswith("tagspecification")]))
    named = [key.removeprefix(prefix) for prefix in _CLUSTER_TAGS for key in tags if key.startswith(prefix)]
    called = tuple(dict.fromkeys(name for name in named if name))[:16]
    if not called:
        why = "no tag kubernetes.io/cluster/<name>, so no cluster is known to be meant"
        return _no("unknown cluster", f"CloudTrail event: {detail.eventName} has {why}")
    zone = request.get("availabilityZone")
    return Failure(
        called=called,
        machine=tags.get("Name"),
        code=errors[0][0],
        message=_clean("; ".join(message for _, message in errors[:8]), 2048),
        occurred_at=envelope.time,
        id=detail.eventID or envelope.id,
        zone=_clean(zone, 64) if isinstance(zone, str) else None,
    )


def _inside(request: Mapping[str, Any]) -> Mapping[str, Any]:
    """CreateFleet's parameters stand one level down, under the name of the request."""
    inner = request.get("CreateFleetRequest")
    return inner if isinstance(inner, Mapping) else request


def _fleet_errors(detail: _CloudTrail) -> Iterator[tuple[str, str]]:
    """CreateFleet answers, and says inside its answer what it could not launch, also where it launched the rest."""
    answer = (detail.responseElements or {}).get("CreateFleetResponse")
    errors = answer.get("errorSet") if isinstance(answer, Mapping) else None
    items = errors.get("item") if isinstance(errors, Mapping) else None
    for item in items if isinstance(items, list) else [items]:  # CloudTrail writes a list of one as an object
        if isinstance(item, Mapping) and isinstance(item.get("errorCode"), str):
            yield _clean(item["errorCode"], 128), _clean(str(item.get("errorMessage", "")), 1024)


def _tags(value: object) -> Iterator[tuple[str, str]]:
    """All tags below a value: RunInstances spells them key and value, CreateFleet Key and Value."""
    todo = [value]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo.extend(one)
        elif isinstance(one, Mapping):
            key, text = one.get("key", one.get("Key")), one.get("value", one.get("Value"))
            if isinstance(key, str) and isinstance(text, str):
                yield _clean(key, 256), _clean(text, 256)
            else:
                todo.extend(one.values())


# ---------------------------------------------------------------- Auto Scaling groups
class _Launch(_Lenient):
    AutoScalingGroupName: Annotated[str, Field(min_length=1, max_length=255)]
    ActivityId: _Id | None = None
    StatusMessage: str = ""
    Cause: str = ""
    Details: dict[str, Any] | None = None


def _auto_scaling(event: Mapping[str, Any]) -> Word:
    """No node group of ours is an Auto Scaling group, but a cluster may have some beside them, in the same zones.

    The event carries no tags, only the group's name; by custom (and always in EKS, after ``eks-``) that begins with the
    name of a cluster or of its node pool. So every beginning of it is tried, the longest first.
    """
    envelope = read_model(_Envelope, event, "Auto Scaling event")
    detail = read_model(_Launch, event.get("detail"), "Auto Scaling event: detail")
    parts = detail.AutoScalingGroupName.removeprefix("eks-").split("-")
    beginnings = ("-".join(parts[:count]) for count in range(len(parts), 0, -1))
    zone = (detail.Details or {}).get("Availability Zone")
    found = re.search(r"\b([A-Z]\w+) - ", detail.StatusMessage)
    return Failure(
        called=tuple(name for name in beginnings if name),
        code=found.group(1)[:128] if found else "LaunchUnsuccessful",
        message=_clean(detail.StatusMessage or detail.Cause, 2048),
        occurred_at=envelope.time,
        id=detail.ActivityId or envelope.id,
        zone=_clean(zone, 64) if isinstance(zone, str) else None,
    )


# ---------------------------------------------------------------- ARC zonal shift and autoshift
class _ShiftMetadata(_Lenient):
    awayFrom: Annotated[str, Field(pattern=r"^[a-z0-9-]{3,32}$")]  # noqa: N815  a zone's id, such as use1-az1


class _Shift(_Lenient):
    metadata: _ShiftMetadata


def _shift(by: str, *, impaired: bool) -> Callable[[Mapping[str, Any]], Word]:
    def read(event: Mapping[str, Any]) -> Word:
        envelope = read_model(_Envelope, event, "zonal shift event")
        detail = read_model(_Shift, event.get("detail"), "zonal shift event: detail")
        return ZoneShift(
            zone=detail.metadata.awayFrom,
            region=envelope.region,
            impaired=impaired,
            at=envelope.time,
            until=None,  # the event has no end; HearZoneShift knows the longest
            by=by,
            id=envelope.id,
        )

    return read


_MANUAL = "ARC zonal shift"
_EXPIRES_IN = re.compile(r"([1-9][0-9]{0,3})([mh])")  # the API's own pattern


def _shift_call(event: Mapping[str, Any]) -> Word:
    """The call that starts or prolongs a manual shift: the only word about when it expires."""
    envelope = read_model(_Envelope, event, "zonal shift call")
    detail = read_model(_CloudTrail, event.get("detail"), "zonal shift call: detail")
    if detail.eventName not in ("StartZonalShift", "UpdateZonalShift") or detail.errorCode:
        return _no("no failure", f"zonal shift call: {shown(detail.eventName)} sets no end, or failed")
    request = detail.requestParameters or {}
    found = _EXPIRES_IN.fullmatch(str(request.get("expiresIn")))
    if found is None:
        return _no("no failure", f"zonal shift call: {detail.eventName} sets no end")
    # UpdateZonalShift is asked by the shift's id; its answer says the zone.
    named = {"awayFrom": request.get("awayFrom") or (detail.responseElements or {}).get("awayFrom")}
    where = read_model(_ShiftMetadata, named, "zonal shift call: detail")
    return ZoneShift(
        zone=where.awayFrom,
        region=envelope.region,
        impaired=True,
        at=envelope.time,
        until=envelope.time + timedelta(minutes=int(found[1]) * (60 if found[2] == "h" else 1)),
        by=_MANUAL,
        id=detail.eventID or envelope.id,
    )


def _on_purpose(kind: str, why: str) -> Callable[[Mapping[str, Any]], Word]:
    return lambda event: _no(kind, f"event: {event['detail-type']} is ignored on purpose: {why}")


_SPOT = _on_purpose("spot", "it takes a running node back, no machine failed to come; what replaces it may")
_PRACTICE = _on_purpose("practice run", "nothing is wrong with the zone, and machines can be had there")
_ARC = "aws.arc-zonal-shift"

PARSERS: dict[tuple[str, str], Callable[[Mapping[str, Any]], Word]] = {
    ("evenkeel.provisioning", "Machine Provisioning Failed"): _native,
    ("evenkeel.provisioning", "Scale-Up Requested"): _scale_up,
    ("aws.ec2", "AWS API Call via CloudTrail"): _cloudtrail,
    ("aws.autoscaling", "EC2 Instance Launch Unsuccessful"): _auto_scaling,
    (_ARC, "Autoshift In Progress"): _shift("ARC autoshift", impaired=True),
    (_ARC, "Autoshift Completed"): _shift("ARC autoshift", impaired=False),
    (_ARC, "FIS Experiment Autoshift In Progress"): _shift("ARC autoshift, FIS experiment", impaired=True),
    (_ARC, "FIS Experiment Autoshift Completed"): _shift("ARC autoshift, FIS experiment", impaired=False),
    (_ARC, "FIS Experiment Autoshift Canceled"): _shift("ARC autoshift, FIS experiment", impaired=False),
    (_ARC, "Manual Shift Started"): _shift(_MANUAL, impaired=True),
    (_ARC, "Manual Shift Updated"): _shift(_MANUAL, impaired=True),
    (_ARC, "Manual Shift Canceled"): _shift(_MANUAL, impaired=False),
    (_ARC, "AWS API Call via CloudTrail"): _shift_call,
    **{(_ARC, f"Practice Run {how}"): _PRACTICE for how in ("Started", "Succeeded", "Interrupted", "Failed")},
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"): _SPOT,
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"): _SPOT,
}


def _parser(source: str, kind: str) -> Callable[[Mapping[str, Any]], Word] | None:
    # The exporter's source and detail-type are free text in its configuration: the source must say what it is.
    if source == "kubernetes-event-exporter" or source.startswith("evenkeel.kubernetes"):
        return _kubernetes
    return PARSERS.get((source, kind))


def read_event(event: object, account: str | None = None) -> Word:
    """What an event says: a failure, a word about a zone, a request for nodes, or why it says nothing. Never raises.

    Args:
        event: as EventBridge delivers it.
        account: the function's own AWS account. Whose events about a cluster are believed, its record says; AWS itself
            tells the account that an event comes from. None: not known, nothing is compared.
    """
    if not isinstance(event, Mapping):
        return _no("malformed", "event: not an object")
    try:
        size = len(json.dumps(event))
    except (TypeError, ValueError, RecursionError):
        return _no("malformed", "event: nested too deeply, or not JSON")
    if size > LARGEST_EVENT:
        return _no("oversized", f"event: {size} bytes; an event has at most {LARGEST_EVENT}")
    source, kind = str(event.get("source")), str(event.get("detail-type"))
    parser = _parser(source, kind)
    if parser is None:
        why = f"event: no parser for source {shown(source)} and detail-type {shown(kind)}"
        return _no("unknown shape", why)
    try:
        word = parser(event)
    except ConfigError as error:
        return _no("malformed", str(error))
    if account is None or isinstance(word, Ignored):
        return word
    return replace(word, sender=Sender(account=_clean(str(event.get("account")), 64), stack=account))


def account_of(context: Any) -> str | None:
    """The account that Lambda's context says the function is in; None by hand."""
    parts = str(getattr(context, "invoked_function_arn", "")).split(":")
    return parts[4] if len(parts) > 4 and re.fullmatch(r"[0-9]{12}", parts[4]) else None
