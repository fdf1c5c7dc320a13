"""Reads the bus's events about incidents and rollouts, for the function ``notify``."""

from typing import Literal

from pydantic import Field

from evenkeel.adapters.aws.queues import Message, read_message
from evenkeel.application.errors import BadRequestError
from evenkeel.application.incidents.alerting import ROLLOUT, Alert
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


class _RolloutEvent(Message):
    """The detail of the events ``Rollout Halted`` and ``Rollout Done`` (docs/start/go-live.md)."""

    key: str = Field(min_length=1, max_length=2000)
    rollout: str = Field(max_length=100)
    phase: Literal["halted", "done"]
    at: Moment
    halts: int = 0  # the number of incidents that halted the rollout; 0: an operator halted it
    message: str
    command: str | None = None
    runbook: str | None = None


def read_alert(body: object) -> Alert:
    """Return the notification of an incident or of a rollout. Raises BadRequestError."""
    try:
        event = read_message(_IncidentEvent, body)
    except BadRequestError:
        if '"rollout"' not in str(body):
            raise
        return _of_rollout(read_message(_RolloutEvent, body))
    given = {name: value for name, value in event if value is not None}
    return Alert(**{**given, "at": rfc3339(event.at)})


def _of_rollout(event: _RolloutEvent) -> Alert:
    """Return the notification of a rollout. It opens an alert only if an incident halted the rollout.

    The key and order of the event ensure that each channel reports a halt once, and never after the halt has ended.
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
        todo="Fix what has halted it and begin the rest again, or give it up with --abort" if pages else "",
        command=event.command or "",
        runbook=event.runbook or "",
        heading=f"Rollout {event.phase}",
    )
