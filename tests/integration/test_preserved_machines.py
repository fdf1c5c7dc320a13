"""Machines that Gardener preserves, in a zone that dies: whoever releases there takes no node in their place.

Real use case, real adapter, machine-controller-manager's own order of deletion (tests/crashing.py); and a worker that
dies at every step of it.
"""

from datetime import timedelta

import pytest

from evenkeel.state_records import ScaleRequestRecord
from sandbox.kube.controllers.gardener import PRESERVE
from tests.crashing import DEAD, How, Scene, dying_at_every_step

PRESERVED = 2
STUCK = 3


def preserve(scene: Scene, number: int) -> set[str]:
    """So many machines of the dead zone that are no nodes are preserved from now on."""
    has_node = scene.controllers.has_node
    stuck = sorted(
        name for name, item in scene.machines().items() if name.startswith(scene.name_of(DEAD)) and not has_node(item)
    )
    for name in stuck[:number]:
        note = {"metadata": {"annotations": {PRESERVE: "now"}}}
        scene.objects.patch(scene.machine_resource, scene.namespace, name, note, manager="kubectl")
    scene.controllers.step(scene.clock.at)
    assert scene.item(DEAD)["spec"]["replicas"] == 2 + STUCK
    return set(stuck[:number])


@pytest.fixture(scope="module", params=["release", "move"])
def scene(request: pytest.FixtureRequest) -> Scene:
    """Two nodes run in the dead zone, one machine is stuck there, and two are preserved."""
    autoscaler = "none" if request.param == "move" else "cluster-autoscaler"
    made = Scene("gardener", on_failure=request.param, autoscaler=autoscaler, stuck=STUCK)
    preserve(made, PRESERVED)
    if request.param == "release":
        made.requested -= STUCK - PRESERVED
    return made


def test_what_is_stuck_leaves_and_what_is_preserved_holds_its_replica(scene: Scene) -> None:
    played = scene.again()
    kept = {name for name, item in played.machines().items() if "preserveExpiryTime" in item["status"]["currentStatus"]}
    played.settle()
    assert played.replicas()[DEAD] == 2 + PRESERVED
    assert kept <= played.machines().keys()
    assert played.wrong(played.requested) == []


@pytest.mark.parametrize("how", [How.BEFORE, How.AFTER, How.LOST])
def test_wherever_a_worker_dies_no_node_goes_in_their_place(scene: Scene, how: How) -> None:
    assert dying_at_every_step(scene, [how], lambda played: played.wrong(played.requested)) == {}


def test_one_that_gets_its_vm_after_all_becomes_a_node_and_the_zone_is_well_again(scene: Scene) -> None:
    played = scene.again()
    played.settle()
    played.cloud.restore_zone(DEAD)
    for _ in range(10):
        played._pass(timedelta(minutes=2))
        played.run()
    has_node = played.controllers.has_node
    assert all(has_node(item) for item in played.machines().values())
    assert sum(played.replicas().values()) == len(played._nodes())
    states = played.memory.load("demo").state.groups
    assert not any(state.is_failing for state in states.values())


def test_nodes_are_given_back_and_none_goes_for_a_preserved_machine(scene: Scene) -> None:
    played = scene.again()
    played.settle()
    group = played.name_of(DEAD)
    nodes = played._nodes()
    record = ScaleRequestRecord(id="r", nodes=-1, group=group, only=(group,), at=played.clock.at)
    played.memory.save_scale_request("demo", record, None)
    played.settle()
    assert played.replicas()[DEAD] == 1 + PRESERVED
    assert len(nodes - played._nodes()) == 1
    preserved = [item for item in played.machines().values() if "preserveExpiryTime" in item["status"]["currentStatus"]]
    assert len(preserved) == PRESERVED
