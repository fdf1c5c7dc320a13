"""The state machine finds what it is there to find: every bug planted here makes a short story of its own end badly."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.client.lists import ReceivedList
from evenkeel.adapters.kubernetes.read import groups as readers
from evenkeel.application.errors import ClusterUnavailableError
from evenkeel.application.ports import Lease
from evenkeel.application.rebalancing import failure, write, zones
from evenkeel.application.rebalancing.rebalance import Rebalance
from evenkeel.application.rebalancing.run import Run
from evenkeel.application.rebalancing.run_state import RunState, RunSummary
from evenkeel.domain.model.moves import Move
from evenkeel.domain.rebalancing import restore
from evenkeel.domain.rebalancing.health import observed as seeing
from evenkeel.domain.rebalancing.health import states
from evenkeel.domain.rebalancing.health.backoff import record_failure, state_at
from evenkeel.domain.rebalancing.writes import Stage
from sandbox.kube.world import ZONES
from tests.integration.chaos_harness import PAUSED
from tests.integration.test_state_machine import EveryoneActs
from tests.parts import replace

A, B, _ = ZONES
ICE = "InsufficientInstanceCapacity"
Plant = Callable[[pytest.MonkeyPatch], None]
Story = list[tuple[Any, ...]]  # rules of the state machine, with their arguments


@dataclass(frozen=True)
class Bug:
    """How it is planted, the story that meets it, and how the broken promise begins."""

    plant: Plant
    story: Story
    broken: str
    second: str = "openshift"


MOVED: Story = [
    ("a_zone_fails_when_more_is_wanted", True, A, 3),
    ("a_launch_fails_and_events_arrive", True, A, ICE, 0, 0),
    ("minutes_pass", 2),
]


def in_place_of(target: Any, name: str, bug: Any) -> Plant:
    return lambda patch: patch.setattr(target, name, bug)


def _late_reports_begin_anew(*arguments: Any, **named: Any) -> Any:
    _state, at, *_, policy = arguments
    return replace(record_failure(*arguments, **named), backoff_until=at + policy.initial)


def _leased_to_everybody(self: Any, *_: object) -> None:
    self.lease = Lease(owner="somebody", fencing_token=0, expires=self.ports.clock.now() + timedelta(minutes=1))


def _what_was_taken_on_is_forgotten(self: Move, groups: Any) -> int:
    given = (min(0, self.steps.get(str(group.key), 0)) for group in groups if group.ours.move == self.id)
    return max(0, self.unplaced - sum(given))


def _unreadable_is_empty(*arguments: Any, **named: Any) -> Any:
    try:
        return _list_all(*arguments, **named)
    except ClusterUnavailableError:
        return ReceivedList("", ())


def _a_repeat_is_no_news(known: Any, word: Any, source: str) -> Any:
    return None if known == word else _newer_statement(known, word, source)


_list_all, _newer_statement, _stage_of = KubernetesApi.list_all, zones._newer_statement, write.stage_of

BUGS = {
    "growing before shrinking": Bug(
        in_place_of(write, "stage_of", lambda plan: Stage(5 - _stage_of(plan))),
        MOVED,
        ".*(requested, PoolMaximum is|maxima went from)",
    ),
    "a late event shortens the backoff": Bug(
        in_place_of(failure, "record_failure", _late_reports_begin_anew),
        [("a_launch_fails_and_events_arrive", True, A, ICE, age, 0) for age in (0, 30)],
        ".*backoff_until went from .* back to",
    ),
    "a frozen group is written": Bug(
        in_place_of(readers._GroupReader, "_frozen", lambda *_: None),
        [
            ("somebody_edits", False, A, (PAUSED, "true")),
            ("somebody_edits", False, A, ("evenkeel.dev/pool-max", "12")),
            ("minutes_pass", 2),
        ],
        "cluster-api: frozen .* was written",
    ),
    "no lease": Bug(in_place_of(Run, "_take_lease", _leased_to_everybody), MOVED, ".*the lease"),
    "no second check": Bug(
        in_place_of(Rebalance, "_request_next_check", lambda *_: None), MOVED, ".*nobody takes a second look"
    ),
    "a move is carried out twice": Bug(
        in_place_of(Move, "still_unplaced", _what_was_taken_on_is_forgotten),
        # Gardener: three delete marks, the zone that gives, the first that takes; then the worker dies.
        [("one_thing_happens_to_a_run", True, A, 3, "killed", -5, "after"), ("minutes_pass", 2)],
        "gardener: .* requested or owed",
        second="gardener",
    ),
    "half a list is used": Bug(
        in_place_of(KubernetesApi, "list_all", _unreadable_is_empty),
        [("a_list_breaks_off_after_its_first_page", True, {"status": 500}, "machine", A)],
        "assert",
    ),
    "dry run writes": Bug(
        in_place_of(RunSummary, "dry_run", property(lambda _: False, lambda *_: None)),
        [("dry_run_is_switched_on_for_a_while", True, 2, A)],
        ".*a patch in dry run",
    ),
    "bounds of another owner are overwritten": Bug(
        in_place_of(seeing, "CONTEST_REVERTS", 1000),
        [("somebody_puts_bounds_back", True, A, (0, 5), 3)],
        "somebody's bounds",
    ),
    "the last statement counts, not the newest": Bug(
        in_place_of(zones, "_newer_statement", lambda _, word, __: word),
        [
            ("arc_says_something_about_a_zone", f"Autoshift {change}", A, age, 0, False)
            for change, age in (("In Progress", 5), ("Completed", 400))
        ],
        ".* spoke of ",
    ),
    "a known statement requests no check": Bug(
        in_place_of(zones, "_newer_statement", _a_repeat_is_no_news),
        [("the_queues_are_away_for_a_minute", True, A, ICE, "Autoshift In Progress")],
        ".*nobody looks, although",
    ),
    "restore finds no bounds": Bug(
        in_place_of(restore, "adopted_bounds", lambda *_: None),
        [*MOVED, ("the_operator_leaves", True, False, True)],
        ".*left with",
    ),
    "an answered request stays open": Bug(
        in_place_of(RunState, "end_scale_request", lambda *_: None),
        [("somebody_asks_for_nodes", True, A, 2, None, False), ("minutes_pass", 2)],
        ".*begun of 2 asked for",
    ),
    "a fenced zone grows": Bug(
        in_place_of(states, "state_at", lambda state, now, _, policy: state_at(state, now, None, policy)),
        [("the_operator_fences_a_zone", True, A, 30), ("minutes_pass", 2)],
        ".* requested; words=",
    ),
}


def play(bug: Bug) -> None:
    machine = EveryoneActs()
    machine.two_clusters(bug.second)
    try:
        for rule, *arguments in bug.story:
            getattr(machine, rule)(*arguments)
        machine.promises_hold()
    finally:
        machine.harness.__exit__(None, None, None)


@pytest.mark.usefixtures("as_deployed")
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_makes_its_story_end_badly_and_no_bug_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    play(bug)
    bug.plant(monkeypatch)
    with pytest.raises(AssertionError, match=bug.broken):
        play(bug)
