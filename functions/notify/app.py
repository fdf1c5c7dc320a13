"""Send batches of incident events to chats and pagers. SQS delivers an event again if a channel did not accept it."""

from typing import Any

from aws_lambda_powertools.metrics import MetricUnit

from evenkeel.adapters.aws.batches import SqsRecord, records_of
from evenkeel.adapters.aws.incident_events import read_alert
from evenkeel.application.errors import BadRequestError
from evenkeel.application.incidents.alerting import Received
from evenkeel.bootstrap import container, make_logger, make_metrics, remaining_of

logger = make_logger()
metrics = make_metrics()


@metrics.log_metrics
@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Notify all channels about the events of a batch. Return the messages that SQS must deliver again."""
    received = []
    for record in map(SqsRecord.read, records_of(event, logger)):
        try:
            alert = read_alert(record.body)
        except BadRequestError as error:
            logger.error("message sent to the dead letters: %s", error)
            container(writes=False).inbox.queue.dead_letter(str(record.body), str(error))
            metrics.add_metric("PoisonMessages", MetricUnit.Count, 1)
        else:
            received.append(Received(message=record.message_id, receives=record.receives, alert=alert))
    back = container(writes=False).notify_channels(received, remaining_of(context))
    logger.info("%s incident events, %s of them not accepted by every channel", len(received), len(back))
    metrics.add_metric("AlertsNotTold", MetricUnit.Count, len(back))
    return {"batchItemFailures": [{"itemIdentifier": message} for message in sorted(back)]}
