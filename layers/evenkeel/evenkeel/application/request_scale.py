"""Somebody asks for nodes, or gives some back: remember it, and have the cluster looked at now.

The request is written to the table before anything else, under its own id: asked twice, it is done once; a worker that
dies in the middle finds it again. What comes of it stands in the same item, and in the decision.
"""

from dataclasses import dataclass, replace
from datetime import timedelta

from evenkeel.application.errors import BadRequestError, StateConflictError
from evenkeel.application.failure import EventOutcome, Sender, Verdict, foreign
from evenkeel.application.ports import Clock, Queue, Store
from evenkeel.application.words import counted
from evenkeel.config import ConfigError, ScaleRequestRecord
from evenkeel.domain.model.values import shown
from evenkeel.domain.replicas.requests import SCALE_REQUEST_KEPT

# Clocks differ by seconds. A request from the future would be kept for longer than it may.
CLOCK_SKEW = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True)
class ScaleRequestEvent:
    """A request for growth as an event brings it."""

    cluster: str
    record: ScaleRequestRecord
    sender: Sender | None = None  # None: by hand, nothing is compared


@dataclass(frozen=True, kw_only=True)
class RequestScale:
    """The use case with its ports."""

    store: Store
    queue: Queue
    clock: Clock

    def __call__(self, asked: ScaleRequestEvent) -> EventOutcome:
        """For events: what can never become right is explained and acknowledged.

        Raises:
            StateUnavailableError, QueueUnavailableError: the event must be tried again.
        """
        try:
            return self.ask(asked)
        except (BadRequestError, ConfigError) as error:
            message = f"request {shown(asked.record.id)} for cluster {shown(asked.cluster)} ignored: {error}"
            return EventOutcome(verdict=Verdict.IGNORED, message=message)

    def ask(self, asked: ScaleRequestEvent) -> EventOutcome:
        """Raises UnknownClusterError, BadRequestError and ConfigError as well."""
        cluster, record, now = asked.cluster, asked.record, self.clock.now()
        if record.at > now + CLOCK_SKEW:
            raise BadRequestError(f"it says it was made at {record.at:%Y-%m-%dT%H:%M:%SZ}, in the future")
        if now - record.at > SCALE_REQUEST_KEPT:
            raise BadRequestError("it is older than an hour: whoever still needs the nodes asks again")
        remembered = self.store.load(cluster)
        if asked.sender is not None and not asked.sender.may_speak_of(remembered.record):
            return foreign(f"request {shown(record.id)}", cluster, asked.sender)
        known = remembered.scale_requests.get(record.id)
        if known is not None and replace(known.scale_request(), at=record.at) != record.scale_request():
            raise BadRequestError(f"id {shown(record.id)} is taken by another request: {_what(known)}")
        if known is None:
            try:
                self.store.save_scale_request(cluster, record, None)
            except StateConflictError:
                known = record  # the same request, brought twice at the same time
        if known is not None and known.done:
            return EventOutcome(verdict=Verdict.KNOWN, message=f"request {record.id} is known and done: {known.result}")
        # Also for one that is known: whoever wrote it down may have died before asking for the look.
        self.queue.request(cluster, f"growth {record.id}", f"growth-{cluster}-{record.id}")
        control = remembered.control
        held = "being left" if control.restoring else "paused" if control.is_paused(now) else None
        then = f"{held}: it waits, for an hour at most" if held else "looked at now"
        message = f"request {record.id}: {_what(record)}: {cluster} is {then}"
        return EventOutcome(verdict=Verdict.RECORDED, message=message)


def _what(record: ScaleRequestRecord) -> str:
    more = "more" if record.nodes > 0 else "less"
    only = ", in some of its groups only" if record.only else ""
    return f"{counted(record.nodes)} {more} in {record.pool or record.group}{only}"
