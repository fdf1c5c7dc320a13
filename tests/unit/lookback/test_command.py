"""`evenkeel lookback`: answer, picture, scenario, bad input, and reading AWS slowly."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from evenkeel.application.errors import ClusterUnavailableError
from evenkeel_cli.lookback.auto_scaling import Answers, read_history
from evenkeel_cli.lookback.live import SlowReader, read_live
from evenkeel_cli.main import app
from evenkeel_cli.simulation.scenario import read_scenario
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.behavior import Rate
from tests.aws_account import A, Account
from tests.lookback_worlds import answers, live

SMALL = {
    "name": "small",
    "duration": "2h30m",
    "zones": [{"name": "eu-west-1a", "capacity": [{"at": "0s"}, {"at": "20m", "nodes": 0}]}, {"name": "eu-west-1b"}],
    "pools": [{"name": "workers", "max": 8, "start": 4}],
    "demand": [{"nodes": [{"at": "0s", "nodes": 4}, {"at": "30m", "nodes": 8}, {"at": "2h", "nodes": 6}]}],
}


@cache
def small() -> tuple[tuple[str, str], ...]:
    return tuple(live(read_scenario(SMALL, "small"), replaced=0).files)


Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., list[str]]:
    """Write the answers of a small world, changed by functions, and return the options that read them."""

    def write(**changes: Change) -> list[str]:
        options = []
        for name, text in small():
            document = json.loads(text)
            changes.get(name.removesuffix(".json"), lambda _: None)(document)
            (tmp_path / name).write_text(json.dumps(document), encoding="utf-8")
            options += ["-f", str(tmp_path / name)]
        return options

    return write


def lookback(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["lookback", *arguments], env={"COLUMNS": "100"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == code, result.output
    return result


def test_the_first_screen_has_three_sentences_and_a_table(files: Callable[..., list[str]]) -> None:
    lines = lookback(*files()).stdout.splitlines()
    assert lines[0].startswith("From 2025-12-04 to 2026-01-01, 1 outage met 2 groups of 1 pool: ")
    assert "off in waiting and" in lines[1]
    assert lines[2].startswith("With Evenkeel, pods would have waited ")
    assert lines[4].split()[:4] == ["from", "for", "outage", "pool"]
    assert lines[5].startswith("1 01-01T00:")
    assert any(line.startswith("not known: former bounds") for line in lines)


def test_the_answer_for_programs_has_happened_replay_and_evenkeel_apart(files: Callable[..., list[str]]) -> None:
    document = json.loads(lookback(*files(), "-o", "json").stdout)
    (row,) = document["rows"]
    assert row["verdict"] == "changed"
    assert row["happened"]["waitingNodeMinutes"] > max(each["waitingNodeMinutes"] for each in row["evenkeel"])
    (outage,) = document["happened"]["outages"]
    assert (outage["zone"], outage["class"], outage["untilAtMost"]) == ("eu-west-1a", "capacity", None)
    assert len(document["sentences"]) == 3


def test_the_scenario_is_one_that_simulate_plays(files: Callable[..., list[str]], tmp_path: Path) -> None:
    text = lookback(*files(), "-o", "scenario").stdout
    scenario = read_scenario(yaml.safe_load(text), "scenario")
    assert (scenario.flavour, [pool.max for pool in scenario.pools]) == ("auto-scaling", [8])
    file = tmp_path / "scenario.yaml"
    file.write_text(text, encoding="utf-8")
    played = CliRunner().invoke(app, ["simulate", str(file), "--strategy", "static", "-o", "name"])
    assert played.stdout == "static\n"


def test_a_picture_shows_what_happened_above_evenkeel(files: Callable[..., list[str]], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lookback(*files(), "--plot", str(tmp_path / "row.svg"))
    text = (tmp_path / "row.svg").read_text(encoding="utf-8")
    assert text.index("what happened") < text.index("Evenkeel (Balanced)")


def test_waiting_is_at_least_what_is_seen_if_pods_need_all_that_the_maxima_allow(
    files: Callable[..., list[str]],
) -> None:
    output = lookback(*files()).stdout
    assert "pods waited at least " in output.splitlines()[0]
    assert "at least, for 1: pods of workers needed all nodes that the maxima allow" in output


def test_the_order_of_activities_has_no_effect(files: Callable[..., list[str]]) -> None:
    usual = lookback(*files(), "-o", "json").stdout
    assert lookback(*files(activities=lambda one: one["Activities"].reverse()), "-o", "json").stdout == usual


def test_what_one_page_may_have_cut_off_is_not_judged(files: Callable[..., list[str]]) -> None:
    def cut(document: dict[str, Any]) -> None:
        newest = document["Activities"][0]
        copies = ({**newest, "ActivityId": str(number)} for number in range(100))
        document["Activities"] = [*copies]

    answer = json.loads(lookback(*files(activities=cut), "-o", "json", "--days", "7", code=4).stdout)
    assert answer["since"] > "2026-01-01T01"
    assert any("a file has exactly one page of activities, print all" in one for one in answer["unknown"])


def test_details_without_a_zone_are_of_the_only_zone_of_the_group(files: Callable[..., list[str]]) -> None:
    def strip(document: dict[str, Any]) -> None:
        for activity in document["Activities"]:
            del activity["Details"]

    usual = lookback(*files(), "-o", "json").stdout
    assert lookback(*files(activities=strip), "-o", "json").stdout == usual


def test_a_quiet_account_is_told_from_a_missing_answer(files: Callable[..., list[str]]) -> None:
    lines = lookback(*files(activities=lambda one: one["Activities"].clear())).stdout.splitlines()
    assert lines[0].endswith("no launch of 2 groups of 1 pool was refused.")


def of_another_region(document: dict[str, Any]) -> None:
    for activity in document["Activities"]:
        activity["AutoScalingGroupARN"] = "arn:aws:autoscaling:us-east-1:1:autoScalingGroup:x:autoScalingGroupName/x"


def of_other_groups(document: dict[str, Any]) -> None:
    for activity in document["Activities"]:
        activity["AutoScalingGroupName"] = "web"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (of_another_region, "look back at one account and Region"),
        (of_other_groups, "no activity is of a described group: give answers of one account and Region"),
    ],
)
def test_activities_of_another_place_are_refused(files: Callable[..., list[str]], change: Change, fault: str) -> None:
    (line,) = lookback(*files(activities=change), code=2).stderr.splitlines()
    assert fault in line


def several_zones(document: dict[str, Any]) -> None:
    for group in document["AutoScalingGroups"]:
        group["AvailabilityZones"] = ["eu-west-1a", "eu-west-1b"]


def foreign(document: dict[str, Any]) -> None:
    for activity in document["Activities"]:
        activity["Cause"] = "Weil es so ist."


def below_the_minimum(document: dict[str, Any]) -> None:
    document["AutoScalingGroups"][0]["MinSize"] = 4


def only_failures(document: dict[str, Any]) -> None:
    document["Activities"] = [one for one in document["Activities"] if one["StatusCode"] == "Failed"]


def one_group(document: dict[str, Any]) -> None:
    del document["AutoScalingGroups"][1]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"groups": several_zones}, "spans eu-west-1a, eu-west-1b, so Evenkeel writes no bounds"),
        ({"groups": below_the_minimum}, "refusals kept workers-eu-west-1a below its minimum"),
        ({"groups": one_group}, "workers-eu-west-1b is deleted, and its bounds and first instances are lost"),
        ({"activities": only_failures}, "all activities have failed: print them without a filter on Status"),
        ({"activities": foreign}, "have an unknown text, such as 'Weil es so ist.'"),
    ],
)
def test_without_a_verdict_the_reason_is_one_sentence(
    files: Callable[..., list[str]], changes: dict[str, Change], reason: str
) -> None:
    lines = lookback(*files(**changes), code=4).stdout.splitlines()
    assert lines[1] == "There is no verdict about Evenkeel."
    assert reason in lines[2]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "no group is described: add the answer of aws autoscaling describe-auto-scaling-groups"),
        ("{}", "no answer of the AWS command line: give describe-scaling-activities with --output json"),
        ('{"AutoScalingGroups": []}', "no group is described"),
        ('{"Activities": [], "NextToken": "x"}', "NextToken: the list goes on: print all of it"),
        ('{"Events": [], "NextToken": "x"}', "NextToken: the list goes on: print all of it"),
        ("]", "not YAML or JSON"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "x.json").write_text(text, encoding="utf-8")
    (line,) = lookback("-f", str(tmp_path / "x.json"), code=2).stderr.splitlines()
    assert fault in line


def test_options_that_do_not_fit_are_one_line(files: Callable[..., list[str]]) -> None:
    for arguments, fault in [
        ([], "give answers of the AWS command line or of Prometheus with -f, or --auto-scaling"),
        (
            ["-f", "x", "--auto-scaling"],
            "give answers of the AWS command line or of Prometheus with -f, or --auto-scaling",
        ),
        (["-f", "x", "--days", "43"], "--days is 43: choose 1 to 42"),
        (["-f", "x", "--cache", "y"], "leave them out with -f"),
        (["--auto-scaling", "--calls-per-second", "0"], "--calls-per-second is 0"),
        ([*files(), "--now", "2025-01-01T00:00:00Z"], "--now is before the first activity"),
        ([*files(), "--row", "2"], "--row is 2: the table has 1 rows"),
    ]:
        (line,) = lookback(*arguments, code=2).stderr.splitlines()
        assert fault in line


def test_cloudtrail_tells_former_bounds(files: Callable[..., list[str]], tmp_path: Path) -> None:
    request = {"autoScalingGroupName": "workers-eu-west-1b", "minSize": 0, "maxSize": 3}
    record = {"eventName": "UpdateAutoScalingGroup", "eventTime": "2025-12-20T00:00:00Z", "requestParameters": request}
    events = {"Events": [{"EventId": "1", "CloudTrailEvent": json.dumps(record)}, {"CloudTrailEvent": "no JSON"}]}
    (tmp_path / "events.json").write_text(json.dumps(events), encoding="utf-8")
    read = Answers()
    read.read_files([*small(), ("events.json", json.dumps(events))])
    history = read_history(read, 28, None)
    (group,) = [group for group in history.groups if group.name == "workers-eu-west-1b"]
    assert [(known.min, known.max) for known in group.bounds] == [(0, 3), (0, 4)]
    assert history.unknown == ()


def test_a_group_that_spans_zones_keeps_no_verdict_from_other_pools(files: Callable[..., list[str]]) -> None:
    def spot(document: dict[str, Any]) -> None:
        tags = [{"Key": "evenkeel.dev/pool", "Value": "spot"}]
        zones = ["eu-west-1a", "eu-west-1b"]
        group = {**document["AutoScalingGroups"][0], "AvailabilityZones": zones, "Tags": tags, "Instances": []}
        document["AutoScalingGroups"].append({**group, "AutoScalingGroupName": "spot"})

    def refused(document: dict[str, Any]) -> None:
        failed = next(one for one in document["Activities"] if one["StatusCode"] == "Failed")
        document["Activities"].append({**failed, "ActivityId": "spot", "AutoScalingGroupName": "spot"})

    document = json.loads(lookback(*files(groups=spot, activities=refused), "-o", "json", code=4).stdout)
    assert {row["pools"][0]: row["verdict"] for row in document["rows"]} == {"workers": "changed", "spot": "none"}


def test_an_answer_of_another_command_is_named() -> None:
    read = Answers()
    read.read_files([*small(), ("instances.json", '{"Reservations": []}')])
    assert "what aws ec2 describe-instances prints, which is not read here" in read_history(read, 28, None).unknown


def test_managed_node_groups_are_enough_beside_the_activities() -> None:
    (_, text), (_, activities) = small()
    node_groups = [
        {
            "nodegroup": {
                "nodegroupName": group["AutoScalingGroupName"],
                "clusterName": "blue",
                "resources": {"autoScalingGroups": [{"name": group["AutoScalingGroupName"]}]},
                "scalingConfig": {"minSize": 0, "maxSize": 4, "desiredSize": group["DesiredCapacity"]},
            }
        }
        for group in json.loads(text)["AutoScalingGroups"]
    ]
    full, managed = Answers(), Answers()
    full.read_files(small())
    managed.read_files([("activities", activities), *(("node group", json.dumps(each)) for each in node_groups)])
    histories = [read_history(answers, 28, None) for answers in (full, managed)]
    running = [{group.name: group.running for group in history.groups} for history in histories]
    assert running[0] == running[1]


class TestReadingAws:
    """Against the simulated API, without a session."""

    @staticmethod
    def reader(api: AutoScaling, waits: list[float], rate: float = 2.0) -> SlowReader:
        def sleep(seconds: float) -> None:
            waits.append(seconds)
            api.clock.run(timedelta(seconds=seconds))

        return SlowReader(SimpleNamespace(client=lambda _service, config: api), rate, sleep)

    def test_it_waits_before_each_call_and_reads_short_pages(self, tmp_path: Path) -> None:
        account = Account(tmp_path)
        account.create_pool()
        account.api.behavior.short_pages = True
        for nodes in range(3, 7):
            account.desire(f"workers-{A}", nodes)
        waits: list[float] = []
        found = read_live(self.reader(account.api, waits), 2, None, account.api.clock.now)
        assert len(found.groups) == 3
        assert {one["ActivityId"] for one in found.activities} == {
            one["ActivityId"] for one in json.loads(answers(account.api)[1][1])["Activities"]
        }
        assert set(waits) == {0.5}
        assert len(waits) == 4  # the groups, and days of which one has two pages

    def test_days_that_are_read_are_not_read_again(self, tmp_path: Path) -> None:
        account = Account(tmp_path)
        account.create_pool()
        account.api.clock.run(timedelta(days=3))
        now = account.api.clock.now
        first = read_live(self.reader(account.api, []), 3, tmp_path / "cache", now)
        calls = len(account.api.calls)
        again = read_live(self.reader(account.api, []), 3, tmp_path / "cache", now)
        # The groups, the day before, which ended less than an hour ago, and the day that has not ended.
        assert [name for name, _ in account.api.calls[calls:]] == [
            "DescribeAutoScalingGroups",
            *["DescribeScalingActivities"] * 2,
        ]
        assert sorted(one["ActivityId"] for one in again.activities) == sorted(
            one["ActivityId"] for one in first.activities
        )

    def test_it_waits_longer_while_aws_throttles_and_says_how_to_go_on(self, tmp_path: Path) -> None:
        account = Account(tmp_path)
        account.create_pool()
        account.api.behavior.auto_scaling_rate = Rate(size=1, per_second=0.2)
        waits: list[float] = []
        now = datetime(2026, 1, 2, tzinfo=UTC)
        assert read_live(self.reader(account.api, waits), 2, None, now).groups
        assert max(waits) > 1
        account.api.behavior.auto_scaling_rate = Rate(size=0, per_second=0)
        with pytest.raises(ClusterUnavailableError, match="repeat the command later, with the same --cache"):
            read_live(self.reader(account.api, waits), 2, None, now)
