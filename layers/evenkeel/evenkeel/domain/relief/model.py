"""Relief by a Shoot's maximum: its stored state and its write (``domain.relief.relief``)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from evenkeel.domain.model.groups import Bounds, OwnerRef, ShootWorker
from evenkeel.domain.model.parts import Part, Setting, Write
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import read_flag

# True: Evenkeel raises a Shoot's maximum while zones are dead.
SHOOT_RELIEF = Setting(name="shoot_relief", read=read_flag, default=False)


@dataclass(frozen=True, kw_only=True)
class RefusedMaximum:
    """A maximum that the garden's API has refused, by quota or otherwise."""

    number: int
    generation: int  # the Shoot's generation at the refusal; in a later generation, the API may accept the number
    at: datetime
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Relief(Part):
    """The stored relief of a pool that has dead zones, or whose Shoot has a maximum from Evenkeel.

    Evenkeel stores ``ours`` before each write of the Shoot, and ``last_known`` after it. So Evenkeel recognizes its own
    number even if a run ends between these two. If the Shoot had Evenkeel's number and has the users' maximum now,
    users have reverted Evenkeel's write.
    """

    dead: Mapping[str, datetime] = field(default_factory=dict)  # dead zone -> since when it fails without a break
    owner: str = ""  # OwnerRef.id of the Shoot's worker; empty: Evenkeel has never written to it
    user_max: int = 0  # the users' maximum
    ours: tuple[int, ...] = ()  # maxima that Evenkeel has written, or was about to write
    last_known: int | None = None  # the last known maximum of the Shoot
    written_at: datetime | None = None  # when the last write was done, or was about to be done
    restored: bool = False  # True: the last write restored the users' maximum
    # True: users have reverted Evenkeel's number. Evenkeel writes no new number until all zones are healthy.
    reverted_by_user: bool = False
    refused: RefusedMaximum | None = None

    @property
    def begun(self) -> bool:
        """Return True if Evenkeel has written a maximum, or was about to write one."""
        return bool(self.owner)

    @property
    def is_left(self) -> bool:
        """Return True if the Shoot may still have a maximum from Evenkeel."""
        return self.begun and self.last_known != self.user_max

    @property
    def blocks_restore(self) -> bool:
        """Return True while the pool's Shoot, or its Worker, may have a maximum that Evenkeel wrote."""
        return self.begun

    @property
    def reported(self) -> Mapping[str, object]:
        """Return the refused maximum."""
        return {} if self.refused is None else {"refused": [self.refused.number, self.refused.generation]}

    def wanted(self, bounds: Bounds, /) -> Bounds:
        """Return the bounds that a Worker would have without relief. Relief changes only the maximum."""
        maximum = self.user_max if self.begun and bounds.max in self.ours else bounds.max
        return Bounds(bounds.min, max(bounds.min, maximum))


@dataclass(frozen=True, kw_only=True)
class Shoot:
    """The parts of a Gardener Shoot that relief needs."""

    ref: OwnerRef
    workers: tuple[ShootWorker, ...]
    generation: int = 0
    observed: bool = True  # True: gardenlet has processed the newest generation
    obstacle: Reason | None = None  # why Evenkeel does not write to the Shoot now; None: it may write
    most_nodes: int | None = None  # limits.maxNodesTotal of its CloudProfile; None: no limit, or unknown

    def worker(self, name: str) -> ShootWorker | None:
        """Return the worker with this name; None: there is no such worker, or its minimum or maximum is unreadable."""
        return next((worker for worker in self.workers if worker.name == name), None)


@dataclass(frozen=True, kw_only=True)
class Shoots(Part):
    """The Shoots that a check has read."""

    # Namespace in the seed -> its Shoot, or the reason why the Shoot could not be read.
    of: Mapping[str, Shoot | Reason] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ReliefStep(Write[Relief]):
    """A write of a worker's maximum in a Shoot."""

    shoot: Shoot
    worker: str
    maximum: int

    @property
    def reported(self) -> Mapping[str, object]:
        """Return the new maximum."""
        return {"relief": self.maximum}

    def refused(self, message: str, now: datetime, /) -> Relief:
        """Return the relief with the refused maximum."""
        refusal = RefusedMaximum(number=self.maximum, generation=self.shoot.generation, at=now, message=message[:300])
        return replace(self.before, refused=refusal)
