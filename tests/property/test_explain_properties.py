"""What an explanation says of a plan is what the plan says: every number in it, and every reason."""

import re

from hypothesis import given

from evenkeel.application.explain import explain_group, explain_pool, rule_of_reason
from evenkeel.application.ports import Remembered
from evenkeel.application.preview import Preview
from evenkeel.application.words import sentences
from evenkeel.domain.membership.pools import find_pools
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from tests.builders import NOW, problems_of
from tests.fakes import record
from tests.property.worlds import World, clusters, pools

_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ \([^)]*\)|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def look_of(world: World) -> Preview:
    """The world as the operator function sees it. Its policy stands in the place of a record's."""
    made = record()
    object.__setattr__(made, "policy", lambda: world.policy)
    found, _ = find_pools(world.observation.groups, world.policy, world.state.pools)
    remembered = Remembered(record=made, state=world.state, zones={}, scale_requests={}, versions={}, fencing_token=0)
    return Preview(remembered=remembered, plan=world.plan(), pools=tuple(found), now=NOW)


def step(before: int | None, after: int | None) -> str:
    shown = ["unset" if number is None else str(number) for number in (before, after)]
    return f"stays {shown[1]}" if before == after else f"goes from {shown[0]} to {shown[1]}"


def without(text: str, parts: tuple[str, ...]) -> str:
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, "")
    return text


def numbers_of(pool: PoolPlan, plan: GroupPlan | None) -> set[int]:
    """Every number that a sentence may name."""
    requested = sum(one.requested for one in pool.groups)
    known: set[int | None] = {pool.min, pool.max, pool.headroom, requested}
    known |= {requested - pool.max} if pool.max is not None else set()
    known |= {sum(max(0, one.bounds.max - one.requested) for one in pool.groups if one.bounds)}
    if plan is not None:
        group, top = plan.group, plan.bounds.max if plan.bounds else 0
        top = min(top, group.worker_range.max) if group.worker_range else top
        known |= {group.requested, plan.requested, group.running, group.zone_max, top - plan.requested}
        for bounds in (group.bounds, plan.bounds, group.worker_range, pool.adopted.get(str(group.key))):
            known |= {bounds.min, bounds.max} if bounds else set()
    return {number for number in known if number is not None}


@given(pools() | clusters())
def test_every_number_in_an_explanation_is_the_plans(world: World) -> None:
    look = look_of(world)
    for pool in look.plan.pools:
        told = without(" ".join(explain_pool(look, pool)), problems_of(pool.problems))
        assert {int(number) for number in re.findall(r"\d+", told)} <= numbers_of(pool, None), told
        for plan in pool.groups:
            text = " ".join(explain_group(look, pool, plan))
            old, new = plan.group.bounds, plan.bounds
            assert f" Requested {step(plan.group.requested, plan.requested)}, running {plan.group.running}" in text
            assert f" Max {step(old.max if old else None, new.max if new else None)}" in text
            assert f" Min {step(old.min if old else None, new.min if new else None)}" in text
            told = _MOMENT.sub("", without(text, sentences(plan.reasons)))
            assert {int(number) for number in re.findall(r"\d+", told)} <= numbers_of(pool, plan), told


@given(pools() | clusters())
def test_every_reason_of_the_plan_is_in_the_explanation(world: World) -> None:
    look = look_of(world)
    for pool in look.plan.pools:
        assert all(problem in " ".join(explain_pool(look, pool)) for problem in problems_of(pool.problems))
        for plan in pool.groups:
            text = " ".join(explain_group(look, pool, plan)).lower()
            for reason in sentences(plan.reasons):
                assert reason.lower() in text


@given(pools())
def test_a_changed_number_is_explained_by_a_rule_about_that_number(world: World) -> None:
    for pool in world.plan().pools:
        for plan in pool.groups:
            about = {rule_of_reason(reason).about for reason in sentences(plan.reasons)}
            if plan.requested != plan.group.requested:
                assert "replicas" in about, sentences(plan.reasons)
            if plan.bounds != plan.group.bounds:
                assert "max" in about, sentences(plan.reasons)


@given(pools())
def test_growth_is_denied_only_where_max_leaves_no_room(world: World) -> None:
    look = look_of(world)
    for pool in look.plan.pools:
        for plan in pool.groups:
            limits, closed = plan.group.worker_range, plan.group.closed_because is not None and not plan.requested
            if "It cannot grow now" in " ".join(explain_group(look, pool, plan)) and not closed:
                assert plan.bounds is not None
                assert min(plan.bounds.max, limits.max if limits else plan.bounds.max) <= plan.requested


@given(pools())
def test_growth_is_promised_exactly_where_the_plan_leaves_room(world: World) -> None:
    look = look_of(world)
    for pool in look.plan.pools:
        for plan in pool.groups:
            promised = re.search(r"It may grow by (\d+), to (\d+)", " ".join(explain_group(look, pool, plan)))
            if promised is not None:
                assert plan.bounds is not None
                limits = plan.group.worker_range
                top = min(plan.bounds.max, limits.max) if limits else plan.bounds.max
                assert (plan.requested + int(promised[1]), int(promised[2])) == (top, top)
                assert int(promised[1]) > 0
