"""A pool over time: nodes per zone on top of each other, demand, PoolMaximum, and the state of each zone below.

Shapes are stretched to the width there is; words stand beside them as HTML, so that they keep their size on a phone.
"""

from bisect import bisect_right
from collections.abc import Sequence
from datetime import timedelta

from evenkeel.adapters.page.html import Html, el, joined
from evenkeel.adapters.page.theme import ZONE_COLOURS
from evenkeel.adapters.page.view import History, Lane
from evenkeel.adapters.page.words import duration
from evenkeel.domain.model.groups import State

_WIDTH, _HEIGHT = 1000, 170
_STRETCHED = {"width": "100%", "viewBox": f"0 0 {_WIDTH} {_HEIGHT}", "preserveAspectRatio": "none"}
_TICKS = 4
Steps = Sequence[tuple[float, int]]


def timeline(history: History) -> Html:
    """The chart with its legend."""
    label = _label(history)
    return el(
        "figure",
        el("h4", f"{history.pool}: {history.counts} nodes per zone over time"),
        el("div", _nodes(history, label), _lanes(history), _times(history), class_="chart"),
        _legend(history),
        class_="timeline",
    )


def _label(history: History) -> str:
    """What the chart shows, for those who do not see it."""
    parts = []
    for lane in history.lanes:
        counts = [count for _, count in lane.nodes]
        fenced = sum(end - start for start, end, state in _spans(history, lane) if state is State.FENCED)
        parts.append(
            f"{lane.zone}: {min(counts)} to {max(counts)} nodes, at the end {counts[-1]}"
            + (f", fenced for {duration(fenced)}" if fenced else "")
        )
    return "; ".join(parts)


def _nodes(history: History, label: str) -> Html:
    stacked = _stacked(history.lanes)
    counts = [count for steps in (*stacked, history.demand) for _, count in steps]
    top = max(1, history.max or 0, *counts)

    def x(at: float) -> float:
        return round(_WIDTH * at / history.seconds, 1)

    def y(count: int) -> float:
        return round(_HEIGHT * (1 - count / top), 1)

    def line(steps: Steps) -> str:
        """A line that stays on its level until the next step."""
        path, level = "", None
        for at, count in steps:
            if count != level:
                path += f"M{x(at)} {y(count)}" if level is None else f"H{x(at)}V{y(count)}"
                level = count
        return f"{path}H{_WIDTH}"

    areas = [
        el("path", d=f"{line(steps)}V{_HEIGHT}H{x(steps[0][0])}Z", class_="area", fill=_colour(i))
        for i, steps in reversed(list(enumerate(stacked)))
    ]
    limit = y(history.max) if history.max is not None else None
    return joined(
        el("div", *(el("span", str(count)) for count in (top, top // 2, 0) if count or top), class_="y"),
        el(
            "svg",
            *areas,
            el("line", x1=0, x2=_WIDTH, y1=limit, y2=limit, class_="pool-max") if limit is not None else None,
            el("path", d=line(history.demand), class_="demand") if history.demand else None,
            role="img",
            aria_label=label,
            height=_HEIGHT,
            **_STRETCHED,
        ),
    )


def _stacked(lanes: Sequence[Lane]) -> list[Steps]:
    """For each lane, the sum of it and of all before it, at every moment at which one of them changes."""
    moments = sorted({at for lane in lanes for at, _ in lane.nodes})
    sums = dict.fromkeys(moments, 0)
    stacked: list[Steps] = []
    for lane in lanes:
        starts = [at for at, _ in lane.nodes]
        for at in moments:
            index = bisect_right(starts, at) - 1
            sums[at] += lane.nodes[index][1] if index >= 0 else 0
        stacked.append([(at, sums[at]) for at in moments])
    return stacked


def _spans(history: History, lane: Lane) -> list[tuple[float, float, State]]:
    """The states of a lane as (from, until, state), without those of no length."""
    ends = [at for at, _ in lane.states[1:]] + [history.seconds]
    return [(start, end, state) for (start, state), end in zip(lane.states, ends, strict=True) if end > start]


def _lanes(history: History) -> Html:
    rows = []
    for i, lane in enumerate(history.lanes):
        bars = [
            el(
                "rect",
                x=f"{100 * start / history.seconds:.2f}%",
                width=f"{100 * (end - start) / history.seconds:.2f}%",
                y=2,
                height=10,
                class_=f"span-{state.value}",
            )
            for start, end, state in _spans(history, lane)
        ]
        rows.append(el("div", _swatch(i), lane.zone, class_="lane"))
        rows.append(el("svg", *bars, width="100%", height=14, aria_hidden="true"))
    return joined(*rows)


def _times(history: History) -> Html:
    labels = []
    for i in range(_TICKS + 1):
        seconds = history.seconds * i / _TICKS
        if history.begin is None:
            labels.append(_short(seconds))
        else:
            labels.append((history.begin + timedelta(seconds=seconds)).strftime("%H:%M"))
    return el("div", *(el("span", label) for label in labels), class_="x", aria_hidden="true")


def _short(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}:{minutes:02} h" if seconds >= 3600 else f"{minutes} min"


def _legend(history: History) -> Html:
    line = {"x1": 0, "x2": 18, "y1": 6, "y2": 6}
    states = sorted({state for lane in history.lanes for _, _, state in _spans(history, lane)})
    entries: list[tuple[str, Html]] = []  # zones are named beside their lanes
    if history.demand:
        entries.append(("demand", _key(el("line", class_="demand", **line))))
    if history.max is not None:
        entries.append(("PoolMaximum", _key(el("line", class_="pool-max", **line))))
    block = {"x": 0, "y": 1, "width": 18, "height": 10}
    entries += [(state.value, _key(el("rect", class_=f"span-{state.value}", **block))) for state in states]
    return el("ul", *(el("li", mark, meaning) for meaning, mark in entries), class_="legend")


def _key(mark: Html) -> Html:
    return el("svg", mark, width=18, height=12, aria_hidden="true")


def _swatch(index: int) -> Html:
    return el(
        "svg",
        el("rect", width=10, height=10, rx=2, fill=_colour(index)),
        width=10,
        height=10,
        aria_hidden="true",
        class_="swatch",
    )


def _colour(index: int) -> str:
    return f"var(--zone-{index % ZONE_COLOURS})"
