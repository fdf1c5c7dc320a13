"""Check times: the scans of a cluster are spread over the minute, and a timer adds checks after a change.

One such check is due at any time, and without a change they end. An unreachable cluster is checked alone, and less
often. A steady cluster gets quick checks, and a full check now and then.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import accumulate
from math import ceil
from typing import Self

# The first comes 15 s after a write: an autoscaler's /scale patch has no version and can land after Evenkeel's. While
# nothing changes, the next ones come another 30 s and 60 s later.
SECOND_CHECKS = (timedelta(seconds=15), timedelta(seconds=30), timedelta(seconds=60))
# The longest that SQS delays a message.
_LONGEST_DELAY = timedelta(minutes=15)
# An unreachable cluster costs a check its whole deadline, so it is retried less and less often.
# With the default delay of an incident, five minutes, the fourth try comes when it opens.
RETRY_DELAYS = (timedelta(minutes=1), timedelta(minutes=2), timedelta(minutes=2), timedelta(minutes=5))
# Messages are seconds late. One that has not come after so long is lost.
_LOST_AFTER = timedelta(minutes=1)
# The clocks of the functions that request and run a check may differ by so much.
_CLOCKS_APART = timedelta(seconds=10)
_MINUTE = 60
# So many clusters share what a check costs besides them.
CHUNK = 50
# A write whose answer is lost again within this time is the same problem.
_SAME_MATTER = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Timer:
    """The check that is due next, and how many second checks have run since the last change."""

    due: datetime
    step: int = 0
    doubted: datetime | None = None  # when a lost answer to a write last led to a check


def next_timer(
    timer: Timer | None, now: datetime, *, wrote: bool, doubtful: bool, wanted: datetime | None
) -> tuple[Timer | None, int | None]:
    """Return the timer after a check, and the seconds until the next one; None: no message is needed.

    Args:
        timer: What was due before this check.
        now: The time.
        wrote: The check has written to the cluster.
        doubtful: The answer to a write was lost.
        wanted: When time alone may change the plan (``check_at``).
    """
    doubted = None if timer is None or (wrote and not doubtful) else timer.doubted
    if doubtful and (doubted is None or now - doubted > _SAME_MATTER):
        wrote, doubted = True, now
    pending = timer is not None and timer.due > now
    step = 0 if wrote or timer is None else timer.step + (not pending)
    second = now + SECOND_CHECKS[step] if step < len(SECOND_CHECKS) and (wrote or (timer and not pending)) else None
    soonest = now + timedelta(seconds=1)
    moments = [max(moment, soonest) for moment in (second, wanted) if moment is not None]
    if timer is not None and pending and all(timer.due <= moment for moment in moments):
        return Timer(due=timer.due, step=step, doubted=doubted), None
    if not moments:
        # The chain has ended. It is stored, so that the same lost answer does not start it again.
        return (replace(timer, step=min(step, len(SECOND_CHECKS)), doubted=doubted) if timer else None), None
    seconds = ceil(min(_LONGEST_DELAY, min(moments) - now).total_seconds())
    return Timer(due=now + timedelta(seconds=seconds), step=step, doubted=doubted), seconds


def is_missed(timer: Timer | None, now: datetime, wanted: datetime | None) -> bool:
    """Return True if no check is due in time for the moment at which time alone may change the plan (``wanted``)."""
    if wanted is None:
        return False
    return timer is None or timer.due + _LOST_AFTER < now or timer.due > max(wanted, now) + _LOST_AFTER


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """A cluster that does not answer. ``failed_checks`` 0: it answers again."""

    since: datetime
    failed_checks: int  # consecutive checks without an answer
    last_check: datetime
    next_check: datetime  # of this cluster alone
    why: str = ""  # the last error, for people

    @property
    def is_over(self) -> bool:
        """Return True if the cluster answers again."""
        return self.failed_checks == 0

    def is_due(self, now: datetime) -> bool:
        """Return True if a check of this cluster alone may read it."""
        return now >= self.next_check - _CLOCKS_APART

    def is_left_alone(self, now: datetime) -> bool:
        """Return True if checks of several clusters skip it. They do not wait long for its own check."""
        return not self.is_over and now < self.next_check + _LOST_AFTER

    def keeps_away(self, now: datetime) -> bool:
        """Return True if runs, too, wait for that check. After a single failure they do not."""
        return self.failed_checks > 1 and self.is_left_alone(now)

    def asked_soon(self, now: datetime) -> Self | None:
        """Return it with the next check a minute after the last, or None if that is due anyway."""
        soon = max(now, self.last_check + RETRY_DELAYS[0])
        return replace(self, next_check=soon) if soon < self.next_check else None


def after_no_answer(unreachable: Unreachable | None, now: datetime, why: str) -> Unreachable | None:
    """Return the state after one more check without an answer, or None if that check was not the due one."""
    if unreachable is None or unreachable.is_over:
        return Unreachable(since=now, failed_checks=1, last_check=now, next_check=now + RETRY_DELAYS[0], why=why)
    if not unreachable.is_due(now):
        return None
    wait = RETRY_DELAYS[min(unreachable.failed_checks, len(RETRY_DELAYS) - 1)]
    return replace(
        unreachable, failed_checks=unreachable.failed_checks + 1, last_check=now, next_check=now + wait, why=why
    )


# Steady clusters

# A quick check lists only the present node groups. A full check also notices owners, new kinds, templates and a new
# release of Evenkeel.
_WHOLE_LOOKS_APART = 15 * _MINUTE
# A cluster whose objects change all the time without a plan needs no run for each full check.
_SETTLED_ANEW_AFTER = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """What a check saw when nothing was to be done, now or later."""

    at: datetime
    seen: Mapping[str, str]  # place of node groups -> fingerprint of their list; empty: changed since
    zones: frozenset[str] = frozenset()
    headroom: int = 0
    imbalance: int = 0

    def is_followed_by(self, other: Self) -> bool:
        """Return True if the state of another check should replace this one."""
        return not self.seen or (other.seen != self.seen and other.at >= self.at + _SETTLED_ANEW_AFTER)


def is_full_check(cluster: str, interval: int, now: datetime) -> bool:
    """Return True if the check of this minute is a full one in any case. ``interval`` is in seconds."""
    minutes = max(1, interval // _MINUTE)
    turn = (int(now.timestamp()) // _MINUTE + _spread(cluster, 0)) // minutes
    return turn % max(1, _WHOLE_LOOKS_APART // (minutes * _MINUTE)) == 0


# Scans


def is_due(cluster: str, interval: int, tick: datetime) -> bool:
    """Return True if a cluster is checked in this minute. Clusters are spread evenly. ``interval`` is in seconds."""
    minutes = max(1, interval // _MINUTE)
    return (int(tick.timestamp()) // _MINUTE + _spread(cluster, 0)) % minutes == 0


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Clusters that are checked in parallel, so many seconds from now."""

    clusters: tuple[str, ...]
    delay: int = 0


def chunks_of(clusters: Sequence[str], delay: int = 0) -> list[Chunk]:
    """Return the clusters in chunks that are checked at the same time."""
    starts = range(0, len(clusters), CHUNK)
    return [Chunk(clusters=tuple(clusters[start : start + CHUNK]), delay=delay) for start in starts]


def chunks_of_minute(due: Iterable[tuple[str, int]], size: int) -> list[Chunk]:
    """Return the checks of one minute: each cluster near its own second, and again after a shorter interval.

    There are as few chunks as possible, of about equal size. A chunk has the second of its first cluster, so that the
    same clusters make the same chunks every minute.

    Args:
        due: Clusters with their intervals, in seconds.
        size: Most clusters of one chunk.
    """
    rounds: dict[int, list[tuple[int, str]]] = {}  # no cluster is twice in a round
    for cluster, interval in due:
        step = _MINUTE // ceil(_MINUTE / interval)  # never more apart than the interval
        for number, second in enumerate(range(_spread(cluster, 4) % step, _MINUTE, step)):
            rounds.setdefault(number, []).append((second, cluster))
    return [
        Chunk(clusters=tuple(cluster for _, cluster in part), delay=part[0][0])
        for checks in rounds.values()
        for part in _parts(sorted(checks), size)
    ]


def _parts(checks: Sequence[tuple[int, str]], size: int) -> list[Sequence[tuple[int, str]]]:
    count = ceil(len(checks) / size)
    ends = list(accumulate(len(checks) // count + (place < len(checks) % count) for place in range(count)))
    return [checks[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def _spread(cluster: str, start: int) -> int:
    """Return a number that depends on the cluster's name alone."""
    return int.from_bytes(hashlib.sha256(cluster.encode()).digest()[start : start + 4])
