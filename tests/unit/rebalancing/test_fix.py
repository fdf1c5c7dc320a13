"""A PoolMaximum that an operator has confirmed to raise is written once, whenever the worker dies."""

import json
from typing import Any

import pytest

from sandbox.kube.schema import Object
from tests.crashing import BUSY, DEAD, FROZEN, IDLE, OWNERS, How, Life, Scene, WirelessClusters, dying_at_every_step
from tests.stack import Stack

POOL_MAX, POOL_MIN = "evenkeel.dev/pool-max", "evenkeel.dev/pool-min"


class Small:
    """A scene whose PoolMaximum, 3, is below its 4 zones, and an operator who has requested to fix it."""

    def __init__(self, owner: str) -> None:
        self.scene = Scene(owner, incident=False, arrived=self._shrink)
        self.answer = self.ask(self.scene, "validate", apply=True)

    def _shrink(self, scene: Scene) -> None:
        for zone in (DEAD, BUSY, IDLE, FROZEN):
            gone = {POOL_MAX: None, POOL_MIN: None} if zone != IDLE else {POOL_MAX: "3", POOL_MIN: "0"}
            scene.change(zone, {"metadata": {"annotations": gone}})
            for scaler in scene.objects.list("machineautoscalers.autoscaling.openshift.io"):
                assert POOL_MAX not in (scaler["metadata"].get("annotations") or {})

    @staticmethod
    def ask(scene: Scene, action: str, **event: Any) -> dict[str, Any]:
        clusters = WirelessClusters(scene.api, Life(), scene.clock)
        return Stack(store=scene.memory, clusters=clusters, clock=scene.clock).ask(action, **event)


@pytest.fixture(params=OWNERS)
def small(request: pytest.FixtureRequest) -> Small:
    return Small(str(request.param))


def pool_max(item: Object) -> str | None:
    return (item["metadata"].get("annotations") or {}).get(POOL_MAX)


def wrong(small: Small, scene: Scene) -> list[str]:
    found = scene.wrong(small.scene.requested)
    if pool_max(scene.item(IDLE)) != "4":
        found.append(f"PoolMaximum is {pool_max(scene.item(IDLE))}")
    found += [f"{zone} has one too" for zone in (DEAD, BUSY, FROZEN) if pool_max(scene.item(zone)) is not None]
    if scene.memory.load("demo").control.fixes:
        found.append("the value is still there")
    return found


def test_it_is_written_to_its_own_object_alone(small: Small) -> None:
    assert small.answer["diff"][2:] == [f'-{POOL_MAX}: "3"', f'+{POOL_MAX}: "4"']
    assert pool_max(small.scene.item(IDLE)) == "3"
    small.scene.settle()
    assert wrong(small, small.scene) == []
    assert Small.ask(small.scene, "validate")["pools"] == []


def test_it_is_written_once_wherever_the_worker_dies(small: Small) -> None:
    hows = (How.AFTER, How.LOST)  # a death before a step is one after the previous step
    assert dying_at_every_step(small.scene, hows, lambda played: wrong(small, played)) == {}


def test_a_concurrent_edit_is_not_overwritten(small: Small) -> None:
    small.scene.change(IDLE, {"metadata": {"annotations": {POOL_MAX: "9"}}})
    small.scene.settle()
    assert pool_max(small.scene.item(IDLE)) == "9"
    reported = json.dumps([d["fixed"] for d in small.scene.memory.decisions("demo", 9) if "fixed" in d])
    assert "it has changed since, to 9" in reported
