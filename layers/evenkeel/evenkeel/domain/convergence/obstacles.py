"""The reasons that delay a step or stop it. Each function returns the first reason that it finds, or None."""

from collections.abc import Iterable

from evenkeel.domain.model.convergence import BUDGET, IDLE_REMOVED_WITHIN, SETTLES
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.reasons import ROLLOUTS, Reason, Rule


def not_now(pool: PoolDraft, *, is_pass: bool) -> Reason | None:
    """Return the hold, window, budget or settling time that delays a step; None: no such reason.

    A convergence that an operator has requested (``is_pass``) ignores all of them, except a hold that began after the
    request.
    """
    convergence, policy, now = pool.convergence.state, pool.pool.settings.converge, pool.now
    since, asked = convergence.held_since, pool.pool.convergence_requested
    is_before = is_pass and since is not None and asked is not None and since < asked
    if (until := held_until(convergence.held_until, now)) is not None and not is_before:
        return Reason.of(Rule.CONVERGE_HELD, until=until)
    if is_pass:
        return None
    if (until := held_until(convergence.uneven_since, now, SETTLES)) is not None:
        pool.check_at.append(until)
        return Reason.of(Rule.CONVERGE_SETTLES, until=until)
    opens = policy.opens(now)
    if opens != now:
        return Reason.of(Rule.CONVERGE_WINDOW, until=opens)
    if (spent := convergence.spent(now)) and len(spent) >= policy.per_hour:
        until = min(spent) + BUDGET
        pool.check_at.append(until)
        return Reason.of(Rule.CONVERGE_BUDGET, per_hour=policy.per_hour, until=until)
    return None


def rollout_in_progress(pool: PoolDraft) -> Reason | None:
    """Return a reason if another controller replaces the machines of a group."""
    for draft in pool.groups:
        frozen = draft.group.frozen_because
        if frozen is not None and frozen.rule in ROLLOUTS:
            return Reason.of(Rule.CONVERGE_ROLLOUT, zone=draft.group.identity.zone)
    return None


def zone_doubt(drafts: Iterable[Draft], source: Draft | None = None) -> Reason | None:
    """Return the first reason to doubt that a zone delivers: a fence, broken nodes, or a source that is probing.

    Zones other than the source may be probing. A step tries such a zone safely, because it launches a node before it
    drains one.
    test_when_backoff_is_over_a_step_tries_the_zone
    """
    for draft in drafts:
        if draft.zone_fails or (draft is source and draft.state is State.PROBING):
            return state_reason(draft)
    return None


def doubt_of(draft: Draft) -> Reason | None:
    """Return the reason to doubt that a group delivers, apart from a fence."""
    return state_reason(draft) if draft.state is State.PROBING else None


def state_reason(draft: Draft) -> Reason:
    """Return the reason that names the state of a group."""
    return Reason.of(Rule.CONVERGE_STATE, zone=draft.group.identity.zone, state=draft.state.value)


def other_change(pool: PoolDraft) -> Reason | None:
    """Return a reason if the pool is changing in another way, because the journal stores one change at a time."""
    changes = any(draft.requested != draft.group.requested for draft in pool.groups)
    is_requested = pool.request.current is not None or pool.pool.scale_request is not None
    is_taken = pool.given.taken_by is not None
    return Reason.of(Rule.CONVERGE_BEHIND) if pool.moves or is_requested or changes or is_taken else None


def awaited_machines(drafts: Iterable[Draft]) -> Reason | None:
    """Return a reason if a group has other replicas than running nodes."""
    for draft in drafts:
        group = draft.group
        if group.requested != group.running:
            return Reason.of(
                Rule.CONVERGE_AWAITS, zone=group.identity.zone, requested=group.requested, running=group.running
            )
    return None


def no_room(pool: PoolDraft, *, more: int = 0) -> Reason | None:
    """Return a reason if PoolMaximum has no room for one replica and ``more``."""
    if more < pool.free + pool.pool.settings.converge.surge:
        return None
    return Reason.of(Rule.CONVERGE_FULL, maximum=pool.pool.max, requested=pool.target)


def goes_without_order(pool: PoolDraft, source: Draft) -> Reason | None:
    """Return the reason if no step starts because scale-down will remove a node of the source anyway; else None.

    Evenkeel's own scale-down removes each node that has an unneeded clock. Another autoscaler may never remove its
    unneeded nodes. So the step starts once the zones have differed for ``IDLE_REMOVED_WITHIN``.
    test_a_node_that_no_autoscaler_takes_does_not_keep_the_pool_uneven
    """
    unneeded = None if pool.given.demand is None else pool.given.demand.unneeded
    idle = [node for node in unneeded or () if str(node.group) == source.key]
    until = (pool.convergence.state.uneven_since or pool.now) + IDLE_REMOVED_WITHIN
    is_ours = any(node.since is not None for node in idle)
    if not idle or not (is_ours or (pool.pool.settings.autoscaler and pool.now < until)):
        return None
    if not is_ours:
        pool.check_at.append(until)
    return Reason.of(Rule.CONVERGE_IDLE, zone=source.group.identity.zone, node=idle[0].node)
