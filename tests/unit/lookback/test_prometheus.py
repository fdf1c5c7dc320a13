"""From answers of Prometheus, a replay's times must be the true ones, or there must be no verdict."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from evenkeel.domain.model.failures import FailureClass
from evenkeel.validation import ConfigError
from evenkeel_cli.lookback.history import History
from evenkeel_cli.lookback.metrics import read_history
from evenkeel_cli.lookback.outages import outages_of, windows_of
from evenkeel_cli.lookback.prometheus import EXPORTERS, is_answer, read_samples
from evenkeel_cli.lookback.replay import Answer
from evenkeel_cli.lookback.replay import answer as judge
from evenkeel_cli.lookback.report import Report
from evenkeel_cli.main import app
from evenkeel_cli.simulation.scenario import read_scenario
from sandbox.template import ROOT
from tests.lookback_worlds import week
from tests.prometheus_answers import Truth, answer, infos, replicas, texts, truth_of

NAMES = ("zone-outage-at-night", "two-zones-out", "flapping-quota")
GROUP = {"__name__": "capi_machinedeployment_spec_replicas", "name": "a", "namespace": "b"}
Change = Callable[[dict[str, Any]], object]


@cache
def world(name: str) -> Truth:
    text = (Path(ROOT) / "scenarios" / f"{name}.yaml").read_text(encoding="utf-8")
    return truth_of(read_scenario(yaml.safe_load(text), name))


def history_of(*answers: Any, objects: list[tuple[str, str]] | None = None) -> History:
    return read_history(read_samples(texts(*answers)), objects or [], 28, None)


def report_of(history: History) -> Report:
    outages = outages_of(history)
    return Report(history, outages, [judge(history, window) for window in windows_of(history, outages)])


def check(truth: Truth, found: tuple[Answer, ...]) -> None:
    """Compare the figures of the history and of replays without Evenkeel with the truth in the same hours."""
    assert found
    for one in found:
        assert not one.missing
        waited, nodes = truth.between(one.window.since, one.window.until)
        for figures in (one.happened, *one.alone):
            assert figures.waiting == pytest.approx(waited, rel=0.1, abs=300)
            assert figures.nodes == pytest.approx(nodes, rel=0.03)


@pytest.mark.parametrize(("step", "phase"), [(30, 17), (60, 0), (60, 43)])
@pytest.mark.parametrize("name", NAMES)
def test_a_replay_waits_as_long_as_the_pods_did(name: str, step: int, phase: int) -> None:
    truth = world(name)
    check(truth, tuple(report_of(history_of(replicas(truth, step, phase), infos(truth))).answers))


@pytest.mark.parametrize("source", ["machine-controller-manager", "openshift"])
def test_each_exporter_of_machines_tells_the_same_history(source: str) -> None:
    truth = world("two-zones-out")
    usual, other = (
        history_of(replicas(truth, 60, source=name), infos(truth, name)) for name in ("cluster-api", source)
    )
    assert usual.groups == other.groups
    assert other.source == f"Prometheus, {source}"


@pytest.mark.parametrize("name", NAMES)
def test_nodes_and_target_sizes_are_replayed_where_no_exporter_tells_of_machines(name: str) -> None:
    truth = world(name)
    check(truth, tuple(report_of(history_of(replicas(truth, 60, source="cluster-autoscaler"))).answers))


def test_on_aws_only_activities_tell_what_was_refused() -> None:
    (found,) = report_of(
        history_of(replicas(world(NAMES[1]), 60, source="cluster-autoscaler", cloud="aws:///{}/i-{}"))
    ).answers
    assert "use --auto-scaling instead" in found.missing[0]


@pytest.mark.parametrize("name", NAMES)
def test_samples_five_minutes_apart_have_no_verdict(name: str) -> None:
    report = report_of(history_of(replicas(world(name), 300), infos(world(name))))
    assert not report.has_verdict
    assert all("samples are 300 s apart: query the metrics at a step" in one.missing[0] for one in report.answers)


def test_an_exporter_that_is_read_every_five_minutes_does_not_get_better_by_a_short_step() -> None:
    truth = world("zone-outage-at-night")
    rare = replicas(truth, 300)
    for series in rare["data"]["result"]:
        series["values"] = [[at + late, value] for at, value in series["values"] for late in range(0, 300, 60)]
    assert history_of(rare, infos(truth)).step == 300


class TestHistory:
    """Small answers are read."""

    def test_zone_and_pool_are_those_of_machines(self) -> None:
        (history, truth) = history_of(replicas(world(NAMES[0]), 60), infos(world(NAMES[0]))), world(NAMES[0])
        groups = truth.record.snapshots[0].groups
        assert [(group.name, group.zones, group.pool) for group in history.groups] == [
            (group.name, (group.zone,), "workers") for group in groups
        ]
        assert [group.bounds_at(0).max for group in history.groups] == [6, 6, 6]

    def test_objects_have_zones_pools_and_bounds_where_no_metric_has_them(self) -> None:
        truth = world(NAMES[0])
        only = answer(
            (one["metric"], one["values"])
            for one in replicas(truth, 60)["data"]["result"]
            if "autoscaler" not in one["metric"]["__name__"]
        )
        prefix = "cluster.x-k8s.io/cluster-api-autoscaler-node-group"
        items = [
            {
                "apiVersion": "cluster.x-k8s.io/v1beta1",
                "kind": "MachineDeployment",
                "metadata": {
                    "name": group.name,
                    "namespace": "default",
                    "uid": group.name,
                    "labels": {"evenkeel.dev/pool": "web"},
                    "annotations": {f"{prefix}-min-size": "1", f"{prefix}-max-size": "6"},
                },
                "spec": {
                    "clusterName": "c",
                    "replicas": 2,
                    "template": {"spec": {"clusterName": "c", "failureDomain": group.zone}},
                },
            }
            for group in truth.record.snapshots[0].groups
        ]
        objects = [("groups.json", json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))]
        assert "the bounds of workers-eu-central-1a are missing" in report_of(history_of(only)).answers[0].missing[0]
        history = history_of(only, objects=objects)
        assert history.pools == ("web",)
        assert "former bounds" in history.unknown[-1]
        check(truth, tuple(report_of(history).answers))

    def test_names_alone_make_pools_of_groups_whose_zones_are_unknown(self) -> None:
        series = [
            ({"__name__": metric, "name": f"shoot--a--b-{name}", "namespace": "shoot--a--b"}, [[0, "1"], [60, "1"]])
            for metric in ("mcm_machine_deployment_info_spec_replicas", "mcm_machine_deployment_status_ready_replicas")
            for name in ("web-z1", "web-z2", "batch-z1")
        ]
        history = history_of(answer(series))
        assert history.pools == ("shoot--a--b-batch", "shoot--a--b-web")
        assert any(text.startswith("the zones of 3 groups") for text in history.unknown)

    def test_the_reason_of_a_failed_creation_is_its_class(self) -> None:
        truth = world("flapping-quota")
        reason = {"__name__": "mcm_cloud_api_driver_requests_failed_total", "error_code": "VcpuLimitExceeded"}
        failed = answer([(reason, [[truth.start, "0"], [truth.start + 3600, "9"]])])
        report = report_of(history_of(replicas(truth, 60), infos(truth), failed))
        assert {outage.kind for outage in report.outages} == {FailureClass.QUOTA}
        assert {one.verdict for one in report.answers} <= {"nothing", "unsure"}
        check(truth, tuple(report.answers))

    def test_provision_times_are_those_of_machines_and_nodes_unless_their_clocks_are_apart(self) -> None:
        truth = world(NAMES[1])
        created = {"__name__": "mapi_machine_created_timestamp_seconds", "name": "x"}
        nodes = {"__name__": "kube_node_created"}
        times = [("a", 1000, 1090), ("b", 1000, 1200), ("c", 5000, 100), ("d", 0, 90000)]
        series = [({**created, "node": node}, [[truth.start, str(at)]]) for node, at, _ in times]
        series += [({**nodes, "node": node}, [[truth.start, str(at)]]) for node, _, at in times]
        assert history_of(replicas(truth, 60), answer(series)).provision == (90, 200)


def restarted(document: dict[str, Any]) -> None:
    """Give each series another pod and instance in its second half, as a restarted exporter does."""
    series = document["data"]["result"]
    document["data"]["result"] = [
        {"metric": {**one["metric"], "pod": f"exporter-{half}", "instance": f"10.0.0.{half}"}, "values": values}
        for one in series
        for half, values in enumerate(
            (one["values"][: len(one["values"]) // 2], one["values"][len(one["values"]) // 2 :])
        )
    ]


def shuffled(document: dict[str, Any]) -> None:
    for one in document["data"]["result"]:
        one["values"] = [*reversed(one["values"]), *one["values"][:50]]
    document["data"]["result"].reverse()


def stale(document: dict[str, Any]) -> None:
    for one in document["data"]["result"]:
        one["values"] += [[one["values"][5][0] + 7, text] for text in ("NaN", "+Inf", "-1", "stale", None)]
        one["values"] += [["x", "1"], [1], None]


def renamed(document: dict[str, Any]) -> None:
    for one in document["data"]["result"]:
        if "name" in one["metric"]:
            one["metric"] |= {"exported_name": one["metric"]["name"], "name": "ksm"}


@pytest.mark.parametrize("change", [restarted, shuffled, stale, renamed])
def test_what_exporters_and_files_do_to_samples_changes_no_history(change: Change) -> None:
    truth = world("two-zones-out")
    usual, changed = (replicas(truth, 60) for _ in range(2))
    change(changed)
    assert history_of(changed, infos(truth)) == history_of(usual, infos(truth))


def test_slices_of_time_and_the_form_of_promtool_make_one_history() -> None:
    truth = world("two-zones-out")
    whole = replicas(truth, 60)
    slices = [
        [{**one, "values": one["values"][part]} for one in whole["data"]["result"]]
        for part in (slice(100, None), slice(0, 100))
    ]
    assert history_of(*slices, infos(truth)) == history_of(whole, infos(truth))


def cut(document: dict[str, Any], since: int, until: int) -> None:
    for one in document["data"]["result"]:
        one["values"] = [sample for sample in one["values"] if not since < sample[0] < until]


def test_a_gap_is_a_reason_only_for_the_outages_that_it_meets() -> None:
    truth = world("zone-outage-at-night")
    early, late = replicas(truth, 60), replicas(truth, 60)
    cut(early, truth.start - 2400, truth.start - 1200)
    cut(late, truth.start + 20000, truth.start + 22000)
    assert report_of(history_of(early, infos(truth))).has_verdict
    (found,) = report_of(history_of(late, infos(truth))).answers
    assert re.match(
        "samples from 2026-01-15 05:33Z to 2026-01-15 06:07Z are missing: query them again", found.missing[0]
    )


def test_a_group_without_later_samples_is_a_reason() -> None:
    truth = world("two-zones-out")
    gone = replicas(truth, 60)
    for one in gone["data"]["result"]:
        if one["metric"].get("name", "").endswith("1b"):
            one["values"] = one["values"][:-30]
    (found,) = report_of(history_of(gone, infos(truth))).answers
    assert "workers-eu-central-1b has no sample after 2026-01-01 03:29Z: query it again" in found.missing[0]


def test_groups_whose_samples_are_a_step_apart_do_not_need_more_nodes() -> None:
    truth = world("two-zones-out")
    apart = replicas(truth, 60)
    for one in apart["data"]["result"]:
        if one["metric"].get("name", "").endswith("1a"):
            values = [value for _, value in one["values"]]
            one["values"] = [[at, value] for (at, _), value in zip(one["values"], [values[0], *values], strict=False)]
    check(truth, tuple(report_of(history_of(apart, infos(truth))).answers))


def test_a_node_that_is_not_ready_for_a_while_is_neither_lost_nor_ordered() -> None:
    truth = world("two-zones-out")
    usual, flapping = replicas(truth, 60), replicas(truth, 60)
    for one in flapping["data"]["result"]:
        if one["metric"]["__name__"].endswith("_ready"):
            one["values"][30][1] = one["values"][31][1] = "0"
    assert history_of(flapping, infos(truth)) == history_of(usual, infos(truth))


def test_a_node_that_is_not_ready_for_an_hour_was_not_refused() -> None:
    truth = world("zone-outage-at-night")
    broken = replicas(truth, 60)
    for one in broken["data"]["result"]:
        if one["metric"]["__name__"].endswith("_ready"):
            for sample in one["values"][10:70]:
                sample[1] = "1"
    history = history_of(broken, infos(truth))
    assert all(refusal.at > truth.start for group in history.groups for refusal in group.refusals)
    assert all(group.losses for group in history.groups)


def test_groups_that_never_change_need_no_bounds() -> None:
    values = [[at, "3"] for at in range(0, 7200, 60)]
    running = {**GROUP, "__name__": "capi_machinedeployment_status_replicas_ready"}
    report = report_of(history_of(answer([(GROUP, values), (running, values)])))
    assert report.has_verdict
    assert [*report.sentences()][2] == "Evenkeel would have changed nothing."


def test_a_week_with_three_outages_is_replayed_exactly() -> None:
    truth = truth_of(week())
    check(truth, tuple(report_of(history_of(replicas(truth, 60), infos(truth))).answers))


def test_half_a_history_at_a_longer_step_has_a_verdict_about_the_other_half() -> None:
    truth = world("zone-outage-at-night")
    mixed = replicas(truth, 60)
    for one in mixed["data"]["result"]:
        one["values"] = [one for one in one["values"] if one[0] >= truth.start or not one[0] % 300]
    assert report_of(history_of(mixed, infos(truth))).has_verdict


def lookback(*arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["lookback", *arguments], env={"COLUMNS": "100"})
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert result.exit_code == code, result.output
    return result


def test_the_command_answers_about_files_of_prometheus(tmp_path: Path) -> None:
    truth = world("two-zones-out")
    options = []
    for name, text in texts(replicas(truth, 60), infos(truth)):
        (tmp_path / name).write_text(text, encoding="utf-8")
        options += ["-f", str(tmp_path / name)]
    lines = lookback(*options).stdout.splitlines()
    assert "2 outages met 3 groups of 1 pool" in lines[0]
    assert lines[2].startswith("With Evenkeel, pods would have waited ")
    scenario = yaml.safe_load(lookback(*options, "-o", "scenario").stdout)
    assert (scenario["flavour"], scenario["name"][:23]) == ("cluster-api", "Prometheus, cluster-api")
    cut_off = lookback(*options, "--now", "2026-01-01T00:20:00Z").stdout
    assert "no launch of 3 groups of 1 pool was refused" in cut_off


BAD: Mapping[str, Any] = {
    "Prometheus answered 'query timed out' (timeout): query it again": {
        "status": "error",
        "errorType": "timeout",
        "error": "query timed out",
    },
    "resultType is 'vector': only a matrix has a history": {"status": "success", "data": {"resultType": "vector"}},
    "resultType is 'None'": {"status": "success"},
    "replicas by group are missing": answer([]),
    "a series has no __name__: query metrics without functions": answer([({"name": "a"}, [])]),
    "the answers are of the clusters x, y: query one at a time": answer(
        ({**GROUP, "cluster": name}, [[0, "1"]]) for name in "xy"
    ),
    "no answer has capi_machinedeployment_status_replicas_ready": answer([(GROUP, [[0, "1"]])]),
    "cluster-autoscaler has them with --emit-per-nodegroup-metrics": answer(
        [({"__name__": "cluster_autoscaler_nodes_count", "state": "ready"}, [[0, "1"]])]
    ),
}


@pytest.mark.parametrize("fault", BAD)
def test_bad_answers_are_one_line(tmp_path: Path, fault: str) -> None:
    (tmp_path / "x.json").write_text(json.dumps(BAD[fault]), encoding="utf-8")
    (line,) = lookback("-f", str(tmp_path / "x.json"), code=2).stderr.splitlines()
    assert fault in line


@pytest.mark.parametrize(
    ("mark", "text"),
    [({"warnings": ["No StoreAPIs matched"]}, "No StoreAPIs matched"), ({"isPartial": True}, "isPartial")],
)
def test_a_warning_is_a_reason_for_no_verdict(mark: dict[str, Any], text: str) -> None:
    truth = world("two-zones-out")
    report = report_of(history_of({**replicas(truth, 60), **mark}, infos(truth)))
    assert not report.has_verdict
    assert f"has a warning of Prometheus, {text!r}" in report.answers[0].missing[0]


def test_nodes_of_no_single_group_are_a_reason_for_no_verdict() -> None:
    truth = world("two-zones-out")
    document = replicas(truth, 60, source="cluster-autoscaler")
    for one in document["data"]["result"]:
        one["metric"].pop("provider_id", None)
    report = report_of(history_of(document))
    assert not report.has_verdict
    assert any("nodes fit no single group: add kube_node_labels" in text for text in report.answers[0].missing)


def test_labels_of_nodes_name_their_groups() -> None:
    series: list[tuple[Mapping[str, str], list[list[Any]]]] = []
    for name in ("web", "batch"):
        node, group = f"ip-{name}", f"eks-{name}-0123"
        label = {"label_eks_amazonaws_com_nodegroup": name, "label_topology_kubernetes_io_zone": "eu-west-1a"}
        values = [[at, "1"] for at in range(0, 600, 60)]
        series += [
            ({"__name__": "cluster_autoscaler_node_group_target_count", "node_group": group}, values),
            ({"__name__": "kube_node_info", "node": node}, values),
            ({"__name__": "kube_node_labels", "node": node, **label}, values[:1]),
        ]
    history = history_of(answer(series))
    assert [(group.pool, group.zones, group.running[-1].nodes) for group in history.groups] == [
        ("eks-batch-0123", ("eu-west-1a",), 1),
        ("eks-web-0123", ("eu-west-1a",), 1),
    ]


def test_nodes_of_control_planes_and_of_other_groups_do_not_count() -> None:
    truth = world("two-zones-out")
    usual, more = (replicas(truth, 60, source="cluster-autoscaler") for _ in range(2))
    times = [sample[0] for sample in usual["data"]["result"][0]["values"]]
    zone = truth.record.snapshots[0].groups[0].zone
    for node in ("control-plane", "system"):
        labels = {"__name__": "kube_node_info", "node": node, "provider_id": f"gce://p/{zone}/{node}"}
        more["data"]["result"].append({"metric": labels, "values": [[at, "1"] for at in times]})
    labels = {"__name__": "kube_node_labels", "node": "system", "label_cloud_google_com_gke_nodepool": "system"}
    more["data"]["result"].append({"metric": labels, "values": [[times[0], "1"]]})
    assert history_of(more).groups == history_of(usual).groups


def test_a_backoff_names_the_reason_of_its_group() -> None:
    truth = world("two-zones-out")
    backoff = {"__name__": "cluster_autoscaler_node_group_backoff_status", "reason": "quota exceeded"}
    group = "MachineDeployment/default/workers-eu-central-1a"
    values = [[truth.start, "0"], [truth.start + 2460, "1"], [truth.start + 4000, "0"]]
    history = history_of(replicas(truth, 60), infos(truth), answer([({**backoff, "node_group": group}, values)]))
    kinds = {group.name[-2:]: {refusal.kind for refusal in group.refusals} for group in history.groups}
    assert FailureClass.QUOTA in kinds["1a"]
    assert kinds["1b"] == {FailureClass.TIMEOUT}


@pytest.mark.parametrize("source", EXPORTERS)
def test_queries_are_printed_in_slices_that_prometheus_allows(source: str) -> None:
    lines = lookback("--print-queries", source, "--days", "28", "--now", "2026-01-29T00:00:00Z").stdout.splitlines()
    assert len(lines) == 5
    ends = datetime(2026, 1, 1, tzinfo=UTC)
    for line in lines[:4]:
        start, end = (datetime.fromisoformat(text) for text in re.findall(r"(?:start|end)=(\S+?)'? ", line))
        assert (start - ends).total_seconds() in (0, 60)
        assert (end - start).total_seconds() / 60 <= 10_999
        ends = end
    assert "cluster_autoscaler_node_group_max_count" in lines[0]
    assert lines[4].endswith("step=3600 > infos-1.json")


def test_a_source_that_does_not_exist_is_one_line() -> None:
    (line,) = lookback("--print-queries", "karpenter", code=2).stderr.splitlines()
    assert "--print-queries is 'karpenter': choose cluster-api" in line


def test_only_answers_of_prometheus_look_like_them() -> None:
    assert all(map(is_answer, ('{"status":"success"', ' [ {"metric":{}', "[]\n")))
    assert not any(map(is_answer, ('{"AutoScalingGroups": []}', "kind: List")))


def test_a_text_that_is_no_json_is_one_fault() -> None:
    with pytest.raises(ConfigError, match="x: not YAML or JSON"):
        read_samples([("x", '{"status": ')])
