"""The benches work at the smallest sizes. Their counts are right, or they raise."""

import argparse
import re
from pathlib import Path
from typing import Any

import pytest

from bench import auto_scaling, auto_scaling_outage, oracle, pages, provision_times, rows, stack, stored, workload_view
from bench.__main__ import BENCHES, main, options_of
from evenkeel.adapters.page.render import document
from evenkeel.adapters.page.view import Page
from sandbox.template import ROOT

DOCS = [ROOT / "README.md", ROOT / "layers" / "dependencies" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def figures(bench: rows.Rows) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in bench:
        if not isinstance(row, str):
            found.setdefault(row[0], {}).update(row[1])
    return found


def test_the_figures_of_a_bench_are_printed_as_a_table_and_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(rows, "FILE", tmp_path / "build" / "figures.json")
    monkeypatch.setitem(BENCHES, "two", lambda times=1: iter([("a", {"ms": [3.0 * times, 1.0, 2.0], "is": "so"})]))
    main(["two", "--times", "4"])
    assert capsys.readouterr().out == "\n## two\n\n| figure | ms | is |\n|--|--|--|\n| a | 2 (1-12) | so |\n"
    assert rows.read() == {"a": {"ms": 2.0}}
    with pytest.raises(SystemExit, match="name one bench before its options"):
        main(["two", "bill", "--times", "4"])


def test_a_bench_that_a_page_names_exists_with_its_options() -> None:
    named = 0
    for page in DOCS:
        for name, options in re.findall(r"python -m bench ([a-z_]+)([^`]*)`", page.read_text(encoding="utf-8")):
            named += 1
            assert isinstance(options_of(BENCHES[name], options.split()), dict), page
    assert named > 10
    with pytest.raises((SystemExit, argparse.ArgumentError)):
        options_of(BENCHES["load"], ["--no-such-option"])


@pytest.mark.parametrize("name", provision_times.DISTRIBUTIONS)
def test_a_learned_timeout_takes_hardly_an_order_for_silent(name: str) -> None:
    for samples in provision_times.SAMPLES:
        allowed = 3 if name == "mixed types" and samples < provision_times.KEPT else 1
        share, _ = provision_times.false_timeouts(name, samples, orders=2000, seed=7)
        assert 1000 * share <= allowed, samples


def test_a_quiet_check_is_measured_with_connections_kept_and_new() -> None:
    found = figures(stack.quiet_check(groups=(3,), chunk=(2,), rounds=1))
    assert found["traffic quick kept 3"]["requests"] < found["traffic full kept 3"]["requests"]
    assert found["traffic full kept 3"]["requests"] < found["traffic full met anew 3"]["requests"]
    assert found["quick kept 3 2"]["cpu_ms"][0] > 0


def test_a_quiet_check_of_auto_scaling_groups_reads_a_hundred_groups_with_a_call() -> None:
    found = figures(auto_scaling.auto_scaling_check(groups=(3, 120), rounds=1))
    calls = {name: row["calls"] for name, row in found.items() if name != "a call of EKS"}
    assert calls == {
        f"{kind} {of} {groups}": [calls]
        for of in ("auto-scaling", "managed node groups")
        for kind in ("full", "quick")
        for groups, calls in ((3, 1), (120, 2))
    }
    assert found["full managed node groups 120"]["eks_calls"][0] <= 20
    assert found["quick managed node groups 120"]["eks_calls"] == [0]


def test_a_check_in_each_of_many_accounts_is_a_call_a_minute_and_none_is_throttled() -> None:
    found = figures(auto_scaling.auto_scaling_accounts(accounts=4, groups=3, minutes=2))
    assert found["quick auto-scaling 3 4 accounts"]["calls"] == [1, 1]


def test_status_of_all_is_three_queries_and_folds_the_incident_that_clusters_share() -> None:
    (found,) = figures(stored.status_of_all(clusters=120, unreachable=40, rounds=1)).values()
    assert found["requests"] == "3 Query"
    parts = "40 unreachable and a command, two with missing nodes, where to read on, the oldest check, all others"
    assert found["lines"] == 4 + 2 + 1 + 1 + 1, parts
    assert found["last line"] == "oldest check: cluster-00040, just now"


def test_readiness_of_all_is_two_queries_for_each_cluster_and_one_for_all() -> None:
    (found,) = figures(stored.readiness_of_all(clusters=5, decisions=4)).values()
    assert (found["requests"], found["states"], found["left"]) == ("11 Query", "5 ready", 0)


def test_a_page_is_measured_with_all_that_it_has_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "find_chromium", lambda: None)  # the browser has its own tests
    written: list[str] = []

    def keep(page: Page) -> str:
        written.append(document(page))
        return written[-1]

    monkeypatch.setattr(pages, "document", keep)
    assert all(row["kB"] > 1 for row in figures(pages.pages(clusters=12, groups=6)).values())
    assert all(f"pool-{number:03}" in written[0] for number in (0, 1))
    assert "prod-eu-12" in written[2]


def test_an_action_on_all_clusters_is_one_invocation_and_once_more_it_writes_nothing() -> None:
    found = figures(stored.actions_on_all(clusters=30, milliseconds=1))
    assert {name: (one["invocations"], one["ok"], one["left"]) for name, one in found.items()} == dict.fromkeys(
        found, (1, 30, 0)
    )
    assert found["apply, once more"]["requests"] == "30 Query"


def test_clusters_are_scanned_checked_and_brought_through_an_outage() -> None:
    found = figures(stack.load(clusters=20, outage=2, hanging=0))
    assert found["minute 20"]["clusters"] == 20
    assert (found["outage"]["events"], found["outage"]["runs"]) == (2, 2)


def test_a_failure_and_pending_pods_reach_the_api_server_as_patches() -> None:
    assert figures(stack.failure_to_patch(rounds=1))["warm"]["patches"][0] > 0
    assert set(figures(stack.pods_to_machines(rounds=1))) == {"pods to machines event", "pods to machines scan"}


def test_a_workload_is_read_whole_by_a_process_of_its_own() -> None:
    (found,) = figures(workload_view.workload_view(nodes=(3,), pods_per_node=367)).values()  # more than a page
    assert found["specs"] < 1_101
    assert found["received_mib"] > 5
    assert found["kept_requests"] < found["requests"]


def test_random_worlds_are_the_same_however_often_they_are_played() -> None:
    lines, again = oracle.play(3)[0], oracle.play(3)[0]
    assert list(map(oracle.text, lines)) == list(map(oracle.text, again))
    assert oracle.digest(lines) != oracle.digest(oracle.play(4)[0])


def test_plans_and_stored_state_of_random_worlds_are_the_recorded_ones() -> None:
    """An intended change of a rule changes them: CONTRIBUTING.md says how to renew the recording."""
    kept = oracle.recorded()
    found = {seed: oracle.digest(oracle.play(seed)[0]) for seed in range(30)}
    assert found == {seed: kept[seed] for seed in found}


def test_a_world_equals_its_lines_in_a_file(tmp_path: Path) -> None:
    file = str(tmp_path / "lines.gz")
    list(oracle.oracle(worlds=3, write=file))
    assert figures(oracle.oracle(worlds=2, first=1, against=file))["seeds 1 to 2"]["differ"] == 0
    with pytest.raises(SystemExit):
        list(oracle.oracle(worlds=1, against=file, rename="GROUP#=NODES#"))


def test_a_comparison_names_the_path_of_each_difference() -> None:
    before = {"a": {"b": [1, 2]}, "c": True, "gone": None}
    after = {"a": {"b": [1, 3]}, "c": 1}
    assert list(oracle.differences(before, after)) == [("/a/b/1", 2, 3), ("/c", True, 1), ("/gone", None, "(missing)")]


def test_the_bill_of_the_docs_is_what_is_calculated(capsys: pytest.CaptureFixture[str]) -> None:
    rows.print_rows(BENCHES["bill"]())
    page = ROOT / "docs" / "operate/cost.md"
    assert capsys.readouterr().out.strip() in page.read_text(encoding="utf-8")


def test_checks_of_an_outage_make_few_calls_and_throttle_no_read_of_the_autoscaler() -> None:
    found = figures(auto_scaling_outage.auto_scaling_outage(groups=30, failing=10, minutes=2))
    assert [found[f"{kind} 30"]["calls"] for kind in ("auto-scaling", "managed node groups")] == [[2, 2], [2, 2]]
    shares = [row["throttled_percent"] for name, row in found.items() if name.startswith("reads of")]
    assert shares == [0, 0, 0, 0]
