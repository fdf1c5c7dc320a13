"""Random clusters for the properties: pools of every strategy, with groups in every state that a check can read."""

from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from functools import cache
from itertools import product, starmap
from typing import Any

from hypothesis import strategies as st

from evenkeel.domain.model.choices import OnFailure, Strategy
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, Machine, NodeGroup, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from tests.builders import NOW, after_backoff, group, in_backoff, in_slow_start, offered, stated
from tests.parts import make, replace

counts = st.integers(0, 9)


def _brief(value: Any) -> str:
    """Return a dataclass with the fields that differ from their defaults, so that a failing example is readable."""
    if not is_dataclass(value):
        return str(value)
    reported = [
        f"{item.name}={_brief(getattr(value, item.name))}"
        for item in fields(value)
        if item.default is MISSING or getattr(value, item.name) != item.default
    ]
    return f"{type(value).__name__}({', '.join(reported)})"


@dataclass(frozen=True, repr=False)
class World:
    observation: Observation
    state: ClusterState
    policy: Policy
    now: datetime = NOW

    def __repr__(self) -> str:
        lines = [_brief(member) for member in self.observation.groups]
        lines += [f"{key}: {_brief(backoff)}" for key, backoff in self.state.groups.items()]
        lines += [f"impaired: {', '.join(self.state.zones)}", *map(_brief, self.policy.pools)]
        return "World(\n    " + "\n    ".join(lines) + "\n)"

    def _repr_pretty_(self, printer: Any, _cycle: bool) -> None:
        printer.text(repr(self))

    def plan(self) -> Plan:
        return plan(self.observation, self.state, self.policy, self.now)

    def pool(self) -> PoolPlan:
        (found,) = self.plan().pools
        return found


def one_of(*lists: Iterable[Any]) -> st.SearchStrategy[Any]:
    """Draw an element of a list, each list equally often, in a single draw, because draws take Hypothesis's time."""
    found = [list(values) for values in lists]
    size = max(map(len, found))
    return st.sampled_from([value for values in found for value in values * (size // len(values))])


BOUNDS = [Bounds(min(pair), max(pair)) for pair in product(range(10), repeat=2)]
#: Valid bounds: 0 <= min <= max.
bounds = st.sampled_from(BOUNDS)
maybe_bounds = one_of([None], BOUNDS)
maybe_limits = one_of([None], [None], BOUNDS)
maybe_counts = one_of([None], [None], range(10))
offers = one_of([None], starmap(offered, product(range(10), State)))
backoffs = one_of(
    [None],
    map(in_backoff, FailureClass),
    [after_backoff(kind, running_seen=seen) for kind in FailureClass for seen in [*[None] * 10, *range(10)]],
    [in_slow_start(nodes, running_seen=seen) for nodes in (1, 2, 5) for seen in range(10)],
)
flags = one_of(product([True, True, True, True, False], [False, True], [False, True]))
stays = [None, None, None, None, stated("rolling out"), Reason.of(Rule.OBJECT_PAUSED)]
extras = one_of(product(stays, [1, 1, 1, 2, 3, 7], [0, 0, 0, 1], [None, None, None, stated("Launch is suspended")]))
ages = st.integers(0, 30)


@cache
def running_of(requested: int) -> st.SearchStrategy[int]:
    return one_of([requested], range(requested + 1), range(requested + 2))


@cache
def listed_of(waiting: int) -> st.SearchStrategy[int | None]:
    """Draw the number of machines without a node: as many as awaited, fewer, one more, or None: not listed."""
    return one_of([None], range(waiting + 2))


def _machines(running: int, minutes: Iterable[int]) -> tuple[Machine, ...]:
    ran = [Machine(name=f"run-{i}", has_node=True, created_at=NOW - timedelta(days=1)) for i in range(running)]
    new = [
        Machine(name=f"new-{i}", has_node=False, created_at=NOW - timedelta(minutes=age), deleting=age == 30)
        for i, age in enumerate(minutes)
    ]
    return (*ran, *new)


@cache
@st.composite
def groups(draw: st.DrawFn, zone: str, pool: str | None = "workers", *, plain: bool = False) -> NodeGroup:
    """Draw a node group. A plain one has no caps, floors, limits or weights, is not frozen and launches machines."""
    requested = draw(counts)
    running = draw(running_of(requested))
    found, offer, listed = draw(maybe_bounds), draw(offers), draw(listed_of(max(0, requested - running)))
    fence, two_objects, untouched = draw(flags)
    if found is not None and offer is not None and untouched:
        offer = replace(offer, bounds=found)  # published by Evenkeel and unchanged
    frozen_because, weight, floor_max, launches_stopped = (None, 1, 0, None) if plain else draw(extras)
    return group(
        zone,
        requested,
        running=running,
        pool=pool,
        bounds=found and (found.min, found.max),
        published=offer,
        machines=None if listed is None else _machines(running, [draw(ages) for _ in range(listed)]),
        fencing_enabled=fence,
        two_objects=two_objects,
        frozen_because=frozen_because,
        launches_stopped=launches_stopped,
        weight=weight,
        zone_max=None if plain else draw(maybe_counts),
        zone_min=None if plain else draw(maybe_counts),
        least_max=floor_max,
        allowed_replicas=None if plain else draw(maybe_limits),
    )


pool_numbers = one_of(product(range(31), range(31)))


@cache
def rules_of(strategies: tuple[Strategy, ...]) -> st.SearchStrategy[tuple]:
    return one_of(product(strategies, OnFailure, [False, True]))


@cache
@st.composite
def policies(
    draw: st.DrawFn, names: tuple[str, ...] = ("workers",), strategies: tuple[Strategy, ...] = tuple(STRATEGIES)
) -> Policy:
    """Draw policies with PoolMinimum <= PoolMaximum for each pool."""
    rules = []
    for name in names:
        least, most = sorted(draw(pool_numbers))
        strategy, on_failure, has_minimum = draw(rules_of(strategies))
        rules.append(PoolRule(name=name, min=least * has_minimum, max=most, strategy=strategy, on_failure=on_failure))
    return make(Policy, strategy=BALANCED, pools=tuple(rules))


@cache
def impaired_of(zones: tuple[str, ...]) -> st.SearchStrategy[str | None]:
    return st.sampled_from([None, None, None, *zones])


@st.composite
def states(draw: st.DrawFn, found: tuple[NodeGroup, ...], *, plain: bool = False) -> ClusterState:
    """Draw backoffs of some groups, and sometimes an impaired zone. In plain states no slow start caps a group."""
    known: dict = {}
    for member in found:
        backoff: GroupState | None = draw(backoffs)
        if backoff is not None:
            known[member.key] = replace(backoff, slow_start=0) if plain else backoff
    zones = tuple(sorted({member.identity.zone or "" for member in found}))
    impaired = draw(impaired_of(zones))
    ends = {} if impaired is None else {impaired: NOW + timedelta(minutes=5)}
    return ClusterState(groups=known, zones=ends)


@cache
@st.composite
def pools(
    draw: st.DrawFn, *, strategies: tuple[Strategy, ...] = tuple(STRATEGIES), plain: bool = False, most: int = 5
) -> World:
    """Draw one pool that existed before, so that it is valid with any PoolMaximum."""
    zones = "abcdefgh"[: draw(st.integers(1, most))]
    found = tuple(draw(groups(zone, plain=plain)) for zone in zones)
    if all(member.bounds is None and member.requested == 0 for member in found):
        found = (replace(found[0], bounds=Bounds(0, 1)), *found[1:])
    return World(Observation(groups=found), draw(states(found, plain=plain)), draw(policies(strategies=strategies)))


@st.composite
def clusters(draw: st.DrawFn) -> World:
    """Draw several pools, some of them new and too small, and groups that belong to none."""
    found = tuple(
        draw(groups(zone, pool))
        for pool in (*draw(st.lists(st.sampled_from(["one", "two", "three"]), max_size=3, unique=True)), None)
        for zone in "abcd"[: draw(st.integers(0, 3))]
    )
    named = draw(policies(("one", "two")))
    return World(Observation(groups=found), draw(states(found)), named)
