"""Readiness of a cluster in dry run, from its stored decisions, health and actions.

The cluster itself is read only if an operator requests it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from evenkeel.application.errors import UNREADABLE
from evenkeel.application.plan_documents import DecisionDocument, read_decisions
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rollout.ports import DecisionStore
from evenkeel.domain.model.outcomes import Result
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.rollout.readiness import DryRun, Hindrance, PastDecision, dry_run_of
from evenkeel.validation import ConfigError

# How long decisions are stored. A cluster without stored decisions counts as registered before this period.
KEPT = timedelta(days=30)
# The most pages of decisions that are read, of 1 MiB each. Further decisions would not change the answer.
_MOST_PAGES = 30
_NEWEST = 10
# An entry with one of these causes restarts the time of the dry run.
_BEGINNINGS = ("resume", "dry-run", "restore", UNREADABLE)


@dataclass(frozen=True, kw_only=True)
class LiveRead:
    """The result of a read of the cluster on request."""

    plan: Plan | None = None
    unread: str = ""  # why there is no plan; empty: there is a plan
    refused: Sequence[str] = ()  # the rights that a run lacks, each as text


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """The readiness of a cluster in dry run."""

    dry_run: DryRun
    hindrances: tuple[Hindrance, ...]
    asked: LiveRead | None = None  # None: the cluster was not read now
    whole: bool = True  # False: not all decisions were read

    @property
    def is_ready(self) -> bool:
        """Return True if nothing hinders the cluster from going live."""
        return not self.hindrances


def readiness_of(
    store: DecisionStore,
    stored: StoredCluster,
    needed: timedelta,
    now: datetime,
    ask: Callable[[], LiveRead] | None = None,
) -> Readiness:
    """Return the readiness. ``needed`` is the least length of a dry run. ``ask`` reads the cluster, if given.

    Raises StateUnavailableError.
    """
    begin = now - needed
    recorded = _read(store, stored.record.id, begin, now)
    states = {str(key): state for key, state in stored.state.groups.items()}
    dry_run = dry_run_of(recorded.decisions, recorded.begun, states, begin, now)
    asked = None if ask is None else ask()
    control = stored.control
    held = {
        Hindrance.IN_TROUBLE: bool(stored.cluster_health.incidents),
        Hindrance.UNREAD: asked is not None and bool(asked.unread),
        Hindrance.PAUSED: control.is_paused(now),
        Hindrance.RESTORING: control.restoring or bool(control.restoring_pools),
        Hindrance.NO_POOLS: not stored.state.pools,
        Hindrance.RIGHTS: asked is not None and bool(asked.refused),
    }
    hindrances = [hindrance for hindrance, applies in held.items() if applies]
    if Hindrance.NO_POOLS not in hindrances:  # a dry run without pools has no results
        hindrances += dry_run.hindrances(needed)
    return Readiness(dry_run=dry_run, hindrances=tuple(hindrances), asked=asked, whole=recorded.whole)


@dataclass(kw_only=True)
class _Recorded:
    """The stored decisions, and in ``begun`` the times at which the dry run started or restarted."""

    decisions: list[PastDecision] = field(default_factory=list)
    begun: list[datetime] = field(default_factory=list)
    whole: bool = True


def _read(store: DecisionStore, cluster: str, begin: datetime, now: datetime) -> _Recorded:
    recorded = _Recorded()
    oldest, more = store.decisions_after(cluster, ulid(now - KEPT, bytes(10)))
    if oldest and (first := _at(oldest[0])) is not None and first > begin:
        recorded.begun.append(first)  # the cluster was registered at this time
    if not more:
        _take(oldest, begin, recorded)
        return recorded
    after = ulid(begin, bytes(10))
    for _ in range(_MOST_PAGES):
        page, more = store.decisions_after(cluster, after)
        _take(page, begin, recorded)
        if not more or not page:
            return recorded
        after = page[-1]["id"]
    # The newest decisions are always read, because they may show that Evenkeel has written.
    _take(store.decisions(cluster, _NEWEST), begin, recorded)
    return replace(recorded, whole=False)


def _take(page: Sequence[Mapping[str, Any]], begin: datetime, recorded: _Recorded) -> None:
    for entry in page:
        at = _at(entry)
        if at is None or at < begin:
            continue
        if "pool" not in entry:
            recorded.begun += [at] if entry.get("cause") in _BEGINNINGS else []
            continue
        try:
            (decision,) = read_decisions([entry], "decision")
        except ConfigError:
            continue  # a newer release may have stored a decision that this release cannot read
        if not any(note.get("rule") == Rule.POOL_LIVE.value for note in decision.pool.note_rules):
            recorded.decisions.append(_past(decision))


def _past(decision: DecisionDocument) -> PastDecision:
    groups = decision.pool.groups
    return PastDecision(
        at=decision.at,
        dry_run=decision.dry_run,
        planned=tuple(group.key for group in groups if group.result == Result.PLANNED.value),
        found={group.key: (group.min.before, group.max.before) for group in groups},
    )


def _at(entry: Mapping[str, Any]) -> datetime | None:
    try:
        at = datetime.fromisoformat(entry["at"])
    except (KeyError, TypeError, ValueError):
        return None
    return at if at.tzinfo is not None else None
