"""From activities alone, a replay's times must be the true ones, or there must be no verdict."""

from pathlib import Path
from statistics import median

import pytest
import yaml

from evenkeel_cli.lookback.auto_scaling import Answers, read_history
from evenkeel_cli.lookback.outages import outages_of, windows_of
from evenkeel_cli.lookback.replay import Answer, answer
from evenkeel_cli.lookback.report import Report
from evenkeel_cli.simulation.scenario import Scenario, read_scenario
from sandbox.template import ROOT
from tests.lookback_worlds import Past, live, week

SCENARIOS = Path(ROOT) / "scenarios"


def shipped(name: str) -> Scenario:
    return read_scenario(yaml.safe_load((SCENARIOS / f"{name}.yaml").read_text(encoding="utf-8")), name)


def report_of(past: Past) -> Report:
    answers = Answers()
    answers.read_files(past.files)
    history = read_history(answers, 28, past.now)
    outages = outages_of(history)
    return Report(history, outages, [answer(history, window) for window in windows_of(history, outages)])


def judge(past: Past, found: list[Answer], apart: float = 0.1) -> None:
    """Compare the figures of the history and of replays without Evenkeel with the truth in the same hours."""
    for one in found:
        assert not one.missing
        waited, nodes = past.between(one.window.since, one.window.until)
        # The verdict judges by the median of the replays.
        for waiting in (one.happened.waiting, median(figures.waiting for figures in one.alone)):
            assert waiting == pytest.approx(waited, rel=apart, abs=300)
        for figures in (one.happened, *one.alone):
            assert figures.nodes == pytest.approx(nodes, rel=0.03)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("name", ["zone-outage-at-night", "two-zones-out", "flapping-quota"])
def test_a_replay_waits_as_long_as_the_pods_did(name: str, seed: int) -> None:
    past = live(shipped(name), seed=seed)
    report = report_of(past)
    judge(past, [*report.answers])
    assert report.has_verdict


def test_launches_that_are_refused_at_once_show_the_need_as_well() -> None:
    past = live(shipped("zone-outage-at-night"), late=(0, 0), replaced=0)
    judge(past, [*report_of(past).answers])


def test_a_quota_is_no_reason_to_install_anything() -> None:
    (found,) = report_of(live(shipped("flapping-quota"), seed=1)).answers
    assert found.verdict == "nothing"


def test_pools_share_a_quota() -> None:
    pools = [{"name": name, "min": 3, "max": 18, "start": start} for name, start in (("web", 6), ("batch", 3))]
    demand = [
        {"pool": name, "nodes": [{"at": "0s", "nodes": few}, {"at": at, "nodes": many}, {"at": "5h", "nodes": few}]}
        for name, at, few, many in (("web", "90m", 6, 12), ("batch", "95m", 3, 8))
    ]
    quota = {"nodes": [{"at": "0s"}, {"at": "80m", "nodes": 12}, {"at": "3h"}]}
    zones = [{"name": f"eu-central-1{letter}"} for letter in "abc"]
    document = {"name": "x", "duration": "6h", "zones": zones, "pools": pools, "demand": demand, "quota": quota}
    past = live(read_scenario(document, "x"), replaced=0)
    judge(past, [*report_of(past).answers])


def test_a_gain_that_depends_on_the_unknown_end_of_a_quota_is_no_claim() -> None:
    report = report_of(live(shipped("flapping-quota"), seed=7))
    assert [one.verdict for one in report.answers] == ["unsure"]
    assert [*report.sentences()][2].startswith("Evenkeel may have changed nothing: with it, pods would have waited ")


def test_an_outage_waits_a_tenth_of_the_time_with_evenkeel() -> None:
    (found,) = report_of(live(shipped("zone-outage-at-night"), seed=1)).answers
    assert found.verdict == "changed"
    assert max(one.waiting for one in found.evenkeel) < min(one.waiting for one in found.alone) / 10


@pytest.mark.parametrize("name", ["scarce-zone", "zone-bound-demand"])
def test_there_is_no_verdict_about_pods_that_are_bound_to_a_zone(name: str) -> None:
    report = report_of(live(shipped(name)))
    assert not report.has_verdict
    reasons = [*report.doubts(), *(missing for one in report.answers for missing in one.missing)]
    assert any("nodes were ordered in workers-eu-central-1a" in reason for reason in reasons)


@pytest.mark.parametrize("seed", range(3, 9))
@pytest.mark.parametrize("name", ["zone-outage-at-night", "two-zones-out", "flapping-quota"])
def test_many_outages_are_replayed_exactly(name: str, seed: int) -> None:
    past = live(shipped(name), seed=seed)
    judge(past, [*report_of(past).answers])


def test_a_week_with_three_outages_is_replayed_exactly() -> None:
    past = live(week(), replaced=7)
    judge(past, [*report_of(past).answers])
