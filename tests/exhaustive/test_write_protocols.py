"""No story of a run's calls breaks a promise: each event happens at every call, and at every pair of calls."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from evenkeel.adapters.auto_scaling.write import GroupWriter
from evenkeel.application.rebalancing import run, write
from evenkeel.domain.model.moves import Move
from evenkeel.domain.rebalancing.writes import Stage
from tests.exhaustive.auto_scaling_writes import AutoScalingWrites
from tests.exhaustive.explore import explore, replay
from tests.exhaustive.kubernetes_writes import KubernetesWrites
from tests.exhaustive.worker import PROMISES

GUARANTEES = Path(__file__).parents[2] / "docs" / "guarantees.md"
WORLDS: dict[str, Callable[[], Any]] = {
    "kubernetes": partial(KubernetesWrites, "cluster-api"),
    "auto-scaling": partial(AutoScalingWrites, "move"),
    "by-name": partial(AutoScalingWrites, "give back"),
}
#: the number of stories with so many events; fewer would mean a model with fewer events
RUNS = {"kubernetes": (90, 1500), "auto-scaling": (100, 1500), "by-name": (60, 900)}


def test_the_models_check_promises_of_the_guarantees() -> None:
    text = GUARANTEES.read_text(encoding="utf-8")
    assert [promise for promise in PROMISES if promise not in text] == []


@pytest.mark.parametrize("world", WORLDS)
def test_one_event_at_any_call_breaks_no_promise(world: str) -> None:
    found = explore(WORLDS[world](), events=1)
    assert found.counterexample == ()
    assert found.runs > RUNS[world][0]


@pytest.mark.parametrize("world", WORLDS)
def test_two_events_at_any_calls_break_no_promise(world: str) -> None:
    found = explore(WORLDS[world](), events=2)
    assert found.counterexample == ()
    assert found.runs > RUNS[world][1]


# Faults, which the model finds


def no_journal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run, "opened", lambda pool, _id: pool.next_state)


def no_stages(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(write, "stage_of", lambda _plan: Stage.REMOVE)
    patch.setattr(write, "in_safe_order", lambda changes: [*changes][::-1])


def no_lease_check(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(run.Run, "_is_late", lambda _run: False)


def forgotten_replicas(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Move, "still_unplaced", lambda _move, _groups: 0)


def no_resume_after_an_error(patch: pytest.MonkeyPatch) -> None:
    whole = GroupWriter._resume

    def resume(writer: GroupWriter, name: str, sent: Any) -> Any:
        return whole(writer, name, sent) if sent.numbers else writer.api.group(name)

    patch.setattr(GroupWriter, "_resume", resume)


def no_withdrawal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(GroupWriter, "_withdraw", lambda *_: None)


FAULTS = {
    "kubernetes": (no_journal, no_stages, no_lease_check, forgotten_replicas),
    "auto-scaling": (no_journal, no_resume_after_an_error, no_withdrawal),
}


@pytest.mark.parametrize(("world", "fault"), [(world, fault) for world, faults in FAULTS.items() for fault in faults])
def test_a_fault_is_found_and_its_story_replays(
    world: str, fault: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    found = explore(WORLDS[world](), events=1)
    assert found.counterexample
    assert replay(WORLDS[world](), found.story).problems == [*found.counterexample[len(found.story) :]]
