"""A worker may die anywhere in a step of converge, on every flavour and owner: the pool comes home all the same.

Real use case, real adapter, simulated API (tests/crashing.py), every request of every run of a step. After each: no
node has gone before its successor runs, and at most one machine more than before is requested.
"""

import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.application.errors import EvenkeelError
from evenkeel.domain.convergence import converge as converging
from evenkeel.domain.convergence.capability import CONVERGENCE
from evenkeel.domain.model.convergence import ConvergenceState, Deleting, Order, Step
from evenkeel.domain.rebalancing import journal
from evenkeel.domain.rebalancing.capability import Point
from tests.crashing import BUSY, DEAD, IDLE, OWNERS, How, Life, Scene
from tests.parts import replace

RUNS = 3  # of one step: order, give, close


class HomeScene(Scene):
    """Three zones that may be written, of which one has four nodes and two have two; one step, and they are level."""

    def __init__(self, owner: str, **fields: Any) -> None:
        desired_bounds = {"level": "converge", "converge": {"blind": True, "per_hour": 60}, **fields}
        super().__init__(owner, incident=False, arrived=lambda scene: scene.fill(BUSY, 4), **desired_bounds)
        self.clock.at += timedelta(minutes=11)
        self.controllers.step(self.clock.at)

    def fill(self, zone: str, nodes: int) -> None:
        self.scale(zone, nodes)
        for _ in range(4):
            self._pass(timedelta(seconds=75))

    def running(self) -> int:
        return len(self._nodes())

    def _look_over(self, request: Any) -> None:
        super()._look_over(request)
        if not hasattr(self, "requested"):
            return
        total = sum(self.replicas().values())
        if not self.requested <= total <= self.requested + 1 + self.scaled:
            self.faults.append(f"after {request.path}: {total} replicas are requested, {self.requested} were")
        if (running := self.running()) < self.requested:
            self.faults.append(f"after {request.path}: {running} nodes run, {self.requested} did")

    def go_home(self, runs: int = 9) -> None:
        """Runs, each 75 s after the one before, until two in a row have nothing left to do."""
        idle = 0
        for _ in range(runs):
            idle = 0 if self.run().written or self.step is not None else idle + 1
            self._pass(timedelta(seconds=75))
            if self.running() < self.requested:
                self.faults.append(f"{self.running()} nodes run, {self.requested} did")
            if idle == 2:
                return

    def amiss(self, added: int = 0) -> list[str]:
        """Everything that is not as it must be, once all is quiet."""
        gone = self.nodes - self._nodes()
        self.nodes -= gone  # converge may take them: as many as it has brought
        found = self.wrong(self.requested + added)
        if len(gone) > 1:
            found.append(f"{len(gone)} nodes have gone")
        counts = [count for zone, count in self.replicas().items() if zone in (DEAD, BUSY, IDLE)]
        if max(counts) - min(counts) > 1 + added:
            found.append(f"not level: {self.replicas()}")
        if (step := self.step) is not None:
            found.append(f"the step is still open: {step}")
        if any(self.run().written for _ in range(3)):
            found.append("it is not quiet")
        return found

    @property
    def step(self) -> Any:
        (pool,) = self.memory.load("demo").state.pools.values()
        return pool.convergence.step


@pytest.fixture(scope="module", params=OWNERS)
def scene(request: pytest.FixtureRequest) -> HomeScene:
    return HomeScene(request.param)


def after(scene: HomeScene, runs: int) -> HomeScene:
    """The scene after so many undisturbed runs."""
    played = scene.again()
    for _ in range(runs):
        played.run()
        played._pass(timedelta(seconds=75))
    return played


def test_undisturbed_one_node_comes_and_one_goes(scene: HomeScene) -> None:
    played = after(scene, 1)
    assert sum(played.replicas().values()) == scene.requested + 1
    assert played.step is not None
    played.go_home()
    assert played.amiss() == []
    assert sorted(played.replicas()[zone] for zone in (DEAD, BUSY, IDLE)) == [2, 3, 3]


@pytest.mark.parametrize("how", [How.AFTER, How.LOST])
def test_whatever_request_of_a_step_it_dies_at_the_pool_comes_home(scene: HomeScene, how: How) -> None:
    wrong = {}
    tried = 0
    for runs in range(RUNS):
        before = after(scene, runs)
        life = Life()
        before.again().run(life)
        for at, step in enumerate(life.steps):
            played = before.again()
            played.troubled(Life(at=at, how=how))
            played.go_home()
            tried += 1
            if found := played.amiss():
                wrong[f"run {runs}, {at} {step}: {how.value}"] = found
    assert wrong == {}
    assert tried > 20


def test_over_several_random_crashes_it_comes_home(scene: HomeScene) -> None:
    wrong = {}
    for seed in range(6):
        chance = random.Random(seed)
        played = scene.again()
        story = []
        for _ in range(chance.randint(2, 5)):
            life = Life(at=chance.randrange(26), how=chance.choice([How.BEFORE, How.AFTER, How.LOST]))
            played.troubled(life)
            if life.at is not None and life.at < len(life.steps):
                story.append(f"{life.steps[life.at]}: {life.how.value}")
        played.go_home(20)
        if found := played.amiss():
            wrong[f"seed {seed}: {'; '.join(story)}"] = found
    assert wrong == {}


# What this harness is there to find: each bug, planted, makes an undisturbed or a crashed step end badly.

_advanced, _opened = converging._advanced, journal.opened_step


def _nobody_remembers_the_order(convergence: ConvergenceState, step: Step, id: str) -> ConvergenceState:
    return replace(_opened(convergence, step, id), step=None)


def _what_was_given_is_not_seen(convergence: ConvergenceState, drafts: Any, now: Any) -> ConvergenceState:
    """The giver's mark is not read: whoever died after the patch gives once more."""
    step = convergence.step
    hidden = {
        key: replace(draft, group=replace(draft.group, move=None, requested=step.order.source_replicas))
        if isinstance(step, Deleting) and key == step.draining_group
        else draft
        for key, draft in drafts.items()
    }
    return _advanced(convergence, hidden, now)


def _any_replica_is_a_node(order: Order, destination: Any) -> bool:
    return bool(destination.group.requested >= order.target_replicas)


BUGS: Mapping[str, tuple[Any, str, Any]] = {
    "the successor is not awaited": (converging, "_has_arrived", _any_replica_is_a_node),
    "an order is not written down": (journal, "opened_step", _nobody_remembers_the_order),
    "what was given is given again": (converging, "_advanced", _what_was_given_is_not_seen),
    "what is late is never taken back": (converging, "_cancel_reason", lambda *_: None),
    "what is late is moved elsewhere": (converging, "update_step", lambda _pool: None),
}


def _tell(scene: HomeScene, *, launches: bool) -> list[str]:
    """A step with a crash after every patch; where its zone launches nothing, until long after its timeout."""
    played = scene.again()
    if not launches:
        for zone in (DEAD, IDLE):
            played.cloud.exhaust_zone(zone)
    for at in (6, 8, 10, 12):
        played.troubled(Life(at=at, how=How.AFTER))
    played.go_home(24)
    found = played.amiss() if launches else [*played.faults]
    if not launches and sum(played.replicas().values()) != scene.requested:
        found.append(f"{played.replicas()} after a launch that failed")
    return found


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_makes_a_step_end_badly_and_without_it_none_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = HomeScene("cluster-api", autoscaler="none")
    assert _tell(scene, launches=True) == []
    assert _tell(scene, launches=False) == []
    target, what, bug = BUGS[name]
    monkeypatch.setattr(target, what, bug)
    if what == "update_step":
        monkeypatch.setitem(CONVERGENCE.steps, Point.START, bug)
    ends: list[str] = []
    for launches in (True, False):
        try:
            ends += _tell(scene, launches=launches)
        except (AssertionError, EvenkeelError) as error:
            ends.append(str(error))
    assert ends
