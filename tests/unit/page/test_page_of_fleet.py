"""The page of many clusters: the worst first, each fact once, and what to do."""

import json
import re
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import Theme, document, fragment, summary
from evenkeel.adapters.page_anchors import incident_anchor
from evenkeel.application.rebalancing.decisions import plan_json
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.texts.english import rfc3339
from evenkeel.validation import ConfigError
from evenkeel_cli.answers import print_answer
from evenkeel_cli.printed_pages import page_of_plan
from tests.builders import NOW, change_one_value, in_backoff, key, numbers, zones
from tests.fakes import register
from tests.pages import QUOTA, Seen, fleet_answer, quota_answer
from tests.stack import Stack
from tests.unit.page.test_page import status_answer

FLEET = fleet_answer(40)


def page(answer: Any) -> str:
    return document(page_of_status(answer, "answer of stack x", NOW))


def headline(answer: Any) -> str:
    return summary(page_of_status(answer, "x", NOW))


def rows_of(html: str, title: str) -> list[list[str]]:
    """Return the cells of a table as texts."""
    (table,) = re.findall(rf'<section class="card rows" aria-label="{title}">(.*?)</section>', html, re.S)
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", table.partition("<tbody")[2], re.S)
    return [[Seen(cell).text for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.S)] for row in rows]


def cards_of(html: str) -> list[str]:
    return re.findall(r'<section id="cluster-[^"]*" aria-label="([^"]*)"', html)


def test_clusters_are_listed_worst_first_with_a_link_to_their_card() -> None:
    html = page(FLEET)
    names = [cluster["cluster"] for cluster in FLEET["clusters"]]
    assert cards_of(html) == names
    rows = rows_of(html, "Clusters with incidents")
    folded = {cluster["cluster"] for cluster in FLEET["clusters"] if cluster.get("folded")}
    assert [row[0] for row in rows] == [name for name in names if name not in folded]
    assert rows[0][1:] == ["critical", "workers: quota", "5 of 14 missing, no zone delivers", "41 min"]
    assert rows[4] == ["prod-eu-01", "info", "batch: over committed (+1)", "", "9 min"]
    assert rows[-1][1:] == ["", "not checked yet", "", ""]
    seen = Seen(html)
    links = [value for tag, name, value in seen.attributes if (tag, name) == ("a", "href")]
    places = {f"#{value}" for _, name, value in seen.attributes if name == "id"}
    assert links
    assert {link for link in links if link.startswith("#")} <= places
    ahead = page_of_status(FLEET, "x", NOW - timedelta(hours=9))  # the clock of another machine
    assert "-" not in rows_of(document(ahead), "Clusters with incidents")[0][4]
    assert html.index("Clusters with incidents") < html.index(">Zones<") < html.index('id="cluster-prod-eu-01"')


def test_the_headline_counts_missing_nodes_and_unknown_clusters() -> None:
    assert headline(FLEET) == (
        "10 of 40 clusters with incidents, 16 nodes missing; "
        "outage: no zone is known to deliver for prod-eu-02/workers; 1 not checked yet; 2 paused; 27 well; 3 in dry run"
    )


def test_the_headline_names_two_pools_without_a_zone_that_delivers_the_worst_first() -> None:
    incident = {"kind": "missing", "severity": "critical", "since": "2026-01-15T11:00:00Z", "headline": "x"}
    rows = [
        {
            "cluster": f"c{missing}",
            "state": "incident",
            "message": "x",
            "incidents": [{**incident, "outage": True, "missing": missing, "pool": "capi/prod/workers"}],
        }
        for missing in (1, 2, 3, 4)
    ]
    for count, words in ((2, "c2/workers, c1/workers;"), (4, "c4/workers, c3/workers and 2 other pools;")):
        answer = FLEET | {"clusters": rows[:count], "causes": []}
        assert f"no zone is known to deliver for {words}" in headline(answer)
        printed = StringIO()
        print_answer(answer, Console(file=printed, width=80))
        assert printed.getvalue().startswith(f"outage: no zone is known to deliver for {words.rstrip(';')}")


@given(
    st.lists(st.sampled_from(["incident", "unseen"]), max_size=4),
    st.lists(st.sampled_from(["well", "paused"]), max_size=4),
)
def test_only_clusters_that_were_read_are_well(bad: list[str], good: list[str]) -> None:
    answer = {
        **{"now": rfc3339(NOW), "incident": bool(bad), "causes": [], "message": "x"},
        "clusters": [{"cluster": f"b{number}", "state": state, "message": "x"} for number, state in enumerate(bad)],
        "others": {
            state: [f"g{number}" for number, each in enumerate(good) if each == state] for state in ("well", "paused")
        },
        "counts": {"dryRun": 0},
    }
    reported = headline(answer)
    counts = {state: int(number) for number, state in re.findall(r"(\d+) (well|paused|not checked yet)", reported)}
    found = {state: good.count(state) for state in ("well", "paused")} | {"not checked yet": bad.count("unseen")}
    assert counts == {state: number for state, number in found.items() if number}
    assert reported.startswith(f"{bad.count('incident')} of {len(bad) + len(good)} cluster")
    seen = Seen(page(answer)).text
    assert ("No incident" in seen) is (not bad and bool(good))
    assert ("No cluster is registered" in seen) is (not bad and not good)


def test_zones_show_their_clusters() -> None:
    html = page(FLEET)
    a, b, c = rows_of(html, "Zones")
    assert a == [
        "eu-central-1a",
        "4 clusters",
        "prod-eu-02 (quota), prod-eu-01 (capacity), prod-eu-03 (capacity), prod-eu-04 (capacity)",
    ]
    assert (b[:2], c[:2]) == (["eu-central-1b", "2 clusters"], ["eu-central-1c", "2 clusters"])


def _in_a(*accounts: dict[str, Any]) -> str:
    """Return the page of clusters that all miss nodes in their zone eu-central-1a, or in a given zone."""
    stack = Stack()
    stack.store.remove_record("demo", stack.store.load("demo").versions)
    for number, fields in enumerate(accounts, 1):
        zone = fields.pop("zone", "eu-central-1a")
        register(stack.store, f"c{number}", **fields)
        incident = Incident(kind=IncidentKind.MISSING, since=NOW, pool="x/y/z", zones=(zone,), missing=1, requested=2)
        stack.store.save_cluster_health(f"c{number}", ClusterHealth().with_incidents([incident]), None)
    return page(stack.ask("status", None))


OURS, THEIRS = {}, {"account": "1" * 12}
OF_A, OF_B = {"zone_ids": {"euc1-az2": "eu-central-1a"}}, {"zone_ids": {"euc1-az2": "eu-central-1b"}}
ONE = "1 cluster"


@pytest.mark.parametrize(
    ("accounts", "rows"),
    [
        ([OURS, OURS], {"eu-central-1a": "2 clusters"}),
        ([OURS, {"account": "111111111111"}], {"eu-central-1a": ONE, "eu-central-1a of 111111111111": ONE}),
        (
            [OF_A, {**THEIRS, "zone_ids": {"euc1-az3": "eu-central-1a"}}],
            {"euc1-az2 (eu-central-1a)": ONE, "euc1-az3 (eu-central-1a)": ONE},
        ),
        (
            [OF_A, {**THEIRS, **OF_B, "zone": "eu-central-1b"}, OURS],  # the third is of the first's account
            {"euc1-az2 (eu-central-1a, eu-central-1b)": "3 clusters"},
        ),
    ],
)
def test_zones_of_one_name_are_added_up_only_if_they_are_one_zone(
    accounts: list[dict[str, Any]], rows: dict[str, str]
) -> None:
    html = _in_a(*(dict(fields) for fields in accounts))
    assert {row[0]: row[1] for row in rows_of(html, "Zones")} == rows
    assert "added up by its name" not in html


@pytest.mark.parametrize(
    "accounts",
    [
        [{"event_accounts": ["1" * 12, "2" * 12]}] * 2,  # either account may buy
        [{"zone": "1"}, {"zone": "1"}],  # each of Azure's regions has one
        [{"zone_ids": {"euc1-az2": "eu-central-1a"}}, {"zone_ids": {"euc1-az3": "eu-central-1a"}}, {}, {}],
    ],
)
def test_zones_that_may_differ_are_marked_as_added_up_by_name(accounts: list[dict[str, Any]]) -> None:
    html = _in_a(*(dict(fields) for fields in accounts))
    assert rows_of(html, "Zones")[0][1] == "2 clusters"
    assert "added up by its name" in html


def test_a_card_shows_counts_the_cloud_message_and_what_to_do() -> None:
    text = Seen(page(FLEET)).text
    first = FLEET["clusters"][0]["incidents"][0]
    for words in ("9 of 14 running, 5 missing", first["headline"], first["todo"], first["command"], first["runbook"]):
        assert words in text


def test_a_quota_of_every_zone_is_shown_once() -> None:
    text = Seen(page(quota_answer() | {"decisions": []})).text
    assert text.count(QUOTA) == 1
    assert text.count("backoff after quota failure") == 1
    assert "6 of 9 running, 3 missing" in text
    assert "on their way" not in text, "a missing node is not"


def test_zones_that_are_all_probed_are_an_outage_in_the_headline() -> None:
    assert {group["state"] for group in quota_answer()["pools"][0]["groups"]} == {"probing"}
    assert "outage: no zone is known to deliver for demo/workers" in headline(quota_answer())
    seven = fleet_answer(7)["clusters"]
    outages = [cluster for cluster in seven if any(incident["outage"] for incident in cluster["incidents"])]
    assert [incident["missing"] for incident in outages[0]["incidents"]] == [5], "also while nodes are missing there"
    plans = plan(
        Observation(groups=tuple(zones([3, 3, 3]))),
        ClusterState(groups={key(zone): in_backoff() for zone in "abc"}),
        numbers(3, 12),
        NOW,
    )
    assert "outage" in summary(page_of_plan(json.dumps(plan_json(plans)), "plan.json"))
    assert "outage" not in headline(status_answer()), "one of its zones is fenced, two deliver"


def test_in_a_live_check_healthy_clusters_are_folded_and_last() -> None:
    fine = status_answer(cluster="green", zones={}, incident=False)
    html = page({"clusters": [fine, quota_answer(), {"ok": False, "cluster": "grey", "message": "no record"}]})
    assert cards_of(html) == ["demo", "grey", "green"]
    assert [("open" in fold) for fold in re.findall(r"<details([^>]*)><summary><h2>", html)] == [True, True, False]
    assert [row[:3] for row in rows_of(html, "Clusters with incidents")] == [
        ["demo", "critical", "workers: quota"],
        ["grey", "warning", "not readable"],
    ]


def test_at_most_a_hundred_cards_are_open_and_none_that_a_cause_reports() -> None:
    fleet = fleet_answer(130, 130)
    assert '<details open="">' not in page(fleet)
    html = page(fleet | {"clusters": [cluster | {"folded": False} for cluster in fleet["clusters"]]})
    assert len(cards_of(html)) == 130 - 2, "two are paused"
    assert len(re.findall(r'<details open="">', html)) == 100


def test_a_widget_has_no_links_ids_or_search() -> None:
    html = fragment(page_of_status(FLEET, "x", NOW), Theme.DARK)
    seen = Seen(html)
    assert not {"a", "input", "select", "script"} & set(seen.tags)
    assert not [name for _, name, _ in seen.attributes if name in ("id", "href")]
    assert "prod-eu-01" in seen.text


def test_a_pool_shows_its_pending_pods_and_unneeded_nodes() -> None:
    answer = status_answer()
    says = ["3 pods wait for 4 min, for a node of this pool.", "Of its 9 nodes, nobody needs node-7."]
    answer["pools"][0]["demand"] = {"says": says}
    answer["demand"] = {"says": ["2 pods wait, and no node is asked for: no pool has so much memory."]}
    card = page(answer).partition(">workers<")[2]
    for words in says:
        assert words in Seen(card).text
    assert "no pool has so much memory" in Seen(page(answer)).text


def test_empty_parts_say_why_they_are_empty() -> None:
    assert "No pool: no node group is managed" in Seen(page(status_answer(pools=[], zones={}, decisions=[]))).text
    unread = status_answer(pools=[], groups={}, unread="no answer within 10 s")
    assert "No failure of its node groups is stored" in Seen(page(unread)).text
    empty = {"now": "2026-01-15T12:00:00Z", "pools": []}
    assert "No pool: no node group is managed" in Seen(document(page_of_plan(json.dumps(empty), "x"))).text


def test_an_unknown_kind_of_incident_is_shown_by_its_name() -> None:
    newer = json.loads(json.dumps(FLEET))
    newer["clusters"][0]["incidents"][0] |= {"kind": "eaten-by-mice", "class": None, "more": {"a": 1}}
    assert "workers: eaten mice" not in Seen(page(newer)).text
    assert "workers: eaten by mice" in Seen(page(newer)).text


@pytest.mark.parametrize("name", ["-", "a b", '"><script>', "ä/ö", "x" * 250, "#", "%41"])
def test_a_link_finds_its_card_for_any_cluster_name(name: str) -> None:
    odd = json.loads(json.dumps(FLEET))
    odd["clusters"][0]["cluster"] = name
    seen = Seen(page(odd))
    (first, *_) = [value for _, attribute, value in seen.attributes if attribute == "href" and value.startswith("#")]
    assert first.removeprefix("#") in {value for _, attribute, value in seen.attributes if attribute == "id"}
    assert re.fullmatch(r"#cluster-[A-Za-z0-9_.~%-]+", first)


def test_each_incident_of_the_page_has_the_anchor_that_its_notification_links_to() -> None:
    ids = [value for _, attribute, value in Seen(page(FLEET)).attributes if attribute == "id"]
    assert len(ids) == len({*ids})
    named = [(of_cluster["cluster"], each) for of_cluster in FLEET["clusters"] for each in of_cluster["incidents"]]
    assert named
    anchors = {incident_anchor(cluster, each["kind"], each["pool"] or "") for cluster, each in named}
    assert anchors <= {*ids}


@given(st.data())
def test_any_answer_of_a_fleet_is_drawn_or_refused(data: st.DataObject) -> None:
    reported: Any = json.loads(json.dumps(FLEET))
    change_one_value(data, reported)
    try:
        html = page(reported)
    except ConfigError:
        return
    assert "<script" in html
