"""An API server answers one list with 200 and no usable items: the final state is as with complete lists."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any

import pytest

from evenkeel.domain.model.groups import GroupKey
from evenkeel.record import ControlRecord, FixEntry
from evenkeel.state_records import ScaleRequestRecord
from tests.crashing import OWNERS, POOL, Life, Scene

_RUNS = 5


@dataclass
class ListsLife(Life):
    """A life in which one answer to a LIST request is replaced."""

    empty: int | None = None  # the number of that list, from 0
    items: Any = None  # the answer's items instead of its objects
    lists: int = 0

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        answer = super().step(name, call, lost)
        if not name.startswith("GET") or not isinstance(answer.body, bytes) or b'"items"' not in answer.body:
            return answer
        self.lists += 1
        if self.lists - 1 != self.empty:
            return answer
        body = json.loads(answer.body)
        return replace(answer, body=json.dumps({**body, "items": self.items}).encode())


def control(scene: Scene, **fields: Any) -> None:
    stored = scene.memory.load("demo")
    said = ControlRecord.model_validate({**stored.control.model_dump(), **fields})
    scene.memory.save_record(stored.record, said, stored.versions)


def ask(scene: Scene, nodes: int, id: str = "asked") -> None:
    request = ScaleRequestRecord(id=id, pool=POOL, nodes=nodes, at=scene.clock.now())
    scene.memory.save_scale_request("demo", request, None)


def agree(scene: Scene) -> None:
    stored = scene.memory.load("demo")
    (pool,) = stored.state.pools
    group = next(iter(sorted(stored.state.pools[pool].adopted)))
    fix = FixEntry(pool=str(pool), group=str(GroupKey.read(group)), before=16, after=20)
    control(scene, fixes=[fix.model_dump()])


@cache
def prepared(owner: str) -> Scene:
    """Return a scene with bounds and replicas written by Evenkeel."""
    scene = Scene(owner, incident=False)
    ask(scene, 2, id="first")
    for _ in range(3):
        scene.run()
        scene._pass(timedelta(seconds=75))
    return scene


def asked_for(owner: str, flow: str) -> Scene:
    scene = prepared(owner).again()
    FLOWS[flow](scene)
    return scene


#: an operator's request, and the record's fields that it needs
FLOWS: dict[str, Callable[[Scene], None]] = {
    "restore": lambda scene: control(scene, restoring=True),
    "restore of a pool": lambda scene: control(scene, restoring_pools=[POOL]),
    "nodes": lambda scene: ask(scene, 2),
    "nodes back": lambda scene: ask(scene, -2),
    "fix": agree,
}


def end_of(scene: Scene) -> dict[str, Any]:
    """Return the contents of the cluster and the table."""
    stored = scene.memory.load("demo")
    said = stored.control
    return {
        "sizes": scene.sizes(),
        "ours": {
            zone: sorted(key for key in scene.annotations(zone) if key.startswith("evenkeel.dev/"))
            for zone in scene.zones
        },
        "maxima": [scene.annotations(zone).get("evenkeel.dev/pool-max") for zone in scene.zones],
        "answers": {id: (record.done, record.result) for id, record in stored.scale_requests.items()},
        "control": (said.restoring, said.restored, said.paused, said.restored_pools, said.fixes),
        "open": [str(id) for id, state in stored.state.pools.items() if state.move is not None],
    }


def play(scene: Scene, run: int = 0, empty: int | None = None, items: Any = None) -> tuple[dict[str, Any], int]:
    """Return the final state, and the number of lists that this run has requested."""
    played, lists = scene.again(), 0
    for number in range(_RUNS):
        life = ListsLife(empty=empty if number == run else None, items=items)
        played.run(life)
        lists = life.lists if number == run else lists
        played._pass(timedelta(seconds=75))
    return end_of(played), lists


def differences(scene: Scene, items: Any) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield run, number and effect of each list of the first two runs whose loss changes the final state."""
    expected, _ = play(scene)
    for run in (0, 1):
        _, lists = play(scene, run)
        for empty in range(lists):
            found, _ = play(scene, run, empty, items)
            if found != expected:
                yield (
                    run,
                    empty,
                    {name: (expected[name], found[name]) for name in found if found[name] != expected[name]},
                )


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("owner", OWNERS)
def test_one_empty_list_ends_nothing(owner: str, flow: str) -> None:
    assert list(differences(asked_for(owner, flow), [])) == []


@pytest.mark.parametrize("flow", FLOWS)
def test_one_list_of_null_ends_nothing(flow: str) -> None:
    assert list(differences(asked_for("cluster-api", flow), None)) == []


@pytest.mark.parametrize("owner", OWNERS)
def test_one_empty_list_ends_no_move(owner: str) -> None:
    scene = Scene(owner, on_failure="move", autoscaler="none")
    assert list(differences(scene, [])) == []
