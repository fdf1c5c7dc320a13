"""A group's template node: labels, sizes and taints as Cluster Autoscaler's provider for AWS builds them."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import pytest

from evenkeel.adapters.auto_scaling.instance_types import InstanceTypes
from evenkeel.adapters.auto_scaling.read import Answers, read_groups
from evenkeel.domain.model.groups import GroupTemplate
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.templates import NodeTemplate, Taint
from evenkeel.record import ClusterPolicy
from evenkeel.texts.english import sentence
from tests.auto_scaling_groups import TYPES, ZONES, Ec2, Stage, tag
from tests.unit.auto_scaling.test_read_groups import NOW, described, node_group

PREFIX = "k8s.io/cluster-autoscaler/node-template"
GIB = Fraction(2**30)


def template(
    tags: dict[str, str] | None = None, group: dict[str, Any] | None = None, types: Any = TYPES, **more: Any
) -> GroupTemplate:
    policy = ClusterPolicy.model_validate({"demand": "full", "autoscaler": "none"})
    item = described(tags, **{"DesiredCapacity": 0, "Instances": [], **more})
    answers = Answers(node_groups=[node_group(**group)] if group is not None else [], types=types)
    (member,), _ = read_groups([item], policy, NOW, answers)
    return member.group.template


def node(*args: Any, **more: Any) -> NodeTemplate:
    found = template(*args, **more).node
    assert found is not None
    return found


def mixed(*types: str) -> dict[str, Any]:
    return {"MixedInstancesPolicy": {"LaunchTemplate": {"Overrides": [{"InstanceType": name} for name in types]}}}


def test_the_labels_of_every_node() -> None:
    assert node(**mixed("m7g.large", "m5.xlarge")).labels == {
        "kubernetes.io/arch": "arm64",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m7g.large",
        "topology.kubernetes.io/region": "eu-central-1",
        "topology.kubernetes.io/zone": "eu-central-1a",
        "topology.ebs.csi.aws.com/zone": "eu-central-1a",
    }


def test_tags_replace_these_labels_and_the_node_groups_replace_those_of_tags() -> None:
    tags = {f"{PREFIX}/label/{key}": "tag" for key in ("kubernetes.io/arch", "team", "tier")}
    labels = node(tags, {"labels": {"tier": "web"}, "capacityType": "SPOT"}).labels
    assert labels["kubernetes.io/arch"] == labels["team"] == "tag"
    assert labels["tier"] == "web"
    assert labels["eks.amazonaws.com/nodegroup"] == "workers"
    assert labels["eks.amazonaws.com/capacityType"] == "SPOT"


@pytest.mark.parametrize(
    ("image", "os", "arch"),
    [
        ("AL2023_x86_64_STANDARD", "linux", "amd64"),
        ("BOTTLEROCKET_ARM_64", "linux", "arm64"),
        ("WINDOWS_CORE_2022_x86_64", "windows", "amd64"),
        ("CUSTOM", "linux", "amd64"),
        ("AN_IMAGE_OF_2028", "linux", "amd64"),
        (None, "linux", "amd64"),
    ],
)
def test_the_image_names_system_and_architecture(image: str | None, os: str, arch: str) -> None:
    labels = node(group={"amiType": image}, types=None).labels
    assert (labels["kubernetes.io/os"], labels["kubernetes.io/arch"]) == (os, arch)


@pytest.mark.parametrize(
    ("type", "size"),
    [
        ("m5.xlarge", {"cpu": 4, "memory": 16 * GIB}),
        ("g5.12xlarge", {"cpu": 48, "memory": 192 * GIB, "nvidia.com/gpu": 4}),
        ("g4ad.xlarge", {"cpu": 4, "memory": 16 * GIB}),
        ("unknown.large", {}),
    ],
)
def test_ec2_knows_the_size_of_a_type(type: str, size: dict[str, Any]) -> None:
    assert node(**mixed(type)).capacity == size


def test_tags_name_the_size_and_those_of_the_node_group_come_last() -> None:
    of_group = {f"{PREFIX}/resources/cpu": "3", f"{PREFIX}/resources/memory": "6Gi", f"{PREFIX}/resources/disk": "5"}
    of_node_group = {f"{PREFIX}/resources/cpu": "2", f"{PREFIX}/label/team": "blue", "team": "blue"}
    found = node(of_group, {"tags": of_node_group, "instanceTypes": ["m5.xlarge"]})
    assert found.capacity == {"cpu": 2, "memory": 6 * GIB, "disk": 5}
    assert "team" not in found.labels
    assert found.assumed == {"kubernetes.io/os"}


def test_without_types_the_least_that_the_group_requires_counts() -> None:
    required: dict[str, Any] = {"VCpuCount": {"Min": 4, "Max": 8}, "MemoryMiB": {"Min": 16384}}
    policy = {"LaunchTemplate": {"Overrides": [{"InstanceRequirements": required}]}}
    assert node(MixedInstancesPolicy=policy).capacity == {"cpu": 4, "memory": 16 * GIB}
    required |= {"AcceleratorCount": {"Min": 2}, "AcceleratorTypes": ["gpu"], "AcceleratorManufacturers": ["nvidia"]}
    assert node(MixedInstancesPolicy=policy).capacity["nvidia.com/gpu"] == 2
    required["AcceleratorManufacturers"] = ["amd"]
    assert "nvidia.com/gpu" not in node(MixedInstancesPolicy=policy).capacity


def test_a_taint_with_an_unknown_effect_is_ignored_with_a_note() -> None:
    taints = [{"key": "a", "effect": "NO_SCHEDULE"}, {"key": "b", "value": "x", "effect": "MAYBE"}]
    item, policy = described(), ClusterPolicy()
    (member,), _ = read_groups([item], policy, NOW, Answers(node_groups=[node_group(taints=taints)]))
    assert member.group.template.node is not None
    assert member.group.template.node.taints == (Taint("a", "", "NoSchedule"),)
    (note,) = member.group.unreadable.notes
    assert "taint 'b' of its managed node group is 'MAYBE': the taint is ignored" in str(note)


class TestUnknownSizes:
    def test_the_reason_names_the_tags(self) -> None:
        why = template().closed_because
        assert why is not None
        assert why.rule is Rule.UNKNOWN_AT_ZERO
        text = sentence(why, "auto-scaling")
        assert f"set tags {PREFIX}/resources/cpu and {PREFIX}/resources/memory" in text

    def test_one_tag_alone_is_not_enough(self) -> None:
        why = template({f"{PREFIX}/resources/cpu": "4"}).closed_because
        assert why is not None
        assert sentence(why, "auto-scaling").endswith(f"set tags {PREFIX}/resources/memory")

    def test_a_role_that_may_not_read_the_types_is_named(self) -> None:
        why = template(types=None, **mixed("m5.xlarge")).closed_because
        assert why is not None
        assert "ec2:DescribeInstanceTypes of m5.xlarge was not read" in sentence(why, "auto-scaling")

    def test_a_group_with_nodes_and_one_of_an_autoscaler_are_not_closed(self) -> None:
        assert template(DesiredCapacity=1, types=None).closed_because is None
        (member,), _ = read_groups([described(DesiredCapacity=0, Instances=[])], ClusterPolicy(), NOW)
        assert member.group.template.closed_because is None


WORKLOAD = {"access": {"kind": "eks", "name": "demo", "region": "eu-central-1"}}


def stage_at_zero(ec2: Ec2) -> Stage:
    stage = Stage(autoscaler="none", demand="full", workload=WORKLOAD)
    stage.clusters.ec2 = ec2
    for zone in ZONES:
        stage.put_managed(f"m-{zone[-1]}", zone, 0, 0, 9, instanceTypes=["m5.xlarge"])
    stage.minutes(1)
    return stage


class TestReading:
    def test_a_type_is_read_once_a_day(self) -> None:
        ec2 = Ec2()
        stage = stage_at_zero(ec2)
        for _ in range(5):
            groups = stage.observe()
        assert ec2.asked == [["m5.xlarge"]]
        assert all(group.template.node and group.template.node.complete for group in groups.values())
        stage.minutes(24 * 60)
        stage.observe()
        assert len(ec2.asked) == 2

    def test_a_role_without_the_right_is_asked_again_after_an_hour_and_the_rest_goes_on(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        ec2 = Ec2(refused=True)
        stage = stage_at_zero(ec2)
        for _ in range(5):
            groups = stage.observe()
        assert len(ec2.asked) == 1
        (line,) = [each.getMessage() for each in caplog.records if "instance types" in each.getMessage()]
        assert "ec2:DescribeInstanceTypes: UnauthorizedOperation: allow this action" in line
        assert len(groups) == 3
        assert all(group.template.closed_because is not None for group in groups.values())
        ec2.refused = False
        stage.minutes(61)
        assert all(group.template.closed_because is None for group in stage.observe().values())

    def test_ec2_knows_architecture_and_gpus_where_tags_name_the_size(self) -> None:
        stage, ec2 = Stage(autoscaler="none", demand="full", workload=WORKLOAD), Ec2()
        stage.clusters.ec2 = ec2
        for name, type in (("arm", "m7g.large"), ("gpu", "g5.12xlarge")):
            tags = {f"{PREFIX}/resources/cpu": "2", f"{PREFIX}/resources/memory": "6Gi"}
            tags[f"{PREFIX}/label/node.kubernetes.io/instance-type"] = type
            stage.put(name, ZONES[0], 0, 0, 9)
            stage.api.create_or_update_tags(Tags=[tag(name, key, value) for key, value in tags.items()])
        nodes = {name: group.template.node or NodeTemplate() for name, group in stage.observe().items()}
        assert nodes["arm"].labels["kubernetes.io/arch"] == "arm64"
        assert nodes["gpu"].capacity == {"cpu": 2, "memory": 6 * GIB, "nvidia.com/gpu": 4}

    def test_without_demand_nothing_is_read(self) -> None:
        ec2 = Ec2()
        stage = stage_at_zero(ec2)
        stage.register(demand="off")
        stage.observe()
        assert ec2.asked == []

    def test_a_type_that_ec2_does_not_know_is_not_read_again(self) -> None:
        kept, now = InstanceTypes(), datetime(2026, 1, 1, tzinfo=UTC)
        kept.keep("demo", ["a.large", "b.large"], [{"InstanceType": "a.large", "Hypervisor": "nitro"}], now)
        assert kept.known("demo", ["a.large", "b.large", "c.large"], now + timedelta(hours=23)) == {
            "a.large": {"InstanceType": "a.large"},
            "b.large": {},
        }
        assert kept.known("other", ["a.large"], now) == {}
