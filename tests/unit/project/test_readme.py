"""The README: its length, its picture, and the figures and names that it quotes."""

import json
import re
import shlex
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel.record import Registration
from evenkeel_cli.main import app
from tests.unit.project.test_docs import ROOT, text_of

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
PICTURE = ROOT / "docs" / "pictures" / "outage.svg"


@cache
def drawn() -> tuple[dict[str, Any], str]:
    """The measures by strategy, and the picture, of the command that the README shows."""
    (line,) = re.findall(r"`\.venv/bin/evenkeel (simulate .* --plot \S+)`", TEXT)
    *words, picture = shlex.split(line)
    assert ROOT / picture == PICTURE
    given = [str(ROOT / word) if word.startswith("scenarios/") else word for word in words]
    with TemporaryDirectory() as folder:
        file = Path(folder, "drawn.svg")
        done = CliRunner().invoke(app, [*given, str(file), "-o", "json"], catch_exceptions=False)
        picture = file.read_text(encoding="utf-8")
    return {run["strategy"]: run["measures"] for run in json.loads(done.stdout)["runs"]}, picture


def row(name: str) -> list[str]:
    """The cells of a row in the table of small and full installations."""
    (line,) = re.findall(rf"^\| {name} \| (.*) \|$", TEXT, re.M)
    return str(line).split(" | ")


def test_it_is_short() -> None:
    assert len(TEXT.split()) <= 900


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
    ours, alone = measures["Balanced"], measures["static"]
    minutes, seconds = divmod(ours["worst_seconds"], 60)
    hours, rest = divmod(alone["worst_seconds"], 3600)
    assert f"wait at most {minutes} min {seconds} s, not {hours} h {rest // 60} min" in TEXT
    assert f"{ours['skew_mean']} nodes on average, without Evenkeel by {alone['skew_mean']}." in TEXT
    assert (ours["over_requested"], ours["over_running"]) == (0, 0)


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
