"""The page itself, from the view: whole for a file, or a fragment for a CloudWatch widget."""

from base64 import b64encode
from collections.abc import Iterable, Sequence
from datetime import datetime
from hashlib import sha256

from evenkeel.adapters.page.html import Child, Html, el, joined
from evenkeel.adapters.page.theme import Theme, stylesheet
from evenkeel.adapters.page.timeline import timeline
from evenkeel.adapters.page.view import Decision, GroupView, Page, PoolView, Section, Span
from evenkeel.adapters.page.words import duration, moment, when
from evenkeel.application.words import counted, rfc3339
from evenkeel.domain.model.groups import State

# A shape beside the word, for those who see no colours; no two are alike in print either.
_SHAPES = {State.HEALTHY: "●", State.FENCED: "■", State.PROBING: "▲", State.FROZEN: "◆"}
_OPEN_DECISIONS = 12  # more than that are folded up
_BAR = 18  # height in pixels
_NOWHERE = {"base-uri": "'none'", "form-action": "'none'"}

_SCRIPT = """
const two = n => String(n).padStart(2, "0");
const tick = () => {
  for (const one of document.querySelectorAll("[data-until]")) {
    const left = Math.ceil((Date.parse(one.dataset.until) - Date.now()) / 1000);
    const [h, m, s] = [Math.floor(left / 3600), Math.floor(left / 60) % 60, left % 60];
    one.textContent = left <= 0 ? " (over by now)" : ` (${h ? `${h} h ${two(m)} min` : `${m} min ${two(s)} s`} left)`;
  }
};
tick();
setInterval(tick, 1000);
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach(one => { one.open = true; }));
"""


def document(page: Page) -> str:
    """A file of its own: no external resource, and a policy that lets the browser fetch none."""
    style = stylesheet(Theme.AUTO)
    # Not even inline: only this very style and this very script.
    sources = {"default-src": "'none'", "style-src": _hash(style), "script-src": _hash(_SCRIPT)}
    policy = "; ".join(f"{name} {value}" for name, value in (sources | _NOWHERE).items())
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=policy),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", page.title),
        el("style", Html(style)),
    )
    # The margin of the body is the ground's colour only if the body itself is it.
    body = el("body", *_parts(page), el("script", Html(_SCRIPT)), class_="ek page")
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def fragment(page: Page, theme: Theme) -> str:
    """The same below one element, without scripts: CloudWatch takes them out. Moments stay absolute."""
    no_defaults = el("div", class_="cwdb-no-default-styles")
    return joined(no_defaults, el("div", el("style", Html(stylesheet(theme))), *_parts(page), class_="ek widget"))


def trouble(message: str, theme: Theme) -> str:
    """What a widget shows when there is nothing else to show."""
    alert = el("main", el("p", message, class_="card unread", role="alert"))
    return el("div", el("style", Html(stylesheet(theme))), alert, class_="ek widget")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _parts(page: Page) -> list[Html]:
    header = el(
        "header",
        el("h1", page.title),
        el("p", page.source, ", as of ", moment(page.at), class_="soft"),
        el("p", summary(page)),
    )
    main = el("main", _comparison(page), *(_section(page, section) for section in page.sections))
    return [header, main, el("footer", "Evenkeel. Times are UTC. Nothing on this page changes anything.")]


def summary(page: Page) -> str:
    """Pools and fenced zones, or runs, counted; one line."""
    if any(section.measures for section in page.sections):
        return counted(len(page.sections), "run")
    pools = [pool for section in page.sections for pool in section.pools]
    invalid = sum(not pool.valid for pool in pools)
    fenced = len({(section.name, fence.zone) for section in page.sections for fence in section.fences})
    unread = sum(bool(section.unread) for section in page.sections)
    counts = [counted(len(pools), "pool"), f"{counted(fenced, 'zone')} fenced"]
    if invalid:
        counts.append(f"{invalid} invalid")
    if unread:
        counts.append(f"{counted(unread, 'cluster')} not readable")
    return ", ".join(counts)


def _comparison(page: Page) -> Html | None:
    """Measures of all runs side by side."""
    measured = [section for section in page.sections if section.measures]
    if not measured:
        return None
    names = list(dict.fromkeys(name for section in measured for name, _ in section.measures))
    head = el("tr", el("th", "run", scope="col"), *(el("th", name, scope="col", class_="number") for name in names))
    rows = [
        el(
            "tr",
            el("th", section.name, scope="row"),
            *(el("td", dict(section.measures).get(name, "-"), class_="number") for name in names),
        )
        for section in measured
    ]
    table = el("table", el("thead", head), el("tbody", *rows))
    # Wider than a phone: it scrolls by itself, and by the keyboard.
    scroll = el("div", table, class_="scroll", tabindex=0, role="region", aria_label="measures of each run")
    return el("section", el("h3", "Measures"), scroll, class_="card")


def _section(page: Page, section: Section) -> Html:
    return el(
        "section",
        el("h2", section.name),
        el("p", section.message, class_="soft") if section.message else None,
        el("p", f"The cluster could not be read: {section.unread}", class_="card unread") if section.unread else None,
        _fences(page, section),
        el("div", *(_pool(page, pool) for pool in section.pools), class_="pools") if section.pools else None,
        _remembered(page, section),
        el("div", *(timeline(history) for history in section.histories), class_="card") if section.histories else None,
        _decisions(page, section.decisions),
        _listed("Left out", section.skipped),
        aria_label=section.name,
    )


def _fences(page: Page, section: Section) -> Html | None:
    if not section.fences:
        return None
    items = []
    for fence in section.fences:
        end = _until(page, fence.until) if fence.until else Html(", no end is named")
        items.append(el("li", el("p", el("b", fence.zone), end), el("p", fence.why, class_="soft")))
    return el("section", el("h3", "Fenced: no growth"), el("ul", *items), class_="card fences")


def _until(page: Page, until: datetime) -> Html:
    """An absolute moment; beside it, a place for the script to count down in."""
    countdown = el("span", class_="countdown", data_until=rfc3339(until), role="timer")
    return joined(" until ", moment(until, beside=page.at), countdown)


def _pool(page: Page, pool: PoolView) -> Html:
    tone = "warning" if pool.valid else "problem"
    numbers = [el("span", name, " ", el("b", _number(value))) for name, value in _facts(pool)]
    problems = [el("p", f"{'' if pool.valid else 'Invalid: '}{problem}", class_=tone) for problem in pool.problems]
    return el(
        "section",
        el("h3", pool.name),
        el("div", el("span", pool.strategy) if pool.strategy else None, *numbers, class_="facts"),
        *problems,
        _zones(page, pool) if pool.groups else None,
        _legend(pool) if pool.groups else None,
        class_="card",
        aria_label=f"pool {pool.name}",
    )


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


_COLUMNS = ("running", "requested", "min", "max")


def _zones(page: Page, pool: PoolView) -> Html:
    # The roles are spelled out: on a phone rows are laid out as blocks, and browsers forget that it is a table.
    def head(name: str, class_: str | None = None) -> Html:
        return el("th", name, scope="col", role="columnheader", class_=class_)

    titles = [head("zone"), head("state"), head("nodes"), *(head(name, "number") for name in _COLUMNS)]
    drawn = [(group.running, group.requested.after, group.max.after) for group in pool.groups]
    scale = max(1, *(number or 0 for numbers in drawn for number in numbers))
    rows = [_total(pool)]
    for group in pool.groups:
        rows += _zone(page, group, scale)
    return el(
        "table",
        el("thead", el("tr", *titles, role="row"), role="rowgroup"),
        el("tbody", *rows, role="rowgroup"),
        role="table",
        aria_label=f"zones of pool {pool.name}",
    )


def _total(pool: PoolView) -> Html:
    running = _sum(group.running for group in pool.groups)
    before, after = (_sum(getattr(group.requested, side) for group in pool.groups) for side in ("before", "after"))
    scale = max(1, running or 0, after or 0, pool.max or 0)
    spans = (Span(running, running), Span(before, after), Span(pool.min, pool.min), Span(pool.max, pool.max))
    return _row("all zones", None, "", _bar(running, after, pool.min, pool.max, scale), spans, "total")


def _zone(page: Page, group: GroupView, scale: int) -> list[Html]:
    state = el("span", f"{_SHAPES[group.state]} {group.state.value}", class_=f"state {group.state.value}")
    bar = _bar(group.running, group.requested.after, group.min.after, group.max.after, scale)
    spans = (Span(group.running, group.running), group.requested, group.min, group.max)
    name = el("span", group.name, class_="soft name") if group.name else None
    row = _row(group.zone, name, state, bar, spans, group.state.value)
    notes = [el("li", note) for note in group.notes]
    if group.since or group.until:
        since = joined(f"{group.state.value} since ", moment(group.since, beside=page.at)) if group.since else None
        age = f" ({duration((page.at - group.since).total_seconds())})" if group.since else None
        until = joined("," if since else None, _until(page, group.until)) if group.until else None
        notes.insert(0, el("li", since or group.state.value, age, until))
    if not notes:
        return [row]
    return [row, el("tr", el("td", el("ul", *notes), colspan=7, role="cell"), class_="why", role="row")]


def _row(title: str, name: Html | None, state: Child, bar: Html, spans: Sequence[Span], class_: str) -> Html:
    numbers = [
        el("td", _span(span), class_="number", role="cell", data_label=column)
        for column, span in zip(_COLUMNS, spans, strict=True)
    ]
    return el(
        "tr",
        el("th", title, name, scope="row", role="rowheader"),
        el("td", state, role="cell"),
        el("td", bar, class_=f"bar {class_}", role="cell"),
        *numbers,
        role="row",
        class_="total" if class_ == "total" else None,
    )


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _span(span: Span) -> Html:
    if span.before == span.after:
        return joined(_number(span.after))
    return joined(el("b", f"{_number(span.before)} → {_number(span.after)}"))


def _bar(running: int | None, requested: int | None, low: int | None, high: int | None, scale: int) -> Html:
    """Running solid, requested without a node dashed, min and max as brackets, what lies between them shaded."""

    def part(start: int, end: int, class_: str, inset: int) -> Html:
        x, width = (f"{100 * max(0, number) / scale:.2f}%" for number in (start, end - start))
        return el("rect", x=x, width=width, y=inset, height=_BAR - 2 * inset, class_=class_)

    def bracket(at: int, side: int) -> Html:
        shape = el("path", d=f"M{4 * side} 1H0V{_BAR - 1}H{4 * side}", class_="mark")
        return el("svg", shape, x=f"{100 * max(0, at) / scale:.2f}%", overflow="visible")

    solid = running if running is not None else requested  # a plan does not say what runs
    label = ", ".join(
        f"{name} {_number(number)}"
        for name, number in (("running", running), ("requested", requested), ("min", low), ("max", high))
        if number is not None
    )
    return el(
        "svg",
        part(low, high, "range", 2) if low is not None and high is not None else None,
        part(0, solid, "running", 5) if solid else None,
        part(solid, requested, "waiting", 5)
        if solid is not None and requested is not None and requested > solid
        else None,
        bracket(low, 1) if low is not None else None,
        bracket(high, -1) if high is not None else None,
        width="100%",
        height=_BAR,
        role="img",
        aria_label=label,
    )


def _legend(pool: PoolView) -> Html:
    def key(*marks: Html) -> Html:
        return el("svg", *marks, width=20, height=_BAR, aria_hidden="true")

    def block(class_: str) -> Html:
        return el("rect", x=1, y=5, width=18, height=_BAR - 10, class_=class_)

    counted_at_all = all(group.running is not None for group in pool.groups)
    entries = [(key(block("running")), "running" if counted_at_all else "requested; what runs is not said here")]
    if counted_at_all:
        entries.append((key(block("waiting")), "requested, no node yet"))
    edges = [
        el("path", d=f"M{x + 4 * side} 1H{x}V{_BAR - 1}H{x + 4 * side}", class_="mark")
        for x, side in ((1, 1), (19, -1))
    ]
    entries.append((key(el("rect", x=1, y=2, width=18, height=_BAR - 4, class_="range"), *edges), "min to max"))
    return el("ul", *(el("li", mark, meaning) for mark, meaning in entries), class_="legend", aria_hidden="true")


def _remembered(page: Page, section: Section) -> Html | None:
    """What the table knows of node groups, without a look at the cluster."""
    items = []
    for group in section.remembered:
        state = el("span", f"{_SHAPES[group.state]} {group.state.value}", class_=f"state {group.state.value}")
        until = _until(page, group.until) if group.until else None
        items.append(
            el("li", el("p", el("b", group.name), " ", state, until), *(el("p", note) for note in group.notes))
        )
    return el("section", el("h3", "Remembered node groups"), el("ul", *items), class_="card") if items else None


def _decisions(page: Page, decisions: Sequence[Decision]) -> Html | None:
    if not decisions:
        return None
    items = []
    for decision in decisions:
        head = el(
            "p", el("b", decision.pool), " ", el("span", when(decision.at, page.at), class_="soft"), " ", decision.title
        )
        lines = el("ul", *(el("li", line) for line in decision.lines)) if decision.lines else None
        items.append(el("li", head, lines))
    listed = el("ol", *items, class_="decisions")
    title = counted(len(decisions), "decision")
    if len(decisions) > _OPEN_DECISIONS:
        return el("section", el("details", el("summary", title), listed), class_="card")
    return el("section", el("h3", title), listed, class_="card")


def _listed(title: str, lines: Sequence[str]) -> Html | None:
    return (
        el("section", el("h3", title), el("ul", *(el("li", line) for line in lines)), class_="card") if lines else None
    )
