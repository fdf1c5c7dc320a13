"""Messages and events in, messages and decision events out."""

import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.aws.incident_events import read_alert
from evenkeel.adapters.aws.queues import (
    CheckRequest,
    EventBridgeBus,
    QueueUrls,
    Request,
    RolloutRequest,
    ScanRequest,
    SqsQueue,
    read_message,
    read_recheck,
    read_request,
    read_scan,
)
from evenkeel.application.errors import BadRequestError, QueueUnavailableError
from evenkeel.domain.fleet.check_times import Chunk
from tests.alerts import alert, detail_of
from tests.fakes import NOW


class Client:
    """boto3's SQS or EventBridge client, as far as it is used; ``error`` is raised instead of an answer."""

    def __init__(self, answer: Any = None, error: Exception | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self._answer = answer or {}
        self._error = error

    def send_message(self, **message: Any) -> Any:
        if self._error:
            raise self._error
        self.sent.append(message)
        return self._answer

    put_events = change_message_visibility = send_message_batch = send_message


class Batches(Client):
    """SQS; of each batch, it does not take the entries of these ids."""

    def __init__(self, refusals: Sequence[Sequence[str]] = ()) -> None:
        super().__init__()
        self.batches: list[list[dict[str, Any]]] = []
        self._refusals = list(refusals)

    def send_message_batch(self, **batch: Any) -> Any:
        assert batch["QueueUrl"] == "l"
        self.batches.append(batch["Entries"])
        refused = self._refusals.pop(0) if self._refusals else []
        return {
            "Failed": [{"Id": id, "Code": "Throttled", "Message": "slow down", "SenderFault": False} for id in refused]
        }


@pytest.fixture
def client() -> Client:
    return Client()


def queue(client: Client) -> SqsQueue:
    return SqsQueue(client, QueueUrls(rebalance="r.fifo", recheck="c", looks="l", dead_letters="d.fifo"))


class TestReading:
    def test_a_message_names_its_cluster_and_why(self) -> None:
        assert read_message(Request, '{"cluster": "demo", "reason": "scan"}') == Request(cluster="demo", reason="scan")

    @pytest.mark.parametrize(
        ("body", "says"),
        [
            ("", "message: not JSON"),
            ("{", "message: not JSON"),
            ("[" * 100_000, "message: not JSON"),
            ("x" * 300_000, "message: not JSON"),
            ("[]", "message: the whole is '[]'"),
            ("{}", "message: cluster is missing"),
            ('{"cluster": "demo"}', "message: reason is missing"),
            ('{"cluster": "../x", "reason": ""}', "message: cluster is '../x'"),
            ('{"cluster": "demo\\n", "reason": ""}', "message: cluster is "),
            ('{"cluster": null, "reason": ""}', "message: cluster is 'None'"),
            ('{"cluster": "demo", "reason": "' + "x" * 201 + '"}', "message: reason is "),
            ('{"cluster": "demo", "reason": "", "found": "gold"}', "message: found is 'gold'"),
            (None, "message: its body is no text"),
            ({"cluster": "demo"}, "message: its body is no text"),
        ],
    )
    def test_a_message_that_can_never_be_handled_says_why_in_one_line(self, body: object, says: str) -> None:
        with pytest.raises(BadRequestError) as caught:
            read_message(Request, body)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) <= 500

    def test_what_only_a_newer_release_says_is_passed_over(self) -> None:
        body = '{"cluster": "demo", "reason": "scan", "server": "https://x"}'
        assert read_message(Request, body) == Request(cluster="demo", reason="scan")

    def test_a_chunk_names_its_clusters(self) -> None:
        assert read_message(CheckRequest, '{"clusters": ["a", "b"]}').clusters == ("a", "b")

    @pytest.mark.parametrize("body", ["{}", '{"clusters": []}', '{"clusters": "a"}', '{"clusters": ["A B"]}'])
    def test_a_chunk_of_nothing_or_of_no_clusters_is_poison(self, body: str) -> None:
        with pytest.raises(BadRequestError, match="message: clusters"):
            read_message(CheckRequest, body)

    def test_what_comes_due_is_a_run_or_the_rest_of_a_shard(self, client: Client) -> None:
        queue(client).scan_on("7", "cluster-9", NOW)
        queue(client).look_again("demo", "a look is due", 5)
        rest, run = [read_recheck(sent["MessageBody"]) for sent in client.sent]
        assert rest == ScanRequest(shard="7", after="cluster-9", at=NOW)
        assert run == Request(cluster="demo", reason="a look is due")

    def test_what_comes_to_the_worker_is_a_run_or_a_rollout(self, client: Client) -> None:
        queue(client).advance_rollouts("01", NOW)
        queue(client).request("demo", "scan", "1")
        rollout, run = [read_request(sent["MessageBody"]) for sent in client.sent]
        assert rollout == RolloutRequest(rollout="01")
        assert run == Request(cluster="demo", reason="scan")

    def test_a_rollout_waits_for_no_cluster_and_goes_on_once_a_tick(self, client: Client) -> None:
        for at in (NOW, NOW, NOW + timedelta(minutes=1)):
            queue(client).advance_rollouts("01", at)
        assert {sent["MessageGroupId"] for sent in client.sent} == {"#rollout"}
        first, again, next_tick = [sent["MessageDeduplicationId"] for sent in client.sent]
        assert first == again != next_tick

    @pytest.mark.parametrize(
        "body", ['{"shard": "7"}', '{"shard": 7, "after": "a", "at": "now"}', '{"reason": "x"}', None]
    )
    def test_what_is_neither_is_poison(self, body: object) -> None:
        with pytest.raises(BadRequestError, match="message: "):
            read_recheck(body)

    @given(st.text() | st.binary().map(repr))
    def test_any_text_is_a_request_or_poison(self, body: str) -> None:
        with pytest.raises(BadRequestError):
            read_message(Request, body)

    def test_a_tick_carries_its_own_time(self) -> None:
        event = {"source": "evenkeel.schedule", "time": "2026-01-15T13:00:00+01:00"}
        assert read_scan(event) == datetime(2026, 1, 15, 12, tzinfo=UTC)

    def test_by_hand_clusters_are_named_or_all_are_meant(self) -> None:
        assert read_scan({"clusters": ["a", "b"]}) == ("a", "b")
        assert read_scan({}) == ()

    @pytest.mark.parametrize(
        "event",
        [
            [],
            "text",
            None,
            {"clusters": "a"},
            {"clusters": [1]},
            {"clusters": ["A B"]},
            {"time": "2026-01-15T12:00:00"},
            {"time": 5.5e300},
            {"time": "0001-01-01T00:00:00+23:59"},
            {"endpoint": "https://x"},
        ],
    )
    def test_an_event_that_is_neither_is_refused(self, event: object) -> None:
        with pytest.raises(BadRequestError, match="scan event"):
            read_scan(event)


class TestSending:
    def test_a_request_is_one_of_its_clusters_group(self, client: Client) -> None:
        queue(client).request("demo", "scan", "scan-demo-1")
        (sent,) = client.sent
        assert (sent["QueueUrl"], sent["MessageGroupId"]) == ("r.fifo", "demo")
        assert sent["MessageDeduplicationId"] == "scan-demo-1"
        assert read_message(Request, sent["MessageBody"]) == Request(cluster="demo", reason="scan")

    @given(reason=st.text(max_size=400), deduplication=st.text(max_size=300))
    def test_whatever_the_reason_and_id_the_queue_and_the_reader_take_them(
        self, reason: str, deduplication: str
    ) -> None:
        client = Client()
        queue(client).request("demo", reason, deduplication)
        (sent,) = client.sent
        assert 1 <= len(sent["MessageDeduplicationId"]) <= 128
        assert all("!" <= char <= "~" for char in sent["MessageDeduplicationId"])
        assert read_message(Request, sent["MessageBody"]).cluster == "demo"

    @pytest.mark.parametrize(("seconds", "delay"), [(-5, 0), (0, 0), (15, 15), (900, 900), (3600, 900)])
    def test_a_second_look_is_delayed_as_long_as_the_queue_can(self, client: Client, seconds: int, delay: int) -> None:
        queue(client).look_again("demo", "second look", seconds)
        assert (client.sent[0]["QueueUrl"], client.sent[0]["DelaySeconds"]) == ("c", delay)

    def test_chunks_go_in_batches_of_ten_each_with_its_own_delay(self) -> None:
        client = Batches()
        chunks = [Chunk(clusters=(f"c{number}",), delay=number) for number in range(25)]
        queue(client).request_checks(chunks)
        assert [len(entries) for entries in client.batches] == [10, 10, 5]
        sent = [entry for entries in client.batches for entry in entries]
        assert [entry["DelaySeconds"] for entry in sent] == list(range(25))
        assert [read_message(CheckRequest, entry["MessageBody"]).clusters for entry in sent] == [
            c.clusters for c in chunks
        ]
        assert "MessageGroupId" not in sent[0], "a fair queue costs more"

    def test_what_sqs_does_not_take_of_a_batch_is_sent_once_more(self) -> None:
        client = Batches(refusals=[["1", "2"]])
        queue(client).request_checks([Chunk(clusters=(name,)) for name in "abc"])
        first, second = client.batches
        assert [entry["Id"] for entry in first] == ["0", "1", "2"]
        assert [json.loads(entry["MessageBody"])["clusters"] for entry in second] == [["b"], ["c"]]

    def test_what_is_refused_twice_is_told(self) -> None:
        client = Batches(refusals=[["1"], ["1"]])
        with pytest.raises(QueueUnavailableError, match="queue l: slow down"):
            queue(client).request_checks([Chunk(clusters=(name,)) for name in "abc"])

    @pytest.mark.parametrize(("receives", "seconds"), [(1, 5), (2, 20), (3, 80), (4, 80), (99, 80)])
    def test_a_failed_message_comes_back_soon_and_later_each_time(self, receives: int, seconds: int) -> None:
        client = Client()
        queue(client).try_soon("handle", receives)
        assert client.sent == [{"QueueUrl": "r.fifo", "ReceiptHandle": "handle", "VisibilityTimeout": seconds}]

    def test_where_that_cannot_be_said_it_comes_back_by_itself(self, caplog: pytest.LogCaptureFixture) -> None:
        queue(Client(error=EndpointConnectionError(endpoint_url="https://sqs"))).try_soon("handle", 1)
        assert "visibility timeout" in caplog.text

    @pytest.mark.parametrize("body", ["", "x", "x" * 300_000])
    def test_poison_keeps_its_beginning_and_gets_its_reason(self, client: Client, body: str) -> None:
        queue(client).dead_letter(body, "not JSON" * 500, "m-1")
        (sent,) = client.sent
        assert sent["QueueUrl"] == "d.fifo"
        assert sent["MessageBody"] == (body[:200_000] or "(empty)")
        assert sent["MessageAttributes"]["reason"]["StringValue"] == ("not JSON" * 500)[:1000]

    @pytest.mark.parametrize(
        "error",
        [
            ClientError({"Error": {"Code": "Throttled", "Message": "slow down"}}, "SendMessage"),
            EndpointConnectionError(endpoint_url="https://sqs"),
        ],
    )
    def test_a_queue_that_does_not_take_it_is_unavailable(self, error: Exception) -> None:
        calls = (
            lambda q: q.request("demo", "scan", "1"),
            lambda q: q.look_again("demo", "scan", 1),
            lambda q: q.dead_letter("x", "y", "1"),
            lambda q: q.request_checks([Chunk(clusters=("demo",))]),
            lambda q: q.scan_on("7", "demo", NOW),
            lambda q: q.advance_rollouts("01", NOW),
        )
        for call in calls:
            with pytest.raises(QueueUnavailableError, match="queue "):
                call(queue(Client(error=error)))


class TestPublishing:
    DETAIL = {"id": "1", "cluster": "demo", "pool": {"name": "workers", "groups": []}}  # noqa: RUF012 (never changed)

    def test_a_decision_is_an_event_of_ours(self, client: Client) -> None:
        EventBridgeBus(client, "bus").publish("Pool Starved", self.DETAIL)
        (entry,) = client.sent[0]["Entries"]
        assert (entry["Source"], entry["DetailType"], entry["EventBusName"]) == ("evenkeel", "Pool Starved", "bus")
        assert json.loads(entry["Detail"]) == self.DETAIL

    def test_one_that_is_too_large_is_cut_and_says_so(self, client: Client) -> None:
        groups = [{"name": "x" * 1000} for _ in range(400)]
        EventBridgeBus(client, "bus").publish("Pool Starved", {**self.DETAIL, "pool": {"name": "w", "groups": groups}})
        detail = client.sent[0]["Entries"][0]["Detail"]
        assert len(detail) < 256 * 1024
        assert json.loads(detail) == {"id": "1", "cluster": "demo", "pool": {"name": "w"}, "truncated": True}

    def test_trouble_that_is_too_large_to_tell_keeps_all_that_people_are_paged_with(self, client: Client) -> None:
        told = alert(kind="invalid", pool="default/workers")
        EventBridgeBus(client, "bus").publish("Incident Opened", {**detail_of(told), "problems": ["x" * 300_000]})
        detail = client.sent[0]["Entries"][0]["Detail"]
        assert len(detail) < 256 * 1024
        assert read_alert(detail) == told

    @pytest.mark.parametrize(
        "client",
        [
            Client(error=EndpointConnectionError(endpoint_url="https://events")),
            Client({"FailedEntryCount": 1, "Entries": [{"ErrorMessage": "no such bus"}]}),
        ],
    )
    def test_one_that_cannot_be_sent_is_logged_and_no_reason_to_fail(
        self, client: Client, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.ERROR):
            EventBridgeBus(client, "bus").publish("Pool Starved", self.DETAIL)
        assert "event 'Pool Starved' not sent" in caplog.text
