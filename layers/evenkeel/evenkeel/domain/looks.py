"""When a cluster is looked at again besides its scans: one look is due at any time, and without change they end."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

# After a write, 15 s later: an autoscaler's own /scale patch carries no version and can land after ours. Then, while
# nothing changes, after another 30 s and 60 s.
SECOND_LOOKS = (timedelta(seconds=15), timedelta(seconds=30), timedelta(seconds=60))
# The longest that SQS delays a message.
_LONGEST_DELAY = timedelta(minutes=15)
# A write whose answer is lost again and again is no news; after so long it may be another matter.
_SAME_MATTER = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Timer:
    """The look that is due next, and how many second looks have come since the last change."""

    due: datetime
    step: int = 0
    doubted: datetime | None = None  # when the answer to a write was last lost, as far as that has led to a look


def next_timer(
    timer: Timer | None, now: datetime, *, wrote: bool, doubtful: bool, wanted: datetime | None
) -> tuple[Timer | None, int | None]:
    """The timer after a look, and the seconds after which to look again; None: it stays, or nothing is to be asked.

    Args:
        timer: What was due before this look.
        now: The time.
        wrote: Whether this look has written anything.
        doubtful: Whether the answer to a write was lost, so that nobody knows.
        wanted: When time alone may change what is planned (:attr:`evenkeel.domain.plan.Plan.look_at`).
    """
    doubted = None if timer is None or (wrote and not doubtful) else timer.doubted
    if doubtful and (doubted is None or now - doubted > _SAME_MATTER):
        wrote, doubted = True, now
    pending = timer is not None and timer.due > now
    step = 0 if wrote or timer is None else timer.step + (not pending)
    second = now + SECOND_LOOKS[step] if step < len(SECOND_LOOKS) and (wrote or (timer and not pending)) else None
    moments = [moment for moment in (second, wanted) if moment is not None]
    if timer is not None and pending and all(timer.due <= moment for moment in moments):
        return Timer(due=timer.due, step=step, doubted=doubted), None
    if not moments:
        # The chain has ended. It is remembered, so that the same doubt does not begin it again.
        return (replace(timer, step=min(step, len(SECOND_LOOKS)), doubted=doubted) if timer else None), None
    seconds = ceil(min(_LONGEST_DELAY, max(timedelta(seconds=1), min(moments) - now)).total_seconds())
    return Timer(due=now + timedelta(seconds=seconds), step=step, doubted=doubted), seconds
