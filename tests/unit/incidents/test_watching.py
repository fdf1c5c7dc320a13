"""Grafana's dashboard and the template's queries of Logs Insights name metrics and fields that exist."""

import io
import json
import logging
import re
from typing import Any

import pytest
from aws_lambda_powertools import Logger

from evenkeel.adapters.aws.metrics import ALARMED
from evenkeel.application.rebalancing.check import CheckSummary
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.bootstrap import log_line
from sandbox.template import ROOT, Template
from tests.builders import zones
from tests.stack import Stack

DASHBOARD = json.loads((ROOT / "deploy" / "grafana" / "evenkeel.json").read_text(encoding="utf-8"))
QUERIES = Template().of_type("AWS::Logs::QueryDefinition")
CODE = "\n".join(
    path.read_text(encoding="utf-8") for top in ("functions", "layers/evenkeel") for path in (ROOT / top).rglob("*.py")
)
OF_CLUSTERS = {"Incidents", "NodesMissing", "GroupsFenced", "Headroom", "Imbalance"}
OF_STACK = set(RunSummary(cluster="x").metrics()) | set(CheckSummary(alone=True).metrics())
OF_STACK |= set(re.findall(r'add_metric\("([A-Za-z]+)"', CODE))


DECISION = {"id", "cause", "dryRun", "pool.name"}


def targets() -> list[dict[str, Any]]:
    return [target for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]


def test_the_dashboard_draws_metrics_that_are_sent() -> None:
    assert targets()
    for target in targets():
        dimensions = dict(target["dimensions"])
        assert target["namespace"] == "Evenkeel"
        assert dimensions.pop("service") == "$stack"
        of_cluster = dimensions == {"cluster": "$cluster"}
        assert of_cluster or not dimensions
        assert target["metricName"] in (OF_CLUSTERS if of_cluster else OF_STACK), target["metricName"]


def test_all_metrics_of_a_cluster_are_sent_and_drawn() -> None:
    source = (ROOT / "layers/evenkeel/evenkeel/application/rebalancing/check.py").read_text(encoding="utf-8")
    body = source.partition("def metrics_of_clusters")[2].partition("return measured")[0]
    assert set(re.findall(r'"([A-Z][A-Za-z]+)"', body)) == OF_CLUSTERS
    drawn = {target["metricName"] for target in targets() if "cluster" in target["dimensions"]}
    assert drawn == OF_CLUSTERS


def test_every_variable_is_defined_and_used() -> None:
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    text = json.dumps(DASHBOARD)
    used = set(re.findall(r"\$\{?([a-z]+)\b", text)) - {"__all"}
    assert used == set(variables)
    for query in (variables["stack"]["query"], variables["cluster"]["query"]):
        (_, namespace, metric, dimension) = re.fullmatch(r"dimension_values\((.*)\)", query)[1].split(",")  # type: ignore[index]
        assert namespace == "Evenkeel"
        assert (metric in OF_CLUSTERS) if dimension == "cluster" else (metric == "ClustersScanned"), "each minute"


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_a_panel_of_metrics_of_the_dashboard_option_names_it() -> None:
    for panel in DASHBOARD["panels"]:
        names = {target["metricName"] for target in panel.get("targets", []) if "cluster" not in target["dimensions"]}
        assert "WithDashboard=true" in panel.get("description", "") or names <= ALARMED, panel["title"]


# Lambda's and Powertools' fields of each line: AWS Lambda developer guide, "Log formats"; Powertools, Logger.
GIVEN = {"level", "message", "timestamp", "service", "function_name", "cold_start"}
FUNCTIONS = {"counts", "seconds_to_first_patch", "result", "kind", "action", "cluster", "decision", "group"}
COMMANDS = {"fields", "filter", "stats", "sort", "limit", "parse", "dedup", "display"}
CALLS = {"count", "latest", "sum", "avg", "max", "bin", "ispresent"}
WORDS = {"as", "by", "desc", "asc", "in", "and", "or", "not", "like"}


def fields_of(query: str) -> set[str]:
    """Return the fields that a query reads, without its own names and those of Insights."""
    text = re.sub(r'"[^"]*"', "", query)
    named = set(re.findall(r"\bas (\w+)", text))
    found = set(re.findall(r"(?<![@\w.])[a-z][\w.]*", text))
    return found - named - COMMANDS - CALLS - WORDS - {"1h", "h"}


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_reads_logged_fields_of_existing_log_groups(name: str) -> None:
    what, query = QUERIES[name]["QueryString"].split("\n", 1)
    assert what.startswith("# ")
    template = Template()
    own = template.resources[name].get("Condition")
    for reference in QUERIES[name]["LogGroupNames"]:
        assert template.resources[reference["Ref"]].get("Condition") == own
    assert QUERIES[name]["Name"]["Fn::Sub"].startswith("${AWS::StackName}/")
    assert all(step.split()[0] in COMMANDS for step in re.split(r"^\| ", query, flags=re.M))
    extra = set(re.findall(r'"(\w+)":', "".join(re.findall(r"extra=\{[^}]*\}", CODE))))
    assert extra >= FUNCTIONS, "the code logs all of them"
    for field in fields_of(query):
        first, _, rest = field.partition(".")
        assert first in GIVEN | extra, field
        if first == "counts":
            assert rest in OF_STACK, field
        if first == "decision":
            assert rest in DECISION, field


def test_the_line_of_a_decision_has_what_queries_read(caplog: pytest.LogCaptureFixture) -> None:
    stack = Stack(zones((3, 2, 2), bounds=[(0, 9)] * 3))
    with caplog.at_level(logging.INFO):
        stack.run()
    (logged, *_) = [record.__dict__ for record in caplog.records if record.getMessage() == "decision"]
    assert logged["cluster"] == "demo"
    fields = {f"{a}.{b}" for a, value in logged["decision"].items() if isinstance(value, dict) for b in value}
    assert fields | {a for a, value in logged["decision"].items() if not isinstance(value, dict)} == DECISION


def test_a_log_line_has_what_queries_read() -> None:
    stream = io.StringIO()
    logger = Logger(service="line", stream=stream, json_serializer=log_line)
    logger.append_keys(function_name="scan", cold_start=True, function_arn="arn:x", function_memory_size="512")
    logger.info("said")
    fields = set(json.loads(stream.getvalue()))
    assert fields >= GIVEN
    assert not fields & {"function_arn", "function_memory_size"}


def test_queries_compare_with_words_of_the_code() -> None:
    texts = {name: query["QueryString"] for name, query in QUERIES.items()}
    assert 'message = "decision"' in texts["DecisionsQuery"]
    assert '_log.info("decision"' in CODE
    assert 'result = "ignored"' in texts["EventsIgnoredQuery"]
    assert 'IGNORED = "ignored"' in CODE
