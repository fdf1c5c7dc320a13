"""The causes that clusters share: their incidents, and their texts in status and page."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import document
from evenkeel.application.actions.overview import titles_of_causes
from evenkeel.application.ports import RUNBOOKS
from evenkeel.domain.incidents.causes import SHARED_BY, CauseKind, ClusterIncident, causes_of
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import Incident, IncidentKind, Severity
from evenkeel.texts.incidents import cause_command, cause_text, cause_title, cause_todo
from evenkeel_cli import stack_client
from evenkeel_cli.answers import print_answer
from evenkeel_cli.main import app
from tests.builders import MINUTE, NOW, key
from tests.fakes import plenty
from tests.pages import Seen, fleet_answer, fleet_stack
from tests.stack import Stack

IDS = {"a": "euc1-az2", "b": "euc1-az3"}


def missing(
    cluster: str, zone: str = "a", kind: FailureClass = FailureClass.CAPACITY, **fields: Any
) -> ClusterIncident:
    incident = Incident(
        kind=IncidentKind.MISSING,
        since=NOW - (5 + len(cluster)) * MINUTE,
        pool="capi/prod/workers",
        zones=(zone,),
        missing=2,
        requested=9,
        failure_class=kind,
    )
    return ClusterIncident(cluster=cluster, incident=incident, **{"places": IDS, **fields})


def of_kind(cluster: str, kind: IncidentKind, **fields: Any) -> ClusterIncident:
    return ClusterIncident(cluster=cluster, incident=Incident(kind=kind, since=NOW - 9 * MINUTE, **fields))


ZONE_A = (missing("a"), missing("b"), missing("c"))


def found(*incidents: ClusterIncident) -> dict[str, tuple[str, ...]]:
    return {f"{cause.kind} {cause.subject}": cause.clusters for cause in causes_of(incidents)}


def test_a_zone_is_one_cause_by_its_id_whatever_each_account_calls_it() -> None:
    other = missing("c", "x", FailureClass.TIMEOUT, places={"x": "euc1-az2"})
    (cause,) = causes_of([missing("a"), missing("bb"), other, missing("d", "b")])
    assert (cause.kind, cause.subject, cause.clusters) == (CauseKind.ZONE, "euc1-az2", ("a", "bb", "c"))
    assert cause_text(cause, NOW) == (
        "zone euc1-az2 (a, x): 3 clusters, 6 nodes missing for 7 min, since 2026-01-15T11:53:00Z: capacity, timeout"
    )
    assert cause_command(cause, "ek") == "evenkeel fence-zone --stack ek --zone-id euc1-az2 --all --for 2h"


def test_two_zones_that_fail_in_the_same_clusters_are_two_causes() -> None:
    both = [in_zones(cluster, "ab", FailureClass.CAPACITY) for cluster in "abc"]
    causes = causes_of([*both, missing("d", "b")])
    assert [(cause.subject, cause.clusters) for cause in causes] == [
        ("euc1-az3", ("a", "b", "c", "d")),
        ("euc1-az2", ("a", "b", "c")),
    ]
    assert set(titles_of_causes(causes)["a"].values()) == {cause_title(causes[0])}


def test_two_clusters_share_no_cause() -> None:
    assert SHARED_BY == 3
    assert found(missing("a"), missing("b")) == {}


@pytest.mark.parametrize("kind", [FailureClass.QUOTA, FailureClass.CONFIGURATION])
def test_a_failure_of_the_account_is_not_blamed_on_a_zone(kind: FailureClass) -> None:
    (cause,) = causes_of([missing(name, "a", kind) for name in "abc"])
    assert cause_text(cause, NOW).startswith(f"missing nodes: {kind.value}: 3 clusters, 6 nodes missing for 6 min")
    assert cause_command(cause, "ek") == "evenkeel explain --stack ek --cluster a --pool capi/prod/workers"


def test_machines_that_join_in_no_zone_are_not_blamed_on_one() -> None:
    everywhere = missing("d", kind=FailureClass.TIMEOUT)
    spread = replace(everywhere, incident=replace(everywhere.incident, zones=("a", "b", "c")))
    zone = [missing(name) for name in "abc"]
    assert found(*zone, everywhere) == {"zone euc1-az2": ("a", "b", "c", "d")}
    assert found(*zone, spread) == {"zone euc1-az2": ("a", "b", "c")}


def test_reverts_share_a_cause_only_by_the_same_controller() -> None:
    argo = [of_kind(name, IncidentKind.CONTESTED, message="argocd", pool="x/y/z") for name in "abc"]
    (cause,) = causes_of([*argo, of_kind("d", IncidentKind.CONTESTED, message="flux", pool="x/y/z")])
    assert cause.clusters == ("a", "b", "c")
    assert cause_text(cause, NOW).startswith("reverted by argocd: 3 clusters for 9 min")


def test_an_outage_refused_access_and_an_invalid_record_have_three_severities() -> None:
    kinds = (IncidentKind.MISSING, IncidentKind.ACCESS, IncidentKind.INVALID_RECORD)
    assert [kind.severity for kind in kinds] == [*Severity]


def in_zones(cluster: str, zones: Sequence[str], kind: FailureClass) -> ClusterIncident:
    one = missing(cluster, kind=kind)
    return replace(one, incident=replace(one.incident, zones=tuple(zones)))


_ANY = st.builds(
    in_zones,
    st.sampled_from("abcdefg"),
    st.lists(st.sampled_from("abc"), min_size=1, unique=True),
    st.sampled_from(FailureClass),
) | st.builds(of_kind, st.sampled_from("abcdefg"), st.sampled_from(IncidentKind))


@given(st.lists(_ANY, max_size=25))
def test_every_incident_has_one_cause_per_zone_at_most_and_every_cause_three_sharers(
    incidents: list[ClusterIncident],
) -> None:
    causes = causes_of(incidents)
    for cause in causes:
        shared_by = cause.clusters if cause.kind is CauseKind.INCIDENT else cause.incidents
        assert len(shared_by) >= SHARED_BY
    taken = [id(each) for cause in causes for each in cause.incidents]
    assert all(taken.count(id(each)) <= len(each.incident.zones or "-") for each in incidents)
    assert set(taken) <= {id(each) for each in incidents}
    zones = [(id(each), cause.subject) for cause in causes for each in cause.incidents]
    assert len(zones) == len(set(zones))
    ranks = [cause.worst.urgency[:2] for cause in causes]
    assert ranks == sorted(ranks)


def printed(answer: dict[str, Any]) -> list[str]:
    quote = StringIO()
    print_answer(answer, Console(file=quote, width=100))
    return quote.getvalue().splitlines()


FLEET = fleet_answer(40)


def test_nodes_that_are_missing_in_several_zones_do_not_count_to_one() -> None:
    (cause,) = causes_of([*ZONE_A, everywhere("d")])
    assert "4 clusters, 8 nodes missing (2 of them in several zones) for " in cause_text(cause, NOW)


def everywhere(cluster: str, **fields: Any) -> ClusterIncident:
    """Return the incident of a pool without capacity in any of its three zones."""
    one = missing(cluster, **fields)
    return replace(one, incident=replace(one.incident, zones=("a", "b", "c"), is_outage=True))


def test_clusters_without_capacity_in_any_zone_are_a_cause_of_their_own_and_come_first() -> None:
    first, second = causes_of([*ZONE_A, missing("g"), *(everywhere(name) for name in "def")])
    assert (first.clusters, second.clusters) == (("d", "e", "f"), ("a", "b", "c", "g"))
    assert cause_text(first, NOW).startswith("no zone has capacity: 3 clusters, 6 nodes missing for 6 min")
    assert "add a machine type or a zone" in cause_todo(first, NOW)
    assert cause_command(first, "ek") == "evenkeel explain --stack ek --cluster d --pool capi/prod/workers"
    assert "several zones" not in cause_text(second, NOW)


def test_pools_of_one_cluster_without_capacity_in_any_zone_are_no_cause_of_a_zone() -> None:
    one = everywhere("d")
    pools = [replace(one, incident=replace(one.incident, pool=f"capi/prod/{number}")) for number in range(3)]
    (cause,) = causes_of(pools)
    assert (cause.kind, cause.zone_names) == (CauseKind.OUTAGE, ())
    assert cause_text(cause, NOW).startswith("no zone has capacity: 3 pools of 1 cluster, 6 nodes missing for 6 min")


def test_one_cluster_without_capacity_in_any_zone_counts_to_the_zone_and_has_its_own_row() -> None:
    incidents = [*ZONE_A[:2], everywhere("d"), everywhere("e")]
    (cause,) = causes_of(incidents)
    assert (cause.subject, cause.clusters) == ("euc1-az2", ("d", "e", "a", "b"))
    assert {cluster for cluster, reported in titles_of_causes([cause]).items() if reported} == {"a", "b"}
    assert everywhere("d").incident.sort_key < replace(missing("e").incident, missing=9).sort_key


def test_a_pool_of_one_zone_fails_with_its_zone() -> None:
    alone = replace(missing("d").incident, is_outage=True)
    assert found(*ZONE_A, replace(missing("d"), incident=alone)) == {"zone euc1-az2": ("d", "a", "b", "c")}


def of_pools(cluster: str, zone: str = "a", count: int = 3) -> list[ClusterIncident]:
    one = missing(cluster, zone)
    return [replace(one, incident=replace(one.incident, pool=f"capi/prod/{number}")) for number in range(count)]


def test_three_pools_of_one_cluster_share_a_zone_which_is_fenced_there_only() -> None:
    (cause,) = causes_of([*of_pools("d"), missing("d", "b"), of_kind("d", IncidentKind.REFUSED, pool="x/y/z")])
    assert cause_text(cause, NOW).startswith("zone euc1-az2 (a): 3 pools of 1 cluster, 6 nodes missing for 6 min")
    assert cause_command(cause, "ek") == "evenkeel fence-zone --stack ek --zone-id euc1-az2 --cluster d --for 2h"
    assert cause_todo(cause, NOW).endswith("long outage, stop scale-up there in this cluster")
    assert found(*of_pools("d", count=2)) == {}


def test_the_fence_that_a_status_proposes_has_its_selector() -> None:
    answer = fleet_stack(40).ask("status", None, selector="!team")
    assert answer["causes"][0]["command"].endswith("--zone eu-central-1a --selector '!team' --for 2h")


def test_a_zone_is_reported_to_be_fenced_once_it_is_in_each_cluster() -> None:
    fenced = [replace(each.incident, fenced_until=NOW + number * MINUTE) for number, each in enumerate(ZONE_A, 30)]
    (cause,) = causes_of(replace(each, incident=one) for each, one in zip(ZONE_A, fenced, strict=True))
    assert cause_todo(cause, NOW).startswith(
        "No action is required: the zone is fenced for another 30 min, so no group grows there."
    )
    assert cause_todo(cause, NOW + 31 * MINUTE) == (
        "No action is required: Evenkeel fences each group that fails there, and retries. "
        "If the provider reports a long outage, stop scale-up there in every cluster that has the zone"
    )
    (cause,) = causes_of([ZONE_A[0], *(replace(each, incident=fenced[1]) for each in ZONE_A[1:])])
    assert cause_todo(cause, NOW).endswith("stop scale-up there in every cluster that has the zone")


def dry(each: ClusterIncident) -> ClusterIncident:
    return replace(each, incident=replace(each.incident, in_dry_run=True))


def test_no_fence_is_claimed_or_proposed_where_all_clusters_are_in_dry_run() -> None:
    (cause,) = causes_of(map(dry, ZONE_A))
    assert cause_todo(cause, NOW).startswith("These clusters are in dry run: Evenkeel writes nothing there. Check")
    assert cause_command(cause, "ek") == "evenkeel explain --stack ek --cluster a --pool capi/prod/workers"
    (cause,) = causes_of(map(dry, of_pools("d")))
    assert cause_todo(cause, NOW).startswith("This cluster is in dry run: Evenkeel writes nothing there.")
    (cause,) = causes_of(dry(everywhere(name)) for name in "def")
    assert "These clusters are in dry run: Evenkeel writes nothing there. To recover" in cause_todo(cause, NOW)


def test_a_cause_says_how_many_of_its_pools_are_in_dry_run() -> None:
    fence = "evenkeel fence-zone --stack ek --zone-id euc1-az2 --all --for 2h"
    for number, words in ((1, "1 of 3 pools is in dry run"), (2, "2 of 3 pools are in dry run")):
        (cause,) = causes_of([*map(dry, ZONE_A[:number]), *ZONE_A[number:]])
        assert f"{words}: Evenkeel writes nothing there. In the other pools no action is required" in cause_todo(
            cause, NOW
        )
        assert cause_command(cause, "ek") == fence
        ends = [replace(each, incident=replace(each.incident, fenced_until=NOW + MINUTE)) for each in cause.incidents]
        assert "In the other pools no action is required: the zone is fenced for another" in cause_todo(
            replace(cause, incidents=tuple(ends)), NOW
        )
    (cause,) = causes_of(ZONE_A)
    assert "dry run" not in cause_todo(cause, NOW)


@pytest.mark.parametrize(("cluster", "pool", "is_dry"), [(True, None, True), (True, False, False), (False, True, True)])
def test_an_incident_of_a_pool_in_dry_run_says_that_nothing_is_written(
    cluster: bool, pool: bool | None, is_dry: bool
) -> None:
    stack = Stack(dry_run=cluster, pools=[{"name": "workers", "min": 3, "max": 12, "dry_run": pool}])
    for zone in "abc":
        stack.cluster.change(key(zone), requested=4, running=2, machines=())
        stack.fail(zone)
    stack.rebalance("demo", "schedule", plenty)
    (opened,) = [event for kind, event in stack.bus.published if kind == "Incident Opened"]
    for reported in (opened, *stack.ask("status")["incidents"], *stack.ask("status", None)["clusters"][0]["incidents"]):
        assert ("In dry run Evenkeel writes nothing here" in reported["todo"]) is is_dry
        assert ("Evenkeel keeps retrying" in reported["todo"]) is not is_dry


def test_an_incident_knows_when_its_zones_are_fenced_by_hand() -> None:
    stack = Stack()
    ends = []
    for zone in "abc":
        stack.cluster.change(key(zone), requested=4, running=2, machines=())
        stack.fail(zone)
        stack.rebalance("demo", "schedule", plenty)
        stack.ask("fence-zone", zone=zone, **{"for": "2h"})
        stack.rebalance("demo", "zone", plenty)
        ends += [incident.fenced_until for incident in stack.store.load("demo").cluster_health.incidents]
    assert ends[-1] == stack.clock.at + timedelta(hours=2)


def test_status_begins_with_causes_and_folds_their_clusters() -> None:
    first, *lines = printed(FLEET)
    assert first == "outage: no zone is known to deliver for prod-eu-02/workers"
    assert lines[0].startswith(
        "critical  zone eu-central-1a: 3 clusters, 11 nodes missing (8 of them in several zones) for 23 min, since 2026"
    )
    assert lines[1] == "  prod-eu-01, prod-eu-03, prod-eu-04"
    assert "What to do: No action is required: Evenkeel fences each group" in lines[2]
    assert lines[3] == "    evenkeel fence-zone --stack NAME --zone eu-central-1a --all --for 2h"
    assert lines[4].startswith("warning   unreachable: 3 clusters for 34 min")
    assert lines[-3] == "evenkeel explain prints each message and what to do"
    rows = [line.split()[:2] for line in lines[8:-3]]
    assert rows == [
        ["prod-eu-02", "critical"],
        ["prod-eu-08", "warning"],
        ["prod-eu-09", "info"],
        ["prod-eu-10", "info"],
        ["prod-eu-01", "info"],  # no cause has its other incident
    ]
    assert lines[-2] == "30 others: 27 well, 2 paused, 1 not checked yet; 3 of 40 in dry run"


def test_the_page_begins_with_causes_before_any_cluster() -> None:
    html = document(page_of_status(FLEET, "x", NOW + timedelta(minutes=1)))
    text = Seen(html).text
    assert text.index("zone eu-central-1a: 3 clusters") < text.index("Clusters with incidents")
    assert "since 11:37:00 UTC (24 min), 11 nodes missing (8 of them in several zones): capacity" in text
    assert '<span class="severity critical">critical</span> zone eu-central-1a' in html
    assert '<span class="severity warning">warning</span>' in html
    assert '<span class="severity info">info</span>' in html


def test_explain_without_a_cluster_explains_each_open_incident_once() -> None:
    stack = fleet_stack(40)
    answer = stack.ask("explain", None)
    lines = answer["sentences"]
    assert lines[0].startswith(
        "critical: zone eu-central-1a: 3 clusters, 11 nodes missing (8 of them in several zones) for 23 min, since 2026"
    )
    assert lines[1].startswith("prod-eu-01: since 2026-01-15T11:37:00Z: workers: 8 of 20 nodes missing for 23 min")
    assert "evenkeel fence-zone --stack NAME --zone eu-central-1a --all --for 2h" in lines[4]
    incidents = answer["incidents"]
    assert len(incidents) == 11
    for incident in incidents:
        (line,) = (
            each
            for each in lines
            if f"{incident['cluster']}: since {incident['since']}: {incident['headline']}" in each
        )
        remedy = lines[lines.index(line) + 1 :]
        assert any(each.startswith("What to do: ") for each in remedy)
    for repeated in ("API server runs", "not within 8 s", "InsufficientInstanceCapacity"):
        assert len([line for line in lines if repeated in line]) == 1
    assert "name the cluster" in stack.refused("explain", cluster=None, pool="workers")
    assert answer["message"] == "clusters: 40; 10 with incidents, 1 not checked yet, 2 paused, 27 well"


def test_a_live_status_begins_with_the_stored_causes() -> None:
    stack = fleet_stack(40)
    answer = stack.ask("status", None, live=True)
    assert answer["causes"] == FLEET["causes"]
    assert printed(answer)[0].startswith("critical  zone eu-central-1a: 3 clusters")
    html = document(page_of_status(answer, "x", NOW))
    assert html.index("fence-zone") < html.index('id="find"')


def test_explain_of_many_clusters_quotes_three_of_a_cause_and_names_the_others() -> None:
    lines = fleet_stack(200, 100).ask("explain", None)["sentences"]
    unreachable = next(number for number, line in enumerate(lines) if "unreachable: 30 clusters" in line)
    assert [line.partition(":")[0] for line in lines[unreachable + 1 : unreachable + 4]] == [
        *("prod-eu-05", "prod-eu-06", "prod-eu-07")
    ]
    assert lines[unreachable + 4].startswith("The same in prod-eu-15, prod-eu-16, ")
    assert lines[unreachable + 4].endswith(" and 15 more.")
    assert lines[unreachable + 5].startswith("What to do: ")
    assert len(lines) < 60


@pytest.mark.parametrize(("selector", "code"), [("team=web", 0), ("team=wbe", 2)])
def test_explain_finds_clusters_by_label(selector: str, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(labels={"team": "web"})
    monkeypatch.setattr(stack_client, "ask", lambda _, event: stack.operate(event, plenty))
    ran = CliRunner().invoke(app, ["explain", "--stack", "s", "-l", selector])
    assert ran.exit_code == code, ran.output
    assert ("1 well" in ran.output or "not checked yet" in ran.output) is (code == 0)


def test_a_fenced_group_is_not_said_to_need_no_change() -> None:
    stack = Stack()
    for zone in "abc":
        stack.fail(zone)
    stack.settle()
    reported = " ".join(text for group in stack.ask("explain", pool="workers")["groups"].values() for text in group)
    assert "is fenced" in reported
    for calm in ("left alone", "o change needed", "as it should be"):
        assert calm not in reported


def test_the_command_of_a_pool_leads_to_its_incidents_and_what_to_do() -> None:
    stack = Stack()
    for zone in "abc":
        stack.cluster.change(key(zone), requested=4, running=2, machines=())
        stack.fail(zone)
    stack.settle()
    (incident,) = stack.ask("status")["incidents"]
    assert incident["command"].endswith(f"--pool {incident['pool']}")
    answer = stack.ask("explain", pool=incident["pool"])
    assert answer["incidents"] == [incident]
    first, remedy, *others = answer["sentences"]
    assert first.startswith(incident["message"].rstrip("."))
    assert remedy == f"What to do: {incident['todo']} ({incident['runbook']})."
    assert others[0].startswith("Pool ")


def test_explain_of_a_pool_leaves_out_incidents_of_other_pools() -> None:
    stack = Stack()
    answer = stack.ask("explain", pool="workers")
    assert "incidents" not in answer
    assert answer["sentences"][0].startswith("Pool ")


def test_status_page_and_explain_name_the_runbooks_and_link_only_to_a_url() -> None:
    html = document(page_of_status(FLEET, "x", NOW))
    assert f'<p class="soft">Runbook: {RUNBOOKS}#unreachable</p>' in html
    published = document(replace(page_of_status(FLEET, "x", NOW), has_runbooks=True))
    assert '<a href="#unreachable">Runbook</a>' in published
    assert '<h3 id="unreachable">' in published
    assert RUNBOOKS in json.dumps(fleet_stack(40).ask("explain", None))
    stack = fleet_stack(40)
    stack.operate = replace(stack.operate, runbooks="https://wiki.example/evenkeel")
    reported = stack.ask("status", None)
    assert reported["causes"][0]["runbook"] == "https://wiki.example/evenkeel#capacity"
    link = '<a href="https://wiki.example/evenkeel#capacity" rel="noreferrer">Runbook</a>'
    assert link in document(page_of_status(reported, "x", NOW))


def test_a_fence_names_the_command_that_lifts_it() -> None:
    stack = Stack()
    message = stack.ask("fence-zone", zone="a", **{"for": "2h"})["message"]
    lift = "evenkeel fence-zone --stack NAME --cluster demo --zone a --for 0m"
    assert message.endswith(f"To lift it: {lift}")
    assert "no longer fenced" in stack.ask("fence-zone", zone="a", **{"for": "0m"})["message"]


def test_a_cluster_that_is_not_checked_has_this_name_in_its_status() -> None:
    stack = Stack()
    stack.store.save_checked_at(["demo"], NOW - timedelta(hours=1))
    lines = printed(stack.ask("status"))
    assert "warning   not checked" in lines
    assert "warning   stopped" not in lines
