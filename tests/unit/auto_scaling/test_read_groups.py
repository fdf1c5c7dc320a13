"""Node groups from the answers of AWS: those read, skipped and frozen, and the effect of each bad value."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evenkeel.adapters.auto_scaling.read import Answers, read_groups, read_move
from evenkeel.domain.model.failures import FailureClass, class_of
from evenkeel.domain.model.groups import Bounds, NodeGroup
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.templates import Taint
from evenkeel.record import ClusterPolicy
from evenkeel.texts.english import sentence

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NAME, ZONE = "workers-a", "eu-central-1a"
ARN = f"arn:aws:autoscaling:eu-central-1:123456789012:autoScalingGroup:1:autoScalingGroupName/{NAME}"
CAPACITY = (
    "We currently do not have sufficient m5.xlarge capacity in the Availability Zone you requested (eu-central-1a). "
    "Launching EC2 instance failed."
)


def instance(number: int, state: str = "InService", health: str = "Healthy", **more: Any) -> dict[str, Any]:
    return {
        "InstanceId": f"i-{number}",
        "InstanceType": "m5.xlarge",
        "AvailabilityZone": ZONE,
        "LifecycleState": state,
        "HealthStatus": health,
        "ProtectedFromScaleIn": False,
        **more,
    }


def described(tags: dict[str, str] | None = None, **more: Any) -> dict[str, Any]:
    pairs = {"evenkeel.dev/pool": "workers", **(tags or {})}
    return {
        "AutoScalingGroupName": NAME,
        "AutoScalingGroupARN": ARN,
        "MinSize": 1,
        "MaxSize": 9,
        "DesiredCapacity": 2,
        "AvailabilityZones": [ZONE],
        "Instances": [instance(1), instance(2)],
        "SuspendedProcesses": [],
        "Tags": [{"Key": key, "Value": value} for key, value in pairs.items()],
        **more,
    }


def launch(status: str, minutes_ago: float, message: str = "", instance_id: str = "") -> dict[str, Any]:
    return {
        "ActivityId": f"{status}-{minutes_ago}",
        "AutoScalingGroupName": NAME,
        "Description": f"Launching a new EC2 instance{f': {instance_id}' if instance_id else ''}",
        "StartTime": NOW - timedelta(minutes=minutes_ago),
        "StatusCode": status,
        "StatusMessage": message,
    }


def read(
    item: dict[str, Any], activities: list[dict[str, Any]] | None = None, *node_groups: dict[str, Any], **more: Any
) -> NodeGroup:
    answers = Answers(activities={NAME: activities or []}, node_groups=node_groups, with_machines=[NAME], **more)
    members, skipped = read_groups([item], ClusterPolicy(), NOW, answers)
    assert not skipped
    (member,) = members
    return member.group


def node_group(status: str = "ACTIVE", **more: Any) -> dict[str, Any]:
    resources = {"autoScalingGroups": [{"name": NAME}]}
    return {"nodegroupName": "workers", "clusterName": "demo", "status": status, "resources": resources, **more}


@pytest.mark.parametrize(
    ("item", "key"),
    [
        ({"LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "7"}}, "lt-1 7"),
        ({"LaunchConfigurationName": "old"}, "old"),
        (
            {
                "MixedInstancesPolicy": {
                    "LaunchTemplate": {
                        "LaunchTemplateSpecification": {"LaunchTemplateId": "lt-2", "Version": "$Latest"},
                        "Overrides": [{"InstanceType": "m5.large"}],
                    }
                }
            },
            "m5.large lt-2 $Latest",
        ),
        ({}, ""),
    ],
)
def test_the_template_of_a_group_names_its_instances(item: dict[str, Any], key: str) -> None:
    assert read(described(**item)).template.key == key


@pytest.mark.parametrize(
    ("item", "managed", "type"),
    [
        ({}, {"instanceTypes": ["m5.large", "m5a.large"], "capacityType": "SPOT"}, "m5.large m5a.large spot"),
        ({}, {"instanceTypes": ["m5.large"], "capacityType": "ON_DEMAND"}, "m5.large on-demand"),
        ({"LaunchTemplate": {"LaunchTemplateId": "lt-1", "Version": "7"}}, {}, ""),
        (
            {
                "MixedInstancesPolicy": {
                    "LaunchTemplate": {"Overrides": [{"InstanceType": "m5.large"}]},
                    "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 0},
                }
            },
            {},
            "m5.large spot",
        ),
    ],
)
def test_a_group_names_its_machine_type_and_capacity_type(
    item: dict[str, Any], managed: dict[str, Any], type: str
) -> None:
    assert read(described(**item), None, node_group(**managed)).template.machine_type == type


def test_an_instance_has_joined_when_its_launch_has_ended() -> None:
    ended = {**launch("Successful", 5, instance_id=instance(1)["InstanceId"]), "EndTime": NOW - timedelta(minutes=3)}
    machines = read(described(), [ended]).machines
    assert machines is not None
    assert [machine.joined_at for machine in machines] == [NOW - timedelta(minutes=3), None]


class TestNumbers:
    def test_a_group_at_rest(self) -> None:
        group = read(described())
        assert str(group.key) == f"auto-scaling/eu-central-1/{NAME}"
        assert (group.requested, group.running, group.bounds) == (2, 2, Bounds(1, 9))
        assert (group.identity.zone, group.identity.pool_label, group.identity.kind) == (
            ZONE,
            "workers",
            "AutoScalingGroup",
        )
        assert group.unreadable.faults == group.unreadable.notes == ()
        assert group.frozen_because is None

    def test_machines_are_returned_where_one_is_missing_or_on_request(self) -> None:
        items = [described(AutoScalingGroupName=name) for name in ("rests", "asked")]
        items.append(described(AutoScalingGroupName="lacks", DesiredCapacity=3))
        members, _ = read_groups(items, ClusterPolicy(), NOW, Answers(with_machines=["asked"]))
        assert [member.name for member in members if member.group.machines is not None] == ["asked", "lacks"]
        assert {len(member.machines) for member in members} == {2}

    @pytest.mark.parametrize(
        ("state", "health", "counts", "running"),
        [
            ("InService", "Healthy", 1, 1),
            ("InService", "Unhealthy", 1, 0),
            ("Pending", "Healthy", 1, 0),
            ("Pending:Wait", "Healthy", 1, 0),
            ("Terminating:Wait", "Healthy", 0, 0),
            ("Terminated", "Healthy", 0, 0),
            ("Standby", "Healthy", 0, 0),
            ("Detaching", "Healthy", 0, 0),
            ("Warmed:Stopped", "Healthy", 0, 0),
        ],
    )
    def test_what_counts_as_an_instance_and_as_running(
        self, state: str, health: str, counts: int, running: int
    ) -> None:
        group = read(described(DesiredCapacity=1, Instances=[instance(1, state, health)]))
        assert group.running == running
        assert sum(not machine.deleting for machine in group.machines or ()) == counts
        assert group.on_its_way(NOW, timedelta(minutes=15)) == counts - running

    @pytest.mark.parametrize(
        ("more", "field"),
        [
            ({"MinSize": 10}, "MinSize"),
            ({"MinSize": -1}, "MinSize"),
            ({"MaxSize": 2**31}, "MaxSize"),
            ({"MaxSize": "many"}, "MaxSize"),
            ({"MaxSize": None}, "MinSize and MaxSize"),
            ({"DesiredCapacity": None}, "DesiredCapacity"),
            ({"DesiredCapacity": True}, "DesiredCapacity"),
            ({"tags": {"evenkeel.dev/pool-max": "many"}}, "evenkeel.dev/pool-max"),
            ({"tags": {"evenkeel.dev/pool-mx": "9"}}, "evenkeel.dev/pool-mx"),
            ({"tags": {"evenkeel.dev/adopted-bounds": "9"}}, "evenkeel.dev/adopted-bounds"),
        ],
    )
    def test_a_bad_value_is_one_fault_of_its_group(self, more: dict[str, Any], field: str) -> None:
        (fault,) = read(described(**more)).unreadable.faults
        assert (fault.object, fault.field) == (f"Auto Scaling group {NAME}", field)


class TestLaunches:
    @pytest.mark.parametrize(
        ("message", "kind"),
        [
            (CAPACITY, FailureClass.CAPACITY),
            ("There is no Spot capacity available that matches your request.", FailureClass.CAPACITY),
            (
                "Your requested instance type (p5.48xlarge) is not supported in your requested Availability Zone (x).",
                FailureClass.CAPACITY,
            ),
            ("20 instance(s) are already running. Launching EC2 instance failed.", FailureClass.QUOTA),
            (
                "Could not launch On-Demand Instances. VcpuLimitExceeded - You have requested more vCPU capacity than "
                "your current vCPU limit of 32 allows.",
                FailureClass.QUOTA,
            ),
            ("The requested configuration is currently not supported.", FailureClass.CONFIGURATION),
            (
                "Could not launch On-Demand Instances. Unsupported - The requested configuration is currently not "
                "supported. Please check the documentation for supported configurations.",
                FailureClass.CONFIGURATION,
            ),
            ("Client.InternalError: Client error on launch.", FailureClass.CONFIGURATION),
            ("The security group 'sg-0a1b2c3d' does not exist.", FailureClass.CONFIGURATION),
            ("The key pair 'ops' does not exist.", FailureClass.CONFIGURATION),
        ],
    )
    def test_the_texts_of_aws_are_classified(self, message: str, kind: FailureClass) -> None:
        group = read(described(DesiredCapacity=3), [launch("Failed", 1, message)])
        (machine,) = group.refused_machines
        assert machine.failure is not None
        assert class_of(machine.failure) is kind
        assert machine.failure.at == NOW - timedelta(minutes=1)

    def test_each_missing_instance_is_a_failed_machine(self) -> None:
        group = read(described(DesiredCapacity=5), [launch("Failed", 1, CAPACITY)])
        assert len(group.refused_machines) == 3
        assert len({machine.name for machine in group.machines or ()}) == 5

    @pytest.mark.parametrize(("at", "coming"), [("11:58", 2), ("11:44", 0), ("11:40", 0)])
    def test_what_evenkeel_has_ordered_since_a_failure_is_on_its_way(self, at: str, coming: int) -> None:
        """AWS lists a launch up to minutes after its order. Until then, the newest launch is an earlier failed one."""
        decision = {"min": 0, "max": 4, "requested": 4, "before": 2, "at": f"2026-01-01T{at}:00Z", "state": "probing"}
        group = read(
            described({"evenkeel.dev/decision": json.dumps(decision)}, DesiredCapacity=4),
            [launch("Failed", 18, CAPACITY)],
            node_group(),
        )
        assert group.on_its_way(NOW, timedelta(minutes=15)) == coming
        assert len(group.refused_machines) == (2 if at == "11:40" else 0)

    def test_a_launch_in_progress_is_on_its_way(self) -> None:
        activities = [launch("WaitingForSpotInstanceId", 1), launch("Failed", 3, CAPACITY)]
        group = read(described(DesiredCapacity=4), activities)
        assert [
            machine.created_at for machine in group.machines or () if not machine.has_node and not machine.failure
        ] == [NOW - timedelta(minutes=1)]
        assert len(group.refused_machines) == 1

    @pytest.mark.parametrize(
        "activities",
        [
            pytest.param(
                [launch("Successful", 1, instance_id="i-2"), launch("Failed", 3, CAPACITY)], id="then succeeded"
            ),
            pytest.param([launch("Failed", 90, CAPACITY)], id="too old"),
            pytest.param([launch("Cancelled", 1)], id="cancelled"),
            pytest.param([{**launch("Failed", 1), "Description": "Terminating EC2 instance: i-9"}], id="no launch"),
            pytest.param([{**launch("Failed", 1), "StartTime": "never"}], id="no time"),
            pytest.param([], id="none"),
        ],
    )
    def test_other_activities_are_no_failed_machine(self, activities: list[dict[str, Any]]) -> None:
        group = read(described(DesiredCapacity=3), activities)
        assert group.refused_machines == ()
        assert group.waiting == 1

    def test_a_failed_launch_into_a_warm_pool_is_no_failed_machine(self) -> None:
        failed = launch("Failed", 1, CAPACITY)
        failed["Description"] = "Launching a new EC2 instance into warm pool.  Status Reason: no capacity"
        group = read(described(Instances=[instance(1)]), [failed])
        assert [machine.failure for machine in group.machines or () if not machine.has_node] == []

    def test_a_launch_from_a_warm_pool_dates_its_instance(self) -> None:
        began = launch("Successful", 3)
        began["Description"] = "Launching a new EC2 instance from warm pool: i-1"
        group = read(described(), [began])
        assert [machine.created_at for machine in group.machines or () if machine.name == "i-1"] == [began["StartTime"]]

    def test_an_instance_in_an_unknown_state_counts_and_is_on_its_way(self) -> None:
        group = read(described(Instances=[instance(1), instance(2, "A:New:State")]), [])
        assert group.running == 1
        assert [machine.name for machine in group.machines or () if not machine.has_node] == ["i-2"]

    def test_without_its_launches_only_a_group_that_is_not_at_rest_is_frozen(self) -> None:
        at_rest, short = (
            read(described(Instances=[instance(number) for number in numbers]), unread=[NAME])
            for numbers in ((1, 2), (1,))
        )
        assert at_rest.frozen_because is None
        assert at_rest.machines is None  # it is unknown when they were launched
        assert short.frozen_because is not None
        assert short.frozen_because.rule is Rule.LAUNCHES_UNREAD

    def test_a_group_with_all_its_instances_has_no_failed_machine(self) -> None:
        assert read(described(), [launch("Failed", 1, CAPACITY)]).refused_machines == ()

    def test_the_launch_dates_an_instance(self) -> None:
        group = read(described(), [launch("Successful", 7, instance_id="i-2")])
        created = {machine.name: machine.created_at for machine in group.machines or ()}
        assert created["i-2"] == NOW - timedelta(minutes=7)
        assert created["i-1"] < NOW - timedelta(days=365)


SHIFT = {"AvailabilityZoneImpairmentPolicy": {"ZonalShiftEnabled": True}}


class TestSkipped:
    @pytest.mark.parametrize(
        ("more", "rule", "text"),
        [
            ({"AvailabilityZones": []}, Rule.GROUP_WITHOUT_ZONE, "has no Availability Zone"),
            ({"AvailabilityZones": ["a", "b"]}, Rule.GROUP_SPANS_ZONES, "create one group for each zone"),
            ({"AvailabilityZones": ["a", "b"]}, Rule.GROUP_SPANS_ZONES, "or enable its zonal shift"),
            ({"AvailabilityZones": ["a", "b"], **SHIFT}, Rule.GROUP_SPANS_ZONES, "Its zonal shift is enabled"),
            ({"AutoScalingGroupName": "team/workers"}, Rule.GROUP_NAME_UNUSABLE, "contains a slash"),
            ({"AutoScalingGroupName": ""}, Rule.NAMELESS, "AutoScalingGroup without"),
            ({"Instances": [instance(1, WeightedCapacity="4")]}, Rule.GROUP_WEIGHTED, "remove WeightedCapacity"),
            ({"DesiredCapacityType": "vcpu"}, Rule.GROUP_IN_OTHER_UNITS, "counts vcpu, and no instances"),
        ],
    )
    def test_a_group_that_is_no_node_group_is_skipped_alone(self, more: dict[str, Any], rule: Rule, text: str) -> None:
        other = described(AutoScalingGroupName="other")
        members, (skipped,) = read_groups([described(**more), other], ClusterPolicy(), NOW)
        assert [member.name for member in members] == ["other"]
        assert skipped.reason.rule is rule
        assert text in sentence(skipped.reason)

    def test_the_reason_says_what_aws_does_with_several_zones(self) -> None:
        zones = {"AvailabilityZones": ["eu-1a", "eu-1b"]}
        strict = {"AvailabilityZoneDistribution": {"CapacityDistributionStrategy": "balanced-only"}}
        suspended = {"SuspendedProcesses": [{"ProcessName": "AZRebalance", "SuspensionReason": ""}]}
        texts = []
        for more in (zones, zones | strict | suspended):
            _, (skipped,) = read_groups([described(**more)], ClusterPolicy(), NOW)
            texts.append(sentence(skipped.reason))
        assert (
            "balanced-best-effort: where a zone refuses a launch, another one gets it; "
            "AZRebalance moves instances between zones" in texts[0]
        )
        assert "a zone that refuses launches is tried again and again; AZRebalance is suspended" in texts[1]

    def test_no_zonal_shift_is_advised_for_a_managed_node_group(self) -> None:
        managed = described({"eks:cluster-name": "blue", "eks:nodegroup-name": "w"}, AvailabilityZones=["a", "b"])
        _, (skipped,) = read_groups([managed], ClusterPolicy(), NOW)
        assert "zonal shift" not in sentence(skipped.reason)

    def test_groups_that_the_discovery_does_not_match_are_skipped(self) -> None:
        policy = ClusterPolicy.model_validate({"discovery": ["asg:tag=team=blue"], "flavours": ["auto-scaling"]})
        _, (skipped,) = read_groups([described()], policy, NOW)
        assert skipped.reason.rule is Rule.NOT_DISCOVERED
        members, _ = read_groups([described({"team": "blue"})], policy, NOW)
        assert len(members) == 1


class TestFrozen:
    @pytest.mark.parametrize(
        ("more", "rule", "text"),
        [
            ({"Status": "Delete in progress"}, Rule.OBJECT_BEING_DELETED, "is being deleted"),
            ({"Operator": {"Principal": "x.amazonaws.com"}}, Rule.MANAGED_BY_OPERATOR, "only x.amazonaws.com"),
            (
                {"SuspendedProcesses": [{"ProcessName": "Terminate"}, {"ProcessName": "Launch"}]},
                Rule.PROCESS_SUSPENDED,
                f"resume-processes --auto-scaling-group-name {NAME} --scaling-processes Terminate",
            ),
        ],
    )
    def test_by_the_group_itself(self, more: dict[str, Any], rule: Rule, text: str) -> None:
        reason = read(described(**more)).frozen_because
        assert reason is not None
        assert reason.rule is rule
        assert text in sentence(reason)

    def test_by_a_refresh(self) -> None:
        reason = read(described(), refreshing={NAME: ("InProgress", NOW)}).frozen_because
        assert reason is not None
        assert sentence(reason) == "instances are being replaced: an instance refresh is InProgress"

    @pytest.mark.parametrize(
        ("status", "frozen"),
        [("ACTIVE", False), ("DEGRADED", False), ("UPDATING", True), ("CREATING", True), ("A_NEW_STATUS", True)],
    )
    def test_by_its_managed_node_group(self, status: str, frozen: bool) -> None:
        reason = read(described(), [], node_group(status)).frozen_because
        assert (reason is not None) == frozen

    def test_as_one_in_deletion_once_eks_deletes_its_node_group(self) -> None:
        reason = read(described(), [], node_group("DELETING")).frozen_because
        assert reason == Reason.of(Rule.OBJECT_BEING_DELETED)

    def test_not_by_a_suspended_launch_which_stops_its_growth(self) -> None:
        suspended = {"ProcessName": "Launch", "SuspensionReason": "Administrative suspension"}
        group = read(described(SuspendedProcesses=[suspended]))
        assert group.frozen_because is None
        assert group.status.launches_stopped is not None
        assert "Launch suspended (Administrative suspension)" in sentence(group.status.launches_stopped)

    @pytest.mark.parametrize("process", ["AZRebalance", "HealthCheck", "AlarmNotification"])
    def test_not_by_another_process(self, process: str) -> None:
        assert read(described(SuspendedProcesses=[{"ProcessName": process}])).frozen_because is None

    @pytest.mark.parametrize(("minutes", "is_frozen"), [(2, False), (30, True)])
    def test_not_by_an_unfinished_write_of_ours_of_the_last_minutes(self, minutes: int, is_frozen: bool) -> None:
        at = (NOW - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")
        decision = f'{{"at":"{at}","state":"healthy","target":2,"min":0,"max":2,"unfinished":true}}'
        held = {"SuspendedProcesses": [{"ProcessName": "Terminate"}]}
        group = read(described({"evenkeel.dev/decision": decision}, **held))
        assert (group.frozen_because is not None) is is_frozen

    @pytest.mark.parametrize(
        ("suspended", "ended", "is_frozen"), [(75, 5, False), (1, 5, True), (75, 60, True), (3600, 5, True)]
    )
    def test_not_by_an_old_read_of_a_write_of_ours_that_has_just_ended(
        self, suspended: int, ended: int, is_frozen: bool
    ) -> None:
        """The numbers are the seconds since the write ended. Another writer has suspended it later, or long before."""

        def ago(seconds: int) -> str:
            return (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")

        decision = f'{{"at":"{ago(80)}","state":"healthy","target":2,"min":0,"max":2,"ended":"{ago(ended)}"}}'
        process = {"ProcessName": "Terminate", "SuspensionReason": f"User suspended at {ago(suspended)}"}
        group = read(described({"evenkeel.dev/decision": decision}, SuspendedProcesses=[process]))
        assert (group.frozen_because is not None) is is_frozen


class TestTags:
    def test_settings_and_what_we_wrote(self) -> None:
        decision = '{"at":"2026-01-01T11:00:00Z","state":"fenced","target":2,"min":0,"max":2}'
        group = read(
            described(
                {
                    "evenkeel.dev/pool-max": "12",
                    "evenkeel.dev/weight": "40%",
                    "evenkeel.dev/adopted-bounds": "1,9",
                    "evenkeel.dev/decision": decision,
                    "evenkeel.dev/move": "01J0000000000000000000MOVE",
                    "k8s.io/cluster-autoscaler/node-template/autoscaling-options/maxnodeprovisiontime": "5m",
                }
            )
        )
        assert (group.annotations.pool_max, group.annotations.weight_percent) == (12, 40)
        assert (group.ours.adopted, group.ours.has_adopted, group.ours.move) == (
            Bounds(1, 9),
            True,
            "01J0000000000000000000MOVE",
        )
        assert group.ours.published is not None
        assert group.options.provision_timeout == timedelta(minutes=5)

    def test_the_cluster_is_that_of_eks_or_of_the_tag_of_the_cloud_provider(self) -> None:
        assert (
            read(described({"eks:cluster-name": "one", "kubernetes.io/cluster/two": "owned"})).identity.cluster == "one"
        )
        assert read(described({"kubernetes.io/cluster/two": "owned"})).identity.cluster == "two"

    def test_the_node_template_of_tags_and_node_group(self) -> None:
        prefix = "k8s.io/cluster-autoscaler/node-template"
        tags = {
            f"{prefix}/label/team": "blue",
            f"{prefix}/resources/cpu": "3920m",
            f"{prefix}/resources/memory": "16Gi",
            f"{prefix}/taint/dedicated": "gpu:NoSchedule",
            f"{prefix}/taint/without-effect": "gpu",
        }
        taints = [{"key": "spot", "value": "true", "effect": "NO_EXECUTE"}]
        group = read(described(tags), [], node_group(labels={"tier": "web"}, taints=taints, instanceTypes=["m5.large"]))
        node = group.template.node
        assert node is not None
        own = {key: value for key, value in node.labels.items() if "kubernetes.io" not in key and "aws" not in key}
        assert own == {"team": "blue", "tier": "web"}
        assert {key: float(amount) for key, amount in node.capacity.items()} == {"cpu": 3.92, "memory": 2.0**34}
        assert node.taints == (Taint("dedicated", "gpu", "NoSchedule"), Taint("spot", "true", "NoExecute"))
        (note,) = group.unreadable.notes
        problem = "write VALUE:EFFECT with NoSchedule, NoExecute or PreferNoSchedule; the tag is ignored"
        assert str(note).endswith(f"without-effect is 'gpu': {problem}")

    @pytest.mark.parametrize(("scaling", "notes"), [((1, 9), 0), ((1, 5), 1), ((2, 9), 1)])
    def test_a_difference_to_the_node_group_is_reported(self, scaling: tuple[int, int], notes: int) -> None:
        config = {"minSize": scaling[0], "maxSize": scaling[1], "desiredSize": 2}
        assert len(read(described(), [], node_group(scalingConfig=config)).unreadable.notes) == notes

    def test_a_difference_that_we_have_written_is_not_reported(self) -> None:
        decision = '{"at":"2026-01-01T11:00:00Z","state":"healthy","target":2,"min":1,"max":9}'
        config = {"minSize": 1, "maxSize": 5, "desiredSize": 2}
        group = read(described({"evenkeel.dev/decision": decision}), [], node_group(scalingConfig=config))
        assert group.unreadable.notes == ()

    @pytest.mark.parametrize(("count", "is_frozen"), [(46, False), (47, True), (60, True)])
    def test_a_group_without_room_for_our_tags_is_frozen(self, count: int, is_frozen: bool) -> None:
        frozen = read(described({f"t/{number}": "" for number in range(count)})).frozen_because
        assert (frozen is not None and frozen.rule is Rule.NO_ROOM_FOR_TAGS) is is_frozen


@pytest.mark.parametrize(
    ("text", "desired", "fields"),
    [
        ("MOVE", 2, {"move": "MOVE"}),
        ("MOVE 2", 2, {}),
        ("MOVE 2", 3, {"move": "MOVE"}),
        ("MOVE i-1", 2, {"move_begun": ("MOVE", 0)}),
        ("MOVE i-1,i-2", 2, {"move_begun": ("MOVE", 0)}),
        ("MOVE i-1,i-7", 2, {"move_begun": ("MOVE", 1)}),
        ("MOVE i-7", 2, {"move": "MOVE"}),
    ],
)
def test_a_move_is_done_when_what_it_announces_has_changed(text: str, desired: int, fields: dict[str, object]) -> None:
    assert read_move(text, described(DesiredCapacity=desired)) == fields
