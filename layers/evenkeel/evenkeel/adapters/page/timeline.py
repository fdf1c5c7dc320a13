"""A pool over time: a chart of nodes per zone, demand and PoolMaximum, and a line of states for each zone."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from evenkeel.adapters.page.view import History, Lane
from evenkeel.domain.model.groups import State
from evenkeel.texts.english import duration

_WIDTH, _HEIGHT = 1000, 170
_TICKS = 4
_ZONE_COLOURS = 6  # the number of zone colours in light.css and dark.css
Steps = Sequence[tuple[float, int]]


@dataclass(frozen=True, kw_only=True)
class _ZoneLane:
    """One zone's line below the chart. It has the zone's states as (x, width, state)."""

    zone: str
    colour: str
    spans: tuple[tuple[str, str, State], ...]


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The shapes and texts of a chart."""

    title: str
    label: str  # for a screen reader
    counts: tuple[int, ...]  # the labels of the vertical axis, from the top
    areas: tuple[tuple[str, str], ...]  # the path and the colour of each area
    limit: float | None  # the y coordinate of PoolMaximum; None: it is unknown
    demand: str  # the path of the demand line; empty: no demand is known
    lanes: tuple[_ZoneLane, ...]
    times: tuple[str, ...]  # the labels of the horizontal axis
    states: tuple[State, ...]  # the states in the legend


def chart(history: History) -> Chart:
    """Return the chart of a pool's history."""
    stacked = _stacked(history.lanes)
    top = max(1, history.max or 0, *(count for steps in (*stacked, history.demand) for _, count in steps))

    def x(at: float) -> float:
        return round(_WIDTH * at / history.seconds, 1)

    def y(count: int) -> float:
        return round(_HEIGHT * (1 - count / top), 1)

    def line(steps: Steps) -> str:
        """Return the path of a step line, in which each count applies until the next step."""
        path, level = "", None
        for at, count in steps:
            if count != level:
                path += f"M{x(at)} {y(count)}" if level is None else f"H{x(at)}V{y(count)}"
                level = count
        return f"{path}H{_WIDTH}"

    areas = [(f"{line(steps)}V{_HEIGHT}H{x(steps[0][0])}Z", _colour(i)) for i, steps in enumerate(stacked)]
    return Chart(
        title=f"{history.pool}: {history.counts} nodes per zone over time",
        label=_label(history),
        counts=tuple(count for count in (top, top // 2, 0) if count or top),
        areas=tuple(reversed(areas)),
        limit=None if history.max is None else y(history.max),
        demand=line(history.demand) if history.demand else "",
        lanes=tuple(_zone_lane(history, lane, i) for i, lane in enumerate(history.lanes)),
        times=tuple(_time(history, history.seconds * i / _TICKS) for i in range(_TICKS + 1)),
        states=tuple(sorted({state for lane in history.lanes for _, _, state in _spans(history, lane)})),
    )


def _label(history: History) -> str:
    parts = []
    for lane in history.lanes:
        counts = [count for _, count in lane.nodes]
        fenced = sum(end - start for start, end, state in _spans(history, lane) if state is State.FENCED)
        parts.append(
            f"{lane.zone}: {min(counts)} to {max(counts)} nodes, at the end {counts[-1]}"
            + (f", fenced for {duration(fenced)}" if fenced else "")
        )
    return "; ".join(parts)


def _stacked(lanes: Sequence[Lane]) -> list[Steps]:
    """Return for each lane, at each change, the sum of its nodes and of the nodes in all lanes before it."""
    times = sorted({at for lane in lanes for at, _ in lane.nodes})
    sums = dict.fromkeys(times, 0)
    stacked: list[Steps] = []
    for lane in lanes:
        starts = [at for at, _ in lane.nodes]
        for at in times:
            index = bisect_right(starts, at) - 1
            sums[at] += lane.nodes[index][1] if index >= 0 else 0
        stacked.append([(at, sums[at]) for at in times])
    return stacked


def _spans(history: History, lane: Lane) -> list[tuple[float, float, State]]:
    """Return the states of a lane as (from, until, state), without spans of zero length."""
    ends = [at for at, _ in lane.states[1:]] + [history.seconds]
    return [(start, end, state) for (start, state), end in zip(lane.states, ends, strict=True) if end > start]


def _zone_lane(history: History, lane: Lane, index: int) -> _ZoneLane:
    def per_cent(seconds: float) -> str:
        return f"{100 * seconds / history.seconds:.2f}%"

    spans = tuple((per_cent(start), per_cent(end - start), state) for start, end, state in _spans(history, lane))
    return _ZoneLane(zone=lane.zone, colour=_colour(index), spans=spans)


def _time(history: History, seconds: float) -> str:
    """Return a time of day, or the time since the start of a simulation."""
    if history.begin is not None:
        return (history.begin + timedelta(seconds=seconds)).strftime("%H:%M")
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}:{minutes:02} h" if seconds >= 3600 else f"{minutes} min"


def _colour(index: int) -> str:
    return f"var(--zone-{index % _ZONE_COLOURS})"
