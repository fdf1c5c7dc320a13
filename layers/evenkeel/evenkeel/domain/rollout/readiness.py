"""Readiness: what the decisions of a dry run have shown, and what keeps the cluster from going live."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.domain.model.states import GroupState

# The default time that a dry run must last.
NEEDED = timedelta(days=3)
# As many changes by others make a write contested.
REWRITTEN_TOO_OFTEN = 3
# Patches of one node group in a day: one every five minutes. A pool at rest needs far fewer.
RESTLESS = 288


class Hindrance(StrEnum):
    """What keeps a cluster from going live. The value is a JSON key."""

    IN_TROUBLE = "in-trouble"
    UNREAD = "not-read"  # by the check that the operator requested
    PAUSED = "paused"
    RESTORING = "being-restored"
    NO_POOLS = "no-pools"
    TOO_SHORT = "too-short"
    PUT_BACK = "put-back"  # another controller applies these fields and would revert them
    WRITTEN_BY_OTHERS = "written-by-others"  # the bounds kept changing although Evenkeel did not write them
    RESTLESS = "restless"
    RIGHTS = "rights-missing"


@dataclass(frozen=True, kw_only=True)
class PastDecision:
    """A past decision about one pool. Groups by key."""

    at: datetime
    dry_run: bool
    planned: tuple[str, ...] = ()  # would be written
    found: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)  # min and max at that time


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a dry run has shown in the requested time. Groups by key."""

    since: datetime  # from when it counts
    days: float
    decisions: int = 0
    patches: int = 0  # that would have been written
    groups: int = 0  # in any decision
    rewritten: Mapping[str, int] = field(default_factory=dict)  # changes of their bounds by others
    put_back: Mapping[str, str] = field(default_factory=dict)  # who would revert Evenkeel's

    @property
    def patches_per_day(self) -> float:
        """Return the average. A dry run counts as an hour at least: a first plan is no trend."""
        return self.patches / max(self.days, 1 / 24)

    def hindrances(self, needed: timedelta) -> list[Hindrance]:
        """Return what keeps the cluster from going live. ``needed``: the time that a dry run must last."""
        return [
            hindrance
            for hindrance, is_so in {
                Hindrance.TOO_SHORT: self.days < needed / timedelta(days=1),
                Hindrance.PUT_BACK: bool(self.put_back),
                Hindrance.WRITTEN_BY_OTHERS: any(times >= REWRITTEN_TOO_OFTEN for times in self.rewritten.values()),
                Hindrance.RESTLESS: self.patches_per_day > RESTLESS * max(1, self.groups),
            }.items()
            if is_so
        ]


def dry_run_of(
    decisions: Sequence[PastDecision],
    begun: Iterable[datetime],
    states: Mapping[str, GroupState],
    begin: datetime,
    now: datetime,
) -> DryRun:
    """Return what a dry run has shown since ``begin``.

    Args:
        decisions: Since then, the oldest first.
        begun: Times before which there was no dry run: the cluster was registered, or a pause ended.
        states: The stored state of node groups, by key.
        begin: The start of the requested time.
        now: The time.
    """
    written = [decision.at for decision in decisions if not decision.dry_run]
    since = min(now, max([begin, *begun, *written]))
    counted = [decision for decision in decisions if decision.dry_run and decision.at >= since]
    stood: dict[str, tuple[int | None, int | None]] = {}
    rewritten: Counter[str] = Counter()
    for decision in counted:
        for key, bounds in decision.found.items():
            rewritten[key] += stood.get(key, bounds) != bounds
            stood[key] = bounds
    holders = {
        key: state.contested_by or state.bounds_applied_by or state.replicas_applied_by
        for key, state in states.items()
        if state.contested_since is not None or state.bounds_applied_by or state.replicas_applied_by
    }
    return DryRun(
        since=since,
        days=(now - since) / timedelta(days=1),
        decisions=len(counted),
        patches=sum(len(decision.planned) for decision in counted),
        groups=len({key for decision in counted for key in decision.found}),
        rewritten={key: times for key, times in sorted(rewritten.items()) if times},
        put_back=dict(sorted(holders.items())),
    )
