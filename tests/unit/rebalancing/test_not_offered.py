"""A machine type that a zone does not offer is tried once a day, and at once after a change."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.domain.drill.drill import failing_elsewhere, pools_of
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import GroupTemplate, MachineFailure, NodeGroup, State
from evenkeel.domain.rebalancing.health.not_offered import is_not_offered
from evenkeel.texts.english import sentences
from tests.builders import MINUTE, Played, machines, numbers, requested, zones
from tests.parts import replace
from tests.property.survival.test_counts_properties import arrive, result_of, surviving

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SOLD_OUT = "InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity"
REFUSED = (
    "Your requested instance type (g4dn.xlarge) is not supported in your requested Availability Zone (a). Please retry "
    "your request by not specifying an Availability Zone or choosing b, c."
)


def pool() -> Played:
    played = Played(zones((1, 1, 1), bounds=[(0, 4)] * 3), numbers(0, 12))
    set_type(played, "g4dn")
    return played


def set_type(played: Played, name: str) -> None:
    played.groups = [replace(each, template=GroupTemplate(key=name)) for each in played.groups]


def given_up() -> Played:
    """Return a pool whose zone a was refused a node, which was given up."""
    played = pool()
    refuse(played)
    played.check()
    give_up(played)
    return played


def with_machines(played: Played, zone: str, group: NodeGroup) -> None:
    played.groups = [group if each.identity.zone == zone else each for each in played.groups]


def order(played: Played, zone: str = "a", **fields: Any) -> None:
    """Order one more node in the zone, whose machine has these fields."""
    (group,) = [each for each in played.groups if each.identity.zone == zone]
    ordered = replace(group, requested=group.running + 1)
    (*ran, new) = machines(ordered, MINUTE).machines or ()
    machine = replace(new, created_at=played.now, **fields)
    with_machines(played, zone, replace(ordered, running=group.running + machine.has_node, machines=(*ran, machine)))


def refuse(played: Played, message: str = REFUSED) -> None:
    order(played, failure=MachineFailure(code="Failed", message=message, at=played.now))


def give_up(played: Played, zone: str = "a") -> None:
    (group,) = [each for each in played.groups if each.identity.zone == zone]
    with_machines(played, zone, replace(group, requested=group.running, machines=None))


def state_of(played: Played, seconds: float = 0) -> State:
    return played.check(seconds).groups[0].state


def test_the_zone_is_fenced_for_a_day_and_then_gets_one_machine() -> None:
    played = pool()
    refuse(played)
    (fenced, *_) = played.check().groups
    assert fenced.state is State.FENCED
    (reason,) = [text for text in sentences(fenced.reasons) if text.startswith("fenced until")]
    assert reason.startswith("fenced until 2026-01-16T12:00:00Z: capacity failure no. 1")
    assert "zone a does not offer this machine type, so Evenkeel tries it once a day" in reason
    give_up(played)
    states = [state_of(played, HOUR.total_seconds()) for _ in range(24)]
    assert set(states) == {State.FENCED}, "neither after 5 nor after 30 min, and not forgotten after 3 h"
    assert state_of(played, 60) is State.PROBING
    refuse(played)
    assert state_of(played) is State.FENCED
    give_up(played)
    assert state_of(played, (DAY - MINUTE).total_seconds()) is State.FENCED


def test_another_machine_template_ends_the_fence() -> None:
    played = given_up()
    assert state_of(played, 60) is State.FENCED
    set_type(played, "m5")
    (probing, *_) = played.check(60).groups
    assert probing.state is State.PROBING
    assert any("probing: the machine template has changed since" in text for text in sentences(probing.reasons))
    assert probing.bounds is not None
    assert probing.bounds.max == probing.requested + 1
    played.check(60)
    refuse(played)
    assert state_of(played, 60) is State.FENCED, "the zone lacks the new type, too"
    give_up(played)
    assert state_of(played, 60) is State.FENCED


def test_replicas_that_stay_and_wait_do_not_hide_the_cause() -> None:
    played = pool()
    played.policy = numbers(0, 12, on_failure=OnFailure.HOLD)
    refuse(played)
    played.check()
    for _ in range(20):
        (fenced, *_) = played.check(60).groups
    assert any("zone a does not offer this machine type" in text for text in sentences(fenced.reasons))


def test_an_old_report_of_the_former_type_does_not_fence_the_new_one() -> None:
    played = pool()
    refuse(played)
    played.check()
    set_type(played, "m5")
    assert state_of(played, 60) is State.PROBING
    assert state_of(played, 60) is State.PROBING


def test_a_machine_that_was_ordered_by_hand_and_runs_ends_the_fence() -> None:
    played = given_up()
    played.check(600)
    order(played, has_node=True)
    assert state_of(played, 60) is not State.FENCED


def with_another_type() -> Played:
    """Return a pool whose group was refused, and gets another machine type."""
    played = given_up()
    set_type(played, "m5")
    assert state_of(played, 60) is State.PROBING
    return played


@pytest.mark.parametrize("makes", [with_another_type, given_up], ids=["another type", "the same type"])
def test_a_zone_that_lacks_capacity_for_a_type_offers_it_and_waits_for_minutes(makes: Callable[[], Played]) -> None:
    played = makes()
    played.check(60)
    refuse(played, message=SOLD_OUT)
    assert state_of(played, 60) is State.FENCED
    give_up(played)
    assert state_of(played, 900) is State.PROBING


def test_silence_of_another_type_is_no_refusal_of_the_former_one() -> None:
    played = with_another_type()
    order(played)
    played.check(60)
    (fenced, *_) = played.check(900).groups
    assert fenced.state is State.FENCED
    assert not any("does not offer" in text for text in sentences(fenced.reasons))
    give_up(played)
    assert state_of(played, 1200) is State.PROBING


def test_silence_at_the_daily_try_is_followed_by_another_day() -> None:
    played = given_up()
    assert state_of(played, (DAY + MINUTE).total_seconds()) is State.PROBING
    order(played)
    played.check(60)
    assert state_of(played, 900) is State.FENCED
    give_up(played)
    assert state_of(played, (DAY - MINUTE).total_seconds()) is State.FENCED
    assert state_of(played, 120) is State.PROBING


def test_the_other_zones_get_the_nodes_with_which_the_pool_survives() -> None:
    played = pool()
    played.policy = surviving(numbers(4, 20))
    refuse(played)
    played.check()
    give_up(played)
    for _ in range(5):
        found = played.check(600)
        arrive(played)
    assert requested(found) == (1, 3, 3)
    assert result_of(found).survives


def test_it_is_no_failure_that_forbids_a_drill_of_another_zone() -> None:
    played = given_up()
    for seconds in (60, DAY.total_seconds()):  # fenced, and probing
        played.check(seconds)
        assert played.seen is not None
        assert failing_elsewhere("b", pools_of(played.seen)) is None
    refuse(played, message=SOLD_OUT)
    played.check(60)
    assert failing_elsewhere("b", pools_of(played.seen)) == ("cluster-api/default/workers", "a")


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (REFUSED, True),
        ("Unsupported: " + REFUSED, True),
        ("Machine type with name 'n2-standard-4' does not exist in zone 'europe-west1-b'.", True),
        ("InvalidInstanceType.ZoneNotSupported: The specified zone does not support this instancetype.", True),
        ("InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity", False),
        ("unsupported location for server type", False),  # Hetzner reports this if it has only run out of the type
        ("SkuNotAvailable: The requested size is currently not available in zone 1", False),
        ("", False),
    ],
)
def test_only_a_type_that_is_not_offered_waits_for_a_day(message: str, expected: bool) -> None:
    assert is_not_offered(message) is expected
