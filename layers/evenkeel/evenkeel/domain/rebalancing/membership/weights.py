"""Weights of a pool's zones, where some are said as a percentage of the pool."""

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.problems import Problem, ProblemKind


def with_shares(groups: Sequence[NodeGroup]) -> tuple[tuple[NodeGroup, ...], list[Problem]]:
    """The groups with whole weights that stand to each other as their percentages do.

    Groups that name no percentage share what the others leave, by their weights. Percentages that add up to less than
    100, with no such group, stand to each other as they are. A problem where nothing is left or more than all named.
    """
    named = [group.weight_percent for group in groups if group.weight_percent is not None]
    if not named:
        return tuple(groups), []
    total, others = sum(named), len(groups) - len(named)
    if total > 100 or (others and total == 100):
        return tuple(groups), [Problem.of(ProblemKind.WEIGHTS_PAST_POOL, percent=total, others=others)]
    together = sum(group.weight for group in groups if group.weight_percent is None) or 1
    weights = [
        group.weight * (100 - total) if group.weight_percent is None else group.weight_percent * together
        for group in groups
    ]
    unit = gcd(*weights)
    return tuple(replace(group, weight=weight // unit) for group, weight in zip(groups, weights, strict=True)), []
