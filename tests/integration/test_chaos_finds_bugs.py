"""The state machine finds what it is there to find: every bug planted here makes a short story of its own end badly.

Each story is told twice: to the code as it is, which it must leave unharmed, and to the code with the bug.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from sandbox.kube.world import ZONES
from tests.integration.chaos_harness import PAUSED
from tests.integration.test_state_machine import EveryoneActs

A, B, _ = ZONES
ICE = "InsufficientInstanceCapacity"
Plant = Callable[[pytest.MonkeyPatch], None]
Story = Callable[[EveryoneActs], None]


@dataclass(frozen=True)
class Bug:
    """How it is planted, the story that meets it, and how what is then said begins."""

    plant: Plant
    story: Story
    found: str
    second: str = "openshift"


def in_place_of(target: Any, name: str, bug: Any) -> Plant:
    return lambda patch: patch.setattr(target, name, bug)


def stuck_replicas_are_moved(machine: EveryoneActs) -> None:
    machine.a_zone_fails_when_more_is_wanted(True, A, 3)
    machine.a_launch_fails_and_events_arrive(True, A, ICE, 0, 0)
    machine.minutes_pass(2)


def a_late_event_arrives(machine: EveryoneActs) -> None:
    machine.a_launch_fails_and_events_arrive(True, A, ICE, 0, 0)
    machine.a_launch_fails_and_events_arrive(True, A, ICE, 30, 0)


def a_group_is_frozen(machine: EveryoneActs) -> None:
    machine.somebody_edits(False, A, (PAUSED, "true"))
    machine.somebody_edits(False, A, ("evenkeel.dev/pool-max", "12"))
    machine.minutes_pass(2)


def a_worker_dies_between_giving_and_taking(machine: EveryoneActs) -> None:
    # Gardener: three delete marks, the zone that gives, the first that takes.
    machine.one_thing_happens_to_a_run(True, A, 3, "killed", -5, "after")
    machine.minutes_pass(2)


def a_list_breaks_off(machine: EveryoneActs) -> None:
    machine.a_list_breaks_off_after_its_first_page(True, {"status": 500}, "machine", A)


def dry_run_is_switched_on(machine: EveryoneActs) -> None:
    machine.dry_run_is_switched_on_for_a_while(True, 2, A)


def somebody_insists(machine: EveryoneActs) -> None:
    machine.somebody_puts_bounds_back(True, A, (0, 5), 3)


def an_old_word_arrives_late(machine: EveryoneActs) -> None:
    machine.arc_says_something_about_a_zone("Autoshift In Progress", A, 5, 0, False)
    machine.arc_says_something_about_a_zone("Autoshift Completed", A, 400, 0, False)


def the_queues_go_away(machine: EveryoneActs) -> None:
    machine.the_queues_are_away_for_a_minute(True, A, ICE, "Autoshift In Progress")


def the_operator_leaves(machine: EveryoneActs) -> None:
    stuck_replicas_are_moved(machine)
    machine.the_operator_leaves(True, False, True)


def a_zone_is_fenced(machine: EveryoneActs) -> None:
    machine.the_operator_fences_a_zone(True, A, 30)
    machine.minutes_pass(2)


def nodes_are_asked_for(machine: EveryoneActs) -> None:
    machine.somebody_asks_for_nodes(True, A, 2, None, False)
    machine.minutes_pass(2)


def _late_reports_begin_anew(*arguments: Any, **named: Any) -> Any:
    _state, at, *_, policy = arguments
    return replace(record_failure(*arguments, **named), backoff_until=at + policy.initial)


def _leased_to_everybody(self: Any) -> None:
    self.lease = Lease(owner="somebody", fencing_token=0, expires=self.ports.clock.now() + timedelta(minutes=1))


def _what_was_taken_on_is_forgotten(self: Move, groups: Any) -> int:
    given = (min(0, self.steps.get(str(group.key), 0)) for group in groups if group.move == self.id)
    return max(0, self.unplaced - sum(given))


def _unreadable_is_empty(*arguments: Any, **named: Any) -> Any:
    try:
        return _list_all(*arguments, **named)
    except ClusterUnavailableError:
        return ReceivedList("", ())


def _a_repeat_is_no_news(known: Any, word: Any, source: str) -> Any:
    return None if known == word else _newer_statement(known, word, source)


_list_all, _newer_statement, _grows = KubernetesApi.list_all, zones._newer_statement, write.grows

BUGS = {
    "growing before shrinking": Bug(
        in_place_of(write, "grows", lambda plan: not _grows(plan)),
        stuck_replicas_are_moved,
        ".*(requested, PoolMaximum is|maxima went from)",
    ),
    "a late event shortens the backoff": Bug(
        in_place_of(failure, "record_failure", _late_reports_begin_anew),
        a_late_event_arrives,
        ".*backoff_until went from .* back to",
    ),
    "a frozen group is written": Bug(
        in_place_of(readers._GroupReader, "_frozen", lambda *_: None),
        a_group_is_frozen,
        "cluster-api: frozen .* was written",
    ),
    "no lease": Bug(in_place_of(Run, "_take_lease", _leased_to_everybody), stuck_replicas_are_moved, ".*the lease"),
    "no second look": Bug(
        in_place_of(Rebalance, "_ask_for_next_look", lambda *_: None),
        stuck_replicas_are_moved,
        ".*nobody takes a second look",
    ),
    "a move is carried out twice": Bug(
        in_place_of(Move, "still_unplaced", _what_was_taken_on_is_forgotten),
        a_worker_dies_between_giving_and_taking,
        "gardener: .* requested or owed",
        second="gardener",
    ),
    "half a list is believed": Bug(
        in_place_of(KubernetesApi, "list_all", _unreadable_is_empty), a_list_breaks_off, "assert"
    ),
    "dry run writes": Bug(
        in_place_of(RunSummary, "dry_run", property(lambda _: False, lambda *_: None)),
        dry_run_is_switched_on,
        ".*a patch in dry run",
    ),
    "whoever insists is overwritten": Bug(
        in_place_of(seeing, "CONTEST_REVERTS", 1000), somebody_insists, "somebody's bounds"
    ),
    "the last word counts, not the newest": Bug(
        in_place_of(zones, "_newer_statement", lambda _, word, __: word), an_old_word_arrives_late, ".* spoke of "
    ),
    "a word that is remembered asks for no look": Bug(
        in_place_of(zones, "_newer_statement", _a_repeat_is_no_news), the_queues_go_away, ".*nobody looks, although"
    ),
    "restore finds no bounds": Bug(
        in_place_of(restore, "adopted_bounds", lambda *_: None), the_operator_leaves, ".*left with"
    ),
    "an answered request stays open": Bug(
        in_place_of(RunState, "end_scale_request", lambda *_: None), nodes_are_asked_for, ".*begun of 2 asked for"
    ),
    "a fenced zone grows": Bug(
        in_place_of(states, "state_at", lambda state, now, _, policy: state_at(state, now, None, policy)),
        a_zone_is_fenced,
        ".* requested; words=",
    ),
}


def tell(bug: Bug) -> None:
    machine = EveryoneActs()
    machine.two_clusters(bug.second)
    try:
        bug.story(machine)
        machine.promises_hold()
    finally:
        machine.harness.__exit__(None, None, None)


@pytest.mark.usefixtures("as_deployed")
@pytest.mark.parametrize("name", BUGS)
def test_a_bug_makes_its_story_end_badly_and_no_bug_does_not(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    bug = BUGS[name]
    tell(bug)
    bug.plant(monkeypatch)
    with pytest.raises(AssertionError, match=bug.found):
        tell(bug)
