"""failure events, zone events and requests for nodes -> state -> one message for each cluster that is concerned."""

from typing import Any

from aws_lambda_powertools import Metrics
from aws_lambda_powertools.metrics import MetricUnit

from evenkeel.adapters.aws.failure_events import account_of, read_event
from evenkeel.adapters.aws.idempotency import handled_once
from evenkeel.application.failure import Failure, Ignored
from evenkeel.application.request_scale import ScaleRequestEvent
from evenkeel.bootstrap import make_logger, parts

logger = make_logger()
metrics = Metrics()


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: Any, context: Any) -> dict[str, Any]:
    word = read_event(event, account_of(context))
    if isinstance(word, Ignored):
        # It will never be right: counted, explained, acknowledged.
        answer = {"verdict": "ignored", "message": word.reason, "kind": word.kind}
    else:
        hear = handled_once(parts().dynamodb, parts().settings.table, "provisioning_failure", context)
        if isinstance(word, Failure):
            answer = hear(f"{word.at}/{word.id}", lambda: parts().hear_failure(word).answer())
        elif isinstance(word, ScaleRequestEvent):
            answer = hear(f"{word.cluster}/{word.record.id}", lambda: parts().ask_for_growth(word).answer())
        else:
            answer = hear(f"{word.zone}/{word.id}", lambda: parts().hear_zone_shift(word).answer())
    logger.info(answer["message"], extra={"verdict": answer["verdict"], "kind": answer.get("kind", "event")})
    metrics.add_metric("EventsIgnored", MetricUnit.Count, int(answer["verdict"] == "ignored"))
    return answer
