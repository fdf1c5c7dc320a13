"""Requests for nodes, from the event or the operator to the table and the queue."""

import json
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.aws.inbound import read_event
from evenkeel.application.errors import AccessError, BadRequestError, QueueUnavailableError
from evenkeel.application.rebalancing.events import EventResult, Ignored, ScaleRequestEvent
from evenkeel.state_records import ScaleRequestRecord
from sandbox.template import ROOT
from tests.fakes import NOW, FakeClusters, register
from tests.stack import Stack

EVENT = json.loads((ROOT / "events" / "provisioning-failure-scale-up.json").read_text(encoding="utf-8"))


@pytest.fixture
def ask() -> Any:
    return Stack().request_scale


def wanted(cluster: str = "demo", **fields: Any) -> ScaleRequestEvent:
    given = {"id": "r1", "nodes": 3, "pool": "workers", "at": NOW, **fields}
    return ScaleRequestEvent(cluster=cluster, record=ScaleRequestRecord.model_validate(given))


def test_a_repeated_request_is_stored_once_and_requests_the_check_again(ask: Any) -> None:
    ask.queue.broken = QueueUnavailableError("away")
    with pytest.raises(QueueUnavailableError):
        ask(wanted())
    ask.queue.broken = None
    assert ask(wanted()).result is EventResult.RECORDED
    assert ask.queue.clusters == ["demo"]
    assert {id: request.nodes for id, request in ask.store.load("demo").scale_requests.items()} == {"r1": 3}


def test_one_id_is_not_reused_for_another_request(ask: Any) -> None:
    ask(wanted())
    outcome = ask(wanted(nodes=5))
    assert outcome.result is EventResult.IGNORED
    assert "id 'r1' is taken by another request: 3 nodes more in workers" in outcome.message
    assert ask.store.load("demo").scale_requests["r1"].nodes == 3


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"paused": True}, "demo is paused: it waits, for an hour at most"),
        ({"leaving": True}, "demo is being restored: it waits, for an hour at most"),
        ({"paused_pools": {"workers": None}}, "demo is checked now"),
    ],
)
def test_the_answer_says_whether_the_cluster_is_checked(ask: Any, fields: dict[str, Any], said: str) -> None:
    register(ask.store, versions=ask.store.load("demo").versions, **fields)
    assert ask(wanted()).message.endswith(said)


@pytest.mark.parametrize(("seconds", "result"), [(120, EventResult.RECORDED), (121, EventResult.IGNORED)])
def test_a_request_may_be_two_minutes_ahead(ask: Any, seconds: int, result: EventResult) -> None:
    assert ask(wanted(at=NOW + timedelta(seconds=seconds))).result is result


def test_a_completed_request_requests_no_check(ask: Any) -> None:
    ask.store.save_scale_request("demo", wanted().record.model_copy(update={"done": True, "result": "3 nodes"}), None)
    outcome = ask(wanted())
    assert outcome.result is EventResult.KNOWN
    assert "3 nodes" in outcome.message
    assert ask.queue.clusters == []


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (wanted("nobody"), "is not registered"),
        (wanted(at=NOW - timedelta(hours=2)), "older than an hour"),
        (wanted(at=NOW + timedelta(hours=1)), "in the future"),
    ],
)
def test_a_request_that_cannot_be_served_is_ignored_with_a_reason(ask: Any, asked: ScaleRequestEvent, why: str) -> None:
    outcome = ask(asked)
    assert outcome.result is EventResult.IGNORED
    assert why in outcome.message
    assert ask.queue.clusters == []


def test_the_shipped_event_is_read_as_a_request() -> None:
    event = read_event({**EVENT, "account": "123456789012"})
    assert isinstance(event, ScaleRequestEvent)
    assert event.cluster == "demo-cluster-api"
    assert event.record.scale_request().nodes == 4
    assert event.record.only == ("demo-workers-eu-central-1a", "demo-workers-eu-central-1b")
    assert event.record.by == "123456789012/evenkeel.provisioning"


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


def test_one_id_may_be_repeated_with_its_groups_in_another_order(ask: Any) -> None:
    ask(wanted(only=("a", "b")))
    assert ask(wanted(only=("b", "a"), at=NOW - timedelta(minutes=1))).result is EventResult.RECORDED


class TestOperator:
    @pytest.fixture
    def stack(self) -> Stack:
        return Stack(clusters=FakeClusters({"demo": AccessError("away")}))

    @pytest.mark.parametrize(("action", "nodes"), [("scale-up", 2), ("scale-down", -2)])
    def test_an_operator_requests_or_removes_nodes(self, stack: Stack, action: str, nodes: int) -> None:
        answer = stack.ask(action, pool="workers", nodes=2, only=["workers-a"])
        kept = stack.store.load("demo").scale_requests[answer["request"]]
        assert (kept.nodes, kept.only) == (nodes, ("workers-a",))
        assert "demo is checked now" in answer["message"]

    def test_status_has_the_result_of_a_request(self, stack: Stack) -> None:
        done = wanted().record.model_copy(update={"done": True, "result": "refused: no such pool"})
        stack.store.save_scale_request("demo", done, None)
        request = stack.ask("status")["requests"]["r1"]
        assert request.items() >= {"pool": "workers", "nodes": 3, "at": "2026-01-15T12:00:00Z", "done": True}.items()
        assert request["result"] == "refused: no such pool"
        assert {name for name, value in request.items() if value is None} == {"group", "added", "left", "by"}

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            *(({"pool": "workers", "nodes": nodes}, "nodes is") for nodes in (None, 0, -3, "2", True, 1.5)),
            ({"nodes": 1}, "scale-up needs a pool or a group"),
        ],
    )
    def test_a_request_without_a_number_or_a_pool_is_refused(
        self, stack: Stack, fields: dict[str, Any], says: str
    ) -> None:
        with pytest.raises(BadRequestError, match=says):
            stack.ask("scale-up", **fields)
