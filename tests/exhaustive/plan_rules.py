"""The rules of every plan of a pool, each with the promise of docs/guarantees.md that it checks.

They are checked in all small worlds (`small_worlds`) and in random large ones (test_plan_properties.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.groups import Bounds, GroupKey, State
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.policy import PoolRule
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.writes import in_safe_order, patches
from tests.builders import applied
from tests.property.worlds import World

PlanRule = Callable[[World, PoolPlan], None]
PLAN_RULES: dict[PlanRule, str] = {}


def keeps(promise: str) -> Callable[[PlanRule], PlanRule]:
    """Note the promise that a rule checks."""

    def note(rule: PlanRule) -> PlanRule:
        PLAN_RULES[rule] = promise
        return rule

    return note


@keeps("Bounds are valid at every moment.")
def bounds_are_ordered_and_hold_the_requested(_world: World, pool: PoolPlan) -> None:
    assert all(0 <= bounds.min <= planned.requested <= bounds.max for planned, bounds in written(pool))


@keeps("No running node is removed,")
def running_nodes_stay(_world: World, pool: PoolPlan) -> None:
    assert all(each.requested >= min(each.group.running, each.group.requested) for each in pool.groups)


@keeps("Moves conserve replicas.")
def a_move_keeps_the_sum(world: World, pool: PoolPlan) -> None:
    """Above PoolMaximum, nothing is ordered again. The pool is cut to PoolMaximum, and not below."""
    if pool_rule(world).on_failure is not OnFailure.MOVE:
        assert not pool.moves
    elif not pool_rule(world).min:
        counted, target = before(pool), sum(planned.target for planned in pool.groups)
        gives = -sum(min(0, planned.journal_delta) for planned in pool.groups)
        takes = sum(max(0, planned.journal_delta) for planned in pool.groups)
        above = max(0, counted - pool.max)
        cut = min(above, gives + sum(may_be_taken_back(world, planned) for planned in pool.groups))
        assert target == counted - cut
        assert takes == max(0, gives - above)
        assert all(each.requested != each.group.requested for each in pool.groups if each.journal_delta)


@keeps("Moves conserve replicas.")
def replicas_stay_where_they_are_held(world: World, pool: PoolPlan) -> None:
    """A fenced zone keeps them on hold, and if they would fail in each zone."""
    for planned in pool.groups:
        if planned.state is State.FENCED and (pool_rule(world).on_failure is OnFailure.HOLD or is_held(world, planned)):
            assert planned.requested == planned.group.requested


@keeps("Released replicas are ordered once,")
def replicas_without_a_node_leave_fenced_zones_for_healthy_ones(world: World, pool: PoolPlan) -> None:
    """A zone that gets some has no further room, because the autoscaler would order them again."""
    for planned, bounds in written(pool):
        if planned.journal_delta < 0:
            assert planned.state is State.FENCED
            assert -planned.journal_delta <= planned.group.waiting
        if planned.journal_delta > 0:
            assert planned.state is State.HEALTHY
            if world.policy.settings.autoscaler:
                assert bounds.max == max(planned.requested, planned.group.owner.least_max)


@keeps("Demand up to PoolMaximum is met")
def replicas_stay_within_the_numbers_or_the_pool_is_starved(_world: World, pool: PoolPlan) -> None:
    """Replicas without a machine in a group that may not grow do not count for PoolMaximum."""
    requested = sum(each.group.requested for each in pool.groups)
    planned = sum(each.requested for each in pool.groups)
    assert planned - pool.report.uncounted <= max(requested, pool.max)
    assert planned >= min(requested, pool.min) - pool.report.starved


@keeps("Frozen objects are not written.")
def frozen_groups_are_not_written(_world: World, pool: PoolPlan) -> None:
    for planned in pool.groups:
        assert planned.group.frozen_because is None or planned.state is State.FROZEN
        if planned.state is State.FROZEN:
            assert not planned.journal_delta
            assert not planned.changes
            assert not patches(planned)


@keeps("A large outage is fenced in the first run.")
def fenced_zones_get_nothing_and_a_probe_is_one_machine(_world: World, pool: PoolPlan) -> None:
    for planned, bounds in written(pool):
        fences = planned.group.annotations.fencing_enabled
        if planned.state is State.FENCED:
            assert planned.requested <= planned.group.requested
            assert not fences or bounds.max == max(planned.requested, planned.group.owner.least_max)
        if planned.state is State.PROBING and fences:
            probe = planned.requested + (planned.group.running >= planned.requested)
            assert bounds.max <= max(probe, planned.group.owner.least_max)


@keeps("Orders for pods stay within every limit,")
def growth_keeps_to_the_limits(_world: World, pool: PoolPlan) -> None:
    """These are zone-max and the owner's range of replicas."""
    for planned, bounds in written(pool):
        now, insisted, limits = planned.group.requested, planned.group.owner.least_max, planned.group.owner
        cap, range = planned.group.annotations.zone_max, limits.allowed_replicas
        if cap is not None:
            assert planned.requested <= max(now, cap)
            assert bounds.max <= max(planned.requested, cap, insisted)
        if range is not None:
            assert min(now, range.min) <= planned.requested <= max(now, range.max)


@keeps("Balanced does not pass PoolMaximum.")
def maxima_add_up_to_pool_maximum(_world: World, pool: PoolPlan) -> None:
    """Or to the fixed sum, if that is more: targets, room of frozen groups, and the one node of OpenShift's max."""
    if pool.strategy is not BALANCED:
        return
    frozen = [each for each in pool.groups if each.state is State.FROZEN and each.may_grow and each.group.bounds]
    fixed = sum(each.target + max(0, each.group.owner.least_max - each.requested) for each, _ in written(pool))
    fixed += sum(each.target for each in pool.groups if each.state is State.FROZEN)
    fixed += sum(max(0, (each.group.bounds or NONE).max - each.requested) for each in frozen)
    sizes = [max(p.requested, (p.bounds or NONE).max) if p.may_grow else p.target for p in pool.groups]
    assert sum(sizes) <= max(pool.max, fixed)
    if not pool.moves and any(each.state is State.HEALTHY and is_uncapped(each) for each in pool.groups):
        assert sum(sizes) == max(pool.max, fixed)


@keeps("Balanced does not pass PoolMaximum.")
def maxima_between_two_patches_stay_below_the_old_or_new_sum(_world: World, pool: PoolPlan) -> None:
    """If no group starts with a max below its replicas. Cluster-autoscaler does not see a group without bounds."""
    now = {each.group.key: (each.group.bounds, each.group.requested) for each in pool.groups}
    end = {each.group.key: (each.bounds, each.requested) for each in pool.groups}
    if any(bounds is not None and bounds.max < requested for bounds, requested in now.values()):
        return
    unseen = sum(requested for bounds, requested in now.values() if bounds is None)
    insisted = sum(each.group.owner.least_max for each in pool.groups if each.group.bounds is None)
    # A group without bounds that loses replicas gets bounds around both numbers, before others get narrower ones.
    losers = [each for each in pool.groups if each.group.bounds is None and each.requested < each.group.requested]
    opened = sum(max((each.bounds or NONE).max, each.group.requested) for each in losers)
    limit = max(sum_of_maxima(now) + unseen, sum_of_maxima(end)) + insisted + opened
    for planned in in_safe_order(pool.changes):
        for patch in patches(planned):
            bounds, requested = now[planned.group.key]
            bounds, requested = patch.bounds or bounds, requested if patch.requested is None else patch.requested
            now[planned.group.key] = bounds, requested
            assert bounds is None or 0 <= bounds.min <= bounds.max >= requested
            assert sum_of_maxima(now) <= limit
    assert now == end


@keeps("Demand up to PoolMaximum is met")
def minima_add_up_and_each_healthy_zone_has_room(world: World, pool: PoolPlan) -> None:
    """If the pool is plain: nothing limits a group but its zone's failures."""
    if pool.strategy is not BALANCED or not is_plain(world):
        return
    fenced = [each.state is State.FENCED and each.group.annotations.fencing_enabled for each in pool.groups]
    solid = [
        min(each.requested, each.group.running) if is_fenced else each.requested
        for each, is_fenced in zip(pool.groups, fenced, strict=True)
    ]
    assert sum((each.bounds or NONE).min for each in pool.groups) == min(pool.min, sum(solid))
    headroom = pool.max - sum(each.requested for each in pool.groups)
    if headroom >= 2 * len(pool.groups) and not pool.moves:
        assert all(bounds.max > p.requested for p, bounds in written(pool) if p.state is State.HEALTHY)


def becomes_quiet(world: World) -> int:
    """ "A quiet cluster is not patched." Apply plans until one changes nothing, and return how many were needed."""
    for rounds in range(4):
        plan = world.plan()
        if not plan.changes:
            break
        assert rounds < 3, [(each.group.key, each.group.bounds, each.bounds) for each in plan.changes]
        world = after(world, plan)
    assert not after(world, plan).plan().changes
    return rounds


def check(world: World) -> None:
    """Check every rule. The error names the promise and the world."""
    plan = world.plan()
    (pool,) = plan.pools
    # The state includes what the plan has observed, such as a late machine.
    world = replace(world, state=replace(world.state, groups={**world.state.groups, **plan.states}))
    for rule, promise in PLAN_RULES.items():
        try:
            rule(world, pool)
        except AssertionError as error:
            raise AssertionError(f"{promise} {rule.__name__}: {world} {pool}") from error


# Terms of the rules

NONE = Bounds(0, 0)


def after(world: World, plan: Plan) -> World:
    """Return the world after every patch of a plan."""
    observation, state = applied(plan, world.state)
    return replace(world, observation=observation, state=state)


def pool_rule(world: World) -> PoolRule:
    """Return the settings of the world's pool."""
    return world.policy.pools[0]


def written(pool: PoolPlan) -> list[tuple[GroupPlan, Bounds]]:
    """Return the groups that Evenkeel may write, each with its bounds."""
    return [(each, each.bounds) for each in pool.groups if each.state is not State.FROZEN and each.bounds is not None]


def before(pool: PoolPlan) -> int:
    """Return the replicas that count before the plan, without those that a group which may not grow cannot have."""
    return sum(each.group.requested - (each.requested - each.target) for each in pool.groups)


def may_be_taken_back(world: World, planned: GroupPlan) -> int:
    """Return the replicas that an over-committed pool may remove here in addition to those that move."""
    group = planned.group
    if planned.state is State.FROZEN or (planned.state is State.FENCED and is_held(world, planned)):
        return 0
    least = group.owner.allowed_replicas.min if group.owner.allowed_replicas else 0
    return max(0, group.requested + min(0, planned.journal_delta) - max(group.running, least))


def is_held(world: World, planned: GroupPlan) -> bool:
    """Return True if the group's failure is one of the group, and not of its zone."""
    known = world.state.groups.get(planned.group.key)
    is_of_zone = planned.group.identity.zone in world.state.zones or planned.group.status.launches_stopped is not None
    return known is not None and not known.failure.failure_class.moves_elsewhere and not is_of_zone


def is_uncapped(planned: GroupPlan) -> bool:
    """Return True if neither zone-max, an owner's range nor a slow start limits the group."""
    limited = planned.group.annotations.zone_max is not None or planned.group.owner.allowed_replicas is not None
    return not limited and not any(reason.rule is Rule.SLOW_START for reason in planned.reasons)


def is_plain(world: World) -> bool:
    """Return True if nothing limits a group of the world's pool but failures of its zone."""
    groups, states = world.observation.groups, world.state.groups.values()
    return not any(state.arrivals.slow_start for state in states) and all(
        group.annotations.weight == 1
        and not group.owner.least_max
        and group.owner.allowed_replicas is None
        and group.annotations.zone_max is group.annotations.zone_min is None
        and group.frozen_because is group.status.launches_stopped is None
        for group in groups
    )


def sum_of_maxima(sizes: Mapping[GroupKey, tuple[Bounds | None, int]]) -> int:
    """Return the sum of the maxima that cluster-autoscaler sees."""
    return sum(bounds.max for bounds, _ in sizes.values() if bounds is not None)
