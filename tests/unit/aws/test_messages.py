"""Messages and events in, messages and decision events out."""

import json
import logging
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel.adapters.aws.incident_events import read_alert
from evenkeel.adapters.aws.queues import (
    CheckRequest,
    EventBridgeBus,
    QueueUrls,
    Request,
    SqsQueue,
    read_check,
    read_message,
    read_scan,
)
from evenkeel.application.errors import BadRequestError, QueueUnavailableError
from evenkeel.domain.fleet.check_times import Chunk
from tests.alerts import alert, detail_of


class Client:
    """boto3's SQS or EventBridge client; ``error`` is raised instead of an answer."""

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
    """SQS that refuses the entries with these ids in each batch."""

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
    return SqsQueue(client, QueueUrls(rebalance="r.fifo", checks="l", dead_letters="d"))


class TestReading:
    def test_a_message_has_a_cluster_and_a_reason(self) -> None:
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
    def test_an_invalid_message_is_refused_in_one_line(self, body: object, says: str) -> None:
        with pytest.raises(BadRequestError) as caught:
            read_message(Request, body)
        assert says in str(caught.value)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) <= 500

    def test_unknown_fields_are_ignored(self) -> None:
        body = '{"cluster": "demo", "reason": "scan", "server": "https://x"}'
        assert read_message(Request, body) == Request(cluster="demo", reason="scan")

    @pytest.mark.parametrize("body", ["{}", '{"clusters": []}', '{"clusters": "a"}', '{"clusters": ["A B"]}'])
    def test_a_chunk_without_clusters_is_refused(self, body: str) -> None:
        with pytest.raises(BadRequestError, match="message: clusters"):
            read_message(CheckRequest, body)

    def test_a_message_of_the_checks_is_a_run_or_a_chunk(self, client: Client) -> None:
        queue(client).check_again("demo", "a check is due", 5)
        assert read_check(client.sent[0]["MessageBody"]) == Request(cluster="demo", reason="a check is due")
        assert read_check('{"clusters": ["demo"]}') == CheckRequest(clusters=("demo",))

    def test_a_message_of_the_worker_is_a_run(self, client: Client) -> None:
        queue(client).request("demo", "scan", "1")
        assert read_message(Request, client.sent[0]["MessageBody"]) == Request(cluster="demo", reason="scan")

    @pytest.mark.parametrize("body", ['{"cluster": "7"}', '{"cluster": ["a"], "reason": "x"}', '{"reason": "x"}', None])
    def test_another_message_of_the_checks_is_refused(self, body: object) -> None:
        with pytest.raises(BadRequestError, match="message: "):
            read_check(body)

    @given(st.text() | st.binary().map(repr))
    def test_other_text_is_no_request(self, body: str) -> None:
        with pytest.raises(BadRequestError):
            read_message(Request, body)

    @pytest.mark.parametrize(
        ("event", "scan"),
        [
            (
                {"source": "evenkeel.schedule", "time": "2026-01-15T13:00:00+01:00"},
                datetime(2026, 1, 15, 12, tzinfo=UTC),
            ),
            ({"clusters": ["a", "b"]}, ("a", "b")),
            ({}, ()),
        ],
    )
    def test_a_scan_has_a_time_or_clusters(self, event: object, scan: object) -> None:
        assert read_scan(event) == scan

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
    def test_another_scan_event_is_refused(self, event: object) -> None:
        with pytest.raises(BadRequestError, match="scan event"):
            read_scan(event)


class TestSending:
    @given(reason=st.text(max_size=400), deduplication=st.text(max_size=300))
    @example(reason="scan", deduplication="scan-demo-1")
    def test_any_reason_and_id_is_sent_and_read_back(self, reason: str, deduplication: str) -> None:
        client = Client()
        queue(client).request("demo", reason, deduplication)
        (sent,) = client.sent
        assert (sent["QueueUrl"], sent["MessageGroupId"]) == ("r.fifo", "demo")
        assert 1 <= len(sent["MessageDeduplicationId"]) <= 128
        assert all("!" <= char <= "~" for char in sent["MessageDeduplicationId"])
        assert read_message(Request, sent["MessageBody"]).cluster == "demo"
        if deduplication == "scan-demo-1":
            assert sent["MessageDeduplicationId"] == deduplication
            assert read_message(Request, sent["MessageBody"]) == Request(cluster="demo", reason="scan")

    @given(seconds=st.integers(-5, 2_000), is_chunk=st.booleans())
    @example(seconds=240, is_chunk=False)
    @example(seconds=241, is_chunk=True)
    def test_a_wait_is_delays_that_are_shorter_than_the_alarm_about_age(self, seconds: int, is_chunk: bool) -> None:
        client, batches = Client(), Batches()
        if is_chunk:
            queue(batches).request_checks([Chunk(clusters=("demo",), rests=("idle",), delay=seconds)])
            ((sent,),) = batches.batches
        else:
            queue(client).check_again("demo", "a check is due", seconds)
            (sent,) = client.sent
            assert sent["QueueUrl"] == "l"
        request = read_check(sent["MessageBody"])
        assert 0 <= sent["DelaySeconds"] <= 240
        assert sent["DelaySeconds"] + request.wait == max(0, min(900, seconds))
        assert ("wait" in json.loads(sent["MessageBody"])) == (seconds > 240)

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

    def test_refused_entries_of_a_batch_are_sent_once_more(self) -> None:
        client = Batches(refusals=[["1", "2"]])
        queue(client).request_checks([Chunk(clusters=(name,)) for name in "abc"])
        first, second = client.batches
        assert [entry["Id"] for entry in first] == ["0", "1", "2"]
        assert [json.loads(entry["MessageBody"])["clusters"] for entry in second] == [["b"], ["c"]]
        with pytest.raises(QueueUnavailableError, match="queue l: slow down"):
            queue(Batches([["1"], ["1"]])).request_checks([Chunk(clusters=(name,)) for name in "abc"])

    @pytest.mark.parametrize(("receives", "seconds"), [(1, 5), (2, 20), (3, 80), (4, 80), (99, 80)])
    def test_a_failed_message_is_retried_with_growing_delays(self, receives: int, seconds: int) -> None:
        client = Client()
        queue(client).try_soon("handle", receives)
        assert client.sent == [{"QueueUrl": "r.fifo", "ReceiptHandle": "handle", "VisibilityTimeout": seconds}]

    def test_an_error_of_the_retry_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        queue(Client(error=EndpointConnectionError(endpoint_url="https://sqs"))).try_soon("handle", 1)
        assert "visibility timeout" in caplog.text

    @pytest.mark.parametrize("body", ["", "x", "x" * 300_000])
    def test_a_dead_letter_has_a_shortened_body_and_a_reason(self, client: Client, body: str) -> None:
        queue(client).dead_letter(body, "not JSON" * 500)
        (sent,) = client.sent
        assert sent["QueueUrl"] == "d"
        assert sent["MessageBody"] == (body[:200_000] or "(empty)")
        assert sent["MessageAttributes"]["reason"]["StringValue"] == ("not JSON" * 500)[:1000]

    @pytest.mark.parametrize(
        "error",
        [
            ClientError({"Error": {"Code": "Throttled", "Message": "slow down"}}, "SendMessage"),
            EndpointConnectionError(endpoint_url="https://sqs"),
        ],
    )
    def test_an_error_of_the_queue_is_reported(self, error: Exception) -> None:
        calls = (
            lambda q: q.request("demo", "scan", "1"),
            lambda q: q.check_again("demo", "scan", 1),
            lambda q: q.dead_letter("x", "y"),
            lambda q: q.request_checks([Chunk(clusters=("demo",))]),
        )
        for call in calls:
            with pytest.raises(QueueUnavailableError, match="queue "):
                call(queue(Client(error=error)))


class TestPublishing:
    DETAIL = {"id": "1", "cluster": "demo", "pool": {"name": "workers", "groups": []}}  # noqa: RUF012 (never changed)

    def test_a_decision_is_an_event_of_evenkeel(self, client: Client) -> None:
        EventBridgeBus(client, "bus").publish("Pool Starved", self.DETAIL)
        (entry,) = client.sent[0]["Entries"]
        assert (entry["Source"], entry["DetailType"], entry["EventBusName"]) == ("evenkeel", "Pool Starved", "bus")
        assert json.loads(entry["Detail"]) == self.DETAIL

    def test_an_event_that_is_too_large_is_truncated(self, client: Client) -> None:
        groups = [{"name": "x" * 1000} for _ in range(400)]
        EventBridgeBus(client, "bus").publish("Pool Starved", {**self.DETAIL, "pool": {"name": "w", "groups": groups}})
        detail = client.sent[0]["Entries"][0]["Detail"]
        assert len(detail) < 256 * 1024
        assert json.loads(detail) == {"id": "1", "cluster": "demo", "pool": {"name": "w"}, "truncated": True}

    def test_an_incident_that_is_too_large_keeps_what_alerts_need(self, client: Client) -> None:
        opened = alert(kind="invalid", pool="default/workers")
        EventBridgeBus(client, "bus").publish("Incident Opened", {**detail_of(opened), "problems": ["x" * 300_000]})
        detail = client.sent[0]["Entries"][0]["Detail"]
        assert len(detail) < 256 * 1024
        assert read_alert(detail) == opened

    @pytest.mark.parametrize(
        "client",
        [
            Client(error=EndpointConnectionError(endpoint_url="https://events")),
            Client({"FailedEntryCount": 1, "Entries": [{"ErrorMessage": "no such bus"}]}),
        ],
    )
    def test_an_event_that_cannot_be_sent_is_logged(self, client: Client, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.ERROR):
            EventBridgeBus(client, "bus").publish("Pool Starved", self.DETAIL)
        assert "event 'Pool Starved' not sent" in caplog.text
