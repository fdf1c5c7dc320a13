"""If any function dies at any of its requests, the fence of a drill still ends, and its report exists."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from typing import Any, TypeVar, cast

import pytest

from evenkeel.adapters.codec import pack
from evenkeel.application.errors import EvenkeelError
from evenkeel.application.operate import Operate
from evenkeel.application.ports import sequentially
from evenkeel.application.rebalancing.check import CheckClusters
from evenkeel.domain.drill.drill import End
from tests.crashing import BUSY, FROZEN, IDLE, CheckedLife, How, KilledError, Life, Mortal, Scene, harmed_at
from tests.fakes import FakeBus, FakeQueue, plenty
from tests.timed import worker

MINUTE = timedelta(minutes=1)
S = TypeVar("S", bound=Scene)
BEGIN = {"action": "drill", "cluster": "demo", "zone": IDLE, "for": "30m", "by": "jane", "reason": "a rehearsal"}
ABORT = {"action": "drill", "cluster": "demo", "abort": True, "by": "jane"}


class DrillScene(Scene):
    """A quiet cluster, and a stack of three functions: operator, check and rebalance."""

    def __init__(self, owner: str) -> None:
        super().__init__(owner, incident=False, on_failure="hold", trouble_after=60, dry_run=None)
        self.before = self.sizes()
        self.queue = FakeQueue()

    def _ports(self, life: Life) -> dict[str, Any]:
        return {
            "store": Mortal(self.memory, life, "table"),
            "clusters": self.clusters_of(life),
            "queue": Mortal(self.queue, life, "queue"),
            "clock": self.clock,
        }

    def ask(self, life: Life, event: dict[str, Any]) -> None:
        Operate(**self._ports(life), random_bytes=self.chance.randbytes, pack=pack, dry_run=False)(event, plenty)

    def check(self, life: Life) -> None:
        CheckClusters(**self._ports(life), dry_run=False, together=sequentially)(("demo",), plenty)

    def work(self, life: Life) -> None:
        """Play the requested runs. The queue delivers a message again if its run has failed."""
        for id, (cluster, reason) in list(self.queue.requests.items()):
            worker(
                **cast("Any", self._ports(life)), random_bytes=self.chance.randbytes, bus=Mortal(FakeBus(), life, "bus")
            )(cluster, reason, plenty, self.queue.found.get(id), self.queue.steady.get(id))
            for messages in (self.queue.requests, self.queue.found, self.queue.steady):
                cast("dict[str, Any]", messages).pop(id, None)

    @property
    def is_fenced(self) -> bool:
        replicas, _, maximum = self.sizes()[IDLE]
        return maximum == replicas

    def fail_elsewhere(self) -> None:
        self.cloud.exhaust_zone(BUSY)
        self.scale(BUSY, 3)

    def reports(self) -> list[Any]:
        entries = self.memory.decisions("demo", 1000)
        return [entry["drill"] for entry in entries if entry["cause"] == "drill-ended"]


Phase = Callable[[DrillScene, Life], None]


def tick(scene: Any, life: Life) -> None:
    scene.check(life)
    scene.work(life)


def begin(scene: DrillScene, life: Life) -> None:
    scene.ask(life, BEGIN)


def abort(scene: DrillScene, life: Life) -> None:
    scene.ask(life, ABORT)


def pause(scene: DrillScene, life: Life) -> None:
    scene.ask(life, {"action": "pause", "cluster": "demo", "by": "bob"})


def to_dry_run(scene: Any, life: Life) -> None:
    scene.ask(life, {"action": "dry-run", "cluster": "demo", "by": "bob"})


def wait(scene: DrillScene, life: Life) -> None:
    scene.clock.at += 28 * MINUTE


def fail(scene: DrillScene, life: Life) -> None:
    scene.fail_elsewhere()


SCRIPTS: dict[str, tuple[Phase, ...]] = {
    "time": (begin, tick, tick, wait, tick, tick),
    "aborted": (begin, tick, abort, tick),
    "other-failure": (begin, tick, fail, tick, tick, tick, tick),
    "paused": (begin, tick, pause, tick, tick),
    "dry-run": (begin, tick, to_dry_run, tick, tick),
}


def play(scene: DrillScene, phases: Iterable[Phase], life: Life | None = None) -> None:
    """Play the phases; the first one has this life. Then let the cluster be checked each minute."""
    for phase in phases:
        with contextlib.suppress(KilledError, EvenkeelError):
            phase(scene, life or Life())
        life = None
        scene._pass(timedelta(seconds=75))
    drill = scene.memory.load("demo").drill
    if drill is not None:
        scene.clock.at = max(scene.clock.at, drill.until)
    for _ in range(4):
        tick(scene, Life())
        scene._pass(timedelta(seconds=75))


def harmed_scenes(
    scene: S, script: Sequence[Callable[[S, Life], None]], how: How
) -> Iterator[tuple[str, S, Sequence[Callable[[S, Life], None]], Life]]:
    """Yield each request of each phase, the scene before that phase, the phases from it on, and a faulty life."""
    played = scene.again()
    for number, phase in enumerate(script):
        before, life = played.again(), Life()
        phase(played, life)
        played._pass(timedelta(seconds=75))
        for at, step in harmed_at(life.steps, how):
            yield f"{number} {at} {step}", before.again(), script[number:], Life(at=at, how=how)


def wrong(scene: DrillScene) -> list[str]:
    """Return the problems left after the end of the drill."""
    stored, reports = scene.memory.load("demo"), scene.reports()
    found = list(scene.faults)
    if scene.is_fenced:
        found.append("the zone is still fenced")
    if IDLE in stored.state.zones:
        found.append(f"the fence is still stored: {stored.state.zones}")
    if stored.drill is None:
        return [*found, *(["a report without a drill"] if reports else [])]
    if not stored.drill.is_recorded or stored.drill.ended is None:
        found.append(f"the drill has no end: {stored.drill}")
    if [report["id"] for report in reports] != [stored.drill.id]:
        found.append(f"reports: {reports}")
    if stored.drill.ended is not None and stored.drill.ended.at > stored.drill.until:
        found.append(f"it has ended too late: {stored.drill.ended}")
    return found


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest) -> DrillScene:
    return DrillScene(request.param)


SCENES = pytest.mark.parametrize("scene", ["gardener", "cluster-api"], indirect=True)


@SCENES
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_undisturbed_drill_fences_its_zone_and_ends(scene: DrillScene, name: str) -> None:
    played, script = scene.again(), SCRIPTS[name]
    for number, phase in enumerate(script):
        phase(played, CheckedLife(played))
        assert number != 1 or played.is_fenced
        played._pass(timedelta(seconds=75))
    assert not played.is_fenced
    played = scene.again()
    play(played, script)
    assert wrong(played) == []
    drill = played.memory.load("demo").drill
    assert drill is not None
    assert drill.ended is not None
    assert drill.ended.why == ("stopped" if name in ("paused", "dry-run") else name)
    assert played.sizes()[FROZEN] == scene.sizes()[FROZEN]


@SCENES
@pytest.mark.parametrize("how", [How.AFTER, How.LOST])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_death_or_a_lost_answer_at_any_request_of_any_function_does_no_harm(
    scene: DrillScene, name: str, how: How
) -> None:
    found = {}
    for request, played, phases, life in harmed_scenes(scene, SCRIPTS[name], how):
        play(played, phases, life)
        found[request] = wrong(played)
    assert not any(found.values()), found


@SCENES
def test_the_fence_ends_by_its_time_alone(scene: DrillScene) -> None:
    """No function runs from the first run until long after the end: the next run lifts the fence."""
    played = scene.again()
    begin(played, Life())
    played.work(Life())
    assert played.is_fenced
    played.clock.at += timedelta(hours=5)
    tick(played, Life())
    assert not played.is_fenced
    assert wrong(played) == []
    (report,) = played.reports()
    assert report["ended"]["why"] == End.TIME
