"""A plan's notes about uneven zones that nothing levels."""

from typing import Any

import pytest

from evenkeel.application.rebalancing.decisions import pool_json
from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from tests.builders import NOW, group, in_backoff, key, numbers, zones
from tests.pages import assert_note_is_shown
from tests.parts import replace
from tests.stack import Stack

SAYS = (
    "zones differ by 6 nodes, from 1 to 7: level: {} leaves it so; to even them out, set level: converge in the record,"
    " or annotation evenkeel.dev/level"
)


def notes(groups: Any, policy: Policy | None = None, state: ClusterState | None = None) -> list[str]:
    made = plan(Observation(groups=tuple(groups)), state or ClusterState(), policy or numbers(3, 20), NOW)
    return list(pool_json(made.pools[0]).get("notes", ()))


def policy(**settings: Any) -> Policy:
    base = numbers(3, 20)
    return replace(base, settings=replace(base.settings, **settings))


def test_zones_that_differ_are_named_with_the_setting_that_evens_them_out() -> None:
    assert notes(zones((1, 7, 2))) == [SAYS.format("off")]
    assert notes(zones((2, 3, 3))) == []
    assert notes(zones((2, 4, 3)))[0].startswith("zones differ by 2 nodes, from 2 to 4")


def test_running_nodes_are_counted_and_not_those_that_a_zone_lacks() -> None:
    assert notes([*zones((3, 3)), group("c", 6, running=3)]) == []
    assert notes([*zones((5, 5)), group("c", 5, running=1)]) == []  # its nodes are starting
    assert notes([*zones((3, 9)), group("c", 5, running=3)])[0].startswith("zones differ by 6 nodes, from 3 to 9")


@pytest.mark.parametrize(
    ("settings", "level"),
    [
        ({"level": Level.CONVERGE}, None),
        ({"level": Level.SHRINK}, None),
        ({"level": Level.SHRINK, "autoscaler": False}, "shrink"),
        ({"autoscaler": False}, "off"),
    ],
)
def test_what_levels_the_zones_is_not_reported_to_be_set(settings: dict[str, Any], level: str | None) -> None:
    assert notes(zones((1, 7, 2)), policy(**settings)) == ([] if level is None else [SAYS.format(level)])


def test_zones_that_are_meant_to_differ_or_cannot_be_even_are_not_named() -> None:
    assert notes([*zones((1,), weight=1), *zones((0, 7), weight=3)[1:]]) == []
    assert notes(zones((1,), zone_max=1) + zones((0, 7, 7))[1:]) == []
    assert notes(zones((1, 7, 2)), state=ClusterState(groups={key("a"): in_backoff()})) == []


def test_plan_status_page_and_explain_show_it() -> None:
    assert_note_is_shown(Stack(zones((1, 7, 2), bounds=[(1, 9)] * 3)), SAYS.format("off"), "workers")
