"""Slow start: the most machines that may be provisioning at a time in a zone that delivers again.

A probe shows that a zone delivers one machine, not that it delivers thirty. A refused order fences the zone for twice
as long, and its pods wait although they could run in other zones. So the limit rises by one for each machine that
becomes a node. It has doubled when all provisioning machines have become nodes:

    fence    probe: 1     2      4      8    as many as the pool may still grow by
    ------|-----------*------*------*------*---------------->
                      *: all provisioning machines have become nodes; a failure at any time fences again
"""

from dataclasses import replace
from datetime import datetime

from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.pools import AnyPool, Pool
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.model.values import LARGEST_COUNT


def count_arrivals(pool: AnyPool, group: NodeGroup, before: GroupState, after: GroupState, now: datetime) -> GroupState:
    """Return the state with slow start's limit of provisioning machines.

    Slow start ends when the limit reaches the number of nodes that the pool could order, or when the failure is
    forgotten.

    Args:
        pool: The group's pool.
        group: The group. While it is frozen, nothing is counted.
        before: The stored state.
        after: The state with this check's failures and successes.
        now: The time.
    """
    if group.frozen_because is not None or after.is_failing:
        return after
    ended = before.is_failing
    if not (ended or after.arrivals.slow_start):
        return after
    seen = before.arrivals.running_seen
    came = 0 if seen is None else max(0, group.delivered - seen)
    nodes = max(1, after.arrivals.slow_start) + max(came, ended)
    forgotten = after.failure.last_failure is None or pool.settings.backoff.is_forgotten(
        after.failure.last_failure, now
    )
    if forgotten or nodes >= _could_be_ordered(pool) + group.waiting:
        return replace(after, arrivals=replace(after.arrivals, slow_start=0, running_seen=None))
    arrivals = replace(after.arrivals, slow_start=min(nodes, LARGEST_COUNT), running_seen=group.delivered)
    return replace(after, arrivals=arrivals)


def _could_be_ordered(pool: AnyPool) -> int:
    """Return how many more nodes the pool may request; for an invalid pool, the largest count."""
    if not isinstance(pool, Pool):
        return LARGEST_COUNT
    return max(0, pool.max - sum([group.requested for group in pool.groups]))
