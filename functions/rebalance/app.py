"""Perform queued runs. A run observes a cluster, plans, writes and records. Only this function writes to clusters."""

from functools import partial
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

import evenkeel.application.rebalancing.rebalance  # noqa: F401  imported at the function's start, not in its first call
from evenkeel.adapters.aws.batches import SqsRecord, answer_batch, records_of
from evenkeel.adapters.aws.queues import Request, read_message
from evenkeel.bootstrap import container, make_logger, make_metrics, remaining_of

logger = make_logger()
metrics = make_metrics()


def rebalance(record: SqsRecord, context: Any) -> None:
    """Perform the run of a cluster that one message requests."""

    def work(body: str) -> None:
        request = read_message(Request, body)
        outcome = container().rebalance(
            request.cluster, request.reason, remaining_of(context), request.found, request.steady
        )
        counts = outcome.metrics()
        numbers = {name: count for name, count in counts.items() if count}
        logger.info(outcome.message, extra={"counts": numbers, "seconds_to_first_patch": outcome.seconds_to_patch})
        for name, value in counts.items():
            metrics.add_metric(name, MetricUnit.Count, value)
        for seconds in outcome.seconds_to_patch:
            metrics.add_metric("SecondsToFirstPatch", MetricUnit.Seconds, seconds)

    container().rebalance_inbox.handle(record, work, logger, metrics)


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Perform the runs that a batch requests, and return Lambda's partial batch response."""
    return answer_batch(records_of(event, logger), partial(rebalance, context=context))
