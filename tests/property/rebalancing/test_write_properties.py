"""The writes of one plan: whichever fail, the maxima stay within PoolMaximum at every instant between them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from evenkeel.application.errors import RejectedError
from evenkeel.application.rebalancing.run_state import RunState, RunSummary
from evenkeel.application.rebalancing.write import Writer
from evenkeel.domain.model.groups import Bounds, GroupKey, State
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.writes import Patch
from tests.builders import group, numbers, pool_plan, zones
from tests.fakes import FakeClock
from tests.property.worlds import World, pools


@dataclass
class Api:
    """An API server that keeps the maxima, and refuses the writes to some groups."""

    refused: frozenset[str]
    maxima: dict[str, int]
    sums: list[int] = field(default_factory=list)  # the sum of the maxima after each write

    def turn_of(self, key: GroupKey) -> str:
        return str(key)

    def apply(self, patch: Patch, *_: Any) -> None:
        key = str(patch.plan.group.key)
        if key in self.refused:
            raise RejectedError("refused")
        if patch.bounds is not None:
            self.maxima[key] = patch.bounds.max
        self.sums.append(sum(self.maxima.values()))

    def deletion_candidates(self, patch: Patch) -> list[str]:
        return []

    def mark(self, *_: Any) -> None:
        pass


Order = Callable[[list[Any]], list[Any]]


def maximum(bounds: Bounds | None) -> int:
    return 0 if bounds is None else bounds.max


def write(pool: PoolPlan, refused: frozenset[str], order: Order) -> Api:
    """Write the pool. Parallel tasks run in the order that ``order`` returns."""
    api = Api(refused, {str(plan.group.key): maximum(plan.group.bounds) for plan in pool.groups})

    def together(tasks: Any) -> None:
        for task in order(list(tasks)):
            task()

    writer = Writer(
        api=api,
        run_state=RunState(store=None, stored=None, groups={}, pools={}, scale_requests={}),
        summary=RunSummary(cluster="blue"),
        clock=FakeClock(),
        together=together,
        is_late=lambda: False,
    )
    writer.write([pool])
    return api


def highest(pool: PoolPlan, data: st.DataObject) -> int:
    """Return the largest sum of maxima at any instant, over orders of the writes, with none or one of them refused."""

    def drawn(tasks: list[Any]) -> list[Any]:
        return data.draw(st.permutations(tasks))

    def runs() -> Iterator[Api]:
        for refused in (frozenset[str](), *(frozenset({str(plan.group.key)}) for plan in pool.changes)):
            for order in (list[Any], lambda tasks: tasks[::-1], drawn):
                yield write(pool, refused, order)

    return max((max(api.sums, default=0) for api in runs()), default=0)


def within_its_maximum(world: World) -> World:
    """Return the world with bounds that hold the requested nodes, and a PoolMaximum that holds all of them."""
    groups = []
    for found in world.observation.groups:
        old = found.bounds or Bounds(0, 0)
        bounds = Bounds(min(old.min, found.requested), max(old.max, found.requested))
        groups.append(replace(found, bounds=bounds))
    total = sum(maximum(each.bounds) for each in groups)
    rules = tuple(replace(rule, max=max(total, rule.max or 0)) for rule in world.policy.pools)
    observation = replace(world.observation, groups=tuple(groups))
    return replace(world, observation=observation, policy=replace(world.policy, pools=rules))


@given(pools(strategies=(BALANCED,)).map(within_its_maximum), st.data())
def test_maxima_stay_within_pool_maximum_between_writes(world: World, data: st.DataObject) -> None:
    pool = world.pool()
    planned = sum(maximum(plan.bounds or plan.group.bounds) for plan in pool.groups)
    assume(pool.max is not None and planned <= pool.max)
    assert highest(pool, data) <= (pool.max or 0)


sizes = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=2, max_size=4)


@given(sizes, sizes, st.data())
def test_no_max_rises_before_the_others_have_fallen(
    before: list[tuple[int, int]], after: list[tuple[int, int]], data: st.DataObject
) -> None:
    plans = tuple(
        GroupPlan(
            group=group(zone, min(old), bounds=(0, max(old))),
            state=State.HEALTHY,
            requested=min(new),
            bounds=Bounds(0, max(new)),
            reasons=(),
        )
        for zone, old, new in zip("abcd", before, after, strict=False)
    )
    pool = replace(pool_plan(zones((1,)), numbers(0, 99)), groups=plans)
    most = max(sum(max(size) for size in each[: len(plans)]) for each in (before, after))
    assert highest(pool, data) <= most
