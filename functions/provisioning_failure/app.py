"""Store failure events, zone events and requests for nodes, and queue a message for each affected cluster."""

from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from evenkeel.adapters.aws.inbound import account_of, read_event
from evenkeel.application.rebalancing.events import EventResult
from evenkeel.bootstrap import container, make_logger, make_metrics, remaining_of

logger = make_logger()
metrics = make_metrics()


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: Any, context: Any) -> dict[str, Any]:
    """Handle one event and return its result."""
    answer = container().receive_event(read_event(event, account_of(context)), remaining_of(context))
    logger.info(answer["message"], extra={"result": answer["result"], "kind": answer["kind"]})
    metrics.add_metric("EventsIgnored", MetricUnit.Count, int(answer["result"] == EventResult.IGNORED))
    return answer
