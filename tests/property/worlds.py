"""Random clusters for the properties: pools of every strategy, with groups in every state that a look can find."""

from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from evenkeel.domain.bounds.balanced import BALANCED
from evenkeel.domain.bounds.strategies import STRATEGIES
from evenkeel.domain.model.choices import OnFailure, Strategy
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, Machine, NodeGroup, Observation, Offer, State
from evenkeel.domain.model.plans import Plan, PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.states import ClusterState, GroupState
from evenkeel.domain.plan import plan
from tests.builders import NOW, after_backoff, group, in_backoff

counts = st.integers(0, 9)


def _brief(value: Any) -> str:
    """A dataclass by the fields that differ from their defaults, so that a failing example can be read."""
    if not is_dataclass(value):
        return str(value)
    told = [
        f"{item.name}={_brief(getattr(value, item.name))}"
        for item in fields(value)
        if item.default is MISSING or getattr(value, item.name) != item.default
    ]
    return f"{type(value).__name__}({', '.join(told)})"


@dataclass(frozen=True, repr=False)
class World:
    """Everything that ``plan()`` takes."""

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
        """Hypothesis would rather print every field."""
        printer.text(repr(self))

    def plan(self) -> Plan:
        """What Evenkeel makes of it."""
        return plan(self.observation, self.state, self.policy, self.now)

    def pool(self) -> PoolPlan:
        """The plan of a world with one pool."""
        (found,) = self.plan().pools
        return found


def bounds() -> st.SearchStrategy[Bounds]:
    """Bounds as they should be: 0 <= min <= max."""
    return st.tuples(counts, counts).map(lambda pair: Bounds(min(pair), max(pair)))


offers = st.builds(Offer, max=counts, target=counts, state=st.sampled_from(State))
backoffs = st.one_of(
    st.none(),
    st.builds(in_backoff, st.sampled_from(FailureClass)),
    st.builds(after_backoff, st.sampled_from(FailureClass), running_seen=st.none() | counts),
)


@st.composite
def machine_lists(draw: st.DrawFn, requested: int, running: int) -> tuple[Machine, ...] | None:
    """Not listed; or the running machines, and others without a node: as many as are waited for, or fewer, or more."""
    minutes = draw(st.none() | st.lists(st.integers(0, 30), max_size=max(0, requested - running) + 1))
    if minutes is None:
        return None
    ran = [Machine(name=f"run-{i}", has_node=True, created_at=NOW - timedelta(days=1)) for i in range(running)]
    new = [
        Machine(name=f"new-{i}", has_node=False, created_at=NOW - timedelta(minutes=age), deleting=age == 30)
        for i, age in enumerate(minutes)
    ]
    return (*ran, *new)


@st.composite
def groups(draw: st.DrawFn, zone: str, pool: str | None = "workers", *, plain: bool = False) -> NodeGroup:
    """A node group; a plain one has no caps, floors, limits or weights and is not frozen."""
    requested = draw(counts)
    running = draw(st.one_of(st.just(requested), st.integers(0, requested), st.integers(0, requested + 1)))
    found = draw(st.none() | bounds())
    offer = draw(st.none() | offers)
    if found is not None and offer is not None and draw(st.booleans()):
        offer = replace(offer, max=found.max)  # what we published and nobody has touched
    made = replace(
        group(zone, requested, running=running, pool=pool),
        bounds=found,
        offer=offer,
        machines=draw(machine_lists(requested, running)),
        fencing_enabled=draw(st.integers(0, 4)) > 0,
        two_objects=draw(st.booleans()),
    )
    if plain:
        return made
    return replace(
        made,
        frozen_because=draw(st.sampled_from([None, None, None, None, "rolling out"])),
        weight=draw(st.sampled_from([1, 1, 1, 2, 3, 7])),
        zone_max=draw(st.none() | st.none() | counts),
        owner_min_max=draw(st.sampled_from([0, 0, 0, 1])),
        worker_range=draw(st.none() | st.none() | st.none() | bounds()),
    )


@st.composite
def policies(
    draw: st.DrawFn, names: tuple[str, ...] = ("workers",), strategies: tuple[Strategy, ...] = tuple(STRATEGIES)
) -> Policy:
    """PoolMinimum <= PoolMaximum for each pool."""
    rules = []
    for name in names:
        least, most = sorted(draw(st.tuples(st.integers(0, 30), st.integers(0, 30))))
        rules.append(
            PoolRule(
                name=name,
                min=draw(st.sampled_from([0, least])),
                max=most,
                strategy=draw(st.sampled_from(strategies)),
                on_failure=draw(st.sampled_from(OnFailure)),
            )
        )
    return Policy(strategy=BALANCED, pools=tuple(rules))


@st.composite
def states(draw: st.DrawFn, found: tuple[NodeGroup, ...]) -> ClusterState:
    """Backoffs for some of the groups; now and then an impaired zone."""
    known: dict = {}
    for member in found:
        backoff: GroupState | None = draw(backoffs)
        if backoff is not None:
            known[member.key] = backoff
    impaired = draw(st.sampled_from([None, None, None, *sorted({member.zone or "" for member in found})]))
    return ClusterState(groups=known, zones={} if impaired is None else {impaired: NOW + timedelta(minutes=5)})


@st.composite
def pools(
    draw: st.DrawFn, *, strategies: tuple[Strategy, ...] = tuple(STRATEGIES), plain: bool = False, most: int = 5
) -> World:
    """One pool that existed before, so that it is valid whatever its PoolMaximum."""
    zones = "abcdefgh"[: draw(st.integers(1, most))]
    found = tuple(draw(groups(zone, plain=plain)) for zone in zones)
    if all(member.bounds is None and member.requested == 0 for member in found):
        found = (replace(found[0], bounds=Bounds(0, 1)), *found[1:])
    return World(Observation(groups=found), draw(states(found)), draw(policies(strategies=strategies)))


@st.composite
def clusters(draw: st.DrawFn) -> World:
    """Several pools, some of them new and too small, and groups that belong to none."""
    found = tuple(
        draw(groups(zone, pool))
        for pool in (*draw(st.lists(st.sampled_from(["one", "two", "three"]), max_size=3, unique=True)), None)
        for zone in "abcd"[: draw(st.integers(0, 3))]
    )
    named = draw(policies(("one", "two")))
    return World(Observation(groups=found), draw(states(found)), named)
