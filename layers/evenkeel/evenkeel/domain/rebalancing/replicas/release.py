"""The released replicas of a pool with an autoscaler, until these replicas are ordered again.

A release assumes that the autoscaler orders the replicas in a healthy zone. The autoscaler may fail to do so. For
example, it puts a healthy zone into backoff for five minutes if its request fails because the API server is
unavailable. So the pool stores each release. If pods still wait for nodes, Evenkeel itself orders the released replicas
that the autoscaler has not ordered. It does so only once.

    released    one loop + 30 s          two loops + 30 s
    ---*---------------*------------------------*-----------> time
       autoscaler      max = requested          order; until these nodes register, max leaves room
       may order       in every healthy zone    only for further nodes that pods need

For one autoscaler loop before Evenkeel's order, the autoscaler cannot order in the pool. At the end of this loop, the
autoscaler's earlier orders have arrived and are counted. So no node is ordered twice, even if the autoscaler recovers
at the same moment.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.moves import FOR_PODS, ScaleRequest
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.second_checks import SECOND_CHECK_AFTER, doubted_since, is_confirmed
from evenkeel.domain.model.states import Release

# This time is added to the length of an autoscaler loop, because a busy loop takes longer. Measured: an autoscaler that
# can order nodes does so 3 to 13 s after a release.
_SLACK = timedelta(seconds=30)
# How long a release is stored: Evenkeel's longest backoff by default, which is also cluster-autoscaler's. After it,
# an autoscaler with this default has ordered all nodes that pods wait for.
RELEASE_KEPT = BackoffPolicy.longest


def recall_release(pool: PoolDraft) -> None:
    """Count the released replicas that are not ordered again yet, and keep the release while it is needed.

    A release is needed until all its replicas are ordered again, and all machines that Evenkeel ordered for it have
    nodes.
    """
    release = pool.pool.state.release
    if release is None or pool.now - release.at >= RELEASE_KEPT:
        return
    if not pool.pool.settings.autoscaler or pool.pool.settings.on_failure is not OnFailure.RELEASE:
        return
    if not release.ordered or release.has_rest or _was_interrupted(pool):
        pool.release.not_reordered = _not_reordered(
            pool, release, {draft.key: draft.group.requested for draft in pool.groups}
        )
    if pool.release.not_reordered or (release.ordered and _awaits_our_machines(pool)):
        pool.release.stored = release


def _was_interrupted(pool: PoolDraft) -> bool:
    """Return True if a run ended before it closed the journal of its order.

    The nodes that this order has added count as gained replicas.
    """
    return pool.pool.scale_request is not None and pool.pool.scale_request.id == FOR_PODS


def _awaits_our_machines(pool: PoolDraft) -> bool:
    return any(
        draft.group.waiting and draft.group.is_ordered_by_us(pool.now, draft.provision_timeout)
        for draft in pool.groups
        if draft.state is State.HEALTHY
    )


def remember_release(pool: PoolDraft, replicas: int) -> None:
    """Store this plan's released replicas, plus the replicas of the last release that are not ordered again yet."""
    if not replicas or not pool.pool.settings.autoscaler:
        return
    requested = {draft.key: min(draft.requested, draft.group.requested) for draft in pool.groups}
    requested = {**pool.given.others_requested, **requested}
    pool.release.planned = Release(at=pool.now, replicas=pool.release.not_reordered + replicas, requested=requested)
    pool.release.stored, pool.release.not_reordered = None, 0


def order_released(pool: PoolDraft) -> None:
    """Request the released replicas that no autoscaler has ordered, as far as pods wait for them.

    ``requests.carry_out_request`` then orders them (``Rank.REQUEST``). For one autoscaler loop before this order, the
    bounds let no autoscaler order in the pool. Until the ordered machines have become nodes, the bounds let an
    autoscaler order only the nodes that pods need in addition.
    """
    release = pool.release.stored
    if release is None:
        return
    pool.release.closed = bool(release.ordered) and _awaits_our_machines(pool)
    if not pool.release.not_reordered:
        _open_for_others(pool)
        return
    pool.check_at.append(release.at + RELEASE_KEPT)
    if pool.now < _closes_at(pool, release):
        pool.check_at.append(_closes_at(pool, release))
    elif pool.given.waited_for is None:
        pool.release.asks_waiting = True
    elif not any(pool.given.waited_for.values()):
        if not pool.given.pods_unmet or any(draft.takes for draft in pool.groups):
            _without_pods(pool, release)
        else:  # the pods wait until a group can get a node
            pool.release.stored = replace(release, idle_since=None)
            pool.check_at.append(pool.now + SECOND_CHECK_AFTER)
    elif pool.request.current is None or pool.request.current.is_of_plan:
        pool.release.stored = release = replace(release, idle_since=None)
        pool.release.closed = True
        closed_since = _closed_since(pool)
        if release.ordered and _was_interrupted(pool):
            # An earlier run ended after it had widened the bounds, and before it ordered nodes.
            _order(pool, pool.given.waited_for, pool.now)
        elif closed_since is not None:
            _order(
                pool,
                pool.given.waited_for,
                max(_orders_at(pool, release), closed_since + pool.pool.autoscaler_reads),
            )
        else:  # this plan closes the bounds, and a later check orders the nodes
            pool.release.orders_at = max(_orders_at(pool, release), pool.now + pool.pool.autoscaler_reads)


def _open_for_others(pool: PoolDraft) -> None:
    """Let the autoscaler order only the nodes that pods need in addition to the upcoming machines.

    The autoscaler does not count machines that it did not order itself (clusterstate.go:1126-1139), so only max limits
    its orders.
    """
    pool.release.asks_waiting = pool.given.waited_for is None
    pool.release.open_for = pool.given.waited_for or {}
    pool.check_at.append(pool.now + SECOND_CHECK_AFTER)


def _without_pods(pool: PoolDraft, release: Release) -> None:
    """Forget a release if no pod waits for it in this check and in a second one.

    If Evenkeel has ordered a part of the release, it does not order the remaining part. While the ordered machines are
    provisioning, the autoscaler can order nodes for other pods.
    """
    since = doubted_since(release.idle_since, pool.now)
    if is_confirmed(since, pool.now):
        pool.release.stored, pool.release.not_reordered = None, 0
        if release.ordered and _awaits_our_machines(pool):
            pool.release.stored = replace(release, has_rest=False, idle_since=None)
            _open_for_others(pool)
        return
    pool.release.stored = replace(release, idle_since=since)
    pool.check_at.append(since + SECOND_CHECK_AFTER)


def remember_rest(pool: PoolDraft) -> None:
    """Store ``has_rest``: True if the order omits a part of the release.

    The cause may be max_step, a crash, or pods that were not seen yet.
    """
    request = pool.request.current
    if pool.release.stored is not None and request is not None and request.id == FOR_PODS:
        pool.release.stored = replace(pool.release.stored, has_rest=not_reordered(pool)[0] > 0)


def not_reordered(pool: PoolDraft) -> tuple[int, datetime | None]:
    """Return how many released replicas this plan leaves unordered, and when Evenkeel's order for them is due."""
    release = pool.release.stored
    if release is None or not pool.release.not_reordered:
        return 0, None
    requested = {draft.key: draft.requested for draft in pool.groups}
    return _not_reordered(pool, release, requested), _orders_at(pool, release)


def _not_reordered(pool: PoolDraft, release: Release, requested: Mapping[str, int]) -> int:
    """Return how many released replicas neither the pool nor others for it have requested again."""
    others = pool.given.others_requested
    known = {key: nodes for key, nodes in others.items() if key in release.requested}
    return release.not_reordered({**known, **requested})


def _order(pool: PoolDraft, waited_for: Mapping[str, int], at: datetime) -> None:
    if pool.now < at:
        pool.check_at.append(at)
        pool.release.orders_at = at
        return
    nodes = sum(waited_for.values())
    pool.request.current = ScaleRequest(
        id=FOR_PODS, nodes=nodes, at=pool.now, pool=str(pool.pool.id), shares=waited_for
    )


def _closes_at(pool: PoolDraft, release: Release) -> datetime:
    """Return the time from which on the autoscaler must not order in the pool: one loop before Evenkeel's order."""
    return release.at + pool.pool.autoscaler_reads + _SLACK


def _orders_at(pool: PoolDraft, release: Release) -> datetime:
    return release.at + 2 * pool.pool.autoscaler_reads + _SLACK


def _closed_since(pool: PoolDraft) -> datetime | None:
    """Return since when no autoscaler can order in the pool; None: an autoscaler can order.

    Only groups whose bounds Evenkeel writes are evaluated.
    """
    groups = [
        draft.group
        for draft in pool.groups
        if draft.state in (State.HEALTHY, State.PROBING)
        and draft.group.owner.bounds_are_read
        and not draft.group.owner.bounds_held
    ]
    if any(_is_open(group) for group in groups):
        return None
    return max(
        [group.ours.published.at for group in groups if group.ours.published is not None],
        default=pool.now - RELEASE_KEPT,
    )


def _is_open(group: NodeGroup) -> bool:
    bounds = (group.owner.copied if group.owner.two_objects else None) or group.bounds
    return bounds is not None and bounds.max > max(group.requested, group.owner.least_max)
