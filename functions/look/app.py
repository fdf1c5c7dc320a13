"""chunk -> each cluster read and planned for side by side, by a role that only reads; what is news -> rebalance."""

from functools import partial
from typing import Any

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from evenkeel.adapters.aws.messages import LookRequest, read_message
from evenkeel.bootstrap import container, make_logger, remaining_of

logger = make_logger()
metrics = Metrics()
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)


def look(record: SQSRecord, context: Any) -> None:
    def work(body: str) -> None:
        clusters = read_message(LookRequest, body).clusters
        if len(clusters) > 1 and int(record.attributes.approximate_receive_count) > 1:
            container(writes=False).look.one_by_one(clusters)
            return
        summary = container(writes=False).look(clusters, remaining_of(context))
        for name, value in summary.metrics().items():
            metrics.add_metric(name, MetricUnit.Count, value)

    container().inbox.handle(record, work, logger, metrics)


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    if not isinstance(event, dict) or not isinstance(event.get("Records"), list):
        logger.error("event is no SQS batch: it has no list of Records")
        return {"batchItemFailures": []}
    return process_partial_response(event, partial(look, context=context), processor, context)
