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
    The cost does not depend on ``amount``: the last full level is found by bisection, only the rest (less than one
    unit per vessel) is dealt singly. This is also Cluster Autoscaler's balancing rule with all weights 1
    (processors/nodegroupset/balancing_processor.go:79-181).
    """
    room = [max(0, vessel.room) for vessel in vessels]
    if amount <= 0 or not any(room):
        return [0] * len(vessels)
    if amount >= sum(room):
        return room
    unit = lcm(*(vessel.weight for vessel in vessels))
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
    dealt = given(low)
    above = given(low + 1)
    order = sorted(range(len(vessels)), key=lambda i: (vessels[i].tie, i))
    for i in [i for i in order if above[i] > dealt[i]][: amount - sum(dealt)]:
        dealt[i] += 1
    return dealt
