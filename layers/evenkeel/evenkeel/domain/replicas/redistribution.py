"""What becomes of replicas that nobody delivers: released, moved to other zones, held; and of those beyond PoolMaximum.

Cluster Autoscaler keeps asking a dead zone until its timeout, and never lowers a group to a maximum.
"""

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.replicas.raising import raise_together
from evenkeel.domain.replicas.release import remember_release


def redistribute(pool: PoolDraft) -> None:
    """What is stuck in fenced groups goes elsewhere; what finds no place there stays unplaced.

    Release: Cluster Autoscaler forgets its order and places the pods in its next loop within the new bounds: measured,
    13 s from the patch to running pods, and nothing ordered twice. Move: the machines are ordered elsewhere by us, as
    many as there is room for. Either way, only replicas whose machine neither runs nor is on its way leave a group: one
    refused launch says nothing against those that boot beside it. A move waits where growth on request is under way in
    the pool: one journal tells one story.
    """
    unplaced = pool.pool.unplaced
    if not unplaced and not any(draft.state is State.FENCED and draft.stuck for draft in pool.groups):
        return
    takers = [draft for draft in pool.groups if draft.takes_nodes]
    room = sum(draft.room for draft in takers)
    moving = pool.pool.on_failure is OnFailure.MOVE
    # What an interrupted move gave up comes first. What does not fit under PoolMaximum is no longer wanted; what frozen
    # groups keep free is no reason to lose replicas on the way.
    maximum = pool.pool.max
    requested = pool.requested
    unplaced = min(unplaced, max(0, maximum - requested))
    placed = min(unplaced, room)
    released = _give_up(pool, room - placed if moving else None, has_takers=bool(takers))
    if pool.pool.on_failure is OnFailure.RELEASE:
        remember_release(pool, released)
    if moving:
        placed += min(released, max(0, maximum - (requested - released) - placed))
    for draft, more in raise_together(takers, placed):
        draft.journal_delta = more
        draft.because(Rule.TAKES_ON, count=more)
    pool.unplaced = max(0, unplaced - placed)


def _give_up(pool: PoolDraft, room: int | None, *, has_takers: bool) -> int:
    """Fenced groups give up stuck replicas, ``room`` of them at most (None: no limit). Returns how many."""
    released = 0
    for draft in pool.groups:
        if draft.state is not State.FENCED or not draft.stuck or _all_stay(pool, draft):
            continue
        if not has_takers or (room is not None and released >= room):
            draft.stuck_kept = draft.stuck
            draft.because(Rule.STUCK_WITHOUT_TAKER, count=draft.stuck)
            continue
        lowest = _lowest(pool, draft)
        if room is not None and draft.requested - lowest > room - released:
            homeless = draft.requested - lowest - (room - released)
            draft.stuck_kept += homeless
            lowest += homeless
            draft.because(Rule.STUCK_WITHOUT_TAKER, count=homeless)
        released += _lower(pool, draft, lowest)
    return released


def _all_stay(pool: PoolDraft, draft: Draft) -> bool:
    """Whether the stuck replicas of a group stay, whatever room there is elsewhere."""
    if pool.pool.on_failure is OnFailure.HOLD:
        draft.because(Rule.STUCK_ON_HOLD, count=draft.stuck)
    elif not draft.moves_elsewhere:
        draft.stuck_kept = draft.stuck
        draft.because(Rule.STUCK_SAME_FAILURE, count=draft.stuck)
    elif pool.pool.on_failure is OnFailure.MOVE and pool.pool.scale_request is not None:
        draft.because(Rule.STUCK_BEHIND_REQUEST, count=draft.stuck)
    else:
        return False
    return True


def _lowest(pool: PoolDraft, draft: Draft) -> int:
    """The least that a failing group may request: what lives, what would fail elsewhere too, what owners insist on."""
    held = min(draft.stuck, draft.held)
    if held:
        draft.stuck_kept = held
        draft.because(Rule.STUCK_SAME_FAILURE, count=held)
    lowest = max(draft.alive + held, min(draft.owner_min, draft.requested))
    if lowest > draft.alive + held:
        count = lowest - draft.alive - held
        if draft.replicas_are_ours:
            if draft.group.bounds_held:
                rule = Rule.STUCK_BY_BOUNDS
            else:
                rule = Rule.STUCK_BY_WORKER if draft.group.worker_range else Rule.STUCK_BY_OWNER
            draft.because(rule, count=count, minimum=lowest)
        else:
            draft.because(Rule.STUCK_PUT_BACK, count=count)
    # Beside an autoscaler, as many stay as the owner of the bounds insists on offering: each that went would be ordered
    # there again in its next loop, for as long as pods wait. Moved, they would be ordered twice where bounds are held.
    stay = draft.group.bounds_held
    offered = pool.pool.autoscaler and draft.group.fencing_enabled
    offered = offered and (stay or pool.pool.on_failure is OnFailure.RELEASE)
    floor = min(draft.requested if stay else draft.group.owner_min_max, draft.requested) if offered else 0
    if floor > lowest:
        draft.stuck_kept += floor - lowest
        draft.because(Rule.STUCK_OFFERED, count=floor - lowest, offered=floor)
        lowest = floor
    return lowest


def _lower(pool: PoolDraft, draft: Draft, lowest: int) -> int:
    """Lower a group to ``lowest``. Returns by how many."""
    less = draft.requested - lowest
    if less <= 0:
        return 0
    moving = pool.pool.on_failure is OnFailure.MOVE
    rule = Rule.MOVED if moving else Rule.RELEASED
    draft.because(rule, count=less, running=draft.group.running, coming=draft.coming)
    if moving:
        draft.journal_delta = -less
    draft.requested = lowest
    return less


def take_back_overshoot(pool: PoolDraft) -> None:
    """Above PoolMaximum, replicas without a running machine go, the newest first. What runs is left to scale-down.

    Those of fenced groups as well, unless they are held.
    """
    maximum = pool.most
    surplus = pool.requested - maximum
    if surplus <= 0:
        return
    before = [draft.requested for draft in pool.groups]
    waiting: list[tuple[float, int, int]] = []
    for i, draft in enumerate(pool.groups):
        held = draft.is_held or (draft.state is State.FENCED and pool.pool.on_failure is OnFailure.HOLD)
        group = draft.group
        if draft.state is State.FROZEN or held or (pool.pool.autoscaler and group.bounds_held):
            continue
        if group.launched is None:
            coming = [machine for machine in group.machines or () if not machine.has_node and not machine.deleting]
            ages = sorted((machine.created_at.timestamp() for machine in coming if not machine.preserved), reverse=True)
            unmade, stays = group.waiting - len(ages), group.running + group.preserved
        else:
            ages, unmade, stays = [], group.waiting - draft.coming, group.running + draft.coming
        spare = max(0, draft.requested - max(stays, draft.owner_min))
        # A replica that has not even a Machine object yet is the newest of all.
        newest = [float("inf")] * max(0, unmade) + ages
        waiting += [(age, draft.tie, i) for age in newest[:spare]]
    for _, _, i in sorted(waiting, reverse=True)[:surplus]:
        pool.groups[i].requested -= 1
    for draft, requested in zip(pool.groups, before, strict=True):
        if draft.requested < requested:
            draft.because(Rule.TAKEN_BACK, count=requested - draft.requested, maximum=maximum)
