"""Check times: when each cluster is checked.

Scans check the clusters at seconds that are spread over the minute. After a change, a timer adds follow-up checks of
the changed cluster. Only one follow-up check is due at a time, and follow-up checks end when nothing changes any more.
An unreachable cluster is checked alone, and less often. A steady cluster gets quick checks, and a full check every 15
minutes. With ``scan_interval: auto``, a steady cluster rests while its events are proven (``event_source``): it is
checked every five minutes, and gets a full check every hour.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from math import ceil
from typing import Final, Literal, Self

from evenkeel.domain.model.holds import held_until

# The times from a write to its first follow-up check, and from each follow-up check to the next while nothing changes.
# Follow-up checks find an autoscaler's /scale patch that arrived after Evenkeel's write. The API server accepts such a
# patch, because it has no resource version. A cluster that has just been written is not steady, so that the scan of the
# next minute is one more such check.
SECOND_CHECKS = (timedelta(seconds=15), timedelta(seconds=30))
# The longest time until a check that a run requests.
_LONGEST_DELAY = timedelta(minutes=15)
# The times between checks of an unreachable cluster. The times grow, because each of these checks runs until its
# deadline. With the default ``trouble_after`` of five minutes, the fourth check is due when the incident opens.
RETRY_DELAYS = (timedelta(minutes=1), timedelta(minutes=2), timedelta(minutes=2), timedelta(minutes=5))
# A message that is this late counts as lost. Usually messages are late by seconds.
_LOST_AFTER = timedelta(minutes=1)
# The largest difference between the clocks of the functions that request and run a check.
_CLOCKS_APART = timedelta(seconds=10)
_MINUTE = 60
# The most clusters that one call of the function ``check`` reads. They share the fixed cost of the call.
CHUNK = 50
# The most resting clusters in a chunk, because their ids are in its message and in one item.
_RESTING_IN_CHUNK = 500
# Further lost answers within this time count as the same problem, and add no checks.
_SAME_MATTER = timedelta(hours=1)


@dataclass(frozen=True, kw_only=True)
class Timer:
    """The next check that is due, and the number of follow-up checks since the last change."""

    due: datetime
    step: int = 0
    doubted: datetime | None = None  # when a lost answer to a write last added a check


def next_timer(
    timer: Timer | None, now: datetime, *, wrote: bool, doubtful: bool, wanted: datetime | None
) -> tuple[Timer | None, int | None]:
    """Return the timer after a check, and the seconds until the check to request next; None: request no check.

    Args:
        timer: The timer before this check; None: no check was due.
        wrote: True if the check has written to the cluster.
        doubtful: True if the answer to a write was lost.
        wanted: When the plan may change even if the cluster does not (``check_at``); None: never.
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
        # The follow-up checks end. The timer is stored, so that the same lost answer does not start new follow-up
        # checks.
        return (replace(timer, step=min(step, len(SECOND_CHECKS)), doubted=doubted) if timer else None), None
    seconds = ceil(min(_LONGEST_DELAY, min(moments) - now).total_seconds())
    return Timer(due=now + timedelta(seconds=seconds), step=step, doubted=doubted), seconds


def is_missed(timer: Timer | None, now: datetime, wanted: datetime | None) -> bool:
    """Return True if no check is due soon after ``wanted``, when the plan may change even if the cluster does not."""
    if wanted is None:
        return False
    return timer is None or timer.due + _LOST_AFTER < now or timer.due > max(wanted, now) + _LOST_AFTER


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """The state of a cluster that does not answer. If ``failed_checks`` is 0, the cluster answers again."""

    since: datetime
    failed_checks: int  # consecutive checks without an answer
    last_check: datetime
    next_check: datetime  # when a check of this cluster alone is due
    why: str = ""  # the last error, for messages

    @property
    def is_over(self) -> bool:
        """Return True if the cluster answers again."""
        return self.failed_checks == 0

    def is_due(self, now: datetime) -> bool:
        """Return True if the check of this cluster alone is due. Clocks may differ by ``_CLOCKS_APART``."""
        return now >= self.next_check - _CLOCKS_APART

    def is_left_alone(self, now: datetime) -> bool:
        """Return True while checks of several clusters skip this cluster: until its own check is a minute late."""
        return not self.is_over and now < self.next_check + _LOST_AFTER

    def keeps_away(self, now: datetime) -> bool:
        """Return True while runs skip the cluster, too. Runs skip it after two consecutive failed checks."""
        return self.failed_checks > 1 and self.is_left_alone(now)

    def asked_soon(self, now: datetime) -> Self | None:
        """Return the state with the next check one minute after the last check; None: a check is due by then anyway."""
        soon = max(now, self.last_check + RETRY_DELAYS[0])
        return replace(self, next_check=soon) if soon < self.next_check else None


def is_unreachable(unreachable: Unreachable | None) -> bool:
    """Return True if the cluster did not answer its last check."""
    return unreachable is not None and not unreachable.is_over


def after_no_answer(unreachable: Unreachable | None, now: datetime, why: str) -> Unreachable | None:
    """Return the state after one more check without an answer; None: no check of this cluster alone was due."""
    if unreachable is None or unreachable.is_over:
        return Unreachable(since=now, failed_checks=1, last_check=now, next_check=now + RETRY_DELAYS[0], why=why)
    if not unreachable.is_due(now):
        return None
    wait = RETRY_DELAYS[min(unreachable.failed_checks, len(RETRY_DELAYS) - 1)]
    return replace(
        unreachable, failed_checks=unreachable.failed_checks + 1, last_check=now, next_check=now + wait, why=why
    )


# Steady clusters

# The seconds between full checks. A quick check lists only the kinds of the known node groups and of the owners of
# their numbers. A full check also detects changes of other kinds and templates, and applies the rules of a new release.
_WHOLE_LOOKS_APART, _WHOLE_LOOKS_APART_IN_REST = 15 * _MINUTE, 60 * _MINUTE
# The least time between two stored steady states of a cluster whose objects change without causing writes.
_SETTLED_ANEW_AFTER = timedelta(hours=1)
# A rest is extended in the last time before its end. Two full checks fit into this time.
_RENEWED_BEFORE = timedelta(hours=2)


@dataclass(frozen=True, kw_only=True)
class SteadyState:
    """The result of a check that planned neither a write nor a later check."""

    at: datetime
    # List of groups or owners (flavour, kind, version) -> fingerprint; empty: the objects have changed since.
    seen: Mapping[str, str]
    headroom: int = 0
    imbalance: int = 0
    figures: Mapping[str, int] = field(default_factory=dict)  # the capabilities' metrics
    rests_until: datetime | None = None  # until then, a few checks are enough; None: the cluster does not rest

    def is_resting(self, now: datetime) -> bool:
        """Return True if the cluster is checked less often now."""
        return held_until(self.rests_until, now) is not None

    def is_followed_by(self, other: Self) -> bool:
        """Return True if the steady state of another check should replace this one."""
        has_changed = other.seen != self.seen and other.at >= self.at + _SETTLED_ANEW_AFTER
        return not self.seen or has_changed or self._rests_longer_in(other)

    def _rests_longer_in(self, other: Self) -> bool:
        """Return True if the other state begins a rest, or extends one that is about to end."""
        if other.rests_until is None or self.rests_until is None:
            return other.rests_until is not None
        return self.rests_until < min(other.rests_until, other.at + _RENEWED_BEFORE)


def is_full_check(cluster: str, interval: int, now: datetime, *, resting: bool = False) -> bool:
    """Return True if the cluster is due for a full check. ``interval``: the seconds between its scans."""
    minutes = max(1, interval // _MINUTE)
    turn = (int(now.timestamp()) // _MINUTE + _spread(cluster, 0)) // minutes
    apart = _WHOLE_LOOKS_APART_IN_REST if resting else _WHOLE_LOOKS_APART
    return turn % max(1, apart // (minutes * _MINUTE)) == 0


# Scans

AUTO: Final = "auto"
Interval = int | Literal["auto"]
"""The ``scan_interval`` of a record, in seconds."""
_RESTING = 5 * _MINUTE


def check_interval(interval: Interval, *, resting: bool) -> int:
    """Return the seconds between a cluster's checks."""
    if interval == AUTO:
        return _RESTING if resting else _MINUTE
    return interval


def is_due(cluster: str, interval: int, tick: datetime) -> bool:
    """Return True if the cluster is due in this minute. ``interval`` (seconds) is the time between its checks."""
    minutes = max(1, interval // _MINUTE)
    return (int(tick.timestamp()) // _MINUTE + _spread(cluster, 0)) % minutes == 0


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Clusters that one call checks in parallel, after ``delay`` seconds."""

    clusters: tuple[str, ...]
    rests: tuple[str, ...] = ()  # resting clusters that are not checked now, and whose last check still counts
    delay: int = 0


def chunks_of(clusters: Sequence[str]) -> list[Chunk]:
    """Return the clusters in chunks, without a delay."""
    return [Chunk(clusters=tuple(clusters[start : start + CHUNK])) for start in range(0, len(clusters), CHUNK)]


def chunks_of_minute(due: Iterable[tuple[str, int]], size: int, resting: Iterable[str] = ()) -> list[Chunk]:
    """Return the chunks of one minute. A cluster with an interval below a minute is in several chunks.

    Each cluster has its own second, which follows from its name. There are as few chunks as possible, of about equal
    size. A chunk starts at the second of its first cluster. The chunks have the same clusters every minute, if those
    that rest are counted.

    Args:
        due: The clusters with their intervals, in seconds.
        size: The most clusters that one chunk checks.
        resting: Resting clusters that are not due in this minute.
    """
    rounds: dict[int, list[tuple[int, str]]] = {}  # each round has each cluster at most once
    for cluster, interval in due:
        step = _MINUTE // ceil(_MINUTE / interval)  # the interval, shortened so that it divides the minute
        for number, second in enumerate(range(_spread(cluster, 4) % step, _MINUTE, step)):
            rounds.setdefault(number, []).append((second, cluster))
    others = [(_spread(cluster, 4) % _MINUTE, cluster) for cluster in resting]
    return [
        Chunk(
            clusters=tuple(cluster for _, cluster in checks),
            rests=tuple(cluster for _, cluster in rests),
            delay=checks[0][0],
        )
        for number, checks in rounds.items()
        for checks, rests in _parts(checks, size, [] if number else others)
        if checks
    ]


_Turns = list[tuple[int, str]]


def _parts(checks: _Turns, size: int, others: _Turns) -> list[tuple[_Turns, _Turns]]:
    """Return the parts of a minute: the checks, and the clusters that only rest."""
    everything, rests, count = sorted([*checks, *others]), set(others), ceil(len(checks) / size)
    if rests:  # the checks change each minute, but this number seldom does
        count = 1 << (count - 1).bit_length()
    while True:
        ends = [0, *accumulate(len(everything[place::count]) for place in range(count))]
        parts = [everything[start:end] for start, end in pairwise(ends)]
        split = [([at for at in part if at not in rests], [at for at in part if at in rests]) for part in parts]
        if all(len(due) <= size and len(idle) <= _RESTING_IN_CHUNK for due, idle in split):
            return split
        count *= 2


def _spread(cluster: str, start: int) -> int:
    """Return a number that depends only on the cluster's name."""
    return int.from_bytes(hashlib.sha256(cluster.encode()).digest()[start : start + 4])
