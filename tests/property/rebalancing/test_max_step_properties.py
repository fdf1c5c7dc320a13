"""max_step: no run adds more nodes, and later runs add the rest, whatever happens to a run."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.states import STEPS_APART
from evenkeel.domain.rebalancing.bounds.strategies import read_strategy
from evenkeel.texts.english import sentences
from tests.builders import NOW, numbers, pool_plan, zones
from tests.crashing import How, Life
from tests.parts import replace
from tests.property.worlds import World, pools
from tests.workloads import pod
from tests.world import CHECK, SERVING
from tests.world import World as Serving

_ADDS = (Rule.POOL_MINIMUM, Rule.OWN_MINIMUM, Rule.REQUEST_SHARE)
_PROBES = (Rule.PROBE_FOR_MINIMUM, Rule.PROBE_UNSEEN)


def added(pool: PoolPlan) -> int:
    """Return how many nodes a plan adds, by the reasons of its groups. A move between zones adds none."""
    reasons = [reason for planned in pool.groups for reason in planned.reasons]
    counts = [int(str(reason.facts["count"])) for reason in reasons if reason.rule in _ADDS]
    return sum(counts) + sum(reason.rule in _PROBES for reason in reasons)


def limited(world: World, step: int | None, nodes: int) -> PoolPlan:
    rules = tuple(replace(rule, max_step=step) for rule in world.policy.pools)
    requests = (ScaleRequest(id="r", nodes=nodes, at=NOW, pool="workers"),)
    state = replace(world.state, scale_requests=requests)
    return replace(world, policy=replace(world.policy, pools=rules), state=state).pool()


@given(pools(), st.integers(1, 9), st.integers(1, 12))
def test_no_plan_adds_more_than_max_step(world: World, step: int, nodes: int) -> None:
    free, pool = limited(world, None, nodes), limited(world, step, nodes)
    assert added(pool) <= step
    if added(free) <= step:
        assert [planned.requested for planned in pool.groups] == [planned.requested for planned in free.groups]
        assert pool.request.later == 0
    if pool.request.current is not None and free.request.current is not None:
        assert pool.request.missing <= free.request.missing
        assert pool.request.later + pool.request.missing <= nodes


class Steps(Serving):
    """A world that plays only requested runs."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{**SERVING, "takes": 2 * CHECK, **fields})

    @property
    def total(self) -> int:
        return sum(self.requested().values())

    def follow(self, most: int = 200) -> bool:
        """Run once, then whenever a check is due, and never by a scan. Return True if the chain of checks ends."""
        self.had_incident = False
        self.run()
        for _ in range(most):
            self.had_incident |= bool(self.incidents())
            due = [seconds for _, _, seconds in self.queue.second_checks]
            self.queue.second_checks.clear()
            if not due:
                return True
            self.pass_time(timedelta(seconds=min(due)))
            self.run()
        return False


@given(st.integers(1, 5), st.integers(1, 12), st.sampled_from(["request", "minimum", "pods"]))
def test_nodes_come_step_by_step_without_a_scan(step: int, nodes: int, cause: str) -> None:
    minimum = 3 + nodes if cause == "minimum" else 0
    pods = [pod(f"p{i}", cpu="3") for i in range(nodes)] if cause == "pods" else []
    town = Steps(pods=pods, max_step=step, minimum=minimum)
    if cause == "request":
        town.request("more", nodes)
    assert town.follow()
    assert max(town.runs) <= step
    assert town.total == 3 + nodes
    assert not town.had_incident or cause == "pods"
    if cause == "request":
        assert town.scale_requests()["more"].done
        assert town.scale_requests()["more"].result.startswith(f"{nodes} node")
        assert "could not be placed" not in town.scale_requests()["more"].result


@given(
    st.integers(1, 4),
    st.integers(1, 10),
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from([How.BEFORE, How.AFTER, How.LOST])), max_size=4),
)
def test_runs_that_die_neither_lose_nor_repeat_a_step(step: int, nodes: int, deaths: list[tuple[int, How]]) -> None:
    town = Steps(max_step=step, takes=1000 * CHECK)
    town.request("more", nodes)
    for at, how in deaths:
        town.run(Life(at=at, how=how))
    for _ in range(2 * nodes + 8):
        town.run()
        town.pass_time(STEPS_APART)
    assert max(town.runs) <= step
    assert town.total == 3 + nodes
    assert town.scale_requests()["more"].done
    assert not town.has_open_move()


def test_nodes_left_to_later_runs_are_reported_once() -> None:
    for strategy in ("Balanced", "Backward-Compatible"):
        pool = pool_plan(zones((0, 0, 0), max_step=5), numbers(58, 60, strategy=read_strategy(strategy)))
        assert sum(planned.requested for planned in pool.groups) == 5
        assert sentences(pool.report.notes) == ["max_step is 5: later runs add 53 more nodes"]
        assert pool.report.problems == ()


def test_in_dry_run_no_chain_of_checks_begins() -> None:
    town = Steps(max_step=5, dry_run=True, minimum=20)
    town.request("more", 4)
    assert town.follow(most=5)
    assert town.total == 3
    assert town.scale_requests()["more"].done
