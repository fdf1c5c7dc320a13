"""Converge: bringing running nodes home, one step of a pool at a time; what is wished, remembered and told of it.

A step is written down before its first patch, and each of its two patches carries the id of its move
(``domain.model.moves``), so that the objects say how far it came:

    order: destination +1         its machine runs         give: source -1, one machine by name        that has gone
    ----*--------------------------------*-------------------------------*----------------------------------*---->
        late, or a word about a zone: that machine is taken back         nobody takes anything back any more
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta

from evenkeel.domain.model.groups import MachineRef
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import BadValueError

# Zones that differ are left alone for so long: what is ordered or given back just now may level them by itself.
SETTLES = timedelta(minutes=10)
# What its source requests again within so long was bound to it,
COMES_BACK = timedelta(minutes=15)
# and then nothing is moved for so long.
HELD = timedelta(hours=24)
# After a step that came to nothing although its machine ran: the next would come to the same.
AFTER_FAILURE = timedelta(hours=1)
BUDGET = timedelta(hours=1)
# An autoscaler takes an unneeded node after ten minutes, and not within ten minutes of a node that it ordered.
IDLE_GOES = timedelta(minutes=30)
# Whoever asks for a pass by hand waits for it that long.
PASS_LASTS = timedelta(hours=2)
_DAY = timedelta(days=1)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_NAME = f"(?:{'|'.join(_DAYS)})"
_SPAN = f"{_NAME}(?:-{_NAME})?"
WINDOW_PATTERN = f"^(?:({_SPAN}(?:,{_SPAN})*) )?([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])$"


@dataclass(frozen=True, kw_only=True)
class Window:
    """When steps may begin: on these days (0: Monday; none named: every day), between two times of day, in UTC.

    One that ends before it begins goes past midnight and belongs to its first day. ``end`` None: midnight.
    """

    start: time
    end: time | None
    days: frozenset[int] = frozenset()

    @classmethod
    def read(cls, text: str) -> "Window":
        """From ``22:00-06:00``, with days before it: ``Mon-Fri 22:00-06:00``, ``Sat,Sun 00:00-24:00``.

        Raises BadValueError.
        """
        found = re.fullmatch(WINDOW_PATTERN, text)
        if found is None:
            raise BadValueError("write it like 22:00-06:00 or Mon-Fri 22:00-06:00, in UTC")
        days, *parts = found.groups()
        start_hour, start_minute, end_hour, end_minute = map(int, parts)
        if (start_hour, start_minute) == (end_hour, end_minute):
            raise BadValueError("it ends when it begins: for whole days write 00:00-24:00")
        if end_hour == 24 and end_minute:
            raise BadValueError("a day ends at 24:00")
        end = None if end_hour == 24 else time(end_hour, end_minute)
        return cls(start=time(start_hour, start_minute), end=end, days=_days(days or ""))

    def __str__(self) -> str:
        days = ",".join(_DAYS[day] for day in sorted(self.days))
        times = f"{self.start:%H:%M}-{'24:00' if self.end is None else f'{self.end:%H:%M}'}"
        return f"{days} {times}" if days else times

    def begins(self, now: datetime) -> datetime | None:
        """When it opens next; ``now`` where it is open; None: never."""
        midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        for day in range(-1, 8):
            start = (midnight + day * _DAY).replace(hour=self.start.hour, minute=self.start.minute)
            if self.days and start.weekday() not in self.days:
                continue
            end = midnight + (day + 1) * _DAY
            if self.end is not None:
                end = start.replace(hour=self.end.hour, minute=self.end.minute)
                end += _DAY if end <= start else timedelta(0)
            if now < end:
                return max(now, start)
        return None


def _days(text: str) -> frozenset[int]:
    """The days of ``Mon-Wed,Sat``; a span may go past Sunday."""
    days: set[int] = set()
    for span in filter(None, text.split(",")):
        first, _, last = span.partition("-")
        start = _DAYS.index(first)
        length = (_DAYS.index(last or first) - start) % len(_DAYS)
        days |= {(start + day) % len(_DAYS) for day in range(length + 1)}
    return frozenset(days)


@dataclass(frozen=True, kw_only=True)
class ConvergePolicy:
    """What a cluster's record says of converge."""

    per_hour: int = 4  # steps of a pool that may begin within an hour
    windows: tuple[Window, ...] = ()  # none: always
    surge: int = 0  # nodes that a step may have above PoolMaximum: 0 or 1
    blind: bool = False  # machines are chosen without knowing their pods

    def opens(self, now: datetime) -> datetime | None:
        """When the next step may begin, by the windows; ``now`` where one is open; None: never."""
        if not self.windows:
            return now
        return min((found for each in self.windows if (found := each.begins(now)) is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One machine on its way from the source to the destination. Groups by key."""

    source: str
    destination: str
    begun_at: datetime
    had: int  # what the source requested when it began, less what we have taken from it since for other reasons
    ran: int = 0  # the most of what it requested that ran, where it has grown since
    stood_in: int = 0  # the most that the source requested, or may, while a zone could not deliver: others grow as well
    wants: int  # what the destination requests with it
    id: str = ""  # of the move that orders it; empty: not written down yet
    ordered: bool = False  # the destination has carried that id
    less: int | None = None  # what it requests once its machine has been taken back; None: that is awaited
    draining_group: str = (
        ""  # the group whose machine is taken away: the source, or the destination where the step is undone
    )
    machine: MachineRef | None = None  # which of its machines
    back: str = ""  # of the move that takes it away
    delete_requested_at: datetime | None = None  # when the giver was first seen with that id

    @property
    def is_open(self) -> bool:
        """Whether a machine more than before is asked for: ordered, and none given for it."""
        return self.ordered and self.delete_requested_at is None

    @property
    def unbound(self) -> int:
        """What the source may request without having shown that demand is bound to it."""
        return max(self.had, self.stood_in)

    def is_taken(self, requested: int) -> bool:
        """Whether a source that requests so many has lost a node to somebody. What never ran was only given up."""
        return requested < max(self.had, self.ran)

    @property
    def is_undone(self) -> bool:
        return self.delete_requested_at is not None and self.draining_group == self.destination

    @property
    def groups(self) -> frozenset[str]:
        return frozenset({self.source, self.destination})


@dataclass(frozen=True, kw_only=True)
class LastDrain:
    """The source of the last step, watched for demand that was bound to it."""

    source: str
    requested: int  # after it had given
    at: datetime


@dataclass(frozen=True, kw_only=True)
class ConvergenceState:
    """What is remembered of a pool for converge."""

    uneven_since: datetime | None = None  # since when a zone is far below another
    step: Step | None = None
    begun: tuple[datetime, ...] = ()  # steps of the last hour
    given: LastDrain | None = None
    held_since: datetime | None = None  # when demand was bound to a source, or a step came to nothing
    held_until: datetime | None = None  # and until when no step begins therefore

    def held(self, now: datetime, length: timedelta) -> "ConvergenceState":
        """No step for so long from now; none shortens another, and a pass that was asked for before ends with it."""
        until = now + length
        return replace(self, held_since=now, held_until=max(until, self.held_until or until))

    def spent(self, now: datetime) -> list[datetime]:
        """When the steps began that the budget of this hour was spent on."""
        return [at for at in self.begun if now - at < BUDGET]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Which machine of a group may go; None: none of them, or nobody knows, and why."""

    machine: MachineRef | None = None
    why: Reason | None = None


Choices = Mapping[str, Choice]
"""By the keys of groups."""
NO_CHOICES: Choices = {}


@dataclass(frozen=True, kw_only=True)
class Converging:
    """What converge makes of a pool in one look, to be told."""

    left: int  # steps that the budget leaves within this hour
    why: Reason | None = None  # what the step waits for, or why none begins; None: one begins, or zones are level
    step: Step | None = None
    begins: bool = False  # with this very plan
    course: tuple[tuple[str, str], ...] = ()  # source and destination of all steps until zones are level
    hangs_since: datetime | None = None  # it should have ended then, and nobody but people can end it


def opened_step(convergence: ConvergenceState, step: Step, id: str) -> ConvergenceState:
    """Before the patch of a step: written down under the id of its move."""
    if step.ordered:
        return replace(convergence, step=replace(step, back=id))
    return replace(convergence, step=replace(step, id=id), begun=(*convergence.spent(step.begun_at), step.begun_at))
