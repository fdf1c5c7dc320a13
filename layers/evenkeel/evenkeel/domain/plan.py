"""``plan()``: from what is observed, remembered and wished to what should be written, and why.

One pure function, called by the deployed worker, by dry run, by ``operator plan`` and by ``evenkeel plan``. It has a
reason for every group, written or left alone.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.bounds.balanced import Dealt, deal
from evenkeel.domain.bounds.distribute import distribute_rolling, pool_rolling
from evenkeel.domain.bounds.gep24 import FORMULAS, Seat, Size
from evenkeel.domain.bounds.safety import safe_bounds
from evenkeel.domain.health.backoff import state_at
from evenkeel.domain.health.failures import classify
from evenkeel.domain.health.observed import CONTEST_REVERTS, see
from evenkeel.domain.membership.pausing import hold
from evenkeel.domain.membership.pools import find_pools
from evenkeel.domain.model.choices import Strategy
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup, Observation, Rolling, State
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.plans import GroupPlan, Plan, PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.pools import Pool, tie_of
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState, Sighting
from evenkeel.domain.model.ulids import time_of
from evenkeel.domain.replicas.redistribution import (
    Target,
    probe_the_unseen,
    raise_to_minimum,
    raise_to_own_minimum,
    redistribute,
    take_back_overshoot,
)
from evenkeel.domain.replicas.requests import SCALE_REQUEST_KEPT, TOO_OLD, give_back, grow, share_out

# Cluster Autoscaler's loop is 10 s; a /scale patch of its that was under way has landed by then.
SECOND_LOOK = timedelta(seconds=15)


# How long a look that found no more than half of a pool's groups waits for another one.
FEW_LAST = timedelta(minutes=1)


def plan(observation: Observation, state: ClusterState, policy: Policy, now: datetime) -> Plan:
    """What to write, and why, for every pool of a cluster.

    Args:
        observation: One complete look at the cluster.
        state: Backoffs, impaired zones and what is remembered of the pools.
        policy: The cluster record's wishes.
        now: An aware datetime; the only clock there is.
    """
    found, in_none = find_pools(observation.groups, policy, state.pools)
    pools = [hold(pool, policy.paused, now) for pool in found]
    news: dict[GroupKey, GroupState] = {}
    for pool in pools:
        for group in pool.groups:
            known = state.groups.get(group.key)
            timeout = group.provision_timeout or pool.provision_timeout
            seen = see(group, known, now, pool.backoff, timeout, _of_sets(group, state))
            if seen is not None and seen is not known:
                news[group.key] = seen
    remembered = replace(state, groups={**state.groups, **news}) if news else state
    scale_requests, refusals = share_out(state.scale_requests, pools, state.pools, now)
    planned = [_plan_pool(pool, scale_requests.get(pool.id), remembered, now) for pool in pools]
    return Plan(
        now=now,
        pools=tuple(pool for pool, _ in planned),
        skipped=observation.skipped + tuple(in_none),
        states=news,
        refusals=tuple(refusals),
        pool_states={
            pool.id: pool.remembered for pool, _ in planned if pool.remembered != state.pools.get(pool.id, PoolState())
        },
        look_at=min((moment for _, moments in planned for moment in moments), default=None),
    )


def _of_sets(group: NodeGroup, state: ClusterState) -> list[GroupState]:
    """What is remembered under the names of the MachineSets that the group owns."""
    if not state.groups:
        return []
    keys = [GroupKey(group.key.flavour, group.key.namespace, name) for name in group.sets]
    return [state.groups[key] for key in keys if key in state.groups]


def _state_of(pool: Pool, group: NodeGroup, state: ClusterState, now: datetime) -> State:
    known = state.groups.get(group.key)
    contested = known is not None and known.contested_since is not None and not known.contested_replicas
    if group.frozen_because is not None or contested:
        return State.FROZEN
    return state_at(known, now, state.zones.get(group.zone or ""), pool.backoff)


def _states_of(pool: Pool, state: ClusterState, now: datetime) -> list[State]:
    """What each group may do now. Where none is healthy, a fenced one is tried to which a node has come.

    So a hiccup that all zones had at once is over as soon as one delivers; a trial that fails fences it anew, and only
    another node that comes gives it another.
    """
    states = [_state_of(pool, group, state, now) for group in pool.groups]
    if State.HEALTHY in states or State.FENCED not in states:
        return states
    return [
        State.PROBING if found is State.FENCED and _may_be_tried(group, state, now) else found
        for group, found in zip(pool.groups, states, strict=True)
    ]


def _may_be_tried(group: NodeGroup, state: ClusterState, now: datetime) -> bool:
    known = state.groups.get(group.key)
    impaired = state.zones.get(group.zone or "")
    by_zone = impaired is not None and now < impaired
    return known is not None and known.has_arrivals and not by_zone and group.running >= group.requested > 0


def _why_state(group: NodeGroup, found: State, state: ClusterState, now: datetime) -> list[str]:
    """Why a group is not healthy, in one sentence."""
    known = state.groups.get(group.key)
    if known is not None and known.contested_replicas and group.frozen_because is None:
        told = [
            f"replicas stay as they are: {known.contested_by} put them back {CONTEST_REVERTS} times within an hour; "
            "operator resume tries again"
        ]
    else:
        told = []
    if found is State.HEALTHY:
        return told
    if found is State.FROZEN and group.frozen_because is None and known is not None:
        return [
            f"frozen: {known.contested_by} put our bounds back {CONTEST_REVERTS} times within an hour; "
            "operator resume tries again"
        ]
    if found is State.FROZEN:
        return [f"frozen: {group.frozen_because}"]
    impaired = state.zones.get(group.zone or "")
    if found is State.FENCED and impaired is not None and now < impaired:
        return [f"fenced: zone {group.zone} is impaired until {impaired:%Y-%m-%dT%H:%M:%SZ}", *told]
    if known is None:
        return told
    what = f"{known.failure_class.value} failure {known.failures}"
    if found is State.FENCED:
        return [f"fenced: {what}, in backoff until {known.backoff_until:%Y-%m-%dT%H:%M:%SZ}", *told]
    if known.backoff_until is not None and now <= known.backoff_until:
        return [f"probing: a node has come since {what}, so its backoff is over", *told]
    return [f"probing: backoff after {what} is over, no new node seen yet", *told]


def _untouched(pool: Pool, state: ClusterState, now: datetime, why: str) -> PoolPlan:
    """Every group stays as it is: the pool is invalid, or too few of its groups are there to be judged."""
    groups = []
    for group in pool.groups:
        found = _state_of(pool, group, state, now)
        reasons = [*_why_state(group, found, state, now), f"left alone: {why}"]
        groups.append(
            GroupPlan(group=group, state=found, requested=group.requested, bounds=group.bounds, reasons=tuple(reasons))
        )
    return PoolPlan(
        id=pool.id,
        strategy=pool.strategy,
        min=pool.min,
        max=pool.max,
        valid=not pool.problems,
        problems=pool.problems + pool.warnings,
        starved=0,
        overcommitted=False,
        groups=tuple(groups),
        remembered=pool.state,
        known_as=pool.state_of,
        judged=False,
    )


def _sighting(pool: Pool, now: datetime) -> tuple[Sighting, bool, str]:
    """What is requested now and since when, whether others changed it, and the group that they let grow most."""
    requested = {str(group.key): group.requested for group in pool.groups}
    before = pool.state.seen
    if before is None:
        return Sighting(since=now, requested=requested), False, ""
    expected = {**before.requested, **before.planned}
    if requested in (before.requested, expected):
        planned = before.planned if requested == before.requested else {}
        return replace(before, requested=requested, planned=planned, few_since=None), False, ""
    grown = {
        str(group.key): more
        for group in pool.groups
        if (more := group.requested - expected.get(str(group.key), group.requested)) > 0
    }
    ties = {str(group.key): tie_of(str(pool.id), group) for group in pool.groups} if len(grown) > 1 else {}
    grower = max(grown, key=lambda key: (grown[key], ties.get(key, 0)), default="")
    return Sighting(since=now, requested=requested), True, grower


def _few_of_them(pool: Pool) -> bool:
    """Whether no more than half of the groups are here that were here at the last look: half a list, perhaps."""
    known = set(pool.state.seen.requested) if pool.state.seen else set()
    found = known & {str(group.key) for group in pool.groups}
    return bool(known) and 2 * len(found) <= len(known)


def _plan_pool(
    pool: Pool, scale_request: ScaleRequest | None, state: ClusterState, now: datetime
) -> tuple[PoolPlan, list[datetime]]:
    """The pool's plan, and the moments at which time alone may change it."""
    if pool.problems or pool.min is None or pool.max is None:
        return _untouched(pool, state, now, "its pool is invalid"), []
    if _few_of_them(pool) and pool.state.seen is not None:
        since = pool.state.seen.few_since or now
        if now < since + FEW_LAST:
            held = replace(pool, state=replace(pool.state, seen=replace(pool.state.seen, few_since=since)))
            why = "no more than half of the pool's groups were found: a second look must find the same"
            return _untouched(held, state, now, why), [since + FEW_LAST]
    seen, others_changed, grower = _sighting(pool, now)
    moments = [now + SECOND_LOOK] if others_changed else []
    name = str(pool.id)
    states = _states_of(pool, state, now)
    targets = [_target(pool, name, group, found, state, now) for group, found in zip(pool.groups, states, strict=True)]
    counted = [target.alive if target.state is State.FENCED else target.group.requested for target in targets]
    ceiling = pool.max - _spoken_for(pool, targets)
    # A move orders no more than was requested: what frozen groups keep free is no reason to lose replicas on the way.
    owed = redistribute(
        targets,
        pool.on_failure,
        pool.max,
        pool.owed,
        waits=pool.scale_request is not None,
        autoscaler=pool.autoscaler,
    )
    take_back_overshoot(targets, pool.max, pool.on_failure)
    if pool.autoscaler:
        probe_the_unseen(targets, ceiling)
    waits = None
    if pool.scale_request is None and (owed or pool.owed or any(target.journal_delta for target in targets)):
        scale_request, waits = None, scale_request  # one journal tells one story
    stood_since = now if any(target.requested < target.group.requested for target in targets) else seen.since
    # What pods need, the autoscaler has ordered again by then; raised at once, it would be ordered twice.
    first_seen = pool.state.seen is None and stood_since == seen.since
    raises = not pool.autoscaler or first_seen or now >= stood_since + pool.still
    dealt: Dealt | None = None

    def sized() -> list[Size]:
        nonlocal dealt
        seats = [_seat(target, count, pool.strategy) for target, count in zip(targets, counted, strict=True)]
        minimum, maximum = pool.min or 0, pool.max or 0
        if pool.strategy is not Strategy.BALANCED:
            return FORMULAS[pool.strategy](minimum, maximum, seats)
        dealt = deal(
            minimum,
            maximum,
            seats,
            pool.state.published,
            grower=grower,
            stood_since=seen.since,
            still=pool.still,
            now=now,
        )
        return dealt.sizes

    missing = 0
    if pool.strategy in (Strategy.BACKWARD_COMPATIBLE, Strategy.ADAPTIVE):
        # In this order: nodes levelled first would mostly stand elsewhere than the minima want them, and be paid twice.
        sizes = sized()
        if raises:
            raise_to_own_minimum(targets, [size.min for size in sizes], ceiling)
            missing = raise_to_minimum(targets, pool.min, ceiling)
        unplaced = _carry_out_request(scale_request, targets, sized, pool, now)
    else:
        missing = raise_to_minimum(targets, pool.min, ceiling) if raises else 0
        unplaced = _carry_out_request(scale_request, targets, sized, pool, now)
        sizes = sized()
    if not raises and sum(target.requested for target in targets) < pool.min:
        moments.append(stood_since + pool.still)

    groups = []
    for target, size, share in zip(targets, sizes, _rolling(pool), strict=True):
        bounds, reasons = _bounds_of(target, size, pool, now)
        reasons = _why_state(target.group, target.state, state, now) + target.reasons + reasons
        if target.group.closed_because is not None and target.requested == 0:
            reasons.append(target.group.closed_because)
        if share is not None:
            reasons.append(
                f"rolling update: this zone's share is maxSurge {share.max_surge}, "
                f"maxUnavailable {share.max_unavailable} (reported, not written)"
            )
        if target.requested == target.group.requested and bounds == target.group.bounds:
            reasons.append("left alone: it is as it should be")
        groups.append(
            GroupPlan(
                group=target.group,
                state=target.state,
                requested=target.requested,
                bounds=bounds,
                reasons=tuple(reasons),
                rolling=share,
                journal_delta=target.journal_delta,
                may_remove_running=target.may_remove_running,
                failed_at=_unanswered(target, state),
            )
        )
    requested = sum(target.requested for target in targets)
    starved = missing + owed + sum(target.missing for target in targets)
    if all(target.state is State.FROZEN for target in targets):
        starved = owed  # paused or asleep: nobody waits for a zone to take its nodes
    problems = list(pool.warnings)
    if requested > pool.max:
        problems.append(f"over-committed: {requested} requested, PoolMaximum is {pool.max}: nobody may grow")
    offered = sum(plan.bounds.max for plan in groups if plan.bounds is not None)
    floors = any(target.group.owner_min_max > target.requested for target in targets)
    if pool.strategy is Strategy.BALANCED and floors and offered > pool.max >= requested:
        problems.append(
            f"over-offered: the maxima add up to {offered}, PoolMaximum is {pool.max}: the owner of the bounds accepts "
            "no max below 1, so keep a node of PoolMaximum free for each empty zone"
        )
    if starved:
        problems.append(f"starved: {starved} nodes find no healthy zone that can take them")
    if waits is not None:
        problems.append(f"growth: {waits.what}: it waits for the end of a move between zones")
    if scale_request is not None and unplaced:
        what = "find no room" if scale_request.nodes > 0 else "have to stay"
        too_old = now - scale_request.at > SCALE_REQUEST_KEPT
        problems.append(
            f"growth: {scale_request.what}: {TOO_OLD}"
            if too_old
            else f"growth: {unplaced} of {scale_request.what} {what}"
        )
    planned = {str(t.group.key): t.requested for t in targets if t.requested != t.group.requested}
    seen = replace(seen, planned=planned, since=now if planned and planned != seen.planned else seen.since)
    moments += [moment + timedelta(seconds=1) for moment in _ends(targets, state, now)]
    if dealt is not None and dealt.look_at is not None:
        moments.append(dealt.look_at)
    return PoolPlan(
        id=pool.id,
        strategy=pool.strategy,
        min=pool.min,
        max=pool.max,
        valid=True,
        problems=tuple(problems),
        starved=starved,
        overcommitted=requested > pool.max,
        groups=tuple(groups),
        remembered=replace(pool.state, seen=seen, published=dealt.publication if dealt else None),
        known_as=pool.state_of,
        carried=pool.owed,
        owed=owed,
        contested=tuple(
            str(group.key)
            for group in pool.groups
            if (known := state.groups.get(group.key)) is not None and known.contested_since is not None
        ),
        scale_request=scale_request,
        missing=unplaced,
    ), moments


def _bounds_of(target: Target, size: Size, pool: Pool, now: datetime) -> tuple[Bounds | None, list[str]]:
    """What is published for a group: what its strategy says, less every cap on growth, and then made safe."""
    group = target.group
    if target.state is State.FROZEN:
        return group.bounds, []
    maximum, reasons = size.max, []
    if target.state is State.FENCED and group.fencing_enabled:
        maximum = target.requested
        reasons.append(f"max is the {target.requested} requested: a fenced zone gets no growth")
    elif pool.autoscaler and _has_moved_machines_coming(target, pool, now):
        maximum = target.requested
        reasons.append("max is what is requested: Cluster Autoscaler would order what is on its way again")
    else:
        reasons.append(size.why)
        if target.state is State.PROBING and group.fencing_enabled and maximum > target.requested + target.probe:
            maximum = target.requested + target.probe
            reasons.append(f"max cut to {maximum}: a probing zone may have one machine on its way")
    if group.worker_range is not None and maximum > max(group.worker_range.max, target.requested):
        maximum = max(group.worker_range.max, target.requested)
        reasons.append(f"max cut to {maximum}: the Worker's share of the zone is {group.worker_range.max}")
    bounds, cuts = safe_bounds(
        size.min, maximum, target=target.requested, owner_min_max=group.owner_min_max, zone_max=group.zone_max
    )
    return bounds, reasons + cuts


def _spoken_for(pool: Pool, targets: Sequence[Target]) -> int:
    """Room under PoolMaximum that nobody may be raised into: what frozen groups keep free, and the floors of owners.

    A group whose owner accepts no max below 1 keeps that one node offered while it is empty, unless it is raised
    itself.
    """
    kept = sum(
        max(0, target.group.bounds.max - target.group.requested)
        for target in targets
        if target.state is State.FROZEN and target.group.bounds is not None
    )
    if pool.strategy is not Strategy.BALANCED:
        return kept
    return kept + sum(
        max(0, target.group.owner_min_max - target.requested)
        for target in targets
        if target.state is not State.FROZEN and not (target.state is State.HEALTHY and target.room)
    )


def _ends(targets: Sequence[Target], state: ClusterState, now: datetime) -> Iterator[datetime]:
    """When the fences of these groups end by themselves."""
    for target in targets:
        if target.state is not State.FENCED:
            continue
        known, impaired = state.groups.get(target.group.key), state.zones.get(target.group.zone or "")
        ends = [end for end in (known.backoff_until if known else None, impaired) if end is not None and end > now]
        if ends:
            yield max(ends)


def _carry_out_request(
    scale_request: ScaleRequest | None,
    targets: list[Target],
    sized: Callable[[], list[Size]],
    pool: Pool,
    now: datetime,
) -> int:
    """Nodes that are asked for or given back, into the targets. Returns how many of them could not be."""
    if scale_request is None or pool.min is None or pool.max is None:
        return 0
    if now - scale_request.at > SCALE_REQUEST_KEPT:
        return abs(scale_request.nodes)
    if scale_request.nodes <= 0:
        return give_back(targets, scale_request, pool.min) if scale_request.nodes else 0
    caps = [None if target.group.bounds is None else target.group.bounds.max for target in targets]
    ours = [_ordered_by_us(target.group, pool, now) for target in targets]
    if any(ours):
        # There the max was cut to what was requested, so that nothing is ordered twice; it is no limit for us.
        caps = [size.max if own else cap for own, size, cap in zip(ours, sized(), caps, strict=True)]
    # The room that frozen groups keep is spoken for: else the maxima would pass PoolMaximum.
    kept = _spoken_for(pool, targets) if pool.strategy is Strategy.BALANCED else 0
    return grow(targets, scale_request, caps, pool.max - kept)


def _target(pool: Pool, name: str, group: NodeGroup, found: State, state: ClusterState, now: datetime) -> Target:
    backoff = state.groups.get(group.key)
    impaired = state.zones.get(group.zone or "")
    by_zone = impaired is not None and now < impaired
    kind = backoff.failure_class if backoff is not None else FailureClass.UNKNOWN
    return Target(
        group=group,
        state=found,
        requested=group.requested,
        moves_elsewhere=by_zone or kind.moves_elsewhere,
        tie=tie_of(name, group),
        coming=group.on_its_way(now, pool.provision_timeout),
        held=_held(group),
        replicas_are_ours=backoff is None or not backoff.contested_replicas,
    )


def _held(group: NodeGroup) -> int:
    """Machines that tell a quota or a configuration failure themselves, whatever fences the group."""
    failures = [machine.failure for machine in group.refused_machines if machine.failure and not machine.preserved]
    return sum(not classify(failure.code, failure.message).moves_elsewhere for failure in failures)


def _unanswered(target: Target, state: ClusterState) -> datetime | None:
    """When the failure happened that fences the group, if what we published last does not answer it yet."""
    published = target.group.offer.state if target.group.offer else State.HEALTHY
    backoff = state.groups.get(target.group.key)
    answered = target.state is not State.FENCED or published is State.FENCED or backoff is None
    return None if answered or backoff is None else backoff.last_failure


def _has_moved_machines_coming(target: Target, pool: Pool, now: datetime) -> bool:
    """Whether machines that we ordered here for another zone are still on their way.

    Cluster Autoscaler does not count what it did not order (clusterstate.go:1126-1139): with room left, it would order
    them again.
    """
    if target.journal_delta > 0:
        return True
    return target.state is State.HEALTHY and target.group.waiting > 0 and _ordered_by_us(target.group, pool, now)


def _ordered_by_us(group: NodeGroup, pool: Pool, now: datetime) -> bool:
    """Whether a move or a request has changed the group's replicas lately."""
    return group.move is not None and now - time_of(group.move) < pool.provision_timeout


def _seat(target: Target, counted: int, strategy: Strategy) -> Seat:
    group = target.group
    state = target.state
    if state in (State.FENCED, State.PROBING) and not group.fencing_enabled and strategy is Strategy.BALANCED:
        # evenkeel.dev/fence is "false": its autoscaler backs off by itself, so it is sized as if it were healthy.
        state = State.HEALTHY
    share = group.worker_range.max if group.worker_range is not None else None
    caps = [cap for cap in (group.zone_max, share) if cap is not None]
    return Seat(
        key=str(group.key),
        counted=counted,
        target=target.requested,
        running=group.running,
        probe=target.probe,
        state=state,
        bounds=group.bounds,
        weight=group.weight,
        zone_max=min(caps, default=None),
        owner_min_max=group.owner_min_max,
        tie=target.tie,
    )


def _rolling(pool: Pool) -> list[Rolling | None]:
    """Each group's share of the pool's rolling-update numbers, where its members have any."""
    members = [group.rolling for group in pool.groups if group.rolling is not None]
    total = pool_rolling(members) if len(members) == len(pool.groups) else None
    if total is None or pool.min is None or pool.max is None:
        return [None] * len(pool.groups)
    zones = len(pool.groups)
    return [distribute_rolling(total, i, zones, minimum=pool.min, maximum=pool.max) for i in range(zones)]
