"""Metrics of a single cluster, where its record requests them."""

import json
from dataclasses import replace

import pytest

from evenkeel.adapters.aws.metrics import write_metrics_of
from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from tests.fakes import NOW
from tests.stack import Stack

NAMES = {"Incidents", "NodesMissing", "GroupsFenced", "Headroom", "Imbalance"}


def test_only_a_cluster_with_the_field_has_metrics() -> None:
    assert Stack().checks().metrics_of_clusters() == {}
    (found,) = Stack(metrics="cluster").checks().metrics_of_clusters().items()
    assert (found[0], set(found[1])) == ("demo", NAMES)


def test_quick_and_full_checks_have_the_same_metrics() -> None:
    stack = Stack(metrics="cluster")
    stack.settle()
    found = []
    for _ in range(40):
        found.append(stack.checks().metrics_of_clusters()["demo"])
        stack.carry_out()
    assert {(each["Headroom"], each["Imbalance"]) for each in found} == {(found[0]["Headroom"], found[0]["Imbalance"])}
    assert {len(each) for each in found} == {len(NAMES) - 1, len(NAMES)}, "both kinds of check were among them"


def test_an_unreachable_cluster_has_incident_metrics_only() -> None:
    stack = Stack(metrics="cluster")
    stack.settle()
    incident = Incident(kind=IncidentKind.MISSING, pool="cluster-api/ns/workers", since=NOW, missing=3)
    loaded = stack.store.load

    def is_failing(cluster: str, *, consistent: bool = True) -> object:
        return replace(loaded(cluster, consistent=consistent), cluster_health=ClusterHealth(incidents=(incident,)))

    stack.store.load = is_failing  # type: ignore[assignment]
    stack.store.steady_clusters = lambda _: {}  # type: ignore[method-assign, assignment]
    stack.cluster.unreadable = ClusterUnavailableError("demo does not answer")
    summary = stack.checks()
    assert summary.metrics()["Incidents"] == 1
    assert summary.metrics_of_clusters() == {"demo": {"Incidents": 1, "NodesMissing": 3}}


def test_a_paused_cluster_is_not_measured() -> None:
    stack = Stack(metrics="cluster")
    stack.settle()
    assert stack.ask("pause")["ok"]
    assert stack.checks().metrics_of_clusters() == {}


def test_the_line_has_stack_cluster_and_no_zero(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Evenkeel")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "stack")
    write_metrics_of("blue", {"Incidents": 0, "Headroom": 4})
    write_metrics_of("green", {"Incidents": 0})
    (line,) = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Evenkeel"
    assert [sorted(each) for each in directive["Dimensions"]] == [["cluster", "service"]]
    assert [metric["Name"] for metric in directive["Metrics"]] == ["Headroom"]
    assert (line["service"], line["cluster"], line["Headroom"]) == ("stack", "blue", [4.0])
