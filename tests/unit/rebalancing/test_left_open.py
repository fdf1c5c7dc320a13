"""A pool that is closed to the autoscaler is opened before Evenkeel stops managing it."""

from collections.abc import Callable
from typing import Any

import pytest

from evenkeel.application.errors import ClusterUnavailableError, RejectedError
from evenkeel.application.fleet.scan import Scan
from evenkeel.domain.model.groups import Bounds
from tests.builders import MINUTE, key
from tests.fakes import plenty
from tests.house import House
from tests.parts import replace


def closed(**fields: Any) -> House:
    """A cluster whose pool was closed by a run that was killed: three zones with max as requested."""
    house = House(**fields)
    house.settle()
    for zone in "abc":
        close(house, zone)
    pools = house.state.pools
    ((id, pool),) = pools.items()
    stored = house.store.load("demo")
    house.store.save_pool("demo", id, replace(pool, closed_at=house.clock.at), stored.versions)
    house.queue.requests.clear()
    house.queue.second_checks.clear()
    return house


def close(house: House, zone: str) -> None:
    house.cluster.change(key(zone), bounds=Bounds(0, house.cluster.groups[key(zone)].requested))


def pool_of(house: House) -> Any:
    (pool,) = house.state.pools.values()
    return pool


def room(house: House) -> int:
    return sum(maximum for _, maximum in house.bounds())


def scan(house: House) -> None:
    """A tick of the schedule, its checks and the runs that they request."""
    house.clock.at += MINUTE
    house.queue.looks.clear()
    Scan(store=house.store, queue=house.queue, clock=house.clock, together=lambda tasks: [t() for t in tasks]).tick(
        house.clock.at
    )
    for chunk in house.queue.looks:
        house.look(chunk.clusters, plenty)
    house.carry_out()


def dry_run_by_record(house: House) -> None:
    stored = house.store.load("demo")
    record = stored.record.model_copy(update={"dry_run": True})
    house.store.save_record(record, stored.control, stored.versions)


def dry_run_of_pool(house: House) -> None:
    for zone in "abc":
        house.cluster.change(key(zone), dry_run=True)


STOPS: dict[str, Callable[[House], object]] = {
    "pause": lambda house: house.ask("pause"),
    "pause until": lambda house: house.ask("pause", **{"for": "2h"}),
    "pause of the pool": lambda house: house.ask("pause", pool="workers"),
    "dry-run": lambda house: house.ask("dry-run"),
    "dry run by the record": dry_run_by_record,
    "dry run by annotation": dry_run_of_pool,
}


@pytest.mark.parametrize("stop", STOPS)
def test_the_next_scan_opens_it_even_if_every_message_is_lost(stop: str) -> None:
    house = closed()
    STOPS[stop](house)
    house.queue.requests.clear()
    scan(house)
    assert room(house) == 12
    assert pool_of(house).closed_at is None
    patches, looks = len(house.cluster.applied), house.cluster.looks
    for _ in range(3):
        scan(house)
    assert len(house.cluster.applied) == patches
    if stop in ("pause", "pause until"):
        assert house.cluster.looks == looks, "nothing is read any more"


@pytest.mark.parametrize("stop", ["pause", "pause of the pool"])
def test_a_pause_requests_the_run_at_once(stop: str) -> None:
    house = closed()
    answer: Any = STOPS[stop](house)
    assert answer["message"].endswith(", once cluster-autoscaler can order in pool workers again")
    house.carry_out()
    assert room(house) == 12


def test_a_stack_in_dry_run_opens_it() -> None:
    house = closed()
    house.rebalance = replace(house.rebalance, dry_run=True)
    house.look = replace(house.look, dry_run=True)
    scan(house)
    assert room(house) == 12
    assert house.decisions()[0]["dryRun"] is False


def test_a_fenced_zone_stays_fenced() -> None:
    house = closed()
    house.fail("a")
    house.ask("pause")
    scan(house)
    assert house.bounds()[0][1] == 2
    assert room(house) == 12


@pytest.mark.parametrize("fault", [RejectedError("403: forbidden"), ClusterUnavailableError("answer lost")])
def test_failed_writes_are_retried_until_it_is_open(fault: Exception) -> None:
    house = closed()
    house.ask("pause")
    house.answer_writes(fault)
    scan(house)
    assert (room(house), pool_of(house).closed_at is None) == (6, False)
    house.answer_writes(None)
    for _ in range(6):  # what was refused is tried again after five minutes
        scan(house)
    assert (room(house), pool_of(house).closed_at) == (12, None)


def test_a_lost_answer_is_checked() -> None:
    house = closed()
    house.ask("pause")
    apply = house.cluster.apply

    def lost(*given: Any, **more: Any) -> None:
        apply(*given, **more)
        raise ClusterUnavailableError("its answer is lost")

    house.cluster.apply = lost  # type: ignore[method-assign]
    scan(house)
    house.cluster.apply = apply  # type: ignore[method-assign]
    scan(house)
    scan(house)
    assert (room(house), pool_of(house).closed_at) == (12, None)


def test_nothing_else_is_written_to_a_paused_cluster() -> None:
    house = closed()
    house.ask("scale-up", id="more", nodes=2, pool="workers")
    before = {group.key: group.requested for group in house.cluster.groups.values()}
    house.fail("a")
    house.cluster.change(key("a"), running=0)
    house.ask("pause")
    for _ in range(3):
        scan(house)
    assert {group.key: group.requested for group in house.cluster.groups.values()} == before
    assert house.store.load("demo").scale_requests["more"].done is False
    assert room(house) == 12


def test_it_is_managed_as_before_after_a_pause() -> None:
    house = closed()
    house.ask("pause", **{"for": "1m"})
    house.clock.at += 2 * MINUTE
    house.run()
    assert pool_of(house).closed_at is None


class TestUnregister:
    def test_unregister_is_refused_until_the_pool_is_open(self) -> None:
        house = closed()
        says = house.refused("unregister", force=True)
        assert "pool workers is closed to cluster-autoscaler" in says
        assert "pause it first" in says
        house.ask("pause")
        scan(house)
        assert "not registered any more" in house.ask("unregister", force=True)["message"]

    def test_unregister_with_force_succeeds_after_half_an_hour(self) -> None:
        house = closed()
        house.clock.at += 31 * MINUTE
        says = house.ask("unregister", force=True)["message"]
        assert "pool workers stays closed to cluster-autoscaler: raise its max by hand" in says
