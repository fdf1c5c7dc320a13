"""Rollout: clusters go live in waves. A wave with an incident is rolled back; otherwise the next wave starts.

    switching ──► watching ──► switching the next ... ──► done
        └────────────┴──► halting (the wave is rolled back) ──► halted

The work of a phase can safely run twice, even in parallel. A wave is stored before its clusters go live, and a rollback
changes only clusters whose record has the id of the rollout.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil

from evenkeel.domain.model.incidents import ClusterHealth, IncidentKind

# If clusters of a wave are not checked within this time after the soak time, the wave is rolled back.
LONGEST_WAIT = timedelta(minutes=30)
# The first check of a wave starts within this time. A node that is missing at that check becomes an incident after
# ``trouble_after``.
_FIRST_CHECK = timedelta(minutes=1)
# A cluster that was not read within this time is paused or unreachable. The soak of its wave then starts again.
READ_WITHIN = timedelta(minutes=5)


class Phase(StrEnum):
    """The phase of a rollout. The value is stored."""

    SWITCHING = "switching"
    WATCHING = "watching"
    HALTING = "halting"
    HALTED = "halted"
    DONE = "done"

    @property
    def is_over(self) -> bool:
        """Return True if the rollout is halted or done."""
        return self in (Phase.HALTED, Phase.DONE)


class LeftOut(StrEnum):
    """The reasons why a cluster did not go live with its wave."""

    GONE = "not-registered"
    UNREADABLE = "invalid-record"
    RECORD_SAYS = "record-says"  # the cluster's own record sets ``dry_run``
    LIVE = "live-already"
    PAUSED = "paused"
    IN_TROUBLE = "in-trouble"
    UNSEEN = "not-looked-at"


@dataclass(frozen=True, kw_only=True)
class Halt:
    """The cause of a halt: an incident of a live cluster. If ``cluster`` is empty, an operator halted the rollout."""

    cluster: str = ""
    kind: IncidentKind | None = None
    pool: str = ""


@dataclass(frozen=True, kw_only=True)
class RolloutCallers:
    """The names and reasons given by the callers that started and halted a rollout, and the causes of the halt."""

    halts: tuple[Halt, ...] = ()
    by: str = ""
    reason: str = ""
    halted_by: str = ""
    halt_reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Rollout(RolloutCallers):
    """A rollout over the clusters of one stack. A stack has at most one rollout at a time."""

    id: str
    at: datetime  # when the rollout started
    size: int = field(metadata={"ge": 1})  # the most clusters in a wave
    soak: timedelta  # the least time for which a wave must be live without an incident
    phase: Phase
    since: datetime  # when the phase started
    waiting: tuple[str, ...] = ()  # clusters of later waves, in order
    wave: tuple[str, ...] = ()  # clusters of the present wave
    # Since when all clusters of the wave have been live and read; None: not all of them are.
    read_since: datetime | None = None
    number: int = 0  # the number of the present wave, from 1 on; 0: no wave has started
    # The largest ``trouble_after`` of the wave's clusters; before the first wave, of all clusters.
    trouble_after: timedelta | None = None
    proven: tuple[str, ...] = ()  # clusters of earlier waves, which remain live
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)  # clusters that did not go live, with the reason

    def with_wave(self, wave: tuple[str, ...], left_out: Mapping[str, LeftOut], now: datetime) -> "Rollout":
        """Return the rollout with ``wave`` as its present wave. An empty ``wave`` needs no soak."""
        taken = {*wave, *left_out}
        waiting = tuple(cluster for cluster in self.waiting if cluster not in taken)
        return replace(
            self,
            phase=Phase.SWITCHING if wave else Phase.WATCHING if waiting else Phase.DONE,
            since=now if wave or not waiting else now - self.soak,
            proven=self.proven + self.wave,
            wave=wave,
            read_since=None,
            number=self.number + bool(wave),
            trouble_after=None,
            waiting=waiting,
            left_out={**self.left_out, **left_out},
        )

    def is_repeated_by(self, begun: "Rollout") -> bool:
        """Return True if ``begun`` repeats this rollout, because its caller did not receive the first answer."""
        members = tuple(cluster for cluster in begun.waiting if cluster not in self.left_out)
        known = {*self.proven, *self.wave, *self.waiting, *self.left_out}
        is_same = (self.proven + self.wave + self.waiting, known) == (members, set(begun.waiting))
        goes_on = self.phase in (Phase.SWITCHING, Phase.WATCHING)
        return goes_on and is_same and (self.size, self.soak) == (begun.size, begun.soak)

    def in_phase(self, phase: Phase, now: datetime) -> "Rollout":
        """Return the rollout with this phase, which starts now."""
        return replace(self, phase=phase, since=now)

    def halting(self, halts: Iterable[Halt], now: datetime, by: str = "", reason: str = "") -> "Rollout":
        """Return the rollout in phase halting. No further cluster goes live, and the present wave is rolled back."""
        return replace(self.in_phase(Phase.HALTING, now), halts=tuple(halts), halted_by=by, halt_reason=reason)

    def incidents(self, cluster_healths: Mapping[str, ClusterHealth]) -> tuple[Halt, ...]:
        """Return the incidents of the rollout's live clusters. No cluster had an incident when its wave started."""
        known = [(id, cluster_healths[id].incidents) for id in (*self.wave, *self.proven) if id in cluster_healths]
        return tuple(
            Halt(cluster=id, kind=incidents[0].kind, pool=incidents[0].pool) for id, incidents in known if incidents
        )

    @property
    def soak_time(self) -> timedelta:
        """Return ``soak``, or the time until a check can show an incident if that is longer."""
        return self.soak if self.trouble_after is None else max(self.soak, self.trouble_after + _FIRST_CHECK)

    def watched(self, unread: Collection[str], trouble_after: timedelta | None, now: datetime) -> "Rollout":
        """Return the rollout with its soak in progress, or reset if clusters of the wave are ``unread``."""
        return replace(self, read_since=None if unread else self.read_since or now, trouble_after=trouble_after)

    def unread(
        self, checked_at: Mapping[str, datetime], counted: Collection[str], now: datetime, within: timedelta
    ) -> tuple[str, ...]:
        """Return the wave's ``counted`` clusters that were not read since it went live, or in the last ``within``."""
        oldest = max(self.since, now - within)
        return tuple(id for id in self.wave if id in counted and (id not in checked_at or checked_at[id] <= oldest))

    def unseen(self, checked_at: Mapping[str, datetime], trouble_after: Mapping[str, timedelta]) -> tuple[str, ...]:
        """Return the clusters of the wave whose last check was too early to show an incident.

        Args:
            checked_at: When each cluster was last read.
            trouble_after: The delay until a missing node is an incident, by cluster. Other clusters do not count.
        """
        begun = self.read_since or self.since
        late = {id: begun + after + _FIRST_CHECK for id, after in trouble_after.items()}
        return tuple(id for id in self.wave if id in late and (id not in checked_at or checked_at[id] < late[id]))

    def has_soaked(self, now: datetime) -> bool:
        """Return True if the soak of the wave is over. The soak starts once each cluster was read after going live."""
        return not self.wave or (self.read_since is not None and now >= self.read_since + self.soak_time)

    def waited_too_long(self, now: datetime) -> bool:
        """Return True if checks of the wave are overdue."""
        return now >= self.since + self.soak_time + LONGEST_WAIT


def wave_size(text: str, clusters: int) -> int | None:
    """Return the size of a wave that a text such as ``5%`` or ``5`` describes; None if the text has another form."""
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdigit() and len(number) <= 5) or int(number) < 1:
        return None
    if not text.endswith("%"):
        return int(number)
    return ceil(clusters * int(number) / 100) if int(number) <= 100 else None


def unread_halts(clusters: Collection[str]) -> tuple[Halt, ...]:
    """Return the causes of a halt for clusters that were not checked."""
    return tuple(Halt(cluster=id, kind=IncidentKind.STOPPED) for id in clusters)
