"""`evenkeel plan -f` for the AWS command line's output about Auto Scaling groups."""

import json
import re
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from evenkeel_cli import auto_scaling
from evenkeel_cli.aws_documents import AwsDocuments, answer_of
from evenkeel_cli.main import app
from sandbox.kube.cloud import subnet_in
from tests import objects
from tests.aws_account import OF_BLUE, ZONES, A, Account, B, invoke, loop
from tests.builders import json_values


@pytest.fixture
def account(tmp_path: Path) -> Account:
    return Account(tmp_path)


class TestFiles:
    def test_refused_launches_fence_their_zone_and_the_other_zones_grow(self, account: Account) -> None:
        account.create_pool()
        account.cloud.exhaust_zone(A)
        account.desire(f"workers-{A}", 5)
        document = account.planned(account.groups(), account.activities(f"workers-{A}"))
        (pool,) = document["pools"]
        assert (pool["name"], pool["min"], pool["max"], pool["valid"]) == ("workers", 3, 18, True)
        assert [group["state"] for group in pool["groups"]] == ["fenced", "healthy", "healthy"]
        assert pool["groups"][0]["requested"] == {"from": 5, "to": 5}
        assert sum(group["max"]["to"] for group in pool["groups"]) == 18
        assert "keeps 3 stuck instances" in " ".join(pool["groups"][0]["reasons"])
        assert document["skipped"] == []

    def test_without_activities_the_plan_says_that_refusals_are_unknown(self, account: Account) -> None:
        account.create_pool()
        account.cloud.exhaust_zone(A)
        account.desire(f"workers-{A}", 5)
        (skipped,) = account.planned(account.groups())["skipped"]
        assert skipped["reason"].endswith(f"describe-scaling-activities --auto-scaling-group-name workers-{A}")

    def test_the_outputs_of_several_commands_may_be_one_file(self, account: Account) -> None:
        account.create_pool()
        account.cloud.exhaust_zone(A)
        for zone in ZONES:
            account.desire(f"workers-{zone}", 5)
        answers = [account.groups(), *(account.activities(f"workers-{zone}") for zone in ZONES)]
        text = "\n".join(json.dumps(answer, default=datetime.isoformat, indent=4) for answer in answers)
        command = ["plan", "-f", "-", "-o", "json", "--now", account.api.clock.now.isoformat()]
        result = CliRunner().invoke(app, command, input=text, catch_exceptions=False)
        assert json.loads(result.stdout)["pools"] == account.planned(*answers)["pools"]

    def test_a_managed_node_group_says_why_it_is_frozen(self, account: Account) -> None:
        account.eks.create_nodegroup(
            clusterName="blue",
            nodegroupName="workers",
            subnets=[subnet_in(A)],
            nodeRole="arn:aws:iam::123456789012:role/node",
            scalingConfig={"minSize": 1, "maxSize": 4, "desiredSize": 2},
        )
        account.run(5)
        answer = account.eks.describe_nodegroup(clusterName="blue", nodegroupName="workers")
        answer["nodegroup"]["status"] = "UPDATING"
        record = {"pools": [{"name": "w", "selector": {"eks:nodegroup-name": "workers"}}]}
        (pool,) = account.planned(account.groups(), answer, record=record)["pools"]
        assert pool["groups"][0]["state"] == "frozen"
        assert "its status is UPDATING" in pool["groups"][0]["reasons"][0]

    def test_fields_that_no_plan_uses_may_be_missing(self, account: Account) -> None:
        account.create_pool()
        account.cloud.exhaust_zone(A)
        account.desire(f"workers-{A}", 5)
        answers = [account.groups(), account.activities(f"workers-{A}")]
        whole = account.planned(*answers)
        for group in answers[0]["AutoScalingGroups"]:
            del group["DefaultCooldown"], group["HealthCheckType"]
            for instance in group["Instances"]:
                del instance["ProtectedFromScaleIn"]
        for activity in answers[1]["Activities"]:
            del activity["Cause"]
        assert account.planned(*answers) == whole

    def test_objects_of_kubernetes_may_be_in_other_files(self, account: Account) -> None:
        account.create_pool()
        deployments = [objects.cluster_api(zone, 2) for zone in ZONES]
        listed = {"apiVersion": "v1", "kind": "List", "items": deployments}
        document = account.planned(account.groups(), listed)
        assert {group["flavour"] for pool in document["pools"] for group in pool["groups"]} == {
            "auto-scaling",
            "cluster-api",
        }

    def test_standard_input_is_read(self, account: Account) -> None:
        account.create_pool()
        text = json.dumps(account.groups(), default=datetime.isoformat)
        result = CliRunner().invoke(app, ["plan", "-f", "-", "-o", "name"], input=text, catch_exceptions=False)
        assert result.stdout.splitlines() == [f"workers-{zone}" for zone in ZONES]

    def test_groups_of_other_programs_are_counted_in_one_line(self, account: Account) -> None:
        account.create_pool()
        for name in ("web", "db"):
            account.create(name, A)
            tags = [{"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": key} for key in OF_BLUE]
            account.api.delete_tags(Tags=tags)
        (skipped,) = account.planned(account.groups())["skipped"]
        assert skipped["reason"].startswith("2 groups: no tag names a cluster")

    def test_a_record_chooses_groups_by_the_tags_of_the_autoscaler(self, account: Account) -> None:
        account.create_pool(tags={**OF_BLUE, "team": "a"})
        account.create("other", A, pool="other")
        record = {"discovery": ["asg:tag=k8s.io/cluster-autoscaler/enabled,team=a"]}
        document = account.planned(account.groups(), record=record)
        assert [pool["name"] for pool in document["pools"]] == ["workers"]
        assert [one["name"] for one in document["skipped"]] == ["other"]

    def test_another_flavour_in_the_record_skips_the_groups_with_a_reason(self, account: Account) -> None:
        account.create_pool()
        (skipped,) = account.planned(account.groups(), record={"flavours": ["gardener"]})["skipped"]
        assert skipped["reason"] == "3 objects: flavour auto-scaling is not among the record's flavours"

    def test_a_group_of_several_zones_is_skipped_with_what_to_do(self, account: Account) -> None:
        account.create("regional", A, B, pool="workers")
        (skipped,) = account.planned(account.groups())["skipped"]
        assert "create one group for each zone" in skipped["reason"]

    def test_a_group_in_two_files_is_counted_once(self, account: Account) -> None:
        account.create_pool()
        document = account.planned(account.groups(), account.groups())
        assert len(document["pools"][0]["groups"]) == 3
        assert {one["reason"] for one in document["skipped"]} == {
            "a second Auto Scaling group of this name: only the first one is counted"
        }


class TestBadFiles:
    def faults(self, account: Account, *contents: Any) -> list[str]:
        result = account.plan(*contents)
        assert result.exit_code == 2, result.output
        lines = result.stderr.splitlines()
        assert all(line.startswith("evenkeel: ") for line in lines)
        return [line.replace(f"{account.folder}/", "") for line in lines]

    @pytest.mark.parametrize(
        ("path", "value", "fault"),
        [
            (("MinSize",), "1", "[0].MinSize is '1': no whole number"),
            (("MaxSize",), None, "[0].MaxSize is missing: print the whole answer of AWS, without --query"),
            (("DesiredCapacity",), True, "[0].DesiredCapacity is 'True': no whole number"),
            (("AvailabilityZones",), A, f"[0].AvailabilityZones is '{A}': no list: write it as one"),
            (("CreatedTime",), "yesterday", "[0].CreatedTime is 'yesterday': no time in ISO 8601"),
            (("AutoScalingGroupName",), 7, "[0].AutoScalingGroupName is '7': no text"),
            (("Instances", 0, "LifecycleState"), 7, "[0].Instances[0].LifecycleState is '7': no text"),
            (("Tags", 0), "pool", "[0].Tags[0] is 'pool': no object: write it with named fields"),
        ],
    )
    def test_a_bad_value_is_one_line_with_file_and_field(
        self, account: Account, path: tuple[Any, ...], value: Any, fault: str
    ) -> None:
        account.create("workers", A)
        answer = account.groups()
        place = answer["AutoScalingGroups"][0]
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = value
        assert self.faults(account, answer) == [f"evenkeel: 0.json: document 1: AutoScalingGroups{fault}"]

    def test_every_fault_of_every_file_is_a_line(self, account: Account) -> None:
        account.create("workers", A)
        bad = account.groups()
        del bad["AutoScalingGroups"][0]["MinSize"]
        faults = self.faults(account, bad, {"Activities": [{"ActivityId": "a"}]}, {"nodegroup": []})
        assert [line.partition(": document")[0] for line in faults] == ["evenkeel: 0.json"] + [
            "evenkeel: 1.json"
        ] * 3 + ["evenkeel: 2.json"]

    def test_a_list_that_goes_on_is_refused(self, account: Account) -> None:
        account.create("workers", A)
        (fault,) = self.faults(account, account.groups() | {"NextToken": "abc"})
        assert fault.startswith("evenkeel: 0.json: document 1: NextToken: the list goes on")

    def test_groups_of_two_regions_are_refused(self, account: Account) -> None:
        account.create("a", A)
        account.create("b", A)
        answer = account.groups()
        other = answer["AutoScalingGroups"][1]
        other["AutoScalingGroupARN"] = other["AutoScalingGroupARN"].replace("eu-central-1", "us-east-1")
        (fault,) = self.faults(account, answer)
        assert "123456789012 eu-central-1, 123456789012 us-east-1: plan one account and Region" in fault

    @given(
        values=st.lists(json_values(), min_size=3, max_size=3), field=st.sampled_from(["MinSize", "Tags", "Instances"])
    )
    def test_answers_with_anything_in_them_never_end_in_an_exception(self, values: list[Any], field: str) -> None:
        group = {"AutoScalingGroupName": "a", "AvailabilityZones": [A], field: values[2]}
        for document in (
            {"AutoScalingGroups": values[0], "Activities": values[1]},
            {"AutoScalingGroups": [group], "nodegroup": values[0]},
        ):
            assert answer_of(document) is not None
            assert all("\n" not in fault for fault in AwsDocuments().add(document))

    def test_answers_of_other_services_are_left_out_with_a_line_and_the_rest_goes_on(self, account: Account) -> None:
        account.create_pool()
        document = account.planned(account.groups(), {"LoadBalancers": []}, [])
        assert len(document["pools"]) == 1
        (skipped,) = document["skipped"]
        assert skipped["reason"].startswith("a plan does not need the output of another command (LoadBalancers): give")

    @pytest.mark.parametrize(
        ("text", "advice"),
        [('["workers-a"]', "give a whole answer, without --query"), ("TAGS\tname", "with --output json")],
    )
    def test_answers_in_other_forms_are_one_line(self, text: str, advice: str) -> None:
        result = CliRunner().invoke(app, ["plan", "-f", "-"], input=text, catch_exceptions=False)
        assert result.exit_code == 2
        (line,) = result.stderr.splitlines()
        assert line.endswith(advice)

    def test_older_command_lines_print_times_as_seconds(self) -> None:
        documents = AwsDocuments()
        assert documents.add({"nodegroup": {"nodegroupName": "a", "createdAt": 1577836800.5}}) == []
        assert documents.node_groups[0]["createdAt"].isoformat() == "2020-01-01T00:00:00.500000+00:00"


class TestProposals:
    def proposed(self, account: Account) -> list[str]:
        result = account.plan(account.groups())
        lines = result.stdout.splitlines()
        head, end = "to set these tags, run:", "or, in Terraform:"
        assert result.exit_code == (0 if head in lines else 4)
        return lines[lines.index(head) + 1 : lines.index(end)] if head in lines else []

    @pytest.mark.parametrize(
        "names",
        [
            [f"workers-{zone}" for zone in ZONES],
            [f"workers-{zone[-2:]}" for zone in ZONES],
            [f"workers-{zone[-1]}" for zone in ZONES],
            [f"workers-{zone}.blue.example.com" for zone in ZONES],
            [f"workers-{zone[-1]}-20260101000000000000000001" for zone in ZONES],
        ],
    )
    def test_groups_that_differ_in_the_zone_get_one_line(self, account: Account, names: list[str]) -> None:
        for name, zone in zip(names, ZONES, strict=True):
            account.create(name, zone)
        pool = "workers.blue.example.com" if names[0].endswith(".com") else "workers"
        assert self.proposed(account) == [loop(names, pool)]

    def test_a_managed_node_group_is_named_by_its_tag(self, account: Account) -> None:
        names = [f"eks-gpu-{zone[-1]}-8ec1b2c3" for zone in ZONES]
        for name, zone in zip(names, ZONES, strict=True):
            account.create(name, zone, tags={"eks:nodegroup-name": f"gpu-{zone[-1]}", "eks:cluster-name": "blue"})
        (line,) = self.proposed(account)
        assert "Key=evenkeel.dev/pool,Value=gpu," in line

    def test_the_lines_bring_the_groups_into_pools(self, account: Account) -> None:
        for pool in ("workers", "gpu", "spot", "batch"):
            for zone in ZONES:
                account.create(f"{pool}-{zone[-1]}", zone)
        lines = self.proposed_of(account)
        assert len(lines) == 4
        for line in lines:
            match = re.fullmatch(r"for group in (.*); do .*Value=(\w+),Propagate.*; done", line)
            assert match
            tags = [
                {"ResourceId": name, "ResourceType": "auto-scaling-group", "Key": "evenkeel.dev/pool"}
                for name in match[1].split()
            ]
            account.api.create_or_update_tags(Tags=[{**tag, "Value": match[2]} for tag in tags])
        assert "asIf" not in account.planned(account.groups())["pools"][0]

    @staticmethod
    def proposed_of(account: Account) -> list[str]:
        lines: list[str] = account.planned(account.groups())["proposals"]
        return lines

    def test_a_name_that_a_shell_would_split_is_not_proposed(self, account: Account) -> None:
        for zone in ZONES:
            account.create(f"my workers, {zone}", zone)
        result = account.plan(account.groups())
        assert self.proposed(account) == []
        assert (
            f"Auto Scaling group my workers, {A}: 'my workers, {A}' has characters that a shell reads: set tag"
            in result.stdout
        )

    @pytest.mark.parametrize("key", ["eks:nodegroup-name", "evenkeel.dev/pool"])
    def test_a_value_of_a_tag_never_becomes_a_command(self, account: Account, key: str) -> None:
        for zone in ZONES:
            tags = {**OF_BLUE, **({key: 'x"; rm -r ~; "'} if zone == A or key.startswith("eks:") else {})}
            account.create(f"workers-{zone}", zone, tags=tags)
        result = account.plan(account.groups())
        assert not [line for line in result.stdout.splitlines() if line.startswith("for ") and "rm -r" in line]


def test_a_role_goes_with_auto_scaling() -> None:
    result = invoke("plan", "--role-arn", "arn:aws:iam::123456789012:role/plan", "-f", "groups.json")
    assert result.stderr.startswith("evenkeel: --role-arn goes with --auto-scaling")


def test_nodes_of_aws_lead_to_their_auto_scaling_groups(tmp_path: Path) -> None:
    labels = {"topology.kubernetes.io/region": "eu-central-1", "eks.amazonaws.com/nodegroup": "workers"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "ip-10-0-0-1", "labels": labels},
        "spec": {"providerID": "aws:///eu-central-1a/i-0123456789abcdef0"},
    }
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [node]}))
    result = invoke("plan", "-f", str(file))
    assert result.stdout.splitlines()[-1] == "evenkeel plan --auto-scaling --region eu-central-1"

    def test_files_without_a_group_say_what_was_checked_for(self, account: Account) -> None:
        result = account.plan({"AutoScalingGroups": []})
        assert result.exit_code == 4
        assert result.stdout.rstrip().endswith("AutoScalingGroups of AWS: name the API server or file that has them")


class TestRole:
    ROLE = "arn:aws:iam::210987654321:role/plan"

    @staticmethod
    def session(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
        """Let a caller with credentials get this answer, or this error, of STS."""

        def assume_role(**request: Any) -> Any:
            assert request == {"RoleArn": TestRole.ROLE, "RoleSessionName": "evenkeel"}
            if isinstance(answer, Exception):
                raise answer
            return answer

        own = SimpleNamespace(
            region_name="eu-central-1",
            get_credentials=lambda: "some",
            client=lambda *_, **__: SimpleNamespace(assume_role=assume_role),
        )
        monkeypatch.setattr(auto_scaling, "session", lambda: own)

    def test_a_role_reads_with_its_own_credentials(self, monkeypatch: pytest.MonkeyPatch) -> None:
        keys = {"AccessKeyId": "ASIA", "SecretAccessKey": "secret", "SessionToken": "token"}
        self.session(monkeypatch, {"Credentials": keys})
        found = auto_scaling.own_session(self.ROLE)
        used = found.get_credentials()
        assert (used.access_key, used.secret_key, used.token) == ("ASIA", "secret", "token")
        assert found.region_name == "eu-central-1"

    def test_a_role_that_may_not_be_assumed_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fault = {"Error": {"Code": "AccessDenied", "Message": "User: me is not authorized"}}
        self.session(monkeypatch, ClientError(fault, "AssumeRole"))
        result = invoke("plan", "--auto-scaling", "--role-arn", self.ROLE)
        assert (result.exit_code, result.stderr) == (
            1,
            f"evenkeel: missing permission sts:AssumeRole for {self.ROLE}: User: me is not authorized\n",
        )


class TestOtherDocuments:
    @pytest.mark.parametrize(
        ("document", "command"),
        [
            ({"nodegroups": ["workers-a", "workers-b"]}, "aws eks list-nodegroups"),
            ({"Reservations": [{"Instances": []}]}, "aws ec2 describe-instances"),
            ({"Stacks": [{"StackName": "blue"}]}, "aws cloudformation describe-stacks"),
            ({"clusters": ["blue"], "nextToken": None}, "aws eks list-clusters"),
            ({"Activities": []}, ""),
        ],
    )
    def test_each_is_a_line_and_the_rest_is_planned(self, account: Account, document: Any, command: str) -> None:
        account.create_pool()
        planned = account.planned(document, account.groups())
        assert len(planned["pools"][0]["groups"]) == 3
        reasons = [one["reason"] for one in planned["skipped"]]
        assert reasons == ([f"a plan does not need the output of {command}: {self.NEEDED}"] if command else [])

    NEEDED = "give that of aws autoscaling describe-auto-scaling-groups"

    def test_alone_they_say_what_to_print_instead(self, account: Account) -> None:
        result = account.plan({"nodegroups": ["workers-a"]})
        assert result.exit_code == 4
        assert self.NEEDED in result.stdout
        assert "machinedeployments" not in result.stdout

    def test_an_answer_without_groups_asks_for_the_region(self, account: Account) -> None:
        (skipped,) = account.planned({"AutoScalingGroups": []})["skipped"]
        assert skipped["reason"].startswith("it has no Auto Scaling group: check --region")

    def test_activities_alone_ask_for_their_groups(self, account: Account) -> None:
        activity = {"ActivityId": "1", "AutoScalingGroupName": "a", "StatusCode": "Failed", "StartTime": 1577836800}
        (skipped,) = account.planned({"Activities": [activity]})["skipped"]
        assert skipped["reason"].startswith("no file has the Auto Scaling groups that it is about: add the output")

    def test_a_managed_node_group_alone_names_its_groups(self, account: Account) -> None:
        resources = {"autoScalingGroups": [{"name": "eks-workers-1"}]}
        described = {"nodegroup": {"nodegroupName": "workers", "status": "ACTIVE", "resources": resources}}
        (skipped,) = account.planned(described)["skipped"]
        assert skipped["reason"].endswith("describe-auto-scaling-groups --auto-scaling-group-names eks-workers-1")

    def test_a_list_of_groups_is_the_answer_without_its_first_line(self, account: Account) -> None:
        account.create_pool()
        groups = account.groups()["AutoScalingGroups"]
        assert account.planned(groups) == account.planned(*groups) == account.planned({"AutoScalingGroups": groups})

    @pytest.mark.parametrize("status", ["PAUSED_BY_A_NEW_FEATURE", None])
    def test_an_unknown_state_of_a_managed_node_group_freezes_its_group_alone(
        self, account: Account, status: str | None
    ) -> None:
        account.create_pool()
        resources = {"autoScalingGroups": [{"name": f"workers-{A}"}]}
        described = {"nodegroup": {"nodegroupName": "workers", "status": status, "resources": resources}}
        (pool,) = account.planned(account.groups(), described)["pools"]
        assert [group["state"] for group in pool["groups"]] == ["frozen", "healthy", "healthy"]
        assert f"its status is {status or 'unknown'}" in pool["groups"][0]["reasons"][0]

    def test_too_many_tags_freeze_a_group_before_the_pool_tag_is_set(self, account: Account) -> None:
        for zone in ZONES:
            account.create(f"workers-{zone}", zone)
        groups = account.groups()
        for group, count in zip(groups["AutoScalingGroups"], (45, 4, 49), strict=True):  # without the cluster's two
            group["Tags"] += [{"Key": f"tag-{number}", "Value": ""} for number in range(count)]
        (pool,) = account.planned(groups)["pools"]
        assert [group["state"] for group in pool["groups"]] == ["frozen", "healthy", "frozen"]
        assert "it has 48 tags, and AWS accepts 50" in pool["groups"][0]["reasons"][0]
