"""Queues and bus: the way in to ``rebalance``, poison's way out, and decision events."""

import json
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import BaseModel, ConfigDict, Field

from evenkeel.application.errors import BadRequestError, QueueUnavailableError
from evenkeel.config import ClusterId, ConfigError, Moment, read_json, read_model

_log = logging.getLogger("evenkeel.messages")
# An EventBridge entry may have 256 KiB; what is left out stands in the decision record.
_LARGEST_DETAIL = 240_000
_SOURCE = "evenkeel"
# Seconds until a message that failed comes back for the first time, then four times as long, at most 80: 5, 20, 80, 80.
# A table that was away for a moment costs little. A worker that died asks for nothing: its message comes back after the
# queue's visibility timeout (90 s), when its lease (60 s at most) has ended, and well before the first backoff has.
_TRY_AGAIN_SECONDS = 5
LONGEST_WAIT_SECONDS = 80


class Request(BaseModel):
    """A message that asks for a look at a cluster. It carries nothing that the look relies on."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    cluster: ClusterId
    reason: str = Field(max_length=200)


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


def read_request(body: object) -> Request:
    """Raises BadRequestError: the message can never be handled."""
    if not isinstance(body, str):
        raise BadRequestError("message: its body is no text")
    try:
        return read_json(Request, body, "message")
    except ConfigError as error:
        raise BadRequestError(str(error)[:500]) from None


class SqsQueue:
    """:class:`evenkeel.application.ports.Queue` on two SQS queues."""

    def __init__(self, client: Any, *, rebalance: str, recheck: str, dead_letters: str) -> None:
        self._client = client
        self._rebalance = rebalance
        self._recheck = recheck
        self._dead_letters = dead_letters

    def request(self, cluster: str, reason: str, deduplication: str) -> None:
        """One message group per cluster: one worker at a time, and a slow cluster delays no other."""
        self._send(
            QueueUrl=self._rebalance,
            MessageBody=_body(cluster, reason),
            MessageGroupId=cluster,
            MessageDeduplicationId=_deduplication(deduplication),
        )

    def look_again(self, cluster: str, reason: str, seconds: int) -> None:
        """Through the standard queue, whose messages can be delayed one by one."""
        self._send(QueueUrl=self._recheck, MessageBody=_body(cluster, reason), DelaySeconds=max(0, min(900, seconds)))

    def try_soon(self, receipt_handle: str, receives: int) -> None:
        """Let a message of the rebalance queue that failed come back before its visibility timeout ends.

        Its cluster's other messages wait for it. Best effort: where it fails, the message comes back all the same.
        """
        seconds = min(_TRY_AGAIN_SECONDS * 4 ** max(0, receives - 1), LONGEST_WAIT_SECONDS)
        try:
            self._client.change_message_visibility(
                QueueUrl=self._rebalance, ReceiptHandle=receipt_handle, VisibilityTimeout=seconds
            )
        except (BotoCoreError, ClientError) as error:
            _log.warning("message comes back after its visibility timeout: %s", error)

    def dead_letter(self, body: str, reason: str, message_id: str) -> None:
        """Poison goes to the dead letters at once, with its reason, instead of being tried until it gets there."""
        self._send(
            QueueUrl=self._dead_letters,
            MessageBody=body[:200_000] or "(empty)",
            MessageGroupId="poison",
            MessageDeduplicationId=_deduplication(message_id),
            MessageAttributes={"reason": {"DataType": "String", "StringValue": reason[:1000] or "unknown"}},
        )

    def _send(self, **message: Any) -> None:
        try:
            self._client.send_message(**message)
        except (BotoCoreError, ClientError) as error:
            raise QueueUnavailableError(f"queue {message['QueueUrl']}: {error}") from None


def _body(cluster: str, reason: str) -> str:
    return json.dumps({"cluster": cluster, "reason": reason[:200]})


def _deduplication(text: str) -> str:
    """SQS takes 128 characters of ASCII letters, digits and punctuation."""
    return "".join(char if "!" <= char <= "~" else "_" for char in text)[:128] or "_"


class EventBridgeBus:
    """:class:`evenkeel.application.ports.Bus` on EventBridge."""

    def __init__(self, client: Any, bus: str) -> None:
        self._client = client
        self._bus = bus

    def publish(self, detail_type: str, detail: Mapping[str, Any]) -> None:
        """Best effort: what cannot be sent is logged, and stands in the table."""
        text = json.dumps(detail, ensure_ascii=False)
        if len(text.encode()) > _LARGEST_DETAIL:
            short = {key: value for key, value in detail.items() if key != "pool"}
            text = json.dumps({**short, "pool": {"name": detail.get("pool", {}).get("name")}, "truncated": True})
        try:
            answer = self._client.put_events(
                Entries=[{"Source": _SOURCE, "DetailType": detail_type, "Detail": text, "EventBusName": self._bus}]
            )
        except (BotoCoreError, ClientError) as error:
            _log.error("event %r not sent: %s", detail_type, error)
            return
        if answer.get("FailedEntryCount"):
            _log.error("event %r not sent: %s", detail_type, answer["Entries"][0].get("ErrorMessage"))
