"""Reads events about EC2 Auto Scaling groups: failed launches, and changes by others than Evenkeel.

An event names its group, and AWS writes the account and the Region into it. A registered cluster that knows the group
gets the event. A failed launch of any other group may concern a cluster of another machine API, whose machines are
launched by an Auto Scaling group (Cluster API's AWSMachinePool). Only the group's name then shows which cluster this
is: by custom, it begins with the name of the cluster or of a node pool, on EKS after ``eks-``.
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from evenkeel.adapters.aws.signals import CloudTrailCall, Envelope, EventPart, Id, Parser, Rows, ignored, one_line
from evenkeel.adapters.aws_session import USER_AGENT
from evenkeel.application.rebalancing.events import Failure, InboundEvent, Report
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.values import quote
from evenkeel.validation import read_model

_SOURCE = "aws.autoscaling"
GroupName = Annotated[str, Field(min_length=1, max_length=255)]
_WRITES_BOUNDS = "UpdateAutoScalingGroup"
_WRITES = ("SetDesiredCapacity", _WRITES_BOUNDS)


class _OfGroup(EventPart):
    AutoScalingGroupName: GroupName


class _Launch(_OfGroup):
    StatusCode: str = "Failed"
    ActivityId: Id | None = None
    StatusMessage: str = ""
    Cause: str = ""
    Destination: str = ""


class _Parameters(EventPart):
    autoScalingGroupName: GroupName  # noqa: N815


def _failure(event: Mapping[str, Any]) -> InboundEvent:
    """Return the failure of a launch. For clusters of other machine APIs, each beginning of the group's name is tried.

    AWS also reports a launch that was cancelled, because the group needs it no longer. Nothing has failed then. A
    launch into a warm pool is no launch of a node.
    """
    envelope = read_model(Envelope, event, "Auto Scaling event")
    detail = read_model(_Launch, event.get("detail"), "Auto Scaling event: detail")
    if detail.StatusCode == "Cancelled":
        return ignored("no failure", "Auto Scaling event: the launch was cancelled")
    if detail.Destination == "WarmPool":
        return ignored("no failure", "Auto Scaling event: the launch into a warm pool failed")
    parts = detail.AutoScalingGroupName.removeprefix("eks-").split("-")
    beginnings = ("-".join(parts[:count]) for count in range(len(parts), 0, -1))
    code = re.search(r"\b([A-Z]\w+) - ", detail.StatusMessage)
    return Failure(
        flavour=AUTO_SCALING,
        namespace=envelope.region,
        name=detail.AutoScalingGroupName,
        called=tuple(name for name in beginnings if name),
        code=code.group(1)[:128] if code else "LaunchUnsuccessful",
        message=one_line(detail.StatusMessage or detail.Cause, 2048),
        occurred_at=envelope.time,
        id=detail.ActivityId or envelope.id,
    )


def _of_group(report: Report) -> Parser:
    def parse(event: Mapping[str, Any]) -> InboundEvent:
        envelope = read_model(Envelope, event, "Auto Scaling event")
        detail = read_model(_OfGroup, event.get("detail"), "Auto Scaling event: detail")
        return _report(report, envelope, detail.AutoScalingGroupName, envelope.id)

    return parse


def _call(event: Mapping[str, Any]) -> InboundEvent:
    """Return the change of a group by another writer. Evenkeel's own calls request no check."""
    envelope = read_model(Envelope, event, "Auto Scaling call")
    detail = read_model(CloudTrailCall, event.get("detail"), "Auto Scaling call: detail")
    if detail.eventName not in _WRITES or detail.errorCode:
        return ignored("no failure", f"Auto Scaling call: {quote(detail.eventName)} changes no size, or failed")
    if USER_AGENT in detail.userAgent.lower():
        return ignored("no failure", f"Auto Scaling call: {detail.eventName} is Evenkeel's own")
    parameters = read_model(_Parameters, detail.requestParameters, "Auto Scaling call: detail.requestParameters")
    writer = _writer(detail) if detail.eventName == _WRITES_BOUNDS else ""
    return _report(Report.CHANGE, envelope, parameters.autoScalingGroupName, detail.eventID or envelope.id, writer)


def _writer(call: CloudTrailCall) -> str:
    """Return the principal of a call, and its program: ``role terraform (HashiCorp/1.0 Terraform/1.9.5)``.

    A service of AWS calls with a role of its own, such as ``AWSServiceRoleForAmazonEKSNodegroup``.
    """
    arn = str(call.userIdentity.get("arn") or "").rpartition(":")[2]
    kind, _, name = arn.partition("/")
    role = f"role {name.partition('/')[0]}" if kind == "assumed-role" else ""
    principal = role or arn or str(call.userIdentity.get("invokedBy") or "") or "an unnamed principal"
    return one_line(f"{principal} ({call.userAgent[:80] or 'an unnamed program'})", 200)


def _report(report: Report, envelope: Envelope, group: str, id: str, writer: str = "") -> Failure:
    return Failure(
        reports=report,
        flavour=AUTO_SCALING,
        namespace=envelope.region,
        name=group,
        code="",
        message="",
        occurred_at=envelope.time,
        id=id,
        writer=writer,
    )


ROWS: Rows = {
    (_SOURCE, "EC2 Instance Launch Unsuccessful"): _failure,
    # A launch that succeeds changes no plan. A terminated instance may be the write of another, or a lost machine.
    (_SOURCE, "EC2 Instance-launch Lifecycle Action"): _of_group(Report.ARRIVAL),
    (_SOURCE, "EC2 Instance-terminate Lifecycle Action"): _of_group(Report.CHANGE),
    (_SOURCE, "EC2 Auto Scaling Instance Refresh *"): _of_group(Report.CHANGE),
    (_SOURCE, "AWS API Call via CloudTrail"): _call,
}
