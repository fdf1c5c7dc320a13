"""Reads the queue's messages about incidents, for the function ``notify``."""

from pydantic import Field

from evenkeel.adapters.aws.queues import Message, read_message
from evenkeel.application.incidents.alerting import Alert
from evenkeel.domain.model.incidents import Change
from evenkeel.texts.english import rfc3339
from evenkeel.validation import Moment


class _IncidentEvent(Message):
    """The detail of the events ``Incident Opened``, ``Changed`` and ``Closed`` (docs/operate/runbooks.md)."""

    key: str = Field(min_length=1, max_length=2000)
    change: Change
    cluster: str = Field(max_length=300)
    at: Moment
    order: int = 0
    kind: str = Field(max_length=100)
    pool: str | None = None
    since: str = Field(max_length=40)
    missing: int = 0
    zones: tuple[str, ...] = ()
    is_outage: bool = Field(default=False, alias="outage")
    failure_class: str | None = Field(default=None, alias="class")
    message: str
    todo: str | None = None
    command: str | None = None
    runbook: str | None = None


def read_alert(body: object) -> Alert:
    """Return the notification of an incident. Raises BadRequestError."""
    event = read_message(_IncidentEvent, body)
    given = {name: value for name, value in event if value is not None}
    return Alert(**{**given, "at": rfc3339(event.at)})
