"""What the bus says of trouble, as ``alert`` reads it."""

from pydantic import Field

from evenkeel.adapters.aws.messages import Message, read_message
from evenkeel.application.alerting import Alert
from evenkeel.application.words import rfc3339
from evenkeel.config import Moment
from evenkeel.domain.model.troubles import News


class _TroubleEvent(Message):
    """Detail of the events ``Trouble Opened``, ``Changed`` and ``Closed``: docs/trouble.md."""

    key: str = Field(min_length=1, max_length=2000)
    news: News
    cluster: str = Field(max_length=300)
    at: Moment
    order: int = 0
    kind: str = Field(max_length=100)
    pool: str | None = None
    since: str = Field(max_length=40)
    missing: int = 0
    zones: tuple[str, ...] = ()
    failure_class: str | None = Field(default=None, alias="class")
    message: str
    todo: str | None = None
    command: str | None = None
    runbook: str | None = None


def read_alert(body: object) -> Alert:
    """News of a trouble. Raises BadRequestError."""
    event = read_message(_TroubleEvent, body)
    return Alert(
        key=event.key,
        news=event.news,
        cluster=event.cluster,
        at=rfc3339(event.at),
        order=event.order,
        kind=event.kind,
        pool=event.pool or "",
        since=event.since,
        missing=event.missing,
        zones=event.zones,
        failure_class=event.failure_class or "",
        message=event.message,
        todo=event.todo or "",
        command=event.command or "",
        runbook=event.runbook or "",
    )
