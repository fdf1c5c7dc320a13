"""PoolMinimum by the clock in the pipeline of a plan. The steps for PoolMinimum order its nodes and keep them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from math import ceil

from evenkeel.domain.minimum_at.setting import Entry, minimum_at
from evenkeel.domain.minimum_at.spans import current_or_next
from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.observations import Check
from evenkeel.domain.model.pools import AnyPool
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import STEPS_APART
from evenkeel.domain.model.values import Fault
from evenkeel.domain.rebalancing.capability import Capability, Inputs, Point

# A check is requested only for a change within this time. Until then the cluster is steady, and no check needs a timer.
# A steady cluster gets a full check at least every hour.
_SOON = timedelta(minutes=75)
_RUN = timedelta(seconds=5)  # how long a run takes until its order is written
_LONGEST_LEAD = timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class _Due:
    """An entry in its current or next span."""

    entry: Entry
    nodes: int  # the entry's number, at most PoolMaximum
    since: datetime | None  # None: it has held for a week or longer
    until: datetime | None
    orders_at: datetime | None  # when its nodes are ordered

    def holds(self, now: datetime) -> bool:
        return self.since is None or self.since <= now

    def counts(self, now: datetime) -> bool:
        """Return True if PoolMinimum is at least the entry's number: the entry holds, or its nodes are ordered."""
        return self.orders_at is None or self.orders_at <= now

    def changes_at(self, now: datetime) -> datetime | None:
        return self.until if self.counts(now) else self.orders_at


def set_minimum(pool: PoolDraft) -> None:
    """Raise PoolMinimum to the largest number of the entries that count now."""
    found = minimum_at(pool.pool)
    _report_faults(pool, found.faults)
    _report_faults(pool, _above_maximum(pool, found.entries))
    due = list(_due(pool, found.entries))
    if not due:
        return
    now, minimum = pool.now, pool.pool.min
    counting = [each for each in due if each.counts(now)]
    changes = [at for each in due if (at := each.changes_at(now)) is not None]
    pool.check_at += [at for at in changes if at <= now + _SOON]
    if not counting:
        nearest = min(due, key=lambda each: (each.orders_at or now, -each.nodes))
        pool.parts.notes.append(_note(Rule.MINIMUM_AT_NEXT, nearest, orders=nearest.orders_at))
        return
    largest = max(counting, key=lambda each: (each.nodes, each.holds(now)))
    rule = Rule.MINIMUM_AT if largest.holds(now) else Rule.MINIMUM_AT_AHEAD
    pool.pool = replace(pool.pool, min=max(minimum, largest.nodes))
    pool.parts.notes.append(_note(rule, largest, minimum=pool.pool.min))


def lead_time(pool: PoolDraft, nodes: int) -> timedelta:
    """Return how long before an entry begins its nodes are ordered, so that they run when it begins.

    It is the provision timeout of the slowest group, and the time that it takes to order so many nodes.
    """
    settings, between = pool.pool.settings, STEPS_APART
    lead = max([draft.provision_timeout for draft in pool.groups], default=timedelta(0))
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
            yield _Due(entry=entry, nodes=nodes, since=span.since, until=span.until, orders_at=orders_at)


def _note(rule: Rule, due: _Due, **facts: int | datetime | None) -> Reason:
    entry = due.entry
    return Reason.of(rule, entry=entry.text, least=entry.min, since=due.since, until=due.until, **facts)


def _above_maximum(pool: PoolDraft, entries: Sequence[Entry]) -> Iterator[Fault]:
    top = pool.pool.max
    for entry in entries:
        if entry.min > top:
            problem = f"larger than PoolMaximum, so {top} counts: lower it, or raise PoolMaximum"
            yield Fault(object="", field=f"{entry.field}.min", value=str(entry.min), problem=problem)


def _report_faults(pool: PoolDraft, faults: Iterator[Fault] | Sequence[Fault]) -> None:
    """Report each fault. The other entries count nevertheless."""
    name = f"pool {pool.pool.id.name}"
    for fault in faults:
        facts = {"field": fault.field, "value": fault.value, "problem": fault.problem}
        pool.problems.append(Problem(ProblemKind.UNREADABLE_AND_LEFT_OUT, {"object": name, **facts}))


def _assume(_check: Check, pools: Sequence[AnyPool], inputs: Inputs) -> Inputs:
    """Return the inputs of the pools with entries. Their mins by the clock hold where nodes return to another pool."""
    return {pool.id: inputs[pool.id]._replace(keeps_minima=True) for pool in pools if minimum_at(pool).entries}


MINIMUM_BY_CLOCK = Capability(steps={Point.START: set_minimum}, assume=_assume)
