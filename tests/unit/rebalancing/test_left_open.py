"""A pool that is closed to the autoscaler is opened before Evenkeel stops managing it."""

from collections.abc import Callable
from typing import Any

import pytest

from evenkeel.application.errors import ClusterUnavailableError, RejectedError
from evenkeel.application.fleet.scan import Scan
from evenkeel.domain.model.groups import Bounds
from tests.builders import MINUTE, key
from tests.fakes import plenty
from tests.parts import replace
from tests.stack import Stack


def closed(**fields: Any) -> Stack:
    """Return a cluster whose pool a killed run closed: three zones with max as requested."""
    stack = Stack(**fields)
    stack.settle()
    for zone in "abc":
        close(stack, zone)
    pools = stack.state.pools
    ((id, pool),) = pools.items()
    stored = stack.store.load("demo")
    stack.store.save_pool("demo", id, replace(pool, closed_at=stack.clock.at), stored.versions)
    stack.queue.requests.clear()
    stack.queue.second_checks.clear()
    return stack


def close(stack: Stack, zone: str) -> None:
    stack.cluster.change(key(zone), bounds=Bounds(0, stack.cluster.groups[key(zone)].requested))


def pool_of(stack: Stack) -> Any:
    (pool,) = stack.state.pools.values()
    return pool


def room(stack: Stack) -> int:
    return sum(maximum for _, maximum in stack.bounds())


def scan(stack: Stack) -> None:
    """Play a tick of the schedule, its checks and the runs that they request."""
    stack.clock.at += MINUTE
    stack.queue.checks.clear()
    Scan(store=stack.store, queue=stack.queue, clock=stack.clock, together=lambda tasks: [t() for t in tasks]).tick(
        stack.clock.at
    )
    for chunk in stack.queue.checks:
        stack.check(chunk.clusters, plenty)
    stack.carry_out()


def dry_run_by_record(stack: Stack) -> None:
    stored = stack.store.load("demo")
    record = stored.record.model_copy(update={"dry_run": True})
    stack.store.save_record(record, stored.control, stored.versions)


def dry_run_of_pool(stack: Stack) -> None:
    for zone in "abc":
        stack.cluster.change(key(zone), dry_run=True)


STOPS: dict[str, Callable[[Stack], object]] = {
    "pause": lambda stack: stack.ask("pause"),
    "pause until": lambda stack: stack.ask("pause", **{"for": "2h"}),
    "pause of the pool": lambda stack: stack.ask("pause", pool="workers"),
    "dry-run": lambda stack: stack.ask("dry-run"),
    "dry run by the record": dry_run_by_record,
    "dry run by annotation": dry_run_of_pool,
}


@pytest.mark.parametrize("stop", STOPS)
def test_the_next_scan_opens_it_even_if_every_message_is_lost(stop: str) -> None:
    stack = closed()
    STOPS[stop](stack)
    stack.queue.requests.clear()
    scan(stack)
    assert room(stack) == 12
    assert pool_of(stack).closed_at is None
    patches, checks = len(stack.cluster.applied), stack.cluster.checks
    for _ in range(3):
        scan(stack)
    assert len(stack.cluster.applied) == patches
    if stop in ("pause", "pause until"):
        assert stack.cluster.checks == checks, "nothing is read any more"


@pytest.mark.parametrize("stop", ["pause", "pause of the pool"])
def test_a_pause_requests_the_run_at_once(stop: str) -> None:
    stack = closed()
    answer: Any = STOPS[stop](stack)
    assert answer["message"].endswith(", once cluster-autoscaler can order in pool workers again")
    stack.carry_out()
    assert room(stack) == 12


def test_a_stack_in_dry_run_opens_it() -> None:
    stack = closed()
    stack.rebalance = replace(stack.rebalance, dry_run=True)
    stack.check = replace(stack.check, dry_run=True)
    scan(stack)
    assert room(stack) == 12
    assert stack.decisions()[0]["dryRun"] is False


def test_a_fenced_zone_stays_fenced() -> None:
    stack = closed()
    stack.fail("a")
    stack.ask("pause")
    scan(stack)
    assert stack.bounds()[0][1] == 2
    assert room(stack) == 12


@pytest.mark.parametrize("fault", [RejectedError("403: forbidden"), ClusterUnavailableError("answer lost")])
def test_failed_writes_are_retried_until_it_is_open(fault: Exception) -> None:
    stack = closed()
    stack.ask("pause")
    stack.answer_writes(fault)
    scan(stack)
    assert (room(stack), pool_of(stack).closed_at is None) == (6, False)
    stack.answer_writes(None)
    for _ in range(6):  # refused writes are retried after five minutes
        scan(stack)
    assert (room(stack), pool_of(stack).closed_at) == (12, None)


def test_a_lost_answer_is_checked() -> None:
    stack = closed()
    stack.ask("pause")
    apply = stack.cluster.apply

    def lost(*given: Any, **more: Any) -> None:
        apply(*given, **more)
        raise ClusterUnavailableError("its answer is lost")

    stack.cluster.apply = lost  # type: ignore[method-assign]
    scan(stack)
    stack.cluster.apply = apply  # type: ignore[method-assign]
    scan(stack)
    scan(stack)
    assert (room(stack), pool_of(stack).closed_at) == (12, None)


def test_nothing_else_is_written_to_a_paused_cluster() -> None:
    stack = closed()
    stack.ask("scale-up", id="more", nodes=2, pool="workers")
    before = {group.key: group.requested for group in stack.cluster.groups.values()}
    stack.fail("a")
    stack.cluster.change(key("a"), running=0)
    stack.ask("pause")
    for _ in range(3):
        scan(stack)
    assert {group.key: group.requested for group in stack.cluster.groups.values()} == before
    assert stack.store.load("demo").scale_requests["more"].done is False
    assert room(stack) == 12


def test_it_is_managed_as_before_after_a_pause() -> None:
    stack = closed()
    stack.ask("pause", **{"for": "1m"})
    stack.clock.at += 2 * MINUTE
    stack.run()
    assert pool_of(stack).closed_at is None


class TestUnregister:
    def test_unregister_is_refused_until_the_pool_is_open(self) -> None:
        stack = closed()
        says = stack.refused("unregister", force=True)
        assert "pool workers is closed to cluster-autoscaler" in says
        assert "pause it first" in says
        stack.ask("pause")
        scan(stack)
        assert "not registered any more" in stack.ask("unregister", force=True)["message"]

    def test_unregister_with_force_succeeds_after_half_an_hour(self) -> None:
        stack = closed()
        stack.clock.at += 31 * MINUTE
        says = stack.ask("unregister", force=True)["message"]
        assert "pool workers stays closed to cluster-autoscaler: raise its max by hand" in says
