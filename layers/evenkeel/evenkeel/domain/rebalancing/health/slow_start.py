"""Slow start: a zone that delivers again may have one machine on its way, then two, four, … doubled by each that comes.

The probe shows that a zone gives one machine, not that it gives thirty. What is ordered there and refused keeps pods
from the zones that deliver, and fences the zone for twice as long.

    fence    probe: 1     2      4      8    as many as the pool may still grow by
    ------|-----------*------*------*------*---------------->
                      each * a machine that has come; a failure anywhere: fenced again

It is a cap on a healthy group and no state: sizing, raising, requests and moves know caps.
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
    """The state after a look, with how many machines may be on their way since the zone delivers again.

    It is over when as many may be on their way as the pool could order, and forgotten with the failure.

    Args:
        pool: Whose group it is.
        group: As this look found it; while it is frozen nothing is judged.
        before: What was remembered before this look.
        after: The same after it, with its failures and its success.
        now: The time.
    """
    ended = before is not None and before.is_failing and not after.is_failing
    if group.frozen_because is not None or after.is_failing or not (ended or after.slow_start):
        return after
    seen = None if before is None else before.running_seen
    came = 0 if seen is None else max(0, group.delivered - seen)
    nodes = max(1, after.slow_start) + max(came, ended)
    forgotten = after.last_failure is None or pool.backoff.is_forgotten(after.last_failure, now)
    if forgotten or nodes >= _could_be_ordered(pool) + group.waiting:
        return replace(after, slow_start=0, running_seen=None)
    return replace(after, slow_start=min(nodes, LARGEST_COUNT), running_seen=group.delivered)


def _could_be_ordered(pool: AnyPool) -> int:
    """How many more nodes the pool may request. Nobody knows of an invalid one."""
    if not isinstance(pool, Pool):
        return LARGEST_COUNT
    return max(0, pool.max - sum([group.requested for group in pool.groups]))
