"""Find the outages of a history, and the hours around them that are worth playing."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evenkeel.domain.model.failures import FailureClass
from evenkeel_cli.lookback.demand import waves_of
from evenkeel_cli.lookback.history import GroupHistory, History, Refusal, level_at
from evenkeel_cli.simulation.autoscaler_model import Flags

BEFORE = 60  # seconds before the first refused launch in which its zone had no machines either
_LEAD, _TAIL = 1800, 3600  # seconds that are played before the first refusal, and after the last
_GAP = 7200  # seconds without a refusal: after them, another outage begins
_TOGETHER = 5  # seconds between launches of one order
_LOOP = 10


@dataclass(frozen=True, kw_only=True)
class Outage:
    """A time in which launches were refused: surely from ``since`` to ``last``, at most until ``until``."""

    pool: str
    zone: str  # empty: a quota of the Region
    kind: FailureClass
    since: int
    last: int
    until: int | None  # when a launch succeeded again; None: no launch was tried
    refused: int
    text: str
    limits: tuple[tuple[int, int], ...]  # at each refusal, the nodes that existed

    @property
    def ends(self) -> tuple[int, int | None, int | None]:
        """Return the earliest, a likely and the latest end."""
        likely = None if self.until is None else (self.last + self.until) // 2
        return self.last + 1, likely, self.until


@dataclass(frozen=True)
class Window:
    """Hours around outages, and the outages."""

    since: int
    until: int
    outages: tuple[Outage, ...]

    @property
    def pools(self) -> tuple[str, ...]:
        """Return the pools that had an outage."""
        return tuple(sorted({outage.pool for outage in self.outages}))


def outages_of(history: History) -> list[Outage]:
    """Return the outages in order of time: one per pool and zone, or per pool for a quota."""
    found: list[Outage] = []
    for pool in history.pools:
        groups = history.of_pool(pool)
        every = (refusal for group in groups for refusal in group.refusals)
        refusals = [refusal for refusal in every if history.since <= refusal.at <= history.until]
        quota = [one for one in refusals if one.kind is FailureClass.QUOTA]
        found += _outages(pool, "", groups, quota)
        for zone in sorted({one.zone for one in refusals}):
            others = [one for one in refusals if one.zone == zone and one.kind is not FailureClass.QUOTA]
            found += _outages(pool, zone, groups, others)
    return sorted(found, key=lambda outage: (outage.since, outage.pool, outage.zone))


def _outages(pool: str, zone: str, groups: Sequence[GroupHistory], refusals: Sequence[Refusal]) -> Iterator[Outage]:
    successes = sorted(launch.began for group in groups for launch in group.launches if zone in ("", launch.zone))
    run: list[Refusal] = []
    last = 0
    for refusal in sorted(refusals, key=lambda one: one.at):
        place = bisect_right(successes, last + _TOGETHER)
        ended = place < len(successes) and successes[place] < refusal.at - _TOGETHER
        if run and (ended or refusal.at - last > _GAP):
            yield _outage(pool, zone, groups, run, successes)
            run, last = [], 0
        run.append(refusal)
        last = max(last, refusal.until)
    if run:
        yield _outage(pool, zone, groups, run, successes)


def _outage(
    pool: str, zone: str, groups: Sequence[GroupHistory], run: Sequence[Refusal], successes: Sequence[int]
) -> Outage:
    last = max(refusal.until for refusal in run)
    kind, _ = Counter(refusal.kind for refusal in run).most_common(1)[0]
    limits = {refusal.at: nodes_in(groups, zone, refusal.at) for refusal in run}
    return Outage(
        pool=pool,
        zone=zone,
        kind=kind,
        since=run[0].at,
        last=last,
        until=next((began for began in successes if last + _TOGETHER < began <= last + _GAP), None),
        refused=len(run),
        text=run[0].text,
        limits=tuple(limits.items()),
    )


def nodes_in(groups: Sequence[GroupHistory], zone: str, at: int) -> int:
    """Return the nodes in a zone that run, or whose launch has begun."""
    return sum(
        level_at(group.running, at) + sum(launch.began <= at for launch in group.coming_at(at))
        for group in groups
        if not zone or zone in group.zones
    )


def windows_of(history: History, outages: Sequence[Outage]) -> list[Window]:
    """Return the hours around the outages in order of time. Hours that overlap are one window.

    Pools with a group that spans zones have windows of their own, because there is no verdict about them.
    """
    spanning = {group.pool for group in history.groups if len(group.zones) > 1}
    windows = _windows(history, [outage for outage in outages if outage.pool not in spanning])
    windows += _windows(history, [outage for outage in outages if outage.pool in spanning])
    return sorted(windows, key=lambda window: window.since)


def _windows(history: History, outages: Sequence[Outage]) -> list[Window]:
    windows: list[Window] = []
    for outage in outages:
        groups = history.of_pool(outage.pool)
        since = _calm_before(groups, outage.since - _LEAD)
        end = outage.last if outage.until is None else outage.until
        until = min(history.until, end + _TAIL)
        if windows and since < windows[-1].until + Flags.forget_after:  # the autoscaler still knows its failures
            before = windows.pop()
            since, until = min(since, before.since), max(until, before.until)
            windows.append(Window(since, until, (*before.outages, outage)))
        else:
            windows.append(Window(since, until, (outage,)))
    return [_aligned(history, window) for window in windows]


def _calm_before(groups: Sequence[GroupHistory], at: int) -> int:
    """Return a second at which no node comes."""
    while coming := [launch for group in groups for launch in group.coming_at(at)]:
        at = min(launch.since for launch in coming) - BEFORE
    return at


def _aligned(history: History, window: Window) -> Window:
    """Return a window whose loops meet the first order, so that the order is not late in a replay."""
    groups = [group for pool in window.pools for group in history.of_pool(pool)]
    waves = waves_of(groups, window.since, window.until)
    shift = (window.since - waves[0].at) % _LOOP if waves else 0
    return Window(window.since - shift, window.until, window.outages)
