"""Whether the events of a cluster can be trusted to report its failures, so that fewer checks are enough.

An event about a known group of the cluster proves the source, if it arrives in time. A failure without an event, or
with a late one, disproves the source for a week.

    proven   a week of doubt   an event of the last 15 min   a steady cluster is checked
    yes      no                no                            every 5 min, until the proof is a day old
    any other combination                                    every minute
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from evenkeel.domain.fleet.check_times import AUTO, Interval
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import CLOCKS_AGREE, GroupKey
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.states import UNKNOWN, GroupState

PROVEN_FOR = timedelta(hours=24)
DOUBTED_FOR = timedelta(days=7)
# After an event, the cluster is checked every minute. The event may arrive before the status that it announces.
ALERT_FOR = timedelta(minutes=15)
# A check each minute finds a failure within this time. Events must not be slower.
_AS_FAST_AS_CHECKS = timedelta(minutes=1)
# The least time between two stored proofs, and between two stored late events.
_STORED_ANEW_AFTER = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class EventSource:
    """What the events of a cluster have shown. All times are those of Evenkeel's clock."""

    proven_at: datetime | None = None  # when an event about a known group last arrived in time
    missed_at: datetime | None = None  # when a failure was last found that no event had reported in time
    # The group of this failure, whose event may still arrive in time; empty: no event can make up for the failure.
    missed_group: str = ""

    @property
    def doubted_until(self) -> datetime | None:
        """Return the end of the doubt that a missed failure causes; None: no failure was missed."""
        return None if self.missed_at is None else self.missed_at + DOUBTED_FOR

    def is_doubted(self, now: datetime) -> bool:
        """Return True if the source has missed a failure within the last week."""
        return held_until(self.doubted_until, now) is not None

    def proven_until(self, now: datetime) -> datetime | None:
        """Return when the proof ends; None: the source is not proven now."""
        proven = self.proven_at
        # A proof from the future is the mistake of a clock.
        if proven is None or self.is_doubted(now) or not now - PROVEN_FOR < proven <= now + CLOCKS_AGREE:
            return None
        return proven + PROVEN_FOR


def after_event(
    source: EventSource, group: GroupKey | None, occurred_at: datetime, now: datetime, *, is_failure: bool
) -> EventSource:
    """Return the source after an event about a group; None: the group is unknown, so the event proves nothing.

    ``is_failure``: the event reports a failure that was unknown before. If it is late, it counts as missed.
    """
    delay, known = now - occurred_at, source.missed_at
    if is_failure and delay > _AS_FAST_AS_CHECKS:
        is_stored = known is not None and not source.missed_group and abs(now - known) < _STORED_ANEW_AFTER
        return source if source.proven_at is None or is_stored else replace(source, missed_at=now, missed_group="")
    # So the event took a minute at most, even if its sender's clock is ahead.
    if group is None or abs(delay) > CLOCKS_AGREE:
        return source
    if known is not None and source.missed_group == str(group) and now - known <= _AS_FAST_AS_CHECKS:
        return EventSource(proven_at=now)  # a check was faster than the event
    is_fresh = source.proven_at is not None and timedelta(0) <= now - source.proven_at < _STORED_ANEW_AFTER
    return source if is_fresh else replace(source, proven_at=now)


def after_check(
    source: EventSource,
    before: Mapping[GroupKey, GroupState],
    changed: Mapping[GroupKey, GroupState],
    last_event: datetime | None,
    now: datetime,
) -> EventSource:
    """Return the source after a check that changes these groups' states.

    ``last_event``: when an event last requested a check. A failure is missed if no event of the last minute led to the
    check, or if it is older than a minute. No event reports a node that does not come in time. A source that was never
    proven is not doubted.
    """
    if source.proven_at is None:
        return source
    by_event = last_event is not None and now - last_event <= _AS_FAST_AS_CHECKS
    since = now - _AS_FAST_AS_CHECKS - CLOCKS_AGREE if by_event else now + DOUBTED_FOR
    missed = [
        str(key)
        for key, state in changed.items()
        if (at := _new_failure(before.get(key, UNKNOWN), state)) is not None and at < since
    ]
    known = source.missed_at is not None and now - source.missed_at <= _AS_FAST_AS_CHECKS
    if not missed or (known and missed == [source.missed_group]):
        return source
    is_excusable = len(missed) == 1 and not source.is_doubted(now)
    return replace(source, missed_at=now, missed_group=missed[0] if is_excusable else "")


def _new_failure(before: GroupState, after: GroupState) -> datetime | None:
    """Return the time of a failure that only this check has found; None: there is none."""
    is_known = after.failure.last_failure == before.failure.last_failure or before.failure.announced
    return None if is_known or after.failure.failure_class is FailureClass.TIMEOUT else after.failure.last_failure


def rests_until(
    interval: Interval, source: EventSource | None, last_event: datetime | None, now: datetime
) -> datetime | None:
    """Return until when a steady cluster needs few checks; None: it does not rest.

    ``last_event``: when an event last requested a check.
    """
    is_alert = held_until(last_event, now, ALERT_FOR) is not None
    return None if interval != AUTO or source is None or is_alert else source.proven_until(now)
