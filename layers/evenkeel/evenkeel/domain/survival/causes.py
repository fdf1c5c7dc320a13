"""Why a pool that is short of surviving gets no node in a zone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from evenkeel.domain.model.drafts import LASTING_LIMITS, Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import LARGEST_COUNT


def lasting_obstacle(draft: Draft) -> Reason | None:
    """Return why a group cannot get nodes for a lasting reason of its own; None: it can."""
    if draft.health.not_offered:
        return Reason.of(Rule.IN_STATE, state=draft.state.value)
    return draft.group.template.closed_because or draft.fixed_because


def fixed_zones(drafts: Iterable[Draft]) -> tuple[Reason, ...]:
    """Return why zones cannot get nodes, for each group with a lasting reason."""
    fixed = [(draft, lasting_obstacle(draft)) for draft in drafts]
    return tuple(_no_node_in(draft, why) for draft, why in fixed if why is not None)


def cap_of(draft: Draft) -> int:
    """Return the most nodes that a group may have by lasting limits."""
    caps = [draft.limits[rule] for rule in LASTING_LIMITS if rule in draft.limits]
    if draft.group.owner.bounds_held and draft.group.bounds is not None:
        caps.append(draft.group.bounds.max)
    return min(caps, default=LARGEST_COUNT)


def causes_of(pool: PoolDraft, lacking: Sequence[int], raised: Mapping[str, int]) -> tuple[Reason, ...]:
    """Return why zones get no node, if the pool still lacks nodes.

    Args:
        pool: The draft after the order.
        lacking: How many nodes each group lacked before the order.
        raised: Key of a group -> how many nodes it gets.
    """
    lacks = {draft.key: nodes for draft, nodes in zip(pool.groups, lacking, strict=True)}
    failing = next((draft for draft in pool.groups if draft.zone_fails), None)
    if failing is not None:
        return (Reason.of(Rule.SURVIVAL_WAITS, zone=failing.group.identity.zone, state=failing.state.value),)
    still_lacks = any(nodes > raised.get(key, 0) for key, nodes in lacks.items())
    return tuple(_causes(pool, lacks, raised)) if still_lacks else ()


def _causes(pool: PoolDraft, lacks: Mapping[str, int], raised: Mapping[str, int]) -> Iterator[Reason]:
    zones: dict[str | None, list[Draft]] = {}
    for draft in pool.groups:
        zones.setdefault(draft.group.identity.zone, []).append(draft)
    for drafts in zones.values():
        draft = max(drafts, key=lambda draft: lacks[draft.key])
        is_needless = pool.given.pods_decide and not lacks[draft.key]  # the pods need a node in other zones
        if not is_needless and not any(draft.key in raised for draft in drafts):
            yield _no_node_in(draft, _obstacle(pool, draft, lacks[draft.key]))


def _no_node_in(draft: Draft, why: Reason) -> Reason:
    return Reason.of(Rule.NO_NODE_TO_SURVIVE, zone=draft.group.identity.zone, why=why)


def _obstacle(pool: PoolDraft, draft: Draft, lacks: int) -> Reason:
    if (fixed := lasting_obstacle(draft)) is not None:
        return fixed
    if min(draft.room, cap_of(draft) - draft.requested) <= 0:
        return Reason.of(Rule.AT_ITS_MAX)
    if not lacks:
        return Reason.of(Rule.ZONE_HAS_ENOUGH)
    if draft.state is not State.HEALTHY:
        return Reason.of(Rule.IN_STATE, state=draft.state.value)
    if pool.free <= 0:
        return Reason.of(Rule.POOL_AT_ITS_MAX)
    if pool.replicas.later and pool.pool.settings.max_step is not None:
        return Reason.of(Rule.MAX_STEP, later=pool.replicas.later, max_step=pool.pool.settings.max_step)
    return Reason.of(Rule.REPLICAS_JUST_CHANGED)
