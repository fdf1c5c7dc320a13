"""An explanation of a plan has the plan's numbers and reasons."""

import re

import pytest
from hypothesis import given

from evenkeel.application.actions import explain
from evenkeel.application.actions.explain import explain_group, explain_pool, explain_reason
from evenkeel.application.ports import StoredCluster, Versions
from evenkeel.application.rebalancing.preview import Preview
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.reasons import Reason, Rule, Topic
from evenkeel.domain.rebalancing.health.provision_times import timeouts_of
from evenkeel.record import ControlRecord
from evenkeel.texts.english import problem_text, sentence, sentences
from tests.fakes import record
from tests.property.worlds import World, clusters, pools

# Moments, and the message of a failure by timeout.
_MOMENT = re.compile(
    r"no node within \d+ min for \d+ of its replicas"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ( \([^)]*\))?"
)


def preview_of(world: World) -> Preview:
    """Return the world as the operator function reads it, with its policy instead of a record's."""
    made = record()
    object.__setattr__(made, "policy", lambda: world.policy)
    stored = StoredCluster(
        record=made,
        control=ControlRecord(),
        state=world.state,
        zones={},
        scale_requests={},
        versions=Versions(),
        fencing_token=0,
    )
    return Preview.of(stored, world.observation, world.plan())


def step(before: int | None, after: int | None) -> str:
    quote = ["unset" if number is None else str(number) for number in (before, after)]
    return f"stays {quote[1]}" if before == after else f"goes from {quote[0]} to {quote[1]}"


def without(text: str, parts: list[str]) -> str:
    for part in sorted(parts, key=len, reverse=True):
        text = text.replace(part, "")
    return text


def numbers_of(pool: PoolPlan, plan: GroupPlan | None) -> set[int]:
    requested = sum(one.requested for one in pool.groups)
    known: set[int | None] = {pool.min, pool.max, pool.headroom}
    for nodes in (requested, requested - pool.report.uncounted):
        known |= {nodes, *(() if pool.max is None else (nodes - pool.max, pool.max - nodes))}
    known |= {sum(max(0, one.bounds.max - one.requested) for one in pool.groups if one.bounds)}
    zones = [nodes for one in pool.groups for nodes in (one.requested, one.group.running)]
    known |= {*zones, *(more - fewer for more in zones for fewer in zones)}  # if the pool is uneven
    adopted = [pool.adopted.get(str(one.group.key)) for one in pool.groups]
    if plan is None:  # if no object owns the numbers, the members' own follow them
        known |= {number for bounds in adopted if bounds for number in (bounds.min, bounds.max)}
        known |= {n for one in pool.groups if one.group.bounds for n in (one.group.bounds.min, one.group.bounds.max)}
    else:
        group, top = plan.group, plan.bounds.max if plan.bounds else 0
        top = min(top, group.owner.allowed_replicas.max) if group.owner.allowed_replicas else top
        known |= {group.requested, plan.requested, group.running, group.annotations.zone_max, top - plan.requested}
        published = group.ours.published.bounds if group.ours.published else None
        for bounds in (
            group.bounds,
            plan.bounds,
            group.owner.allowed_replicas,
            published,
            pool.adopted.get(str(group.key)),
        ):
            known |= {bounds.min, bounds.max} if bounds else set()
    return {number for number in known if number is not None}


def test_each_rule_that_sets_a_number_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explain, "sentence", lambda *_: "why")
    for rule in Rule:
        text = explain_reason(Reason(rule))
        assert (text == "why") is (rule.topic in (Topic.STATE, Topic.NOTE)), rule
        assert text.endswith("why"), rule


@given(pools() | clusters())
def test_every_number_in_an_explanation_is_the_plans(world: World) -> None:
    preview = preview_of(world)
    for pool in preview.plan.pools:
        noted = [sentence(note)[1:] for note in pool.report.notes]  # the first letter is a capital one there
        noted += [problem_text(problem) for problem in pool.report.problems]
        noted += [sentence(timeout, pool.id.flavour)[1:] for timeout in timeouts_of(pool)]
        reported = without(" ".join(explain_pool(preview, pool)), noted)
        assert {int(number) for number in re.findall(r"\d+", reported)} <= numbers_of(pool, None), reported
        for plan in pool.groups:
            text = " ".join(explain_group(preview, pool, plan))
            old, new = plan.group.bounds, plan.bounds
            assert f" Requested {step(plan.group.requested, plan.requested)}, running {plan.group.running}" in text
            assert f" Max {step(old.max if old else None, new.max if new else None)}" in text
            assert f" Min {step(old.min if old else None, new.min if new else None)}" in text
            words = [str(reason.facts["words"]) for reason in plan.reasons if reason.facts.get("words")]
            words += [sentence(reason.without("words")) for reason in plan.reasons]
            reported = _MOMENT.sub("", without(text, [*sentences(plan.reasons), *words]))
            assert {int(number) for number in re.findall(r"\d+", reported)} <= numbers_of(pool, plan), reported


@given(pools() | clusters())
def test_every_reason_of_the_plan_is_in_the_explanation(world: World) -> None:
    preview = preview_of(world)
    for pool in preview.plan.pools:
        assert all(problem_text(problem) in " ".join(explain_pool(preview, pool)) for problem in pool.report.problems)
        for plan in pool.groups:
            text = " ".join(explain_group(preview, pool, plan)).lower()
            for reason in plan.reasons:
                assert sentence(reason.without("words")).lower() in text  # the failure's message is elsewhere


@given(pools())
def test_a_changed_number_is_explained_by_a_rule_about_that_number(world: World) -> None:
    for pool in world.plan().pools:
        for plan in pool.groups:
            about = {reason.rule.topic for reason in plan.reasons}
            if plan.requested != plan.group.requested:
                assert Topic.REQUESTED in about, plan.reasons
            if plan.bounds != plan.group.bounds:
                assert Topic.MAX in about, plan.reasons


@given(pools())
def test_growth_is_promised_where_the_plan_leaves_room(world: World) -> None:
    preview = preview_of(world)
    for pool in preview.plan.pools:
        for plan in pool.groups:
            text = " ".join(explain_group(preview, pool, plan))
            limits, closed = (
                plan.group.owner.allowed_replicas,
                plan.group.template.closed_because is not None and not plan.requested,
            )
            denied, promised = "It cannot grow now" in text, re.search(r"It may grow by (\d+), to (\d+)", text)
            if promised is None and (closed or not denied):
                continue
            top = min(plan.bounds.max, limits.max) if limits else plan.bounds.max
            assert closed or not denied or top <= plan.requested
            if promised is not None:
                assert (plan.requested + int(promised[1]), int(promised[2])) == (top, top)
                assert int(promised[1]) > 0
