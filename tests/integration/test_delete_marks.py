"""Which machines go: those that we marked, chosen as the docs say, and no mark stays behind on one that is to live.

Real use case, real adapter, simulated API whose controllers delete in each flavour's own order (tests/crashing.py).
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.states import GroupState
from evenkeel.state_records import ScaleRequestRecord
from tests.crashing import BUSY, DEAD, OWNERS, How, Life, Scene


def marked(scene: Scene) -> set[str]:
    key, value = scene.machine_api.machines.mark
    return {
        name for name, item in scene.machines().items() if (item["metadata"].get("annotations") or {}).get(key) == value
    }


def of_zone(scene: Scene, zone: str) -> set[str]:
    return {name for name in scene.machines() if name.startswith(scene.name_of(zone))}


@pytest.fixture(scope="module", params=OWNERS)
def failing(request: pytest.FixtureRequest) -> Scene:
    """Two replicas of a zone are stuck, and are about to be released."""
    return Scene(request.param, on_failure="release")


@pytest.fixture(scope="module", params=OWNERS)
def quiet(request: pytest.FixtureRequest) -> Scene:
    """All zones are well."""
    return Scene(request.param, incident=False)


def test_released_machines_go_and_no_mark_stays(failing: Scene) -> None:
    scene = failing.again()
    scene.settle()
    assert scene.replicas()[DEAD] == 2
    assert marked(scene) == set()
    assert not any(state.marked for state in scene.memory.load("demo").state.groups.values())


@pytest.mark.parametrize("how", [How.BEFORE, How.AFTER])
def test_a_worker_that_dies_after_marking_leaves_no_mark_on_a_machine_that_lives(failing: Scene, how: How) -> None:
    undisturbed = Life()
    failing.again().run(undisturbed)
    marks = [at for at, step in enumerate(undisturbed.steps) if step.startswith("PATCH") and "/machines/" in step]
    assert len(marks) == 2
    for at in marks:
        scene = failing.again()
        # The zone comes back while the worker marks: its machines become nodes, and nobody releases them any more.
        scene.troubled(Life(at=at, how=how, happenings={(at, "before"): lambda: scene.cloud.restore_zone(DEAD)}))  # noqa: B023 (in this round)
        assert len(marked(scene)) == marks.index(at) + (how is How.AFTER)
        for _ in range(12):
            scene._pass(timedelta(minutes=1))
        scene.settle()
        assert marked(scene) == set()
        assert scene.replicas()[DEAD] == 4
        assert not any(state.marked for state in scene.memory.load("demo").state.groups.values())


def test_a_mark_that_a_dead_worker_left_on_a_node_is_off_before_others_go(quiet: Scene) -> None:
    scene = quiet.again()
    scene.scale(BUSY, 4)
    scene._pass(timedelta(minutes=3))
    scene.settle()
    key, value = scene.machine_api.machines.mark
    oldest = min(of_zone(scene, BUSY), key=lambda name: (scene.machines()[name]["metadata"]["creationTimestamp"], name))
    annotations = {"metadata": {"annotations": {key: value}}}
    scene.objects.patch(scene.machine_resource, scene.namespace, oldest, annotations, manager="test")
    group = scene.name_of(BUSY)
    remembered = scene.memory.load("demo")
    id = GroupKey(scene.flavour, scene.namespace, group)
    state = replace(remembered.state.groups.get(id, GroupState()), marked=(oldest,))
    scene.memory.save_group("demo", id, state, remembered.versions)
    record = ScaleRequestRecord(id="r", nodes=-1, group=group, only=(group,), at=scene.clock.now())
    scene.memory.save_scale_request("demo", record, None)
    scene.settle()
    assert len(of_zone(scene, BUSY)) == 3
    assert oldest in of_zone(scene, BUSY)
    assert marked(scene) == set()


def test_of_nodes_that_are_given_back_the_sick_go_first_and_then_the_newest(quiet: Scene) -> None:
    scene = quiet.again()
    scene.scale(BUSY, 4)
    scene._pass(timedelta(minutes=3))
    scene.settle()
    created = {name: scene.machines()[name]["metadata"]["creationTimestamp"] for name in of_zone(scene, BUSY)}
    assert len(created) == 4
    by_age = sorted(created, key=lambda name: (created[name], name))
    sick = _make_sick(scene, by_age[0])
    group = scene.name_of(BUSY)
    record = ScaleRequestRecord(id="r", nodes=-2, group=group, only=(group,), at=scene.clock.now())
    scene.memory.save_scale_request("demo", record, None)
    scene.settle()
    # An OpenShift Machine does not say how its node is.
    assert set(created) - of_zone(scene, BUSY) == ({by_age[3], by_age[0]} if sick else {by_age[3], by_age[2]})
    assert marked(scene) == set()


def _make_sick(scene: Scene, name: str) -> bool:
    """The node is not ready any more, as the flavour says it. False: the flavour does not say it."""
    status: dict[str, dict[str, Any]] = {
        "gardener": {"currentStatus": {"phase": "Unknown"}},
        "cluster-api": {
            "conditions": [
                {**condition, "status": "False"} if condition["type"] == "NodeHealthy" else condition
                for condition in scene.machines()[name]["status"].get("conditions", [])
            ]
        },
    }
    if scene.flavour in status:
        patch = {"status": status[scene.flavour]}
        resource = scene.machine_resource
        scene.objects.patch(resource, scene.namespace, name, patch, subresource="status", manager="test")
    return scene.flavour in status
