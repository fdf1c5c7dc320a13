"""A worker may die anywhere while nodes are added or given back on request: it is done once, and whole.

Real use case, real adapter, simulated API (tests/crashing.py), every step of the run.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from evenkeel.config import GrowthRecord, ZoneRecord
from tests.crashing import BUSY, DEAD, IDLE, OWNERS, How, Life, Scene

POOL = "workers"


@pytest.fixture(scope="module")
def prepared(request: pytest.FixtureRequest) -> tuple[Scene, int]:
    """A quiet scene with a request for so many nodes in it (negative: to be given back)."""
    owner, nodes = request.param
    scene = Scene(owner, trouble=False)
    record = GrowthRecord(id="r1", nodes=nodes, pool=POOL, at=scene.clock.now())
    scene.memory.save_growth("demo", record, None)
    return scene, nodes


GROWING = [pytest.param((owner, 5), id=owner) for owner in OWNERS]
SHRINKING = [pytest.param((owner, -2), id=owner) for owner in OWNERS]


def steps_of(scene: Scene) -> list[str]:
    life = Life()
    scene.again().run(life)
    return life.steps


def wrong(played: Scene, nodes: int) -> list[str]:
    """Everything that is not as it must be once all is quiet. Only on request may as many nodes go."""
    lost = played.nodes - played._nodes()
    if nodes < 0 and len(lost) == -nodes:
        played.nodes -= lost
    found = played.wrong(played.requested + nodes)
    for id, record in played.memory.load("demo").growths.items():
        if not record.done:
            found.append(f"request {id} is still open")
    return found


@pytest.mark.parametrize("prepared", GROWING + SHRINKING, indirect=True)
class TestGrowthOnRequest:
    def test_undisturbed_it_is_done_in_one_run_and_told(self, prepared: tuple[Scene, int]) -> None:
        scene, nodes = prepared
        played = scene.again()
        assert played.run().written
        assert sum(played.replicas().values()) == played.requested + nodes
        (record,) = played.memory.load("demo").growths.values()
        assert record.done
        assert f"{abs(nodes)} nodes in pool" in record.result
        played.settle()
        assert wrong(played, nodes) == []

    @pytest.mark.parametrize("how", [How.AFTER, How.LOST])
    def test_whatever_step_the_worker_dies_at_it_is_done_once(self, prepared: tuple[Scene, int], how: How) -> None:
        scene, nodes = prepared
        steps = steps_of(scene)
        assert sum(step.startswith("PATCH") for step in steps) >= 2
        found = {}
        for at, step in enumerate(steps):
            played = scene.again()
            played.troubled(Life(at=at, how=how))
            played.settle()
            if problems := wrong(played, nodes):
                found[f"{at} {step}"] = problems
        assert found == {}

    def test_dying_in_the_run_that_goes_on_does_no_harm_either(self, prepared: tuple[Scene, int]) -> None:
        scene, nodes = prepared
        last = max(at for at, step in enumerate(steps_of(scene)) if step.startswith("PATCH"))
        found = {}
        for at in range(30):
            played = scene.again()
            played.troubled(Life(at=last, how=How.BEFORE))
            going_on = Life(at=at, how=How.AFTER)
            played.troubled(going_on)
            if not going_on.dead:
                break
            played.settle()
            if problems := wrong(played, nodes):
                found[f"{at} {going_on.steps[-1]}"] = problems
        else:
            pytest.fail("a run of thirty steps: the loop must go on for longer")
        assert found == {}


@pytest.mark.parametrize("prepared", GROWING[1:], indirect=True)  # Gardener's Worker would not let the others take it
def test_a_zone_that_is_fenced_between_the_steps_leaves_its_share_to_the_others(prepared: tuple[Scene, int]) -> None:
    scene, nodes = prepared
    first = min(at for at, step in enumerate(steps_of(scene)) if step.startswith("PATCH"))
    played = scene.again()
    played.troubled(Life(at=first, how=How.AFTER))
    grown = next(zone for zone in (DEAD, BUSY, IDLE) if played.replicas()[zone] > scene.replicas()[zone])
    fenced = next(zone for zone in (DEAD, BUSY, IDLE) if zone != grown)
    until = played.clock.now() + timedelta(hours=1)
    played.memory.save_zone("demo", "-", fenced, ZoneRecord(impaired_until=until, said_at=played.clock.now()), None)
    played.settle()
    assert sum(played.replicas().values()) == played.requested + nodes
    assert played.replicas()[fenced] == scene.replicas()[fenced]
