"""Requests for nodes, from the event or the operator to the table and the queue."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.aws.failure_events import read_event
from evenkeel.application.errors import BadRequestError, QueueUnavailableError
from evenkeel.application.failure import Ignored, Verdict
from evenkeel.application.growth import Asked, AskForGrowth
from evenkeel.application.operate import Operate
from evenkeel.config import ConfigError, GrowthRecord
from sandbox.template import ROOT
from tests.fakes import NOW, FakeClock, FakeClusters, FakeQueue, InMemoryStore, plenty, record

EVENT = json.loads((ROOT / "events" / "failure-scale-up.json").read_text(encoding="utf-8"))


@pytest.fixture
def ask() -> AskForGrowth:
    store = InMemoryStore()
    store.save_record(record(), None)
    return AskForGrowth(store=store, queue=FakeQueue(), clock=FakeClock())


def wanted(cluster: str = "demo", **fields: Any) -> Asked:
    given = {"id": "r1", "nodes": 3, "pool": "workers", "at": NOW, **fields}
    return Asked(cluster=cluster, record=GrowthRecord.model_validate(given))


def test_a_request_is_written_down_and_the_cluster_looked_at(ask: AskForGrowth) -> None:
    assert ask(wanted()).verdict is Verdict.RECORDED
    assert ask.store.load("demo").growths["r1"].nodes == 3
    assert ask.queue.clusters == ["demo"]  # type: ignore[attr-defined]


def test_asked_again_it_is_the_same_request_and_the_look_is_asked_for_again(ask: AskForGrowth) -> None:
    ask.queue.broken = QueueUnavailableError("away")  # type: ignore[attr-defined]
    with pytest.raises(QueueUnavailableError):
        ask(wanted())
    ask.queue.broken = None  # type: ignore[attr-defined]
    assert ask(wanted()).verdict is Verdict.RECORDED
    assert ask.queue.clusters == ["demo"]  # type: ignore[attr-defined]
    assert len(ask.store.load("demo").growths) == 1


def test_one_that_is_done_asks_for_nothing_more(ask: AskForGrowth) -> None:
    ask.store.save_growth("demo", wanted().record.model_copy(update={"done": True, "result": "3 nodes"}), None)
    heard = ask(wanted())
    assert heard.verdict is Verdict.KNOWN
    assert "3 nodes" in heard.message
    assert ask.queue.clusters == []  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (wanted("nobody"), "is not registered"),
        (wanted(at=NOW - timedelta(hours=2)), "older than an hour"),
        (wanted(at=NOW + timedelta(hours=1)), "in the future"),
    ],
)
def test_what_can_never_be_carried_out_is_explained_and_acknowledged(ask: AskForGrowth, asked: Asked, why: str) -> None:
    heard = ask(asked)
    assert heard.verdict is Verdict.IGNORED
    assert why in heard.message
    assert ask.queue.clusters == []  # type: ignore[attr-defined]


def test_the_event_in_events_is_read_as_a_request() -> None:
    asked = read_event(EVENT)
    assert isinstance(asked, Asked)
    assert asked.cluster == "demo-cluster-api"
    assert asked.record.growth().nodes == 4
    assert asked.record.only == ("demo-workers-eu-central-1a", "demo-workers-eu-central-1b")


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": "4"}, "nodes"),
        ({"nodes": -1}, "nodes"),
        ({"id": ""}, "id"),
        ({"cluster": "No Such"}, "cluster"),
        ({"group": "", "pool": ""}, "pool"),
        ({"pool": "workers"}, "pool"),
        ({"only": "workers-a"}, "only"),
        ({"occurredAt": "yesterday"}, "occurredAt"),
    ],
)
def test_a_malformed_event_is_ignored_with_the_field_named(change: dict[str, object], field: str) -> None:
    word = read_event({**EVENT, "detail": {**EVENT["detail"], **change}})
    assert isinstance(word, Ignored)
    assert field in word.reason


class TestOperator:
    @pytest.fixture
    def operate(self, ask: AskForGrowth) -> Operate:
        return Operate(store=ask.store, clusters=FakeClusters({}), queue=ask.queue, clock=ask.clock, dry_run=False)

    @pytest.mark.parametrize(("action", "nodes"), [("scale-up", 2), ("scale-down", -2)])
    def test_an_operator_asks_for_nodes_or_gives_them_back(self, operate: Operate, action: str, nodes: int) -> None:
        event = {"action": action, "cluster": "demo", "pool": "workers", "nodes": 2, "only": ["workers-a"]}
        answer = operate(event, plenty)
        kept = operate.store.load("demo").growths[answer["request"]]
        assert (kept.nodes, kept.only) == (nodes, ("workers-a",))
        assert "demo is looked at now" in answer["message"]

    @pytest.mark.parametrize("nodes", [None, 0, -3, "2", True, 1.5])
    def test_a_number_that_is_none_is_named(self, operate: Operate, nodes: object) -> None:
        with pytest.raises(BadRequestError, match="nodes is"):
            operate({"action": "scale-up", "cluster": "demo", "pool": "workers", "nodes": nodes}, plenty)

    def test_pool_or_group_must_be_named(self, operate: Operate) -> None:
        with pytest.raises(ConfigError, match="name either a pool or one of its groups"):
            operate({"action": "scale-up", "cluster": "demo", "nodes": 1}, plenty)
