"""A cluster's status is in a ConfigMap if the record enables it. Only changes are written, within a size limit."""

import json
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
import yaml

from evenkeel.adapters.codec import dump_stored, read_stored
from evenkeel.application.rebalancing import status_configmap as showing
from evenkeel.application.rebalancing.status_configmap import is_to_be_shown, status_document
from evenkeel.domain.incidents.health import with_pending_changes
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind, PublishedStatus
from evenkeel.record import ClusterRecord
from evenkeel.validation import ConfigError, read_model
from sandbox.template import ROOT
from tests.builders import MINUTE, NOW, group, zones
from tests.stack import RECORD, Stack

PLACE = "evenkeel/evenkeel-status"
UNEVEN = zones((4, 2, 2), bounds=[(1, 9)] * 3)


def said(stack: Stack) -> list[dict[str, Any]]:
    assert {place for place, _ in stack.cluster.quote} <= {PLACE}
    return [json.loads(text) for _, text in stack.cluster.quote]


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_status_is_written_once_for_each_change(dry_run: bool) -> None:
    stack = Stack(dry_run=dry_run, status_configmap=PLACE)
    stack.settle()
    stack.runs(5)
    last = said(stack)[-1]
    assert (last["cluster"], last["pools"][0]["dryRun"], last["incidents"]) == ("demo", dry_run, [])
    assert [group["state"] for group in last["pools"][0]["groups"]] == ["healthy"] * 3
    assert any("wanted" in group for group in last["pools"][0]["groups"]) is dry_run, "what would be written"
    texts = [{**each, "saidSince": ""} for each in said(stack)]
    assert all(one != other for one, other in pairwise(texts)), "each says something else"
    assert dry_run is (stack.cluster.applied == [])


def test_without_the_field_no_status_is_written() -> None:
    stack = Stack(UNEVEN)
    stack.runs(3)
    assert stack.cluster.quote == []
    assert stack.store.cluster_healths().get("demo", ClusterHealth()).published_status is None


def test_the_status_has_the_written_bounds() -> None:
    stack = Stack(UNEVEN, dry_run=False, status_configmap=PLACE)
    stack.settle()
    shown = {group["name"]: (group["min"], group["max"]) for group in said(stack)[-1]["pools"][0]["groups"]}
    groups = stack.cluster.groups.items()
    assert shown == {str(key): (group.bounds.min, group.bounds.max) for key, group in groups if group.bounds}


def test_a_check_requests_the_run_that_writes_the_status() -> None:
    stack = Stack(dry_run=False)
    stack.settle()
    before = stack.store.load("demo")
    asks = before.record.model_copy(update={"status_configmap": PLACE})
    stack.store.save_record(asks, before.control, before.versions)
    stack.checks()
    assert (len(stack.queue.requests), stack.cluster.quote) == (1, [])
    stack.carry_out()
    assert len(stack.cluster.quote) == 1
    stack.checks()
    assert len(stack.cluster.quote) == 1
    assert not any(found is None for found in stack.queue.steady.values()), "it is no news any more"


def test_a_cluster_with_a_status_settles() -> None:
    rests = []
    for place in (None, PLACE):
        stack = Stack(dry_run=False, status_configmap=place)
        stack.settle()
        for _ in range(40):
            stack.checks()
            stack.carry_out()
        rests.append(stack.store.load("demo").steady is not None)
    assert rests == [True, True]


def test_a_refused_status_is_retried_four_times_an_hour_at_most() -> None:
    stack = Stack(UNEVEN, dry_run=False, status_configmap=PLACE)
    stack.cluster.takes_status = False
    stack.settle()
    stack.cluster.quote.clear()
    applied = len(stack.cluster.applied)
    for _ in range(60):
        stack.checks()
        stack.carry_out()
    assert len(stack.cluster.applied) == applied > 0
    tried = len(stack.cluster.quote)
    assert 1 < tried <= 4
    stack.cluster.takes_status = True
    stack.clock.at += timedelta(minutes=15)
    stack.run()
    stack.runs(30)
    assert len(stack.cluster.quote) == tried + 1, "until it is taken"


def test_a_status_that_a_killed_run_did_not_write_is_written_later() -> None:
    stack = Stack(dry_run=True, status_configmap=PLACE)

    def killed(_place: str, _text: str) -> bool:
        raise KeyboardInterrupt

    stack.cluster.show_status = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        stack.run()
    del stack.cluster.show_status
    stack.runs(20)
    assert len(stack.cluster.quote) == 1
    assert stack.store.cluster_healths()["demo"].published_status is not None
    assert stack.store.cluster_healths()["demo"].published_status.tried_at is None  # type: ignore[union-attr]


def test_a_status_is_written_again_for_another_place() -> None:
    document = {"cluster": "demo"}
    quote = is_to_be_shown(None, document, PLACE, NOW)
    there = PublishedStatus(print=quote.print)
    assert is_to_be_shown(there, document, PLACE, NOW + timedelta(days=9)) is there
    assert is_to_be_shown(there, document, "evenkeel/other", NOW).tried_at == NOW
    assert is_to_be_shown(quote, document, PLACE, NOW + 14 * MINUTE) is quote
    assert is_to_be_shown(quote, document, PLACE, NOW + 15 * MINUTE).tried_at == NOW + 15 * MINUTE


def test_incidents_have_no_text_of_the_cloud_and_change_rarely() -> None:
    def incident(missing: int) -> Incident:
        fields = {"zones": ("a",), "failure_class": FailureClass.CAPACITY, "message": "token=abc"}
        return Incident(kind=IncidentKind.MISSING, since=NOW, pool="ns/workers", missing=missing, **fields)  # type: ignore[arg-type]

    health = with_pending_changes(ClusterHealth().with_incidents([incident(8)]))
    plan = Stack(UNEVEN).run().plan
    assert plan is not None
    documents = [
        status_document("demo", plan, {}, with_pending_changes(health.with_incidents([incident(missing)])), ())
        for missing in (8, 9, 7, 16)
    ]
    shown = {"kind": "missing", "pool": "ns/workers", "since": "2026-01-15T12:00:00Z", "zones": ["a"]}
    assert documents[0]["incidents"] == [{**shown, "missing": 8, "class": "capacity"}]
    assert "token" not in json.dumps(documents)
    assert [each["incidents"][0]["missing"] for each in documents] == [8, 8, 8, 16]


def test_the_status_of_a_large_and_hostile_cluster_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [group(f"{'x' * 240}-{i}", 1, bounds=(0, 9)) for i in range(300)]
    stack = Stack(groups, dry_run=True)
    plan = stack.run().plan
    assert plan is not None
    incidents = [
        Incident(kind=IncidentKind.CONTESTED, since=NOW, pool="\U0001f4a5" * 9000, zones=("\ud800" * 900,) * 90)
        for _ in range(80)
    ]
    document = status_document("demo", plan, {}, ClusterHealth(incidents=tuple(incidents)), ())
    assert len(json.dumps(document)) <= showing._MOST_BYTES
    assert document["notShown"]["groups"] > 0
    assert is_to_be_shown(None, document, PLACE, NOW)
    monkeypatch.setattr(showing, "_MOST_BYTES", 0)
    assert status_document("demo", plan, {}, ClusterHealth(), ())["pools"][0]["groups"] == []


def test_the_published_status_is_stored_across_releases() -> None:
    assert read_stored(ClusterHealth, "{}", "x").published_status is None
    newer = '{"published_status": {"print": "a", "by": "another"}}'
    assert read_stored(ClusterHealth, newer, "x").published_status == PublishedStatus(print="a")
    cluster_health = ClusterHealth(published_status=PublishedStatus(print="a", tried_at=NOW))
    assert read_stored(ClusterHealth, dump_stored(cluster_health), "x") == cluster_health


@pytest.mark.parametrize("place", ["status", "/status", "evenkeel/", "a/b/c", "Evenkeel/status", "a/..", "", 1])
def test_a_place_is_a_namespace_and_a_name(place: object) -> None:
    with pytest.raises(ConfigError, match="status_configmap"):
        read_model(ClusterRecord, {**RECORD, "id": "demo", "status_configmap": place}, "record")


def test_unregistering_names_the_configmap_that_stays() -> None:
    stack = Stack(dry_run=True, status_configmap=PLACE)
    stack.run()
    assert "kubectl delete configmap --namespace evenkeel evenkeel-status" in stack.ask("unregister")["message"]


def test_the_role_allows_to_patch_one_configmap() -> None:
    text = (ROOT / "deploy" / "kubernetes" / "rbac-status.yaml").read_text(encoding="utf-8")
    status, role, binding = yaml.safe_load_all(text)
    name, namespace = status["metadata"]["name"], status["metadata"]["namespace"]
    assert f"{namespace}/{name}" == PLACE
    assert role["rules"] == [
        {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": [name], "verbs": ["patch"]}
    ]
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {namespace}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert not any("readers" in subject["name"] for subject in binding["subjects"]), "checks write nothing"
