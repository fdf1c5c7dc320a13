"""The page itself, from the view: whole for a file, or a fragment for a CloudWatch widget."""

from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

from evenkeel.adapters.page.fleet import anchor, first_screen, found_by, headline, outage_words
from evenkeel.adapters.page.html import Html, el, joined
from evenkeel.adapters.page.pools import bar_of, pool_card, running_words, state_words, until_words
from evenkeel.adapters.page.script import SCRIPT
from evenkeel.adapters.page.theme import Theme, stylesheet
from evenkeel.adapters.page.timeline import timeline
from evenkeel.adapters.page.view import IncidentView, Page, Section, Span
from evenkeel.adapters.page.words import moment, when
from evenkeel.domain.model.groups import State
from evenkeel.texts.english import counted, rfc3339

_OPEN_CARDS = 100  # nobody reads more of them one after the other; a browser would lay them all out
_NOWHERE = {"base-uri": "'none'", "form-action": "'none'"}


def document(page: Page) -> str:
    """A file of its own: no external resource, and a policy that lets the browser fetch none."""
    style = stylesheet(Theme.AUTO)
    # Not even inline: only this very style and this very script.
    sources = {"default-src": "'none'", "style-src": _hash(style), "script-src": _hash(SCRIPT)}
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
    body = el("body", *_parts(page, linked=True), el("script", Html(SCRIPT)), class_="ek page")
    return f"<!DOCTYPE html>\n{el('html', head, body, lang='en')}\n"


def fragment(page: Page, theme: Theme) -> str:
    """The same below one element, without scripts: CloudWatch takes them out. Moments stay absolute."""
    no_defaults = el("div", class_="cwdb-no-default-styles")
    return joined(
        no_defaults, el("div", el("style", Html(stylesheet(theme))), *_parts(page, linked=False), class_="ek widget")
    )


def incident(message: str, theme: Theme) -> str:
    """What a widget shows when there is nothing else to show."""
    alert = el("main", el("p", message, class_="card unread", role="alert"))
    return el("div", el("style", Html(stylesheet(theme))), alert, class_="ek widget")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def _parts(page: Page, *, linked: bool) -> list[Html]:
    made = el("span", data_made=rfc3339(page.at), class_="made")
    header = el(
        "header",
        el("h1", page.title),
        el("p", summary(page), class_="headline"),
        el("p", page.source, ", as of ", moment(page.at), made, class_="soft"),
    )
    main = el(
        "main",
        first_screen(page, page.fleet, linked=linked) if page.fleet else None,
        _comparison(page),
        *(
            _section(page, section, linked, is_open=number < _OPEN_CARDS and section.state in ("incident", "unseen"))
            for number, section in enumerate(page.sections)
        ),
        None if page.sections or page.fleet else el("p", "Nothing was simulated: there is no run.", class_="card"),
    )
    return [header, main, el("footer", "Evenkeel. Times are UTC. Nothing on this page changes anything.")]


def summary(page: Page) -> str:
    """Clusters in trouble, or pools and what is wrong with them, or runs, counted; one line."""
    if page.fleet:
        return headline(page, page.fleet)
    if any(section.measures for section in page.sections):
        return counted(len(page.sections), "run")
    pools = [pool for section in page.sections for pool in section.pools]
    fenced = {fence.zone for section in page.sections for fence in section.fences}
    fenced |= {group.zone for pool in pools for group in pool.groups if group.state is State.FENCED}
    counts = [counted(len(pools), "pool")]
    if out := sum(pool.is_out for pool in pools):
        counts.append(outage_words(out))
    if missing := sum(section.missing for section in page.sections):
        counts.append(f"{counted(missing)} missing")
    if fenced or not out:
        counts.append(f"{counted(len(fenced), 'zone')} fenced")
    if invalid := sum(not pool.valid for pool in pools):
        counts.append(f"{invalid} invalid")
    if unread := sum(bool(section.unread) or not section.is_read for section in page.sections):
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
    return el("section", el("h2", "Measures"), scroll, class_="card")


def _section(page: Page, section: Section, linked: bool, *, is_open: bool) -> Html:
    """A cluster or a run; only among other clusters it may be folded."""
    parts = joined(
        el("p", section.message, class_="soft") if section.message else None,
        el("p", f"The cluster could not be read: {section.unread}", class_="card unread") if section.unread else None,
        _incidents(page, section),
        _fences(page, section),
        *(el("p", words, class_="demand-words") for words in section.demand),
        _pools(page, section),
        _remembered(page, section),
        el("div", *(timeline(history) for history in section.histories), class_="card") if section.histories else None,
        _decisions(page, section),
        _listed("Left out", section.skipped),
    )
    if page.fleet is None:
        return el("section", el("h2", section.name), parts, aria_label=section.name)
    title = joined(el("h2", section.name), " ", el("span", section.state, class_=f"of-{section.state}"))
    return el(
        "section",
        el("details", el("summary", title), parts, open="" if is_open else None),
        id=anchor(section.name) if linked else None,
        aria_label=section.name,
        class_="cluster",
        **found_by(section),
    )


def _incidents(page: Page, section: Section) -> Html | None:
    items = [_incident(page, incident, bool(section.pools)) for incident in section.incidents]
    return el("ul", *items, class_="card troubles") if items else None


def _incident(page: Page, incident: IncidentView, is_drawn: bool) -> Html:
    """``is_drawn``: its pool stands below, with a bar for each zone."""
    bar = None
    if incident.missing and not is_drawn:
        running, requested = Span(incident.running, incident.running), Span(incident.requested, incident.requested)
        words = el("span", running_words(running.after, requested, incident.missing), class_="soft")
        bar = el(
            "div", words, bar_of(running.after, requested, None, None, max(1, incident.requested)), class_="bar fenced"
        )
    since = joined("since ", moment(incident.since, beside=page.at))
    todo = (
        el(
            "p",
            incident.todo,
            ": " if incident.command else None,
            el("code", incident.command) if incident.command else None,
        )
        if incident.todo
        else None
    )
    return el(
        "li",
        el("h3", incident.headline, class_="problem"),
        el("p", since, joined("; ", el("q", incident.said)) if incident.said else None, class_="soft"),
        bar,
        todo,
        el("p", "More: ", incident.runbook, class_="soft") if incident.runbook else None,
    )


def _fences(page: Page, section: Section) -> Html | None:
    if not section.fences:
        return None
    items = []
    for fence in section.fences:
        end = until_words(page.at, fence.until) if fence.until else Html(", no end is named")
        items.append(el("li", el("b", fence.zone), end, ", ", fence.why))
    return el("section", el("h3", "Fenced zones: no growth"), el("ul", *items), class_="card fences")


def _pools(page: Page, section: Section) -> Html | None:
    if section.pools:
        return el("div", *(pool_card(page, pool) for pool in section.pools), class_="pools rows")
    if section.is_read and not section.unread:
        return el(
            "p",
            "No pool: no node group takes part. The record's flavours, namespaces and discovery say which do.",
            class_="card",
        )
    return None


def _remembered(page: Page, section: Section) -> Html | None:
    """What the table knows of node groups, without a look at the cluster."""
    if not (section.is_read and not section.unread) and not section.remembered and page.fleet is None:
        return el("p", "Nothing is remembered of its node groups: none of them ever failed.", class_="card")
    items = []
    for group in section.remembered:
        until = until_words(page.at, group.until) if group.until else None
        items.append(
            el(
                "li",
                el("p", el("b", group.name), " ", state_words(group.state), until),
                *(el("p", note) for note in group.notes),
            )
        )
    return el("section", el("h3", "Remembered node groups"), el("ul", *items), class_="card") if items else None


def _decisions(page: Page, section: Section) -> Html | None:
    """Folded: what was decided is told above as it is now."""
    if not section.decisions:
        return None
    items = []
    for decision in section.decisions:
        head = el(
            "p", el("b", decision.pool), " ", el("span", when(decision.at, page.at), class_="soft"), " ", decision.title
        )
        lines = el("ul", *(el("li", line) for line in decision.lines)) if decision.lines else None
        items.append(el("li", head, lines))
    listed = el("ol", *items, class_="decisions")
    return el("section", el("details", el("summary", counted(len(items), "decision")), listed), class_="card")


def _listed(title: str, lines: Sequence[str]) -> Html | None:
    return (
        el("section", el("h3", title), el("ul", *(el("li", line) for line in lines)), class_="card") if lines else None
    )
