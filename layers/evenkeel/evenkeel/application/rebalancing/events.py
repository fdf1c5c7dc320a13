"""Inbound events and their results.

Events may be lost, repeated, late or out of order. One that can never succeed is counted and acknowledged with the
reason: retries would be a storm.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from evenkeel.application.ports import Remaining
from evenkeel.domain.model.values import quote
from evenkeel.record import ClusterRecord
from evenkeel.state_records import ScaleRequestRecord

_log = logging.getLogger("evenkeel.events")


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The AWS account of an event, and that of the stack."""

    account: str
    stack: str

    def may_speak_of(self, record: ClusterRecord) -> bool:
        """Return whether the cluster's record names the account; if it names none, the stack's own is valid."""
        return self.account in (record.event_accounts or (self.stack,))


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A provisioning failure, whatever source reports it."""

    cluster: str | None = None  # our id of it
    called: tuple[str, ...] = ()  # its names in tags and exporters; the first known one counts
    flavour: str | None = None  # None: unknown
    namespace: str = ""
    name: str | None = None  # of the scalable; None: unknown
    machine: str | None = None
    code: str
    message: str
    occurred_at: datetime
    id: str
    of_pods: bool = False  # a pod is unschedulable: nothing has failed, and only a run follows
    sender: Sender | None = None  # None: by hand, without a comparison

    @property
    def cluster_name(self) -> str:
        """Return the source's name of the cluster."""
        return self.cluster or " or ".join(self.called[:3])

    @property
    def key(self) -> str:
        """Return the same key for every delivery of this event."""
        return f"{self.cluster_name}/{self.id}"


@dataclass(frozen=True, kw_only=True)
class ZoneShift:
    """A zone is impaired from ``at``, or well again since."""

    zone: str  # a zone's name, or its id such as use1-az1
    region: str
    impaired: bool
    at: datetime
    until: datetime | None
    by: str  # the source; the newest statement of each counts
    id: str
    sender: Sender | None = None  # None: by hand, without a comparison

    @property
    def key(self) -> str:
        """Return the same key for every delivery of this event."""
        return f"{self.zone}/{self.id}"


@dataclass(frozen=True, kw_only=True)
class ScaleRequestEvent:
    """A request for nodes, or to give some back."""

    cluster: str
    record: ScaleRequestRecord
    sender: Sender | None = None  # None: by hand, without a comparison

    @property
    def key(self) -> str:
        """Return the same key for every delivery of this event."""
        return f"{self.cluster}/{self.record.id}"


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """An event without a use case: the reason in one word, and in one sentence."""

    kind: str
    reason: str


InboundEvent = Failure | ZoneShift | ScaleRequestEvent | Ignored


class EventResult(StrEnum):
    """The result of an event."""

    RECORDED = "recorded"
    LOOKED = "looked"  # nothing is stored, but a run is requested
    KNOWN = "known"  # a repeat, or older than the stored state
    IGNORED = "ignored"  # can never succeed


@dataclass(frozen=True)
class EventOutcome:
    """The result of one event, the reason in one sentence, and its kind as in ``Ignored``."""

    result: EventResult
    message: str
    kind: str = "event"

    def answer(self) -> dict[str, str]:
        """Return it as JSON."""
        return {"result": self.result.value, "message": self.message, "kind": self.kind}


def foreign_account(subject: str, cluster: str, sender: Sender) -> EventOutcome:
    """Return the result of an event from an account that the cluster's record does not name."""
    message = (
        f"{subject} for cluster {quote(cluster)} ignored: account {quote(sender.account)} is not among event_accounts "
        f"of its record (none named: {sender.stack} alone)"
    )
    _log.warning(message, extra={"cluster": cluster})
    return EventOutcome(EventResult.IGNORED, message, kind="foreign account")


Idempotent = Callable[[str, Remaining, Callable[[], dict[str, str]]], dict[str, str]]
"""Do the work once for each key; for a repeat, return the first answer. Work that raises may be repeated."""


@dataclass(frozen=True, kw_only=True)
class ReceiveEvent:
    """Calls the use case of each kind of event, once for each event."""

    record_failure: Callable[[Failure], EventOutcome]
    record_zone_shift: Callable[[ZoneShift], EventOutcome]
    request_scale: Callable[[ScaleRequestEvent], EventOutcome]
    idempotent: Idempotent

    def __call__(self, event: InboundEvent, remaining: Remaining) -> dict[str, str]:
        """Return the event's result as JSON.

        Raises:
            StateUnavailableError, QueueUnavailableError, StateConflictError: the event must be tried again.
        """
        if isinstance(event, Ignored):
            return EventOutcome(EventResult.IGNORED, event.reason, kind=event.kind).answer()
        return self.idempotent(event.key, remaining, lambda: self._record(event).answer())

    def _record(self, event: Failure | ZoneShift | ScaleRequestEvent) -> EventOutcome:
        match event:
            case Failure():
                return self.record_failure(event)
            case ZoneShift():
                return self.record_zone_shift(event)
            case ScaleRequestEvent():
                return self.request_scale(event)
