"""Store a request to add or remove nodes, and request a run.

The request is stored under its own id before the run is requested. So it is carried out once, even if it arrives twice
or a run is killed. Its result is stored in the same item, and in the decision.
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

# How far a sender's clock may be ahead. A request with a later time would remain stored for too long.
CLOCK_SKEW = timedelta(minutes=2)


@dataclass(frozen=True, kw_only=True)
class RequestScale:
    """Stores a request and requests a run of the cluster."""

    store: EventStore
    queue: Queue
    clock: Clock

    def __call__(self, event: ScaleRequestEvent) -> EventOutcome:
        """Store the request of an event. A request that can never succeed is ignored, with the reason.

        Raises StateUnavailableError or QueueUnavailableError if the event must be tried again.
        """
        try:
            return self.store_and_ask(event)
        except (BadRequestError, ConfigError) as error:
            message = f"request {quote(event.record.id)} for cluster {quote(event.cluster)} ignored: {error}"
            return EventOutcome(EventResult.IGNORED, message)

    def store_and_ask(self, event: ScaleRequestEvent) -> EventOutcome:
        """Store a request, and request a run. Also raises UnknownClusterError, BadRequestError, ConfigError."""
        cluster, record, now = event.cluster, event.record, self.clock.now()
        if record.at > now + CLOCK_SKEW:
            raise BadRequestError(f"it says it was made at {rfc3339(record.at)}, in the future")
        if record.scale_request().is_over(now):
            raise BadRequestError("it is older than an hour: request the nodes again if they are still needed")
        stored = self.store.load(cluster)
        if event.sender is not None and not event.sender.may_speak_of(stored.record):
            return foreign_account(f"request {quote(record.id)}", cluster, event.sender)
        known = stored.scale_requests.get(record.id)
        if known is not None and not known.asks_the_same(record):
            raise BadRequestError(f"id {quote(record.id)} is taken by another request: {_text(known)}")
        if known is None:
            try:
                self.store.save_scale_request(cluster, record, None)
            except StateConflictError:
                known = record  # another invocation has just stored the same request
        if known is not None and known.done:
            return EventOutcome(EventResult.KNOWN, f"request {record.id} is known and done: {known.result}")
        # A run is requested even if the scale request is already known, because the invocation that stored it may have
        # ended before this line.
        self.queue.request(cluster, f"growth {record.id}", f"growth-{cluster}-{record.id}")
        control = stored.control
        obstacle = "being restored" if control.restoring else "paused" if control.is_paused(now) else None
        next_step = f"{obstacle}: it waits, for an hour at most" if obstacle else "checked now"
        return EventOutcome(EventResult.RECORDED, f"request {record.id}: {_text(record)}: {cluster} is {next_step}")


def _text(record: ScaleRequestRecord) -> str:
    more = "more" if record.nodes > 0 else "less"
    only = ", in some of its groups only" if record.only else ""
    return f"{counted(record.nodes)} {more} in {record.pool or record.group}{only}"
