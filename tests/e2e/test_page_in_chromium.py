"""The page in a real browser: at three widths, light and dark, by screen reader and by keyboard."""

import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import pytest
from matplotlib.image import imread

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import Theme, document, fragment
from evenkeel.texts.english import rfc3339
from evenkeel_cli.printed_pages import page_of_forecast, page_of_plan, page_of_simulation
from sandbox.chromium import Chromium, Page, find_chromium
from sandbox.template import ROOT
from tests.builders import NOW
from tests.pages import fleet_answer, pools_answer, quota_answer
from tests.unit.page.test_page import EVIL, forecast_answer, palette, plan_answer, simulation_answer, status_answer

AXE = ROOT / "build" / "axe" / "axe.min.js"
WIDTHS = (320, 390, 1440)
SCREENS = [(width, theme) for width in WIDTHS for theme in (Theme.LIGHT, Theme.DARK)]
ENTER, TAB = ("Enter", 13, "\r"), ("Tab", 9)


def needed(what: str) -> None:
    """Skip a test without this tool, or fail it where all tests must run."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(f"{what}: the page is not checked; see make chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    if find_chromium() is None:
        needed("no Chromium on PATH or in build/")
    with Chromium() as started:
        yield started


Open = Callable[..., Page]


@pytest.fixture
def view(browser: Chromium) -> Iterator[Open]:
    """Yield a function that opens a page. Any complaint of the page until the test ends is an error."""
    opened: list[Page] = []

    def open_page(html: str, **how: Any) -> Page:
        opened.append(browser.open(html, **how))
        return opened[-1]

    yield open_page
    for page in opened:
        page.evaluate("1")  # all earlier messages have been received
        page.close()
        assert page.complaints == []


def far_from_now() -> dict[str, Any]:
    """Return a status whose fences end in two hours, so that the page can count down."""
    text = json.dumps(status_answer()).replace(rfc3339(NOW + timedelta(hours=1)), "LATER")
    return dict(json.loads(text.replace("LATER", rfc3339(datetime.now(UTC) + timedelta(hours=2)))))


def evil(answer: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(answer)
    for word in ("workers", "no machines left", "operator", "schedule", "cluster-0", "VcpuLimitExceeded"):
        text = text.replace(word, json.dumps(EVIL)[1:-1])
    return dict(json.loads(text))


def status(answer: dict[str, Any]) -> str:
    return document(page_of_status(answer, "answer of stack evenkeel", NOW))


PAGES: dict[str, Callable[[], str]] = {
    "plan": lambda: document(page_of_plan(json.dumps(plan_answer()), "plan.json")),
    "status": lambda: status(far_from_now()),
    "quota": lambda: status(quota_answer()),
    "fleet": lambda: status(fleet_answer(40)),
    "live fleet": lambda: status({"clusters": [quota_answer(), {**status_answer(), "cluster": "green"}]}),
    "published fleet": lambda: document(
        replace(page_of_status(fleet_answer(40), "answer of stack evenkeel", NOW), has_runbooks=True)
    ),
    "no fleet": lambda: status(fleet_answer(0)),
    "outage": lambda: status(pools_answer(100).ask("status")),
    "fenced outage": lambda: status(pools_answer(100, fenced=True).ask("status")),
    "evil": lambda: status(evil(far_from_now())),
    "evil fleet": lambda: status(evil(fleet_answer(40))),
    "long names": lambda: status(json.loads(json.dumps(far_from_now()).replace("workers", "w" * 250))),
    "simulation": lambda: document(page_of_simulation(json.dumps(simulation_answer()), "sim.json")),
    "forecast": lambda: document(page_of_forecast(json.dumps(forecast_answer()), "forecast.json")),
}
every_page = pytest.mark.parametrize("page", PAGES)
every_width = pytest.mark.parametrize("width", WIDTHS)


def test_messages_of_the_console_are_collected(browser: Chromium) -> None:
    page = browser.open("<script>console.error('received')</script>")
    page.evaluate("1")
    assert "received" in page.complaints[0]
    page.close()


@every_page
def test_a_page_runs_no_script_but_its_own_and_shows_no_picture(view: Open, page: str) -> None:
    seen = view(PAGES[page]())
    assert seen.evaluate("[document.scripts.length, document.images.length, document.title]") == [
        1,
        0,
        seen.evaluate("document.querySelector('h1').textContent"),
    ]


@every_page
def test_nothing_is_wider_than_the_screen_and_the_ground_is_that_of_the_theme(view: Open, page: str) -> None:
    seen = view(PAGES[page]())
    for width, theme in SCREENS:
        seen.resize(width, 800, dark=theme is Theme.DARK)
        assert seen.evaluate("document.documentElement.scrollWidth") == width
        picture = (imread(BytesIO(seen.picture()))[..., :3] * 255).round().astype(int)
        assert picture.shape[:2] == (800, width)
        ground = [int(palette(theme)["ground"][i : i + 2], 16) for i in (1, 3, 5)]
        assert picture[2, 2].tolist() == ground
        assert 0.02 < 1 - (picture == ground).all(axis=2).mean() < 0.99
        assert len({tuple(colour) for colour in picture[::3, ::3].reshape(-1, 3).tolist()}) > 50


def violations(page: Page) -> dict[str, list[str]]:
    if not AXE.exists():
        needed("no axe-core in build/")
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = json.loads(page.evaluate("axe.run().then(found => JSON.stringify(found.violations))"))
    return {rule["id"]: [node["html"][:200] for node in rule["nodes"]] for rule in found}


@every_page
def test_axe_finds_no_violation(view: Open, page: str) -> None:
    seen = view(PAGES[page]())
    for width, theme in SCREENS:
        if width != 390 or theme is Theme.DARK:  # two widths in dark and light, one between
            seen.resize(width, 800, dark=theme is Theme.DARK)
            assert violations(seen) == {}, (width, theme)


def test_axe_would_find_what_is_wrong(view: Open) -> None:
    seen = view("<!DOCTYPE html><title>x</title><p style='color:#eee;background:#fff'>cannot be read</p>")
    assert {"color-contrast", "html-has-lang"} <= set(violations(seen))


def test_fences_count_down_and_a_page_says_how_old_it_is(view: Open) -> None:
    texts = view(PAGES["status"]()).evaluate("[...document.querySelectorAll('.countdown')].map(one => one.textContent)")
    assert " (over by now)" in texts
    assert [one for one in texts if re.fullmatch(r" \(1 h 59 min left\)| \(2 h 00 min left\)", one)]
    made = datetime.now(UTC) - timedelta(minutes=90)
    seen = view(document(page_of_status(fleet_answer(3), "x", made)))
    assert seen.evaluate("document.querySelector('.made').textContent") == " (1 h 30 min ago)"


# ------------------------------------------------------------ the fleet


def in_view(page: Page, of: str) -> bool:
    """Return True if all of an element is on the first screen."""
    box = page.evaluate(
        f"(r => [r.top, r.bottom, innerHeight])(document.querySelector({of!r}).getBoundingClientRect())"
    )
    return bool(0 <= box[0] < box[1] <= box[2])


@every_width
def test_the_first_screen_names_the_cause_since_when_and_what_to_do(view: Open, width: int) -> None:
    seen = view(PAGES["fleet"](), width=width, height=800)
    assert in_view(seen, "h1")
    assert in_view(seen, "p.headline")
    cause = fleet_answer(40)["causes"][0]
    title = seen.evaluate("document.querySelector('.cause h2').textContent")
    assert title.split() == f"critical {cause['title']}: 3 clusters".split()
    for part in ("h2", "time", "code"):
        assert in_view(seen, f".cause {part}")
    assert seen.evaluate("document.querySelector('.cause code').textContent") == cause["command"]
    assert not seen.evaluate("document.querySelector('.cause tbody').checkVisibility()"), "its rows are folded"


@pytest.mark.parametrize("page", ["outage", "fenced outage"])
@every_width
def test_the_first_screen_of_one_cluster_names_the_cause_since_when_and_what_to_do(
    view: Open, width: int, page: str
) -> None:
    seen = view(PAGES[page](), width=width, height=800)
    title = seen.evaluate("document.querySelector('.cause h2').textContent")
    assert title.split() == ["critical", "zone", "a:", "66", "pools"]
    for part in ("h2", "time", "code"):
        assert in_view(seen, f".cause {part}")
    assert seen.evaluate("document.querySelector('.cause code').textContent") == (
        "evenkeel fence-zone --stack NAME --zone a --cluster demo --for 2h"
    )
    assert ("the zone is fenced for another" in seen.evaluate("document.querySelector('.cause').textContent")) is (
        page == "fenced outage"
    )


def test_a_command_is_copied_as_it_is_and_breaks_only_between_words(view: Open) -> None:
    seen = view(PAGES["fleet"](), width=390, height=800)
    reported = seen.evaluate(
        "(code => { getSelection().selectAllChildren(code); return getSelection().toString(); })"
        "(document.querySelector('.cause code'))"
    )
    assert reported == fleet_answer(40)["causes"][0]["command"]
    heights = seen.evaluate(
        "[...document.querySelectorAll('.cause code span')].map(one => one.getClientRects().length)"
    )
    assert set(heights) == {1}


def test_links_lead_to_the_card_of_a_cluster_and_to_an_incident_and_open_what_hides_them(view: Open) -> None:
    seen = view(PAGES["live fleet"](), height=300)
    name = seen.evaluate("document.querySelector('tbody a').textContent")
    incident = seen.evaluate("document.querySelector('h3[id]').id")
    for follow, place in (
        ("document.querySelector('tbody a').click()", f"#cluster-{name} h2"),
        (f"location.hash = '{incident}'", f"[id='{incident}']"),
        (f"location.hash = 'cluster-{name}/missing/gone'", f"#cluster-{name} h2"),  # an incident that is over
    ):
        seen.evaluate("document.querySelectorAll('details').forEach(one => { one.open = false; })")
        seen.evaluate(follow)
        seen.evaluate("new Promise(done => setTimeout(done))")
        assert in_view(seen, place), follow
        assert seen.evaluate(f"document.querySelector('#cluster-{name} > details').open")


def quote(page: Page) -> list[str]:
    """Return the names of the clusters whose cards are not hidden."""
    script = "[...document.querySelectorAll('.cluster')].filter(one => one.checkVisibility()).map(one => one.ariaLabel)"
    return list(page.evaluate(script))


def test_search_and_filter_work_by_keyboard_and_screen_reader(view: Open) -> None:
    fleet = fleet_answer(40)
    seen = view(PAGES["fleet"]())
    everything = quote(seen)
    assert everything == [cluster["cluster"] for cluster in fleet["clusters"]]
    for _ in range(len(fleet["causes"]) + 1):  # past the folded rows of each cause
        seen.press(*TAB)
    assert seen.evaluate("document.activeElement.id") == "find"
    seen.write("eu-central-1B")
    hit = [
        cluster["cluster"]
        for cluster in fleet["clusters"]
        if any("eu-central-1b" in incident["zones"] for incident in cluster["incidents"])
    ]
    assert quote(seen) == hit != everything
    assert ("status", "") in seen.tree() or ("status", f"{len(hit)} clusters found") in seen.tree()
    assert seen.evaluate("document.getElementById('found').textContent") == f"{len(hit)} clusters found"
    seen.write(" nowhere")
    assert quote(seen) == []
    assert seen.evaluate("document.getElementById('found').textContent") == "no cluster is like that"
    seen.evaluate("document.getElementById('find').select()")
    seen.press("Delete", 46)
    assert quote(seen) == everything
    seen.press(*TAB)
    seen.write("x")  # a select takes no text
    seen.evaluate("(k => { k.value = 'unreachable'; k.dispatchEvent(new Event('input')); })(document.activeElement)")
    unreachable = [
        cluster["cluster"]
        for cluster in fleet["clusters"]
        if "unreachable" in {incident["kind"] for incident in cluster["incidents"]}
    ]
    assert quote(seen) == unreachable != everything


def test_a_well_cluster_is_found_by_its_name_in_what_was_folded(view: Open) -> None:
    fleet = fleet_answer(40)
    name = fleet["others"]["well"][3]
    seen = view(PAGES["fleet"]())
    visible = f"[...document.querySelectorAll('li')].find(one => one.textContent === {name!r}).checkVisibility()"
    assert not seen.evaluate(visible)
    seen.evaluate("document.getElementById('find').focus()")
    seen.write(name)
    assert seen.evaluate(visible)
    assert seen.evaluate("document.getElementById('found').textContent") == "1 cluster found"


def test_a_card_is_opened_and_folded_by_the_keyboard(view: Open) -> None:
    seen = view(PAGES["live fleet"]())
    first = "document.querySelector('.cluster > details')"
    seen.evaluate(f"{first}.querySelector('summary').focus()")
    before = seen.evaluate(f"{first}.open")
    seen.press(*ENTER)
    assert seen.evaluate(f"{first}.open") is not before


def test_focus_can_be_seen(view: Open) -> None:
    seen = view(PAGES["fleet"]())
    outlines = []
    for _ in range(4):
        seen.press(*TAB)
        outlines.append(seen.evaluate("getComputedStyle(document.activeElement).outlineStyle"))
    assert outlines == ["solid"] * 4


@every_width
def test_a_screen_reader_reads_the_fleet_as_a_table_with_headings_and_links(view: Open, width: int) -> None:
    fleet = fleet_answer(40)
    tree = view(PAGES["fleet"](), width=width).tree()
    worst = fleet["clusters"][0]["cluster"]
    for node in (
        ("heading", "Evenkeel status"),
        ("table", "Clusters with incidents"),
        ("columnheader", "incident"),
        ("rowheader", worst),
        ("link", worst),
        ("region", worst),
        ("searchbox", "Search"),
        ("combobox", "Incident"),
    ):
        assert node in tree, node
    assert ("StaticText", "9 of 14 running, 5 missing") in tree
    last = [cluster for cluster in fleet["clusters"] if cluster["incidents"] and not cluster.get("folded")][-1]
    incident = last["incidents"][-1]
    reported = ("heading", f"{incident['severity']} {incident['headline']}")
    assert reported in tree, "what is far below is reported as well"


@pytest.mark.parametrize("page", ["status", "plan", "quota"])
@every_width
def test_a_screen_reader_reads_the_zones_of_a_pool_as_a_table(view: Open, page: str, width: int) -> None:
    tree = view(PAGES[page](), width=width).tree()
    assert ("table", "zones of pool workers") in tree
    assert {"rowheader", "columnheader", "cell"} <= {role for role, _ in tree}
    assert any(role == "image" and "min 1" in name for role, name in tree)


# ------------------------------------------------------------ paper


def pages_of(pdf: bytes) -> int:
    """Return a PDF's number of pages, from its decompressed streams."""
    streams = []
    for packed in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", pdf, re.S):
        try:
            streams.append(zlib.decompress(packed))
        except zlib.error:
            continue
    return max(int(count) for count in re.findall(rb"/Type\s*/Pages.*?/Count\s+(\d+)", pdf + b"".join(streams), re.S))


def test_a_fleet_is_printed_on_a_few_white_pages(view: Open) -> None:
    seen = view(PAGES["fleet"](), dark=True)
    # Ten clusters with incidents, four or five to a page after the first; the others are one line.
    assert 2 <= pages_of(seen.printed()) <= 5
    seen.call("Emulation.setEmulatedMedia", media="print")
    for hidden in (".tools", ".made"):
        assert not seen.evaluate(f"document.querySelector({hidden!r}).checkVisibility()")
    assert seen.evaluate("document.querySelector('.cluster li h3').checkVisibility()")
    assert seen.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


# ------------------------------------------------------------ a widget


def test_a_widget_leaves_the_console_around_it_as_it_is(view: Open) -> None:
    widget = fragment(page_of_status(fleet_answer(40), "x", NOW), Theme.DARK)
    around = "<!DOCTYPE html><title>-</title><table><tr><td id=t>x</td></tr></table><h1 id=h>x</h1>"
    script = """['t', 'h'].map(i => getComputedStyle(document.getElementById(i))).map(
        c => [c.color, c.backgroundColor, c.padding, c.fontSize, c.margin].join())"""
    alone, beside = (view(around + more).evaluate(script) for more in ("", widget))
    assert alone == beside
