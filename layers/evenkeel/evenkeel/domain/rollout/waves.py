"""Clusters that go live in waves. A wave that stands its time without trouble is followed by the next; one that does
not is taken back.

    switching ──► watching ──► switching the next ... ──► done
        └────────────┴──► halting (those of the wave go back) ──► halted

What each phase does to clusters may be done twice, and by two at once: before a wave is switched on it is written down
whose it is, and what is taken back is what bears the rollout's name.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil

from evenkeel.domain.model.incidents import ClusterHealth, IncidentKind

# A wave must have been looked at since it went live. One that is not, within so long after its time, is taken back.
LONGEST_WAIT = timedelta(minutes=30)
# The first look at a wave comes within so long. A node that is missing then is trouble ``trouble_after`` later.
_FIRST_LOOK = timedelta(minutes=1)
# A cluster of a wave that was not read for so long is paused or away: its soak begins again.
READ_WITHIN = timedelta(minutes=5)


class Phase(StrEnum):
    """Where a rollout stands. The value is stored."""

    SWITCHING = "switching"
    WATCHING = "watching"
    HALTING = "halting"
    HALTED = "halted"
    DONE = "done"

    @property
    def is_over(self) -> bool:
        return self in (Phase.HALTED, Phase.DONE)


class LeftOut(StrEnum):
    """Why a cluster was not switched on when its wave came."""

    GONE = "not-registered"
    UNREADABLE = "invalid-record"
    RECORD_SAYS = "record-says"  # its record says itself whether it is written
    LIVE = "live-already"
    PAUSED = "paused"
    IN_TROUBLE = "in-trouble"
    UNSEEN = "not-looked-at"


@dataclass(frozen=True, kw_only=True)
class Halt:
    """What has halted a rollout: trouble of a cluster that it has switched on. No cluster: a person has."""

    cluster: str = ""
    kind: IncidentKind | None = None
    pool: str = ""


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """Of a stack, one at a time."""

    id: str
    at: datetime  # when it was begun
    size: int  # clusters of a wave
    soak: timedelta  # how long a wave must stand without trouble, at least
    phase: Phase
    since: datetime  # when the phase began
    waiting: tuple[str, ...] = ()  # whose turn has not come, in order
    wave: tuple[str, ...] = ()  # the present one
    read_since: datetime | None = None  # since when each cluster of the wave is read, live; None: one is not
    number: int = 0  # of the present wave, from 1 on
    trouble_after: timedelta | None = None  # the largest of the wave's clusters; before the first wave, of all
    proven: tuple[str, ...] = ()  # of the waves before: they stay on
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)
    halts: tuple[Halt, ...] = ()
    by: str = ""  # who asked for it, as they say it, and
    reason: str = ""  # why
    halted_by: str = ""
    halt_reason: str = ""

    def with_wave(self, wave: tuple[str, ...], left_out: Mapping[str, LeftOut], now: datetime) -> "Rollout":
        """The present wave is proven, and these come next. Where there are none, others are chosen at once."""
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
        """Return whether a rollout that is to begin asks for the same: its answer was lost, and it was asked again."""
        members = tuple(cluster for cluster in begun.waiting if cluster not in self.left_out)
        known = {*self.proven, *self.wave, *self.waiting, *self.left_out}
        is_same = (self.proven + self.wave + self.waiting, known) == (members, set(begun.waiting))
        goes_on = self.phase in (Phase.SWITCHING, Phase.WATCHING)
        return goes_on and is_same and (self.size, self.soak) == (begun.size, begun.soak)

    def in_phase(self, phase: Phase, now: datetime) -> "Rollout":
        return replace(self, phase=phase, since=now)

    def halting(self, halts: Iterable[Halt], now: datetime, by: str = "", reason: str = "") -> "Rollout":
        """Nothing more is switched on, and the present wave goes back. ``by`` and ``reason``: where a person says so"""
        return replace(self.in_phase(Phase.HALTING, now), halts=tuple(halts), halted_by=by, halt_reason=reason)

    def incidents(self, cluster_healths: Mapping[str, ClusterHealth]) -> tuple[Halt, ...]:
        """Trouble of any cluster that it has switched on. None was in trouble when its wave came."""
        found = [(id, cluster_healths[id].incidents) for id in (*self.wave, *self.proven) if id in cluster_healths]
        return tuple(
            Halt(cluster=id, kind=incidents[0].kind, pool=incidents[0].pool) for id, incidents in found if incidents
        )

    @property
    def soak_time(self) -> timedelta:
        """How long the wave stands: the soak, or longer than its clusters need to open their trouble."""
        return self.soak if self.trouble_after is None else max(self.soak, self.trouble_after + _FIRST_LOOK)

    def watched(self, unread: Collection[str], trouble_after: timedelta | None, now: datetime) -> "Rollout":
        """Return the rollout with the begin of its soak, after a check that has found these clusters unread."""
        return replace(self, read_since=None if unread else self.read_since or now, trouble_after=trouble_after)

    def unread(
        self, looked_at: Mapping[str, datetime], counted: Collection[str], now: datetime, within: timedelta
    ) -> tuple[str, ...]:
        """Return the counted clusters of the wave that were not read since they are live, or not within this time."""
        oldest = max(self.since, now - within)
        return tuple(id for id in self.wave if id in counted and (id not in looked_at or looked_at[id] <= oldest))

    def unseen(self, looked_at: Mapping[str, datetime], trouble_after: Mapping[str, timedelta]) -> tuple[str, ...]:
        """Return the clusters of the wave that were not read late enough to be known to be well.

        Args:
            looked_at: When each cluster was last read.
            trouble_after: Of each cluster that counts. A node may be missing for so long before that is trouble.
        """
        begun = self.read_since or self.since
        late = {id: begun + after + _FIRST_LOOK for id, after in trouble_after.items()}
        return tuple(id for id in self.wave if id in late and (id not in looked_at or looked_at[id] < late[id]))

    def has_stood(self, now: datetime) -> bool:
        """Return True if the soak of the wave is over. It counts from the first read of its last cluster, live."""
        return not self.wave or (self.read_since is not None and now >= self.read_since + self.soak_time)

    def waited_too_long(self, now: datetime) -> bool:
        """For looks at the wave."""
        return now >= self.since + self.soak_time + LONGEST_WAIT


def wave_size(text: str, clusters: int) -> int | None:
    """``5%`` of so many clusters, or ``5`` of them, one at least; None: it is neither."""
    number = text.removesuffix("%")
    if not (number.isascii() and number.isdigit() and len(number) <= 5) or int(number) < 1:
        return None
    if not text.endswith("%"):
        return int(number)
    return ceil(clusters * int(number) / 100) if int(number) <= 100 else None


def unread_halts(clusters: Collection[str]) -> tuple[Halt, ...]:
    """That nobody has looked at these is trouble as well."""
    return tuple(Halt(cluster=id, kind=IncidentKind.STOPPED) for id in clusters)
