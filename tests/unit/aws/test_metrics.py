"""Metrics cost money: zeros and metrics without an alarm are not sent, but logged."""

import json
from typing import Any

import pytest
from aws_lambda_powertools.metrics import MetricUnit
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evenkeel.adapters.aws.metrics import ALARMED, StackMetrics

NAMES = [*sorted(ALARMED), "Conflicts", "Imbalance"]
COUNTS = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3)), max_size=8)


@pytest.fixture(autouse=True)
def as_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "Evenkeel")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "blue")


def printed(
    capsys: pytest.CaptureFixture[str], counts: list[tuple[str, int]], *, everything: bool
) -> list[dict[str, Any]]:
    """Return the log lines of an invocation with these counts."""
    metrics = StackMetrics(everything=lambda: everything)

    @metrics.log_metrics
    def handler(event: object, context: object) -> None:
        for name, count in counts:
            metrics.add_metric(name, MetricUnit.Count, count)

    handler({}, None)
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def billed(lines: list[dict[str, Any]]) -> set[str]:
    directives = [directive for line in lines for directive in line["_aws"]["CloudWatchMetrics"]]
    return {metric["Name"] for directive in directives for metric in directive["Metrics"]}


@pytest.mark.filterwarnings("error")  # Powertools warns of an invocation without metrics: a line in the log, and billed
@pytest.mark.parametrize("everything", [False, True])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(counts=COUNTS)
def test_only_nonzero_metrics_with_an_alarm_are_billed(
    capsys: pytest.CaptureFixture[str], counts: list[tuple[str, int]], everything: bool
) -> None:
    lines = printed(capsys, counts, everything=everything)
    said = {name for name, count in counts if count}
    assert billed(lines) == (said if everything else said & ALARMED)
    assert len(lines) == bool(billed(lines)), "nothing to bill, no line"


def test_other_metrics_are_plain_fields_of_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = printed(capsys, [("RunsFailed", 1), ("Conflicts", 2), ("Imbalance", 0)], everything=False)
    assert billed([line]) == {"RunsFailed"}
    assert (line["RunsFailed"], line["Conflicts"]) == ([1.0], [2.0])
    assert "Imbalance" not in line


def test_a_line_has_nothing_of_the_invocation_before(capsys: pytest.CaptureFixture[str]) -> None:
    metrics = StackMetrics(everything=lambda: False)
    metrics.add_metric("Conflicts", MetricUnit.Count, 2)
    metrics.flush_metrics()
    metrics.add_metric("RunsFailed", MetricUnit.Count, 1)
    metrics.flush_metrics()
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "Conflicts" not in line
