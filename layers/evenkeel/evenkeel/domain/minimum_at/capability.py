"""PoolMinimum by the clock in the pipeline of a plan. The steps for PoolMinimum order its nodes and keep them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

from evenkeel.domain.minimum_at.setting import Entry, MinimumAt, minimum_at
from evenkeel.domain.minimum_at.spans import Span, current_or_next
from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import STEPS_APART
from evenkeel.domain.rebalancing.capability import Capability, Inputs, Point
from evenkeel.domain.rebalancing.health.provision_times import provision_time

# A check is requested only for a change within this time. Until then the cluster is steady, and no check needs a timer.
# A steady cluster gets a full check at least every hour.
_SOON = timedelta(minutes=75)
_RUN = timedelta(seconds=5)  # how long a run takes until its order is written
_LONGEST_LEAD = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class _Due:
    """An entry in its current or next span."""

    entry: Entry
    span: Span
    nodes: int  # the entry's number, at most PoolMaximum
    orders_at: datetime | None  # when its nodes are ordered; None: long ago
    holds: bool
    counts: bool  # True: PoolMinimum is at least its number. It holds, or its nodes are ordered ahead of time


def set_minimum(pool: PoolDraft) -> None:
    """Raise PoolMinimum to the largest number of the entries that count now."""
    found = minimum_at(pool.pool)
    if not (found.entries or found.faults):
        return
    _report_faults(pool, found)
    due = list(_due(pool, found.entries))
    counting = [each for each in due if each.counts]
    changes = [each.span.until if each.counts else each.orders_at for each in due]
    pool.check_at += [at for at in changes if at is not None and at <= pool.now + _SOON]
    if counting:
        largest = max(counting, key=lambda each: (each.nodes, each.holds))
        rule = Rule.MINIMUM_AT if largest.holds else Rule.MINIMUM_AT_AHEAD
        without, minimum = pool.pool.min, max(pool.pool.min, largest.nodes)
        pool.pool = replace(pool.pool, min=minimum)
        pool.parts.notes.append(_note(rule, largest, minimum=minimum, without=without))
    elif due:
        nearest = min(due, key=lambda each: (each.orders_at or pool.now, -each.nodes))
        pool.parts.notes.append(_note(Rule.MINIMUM_AT_NEXT, nearest, orders=nearest.orders_at))


def lead_time(pool: PoolDraft, nodes: int) -> timedelta:
    """Return how long it may take to order these nodes, and to provision those of the slowest group."""
    settings, between = pool.pool.settings, STEPS_APART
    lead = max([provision_time(pool.pool, draft.group) for draft in pool.groups], default=timedelta(0))
    if settings.autoscaler:
        between = max(between, pool.pool.standstill)
        lead += pool.pool.standstill
    if settings.max_step is not None:
        lead += (between + _RUN) * max(0, ceil((nodes - pool.pool.min) / settings.max_step) - 1)
    return min(lead, _LONGEST_LEAD)


def _due(pool: PoolDraft, entries: Sequence[Entry]) -> Iterator[_Due]:
    for entry in entries:
        span = current_or_next(entry.hours, entry.zone, pool.now)
        if span is not None:
            nodes = min(entry.min, pool.pool.max)
            orders_at = None if span.since is None else span.since - lead_time(pool, nodes)
            holds = span.since is None or span.since <= pool.now
            counts = orders_at is None or orders_at <= pool.now
            yield _Due(entry=entry, span=span, nodes=nodes, orders_at=orders_at, holds=holds, counts=counts)


def _note(rule: Rule, due: _Due, **facts: int | datetime | None) -> Reason:
    entry, (since, until) = due.entry, due.span
    return Reason.of(rule, entry=entry.text, least=entry.min, since=since, until=until, **facts)


def _report_faults(pool: PoolDraft, found: MinimumAt) -> None:
    """Report each fault, and each number above PoolMaximum. The other entries count nevertheless."""
    top = pool.pool.max
    problem = f"larger than PoolMaximum, so {top} counts: lower it, or raise PoolMaximum"
    above = [(f"{entry.field}.min", str(entry.min), problem) for entry in found.entries if entry.min > top]
    for field, value, what in (*found.faults, *above):
        name = f"pool {pool.pool.id.name}"
        pool.problem(ProblemKind.UNREADABLE_AND_LEFT_OUT, object=name, field=field, value=value, problem=what)


def _assume(_check: Check, pools: Sequence[AnyPool], inputs: Inputs) -> Inputs:
    """Return the inputs of the pools with entries. Their mins by the clock hold where nodes return to another pool."""
    return {pool.id: inputs[pool.id]._replace(keeps_minima=True) for pool in pools if minimum_at(pool).entries}


MINIMUM_BY_CLOCK = Capability(steps={Point.START: set_minimum}, assume=_assume)
