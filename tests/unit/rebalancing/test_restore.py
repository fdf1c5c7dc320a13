"""A restore leaves the objects as they were before Evenkeel, in all forms of owners of the bounds."""

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from evenkeel.application.rebalancing.ports import Clusters
from evenkeel.domain.model.groups import Bounds, NodeGroup, PoolId
from evenkeel.domain.model.moves import Move
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import PoolRule
from evenkeel.domain.model.states import ClusterState, PoolState
from evenkeel.domain.model.values import Fault
from evenkeel.domain.plan import plan as plan_of
from evenkeel.texts.english import sentences
from sandbox.kube.controllers.node_pools import NODE_POOLS
from sandbox.kube.schema import Object
from tests.builders import MINUTE, NOW, group, in_backoff, numbers, pool_plan
from tests.crashing import (
    BUSY,
    DEAD,
    IDLE,
    OWNERS,
    PAUSED,
    POOL,
    How,
    Life,
    Scene,
    WirelessClusters,
    harmed_at,
    steps_of,
)
from tests.fakes import register_again
from tests.stack import Stack

ID = PoolId("cluster-api", "default", "", "workers")


@pytest.fixture(params=OWNERS)
def owner(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def picture(scene: Scene) -> dict[str, Object]:
    """Return all objects that Evenkeel may write, without the server's counters and the controllers' status."""
    items = [
        *scene.objects.list(scene.scalables),
        *scene.objects.list("machineautoscalers.autoscaling.openshift.io"),
        *(scene.objects.list("clusters.cluster.x-k8s.io") if scene.flavour == "cluster-api" else ()),
        *scene.objects.list(NODE_POOLS),
    ]
    pictures = {}
    for item in items:
        metadata = {
            key: value
            for key, value in item["metadata"].items()
            if key not in ("resourceVersion", "managedFields", "generation")
        }
        if scene.cluster_class and item["kind"] == "MachineDeployment":
            metadata.pop("annotations", None)  # copies that the topology controller makes
        pictures[f"{item['kind']}/{item['metadata']['name']}"] = {"metadata": metadata, "spec": item["spec"]}
    return pictures


@cache
def lived_in(owner: str, bounds: bool) -> tuple[Scene, dict[str, Object]]:
    """Return a scene before its incident, to be played again, and its objects from before Evenkeel's first write."""
    before: dict[str, Object] = {}

    def arrives(scene: Scene) -> None:
        if not bounds:
            for item in scene.objects.list(scene.scalables):
                # The operator that removes a MachineAutoscaler removes its bounds and its name from the MachineSet.
                theirs = ("node-group-m", "openshift.io/machineautoscaler")
                gone = {key: None for key in item["metadata"]["annotations"] if any(part in key for part in theirs)}
                patch = {"metadata": {"annotations": gone}}
                scene.objects.patch(scene.scalables, scene.namespace, item["metadata"]["name"], patch, manager="test")
            for item in scene.objects.list("machineautoscalers.autoscaling.openshift.io"):
                scene.objects.delete(
                    "machineautoscalers.autoscaling.openshift.io", scene.namespace, item["metadata"]["name"]
                )
            scene.controllers.step(scene.clock.at)  # their operator removes its finalizer
        else:
            for zone in (DEAD, BUSY, IDLE):
                scene.set_bounds(zone, 0, 9)  # other bounds than Evenkeel's
            scene.troubled(Life(at=0))  # the owners' controllers pass them on
        before.update(picture(scene))

    return Scene(owner, arrived=arrives, incident=False), before


class Stay:
    """A scene before its incident, with the objects from before Evenkeel's first write."""

    def __init__(self, owner: str, *, bounds: bool = True) -> None:
        made, before = lived_in(owner, bounds)
        self.scene, self.before = made.again(), copy.deepcopy(before)

    def ask(self, action: str, **event: Any) -> dict[str, Any]:
        clusters: Clusters = WirelessClusters(self.scene.api, Life(), self.scene.clock)
        return Stack(store=self.scene.memory, clusters=clusters, clock=self.scene.clock).ask(action, **event)

    @property
    def record(self) -> Any:
        return self.scene.memory.load("demo").record

    @property
    def control(self) -> Any:
        return self.scene.memory.load("demo").control

    def not_restored_after_harm(self, paused: Callable[[Any], object]) -> list[str]:
        """Return the steps of the next run at which a crash leaves objects unrestored, also after three more runs."""
        wrong = []
        for how in (How.AFTER, How.LOST):  # a death before a step is one after the previous step
            for at, step in harmed_at(steps_of(self.scene), how):
                played = self.scene.again()
                played.troubled(Life(at=at, how=how))
                for _ in range(3):
                    played.troubled(Life())
                if picture(played) != self.before or not paused(played.memory.load("demo").control):
                    wrong.append(f"{step}: {how}")
        return wrong

    def forget_adopted(self) -> None:
        stored = self.scene.memory.load("demo")
        for pool, state in stored.state.pools.items():
            self.scene.memory.save_pool("demo", pool, PoolState(digest=state.digest), stored.versions)

    def leave(self) -> None:
        assert self.ask("restore")["ok"]
        self.scene.settle()


@pytest.fixture
def stay(owner: str) -> Stay:
    return Stay(owner)


class TestTopologySwitchedOff:
    @pytest.fixture
    def owner(self) -> str:
        return "cluster-class"

    def off(self, stay: Stay) -> None:
        register_again(stay.scene.memory, stay.record.model_copy(update={"write_topology": None}))

    def test_it_is_as_before_and_not_written_again(self, stay: Stay) -> None:
        assert picture(stay.scene) != stay.before, "Evenkeel has written"
        self.off(stay)
        stay.scene.settle()
        assert picture(stay.scene) == stay.before
        assert stay.scene.run().written == 0
        assert not stay.control.paused

    def test_a_restore_continues_after_a_crash_at_any_step(self, stay: Stay) -> None:
        self.off(stay)
        assert stay.not_restored_after_harm(lambda control: not control.paused) == []


class TestCluster:
    @pytest.mark.parametrize("dry_run", [False, True])
    def test_bounds_and_annotations_are_as_before_and_the_cluster_is_paused(self, stay: Stay, dry_run: bool) -> None:
        assert picture(stay.scene) != stay.before, "Evenkeel has written"
        if dry_run:
            register_again(stay.scene.memory, stay.record.model_copy(update={"dry_run": True}))
        stay.leave()
        assert picture(stay.scene) == stay.before
        assert (stay.control.paused, stay.control.restoring) == (True, False)
        assert stay.scene.run().message == "demo: paused, not checked"
        stay.ask("restore")
        assert stay.scene.run().written == 0
        assert picture(stay.scene) == stay.before
        assert stay.control.paused

    @pytest.mark.parametrize("owner", ["gardener", "cluster-api", "openshift"])
    def test_groups_without_bounds_have_none_again(self, owner: str) -> None:
        stay = Stay(owner, bounds=False)
        assert picture(stay.scene) != stay.before
        stay.leave()
        assert picture(stay.scene) == stay.before

    def test_annotations_of_the_user_stay(self, stay: Stay) -> None:
        patch = {"metadata": {"annotations": {"evenkeel.dev/weight": "2", "example.com/note": "ours"}}}
        stay.scene.change(IDLE, patch)
        stay.leave()
        annotations = stay.scene.item(IDLE)["metadata"]["annotations"]
        assert annotations["evenkeel.dev/weight"] == "2"
        assert annotations["example.com/note"] == "ours"
        assert not {"evenkeel.dev/decision", "evenkeel.dev/adopted-bounds"} & set(stay.scene.annotations(IDLE))

    def test_a_frozen_group_is_restored_once_it_is_not_frozen(self, stay: Stay) -> None:
        stay.scene.patch(stay.scene.pausable(IDLE), PAUSED[stay.scene.kind])
        stay.leave()
        assert stay.control.restoring
        assert not stay.control.paused
        thaw = {
            "gardener": {"spec": {"paused": None}},
            "cluster-api": {"metadata": {"annotations": {"cluster.x-k8s.io/paused": None}}},
            "openshift": {"spec": {"authoritativeAPI": None}},
            "hypershift": {"spec": {"pausedUntil": None}},
        }
        stay.scene.patch(stay.scene.pausable(IDLE), thaw[stay.scene.kind])
        stay.scene.controllers.reconcile_owners(stay.scene.clock.at)
        stay.scene.settle()
        assert stay.control.paused
        now, before = picture(stay.scene), stay.before
        for pictured in (now, before):
            for item in pictured.values():
                for empty in ("paused", "authoritativeAPI"):
                    item["spec"].pop(empty, None)
        assert now == before

    def test_a_restore_continues_after_a_crash_at_any_step(self, stay: Stay) -> None:
        assert stay.ask("restore")["ok"]
        assert stay.not_restored_after_harm(lambda control: control.paused) == []

    def test_a_resumed_cluster_adopts_its_current_bounds(self, stay: Stay) -> None:
        stay.leave()
        stay.scene.set_bounds(IDLE, 1, 7)
        stay.scene.troubled(Life())
        before = picture(stay.scene)
        stay.ask("resume", restored=True)
        stay.scene.settle()
        assert picture(stay.scene) != before
        stay.leave()
        assert picture(stay.scene) == before

    def test_a_group_that_left_its_pool_is_restored_too(self) -> None:
        stay = Stay("cluster-api")
        stay.scene.change(IDLE, {"metadata": {"labels": {"evenkeel.dev/pool": None}}})
        stay.leave()
        now = picture(stay.scene)
        for name, pictured in now.items():
            assert pictured["spec"] == stay.before[name]["spec"]
            assert pictured["metadata"].get("annotations") == stay.before[name]["metadata"].get("annotations")
        assert stay.control.paused


class TestOnePool:
    def test_it_is_as_before_and_paused_until_it_is_resumed(self, stay: Stay) -> None:
        assert picture(stay.scene) != stay.before, "Evenkeel has written"
        for _ in range(2):
            assert stay.ask("restore", pool=POOL)["ok"]
            stay.scene.settle()
            assert picture(stay.scene) == stay.before
            assert (stay.control.paused, stay.control.restoring_pools) == (False, ())
            assert stay.control.paused_pools == {POOL: None}
        stay.ask("resume", pool=POOL, restored=True)
        stay.scene.settle()
        assert picture(stay.scene) != stay.before

    @pytest.mark.parametrize("owner", ["gardener", "cluster-class"])  # one object, and two; the order is the cluster's
    def test_a_restore_continues_after_a_crash_at_any_step(self, stay: Stay) -> None:
        stay.ask("restore", pool=POOL)
        assert stay.not_restored_after_harm(lambda control: control.paused_pools) == []


class TestEditedAdoptedBounds:
    @pytest.mark.parametrize("annotation", ["0,1", "a few"])
    def test_the_state_overrides_the_annotation(self, stay: Stay, annotation: str) -> None:
        stay.scene.annotate(IDLE, {"evenkeel.dev/adopted-bounds": annotation})
        stay.leave()
        assert picture(stay.scene) == stay.before

    def test_without_the_state_the_annotation_counts(self, stay: Stay) -> None:
        stay.forget_adopted()
        stay.leave()
        assert picture(stay.scene) == stay.before

    def test_an_unreadable_annotation_without_state_is_reported(self) -> None:
        stay = Stay("cluster-api")
        stay.forget_adopted()
        stay.scene.annotate(IDLE, {"evenkeel.dev/adopted-bounds": "a few"})
        stay.leave()
        assert stay.control.restoring
        plan = stay.scene.run().plan
        assert plan is not None
        groups = [planned for pool in plan.pools for planned in pool.groups if planned.group.identity.zone == IDLE]
        assert [sentences(planned.reasons) for planned in groups] == [
            ["not restored: annotation evenkeel.dev/adopted-bounds is unreadable; correct it"]
        ]


class TestPlans:
    def test_the_old_max_is_raised_to_the_requested_nodes(self) -> None:
        found = group("a", 6, bounds=(0, 6), adopted=Bounds(1, 4), has_adopted=True)
        (planned,) = _restored([found]).groups
        assert planned.bounds == Bounds(1, 6)
        assert planned.requested == 6

    def test_replicas_stay_in_a_failing_zone(self) -> None:
        found = group("a", 5, running=2, bounds=(0, 5), adopted=Bounds(0, 9), has_adopted=True)
        (planned,) = _restored([found], fenced=True).groups
        assert planned.requested == 5
        assert planned.journal_delta == 0

    def test_an_interrupted_move_is_completed_first(self) -> None:
        give = group("a", 2, bounds=(0, 2), move="m", adopted=Bounds(0, 4), has_adopted=True)
        take = group("b", 2, bounds=(0, 4), adopted=Bounds(0, 4), has_adopted=True)
        move = Move(id="m", steps={str(give.key): -3, str(take.key): 3})
        first = _restored([give, take], move=move)
        assert sum(planned.requested for planned in first.groups) == 7
        assert not any(planned.leaves for planned in first.groups)
        then = _restored([give, take])
        assert all(planned.leaves for planned in then.groups)

    def test_replicas_without_room_do_not_delay_a_restore(self) -> None:
        give = group("a", 2, bounds=(0, 2), move="m", zone_max=2, adopted=Bounds(0, 4), has_adopted=True)
        move = Move(id="m", steps={str(give.key): -3})
        found = _restored([give], move=move)
        assert all(planned.leaves for planned in found.groups)
        assert found.replicas.unplaced == 3

    def test_a_group_without_our_marks_is_not_written(self) -> None:
        (planned,) = _restored([group("a", 2, bounds=(0, 4))]).groups
        assert not planned.changes

    def test_only_pools_that_stay_have_state_and_a_next_check(self) -> None:
        goes, stays = group("a", 3, running=1), group("a", 3, running=1, pool="other")
        observation = Observation(groups=(goes, stays))
        state = ClusterState(zones={"a": NOW + MINUTE})
        policy = replace(numbers(), pools=tuple(PoolRule(name=name, min=0, max=9) for name in ("workers", "other")))
        both = plan_of(observation, state, policy, NOW)
        one = plan_of(observation, state, replace(policy, restoring_pools=("workers",)), NOW)
        none = plan_of(observation, state, replace(policy, restoring=True), NOW)
        assert (set(both.states), set(one.states), set(none.states)) == ({goes.key, stays.key}, {stays.key}, set())
        assert both.check_at is not None
        assert one.check_at == both.check_at
        assert none.check_at is None

    def test_a_group_with_an_unreadable_dry_run_is_not_written_once_it_has_left_its_pool(self) -> None:
        fault = Fault(object="a", field="evenkeel.dev/dry-run", value="'ture'", problem="write true or false")
        ours = {"bounds": (0, 4), "adopted": Bounds(0, 9), "has_adopted": True}
        loose = group("a", 2, pool=None, faults=(fault,), **ours)
        (pool,) = plan_of(Observation(groups=(loose,)), ClusterState(), numbers(0, 9), NOW).pools
        assert pool.mode.dry_run is True
        stays = group("b", 2, **ours)
        state = ClusterState(pools={ID: PoolState(adopted={str(loose.key): Bounds(0, 9)})})
        (pool,) = plan_of(Observation(groups=(loose, stays)), state, numbers(0, 9), NOW).pools
        assert [planned.group.key for planned in pool.groups] == [stays.key], "its former pool is live"
        restoring = replace(numbers(0, 9), restoring=True)
        (pool,) = plan_of(Observation(groups=(loose, stays)), state, restoring, NOW).pools
        assert all(planned.leaves for planned in pool.groups), "a restore writes even in dry run"
        assert len(pool.groups) == 2

    def test_a_moves_debt_is_kept_when_groups_left_the_pool(self) -> None:
        loose = group("a", 2, bounds=(0, 4), pool=None, adopted=Bounds(0, 9), has_adopted=True)
        adopted: dict[str, Bounds | None] = {str(loose.key): Bounds(0, 9)}
        state = ClusterState(pools={ID: PoolState(adopted=adopted, move=Move(id="m", unplaced=3))})
        (pool,) = plan_of(Observation(groups=(loose,)), state, numbers(0, 9), NOW).pools
        assert (pool.id, pool.replicas.unplaced, pool.groups[0].leaves) == (ID, 3, True)


def _restored(groups: list[NodeGroup], *, move: Move | None = None, fenced: bool = False) -> PoolPlan:
    """Return the restore's plan for the only pool, with a stored ``move``; fenced: every group is in backoff."""
    policy = numbers(0, 12)
    stored = {pool_plan(groups, policy).id: PoolState(move=move)}
    state = ClusterState(pools=stored, groups={one.key: in_backoff() for one in groups} if fenced else {})
    (pool,) = plan_of(Observation(groups=tuple(groups)), state, replace(policy, restoring=True), NOW).pools
    return pool
