"""Queue checks of due clusters on a schedule, or runs of the clusters that an event {"clusters": [...]} names."""

import json
from datetime import datetime
from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from evenkeel.adapters.aws.queues import read_scan
from evenkeel.application.errors import BadRequestError
from evenkeel.bootstrap import container, make_logger, make_metrics

logger = make_logger()
metrics = make_metrics()


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Queue the checks or runs that the schedule or an operator requests."""
    try:
        request = read_scan(event)
    except BadRequestError as error:
        logger.error(str(error))
        if isinstance(event, dict) and event.get("source") == "evenkeel.schedule":  # no operator reads the answer
            container().inbox.queue.dead_letter(json.dumps(event), str(error))
        return {"ok": False, "message": str(error)}
    scan = container().scan
    result = scan.tick(request) if isinstance(request, datetime) else scan.by_hand(request)
    metrics.add_metric("ClustersScanned", MetricUnit.Count, len(result.requested))
    return result.answer()
