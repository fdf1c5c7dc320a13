"""The SQS queues, which carry requests and dead letters, and the bus, which carries Evenkeel's events."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator

from evenkeel.adapters.aws_faults import AWS_ERRORS, text_of
from evenkeel.adapters.codec import dump_plain, read_as
from evenkeel.application.errors import BadRequestError, QueueUnavailableError
from evenkeel.application.ports import CheckResult
from evenkeel.domain.fleet.check_times import Chunk, SteadyState
from evenkeel.validation import ClusterId, ConfigError, Moment, read_json, read_model

_log = logging.getLogger("evenkeel.messages")
# The largest detail of an event, in bytes. EventBridge allows 256 KiB for an entry. A larger event is sent without some
# fields, which the stored decision still contains.
_LARGEST_DETAIL = 240_000
_LONG = ("pool", "problems", "says")  # the fields that are removed from a larger event
SOURCE = "evenkeel"
# Seconds until SQS retries a failed message for the first time. Each further delay is four times as long, at most 80 s:
# 5, 20, 80, 80. So a short outage of the table delays a run only briefly. If a worker dies, SQS retries its message
# after the queue's visibility timeout (90 s). By then, the worker's lease (60 s at most) has ended, but the first
# backoff of a group has not.
_TRY_AGAIN_SECONDS = 5
LONGEST_WAIT_SECONDS = 80
# The deliveries of a message of the rebalance queue before it becomes a dead letter.
TRIES = 5
# The most messages of an SQS batch.
_BATCH = 10
# The longest delay of a message, in seconds. It is below the 300 s of the alarm ChecksStopped, because AWS does not
# document whether a message's age includes its delay. A longer wait continues with another message, up to 15 minutes.
_LONGEST_DELAY = 240
_LONGEST_REQUEST = 900


class Message(BaseModel):
    """The body of a message. Unknown fields are ignored, because a newer release may have sent the message."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


_Message = TypeVar("_Message", bound=Message)


class Request(Message):
    """A request for a run of a cluster. The run always reads the cluster itself."""

    cluster: ClusterId
    reason: str = Field(max_length=200)
    found: CheckResult | None = None
    steady: Annotated[SteadyState, PlainValidator(lambda data: read_as(SteadyState, data, "steady"))] | None = None
    wait: int = Field(default=0, ge=0, le=_LONGEST_REQUEST)  # seconds that remain after the message's delay


class CheckRequest(Message):
    """A request to check some clusters in parallel."""

    clusters: tuple[ClusterId, ...] = Field(min_length=1, max_length=1000)
    rests: tuple[ClusterId, ...] = Field(default=(), max_length=1000)
    wait: int = Field(default=0, ge=0, le=_LONGEST_REQUEST)  # seconds that remain after the message's delay


class _ScanEvent(BaseModel):
    """The input of a scan. The schedule sends source and time. An operator sends clusters, or no field."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    source: str = ""
    time: Moment | None = None
    clusters: tuple[ClusterId, ...] = ()


def read_scan(event: object) -> datetime | tuple[str, ...]:
    """Return the time of the scheduled scan, or the clusters that an operator names; empty: all clusters.

    Raises BadRequestError if the event has a bad value.
    """
    try:
        scan = read_model(_ScanEvent, event, "scan event")
    except ConfigError as error:
        raise BadRequestError(str(error)) from None
    return scan.time if scan.time is not None else scan.clusters


def read_message(model: type[_Message], body: object) -> _Message:
    """Return the parsed message. Raises BadRequestError if the message can never be handled."""
    if not isinstance(body, str):
        raise BadRequestError("message: its body is no text")
    try:
        return read_json(model, body, "message")
    except ConfigError as error:
        raise BadRequestError(str(error)[:500]) from None


def read_check(body: object) -> CheckRequest | Request:
    """Return a message of the checks queue. Raises BadRequestError."""
    begins_with_cluster = isinstance(body, str) and body.startswith('{"cluster":')  # as ``check_again`` writes it
    return read_message(Request, body) if begins_with_cluster else read_message(CheckRequest, body)


@dataclass(frozen=True, kw_only=True)
class QueueUrls:
    """The URLs of a stack's queues."""

    rebalance: str
    checks: str
    dead_letters: str


class SqsQueue:
    """Implements the port ``Queue`` with SQS."""

    def __init__(self, client: Any, urls: QueueUrls) -> None:
        self._client = client
        self._urls = urls

    def request(
        self,
        cluster: str,
        reason: str,
        deduplication: str,
        found: CheckResult | None = None,
        steady: SteadyState | None = None,
    ) -> None:
        """Send the request in the cluster's message group. So a cluster's runs are in sequence, and delay no other."""
        body: dict[str, Any] = {"cluster": cluster, "reason": reason[:200]}
        if found is not None:
            body["found"] = found.value
        if steady is not None:
            body["steady"] = dump_plain(steady)
        self._call(
            "send_message",
            self._urls.rebalance,
            MessageBody=json.dumps(body),
            MessageGroupId=cluster,
            MessageDeduplicationId=_deduplication(deduplication),
        )

    def check_again(self, cluster: str, reason: str, seconds: int) -> None:
        """Send the request to the checks queue, a standard queue, where each message can have its own delay."""
        message = _delayed({"cluster": cluster, "reason": reason[:200]}, seconds)
        self._call("send_message", self._urls.checks, **message)

    def wait_on(self, request: Request | CheckRequest) -> None:
        """Send a request again whose wait is not over."""
        if isinstance(request, Request):
            self.check_again(request.cluster, request.reason, request.wait)
        else:
            self.request_checks([Chunk(clusters=request.clusters, rests=request.rests, delay=request.wait)])

    def request_checks(self, chunks: Sequence[Chunk]) -> None:
        """Send the requests in batches. Messages that SQS refuses are sent once more."""
        for start in range(0, len(chunks), _BATCH):
            entries = [
                {
                    "Id": str(number),
                    **_delayed(
                        {"clusters": chunk.clusters, **({"rests": chunk.rests} if chunk.rests else {})}, chunk.delay
                    ),
                }
                for number, chunk in enumerate(chunks[start : start + _BATCH])
            ]
            refused = self._send_batch(entries)
            if refused and (refused := self._send_batch([e for e in entries if e["Id"] in refused])):
                raise QueueUnavailableError(f"queue {self._urls.checks}: {'; '.join(sorted(set(refused.values())))}")

    def _send_batch(self, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """Send a batch. Return the reasons for which SQS has refused messages, by message id."""
        answer = self._call("send_message_batch", self._urls.checks, Entries=entries)
        return {entry["Id"]: str(entry.get("Message") or entry["Code"]) for entry in answer.get("Failed", [])}

    def try_soon(self, receipt_handle: str, receives: int) -> None:
        """Have SQS retry a failed message of the rebalance queue before its visibility timeout ends.

        The cluster's other messages wait for this one. If this call fails, SQS retries the message after the timeout.
        """
        seconds = min(_TRY_AGAIN_SECONDS * 4 ** max(0, receives - 1), LONGEST_WAIT_SECONDS)
        request = {"ReceiptHandle": receipt_handle, "VisibilityTimeout": seconds}
        try:
            self._call("change_message_visibility", self._urls.rebalance, **request)
        except QueueUnavailableError as error:
            _log.warning("message is retried after its visibility timeout: %s", error)

    def dead_letter(self, body: str, reason: str) -> None:
        """Send a message that can never succeed to the queue of dead letters at once, with the reason."""
        self._call(
            "send_message",
            self._urls.dead_letters,
            MessageBody=body[:200_000] or "(empty)",
            MessageAttributes={"reason": {"DataType": "String", "StringValue": reason[:1000] or "unknown"}},
        )

    def _call(self, operation: str, url: str, **request: Any) -> Any:
        try:
            return getattr(self._client, operation)(QueueUrl=url, **request)
        except AWS_ERRORS as error:
            raise QueueUnavailableError(f"queue {url}: {text_of(error)}") from None


def _delayed(body: Mapping[str, Any], seconds: int) -> dict[str, Any]:
    """Return a message of the checks queue. Its field ``wait`` is the rest of a wait that is longer than a delay."""
    wait = max(0, min(_LONGEST_REQUEST, seconds))
    delay = min(_LONGEST_DELAY, wait)
    rest = {"wait": wait - delay} if wait > delay else {}
    return {"MessageBody": json.dumps({**body, **rest}), "DelaySeconds": delay}


def _deduplication(text: str) -> str:
    """Return the text as an id that SQS accepts: at most 128 ASCII letters, digits and punctuation characters."""
    return "".join(char if "!" <= char <= "~" else "_" for char in text)[:128] or "_"


class SqsAlerts:
    """Implements the port ``AlertQueue`` with SQS."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url

    def send(self, detail: Mapping[str, Any]) -> bool:
        """Send the change. If SQS does not accept it, log this and return False."""
        try:
            self._client.send_message(QueueUrl=self._url, MessageBody=_detail(detail))
        except AWS_ERRORS as error:
            _log.error("incident not sent to queue %s: %s", self._url, text_of(error))
            return False
        return True


class EventBridgeBus:
    """Implements the port ``Bus`` with EventBridge."""

    def __init__(self, client: Any, bus: str) -> None:
        self._client = client
        self._bus = bus

    def publish(self, detail_type: str, detail: Mapping[str, Any]) -> bool:
        """Send the event. If EventBridge does not accept it, log this and return False.

        The table also has the event's content.
        """
        entry = {"Source": SOURCE, "DetailType": detail_type, "Detail": _detail(detail), "EventBusName": self._bus}
        try:
            answer = self._client.put_events(Entries=[entry])
        except AWS_ERRORS as error:
            _log.error("event %r not sent: %s", detail_type, text_of(error))
            return False
        if answer.get("FailedEntryCount"):
            _log.error("event %r not sent: %s", detail_type, answer["Entries"][0].get("ErrorMessage"))
            return False
        return True


def _detail(detail: Mapping[str, Any]) -> str:
    """Return the detail of an event as text, shortened if it is too large."""
    text = json.dumps(detail, ensure_ascii=False)
    if len(text.encode()) <= _LARGEST_DETAIL:
        return text
    short = {key: value for key, value in detail.items() if key not in _LONG}
    pool = detail.get("pool")  # an object in a decision's event, an id in an incident's event
    pool = {"name": pool.get("name")} if isinstance(pool, Mapping) else pool
    return json.dumps({**short, "pool": pool, "truncated": True})
