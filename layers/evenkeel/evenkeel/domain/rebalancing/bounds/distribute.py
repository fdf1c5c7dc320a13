"""Gardener's static split of a pool over its zones, and the split of rolling-update numbers.

Source of the formulas: gardener/gardener extensions/pkg/controller/worker/machines.go (``DistributeOverZones``,
``DistributePercentOverZones``, ``DistributePositiveIntOrPercent``) and GEP-24 "Existing Solution".
"""

from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.groups import Rolling
from evenkeel.domain.model.values import LARGEST_COUNT, BadValueError, read_count


def distribute_over_zones(zone_index: int, size: int, zones: int) -> int:
    """The share of the zone at ``zone_index`` (0-based) when ``size`` nodes are dealt out to ``zones`` zones.

    The remainder goes to the first zones, one each. Raises ValueError for an index outside the zones.
    """
    if not 0 <= zone_index < zones:
        raise ValueError(f"zone index {zone_index} is outside 0..{zones - 1}")
    return size // zones + (1 if zone_index < size % zones else 0)


def distribute_percent_over_zones(zone_index: int, percent: int, zones: int, total: int) -> int:
    """A percentage, weighted by the share of ``total`` that the zone holds; rounded up, as Gardener does.

    An evenly divisible total leaves the percentage as it is: 20 % of 6 nodes in 3 zones is 20 % in each.
    """
    if total % zones == 0:
        return percent
    # ceil(share / (total / zones) * percent), in integers so that no float rounds it up once more
    return -(-distribute_over_zones(zone_index, total, zones) * zones * percent // total)


def _share(value: int | str, zone_index: int, zones: int, total: int) -> int | str:
    if isinstance(value, str) and value.endswith("%"):
        return f"{distribute_percent_over_zones(zone_index, read_count(value[:-1]), zones, total)}%"
    return distribute_over_zones(zone_index, read_count(value), zones)


def distribute_rolling(pool: Rolling, zone_index: int, zones: int, *, minimum: int, maximum: int) -> Rolling:
    """The share of a pool's ``maxSurge`` and ``maxUnavailable`` that one zone gets.

    Surge is weighed by PoolMaximum and unavailability by PoolMinimum, as Gardener does; the weights matter for
    percentages only. Reported in plans, never written: two whole-number shares can both be 0, and a rolling update
    with surge 0 and unavailable 0 never moves.
    """
    return Rolling(
        _share(pool.max_surge, zone_index, zones, maximum), _share(pool.max_unavailable, zone_index, zones, minimum)
    )


def pool_rolling(members: list[Rolling]) -> Rolling | None:
    """A pool's rolling-update numbers from its members': counts add up, a percentage must be the same in all.

    None where members mix the two forms or differ in the percentage: then the pool has no such number.
    """

    def total(values: list[int | str]) -> int | str | None:
        if all(isinstance(value, int) for value in values):
            return min(LARGEST_COUNT, sum(int(value) for value in values))
        return values[0] if len(set(values)) == 1 else None

    surge, unavailable = total([m.max_surge for m in members]), total([m.max_unavailable for m in members])
    return None if surge is None or unavailable is None else Rolling(surge, unavailable)


def share_rolling(pool: PoolDraft) -> None:
    """Each group's share of the pool's rolling-update numbers, where its members have any."""
    members = [draft.group.rolling for draft in pool.groups if draft.group.rolling is not None]
    total = pool_rolling(members) if len(members) == len(pool.groups) else None
    if total is None:
        return
    minimum, maximum = pool.pool.min, pool.pool.max
    for i, draft in enumerate(pool.groups):
        draft.rolling = distribute_rolling(total, i, len(pool.groups), minimum=minimum, maximum=maximum)


def read_int_or_percent(value: object) -> int | str:
    """Kubernetes' IntOrString as rolling updates use it: a count, or a percentage such as ``"25%"``.

    Raises:
        BadValueError: neither.
    """
    if isinstance(value, str) and value.endswith("%"):
        try:
            return f"{read_count(value[:-1])}%"
        except BadValueError:
            raise BadValueError('neither a whole number nor a percentage such as "25%"') from None
    return read_count(value)
