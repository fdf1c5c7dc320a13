"""In dry run, Kubernetes Events say what would be written, where the record asks for it; nothing else is written."""

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
from tests.house import House

ITEM = {"apiVersion": "v1", "kind": "X", "metadata": {"name": "a", "namespace": "ns", "uid": "1"}}
UNEVEN = zones((4, 2, 2), bounds=[(1, 9)] * 3)


@pytest.mark.parametrize("asked", [None, False, True])
def test_events_are_told_in_dry_run_by_who_asks_for_them_and_once(asked: bool | None) -> None:
    house = House(UNEVEN, dry_run=True, dry_run_events=asked)
    house.runs(5)
    told = house.cluster.told
    assert bool(told) is bool(asked)
    assert house.cluster.told_dry == len(told) == len(set(told))
    assert len({decision for _, decision in told}) == bool(asked), "the same news is one decision"
    assert house.cluster.applied == []


def test_live_they_are_told_of_what_was_written_as_ever() -> None:
    told = []
    for asked in (None, True):
        house = House(UNEVEN, dry_run=False, dry_run_events=asked)
        house.run()
        assert house.cluster.told_dry == 0
        told.append([key for key, _ in house.cluster.told])
    assert told[0] == told[1] != []


def test_a_large_pool_tells_of_some_of_its_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "_MOST_DRY_EVENTS", 2)
    house = House(UNEVEN, dry_run=True, dry_run_events=True)
    plan = house.run().plan
    assert plan is not None
    assert len(plan.pools[0].changes) > len(house.cluster.told) == 2


def test_the_right_to_tell_is_that_and_no_more() -> None:
    path = ROOT / "deploy" / "kubernetes" / "rbac-events.yaml"
    role, binding = yaml.safe_load_all(path.read_text(encoding="utf-8"))
    assert role["rules"] == [{"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert not any("readers" in subject["name"] for subject in binding["subjects"]), "looks tell nothing"


class Api(KubernetesApi):
    """Keeps what it is to create, and refuses it."""

    def __init__(self) -> None:
        self.created: list[tuple[str, Mapping[str, Any]]] = []

    def create(self, path: str, body: Any, remaining: Any) -> Any:
        self.created.append((path, body))
        raise ForbiddenError("events is forbidden")


def test_an_event_in_dry_run_says_so_and_what_is_refused_hurts_nobody() -> None:
    house = House(UNEVEN, dry_run=True, dry_run_events=True)
    plan = house.run().plan
    assert plan is not None
    group = plan.pools[0].changes[0]
    api = Api()
    api.now = house.clock.now  # type: ignore[method-assign]
    for dry_run in (True, False):
        emit_event(api, ITEM, group, "01ABC", lambda: 30.0, dry_run=dry_run)
    (_, dry), (path, live) = api.created
    assert path == "/api/v1/namespaces/ns/events"
    assert dry["reason"] == "EvenkeelDryRunRebalanced"
    assert dry["message"] == f"Dry run, not written: {live['message']}"[:1024]
    assert dry["type"] == "Normal"


def test_what_a_failure_says_orders_nothing_where_kubectl_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evenkeel.adapters.kubernetes.write.status.sentences", lambda _: ["\x1b[31mred\u202eder\nline"])
    house = House(UNEVEN)
    plan = house.run().plan
    assert plan is not None
    group = plan.pools[0].changes[0]
    api = Api()
    api.now = house.clock.now  # type: ignore[method-assign]
    emit_event(api, ITEM, group, "01ABC", lambda: 30.0, dry_run=False)
    ((_, event),) = api.created
    assert event["message"] == "redder line"
