"""Nothing feeds itself: two simulated hours of writers that put things back, and of two thousand events."""

from collections.abc import Callable

import pytest

from tests.storms import (
    Contested,
    Counted,
    events,
    gitops_puts_a_raise_back,
    gitops_puts_bounds_back,
    gitops_puts_replicas_back,
    webhook_answers,
)

_MINUTES = 60
#: checks a minute that a storm may cause beside the scan's own
_MORE = 4


@pytest.mark.parametrize("play", [gitops_puts_bounds_back, gitops_puts_a_raise_back])
def test_what_is_put_back_is_contested_and_not_written_again(
    play: Callable[[], tuple[Counted, Contested]],
) -> None:
    counted, world = play()
    assert world.contested
    assert counted.patches <= 30
    assert counted.last_patches == 0
    assert counted.busiest_minute <= 1 + _MORE
    assert counted.last_checks <= 1.5 * _MINUTES


def test_replicas_that_are_put_back_are_contested_and_only_bounds_follow_the_autoscaler() -> None:
    counted, world = gitops_puts_replicas_back()
    assert world.contested
    sent = world.api.requests.matching(method="PATCH", manager="evenkeel")
    assert not [patch for patch in sent[-counted.last_patches :] if "replicas" in patch.body.get("spec", {})]
    # The autoscaler takes them away a quarter of an hour after each return, and they come back: two changes.
    assert counted.last_patches <= 4 * 4
    assert counted.busiest_minute <= 1 + _MORE
    assert counted.last_checks <= 1.5 * _MINUTES


@pytest.mark.parametrize("status", [500, 422])
def test_a_webhook_that_refuses_one_group_gets_one_patch_a_check(status: int) -> None:
    counted, _ = webhook_answers(status)
    assert counted.busiest_minute <= 1 + _MORE
    assert counted.last_checks <= (1 + _MORE) * _MINUTES
    assert counted.last_patches <= counted.last_checks + 2


def test_two_thousand_events_for_one_cluster_are_a_few_checks_and_delay_no_other_zone() -> None:
    counted = events(1)
    assert counted.checks - 120 <= 20
    assert counted.waited <= 20
    assert counted.written < 100
    assert (counted.last_patches, counted.last_written) == (0, 0)


def test_two_thousand_events_for_many_clusters_are_a_few_checks_of_each() -> None:
    counted = events(20)
    assert counted.checks - 20 * 120 <= 20 * 20
    assert counted.busiest_minute <= 1 + _MORE
    assert (counted.last_patches, counted.last_written) == (0, 0)
