"""The operators' bounds of an object to which Evenkeel writes its own bounds, whatever happens around its writes."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from evenkeel.domain.model.groups import Bounds, NodeGroup, PoolId, PublishedBounds
from evenkeel.domain.model.origins import POOL_MAX, POOL_MIN, Source
from evenkeel.domain.model.owner_intent import is_new_intent, is_put_back
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy, PoolRule
from evenkeel.domain.model.states import PoolState
from evenkeel.domain.rebalancing.journal import closed, opened
from evenkeel.domain.rebalancing.writes import bounds_of
from tests.builders import NOW, POOL, group, key, numbers, owned, plan_of
from tests.parts import make, replace

BOUNDS = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: Bounds(min(pair), sum(pair)))
SOME = BOUNDS.filter(lambda bounds: bounds.max > 0)  # without any, Evenkeel leaves the pool alone
ID = PoolId("cluster-api", "default", "", POOL)


def shared(zone: str, bounds: Bounds) -> NodeGroup:
    """Return a group of a pool whose numbers are on one object."""
    found = owned(zone, bounds, uid="worker", takes_ours=False)
    return replace(found, bounds=None, two_objects=False, copied=None)


def only(groups: list[NodeGroup], policy: Policy, state: PoolState | None = None) -> PoolPlan:
    (pool,) = plan_of(groups, policy, adopted={ID: state or PoolState()}).pools
    return pool


NOTHING = numbers(None, None)


@given(desired_bounds=st.lists(BOUNDS, min_size=1, max_size=5), rules=st.tuples(*[st.none() | st.integers(0, 40)] * 4))
def test_each_number_comes_from_its_first_source(desired_bounds: list[Bounds], rules: tuple[int | None, ...]) -> None:
    annotated, ruled = rules[:2], rules[2:]
    groups = [owned("abcde"[i], bounds, requested=1) for i, bounds in enumerate(desired_bounds)]
    groups[-1] = replace(groups[-1], pool_min=annotated[0], pool_max=annotated[1])
    pool = only(
        groups,
        make(Policy, strategy=NOTHING.settings.strategy, pools=(PoolRule(name=POOL, min=ruled[0], max=ruled[1]),)),
    )
    totals = sum(bounds.min for bounds in desired_bounds), sum(bounds.max for bounds in desired_bounds)
    for number, said, entry, total, field in zip(
        (pool.min, pool.max), annotated, ruled, totals, (POOL_MIN, POOL_MAX), strict=True
    ):
        (origin,) = [origin for origin in pool.report.origins if origin.field == field]
        expected = (said, Source.ANNOTATION), (entry, Source.RECORD), (total, Source.OWNER)
        assert (number, origin.source) == next(pair for pair in expected if pair[0] is not None)
        assert origin.value == number


@given(SOME, st.integers(1, 5))
def test_numbers_of_an_object_for_all_zones_count_once(bounds: Bounds, zones: int) -> None:
    pool = only([shared("abcde"[i], bounds) for i in range(zones)], NOTHING)
    assert (pool.min, pool.max) == (bounds.min, bounds.max)
    assert [len(origin.owners) for origin in pool.report.origins] == [1, 1]


@given(st.lists(BOUNDS, min_size=1, max_size=4), st.lists(BOUNDS, min_size=1, max_size=4))
def test_members_without_an_owner_add_their_adopted_bounds(with_owner: list[Bounds], without: list[Bounds]) -> None:
    groups = [owned("abcd"[i], bounds, requested=1) for i, bounds in enumerate(with_owner)]
    groups += [replace(group("efgh"[i], 1), bounds=bounds) for i, bounds in enumerate(without)]
    pool = only(groups, NOTHING)
    assert pool.min == sum(bounds.min for bounds in with_owner + without)
    assert pool.max == sum(bounds.max for bounds in with_owner + without)


@given(BOUNDS, BOUNDS, BOUNDS, st.integers(0, 2))
def test_annotations_report_new_bounds_from_restored_ones(
    wanted: Bounds, ours: Bounds, other: Bounds, which: int
) -> None:
    now = (wanted, ours, other)[which]
    found = owned("a", now, requested=1)
    found = replace(found, published=PublishedBounds(at=NOW, bounds=ours), has_adopted=True, adopted=wanted)
    assert is_new_intent(found, PoolState()) is (now not in (wanted, ours))
    assert is_put_back(found, PoolState()) is (now == wanted != ours)
    untouched = replace(found, published=None)
    assert not is_new_intent(untouched, PoolState())
    assert not is_put_back(untouched, PoolState())


class Owners(RuleBasedStateMachine):
    """Three owners of bounds, operators who change them, and runs that can end at any moment.

    The model is the operators' last value. It counts, whatever was written, lost or left incomplete.
    """

    @initialize(desired_bounds=st.tuples(SOME, SOME, SOME), requested=st.tuples(*[st.integers(0, 6)] * 3))
    def begin(self, desired_bounds: tuple[Bounds, ...], requested: tuple[int, ...]) -> None:
        self.wanted = dict(zip("abc", desired_bounds, strict=True))
        self.groups = {
            zone: owned(zone, desired, requested=nodes)
            for (zone, desired), nodes in zip(self.wanted.items(), requested, strict=True)
        }
        self.state = PoolState()
        self.unreported: set[str] = set()  # owners with a new value that no check has reported yet
        self.touched: set[str] = set()  # owners that Evenkeel has written

    def check(self) -> PoolPlan:
        return only(list(self.groups.values()), NOTHING, self.state)

    def put(self, zone: str, bounds: Bounds, *, ours: bool, annotated: bool = True) -> None:
        found = self.groups[zone]
        found = replace(found, bounds=bounds, copied=bounds, owner=replace(found.owner.numbers, bounds=bounds))
        if ours and annotated:
            before = found.ours.adopted if found.ours.has_adopted else self.wanted[zone]
            found = replace(found, published=PublishedBounds(at=NOW, bounds=bounds), has_adopted=True, adopted=before)
        self.groups[zone] = found

    @rule(written=st.integers(0, 9), annotated=st.booleans(), ends=st.booleans())
    def run(self, written: int, annotated: bool, ends: bool) -> None:
        """Play a run that may stop before the last of its patches, and before it closes its journal."""
        plan = self.check()
        reported = {problem.facts["owner"] for problem in plan.report.problems if problem.kind == "new-intent"}
        assert reported == {str(self.groups[zone].owner.numbers.ref) for zone in self.unreported}
        self.unreported.clear()
        self.state = opened(plan, "01")
        patches = [(group.group, bounds) for group in plan.changes for bounds in bounds_of(group)]
        for found, bounds in patches[:written]:
            zone = found.identity.zone or ""
            self.put(zone, bounds, ours=True, annotated=annotated)
            self.touched.add(zone)
        if ends and written >= len(patches):
            self.state = closed(plan, self.state)

    @rule(zone=st.sampled_from("abc"), desired=SOME)
    def another_says_something_else(self, zone: str, desired: Bounds) -> None:
        found, known = self.groups[zone], self.state.desired_bounds.get(f"uid-{zone}")
        ours = {known.bounds, *known.ours} if known is not None else set()
        said = found.ours.published.bounds if found.ours.published is not None else None
        if desired in {*ours, said, self.wanted[zone]}:
            return  # the previous value, or one that could be Evenkeel's: it looks like a contest or Evenkeel's write
        self.put(zone, desired, ours=False)
        self.wanted[zone] = desired
        if zone in self.touched or known is not None:
            self.unreported.add(zone)

    @rule(zone=st.sampled_from("abc"))
    def a_tool_puts_back_what_was_wanted(self, zone: str) -> None:
        self.put(zone, self.wanted[zone], ours=False)

    @rule(zone=st.sampled_from("abc"), desired=SOME)
    def the_object_is_made_anew(self, zone: str, desired: Bounds) -> None:
        found = self.groups[zone]
        uid = f"{found.owner.numbers.ref.uid}+"
        self.groups[zone] = owned(zone, desired, requested=found.requested, uid=uid)
        self.wanted[zone] = desired
        self.unreported.discard(zone)
        self.touched.discard(zone)

    @rule(zone=st.sampled_from("abc"), nodes=st.integers(0, 6))
    def the_autoscaler_orders(self, zone: str, nodes: int) -> None:
        self.groups[zone] = replace(self.groups[zone], requested=nodes, running=nodes)

    @invariant()
    def what_people_last_said_counts(self) -> None:
        pool = self.check()
        assert pool.max == sum(desired.max for desired in self.wanted.values())
        assert pool.min == sum(desired.min for desired in self.wanted.values())
        assert pool.adopted == {str(key(zone)): desired for zone, desired in self.wanted.items()}


Owners.TestCase.settings = settings(max_examples=60, stateful_step_count=10)
TestOwners = Owners.TestCase
