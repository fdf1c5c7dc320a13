"""Render the page: a whole document for a file, or a fragment for a CloudWatch widget.

The HTML, the style and the script are in ``templates``. The output omits each line break of a template and the
indentation after it.
"""

import re
from base64 import b64encode
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from evenkeel.adapters.page import fleet, pools
from evenkeel.adapters.page.timeline import chart
from evenkeel.adapters.page.view import Page, Section, Table
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.values import printable
from evenkeel.texts.english import MOST_NAMED, counted, duration, rfc3339
from evenkeel.texts.incidents import outage_text

_OPEN_CARDS = 100  # the number of cards that are open at first; a browser needs time to lay out each open card
_NOWHERE = {"base-uri": "'none'", "form-action": "'none'"}
_FOLDER = Path(__file__).parent / "templates"


class Theme(StrEnum):
    """Light, dark, or the preference of the reader's device."""

    AUTO = "auto"
    LIGHT = "light"
    DARK = "dark"


def document(page: Page) -> str:
    """Return the page as one file. It needs no other resource, and its Content-Security-Policy forbids fetching any."""
    style, script = stylesheet(Theme.AUTO), _file("page.js")
    # The policy allows only this style and this script, by their hashes, and no other inline code.
    sources = {"default-src": "'none'", "style-src": _hash(style), "script-src": _hash(script)}
    policy = "; ".join(f"{name} {value}" for name, value in (sources | _NOWHERE).items())
    return _render("document.html", page=page, style=Markup(style), script=Markup(script), policy=policy)


def fragment(page: Page, theme: Theme) -> str:
    """Return the page as one element without scripts, which CloudWatch would remove. So its times remain absolute."""
    return _render("fragment.html", page=page, style=Markup(stylesheet(theme)))


def incident(message: str, theme: Theme) -> str:
    """Return a widget that shows only a message."""
    return _render("incident.html", message=message, style=Markup(stylesheet(theme)))


def stylesheet(theme: Theme) -> str:
    """Return the style of a page. Every rule is below ``.ek``, so it does not change the page around a widget."""
    colours = _file("dark.css" if theme is Theme.DARK else "light.css")
    sheet = colours + _file("page.css")
    if theme is Theme.AUTO:
        # On paper, the page always has the light colours.
        sheet += "@page{margin:14mm}\n@media screen and (prefers-color-scheme:dark){\n" + _file("dark.css") + "}\n"
    return sheet


def summary(page: Page) -> str:
    """Return the page's headline.

    Without one, count a fleet's clusters with incidents, a simulation's runs, or pools and their faults.
    """
    if page.headline:
        return page.headline
    if page.fleet:
        return fleet.headline(page, page.fleet)
    if any(section.measures for section in page.sections):
        return counted(len(page.sections), "run")
    of_pools = [pool for section in page.sections for pool in section.pools]
    fenced = {fence.zone for section in page.sections for fence in section.fences}
    fenced |= {group.zone for pool in of_pools for group in pool.groups if group.state is State.FENCED}
    counts = [counted(len(of_pools), "pool")]
    if out := [name for section in page.sections for name in section.outages]:
        counts.append(outage_text(out))
    if missing := sum(section.missing for section in page.sections):
        counts.append(f"{counted(missing)} missing")
    if fenced or not out:
        counts.append(f"{counted(len(fenced), 'zone')} fenced")
    if invalid := sum(not pool.valid for pool in of_pools):
        counts.append(f"{invalid} invalid")
    if unread := sum(bool(section.unread) or not section.is_read for section in page.sections):
        counts.append(f"{counted(unread, 'cluster')} not readable")
    return ", ".join(counts)


@cache
def _environment() -> Environment:
    """Return the environment of the page's templates."""
    environment = Environment(
        loader=FunctionLoader(_source_of), autoescape=True, undefined=StrictUndefined, finalize=_finalized
    )
    environment.filters |= {"rfc3339": rfc3339, "clock": _clock}
    environment.globals |= {
        "open_cards": _OPEN_CARDS,
        "most_named": MOST_NAMED,
        "counted": counted,
        "duration": duration,
        "summary": summary,
        "measures": _measures,
        "runbooks": _runbooks,
        "chart": chart,
        **fleet.VIEWS,
        **pools.VIEWS,
    }
    return environment


def _runbooks() -> Markup:
    """Return the text of docs/operate/runbooks.md, which docs/generate.py writes as HTML."""
    return Markup(_file("runbooks.html"))


def _source_of(name: str) -> str:
    """Return a template without its line breaks and their indentation."""
    return re.sub(r"\n[ \t]*", "", _file(name))


def _render(template: str, **values: Any) -> str:
    return _environment().get_template(template).render(**values)


def _finalized(value: object) -> object:
    """Return a text without control characters and escape sequences. Markup and other values are unchanged."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _clock(at: datetime, other: datetime | None = None) -> str:
    """Return a time in UTC, without the date where ``other`` has the same date."""
    same_day = other is not None and at.date() == other.date()
    return at.strftime("%H:%M:%S UTC" if same_day else "%Y-%m-%d %H:%M:%S UTC")


def _measures(sections: Sequence[Section]) -> Table:
    """Return the measures of all runs side by side."""
    names = tuple(dict.fromkeys(name for section in sections for name, _ in section.measures))
    rows = ((section.name, *(dict(section.measures).get(name, "-") for name in names)) for section in sections)
    return Table(title="Measures", head=("run", *names), rows=tuple(rows))


@cache
def _file(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
