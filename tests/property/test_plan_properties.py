"""What must hold for every plan, whatever the cluster looks like."""

from collections import Counter
from dataclasses import replace

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from evenkeel.domain.model.groups import State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.writes import in_safe_order, patches
from evenkeel.texts.english import sentences
from tests.builders import applied, problems_of
from tests.property.worlds import World, clusters, pools


def _written(found: PoolPlan) -> list[GroupPlan]:
    """The groups that Evenkeel may write."""
    return [planned for planned in found.groups if planned.state is not State.FROZEN]


def _may_grow_a_little(planned: GroupPlan) -> bool:
    """Whether others' words or a slow start cap it."""
    return planned.is_throttled or any(reason.rule is Rule.SLOW_START for reason in planned.reasons)


@given(pools())
def test_published_bounds_are_ordered_and_hold_the_requested(world: World) -> None:
    for planned in _written(world.pool()):
        assert planned.bounds is not None
        assert 0 <= planned.bounds.min <= planned.requested <= planned.bounds.max


@given(pools())
def test_a_running_node_is_never_given_up(world: World) -> None:
    for planned in world.pool().groups:
        assert planned.requested >= min(planned.group.running, planned.group.requested)


@given(pools())
def test_the_requested_of_a_pool_are_never_raised_past_its_maximum(world: World) -> None:
    found = world.pool()
    before = sum(planned.group.requested for planned in found.groups)
    after = sum(planned.requested for planned in found.groups)
    assert found.max is not None
    assert after <= max(before, found.max)


@given(pools())
def test_a_pool_is_never_shrunk_below_its_minimum_by_us(world: World) -> None:
    found = world.pool()
    assert found.min is not None
    before = sum(planned.group.requested for planned in found.groups)
    after = sum(planned.requested for planned in found.groups)
    if after < min(before, found.min):
        # Only where no healthy zone has room for what the fenced ones gave up.
        assert found.report.starved >= min(before, found.min) - after


@given(pools())
def test_frozen_groups_stay_as_they_are(world: World) -> None:
    for planned in world.pool().groups:
        if planned.group.frozen_because is not None:
            assert planned.state is State.FROZEN
            assert not planned.changes
            assert patches(planned) == []


@given(pools())
def test_fenced_groups_get_no_growth(world: World) -> None:
    for planned in _written(world.pool()):
        if planned.state is State.FENCED:
            assert planned.requested <= planned.group.requested
            if planned.group.annotations.fencing_enabled:
                assert planned.bounds is not None
                assert planned.bounds.max == max(planned.requested, planned.group.owner.least_max)


@given(pools())
def test_cautious_groups_may_grow_by_one_machine(world: World) -> None:
    for planned in _written(world.pool()):
        if planned.is_throttled:
            assert planned.bounds is not None
            top = max(planned.group.requested, planned.group.running) + 1
            assert planned.bounds.max <= max(top, planned.group.owner.least_max)
            assert planned.state is State.HEALTHY


@given(pools())
def test_others_words_take_no_replicas_away(world: World) -> None:
    alone = replace(world, state=replace(world.state, offerings={}))
    fenced_by_others = {
        str(planned.group.key)
        for planned in world.pool().groups
        if any(reason.rule is Rule.FENCED_BY_OTHERS for reason in planned.reasons)
    }
    before = {str(planned.group.key): planned for planned in alone.pool().groups}
    for planned in world.pool().groups:
        if str(planned.group.key) in fenced_by_others and not before[str(planned.group.key)].lowers_requested:
            assert not planned.lowers_requested


@given(pools())
def test_probing_groups_may_grow_by_one_machine(world: World) -> None:
    for planned in _written(world.pool()):
        if planned.state is State.PROBING and planned.group.annotations.fencing_enabled:
            assert planned.bounds is not None
            waits_for_one = planned.group.running < planned.requested
            allowed = planned.requested + (0 if waits_for_one else 1)
            assert planned.bounds.max <= max(allowed, planned.group.owner.least_max)


@given(pools())
def test_groups_in_slow_start_have_as_many_machines_on_their_way_as_it_allows(world: World) -> None:
    found = world.plan()
    for planned in _written(found.pools[0]):
        key = planned.group.key
        remembered = found.states.get(key, world.state.groups.get(key))
        allowed = remembered.slow_start if remembered is not None else 0
        if allowed and planned.state is State.HEALTHY and planned.group.annotations.fencing_enabled:
            assert planned.bounds is not None
            top = max(planned.group.requested, planned.group.running + allowed)
            assert planned.requested <= top
            assert planned.bounds.max <= max(top, planned.group.owner.least_max)


@given(pools())
def test_the_operators_cap_is_kept_for_growth(world: World) -> None:
    for planned in _written(world.pool()):
        cap = planned.group.annotations.zone_max
        if cap is not None:
            assert planned.requested <= max(planned.group.requested, cap)
            assert planned.bounds is not None
            assert planned.bounds.max <= max(planned.requested, cap, planned.group.owner.least_max)


@given(pools())
def test_replicas_stay_within_what_their_owner_lets_stand(world: World) -> None:
    for planned in world.pool().groups:
        limits = planned.group.owner.worker_range
        if limits is not None:
            assert planned.requested <= max(planned.group.requested, limits.max)
            assert planned.requested >= min(planned.group.requested, limits.min)


@given(pools(strategies=(BALANCED,)))
def test_balanced_maxima_never_pass_the_pool_maximum(world: World) -> None:
    """Exactly: PoolMaximum, or what stands already where that is more.

    What stands already: the targets, the room that frozen groups keep, and the one node that the owner of the bounds
    insists on (OpenShift: a max of 0 is refused). None of the three is ours to take.
    """
    found = world.pool()
    assert found.max is not None
    targets = sum(planned.requested for planned in found.groups)
    kept = sum(
        max(0, planned.group.bounds.max - planned.requested) if planned.group.bounds is not None else 0
        for planned in found.groups
        if planned.state is State.FROZEN
    )
    insisted = sum(max(0, planned.group.owner.least_max - planned.requested) for planned in _written(found))
    total = sum(max(planned.requested, planned.bounds.max if planned.bounds else 0) for planned in found.groups)
    assert total <= max(found.max, targets + kept + insisted)
    uncapped = [
        planned
        for planned in found.groups
        if planned.group.annotations.zone_max is None
        and planned.group.owner.worker_range is None
        and not _may_grow_a_little(planned)
    ]
    if any(planned.state is State.HEALTHY for planned in uncapped) and not found.moves:
        event("a healthy zone without a cap")
        assert total == max(found.max, targets + kept + insisted)


@given(pools(strategies=(BALANCED,), plain=True))
def test_balanced_hands_out_exactly_the_pool_maximum(world: World) -> None:
    found = world.pool()
    assert found.max is not None
    targets = sum(planned.requested for planned in found.groups)
    assume(targets <= found.max)
    assume(not found.moves)  # in the patch that moves, a taker's max is what is requested; the next plan deals the rest
    assume(any(planned.state is State.HEALTHY and not _may_grow_a_little(planned) for planned in found.groups))
    assert sum(planned.bounds.max for planned in found.groups if planned.bounds is not None) == found.max


@given(pools(strategies=(BALANCED,), plain=True))
def test_balanced_minima_are_the_pool_minimum_as_far_as_there_are_nodes_to_count(world: World) -> None:
    found = world.pool()
    assert found.min is not None
    solid = [
        min(planned.group.running, planned.requested)
        if planned.state is State.FENCED and planned.group.annotations.fencing_enabled
        else planned.requested
        for planned in found.groups
    ]
    assert sum(planned.bounds.min for planned in found.groups if planned.bounds) == min(found.min, sum(solid))


@given(pools(strategies=(BALANCED,), plain=True))
def test_balanced_leaves_no_healthy_zone_without_room_while_there_is_enough_for_all(world: World) -> None:
    found = world.pool()
    assert found.max is not None
    headroom = found.max - sum(planned.requested for planned in found.groups)
    assume(headroom >= 2 * len(found.groups))
    assume(not found.moves)
    for planned in found.groups:
        if planned.state is State.HEALTHY:
            assert planned.bounds is not None
            assert planned.bounds.max > planned.requested


@given(clusters(), st.randoms(use_true_random=False))
def test_the_order_in_which_groups_are_listed_changes_nothing(world: World, random) -> None:
    shuffled = list(world.observation.groups)
    random.shuffle(shuffled)
    again = replace(world, observation=Observation(groups=tuple(shuffled)))
    assert again.plan().pools == world.plan().pools


@given(clusters())
def test_the_same_look_gives_the_same_plan(world: World) -> None:
    assert world.plan() == world.plan()


@given(clusters())
def test_every_group_is_in_one_pool_or_skipped_and_has_a_reason(world: World) -> None:
    found = world.plan()
    skipped = Counter((skipped.namespace, skipped.name) for skipped in found.skipped)
    placed = Counter((planned.group.key.namespace, planned.group.key.name) for p in found.pools for planned in p.groups)
    for key in skipped & placed:  # one that carries what we wrote is in no pool, and restored
        placed[key] -= 1
    placed += skipped
    assert placed == Counter((member.key.namespace, member.key.name) for member in world.observation.groups)
    for pool in found.pools:
        assert all(sentences(planned.reasons) and all(sentences(planned.reasons)) for planned in pool.groups)
        assert pool.mode.valid or (problems_of(pool.report.problems) and not pool.changes)
    assert all(skipped.reason for skipped in found.skipped)


@given(clusters() | pools())
def test_a_quiet_world_is_never_patched(world: World) -> None:
    """Applied, and looked at again without anything having moved, a plan settles within three rounds and stays so."""
    for rounds in range(4):
        found = world.plan()
        if not found.changes:
            break
        assert rounds < 3, [(str(g.group.key), g.group.bounds, g.bounds, sentences(g.reasons)) for g in found.changes]
        observation, state = applied(found, world.state)
        world = replace(world, observation=observation, state=state)
    event(f"{rounds} rounds")
    for _ in range(3):
        observation, state = applied(found, world.state)
        world = replace(world, observation=observation, state=state)
        assert not world.plan().changes


@given(clusters() | pools())
def test_without_any_memory_a_quiet_world_is_never_patched_either(world: World) -> None:
    """The command line plans from objects alone: what the annotations carry must be enough."""
    world = replace(world, state=replace(world.state, pools={}))
    for _ in range(4):
        found = world.plan()
        observation, state = applied(found, world.state)
        world = replace(world, observation=observation, state=replace(state, pools={}))
    assert not world.plan().changes


@given(pools())
def test_at_every_moment_between_two_patches_the_maxima_stay_below_the_old_or_the_new_sum(world: World) -> None:
    found = world.pool()
    now = {planned.group.key: (planned.group.bounds, planned.group.requested) for planned in found.groups}
    # Where a group starts with a max below its replicas, no order of writes could make that moment good.
    assume(all(bounds is None or bounds.max >= requested for bounds, requested in now.values()))
    end = {planned.group.key: (planned.bounds, planned.requested) for planned in found.groups}

    def total(look: dict) -> int:
        # Cluster Autoscaler does not see a group without bounds.
        return sum(bounds.max for bounds, _ in look.values() if bounds is not None)

    unseen = sum(requested for bounds, requested in now.values() if bounds is None)
    # Somebody's least max is written before what another group gives up, where that stands on two objects.
    insisted = sum(planned.group.owner.least_max for planned in found.groups if planned.group.bounds is None)
    limit = max(total(now) + unseen, total(end)) + insisted
    for planned in in_safe_order(found.changes):
        for patch in patches(planned):
            bounds, requested = now[planned.group.key]
            bounds = patch.bounds or bounds
            requested = requested if patch.requested is None else patch.requested
            now[planned.group.key] = bounds, requested
            if bounds is not None:
                assert 0 <= bounds.min <= bounds.max
                assert bounds.max >= requested
            assert total(now) <= limit
    assert now == end


@settings(max_examples=60)
@given(clusters())
def test_what_was_applied_and_changed_nothing_has_no_news(world: World) -> None:
    for pool in world.plan().pools:
        if pool.mode.valid and not pool.changes and not pool.report.starved and not pool.report.overcommitted:
            assert pool.digest(applied=False) == ""
