"""Queues and bus: the ways in to ``look`` and ``rebalance``, poison's way out, and decision events."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from evenkeel.adapters.aws_faults import AWS_ERRORS, text_of
from evenkeel.adapters.stored import SteadyStateRecord
from evenkeel.application.errors import BadRequestError, QueueUnavailableError
from evenkeel.application.ports import CheckResult
from evenkeel.domain.fleet.check_times import Chunk, SteadyState
from evenkeel.validation import ClusterId, ConfigError, Moment, read_json, read_model

_log = logging.getLogger("evenkeel.messages")
# An EventBridge entry may have 256 KiB; what is left out stands in the decision record.
_LARGEST_DETAIL = 240_000
_LONG = ("pool", "problems", "says")  # what is left out of a larger one
SOURCE = "evenkeel"
# Seconds until a message that failed comes back for the first time, then four times as long, at most 80: 5, 20, 80, 80.
# A table that was away for a moment costs little. A worker that died asks for nothing: its message comes back after the
# queue's visibility timeout (90 s), when its lease (60 s at most) has ended, and well before the first backoff has.
_TRY_AGAIN_SECONDS = 5
LONGEST_WAIT_SECONDS = 80


# An SQS batch.
_BATCH = 10


class Message(BaseModel):
    """What stands on a queue. A newer release may have said more."""

    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


_Message = TypeVar("_Message", bound=Message)


class Request(Message):
    """Asks for a run at a cluster. It carries nothing that the run relies on."""

    cluster: ClusterId
    reason: str = Field(max_length=200)
    found: CheckResult | None = None
    settled: SteadyStateRecord | None = None


class CheckRequest(Message):
    """Asks for a look at some clusters, side by side."""

    clusters: tuple[ClusterId, ...] = Field(min_length=1, max_length=1000)


class RolloutRequest(Message):
    """Has a rollout go on. Which, and how far it is, says the table."""

    rollout: str = Field(min_length=1, max_length=100)


class ScanRequest(Message):
    """Asks for the rest of a shard to be scanned, for the tick of that moment."""

    shard: str = Field(min_length=1, max_length=16)
    after: ClusterId
    at: Moment


class _ScanEvent(BaseModel):
    """What the schedule sends (source and time), or what somebody sends by hand (clusters, or nothing)."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    source: str = ""
    time: Moment | None = None
    clusters: tuple[ClusterId, ...] = ()


def read_scan(event: object) -> datetime | tuple[str, ...]:
    """The tick's own time, or the clusters that are asked for by hand (none named: all).

    Raises:
        BadRequestError: neither.
    """
    try:
        scan = read_model(_ScanEvent, event, "scan event")
    except ConfigError as error:
        raise BadRequestError(str(error)) from None
    return scan.time if scan.time is not None else scan.clusters


def read_message(model: type[_Message], body: object) -> _Message:
    """Raises BadRequestError: the message can never be handled."""
    if not isinstance(body, str):
        raise BadRequestError("message: its body is no text")
    try:
        return read_json(model, body, "message")
    except ConfigError as error:
        raise BadRequestError(str(error)[:500]) from None


def read_recheck(body: object) -> Request | ScanRequest:
    """A run that has come due, or the rest of a shard. Raises BadRequestError."""
    of_shard = isinstance(body, str) and body.startswith('{"shard":')  # as scan_on writes it
    return read_message(ScanRequest, body) if of_shard else read_message(Request, body)


def read_request(body: object) -> Request | RolloutRequest:
    """Of the rebalance queue. Raises BadRequestError."""
    of_rollout = isinstance(body, str) and body.startswith('{"rollout":')  # as go_on writes it
    return read_message(RolloutRequest, body) if of_rollout else read_message(Request, body)


@dataclass(frozen=True, kw_only=True)
class QueueUrls:
    """Where the queues of a stack are."""

    rebalance: str
    recheck: str
    looks: str
    dead_letters: str


class SqsQueue:
    """``ScanQueue`` on three SQS queues."""

    def __init__(self, client: Any, urls: QueueUrls) -> None:
        self._client = client
        self._urls = urls

    def request(
        self,
        cluster: str,
        reason: str,
        deduplication: str,
        found: CheckResult | None = None,
        settled: SteadyState | None = None,
    ) -> None:
        """One message group per cluster: one worker at a time, and a slow cluster delays no other."""
        body: dict[str, Any] = {"cluster": cluster, "reason": reason[:200]}
        if found is not None:
            body["found"] = found.value
        if settled is not None:
            body["settled"] = SteadyStateRecord.of(settled).model_dump(mode="json", exclude_defaults=True)
        self._send(
            QueueUrl=self._urls.rebalance,
            MessageBody=json.dumps(body),
            MessageGroupId=cluster,
            MessageDeduplicationId=_deduplication(deduplication),
        )

    def look_again(self, cluster: str, reason: str, seconds: int) -> None:
        """Through the standard queue, whose messages can be delayed one by one."""
        body = json.dumps({"cluster": cluster, "reason": reason[:200]})
        self._send(QueueUrl=self._urls.recheck, MessageBody=body, DelaySeconds=max(0, min(900, seconds)))

    def scan_on(self, shard: str, after: str, at: datetime) -> None:
        """By the same queue: it is ``scan`` that takes its messages."""
        body = ScanRequest(shard=shard, after=after, at=at).model_dump_json()
        self._send(QueueUrl=self._urls.recheck, MessageBody=body)

    def advance_rollouts(self, rollout: str, at: datetime) -> None:
        """In a group of its own, which no cluster's id can be."""
        self._send(
            QueueUrl=self._urls.rebalance,
            MessageBody=json.dumps({"rollout": rollout}),
            MessageGroupId="#rollout",
            MessageDeduplicationId=_deduplication(f"rollout-{rollout}-{at.timestamp()}"),
        )

    def request_checks(self, chunks: Sequence[Chunk]) -> None:
        """In batches. What SQS has not taken of one is sent once more."""
        for start in range(0, len(chunks), _BATCH):
            entries = [
                {
                    "Id": str(number),
                    "MessageBody": json.dumps({"clusters": chunk.clusters}),
                    "DelaySeconds": max(0, min(900, chunk.delay)),
                }
                for number, chunk in enumerate(chunks[start : start + _BATCH])
            ]
            refused = self._send_batch(entries)
            if refused and (refused := self._send_batch([e for e in entries if e["Id"] in refused])):
                raise QueueUnavailableError(f"queue {self._urls.looks}: {'; '.join(sorted(set(refused.values())))}")

    def _send_batch(self, entries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
        """What SQS has not taken, by id, and why."""
        try:
            answer = self._client.send_message_batch(QueueUrl=self._urls.looks, Entries=entries)
        except AWS_ERRORS as error:
            raise QueueUnavailableError(f"queue {self._urls.looks}: {text_of(error)}") from None
        return {entry["Id"]: str(entry.get("Message") or entry["Code"]) for entry in answer.get("Failed", [])}

    def try_soon(self, receipt_handle: str, receives: int) -> None:
        """Let a message of the rebalance queue that failed come back before its visibility timeout ends.

        Its cluster's other messages wait for it. Best effort: where it fails, the message comes back all the same.
        """
        seconds = min(_TRY_AGAIN_SECONDS * 4 ** max(0, receives - 1), LONGEST_WAIT_SECONDS)
        try:
            self._client.change_message_visibility(
                QueueUrl=self._urls.rebalance, ReceiptHandle=receipt_handle, VisibilityTimeout=seconds
            )
        except AWS_ERRORS as error:
            _log.warning("message comes back after its visibility timeout: %s", text_of(error))

    def dead_letter(self, body: str, reason: str, message_id: str) -> None:
        """Poison goes to the dead letters at once, with its reason, instead of being tried until it gets there."""
        self._send(
            QueueUrl=self._urls.dead_letters,
            MessageBody=body[:200_000] or "(empty)",
            MessageGroupId="poison",
            MessageDeduplicationId=_deduplication(message_id),
            MessageAttributes={"reason": {"DataType": "String", "StringValue": reason[:1000] or "unknown"}},
        )

    def _send(self, **message: Any) -> None:
        try:
            self._client.send_message(**message)
        except AWS_ERRORS as error:
            raise QueueUnavailableError(f"queue {message['QueueUrl']}: {text_of(error)}") from None


def _deduplication(text: str) -> str:
    """SQS takes 128 characters of ASCII letters, digits and punctuation."""
    return "".join(char if "!" <= char <= "~" else "_" for char in text)[:128] or "_"


class EventBridgeBus:
    """``Bus`` on EventBridge."""

    def __init__(self, client: Any, bus: str) -> None:
        self._client = client
        self._bus = bus

    def publish(self, detail_type: str, detail: Mapping[str, Any]) -> bool:
        """Best effort: what cannot be sent is logged, and stands in the table."""
        text = json.dumps(detail, ensure_ascii=False)
        if len(text.encode()) > _LARGEST_DETAIL:
            short = {key: value for key, value in detail.items() if key not in _LONG}
            pool = detail.get("pool")  # of a decision all of it, of trouble its id
            pool = {"name": pool.get("name")} if isinstance(pool, Mapping) else pool
            text = json.dumps({**short, "pool": pool, "truncated": True})
        try:
            answer = self._client.put_events(
                Entries=[{"Source": SOURCE, "DetailType": detail_type, "Detail": text, "EventBusName": self._bus}]
            )
        except AWS_ERRORS as error:
            _log.error("event %r not sent: %s", detail_type, text_of(error))
            return False
        if answer.get("FailedEntryCount"):
            _log.error("event %r not sent: %s", detail_type, answer["Entries"][0].get("ErrorMessage"))
            return False
        return True
