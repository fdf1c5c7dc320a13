"""Read and plan a chunk of clusters in parallel, and request a run for each cluster with a pending change.

The function's IAM role does not allow writes of the stored state of clusters.
"""

from functools import partial
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from evenkeel.adapters.aws.batches import SqsRecord, answer_batch, records_of
from evenkeel.adapters.aws.metrics import write_metrics_of
from evenkeel.adapters.aws.queues import Request, read_check
from evenkeel.bootstrap import container, make_logger, make_metrics, remaining_of

logger = make_logger()
metrics = make_metrics()


def check(record: SqsRecord, context: Any) -> None:
    """Check a chunk, or request a run that is due now. A chunk's third delivery requests its clusters separately."""

    def work(body: str) -> None:
        request = read_check(body)
        if request.wait:
            inbox.queue.wait_on(request)
            return
        if isinstance(request, Request):
            inbox.queue.request(request.cluster, request.reason, f"again-{record.message_id}")
            return
        check = container(writes=False).check
        if len(request.clusters) > 1 and record.receives > 2:  # the second delivery may be Lambda's own retry
            check.split(request.clusters)
            return
        summary = check(request.clusters, remaining_of(context), request.rests)
        for name, value in summary.metrics().items():
            metrics.add_metric(name, MetricUnit.Count, value)
        for cluster, counts in summary.metrics_of_clusters().items():
            write_metrics_of(cluster, counts)

    inbox = container(writes=False).inbox
    inbox.handle(record, work, logger, metrics)


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Check the clusters of a batch and return Lambda's partial batch response."""
    return answer_batch(records_of(event, logger), partial(check, context=context))
