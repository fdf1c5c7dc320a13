"""The level action: its answer, its steps, and its end."""

from datetime import timedelta
from io import StringIO

import pytest
from rich.console import Console

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import document
from evenkeel.application.rebalancing.decisions import plan_json
from evenkeel.domain.model.convergence import ConvergePolicy
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.record import ConvergeEntry
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.answers import print_answer, print_plan
from tests.builders import NOW, zones
from tests.convergence import convergence
from tests.house import House


def uneven(*counts: int, **fields: object) -> House:
    return House(zones(counts or (1, 2, 5), bounds=[(0, 9)] * 3), **{"converge": {"blind": True}, **fields})  # type: ignore[arg-type]


def test_a_dry_run_lists_the_steps_and_changes_nothing() -> None:
    house = uneven()
    answer = house.ask("level", pool="workers", dry_run=True)
    assert answer["steps"] == [{"from": "c", "to": "a"}] * 2
    assert answer["message"] == "pool workers of demo: dry run: 2 steps: c to a, c to a"
    assert house.store.load("demo").control.convergence_requested == {}
    assert not house.queue.requests


def test_a_step_under_way_is_not_listed_again() -> None:
    house = uneven(0, 4, 5)
    assert ": dry run: 3 steps: " in house.ask("level", pool="workers", dry_run=True)["message"]
    house.ask("level", pool="workers")
    house.carry_out()
    message = house.ask("level", pool="workers", dry_run=True)["message"]
    assert "dry run: a step is under way, then 2 steps: " in message


def test_a_pass_is_carried_out_by_the_worker_and_ends() -> None:
    house = uneven()
    assert "is brought home, for 2 hours at most: 2 steps" in house.ask("level", pool="workers")["message"]
    assert "level" in {why for _, why in house.queue.requests.values()}
    house.carry_out()
    assert [one.requested for one in house.cluster.groups.values()] == [2, 2, 5]
    assert house.store.load("demo").control.convergence_requested
    (step,) = (pool["level"]["step"] for pool in house.ask("status")["pools"])
    assert (step["source"][-1], step["destination"][-1]) == ("c", "a")
    said = house.ask("explain", pool="workers")["message"]
    assert "A converge step is in progress since" in said
    house.clock.at += timedelta(hours=3)
    house.run()
    assert house.store.load("demo").control.convergence_requested == {}


def test_plan_status_explain_and_page_describe_a_step() -> None:
    house = uneven()
    house.ask("level", pool="workers")
    house.carry_out()
    status = house.ask("status")
    (pool,) = status["pools"]
    begun, waits, course, left = pool["level"]["says"]
    assert course == "1 more step would bring the zones level: c to a."
    assert begun.startswith("A converge step is in progress since")
    assert left == "The budget allows 3 more steps in this hour."
    explained = house.ask("explain", pool="workers")["message"]
    page = page_of_status(status, "status", house.clock.now())
    console = Console(file=StringIO(), width=200)
    print_answer(status, console)
    print_answer({**house.ask("plan"), "ok": True}, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    for said in (begun, waits, left):
        assert said in explained
        assert said in document(page)
        assert printed.count(said) == 2


def test_an_offline_plan_says_why_no_step_begins() -> None:
    found = plan(Observation(groups=tuple(zones((1, 2, 5)))), ClusterState(), convergence(), NOW)
    console = Console(file=StringIO(), width=200)
    print_plan(console, plan_json(found), [pool.id.name for pool in found.pools], "")
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "  No node is moved before 2026-01-15T12:10:00Z: the zones must stay uneven until then.\n" in printed
    assert "  2 steps would bring the zones level: c to a, c to a.\n" in printed


def test_a_level_pool_needs_no_step() -> None:
    house = uneven(2, 2, 3)
    assert house.ask("level", pool="workers")["message"].endswith("its zones are level: no node has to be moved")
    assert house.store.load("demo").control.convergence_requested == {}


def test_without_workload_it_says_what_is_missing() -> None:
    house = uneven(converge=None)
    message = house.ask("level", pool="workers", dry_run=True)["message"]
    assert "it waits: no machine of c may be drained: the pods on the nodes are unknown: set workload" in message


def test_an_unknown_or_paused_pool_is_refused() -> None:
    house = uneven()
    assert "pool is 'other'" in house.refused("level", pool="other")
    house.ask("pause", pool="workers")
    assert "all of its groups are frozen" in house.refused("level", pool="workers")


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ({"per_hour": 0}, "converge: per_hour is '0'"),
        ({"surge": 2}, "converge: surge is '2'"),
        ({"windows": ["22-06"]}, "converge: windows.0 is '22-06': write it like 22:00-06:00"),
        ({"windows": ["Mon 10:00-10:00"]}, "for whole days write 00:00-24:00"),
        ({"windows": ["10:00-24:30"]}, "a day ends at 24:00"),
        ({"blond": True}, "blond"),
    ],
)
def test_a_bad_converge_field_is_named_in_one_line(said: dict[str, object], fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_model(ConvergeEntry, said, "converge")
    (line,) = caught.value.faults
    assert fault in line
    assert "\n" not in line
    assert ConvergeEntry().policy() == ConvergePolicy(per_hour=4, windows=(), surge=0, blind=False) == ConvergePolicy()
