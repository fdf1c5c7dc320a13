"""Whether a cluster in dry run may be written: what its decisions have shown, and what speaks against it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.domain.model.states import GroupState

# How long a dry run must have lasted, unless somebody says otherwise.
NEEDED = timedelta(days=3)
# As often as makes a write contested: somebody keeps writing what would be ours.
OFTEN = 3
# Of one node group in a day: a patch every five minutes. No publication stands for so short a time in a pool at rest.
RESTLESS = 288


class Hindrance(StrEnum):
    """What speaks against writing to a cluster. The value stands in JSON."""

    IN_TROUBLE = "in-trouble"
    UNREAD = "not-read"  # just now, by who asked for that
    PAUSED = "paused"
    RESTORING = "being-restored"
    NO_POOLS = "no-pools"
    TOO_SHORT = "too-short"
    PUT_BACK = "put-back"  # others apply these fields, and would put back what is written
    WRITTEN_BY_OTHERS = "written-by-others"  # the bounds changed again and again while nobody of ours wrote them
    RESTLESS = "restless"
    RIGHTS = "rights-missing"


@dataclass(frozen=True, kw_only=True)
class PastDecision:
    """What a decision of one pool says of its groups, by key."""

    at: datetime
    dry_run: bool
    planned: tuple[str, ...] = ()  # would be written
    found: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)  # min and max as they stood


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """What a dry run has shown, of the time that was asked for. Groups by key."""

    since: datetime  # from which moment on it counts
    days: float
    decisions: int = 0
    patches: int = 0  # that would have been written
    groups: int = 0  # that any decision names
    rewritten: Mapping[str, int] = field(default_factory=dict)  # how often others changed their bounds
    put_back: Mapping[str, str] = field(default_factory=dict)  # who would put ours back

    @property
    def patches_per_day(self) -> float:
        """No day is counted shorter than an hour: a first plan is no habit."""
        return self.patches / max(self.days, 1 / 24)

    def hindrances(self, needed: timedelta) -> list[Hindrance]:
        """What of this speaks against it; ``needed``: how long a dry run must have lasted."""
        return [
            hindrance
            for hindrance, is_so in {
                Hindrance.TOO_SHORT: self.days < needed / timedelta(days=1),
                Hindrance.PUT_BACK: bool(self.put_back),
                Hindrance.WRITTEN_BY_OTHERS: any(times >= OFTEN for times in self.rewritten.values()),
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
    """What a dry run has shown.

    Args:
        decisions: Those since ``begin``, the oldest first.
        begun: Moments before which there was no dry run: the cluster was registered, a pause ended.
        states: What is remembered of node groups, by key.
        begin: Nothing before it is asked for.
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
