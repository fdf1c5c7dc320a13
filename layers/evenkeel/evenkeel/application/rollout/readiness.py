"""Whether a cluster in dry run may be written, from what is stored: its decisions, its verdict, what actions have said.

Nothing is read from the cluster, unless somebody asks for that.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Self

from evenkeel.application.errors import EvenkeelError
from evenkeel.application.plan_documents import DecisionDocument, read_decisions
from evenkeel.application.ports import UNREADABLE, StoredCluster
from evenkeel.application.rollout.ports import RolloutStore
from evenkeel.domain.model.outcomes import Result
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.rollout.readiness import DryRun, Hindrance, PastDecision, dry_run_of
from evenkeel.validation import ConfigError

# For as long as decisions are kept; a cluster of which nothing is recorded in all that time has been known for longer.
KEPT = timedelta(days=30)
# Of a MiB each: so many decisions that more would not change the answer.
_MOST_PAGES = 30
_NEWEST = 10
# What people did after which a dry run begins anew.
_BEGINNINGS = ("resume", "dry-run", "restore", UNREADABLE)


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What the cluster itself has said to who asked it now."""

    plan: Plan | None = None
    unread: str = ""  # why there is none
    refused: Sequence[str] = ()  # what a run may not do, each in words


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the table has of a cluster."""

    remembered: StoredCluster
    decisions: Sequence[Mapping[str, Any]] | None  # all that are kept; None: they are too many to be read at once

    @classmethod
    def of(cls, store: RolloutStore, cluster: str, now: datetime) -> Self:
        """Raises UnknownClusterError, ConfigError, StateUnavailableError."""
        remembered, decisions = store.load_with_decisions(cluster, ulid(now - KEPT, bytes(10)))
        return cls(remembered=remembered, decisions=decisions)


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """Of a cluster in dry run."""

    dry_run: DryRun
    hindrances: tuple[Hindrance, ...]
    asked: Asked | None = None  # None: nobody has asked the cluster
    whole: bool = True  # False: there were more decisions than were read

    @property
    def is_ready(self) -> bool:
        return not self.hindrances


def readiness_of(
    store: RolloutStore,
    known: Known,
    needed: timedelta,
    now: datetime,
    ask: Callable[[], Asked] | None = None,
) -> Readiness:
    """``needed``: how long the dry run must have lasted; ``ask``: asks the cluster. Raises StateUnavailableError."""
    remembered, begin = known.remembered, now - needed
    found = _read(store, known, begin, now)
    states = {str(key): state for key, state in remembered.state.groups.items()}
    quote = dry_run_of(found.decisions, found.begun, states, begin, now)
    asked = None if ask is None else ask()
    control = remembered.control
    held = {
        Hindrance.IN_TROUBLE: bool(remembered.cluster_health.incidents),
        Hindrance.UNREAD: asked is not None and bool(asked.unread),
        Hindrance.PAUSED: control.is_paused(now),
        Hindrance.RESTORING: control.restoring or bool(control.restoring_pools),
        Hindrance.NO_POOLS: not remembered.state.pools,
        Hindrance.RIGHTS: asked is not None and bool(asked.refused),
    }
    hindrances = [hindrance for hindrance, is_so in held.items() if is_so]
    if Hindrance.NO_POOLS not in hindrances:  # then nothing of what follows can be known
        hindrances += quote.hindrances(needed)
    return Readiness(dry_run=quote, hindrances=tuple(hindrances), asked=asked, whole=found.whole)


@dataclass(kw_only=True)
class _Found:
    """What is recorded."""

    decisions: list[PastDecision] = field(default_factory=list)
    begun: list[datetime] = field(default_factory=list)
    whole: bool = True


def _read(store: RolloutStore, known: Known, begin: datetime, now: datetime) -> _Found:
    found, cluster = _Found(), known.remembered.record.id
    if known.decisions is None:
        oldest, more = store.decisions_after(cluster, ulid(now - KEPT, bytes(10)))
    else:
        oldest, more = known.decisions, False
    if oldest and (first := _at(oldest[0])) is not None and first > begin:
        found.begun.append(first)  # nothing is known from before: it was registered then
    if not more:
        _take(oldest, begin, found)
        return found
    after = ulid(begin, bytes(10))
    for _ in range(_MOST_PAGES):
        page, more = store.decisions_after(cluster, after)
        _take(page, begin, found)
        if not more or not page:
            return found
        after = page[-1]["id"]
    _take(store.decisions(cluster, _NEWEST), begin, found)  # should it have been written just now
    return replace(found, whole=False)


def _take(page: Sequence[Mapping[str, Any]], begin: datetime, found: _Found) -> None:
    for entry in page:
        at = _at(entry)
        if at is None or at < begin:
            continue
        if "pool" not in entry:
            found.begun += [at] if entry.get("cause") in _BEGINNINGS else []
            continue
        try:
            (decision,) = read_decisions([entry], "decision")
        except ConfigError:
            continue  # of a newer release: nobody here can say what it decided
        if not any(note.get("rule") == Rule.POOL_LIVE.value for note in decision.pool.note_rules):
            found.decisions.append(_past(decision))


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


def asked_of(plan: Callable[[], Plan], refused: Callable[[], Sequence[str]]) -> Asked:
    """The cluster's own answers; whatever keeps it from answering is one of them."""
    try:
        return Asked(plan=plan(), refused=refused())
    except EvenkeelError as error:
        return Asked(unread=str(error))
