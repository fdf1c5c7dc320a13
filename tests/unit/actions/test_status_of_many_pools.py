"""The status of a cluster with many pools: healthy ones as one line, a repeated text once, one pool by its name."""

from collections.abc import Sequence
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import document
from evenkeel_cli.answers import print_answer
from tests.builders import key, zones
from tests.pages import Seen, pools_answer
from tests.stack import Stack

COUNT = 14


def name(number: int) -> str:
    return f"team-{number:02}"


@pytest.fixture
def stack() -> Stack:
    """Return a stack with fourteen pools of six nodes. Two of them have a failure in zone a."""
    pools = [name(number) for number in range(COUNT)]
    groups = [group for pool in pools for group in zones((2, 2, 2), bounds=[(1, 9)] * 3, pool=pool)]
    made = Stack(groups, pools=[{"name": pool, "min": 3, "max": 12} for pool in pools])
    for pool in pools[:2]:
        made.fail("a", pool=pool)
    return made


def printed(answer: dict[str, Any], width: int = 90, decisions: Sequence[Any] = ()) -> list[str]:
    quote = StringIO()
    print_answer(answer | {"decisions": decisions, "actions": []}, Console(file=quote, width=width))
    return quote.getvalue().splitlines()


def page(answer: dict[str, Any], stack: Stack) -> str:
    return document(page_of_status(answer, "x", stack.clock.at))


def test_healthy_pools_are_one_line_and_a_repeated_text_is_printed_once(stack: Stack) -> None:
    lines = printed(stack.ask("status"))
    assert [line.partition(":")[0] for line in lines if "Balanced" in line] == ["team-00", "team-01"]
    assert [line for line in lines if "the cloud says" in line] == ["  team-00, team-01: a: the cloud says: no room"]
    assert len([line for line in lines if "capacity failure" in line]) == 1
    assert lines[-1] == "12 healthy pools, 72 nodes"


def test_unhealthy_leaves_healthy_pools_out_of_the_answer(stack: Stack) -> None:
    answer = stack.ask("status", unhealthy=True)
    assert [pool["name"] for pool in answer["pools"]] == ["team-00", "team-01"]
    assert answer["healthy"] == {"pools": 12, "nodes": 72}
    assert printed(answer)[-1] == "12 healthy pools, 72 nodes"


def test_one_pool_is_printed_whole_also_if_it_is_healthy(stack: Stack) -> None:
    lines = printed(stack.ask("status", pool="team-09"))
    assert lines[1].startswith("team-09: Balanced, min 3, max 12")
    assert not [line for line in lines if "healthy pool" in line]
    assert stack.refused("status", pool="team-77").startswith("pool is 'team-77'")
    assert "name the cluster" in stack.refused("status", cluster=None, pool="team-09")


def test_many_unhealthy_pools_are_one_row_each(stack: Stack) -> None:
    stack.ask("fence-zone", zone="a", **{"for": "2h"})
    answer = stack.ask("status")
    lines = printed(answer)
    assert [line.split() for line in lines if line.startswith("team-05")] == [
        ["team-05", "6", "of", "6", "3", "12", "a", "fenced"]
    ]
    assert len(lines) < 2 * COUNT
    assert len([line for line in lines if "zone a is impaired" in line]) == 1
    html = page(answer, stack)
    assert html.count('<details class="one">') == COUNT
    assert Seen(html).text.count("zone a is impaired") == 1


def test_missing_nodes_messages_and_remedies_of_many_pools_are_reported_once(stack: Stack) -> None:
    stack.ask("fence-zone", zone="a", **{"for": "2h"})
    answer = stack.ask("status")
    for number, pool in enumerate(answer["pools"]):
        said = f"no room, request id: {number:08}-0000-4000-8000-000000000040"
        pool["groups"][0]["failure"] = {"message": said}
        pool["groups"][1]["held"] = [f"held {number} times"]
    incident = {"severity": "critical", "kind": "missing", "todo": "Fix it", "command": "evenkeel x", "runbook": "url"}
    pools = [answer["pools"][number] for number in (7, 9)]
    answer["incidents"] = [
        {**incident, "pool": f"ns/{pool['name']}", "groups": [str(key("a", pool=pool["name"]))], "missing": 2 + n}
        for n, pool in enumerate(pools)
    ]
    lines = printed(answer)
    assert lines[1] == "critical  5 nodes missing: team-07, team-09"
    assert lines[2:4] == ["  What to do (url): Fix it:", "    evenkeel x"]
    rows = [line.split() for line in lines if line.startswith("team-")]
    assert rows[0][:6] == ["team-09", "6", "of", "9,", "3", "missing"]
    assert rows[1][:6] == ["team-07", "6", "of", "8,", "2", "missing"]
    assert len([line for line in lines if "request id: …" in line]) == 1
    assert "  4 more notes: --pool NAME prints those of a pool" in lines


def test_the_page_sums_up_alike_incidents_and_lists_the_pool_with_most_missing_nodes_first(stack: Stack) -> None:
    stack.ask("fence-zone", zone="a", **{"for": "2h"})
    answer = stack.ask("status")
    incident = {"severity": "critical", "kind": "missing", "class": "capacity", "zones": ["a"], "todo": "Fix it"}
    answer["incidents"] = [
        {
            **incident,
            "pool": f"ns/{name(number)}",
            "groups": [str(key("a", pool=name(number)))],
            "missing": missing,
            "since": f"2026-01-15T11:{number}:00Z",
            "headline": f"{name(number)} lacks nodes",
        }
        for number, missing in ((11, 2), (12, 4))
    ]
    text = Seen(page(answer, stack)).text
    title = "2 pools: 6 nodes missing: capacity in a"
    assert text[text.index(title) + len(title) :].strip().startswith("since 11:11:00 UTC")
    assert text.index("team-12 6 of 10 running, 4 missing") < text.index("team-11 6 of 8 running, 2 missing")
    assert text.index("team-11 6 of 8") < text.index("team-00 6 of 6")


def test_a_zone_of_several_pools_is_named_with_its_fence_before_the_pools() -> None:
    stack = pools_answer(40)
    answer = stack.ask("status")
    lines = printed(answer)
    assert lines[1].startswith(
        "critical  zone a: 26 pools of 1 cluster, 52 nodes missing for 7 min, since 2026-01-15T12:00"
    )
    assert lines[2].startswith("  team-01, team-02, team-04, ")
    assert lines[3].endswith("in this cluster:")
    assert lines[4] == "    evenkeel fence-zone --stack NAME --zone a --cluster demo --for 2h"
    assert not [line for line in lines[5:] if line.startswith(("critical", "  What to do"))]
    assert [line.split()[0] for line in lines if " a probing" in line and "missing" in line] == [
        *(name(number) for number in (1, 2, 4, 5, 7, 8, 10, 11, 13, 14)),
        "16",
    ]
    (rest,) = (line.split() for line in lines if line.startswith("16 more"))
    assert rest[2:7] == ["96", "of", "128,", "32", "missing"]
    assert lines[-1] == "14 healthy pools, 84 nodes"


def test_a_cluster_in_an_outage_is_explained_in_few_lines_with_the_message_once() -> None:
    lines = pools_answer(40).ask("explain")["sentences"]
    assert lines[0].startswith("critical: zone a: 26 pools of 1 cluster")
    assert [line.split(": ")[2] for line in lines[1:4]] == ["team-01", "team-02", "team-04"]
    assert len([line for line in lines if "no room" in line]) == 1
    assert lines[4].startswith("The same in team-05, ")
    assert lines[4].endswith(" and 11 more.")
    assert len([line for line in lines if line.startswith("Pool ")]) == 3


def test_a_status_of_one_pool_has_the_decisions_about_it() -> None:
    stack = pools_answer(40)
    assert {entry["pool"]["name"] for entry in stack.ask("status", pool="team-38")["decisions"]} == {"team-38"}
    assert len({entry["pool"]["name"] for entry in stack.ask("status")["decisions"]}) == 10


def test_decisions_alike_are_one_line() -> None:
    answer = pools_answer(40).ask("status")
    (line,) = (
        line for line in printed(answer, decisions=answer["decisions"]) if line.endswith("nothing changed (schedule)")
    )
    assert len(line.partition(") ")[2].partition(":")[0].split(", ")) == len(answer["decisions"])


def test_the_page_counts_every_pool_of_a_fenced_zone() -> None:
    stack = pools_answer(5, fenced=True)
    answer = stack.ask("status")
    answer["pools"][2]["groups"][0] |= {"state": "frozen", "held": ["held by a rollout"]}
    text = Seen(page(answer, stack)).text
    assert "reported by operator; 5 pools: 4 fenced, 1 frozen" in text
    answer["zones"] = {}
    ends = [f"2026-01-15T14:0{number}:00Z" for number in range(5)]
    for pool, end in zip(answer["pools"], ends, strict=True):
        pool["groups"][0]["until"] = end
    text = Seen(page(answer, stack)).text
    assert "a until 14:00:00 UTC, after failures; 5 pools: 4 fenced, 1 frozen" in text
    for pool in answer["pools"]:
        pool["groups"][0]["rules"] = [{"rule": "launches-stopped"}]
    assert "a until 14:00:00 UTC, launches are stopped; 5 pools" in Seen(page(answer, stack)).text


def test_the_page_folds_healthy_pools_and_shows_a_shared_text_once(stack: Stack) -> None:
    html = page(stack.ask("status"), stack)
    (folded,) = (part for part in html.split("<details") if "12 healthy pools, 72 nodes" in part)
    assert folded.startswith(' class="healthy-pools"')
    assert Seen(html).text.count("no room") == 1
    assert "a: failure 1 in a row, capacity: no roomteam-00, team-01" in Seen(html).text


def test_the_heading_of_a_pool_is_one_line_in_a_narrow_console() -> None:
    answer = Stack().ask("plan")
    answer["poolIds"] = ["a-pool-whose-name-is-longer-than-the-line"]
    first = next(line for line in printed(answer, width=40) if "whose-name" in line)
    assert first == "a-pool-whose-name-is-longer-than-the-line: Balanced, min 3, max 12"
