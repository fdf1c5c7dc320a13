"""A worker may die anywhere while it takes a named machine away: that machine goes, once, and no other.

Real use case, real adapter, simulated API and its controllers (tests/crashing.py), every step of the run. Who names the
machine is a table that names it for as long as it is there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from evenkeel.application.ports import StoredCluster
from evenkeel.domain.model.groups import MachineRef
from evenkeel.domain.model.moves import UNNEEDED_NODES, ScaleRequest
from sandbox.kube.schema import Object
from tests.crashing import BUSY, OWNERS, How, Life, Scene, dying_again, dying_at_every_step, patches_of
from tests.fakes import InMemoryStore


class Naming(InMemoryStore):
    """A table that names one machine to the plan while it is there and not deleted yet."""

    scene: Removing

    def load(self, cluster: str, *, consistent: bool = True) -> StoredCluster:
        remembered = super().load(cluster, consistent=consistent)
        machine = self.scene.machines().get(self.scene.named)
        if machine is None or self.scene.needed or "deletionTimestamp" in machine["metadata"]:
            return remembered
        key = f"{self.scene.flavour}/{self.scene.namespace}/{self.scene.name_of(BUSY)}"
        ref = MachineRef(self.scene.named, self.scene.uid)
        request = ScaleRequest(
            id=UNNEEDED_NODES, nodes=-1, at=self.scene.clock.now(), pool="workers", machines={key: (ref,)}
        )
        return replace(remembered, state=replace(remembered.state, scale_requests=(request,)))


class Removing(Scene):
    """A quiet scene whose busy zone has three machines, of which the oldest is named."""

    named = uid = ""
    needed = True

    def __init__(self, owner: str, **fields: Any) -> None:
        super().__init__(owner, incident=False, **fields)
        self.scale(BUSY, 3)
        self.settle()
        mine = [item for name, item in self.machines().items() if name.startswith(self.name_of(BUSY))]
        oldest = min(mine, key=lambda item: (item["metadata"]["creationTimestamp"], item["metadata"]["name"]))
        self.named, self.uid = oldest["metadata"]["name"], oldest["metadata"]["uid"]
        self.before = set(self.machines())
        self.nodes = self._nodes()
        self.requested = sum(self.replicas().values())
        table = Naming.__new__(Naming)
        table.__dict__.update(self.memory.__dict__)
        self.memory = table
        self.needed = False
        table.scene = self

    def again(self) -> Removing:
        played = super().again()
        cast("Naming", played.memory).scene = played
        return played

    def settle(self) -> None:
        """Runs until nothing is written, and what was done is forgotten: a run closes a journal, or unmarks, alone."""
        for _ in range(2):
            self.troubled(Life())
        super().settle()

    def wrong_after(self, gone: int = 1) -> list[str]:
        """Everything that is not as it must be; ``gone`` machines went, the named one first."""
        lost = self.nodes - self._nodes()
        self.nodes -= lost
        found = self.wrong(self.requested - gone)
        went = self.before - set(self.machines())
        if went != ({self.named} if gone else set()) or len(lost) != gone:
            found.append(f"gone are {sorted(went)} with {len(lost)} nodes, and {self.named} was named")
        if marks := self.marks():
            found.append(f"marks are left on {marks}")
        if any(state.marked for state in self.memory.load("demo").state.groups.values()):
            found.append("a mark is still remembered")
        return found

    def marks(self) -> list[str]:
        key = self.machine_api.machines.mark[0]
        return [name for name, item in self.machines().items() if key in (item["metadata"].get("annotations") or {})]


@pytest.fixture(scope="module", params=OWNERS)
def scene(request: pytest.FixtureRequest) -> Removing:
    return Removing(request.param)


def test_undisturbed_exactly_the_named_machine_goes(scene: Removing) -> None:
    played = scene.again()
    assert played.run().written
    played.settle()
    assert played.wrong_after() == []


@pytest.mark.parametrize("how", [How.AFTER, How.LOST])
def test_whatever_step_the_worker_dies_at_exactly_the_named_machine_goes(scene: Removing, how: How) -> None:
    assert len(patches_of(scene)) >= 2
    assert dying_at_every_step(scene, [how], lambda played: cast("Removing", played).wrong_after()) == {}


def test_dying_in_the_run_that_goes_on_does_no_harm_either(scene: Removing) -> None:
    first = max(patches_of(scene))
    assert dying_again(scene, first, lambda played: cast("Removing", played).wrong_after()) == {}


def test_before_its_controller_has_come_to_it_no_second_machine_is_taken(scene: Removing) -> None:
    played = scene.again()
    for _ in range(4):
        played.run()
    played.settle()
    assert played.wrong_after() == []


def test_a_machine_that_is_needed_again_before_replicas_fall_stays_without_a_mark(scene: Removing) -> None:
    (mark,) = [at for at in patches_of(scene) if "/machines/" in _step(scene, at)]
    played = scene.again()
    played.troubled(Life(at=mark, how=How.AFTER))
    assert played.marks() == [played.named]
    played.needed = True
    played.settle()
    assert played.wrong_after(gone=0) == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_replicas_that_others_raise_meanwhile_lose_no_node(scene: Removing, when: str) -> None:
    """Before our patch it is a conflict, and judged anew; after it and before the controller comes, nobody goes."""
    played = scene.again()
    last = max(at for at in patches_of(scene) if "/machines/" in _step(scene, at))
    most = int(played.bounds(BUSY)[1])
    if when == "before":

        def raised() -> None:
            played.scale(BUSY, played.replicas()[BUSY] + 1)
            played.needed = True

        played.run(Life(happenings={(last, "after"): raised}))
        expected = 1
    else:
        played.run()
        played.needed = True
        played.scale(BUSY, min(most, played.replicas()[BUSY] + 1))
        expected = 0
    for _ in range(3):
        played.troubled(Life())
    played.settle()
    assert played.nodes <= played._nodes()
    assert played.marks() == []
    assert sum(played.replicas().values()) == played.requested + expected


def test_a_machine_of_another_uid_or_with_anothers_mark_is_left_alone(scene: Removing) -> None:
    played = scene.again()
    played.uid = "another"
    for _ in range(3):
        played.troubled(Life())
    assert played.wrong_after(gone=0) == []
    played = scene.again()
    other = next(
        name for name in sorted(played.before) if name.startswith(played.name_of(BUSY)) and name != played.named
    )
    key = played.machine_api.machines.mark[0]
    value = "1" if played.flavour == "gardener" else "cluster-autoscaler"
    body: Object = {"metadata": {"annotations": {key: value}}}
    played.objects.patch(played.machine_resource, played.namespace, other, body, manager="cluster-autoscaler")
    for _ in range(3):
        played.troubled(Life())
    assert played.nodes == played._nodes()
    assert played.marks() == [other]


def _step(scene: Removing, at: int) -> str:
    life = Life()
    scene.again().run(life)
    return life.steps[at]
