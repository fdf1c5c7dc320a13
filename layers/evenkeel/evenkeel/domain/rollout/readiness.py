"""Readiness: the results of a dry run, and the hindrances that keep a cluster from going live."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.observed import CONTEST_REVERTS

# The least length of a dry run, by default.
NEEDED = timedelta(days=3)
# If a node group has more patches per day, the cluster may not go live. 288 patches are one every five minutes. A
# steady pool needs far fewer.
RESTLESS = 288


class Hindrance(StrEnum):
    """A reason that keeps a cluster from going live. The value of each member is a JSON key."""

    IN_TROUBLE = "in-trouble"
    UNREAD = "not-read"  # the check that the operator requested could not read the cluster
    PAUSED = "paused"
    RESTORING = "being-restored"
    NO_POOLS = "no-pools"
    TOO_SHORT = "too-short"
    PUT_BACK = "put-back"  # another controller applies fields that Evenkeel writes, and would revert Evenkeel's values
    WRITTEN_BY_OTHERS = "written-by-others"  # another writer changes the bounds again and again
    RESTLESS = "restless"
    RIGHTS = "rights-missing"


@dataclass(frozen=True, kw_only=True)
class PastDecision:
    """A past decision about one pool. Groups are named by key."""

    at: datetime
    dry_run: bool
    planned: tuple[str, ...] = ()  # the groups that the plan would have written
    found: Mapping[str, tuple[int | None, int | None]] = field(default_factory=dict)  # group -> its bounds at that time


@dataclass(frozen=True, kw_only=True)
class DryRun:
    """The results of a dry run during the requested period. Groups are named by key."""

    since: datetime  # the start of the dry run or of the requested period, whichever is later
    days: float  # the length of the dry run, in days
    decisions: int = 0
    patches: int = 0  # the number of patches that Evenkeel would have written
    groups: int = 0  # the number of groups in the decisions of the dry run
    rewritten: Mapping[str, int] = field(default_factory=dict)  # group -> how often other writers changed its bounds
    put_back: Mapping[str, str] = field(default_factory=dict)  # group -> the writer that would revert Evenkeel's values

    @property
    def patches_per_day(self) -> float:
        """Return the average number of patches per day. A dry run of less than an hour counts as an hour."""
        return self.patches / max(self.days, 1 / 24)

    def hindrances(self, needed: timedelta) -> list[Hindrance]:
        """Return the hindrances that this dry run shows. ``needed`` is the least length of a dry run."""
        return [
            hindrance
            for hindrance, is_so in {
                Hindrance.TOO_SHORT: self.days < needed / timedelta(days=1),
                Hindrance.PUT_BACK: bool(self.put_back),
                Hindrance.WRITTEN_BY_OTHERS: any(times >= CONTEST_REVERTS for times in self.rewritten.values()),
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
    """Return the results of a dry run since ``begin``.

    Args:
        decisions: Those since ``begin``, the oldest first.
        begun: When the dry run started or continued, because the cluster was registered or a pause ended.
        states: The stored state of node groups, by key.
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
        key: contest.contested_by or contest.bounds_applied_by or contest.replicas_applied_by
        for key, contest in ((key, state.contest) for key, state in states.items())
        if contest.contested_since is not None or contest.bounds_applied_by or contest.replicas_applied_by
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
