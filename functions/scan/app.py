"""schedule -> one message per due cluster; recheck queue -> the cluster's message; by hand: {"clusters": [...]}."""

from datetime import datetime
from typing import Any

from evenkeel.bootstrap import container, make_logger  # isort: skip  (first: it says why)

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

from evenkeel.adapters.aws.batches import SqsRecord, answer_batch
from evenkeel.adapters.aws.messages import Request, read_scan
from evenkeel.application.errors import BadRequestError

logger = make_logger()
metrics = Metrics()


def look_again(record: SqsRecord) -> None:
    def work(request: Request) -> None:
        container().scan.look_again(request.cluster, request.reason, record.message_id)

    container().recheck_inbox.handle(record, work, logger, metrics)


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    if isinstance(event, dict) and isinstance(event.get("Records"), list):
        metrics.add_metric("PoisonMessages", MetricUnit.Count, 0)
        return answer_batch(event["Records"], look_again)
    try:
        request = read_scan(event)
    except BadRequestError as error:
        logger.error(str(error))
        return {"ok": False, "message": str(error)}
    scan = container().scan
    result = scan.tick(request) if isinstance(request, datetime) else scan.by_hand(request)
    metrics.add_metric("ClustersScanned", MetricUnit.Count, len(result.requested))
    return result.answer()
