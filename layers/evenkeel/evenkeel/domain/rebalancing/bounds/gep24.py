"""The sizing strategies of GEP-24: they compute (min, max) of each group of a pool.

They count nodes as GEP-24 does (``Draft.counted``), so they reproduce GEP-24's published scans. Afterwards, ``safety``
applies fences and makes the bounds safe. Balanced has its own module, because it uses targets and stores its last deal.

Sources: GEP-24 section 3.1 (Lax-Greedy; Adaptive in its last revision) and 3.2 (Backward-Compatible).
"""

from collections.abc import Sequence

from evenkeel.domain.model.choices import Size, Strategy
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.water_fill import water_fill
from evenkeel.domain.rebalancing.bounds.distribute import distribute_over_zones


def _others(drafts: Sequence[Draft]) -> list[int]:
    total = sum([draft.counted for draft in drafts])
    return [total - draft.counted for draft in drafts]


def _why(pool: PoolDraft, **facts: Fact) -> Reason:
    return Reason.of(Rule.STRATEGY, strategy=pool.pool.settings.strategy.name, **facts)


def _lax_greedy(pool: PoolDraft) -> list[Size]:
    """Return sizes with min 0. Each max is PoolMaximum less the other groups' nodes (GEP-24 3.1, first revisions)."""
    pool_max, others = pool.pool.max, _others(pool.groups)
    return [Size(0, pool_max - nodes, _why(pool, maximum=pool_max, elsewhere=nodes)) for nodes in others]


def _backward_compatible(pool: PoolDraft) -> list[Size]:
    """Return Gardener's static split (GEP-24 3.2).

    If PoolMaximum is smaller than the number of zones, some zones get a max of 0. The zones then get their shares in
    this order: healthy zones with nodes, empty healthy zones, other zones.
    """
    pool_min, pool_max, drafts = pool.pool.min, pool.pool.max, pool.groups
    zones = len(drafts)
    order = list(range(zones))
    if pool_max < zones:
        order.sort(key=lambda i: (drafts[i].state is not State.HEALTHY, drafts[i].requested == 0, i))
    rank = {i: place for place, i in enumerate(order)}
    return [
        Size(
            distribute_over_zones(rank[i], pool_min, zones),
            distribute_over_zones(rank[i], pool_max, zones),
            _why(pool, share=rank[i] + 1, zones=zones, minimum=pool_min, maximum=pool_max),
        )
        for i in range(zones)
    ]


def _adaptive(pool: PoolDraft) -> list[Size]:
    """Return sizes with Lax-Greedy's max, and with a share of PoolMinimum as min (GEP-24, last revision).

    The min of a zone that cannot grow is divided among the other zones. Evenkeel adds three rules where GEP-24 has
    none. Nodes that run in such zones count toward PoolMinimum. If a share exceeds its group's max, groups with room
    get the excess. If no zone can grow, the last bounds remain.
    """
    drafts, pool_max = pool.groups, pool.pool.max
    open_zones = [i for i, draft in enumerate(drafts) if draft.state is not State.FENCED and draft.may_grow]
    if not open_zones:
        return [_last_bounds(pool, draft) for draft in drafts]
    others = _others(drafts)
    maxima = [pool_max - elsewhere for elsewhere in others]
    shares = _carried_minima(pool, open_zones)
    minima = [max(0, min(low, high)) for low, high in zip(shares, maxima, strict=True)]
    missing = sum(shares) - sum(minima)
    levels, room = [minima[i] for i in open_zones], [maxima[i] - minima[i] for i in open_zones]
    for i, more in zip(open_zones, water_fill(missing, levels, room), strict=True):
        minima[i] += more
    fenced = Reason.of(Rule.MIN_ZERO_WHILE_FENCED)
    return [
        Size(
            minima[i],
            maxima[i],
            _why(pool, maximum=pool_max, elsewhere=others[i], note=fenced if draft.state is State.FENCED else None),
        )
        for i, draft in enumerate(drafts)
    ]


def _carried_minima(pool: PoolDraft, open_zones: Sequence[int]) -> list[int]:
    """Return each zone's min: 0 if fenced, else its share of PoolMinimum plus a part of the fenced zones' shortfall."""
    drafts = pool.groups
    shares = [distribute_over_zones(i, pool.pool.min, len(drafts)) for i in range(len(drafts))]
    fenced = set(range(len(drafts))) - set(open_zones)
    shortfall = max(0, sum(shares[i] for i in fenced) - sum(drafts[i].group.running for i in fenced))
    minima = [0] * len(drafts)
    for place, i in enumerate(open_zones):
        minima[i] = shares[i] + distribute_over_zones(place, shortfall, len(open_zones))
    return minima


def _last_bounds(pool: PoolDraft, draft: Draft) -> Size:
    strategy, bounds = pool.pool.settings.strategy.name, draft.group.bounds
    if bounds is None:
        return Size(0, draft.requested, Reason.of(Rule.NO_LAST_BOUNDS, strategy=strategy))
    return Size(bounds.min, bounds.max, Reason.of(Rule.LAST_BOUNDS_STAY, strategy=strategy))


LAX_GREEDY = Strategy(
    name="Lax-Greedy",
    size=_lax_greedy,
    publishes_minima=False,
    adds_up=False,
    sentence="PoolMaximum {maximum} less {elsewhere} elsewhere",
    sentence_of_min="Lax-Greedy leaves PoolMinimum {minimum} out of the bounds",
)
BACKWARD_COMPATIBLE = Strategy(
    name="Backward-Compatible",
    aliases=("Equitable",),  # GEP-24's first name for this strategy
    size=_backward_compatible,
    publishes_minima=True,
    adds_up=True,
    sentence="share {share} of {zones} of PoolMinimum {minimum} and PoolMaximum {maximum}",
    sentence_of_min="its zone's share of PoolMinimum {minimum}",
)
ADAPTIVE = Strategy(
    name="Adaptive",
    size=_adaptive,
    publishes_minima=True,
    adds_up=False,
    sentence="PoolMaximum {maximum} less {elsewhere} elsewhere[; {note}]",
    sentence_of_min="its zone's share of PoolMinimum {minimum}, and of what fenced zones cannot hold of it",
)
