"""Converge: move running nodes back to a level pool, one step at a time. Windows, policy, and the phases of a step.

Evenkeel stores a step before each of its two patches. Each patch carries the id of a move (``domain.model.moves``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from typing import ClassVar, Literal

from evenkeel.domain.model.groups import MachineRef
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import BadValueError

# Zones that differ may become level without a step for so long: other orders and removals may still be in progress.
SETTLES = timedelta(minutes=10)
# Replicas that the source requests again within this time are demand that is bound to its zone.
COMES_BACK = timedelta(minutes=15)
# Bound demand then holds the pool for this long.
STEP_HELD = timedelta(hours=24)
# A step that failed although its node ran holds the pool: the next step would fail in the same way.
AFTER_FAILURE = timedelta(hours=1)
BUDGET = timedelta(hours=1)
# cluster-autoscaler removes an unneeded node after ten minutes, but not within ten minutes of its last scale-up.
IDLE_GOES = timedelta(minutes=30)
# A pass that an operator requests ends after this time.
PASS_LASTS = timedelta(hours=2)
_DAY = timedelta(days=1)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_NAME = f"(?:{'|'.join(_DAYS)})"
_SPAN = f"{_NAME}(?:-{_NAME})?"
WINDOW_PATTERN = f"^(?:({_SPAN}(?:,{_SPAN})*) )?([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])$"


@dataclass(frozen=True, kw_only=True)
class Window:
    """The days and times of day (UTC) in which steps may start. No days means every day (0 is Monday).

    A window that ends before it starts crosses midnight and belongs to its first day. ``end`` None is midnight.
    """

    start: time
    end: time | None
    days: frozenset[int] = frozenset()

    @classmethod
    def read(cls, text: str) -> "Window":
        """Return the window of ``22:00-06:00``, ``Mon-Fri 22:00-06:00`` or ``Sat,Sun 00:00-24:00``.

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
        """Return when the window opens next, ``now`` if it is open, or None if it never opens."""
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
    """Return the days of ``Mon-Wed,Sat``. A span may cross Sunday."""
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
    windows: tuple[Window, ...] = ()  # none: always
    surge: int = 0  # nodes that a step may have above PoolMaximum: 0 or 1
    blind: bool = False  # choose machines without a workload view

    def opens(self, now: datetime) -> datetime | None:
        """Return when the windows let the next step start, ``now`` if one is open, or None if none ever opens."""
        if not self.windows:
            return now
        return min((start for window in self.windows if (start := window.begins(now)) is not None), default=None)


@dataclass(frozen=True, kw_only=True)
class Order:
    """One replica more for the destination, in exchange for one of the source. Groups by key."""

    source: str
    destination: str
    begun_at: datetime
    target_replicas: int  # the destination's, with the ordered one: fewer means that the order was cancelled
    source_replicas: int  # the most that the source had running: fewer means that another controller took the node
    excused_replicas: int  # the most that the source may request before its growth shows bound demand

    @property
    def groups(self) -> frozenset[str]:
        """Return the keys of the source and the destination."""
        return frozenset({self.source, self.destination})


@dataclass(frozen=True, kw_only=True)
class _Step:
    order: Order
    is_open: ClassVar[bool] = False  # True: the destination has its replica, and the source still has its own

    @property
    def groups(self) -> frozenset[str]:
        return self.order.groups


@dataclass(frozen=True, kw_only=True)
class Starting(_Step):
    """The order is stored, but its patch may not have arrived."""

    phase: Literal["starting"] = "starting"
    move_id: str = ""  # of the patch; empty until ``opened_step`` stores it


@dataclass(frozen=True, kw_only=True)
class Ordered(_Step):
    """The destination requests the replica. Its machine is provisioning, or its node runs."""

    phase: Literal["ordered"] = "ordered"
    is_open: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Cancelling(_Step):
    """The order is to be withdrawn, but its patch may not have arrived."""

    phase: Literal["cancelling"] = "cancelling"
    replicas_after_cancel: int  # with so many replicas of the destination or fewer, the order counts as cancelled
    is_open: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Deleting(_Step):
    """One machine is to be deleted, but its patch may not have arrived."""

    phase: Literal["deleting"] = "deleting"
    draining_group: str  # the source; or the destination, if the step is undone
    machine: MachineRef
    delete_move_id: str = ""  # of the patch; empty until ``opened_step`` stores it
    is_open: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Draining(_Step):
    """The deletion was requested. The machine controller drains the node."""

    phase: Literal["draining"] = "draining"
    draining_group: str
    machine: MachineRef
    delete_requested_at: datetime

    @property
    def is_undone(self) -> bool:
        """Return True if the new node goes again, and the source keeps its own."""
        return self.draining_group == self.order.destination


Step = Starting | Ordered | Cancelling | Deleting | Draining


@dataclass(frozen=True, kw_only=True)
class LastDrain:
    """The source of the last step. Converge watches whether it requests the node again."""

    source: str
    requested: int  # after the drain
    at: datetime


@dataclass(frozen=True, kw_only=True)
class ConvergenceState:
    """The stored state of converge for one pool."""

    uneven_since: datetime | None = None  # since when a zone is far below another
    step: Step | None = None
    begun: tuple[datetime, ...] = ()  # steps of the last hour
    last_drain: LastDrain | None = None
    held_since: datetime | None = None  # when bound demand or a failed step began to hold the pool
    held_until: datetime | None = None

    def held(self, now: datetime, length: timedelta) -> "ConvergenceState":
        """Return the state in which no step starts for this long. A shorter hold never replaces a longer one."""
        until = now + length
        return replace(self, held_since=now, held_until=max(until, self.held_until or until))

    def spent(self, now: datetime) -> list[datetime]:
        """Return when the steps of the last hour started. They count against the budget."""
        return [at for at in self.begun if now - at < BUDGET]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The machine of a group that may go, or the reason why none may. Neither: the machines are not listed."""

    machine: MachineRef | None = None
    why: Reason | None = None


Choices = Mapping[str, Choice]
"""By the keys of groups."""
NO_CHOICES: Choices = {}


@dataclass(frozen=True, kw_only=True)
class Converging:
    """What a check reports about converge in one pool."""

    left: int  # steps that the budget still allows in this hour
    why: Reason | None = None  # why the step waits, or why none starts; None: one starts, or the zones are level
    step: Step | None = None
    begins: bool = False  # the step starts with this plan
    course: tuple[tuple[str, str], ...] = ()  # source and destination of each step until the zones are level
    hangs_since: datetime | None = None  # the step should have ended then, and needs an operator
    draining_group: str = ""  # whose machine the step drains or waits for
    machine: MachineRef | None = None  # that machine


def opened_step(convergence: ConvergenceState, step: Step, id: str) -> ConvergenceState:
    """Return the state to store before the patch of a step, with the id of its move."""
    if isinstance(step, Deleting):
        return replace(convergence, step=replace(step, delete_move_id=id))
    begun_at = step.order.begun_at
    begun = (*convergence.spent(begun_at), begun_at)
    return replace(convergence, step=Starting(order=step.order, move_id=id), begun=begun)
