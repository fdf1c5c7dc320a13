"""`plan -f` for Auto Scaling groups without a tag of Evenkeel, as common installers make them."""

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel_cli.main import app
from tests.asg_documents import DOCUMENTS, ZONES, Document, eks, group, kops, stack

NOW = "2026-06-01T12:00:00Z"
OWNED = {"kubernetes.io/cluster/blue": "owned"}
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "iis", "uid": "1", "controller": True}
UNSCHEDULABLE = {"reason": "Unschedulable", "lastTransitionTime": "2026-06-01T11:50:00Z"}


def spot(on_demand: int) -> dict[str, Any]:
    """Return the policy of a group with this percentage of instances on demand."""
    template = {"LaunchTemplateSpecification": {"LaunchTemplateId": "lt-1", "Version": "1"}}
    distribution = {"OnDemandPercentageAboveBaseCapacity": on_demand}
    return {"MixedInstancesPolicy": {"LaunchTemplate": template, "InstancesDistribution": distribution}}


def planned(groups: Any, *options: str, exit_code: int = 0) -> str:
    """Return what a plan prints for the output of the AWS command line, given by a pipe."""
    command = ["plan", "-f", "-", "--now", NOW, *options]
    result = CliRunner().invoke(app, command, input=json.dumps({"AutoScalingGroups": groups}), catch_exceptions=False)
    assert result.exit_code == exit_code, result.output
    return result.stdout


def as_json(groups: Any, **more: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(planned(groups, "-o", "json", **more))
    return document


def with_tags(groups: Any, lines: list[str]) -> Any:
    """Return the groups after the lines were run that set tags."""
    named = {group["AutoScalingGroupName"]: group for group in groups}
    changed = {name: {**group, "Tags": [*group["Tags"]]} for name, group in named.items()}
    for line in lines:
        loop = re.fullmatch(r"for group in (.+?); do aws autoscaling create-or-update-tags (.+); done", line)
        assert loop, line
        tags = [dict(part.split("=", 1) for part in word.split(",")) for word in shlex.split(loop[2]) if "," in word]
        for name in shlex.split(loop[1]):
            changed[name]["Tags"] += [{"Key": tag["Key"], "Value": tag["Value"]} for tag in tags]
    return [*changed.values()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.installer)
class TestDocuments:
    def test_each_gives_a_plan_as_if_the_tags_were_there(self, document: Document) -> None:
        lines = planned(document.groups).splitlines()
        heads = [line for line in lines if line.startswith("auto-scaling/")]
        assert [head.partition(":")[0] for head in heads] == [
            f"auto-scaling/eu-central-1/{id}" for id in document.pools
        ]
        for head, id in zip(heads, document.pools, strict=True):
            assert head.endswith(f", as if its groups had tag evenkeel.dev/pool={id.partition('/')[2]}")
        found = as_json(document.groups)
        assert [len(pool["groups"]) for pool in found["pools"]] == [*document.pools.values()]
        assert all(pool["valid"] for pool in found["pools"])

    def test_the_plan_is_that_of_the_tagged_groups(self, document: Document) -> None:
        before = as_json(document.groups)
        after = as_json(with_tags(document.groups, before["proposals"]))
        pools = [{key: value for key, value in pool.items() if key != "asIf"} for pool in before["pools"]]
        assert after["pools"] == pools
        assert "terraform" not in after

    def test_terraform_sets_the_same_tags_unless_another_tool_defines_the_groups(self, document: Document) -> None:
        found = as_json(document.groups)
        names = [group["name"] for pool in found["pools"] for group in pool["groups"]]
        keys = {tag["Key"] for group in document.groups for tag in group["Tags"]}
        if keys.intersection(("aws:cloudformation:stack-name", "kops.k8s.io/instancegroup")):
            assert "terraform" not in found
            return
        text = found["terraform"]
        assert all(name in text for name in names)
        assert text.count("propagate_at_launch = false") == text.count("tag {")
        assert text in planned(document.groups)


class TestSeveralZones:
    @pytest.mark.parametrize(
        ("tags", "how"),
        [
            (eks("blue", "workers"), "create one managed node group for each zone"),
            (kops("workers", "node"), "create one InstanceGroup for each zone"),
            ({"kubernetes.io/cluster/blue": "owned", **stack("blue", "Nodes")}, "AWS::AutoScaling::AutoScalingGroup"),
            ({"kubernetes.io/cluster/blue": "owned"}, "Terraform: vpc_zone_identifier"),
        ],
    )
    def test_a_group_of_several_zones_is_planned_as_if_it_were_split(self, tags: dict[str, str], how: str) -> None:
        item = group("workers", ZONES, tags, nodes=5, MinSize=4, MaxSize=10, DesiredCapacity=7)
        document = as_json([item], exit_code=4)
        assert document["pools"] == []
        (split,) = document["ifSplit"]
        assert how in split["how"]
        groups = split["pool"]["groups"]
        assert [each["name"] for each in groups] == ["workers-a", "workers-b", "workers-c"]
        assert [each["zone"] for each in groups] == [*ZONES]
        assert [each["running"] for each in groups] == [2, 2, 1]
        assert [each["requested"]["from"] for each in groups] == [3, 2, 2]
        assert (split["pool"]["min"], split["pool"]["max"]) == (4, 10)

    def test_the_first_line_says_so_and_other_pools_are_not_changed_by_it(self) -> None:
        wide = group("wide", ZONES, eks("blue", "wide"))
        lines = planned([*DOCUMENTS[1].groups, wide]).splitlines()
        heads = [line for line in lines if line.startswith("auto-scaling/")]
        assert [head.rpartition(", ")[2] for head in heads] == [
            "as if its groups had tag evenkeel.dev/pool=workers",
            "as if wide were split by zone",
        ]
        assert "1 pool, 0 node groups would change" in lines

    def test_a_control_plane_of_several_zones_is_not_split(self) -> None:
        found = as_json([group("masters", ZONES, kops("masters", "control-plane"))], exit_code=4)
        assert "ifSplit" not in found
        assert "marks a control plane" in found["skipped"][0]["reason"]


class TestPods:
    def test_instances_nodes_and_pods_of_files_are_joined(self, tmp_path: Path) -> None:
        zone = ZONES[0]
        running, empty = (
            group(f"lin-{zone}", [zone], eks("blue", "lin"), 1),
            group("win", [zone], eks("blue", "win"), 0, MinSize=0),
        )
        instance = running["Instances"][0]["InstanceId"]
        sizes = {"cpu": "4", "memory": "16Gi", "pods": "110"}
        node = {
            "metadata": {"name": "ip-10-0-0-1", "labels": {"topology.kubernetes.io/zone": zone}},
            "spec": {"providerID": f"aws:///{zone}/{instance}"},
            "status": {"capacity": sizes, "allocatable": sizes, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        pod = {
            "metadata": {"name": "iis-0", "namespace": "shop", "ownerReferences": [OWNER]},
            "spec": {"nodeSelector": {"node-kind": "windows"}, "containers": [{"name": "main"}]},
            "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False"} | UNSCHEDULABLE]},
        }
        items = [{"apiVersion": "v1", "kind": kind, **each} for kind, each in (("Node", node), ("Pod", pod))]
        objects, record = tmp_path / "objects.json", tmp_path / "record.json"
        objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        record.write_text(json.dumps({"flavours": ["auto-scaling"], "autoscaler": "none", "demand": "full"}))
        text = planned([running, empty], "-f", str(objects), "--record", str(record))
        assert "the pod's node selector requires node-kind windows; on the node, node-kind is missing" in text
        tag = "k8s.io/cluster-autoscaler/node-template/resources"
        assert f"the cpu and memory of a node are unknown: set tags {tag}/cpu and {tag}/memory" in text

    @pytest.mark.parametrize("is_known", [False, True])
    def test_the_output_about_instance_types_reports_the_size_of_an_empty_group(
        self, tmp_path: Path, *, is_known: bool
    ) -> None:
        empty = [group(f"win-{zone}", [zone], eks("blue", "win"), 0, MinSize=0) for zone in ZONES]
        for each in empty:
            each["MixedInstancesPolicy"] = {"LaunchTemplate": {"Overrides": [{"InstanceType": "m6i.xlarge"}]}}
        size = {"VCpuInfo": {"DefaultVCpus": 4}, "MemoryInfo": {"SizeInMiB": 16384}} if is_known else {}
        types, record = tmp_path / "types.json", tmp_path / "record.json"
        types.write_text(json.dumps({"InstanceTypes": [{"InstanceType": "m6i.xlarge", **size}]}))
        record.write_text(json.dumps({"flavours": ["auto-scaling"], "autoscaler": "none", "demand": "full"}))
        text = planned(empty, "-f", str(types), "--record", str(record))
        assert ("the cpu and memory of a node are unknown" in text) is not is_known


@pytest.mark.parametrize("described", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_node_groups_that_are_not_described_stay_with_those_that_are(tmp_path: Path, described: list[str]) -> None:
    groups = DOCUMENTS[1].groups
    files = []
    for letter, each in zip(described, groups, strict=False):
        node_group = {"clusterName": "blue", "nodegroupName": f"workers-{letter}", "status": "UPDATING"}
        node_group |= {"resources": {"autoScalingGroups": [{"name": each["AutoScalingGroupName"]}]}}
        node_group |= {"capacityType": "ON_DEMAND", "amiType": "AL2023_ARM_64_STANDARD", "labels": {"team": "shop"}}
        file = tmp_path / f"{letter}.json"
        file.write_text(json.dumps({"nodegroup": node_group}))
        files += ["-f", str(file)]
    (pool,) = json.loads(planned(groups, "-o", "json", *files))["pools"]
    assert [each["state"] for each in pool["groups"]].count("frozen") == len(described)
    assert (pool["name"], len(pool["groups"])) == ("workers", 3)


class TestLeftOut:
    def test_groups_with_the_name_of_a_control_plane_are_not_proposed(self) -> None:
        masters = [group(f"blue-masters-{zone[-1]}", [zone], OWNED) for zone in ZONES]
        found = as_json([*masters, *DOCUMENTS[1].groups])
        assert [pool["name"] for pool in found["pools"]] == ["workers"]
        assert len(found["leftOut"]) == 3
        assert all("its name is not that of workers: if they are, set tag" in line for line in found["leftOut"])

    @pytest.mark.parametrize("zones", [1, 3])
    @pytest.mark.parametrize("name", ["K8sMasterAsg", "K8sEtcdAsg-a", "BlueControlPlaneASG1A2B3C4D", "blue-bastion"])
    def test_names_may_be_written_in_camel_case(self, name: str, zones: int) -> None:
        found = as_json([group(name, ZONES[:zones], OWNED), *DOCUMENTS[1].groups])
        assert [pool["name"] for pool in found["pools"]] == ["workers"]
        assert "ifSplit" not in found

    def test_a_group_without_a_like_is_left_out_beside_others_and_planned_alone(self) -> None:
        gpu = group("gpu", ZONES[:1], OWNED)
        found = as_json([gpu, *DOCUMENTS[1].groups])
        assert [pool["name"] for pool in found["pools"]] == ["workers"]
        (line,) = found["leftOut"]
        assert line.startswith("Auto Scaling group gpu: no other group is surely like it")
        assert [pool["name"] for pool in as_json([gpu])["pools"]] == ["gpu"]

    def test_a_local_zone_is_a_pool_of_its_own(self) -> None:
        zones = [f"us-west-2{letter}" for letter in "ab"] + [f"us-west-2-lax-1{letter}" for letter in "ab"]
        groups = [group(f"workers-{zone}", [zone], OWNED) for zone in zones]
        for each in groups:
            each["AutoScalingGroupARN"] = each["AutoScalingGroupARN"].replace("eu-central-1", "us-west-2")
        pools = {pool["name"]: [each["zone"] for each in pool["groups"]] for pool in as_json(groups)["pools"]}
        assert pools == {"workers": zones[:2], "workers-lax-1": zones[2:]}

    @pytest.mark.parametrize("kind", ["SPOT", "m5.xlarge"])
    def test_nodes_that_differ_in_more_than_the_zone_are_no_pool(self, kind: str) -> None:
        label = "k8s.io/cluster-autoscaler/node-template/label/kind"
        groups = [group(f"workers-{zone[-1]}", [zone], OWNED | {label: "m6i.xlarge"}) for zone in ZONES[:2]]
        groups.append(group("workers-c", ZONES[2:], OWNED | {label: kind}))
        found = as_json(groups)
        (pool,) = found["pools"]
        assert [each["zone"] for each in pool["groups"]] == [*ZONES[:2]]
        assert "workers-c" in found["leftOut"][0]

    @pytest.mark.parametrize("nodes", [0, 2])
    def test_spot_and_on_demand_groups_of_one_name_are_two_pools(self, nodes: int) -> None:
        groups = []
        for number in range(6):
            policy = spot(0) if number > 2 else spot(100) if number else {}
            groups.append(group(f"ng-{number}", [ZONES[number % 3]], OWNED, nodes, MinSize=0, **policy))
        pools = [{each["name"] for each in pool["groups"]} for pool in as_json(groups)["pools"]]
        assert pools == [{"ng-0", "ng-1", "ng-2"}, {"ng-3", "ng-4", "ng-5"}]

    def test_a_pool_that_is_a_part_of_its_likes_is_named_without_what_makes_a_name_unique(self) -> None:
        label = {"k8s.io/cluster-autoscaler/node-template/label/team": "blue"}
        unique = "8ec1b2c3-4444-5555-6666-777788889999"
        groups = [
            group(f"eks-workers-{zone[-1]}-{unique}", [zone], eks("blue", f"workers-{zone[-1]}")) for zone in ZONES
        ]
        groups[2]["Tags"] += [{"Key": key, "Value": value} for key, value in label.items()]
        (pool,) = as_json(groups)["pools"]
        assert (pool["name"], len(pool["groups"])) == ("workers-a", 2)

    def test_the_description_of_one_managed_node_group_separates_no_pool(self) -> None:
        groups = [group(f"eks-{zone[-1]}", [zone], eks("blue", f"workers-{zone[-1]}")) for zone in ZONES]
        described = {"nodegroupName": "workers-b", "status": "ACTIVE", "capacityType": "SPOT", "labels": {"a": "b"}}
        resources = {"autoScalingGroups": [{"name": "eks-b"}]}
        documents = [{"AutoScalingGroups": groups}, {"nodegroup": {**described, "resources": resources}}]
        command = ["plan", "-f", "-", "--now", NOW, "-o", "json"]
        text = "\n---\n".join(map(json.dumps, documents))
        result = CliRunner().invoke(app, command, input=text, catch_exceptions=False)
        (pool,) = json.loads(result.stdout)["pools"]
        assert (pool["name"], len(pool["groups"])) == ("workers", 3)

    @pytest.mark.parametrize(
        "names",
        [
            ["workers-az1-spot", "workers-az2-spot", "workers-az3-spot"],
            ["workers-one", "workers-two", "workers-three"],
            ["workersA", "workersB", "workersC"],
            ["blue-workersa", "blue-workersb", "blue-workersc"],
            ["a.workers", "b.workers", "c.workers"],
            ["workers-eucentral1a", "workers-eucentral1b", "workers-eucentral1c"],
            ["workers-eu_central_1a", "workers-eu_central_1b", "workers-eu_central_1c"],
            ["workers-euc1-az1", "workers-euc1-az2", "workers-euc1-az3"],
            ["Workers-ZoneA", "Workers-ZoneB", "Workers-ZoneC"],
        ],
    )
    def test_a_zone_may_be_written_in_many_ways(self, names: list[str]) -> None:
        label = "k8s.io/cluster-autoscaler/node-template/label/node-group"
        pairs = zip(names, ZONES, strict=True)
        (pool,) = as_json([group(name, [zone], OWNED | {label: name}) for name, zone in pairs])["pools"]
        assert len(pool["groups"]) == 3
        assert "workers" in pool["name"].lower()

    @pytest.mark.parametrize(
        "names", [["web", "db", "cache"], ["batch-a", "web-b", "db-c"], ["team-x", "team-y", "team-z"]]
    )
    def test_groups_that_share_no_name_are_planned_alone(self, names: list[str]) -> None:
        pairs = zip(names, ZONES, strict=True)
        found = as_json([group(name, [zone], OWNED | {"Name": "blue"}) for name, zone in pairs])
        assert [len(pool["groups"]) for pool in found["pools"]] == [1, 1, 1]

    def test_a_group_and_its_successor_are_of_one_pool(self) -> None:
        groups = []
        for number, zone in enumerate((*ZONES, *ZONES)):
            name = f"workers-{zone[-1]}-2026050109124412300000000{number}"
            groups.append(group(f"eks-{name}", [zone], eks("blue", name)))
        (pool,) = as_json(groups)["pools"]
        assert (pool["name"], len(pool["groups"]), pool["valid"]) == ("workers", 6, True)

    def test_groups_that_are_switched_off_are_left_out(self) -> None:
        groups = [group(f"old-{zone[-1]}", [zone], OWNED, 0, MinSize=0, MaxSize=0) for zone in ZONES]
        found = as_json([*groups, *DOCUMENTS[1].groups])
        assert [pool["name"] for pool in found["pools"]] == ["workers"]
        assert found["leftOut"][0].endswith("no group of pool old may have a node: raise MaxSize to let it have some")
        groups[0]["MaxSize"] = 2
        (pool,) = as_json(groups)["pools"]
        assert (pool["min"], pool["max"]) == (0, 2)

    @pytest.mark.parametrize("key", ["KubernetesCluster", "alpha.eksctl.io/cluster-name"])
    def test_each_tag_that_names_a_cluster_makes_a_group_one_of_it(self, key: str) -> None:
        (pool,) = as_json([group(f"workers-{zone[-1]}", [zone], {key: "blue"}) for zone in ZONES])["pools"]
        assert (pool["name"], len(pool["groups"])) == ("workers", 3)

    def test_groups_without_a_tag_of_a_cluster_are_one_line_beside_others(self) -> None:
        others = [group(f"web-{zone[-1]}", [zone], {"Name": "web"}) for zone in ZONES]
        assert len(as_json([*others, *DOCUMENTS[1].groups])["pools"]) == 1
        text = planned(others, exit_code=4)
        assert "3 groups: no tag names a cluster" in text
        assert "looked for" not in text
