"""Handles batches of SQS messages. A failed message is retried or dead-lettered, with a log line and a metric."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import MetricUnit

from evenkeel.adapters.aws.metrics import StackMetrics
from evenkeel.adapters.aws.queues import SqsQueue
from evenkeel.application.errors import BadRequestError, QueueUnavailableError


@dataclass(frozen=True, kw_only=True)
class SqsRecord:
    """The parts of a delivered message that Evenkeel uses."""

    message_id: str
    body: Any
    receipt_handle: str
    receives: int
    """How often SQS has delivered the message, including this delivery."""
    group: str
    """The message group; empty on a standard queue."""

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> "SqsRecord":
        """Return the record. Raises KeyError if one of Lambda's fields is missing. SQS then retries the whole batch."""
        attributes = record.get("attributes") or {}
        return cls(
            message_id=record["messageId"],
            body=record["body"],
            receipt_handle=record["receiptHandle"],
            receives=int(attributes.get("ApproximateReceiveCount", 1)),
            group=attributes.get("MessageGroupId", ""),
        )


def records_of(event: object, logger: Logger) -> Sequence[Mapping[str, Any]]:
    """Return the records of a batch. If the event is no batch, log this and return no records."""
    records = event.get("Records") if isinstance(event, dict) else None
    if isinstance(records, list):
        return records
    logger.error("event is no SQS batch: it has no list of Records")
    return []


def answer_batch(records: Sequence[Mapping[str, Any]], handle: Callable[[SqsRecord], None]) -> dict[str, Any]:
    """Handle the records. Return Lambda's partial batch response, which lists the messages that SQS must retry.

    After a failure, the later messages of the same message group are not handled, so that they keep their order. Other
    groups, and messages without a group, are handled. (Powertools' ``SqsFifoPartialProcessor`` does the same, but it
    imports every other event source of Lambda.)
    """
    failed: list[str] = []
    held_back: set[str] = set()
    for record in map(SqsRecord.read, records):
        if record.group in held_back:
            failed.append(record.message_id)
            continue
        try:
            handle(record)
        except Exception:  # Inbox.handle has logged and counted the error
            failed.append(record.message_id)
            if record.group:
                held_back.add(record.group)
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """Handles the messages of one queue."""

    queue: SqsQueue
    # The deliveries after which a message becomes a dead letter. Failed messages are retried soon. None: the queue's
    # redrive policy and visibility timeout decide.
    tries: int | None = None

    def handle(self, record: SqsRecord, work: Callable[[str], None], logger: Logger, metrics: StackMetrics) -> None:
        """Do the work that a message requests. If the work raises BadRequestError, the message is dead-lettered.

        So is a message that has used its tries, also if no worker survived them.

        Any other error is logged, counted and raised again, so that SQS retries the message.
        """
        try:
            try:
                if self.tries is not None and record.receives > self.tries:
                    raise BadRequestError(f"not handled in {self.tries} tries")
                work(record.body)
            except BadRequestError as error:
                self._set_aside(record, error, logger, metrics)
        except Exception as error:
            logger.error("message not handled, it is tried again: %s: %s", type(error).__name__, error)
            metrics.add_metric("RunsFailed", MetricUnit.Count, 1)
            if self.tries is not None:
                self.queue.try_soon(record.receipt_handle, record.receives)
            raise

    def set_aside(self, record: SqsRecord, error: BadRequestError, logger: Logger, metrics: StackMetrics) -> bool:
        """Dead-letter a message that can never succeed. Return False if SQS must deliver it again."""
        try:
            self._set_aside(record, error, logger, metrics)
        except QueueUnavailableError as reason:
            logger.error("message not set aside, it is tried again: %s", reason)
            return False
        return True

    def _set_aside(self, record: SqsRecord, error: BadRequestError, logger: Logger, metrics: StackMetrics) -> None:
        logger.error("message sent to the dead letters: %s", error)
        self.queue.dead_letter(str(record.body), str(error))
        metrics.add_metric("PoisonMessages", MetricUnit.Count, 1)
