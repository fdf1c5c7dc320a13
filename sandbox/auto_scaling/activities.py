"""Scaling activities and events of Auto Scaling groups, with AWS's texts."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sandbox.auto_scaling.behavior import Behavior
from sandbox.auto_scaling.calls import AwsError, Json
from sandbox.auto_scaling.clock import VirtualClock
from sandbox.kube.cloud import Cloud, LaunchError, subnet_in

KEPT = timedelta(weeks=6)
_MESSAGE_LENGTH = 255


#: reasons of EC2 other than capacity: code, message (with the placeholders type and zone) and HTTP status
REFUSALS = {
    "type": ("Unsupported", "Your requested instance type ({type}) is not supported in your requested "
             "Availability Zone ({zone}).", 400),
    "quota": ("InstanceLimitExceeded", "20 instance(s) are already running.", 400),
    "configuration": ("Unsupported", "The requested configuration is currently not supported.", 400),
    "key": ("Client.InternalError", "Client.InternalError: Client error on launch.", 400),
    "security group": ("InvalidGroup.NotFound", "The security group 'sg-0a1b2c3d' does not exist.", 400),
}  # fmt: skip


def refuse(stock: Cloud, zone: str, kind: str) -> None:
    """Refuse every launch in a zone for a reason of REFUSALS, until `stock.accept`."""
    code, message, status = REFUSALS[kind]
    stock.refuse(zone, code=code, message=message.format(type=stock.machine_type, zone=zone), status=status)


def stamp(moment: datetime) -> str:
    """Return a time as causes show it."""
    return f"{moment.isoformat()[:19]}Z"  # a third of the time of strftime


def refusal_message(error: LaunchError, *, spot: bool, mixed: bool) -> str:
    """Return the message of an activity whose launch EC2 refused."""
    message, code = error.message, error.code
    if spot and code == "InsufficientInstanceCapacity":
        code, message = "UnfulfillableCapacity", "There is no Spot capacity available that matches your request."
    if mixed:
        message = f"Could not launch {'Spot' if spot else 'On-Demand'} Instances. {code} - {message}"
    return f"{message} Launching EC2 instance failed."


@dataclass(kw_only=True, eq=False)
class Activity:
    """One scaling activity."""

    number: int
    group: str
    arn: str
    description: str
    cause: str
    zone: str
    start: datetime
    shown: datetime  # when answers begin to have it
    instance: str = ""
    status: str = "InProgress"
    progress: int = 30
    message: str = ""
    end: datetime | None = None

    @property
    def id(self) -> str:
        """Return the ActivityId."""
        return f"{self.number:08x}-0000-4000-8000-{self.number:012x}"

    @property
    def details(self) -> dict[str, str]:
        """Return where the activity happens."""
        return {"Subnet ID": subnet_in(self.zone), "Availability Zone": self.zone}

    @property
    def explained(self) -> str:
        """Return the description with the reason."""
        return f"{self.description}  Status Reason: {self.message}" if self.message else self.description

    def describe(self) -> Json:
        """Return the activity as DescribeScalingActivities does."""
        return {
            "ActivityId": self.id,
            "AutoScalingGroupName": self.group,
            "AutoScalingGroupARN": self.arn,
            "Description": self.explained,
            "Cause": self.cause[:1023],
            "StartTime": self.start,
            **({"EndTime": self.end} if self.end else {}),
            "StatusCode": self.status,
            **({"StatusMessage": self.message[:_MESSAGE_LENGTH]} if self.message else {}),
            "Progress": self.progress,
            "Details": json.dumps(self.details, separators=(",", ":")),
        }


class ActivityLog:
    """The activities of an account, and the events that AWS sends about its groups."""

    def __init__(self, clock: VirtualClock, behavior: Behavior, *, account: str, region: str) -> None:
        self._clock, self._behavior = clock, behavior
        self._account, self._region = account, region
        self._activities: dict[str, list[Activity]] = {}  # by group, also of deleted ones
        self._numbers = 0
        #: called with each event of EventBridge
        self.listeners: list[Callable[[Json], None]] = []

    def start(self, group: str, arn: str, description: str, *, cause: str, zone: str, instance: str = "") -> Activity:
        """Add an activity in progress."""
        activity = Activity(
            number=self.next_number(),
            group=group,
            arn=arn,
            description=description,
            cause=cause,
            zone=zone,
            start=self._clock.now,
            shown=self._clock.now + self._behavior.choose(self._behavior.activity_delay),
            instance=instance,
        )
        self._activities.setdefault(group, []).append(activity)
        return activity

    def end(self, activity: Activity, status: str = "Successful", message: str = "") -> None:
        """End an activity and send its event."""
        activity.status, activity.message, activity.end = status, message, self._clock.now
        activity.progress = 100
        if not self.listeners:
            return
        kind = "Terminate" if activity.description.startswith("Terminating") else "Launch"
        detail = {
            "StatusCode": status,
            "AutoScalingGroupName": activity.group,
            "ActivityId": activity.id,
            "Details": activity.details,
            "RequestId": activity.id,
            "StatusMessage": message[:_MESSAGE_LENGTH],
            "StartTime": stamp(activity.start),
            "EndTime": stamp(self._clock.now),
            "EC2InstanceId": activity.instance,
            "Cause": activity.cause[:1023],
            "Description": activity.explained,
        }
        resources = [activity.arn]
        if activity.instance:
            resources.append(f"arn:aws:ec2:{self._region}:{self._account}:instance/{activity.instance}")
        outcome = "Successful" if status == "Successful" else "Unsuccessful"
        self.send(f"EC2 Instance {kind} {outcome}", detail, resources)

    def send(self, detail_type: str, detail: Json, resources: list[str], source: str = "aws.autoscaling") -> None:
        """Send an event."""
        event: dict[str, Any] = {
            "version": "0",
            "id": f"{self.next_number():08x}-0000-4000-9000-000000000000",
            "detail-type": detail_type,
            "source": source,
            "account": self._account,
            "time": stamp(self._clock.now),
            "region": self._region,
            "resources": resources,
            "detail": detail,
        }
        for listener in self.listeners:
            listener(event)

    def next_number(self) -> int:
        """Return a number for an id."""
        self._numbers += 1
        return self._numbers

    def select(self, name: str | None, filters: Sequence[Json]) -> list[Activity]:
        """Return the activities that pass the filters of DescribeScalingActivities, of one group or of all.

        Those in progress are first, then those that began last.
        """
        values = {item["Name"]: item["Values"] for item in filters}
        if unknown := set(values) - {"Status", "StartTimeLowerBound", "StartTimeUpperBound"}:
            raise AwsError("ValidationError", f"Invalid filter: {', '.join(sorted(unknown))}")
        now = self._clock.now
        since = max(min(map(_moment, values.get("StartTimeLowerBound", [])), default=now - KEPT), now - KEPT)
        until = max(map(_moment, values.get("StartTimeUpperBound", [])), default=now)
        groups = self._activities.values() if name is None else [self._activities.get(name, [])]
        selected = [
            activity
            for activities in groups
            for activity in activities
            if since <= activity.start <= until
            and activity.shown <= now
            and activity.status in values.get("Status", [activity.status])
        ]
        return sorted(selected, key=lambda activity: (activity.end is not None, -activity.number))


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except ValueError:
        raise AwsError("ValidationError", f"Invalid time: {text}") from None
