"""The page: its contents, no part of it runs or loads anything, and it is accessible."""

import json
import re
from base64 import b64encode
from datetime import timedelta
from functools import cache
from hashlib import sha256
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import Theme, document, fragment, stylesheet
from evenkeel.adapters.page.view import Page, Section
from evenkeel.adapters.page.widget import theme_of
from evenkeel.application.rebalancing.decisions import plan_json
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.values import printable
from evenkeel.domain.plan import plan
from evenkeel.texts.english import duration, rfc3339
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli import stack_client
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.forecast_answers import Foreseen, forecast_json
from evenkeel_cli.main import app
from evenkeel_cli.printed_pages import page_of_forecast, page_of_plan, page_of_simulation
from evenkeel_cli.simulation.forecast import foresee
from evenkeel_cli.simulation.loss import Loss
from evenkeel_cli.stack_client import CannotAskError
from tests.builders import MINUTE, NOW, change_one_value, in_backoff, key, numbers, zones
from tests.pages import Seen
from tests.property.cli.test_forecast import ALONE, world

EVIL = "<script>alert(1)</script><img src=x onerror='alert(2)'>\"'&"


def plan_answer() -> dict[str, Any]:
    """Return a plan whose zone a is fenced and releases replicas."""
    groups = zones([5, 4, 4], [3, 4, 4], [(1, 6), (1, 4), (1, 4)])
    states = ClusterState(groups={key("a"): in_backoff()})
    return plan_json(plan(Observation(groups=tuple(groups)), states, numbers(3, 12), NOW))


def status_answer(**fields: Any) -> dict[str, Any]:
    """Return the operator function's answer for the same pool, with two decisions."""
    pool = plan_answer()["pools"][0]
    seen = [{**group, "running": 3, "since": None, "until": None, "held": []} for group in pool["groups"]]
    failure = {"class": "capacity", "failures": 2, "last": rfc3339(NOW), "message": "no machines left"}
    seen[0] |= {"since": rfc3339(NOW - MINUTE), "until": rfc3339(NOW + 4 * MINUTE), "failure": failure}
    head = {"cluster": "blue", "cause": "schedule", "pool": pool}
    decisions = [
        {"id": f"01A{number}", "at": rfc3339(NOW - number * MINUTE), "dryRun": number == 1, **head} for number in (1, 8)
    ]
    return {
        **{"ok": True, "cluster": "blue", "mode": "on", "headline": "blue: on", "message": "blue: on"},
        **{"now": rfc3339(NOW), "dryRun": False, "paused": False, "leaving": False, "pausedUntil": None},
        **{"pausedPools": {}, "leavingPools": [], "requests": {}, "incident": False, "incidents": []},
        "pools": [{**pool, "groups": seen}],
        "groups": {},
        "zones": {
            "c": {"impairedUntil": rfc3339(NOW + 60 * MINUTE), "impaired": True, "by": "operator", "statements": []}
        },
        "decisions": decisions,
        **fields,
    }


def simulation_answer() -> dict[str, Any]:
    """Return two simulated runs of an hour: zone a is fenced in the second half."""

    def sample(t: int, running: int, state: str) -> dict[str, Any]:
        group = {"name": "w-a", "zone": "a", "requested": 3, "running": running, "min": 0, "max": 5, "state": state}
        return {"t": t, "pool": "w", "demand": 4, "groups": [group]}

    run = {
        "measures": {"worst_seconds": 95, "unmet": 0, "demand": []},
        "pools": [{"name": "w", "min": 0, "max": 5}],
        "timeline": [sample(0, 1, "healthy"), sample(600, 3, "healthy"), sample(1800, 2, "fenced")],
        "decisions": [{"t": 1800, "pool": "w", "reasons": ["a: fenced after capacity"]}],
    }
    runs = [{**run, "strategy": name} for name in ("Balanced", "Adaptive")]
    return {"scenario": "night", "start": rfc3339(NOW), "duration": 3600, "runs": runs}


def forecast_answer() -> dict[str, Any]:
    return dict(json.loads(_forecast_text()))


@cache
def _forecast_text() -> str:
    """Return the forecast of zone a's loss in a full pool: four pods are bound to it, others wait for PoolMaximum."""
    observation = world({"a": 3, "b": 2, "c": 2}, {"a": 12, "b": 8, "c": 8}, 5, bound=4)
    policy = read_model(ClusterFile, ALONE, "record")
    planned = plan(observation, ClusterState(), policy.policy(), NOW)
    outcome = foresee(Loss(observation, planned, NOW, "a"), policy, ClusterState())
    foreseen = Foreseen(name="", outcome=outcome, planned=planned, surviving=planned, unread="")
    return json.dumps(forecast_json(foreseen))


def palette(theme: Theme) -> dict[str, str]:
    """Return the colours of a theme by name."""
    return dict(re.findall(r"--([\w-]+):(#\w+);", stylesheet(theme)))


def plan_page() -> str:
    return document(page_of_plan(json.dumps(plan_answer()), "plan.json"))


def status_page(**fields: Any) -> str:
    return document(page_of_status(status_answer(**fields), "answer of stack x", NOW))


def simulation_page() -> str:
    return document(page_of_simulation(json.dumps(simulation_answer()), "sim.json"))


def forecast_page() -> str:
    return document(page_of_forecast(json.dumps(forecast_answer()), "forecast.json"))


PAGES = {"plan": plan_page, "status": status_page, "simulation": simulation_page, "forecast": forecast_page}
every_page = pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)


@every_page
def test_a_page_loads_nothing(page: Any) -> None:
    seen = Seen(page())
    assert not {"link", "img", "iframe", "object", "embed", "base", "form", "a"} & set(seen.tags)
    assert not [one for one in seen.attributes if one[1] in ("src", "href", "xlink:href", "srcset", "action")]
    assert not re.findall(r"url\(|@import|@font-face", page())
    assert "http:" not in page()
    assert "https:" not in page()


@every_page
def test_the_policy_allows_only_the_style_and_script_of_the_page(page: Any) -> None:
    seen = Seen(page())
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page())
    reported = dict(part.strip().split(" ", 1) for part in unescape(policy).split(";"))
    assert reported.pop("default-src") == "'none'"
    for tag, name in (("style", "style-src"), ("script", "script-src")):
        assert seen.tags.count(tag) == 1
        digest = b64encode(sha256(seen.inside[tag].encode()).digest()).decode()
        assert reported.pop(name) == f"'sha256-{digest}'"
    assert set(reported.values()) == {"'none'"}
    # Neither would run under this policy.
    assert not [one for one in seen.attributes if one[1] == "style" or one[1].startswith("on")]


def test_every_name_and_sentence_is_escaped() -> None:
    plain = status_answer()
    text = json.dumps(plain)
    for word in ("workers", "no machines left", "operator", "schedule", "blue", '"a"'):
        assert word in text
        text = text.replace(word, json.dumps(EVIL) if word == '"a"' else json.dumps(EVIL)[1:-1])
    evil = json.loads(text)
    seen, expected = Seen(document(page_of_status(evil, EVIL, NOW))), Seen(status_page())
    assert set(seen.tags) == set(expected.tags)
    assert {(tag, name) for tag, name, _ in seen.attributes} == {(tag, name) for tag, name, _ in expected.attributes}
    assert seen.text.count(EVIL) > 10


@given(st.text(), st.text())
def test_text_and_attributes_are_shown_unchanged(text: str, value: str) -> None:
    def seen(title: str, name: str) -> Seen:
        return Seen(document(Page(title=title, source="x", at=NOW, sections=(Section(name=name),))))

    page = seen(text, value)
    assert page.text.startswith(printable(text) * 2), "the title and the heading"
    assert ("section", "aria-label", printable(value)) in page.attributes
    assert page.tags == seen("x", "y").tags


def test_a_plan_shows_each_zone_with_its_numbers_and_what_changes() -> None:
    text = Seen(plan_page()).text
    assert "PoolMinimum 3" in text
    assert "PoolMaximum 12" in text
    assert "5 → 3" in text  # the fenced zone's two replicas without a machine
    for group in plan_answer()["pools"][0]["groups"]:
        assert group["zone"] in text
        for reason in group["reasons"]:
            assert reason in text


def test_a_state_is_a_word_and_a_shape() -> None:
    states = {"healthy": "●", "fenced": "■", "probing": "▲", "unhealthy": "▼", "frozen": "◆"}
    answer = status_answer()
    for state, shape in states.items():
        answer["pools"][0]["groups"][1]["state"] = state
        assert f"{shape} {state}" in Seen(document(page_of_status(answer, "x", NOW))).text


def test_a_fence_has_an_absolute_end_and_a_countdown() -> None:
    seen = Seen(status_page())
    for until in (NOW + 4 * MINUTE, NOW + 60 * MINUTE):
        assert f"until {until:%H:%M:%S} UTC" in seen.text
        assert ("span", "data-until", rfc3339(until)) in seen.attributes
    assert "failure 2 in a row, capacity: no machines left" in seen.text
    answer = status_answer()
    local = (NOW + 4 * MINUTE + timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S+02:00")
    answer["pools"][0]["groups"][0]["until"] = local
    assert "until 12:04:00 UTC" in Seen(document(page_of_status(answer, "x", NOW))).text


def test_bars_have_a_label_for_screen_readers() -> None:
    labels = [value for tag, name, value in Seen(status_page()).attributes if (tag, name) == ("svg", "aria-label")]
    assert "running 3, requested 3, min 1, max 3" in labels


@every_page
def test_tables_have_their_roles(page: Any) -> None:
    seen = Seen(page())
    roles = [value for _, name, value in seen.attributes if name == "role"]
    assert {"table", "row", "rowheader", "columnheader", "cell"} <= set(roles)
    scopes = [value for tag, name, value in seen.attributes if (tag, name) == ("th", "scope")]
    assert len(scopes) == seen.tags.count("th")
    assert ("html", "lang", "en") in seen.attributes
    assert seen.tags.count("h1") == 1


def bars(page: str) -> list[tuple[float, float]]:
    """Return (x, width) of every rectangle in per cent."""
    return [(float(x), float(width)) for x, width in re.findall(r'<rect x="([\d.-]+)%" width="([\d.-]+)%"', page)]


@every_page
def test_every_bar_is_within_its_track(page: Any) -> None:
    assert bars(page())
    for x, width in bars(page()):
        assert x >= 0
        assert width >= 0
        assert x + width <= 100.02


def test_a_live_page_draws_what_the_last_decisions_requested() -> None:
    text = Seen(status_page()).text
    assert "workers: requested nodes per zone over time" in text
    assert "requested nodes" not in Seen(status_page(decisions=status_answer()["decisions"][:1])).text


def test_a_simulation_shows_measures_demand_and_fences() -> None:
    page = simulation_page()
    seen = Seen(page)
    assert "1 min 35 s" in seen.text
    assert "a: 1 to 3 nodes, at the end 2, fenced for 30 min" in page
    assert page.count('class="demand"') == 4  # a line and its entry in the legend, for each of two runs
    assert "after 30 min" in seen.text
    assert (50.0, 50.0) in bars(page)  # the second half of the zone's lane


def test_an_unreadable_cluster_shows_the_stored_state() -> None:
    known = {
        "state": "fenced",
        "class": "quota",
        "failures": 3,
        "message": "too many",
        "lastFailure": rfc3339(NOW),
        "contestedBy": None,
    }
    known["backoffUntil"] = rfc3339(NOW + MINUTE)
    page = status_page(pools=[], groups={"gardener/ns/w-a": known}, unread="no answer within 10 s")
    text = Seen(page).text
    assert "could not be read: no answer within 10 s" in text
    assert "gardener/ns/w-a ■ fenced until 12:01:00 UTC" in text
    assert "failure 3 in a row, quota: too many" in text
    assert "schedule" in text


def test_a_broken_cluster_is_reported_beside_the_others() -> None:
    broken = {"ok": False, "cluster": "grey", "message": "record of cluster grey: flavours is missing"}
    answer = {"ok": True, "clusters": [broken, status_answer()], "message": "2 clusters"}
    text = Seen(document(page_of_status(answer, "x", NOW))).text
    assert "record of cluster grey: flavours is missing" in text
    assert "no machines left" in text


def test_an_unknown_field_is_ignored_and_a_bad_value_is_one_line() -> None:
    answer = json.loads(json.dumps(status_answer()))
    before = document(page_of_status(answer, "x", NOW))
    for part in (answer, answer["pools"][0], answer["pools"][0]["groups"][0], answer["decisions"][0]["pool"]):
        part["newer"] = {"a": 1}
    assert document(page_of_status(answer, "x", NOW)) == before
    answer["pools"][0]["min"] = "many"
    answer["decisions"][0]["pool"]["starved"] = -1
    with pytest.raises(ConfigError) as error:
        page_of_status(answer, "x", NOW)
    assert [fault.partition(":")[2].partition(":")[0] for fault in error.value.faults] == [" pools.0.min is 'many'"]
    answer["pools"][0]["min"] = 3
    with pytest.raises(ConfigError, match=r"^x: decisions\.0\.pool\.starved is '-1'"):
        page_of_status(answer, "x", NOW)


@pytest.mark.parametrize("theme", [Theme.LIGHT, Theme.DARK])
def test_a_widget_has_no_script_and_the_theme_of_the_console(theme: Theme) -> None:
    html = fragment(page_of_status(status_answer(), "x", NOW), theme_of({"widgetContext": {"theme": theme.value}}))
    seen = Seen(html)
    assert not {"script", "iframe", "use", "html", "meta"} & set(seen.tags)
    assert f"--card:{palette(theme)['card']}" in html
    assert "prefers-color-scheme" not in html
    # Rules that are not below .ek would reach the console around the widget.
    rules = re.sub(r"@media[^{]*\{", "", seen.inside["style"])
    selectors = [part for one in re.findall(r"([^{}]+)\{[^}]*\}", rules) for part in one.split(",")]
    assert [selector for selector in selectors if ".ek" not in selector] == []


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", [Theme.LIGHT, Theme.DARK])
def test_every_text_colour_has_enough_contrast(theme: Theme) -> None:
    colours = palette(theme)
    for text in ("text", "soft", "healthy", "fenced", "probing", "frozen"):
        for ground in ("ground", "card"):
            light, dark = sorted((luminance(colours[text]), luminance(colours[ground])), reverse=True)
            assert (light + 0.05) / (dark + 0.05) >= 4.5, f"{text} on {ground}"


def test_durations() -> None:
    reported = [duration(seconds) for seconds in (0, 59, 60, 95, 3600, 3900, 86400, 90000)]
    assert reported == ["0 s", "59 s", "1 min", "1 min 35 s", "1 h", "1 h 05 min", "1 d", "1 d 1 h"]


# ------------------------------------------------------------ the command


def run(*arguments: str, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(app, ["report", *arguments], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    return result


def test_the_command_writes_one_file_without_its_source_path(tmp_path: Path) -> None:
    source, out = tmp_path / "plan.json", tmp_path / "report.html"
    source.write_text(json.dumps(plan_answer()), encoding="utf-8")
    result = run("--plan", str(source), "--out", str(out))
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{out}: 1 pool, 1 zone fenced\n"
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert str(tmp_path) not in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        ([], {"cluster": "*"}),
        (["--live"], {"cluster": "*", "live": True}),
        (["--cluster", "blue"], {"cluster": "blue"}),
    ],
)
def test_the_status_of_a_stack_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], fields: dict[str, Any]
) -> None:
    events = []
    monkeypatch.setattr(stack_client, "ask", lambda stack, event: events.append((stack, event)) or status_answer())
    out = tmp_path / "report.html"
    assert run("--stack", "evenkeel", *options, "--out", str(out)).exit_code == 0
    assert events == [("evenkeel", {"action": "status", **fields})]
    assert "no machines left" in out.read_text(encoding="utf-8")


def test_a_stack_without_an_answer_is_a_one_line_error_and_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask(stack: str, event: dict[str, Any]) -> dict[str, Any]:
        raise CannotAskError("the AWS credentials have expired: renew them and ask again")

    monkeypatch.setattr(stack_client, "ask", ask)
    out = tmp_path / "report.html"
    result = run("--stack", "evenkeel", "--out", str(out))
    assert result.exit_code == 1
    assert result.stderr == "evenkeel: the AWS credentials have expired: renew them and ask again\n"
    assert not out.exists()


PLAN = json.dumps(plan_answer())
BAD = {
    "no source": ((), None, "give one of --stack, --plan, --simulation and --forecast"),
    "two sources": (("--plan", "-", "--stack", "x"), "{}", "give one of --stack, --plan, --simulation and --forecast"),
    "a cluster without a stack": (("--plan", "-", "--cluster", "x"), "{}", "--cluster goes with --stack"),
    "a live check one cluster": (("--stack", "x", "--cluster", "x", "--live"), None, "--live goes with --stack and"),
    "a bucket without a name": (("--plan", "-", "--publish", "s3://"), "{}", "s3:// is no place for a page"),
    "a folder of a bucket": (("--plan", "-", "--publish", "s3://pages/x/"), "{}", "s3://pages/x/ is no place"),
    "no JSON": (("--plan", "-"), "pools: []", "standard input: not JSON"),
    "a list": (("--plan", "-"), "[]", "standard input: the whole is"),
    "another object": (("--plan", "-"), '{"now": "2026-01-15T12:00:00Z"}', "standard input: pools is missing"),
    "a plan for a simulation": (("--simulation", "-"), PLAN, "standard input: scenario is missing"),
    "an unknown state": (("--plan", "-"), PLAN.replace('"fenced"', '"fencd"'), "pools.0.groups.0.state is 'fencd'"),
    "a number beyond all": (("--plan", "-"), PLAN.replace("12", "9" * 400), "standard input: pools.0.max is"),
    "a date beyond all": (
        ("--simulation", "-"),
        json.dumps({**simulation_answer(), "start": "9999-12-31T23:59:59Z"}),
        "standard input: start is",
    ),
    "no folder": (("--plan", "-", "--out", "nowhere/to/x.html"), PLAN, "cannot be written"),
    "no file": (("--plan", "nowhere.json"), None, "nowhere.json: cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_an_error_and_no_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, stdin, line = BAD[name]
    result = run("--out", "report.html", *arguments, stdin=stdin)
    assert result.exit_code == 2, result.output
    lines = result.stderr.splitlines()
    assert lines
    assert all(one.startswith("evenkeel: ") for one in lines)
    assert line in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_half_a_character_in_a_name_is_replaced(tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    broken = json.dumps(plan_answer()).replace('"workers"', '"wor\\ud800kers"')
    assert run("--plan", "-", "--out", str(out), stdin=broken).exit_code == 0
    assert "wor?kers" in out.read_text(encoding="utf-8")


@given(st.data())
def test_any_answer_is_drawn_or_refused(data: st.DataObject) -> None:
    makers = {
        "plan": (plan_answer, lambda reported: page_of_plan(json.dumps(reported), "x")),
        "status": (status_answer, lambda reported: page_of_status(reported, "x", NOW)),
        "simulation": (simulation_answer, lambda reported: page_of_simulation(json.dumps(reported), "x")),
        "forecast": (forecast_answer, lambda reported: page_of_forecast(json.dumps(reported), "x")),
    }
    make, read = makers[data.draw(st.sampled_from(sorted(makers)))]
    reported: Any = make()
    change_one_value(data, reported)
    try:
        page = read(reported)
    except ConfigError:
        return
    for x, width in bars(document(page)):
        assert x >= 0
        assert 0 <= width <= 100.02


def test_the_page_of_a_forecast_shows_who_waits_and_who_is_bound() -> None:
    html = forecast_page()

    for text in (
        "Loss of zone a",
        "Pods that need a place",
        "Pods bound to a",
        "default/bound",
        "PoolMaximum is reached",
    ):
        assert text in html


def test_the_page_of_a_fleet_has_a_section_for_each_cluster() -> None:
    reported = {
        "clusters": [{**forecast_answer(), "cluster": "blue"}],
        "spared": [],
        "unread": {"green": "green does not answer"},
    }

    html = document(page_of_forecast(json.dumps(reported), "forecast.json"))

    assert "blue: loss of zone a" in html
    assert "The cluster could not be read: green does not answer" in html
