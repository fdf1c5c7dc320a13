"""What must hold for every plan, whatever the cluster looks like."""

from collections import Counter
from dataclasses import replace

from hypothesis import assume, event, given
from hypothesis import strategies as st

from evenkeel.domain.model.groups import Bounds, State
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.writes import in_safe_order, patches
from evenkeel.texts.english import sentences
from tests.builders import applied, problems_of
from tests.property.worlds import World, clusters, pools


def _may_grow_a_little(planned: GroupPlan) -> bool:
    """Return whether a slow start caps the group."""
    return any(reason.rule is Rule.SLOW_START for reason in planned.reasons)


def _written(pool: PoolPlan) -> list[tuple[GroupPlan, Bounds]]:
    """Return the groups that Evenkeel may write, each with its bounds."""
    return [(planned, planned.bounds) for planned in pool.groups if planned.state is not State.FROZEN]


def _requested(pool: PoolPlan) -> tuple[int, int]:
    """Return the sums of replicas before and after the plan."""
    return sum(plan.group.requested for plan in pool.groups), sum(plan.requested for plan in pool.groups)


@given(pools())
def test_published_bounds_are_ordered_and_hold_the_requested(world: World) -> None:
    for planned, bounds in _written(world.pool()):
        assert 0 <= bounds.min <= planned.requested <= bounds.max


@given(pools())
def test_a_running_node_is_never_removed(world: World) -> None:
    for planned in world.pool().groups:
        assert planned.requested >= min(planned.group.running, planned.group.requested)


@given(pools())
def test_replicas_of_a_pool_stay_within_its_numbers(world: World) -> None:
    pool = world.pool()
    before, after = _requested(pool)
    # Replicas without a machine in a group that may not grow do not count.
    assert after - pool.report.uncounted <= max(before, pool.max)
    if after < min(before, pool.min):
        # Only where no healthy zone has room for what the fenced ones gave up.
        assert pool.report.starved >= min(before, pool.min) - after


@given(pools())
def test_frozen_groups_are_not_written(world: World) -> None:
    for planned in world.pool().groups:
        assert planned.group.frozen_because is None or planned.state is State.FROZEN
        if planned.state is State.FROZEN:
            assert planned.journal_delta == 0
            assert not planned.changes
            assert patches(planned) == []


@given(pools())
def test_fenced_groups_get_no_growth(world: World) -> None:
    for planned, bounds in _written(world.pool()):
        if planned.state is State.FENCED:
            assert planned.requested <= planned.group.requested
            if planned.group.annotations.fencing_enabled:
                assert bounds.max == max(planned.requested, planned.group.owner.least_max)


@given(pools())
def test_probing_groups_may_grow_by_one_machine(world: World) -> None:
    for planned, bounds in _written(world.pool()):
        if planned.state is State.PROBING and planned.group.annotations.fencing_enabled:
            waits_for_one = planned.group.running < planned.requested
            assert bounds.max <= max(planned.requested + (not waits_for_one), planned.group.owner.least_max)


@given(pools())
def test_slow_start_limits_machines_on_their_way(world: World) -> None:
    plan = world.plan()
    states = {**world.state.groups, **plan.states}
    for planned, bounds in _written(plan.pools[0]):
        state = states.get(planned.group.key)
        nodes = state.arrivals.slow_start if state else 0
        if nodes and planned.state is State.HEALTHY and planned.group.annotations.fencing_enabled:
            top = max(planned.group.requested, planned.group.running + nodes)
            assert planned.requested <= top
            assert bounds.max <= max(top, planned.group.owner.least_max)


@given(pools())
def test_growth_keeps_to_zone_max(world: World) -> None:
    for planned, bounds in _written(world.pool()):
        cap = planned.group.annotations.zone_max
        if cap is not None:
            assert planned.requested <= max(planned.group.requested, cap)
            assert bounds.max <= max(planned.requested, cap, planned.group.owner.least_max)


@given(pools())
def test_replicas_stay_within_the_range_of_their_owner(world: World) -> None:
    for planned in world.pool().groups:
        limits = planned.group.owner.allowed_replicas
        if limits is not None:
            assert planned.requested <= max(planned.group.requested, limits.max)
            assert planned.requested >= min(planned.group.requested, limits.min)


@given(pools(strategies=(BALANCED,)) | pools(strategies=(BALANCED,), plain=True))
def test_balanced_maxima_add_up_to_the_pool_maximum(world: World) -> None:
    """Or to what is fixed, where that is more: targets, room of frozen groups, and the one node of OpenShift's max.

    Of a group that may not grow, only the replicas count that it can have.
    """
    found = world.pool()
    targets = sum(planned.target for planned in found.groups)
    frozen = [planned for planned in found.groups if planned.state is State.FROZEN and planned.may_grow]
    kept = sum(max(0, one.group.bounds.max - one.requested) for one in frozen if one.group.bounds is not None)
    insisted = sum(max(0, planned.group.owner.least_max - planned.requested) for planned, _ in _written(found))
    total = sum(
        max(planned.requested, planned.bounds.max if planned.bounds else 0) if planned.may_grow else planned.target
        for planned in found.groups
    )
    assert total <= max(found.max, targets + kept + insisted)
    uncapped = [
        planned
        for planned in found.groups
        if planned.group.annotations.zone_max is None
        and planned.group.owner.allowed_replicas is None
        and not _may_grow_a_little(planned)
    ]
    if any(planned.state is State.HEALTHY for planned in uncapped) and not found.moves:
        event("a healthy zone without a cap")
        assert total == max(found.max, targets + kept + insisted)


@given(pools(strategies=(BALANCED,), plain=True))
def test_balanced_minima_add_up_to_the_pool_minimum(world: World) -> None:
    found = world.pool()
    solid = [
        min(planned.group.running, planned.requested)
        if planned.state is State.FENCED and planned.group.annotations.fencing_enabled
        else planned.requested
        for planned in found.groups
    ]
    assert sum(planned.bounds.min for planned in found.groups if planned.bounds) == min(found.min, sum(solid))


@given(pools(strategies=(BALANCED,), plain=True))
def test_balanced_leaves_every_healthy_zone_room(world: World) -> None:
    found = world.pool()
    headroom = found.max - sum(planned.requested for planned in found.groups)
    assume(headroom >= 2 * len(found.groups))
    assume(not found.moves)
    for planned in found.groups:
        if planned.state is State.HEALTHY and not _may_grow_a_little(planned):
            assert planned.bounds.max > planned.requested


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
    for key in skipped & placed:  # one that carries what we wrote is in no pool, and restored
        placed[key] -= 1
    placed += skipped
    assert placed == Counter((member.key.namespace, member.key.name) for member in world.observation.groups)
    for pool in found.pools:
        assert all(sentences(planned.reasons) and all(sentences(planned.reasons)) for planned in pool.groups)
        assert pool.mode.valid or (problems_of(pool.report.problems) and not pool.changes)
    assert all(skipped.reason for skipped in found.skipped)


@given(clusters() | pools())
def test_an_unchanged_cluster_is_not_patched(world: World) -> None:
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
def test_an_unchanged_cluster_is_not_patched_without_stored_state(world: World) -> None:
    """The command line plans from objects alone: what the annotations carry must be enough."""
    world = replace(world, state=replace(world.state, pools={}))
    for _ in range(4):
        found = world.plan()
        observation, state = applied(found, world.state)
        world = replace(world, observation=observation, state=replace(state, pools={}))
    assert not world.plan().changes


@given(pools())
def test_maxima_between_patches_stay_below_the_old_or_new_sum(world: World) -> None:
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


@given(clusters())
def test_a_plan_without_changes_has_a_digest_only_if_a_group_is_in_doubt(world: World) -> None:
    for pool in world.plan().pools:
        if pool.mode.valid and not pool.changes and not pool.report.starved and not pool.report.overcommitted:
            in_doubt = [plan.state in (State.FENCED, State.PROBING) for plan in pool.groups]
            assert bool(pool.digest(applied=False)) == any(in_doubt)
