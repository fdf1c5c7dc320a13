"""Release stuck replicas, move them to other zones, or hold them. Cancel replicas above PoolMaximum.

Cluster Autoscaler keeps requesting machines in a dead zone until its timeout, and never lowers replicas to a maximum.
"""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.flavours import GIVEN_UP_WITHIN, MOST_REMOVED
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.rebalancing.replicas.changes import give, take, takes_on
from evenkeel.domain.rebalancing.replicas.release import remember_release
from evenkeel.domain.rebalancing.replicas.requested_nodes import is_of_request, place_requested, place_unplaced
from evenkeel.domain.rebalancing.replicas.thaw import added_by_thaws


def redistribute(pool: PoolDraft) -> None:
    """Release or move the lost replicas of groups. Moved replicas that no other group can get remain unplaced.

    After a release, Cluster Autoscaler forgets its order. In its next loop, it orders nodes for the pods within the new
    bounds. Measured: 13 s from the patch to running pods, with no node ordered twice. For a move, Evenkeel orders the
    machines in other groups, as far as these groups have room. A group loses only replicas whose machine neither runs
    nor is provisioning, because one refused launch says nothing about machines that are booting. A move does not start
    while a request is in progress in the pool, because the journal stores one change at a time.
    """
    unplaced = pool.pool.unplaced
    failing = [draft for draft in pool.groups if draft.state is State.FENCED or draft.machines.lost]
    losing = [(draft, lost) for draft in failing if (lost := _lost(pool, draft))]
    if not unplaced and not losing:
        return
    takers = [draft for draft in pool.groups if draft.takes]
    is_doubtful = not any([taker.state is State.HEALTHY for taker in takers])
    # If no healthy group of the pool can take the nodes, another pool gets them for the pods that wait.
    by_others = pool.given.others_take and is_doubtful
    moving = _moves(pool) and not by_others
    # Unplaced replicas of an interrupted move are placed first, except replicas above PoolMaximum, which are no longer
    # wanted. The room that frozen groups reserve is not subtracted here. Otherwise the move would lose replicas.
    pool_max = pool.pool.max
    unplaced = min(unplaced, max(0, pool_max - pool.target))
    placed = place_unplaced(pool, takers, unplaced)
    pool.replicas.unplaced = unplaced - sum(more for _, more in placed)
    # A move lowers groups by no more replicas than the takers have room for. So does a release while no taker is
    # healthy, unless another pool takes the nodes.
    is_limited = not by_others and (moving or is_doubtful)
    released = _give_up(pool, losing, takers, is_limited=is_limited, moving=moving)
    if pool.pool.settings.on_failure is OnFailure.RELEASE:
        remember_release(pool, released)
    if moving:
        nodes = min(released, max(0, pool_max - pool.target))
        give(nodes, [(taker, taker.takes) for taker in takers], takes_on)


def _lost(pool: PoolDraft, draft: Draft) -> int:
    """Return how many replicas of a group may be given up: all stuck ones of a fenced group, else those of no use."""
    return draft.stuck if draft.state is State.FENCED else _of_no_use(pool, draft)


def _of_no_use(pool: PoolDraft, draft: Draft) -> int:
    """Return how many stuck replicas need no taker, because their machines have not come through a whole backoff.

    Some controllers never retry a failed machine, and no probe is ordered in addition to it. After the release, a later
    check orders one new machine as the probe, if pods wait for it. Machines that are tried again stay, because all of
    them come at once when the zone is well. Released ones would come one by one.
    """
    return min(draft.stuck, draft.machines.lost) if pool.given.orders_for_pods else 0


def _moves(pool: PoolDraft) -> bool:
    """Return True if Evenkeel orders stuck replicas in other zones, for whatever they were ordered.

    If Evenkeel orders nodes for pods and has read the pods, it releases the replicas: each may have been ordered for a
    pod that only its zone can take. The next check orders the nodes that other zones can use.
    """
    return pool.pool.settings.on_failure is OnFailure.MOVE and not pool.given.orders_for_pods


def _give_up(
    pool: PoolDraft, losing: Sequence[tuple[Draft, int]], takers: Sequence[Draft], *, is_limited: bool, moving: bool
) -> int:
    """Lower groups by lost replicas; if ``is_limited``, by at most those of no use and as many as the takers take.

    Nodes of a scale request move first. Return the number of the others.
    """
    released = taken = 0
    for draft, lost in losing:
        if _all_stay(pool, draft):
            continue
        of_no_use = _of_no_use(pool, draft)
        room = sum(taker.takes for taker in takers) - (taken if is_limited else 0)
        free = room + of_no_use
        if is_limited and free <= 0:
            draft.health.stuck_kept = draft.stuck
            draft.add_reason(Rule.STUCK_WITHOUT_TAKER, count=draft.stuck)
            continue
        # One write removes at most MOST_REMOVED instances without a Node; later runs remove the others.
        dead = len(draft.group.dead_instances(pool.now, draft.provision_timeout))
        later = max(0, dead - MOST_REMOVED.get(draft.group.key.flavour, dead))
        lowest = min(draft.requested, max(_lowest(pool, draft) + later, draft.requested - lost))
        moved, kept = place_requested(pool, draft, draft.requested - lowest, takers, room)
        if is_limited:
            kept += max(0, draft.requested - lowest - kept - free)
        if kept:
            draft.health.stuck_kept += kept
            draft.add_reason(Rule.STUCK_WITHOUT_TAKER, count=kept)
        less = max(0, draft.requested - moved - lowest - kept)
        _lower(draft, moved, less, moving=moving)
        released += less
        taken += max(0, less - of_no_use)
    return released


def _all_stay(pool: PoolDraft, draft: Draft) -> bool:
    if pool.pool.settings.on_failure is OnFailure.HOLD:
        draft.add_reason(Rule.STUCK_ON_HOLD, count=draft.stuck)
    elif not draft.health.moves_elsewhere:
        draft.health.stuck_kept = draft.stuck
        draft.add_reason(Rule.STUCK_SAME_FAILURE, count=draft.stuck)
    elif (until := _autoscaler_gives_up_until(pool, draft)) is not None:
        pool.check_at.append(until)
        draft.add_reason(Rule.STUCK_FOR_AUTOSCALER, count=draft.stuck, until=until)
    elif pool.pool.scale_request is not None and (_moves(pool) or is_of_request(pool, draft)):
        draft.add_reason(Rule.STUCK_BEHIND_REQUEST, count=draft.stuck)
    else:
        return False
    return True


def _autoscaler_gives_up_until(pool: PoolDraft, draft: Draft) -> datetime | None:
    """Return until when the autoscaler is left to give up the group's refused launches; None: it is not, or no more."""
    within = GIVEN_UP_WITHIN.get(draft.group.key.flavour)
    if within is None or not pool.pool.settings.autoscaler:
        return None
    return held_until(draft.health.refused_since, pool.now, within)


def _lowest(pool: PoolDraft, draft: Draft) -> int:
    """Return the least number to which the replicas of a group that gives up replicas may be lowered.

    This number includes the alive replicas, and the replicas that would fail in every zone. It is not below the fewest
    replicas that the owners accept.
    """
    held = min(draft.stuck, draft.machines.held)
    if held:
        draft.health.stuck_kept = held
        draft.add_reason(Rule.STUCK_SAME_FAILURE, count=held)
    lowest = max(draft.alive + held, min(draft.owner_min, draft.requested))
    if lowest > draft.alive + held:
        count = lowest - draft.alive - held
        if draft.replicas_are_ours:
            if draft.group.owner.bounds_held:
                rule = Rule.STUCK_BY_BOUNDS
            else:
                rule = Rule.STUCK_BY_WORKER if draft.group.owner.allowed_replicas else Rule.STUCK_BY_OWNER
            draft.add_reason(rule, count=count, minimum=lowest)
        else:
            draft.add_reason(Rule.STUCK_PUT_BACK, count=count)
    # The owner of the bounds may require a max above ``lowest`` (an OpenShift MachineAutoscaler requires 1). If the
    # pool has an autoscaler, replicas up to that max remain, because the autoscaler would order each of them again in
    # its next loop. With held bounds, all replicas remain, because a moved replica would be ordered twice.
    stay = draft.group.owner.bounds_held
    offered = pool.pool.settings.autoscaler and draft.group.annotations.fencing_enabled
    offered = offered and (stay or pool.pool.settings.on_failure is OnFailure.RELEASE)
    floor = min(draft.requested if stay else draft.group.owner.least_max, draft.requested) if offered else 0
    if floor > lowest:
        draft.health.stuck_kept += floor - lowest
        draft.add_reason(Rule.STUCK_OFFERED, count=floor - lowest, offered=floor)
        lowest = floor
    return lowest


def _lower(draft: Draft, moved: int, others: int, *, moving: bool) -> None:
    """Lower a group by replicas of requests that move, and by other replicas, which move, too, or are released."""
    facts = {"running": draft.group.running, "coming": draft.machines.coming}
    moved += others if moving else 0
    take(draft, moved, Reason.of(Rule.MOVED, count=moved, **facts), journaled=True)
    if not moving:
        take(draft, others, Reason.of(Rule.RELEASED, count=others, **facts), journaled=False)


def take_back_overshoot(pool: PoolDraft) -> None:
    """Cancel replicas above PoolMaximum that have no running machine, the newest first.

    Only scale-down removes running nodes. Held replicas of fenced groups remain. What a thaw has added is cancelled
    first, and other groups lose nothing for it.
    """
    pool_max = pool.surged_max
    surplus = pool.target - pool_max
    if surplus <= 0:
        return
    waiting: list[tuple[float, int, int]] = []
    for i, draft in enumerate(pool.groups):
        held = draft.is_held or (draft.state is State.FENCED and pool.pool.settings.on_failure is OnFailure.HOLD)
        group = draft.group
        if not draft.writable or held or (pool.pool.settings.autoscaler and group.owner.bounds_held):
            continue
        if group.status.launched is None:
            coming = [machine for machine in group.machines or () if not machine.has_node and not machine.deleting]
            ages = sorted((machine.created_at.timestamp() for machine in coming if not machine.preserved), reverse=True)
            unmade, protected = group.waiting - len(ages), group.running + group.preserved
        else:
            ages, unmade, protected = [], group.waiting - draft.machines.coming, group.running + draft.machines.coming
        spare = max(0, draft.requested - max(protected, draft.owner_min))
        # A replica without a Machine object counts as newer than all machines.
        newest = [float("inf")] * max(0, unmade) + ages
        waiting += [(age, draft.tie, i) for age in newest[:spare]]
    newest_first = [pool.groups[i] for _, _, i in sorted(waiting, reverse=True)]
    for key, count in Counter(draft.key for draft in _losers(pool, newest_first, surplus)).items():
        draft = next(draft for draft in pool.groups if draft.key == key)
        take(draft, count, Reason.of(Rule.TAKEN_BACK, count=count, maximum=pool_max), journaled=False)


def _losers(pool: PoolDraft, newest: Sequence[Draft], surplus: int) -> list[Draft]:
    """Return the group of each replica to cancel: what thaws have added, and then the newest of the other surplus."""
    added = added_by_thaws(pool)
    left = dict(added)
    thawed: list[Draft] = []
    others: list[Draft] = []
    for draft in newest:
        if left.get(draft.key, 0) > 0:
            left[draft.key] -= 1
            thawed.append(draft)
        else:
            others.append(draft)
    return [*thawed[:surplus], *others[: max(0, surplus - sum(added.values()))]]
