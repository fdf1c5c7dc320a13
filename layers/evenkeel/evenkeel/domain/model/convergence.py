"""Converge: level the zones of a pool in steps. This module has the windows, the policy, and the phases of a step.

The first patch of a step orders one node in the smallest zone. The second patch removes one node from the fullest zone.
Evenkeel stores the step before each patch. Each patch sets the id of a move (``domain.model.moves``).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time, timedelta
from typing import ClassVar, Literal

from evenkeel.domain.model.groups import GroupKey, MachineRef
from evenkeel.domain.model.holds import next_length
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import BadValueError, quote

# How long the zones must differ before a step starts. Orders and removals in progress may still level them meanwhile.
SETTLES = timedelta(minutes=10)
# If a step's source requests the removed node again within this time, the demand counts as bound to the source's zone.
COMES_BACK = timedelta(minutes=15)
# After bound demand was found in a pool, no step starts in this pool for this time.
STEP_HELD = timedelta(hours=24)
# After a failed step, no step starts in the pool for this time, because the next step would fail in the same way.
AFTER_FAILURE = timedelta(hours=1)
LONGEST_AFTER_FAILURE = timedelta(hours=12)  # each further failure doubles the time, up to this one
# The period in which at most ``per_hour`` steps may start.
BUDGET = timedelta(hours=1)
# How long a step waits for an autoscaler to remove an unneeded node of the source. cluster-autoscaler removes a node
# after the node was unneeded for ten minutes, and not within ten minutes after a scale-up.
IDLE_REMOVED_WITHIN = timedelta(minutes=30)
# A pass of converge that an operator requests ends after this time.
PASS_LASTS = timedelta(hours=2)
_DAY = timedelta(days=1)
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_NAME = f"(?:{'|'.join(_DAYS)})"
_SPAN = f"{_NAME}(?:-{_NAME})?"
WINDOW_PATTERN = f"^(?:({_SPAN}(?:,{_SPAN})*) )?([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-4]):([0-5][0-9])$"


@dataclass(frozen=True, kw_only=True)
class Window:
    """The days and times of day (UTC) in which steps may start. Day 0 is Monday.

    If ``days`` is empty, the window applies on every day. If ``end`` is before ``start``, the window crosses midnight,
    and ``days`` are the days on which the window starts. If ``end`` is None, the window ends at midnight.
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
        """Return the next start of the window, or ``now`` inside the window; None: the window never starts."""
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
    """The settings in the field ``converge`` of a cluster's record."""

    per_hour: int = 4  # steps that may start per pool and hour
    windows: tuple[Window, ...] = ()  # empty: steps may start at any time
    surge: int = 0  # how many nodes above PoolMaximum a step may request: 0 or 1
    blind: bool = False  # True: Evenkeel chooses the machine to delete even if it cannot read pods

    def opens(self, now: datetime) -> datetime | None:
        """Return the earliest time at which a step may start (``now`` inside a window); None: no window ever starts."""
        if not self.windows:
            return now
        return min((start for window in self.windows if (start := window.begins(now)) is not None), default=None)


def _check_keys(*keys: str) -> None:
    """Raise BadValueError if a text is no key of a group. Only a stored text that was changed by hand is none."""
    for key in keys:
        try:
            GroupKey.read(key)
        except BadValueError as error:
            raise BadValueError(f"it names group {quote(key)}: {error}") from None


@dataclass(frozen=True, kw_only=True)
class Order:
    """The change of replicas that a step makes: it adds one to the destination, and later removes one from the source.

    The two groups are named by their keys.
    """

    source: str
    destination: str
    begun_at: datetime
    # The destination's replicas, including the ordered one. If the destination requests fewer, the order was cancelled.
    # 0: the step orders no node.
    target_replicas: int
    # The source's replicas at the start of the step, or the most of its replicas that ran since, if these were more. If
    # the source now requests fewer, another controller has removed a replica.
    source_replicas: int
    # If the source requests more replicas than this, the demand counts as bound to the source's zone.
    excused_replicas: int
    # The id of the fallback pool that has the source; empty: both groups are in one pool. For a fallback, the field
    # ``source_replicas`` counts the replicas of the whole pool.
    fallback: str = ""
    # How many more nodes the step orders, one after another, because the pods of the drained node do not fit one node.
    more: int = 0

    def __post_init__(self) -> None:
        _check_keys(self.source, self.destination)

    @property
    def groups(self) -> frozenset[str]:
        """Return the keys of the source and the destination."""
        return frozenset({self.source, self.destination})

    @property
    def needs_node(self) -> bool:
        """Return False if the pods of the drained node fit running nodes, so that the step orders no node."""
        return self.target_replicas > 0


@dataclass(frozen=True, kw_only=True)
class _Step:
    order: Order
    # True: the destination requests the ordered replica, and the source still requests the replica to be removed.
    is_open: ClassVar[bool] = False

    @property
    def groups(self) -> frozenset[str]:
        return self.order.groups


@dataclass(frozen=True, kw_only=True)
class Starting(_Step):
    """The order is stored. It is unknown whether its patch has reached the API server."""

    phase: Literal["starting"]
    move_id: str = ""  # the move id that the patch writes; empty until ``opened_step`` sets it


@dataclass(frozen=True, kw_only=True)
class Ordered(_Step):
    """The destination requests the ordered replica. Its machine is provisioning, or its node runs."""

    phase: Literal["ordered"]
    is_open: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Cancelling(_Step):
    """The decision to cancel the order is stored. It is unknown whether the patch has reached the API server."""

    phase: Literal["cancelling"]
    replicas_after_cancel: int  # once the destination requests this many replicas or fewer, the order is cancelled
    is_open: ClassVar[bool] = True


@dataclass(frozen=True, kw_only=True)
class Deleting(_Step):
    """The decision to delete one machine is stored. It is unknown whether the patch has reached the API server."""

    phase: Literal["deleting"]
    draining_group: str  # key of the machine's group: the source, or the destination if the step is undone
    machine: MachineRef
    delete_move_id: str = ""  # the move id that the patch writes; empty until ``opened_step`` sets it
    is_open: ClassVar[bool] = True

    def __post_init__(self) -> None:
        _check_keys(self.draining_group)

    @property
    def of_fallback(self) -> bool:
        """Return True if the machine belongs to a fallback pool, whose plan writes the patch."""
        return bool(self.order.fallback) and self.draining_group == self.order.source


@dataclass(frozen=True, kw_only=True)
class Draining(_Step):
    """The API server has accepted the patch that deletes the machine. The machine controller drains its node."""

    phase: Literal["draining"]
    draining_group: str
    machine: MachineRef
    delete_requested_at: datetime

    def __post_init__(self) -> None:
        _check_keys(self.draining_group)

    @property
    def is_undone(self) -> bool:
        """Return True if the step is undone: it drains the destination's new node, and the source keeps its node."""
        return self.draining_group == self.order.destination


Step = Starting | Ordered | Cancelling | Deleting | Draining


@dataclass(frozen=True, kw_only=True)
class LastDrain:
    """The last drain of a source's node. If the source requests the node again, the demand is bound to its zone."""

    source: str
    requested: int  # the source's replicas after the drain, plus later growth that does not count as bound demand
    at: datetime

    def __post_init__(self) -> None:
        _check_keys(self.source)


@dataclass(frozen=True, kw_only=True)
class ConvergenceState:
    """The stored state of converge for one pool."""

    uneven_since: datetime | None = None  # since when one zone is far below another zone; None: there is no such zone
    step: Step | None = field(default=None, metadata={"discriminator": "phase"})
    begun: tuple[datetime, ...] = ()  # the start times of the steps of the last hour
    last_drain: LastDrain | None = None
    held_since: datetime | None = None  # when the last hold began, after bound demand or a failed step
    held_until: datetime | None = None  # no step starts before this time

    def held(self, now: datetime, length: timedelta) -> "ConvergenceState":
        """Return the state with a hold of this length, during which no step starts. A hold that ends later remains."""
        until = now + length
        return replace(self, held_since=now, held_until=max(until, self.held_until or until))

    def held_after_failure(self, now: datetime) -> "ConvergenceState":
        """Return the state with a hold after a failed step: an hour, doubled for each further one within half a day.

        Otherwise a pool in which no drain can succeed would order and remove a node again and again.
        """
        length = next_length(self.held_since, self.held_until, now, AFTER_FAILURE, LONGEST_AFTER_FAILURE)
        return self.held(now, length)

    def spent(self, now: datetime) -> list[datetime]:
        """Return the start times of the steps in the last hour, which count against the budget."""
        return [at for at in self.begun if now - at < BUDGET]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The machine of a group that may be deleted, or the reason why no machine may be deleted.

    If ``machine`` and ``why`` are None, the group's machines are not listed.
    """

    machine: MachineRef | None = None
    why: Reason | None = None
    guarded: bool = False  # True: a guard of the pool keeps the nodes (``domain.demand.guards``)
    nodes: int = 1  # how many new nodes the pods of the machine need; 0: they fit running nodes


Choices = Mapping[str, Choice]
"""The choice of each group, by the group's key."""
NO_CHOICES: Choices = {}


@dataclass(frozen=True, kw_only=True)
class Converging:
    """The report of a check about converge in one pool."""

    left: int  # the number of steps that the budget still allows in this hour
    why: Reason | None = None  # why the step waits, or why no step starts; None: a step starts, or the zones are level
    step: Step | None = None
    begins: bool = False  # True: this plan starts the step
    # The (source, destination) of each further step, by name of the zone, until the zones are level.
    course: tuple[tuple[str, str], ...] = ()
    hangs_since: datetime | None = None  # when the step should have ended; None: no operator has to act
    draining_group: str = ""  # key of the group of ``machine``
    machine: MachineRef | None = None  # the machine that the step drains, or whose removal it waits for


def opened_step(convergence: ConvergenceState, step: Step, id: str) -> ConvergenceState:
    """Return the state to store before a patch of the step. ``id`` is the move id that the patch writes."""
    if isinstance(step, Deleting) and step.order.needs_node:
        return replace(convergence, step=replace(step, delete_move_id=id))
    begun_at = step.order.begun_at
    begun = (*convergence.spent(begun_at), begun_at)
    if isinstance(step, Deleting):
        return replace(convergence, step=replace(step, delete_move_id=id), begun=begun)
    return replace(convergence, step=Starting(phase="starting", order=step.order, move_id=id), begun=begun)
