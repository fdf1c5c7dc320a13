"""Gardener's static split of a pool over its zones, and the split of rolling-update numbers.

Source of the formulas: gardener/gardener extensions/pkg/controller/worker/machines.go (``DistributeOverZones``,
``DistributePercentOverZones``, ``DistributePositiveIntOrPercent``) and GEP-24 "Existing Solution".
"""

from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.groups import Rolling
from evenkeel.domain.model.values import LARGEST_COUNT, BadValueError, read_count


def distribute_over_zones(zone_index: int, size: int, zones: int) -> int:
    """Return how many of ``size`` nodes the zone at ``zone_index`` (0-based) gets if the pool has ``zones`` zones.

    The remainder goes to the first zones, one node each.

    Raises:
        ValueError: ``zone_index`` is outside the zones.
    """
    if not 0 <= zone_index < zones:
        raise ValueError(f"zone index {zone_index} is outside 0..{zones - 1}")
    return size // zones + (1 if zone_index < size % zones else 0)


def distribute_percent_over_zones(zone_index: int, percent: int, zones: int, total: int) -> int:
    """Return one zone's percentage, weighted by its share of ``total`` and rounded up, as Gardener does.

    If ``total`` is divisible by ``zones``, the percentage is unchanged: 20 % of 6 nodes in 3 zones is 20 % in each.
    """
    if total % zones == 0:
        return percent
    # ceil(share / (total / zones) * percent), computed in integers, because an inexact float could be rounded up too
    # far
    return -(-distribute_over_zones(zone_index, total, zones) * zones * percent // total)


def _share(value: int | str, zone_index: int, zones: int, total: int) -> int | str:
    if isinstance(value, str) and value.endswith("%"):
        return f"{distribute_percent_over_zones(zone_index, read_count(value[:-1]), zones, total)}%"
    return distribute_over_zones(zone_index, read_count(value), zones)


def distribute_rolling(pool: Rolling, zone_index: int, zones: int, *, pool_min: int, pool_max: int) -> Rolling:
    """Return the share of a pool's ``maxSurge`` and ``maxUnavailable`` that one zone gets.

    As in Gardener, a percentage of surge is weighted by PoolMaximum, and a percentage of unavailability by PoolMinimum.
    Plans report the shares and do not write them, because a rolling update makes no progress if both shares are 0.
    """
    return Rolling(
        _share(pool.max_surge, zone_index, zones, pool_max), _share(pool.max_unavailable, zone_index, zones, pool_min)
    )


def pool_rolling(members: list[Rolling]) -> Rolling | None:
    """Return a pool's rolling-update numbers: the sum of its members' counts, or the percentage that all members have.

    Return None if members mix counts and percentages, or have different percentages.
    """

    def total(values: list[int | str]) -> int | str | None:
        if all(isinstance(value, int) for value in values):
            return min(LARGEST_COUNT, sum(int(value) for value in values))
        return values[0] if len(set(values)) == 1 else None

    surge, unavailable = total([m.max_surge for m in members]), total([m.max_unavailable for m in members])
    return None if surge is None or unavailable is None else Rolling(surge, unavailable)


def share_rolling(pool: PoolDraft) -> None:
    """Set each group's share of the pool's rolling-update numbers, if all members have such numbers."""
    members = [draft.group.status.rolling for draft in pool.groups if draft.group.status.rolling is not None]
    total = pool_rolling(members) if members and len(members) == len(pool.groups) else None
    if total is None:
        return
    pool_min, pool_max = pool.pool.min, pool.pool.max
    for i, draft in enumerate(pool.groups):
        draft.rolling = distribute_rolling(total, i, len(pool.groups), pool_min=pool_min, pool_max=pool_max)


def read_int_or_percent(value: object) -> int | str:
    """Return Kubernetes' IntOrString as rolling updates use it: a count, or a percentage such as ``"25%"``.

    Raises:
        BadValueError: The value is neither a count nor a percentage.
    """
    if isinstance(value, str) and value.endswith("%"):
        try:
            return f"{read_count(value[:-1])}%"
        except BadValueError:
            raise BadValueError('neither a whole number nor a percentage such as "25%"') from None
    return read_count(value)
