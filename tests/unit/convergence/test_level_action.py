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
from evenkeel_cli.answers import print_answer
from evenkeel_cli.plan_tables import print_plan
from tests.builders import NOW, zones
from tests.convergence import convergence
from tests.stack import Stack


def uneven(*counts: int, **fields: object) -> Stack:
    return Stack(zones(counts or (1, 2, 5), bounds=[(0, 9)] * 3), **{"converge": {"blind": True}, **fields})  # type: ignore[arg-type]


def test_a_dry_run_lists_the_steps_and_changes_nothing() -> None:
    stack = uneven()
    answer = stack.ask("level", pool="workers", dry_run=True)
    assert answer["steps"] == [{"from": "c", "to": "a"}] * 2
    assert answer["message"] == "pool workers of demo: dry run: 2 steps: c to a, c to a"
    assert stack.store.load("demo").control.convergence_requested == {}
    assert not stack.queue.requests


def test_a_step_under_way_is_not_listed_again() -> None:
    stack = uneven(0, 4, 5)
    assert ": dry run: 3 steps: " in stack.ask("level", pool="workers", dry_run=True)["message"]
    stack.ask("level", pool="workers")
    stack.carry_out()
    message = stack.ask("level", pool="workers", dry_run=True)["message"]
    assert "dry run: a step is under way, then 2 steps: " in message


def test_a_pass_is_carried_out_by_the_worker_and_ends() -> None:
    stack = uneven()
    assert "is brought home, for 2 hours at most: 2 steps" in stack.ask("level", pool="workers")["message"]
    assert "level" in {why for _, why in stack.queue.requests.values()}
    stack.carry_out()
    assert [one.requested for one in stack.cluster.groups.values()] == [2, 2, 5]
    assert stack.store.load("demo").control.convergence_requested
    (step,) = (pool["level"]["step"] for pool in stack.ask("status")["pools"])
    assert (step["source"][-1], step["destination"][-1]) == ("c", "a")
    said = stack.ask("explain", pool="workers")["message"]
    assert "A converge step is in progress since" in said
    stack.clock.at += timedelta(hours=3)
    stack.run()
    assert stack.store.load("demo").control.convergence_requested == {}


def test_plan_status_explain_and_page_describe_a_step() -> None:
    stack = uneven()
    stack.ask("level", pool="workers")
    stack.carry_out()
    status = stack.ask("status")
    (pool,) = status["pools"]
    begun, waits, course, left = pool["level"]["says"]
    assert course == "1 more step would bring the zones level: c to a."
    assert begun.startswith("A converge step is in progress since")
    assert left == "The budget allows 3 more steps in this hour."
    explained = stack.ask("explain", pool="workers")["message"]
    page = page_of_status(status, "status", stack.clock.now())
    console = Console(file=StringIO(), width=200)
    print_answer(status, console)
    print_answer({**stack.ask("plan"), "ok": True}, console)
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
    stack = uneven(2, 2, 3)
    assert stack.ask("level", pool="workers")["message"].endswith("its zones are level: no node has to be moved")
    assert stack.store.load("demo").control.convergence_requested == {}


def test_without_workload_it_says_what_is_missing() -> None:
    stack = uneven(converge=None)
    message = stack.ask("level", pool="workers", dry_run=True)["message"]
    assert "it waits: no machine of c may be drained: the pods on the nodes are unknown: set workload" in message


def test_an_unknown_or_paused_pool_is_refused() -> None:
    stack = uneven()
    assert "pool is 'other'" in stack.refused("level", pool="other")
    stack.ask("pause", pool="workers")
    assert "all of its groups are frozen" in stack.refused("level", pool="workers")


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
