"""Slow start: how many machines may be on their way to a zone that delivers again.

A probe shows that a zone gives one machine, not that it gives thirty. Refused orders keep pods from the zones that
deliver, and fence the zone for twice as long. So the number doubles with each machine that comes:

    fence    probe: 1     2      4      8    as many as the pool may still grow by
    ------|-----------*------*------*------*---------------->
                      each * a machine that has come; a failure at any time: fenced again
"""

from dataclasses import replace
from datetime import datetime

from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.pools import AnyPool, Pool
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.model.values import LARGEST_COUNT


def count_arrivals(
    pool: AnyPool, group: NodeGroup, before: GroupState | None, after: GroupState, now: datetime
) -> GroupState:
    """Return the state with the number of machines that may be on their way in slow start.

    Slow start ends when that number reaches what the pool could order, and is forgotten with the failure.

    Args:
        pool: The group's pool.
        group: The group. While it is frozen, nothing is counted.
        before: The stored state.
        after: The same with the failures and successes of this check.
        now: The time.
    """
    ended = before is not None and before.is_failing and not after.is_failing
    if group.frozen_because is not None or after.is_failing or not (ended or after.slow_start):
        return after
    seen = None if before is None else before.running_seen
    came = 0 if seen is None else max(0, group.delivered - seen)
    nodes = max(1, after.slow_start) + max(came, ended)
    forgotten = after.last_failure is None or pool.settings.backoff.is_forgotten(after.last_failure, now)
    if forgotten or nodes >= _could_be_ordered(pool) + group.waiting:
        return replace(after, slow_start=0, running_seen=None)
    return replace(after, slow_start=min(nodes, LARGEST_COUNT), running_seen=group.delivered)


def _could_be_ordered(pool: AnyPool) -> int:
    """Return how many more nodes the pool may request; of an invalid pool that is unknown."""
    if not isinstance(pool, Pool):
        return LARGEST_COUNT
    return max(0, pool.max - sum([group.requested for group in pool.groups]))
