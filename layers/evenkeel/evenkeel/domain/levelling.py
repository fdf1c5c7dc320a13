"""Levelling: hand out units one by one, each to whoever then stands lowest. In closed form."""

from collections.abc import Sequence
from math import lcm
from typing import NamedTuple


class Vessel(NamedTuple):
    """One that may receive: where it stands, how much it can take, how wide it is, and its place among equals."""

    level: int
    room: int
    weight: int = 1
    tie: int = 0


def level(vessels: Sequence[Vessel], amount: int) -> list[int]:
    """How much each vessel gets of ``amount``, dealt one unit at a time to the vessel that stands lowest after it.

    Standing is (level + given) / weight; equals go by ``tie``, then by position. What finds no room stays undealt.
    The cost does not depend on ``amount``: the last full level is worked out, only the rest (less than one unit per
    vessel) is dealt singly. This is also Cluster Autoscaler's balancing rule with all weights 1
    (processors/nodegroupset/balancing_processor.go:79-181).
    """
    # Conditional expressions instead of calls of min and max: this runs twice per pool and scan.
    room = [vessel.room if vessel.room > 0 else 0 for vessel in vessels]
    total = sum(room)
    if amount <= 0 or not total:
        return [0] * len(vessels)
    if amount >= total:
        return room
    weights = {vessel.weight for vessel in vessels}
    if len(weights) == 1:
        height, rest = _even_height(vessels, room, amount)
        dealt = [
            0 if (depth := height - vessel.level) < 0 else depth if depth < space else space
            for vessel, space in zip(vessels, room, strict=True)
        ]
        if not rest:
            return dealt
        rising = [i for i, vessel in enumerate(vessels) if vessel.level <= height and dealt[i] < room[i]]
    else:
        dealt, above = _weighted(vessels, room, amount, lcm(*weights))
        rest = amount - sum(dealt)
        rising = [i for i in range(len(vessels)) if above[i] > dealt[i]]
    rising.sort(key=lambda i: vessels[i].tie)
    for i in rising[:rest]:
        dealt[i] += 1
    return dealt


def _even_height(vessels: Sequence[Vessel], room: Sequence[int], amount: int) -> tuple[int, int]:
    """The last level up to which ``amount`` fills vessels of one width, and what is left over then.

    From edge to edge upwards: a vessel begins to fill at its level and is full at its level plus room.
    """
    edges = [(vessel.level, 1) for vessel in vessels] + [
        (vessel.level + space, -1) for vessel, space in zip(vessels, room, strict=True)
    ]
    edges.sort()
    height, filling = edges[0][0], 0
    for edge, step in edges:
        if (edge - height) * filling > amount:
            break
        amount -= (edge - height) * filling
        height = edge
        filling += step
    return height + amount // filling, amount % filling


def _weighted(vessels: Sequence[Vessel], room: Sequence[int], amount: int, unit: int) -> tuple[list[int], list[int]]:
    """What each vessel holds at the last level that ``amount`` fills, found by bisection, and at the one above it."""
    shapes = [(vessel.weight, vessel.level, space) for vessel, space in zip(vessels, room, strict=True)]

    def given(height: int) -> list[int]:
        """What each vessel holds when all are filled up to ``height`` / ``unit``."""
        return [
            0 if (depth := height * weight // unit - level) < 0 else depth if depth < space else space
            for weight, level, space in shapes
        ]

    low = min(level * unit // weight for weight, level, _ in shapes)  # nobody has been given anything yet
    high = unit * (max(level for _, level, _ in shapes) + amount + 1)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(given(middle)) <= amount:
            low = middle
        else:
            high = middle - 1
    return given(low), given(low + 1)
