"""What the bus says of trouble, as ``alert`` reads it."""

from typing import Literal

from pydantic import Field

from evenkeel.adapters.aws.queues import Message, read_message
from evenkeel.application.errors import BadRequestError
from evenkeel.application.incidents.alerting import ROLLOUT, Alert
from evenkeel.domain.model.incidents import Change
from evenkeel.texts.english import rfc3339
from evenkeel.validation import Moment


class _IncidentEvent(Message):
    """Detail of the events ``Incident Opened``, ``Changed`` and ``Closed``: docs/trouble.md."""

    key: str = Field(min_length=1, max_length=2000)
    news: Change
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


class _RolloutEvent(Message):
    """Detail of the events ``Rollout Halted`` and ``Rollout Done``: docs/going-live.md."""

    key: str = Field(min_length=1, max_length=2000)
    rollout: str = Field(max_length=100)
    phase: Literal["halted", "done"]
    at: Moment
    halts: int = 0  # troubles that have halted it; none: a person has
    message: str
    command: str | None = None


def read_alert(body: object) -> Alert:
    """News of a trouble, or of a rollout, which alone says that it is one. Raises BadRequestError."""
    try:
        event = read_message(_IncidentEvent, body)
    except BadRequestError:
        if '"rollout"' not in str(body):
            raise
        return _of_rollout(read_message(_RolloutEvent, body))
    return Alert(
        key=event.key,
        change=event.news,
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


def _of_rollout(event: _RolloutEvent) -> Alert:
    """What trouble has halted, pages; what a person has halted, or is done, does not: it is over with its beginning.

    What halts it is told once, however often and whenever its news comes, and never after its end.
    """
    pages = event.phase == "halted" and event.halts > 0
    return Alert(
        key=event.key,
        change=Change.OPENED if pages else Change.CLOSED,
        cluster="",
        at=rfc3339(event.at),
        order=0 if pages else 1,
        kind=ROLLOUT,
        since=rfc3339(event.at),
        message=event.message,
        todo="Mend what has halted it and begin the rest anew, or give it up with --abort" if pages else "",
        command=event.command or "",
        runbook="docs/going-live.md",
        heading=f"Rollout {event.phase}",
    )
