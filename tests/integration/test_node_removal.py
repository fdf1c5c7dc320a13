"""Removals: exactly the marked machines are removed, never a preserved one, and no mark stays on a remaining one."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.incidents import IncidentKind
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.state_records import ScaleRequestRecord
from sandbox.kube.controllers.gardener import PRESERVE
from tests.crashing import (
    BUSY,
    DEAD,
    IDLE,
    OWNERS,
    SMALL,
    How,
    Life,
    RemovalScene,
    Scene,
    UnneededScene,
    dying_at_every_step,
    patches_of,
    unneeded,
)

PRESERVED = 2
STUCK = 3


def per_owner(make: Callable[[str], Any]) -> Any:
    return pytest.fixture(scope="module", params=OWNERS)(lambda request: make(request.param))


failing = per_owner(lambda owner: Scene(owner, on_failure="release"))  # two replicas are about to be released
quiet = per_owner(lambda owner: Scene(owner, incident=False))
removal = per_owner(RemovalScene)
emptied = per_owner(unneeded)


@dataclass
class ShortListsLife(Life):
    """A life in which the lists of machines leave some out."""

    keep: Callable[[Any], Any] = list

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        answer = super().step(name, call, lost)
        is_list = name.startswith("GET") and "/machines" in name and isinstance(answer.body, bytes)
        if not is_list or b'"items"' not in answer.body:
            return answer
        body = json.loads(answer.body)
        return replace(answer, body=json.dumps({**body, "items": self.keep(body["items"])}).encode())


@dataclass
class RefusedMarksLife(Life):
    """A life in which the API server refuses the first patches of machines."""

    left: list[int] = field(default_factory=list)  # how many; lives can share it

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        if name.startswith("PATCH") and "/machines/" in name and self.left[0] > 0:
            self.left[0] -= 1
            body = {"kind": "Status", "status": "Failure", "code": 422, "reason": "Invalid", "message": "a webhook"}
            return super().step(
                name, lambda: SimpleNamespace(status=422, headers={}, body=json.dumps(body).encode()), lost
            )
        return super().step(name, call, lost)


def annotate(scene: Scene, machine: str, key: str, value: str) -> None:
    body = {"metadata": {"annotations": {key: value}}}
    scene.objects.patch(scene.machine_resource, scene.namespace, machine, body, manager="cluster-autoscaler")


def any_stored_mark(scene: Scene) -> bool:
    return any(state.marked for state in scene.memory.load("demo").state.groups.values())


def restore_zone(scene: Scene, zone: str, nodes: int) -> None:
    group = scene.name_of(zone)
    record = ScaleRequestRecord(id="r", nodes=-nodes, group=group, only=(group,), at=scene.clock.now())
    scene.memory.save_scale_request("demo", record, None)
    scene.settle()


class TestMarks:
    @pytest.mark.parametrize("how", [How.BEFORE, How.AFTER])
    def test_a_death_after_marking_leaves_no_mark_on_a_machine_that_lives(self, failing: Scene, how: How) -> None:
        marks = patches_of(failing, "/machines/")
        assert len(marks) == 2
        for at in marks:
            scene = failing.again()
            # The zone delivers again while the worker marks: its machines become nodes, and are not released any more.
            scene.troubled(Life(at=at, how=how, happenings={(at, "before"): lambda: scene.cloud.restore_zone(DEAD)}))  # noqa: B023 (in this round)
            assert len(scene.marks()) == marks.index(at) + (how is How.AFTER)
            for _ in range(12):
                scene._pass(timedelta(minutes=1))
            scene.settle()
            assert scene.marks() == []
            assert scene.replicas()[DEAD] == 4
            assert not any_stored_mark(scene)

    def test_released_machines_go_and_no_mark_stays(self, failing: Scene) -> None:
        scene = failing.again()
        scene.settle()
        assert scene.replicas()[DEAD] == 2
        assert scene.marks() == []
        assert not any_stored_mark(scene)

    @staticmethod
    def with_a_left_mark(quiet: Scene) -> tuple[Scene, str]:
        """Return a zone of four nodes, and its oldest machine, which a worker marked before it died."""
        scene = quiet.again()
        scene.grow(BUSY, 4)
        scene.settle()
        oldest = scene.oldest(BUSY)[0]
        annotate(scene, oldest, *scene.machine_api.machines.mark)
        id = GroupKey(scene.flavour, scene.namespace, scene.name_of(BUSY))
        stored = scene.memory.load("demo")
        state = replace(stored.state.groups.get(id, GroupState()), marked=(oldest,))
        scene.memory.save_group("demo", id, state, stored.versions)
        return scene, oldest

    def test_a_mark_that_a_dead_worker_left_on_a_node_is_off_before_others_go(self, quiet: Scene) -> None:
        scene, oldest = self.with_a_left_mark(quiet)
        restore_zone(scene, BUSY, 1)
        assert len(scene.oldest(BUSY)) == 3
        assert oldest in scene.oldest(BUSY)
        assert scene.marks() == []

    @pytest.mark.parametrize("keep", [lambda items: [], lambda items: items[::2], lambda items: items[1::2]])
    def test_an_incomplete_list_of_machines_forgets_no_mark(self, quiet: Scene, keep: Callable[[Any], Any]) -> None:
        scene, _ = self.with_a_left_mark(quiet)
        scene.run(ShortListsLife(keep=keep))
        assert scene.marks() == [] or any_stored_mark(scene)
        scene._pass(timedelta(seconds=75))
        scene.settle()
        assert scene.marks() == []
        assert not any_stored_mark(scene)

    @pytest.mark.parametrize("refused", [1, 2, 3])
    def test_each_refused_mark_delays_a_release_by_one_backoff_at_most(self, failing: Scene, refused: int) -> None:
        scene, waited = failing.again(), timedelta(0)
        left = [refused]
        while scene.replicas()[DEAD] > 2 and waited < timedelta(hours=1):
            scene.run(RefusedMarksLife(left=left))
            scene._pass(timedelta(minutes=1))
            waited += timedelta(minutes=1)
        assert left == [0]
        assert waited <= refused * BackoffPolicy().initial + timedelta(minutes=2)

    def test_of_nodes_that_are_given_back_the_sick_go_first_and_then_the_newest(self, quiet: Scene) -> None:
        scene = quiet.again()
        scene.grow(BUSY, 4)
        scene.settle()
        by_age = scene.oldest(BUSY)
        assert len(by_age) == 4
        sick = _make_sick(scene, by_age[0])
        restore_zone(scene, BUSY, 2)
        # An OpenShift Machine does not report its node's health.
        assert set(by_age) - set(scene.oldest(BUSY)) == {by_age[3], by_age[0] if sick else by_age[2]}
        assert scene.marks() == []


def _make_sick(scene: Scene, name: str) -> bool:
    """Make the node not ready as the flavour reports it. Return False if the flavour does not."""
    conditions = [
        {**condition, "status": "False"} if condition["type"] == "NodeHealthy" else condition
        for condition in scene.machines()[name]["status"].get("conditions", [])
    ]
    status: dict[str, dict[str, Any]] = {
        "gardener": {"currentStatus": {"phase": "Unknown"}},
        "cluster-api": {"conditions": conditions},
    }
    if scene.flavour in status:
        patch = {"status": status[scene.flavour]}
        resource = scene.machine_resource
        scene.objects.patch(resource, scene.namespace, name, patch, subresource="status", manager="test")
    return scene.flavour in status


class TestNamedMachine:
    def test_before_its_controller_has_come_to_it_no_second_machine_is_taken(self, removal: RemovalScene) -> None:
        played = removal.again()
        for _ in range(4):
            played.run()
        played.settle()
        assert played.problems() == []

    def test_one_that_is_needed_again_before_replicas_fall_stays_without_a_mark(self, removal: RemovalScene) -> None:
        (mark,) = patches_of(removal, "/machines/")
        played = removal.again()
        played.troubled(Life(at=mark, how=How.AFTER))
        assert played.marks() == [played.named]
        played.needed = True
        played.settle()
        assert played.problems(gone=0) == []

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_replicas_that_others_raise_meanwhile_lose_no_node(self, removal: RemovalScene, when: str) -> None:
        """Before Evenkeel's patch it is a conflict, and planned again. Right after it, no node is removed."""
        played = removal.again()
        most = int(played.bounds(BUSY)[1])

        def raised() -> None:
            played.scale(BUSY, min(most, played.replicas()[BUSY] + 1))
            played.needed = True

        if when == "before":
            played.run(Life(happenings={(max(patches_of(removal, "/machines/")), "after"): raised}))
        else:
            played.run()
            raised()
        for _ in range(3):
            played.troubled(Life())
        played.settle()
        assert played.nodes <= played._nodes()
        assert played.marks() == []
        assert sum(played.replicas().values()) == played.requested + (1 if when == "before" else 0)

    def test_one_of_another_uid_or_with_anothers_mark_is_left_alone(self, removal: RemovalScene) -> None:
        renamed, marked = removal.again(), removal.again()
        renamed.uid = "another"
        other = next(name for name in marked.oldest(BUSY) if name != marked.named)
        value = "1" if marked.flavour == "gardener" else "cluster-autoscaler"
        annotate(marked, other, marked.machine_api.machines.mark[0], value)
        for _ in range(3):
            renamed.troubled(Life())
            marked.troubled(Life())
        assert renamed.problems(gone=0) == []
        assert marked.nodes == marked._nodes()
        assert marked.marks() == [other]


class TestUnneededNodes:
    def test_pods_that_come_before_replicas_fall_keep_their_node_unmarked(self, emptied: UnneededScene) -> None:
        scene = emptied.again()
        scene.troubled(Life(at=patches_of(emptied, "/machines/")[0], how=How.AFTER))
        assert len(scene.marks()) == 1
        scene.fill()
        scene.settle()
        assert scene.gone(0) == []

    @pytest.fixture
    def draining(self) -> UnneededScene:
        """Return two zones' nodes with a small pod each for long enough, and room for both on a third."""
        scene = UnneededScene("cluster-api")
        scene.run_workloads()
        scene.empty(BUSY, 1, left=SMALL)
        scene.empty(IDLE, 1, left=SMALL)
        return scene.ripen()

    def test_nodes_with_pods_go_one_by_one_and_their_pods_are_evicted(self, draining: UnneededScene) -> None:
        draining.run()
        assert sum(draining.replicas().values()) == draining.requested - 1
        assert len(draining.nodes - draining._nodes()) <= 1
        draining.settle()
        assert draining.faults == []
        assert sum(draining.replicas().values()) == draining.requested - 2
        assert not [pod for pod in draining.objects.list("pods") if pod["metadata"]["name"].startswith("small")]

    def test_a_drain_that_a_budget_holds_is_one_incident_and_no_second_begins(self, draining: UnneededScene) -> None:
        draining.run()
        budgets = "poddisruptionbudgets.policy"
        spec = {"minAvailable": 100, "selector": {"matchLabels": {"app": "web"}}}
        draining.objects.create(budgets, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
        for _ in range(20):
            draining._pass(timedelta(minutes=1))
            draining.run()
        (incident,) = draining.memory.load("demo").cluster_health.incidents
        assert incident.kind is IncidentKind.DRAIN_HANGS
        assert incident.message.startswith("ip-")
        assert sum(draining.replicas().values()) == draining.requested - 1
        draining.objects.delete(budgets, "default", "web")
        draining.settle()
        assert draining.memory.load("demo").cluster_health.incidents == ()


class TestPreservedMachines:
    """Machines that Gardener preserves, in a zone that fails: a release there removes no node instead of them."""

    @pytest.fixture(scope="class", params=["release", "move"])
    def scene(self, request: pytest.FixtureRequest) -> Scene:
        """Return a failing zone with two nodes, one stuck machine, and two preserved machines."""
        autoscaler = "none" if request.param == "move" else "cluster-autoscaler"
        made = Scene("gardener", on_failure=request.param, autoscaler=autoscaler, stuck=STUCK)
        stuck = [name for name in made.oldest(DEAD) if not made.controllers.has_node(made.machines()[name])]
        for name in stuck[:PRESERVED]:
            annotate(made, name, PRESERVE, "now")
        made.controllers.step(made.clock.at)
        assert made.item(DEAD)["spec"]["replicas"] == 2 + STUCK
        made.expected = made.requested - (STUCK - PRESERVED if request.param == "release" else 0)
        return made

    @staticmethod
    def preserved(scene: Scene) -> set[str]:
        items = scene.machines().items()
        return {name for name, item in items if "preserveExpiryTime" in item["status"]["currentStatus"]}

    def test_the_stuck_leave_and_the_preserved_hold_their_replicas(self, scene: Scene) -> None:
        played = scene.again()
        kept = self.preserved(played)
        played.settle()
        assert played.replicas()[DEAD] == 2 + PRESERVED
        assert kept <= played.machines().keys()
        assert played.problems() == []

    @pytest.mark.parametrize("how", [How.AFTER, How.LOST])
    def test_a_death_at_any_step_takes_no_node_in_their_place(self, scene: Scene, how: How) -> None:
        assert dying_at_every_step(scene, [how]) == {}

    def test_when_the_zone_delivers_again_they_become_nodes_and_the_zone_is_well(self, scene: Scene) -> None:
        played = scene.again()
        played.settle()
        played.cloud.restore_zone(DEAD)
        for _ in range(10):
            played._pass(timedelta(minutes=2))
            played.run()
        assert all(played.controllers.has_node(item) for item in played.machines().values())
        assert sum(played.replicas().values()) == len(played._nodes())
        assert not any(state.is_failing for state in played.memory.load("demo").state.groups.values())

    def test_nodes_are_given_back_and_none_goes_for_a_preserved_machine(self, scene: Scene) -> None:
        played = scene.again()
        played.settle()
        nodes = played._nodes()
        restore_zone(played, DEAD, 1)
        assert played.replicas()[DEAD] == 1 + PRESERVED
        assert len(nodes - played._nodes()) == 1
        assert len(self.preserved(played)) == PRESERVED
