"""What comes in by the bus, whatever sent it, and what becomes of it.

Events are hints: lost, repeated, late, out of order. What can never become right is counted, explained and
acknowledged: retrying it would be a storm.
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
    """The AWS account that an event comes from, and the one that the stack is in."""

    account: str
    stack: str

    def may_speak_of(self, record: ClusterRecord) -> bool:
        """Whether the cluster's record names the account; where it names none, the stack's own is meant."""
        return self.account in (record.event_accounts or (self.stack,))


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A provisioning failure as any of the sources reports it, in our words."""

    cluster: str | None = None  # our id of it
    called: tuple[str, ...] = ()  # what tags and exporters call it; the first name that is known counts
    flavour: str | None = None  # None: the source does not say
    namespace: str = ""
    name: str | None = None  # of the scalable; None: the source does not tie it to one
    machine: str | None = None
    code: str
    message: str
    occurred_at: datetime
    id: str
    zone: str | None = None
    of_pods: bool = False  # a pod finds no node: nothing has failed, and only a look can follow
    sender: Sender | None = None  # None: by hand, nothing is compared

    @property
    def cluster_name(self) -> str:
        """The cluster as the source names it."""
        return self.cluster or " or ".join(self.called[:3])

    @property
    def key(self) -> str:
        """The same for every delivery of this event."""
        return f"{self.cluster_name}/{self.id}"


@dataclass(frozen=True, kw_only=True)
class ZoneShift:
    """A zone is impaired from ``at``, or well again since."""

    zone: str  # a zone's name, or its id such as use1-az1
    region: str
    impaired: bool
    at: datetime
    until: datetime | None
    by: str  # the source; of each the newest word counts
    id: str
    sender: Sender | None = None  # None: by hand, nothing is compared

    @property
    def key(self) -> str:
        """The same for every delivery of this event."""
        return f"{self.zone}/{self.id}"


@dataclass(frozen=True, kw_only=True)
class ScaleRequestEvent:
    """A request for nodes, or to give some back."""

    cluster: str
    record: ScaleRequestRecord
    sender: Sender | None = None  # None: by hand, nothing is compared

    @property
    def key(self) -> str:
        """The same for every delivery of this event."""
        return f"{self.cluster}/{self.record.id}"


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """An event that no use case is called for: in one word why, and in one sentence."""

    kind: str
    reason: str


InboundEvent = Failure | ZoneShift | ScaleRequestEvent | Ignored


class EventResult(StrEnum):
    """What became of an event."""

    RECORDED = "recorded"
    LOOKED = "looked"  # nothing to record, but the cluster is looked at now
    KNOWN = "known"  # changed nothing: a repeat, or older than what is known
    IGNORED = "ignored"  # can never become right


@dataclass(frozen=True, kw_only=True)
class EventOutcome:
    """The result on one event, one sentence why, and a word for those that are ignored, as in Ignored."""

    result: EventResult
    message: str
    kind: str = "event"

    def answer(self) -> dict[str, str]:
        return {"result": self.result.value, "message": self.message, "kind": self.kind}


def foreign_account(subject: str, cluster: str, sender: Sender) -> EventOutcome:
    """The result on an event from an account that the cluster's record does not name."""
    message = (
        f"{subject} for cluster {quote(cluster)} ignored: account {quote(sender.account)} is not among event_accounts "
        f"of its record (none named: {sender.stack} alone)"
    )
    _log.warning(message, extra={"cluster": cluster})
    return EventOutcome(result=EventResult.IGNORED, message=message, kind="foreign account")


Idempotent = Callable[[str, Remaining, Callable[[], dict[str, str]]], dict[str, str]]
"""Does the work once per key and gives its answer; for a repeat, the first answer. Work that raises may be repeated."""


@dataclass(frozen=True, kw_only=True)
class ReceiveEvent:
    """Gives each kind of event to the use case that records it, and each event once."""

    record_failure: Callable[[Failure], EventOutcome]
    record_zone_shift: Callable[[ZoneShift], EventOutcome]
    request_scale: Callable[[ScaleRequestEvent], EventOutcome]
    idempotent: Idempotent

    def __call__(self, event: InboundEvent, remaining: Remaining) -> dict[str, str]:
        """The event's outcome as JSON.

        Raises:
            StateUnavailableError, QueueUnavailableError, StateConflictError: the event must be tried again.
        """
        if isinstance(event, Ignored):
            return EventOutcome(result=EventResult.IGNORED, message=event.reason, kind=event.kind).answer()
        return self.idempotent(event.key, remaining, lambda: self._record(event).answer())

    def _record(self, event: Failure | ZoneShift | ScaleRequestEvent) -> EventOutcome:
        match event:
            case Failure():
                return self.record_failure(event)
            case ZoneShift():
                return self.record_zone_shift(event)
            case ScaleRequestEvent():
                return self.request_scale(event)
