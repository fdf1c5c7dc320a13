"""A worker may die at any step of a run: no replica is lost or doubled, and no bad state is published."""

import json
import random
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.state_records import ZoneRecord, ZoneStatement
from sandbox.kube.api import Faults
from tests.crashing import (
    BUSY,
    DEAD,
    IDLE,
    OWNERS,
    SCENES,
    CheckedLife,
    ConvergingScene,
    How,
    Life,
    RequestScene,
    Scene,
    dying_again,
    dying_at_every_step,
    patches_of,
    random_crashes,
    steps_of,
)
from tests.fakes import register_again


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest) -> Scene:
    """Return a scene of the table, which is played many times."""
    name, owner = request.param
    return SCENES[name](owner)


# Replicas are on the group, on the group with bounds on its owner, or on the owner.
WRITTEN_DIFFERENTLY = ("gardener", "cluster-class", "hypershift")


def on(*names: str, owners: tuple[str, ...] = OWNERS) -> pytest.MarkDecorator:
    params = [pytest.param((name, owner), id=f"{name}-{owner}") for name in names for owner in owners]
    return pytest.mark.parametrize("scene", params, indirect=True)


@on(*SCENES)
def test_an_undisturbed_run_ends_well(scene: Scene) -> None:
    played = scene.again()
    assert played.run(CheckedLife(played)).written or isinstance(scene, ConvergingScene)
    played.settle()
    assert played.problems() == []


@on(*(name for name in SCENES if name != "move-beside-ca"))
@pytest.mark.parametrize("how", [How.AFTER, How.LOST])
def test_a_death_or_a_lost_answer_at_any_step_does_no_harm(scene: Scene, how: How) -> None:
    # A death after a step is one before the next; before the first step, nothing has happened.
    assert len(steps_of(scene)) > 5
    assert dying_at_every_step(scene, [how]) == {}


@on("move", "growth", "give-back", "named-machine", "unneeded", owners=WRITTEN_DIFFERENTLY)
def test_a_second_death_at_any_step_of_the_next_run_does_no_harm(scene: Scene) -> None:
    # The worst point: the lower replicas have been written, the higher ones have not.
    assert dying_again(scene, max(patches_of(scene))) == {}


@on("move", "release", "move-beside-ca")
def test_random_crashes_lose_and_double_no_replica(scene: Scene) -> None:
    wrong = {}
    for seed in range(6):
        played, chance = scene.again(), random.Random(seed)
        added, story = random_crashes(played, chance, chance.randint(1, 3), list(How))
        if problems := played.wrong(played.expected + added):
            wrong[f"seed {seed}: {story}"] = problems
    assert wrong == {}


@on("converge-order")
def test_random_crashes_leave_a_level_pool(scene: ConvergingScene) -> None:
    wrong = {}
    for seed in range(6):
        played, chance = scene.again(), random.Random(seed)
        _, story = random_crashes(played, chance, chance.randint(2, 5), [How.BEFORE, How.AFTER, How.LOST])
        played.settle(20)
        if problems := played.problems():
            wrong[f"seed {seed}: {story}"] = problems
    assert wrong == {}


class TestStuckReplicas:
    """The replicas that a failing zone does not deliver are moved or released."""

    @on("move", "release")
    def test_they_leave_the_failing_zone_in_one_run(self, scene: Scene) -> None:
        played = scene.again()
        played.run()
        assert played.replicas()[DEAD] == 2
        assert len(patches_of(scene)) >= 3

    @on("move-beside-ca", "release", owners=WRITTEN_DIFFERENTLY)
    @pytest.mark.parametrize("zone", [BUSY, DEAD])
    def test_an_order_of_cluster_autoscaler_meanwhile_is_added_and_nothing_else(self, scene: Scene, zone: str) -> None:
        """In the failing zone, its order is released or moved with the others."""
        added = 0 if zone == DEAD and scene.expected < scene.requested else 1
        wrong = {}
        for at, step in enumerate(steps_of(scene)):
            played = scene.again()
            played.troubled(Life(at=at, how=How.SLIP, slip=lambda: played.slip(zone)))  # noqa: B023 (in this round)
            played.settle()
            problems = played.wrong(scene.expected + added * played.scaled)
            if scene.hypershift and step.startswith("PATCH") and "/nodepools/" in step:
                # Between the last read of replicas and its patch: the operator cuts the order, and nothing else.
                problems = problems and played.wrong(scene.expected)
            if problems:
                wrong[f"{at} {step}"] = problems
        assert wrong == {}

    @on("move-beside-ca", "release")
    def test_a_run_that_dies_after_such_an_order_still_adds_up(self, scene: Scene) -> None:
        wrong = {}
        for order in patches_of(scene):
            for death in (order + 1, order + 2):
                played = scene.again()
                happenings = {(order, "before"): lambda: played.slip(BUSY)}  # noqa: B023 (in this round)
                played.troubled(Life(at=death, how=How.AFTER, happenings=happenings))
                played.settle()
                problems = played.wrong(scene.expected + played.scaled)
                if scene.hypershift and "/nodepools/" in steps_of(scene)[order]:  # as in the test above
                    problems = problems and played.wrong(scene.expected)
                if problems:
                    wrong[f"ordered at {order}, dead at {death}"] = problems
        assert wrong == {}

    @on("move", "release")
    def test_over_the_connection_an_answer_that_was_never_sent_changes_nothing(self, scene: Scene) -> None:
        wrong = {}
        for step in dict.fromkeys(step for step in steps_of(scene) if step.startswith("PATCH")):
            played = scene.again()
            with played.api as api:
                api.faults.add(method="PATCH", path_contains=step.removeprefix("PATCH "), stage="after")
                secret = json.dumps(api.kubeconfig("evenkeel"))
                clusters = RecordedClusters(
                    session=None,
                    secret=lambda name, fresh: secret,  # noqa: B023 (in this round)
                    clock=played.clock,
                    allow_loopback=True,
                )
                played.run(clusters=clusters)
            assert 0 in [request.status for request in api.requests.matching(method="PATCH")]
            played.troubled(Life())
            played.settle()
            if problems := played.problems():
                wrong[step] = problems
        assert wrong == {}


def dead_after_the_first_patch(scene: Scene) -> Any:
    played = scene.again()
    played.troubled(Life(at=min(patches_of(scene)), how=How.AFTER))
    return played


class TestRequestedNodes:
    """Nodes are added or removed on request, once and completely."""

    @on("growth", "give-back")
    def test_it_is_done_in_one_run_with_an_answer(self, scene: RequestScene) -> None:
        played = scene.again()
        played.run()
        assert sum(played.replicas().values()) == played.requested + played.asked
        assert played.request.done
        assert f"{abs(played.asked)} nodes in pool" in played.request.result

    @pytest.mark.parametrize("owner", OWNERS)
    def test_after_a_crash_the_answer_speaks_of_the_whole_request(self, owner: str) -> None:
        scene = RequestScene(owner, 100)
        undisturbed, played = scene.again(), dead_after_the_first_patch(scene)
        undisturbed.run()
        played.settle()
        assert played.request.result == undisturbed.request.result
        placed = sum(played.replicas().values()) - played.requested
        assert played.request.result.startswith(f"{placed} nodes in pool")
        assert played.request.result.endswith(f", {100 - placed} more could not be placed")

    @on("growth")
    def test_one_that_the_api_refuses_ends_after_its_hour(self, scene: RequestScene) -> None:
        played = scene.again()
        played.api.faults = Faults()
        scalables = f"/{scene.scalables.partition('.')[0]}/"
        played.api.faults.add(method="PATCH", path_contains=scalables, status=422, message="no", times=10_000)
        decisions = 0
        for _ in range(70):
            decisions += len(played.run().decisions)
            played.clock.at += timedelta(minutes=1)
        assert played.replicas() == scene.replicas()
        assert played.request.done
        assert decisions <= 3, "the change, its end, and that nothing is to be written any more"
        assert played.wrong(played.requested) == []

    @on("growth")
    def test_in_dry_run_one_that_was_begun_is_not_repeated_in_every_decision(self, scene: RequestScene) -> None:
        played = dead_after_the_first_patch(scene)
        register_again(played.memory, played.memory.load("demo").record.model_copy(update={"dry_run": True}))
        decisions = [len(played.run().decisions) for _ in range(5)]
        assert decisions[2:] == [0, 0, 0]  # the first run opens the pool to the autoscaler, the second one plans

    @on("growth", owners=OWNERS[1:])  # Gardener's Worker would not let the other zones grow
    def test_a_zone_that_is_fenced_between_the_steps_leaves_its_share_to_the_others(self, scene: RequestScene) -> None:
        played = dead_after_the_first_patch(scene)
        grown = next(zone for zone in (DEAD, BUSY, IDLE) if played.replicas()[zone] > scene.replicas()[zone])
        fenced = next(zone for zone in (DEAD, BUSY, IDLE) if zone != grown)
        until = played.clock.now() + timedelta(hours=1)
        impaired = ZoneRecord(statements={"operator": ZoneStatement(until=until, stated_at=played.clock.now())})
        played.memory.save_zone("demo", "-", fenced, impaired, None)
        played.settle()
        assert sum(played.replicas().values()) == played.requested + played.asked
        assert played.replicas()[fenced] == scene.replicas()[fenced]


@on("converge-order")
def test_a_step_of_convergence_orders_one_node_and_deletes_one(scene: ConvergingScene) -> None:
    played = scene.again()
    played.run()
    assert sum(played.replicas().values()) == scene.requested + 1
    assert played.step is not None
    played.settle()
    assert sorted(played.replicas()[zone] for zone in (DEAD, BUSY, IDLE)) == [2, 3, 3]
