"""The operations of EC2 Auto Scaling that Evenkeel, cluster-autoscaler, EKS and their operators call.

    auto_scaling = AutoScaling(Cloud(zones=["eu-central-1a", "eu-central-1b"]))
    auto_scaling.create_auto_scaling_group(AutoScalingGroupName="a", MinSize=1, MaxSize=5, ...)   # as boto3's client
    auto_scaling.clock.run(timedelta(minutes=1))                                                  # the instance runs

`groups` is what no API can do: stop an instance, name the owner of a tag that starts with "aws:". Where AWS's behavior
is not known, the operations do what is worst for a writer.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from datetime import timedelta
from typing import Any

from sandbox.auto_scaling.activities import ActivityLog, stamp
from sandbox.auto_scaling.behavior import Behavior, Termination
from sandbox.auto_scaling.calls import AwsError, Json, Service, operation, page, page_size
from sandbox.auto_scaling.clock import VirtualClock
from sandbox.auto_scaling.groups import PROCESSES, Group, Groups, Hook, Instance
from sandbox.auto_scaling.past import Past
from sandbox.kube.cloud import Cloud

_USER = "a user request"
_TEMPLATES = ("LaunchTemplate", "MixedInstancesPolicy", "LaunchConfigurationName")
_TAGS_PER_CALL, _TAGS_PER_GROUP, _KEY_LENGTH, _VALUE_LENGTH = 25, 50, 128, 256
#: arguments that are no members of a group's description, or that the group has as its own fields
_FIELDS = {
    *("AutoScalingGroupName", "MinSize", "MaxSize", "DesiredCapacity", "AvailabilityZones", "Tags", "InstanceId"),
    *("LifecycleHookSpecificationList", "SkipZonalShiftValidation"),
}
_DEFAULTS: Json = {
    "DefaultCooldown": 300,
    "HealthCheckType": "EC2",
    "HealthCheckGracePeriod": 0,
    "TerminationPolicies": ["Default"],
    "NewInstancesProtectedFromScaleIn": False,
    "CapacityRebalance": False,
    "AvailabilityZoneDistribution": {"CapacityDistributionStrategy": "balanced-best-effort"},
}


_REFUSED_TERMINATIONS = {
    "ScalingActivityInProgress": "The operation can't be performed because there are scaling activities in progress.",
    "ResourceContention": "You already have a pending update to an Amazon EC2 Auto Scaling resource.",
    "ValidationError": "The Terminate process is suspended for the Auto Scaling group.",
}


def _invalid(message: str) -> AwsError:
    return AwsError("ValidationError", message)


class AutoScaling(Service):
    """EC2 Auto Scaling in one account and Region."""

    def __init__(
        self,
        stock: Cloud,
        *,
        clock: VirtualClock | None = None,
        behavior: Behavior | None = None,
        account: str = "123456789012",
        region: str = "eu-central-1",
    ) -> None:
        behavior = behavior or Behavior()
        super().__init__(clock or VirtualClock(), behavior)
        self.account, self.region = account, region
        self.log = ActivityLog(self.clock, behavior, account=account, region=region)
        self.groups = Groups(stock, self.clock, self.log, behavior)
        self.past = Past[str, Group](self.clock, behavior, self._by_name, _is_same)
        #: members of answers that differ from what is simulated, by the name of a group or the id of an instance
        self.overrides: dict[str, Json] = {}

    def latency(self, operation: str, request: Json) -> timedelta:
        """Return how long AWS takes for a call."""
        is_account_wide = operation == "DescribeScalingActivities" and "AutoScalingGroupName" not in request
        return self.behavior.latency + (self.behavior.account_wide_latency if is_account_wide else timedelta(0))

    # -- groups ---------------------------------------------------------------------------------------------------

    @operation
    def create_auto_scaling_group(self, request: Json) -> None:
        """Create a group and launch its first instances."""
        name = request["AutoScalingGroupName"]
        if name in self.groups.by_name:
            raise AwsError("AlreadyExists", f"AutoScalingGroup by this name already exists - {name}")
        if not any(member in request for member in _TEMPLATES):
            members = "LaunchTemplate, LaunchConfigurationName, InstanceId or MixedInstancesPolicy"
            raise _invalid(f"Valid requests must contain either {members} parameter.")
        arn = f"arn:aws:autoscaling:{self.region}:{self.account}:autoScalingGroup"
        number = self.log.next_number()
        group = Group(
            name=name,
            arn=f"{arn}:{number:08x}-0000-4000-c000-{number:012x}:autoScalingGroupName/{name}",
            created=self.clock.now,
            minimum=request["MinSize"],
            maximum=request["MaxSize"],
            zones=self._zones(request),
            settings={},
        )
        desired = request.get("DesiredCapacity", group.minimum)
        self._check_bounds(group.minimum, group.maximum, desired)
        group.settings = self._settings(request)
        tags = [{"ResourceId": name, **tag} for tag in request.get("Tags", [])]
        self._check_tags({name: group}, tags)
        self.groups.by_name[name] = group
        self._write_tags(tags)
        group.declared = frozenset(group.tags)
        for hook in request.get("LifecycleHookSpecificationList", []):
            self._put_hook(group, hook)
        self.groups.set_desired(group, desired, f"{_USER} created an AutoScalingGroup")

    @operation
    def update_auto_scaling_group(self, request: Json) -> None:
        """Change bounds, desired capacity and settings. Without a desired capacity, new bounds clamp the old one.

        AWS clamps "the size of the group". It is not known whether that is the desired capacity or the instances.
        Here, a minimum above either raises or lowers the desired capacity to itself, and a maximum below either too.
        """
        group = self._group(request)
        minimum, maximum = request.get("MinSize", group.minimum), request.get("MaxSize", group.maximum)
        desired, size = request.get("DesiredCapacity"), len(group.counted)
        if desired is None:
            desired = group.desired
            if "MinSize" in request and minimum > min(desired, size):
                desired = minimum
            if "MaxSize" in request and maximum < max(desired, size):
                desired = maximum
        self._check_bounds(minimum, maximum, desired)
        if "VPCZoneIdentifier" in request or "AvailabilityZones" in request:
            group.zones = self._zones(request)
        group.minimum, group.maximum = minimum, maximum
        if any(member in request for member in _TEMPLATES):
            group.settings = {key: value for key, value in group.settings.items() if key not in _TEMPLATES}
        group.settings |= self._settings(request)
        constraints = f"update of AutoScalingGroup constraints to min: {minimum}, max: {maximum}, desired: {desired}"
        self.groups.set_desired(group, desired, f"{_USER} {constraints}")

    @operation
    def delete_auto_scaling_group(self, request: Json) -> None:
        """Delete a group, with ForceDelete also its instances."""
        group = self._group(request)
        if not group.instances:
            del self.groups.by_name[group.name]
            return
        if not request.get("ForceDelete"):
            rest = "instances or pending Spot instance request(s) still in the group."
            raise AwsError("ResourceInUse", f"You cannot delete an AutoScalingGroup while there are {rest}")
        group.deleting = True
        cause = f"At {stamp(self.clock.now)} {_USER} force deleted AutoScalingGroup."
        for instance in [instance for instance in group.instances.values() if not instance.ends]:
            self.groups.terminate(group, instance, cause)

    @operation
    def describe_auto_scaling_groups(self, request: Json) -> Json:
        """Return one page of groups. Filters are ANDed, the values of a filter are ORed."""
        names = set(request.get("AutoScalingGroupNames") or ())
        groups = {name: group for name, group in self.past.read() if not names or name in names}
        for one in request.get("Filters", []):
            groups = {name: group for name, group in groups.items() if _matches(group, one["Name"], one["Values"])}
        chosen, token = self._page(sorted(groups), request, 50)
        described = [self._describe(groups[name], request.get("IncludeInstances", True)) for name in chosen]
        return {"AutoScalingGroups": described, **({"NextToken": token} if token else {})}

    @operation
    def describe_scaling_activities(self, request: Json) -> Json:
        """Return one page of activities: those in progress first, then the latest, of one group or of all."""
        name, filters = request.get("AutoScalingGroupName"), request.get("Filters", [])
        with_deleted = request.get("IncludeDeletedGroups", False)
        if name is None and any(one["Name"] == "Status" for one in filters):
            raise _invalid("The Status filter can only be used together with an AutoScalingGroupName.")
        if name is not None and not with_deleted:
            self._readable(request)
        alive = {group.arn for group in self.groups.by_name.values()}
        ids = request.get("ActivityIds")
        found = {
            activity.id: activity
            for activity in self.log.select(name, filters)
            if (with_deleted or activity.arn in alive) and (not ids or activity.id in ids)
        }
        chosen, token = self._page(list(found), request, 100)
        described = [
            {**activity.describe(), "AutoScalingGroupState": "InService" if activity.arn in alive else "Deleted"}
            for activity in (found[each] for each in chosen)
        ]
        return {"Activities": described, **({"NextToken": token} if token else {})}

    def _page(self, names: list[str], request: Json, default: int) -> tuple[Sequence[str], str | None]:
        size = page_size(request, default)
        return page(names, request.get("NextToken"), size, short=self.behavior.short_pages)

    # -- capacity -------------------------------------------------------------------------------------------------

    @operation
    def set_desired_capacity(self, request: Json) -> None:
        """Set the desired capacity within the bounds."""
        group, desired = self._group(request), request["DesiredCapacity"]
        if not group.minimum <= desired <= group.maximum:
            bound = (
                f"below min value {group.minimum}" if desired < group.minimum else f"above max value {group.maximum}"
            )
            raise _invalid(f"New SetDesiredCapacity value {desired} is {bound} for the AutoScalingGroup.")
        self.groups.set_desired(group, desired, f"{_USER} explicitly set group desired capacity")

    @operation
    def terminate_instance_in_auto_scaling_group(self, request: Json) -> Json:
        """Terminate an instance, also a protected one. A second call for an instance decrements again."""
        group, instance = self._instance(request["InstanceId"])
        self._check_writable(group)
        effect = self._termination(group)
        counted, shrinking = len(group.counted), ""
        if request["ShouldDecrementDesiredCapacity"]:
            if group.desired <= group.minimum:
                raise _invalid(
                    f"Currently, desiredSize equals minSize ({group.minimum}). Terminating instance without "
                    "replacement will violate group's min size constraint. Either set shouldDecrementDesiredCapacity "
                    "flag to false or lower group's min size."
                )
            if effect is not Termination.IGNORED:
                group.desired -= 1
            shrinking = f", shrinking the capacity from {counted} to {group.desired}"
        if effect is not Termination.DONE:
            return {"Activity": {**instance.activity.describe(), "StatusCode": "InProgress"}}
        if not instance.ends:
            end = f"was taken out of service in response to {_USER}{shrinking}."
            self.groups.terminate(group, instance, f"At {stamp(self.clock.now)} instance {instance.id} {end}")
        activity = instance.activity.describe()
        self.groups.reconcile(group)
        return {"Activity": activity}

    @operation
    def set_instance_protection(self, request: Json) -> None:
        """Protect instances from scale-in, or not."""
        group, ids = self._group(request), request["InstanceIds"]
        if len(ids) > 50:
            raise AwsError("LimitExceeded", "InstanceIds must have at most 50 members.")
        for _, instance in [self._instance(instance_id) for instance_id in ids]:
            instance.protected = request["ProtectedFromScaleIn"]
        self.groups.reconcile(group)

    @operation
    def suspend_processes(self, request: Json) -> None:
        """Suspend processes of a group, by default all."""
        group = self._group(request)
        for process in self._processes(request):
            group.suspended.setdefault(process, f"User suspended at {stamp(self.clock.now)}")

    @operation
    def resume_processes(self, request: Json) -> None:
        """Resume processes of a group, by default all."""
        group = self._group(request)
        for process in self._processes(request):
            if group.suspended.pop(process, None) and process == "Launch":
                group.retry_at = group.failing_since = None
        self.groups.reconcile(group)

    # -- tags -----------------------------------------------------------------------------------------------------

    @operation
    def create_or_update_tags(self, request: Json) -> None:
        """Write tags of groups: all or none."""
        self._check_tags(self.groups.by_name, request["Tags"])
        self._write_tags(request["Tags"])
        if self.behavior.tags_kept is not None:
            for name in {tag["ResourceId"] for tag in request["Tags"]}:
                self.clock.after(self.behavior.tags_kept, self.strip_tags, name)

    def strip_tags(self, name: str) -> None:
        """Delete the tags that a group was not created with, as Terraform does, whose `tag` blocks are authoritative.

        Tags that begin with "aws:" stay.
        """
        if group := self.groups.by_name.get(name):
            kept = [key for key in group.tags if key in group.declared or key.startswith("aws:")]
            group.tags = {key: group.tags[key] for key in kept}

    @operation
    def delete_tags(self, request: Json) -> None:
        """Delete tags of groups."""
        self._check_tags(self.groups.by_name, request["Tags"], deleted=True)
        for tag in request["Tags"]:
            self.groups.by_name[tag["ResourceId"]].tags.pop(tag["Key"], None)

    # -- lifecycle hooks and instance refreshes -------------------------------------------------------------------

    @operation
    def complete_lifecycle_action(self, request: Json) -> None:
        """End the wait of an instance."""
        group, instance, hook = self._waiting(request)
        result = request["LifecycleActionResult"]
        self.groups.complete(group, instance, hook, result, f"Lifecycle Action Completed with {result} Result")

    @operation
    def start_instance_refresh(self, request: Json) -> Json:
        """Begin to replace the instances of a group."""
        group, preferences = self._group(request), request.get("Preferences", {})
        if group.refresh:
            text = "An Instance Refresh is already in progress and blocks the execution of this Instance Refresh."
            raise AwsError("InstanceRefreshInProgress", text)
        skips = preferences.get("SkipMatching", False)
        todo = [one for one in group.counted if not (skips and one.template == group.template)]
        percent = preferences.get("MinHealthyPercentage", 90)
        return {"InstanceRefreshId": self.groups.start_refresh(group, healthy_percent=percent, todo=todo).id}

    @operation
    def describe_instance_refreshes(self, request: Json) -> Json:
        """Return the instance refreshes of a group, newest first."""
        group = self._readable(request)
        described = [
            {
                "InstanceRefreshId": refresh.id,
                "AutoScalingGroupName": group.name,
                "Status": refresh.status,
                "StartTime": refresh.start,
                **({"EndTime": refresh.end} if refresh.end else {}),
                "PercentageComplete": 100 * (refresh.total - len(refresh.todo)) // max(refresh.total, 1),
                "InstancesToUpdate": len(refresh.todo),
            }
            for refresh in reversed(group.refreshes)
        ]
        return {"InstanceRefreshes": described}

    # -- parts ----------------------------------------------------------------------------------------------------

    def _by_name(self) -> dict[str, Group]:
        return self.groups.by_name

    def _termination(self, group: Group) -> Termination:
        """Return what a termination does. Raises AwsError if it is refused."""
        behavior = self.behavior
        effect = behavior.termination if group.runs("Terminate") else behavior.suspended_termination
        if effect is Termination.REFUSED:
            code = behavior.termination_error
            raise AwsError(code, _REFUSED_TERMINATIONS[code], 500 if code == "ResourceContention" else 400)
        return effect

    def _readable(self, request: Json) -> Group:
        name = request["AutoScalingGroupName"]
        if name not in self.groups.by_name:
            raise _invalid(f"AutoScalingGroup name not found - AutoScalingGroup: {name} not found")
        return self.groups.by_name[name]

    def _group(self, request: Json) -> Group:
        """Return the group that a request writes."""
        group = self._readable(request)
        self._check_writable(group)
        return group

    def _check_writable(self, group: Group) -> None:
        if group.deleting:
            raise AwsError("ScalingActivityInProgress", f"AutoScalingGroup {group.name} is pending delete")
        if operator := group.settings.get("Operator"):
            raise _invalid(f"AutoScalingGroup {group.name} is managed by operator {operator['Principal']}")

    def _instance(self, instance_id: str) -> tuple[Group, Instance]:
        for group in self.groups.by_name.values():
            if instance_id in group.instances:
                return group, group.instances[instance_id]
        raise _invalid(f"Instance Id not found - No managed instance found for instance ID: {instance_id}")

    def _waiting(self, request: Json) -> tuple[Group, Instance, str]:
        """Return the group, the instance and the hook of a lifecycle action."""
        group, hook = self._group(request), request["LifecycleHookName"]
        token, instance_id = request.get("LifecycleActionToken"), request.get("InstanceId")
        for instance in group.instances.values():
            if hook in instance.waits and (instance.waits[hook] == token if token else instance.id == instance_id):
                return group, instance, hook
        action = f"token {token}" if token else f"instance ID {instance_id}"
        raise _invalid(f"No active Lifecycle Action found with {action}")

    def _put_hook(self, group: Group, request: Json) -> None:
        group.hooks[request["LifecycleHookName"]] = Hook(
            name=request["LifecycleHookName"],
            transition=request["LifecycleTransition"],
            heartbeat=timedelta(seconds=request.get("HeartbeatTimeout", 3600)),
            default_result=request.get("DefaultResult", "ABANDON"),
            metadata=request.get("NotificationMetadata", ""),
        )

    def _processes(self, request: Json) -> list[str]:
        processes: list[str] = request.get("ScalingProcesses") or [*PROCESSES]
        if unknown := set(processes) - set(PROCESSES):
            raise _invalid(f"Invalid scaling processes: {', '.join(sorted(unknown))}")
        return processes

    def _zones(self, request: Json) -> list[str]:
        subnets = [subnet.strip() for subnet in request.get("VPCZoneIdentifier", "").split(",") if subnet.strip()]
        zones = {self.groups.stock.zone_of_subnet(subnet): subnet for subnet in subnets}
        if "" in zones:
            raise _invalid(f"The subnet ID '{zones['']}' does not exist")
        if not zones and not request.get("AvailabilityZones"):
            raise _invalid("At least one Availability Zone or VPC Subnet is required.")
        return [*zones] or list(request["AvailabilityZones"])

    def _settings(self, request: Json) -> Json:
        return deepcopy({name: value for name, value in request.items() if name not in _FIELDS})

    @staticmethod
    def _check_bounds(minimum: int, maximum: int, desired: int) -> None:
        if min(minimum, maximum, desired) < 0:
            raise _invalid("MinSize, MaxSize and DesiredCapacity must be at least 0.")
        if minimum > maximum:
            raise _invalid(f"Max bound, {maximum}, must be greater than or equal to min bound, {minimum}")
        if not minimum <= desired <= maximum:
            bounds = f"the specified min size:{minimum} and max size:{maximum}"
            raise _invalid(f"Desired capacity:{desired} must be between {bounds}")

    def _check_tags(self, groups: dict[str, Group], tags: list[Json], *, deleted: bool = False) -> None:
        if len(tags) > _TAGS_PER_CALL:
            raise _invalid(f"A call can change at most {_TAGS_PER_CALL} tags: {len(tags)}")
        keys: dict[str, set[str]] = {}
        for tag in tags:
            name, key, value = tag["ResourceId"], tag["Key"], tag.get("Value") or ""
            if name not in groups:
                raise _invalid(f"AutoScalingGroup name not found - AutoScalingGroup: {name} not found")
            self._check_writable(groups[name])
            if key.lower().startswith("aws:"):
                raise _invalid(f"Tag keys must not start with aws: {key}")
            if not 1 <= len(key) <= _KEY_LENGTH or len(value) > _VALUE_LENGTH:
                raise _invalid(f"Tag {key} is too long: at most {_KEY_LENGTH} and {_VALUE_LENGTH} characters")
            keys.setdefault(name, {old for old in groups[name].tags if not old.startswith("aws:")}).add(key)
            if len(keys[name]) > _TAGS_PER_GROUP and not deleted:
                raise AwsError("LimitExceeded", f"The maximum number of tags of {name} is {_TAGS_PER_GROUP}")

    def _write_tags(self, tags: list[Json]) -> None:
        for tag in tags:
            value = (tag.get("Value") or "", tag.get("PropagateAtLaunch", False))
            self.groups.by_name[tag["ResourceId"]].tags[tag["Key"]] = value

    def _describe(self, group: Group, with_instances: bool) -> Json:
        instances = group.instances.values() if with_instances else []
        tags = [
            {"ResourceId": group.name, "ResourceType": "auto-scaling-group", "Key": key, "Value": value}
            | {"PropagateAtLaunch": propagated}
            for key, (value, propagated) in sorted(group.tags.items())
        ]
        return {
            **deepcopy(_DEFAULTS | group.settings),
            "AutoScalingGroupName": group.name,
            "AutoScalingGroupARN": group.arn,
            "CreatedTime": group.created,
            "MinSize": group.minimum,
            "MaxSize": group.maximum,
            "DesiredCapacity": group.desired,
            "AvailabilityZones": sorted(group.zones),
            "Instances": [
                _describe_instance(group, instance) | self.overrides.get(instance.id, {}) for instance in instances
            ],
            "SuspendedProcesses": [
                {"ProcessName": process, "SuspensionReason": reason}
                for process, reason in sorted(group.suspended.items())
            ],
            "Tags": tags,
            **({"Status": "Delete in progress"} if group.deleting else {}),
            **self.overrides.get(group.name, {}),
        }


def _describe_instance(group: Group, instance: Instance) -> Json:
    configuration: dict[str, Any] = {"LaunchConfigurationName": group.settings.get("LaunchConfigurationName", "")}
    return {
        "InstanceId": instance.id,
        "InstanceType": instance.machine_type,
        "AvailabilityZone": instance.zone,
        "LifecycleState": instance.state,
        "HealthStatus": "Healthy" if instance.healthy else "Unhealthy",
        "ProtectedFromScaleIn": instance.protected,
        **({"LaunchTemplate": dict(instance.template)} if instance.template else configuration),
    }


def _matches(group: Group, name: str, values: list[str]) -> bool:
    if name == "tag-key":
        return any(key in values for key in group.tags)
    if name == "tag-value":
        return any(value in values for value, _ in group.tags.values())
    if name.startswith("tag:"):
        return name[4:] in group.tags and group.tags[name[4:]][0] in values
    raise _invalid(f"Invalid filter: {name}")


def _is_same(former: Group, group: Group) -> bool:
    """Return whether descriptions of two states of a group are equal."""

    def seen(one: Group) -> tuple[object, ...]:
        instances = [(each.id, each.state, each.healthy, each.protected) for each in one.instances.values()]
        return one.arn, one.minimum, one.maximum, one.desired, one.deleting, one.zones, instances

    return seen(former) == seen(group) and all(
        getattr(former, name) == getattr(group, name) for name in ("tags", "suspended", "settings")
    )
