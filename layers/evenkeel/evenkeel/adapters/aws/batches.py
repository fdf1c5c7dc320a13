"""Batches of SQS: each message handled, sent to the dead letters or given back, and none of it without a trace."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import MetricUnit

from evenkeel.adapters.aws.metrics import StackMetrics
from evenkeel.adapters.aws.queues import SqsQueue
from evenkeel.application.errors import BadRequestError


@dataclass(frozen=True, kw_only=True)
class SqsRecord:
    """As much of a delivered message as is looked at."""

    message_id: str
    body: Any
    receipt_handle: str
    receives: int
    """How often it was delivered, this time included."""
    group: str
    """Its message group; none on a standard queue."""

    @classmethod
    def read(cls, record: Mapping[str, Any]) -> "SqsRecord":
        """Raises KeyError where Lambda's own fields are missing: then the whole batch comes back."""
        attributes = record.get("attributes") or {}
        return cls(
            message_id=record["messageId"],
            body=record["body"],
            receipt_handle=record["receiptHandle"],
            receives=int(attributes.get("ApproximateReceiveCount", 1)),
            group=attributes.get("MessageGroupId", ""),
        )


def records_of(event: object, logger: Logger) -> Sequence[Mapping[str, Any]]:
    """The records of a batch; none, with a line in the log, where the event is something else."""
    records = event.get("Records") if isinstance(event, dict) else None
    if isinstance(records, list):
        return records
    logger.error("event is no SQS batch: it has no list of Records")
    return []


def answer_batch(records: Sequence[Mapping[str, Any]], handle: Callable[[SqsRecord], None]) -> dict[str, Any]:
    """Lambda's partial batch response: the messages that failed, which come back, and those that wait for them.

    Once a message has failed, the later ones of its group are not handled, so that their order stands when they come
    back; other groups go on, and so do messages of no group. (Powertools' ``SqsFifoPartialProcessor`` with
    ``skip_group_on_error`` does the same, and imports every other event source of Lambda with it.)
    """
    failed: list[str] = []
    held_back: set[str] = set()
    for record in map(SqsRecord.read, records):
        if record.group in held_back:
            failed.append(record.message_id)
            continue
        try:
            handle(record)
        except Exception:  # it has left its line and its count in Inbox.handle
            failed.append(record.message_id)
            if record.group:
                held_back.add(record.group)
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """The messages of one queue. ``tries_soon``: it is the rebalance queue, where those that fail come back earlier."""

    queue: SqsQueue
    tries_soon: bool = False

    def handle(self, record: SqsRecord, work: Callable[[str], None], logger: Logger, metrics: StackMetrics) -> None:
        """Have the work done that a message's body asks for. Poison, a BadRequestError, goes to the dead letters.

        Whatever else fails is raised again, so that the message comes back.

        The batch's answer only names the messages that failed; the log line and the metric here say that and why.
        """
        try:
            try:
                work(record.body)
            except BadRequestError as error:
                logger.error("message sent to the dead letters: %s", error)
                self.queue.dead_letter(record.body, str(error), record.message_id)
                metrics.add_metric("PoisonMessages", MetricUnit.Count, 1)
        except Exception as error:
            logger.error("message not handled, it is tried again: %s: %s", type(error).__name__, error)
            metrics.add_metric("RunsFailed", MetricUnit.Count, 1)
            if self.tries_soon:
                self.queue.try_soon(record.receipt_handle, record.receives)
            raise
