"""No value that AWS, a user or a neighbor can give a group fails the check, or ends an instance."""

from datetime import UTC, datetime
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from evenkeel.adapters.auto_scaling.read import Answers, read_groups
from evenkeel.adapters.own_annotations import OWN_ANNOTATIONS
from evenkeel.record import ClusterPolicy
from evenkeel.texts.english import sentences
from tests.auto_scaling_groups import ZONES, Stage, tag

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
NUMBERS = st.one_of(st.integers(), st.sampled_from([2**31, 2**63, -1, 0, None, True, "1e3", "٣", "9" * 400, 1.5]))
TEXTS = st.one_of(
    st.text(max_size=300),
    st.sampled_from(
        [
            *("-1", "1e3", "٣", "9" * 256, "0x10", " 3", "3 ", "+3", "None", "true", "🙂", "\x00", "a\nb"),
            *("0,9", "9,0", "٣,٩", "none", "i-1", "01J0 i-1,i-2", "01J0 99999999999999999999"),
            '{"at":"2026-01-01T00:00:00Z","state":"fenced","min":0,"max":99999999999999999999999}',
            '{"at":"9999-12-31T23:59:59Z","state":"healthy","min":0,"max":0,"unfinished":true}',
            '{"at":"2026-01-01T00:00:00Z","state":"healthy","min":1,"max":1,"requested":0,"before":2}',
            '{"by":"another/cluster"}',
            '{"by":{"x":[1]},"unfinished":true}',
            "[" * 250,
        ]
    ),
)
SETTINGS = "k8s.io/cluster-autoscaler/node-template/"
KEYS = st.sampled_from(
    [
        *sorted(OWN_ANNOTATIONS),
        *("evenkeel.dev/pool", "evenkeel.dev/unknown", "eks:cluster-name", "eks:nodegroup-name"),
        *(f"{SETTINGS}resources/cpu", f"{SETTINGS}label/zone", f"{SETTINGS}taint/x"),
        f"{SETTINGS}autoscaling-options/maxnodeprovisiontime",
        f"{SETTINGS}autoscaling-options/scaledownutilizationthreshold",
    ]
)
TAGS = st.dictionaries(KEYS, TEXTS, max_size=8)
STATES = st.sampled_from(["InService", "Pending:Wait", "Terminating", "Standby", "", "New"])
INSTANCES = st.lists(
    st.fixed_dictionaries(
        {"InstanceId": TEXTS, "LifecycleState": STATES, "HealthStatus": st.sampled_from(["Healthy", "Unhealthy", ""])},
        optional={"AvailabilityZone": TEXTS, "AvailabilityZoneId": TEXTS, "WeightedCapacity": TEXTS},
    ),
    max_size=3,
)
LAUNCHES = st.lists(
    st.fixed_dictionaries(
        {
            "StatusCode": st.sampled_from(["Failed", "Successful", "InProgress", "Cancelled", ""]),
            "Description": st.sampled_from(["Launching a new EC2 instance: i-1", "Launching a new EC2 instance.", ""]),
            "StartTime": st.one_of(st.datetimes(timezones=st.just(UTC)), st.datetimes(), TEXTS, st.none()),
            "StatusMessage": TEXTS,
        }
    ),
    max_size=3,
)
GROUPS = st.fixed_dictionaries(
    {"AutoScalingGroupName": TEXTS, "AvailabilityZones": st.lists(TEXTS, max_size=2)},
    optional={
        **dict.fromkeys(("MinSize", "MaxSize", "DesiredCapacity"), NUMBERS),
        "AutoScalingGroupARN": TEXTS,
        "CreatedTime": st.one_of(st.datetimes(timezones=st.just(UTC)), TEXTS, st.none()),
        "Instances": INSTANCES,
        "Status": st.sampled_from(["", "Delete in progress"]),
        "SuspendedProcesses": st.lists(st.fixed_dictionaries({"ProcessName": TEXTS, "SuspensionReason": TEXTS})),
    },
)


@given(GROUPS, TAGS, LAUNCHES)
def test_each_group_is_read_or_skipped_with_a_reason(
    group: dict[str, Any], tags: dict[str, str], launches: Any
) -> None:
    item = {**group, "Tags": [{"Key": key, "Value": value} for key, value in tags.items()]}
    launched = {group["AutoScalingGroupName"]: launches}
    members, skipped = read_groups([item], ClusterPolicy(), NOW, Answers(activities=launched), writer="evenkeel/demo")
    assert len(members) + len(skipped) == 1
    for member in members:
        assert member.group.requested >= 0
        faults = member.group.unreadable.faults
        assert not any("\n" in text for one in faults for text in (one.object, one.field, one.value, one.problem))
    assert all("\n" not in text for one in skipped for text in sentences([one.reason], "auto-scaling"))


@settings(max_examples=40)
@given(TAGS.filter(lambda tags: "evenkeel.dev/pool" not in tags), st.integers(0, 2))
def test_no_tag_of_a_group_ends_an_instance_or_a_run(tags: dict[str, str], which: int) -> None:
    stage = Stage(autoscaler="none")
    names = stage.pool()
    stage.refuse(ZONES[1])
    stage.api.set_desired_capacity(AutoScalingGroupName=names[1], DesiredCapacity=4)
    written = [tag(names[which], key, value[:256]) for key, value in tags.items()]
    if written:
        stage.api.create_or_update_tags(Tags=written)
    running = {one for name in names for one in stage.group(name).instances}
    for _ in range(4):
        assert not stage.run().unreachable
        stage.minutes(1)
    assert running <= {one for name in names for one in stage.group(name).instances}
