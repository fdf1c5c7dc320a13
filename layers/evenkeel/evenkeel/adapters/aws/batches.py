"""One message of a batch: handled, sent to the dead letters or given back, and none of it without a trace."""

from collections.abc import Callable
from dataclasses import dataclass

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from evenkeel.adapters.aws.messages import SqsQueue
from evenkeel.application.errors import BadRequestError


@dataclass(frozen=True, kw_only=True)
class Inbox:
    """The messages of one queue. ``tries_soon``: it is the rebalance queue, where those that fail come back earlier."""

    queue: SqsQueue
    tries_soon: bool = False

    def handle(self, record: SQSRecord, work: Callable[[str], None], logger: Logger, metrics: Metrics) -> None:
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
                self.queue.try_soon(record.receipt_handle, int(record.attributes.approximate_receive_count))
            raise
