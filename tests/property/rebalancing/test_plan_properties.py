"""Properties of every plan, for any cluster."""

from collections import Counter
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from evenkeel.domain.model.groups import State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.texts.english import sentences
from tests.builders import problems_of
from tests.exhaustive.plan_rules import after, check, written
from tests.property.worlds import World, clusters, pools


@settings(max_examples=8 * settings().max_examples)
@given(pools() | pools(strategies=(BALANCED,)) | pools(strategies=(BALANCED,), plain=True))
def test_every_rule_of_the_small_worlds_holds_in_random_ones(world: World) -> None:
    check(world)


@given(pools())
def test_slow_start_limits_machines_on_their_way(world: World) -> None:
    plan = world.plan()
    states = {**world.state.groups, **plan.states}
    for planned, bounds in written(plan.pools[0]):
        state = states.get(planned.group.key)
        nodes = state.arrivals.slow_start if state else 0
        if nodes and planned.state is State.HEALTHY and planned.group.annotations.fencing_enabled:
            top = max(planned.group.requested, planned.group.running + nodes)
            assert planned.requested <= top
            assert bounds.max <= max(top, planned.group.owner.least_max)


@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_of_groups_changes_no_plan(world: World, random) -> None:
    shuffled = list(world.observation.groups)
    random.shuffle(shuffled)
    again = replace(world, observation=Observation(groups=tuple(shuffled)))
    assert again.plan().pools == world.plan().pools


@given(clusters())
def test_every_group_is_in_one_pool_or_skipped_and_has_a_reason(world: World) -> None:
    found = world.plan()
    skipped = Counter((skipped.namespace, skipped.name) for skipped in found.skipped)
    placed = Counter((planned.group.key.namespace, planned.group.key.name) for p in found.pools for planned in p.groups)
    for key in skipped & placed:  # one with annotations of Evenkeel is in no pool, and restored
        placed[key] -= 1
    placed += skipped
    assert placed == Counter((member.key.namespace, member.key.name) for member in world.observation.groups)
    for pool in found.pools:
        assert all(sentences(planned.reasons) and all(sentences(planned.reasons)) for planned in pool.groups)
        assert pool.mode.valid or (problems_of(pool.report.problems) and not pool.changes)
    assert all(skipped.reason for skipped in found.skipped)


@given(clusters() | pools())
def test_an_unchanged_cluster_is_not_patched(world: World) -> None:
    """In an unchanged cluster, applied plans settle within three rounds and stay so."""
    for rounds in range(4):
        found = world.plan()
        if not found.changes:
            break
        assert rounds < 3, [(str(g.group.key), g.group.bounds, g.bounds, sentences(g.reasons)) for g in found.changes]
        world = after(world, found)
    event(f"{rounds} rounds")
    for _ in range(3):
        world = after(world, found)
        assert not world.plan().changes


@given(clusters() | pools())
def test_an_unchanged_cluster_is_not_patched_without_stored_state(world: World) -> None:
    """The command line plans from objects alone: their annotations must be enough."""
    world = replace(world, state=replace(world.state, pools={}))
    for _ in range(4):
        found = world.plan()
        world = after(world, found)
        world = replace(world, state=replace(world.state, pools={}))
    assert not world.plan().changes


@given(clusters())
def test_a_plan_without_changes_has_a_digest_only_if_a_group_is_in_doubt(world: World) -> None:
    for pool in world.plan().pools:
        if pool.mode.valid and not pool.changes and not pool.report.starved and not pool.report.overcommitted:
            in_doubt = [plan.state in (State.FENCED, State.PROBING) for plan in pool.groups]
            assert bool(pool.digest(applied=False)) == any(in_doubt)
