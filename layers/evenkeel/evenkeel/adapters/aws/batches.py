"""One message of a batch: handled, buried or given back, and none of it without a trace."""

from collections.abc import Callable

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from evenkeel.adapters.aws.messages import Request, SqsQueue, read_request
from evenkeel.application.errors import BadRequestError


def handle_message(
    record: SQSRecord, queue: SqsQueue, logger: Logger, metrics: Metrics, work: Callable[[Request], None]
) -> None:
    """Poison is buried with its reason. Whatever else fails is raised again, so that the message comes back.

    The batch's answer only names the messages that failed; the log line and the metric here say that and why.
    """
    try:
        try:
            work(read_request(record.body))
        except BadRequestError as error:
            logger.error("message buried: %s", error)
            queue.dead_letter(record.body, str(error), record.message_id)
            metrics.add_metric("PoisonMessages", MetricUnit.Count, 1)
    except Exception as error:
        logger.error("message not handled, it is tried again: %s: %s", type(error).__name__, error)
        metrics.add_metric("RunsFailed", MetricUnit.Count, 1)
        raise
