"""A worker may die anywhere while nodes are added or given back on request: it is done once, and whole.

Real use case, real adapter, simulated API (tests/crashing.py), every step of the run.
"""

from datetime import timedelta

import pytest

from evenkeel.state_records import ScaleRequestRecord, ZoneRecord, ZoneStatement
from sandbox.kube.api import Faults
from tests.crashing import BUSY, DEAD, IDLE, OWNERS, How, Life, Scene, dying_again, dying_at_every_step, patches_of
from tests.fakes import register_again

POOL = "workers"


@pytest.fixture(scope="module")
def prepared(request: pytest.FixtureRequest) -> tuple[Scene, int]:
    """A quiet scene with a request for so many nodes in it (negative: to be given back)."""
    owner, nodes = request.param
    scene = Scene(owner, incident=False)
    record = ScaleRequestRecord(id="r1", nodes=nodes, pool=POOL, at=scene.clock.now())
    scene.memory.save_scale_request("demo", record, None)
    return scene, nodes


GROWING = [pytest.param((owner, 5), id=owner) for owner in OWNERS]
SHRINKING = [pytest.param((owner, -2), id=owner) for owner in OWNERS]


def wrong(played: Scene, nodes: int) -> list[str]:
    """Everything that is not as it must be once all is quiet. Only on request may as many nodes go."""
    lost = played.nodes - played._nodes()
    if nodes < 0 and len(lost) == -nodes:
        played.nodes -= lost
    found = played.wrong(played.requested + nodes)
    for id, record in played.memory.load("demo").scale_requests.items():
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
        (record,) = played.memory.load("demo").scale_requests.values()
        assert record.done
        assert f"{abs(nodes)} nodes in pool" in record.result
        played.settle()
        assert wrong(played, nodes) == []

    @pytest.mark.parametrize("how", [How.AFTER, How.LOST])
    def test_whatever_step_the_worker_dies_at_it_is_done_once(self, prepared: tuple[Scene, int], how: How) -> None:
        scene, nodes = prepared
        assert len(patches_of(scene)) >= 2
        assert dying_at_every_step(scene, [how], lambda played: wrong(played, nodes)) == {}

    def test_dying_in_the_run_that_goes_on_does_no_harm_either(self, prepared: tuple[Scene, int]) -> None:
        scene, nodes = prepared
        assert dying_again(scene, max(patches_of(scene)), lambda played: wrong(played, nodes)) == {}


@pytest.mark.parametrize("prepared", [(owner, 100) for owner in OWNERS], indirect=True, ids=OWNERS)
def test_after_a_crash_the_answer_speaks_of_the_whole_request(prepared: tuple[Scene, int]) -> None:
    scene, _ = prepared
    undisturbed = scene.again()
    undisturbed.run()
    (answer,) = (record.result for record in undisturbed.memory.load("demo").scale_requests.values())
    played = scene.again()
    played.troubled(Life(at=min(patches_of(scene)), how=How.AFTER))
    played.settle()
    (record,) = played.memory.load("demo").scale_requests.values()
    assert record.result == answer
    placed = sum(played.replicas().values()) - played.requested
    assert answer.startswith(f"{placed} nodes in pool")
    assert answer.endswith(f", {100 - placed} more could not be placed")


@pytest.mark.parametrize("prepared", GROWING, indirect=True)
def test_a_request_that_the_api_refuses_is_told_once_and_ends_after_its_hour(prepared: tuple[Scene, int]) -> None:
    scene, _ = prepared
    played = scene.again()
    played.api.faults = Faults()
    scalables = f"/{scene.scalables.partition('.')[0]}/"
    played.api.faults.add(method="PATCH", path_contains=scalables, status=422, message="no", times=10_000)
    told = 0
    for _ in range(70):
        told += len(played.run().decisions)
        played.clock.at += timedelta(minutes=1)
    assert played.replicas() == scene.replicas()
    (record,) = played.memory.load("demo").scale_requests.values()
    assert record.done
    assert told <= 3, "the news, its end, and that nothing is to be written any more"
    assert wrong(played, 0) == []


@pytest.mark.parametrize("prepared", GROWING, indirect=True)
def test_in_dry_run_what_was_begun_is_not_told_at_every_look(prepared: tuple[Scene, int]) -> None:
    scene, _ = prepared
    played = scene.again()
    played.troubled(Life(at=min(patches_of(scene)), how=How.AFTER))
    remembered = played.memory.load("demo")
    register_again(played.memory, remembered.record.model_copy(update={"dry_run": True}))
    told = [len(played.run().decisions) for _ in range(5)]
    assert told[2:] == [0, 0, 0]  # the first run opens the pool to the autoscaler, the second one plans


@pytest.mark.parametrize("prepared", GROWING[1:], indirect=True)  # Gardener's Worker would not let the others take it
def test_a_zone_that_is_fenced_between_the_steps_leaves_its_share_to_the_others(prepared: tuple[Scene, int]) -> None:
    scene, nodes = prepared
    played = scene.again()
    played.troubled(Life(at=min(patches_of(scene)), how=How.AFTER))
    grown = next(zone for zone in (DEAD, BUSY, IDLE) if played.replicas()[zone] > scene.replicas()[zone])
    fenced = next(zone for zone in (DEAD, BUSY, IDLE) if zone != grown)
    until = played.clock.now() + timedelta(hours=1)
    impaired = ZoneRecord(words={"operator": ZoneStatement(until=until, said_at=played.clock.now())})
    played.memory.save_zone("demo", "-", fenced, impaired, None)
    played.settle()
    assert sum(played.replicas().values()) == played.requested + nodes
    assert played.replicas()[fenced] == scene.replicas()[fenced]
