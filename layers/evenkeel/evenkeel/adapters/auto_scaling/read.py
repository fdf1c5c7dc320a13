"""Reads node groups from the answers of EC2 Auto Scaling and EKS, as boto3 returns them. Pure.

So the command line can read files with these functions. Sources of the facts: the API reference of EC2 Auto Scaling,
and Cluster Autoscaler's provider for AWS (cloudprovider/aws).
"""

import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from functools import cached_property
from typing import Any

from evenkeel.adapters.auto_scaling.decisions import Decisions, decision_of
from evenkeel.adapters.auto_scaling.installers import (
    EKS_CLUSTER,
    EKS_NODE_GROUP,
    NODE_TEMPLATE,
    clusters_of,
    control_plane_tag,
)
from evenkeel.adapters.auto_scaling.suspensions import (
    TERMINATE,
    WRITE_ENDS_WITHIN,
    is_suspended,
    is_suspended_by_others,
    suspended,
    suspended_at,
)
from evenkeel.adapters.auto_scaling.templates import (
    ARCH,
    OS,
    RESOURCES,
    TYPE_LABEL,
    generic_labels,
    named_types,
    node_group_labels,
    overrides_of,
    size_of,
    types_of,
)
from evenkeel.adapters.own_annotations import (
    ADOPTED,
    DECISION,
    MOVE,
    OWN_ANNOTATIONS,
    POOL_LABEL,
    Reading,
    read_annotations,
)
from evenkeel.domain.model.flavours import AUTO_SCALING, PLACEHOLDER, READS_MAY_BE_OLD, SIZE_TAGS
from evenkeel.domain.model.groups import (
    UNNAMED_BY_AWS,
    AutoscalerOptions,
    Bounds,
    FieldManagers,
    GroupKey,
    GroupStatus,
    GroupTemplate,
    Identity,
    Machine,
    MachineFailure,
    NodeGroup,
    Ownership,
    Unreadable,
    WrittenByUs,
)
from evenkeel.domain.model.observations import MachineNode, Skipped
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.domain.model.values import BadValueError, quote, read_count
from evenkeel.domain.rebalancing.annotations import (
    ended_at,
    is_unfinished,
    may_be_suspended,
    read_adopted,
    read_published,
    writer_of,
)
from evenkeel.domain.rebalancing.membership.discovery import Discovery, discovered, joined_tags
from evenkeel.domain.rebalancing.membership.quantities import read_amount, read_duration, read_share, read_wait
from evenkeel.record import ClusterPolicy

Described = Mapping[str, Any]
"""One object of an answer of AWS."""

TAG_LIMIT = 50  # tags a group; tags that start with aws: do not count
OWN_TAGS = (DECISION, ADOPTED, MOVE)
_READABLE = frozenset({*OWN_ANNOTATIONS, POOL_LABEL})
_OPTIONS = NODE_TEMPLATE + "autoscaling-options/"
# EKS sets DEGRADED for refused launches, which are the failures that Evenkeel exists for. In every other status, EKS
# changes the node group. This includes a status that AWS adds later.
_FREE_STATUSES = frozenset({"ACTIVE", "DEGRADED"})
_LAUNCH_PROCESS = "Launch"
_LAUNCH, _INTO_WARM_POOL = "Launching a new EC2 instance", "into warm pool"
_ENDED = frozenset({"Failed", "Successful", "Cancelled"})
_LAUNCHED = re.compile(rf"{_LAUNCH}(?: from warm pool)?: (\S+)")
_UNFINISHED = frozenset(
    {
        *("PendingSpotBidPlacement", "WaitingForSpotInstanceRequestId", "WaitingForSpotInstanceId"),
        *("WaitingForInstanceId", "PreInService", "InProgress", "MidLifecycleAction", "WaitingForInstanceWarmup"),
    }
)
# The message of a group with a mixed instances policy names EC2's code.
_CODE = re.compile(r"Could not launch [\w-]+ Instances\. ([\w.]+) - ")
# An older failure says nothing about the launches that the group attempts now: AWS retries within minutes.
_FAILURE_KEPT = timedelta(hours=1)
_LONG_AGO = datetime.fromtimestamp(0, UTC)
_MANAGERS = FieldManagers(bounds_by=UNNAMED_BY_AWS, replicas_by=UNNAMED_BY_AWS)
_NO_OPTIONS = AutoscalerOptions()
# Cluster Autoscaler's defaults (cloudprovider.go, DefaultArch and DefaultOS).
_USUAL_LABELS = {ARCH: "amd64", OS: "linux"}
# EKS's words for the effects of taints, and those of Kubernetes.
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}


Refreshing = dict[str, tuple[str, datetime]]
"""Name of a group -> the status of its instance refresh, and when a write has found it."""
# A refresh takes longer. Then a write reads it again.
_REFRESH_KEPT = timedelta(minutes=5)


@dataclass(frozen=True, kw_only=True)
class Member:
    """A node group, and the Auto Scaling group that a write compares with the group's state at that time."""

    group: NodeGroup
    described: Described
    machines: tuple[Machine, ...]  # also of a group at rest, whose own ``machines`` is None
    # True: an instance of the group may be selected, because its node is drained before it ends.
    is_drained: bool

    @property
    def name(self) -> str:
        """Return the name of the Auto Scaling group."""
        return self.group.key.name


@dataclass(frozen=True, kw_only=True)
class Answers:
    """What is known of groups apart from their descriptions. Its collections have the names of groups."""

    activities: Mapping[str, Sequence[Described]] = field(default_factory=dict)  # the newest ones, by group
    node_groups: Collection[Described] = ()  # the values of ``nodegroup`` of EKS's DescribeNodegroup
    types: Mapping[str, Described] | None = None  # EC2's descriptions of instance types; None: EC2 was not read
    decisions: Decisions = field(default_factory=dict)  # the stored ones
    refreshing: Refreshing = field(default_factory=dict)  # the instance refreshes that writes have found
    with_machines: Collection[str] = ()  # their machines are returned even if all their instances run
    unread: Collection[str] = ()  # AWS has not listed their activities. One that lacks instances is not written.
    undescribed: Collection[str] = ()  # their managed node groups were never read. A write reads them just before.
    untagged: Collection[str] = ()  # they were read by name, because they lack tags that the record selects


NO_ANSWERS = Answers()


def read_groups(
    described: Iterable[Described],
    policy: ClusterPolicy,
    now: datetime,
    answers: Answers = NO_ANSWERS,
    writer: str = "",
) -> tuple[list[Member], list[Skipped]]:
    """Return the node groups, and the skipped Auto Scaling groups with the reasons.

    ``described``: members of ``AutoScalingGroups`` of DescribeAutoScalingGroups. ``writer``: the names of the stack and
    the cluster that read; empty: the reader never writes.
    """
    managed = {name: node_group for node_group in answers.node_groups for name in _groups_of(node_group)}
    members, skipped = list[Member](), list[Skipped]()
    for item in described:
        reader = _GroupReader(item, policy, now, answers, managed, writer)
        if (reason := reader.skipped_because()) is None:
            members.append(reader.read())
        else:
            skipped.append(Skipped(namespace=reader.key.namespace, name=reader.key.name, reason=reason))
    return members, skipped


def machine_nodes(members: Iterable[Member], *, orders: bool) -> dict[str, MachineNode]:
    """Return the instances by the id that the cloud provider gives their nodes: ``aws:///<zone>/<instance>``.

    ``orders``: True where Evenkeel orders nodes. Then only a Node shows that an instance in service is a node.
    """
    return {
        f"aws:///{machine.zone}/{machine.name}": MachineNode(
            group=member.group.key,
            machine=machine,
            deleting=machine.deleting,
            is_sought=orders and machine.has_node and not machine.deleting,
        )
        for member in members
        for machine in member.machines
        if machine.zone is not None
    }


def tags_of(described: Described) -> dict[str, str]:
    """Return the values of a group's tags by key."""
    tags = described.get("Tags") or ()
    return {str(tag.get("Key")): str(tag.get("Value") or "") for tag in tags if isinstance(tag, dict)}


def instances_of(described: Described) -> list[Described]:
    """Return the instances that count for the desired capacity: not terminating, detaching or in standby."""
    return [instance for instance in described.get("Instances") or () if _counts(instance)]


def is_running(instance: Described) -> bool:
    """Return True if the instance is in service and healthy."""
    return instance.get("LifecycleState") == "InService" and str(instance.get("HealthStatus")).lower() == "healthy"


def is_terminating(instance: Described) -> bool:
    """Return True if the termination of the instance has begun."""
    return str(instance.get("LifecycleState")).startswith("Terminat")


def node_group_of(described: Described) -> tuple[str, str] | None:
    """Return the names of the EKS cluster and of the managed node group; None: the group is no managed node group."""
    tags = tags_of(described)
    cluster, name = tags.get(EKS_CLUSTER), tags.get(EKS_NODE_GROUP)
    return (cluster, name) if cluster and name else None


def busy_status(node_group: Described) -> str:
    """Return the status in which EKS changes a managed node group; empty: EKS does not change it."""
    status = str(node_group.get("status") or "unknown")
    return "" if status in _FREE_STATUSES else status


def is_ended_launch(activity: Described) -> bool:
    """Return True if the activity is a launch of an instance that has ended."""
    return _is_launch(activity) and activity.get("StatusCode") in _ENDED


def read_move(text: str, described: Described) -> dict[str, Any]:
    """Return the fields of ``WrittenByUs`` for a move tag: ``move`` if the change of replicas is done.

    The tag is ``<id>``, ``<id> <desired before>`` or ``<id> <ids of instances>``. It is written before the change, and
    without its second part after the change.
    """
    id, _, announced = text.partition(" ")
    if announced.startswith("i-"):
        named = announced.split(",")
        stay = {each.get("InstanceId") for each in described.get("Instances") or () if not is_terminating(each)}
        left = len(stay.intersection(named))
        return {"move_begun": (id, len(named) - left)} if left else {"move": id}
    return {"move": id} if announced != str(described.get("DesiredCapacity")) else {}


def _counts(instance: Described) -> bool:
    """Return True unless AWS does not count the instance. An instance in an unknown state counts, so that it stays."""
    state = str(instance.get("LifecycleState"))
    return not state.startswith(("Terminat", "Detach", "EnteringStandby", "Standby", "Warmed"))


def _groups_of(node_group: Described) -> list[str]:
    resources = node_group.get("resources") or {}
    return [str(group.get("name")) for group in resources.get("autoScalingGroups") or ()]


class _GroupReader:
    """Reads one Auto Scaling group."""

    def __init__(
        self,
        item: Described,
        policy: ClusterPolicy,
        now: datetime,
        answers: Answers,
        managed: Mapping[str, Described],
        writer: str,
    ) -> None:
        self._item = item
        self._policy = policy
        self._now = now
        self._answers = answers
        self._tags = tags_of(item)
        self._name = str(item.get("AutoScalingGroupName") or "")
        self._launches = [each for each in answers.activities.get(self._name, ()) if _is_launch(each)]
        self._node_group = managed.get(self._name)
        arn = str(item.get("AutoScalingGroupARN") or "").split(":")
        region = arn[3] if len(arn) > 3 and arn[3] else policy.region
        self.key = GroupKey(AUTO_SCALING, region, self._name)
        self._reading = Reading(name=f"Auto Scaling group {self._name}")
        self._decision = decision_of(self._tags.get(DECISION), answers.decisions.get(self._name), writer)
        named = writer_of(self._decision)
        self._other_writer = named if writer and named != writer else ""
        self._cluster = next(iter(clusters_of(self._tags)), "")

    def skipped_because(self) -> Reason | None:
        """Return the reason why the group is no node group; None: it is one."""
        if not self._name:
            return Reason.of(Rule.NAMELESS, kind="AutoScalingGroup")
        if "/" in self._name:
            return Reason.of(Rule.GROUP_NAME_UNUSABLE)
        region, discoveries = self.key.namespace, self._policy.discoveries
        if not self._is_untagged and not discovered(
            discoveries, flavour=AUTO_SCALING, namespace=region, cluster=self._cluster, labels=self._tags
        ):
            return Reason.of(Rule.NOT_DISCOVERED)
        zones = tuple(str(zone) for zone in self._item.get("AvailabilityZones") or ())
        if not zones:
            return Reason.of(Rule.GROUP_WITHOUT_ZONE)
        if len(zones) > 1 and (control_plane := self._control_plane()):
            return control_plane
        if len(zones) > 1:
            distribution = (self._item.get("AvailabilityZoneDistribution") or {}).get("CapacityDistributionStrategy")
            impairment = self._item.get("AvailabilityZoneImpairmentPolicy") or {}
            shifts = bool(impairment.get("ZonalShiftEnabled"))
            return Reason.of(
                Rule.GROUP_SPANS_ZONES,
                zones=zones,
                distribution=str(distribution or "balanced-best-effort"),
                strict=distribution == "balanced-only",
                rebalance="suspended" if is_suspended(self._item, "AZRebalance") else "",
                shift="enabled" if shifts else "",
                may_shift=not shifts and node_group_of(self._item) is None,  # EKS has a shift of the whole cluster
            )
        weights = {str(each.get("WeightedCapacity") or "1") for each in (*self._overrides, *self._instances())}
        if not weights <= {"1"}:
            return Reason.of(Rule.GROUP_WEIGHTED)
        unit = str(self._item.get("DesiredCapacityType") or "units")
        return None if unit == "units" else Reason.of(Rule.GROUP_IN_OTHER_UNITS, unit=unit)

    @property
    def _is_untagged(self) -> bool:
        return self._name in self._answers.untagged

    def read(self) -> Member:
        """Return the node group."""
        reading, item, tags = self._reading, self._item, self._tags
        is_undescribed, is_unread = self._name in self._answers.undescribed, self._name in self._answers.unread
        if is_undescribed:  # so it is unknown what its nodes are like
            name = quote(tags[EKS_NODE_GROUP])
            reading.note(EKS_NODE_GROUP, name, "EKS has not described it yet: the next checks read it")
        reading.unknown_names(tags, _READABLE, "tag")
        bounds = self._bounds()
        requested = reading.read("DesiredCapacity", item.get("DesiredCapacity"), read_count)
        if item.get("DesiredCapacity") is None:
            reading.fault("DesiredCapacity", "missing", "every Auto Scaling group has one: read the group again")
        machines = self._machines(requested or 0)
        settings, ours, options = read_annotations(tags, reading), self._written_by_us(bounds), self._options()
        template = GroupTemplate() if is_undescribed else self._template(is_empty=not (requested or machines))
        template = replace(template, key=self._template_key(), machine_type=self._machine_type())
        self._note_drift(bounds, ours)
        running = sum(machine.has_node and not machine.deleting for machine in machines)
        # Where Evenkeel orders nodes, the nodes of the cluster show which of the instances run.
        is_at_rest = len(machines) == running == requested and not self._policy.demand_stage.orders
        # Evenkeel drains the nodes of clusters with a workload view, and EKS those of its node groups. Anyone can copy
        # EKS's tags to another group, so only EKS says which groups are its own.
        is_drained = self._policy.workload is not None or self._node_group is not None
        # Launches matter to a group that waits for nodes. Of another one, only the ages of its instances are unknown.
        lacks_launches = is_unread and running < (requested or 0)
        frozen = self._frozen() or (Reason.of(Rule.LAUNCHES_UNREAD) if lacks_launches else None)
        group = NodeGroup(
            key=self.key,
            identity=self._identity(),
            requested=requested or 0,
            running=running,
            machines=None if is_at_rest and (is_unread or self._name not in self._answers.with_machines) else machines,
            bounds=bounds,
            frozen_because=frozen,
            status=GroupStatus(
                launched=None if is_drained else len(instances_of(item)),
                launches_stopped=self._suspension(_LAUNCH_PROCESS),
            ),
            ours=ours,
            managers=_MANAGERS,
            owner=Ownership(bounds_field=f"MaxSize of Auto Scaling group {self._name}", min_within_running=True),
            options=options,
            template=template,
            annotations=settings,
            unreadable=Unreadable(faults=tuple(reading.faults), notes=tuple(reading.notes)),
        )
        return Member(group=group, described=item, machines=machines, is_drained=is_drained)

    def _identity(self) -> Identity:
        return Identity(
            kind="AutoScalingGroup",
            cluster=self._cluster,
            pool_label=self._tags.get(POOL_LABEL) or None,
            labels=self._tags,
            zone=str(self._item["AvailabilityZones"][0]),
            created_at=_moment(self._item.get("CreatedTime")),
            missing_tags=_missing_tags(self._tags, self._policy.discoveries) if self._is_untagged else (),
        )

    def _bounds(self) -> Bounds | None:
        reading, minimum, maximum = self._reading, self._item.get("MinSize"), self._item.get("MaxSize")
        low, high = reading.read("MinSize", minimum, read_count), reading.read("MaxSize", maximum, read_count)
        if low is None or high is None:
            if minimum is None or maximum is None:
                reading.fault("MinSize and MaxSize", "missing", "every Auto Scaling group has both: read it again")
            return None
        if low <= high:
            return Bounds(low, high)
        reading.fault("MinSize", quote(low), f"larger than MaxSize, {high}: lower one or raise the other")
        return None

    def _written_by_us(self, bounds: Bounds | None) -> WrittenByUs:
        tags, published, ended = self._tags, read_published(self._decision), ended_at(self._decision)
        if self._other_writer:
            return WrittenByUs()
        adopted = self._reading.read(ADOPTED, tags.get(ADOPTED), lambda text: (read_adopted(str(text)),))
        move = tags.get(MOVE)
        # Until the write has ended, and is in each read, nothing shows that another writer has put back its numbers.
        is_recent = ended is not None and abs(self._now - ended) < READS_MAY_BE_OLD[AUTO_SCALING]
        if published is not None and (is_unfinished(self._decision) or is_recent):
            published = replace(published, bounds=bounds, before=None)
        return WrittenByUs(
            adopted=adopted[0] if adopted else None,
            has_adopted=adopted is not None,
            published=published,
            **(read_move(move, self._item) if move else {}),
        )

    def _options(self) -> AutoscalerOptions:
        """Return the group's options of Cluster Autoscaler (aws_manager.go, extractAutoscalingOptionsFromTags)."""
        if not any(key.startswith(_OPTIONS) for key in self._tags):
            return _NO_OPTIONS

        def option(name: str, reader: Any) -> Any:
            return self._reading.option(_OPTIONS + name, self._tags.get(_OPTIONS + name), reader)

        return AutoscalerOptions(
            provision_timeout=option("maxnodeprovisiontime", read_wait),
            unneeded_time=option("scaledownunneededtime", read_duration),
            unready_time=option("scaledownunreadytime", read_duration),
            utilization_threshold=option("scaledownutilizationthreshold", read_share),
            gpu_utilization_threshold=option("scaledowngpuutilizationthreshold", read_share),
        )

    def _frozen(self) -> Reason | None:
        item, node_group = self._item, self._node_group or {}
        refresh, found_at = self._answers.refreshing.get(self._name, ("", _LONG_AGO))
        if item.get("Status") or node_group.get("status") == "DELETING":
            return Reason.of(Rule.OBJECT_BEING_DELETED)
        if operator := (item.get("Operator") or {}).get("Principal"):
            return Reason.of(Rule.MANAGED_BY_OPERATOR, operator=str(operator))
        if control_plane := self._control_plane():
            return control_plane
        if refresh and self._now - found_at < _REFRESH_KEPT:
            return Reason.of(Rule.REFRESHING, status=refresh)
        if self._other_writer:
            stack, _, cluster = self._other_writer.partition("/")
            return Reason.of(Rule.WRITTEN_BY_OTHER_CLUSTER, stack=stack, cluster=cluster)
        if node_group and (status := busy_status(node_group)):
            return Reason.of(Rule.NODE_GROUP_BUSY, name=str(node_group.get("nodegroupName")), status=status)
        if reason := no_room(self._tags):
            return reason
        return None if self._is_being_written() else self._suspension(TERMINATE)

    def _control_plane(self) -> Reason | None:
        """Return the reason that names the tag of a control plane or a bastion; None: there is no such tag."""
        tag = control_plane_tag(self._name, self._tags)
        return Reason.of(Rule.CONTROL_PLANE, tag=tag, tagged=POOL_LABEL in self._tags) if tag else None

    def _suspension(self, process: str) -> Reason | None:
        """Return the reason that names the suspended process; None: it is not suspended."""
        reasons = suspended(self._item)
        if process not in reasons:
            return None
        because, name = reasons[process] or "no reason given", shlex.quote(self._name)
        return Reason.of(Rule.PROCESS_SUSPENDED, process=process, because=because, name=name)

    def _is_being_written(self) -> bool:
        """Return True if Evenkeel has suspended Terminate for a write, which the next run ends.

        A read may still show the process as a write has suspended it that has just ended.
        """
        published, at, ended = read_published(self._decision), suspended_at(self._item), ended_at(self._decision)
        if published is None or abs(self._now - published.at) >= WRITE_ENDS_WITHIN:
            return False
        if at is not None and ended is not None and abs(self._now - ended) < READS_MAY_BE_OLD[AUTO_SCALING]:
            return published.at - WRITE_ENDS_WITHIN < at <= ended
        decision = self._decision or ""
        return may_be_suspended(decision) and not is_suspended_by_others(self._item, decision)

    # Instances

    def _instances(self) -> Sequence[Described]:
        return self._item.get("Instances") or ()

    def _machines(self, requested: int) -> tuple[Machine, ...]:
        """Return the instances, and a machine for each launch that failed or has no instance yet."""
        made = {id: launch for launch in reversed(self._launches) if (id := _instance_of(launch)) and _start(launch)}
        machines = [
            self._machine(instance, made.get(str(instance.get("InstanceId")), {}))
            for instance in self._instances()
            if _counts(instance) or is_terminating(instance)
        ]
        missing = requested - sum(not machine.deleting for machine in machines)
        if missing <= 0:
            return tuple(machines)
        known = {machine.name for machine in machines}
        launching = [
            _start(launch) or self._now
            for launch in self._launches
            if launch.get("StatusCode") in _UNFINISHED and _instance_of(launch) not in known
        ][:missing]
        failure = self._failure()
        launching += self._just_ordered(requested, failure)[: missing - len(launching)]
        placeholders: list[tuple[datetime, MachineFailure | None]] = [(at, None) for at in launching]
        if failure is not None:
            placeholders += [(failure.at or self._now, failure)] * (missing - len(launching))
        machines += [
            Machine(name=f"{PLACEHOLDER}{self._name}-{number}", has_node=False, created_at=at, failure=failure)
            for number, (at, failure) in enumerate(placeholders)
        ]
        return tuple(machines)

    def _just_ordered(self, requested: int, failure: MachineFailure | None) -> list[datetime]:
        """Return when each instance was ordered that Evenkeel has ordered since the newest launch failed.

        AWS starts a launch some seconds after an order, and lists it up to minutes later.
        """
        wrote = read_published(self._decision)
        if self._other_writer or wrote is None or is_unfinished(self._decision) or wrote.requested != requested:
            return []
        is_later = failure is None or failure.at is None or failure.at < wrote.at
        return [wrote.at] * (requested - (wrote.before if wrote.before is not None else requested)) if is_later else []

    def _machine(self, instance: Described, launch: Described) -> Machine:
        """Return an instance as a machine. ``launch``: its launch; empty: not read."""
        name, is_deleting, runs = str(instance.get("InstanceId")), is_terminating(instance), is_running(instance)
        # AWS replaces an instance that does not become healthy, and would terminate any instance if the desired
        # capacity fell instead. So such an instance counts as being on its way at any age.
        created_at = _start(launch) or _LONG_AGO if runs or is_deleting else self._now
        zone = instance.get("AvailabilityZone")
        return Machine(
            name=name,
            uid=name,
            has_node=runs or is_deleting,
            created_at=created_at,
            launched_at=_start(launch),
            joined_at=_moment(launch.get("EndTime")) if runs and launch.get("StatusCode") == "Successful" else None,
            deleting=is_deleting,
            zone=zone if isinstance(zone, str) and zone else None,
        )

    def _failure(self) -> MachineFailure | None:
        """Return the failure of the newest launch that has ended; None: it has succeeded, or is too old to matter."""
        ended = [
            (at, launch.get("StatusCode") == "Failed", launch)
            for launch in self._launches
            if launch.get("StatusCode") in ("Failed", "Successful") and (at := _start(launch)) is not None
        ]
        # Of launches that began together, some may fail. Then the missing instances are those that failed.
        at, failed, launch = max(ended, key=lambda each: each[:2], default=(_LONG_AGO, False, {}))
        if not failed or self._now - at > _FAILURE_KEPT:
            return None
        return failure_of(launch, at)

    # Instance types and node template

    @cached_property
    def _overrides(self) -> Sequence[Described]:
        return overrides_of(self._item)

    def _template_key(self) -> str:
        """Return the instance types with the launch template's version, or the name of the launch configuration."""
        mixed = (self._item.get("MixedInstancesPolicy") or {}).get("LaunchTemplate") or {}
        launch = self._item.get("LaunchTemplate") or mixed.get("LaunchTemplateSpecification") or {}
        names = launch.get("LaunchTemplateId"), launch.get("Version"), self._item.get("LaunchConfigurationName")
        types = named_types(self._item, self._node_group or {})
        return " ".join([*types, *(str(name) for name in names if name)])

    def _machine_type(self) -> str:
        """Return the instance types, and the capacity type if it is known; empty: only a launch template has them."""
        node_group, label = self._node_group or {}, self._tags.get(f"{NODE_TEMPLATE}label/{TYPE_LABEL}")
        types = named_types(self._item, node_group) or ([label] if label else [])
        distribution = (self._item.get("MixedInstancesPolicy") or {}).get("InstancesDistribution") or {}
        is_spot = distribution.get("OnDemandPercentageAboveBaseCapacity", 100) != 100
        capacity = "spot" if is_spot else str(node_group.get("capacityType") or "").lower().replace("_", "-")
        return " ".join([*types, capacity]).strip() if types else ""

    def _template(self, *, is_empty: bool) -> GroupTemplate:
        """Return what is known of a new node (aws_manager.go, buildNodeFromTemplate)."""
        node_group = self._node_group or {}
        type = next(iter(types_of(self._item, self._tags, node_group)), "")
        of_ec2 = (self._answers.types or {}).get(type, {})
        zone = str(self._item["AvailabilityZones"][0])
        labels = generic_labels(type, self.key.namespace, zone, node_group, of_ec2)
        usual = [key for key in _USUAL_LABELS if key not in labels]
        labels = {**_USUAL_LABELS, **labels}
        capacity, taints = dict[str, Fraction](), list[Taint]()
        for key, value in self._tags.items():
            if not key.startswith(NODE_TEMPLATE):
                continue
            kind, _, name = key.removeprefix(NODE_TEMPLATE).partition("/")
            if not name:
                continue
            if kind == "label":
                labels[name] = value
            elif kind == "resources" and (amount := self._amount(key, value)):
                capacity[name] = amount
            elif kind == "taint":
                text, _, effect = value.partition(":")
                if effect in _EFFECTS.values():
                    taints.append(Taint(name, text, effect))
                else:  # Cluster Autoscaler ignores it, too
                    problem = "write VALUE:EFFECT with NoSchedule, NoExecute or PreferNoSchedule; the tag is ignored"
                    self._reading.note(key, quote(value), problem)
        for key, value in (node_group.get("tags") or {}).items():
            if key.startswith(RESOURCES) and (amount := self._amount(str(key), str(value))):
                capacity[key.removeprefix(RESOURCES)] = amount
        labels |= node_group_labels(node_group)
        size = size_of(self._item, of_ec2)
        assumed = {*(size.keys() - capacity.keys()), *(key for key in usual if labels[key] == _USUAL_LABELS[key])}
        node = NodeTemplate(
            capacity={**size, **capacity},
            labels=labels,
            taints=tuple(dict.fromkeys([*taints, *self._taints_of_node_group()])),
            assumed=frozenset(assumed),
            source="tags, EKS and EC2",
        )
        is_closed = is_empty and not node.complete and self._policy.demand_stage.orders
        return GroupTemplate(node=node, closed_because=self._closed_because(type, node) if is_closed else None)

    def _taints_of_node_group(self) -> Iterator[Taint]:
        for taint in (self._node_group or {}).get("taints") or ():
            key, effect = str(taint.get("key")), str(taint.get("effect"))
            if effect in _EFFECTS:
                yield Taint(key, str(taint.get("value") or ""), _EFFECTS[effect])
            else:
                expected = f"the taint is ignored: its effect is none of {', '.join(_EFFECTS)}"
                self._reading.note(f"taint {quote(key)} of its managed node group", quote(effect), expected)

    def _closed_because(self, type: str, node: NodeTemplate) -> Reason:
        """Return why an empty group must get no node, with the tags that would let it get one."""
        missing = tuple(tag for tag in SIZE_TAGS[AUTO_SCALING] if tag.removeprefix(RESOURCES) not in node.capacity)
        steps = (Reason.of(Rule.SET_TAGS, tags=missing),)
        if type and self._answers.types is None:
            return Reason.of(Rule.UNREAD_AT_ZERO, object=f"ec2:DescribeInstanceTypes of {type}", steps=steps)
        return Reason.of(Rule.UNKNOWN_AT_ZERO, steps=steps)

    def _amount(self, key: str, value: str) -> Fraction | None:
        """Return the amount of a resource, or None where the tag is bad. Unlike options, suffixes have a case."""
        try:
            return read_amount(value)
        except BadValueError as error:
            self._reading.note(key, quote(value), f"{error}; the tag is ignored")
            return None

    # Notes for the report

    def _note_drift(self, bounds: Bounds | None, ours: WrittenByUs) -> None:
        scaling = (self._node_group or {}).get("scalingConfig") or {}
        stated = (scaling.get("minSize"), scaling.get("maxSize"))
        is_ours = ours.published is not None and ours.published.bounds == bounds
        if bounds is None or None in stated or is_ours or stated == (bounds.min, bounds.max):
            return
        problem = f"the Auto Scaling group has {bounds.min} to {bounds.max}; EKS writes its own at its next update"
        self._reading.note("scalingConfig of its managed node group", f"{stated[0]} to {stated[1]}", problem)


def failure_of(launch: Described, at: datetime) -> MachineFailure:
    """Return the failure that the message of a failed launch names."""
    text = str(launch.get("StatusMessage") or "")
    code = _CODE.match(text)
    message = text[code.end() :] if code else text
    return MachineFailure(code=code[1][:128] if code else "Failed", message=message[:1024], at=at)


def _missing_tags(tags: Mapping[str, str], discoveries: Sequence[Discovery]) -> tuple[str, ...]:
    """Return the tags that a group lacks: the pool's tag, and those that the record's discovery selects."""
    needed = {POOL_LABEL: "", **joined_tags(discoveries)}
    return tuple(
        f"{key}={value}" if value else key
        for key, value in needed.items()
        if key not in tags or value not in ("", tags[key])
    )


def no_room(tags: Mapping[str, str]) -> Reason | None:
    """Return the reason why the group with these tags is not written: Evenkeel's own do not fit; None: they fit."""
    keys = {key for key in tags if not key.startswith("aws:")}
    if len(keys.union(OWN_TAGS)) <= TAG_LIMIT:
        return None
    return Reason.of(Rule.NO_ROOM_FOR_TAGS, count=len(keys), needed=len(OWN_TAGS), limit=TAG_LIMIT)


def _instance_of(launch: Described) -> str:
    """Return the id of the instance that a launch has created; empty: it has created none yet."""
    found = _LAUNCHED.match(str(launch.get("Description")))
    return found[1] if found else ""


def _is_launch(activity: Described) -> bool:
    description = str(activity.get("Description"))
    return description.startswith(_LAUNCH) and _INTO_WARM_POOL not in description


def _start(launch: Described) -> datetime | None:
    return _moment(launch.get("StartTime"))


def _moment(at: object) -> datetime | None:
    if isinstance(at, str):
        try:
            at = datetime.fromisoformat(at)
        except ValueError:
            return None
    if not isinstance(at, datetime):
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
