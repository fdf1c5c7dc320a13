"""A pool with its zones: numbers in words, bars, and what keeps each zone."""

from collections import defaultdict
from collections.abc import Collection, Iterable
from datetime import datetime

from evenkeel.adapters.page.html import Html, el, joined
from evenkeel.adapters.page.view import GroupView, Page, PoolView, Span
from evenkeel.adapters.page.words import duration, moment
from evenkeel.domain.model.groups import State
from evenkeel.texts.english import rfc3339

# A shape beside the word, for those who see no colours; no two are alike in print either.
_SHAPES = {State.HEALTHY: "●", State.FENCED: "■", State.PROBING: "▲", State.FROZEN: "◆"}
_BAR, _MARKS = 16, 12  # heights in pixels: of the bar, and of the marks of min and max below it
_DRAWN = 70  # per cent of the width that the scale has; what is left is for the number at a bar's end


def state_words(state: State) -> Html:
    return el("span", f"{_SHAPES[state]} {state.value}", class_=f"state {state.value}")


def until_words(at: datetime, until: datetime) -> Html:
    """An absolute moment; beside it, a place for the script to count down in."""
    countdown = el("span", class_="countdown", data_until=rfc3339(until), role="timer")
    return joined(" until ", moment(until, beside=at), countdown)


def pool_card(page: Page, pool: PoolView) -> Html:
    tone = "warning" if pool.valid else "problem"
    numbers = [el("span", name, " ", el("b", _number(value))) for name, value in _facts(pool)]
    problems = [el("p", f"{'' if pool.valid else 'Invalid: '}{problem}", class_=tone) for problem in pool.problems]
    out = "Outage: no zone is known to deliver; each is fenced, or only tried again" if pool.is_out else None
    told = _told_of_several(pool)
    return el(
        "section",
        el("h3", pool.name),
        el("p", _nodes(pool), class_="nodes") if pool.groups else None,
        el("div", el("span", pool.strategy) if pool.strategy else None, *numbers, class_="facts"),
        el("p", out, class_="problem") if out else None,
        *problems,
        *(el("p", words, class_="demand-words") for words in (*pool.demand, *pool.level, *pool.notes)),
        el("ul", *(el("li", f"{', '.join(zones)}: {note}") for note, zones in told.items()), class_="soft")
        if told
        else None,
        _zones(page, pool, told) if pool.groups else el("p", "It has no node group."),
        _legend(pool) if pool.groups else None,
        class_="card",
    )


def _told_of_several(pool: PoolView) -> dict[str, list[str]]:
    """What is said of more than one zone, and of which: it is told once."""
    zones: dict[str, list[str]] = defaultdict(list)
    for group in pool.groups:
        for note in group.notes:
            zones[note].append(group.zone)
    several = {note: named for note, named in zones.items() if len(named) > 1}
    return {note: ["all zones"] if len(named) == len(pool.groups) else named for note, named in several.items()}


def _nodes(pool: PoolView) -> str:
    before, after = (_sum(getattr(group.requested, side) for group in pool.groups) for side in ("before", "after"))
    return running_words(_sum(group.running for group in pool.groups), Span(before, after), pool.missing)


def running_words(running: int | None, requested: Span, missing: int) -> str:
    """In words: 7 of 10 running, 3 missing."""
    wanted = requested.before
    if running is None or wanted is None:
        words = f"{_number(wanted)} requested"
    else:
        words = f"{running} of {wanted} running"
        coming = wanted - running - missing
        words += (f", {missing} missing" if missing else "") + (f", {coming} on their way" if coming > 0 else "")
    return words if requested.before == requested.after else f"{words}; to become {_number(requested.after)}"


def _facts(pool: PoolView) -> list[tuple[str, int | None]]:
    requested = _sum(group.requested.after for group in pool.groups)
    facts = [("PoolMinimum", pool.min), ("PoolMaximum", pool.max)]
    if pool.max is not None and requested is not None:
        facts.append(("headroom", max(0, pool.max - requested)))
    return facts


def _sum(numbers: Iterable[int | None]) -> int | None:
    """None where one of them is not known."""
    counts = list(numbers)
    return None if None in counts else sum(count for count in counts if count is not None)


_COLUMNS = ("min", "max")


def _zones(page: Page, pool: PoolView, told: Collection[str]) -> Html:
    # The roles are spelled out: on a phone rows are laid out as blocks, and browsers forget that it is a table.
    def head(name: str, class_: str | None = None) -> Html:
        return el("th", name, scope="col", role="columnheader", class_=class_)

    titles = [head("zone"), head("state"), head("nodes"), *(head(name, "number") for name in _COLUMNS)]
    drawn = [
        (group.running, group.requested.before, group.requested.after, group.min.after, group.max.after)
        for group in pool.groups
    ]
    scale = max(1, *(number or 0 for numbers in drawn for number in numbers))
    rows = [row for group in pool.groups for row in _zone(page, group, scale, told)]
    return el(
        "table",
        el("thead", el("tr", *titles, role="row"), role="rowgroup"),
        el("tbody", *rows, role="rowgroup"),
        role="table",
        aria_label=f"zones of pool {pool.name}",
    )


def _zone(page: Page, group: GroupView, scale: int, told: Collection[str]) -> list[Html]:
    bar = bar_of(group.running, group.requested, group.min.after, group.max.after, scale)
    row = el(
        "tr",
        el(
            "th",
            group.zone,
            el("span", group.name, class_="soft name") if group.name else None,
            scope="row",
            role="rowheader",
        ),
        el("td", state_words(group.state), role="cell"),
        el("td", bar, class_=f"bar {group.state.value}", role="cell"),
        *(
            el("td", _span(span), class_="number", role="cell", data_label=column)
            for column, span in zip(_COLUMNS, (group.min, group.max), strict=True)
        ),
        role="row",
    )
    notes = [el("li", note) for note in group.notes if note not in told]
    if group.since or group.until:
        since = joined(f"{group.state.value} since ", moment(group.since, beside=page.at)) if group.since else None
        age = f" ({duration((page.at - group.since).total_seconds())})" if group.since else None
        until = joined("," if since else None, until_words(page.at, group.until)) if group.until else None
        notes.insert(0, el("li", since or group.state.value, age, until))
    if not notes:
        return [row]
    why = el("td", el("ul", *notes), colspan=3 + len(_COLUMNS), role="cell")
    return [row, el("tr", why, class_="why", role="row")]


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _span(span: Span) -> Html:
    if span.before == span.after:
        return joined(_number(span.after))
    return joined(el("b", f"{_number(span.before)} → {_number(span.after)}"))


def bar_of(running: int | None, requested: Span, low: int | None, high: int | None, scale: int) -> Html:
    """Running solid, requested without a node dashed, the number at the end; below it a line from min to max."""

    def at(number: int) -> str:
        return f"{_DRAWN * max(0, number) / scale:.2f}%"

    wanted = requested.after
    solid = running if running is not None else wanted  # a plan does not say what runs
    label = ", ".join(
        f"{name} {_number(number)}"
        for name, number in (("running", running), ("requested", wanted), ("min", low), ("max", high))
        if number is not None
    )
    waiting = wanted - solid if solid is not None and wanted is not None else 0
    end = max(solid or 0, wanted or 0)
    number = f"{running} of " if running is not None else ""
    number += _number(wanted) if requested.before == wanted else f"{_number(requested.before)} → {_number(wanted)}"
    marks = [
        el("line", x1=at(mark), x2=at(mark), y1=_BAR + 2, y2=_BAR + _MARKS - 2, class_="mark")
        for mark in (low, high)
        if mark is not None
    ]
    return el(
        "svg",
        el("rect", x="0%", width=at(solid), y=1, height=_BAR - 2, class_="running") if solid else None,
        el("rect", x=at(solid or 0), width=at(waiting), y=1, height=_BAR - 2, class_="waiting")
        if waiting > 0
        else None,
        el("text", number, x=at(end), dx=6, y=_BAR - 4),
        el("line", x1=at(low), x2=at(high), y1=_BAR + _MARKS / 2, y2=_BAR + _MARKS / 2, class_="range")
        if low is not None and high is not None
        else None,
        *marks,
        width="100%",
        height=_BAR + (_MARKS if marks else 0),
        role="img",
        aria_label=label,
    )


def _legend(pool: PoolView) -> Html:
    def key(*marks: Html) -> Html:
        return el("svg", *marks, width=20, height=_BAR, aria_hidden="true")

    def block(class_: str) -> Html:
        return el("rect", x=1, y=3, width=18, height=_BAR - 6, class_=class_)

    counted_at_all = all(group.running is not None for group in pool.groups)
    entries = [(key(block("running")), "running" if counted_at_all else "requested; what runs is not said here")]
    if counted_at_all:
        entries.append((key(block("waiting")), "requested, no node yet"))
    edges = [el("line", x1=x, x2=x, y1=4, y2=_BAR - 4, class_="mark") for x in (1, 19)]
    entries.append((key(el("line", x1=1, x2=19, y1=_BAR / 2, y2=_BAR / 2, class_="range"), *edges), "min to max"))
    return el("ul", *(el("li", mark, meaning) for mark, meaning in entries), class_="legend", aria_hidden="true")
