"""Somebody asks for nodes, or gives some back: remember it, and have the cluster looked at now.

The request is written to the table before anything else, under its own id: asked twice, it is done once; a worker that
dies in the middle finds it again. What comes of it stands in the same item, and in the decision.
"""

from dataclasses import dataclass
from datetime import timedelta

from evenkeel.application.errors import BadRequestError, StateConflictError
from evenkeel.application.ports import Clock, Queue
from evenkeel.application.rebalancing.events import EventOutcome, EventResult, ScaleRequestEvent, foreign_account
from evenkeel.application.rebalancing.ports import EventStore
from evenkeel.domain.model.values import quote
from evenkeel.state_records import ScaleRequestRecord
from evenkeel.texts.english import counted, rfc3339
from evenkeel.validation import ConfigError

# Clocks differ by seconds. A request from the future would be kept for longer than it may.
CLOCK_SKEW = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True)
class RequestScale:
    """Writes a request down under its own id, and asks for a look at the cluster."""

    store: EventStore
    queue: Queue
    clock: Clock

    def __call__(self, event: ScaleRequestEvent) -> EventOutcome:
        """For events: what can never become right is explained and acknowledged.

        Raises:
            StateUnavailableError, QueueUnavailableError: the event must be tried again.
        """
        try:
            return self.store_and_ask(event)
        except (BadRequestError, ConfigError) as error:
            message = f"request {quote(event.record.id)} for cluster {quote(event.cluster)} ignored: {error}"
            return EventOutcome(result=EventResult.IGNORED, message=message)

    def store_and_ask(self, event: ScaleRequestEvent) -> EventOutcome:
        """For an operator, who is told what is wrong: raises UnknownClusterError, BadRequestError, ConfigError too."""
        cluster, record, now = event.cluster, event.record, self.clock.now()
        if record.at > now + CLOCK_SKEW:
            raise BadRequestError(f"it says it was made at {rfc3339(record.at)}, in the future")
        if record.scale_request().is_over(now):
            raise BadRequestError("it is older than an hour: whoever still needs the nodes asks again")
        remembered = self.store.load(cluster)
        if event.sender is not None and not event.sender.may_speak_of(remembered.record):
            return foreign_account(f"request {quote(record.id)}", cluster, event.sender)
        stored = remembered.scale_requests.get(record.id)
        if stored is not None and not stored.asks_the_same(record):
            raise BadRequestError(f"id {quote(record.id)} is taken by another request: {_what(stored)}")
        if stored is None:
            try:
                self.store.save_scale_request(cluster, record, None)
            except StateConflictError:
                stored = record  # the same request, brought twice at the same time
        if stored is not None and stored.done:
            message = f"request {record.id} is known and done: {stored.result}"
            return EventOutcome(result=EventResult.KNOWN, message=message)
        # Also for one that is known: whoever wrote it down may have died before asking for the look.
        self.queue.request(cluster, f"growth {record.id}", f"growth-{cluster}-{record.id}")
        control = remembered.control
        obstacle = "being restored" if control.restoring else "paused" if control.is_paused(now) else None
        next_step = f"{obstacle}: it waits, for an hour at most" if obstacle else "looked at now"
        message = f"request {record.id}: {_what(record)}: {cluster} is {next_step}"
        return EventOutcome(result=EventResult.RECORDED, message=message)


def _what(record: ScaleRequestRecord) -> str:
    more = "more" if record.nodes > 0 else "less"
    only = ", in some of its groups only" if record.only else ""
    return f"{counted(record.nodes)} {more} in {record.pool or record.group}{only}"
