"""chunk -> each cluster read and planned for side by side, by a role that writes no state of theirs; news -> run."""

from functools import partial
from typing import Any

from evenkeel.bootstrap import container, make_logger, make_metrics, remaining_of  # isort: skip  (first: it says why)

from aws_lambda_powertools.metrics import MetricUnit

from evenkeel.adapters.aws.batches import SqsRecord, answer_batch, records_of
from evenkeel.adapters.aws.metrics import write_metrics_of
from evenkeel.adapters.aws.queues import CheckRequest, read_message

logger = make_logger()
metrics = make_metrics()


def look(record: SqsRecord, context: Any) -> None:
    def work(body: str) -> None:
        look = container(writes=False).look
        clusters = read_message(CheckRequest, body).clusters
        if len(clusters) > 1 and record.receives > 2:  # once may be Lambda's own trouble
            look.split(clusters)
            return
        summary = look(clusters, remaining_of(context))
        for name, value in summary.metrics().items():
            metrics.add_metric(name, MetricUnit.Count, value)
        for cluster, counts in summary.metrics_of_clusters().items():
            write_metrics_of(cluster, counts)

    container(writes=False).inbox.handle(record, work, logger, metrics)


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return answer_batch(records_of(event, logger), partial(look, context=context))
