"""failure events -> backoff state -> one message for the cluster."""

from typing import Any

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

from evenkeel.adapters.aws.failure_events import read_failure
from evenkeel.adapters.aws.once import handled_once
from evenkeel.application.errors import BadRequestError
from evenkeel.bootstrap import make_logger, parts

logger = make_logger()
metrics = Metrics()


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    try:
        failure = read_failure(event)
    except BadRequestError as error:
        # It will never be right: counted, explained, acknowledged.
        answer = {"verdict": "ignored", "message": str(error)}
    else:
        hear = handled_once(parts().dynamodb, parts().settings.table, "provisioning_failure", context)
        answer = hear(f"{failure.cluster}/{failure.id}", lambda: parts().hear_failure(failure).answer())
    logger.info(answer["message"], extra={"verdict": answer["verdict"]})
    metrics.add_metric("EventsIgnored", MetricUnit.Count, int(answer["verdict"] == "ignored"))
    return answer
