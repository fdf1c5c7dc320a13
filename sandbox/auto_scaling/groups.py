"""What Auto Scaling does by itself: it launches, terminates and replaces the instances of its groups.

AWS publishes no delay between a write and its consequences. Here, terminations begin with the write, which is the worst
for a writer. Launches begin after the delay that the behavior has. Groups over several zones are not rebalanced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sandbox.auto_scaling.activities import Activity, ActivityLog, refusal_message, stamp
from sandbox.auto_scaling.behavior import Behavior
from sandbox.auto_scaling.calls import Json
from sandbox.auto_scaling.clock import VirtualClock
from sandbox.kube import cloud

PROCESSES = (
    *("Launch", "Terminate", "AddToLoadBalancer", "AlarmNotification", "AZRebalance"),
    *("HealthCheck", "InstanceRefresh", "ReplaceUnhealthy", "ScheduledActions"),
)
LAUNCHING, TERMINATING = "autoscaling:EC2_INSTANCE_LAUNCHING", "autoscaling:EC2_INSTANCE_TERMINATING"
_ACTIVE = ("Pending", "InProgress")


@dataclass(frozen=True, kw_only=True)
class Hook:
    """A lifecycle hook."""

    name: str
    transition: str
    heartbeat: timedelta
    default_result: str
    metadata: str = ""


@dataclass(kw_only=True, eq=False)
class Instance:
    """An instance of a group. `activity` is the launch or the termination."""

    id: str
    number: int
    zone: str
    machine_type: str
    template: Json
    protected: bool
    activity: Activity
    state: str = "Pending"
    healthy: bool = True
    waits: dict[str, str] = field(default_factory=dict)  # the token by hook
    joins_at: datetime | None = None  # when its node is ready; None: not in service, or it never joins

    def has_joined(self, now: datetime) -> bool:
        """Return whether the instance is a node that is ready."""
        return self.state == "InService" and self.joins_at is not None and self.joins_at <= now

    @property
    def ends(self) -> bool:
        """Return whether the instance's termination has begun."""
        return self.state.startswith("Terminating")

    @property
    def age_order(self) -> tuple[int, int]:
        """Return the order in which scale-in chooses instances of a zone: first the oldest template."""
        version = self.template.get("Version", "")
        return int(version) if version.isdigit() else 0, self.number


@dataclass(kw_only=True, eq=False)
class Refresh:
    """An instance refresh."""

    id: str
    start: datetime
    todo: list[str]
    total: int
    healthy_percent: int
    status: str = "Pending"
    end: datetime | None = None


@dataclass(kw_only=True, eq=False)
class Group:
    """An Auto Scaling group. `settings` are further members of its description, as they were written."""

    name: str
    arn: str
    created: datetime
    minimum: int
    maximum: int
    zones: list[str]
    settings: Json
    desired: int = 0
    tags: dict[str, tuple[str, bool]] = field(default_factory=dict)  # value, and whether instances get the tag
    hooks: dict[str, Hook] = field(default_factory=dict)
    suspended: dict[str, str] = field(default_factory=dict)  # the reason by process
    instances: dict[str, Instance] = field(default_factory=dict)
    refreshes: list[Refresh] = field(default_factory=list)
    deleting: bool = False
    change: str = ""  # the cause of the latest change of desired, until it has been carried out
    declared: frozenset[str] = frozenset()  # the keys of the tags that it was created with
    launch_at: datetime | None = None  # when the launches of the latest desired capacity begin
    retry_at: datetime | None = None
    retry_delay: timedelta = timedelta(0)
    failing_since: datetime | None = None

    @property
    def counted(self) -> list[Instance]:
        """Return the instances that count toward the desired capacity."""
        return [instance for instance in self.instances.values() if not instance.ends]

    @property
    def template(self) -> Json:
        """Return the launch template of new instances; empty for a launch configuration."""
        policy = self.settings.get("MixedInstancesPolicy", {}).get("LaunchTemplate", {})
        template: Json = policy.get("LaunchTemplateSpecification") or self.settings.get("LaunchTemplate", {})
        return dict(template)

    @property
    def refresh(self) -> Refresh | None:
        """Return the instance refresh that has not ended."""
        return next((refresh for refresh in self.refreshes if refresh.end is None), None)

    def count_per_zone(self) -> dict[str, int]:
        """Return the number of counted instances of each zone."""
        zones = [instance.zone for instance in self.counted]
        return {zone: zones.count(zone) for zone in self.zones}

    def runs(self, *processes: str) -> bool:
        """Return whether none of the processes is suspended."""
        return self.suspended.keys().isdisjoint(processes)


class Groups:
    """The groups of an account in one Region, and the processes that keep their desired capacity."""

    def __init__(self, stock: cloud.Cloud, clock: VirtualClock, log: ActivityLog, behavior: Behavior) -> None:
        self.stock, self.clock, self.log, self.behavior = stock, clock, log, behavior
        self.by_name: dict[str, Group] = {}
        #: the machine type by the name or the id of a launch template; others have the cloud's type
        self.launch_templates: dict[str, str] = {}

    # -- desired capacity -----------------------------------------------------------------------------------------

    def set_desired(self, group: Group, desired: int, reason: str) -> None:
        """Change the desired capacity, for a reason that the causes of activities name, and carry it out."""
        if desired != group.desired:
            group.change = self._at(f"{reason} changing the desired capacity from {group.desired} to {desired}.") + "  "
            if desired > group.desired and (delay := self.behavior.choose(self.behavior.launch_delay)):
                group.launch_at = self.clock.now + delay
                self.clock.after(delay, self._wake, group.name)
            group.desired, group.retry_at, group.retry_delay = desired, None, timedelta(0)
        self.reconcile(group)

    def reconcile(self, group: Group) -> None:
        """Replace unhealthy instances, then launch or terminate what differs from the desired capacity."""
        if group.deleting:
            return
        replaced = self._replace_unhealthy(group)
        refreshed = self._advance_refresh(group)
        missing = group.desired - len(group.counted)
        if missing > 0:
            self._launch_missing(group, missing, "unhealthy" if replaced else "refresh" if refreshed else "")
        elif missing < 0:
            self._scale_in(group, -missing)
        if group.launch_at is None or group.launch_at <= self.clock.now:
            group.change, group.launch_at = "", None

    def _wake(self, name: str) -> None:
        if group := self.by_name.get(name):
            self.reconcile(group)

    # -- launches -------------------------------------------------------------------------------------------------

    def _launch_missing(self, group: Group, missing: int, replaced: str) -> None:
        now = self.clock.now
        if not group.runs("Launch") or any(at is not None and now < at for at in (group.launch_at, group.retry_at)):
            return
        capacity = f"increasing the capacity from {len(group.counted)} to {group.desired}."
        reasons = {
            "": f"an instance was started in response to a difference between desired and actual capacity, {capacity}",
            "unhealthy": "an instance was launched in response to an unhealthy instance needing to be replaced.",
            "refresh": "an instance was launched in response to an instance refresh.",
        }
        results = [self._launch(group, group.change + self._at(reasons[replaced])) for _ in range(missing)]
        if any(results):
            group.failing_since = None
        if all(results):
            group.retry_at, group.retry_delay = None, timedelta(0)
            return
        group.failing_since = group.failing_since or now
        if now - group.failing_since >= self.behavior.give_up:
            group.suspended["Launch"] = f"Administrative suspension at {stamp(now)}"
            return
        group.retry_delay = min(max(group.retry_delay * 2, self.behavior.first_retry), self.behavior.last_retry)
        group.retry_at = now + group.retry_delay
        self.clock.after(group.retry_delay, self._wake, group.name)

    def _launch(self, group: Group, cause: str) -> bool:
        """Launch an instance in the emptiest zone, or in another one if the group's distribution allows it."""
        counts = group.count_per_zone()
        distribution = group.settings.get("AvailabilityZoneDistribution", {}).get("CapacityDistributionStrategy")
        zones = sorted(group.zones, key=lambda zone: counts[zone])
        return any(
            self._launch_in(group, zone, cause) for zone in zones[: 1 if distribution == "balanced-only" else None]
        )

    def _launch_in(self, group: Group, zone: str, cause: str) -> bool:
        policy = group.settings.get("MixedInstancesPolicy", {})
        template = group.template
        name = template.get("LaunchTemplateName") or template.get("LaunchTemplateId", "")
        overrides = policy.get("LaunchTemplate", {}).get("Overrides", [])
        types = [override["InstanceType"] for override in overrides if "InstanceType" in override]
        spot = policy.get("InstancesDistribution", {}).get("OnDemandPercentageAboveBaseCapacity") == 0
        for machine_type in types or [self.launch_templates.get(name)]:
            try:
                machine = self.stock.launch(zone, machine_type)
            except cloud.LaunchError as error:
                refusal = refusal_message(error, spot=spot, mixed=bool(policy))
                continue
            self._add(group, machine, cause)
            return True
        activity = self._start(group, "Launching a new EC2 instance.", cause, zone)
        self.log.end(activity, "Failed", refusal)
        return False

    def _add(self, group: Group, machine: cloud.Instance, cause: str) -> None:
        group.instances[machine.id] = Instance(
            id=machine.id,
            number=self.log.next_number(),
            zone=machine.zone,
            machine_type=machine.machine_type,
            template=group.template,
            protected=group.settings.get("NewInstancesProtectedFromScaleIn", False),
            activity=self._start(group, f"Launching a new EC2 instance: {machine.id}", cause, machine.zone, machine.id),
        )
        self.clock.after(self.behavior.launch, self._launched, group.name, machine.id)

    def _launched(self, name: str, instance_id: str) -> None:
        group, instance = self.find(name, instance_id)
        if group and instance and instance.state == "Pending":
            self._wait_for_hooks(group, instance, LAUNCHING)

    # -- terminations ---------------------------------------------------------------------------------------------

    def _scale_in(self, group: Group, surplus: int) -> None:
        """Terminate the surplus. While Terminate is suspended, only launches that have not ended are cancelled."""
        counted, suspended = group.counted, not group.runs("Terminate")
        victims: list[Instance] = []
        for _ in range(surplus):
            rest = [instance for instance in counted if instance not in victims]
            candidates = [
                instance
                for instance in rest
                if not (instance.protected or (suspended and instance.state == "InService"))
            ]
            if not candidates:
                break
            zones = [instance.zone for instance in rest]
            victims.append(min(candidates, key=lambda instance: (-zones.count(instance.zone), *instance.age_order)))
        cause = group.change + self._at(
            "an instance was taken out of service in response to a difference between desired and actual capacity, "
            f"shrinking the capacity from {len(counted)} to {group.desired}."
        )
        if len(victims) < surplus and group.change and not suspended:
            activity = self._start(group, "Terminating EC2 instance.", cause, group.zones[0])
            protected = (
                "Could not scale to desired capacity because all remaining instances are protected from scale-in."
            )
            self.log.end(activity, "Failed", protected)
        chosen = "".join("  " + self._at(f"instance {victim.id} was selected for termination.") for victim in victims)
        for victim in victims:
            self.terminate(group, victim, cause + chosen)

    def terminate(self, group: Group, instance: Instance, cause: str) -> Activity:
        """Begin the termination of an instance. A launch that has not ended is cancelled."""
        if instance.activity.end is None:
            self.log.end(instance.activity, "Cancelled")
        instance.state = "Terminating"
        instance.activity = activity = self._start(
            group, f"Terminating EC2 instance: {instance.id}", cause, instance.zone, instance.id
        )
        self._wait_for_hooks(group, instance, TERMINATING)
        return activity

    def _gone(self, name: str, instance_id: str) -> None:
        group, instance = self.find(name, instance_id)
        if group is None or instance is None:
            return
        del group.instances[instance_id]
        self.stock.terminate(instance_id)
        self.log.end(instance.activity)
        if group.deleting and not group.instances:
            del self.by_name[name]
        else:
            self.reconcile(group)

    # -- lifecycle hooks ------------------------------------------------------------------------------------------

    def _wait_for_hooks(self, group: Group, instance: Instance, transition: str) -> None:
        hooks = [hook for hook in group.hooks.values() if hook.transition == transition]
        instance.waits = {}
        for hook in hooks:
            number = self.log.next_number()
            instance.waits[hook.name] = token = f"{number:08x}-0000-4000-a000-{number:012x}"
            self.clock.after(hook.heartbeat, self._expire, group.name, instance.id, hook, token)
        if not hooks:
            self._proceed(group, instance)
            return
        instance.state = f"{instance.state}:Wait"
        instance.activity.status, instance.activity.progress = "MidLifecycleAction", 60
        for hook in hooks:
            detail = {
                "LifecycleActionToken": instance.waits[hook.name],
                "AutoScalingGroupName": group.name,
                "LifecycleHookName": hook.name,
                "EC2InstanceId": instance.id,
                "LifecycleTransition": transition,
                **({"NotificationMetadata": hook.metadata} if hook.metadata else {}),
            }
            kind = "launch" if transition == LAUNCHING else "terminate"
            self.log.send(f"EC2 Instance-{kind} Lifecycle Action", detail, [group.arn])

    def complete(self, group: Group, instance: Instance, hook: str, result: str, end: str) -> None:
        """End an instance's wait for a hook. `end` says how, for the activity of an abandoned launch."""
        token = instance.waits.pop(hook)
        if result == "ABANDON" and instance.state == "Pending:Wait":
            action = f"Lifecycle Action with token {token} was abandoned: {end}"
            self.log.end(
                instance.activity, "Cancelled", f"Instance failed to complete user's Lifecycle Action: {action}"
            )
            cause = self._at("an instance was taken out of service in response to an abandoned lifecycle action.")
            self.terminate(group, instance, cause)
            self.reconcile(group)
        elif result == "ABANDON" or not instance.waits:
            self._proceed(group, instance)

    def _expire(self, name: str, instance_id: str, hook: Hook, token: str) -> None:
        group, instance = self.find(name, instance_id)
        if group and instance and instance.waits.get(hook.name) == token:
            self.complete(group, instance, hook.name, hook.default_result, "Heartbeat Timeout")

    def _proceed(self, group: Group, instance: Instance) -> None:
        instance.waits = {}
        if not instance.ends:
            instance.state = "InService"
            if instance.zone not in self.behavior.never_join:
                instance.joins_at = self.clock.now + self.behavior.choose(self.behavior.join)
            self.log.end(instance.activity)
            self.reconcile(group)
        else:
            instance.state = "Terminating:Proceed" if instance.state.endswith(":Wait") else "Terminating"
            instance.activity.status = "InProgress"
            self.clock.after(self.behavior.termination_time, self._gone, group.name, instance.id)

    # -- health and refreshes -------------------------------------------------------------------------------------

    def fail(self, instance_id: str) -> None:
        """Let EC2 report an instance as stopped."""
        for group in self.by_name.values():
            if instance := group.instances.get(instance_id):
                instance.healthy = False
                self.reconcile(group)

    def _replace_unhealthy(self, group: Group) -> bool:
        unhealthy = [instance for instance in group.counted if not instance.healthy]
        if not group.runs("HealthCheck", "ReplaceUnhealthy", "Terminate"):
            return False
        reason = "an EC2 health check indicating it has been terminated or stopped."
        for instance in unhealthy:
            cause = self._at(f"an instance was taken out of service in response to {reason}")
            self.terminate(group, instance, cause)
        return bool(unhealthy)

    def start_refresh(self, group: Group, *, healthy_percent: int, todo: Iterable[Instance]) -> Refresh:
        """Begin an instance refresh."""
        ids = [instance.id for instance in todo]
        number = self.log.next_number()
        refresh = Refresh(
            id=f"{number:08x}-0000-4000-b000-{number:012x}",
            start=self.clock.now,
            todo=ids,
            total=len(ids),
            healthy_percent=healthy_percent,
        )
        group.refreshes.append(refresh)
        self._send_refresh(group, refresh, "Started")
        self.clock.after(self.behavior.launch, self._wake, group.name)
        return refresh

    def _advance_refresh(self, group: Group) -> bool:
        """Terminate the next instances of a refresh once the replacements of the previous ones are in service."""
        refresh = group.refresh
        if refresh is None or refresh.status not in _ACTIVE or not group.runs("InstanceRefresh", "Launch", "Terminate"):
            return False
        if refresh.status == "Pending" and self.clock.now < refresh.start + self.behavior.launch:
            return False
        refresh.status = "InProgress"
        counted = group.counted
        refresh.todo = [one.id for one in counted if one.id in refresh.todo]
        serving = [instance for instance in counted if instance.state == "InService"]
        if len(serving) < max(group.desired, len(counted)):
            return True
        if not refresh.todo:
            self._end_refresh(group, refresh, "Successful", "Succeeded")
            return False
        batch = max(1, group.desired * (100 - refresh.healthy_percent) // 100)
        chosen = [group.instances[name] for name in refresh.todo if not group.instances[name].protected][:batch]
        for instance in chosen:
            cause = self._at("an instance was taken out of service in response to an instance refresh.")
            selected = self._at(f"instance {instance.id} was selected for termination.")
            self.terminate(group, instance, f"{cause}  {selected}")
            refresh.todo.remove(instance.id)
        return True

    def _end_refresh(self, group: Group, refresh: Refresh, status: str, event: str) -> None:
        refresh.status, refresh.end = status, self.clock.now
        self._send_refresh(group, refresh, event)

    def _send_refresh(self, group: Group, refresh: Refresh, event: str) -> None:
        detail: dict[str, Any] = {"InstanceRefreshId": refresh.id, "AutoScalingGroupName": group.name}
        self.log.send(f"EC2 Auto Scaling Instance Refresh {event}", detail, [group.arn])

    # -- parts ----------------------------------------------------------------------------------------------------

    def has_node(self, instance_id: str) -> bool:
        """Return whether an instance is a node that is ready."""
        instances = (group.instances.get(instance_id) for group in self.by_name.values())
        return any(instance.has_joined(self.clock.now) for instance in instances if instance)

    def find(self, name: str, instance_id: str) -> tuple[Group | None, Instance | None]:
        """Return a group and its instance; None for what does not exist."""
        group = self.by_name.get(name)
        return group, group.instances.get(instance_id) if group else None

    def _start(self, group: Group, description: str, cause: str, zone: str, instance: str = "") -> Activity:
        return self.log.start(group.name, group.arn, description, cause=cause, zone=zone, instance=instance)

    def _at(self, reason: str) -> str:
        return f"At {stamp(self.clock.now)} {reason}"
