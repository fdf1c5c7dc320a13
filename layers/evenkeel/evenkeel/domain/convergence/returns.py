"""Returns from fallback pools: how many nodes a fallback holds, and the inputs of plans that a return connects.

A pool with the setting ``fallback_for`` is a fallback, the second choice of its *first pool*. It *holds* nodes that
were added while the first pool could not deliver them. A return is a step of converge (``converge``) in the first pool
whose source is a group of the fallback. So the same journal, budget and windows apply, and there is one step at a time.
The state of the first pool stores the step. The plan of the fallback has the patch that deletes the machine. Both
states are stored with one move id before the patch. Without the patch, no group has this id, and the step goes back:

    first pool    Starting ──► Ordered ──► Deleting, id x ─────────────► Draining ──► over
    fallback                                      └──► replicas -1, id x
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import Deleting
from evenkeel.domain.model.drafts import LASTING_LIMITS, Draft, PoolDraft
from evenkeel.domain.model.groups import PoolId, State
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.pools import AnyPool, Pool
from evenkeel.domain.rebalancing.capability import Capability, Inputs, Planned
from evenkeel.domain.rebalancing.dry_run import is_pool_dry
from evenkeel.domain.rebalancing.health.states import assess
from evenkeel.domain.rebalancing.restore import is_restored

_FAILING = (State.FENCED, State.UNHEALTHY, State.PROBING)


@dataclass(kw_only=True, slots=True)
class Fallback:
    """A fallback of the draft's pool, as the check has read it. The plan of the draft's pool does not change it."""

    pool: Pool
    groups: Sequence[Draft]
    held: Mapping[str, int]  # key of a group -> the nodes that it holds for other pools
    keeps_minima: bool = False  # True: published mins are limits (``PoolInput.keeps_minima``)

    @property
    def requested(self) -> int:
        """Return the requested replicas of all groups."""
        return sum([draft.target for draft in self.groups])

    @property
    def running(self) -> int:
        """Return the running nodes of all groups."""
        return sum([draft.group.running for draft in self.groups])

    def spare_of(self, draft: Draft) -> int:
        """Return how many nodes a group may lose within PoolMinimum, its own minimum and its published min."""
        low = draft.fewest()
        if self.keeps_minima and draft.group.bounds is not None:
            low = max(low, draft.group.bounds.min)
        return min(self.held.get(draft.key, 0), self.requested - self.pool.min, draft.requested - low)


class Fallbacks(tuple[Fallback, ...]):
    """The fallbacks from which nodes can return to a pool, the farthest first."""


def fallbacks_of(pool: PoolDraft) -> Fallbacks:
    """Return the fallbacks from which nodes can return to the draft's pool."""
    return pool.parts.drafts.of(Fallbacks) or Fallbacks()


def with_fallbacks(check: Check, pools: Sequence[AnyPool], inputs: Inputs) -> Inputs:
    """Return the inputs of fallbacks, with the nodes that they hold, and of the pools of which they are fallbacks."""
    if not any([pool.first_pools for pool in pools]):
        return {}
    valid = {pool.id: pool for pool in pools if isinstance(pool, Pool) and not is_restored(pool.id, check.policy)}
    linked = {id for pool in valid.values() if pool.first_pools for id in (pool.id, *pool.first_pools)} & valid.keys()
    drafts = {id: assess(valid[id], check.state, check.now) for id in sorted(linked)}
    changed = {id: inputs[id] for id in drafts}
    # The farthest fallback is first.
    for id in sorted(drafts, key=lambda id: -len(valid[id].first_pools)):
        pool = valid[id]
        first_pools = [(valid[first], drafts[first]) for first in pool.first_pools if first in drafts]
        if not first_pools:
            continue
        fallback = Fallback(
            pool=pool,
            groups=drafts[id],
            held=held_nodes(pool, first_pools),
            keeps_minima=pool.settings.strategy.publishes_minima or inputs[id].keeps_minima,
        )
        changed[id] = changed[id]._replace(held=fallback.held)
        taker = _taker(fallback, first_pools, check)
        if taker is not None:
            parts = changed[taker].parts
            fallbacks = Fallbacks((*(parts.of(Fallbacks) or ()), fallback))
            changed[taker] = changed[taker]._replace(parts=parts.plus(Fallbacks, fallbacks))
        for first, _ in first_pools:
            requested = {draft.key: draft.group.requested for draft in fallback.groups}
            requested = {**changed[first.id].others_requested, **requested}
            changed[first.id] = changed[first.id]._replace(others_requested=requested)
            if _takes_nodes(fallback, check) and _is_like(pool, first, check):
                changed[first.id] = changed[first.id]._replace(others_take=True)
    return changed


def _is_like(fallback: Pool, first: Pool, check: Check) -> bool:
    """Return True if both pools are in dry run, or neither is."""
    is_dry = check.policy.is_dry
    return is_pool_dry(fallback.dry_run, is_dry) == is_pool_dry(first.dry_run, is_dry)


def _takes_nodes(fallback: Fallback, check: Check) -> bool:
    """Return True if an autoscaler or Evenkeel orders nodes for pods, and can order one in the fallback."""
    is_ordered = fallback.pool.settings.autoscaler or check.policy.demand.orders
    has_room = fallback.requested < fallback.pool.max and any(draft.takes for draft in fallback.groups)
    return is_ordered and has_room


def _taker(fallback: Fallback, first_pools: Sequence[tuple[Pool, Sequence[Draft]]], check: Check) -> PoolId | None:
    """Return the pool to which a fallback's nodes return now; None: to no pool.

    It is the pool with a step that takes a node, otherwise the most preferred pool without a fence. So at most one step
    at a time takes nodes of a fallback.
    """
    for first, _ in first_pools:
        step = first.state.convergence.step
        if step is not None and step.order.fallback == str(fallback.pool.id):
            return first.id
    for first, groups in reversed(first_pools):
        is_on = first.settings.level is Level.CONVERGE or first.convergence_requested is not None
        if is_on and _is_like(fallback.pool, first, check) and not any(draft.zone_fails for draft in groups):
            return first.id
    return None


def held_nodes(pool: Pool, first_pools: Sequence[tuple[Pool, Sequence[Draft]]]) -> dict[str, int]:
    """Return how many nodes each group of a fallback holds. The numbers may be too low, but count no other node.

    Nodes added since the last check count, less those removed. They count only in a zone where no first pool could take
    them, and only if no limit of the user was the reason (``_is_short``). A removed node counts as a held one, but a
    step that levels the fallback moves a held node. Nodes for PoolMinimum are never held.
    """
    requested = {str(group.key): group.requested for group in pool.groups}
    seen = requested if pool.state.seen is None else pool.state.seen.requested
    more = {key: requested.get(key, 0) - seen.get(key, 0) for key in {**seen, **requested}}
    held = {key: pool.state.held_nodes.get(key, 0) for key in requested}
    added = max(0, sum(more.values()))
    step = pool.state.convergence.step
    if isinstance(step, Deleting) and _levels(step, held) and more[step.order.source] < 0:
        held[step.order.destination] += min(1, held[step.order.source])
    for group in pool.groups:
        key = str(group.key)
        counted = min(added, max(0, more[key])) if _is_short(first_pools, group.identity.zone) else 0
        added -= counted
        held[key] = min(max(0, held[key] + min(0, more[key])) + counted, requested[key])
    over = sum(held.values()) - max(0, sum(requested.values()) - pool.min)
    for key in sorted(held):
        less = min(held[key], max(0, over))
        held[key], over = held[key] - less, over - less
    return {key: count for key, count in held.items() if count}


def _levels(step: Deleting, held: Mapping[str, int]) -> bool:
    """Return True if the step drains the source, and both of its groups are in the pool whose nodes are counted."""
    return step.draining_group == step.order.source and step.groups <= held.keys()


def _is_short(first_pools: Sequence[tuple[Pool, Sequence[Draft]]], zone: str | None) -> bool:
    """Return True if no first pool can take a node in a zone, and one of them cannot although its limits allow it.

    A pool without a group in the zone is compared by all of its zones.
    """
    fails = []
    for pool, drafts in first_pools:
        is_full = sum(draft.target for draft in drafts) >= pool.max
        in_zone = [draft for draft in drafts if draft.group.identity.zone == zone] or drafts
        is_failing = all(draft.state in _FAILING or _is_closed(pool, draft) for draft in in_zone)
        if not (is_full or is_failing):
            return False
        fails.append(is_failing and not is_full)
    return any(fails)


def _is_closed(pool: Pool, draft: Draft) -> bool:
    """Return True if Evenkeel's max keeps an autoscaler from ordering in a group below the user's limits.

    Such a max holds while Evenkeel itself orders in the pool, or lends the free nodes to other zones.
    """
    bounds, requested = draft.group.bounds, draft.group.requested
    is_limited = any(draft.limits.get(rule, requested + 1) <= requested for rule in LASTING_LIMITS)
    return pool.settings.autoscaler and bounds is not None and bounds.max <= requested and not is_limited


def with_steps(planned: Planned, inputs: Inputs) -> Inputs:
    """Return the inputs of the fallbacks of which a step of another pool takes a node."""
    changed = {}
    for id, given in inputs.items():
        fallbacks = given.parts.of(Fallbacks)
        if fallbacks is None:
            continue
        plan = planned[id].plan
        step = plan.convergence.step or plan.next_state.convergence.step
        for fallback in fallbacks:
            if step is not None and step.order.fallback == str(fallback.pool.id):
                changed[fallback.pool.id] = inputs[fallback.pool.id]._replace(taken_by=(id, step))
    return changed


RETURNS = Capability(assume=with_fallbacks, follow=with_steps)
