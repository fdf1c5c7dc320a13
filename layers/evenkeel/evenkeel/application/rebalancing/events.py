"""Inbound events and their results.

Events may be lost, repeated, late or out of order. An event that can never succeed is counted, and acknowledged with
the reason. Otherwise, during an outage, retries of all such events would overload the stack.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from evenkeel.access_config import auto_scaling_place
from evenkeel.application.ports import Remaining
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.values import quote
from evenkeel.record import ClusterRecord
from evenkeel.state_records import ScaleRequestRecord

_log = logging.getLogger("evenkeel.events")


@dataclass(frozen=True, kw_only=True)
class Sender:
    """The AWS account that sent an event, and the stack's own account."""

    account: str
    stack: str

    def may_speak_of(self, record: ClusterRecord) -> bool:
        """Return True if the record accepts events of the account.

        A record without ``event_accounts`` accepts only events of the stack's account.
        """
        return self.account in (record.event_accounts or (self.stack,))


class Report(StrEnum):
    """What an event reports about a cluster. Only a failure is stored."""

    FAILURE = "failure"  # a machine could not be provisioned
    PENDING_POD = "pending pod"  # a pod is unschedulable: the event only requests a run
    CHANGE = "change"  # a node group has changed: the event only requests a run
    ARRIVAL = "arrival"  # nothing: the event only shows that the events of this cluster arrive


@dataclass(frozen=True, kw_only=True)
class Failure:
    """A provisioning failure, from any source, or another report about a cluster."""

    reports: Report = Report.FAILURE

    cluster: str | None = None  # Evenkeel's id of the cluster; None: only its names are known
    called: tuple[str, ...] = ()  # the cluster's names in tags and exporters; the first registered name is used
    flavour: str | None = None  # None: unknown
    namespace: str = ""
    name: str | None = None  # the scalable's name; None: unknown
    machine: str | None = None
    code: str
    message: str
    occurred_at: datetime
    id: str
    writer: str = ""  # of a change of bounds: who has made it
    sender: Sender | None = None  # None: the account is not checked, as for manual input

    @property
    def is_of_machines(self) -> bool:
        """Return True if the event names a machine object. AWS's own events name only a cluster, and may be slow."""
        return bool(self.namespace) and self.reports is not Report.PENDING_POD

    @property
    def places(self) -> tuple[str, ...]:
        """Return the names by which the clusters of an Auto Scaling group's account and Region are listed.

        The account is the sender's, because AWS writes it into each event. Empty: the event names no such group.
        """
        if self.flavour != AUTO_SCALING or self.cluster is not None:
            return ()
        own = (auto_scaling_place(self.namespace),)
        if self.sender is None:
            return own
        of_sender = (auto_scaling_place(self.namespace, self.sender.account),)
        return of_sender + own if self.sender.account == self.sender.stack else of_sender

    @property
    def cluster_name(self) -> str:
        """Return the cluster's id; if it is unknown, the source's names for the cluster or its node group."""
        return self.cluster or " or ".join(self.called[:3]) or self.name or ""

    @property
    def key(self) -> str:
        """Return the event's key, which is the same for every delivery of the event."""
        return f"{self.cluster_name}/{self.id}"


@dataclass(frozen=True, kw_only=True)
class ZoneShift:
    """A report that a zone is impaired, or healthy again, from ``at`` on."""

    zone: str  # a zone's name, or its id such as use1-az1
    region: str
    impaired: bool
    at: datetime
    until: datetime | None  # None: the source states no end
    by: str  # the source of the report; its newest report replaces its earlier reports
    id: str
    sender: Sender | None = None  # None: the account is not checked, as for manual input

    @property
    def key(self) -> str:
        """Return the event's key, which is the same for every delivery of the event."""
        return f"{self.zone}/{self.id}"


@dataclass(frozen=True, kw_only=True)
class ScaleRequestEvent:
    """A request to add or remove nodes."""

    cluster: str
    record: ScaleRequestRecord
    sender: Sender | None = None  # None: the account is not checked, as for manual input

    @property
    def key(self) -> str:
        """Return the event's key, which is the same for every delivery of the event."""
        return f"{self.cluster}/{self.record.id}"


@dataclass(frozen=True, kw_only=True)
class Ignored:
    """An event that no use case handles, with the kind of reason and the reason in one sentence."""

    kind: str
    reason: str


InboundEvent = Failure | ZoneShift | ScaleRequestEvent | Ignored


class EventResult(StrEnum):
    """The result of an event."""

    RECORDED = "recorded"
    REQUESTED = "requested"  # nothing is stored, but a run is requested
    KNOWN = "known"  # the event is a repeat, or older than the stored state
    IGNORED = "ignored"  # the event can never succeed


@dataclass(frozen=True)
class EventOutcome:
    """The result of one event, the reason in one sentence, and the kind of reason as in ``Ignored``."""

    result: EventResult
    message: str
    kind: str = "event"

    def answer(self) -> dict[str, str]:
        """Return the outcome as JSON."""
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
"""Does the work once for each key, and returns its answer. After an error, the next call does the work again."""


@dataclass(frozen=True, kw_only=True)
class ReceiveEvent:
    """Calls the use case for the kind of an event, once per event."""

    record_failure: Callable[[Failure], EventOutcome]
    record_zone_shift: Callable[[ZoneShift], EventOutcome]
    request_scale: Callable[[ScaleRequestEvent], EventOutcome]
    idempotent: Idempotent

    def __call__(self, event: InboundEvent, remaining: Remaining) -> dict[str, str]:
        """Return the event's result as JSON.

        Raises StateUnavailableError, QueueUnavailableError or StateConflictError if the event must be tried again.
        """
        if isinstance(event, Ignored):
            return EventOutcome(EventResult.IGNORED, event.reason, kind=event.kind).answer()
        if isinstance(event, Failure) and event.reports is Report.ARRIVAL:  # to handle it twice has no effect
            return self.record_failure(event).answer()
        return self.idempotent(event.key, remaining, lambda: self._record(event).answer())

    def _record(self, event: Failure | ZoneShift | ScaleRequestEvent) -> EventOutcome:
        match event:
            case Failure():
                return self.record_failure(event)
            case ZoneShift():
                return self.record_zone_shift(event)
            case ScaleRequestEvent():
                return self.request_scale(event)
