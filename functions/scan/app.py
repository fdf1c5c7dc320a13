"""Queue checks of due clusters on a schedule, or runs of the clusters that an event {"clusters": [...]} names.

Messages of the recheck queue request a run that has become due, or the scan of a shard's remaining clusters.
"""

from datetime import datetime
from typing import Any

from evenkeel.bootstrap import container, make_logger, make_metrics  # isort: skip  (first: see bootstrap)

from aws_lambda_powertools.metrics import MetricUnit

import evenkeel.application.fleet.scan  # noqa: F401  imported at the function's start, not in its first call
from evenkeel.adapters.aws.batches import SqsRecord, answer_batch
from evenkeel.adapters.aws.queues import ScanRequest, read_recheck, read_scan
from evenkeel.application.errors import BadRequestError

logger = make_logger()
metrics = make_metrics()


def recheck(record: SqsRecord) -> None:
    """Continue the scan of a shard, or request a run that has become due, as one message requests."""

    def work(body: str) -> None:
        request = read_recheck(body)
        if isinstance(request, ScanRequest):
            result = container().scan.rest_of(request.shard, request.after, request.at)
            metrics.add_metric("ClustersScanned", MetricUnit.Count, len(result.requested))
        else:
            container().scan.check_again(request.cluster, request.reason, record.message_id)

    container().inbox.handle(record, work, logger, metrics)


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Queue the checks or runs that the schedule or an operator requests, or handle a batch of the recheck queue."""
    if isinstance(event, dict) and isinstance(event.get("Records"), list):
        return answer_batch(event["Records"], recheck)
    try:
        request = read_scan(event)
    except BadRequestError as error:
        logger.error(str(error))
        return {"ok": False, "message": str(error)}
    scan = container().scan
    result = scan.tick(request) if isinstance(request, datetime) else scan.by_hand(request)
    metrics.add_metric("ClustersScanned", MetricUnit.Count, len(result.requested))
    return result.answer()
