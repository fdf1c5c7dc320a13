"""Leveling: distribute units, each to the bucket that is lowest at that time. The code does not loop over the units.

A bucket has a level, room for further units, a rank among buckets of equal height, and a weight.
"""

from collections.abc import Callable, Sequence
from math import lcm


def water_fill(
    amount: int,
    levels: Sequence[int],
    room: Sequence[int],
    tie: Callable[[int], int] | None = None,
    weights: Sequence[int] = (),
) -> list[int]:
    """Return each bucket's share of ``amount``. Each unit goes to the bucket whose height with this unit is the lowest.

    The height of a bucket is (level + units received) / weight. Buckets of equal height are ordered by rank, the
    lowest first, then by position. ``tie`` returns the rank of the bucket at a position. It is called only if there is
    a remainder; None: only the position decides. Units that fit in no bucket are not distributed. The cost does not
    depend on ``amount``, because the last full level is computed. Only the remainder (less than one unit per bucket)
    is distributed unit by unit. If all weights are 1, this is Cluster Autoscaler's balancing rule
    (processors/nodegroupset/balancing_processor.go:79-181). If ``weights`` is empty, all weights are 1. Negative room
    counts as 0.
    """
    if amount <= 0 or not levels:
        return [0] * len(levels)
    if min(room) < 0:
        room = [max(0, space) for space in room]
    if amount >= sum(room):
        return [*room]
    rising: Sequence[int]
    if len(set(weights)) > 1:
        dealt, above = _weighted(levels, room, weights, amount)
        rest = amount - sum(dealt)
        rising = [i for i, share in enumerate(dealt) if above[i] > share]
    else:
        height, rest = divmod(sum(levels) + amount, len(levels))
        if max(levels) <= height < min(levels) + min(room):  # no bucket is above this height, and none is full
            dealt = [height - level for level in levels]
            rising = range(len(levels))
        else:
            height, rest = _even_height(levels, room, amount)
            dealt = [
                0 if (depth := height - level) < 0 else depth if depth < space else space
                for level, space in zip(levels, room, strict=True)
            ]
            rising = [i for i, level in enumerate(levels) if level <= height and dealt[i] < room[i]]
    if rest:
        for i in sorted(rising, key=tie)[:rest]:
            dealt[i] += 1
    return dealt


def _even_height(levels: Sequence[int], room: Sequence[int], amount: int) -> tuple[int, int]:
    """Return the highest level up to which ``amount`` fills buckets of equal weight, and the remaining units.

    The loop goes up from edge to edge. Each bucket has two edges: the level at which it starts to fill, and the level
    at which it is full.
    """
    edges = [(level, 1) for level in levels]
    edges += [(level + space, -1) for level, space in zip(levels, room, strict=True)]
    edges.sort()
    height, filling = edges[0][0], 0
    for edge, step in edges:
        if (edge - height) * filling > amount:
            break
        amount -= (edge - height) * filling
        height = edge
        filling += step
    return height + amount // filling, amount % filling


def _weighted(
    levels: Sequence[int], room: Sequence[int], weights: Sequence[int], amount: int
) -> tuple[list[int], list[int]]:
    """Return each bucket's share at the highest level that ``amount`` fills, and its share one level above."""
    unit, shapes = lcm(*weights), list(zip(weights, levels, room, strict=True))

    def given(height: int) -> list[int]:
        """Return the share of each bucket when all are filled up to ``height`` / ``unit``."""
        return [
            0 if (depth := height * weight // unit - level) < 0 else depth if depth < space else space
            for weight, level, space in shapes
        ]

    low = min(level * unit // weight for weight, level, _ in shapes)  # at this height, every share is 0
    high = unit * (max(level for _, level, _ in shapes) + amount + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(given(middle)) <= amount:
            low = middle
        else:
            high = middle - 1
    return given(low), given(low + 1)
