"""The README: its length, its picture, and the figures and names that it quotes."""

import json
import re
import shlex
import tomllib
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel.record import Registration
from evenkeel.validation import read_model
from evenkeel_cli.main import app
from sandbox.kube.schema import load_crds
from sandbox.template import Template
from tests.unit.project.test_docs import ROOT, blocks, text_of

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
PICTURE = ROOT / "docs" / "pictures" / "outage.svg"


@cache
def drawn() -> tuple[dict[str, Any], str]:
    """Return the measures by strategy, and the picture, of the command that the README shows."""
    (line,) = re.findall(r"`\.venv/bin/evenkeel (simulate .* --plot \S+)`", TEXT)
    *words, picture = shlex.split(line)
    assert ROOT / picture == PICTURE
    given = [str(ROOT / word) if word.startswith("scenarios/") else word for word in words]
    with TemporaryDirectory() as folder:
        file = Path(folder, "drawn.svg")
        done = CliRunner().invoke(app, [*given, str(file), "-o", "json"], catch_exceptions=False)
        picture = file.read_text(encoding="utf-8")
    return {run["strategy"]: run["measures"] for run in json.loads(done.stdout)["runs"]}, picture


def minutes(measures: dict[str, Any]) -> str:
    whole, seconds = divmod(measures["worst_seconds"], 60)
    return f"{whole} min {seconds} s"


def row(name: str) -> list[str]:
    """Return the cells of a row in the table of small and full installations."""
    (line,) = re.findall(rf"^\| {name} \| (.*) \|$", TEXT, re.M)
    return str(line).split(" | ")


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= 950


def test_the_picture_is_what_its_command_draws() -> None:
    _, picture = drawn()
    assert picture == PICTURE.read_text(encoding="utf-8"), f"draw {PICTURE} again, with the command in the README"


def test_the_picture_has_a_background_of_its_own() -> None:
    """On a dark page black text needs it."""
    (background,) = re.findall(r'<g id="patch_1">\s*<path d="(.*?)" style="fill: #ffffff"/>', drawn()[1], re.S)
    (box,) = re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', drawn()[1])
    assert set(box) <= set(background.split())


def test_the_figures_are_those_of_the_picture() -> None:
    measures, _ = drawn()
    ours, shares, loose = (measures[name] for name in ("Balanced", "static", "loose"))
    hours, rest = divmod(shares["worst_seconds"], 3600)
    assert f"wait at most {minutes(ours)}.**" in TEXT
    assert f"takes {hours} h {rest // 60} min if each group's max is a third of the pool's." in TEXT
    assert f"takes {minutes(loose)} if each group's max is the pool's" in TEXT
    skews = f"without Evenkeel by {shares['skew_mean']:.2f} or {loose['skew_mean']:.2f}."
    assert f"{ours['skew_mean']} nodes on average, {skews}" in TEXT
    assert (ours["over_requested"], ours["over_running"]) == (0, 0)


def test_a_third_of_the_maximum_is_a_share_of_the_scenario() -> None:
    scenario = yaml.safe_load((ROOT / "scenarios" / "zone-outage-at-night.yaml").read_text(encoding="utf-8"))
    assert len(scenario["zones"]) == 3


def test_the_promise_of_poolmaximum_is_that_of_the_guarantees() -> None:
    ((worlds, passed),) = re.findall(
        r"`liveness`: ([\d,]+) worlds with Balanced, PoolMaximum passed in (\d+)", text_of("guarantees.md")
    )
    assert passed == "0"
    assert f"[{worlds} random worlds](docs/guarantees.md) no pool passed" in TEXT


def test_the_installations_name_all_functions_and_only_fields_that_exist() -> None:
    functions = re.findall(r"`(\w+)`", " ".join(row("functions in use")))
    assert sorted(functions) == sorted(path.parent.name for path in (ROOT / "functions").glob("*/app.py"))
    small, full = [re.findall(r"`(\w+)[:`]", cell) for cell in row("record fields")]
    assert set(small) | {"id"} == {name for name, field in Registration.model_fields.items() if field.is_required()}
    assert set(full) <= set(Registration.model_fields)
    template = (ROOT / "template.yaml").read_text(encoding="utf-8")
    for name in re.findall(r"`(\w+)`", row("template parameters")[1]):
        assert re.search(rf"^  {name}:$", template, re.M), name


def test_the_costs_are_those_of_the_bill() -> None:
    bill, small = text_of("operate/cost.md"), text_of("start/small-installation.md")
    one, _, hundred, *_ = map(float, re.findall(r"^\| \*\*sum\*\* \| (.+) \|$", bill, re.M)[0].split(" | "))
    demand = float(re.findall(r"^\| 300 nodes, .* \| ([\d.]+) \|$", bill, re.M)[0])
    dashboard = float(re.findall(r"the dashboard and all \d+ metrics, at most\* \| ([\d.]+) \|", bill)[0])
    channel = float(re.findall(r"a secret for each channel but Chatbot and Alertmanager: ([\d.]+)", small)[0])
    page = float(re.findall(r"`PageBucket`.*\| about ([\d.]+) \|", small)[0])
    alone, whole = row(r"\$ a month, one cluster with 3 node groups")
    assert (alone, row("the same, for each of 100 clusters")[0]) == (f"{one:.2f}", f"{hundred:.3f}")
    for price in (
        f"{dashboard:.2f} for the dashboard",
        f"{demand:.2f} for `demand",
        f"{channel:.2f} for a channel",
        f"{page:.2f} for the page",
    ):
        assert price in whole
    shared = dashboard + channel + page
    assert whole.startswith(f"about {one + demand + shared:.0f}:")
    assert float(row("the same, for each of 100 clusters")[1].removeprefix("about ")) == pytest.approx(
        hundred + demand + shared / 100, abs=0.05
    )
    assert f"NAT gateway adds {float(re.findall(r'in addition[*] [|] ([0-9.]+) [|]', bill)[0]):.0f}" in TEXT


@pytest.mark.parametrize(
    ("word", "leads_to"),
    [
        ("Lambda functions", "functions"),
        ("provisioning-failure events", "docs/reference/events.md"),
        ("izing strateg", "docs/guides/strategies.md"),
        ("backoff-aware", "docs/guides/outages.md"),
        ("min/max annotations", "docs/reference/annotations.md"),
        ("DynamoDB", "docs/reference/stored-state.md"),
        ("SAM", "template.yaml"),
        ("EventBridge schedules", "docs/reference/events.md"),
        ("invoke each function manually", "docs/guides/test-events.md"),
        ("test events", "events"),
        ("LocalStack", "make test-localstack"),
        *((package, "pyproject.toml") for package in ("boto3", "aws-lambda-powertools", "kubernetes")),
        *((package, "pyproject.toml") for package in ("moto", "pytest", "localstack-client")),
    ],
)
def test_each_word_of_the_specification_leads_to_code_or_a_page(word: str, leads_to: str) -> None:
    assert word in TEXT
    assert f"]({leads_to})" in TEXT or f"`{leads_to}`" in TEXT
    if leads_to == "pyproject.toml":
        assert re.search(rf'^    "{word}\W', (ROOT / leads_to).read_text(encoding="utf-8"), re.M)


def test_every_strategy_is_named() -> None:
    assert all(strategy.name in TEXT for strategy in STRATEGIES)


def test_the_deploy_line_asks_one_question() -> None:
    (line,) = re.findall(r"sam deploy --parameter-overrides (\S+)", TEXT)
    given = dict(word.split("=") for word in line.split())
    template = Template()
    assert all("Default" in parameter for parameter in template.body["Parameters"].values())
    required = {name for name in template.body["Parameters"] if f"{{'Ref': '{name}'}}" in str(template.body["Rules"])}
    assert set(given) == required - {"VpcSubnetIds", "VpcSecurityGroupIds"}, "these two are required only together"
    config = tomllib.loads((ROOT / "samconfig.toml").read_text(encoding="utf-8"))["default"]
    asked = {**config["global"]["parameters"], **config["deploy"]["parameters"]}
    assert {"stack_name", "capabilities", "resolve_s3"} <= set(asked)
    assert asked["confirm_changeset"]


def test_the_record_shown_is_complete() -> None:
    ((name, text),) = blocks(README, "yaml")
    assert f"--record {name}" in TEXT
    assert read_model(Registration, {"id": "blue", **yaml.safe_load(text)}, name)


def test_the_flow_names_functions_that_exist_and_loads_nothing() -> None:
    flow = (ROOT / "docs" / "pictures" / "flow.svg").read_text(encoding="utf-8")
    functions = {path.parent.name for path in (ROOT / "functions").glob("*/app.py")}
    boxes = re.findall(r'<rect class="function".*?<text class="name"[^>]*>([^<]+)<', flow, re.S)
    named = {name for box in boxes for name in box.split(", ")}
    assert {"scan", "check", "provisioning_failure", "rebalance"} <= named <= functions
    assert not re.search(r"href|url\((?!#)|@import|@font-face", flow)


def test_the_coverage_names_the_served_versions_of_the_simulated_apis() -> None:
    table = text_of("guarantees.md", "## What was tested")
    named = set(re.findall(r"`([a-z0-9.-]+)/(v\d\w*)`", table))
    served = {
        (crd["spec"]["group"], version["name"])
        for crd in load_crds()
        for version in crd["spec"]["versions"]
        if not crd["spec"]["group"].startswith("infrastructure.")
    }
    assert named == served
    (localstack,) = re.findall(r"LocalStack ([\d.]+\d)", table)
    assert f"localstack-core[runtime]=={localstack}" in (ROOT / "requirements" / "localstack.in").read_text()
