"""If any function dies at any request, the nodes still leave the zone, none before its successor runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from datetime import timedelta

import pytest

from evenkeel.application.errors import EvenkeelError
from tests.crashing import FROZEN, IDLE, CheckedLife, ConvergingScene, How, KilledError, Life
from tests.fakes import FakeQueue
from tests.integration.test_drill_crashes import DrillScene, harmed_scenes, tick, to_dry_run

LEAVE = {"action": "leave-zone", "cluster": "demo", "zone": IDLE, "per_hour": 60, "by": "jane"}
BACK = {"action": "leave-zone", "cluster": "demo", "back": True, "by": "jane"}


class LeaveScene(ConvergingScene):
    """A quiet cluster of three writable zones, and a stack of three functions."""

    _ports, ask, check, work = DrillScene._ports, DrillScene.ask, DrillScene.check, DrillScene.work

    def __init__(self, owner: str) -> None:
        self.queue = FakeQueue()
        super().__init__(owner, level="off", dry_run=None)


Phase = Callable[[LeaveScene, Life], None]


def begin(scene: LeaveScene, life: Life) -> None:
    scene.ask(life, LEAVE)


def back(scene: LeaveScene, life: Life) -> None:
    scene.ask(life, BACK)


SCRIPTS: dict[str, tuple[Phase, ...]] = {
    "left": (begin, tick, tick, tick),
    "back": (begin, tick, tick, back, tick),
    "dry-run": (begin, tick, to_dry_run, tick),
}


def play(scene: LeaveScene, phases: Iterable[Phase], life: Life | None = None) -> None:
    """Play the phases; the first one has this life, and its command is repeated. Then run until nothing is left."""
    for phase in phases:
        with contextlib.suppress(KilledError, EvenkeelError):
            phase(scene, life or Life())
        if life is not None and phase is not tick:
            scene._pass(timedelta(seconds=75))
            phase(scene, Life())
        life = None
        scene._pass(timedelta(seconds=75))
        scene._check_nodes("after a phase")
    for _ in range(12):
        tick(scene, Life())
        scene._pass(timedelta(seconds=75))
        scene._check_nodes("after a check")


def wrong(scene: LeaveScene, name: str) -> list[str]:
    """Return the problems that are left."""
    stored, found = scene.memory.load("demo"), list(scene.faults)
    replicas, _, maximum = scene.sizes()[IDLE]
    if name == "left" and (replicas > 0 or maximum > 1):
        found.append(f"the zone is not left: {scene.sizes()}")
    if name == "back" and (stored.control.leave is not None or maximum <= replicas):
        found.append(f"the zone may not grow: {stored.control.leave} {scene.sizes()}")
    if name != "dry-run" and (total := sum(scene.replicas().values())) != scene.requested:
        found.append(f"{total} replicas are requested, not {scene.requested}: {scene.replicas()}")
    if name != "dry-run" and scene.step is not None:
        found.append(f"the step is still open: {scene.step}")
    return found


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest) -> LeaveScene:
    return LeaveScene(request.param)


SCENES = pytest.mark.parametrize("scene", ["gardener", "cluster-api", "openshift"], indirect=True)


@SCENES
@pytest.mark.parametrize("name", SCRIPTS)
def test_an_undisturbed_leave_ends_well(scene: LeaveScene, name: str) -> None:
    played, script = scene.again(), SCRIPTS[name]
    for phase in script:
        phase(played, CheckedLife(played))
        played._pass(timedelta(seconds=75))
    play(played, ())
    assert wrong(played, name) == []
    assert played.sizes()[FROZEN] == scene.sizes()[FROZEN]


@SCENES
@pytest.mark.parametrize("how", [How.AFTER, How.LOST])
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_death_or_a_lost_answer_at_any_request_of_any_function_does_no_harm(
    scene: LeaveScene, name: str, how: How
) -> None:
    found = {}
    for request, played, phases, life in harmed_scenes(scene, SCRIPTS[name], how):
        play(played, phases, life)
        found[request] = wrong(played, name)
    assert not any(found.values()), found
