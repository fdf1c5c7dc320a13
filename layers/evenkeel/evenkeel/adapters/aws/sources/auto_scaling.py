"""Reads events about EC2 Auto Scaling groups that could not launch an instance."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from evenkeel.adapters.aws.signals import Envelope, EventPart, Id, Rows, one_line
from evenkeel.application.rebalancing.events import Failure, InboundEvent
from evenkeel.validation import read_model


class _Launch(EventPart):
    AutoScalingGroupName: Annotated[str, Field(min_length=1, max_length=255)]
    ActivityId: Id | None = None
    StatusMessage: str = ""
    Cause: str = ""


def _failure(event: Mapping[str, Any]) -> InboundEvent:
    """Return the failure for the cluster of the Auto Scaling group. The cluster's node groups are in the same zones.

    The event has no tags, only the name of the Auto Scaling group. By custom, this name begins with the name of a
    cluster or a node pool. On EKS, such a name always follows ``eks-``. So every beginning of the name is tried as a
    cluster's name, the longest first.
    """
    envelope = read_model(Envelope, event, "Auto Scaling event")
    detail = read_model(_Launch, event.get("detail"), "Auto Scaling event: detail")
    parts = detail.AutoScalingGroupName.removeprefix("eks-").split("-")
    beginnings = ("-".join(parts[:count]) for count in range(len(parts), 0, -1))
    code = re.search(r"\b([A-Z]\w+) - ", detail.StatusMessage)
    return Failure(
        called=tuple(name for name in beginnings if name),
        code=code.group(1)[:128] if code else "LaunchUnsuccessful",
        message=one_line(detail.StatusMessage or detail.Cause, 2048),
        occurred_at=envelope.time,
        id=detail.ActivityId or envelope.id,
    )


ROWS: Rows = {("aws.autoscaling", "EC2 Instance Launch Unsuccessful"): _failure}
