"""When a cluster is looked at: spread over the minute by its scans, and again besides them where something is awaited.

Of the looks besides the scans one is due at any time, and without change they end. A cluster that does not answer is
looked at alone, and less and less often. One that is settled is glanced at, and looked at as a whole now and then.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from math import ceil
from typing import Self

from evenkeel.domain.model.incidents import TROUBLE_AFTER

# After a write, 15 s later: an autoscaler's own /scale patch carries no version and can land after ours. Then, while
# nothing changes, after another 30 s and 60 s.
SECOND_CHECKS = (timedelta(seconds=15), timedelta(seconds=30), timedelta(seconds=60))
# The longest that SQS delays a message.
_LONGEST_DELAY = timedelta(minutes=15)
# A cluster that does not answer costs a look its whole deadline, so it is asked less and less often.
# The fourth such look comes when that is trouble, where the record does not say otherwise.
RETRY_DELAYS = (timedelta(minutes=1), timedelta(minutes=2), TROUBLE_AFTER - timedelta(minutes=3), TROUBLE_AFTER)
# Messages are late by seconds. One that has not come after so long is lost.
_LOST_AFTER = timedelta(minutes=1)
# So far may the clocks of those be apart who ask for a look and who take it.
_CLOCKS_APART = timedelta(seconds=10)
_MINUTE = 60
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
        wanted: When time alone may change what is planned (``look_at``).
    """
    doubted = None if timer is None or (wrote and not doubtful) else timer.doubted
    if doubtful and (doubted is None or now - doubted > _SAME_MATTER):
        wrote, doubted = True, now
    pending = timer is not None and timer.due > now
    step = 0 if wrote or timer is None else timer.step + (not pending)
    second = now + SECOND_CHECKS[step] if step < len(SECOND_CHECKS) and (wrote or (timer and not pending)) else None
    moments = [moment for moment in (second, wanted) if moment is not None]
    if timer is not None and pending and all(timer.due <= moment for moment in moments):
        return Timer(due=timer.due, step=step, doubted=doubted), None
    if not moments:
        # The chain has ended. It is remembered, so that the same doubt does not begin it again.
        return (replace(timer, step=min(step, len(SECOND_CHECKS)), doubted=doubted) if timer else None), None
    seconds = ceil(min(_LONGEST_DELAY, max(timedelta(seconds=1), min(moments) - now)).total_seconds())
    return Timer(due=now + timedelta(seconds=seconds), step=step, doubted=doubted), seconds


def is_missed(timer: Timer | None, now: datetime, wanted: datetime | None) -> bool:
    """Whether a look is wanted at a moment for which none is due any more, or none that comes in time.

    Args:
        timer: What is due, as far as anybody remembers.
        now: The time.
        wanted: When time alone may change what is planned (``look_at``).
    """
    if wanted is None:
        return False
    return timer is None or timer.due + _LOST_AFTER < now or timer.due > max(wanted, now) + _LOST_AFTER


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """A cluster that does not answer; ``looks`` 0: it answers again."""

    since: datetime
    looks: int  # that were not answered, one after the other
    last_check: datetime
    next_check: datetime  # on its own
    why: str = ""  # what was said at the last of them, for people

    @property
    def is_over(self) -> bool:
        return self.looks == 0

    def is_due(self, now: datetime) -> bool:
        """Whether its own look may ask it."""
        return now >= self.next_check - _CLOCKS_APART

    def is_left_alone(self, now: datetime) -> bool:
        """Whether its neighbours' looks leave it to one of its own. One that does not come is not waited for long."""
        return not self.is_over and now < self.next_check + _LOST_AFTER

    def keeps_away(self, now: datetime) -> bool:
        """Whether runs, too, wait for that look. Once unanswered may be a hiccup, and a run costs no neighbour time."""
        return self.looks > 1 and self.is_left_alone(now)

    def asked_soon(self, now: datetime) -> Self | None:
        """With the next look as soon as may be, a minute after the last, because somebody has a reason to ask.

        None: that is when the next look is due.
        """
        soon = max(now, self.last_check + RETRY_DELAYS[0])
        return replace(self, next_check=soon) if soon < self.next_check else None


def after_no_answer(silence: Unreachable | None, now: datetime, why: str) -> Unreachable | None:
    """What is remembered after one more look that was not answered; None: it was not the one that is due."""
    if silence is None or silence.is_over:
        return Unreachable(since=now, looks=1, last_check=now, next_check=now + RETRY_DELAYS[0], why=why)
    if not silence.is_due(now):
        return None
    wait = RETRY_DELAYS[min(silence.looks, len(RETRY_DELAYS) - 1)]
    return replace(silence, looks=silence.looks + 1, last_check=now, next_check=now + wait, why=why)


# Clusters that nothing happens to

# Between whole looks only those objects are listed that are node groups now. What else a plan follows from (owners,
# kinds that no group is of yet, templates, a release that plans otherwise) is noticed after so long.
_WHOLE_LOOKS_APART = 15 * _MINUTE
# A cluster whose objects change all the time and mean nothing is not worth a run for each of its whole looks.
_SETTLED_ANEW_AFTER = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """What a look saw when nothing was to be done, nor anything that will have to be by itself."""

    at: datetime
    seen: Mapping[str, str]  # where node groups stand -> fingerprint of their list; empty: something has begun since
    zones: frozenset[str] = frozenset()
    headroom: int = 0
    imbalance: int = 0

    def is_followed_by(self, other: Self) -> bool:
        """Whether what another look saw is worth being remembered in the place of this."""
        return not self.seen or (other.seen != self.seen and other.at >= self.at + _SETTLED_ANEW_AFTER)


def is_full_check(cluster: str, interval: int, now: datetime) -> bool:
    """Whether the look of this minute at a cluster with this interval (seconds) is one at all of it, in any case."""
    minutes = max(1, interval // _MINUTE)
    turn = (int(now.timestamp()) // _MINUTE + _spread(cluster, 0)) // minutes
    return turn % max(1, _WHOLE_LOOKS_APART // (minutes * _MINUTE)) == 0


# Scans


def is_due(cluster: str, interval: int, tick: datetime) -> bool:
    """Whether a cluster with this interval (seconds) is looked at in this tick's minute. Clusters are spread evenly."""
    minutes = max(1, interval // _MINUTE)
    return (int(tick.timestamp()) // _MINUTE + _spread(cluster, 0)) % minutes == 0


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Clusters that are looked at side by side, so many seconds from now."""

    clusters: tuple[str, ...]
    delay: int = 0


def chunks_of_minute(due: Iterable[tuple[str, int]], size: int) -> list[Chunk]:
    """The looks of one minute: each cluster near its own second, and again after its interval where that is shorter.

    Args:
        due: Clusters with their intervals, in seconds.
        size: Most clusters of one chunk.

    Chunks are as few as may be, and about equal: what a chunk costs is shared by its clusters. Its second is that of
    its first cluster, so that the same clusters make the same chunks at the same seconds of every minute.
    """
    rounds: dict[int, list[tuple[int, str]]] = {}  # no cluster is twice in one
    for cluster, interval in due:
        step = _MINUTE // ceil(_MINUTE / interval)  # never more apart than the interval
        for number, second in enumerate(range(_spread(cluster, 4) % step, _MINUTE, step)):
            rounds.setdefault(number, []).append((second, cluster))
    return [
        Chunk(clusters=tuple(cluster for _, cluster in part), delay=part[0][0])
        for looks in rounds.values()
        for part in _parts(sorted(looks), size)
    ]


def _parts(looks: Sequence[tuple[int, str]], size: int) -> list[Sequence[tuple[int, str]]]:
    count = ceil(len(looks) / size)
    ends = list(accumulate(len(looks) // count + (place < len(looks) % count) for place in range(count)))
    return [looks[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _spread(cluster: str, start: int) -> int:
    """A number of the cluster's own, the same for ever."""
    return int.from_bytes(hashlib.sha256(cluster.encode()).digest()[start : start + 4])
