"""queue -> observe, plan, apply, record. The only function that writes to a cluster."""

from functools import partial
from typing import Any

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import SqsFifoPartialProcessor, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from evenkeel.adapters.aws.messages import Request, read_message
from evenkeel.bootstrap import container, make_logger, remaining_of

logger = make_logger()
metrics = Metrics()
# One cluster's failure holds back that cluster's messages only, also where a batch has several.
processor = SqsFifoPartialProcessor(skip_group_on_error=True)
processor.raise_on_entire_batch_failure = False  # the failed messages are named; the function itself is well


def rebalance(record: SQSRecord, context: Any) -> None:
    def work(body: str) -> None:
        request = read_message(Request, body)
        outcome = container().rebalance(request.cluster, request.reason, remaining_of(context), request.found)
        logger.info(outcome.message)
        for name, value in outcome.metrics().items():
            metrics.add_metric(name, MetricUnit.Count, value)
        for seconds in outcome.seconds_to_patch:
            metrics.add_metric("SecondsToFirstPatch", MetricUnit.Seconds, seconds)

    container().rebalance_inbox.handle(record, work, logger, metrics)


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    if not isinstance(event, dict) or not isinstance(event.get("Records"), list):
        logger.error("event is no SQS batch: it has no list of Records")
        return {"batchItemFailures": []}
    return process_partial_response(event, partial(rebalance, context=context), processor, context)
