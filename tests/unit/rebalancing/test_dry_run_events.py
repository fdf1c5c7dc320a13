"""In dry run, Kubernetes Events report the planned writes, if the record enables them."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.write.status import emit_event
from evenkeel.application.errors import ForbiddenError
from evenkeel.application.rebalancing import record
from sandbox.template import ROOT
from tests.builders import zones
from tests.stack import Stack

ITEM = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "namespace": "ns", "uid": "1"}}
UNEVEN = zones((4, 2, 2), bounds=[(1, 9)] * 3)


@pytest.mark.parametrize("enabled", [None, False, True])
def test_events_in_dry_run_are_emitted_once_where_enabled(enabled: bool | None) -> None:
    stack = Stack(UNEVEN, dry_run=True, dry_run_events=enabled)
    stack.runs(5)
    reported = stack.cluster.reported
    assert bool(reported) is bool(enabled)
    assert stack.cluster.reported_dry == len(reported) == len(set(reported))
    assert len({decision for _, decision in reported}) == bool(enabled), "the same change is one decision"
    assert stack.cluster.applied == []


def test_live_events_do_not_depend_on_the_field() -> None:
    reported = []
    for asked in (None, True):
        stack = Stack(UNEVEN, dry_run=False, dry_run_events=asked)
        stack.run()
        assert stack.cluster.reported_dry == 0
        reported.append([key for key, _ in stack.cluster.reported])
    assert reported[0] == reported[1] != []


def test_a_large_pool_has_events_for_some_of_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_MOST_DRY_EVENTS", 2)
    stack = Stack(UNEVEN, dry_run=True, dry_run_events=True)
    plan = stack.run().plan
    assert plan is not None
    assert len(plan.pools[0].changes) > len(stack.cluster.reported) == 2


def test_the_right_to_create_events_is_a_role_of_its_own() -> None:
    path = ROOT / "deploy" / "kubernetes" / "rbac-events.yaml"
    role, binding = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert not any("readers" in subject["name"] for subject in binding["subjects"]), "checks report nothing"


class Api(KubernetesApi):
    """An API that keeps the objects to create, and refuses them."""

    def __init__(self, stack: Stack) -> None:
        self.now = stack.clock.now  # type: ignore[method-assign]
        self.created: list[tuple[str, Mapping[str, Any]]] = []

    def create(self, path: str, body: Any, remaining: Any) -> Any:
        self.created.append((path, body))
        raise ForbiddenError("events is forbidden")


def events(*dry_runs: bool) -> list[tuple[str, Mapping[str, Any]]]:
    stack = Stack(UNEVEN)
    plan = stack.run().plan
    assert plan is not None
    api = Api(stack)
    for dry_run in dry_runs:
        emit_event(api, ITEM, plan.pools[0].changes[0], "01ABC", lambda: 30.0, dry_run=dry_run)
    return api.created


def test_an_event_in_dry_run_says_so_and_a_refused_one_is_ignored() -> None:
    (_, dry), (path, live) = events(True, False)
    assert path == "/api/v1/namespaces/ns/events"
    assert (dry["reason"], dry["type"]) == ("EvenkeelDryRunRebalanced", "Normal")
    assert dry["message"] == f"Dry run, not written: {live['message']}"[:1024]


def test_an_event_holds_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenkeel.adapters.kubernetes.write.status.sentences", lambda _: ["\x1b[31mred\u202eder\nline"])
    ((_, event),) = events(False)
    assert event["message"] == "redder line"
