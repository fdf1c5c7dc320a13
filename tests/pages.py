"""Answers of the real `status` for pictures of the page: a fleet in a bad night, and one cluster."""

from datetime import timedelta
from html.parser import HTMLParser
from io import BytesIO, StringIO
from typing import Any

from PIL import Image
from rich.console import Console

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import Theme, document, fragment
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel_cli.answers import print_answer
from sandbox.chromium import Chromium
from sandbox.template import ROOT
from tests.builders import MINUTE, NOW, key, zones
from tests.fakes import plenty, register
from tests.stack import Stack

ZONES = tuple(f"eu-central-1{letter}" for letter in "abc")
POOL = "cluster-api/prod/workers"
QUOTA = "VcpuLimitExceeded: You have requested more vCPU capacity than your current limit of 64"
_CAPACITY = "InsufficientInstanceCapacity: We currently do not have sufficient m5.xlarge capacity"


def _missing(missing: int, requested: int, minutes: int, kind: FailureClass | None, said: str, *at: int) -> Incident:
    return Incident(
        kind=IncidentKind.MISSING,
        since=NOW - minutes * MINUTE,
        pool=POOL,
        zones=tuple(ZONES[each] for each in at),
        groups=tuple(f"{POOL}-{'abc'[each]}" for each in at),
        missing=missing,
        requested=requested,
        running=requested - missing,
        is_outage=len(at) == len(ZONES),
        failure_class=kind,
        message=said,
    )


def _of(kind: IncidentKind, minutes: int, **fields: Any) -> Incident:
    return Incident(kind=kind, since=NOW - minutes * MINUTE, **fields)


def _incidents() -> tuple[tuple[Incident, ...], ...]:
    """Return the incidents of each cluster in a night in which eu-central-1a has no m5.xlarge."""
    too_much = Problem.of(ProblemKind.OVER_COMMITTED, requested=14, maximum=12)
    too_few = Problem.of(ProblemKind.FEWER_THAN_ZONES, maximum=2, zones=3)
    dark = _of(IncidentKind.UNREACHABLE, 34, message="it does not answer: not within 8 s")
    role = "the role may not be assumed: AccessDenied"
    return (
        (
            _missing(8, 20, 23, FailureClass.CAPACITY, _CAPACITY, 0, 1),
            _of(IncidentKind.OVER_COMMITTED, 9, pool="cluster-api/prod/batch", problems=(too_much,)),
        ),
        (_missing(5, 14, 41, FailureClass.QUOTA, QUOTA, 0, 1, 2),),
        (_missing(3, 9, 12, FailureClass.CAPACITY, _CAPACITY, 0),),
        (_missing(0, 6, 17, FailureClass.CAPACITY, _CAPACITY, 0, 2),),
        (dark,),
        (dark,),
        (dark,),
        (_of(IncidentKind.ACCESS, 4, message=role),),
        (_of(IncidentKind.INVALID, 75, pool="gardener/shoot--prod/small", problems=(too_few,)),),
        (
            _of(
                IncidentKind.CONTESTED,
                130,
                pool=POOL,
                zones=ZONES[1:2],
                groups=(f"{POOL}-b",),
                message="argocd-controller",
            ),
        ),
    )


def fleet_answer(clusters: int, troubled: int | None = None) -> dict[str, Any]:
    """Return `status` of all clusters of such a fleet."""
    return fleet_stack(clusters, troubled).operate({"action": "status"}, plenty)


def fleet_stack(clusters: int, troubled: int | None = None) -> Stack:
    """Return so many clusters: ten or ``troubled`` with incidents, two paused, one new."""
    store = Stack().store
    store.remove_record("demo", store.load("demo").versions)
    names = [f"prod-eu-{number:02}" for number in range(1, clusters + 1)]
    for number, name in enumerate(names):
        pause = {"paused": True} if clusters > 20 and number in (20, 21) else {}
        register(store, name, dry_run=number in (23, 24, 25), **pause)
    wrong = _incidents()
    for number, name in enumerate(names[: len(wrong) if troubled is None else troubled]):
        store.save_cluster_health(name, ClusterHealth().with_incidents(wrong[number % len(wrong)]), None)
    for start in range(0, clusters, 50):
        store.save_checked_at(names[start : min(start + 50, clusters - 1)], NOW)
    stack = Stack(store=store)
    stack.clock.at = NOW
    return stack


def quota_answer() -> dict[str, Any]:
    """Return `status` of a cluster whose quota is used up: no zone gives a node, and each is tried again."""
    stack = Stack(zones((2, 2, 2), bounds=[(1, 9)] * 3))
    versions = stack.store.load("demo").versions
    for zone, wanted in zip("abc", (4, 2, 3), strict=True):
        stack.cluster.change(key(zone), requested=wanted, running=2, machines=())
        state = record_failure(GroupState(), stack.clock.at, FailureClass.QUOTA, QUOTA, BackoffPolicy())
        stack.store.save_group("demo", key(zone), state, versions)
    for minute in range(8):
        stack.clock.at = NOW + timedelta(minutes=minute)
        stack.rebalance("demo", "schedule", plenty)
    return stack.ask("status")


def pools_answer(count: int, *, fenced: bool = False, minutes: int = 8) -> Stack:
    """Return a cluster of so many pools in an outage of zone a. Every third pool orders no node there."""
    names = [f"team-{number:02}" for number in range(count)]
    groups = [group for name in names for group in zones((2, 2, 2), bounds=[(1, 9)] * 3, pool=name)]
    stack = Stack(groups, pools=[{"name": name, "min": 3, "max": 12} for name in names], on_failure="hold")
    for number, name in enumerate(names):
        if number % 3:
            stack.cluster.change(key("a", pool=name), requested=4, running=2, machines=())
            stack.fail("a", pool=name)
    for minute in range(minutes):
        stack.clock.at = NOW + timedelta(minutes=minute)
        if fenced and minute == minutes - 1:
            stack.ask("fence-zone", zone="a", **{"for": "2h"})
        stack.rebalance("demo", "schedule", plenty)
    return stack


def draw() -> None:
    fleet = page_of_status(fleet_answer(40), "answer of stack evenkeel", NOW)
    cluster = page_of_status(quota_answer(), "answer of stack evenkeel", NOW + 7 * MINUTE)
    widget = f"<!DOCTYPE html><body style='margin:0'>{fragment(fleet, Theme.DARK)}</body>"
    with Chromium() as browser:
        for name, html, width, height in (
            ("fleet", document(fleet), 1000, 760),
            ("cluster", document(cluster), 1000, 900),
            ("widget", widget, 1000, 620),
        ):
            picture(browser, name, html, width=width, height=height)


def picture(browser: Chromium, name: str, html: str, *, width: int, height: int) -> None:
    """Save a picture for docs/ of a page in a window of that many pixels."""
    page = browser.open(html, width=width, height=height)
    page.evaluate("document.querySelectorAll('.made').forEach(one => one.remove())")  # it differs each day
    # Few colours, since pictures stay in the repository's history.
    drawn = Image.open(BytesIO(page.picture())).convert("RGB").quantize(48)
    drawn.save(ROOT / "docs" / "pictures" / f"{name}.png", optimize=True)


if __name__ == "__main__":
    draw()


class Seen(HTMLParser):
    """Tags, attributes and texts of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.texts: list[str] = []
        self.inside: dict[str, str] = {}
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._open = tag
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open in ("script", "style"):
            self.inside[self._open] = self.inside.get(self._open, "") + data
        else:
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


def assert_note_is_shown(stack: Stack, note: str, pool: str) -> None:
    """Check that plan, status, the page and explain print a note of a pool."""
    printed = StringIO()
    for action in ("plan", "status"):
        print_answer(stack.ask(action), Console(file=printed, width=200))
    assert printed.getvalue().count(f"note: {note}") == 2
    assert note in Seen(document(page_of_status(stack.ask("status"), "x", stack.clock.now()))).text
    assert note[1:] in stack.ask("explain", pool=pool)["message"]
