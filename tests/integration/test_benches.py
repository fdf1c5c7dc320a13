"""The benches that run built functions work, at the smallest sizes: what they count is right, or they raise."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import bill, figures, load, many, overview, pages, quiet_look, ready, workload_view
from bench.growth_split import split
from evenkeel.domain.model.water_fill import Bucket, water_fill


@pytest.fixture(autouse=True)
def kept_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(figures, "FILE", tmp_path / "figures.json")


def test_a_quiet_look_is_measured_with_connections_kept_and_new() -> None:
    quiet_look.main(["--groups", "3", "--chunk", "2", "--rounds", "1"])
    found = figures.read()
    assert found["asks glance kept 3"]["requests"] < found["asks whole kept 3"]["requests"]
    assert found["asks whole kept 3"]["requests"] < found["asks whole met anew 3"]["requests"]
    assert found["glance kept 3 2"]["cpu_ms"] > 0


def test_status_of_all_is_four_queries_and_a_line_for_each_cluster_in_trouble() -> None:
    found = overview.measure(120, 40, rounds=1)
    assert found["asked"] == {"Query": 4}
    assert len(found["lines"]) == 40 + 2 + 1
    assert found["lines"][-1] == "78 others: 78 well"
    assert max(map(len, found["lines"])) <= 80


def test_readiness_of_all_is_one_query_for_each_cluster_and_one_for_all() -> None:
    found = ready.measure(5, 4)
    assert (found["asked"], found["states"], found["left"]) == ({"Query": 5 + 1}, {"ready": 5}, 0)


def test_a_page_is_measured_with_all_that_it_has_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "find_chromium", lambda: None)  # the browser has tests of its own
    found = pages.measure({"groups": pages.told_groups(6), "fleet": pages.told_fleet(12, 12)}, 1)
    assert all(f"pool-{number:03}" in found["groups"]["html"] for number in (0, 1))
    assert "prod-eu-12" in found["fleet"]["html"]


def test_an_action_on_all_clusters_is_one_invocation_and_once_more_it_writes_nothing() -> None:
    found = many.measure(30, milliseconds=1, dark=0)
    assert {name: (one["invocations"], one["ok"], one["left"]) for name, one in found.items()} == dict.fromkeys(
        found, (1, 30, 0)
    )
    assert found["apply, once more"]["asked"] == {"Query": 30}


def test_clusters_are_scanned_looked_at_and_brought_through_an_outage(capsys: pytest.CaptureFixture[str]) -> None:
    load.main(["--clusters", "20", "--outage", "2", "--hanging", "0"])
    assert "20 clusters looked at" in (printed := capsys.readouterr().out)
    assert "2 events, 2 messages, 2 looks" in printed


def test_a_workload_is_read_whole_by_a_process_of_its_own() -> None:
    found = workload_view.measure(nodes=3, pods=1_100)  # more than a page
    assert found["specs"] < 1_100
    assert found["received_mib"] > 5


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12),
    st.integers(0, 60),
)
def test_the_loop_that_splitting_is_compared_with_splits_alike(groups: list[tuple[int, int]], nodes: int) -> None:
    buckets = [Bucket(level=level, room=room, tie=i * 7 % 13) for i, (level, room) in enumerate(groups)]
    assert split(buckets, nodes) == water_fill(buckets, nodes)


def test_the_bill_that_the_docs_show_is_what_is_reckoned(capsys: pytest.CaptureFixture[str]) -> None:
    bill.main()
    page = Path(__file__).parents[2] / "docs" / "bill.md"
    assert capsys.readouterr().out.strip() in page.read_text(encoding="utf-8")
