"""A worker may die anywhere: the next run ends where an undisturbed one would have ended.

Real use case, real adapter, simulated API (tests/crashing.py). The invariants are checked after every single write:
bounds that Cluster Autoscaler can live with; and at the end: the sum of requested, the running nodes, the frozen group
byte for byte, and no move left open.
"""

import json
import random

import pytest

from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from tests.crashing import (
    BUSY,
    DEAD,
    OWNERS,
    How,
    Life,
    Scene,
    dying_again,
    dying_at_every_step,
    patches_of,
    random_crash,
    steps_of,
)

CASES = [pytest.param((owner, "move", "none"), id=f"{owner}-move") for owner in OWNERS] + [
    pytest.param((owner, "release", "cluster-autoscaler"), id=f"{owner}-release") for owner in OWNERS
]
BESIDE_AN_AUTOSCALER = [
    pytest.param((owner, how, "cluster-autoscaler"), id=f"{owner}-{how}")
    for how in ("move", "release")
    for owner in OWNERS
]


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest) -> tuple[Scene, int]:
    """A scene to be played again and again, and the sum of requested that it must end with."""
    owner, on_failure, autoscaler = request.param
    made = Scene(owner, on_failure=on_failure, autoscaler=autoscaler)
    return made, made.requested if on_failure == "move" else made.requested - made.stuck


@pytest.mark.parametrize("scene", CASES, indirect=True)
class TestOneCrash:
    def test_undisturbed_the_stuck_replicas_are_gone_from_the_dead_zone_in_one_run(
        self, scene: tuple[Scene, int]
    ) -> None:
        played, expected = scene[0].again(), scene[1]
        outcome = played.run()
        assert outcome.written
        assert played.replicas()[DEAD] == 2
        played.settle()
        assert played.wrong(expected) == []

    @pytest.mark.parametrize("how", [How.AFTER, How.LOST])
    def test_whatever_step_it_happens_at_nothing_is_lost_and_nothing_doubled(
        self, scene: tuple[Scene, int], how: How
    ) -> None:
        # To die after a step is to die before the next; before the first, nothing has happened.
        prepared, expected = scene
        assert len(patches_of(prepared)) >= 3
        assert dying_at_every_step(prepared, [how], lambda played: played.wrong(expected)) == {}


@pytest.mark.parametrize("scene", CASES[: len(OWNERS)], indirect=True)
class TestTwoCrashes:
    def test_dying_at_every_step_of_the_run_that_mends_does_no_harm_either(self, scene: tuple[Scene, int]) -> None:
        prepared, expected = scene
        # The worst place: what is given up has been written, what is taken on has not.
        assert dying_again(prepared, max(patches_of(prepared)), lambda played: played.wrong(expected)) == {}


@pytest.mark.parametrize("scene", BESIDE_AN_AUTOSCALER, indirect=True)
class TestClusterAutoscalerSlipsIn:
    def test_what_it_orders_in_a_healthy_zone_meanwhile_is_added_and_nothing_else(
        self, scene: tuple[Scene, int]
    ) -> None:
        assert self.slipped(scene, BUSY, added=1) == {}

    def test_what_it_orders_in_the_dead_zone_meanwhile_goes_the_way_of_the_other_stuck_replicas(
        self, scene: tuple[Scene, int]
    ) -> None:
        released = scene[1] < scene[0].requested
        assert self.slipped(scene, DEAD, added=0 if released else 1) == {}

    def slipped(self, scene: tuple[Scene, int], zone: str, added: int) -> dict[str, list[str]]:
        """What went wrong, by the step before which Cluster Autoscaler ordered one machine more."""
        prepared, expected = scene
        wrong = {}
        for at, step in enumerate(steps_of(prepared)):
            played = prepared.again()
            played.troubled(Life(at=at, how=How.SLIP, slip=lambda: played.slip(zone)))  # noqa: B023 (called in this round)
            played.settle()
            found = played.wrong(expected + added * played.scaled)
            if prepared.hypershift and step.startswith("PATCH") and "/nodepools/" in step:
                # Between the last sight of replicas and its patch: the operator cuts the order, and nothing else.
                found = found and played.wrong(expected)
            if found:
                wrong[f"{at} {step}"] = found
        return wrong

    def test_a_run_that_dies_after_it_was_slipped_past_still_adds_up(self, scene: tuple[Scene, int]) -> None:
        prepared, expected = scene
        wrong = {}
        for slip in patches_of(prepared):
            for death in (slip + 1, slip + 2):
                played = prepared.again()
                played.troubled(Life(at=death, how=How.AFTER, happenings={(slip, "before"): lambda: played.slip(BUSY)}))  # noqa: B023
                played.settle()
                if found := played.wrong(expected + played.scaled):
                    wrong[f"slipped in at {slip}, dead at {death}"] = found
        assert wrong == {}


@pytest.mark.parametrize("scene", CASES, indirect=True)
def test_over_the_wire_an_answer_that_the_server_never_sent_changes_nothing(scene: tuple[Scene, int]) -> None:
    prepared, expected = scene
    wrong = {}
    for step in dict.fromkeys(step for step in steps_of(prepared) if step.startswith("PATCH")):
        played = prepared.again()
        with played.api as api:
            api.faults.add(method="PATCH", path_contains=step.removeprefix("PATCH "), stage="after")
            secret = json.dumps(api.kubeconfig("evenkeel"))
            clusters = RecordedClusters(
                session=lambda: None,
                secret=lambda name, fresh: secret,  # noqa: B023 (called in this round)
                clock=played.clock,
                allow_loopback=True,
            )
            played.run(clusters=clusters)
        assert 0 in [request.status for request in api.requests.matching(method="PATCH")]
        played.troubled(Life())
        played.settle()
        if found := played.wrong(expected):
            wrong[step] = found
    assert wrong == {}


@pytest.mark.parametrize("scene", CASES + BESIDE_AN_AUTOSCALER[: len(OWNERS)], indirect=True)
def test_over_several_random_crashes_no_replica_is_lost_or_doubled(scene: tuple[Scene, int]) -> None:
    prepared, expected = scene
    wrong = {}
    for seed in range(6):
        played = prepared.again()
        added, story = random_crash(played, random.Random(seed))
        if found := played.wrong(expected + added):
            wrong[f"seed {seed}: {story}"] = found
    assert wrong == {}
