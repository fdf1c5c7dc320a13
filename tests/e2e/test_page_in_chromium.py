"""The page in a real browser: nothing runs that should not, nothing is cut off, and there is something to see."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from matplotlib.image import imread

from evenkeel.adapters.page.reading import page_of_plan, page_of_simulation, page_of_status
from evenkeel.adapters.page.render import document, fragment
from evenkeel.adapters.page.theme import PALETTES, Theme
from evenkeel.application.words import rfc3339
from tests.builders import NOW
from tests.unit.test_page import EVIL, told_plan, told_simulation, told_status

pytestmark = pytest.mark.slow

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
]
MEASURE = "const r=f.contentDocument.documentElement;document.title='wide '+r.scrollWidth+' of '+r.clientWidth"
DARK = "--blink-settings=preferredColorScheme=0"
Browse = Callable[..., str]


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Opens a page and gives its DOM once scripts have run; complaints of the page are an error."""
    if BROWSER is None:
        pytest.skip("no chromium, chromium-browser or google-chrome on PATH: the page is not looked at in a browser")

    def opened(page: str, *flags: str, width: int = 1280, height: int = 900) -> str:
        file = tmp_path / "page.html"
        file.write_text(page, encoding="utf-8")
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        command = [
            str(BROWSER),
            *FLAGS,
            profile,
            f"--window-size={width},{height}",
            *flags,
            "--dump-dom",
            file.as_uri(),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        assert [line for line in done.stderr.splitlines() if ":CONSOLE" in line] == []
        return done.stdout

    return opened


def far_from_now() -> dict[str, Any]:
    """A status whose fences end in two hours, so that there is something left to count."""
    text = json.dumps(told_status()).replace(rfc3339(NOW + timedelta(hours=1)), "LATER")
    return dict(json.loads(text.replace("LATER", rfc3339(datetime.now(UTC) + timedelta(hours=2)))))


def evil() -> dict[str, Any]:
    text = json.dumps(far_from_now())
    for word in ("workers", "no machines left", "operator", "schedule"):
        text = text.replace(word, json.dumps(EVIL)[1:-1])
    return dict(json.loads(text))


PAGES: dict[str, Callable[[], str]] = {
    "plan": lambda: document(page_of_plan(json.dumps(told_plan()), "plan.json")),
    "status": lambda: document(page_of_status(far_from_now(), "x", NOW)),
    "evil": lambda: document(page_of_status(evil(), EVIL, NOW)),
    "long names": lambda: document(
        page_of_status(json.loads(json.dumps(far_from_now()).replace("workers", "w" * 250)), "x", NOW)
    ),
    "simulation": lambda: document(page_of_simulation(json.dumps(told_simulation()), "sim.json")),
}
every_page = pytest.mark.parametrize("page", PAGES)


def test_the_console_of_the_browser_is_heard(browse: Browse) -> None:
    with pytest.raises(AssertionError, match="heard"):
        browse("<script>console.error('heard')</script>")


@every_page
def test_a_page_opens_without_complaint_and_runs_no_script_but_its_own(browse: Browse, page: str) -> None:
    dom = browse(PAGES[page]())
    assert dom.count("<script") == 1
    assert "<img" not in dom
    assert "<h1>" in dom


def test_fences_count_down_and_those_that_are_over_say_so(browse: Browse) -> None:
    dom = browse(PAGES["status"]())
    told = re.findall(r'class="countdown"[^>]*>([^<]*)<', dom)
    assert " (over by now)" in told
    assert [one for one in told if re.fullmatch(r" \(1 h 59 min left\)| \(2 h 00 min left\)", one)]


@every_page
@pytest.mark.parametrize("width", [320, 700])
def test_nothing_is_wider_than_the_screen(browse: Browse, page: str, width: int) -> None:
    # A window of this browser is at least 500 px wide; a frame may be as narrow as a phone.
    style = f"width:{width}px;height:800px;border:0"
    frame = f'<iframe id="f" style="{style}" srcdoc="{html.escape(PAGES[page]())}"></iframe>'
    dom = browse(f"<!DOCTYPE html><title>-</title>{frame}<script>onload=()=>{{{MEASURE}}}</script>")
    (found,) = re.findall(r"<title>wide (\d+) of (\d+)</title>", dom)
    assert found == (str(width), str(width))


@every_page
@pytest.mark.parametrize("theme", [Theme.LIGHT, Theme.DARK])
def test_the_picture_has_the_ground_of_its_theme_and_something_on_it(
    browse: Browse, tmp_path: Path, page: str, theme: Theme
) -> None:
    shot = tmp_path / "page.png"
    browse(PAGES[page](), f"--screenshot={shot}", *([DARK] if theme is Theme.DARK else []))
    picture = (imread(shot)[..., :3] * 255).round().astype(int)
    assert picture.shape[:2] == (900, 1280)
    ground = [int(PALETTES[theme]["ground"][i : i + 2], 16) for i in (1, 3, 5)]
    assert picture[2, 2].tolist() == ground
    of_ground = (picture == ground).all(axis=2).mean()
    assert 0.02 < 1 - of_ground < 0.98
    assert len({tuple(colour) for colour in picture[::3, ::3].reshape(-1, 3).tolist()}) > 50


def test_a_widget_leaves_the_console_around_it_as_it_is(browse: Browse) -> None:
    widget = fragment(page_of_status(told_status(), "x", NOW), Theme.DARK)
    around = "<!DOCTYPE html><title>-</title><table><tr><td id=t>x</td></tr></table><h1 id=h>x</h1>"
    script = (
        "<script>const s=i=>{const c=getComputedStyle(document.getElementById(i));"
        "return [c.color,c.backgroundColor,c.padding,c.fontSize,c.margin].join()};"
        "document.title=s('t')+';'+s('h')</script>"
    )
    alone, beside = (re.findall(r"<title>(.*?)</title>", browse(around + more + script))[0] for more in ("", widget))
    assert alone == beside != "-"
