"""Send batches of incident changes to chats and pagers. SQS delivers a change again if a channel did not accept it."""

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
    """Notify all channels about the changes of a batch. Return the messages that SQS must deliver again."""
    received: list[Received] = []
    poison: list[tuple[SqsRecord, BadRequestError]] = []
    for record in map(SqsRecord.read, records_of(event, logger)):
        try:
            alert = container(writes=False).notify_channels.checked(read_alert(record.body))
        except BadRequestError as error:
            poison.append((record, error))
        else:
            received.append(Received(message=record.message_id, receives=record.receives, alert=alert))
    back = container(writes=False).notify_channels(received, remaining_of(context))
    logger.info("%s changes of incidents, %s of them not accepted by every channel", len(received), len(back))
    metrics.add_metric("AlertsNotSent", MetricUnit.Count, len(back))
    # The channels are first, because the queue of dead letters may be unavailable.
    inbox = container(writes=False).inbox
    kept = {record.message_id for record, error in poison if not inbox.set_aside(record, error, logger, metrics)}
    return {"batchItemFailures": [{"itemIdentifier": message} for message in sorted(back | kept)]}
