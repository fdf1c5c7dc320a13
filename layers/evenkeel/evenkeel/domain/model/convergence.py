"""Converge: level the zones of a pool in steps. Windows, policy, and the phases of a step.

A step orders one node in the smallest zone, then removes one from the fullest. Evenkeel stores the step before each of
these two patches. Each patch carries the id of a move (``domain.model.moves``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import ClassVar, Literal

from evenkeel.domain.model.groups import MachineRef
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import BadValueError

# How long the zones must differ before a step starts: orders and removals in progress may still make them level.
SETTLES = timedelta(minutes=10)
# If a step's source requests its removed node again within this time, the demand is bound to the source's zone.
COMES_BACK = timedelta(minutes=15)
# How long no step starts in a pool after bound demand was found.
STEP_HELD = timedelta(hours=24)
# How long no step starts in a pool after a failed step, because the next one would fail in the same way.
AFTER_FAILURE = timedelta(hours=1)
# The period of the budget ``per_hour``.
BUDGET = timedelta(hours=1)
# How long a step waits for an autoscaler to remove an unneeded node of the source. cluster-autoscaler waits until ten
# minutes have passed, both since the node became unneeded and since the last scale-up.
IDLE_GOES = timedelta(minutes=30)
# A convergence that an operator requests ends after this time.
PASS_LASTS = timedelta(hours=2)
_DAY = timedelta(days=1)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_NAME = f"(?:{'|'.join(_DAYS)})"
_SPAN = f"{_NAME}(?:-{_NAME})?"
WINDOW_PATTERN = f"^(?:({_SPAN}(?:,{_SPAN})*) )?([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])$"


@dataclass(frozen=True, kw_only=True)
class Window:
    """The days and times of day (UTC) in which steps may start. Monday is 0; an empty ``days`` means every day.

    If ``end`` is before ``start``, the window crosses midnight, and ``days`` are the days on which it starts. ``end``
    None is midnight.
    """

    start: time
    end: time | None
    days: frozenset[int] = frozenset()

    @classmethod
    def read(cls, text: str) -> "Window":
        """Return the window that a text describes, such as ``Mon-Fri 22:00-06:00`` or ``00:00-24:00``.

        Raises:
            BadValueError: The text has another form.
        """
        match = re.fullmatch(WINDOW_PATTERN, text)
        if match is None:
            raise BadValueError("write it like 22:00-06:00 or Mon-Fri 22:00-06:00, in UTC")
        days, *parts = match.groups()
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
        """Return the next start of the window; inside the window, ``now``; None: it never starts."""
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
    """Return the days that a text such as ``Mon-Wed,Sat`` names. A span may cross the end of the week."""
    days: set[int] = set()
    for span in filter(None, text.split(",")):
        first, _, last = span.partition("-")
        start = _DAYS.index(first)
        length = (_DAYS.index(last or first) - start) % len(_DAYS)
        days |= {(start + day) % len(_DAYS) for day in range(length + 1)}
    return frozenset(days)


@dataclass(frozen=True, kw_only=True)
class ConvergePolicy:
    """The field ``converge`` of a cluster's record."""

    per_hour: int = 4  # steps that may start per pool and hour
    windows: tuple[Window, ...] = ()  # empty: steps may start at any time
    surge: int = 0  # how many nodes above PoolMaximum a step may request: 0 or 1
    blind: bool = False  # True: choose the machine to delete even if pods cannot be read

    def opens(self, now: datetime) -> datetime | None:
        """Return the earliest time at which a step may start: ``now`` inside a window; None: no window ever starts."""
        if not self.windows:
            return now
        return min((start for window in self.windows if (start := window.begins(now)) is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Order:
    """A step's order: one replica more for the destination, later one less for the source. Groups are named by key."""

    source: str
    destination: str
    begun_at: datetime
    # The destination's replicas, including the ordered one. If the destination requests fewer, the order was cancelled.
    target_replicas: int
    # The source's replicas at the start, or the most that ran since. If the source requests fewer now, another
    # controller removed one.
    source_replicas: int
    excused_replicas: int  # if the source requests more replicas than this, its demand is bound to the source's zone

    @property
    def groups(self) -> frozenset[str]:
        """Return the keys of the source and the destination."""
        return frozenset({self.source, self.destination})


@dataclass(frozen=True, kw_only=True)
class _Step:
    order: Order
    # True: the destination requests the ordered replica, and the source still requests the one to be removed.
    is_open: ClassVar[bool] = False

    @property
    def groups(self) -> frozenset[str]:
        return self.order.groups


@dataclass(frozen=True, kw_only=True)
class Starting(_Step):
    """The order is stored. It is unknown whether its patch has reached the API server."""

    phase: Literal["starting"] = "starting"
    move_id: str = ""  # the move id that the patch carries; empty until ``opened_step`` sets it


@dataclass(frozen=True, kw_only=True)
class Ordered(_Step):
    """The destination requests the ordered replica. Its machine is provisioning, or its node runs."""

    phase: Literal["ordered"] = "ordered"
    is_open: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Cancelling(_Step):
    """The decision to cancel the order is stored. It is unknown whether the patch has reached the API server."""

    phase: Literal["cancelling"] = "cancelling"
    replicas_after_cancel: int  # once the destination requests this many replicas or fewer, the order is cancelled
    is_open: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Deleting(_Step):
    """The decision to delete one machine is stored. It is unknown whether the patch has reached the API server."""

    phase: Literal["deleting"] = "deleting"
    draining_group: str  # key of the machine's group: the source, or the destination if the step is undone
    machine: MachineRef
    delete_move_id: str = ""  # the move id that the patch carries; empty until ``opened_step`` sets it
    is_open: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Draining(_Step):
    """The patch that deletes the machine has arrived. The machine controller drains its node."""

    phase: Literal["draining"] = "draining"
    draining_group: str
    machine: MachineRef
    delete_requested_at: datetime

    @property
    def is_undone(self) -> bool:
        """Return True if the destination's new node is drained, and the source keeps its node."""
        return self.draining_group == self.order.destination


Step = Starting | Ordered | Cancelling | Deleting | Draining


@dataclass(frozen=True, kw_only=True)
class LastDrain:
    """The last drain of a source. If the source requests the drained node again, the demand is bound to that zone."""

    source: str
    requested: int  # replicas of the source after the drain, plus its excused growth since then
    at: datetime


@dataclass(frozen=True, kw_only=True)
class ConvergenceState:
    """The stored state of converge for one pool."""

    uneven_since: datetime | None = None  # since when a zone is far below another
    step: Step | None = None
    begun: tuple[datetime, ...] = ()  # when the steps of the last hour started
    last_drain: LastDrain | None = None
    held_since: datetime | None = None  # when the last hold began, after bound demand or a failed step
    held_until: datetime | None = None  # no step starts before this time

    def held(self, now: datetime, length: timedelta) -> "ConvergenceState":
        """Return the state with a hold: no step starts for this length. A hold with a later end keeps that end."""
        until = now + length
        return replace(self, held_since=now, held_until=max(until, self.held_until or until))

    def spent(self, now: datetime) -> list[datetime]:
        """Return the start times of the steps in the last hour, which count against the budget."""
        return [at for at in self.begun if now - at < BUDGET]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The machine of a group that may be deleted, or the reason why none may be. Both None: machines are not listed."""

    machine: MachineRef | None = None
    why: Reason | None = None


Choices = Mapping[str, Choice]
"""The choice of each group, by the group's key."""
NO_CHOICES: Choices = {}


@dataclass(frozen=True, kw_only=True)
class Converging:
    """What a check reports about converge in one pool."""

    left: int  # steps that the budget still allows in this hour
    why: Reason | None = None  # why the step waits, or why no step starts; None: a step starts, or the zones are level
    step: Step | None = None
    begins: bool = False  # True: this plan starts the step
    course: tuple[tuple[str, str], ...] = ()  # source and destination of each step until the zones are level
    hangs_since: datetime | None = None  # the time by which the step should have ended, if an operator must act
    draining_group: str = ""  # key of the group of ``machine``
    machine: MachineRef | None = None  # the machine that the step drains, or whose removal it waits for


def opened_step(convergence: ConvergenceState, step: Step, id: str) -> ConvergenceState:
    """Return the state to store before a patch of the step. ``id`` is the move id that the patch carries."""
    if isinstance(step, Deleting):
        return replace(convergence, step=replace(step, delete_move_id=id))
    begun_at = step.order.begun_at
    begun = (*convergence.spent(begun_at), begun_at)
    return replace(convergence, step=Starting(order=step.order, move_id=id), begun=begun)
